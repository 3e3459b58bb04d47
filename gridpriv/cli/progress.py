"""Progress bars on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from gridpriv.cli.output import console


class Advance(Protocol):
    """Moves a progress bar."""

    def __call__(self, note: str, steps: int = 1, /) -> None:
        """Show a note beside the bar and go on by a number of steps."""
        ...


@contextmanager
def progress(label: str, total: int, *, quiet: bool) -> Iterator[Advance]:
    """Show a progress bar with the time left on a terminal; yield ``advance(note, steps=1)``."""
    if quiet or not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.table import Column

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(table_column=Column(min_width=2 * len(str(total)) + 1)),
        TimeRemainingColumn(table_column=Column(min_width=len("0:00:00"))),
        TextColumn("{task.fields[note]}"),
        console=console(error=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(label, total=total, note="")
        yield lambda note, steps=1: bar.update(task, advance=steps, note=note)

"""Progress bars on a terminal."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gridpriv.cli.output import console, tell_finished


@contextmanager
def progress(args: argparse.Namespace, label: str, total: int) -> Iterator[Callable[..., None]]:
    """Show a progress bar with the time left on a terminal; yield ``advance(note, steps=1)``.

    Of nothing, which is what is left of a finished study, say that.
    """
    if total == 0:
        tell_finished(args)
    if args.quiet or args.json or not sys.stderr.isatty():
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

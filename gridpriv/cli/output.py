"""Output of commands: documents and tables on the terminal, and the folder of ``--out``."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TextIO

from gridpriv.core import errors
from gridpriv.core.errors import InputError, not_allowed
from gridpriv.core.files import make_folder, sealed, write_text
from gridpriv.core.text import Amount, Json, amount, frame_csv, sections, shown


def print_result(
    args: argparse.Namespace,
    document: Json,
    summarise: Callable[[], object],
    written: Path | str | None = None,
    code: int = 0,
) -> int:
    """Print the document (``--json``), nothing (``--quiet``), or the summary.

    Returns
    -------
    int
        ``code``, the command's exit status.
    """
    if args.json:
        sys.stdout.write(json_text(document))
    elif not args.quiet:
        summarise()
        if written is not None:
            kind = "folder " if Path(str(written).partition("\n")[0]).is_dir() else ""
            console().print(f"Written to {kind}{written}", soft_wrap=True)  # paths stay whole
    return code


def json_text(document: Json) -> str:
    """Return a document as JSON."""
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def console(*, error: bool = False) -> Any:
    """Return a rich console on standard output, or standard error."""
    from rich.console import Console

    class Plain(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would end with exit code 1

    # names from files are not markup
    return Plain(stderr=error, highlight=False, soft_wrap=False, markup=False, emoji=False)


@cache
def texts() -> dict[str, str]:
    """Return the texts for commands' results, by code, with places for values."""
    catalog = sections(Path(__file__).with_name("texts.txt"))
    return {code: " ".join(text.split()) for code, text in catalog.items()}


def worded(code: str, **values: object) -> str:
    """Return a text of the catalog with its values."""
    return texts()[code].format(**values)


def warn(code: str, **values: object) -> None:
    """Warn with a text of the catalog."""
    errors.warn(worded(code, **values), 3)


def say(*sentences: object, indent: str = "") -> None:
    """Print paragraphs; lines after the first are indented."""
    for sentence in sentences:
        print(wrapped(str(sentence), sys.stdout, indent))


def wrapped(text: str, stream: TextIO, indent: str = "") -> str:
    """Return text wrapped at a terminal's width, or in one line for a pipe or file."""
    if not stream.isatty():
        return text
    width = shutil.get_terminal_size((80, 24)).columns
    return textwrap.fill(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def say_command(label: str, command: str) -> None:
    """Print a command after its label, wrapped so that it can be pasted into a shell."""
    width, lines = shutil.get_terminal_size((80, 24)).columns - len(r" \ "), [label]
    for word in map(shlex.quote, shlex.split(command)):
        if len(lines[-1]) + 1 + len(word) > width:
            lines.append("   ")
        lines[-1] += f" {word}"
    print(" \\\n".join(lines))


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table within 80 columns if its words fit; numbers are right-aligned."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    out = console()
    cells = [[row[position] for row in rows] for position in range(len(columns))]
    numeric = [all(isinstance(c, int | float | Amount | None) for c in column) for column in cells]
    widths = [
        max(map(len, [*name.split(), *_unbroken(column, number)]), default=0)
        for name, column, number in zip(columns, cells, numeric, strict=True)
    ]
    wanted = [
        max(map(len, [name, *map(shown, column)]))
        for name, column in zip(columns, cells, strict=True)
    ]
    narrow = sum(wanted) + 3 * len(columns) + 1 > out.width
    between = 1 if sum(widths) + 3 * len(columns) + 1 > out.width else 3
    table = Table(box=box.SIMPLE_HEAD, padding=(0, between // 2))
    # words are not broken as far as the width allows; numbers never
    taken = sum(width for width, number in zip(widths, numeric, strict=True) if number)
    room = (out.width - between * len(columns) - 1 - taken) // max(numeric.count(False), 1)
    for name, width, number in zip(columns, widths, numeric, strict=True):
        table.add_column(
            name,
            justify="right" if number else "left",
            overflow="fold",
            min_width=width if number else max(min(width, room), 1),
            width=width if number and narrow else None,
        )
    for row in rows:
        table.add_row(*(shown(cell) for cell in row))
    out.print(Text(title, style="bold"))
    out.print(table)


def print_records(
    title: str, columns: Mapping[str, str], records: Iterable[Json], **units: str
) -> None:
    """Print rows of a document: ``columns`` are headers by key, ``units`` those of amounts."""
    cells = [
        [amount(row[key], units[key]) if key in units else row[key] for key in columns]
        for row in records
    ]
    print_table(title, list(columns.values()), cells)


def print_rows(rows: Sequence[Sequence[object]]) -> None:
    """Print values without a header: name, right-aligned value, unit, and note."""
    from rich.table import Table

    table = Table(box=None, show_header=False, padding=(0, 1))
    for justify in ("left", "right", "left", "left"):
        table.add_column(justify=justify)
    for row in rows:
        table.add_row(*(shown(cell) for cell in row))
    out = console()
    out.print()
    out.print(table)
    out.print()


def _unbroken(cells: Sequence[object], number: bool) -> Iterator[str]:
    """Yield the parts of a column's cells that must not wrap: numbers, or single words."""
    for cell in cells:
        yield from [shown(cell)] if number else shown(cell).split()


def output_folder(text: str | None) -> Path | None:
    """Return the folder of ``--out``; refuse early a folder that cannot be written.

    It is not created here, so a command that fails leaves no folder.
    """
    if text is None:
        return None
    folder = Path(text)
    if folder.exists() and not folder.is_dir():
        raise not_allowed("out", text, "a folder, not a file")
    missing = [part for part in (folder, *folder.parents) if not part.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for part in missing:
            part.rmdir()
        if not missing and not os.access(folder, os.W_OK | os.X_OK):
            raise InputError(f"cannot write to {folder}: permission denied")
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror}") from error
    return folder


def finish(
    args: argparse.Namespace,
    document: Json,
    summarise: Callable[[], object],
    files: Callable[[], Mapping[str, Any]] = dict,
    code: int = 0,
) -> int:
    """Write the results of a command into the folder of ``--out``, for their owner; print them.

    Parameters
    ----------
    files : callable
        Returns tables (written as CSV) and plots (as PNG) by name. The document, with its own
        checksum, is written too, under the name of the command.
    """
    folder = output_folder(args.out)
    if folder is not None:
        make_folder(folder)
        name = f"{getattr(args, 'name', None) or args.command}.json"
        write_text(folder / name, sealed(document, indent=2), private=True)
        for title, item in files().items():
            if hasattr(item, "to_csv"):
                write_text(folder / f"{title}.csv", frame_csv(item), private=True)
            else:
                from gridpriv.report.figures import write_figure

                write_figure(item, folder / f"{title}.png", private=True)
    return print_result(args, document, summarise, folder, code)


@contextmanager
def progress(
    args: argparse.Namespace, label: str, total: int | None
) -> Iterator[Callable[..., None]]:
    """Show a progress bar with the time left on a terminal; yield ``advance(note, steps=1)``.

    A ``total`` of 0 is work finished before ``--resume``. None is work of unknown length, without a
    share or time left.
    """
    if total == 0 and not args.quiet:
        print(f"no run was left to compute: {args.out} was finished before", file=sys.stderr)
    if args.quiet or args.json or not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich import progress as shown_as
    from rich.table import Column

    bar = shown_as.Progress(
        shown_as.TextColumn("{task.description}"),
        shown_as.BarColumn(bar_width=24),
        shown_as.MofNCompleteColumn(table_column=Column(min_width=2 * len(str(total or 0)) + 1)),
        shown_as.TimeRemainingColumn(table_column=Column(min_width=len("0:00:00"))),
        shown_as.TextColumn("{task.fields[note]}"),
        console=console(error=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(label, total=total, note="")
        yield lambda note, steps=1: bar.update(task, advance=steps, note=note)

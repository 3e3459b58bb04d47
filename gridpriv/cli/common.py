"""Arguments, tables and progress that several commands share."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from gridpriv.core.display import Amount, shown
from gridpriv.core.errors import MOST_WHOLE, InputError, not_allowed, one_of
from gridpriv.core.files import make_folder, write_text
from gridpriv.core.sealed import sealed
from gridpriv.core.settings import Part, as_flags, defaults, names, parts_of, reading, settings_of
from gridpriv.core.text import frame_csv
from gridpriv.report.formats import FORMATS, check_formats

if TYPE_CHECKING:
    import pandas as pd

    from gridpriv.grid.case import Case
    from gridpriv.grid.zoning import Zoning
    from gridpriv.zonal.settings import Settings


def number(kind: Callable[[str], Any], what: str) -> Callable[[str], Any]:
    """Return an argparse type that refuses in gridpriv's words."""

    def parse(text: str) -> Any:
        try:
            return kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not allowed: {what}") from None

    return parse


def _whole(text: str) -> int:
    value = int(text)
    if abs(value) > MOST_WHOLE:
        raise ValueError
    return value


WHOLE = number(_whole, "a whole number below 2^64")
REAL = number(float, "a number")


def add_settings(
    parser: argparse.ArgumentParser,
    kind: type[Part],
    presets: Iterable[str],
    without: Collection[str] = (),
    *,
    axis: bool = False,
) -> None:
    """Add ``--preset``, ``--epsilon`` and the flags of settings; see :func:`add_flags`."""
    parser.add_argument(
        "--preset",
        metavar="NAME",
        help=f"settings under those given here: {' | '.join(presets)} (default: none)",
    )
    if "budget" not in without:
        parser.add_argument(
            "--epsilon", type=reading(float), metavar="E",
            help="short for --budget per-release:E (default: none)",
        )  # fmt: skip
    add_flags(parser, kind, without, axis=axis)


def add_flags(
    parser: argparse.ArgumentParser,
    kind: type[Part],
    without: Collection[str] = (),
    *,
    axis: bool = False,
) -> None:
    """Add a flag for every setting, in a group a part; what is not given is None.

    With ``axis`` a flag takes several values, by commas or given again, and is left as texts.
    """
    standard, held = defaults(kind), settings_of(kind)
    for part, declared in parts_of(kind).items():
        group = parser.add_argument_group(part.__name__.lower(), part.__doc__)
        for name in declared:
            if name not in without:
                one = held[name]
                group.add_argument(
                    f"--{name.replace('_', '-')}",
                    type=str if axis else one.read,
                    action="append" if axis or one.repeated else "store",
                    metavar=f"{one.metavar},..." if axis and not one.repeated else one.metavar,
                    help=one.described(standard[name]).replace("%", "%%"),
                )


def given_settings(args: argparse.Namespace, kind: type[Part]) -> dict[str, Any]:
    """Return the settings that the command line names."""
    given = {
        name: value for name in names(kind) if (value := getattr(args, name, None)) is not None
    }
    if "budget" in names(kind) and getattr(args, "epsilon", None) is not None:
        if "budget" in given:
            raise InputError("--epsilon and --budget exclude each other")
        from gridpriv.privacy.budget import Budget

        given["budget"] = Budget("per-release", args.epsilon)
    return given


ZONE_FLAGS = ("zones", "zoning", "zones_from", "method", "zone_size")


def command_again(args: argparse.Namespace, settings: Settings) -> str:
    """Return the command that runs the same again: files by their full path, every setting."""
    words = ["gridpriv", args.command, _full(args.case)]
    words += given_words(args, *ZONE_FLAGS, "demand", "series")
    if args.reference is not None:
        words.append("--reference" if args.reference else "--no-reference")
    held = settings_of(type(settings))
    files = {name: getattr(settings, name) for name in held if held[name].metavar == "FILE"}
    full: dict[str, Any] = {name: _full(path) for name, path in files.items() if path is not None}
    return shlex.join([*words, *as_flags(replace(settings, **full))])


def given_words(args: argparse.Namespace, *names: str) -> list[str]:
    """Return the flags that were given, of those named, with their values."""
    given = {name: getattr(args, name) for name in names}
    pairs = [(name, _full(str(value))) for name, value in given.items() if value is not None]
    return [word for name, text in pairs for word in (f"--{name.replace('_', '-')}", text)]


def _full(text: str) -> str:
    path = Path(text)
    return str(path.resolve()) if path.is_file() else text


def add_zone_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags that choose zones."""
    zones = parser.add_argument_group("zones", "A shipped map where a case has one.")
    zones.add_argument(
        "--zones",
        type=number(_whole, "a number of zones; a map of them is named by --zoning FILE.csv"),
        metavar="K",
        help="number of zones (default: that of the shipped map)",
    )
    zones.add_argument("--zoning", metavar="FILE.csv", help="zone map with columns bus,zone")
    zones.add_argument(
        "--zones-from", metavar="NAME",
        help="the case's own groups: area | zone (MATPOWER's columns, pandapower's bus.zone)",
    )  # fmt: skip
    zones.add_argument(
        "--method", metavar="NAME",
        help="how zones are computed: spectral | louvain | kernighan-lin | metis "
        "(default: spectral)",
    )  # fmt: skip
    zones.add_argument("--zone-size", type=WHOLE, metavar="N", help="buses per zone, instead of K")


NOT_HONOURED = ("demand", "ledger", "series", "resume", "public", "cluster", "reference")


def refuse_what_runs_only(args: argparse.Namespace, command: str) -> None:
    """Refuse flags of ``run`` that a study of its settings would pass over in silence."""
    for name in NOT_HONOURED:
        if getattr(args, name, None):
            raise InputError(
                f"--{name} is a flag of gridpriv run: gridpriv {command} studies the settings on "
                "the case's own demand, publishes nothing and charges nothing"
            )


def chosen_zoning(case: Case, args: argparse.Namespace) -> Zoning:
    """Return the zone map that the arguments ask for."""
    from gridpriv.grid.library import SHIPPED_ZONES, shipped_zoning
    from gridpriv.grid.zoning import read_zoning, zoning_from_source

    given = [flag for flag in ("zoning", "zones_from") if getattr(args, flag)]
    if given and (len(given) > 1 or args.zones or args.method or args.zone_size):
        raise InputError(
            f"--{given[0].replace('_', '-')} names a map; leave out --zones, --zone-size, "
            "--method and every other map"
        )
    if args.zones_from:
        return zoning_from_source(case, args.zones_from)
    if args.zoning:
        return read_zoning(args.zoning, case)
    if args.zone_size is not None and args.zone_size < 1:
        raise not_allowed("zone-size", args.zone_size, "1 or more buses")
    if args.zones is not None and args.zones < 1:
        raise not_allowed("zones", args.zones, f"1 to {case.n_bus}, the number of buses")
    if args.zones and args.zone_size:
        raise InputError("--zones and --zone-size exclude each other")
    zones = args.zones
    if args.zone_size:
        zones = max(1, round(case.n_bus / args.zone_size))
    if args.method is not None:
        from gridpriv.grid.partition import METHODS

        one_of("method", args.method, METHODS)
    elif zones is None or zones == SHIPPED_ZONES.get(case.name):
        shipped = shipped_zoning(case)
        if shipped is not None:
            return shipped
    elif case.name in SHIPPED_ZONES:
        shipped = shipped_zoning(case, zones)
        if shipped is not None:
            return shipped
    if zones is None:
        own = [f", --zones-from {name}" for name in ("area", "zone") if getattr(case, name)]
        raise InputError(
            f"case {case.name} has no shipped zone map: give --zones K{''.join(own)} or "
            "--zoning FILE.csv"
        )
    from gridpriv.grid.partition import partition  # imports networkx: slow

    return partition(case, zones, args.method or "spectral")


def add_formats(parser: argparse.ArgumentParser) -> None:
    """Add ``--format``, the reports to write."""
    parser.add_argument(
        "--format",
        metavar="A,B,...",
        default="html",
        help=f"reports to write, by commas: {' | '.join(FORMATS)} | none",
    )


def add_output(
    parser: argparse.ArgumentParser, out: str = "", place: str = "DIR", default: str | None = None
) -> None:
    """Add ``--out`` where there is something to write, ``--json`` and ``--quiet``."""
    if out:
        parser.add_argument("--out", metavar=place, default=default, help=out)
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON document and nothing else",
    )
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")


def tell(
    args: argparse.Namespace,
    document: dict[str, Any],
    summarise: Callable[[], object],
    written: Path | str | None = None,
) -> None:
    """Print what ``--json`` and ``--quiet`` ask for: the document, nothing, or the summary."""
    if args.json:
        sys.stdout.write(json_text(document))
    elif not args.quiet:
        summarise()
        if written is not None:
            console().print(f"Written to {written}")


def tell_names(args: argparse.Namespace, known: Mapping[str, str]) -> None:
    """Print what can be reproduced."""
    rows = [list(pair) for pair in known.items()]
    document = {"reproductions": [dict(zip(("name", "what"), row, strict=True)) for row in rows]}
    tell(args, document, lambda: print_table("Reproductions", ["name", "what"], rows))


def wanted_formats(args: argparse.Namespace) -> list[str]:
    """Return the formats of ``--format``; ``none`` is no report."""
    formats = [name.strip() for name in args.format.split(",") if name.strip()]
    formats = [name for name in formats if name != "none"]
    check_formats(formats)
    return formats


def json_text(document: dict[str, Any]) -> str:
    """Return a document as JSON."""
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def write_json(document: dict[str, Any], path: Path) -> None:
    """Write a JSON document for its owner, with a checksum of its own content."""
    write_text(path, sealed(document, indent=2), private=True)


def write_csv(table: pd.DataFrame, path: Path) -> None:
    """Write a table for its owner to read."""
    write_text(path, frame_csv(table), private=True)


def console(*, error: bool = False) -> Any:
    """Return a rich console on standard output, or standard error."""
    from rich.console import Console

    class Plain(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would end with exit code 1

    # names that somebody else chose are no markup
    return Plain(stderr=error, highlight=False, soft_wrap=False, markup=False, emoji=False)


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table that fits 80 columns where its words do; numbers stand to the right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    out, table = console(), Table(box=box.SIMPLE_HEAD)
    cells = [[row[position] for row in rows] for position in range(len(columns))]
    numeric = [all(isinstance(c, int | float | Amount | None) for c in column) for column in cells]
    widths = [
        max(map(len, [*name.split(), *_unbroken(column, number)]), default=0)
        for name, column, number in zip(columns, cells, numeric, strict=True)
    ]
    # words are kept together as far as numbers, which always are, leave room
    taken = sum(width for width, number in zip(widths, numeric, strict=True) if number)
    room = (out.width - 3 * len(columns) - 1 - taken) // max(numeric.count(False), 1)
    for name, width, number in zip(columns, widths, numeric, strict=True):
        table.add_column(
            name,
            justify="right" if number else "left",
            overflow="fold",
            min_width=width if number else max(min(width, room), 1),
        )
    for row in rows:
        table.add_row(*(shown(cell) for cell in row))
    out.print(Text(title, style="bold"))
    out.print(table)


def _unbroken(cells: Sequence[object], number: bool) -> Iterator[str]:
    """Yield what of a column's cells is to stand on one line: numbers, or single words."""
    for cell in cells:
        yield from [shown(cell)] if number else shown(cell).split()


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


def output_folder(text: str | None) -> Path | None:
    """Return the folder of ``--out``, refusing early what cannot be written to.

    It is not left behind: whoever writes makes it (:func:`ready`), so that a command that fails
    leaves nothing.
    """
    if text is None:
        return None
    folder = Path(text)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"out = {text!r} is not allowed: a folder, not a file")
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


def ready(folder: Path) -> Path:
    """Return a folder that is there."""
    make_folder(folder)
    return folder

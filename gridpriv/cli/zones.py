"""``gridpriv zones``: partition, check, write and draw."""

from __future__ import annotations

import argparse
from pathlib import Path

from gridpriv.cli.flags import CASE, add_output, add_zone_arguments, chosen_zoning
from gridpriv.cli.output import print_table, tell
from gridpriv.core.display import counted
from gridpriv.core.document import Json
from gridpriv.core.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("case", metavar="CASE", help=CASE)
    add_zone_arguments(parser)
    parser.add_argument("--plot", metavar="F.png", help="draw the zones (.png, .svg or .pdf)")
    add_output(parser, "write the map", "F.csv")


def execute(args: argparse.Namespace) -> int:
    """Report the zones of a case."""
    from gridpriv.grid.library import load_case
    from gridpriv.grid.zoning import tie_lines, write_zoning, zone_report

    for option in ("out", "plot"):
        path = getattr(args, option)
        if path and not Path(path).parent.is_dir():
            raise InputError(f"{option} = {path!r}: must be in a folder that exists")
        if path and Path(path).is_dir():
            raise InputError(f"{option} = {path!r}: must be a file, not a folder")
    if args.plot:
        from gridpriv.report.formats import picture_format

        picture_format(args.plot)
    case = load_case(args.case)
    zoning = chosen_zoning(case, args)
    report = zone_report(case, zoning)
    ties = int(tie_lines(case, zoning).sum())
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
        "tie_lines": ties,
        "zones": report.to_dict("records"),
    }
    tell(args, document, lambda: _summarise(document))
    return 0


def _summarise(document: Json) -> None:
    zones = document["zones"]
    print_table(
        f"{document['case']}: {counted(document['buses'], 'bus')} in "
        f"{counted(len(zones), 'zone')} ({document['source']}), "
        f"{counted(document['tie_lines'], 'tie line')}",
        ["zone", "buses", "of mean", "ties", "gens", "load MW", "capacity MW", "connected"],
        [list(zone.values()) for zone in zones],
    )
    without = [zone["zone"] for zone in zones if zone["generators"] == 0]
    if without:
        print(f"Zones without a generator: {', '.join(without)}")

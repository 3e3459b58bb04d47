"""``gridpriv consortium``: the folders of a run whose zones work on their own machines."""

from __future__ import annotations

import argparse
from pathlib import Path

from gridpriv.cli.flags import (
    add_case_arguments,
    add_output,
    add_settings,
    add_zone_arguments,
    chosen_zoning,
    given_case,
    given_settings,
)
from gridpriv.cli.output import tell
from gridpriv.core.display import counted
from gridpriv.core.errors import InputError
from gridpriv.zonal.settings import PRESETS, Settings, make_settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_case_arguments(parser)
    parser.add_argument("--run", metavar="NAME", default="1", help="what the run is called")
    parser.add_argument(
        "--address", metavar="HOST:PORT", default="127.0.0.1:50051",
        help="where zones reach the coordinator",
    )  # fmt: skip
    add_zone_arguments(parser)
    add_settings(parser, Settings, PRESETS, without=("workers", "course"))
    add_output(parser, "a new folder, with a folder a party", "DIR")


def execute(args: argparse.Namespace) -> int:
    """Make the folders."""
    if args.out is None:
        raise InputError("a consortium's folders need a place: give --out DIR")
    from gridpriv.consortium.folders import lay_out

    settings = make_settings(args.preset, **given_settings(args, Settings))
    case = given_case(args)
    zoning = chosen_zoning(case, args)
    folder = Path(args.out)
    lay_out(case, zoning, settings, args.run, args.address, folder)
    document = {"out": str(folder), "run": args.run, "zones": list(zoning.names)}
    tell(args, document, lambda: print(
        f"{folder}: coordinator, {counted(zoning.n_zone, 'zone')} ({', '.join(zoning.names)}), "
        "authority.\n"
        f"gridpriv coordinator --config {folder / 'coordinator' / 'coordinator.toml'}\n"
        f"gridpriv zone-agent --config {folder / zoning.names[0] / 'zone.toml'}, and so on"
    ))  # fmt: skip
    return 0

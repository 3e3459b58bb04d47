"""``gridpriv consortium``: folders of a run whose zones work on their own machines; its check.

``gridpriv consortium CASE --out DIR`` makes one configuration folder per party;
``gridpriv consortium verify FOLDER...`` replays the transcripts in such folders after a run.
"""

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
from gridpriv.cli.output import print_table, tell
from gridpriv.core.display import counted
from gridpriv.core.errors import InputError
from gridpriv.zonal.settings import PRESETS, Settings, make_settings

VERIFY, DEVIATED = "verify", 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_case_arguments(parser)
    parser.add_argument(
        "folders",
        metavar="FOLDER",
        nargs="*",
        help=(
            "with 'verify' in place of CASE: folders of parties whose signed transcripts are "
            "replayed, to name parties that deviated from the agreement"
        ),
    )
    parser.add_argument("--run", metavar="NAME", default="1", help="name of the run")
    parser.add_argument(
        "--address",
        metavar="HOST:PORT",
        default="127.0.0.1:50051",
        help="address of the coordinator for zones",
    )
    add_zone_arguments(parser)
    add_settings(parser, Settings, PRESETS, without=("workers", "temporal_basis", "stream"))
    add_output(parser, "new folder with one folder per party", "DIR")


def execute(args: argparse.Namespace) -> int:
    """Make the folders, or verify the transcripts in them."""
    if args.case == VERIFY:
        return verified(args)
    if args.folders:
        raise InputError(
            f"{args.folders[0]!r} follows the case; give folders to 'gridpriv consortium "
            "verify FOLDER...'"
            ", without a case"
        )
    if args.out is None:
        raise InputError("a consortium's folders need a place: give --out DIR")
    from gridpriv.consortium.folders import lay_out

    settings = make_settings(args.preset, **given_settings(args, Settings))
    case = given_case(args)
    zoning = chosen_zoning(case, args)
    folder = Path(args.out)
    lay_out(case, zoning, settings, args.run, args.address, folder)
    document = {"out": str(folder), "run": args.run, "zones": list(zoning.names)}
    tell(
        args,
        document,
        lambda: print(
            f"{folder}: coordinator, {counted(zoning.n_zone, 'zone')} ({', '.join(zoning.names)}), "
            "authority.\n"
            f"gridpriv coordinator --config {folder / 'coordinator' / 'coordinator.toml'}\n"
            f"gridpriv zone-agent --config {folder / zoning.names[0] / 'zone.toml'}, and so on"
        ),
    )
    return 0


def verified(args: argparse.Namespace) -> int:
    """Replay transcripts, print the deviations; exit code 3 where there are any."""
    from gridpriv.consortium.verify import summary_line, verify

    document = verify([Path(folder) for folder in args.folders])

    def show() -> None:
        if document["deviations"]:
            rows = [
                [row["party"], row["turn"] or "-", row["reason"]] for row in document["deviations"]
            ]
            print_table("Deviations from the agreement", ["party", "turn", "reason"], rows)
        print(summary_line(document))

    tell(args, document, show)
    return DEVIATED if document["deviations"] else 0

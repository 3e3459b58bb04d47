"""``gridpriv keys``: certificates of a consortium, for trials."""

from __future__ import annotations

import argparse
from pathlib import Path

from gridpriv.cli.flags import WHOLE, add_output
from gridpriv.cli.output import tell
from gridpriv.core.errors import InputError
from gridpriv.core.files import make_folder, refuse_used


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "--zone",
        action="append",
        metavar="NAME",
        required=True,
        help="zone name from the agreement (repeatable)",
    )
    parser.add_argument(
        "--days", type=WHOLE, default=30, metavar="N", help="validity of the certificates, days"
    )
    add_output(parser, "new folder with one folder per party", "DIR")


def execute(args: argparse.Namespace) -> int:
    """Make an authority and what it signs."""
    if args.out is None:
        raise InputError("keys need a place: give --out DIR")
    from gridpriv.consortium.keys import make_keys, write_keys

    folder = Path(args.out)
    authority, parties = make_keys(args.zone, args.days)
    make_folder(folder)
    refuse_used(folder)
    write_keys(folder, authority, parties)
    document = {"out": str(folder), "parties": list(parties), "days": args.days}
    tell(
        args,
        document,
        lambda: print(
            f"{folder}: certificates of {', '.join(parties)} for {args.days} days, and the "
            "authority that signed them.\nEach key is its party's alone; the authority's key signs "
            "new parties: keep it away from all of them."
        ),
    )
    return 0

"""``gridpriv coordinator``: coordinate a consortium's run."""

from __future__ import annotations

import argparse
from pathlib import Path

from gridpriv.cli.flags import add_output
from gridpriv.cli.output import print_table, tell
from gridpriv.core.document import Json

LOG = "events that are logged: debug | info | warning | error"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_party_arguments(parser)


def add_party_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of every party."""
    parser.add_argument("--config", metavar="FILE", required=True, help="configuration file (TOML)")
    parser.add_argument(
        "--insecure-loopback",
        action="store_true",
        help=(
            "run without certificates, on loopback addresses only; any process of this machine "
            "can then act as any zone"
        ),
    )
    parser.add_argument("--log", metavar="LEVEL", default="warning", help=LOG)
    add_output(parser)


def execute(args: argparse.Namespace) -> int:
    """Coordinate, and print the public report."""
    from gridpriv.consensus.credentials import NAME
    from gridpriv.consortium.agreement import read_agreement
    from gridpriv.consortium.coordinate import coordinate, report
    from gridpriv.consortium.parties import CoordinatorParty, credentials, notes, read_party

    path = Path(args.config)
    party = read_party(path, CoordinatorParty)
    folder = path.parent
    proved = credentials(party, folder, NAME, insecure=args.insecure_loopback)
    agreement = read_agreement(folder / party.agreement)
    outcome = coordinate(agreement, party, folder, proved, notes(NAME, args.log))
    document = report(agreement, outcome)
    tell(args, document, lambda: summarise(document), folder / party.report)
    return 0


def summarise(document: Json) -> None:
    """Print the rounds and what they cost each zone."""
    if document["rounds"]:
        columns = list(document["rounds"][0])
        rows = [list(row.values()) for row in document["rounds"]]
        print_table(f"Run {document['run']}: {document['case']}", columns, rows)
    if document["privacy"]:
        shown = ("zone", "releases", "certified", "total_pure", "total")
        print_table("Privacy", shown, [[row[key] for key in shown] for row in document["privacy"]])
    print(document["noise"])

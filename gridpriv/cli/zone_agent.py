"""``gridpriv zone-agent``: take part in a consortium's run as a zone."""

from __future__ import annotations

import argparse
from pathlib import Path

from gridpriv.cli.coordinator import add_party_arguments
from gridpriv.cli.output import print_table, tell
from gridpriv.core.document import Json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_party_arguments(parser)


def execute(args: argparse.Namespace) -> int:
    """Take part, and print the outcome for the zone's owner."""
    from gridpriv.consortium.agreement import read_agreement
    from gridpriv.consortium.parties import ZoneParty, credentials, notes, read_party
    from gridpriv.consortium.zone import over_network, take_part_as_zone

    path = Path(args.config)
    party, folder = read_party(path, ZoneParty), path.parent
    name = str(party.zone)
    proved = credentials(party, folder, name, insecure=args.insecure_loopback)
    agreement = read_agreement(folder / party.agreement)
    note = notes(name, args.log)
    serving = over_network(party, proved, note)
    document = take_part_as_zone(agreement, party, folder, serving, note, proved)
    tell(args, document, lambda: summarise(document), folder / party.state)
    return 0


def summarise(document: Json) -> None:
    """Print the zone's plan and what the run cost it; for its owner's eyes."""
    plan = document["plan"]
    rows = [[key, value] for key, value in plan.items() if key not in ("solved", "generators")]
    rows += [
        [f"privacy: {key}", row[key]]
        for row in document["privacy"]
        for key in ("releases", "total_pure", "total")
    ]
    print_table(f"Zone {document['zone']}, run {document['run']}", ["figure", "value"], rows)

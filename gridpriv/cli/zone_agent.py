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
    """Take part, and tell the zone's owner what came of it."""
    from gridpriv.consortium.log import notes
    from gridpriv.consortium.parties import ZoneParty, credentials, read_party
    from gridpriv.consortium.speak import over_grpc, speak
    from gridpriv.consortium.terms import read_terms

    path = Path(args.config)
    party, folder = read_party(path, ZoneParty), path.parent
    name = str(party.zone)
    proved = credentials(party, folder, name, insecure=args.insecure_loopback)
    terms = read_terms(folder / party.terms)
    note = notes(name, args.log)
    document = speak(terms, party, folder, over_grpc(terms, party, proved, note), note)
    tell(args, document, lambda: summarise(document), folder / party.state)
    return 0


def summarise(document: Json) -> None:
    """Print the zone's plan and what the run cost it; for its owner's eyes."""
    plan = document["plan"]
    rows = [[key, value] for key, value in plan.items() if key not in ("solved", "generators")]
    rows += [[f"privacy: {key}", row[key]] for row in document["privacy"]
             for key in ("releases", "total_pure", "total")]  # fmt: skip
    print_table(f"Zone {document['zone']}, run {document['run']}", ["figure", "value"], rows)

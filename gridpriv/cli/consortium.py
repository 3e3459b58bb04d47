"""``gridpriv consortium``, ``coordinator``, ``zone-agent`` and ``keys``: a run of several machines.

A consortium's run takes a folder per party, which ``consortium`` writes; ``consortium verify``
replays the signed transcripts in them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

from gridpriv.cli import flags
from gridpriv.cli.output import print_records, print_result, print_table, say, worded
from gridpriv.core.errors import InputError
from gridpriv.core.files import make_folder, refuse_used
from gridpriv.core.text import Json, counted
from gridpriv.zonal.settings import PRESETS, Settings

VERIFY, DEVIATED = "verify", 1


NOT_AGREED = (
    *("workers", "temporal_basis", "stream"),  # of one process, and of a series
    *("coordination", "planning", "public_demand"),  # ADMM on the relaxation, without files
)


def add_consortium(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``consortium``."""
    parser.usage = "%(prog)s CASE --out DIR [options]\n       %(prog)s verify FOLDERS"
    flags.add_case_arguments(parser)
    flags.add_zone_arguments(parser)
    flags.add_settings(parser, Settings, PRESETS, NOT_AGREED)
    flags.refer(parser, "run")
    flags.flag(parser, "folders", "FOLDER", nargs="*")
    flags.flag(parser, "--run", "NAME", default="1")
    flags.flag(parser, "--address", "HOST:PORT", default="127.0.0.1:50051")
    flags.add_output(parser, "DIR")
    parser.set_defaults(execute=execute_consortium)


def execute_consortium(args: argparse.Namespace) -> int:
    """Make the folders, or verify the transcripts in them."""
    if args.case == VERIFY:
        return _verify(args)
    if args.folders:
        raise InputError(
            f"{args.folders[0]!r} follows the case; give folders to 'gridpriv consortium "
            "verify FOLDER...', without a case"
        )
    if args.out is None:
        raise InputError("--out is required: the new folder with one folder per party")
    from gridpriv.consensus.credentials import split_address
    from gridpriv.consortium.parties import write_folders

    split_address("address", args.address)
    settings = flags.run_settings(args)
    case = flags.given_case(args, settings.load_scale)
    zoning, folder = flags.chosen_zoning(case, args), Path(args.out)
    write_folders(case, zoning, settings, args.run, args.address, folder)
    document = {"out": str(folder), "run": args.run, "zones": list(zoning.names)}
    zones = counted(zoning.n_zone, "zone")
    lines = (
        worded("consortium-folders", folder=folder, zones=zones, names=", ".join(zoning.names)),
        f"gridpriv coordinator --config {folder / 'coordinator' / 'coordinator.toml'}",
        f"gridpriv zone-agent --config {folder / zoning.names[0] / 'zone.toml'}, and so on",
    )
    return print_result(args, document, lambda: say(*lines))


def _verify(args: argparse.Namespace) -> int:
    """Replay transcripts, print the deviations; exit code 1 with any."""
    from gridpriv.consortium.verify import summary_line, verify

    document = verify([Path(folder) for folder in args.folders])

    def show() -> None:
        if document["deviations"]:
            columns = {name: name for name in ("party", "turn", "reason")}
            rows = [row | {"turn": row["turn"] or "-"} for row in document["deviations"]]
            print_records("Deviations from the agreement", columns, rows)
        say(summary_line(document))

    return print_result(args, document, show, code=DEVIATED if document["deviations"] else 0)


def _add_party(
    parser: argparse.ArgumentParser, execute: Callable[[argparse.Namespace], int]
) -> None:
    """Add the arguments of every party, and the function that executes its command."""
    flags.flag(parser, "--config", "FILE", required=True)
    flags.switch(parser, "--insecure-loopback")
    flags.flag(parser, "--log", "LEVEL", default="warning")
    flags.add_output(parser)
    parser.set_defaults(execute=execute)


def execute_coordinator(args: argparse.Namespace) -> int:
    """Coordinate, and print the public report."""
    from gridpriv.consensus.credentials import NAME
    from gridpriv.consortium.agreement import read_agreement
    from gridpriv.consortium.parties import CoordinatorParty, credentials, notes, read_party
    from gridpriv.consortium.take_part import coordinate, report

    path = Path(args.config)
    party, folder = read_party(path, CoordinatorParty), path.parent
    own_credentials = credentials(party, folder, NAME, insecure=args.insecure_loopback)
    agreement = read_agreement(folder / party.agreement)
    outcome = coordinate(agreement, party, folder, own_credentials, notes(NAME, args.log))
    document = report(agreement, outcome)
    return print_result(args, document, lambda: _print_rounds(document), folder / party.report)


PLANNED = {
    "interchange_mw": "scheduled interchange",
    "generation_mw": "generation",
    "shed_mw": "load shedding",
    "curtailed_mw": "curtailed generation",
}
SPENT = {
    "releases": "releases",
    "total_pure": "total epsilon (pure DP)",
    "total": "total epsilon at the target delta",
}
"""Labels of values by key."""


def _print_rounds(document: Json) -> None:
    """Print the rounds and their privacy cost for each zone."""
    if document["rounds"]:
        columns = {
            "round": "round",
            "consensus_residual": "consensus residual, p.u.",
            "consensus_residual_max": "largest, p.u.",
            "penalty_max": "largest penalty",
        }
        print_records(f"Run {document['run']}: {document['case']}", columns, document["rounds"])
    if document["privacy"]:
        print_records("Privacy", {"zone": "zone"} | SPENT, document["privacy"])
    say(document["noise"])


def execute_zone(args: argparse.Namespace) -> int:
    """Take part, and print the outcome for the zone's owner."""
    from gridpriv.consortium.agreement import read_agreement
    from gridpriv.consortium.parties import ZoneParty, credentials, notes, read_party
    from gridpriv.consortium.take_part import over_network, take_part_as_zone

    path = Path(args.config)
    party, folder = read_party(path, ZoneParty), path.parent
    name = str(party.zone)
    own_credentials = credentials(party, folder, name, insecure=args.insecure_loopback)
    agreement = read_agreement(folder / party.agreement)
    note = notes(name, args.log)
    serving = over_network(party, own_credentials, note)
    document = take_part_as_zone(agreement, party, folder, serving, note, own_credentials)
    return print_result(args, document, lambda: _print_zone(document), folder / party.state)


def _print_zone(document: Json) -> None:
    """Print the zone's plan and privacy cost, for its owner."""
    plan = document["plan"]
    rows = [[head, plan[key], "MW"] for key, head in PLANNED.items()]
    rows += [[SPENT[key], row[key], ""] for row in document["privacy"] for key in SPENT]
    title = f"Zone {document['zone']}, run {document['run']}"
    print_table(title, ["figure", "value", "unit"], rows)


def add_keys(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``keys``."""
    flags.flag(parser, "--zone", "NAME", action="append", required=True)
    flags.flag(parser, "--days", "N", flags.WHOLE, 30)
    flags.add_output(parser, "DIR")
    parser.set_defaults(execute=execute_keys)


def execute_keys(args: argparse.Namespace) -> int:
    """Make an authority and the certificates that it signs."""
    if args.out is None:
        raise InputError("--out is missing: the new folder that the keys are written to")
    from gridpriv.consortium.parties import AUTHORITY, make_keys, write_keys

    folder = Path(args.out)
    keys = make_keys(args.zone, args.days)
    make_folder(folder)
    refuse_used(folder)
    write_keys(folder, keys)
    parties = [name for name in keys if name != AUTHORITY]
    document = {"out": str(folder), "parties": parties, "days": args.days}
    written = worded("keys-written", folder=folder, parties=", ".join(parties), days=args.days)
    return print_result(args, document, lambda: say(written, worded("keys-apart")))


add_coordinator = partial(_add_party, execute=execute_coordinator)
add_zone = partial(_add_party, execute=execute_zone)

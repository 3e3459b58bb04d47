"""``--ledger``: what a run releases is charged to a ledger, or the run does not start."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gridpriv.core.errors import InputError

if TYPE_CHECKING:
    from gridpriv.grid.case import Case
    from gridpriv.privacy.ledger import ReleaseCharge
    from gridpriv.privacy.mechanism import Charge
    from gridpriv.zonal.run import Prepared


def add_ledger_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--ledger`` and ``--ledger-key``."""
    parser.add_argument("--ledger", metavar="FILE", help="charge every release to this ledger")
    parser.add_argument(
        "--ledger-key", metavar="FILE", help="the ledger's key (default: FILE.key beside it)"
    )


@contextmanager
def charging(
    args: argparse.Namespace, case: Case, planned: Iterable[Prepared]
) -> Iterator[ReleaseCharge | None]:
    """Open ``--ledger``, check that all planned runs fit, and yield what charges their releases.

    Parameters
    ----------
    args : Namespace
    case : Case
        With the demand as its owner has it, before any scaling.
    planned : iterable of Prepared
        The runs that are about to start: on one zone map, under one adjacency.
    """
    if args.ledger is None:
        if args.ledger_key is not None:
            raise InputError("--ledger-key is the key of a ledger: give --ledger")
        yield None
        return
    runs = list(planned)
    first = runs[0]
    if first.rules.noise is None:
        raise InputError("--ledger charges releases; this run has none (mechanism none)")
    import uuid

    from gridpriv.privacy.ledger import Ledger, ReleaseCharge
    from gridpriv.zonal.datasets import zone_datasets

    owners = zone_datasets(case, first.zoning, first.rules.adjacency)
    key = None if args.ledger_key is None else Path(args.ledger_key)
    with Ledger(args.ledger, owners, key) as ledger:
        charge = ReleaseCharge(ledger, uuid.uuid4().hex)
        ledger.plan(_costs(charge, runs))
        yield charge


def _costs(charge: ReleaseCharge, runs: Iterable[Prepared]) -> dict[str, dict[Charge, int]]:
    """Return what all runs will cost each zone, where their settings alone tell."""
    from gridpriv.privacy.filters import combined
    from gridpriv.zonal.run import planned_releases

    total: dict[str, dict[Charge, int]] = {}
    for run in runs:
        scaled = charge.scaled(run.scale)
        for zone, releases in (planned_releases(run) or {}).items():
            total[zone] = combined(total.get(zone, {}), scaled.cost(zone, releases))
    return total

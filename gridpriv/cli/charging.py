"""``--ledger``: what a run releases is charged to a ledger, or the run does not start."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gridpriv.core.errors import InputError

if TYPE_CHECKING:
    from gridpriv.grid.case import Case
    from gridpriv.privacy.ledger import ReleaseCharge
    from gridpriv.privacy.mechanism import Charge
    from gridpriv.privacy.release import Release
    from gridpriv.zonal.prepared import Prepared
    from gridpriv.zonal.run import Admit


def add_ledger_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--ledger`` and ``--ledger-key``."""
    parser.add_argument("--ledger", metavar="FILE", help="charge every release to this ledger")
    parser.add_argument(
        "--ledger-key", metavar="FILE", help="the ledger's key (default: FILE.key beside it)"
    )


@contextmanager
def charging(
    args: argparse.Namespace, case: Case, planned: Iterable[Prepared]
) -> Iterator[tuple[ReleaseCharge | None, Admit | None]]:
    """Open ``--ledger``; yield what charges releases, and what refuses runs that do not fit.

    The latter is told what the first run will release; the others release the same.

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
        yield None, None
        return
    runs = list(planned)
    first = runs[0]
    if first.rules.noise is None:
        raise InputError("--ledger charges releases; this run has none (mechanism none)")
    import uuid

    from gridpriv.privacy.ledger import Ledger, ReleaseCharge
    from gridpriv.zonal.datasets import zone_datasets

    owners = zone_datasets(case, first.zoning, first.settings.protected(case))
    key = None if args.ledger_key is None else Path(args.ledger_key)
    with Ledger(args.ledger, owners, key) as ledger:
        charge = ReleaseCharge(ledger, uuid.uuid4().hex)
        yield charge, lambda releases: ledger.plan(_costs(charge, runs, releases))


def _costs(
    charge: ReleaseCharge, runs: Iterable[Prepared], releases: Mapping[str, Mapping[Release, int]]
) -> dict[str, dict[Charge, int]]:
    """Return what the same releases in all runs will cost each zone."""
    from gridpriv.privacy.filters import combined

    total: dict[str, dict[Charge, int]] = {}
    for _ in runs:
        for zone, counts in releases.items():
            total[zone] = combined(total.get(zone, {}), charge.cost(zone, counts))
    return total

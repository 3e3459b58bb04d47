"""``--ledger``: what a run releases is charged to a ledger, or the run does not start."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gridpriv.core.errors import InputError

if TYPE_CHECKING:
    from gridpriv.grid.case import Case
    from gridpriv.privacy.ledger import ReleaseCharge
    from gridpriv.privacy.ledger_rows import LedgerDataset
    from gridpriv.privacy.mechanism import Charge
    from gridpriv.privacy.release import Release
    from gridpriv.zonal.prepared import Prepared
    from gridpriv.zonal.run import Admit


def add_ledger_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--ledger`` and ``--ledger-key``."""
    parser.add_argument("--ledger", metavar="FILE", help="charge every release to this ledger")
    parser.add_argument(
        "--ledger-key", metavar="FILE", help="key of the ledger (default: FILE.key)"
    )


@contextmanager
def opened(
    args: argparse.Namespace, owners: Callable[[], Sequence[LedgerDataset]], *, noisy: bool
) -> Iterator[ReleaseCharge | None]:
    """Open ``--ledger`` and yield what charges releases to it; None without one.

    ``owners`` are the datasets that are charged, asked for where there is a ledger.
    """
    if args.ledger is None:
        if args.ledger_key is not None:
            raise InputError("--ledger-key is the key of a ledger: give --ledger")
        yield None
        return
    if not noisy:
        raise InputError("--ledger charges releases; this run has none (mechanism none)")
    import uuid

    from gridpriv.privacy.ledger import Ledger, ReleaseCharge

    with Ledger(args.ledger, owners(), given_key(args)) as ledger:
        yield ReleaseCharge(ledger, uuid.uuid4().hex)


def given_key(args: argparse.Namespace) -> Path | None:
    """Return the file of ``--ledger-key``."""
    return None if args.ledger_key is None else Path(args.ledger_key)


@contextmanager
def charging(
    args: argparse.Namespace, case: Case, first: Prepared, runs: int = 1
) -> Iterator[tuple[ReleaseCharge | None, Admit | None]]:
    """Open ``--ledger``; yield what charges releases, and what refuses runs that do not fit.

    Parameters
    ----------
    case : Case
        With the demand as its owner has it, before any scaling.
    first : Prepared
        The run that starts first; the others are on its zone map and under its adjacency.
    runs : int
        How many release what the first one does.
    """
    from gridpriv.zonal.datasets import zone_datasets

    def owners() -> Sequence[LedgerDataset]:
        return zone_datasets(case, first.zoning, first.settings.protected(case))

    with opened(args, owners, noisy=first.rules.noise is not None) as charge:
        if charge is None:
            yield None, None
        else:
            yield charge, lambda told: charge.ledger.plan(_costs(charge, runs, told))


def _costs(
    charge: ReleaseCharge, runs: int, releases: Mapping[str, Mapping[Release, int]]
) -> dict[str, dict[Charge, int]]:
    """Return the cost of the same releases in all runs, by zone."""
    from gridpriv.privacy.filters import combined

    return {zone: combined({}, charge.cost(zone, n), runs) for zone, n in releases.items()}

"""A zone's ledger across restarts: a release that left is charged once, wherever a process ended.

The ledger is charged before a draw, the zone's state is written after it. A process that was killed
in between was charged for draws that nobody saw; the process that goes on from the state draws them
again and does not pay twice. Their number is the ledger's charges of the run less those that the
state knows of. It is never more than one round's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gridpriv.core.errors import InputError
from gridpriv.privacy.ledger import Ledger, ReleaseCharge, read_book
from gridpriv.privacy.mechanism import Charge
from gridpriv.privacy.release import Release


@dataclass(frozen=True, eq=False)
class ChargedOnce:
    """Charges releases, but for those that were charged and never left.

    Attributes
    ----------
    paid : Counter of Charge
        Charges that no release that left was made for.
    """

    charge: ReleaseCharge
    paid: Counter[Charge]

    def __call__(self, owner: str, releases: Mapping[Release, int]) -> None:
        """Charge the releases that are not paid for."""
        cost = Counter(self.charge.cost(owner, releases))
        covered = cost & self.paid
        self.paid.subtract(covered)
        if rest := cost - covered:
            self.charge.ledger.charge(owner, self.charge.run_id, rest)


def charged_once(
    ledger: Ledger,
    key: Path | None,
    run: str,
    owner: str,
    kept: Mapping[Release, int] | None,
    most: int,
) -> ChargedOnce:
    """Return the charging of a zone's releases in a run that may have begun before.

    Parameters
    ----------
    key : Path or None
        The ledger's.
    kept : mapping of Release to int, or None
        The releases in the zone's state; None without a state.
    most : int
        Releases of one round.

    Raises
    ------
    InputError
        If the state does not go with the ledger: going on from it would draw again what others
        have seen.
    """
    charge = ReleaseCharge(ledger, run)
    charged: Counter[Charge] = Counter()
    for _, row in read_book(ledger.path, key).charged:
        if row.run == run and row.owner == owner:
            charged.update(dict(row.charges))
    known = Counter(charge.cost(owner, kept or {}))
    unseen = charged - known
    if known - charged or unseen.total() > (most if kept is not None else 0):
        raise InputError(
            f"ledger {ledger.path} was charged {charged.total()} releases of {owner!r} in run "
            f"{run!r}, its state knows {known.total()}: one of them is an older copy, or not this "
            "run's; a new run needs another name in the agreement"
        )
    return ChargedOnce(charge, unseen)

"""A zone's ledger across restarts: what left is charged once, whatever happened in between.

The ledger is charged before a draw, a standing is written after it. A process that was killed in
between was charged for draws that nobody saw; whoever goes on from the standing draws them again
and does not pay twice. How many there are, the ledger itself says: what it was charged for the run
less what the standing knows of. It is never more than one round's.
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
    """Charges releases, but for those that were charged and not kept.

    Attributes
    ----------
    paid : Counter of Charge
        What is still paid for.
    """

    charge: ReleaseCharge
    paid: Counter[Charge]

    def __call__(self, owner: str, releases: Mapping[Release, int]) -> None:
        """Charge what is not paid for."""
        cost = Counter(self.charge.cost(owner, releases))
        covered = cost & self.paid
        self.paid.subtract(covered)
        if rest := cost - covered:
            self.charge.ledger.charge(owner, self.charge.run_id, rest)


def charged_once(
    ledger: Ledger, key: Path | None, run: str, owner: str,
    kept: Mapping[Release, int] | None, most: int,
) -> ChargedOnce:  # fmt: skip
    """Return what charges a zone's releases in a run that may have begun before.

    Parameters
    ----------
    key : Path or None
        The ledger's.
    kept : mapping of Release to int, or None
        What the standing says was drawn; None without one.
    most : int
        Releases of one round.

    Raises
    ------
    InputError
        If the standing is not the one that goes with the ledger: going on from it would draw
        again what others have seen.
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
            "run's; a new run needs another name in the terms"
        )
    return ChargedOnce(charge, unseen)

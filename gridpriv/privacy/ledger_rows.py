"""What the rows of a ledger mean: datasets, accounts, rules, charges."""

from __future__ import annotations

import hashlib
import hmac
import math
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gridpriv.core.arrays import Ints
from gridpriv.grid.case import Case
from gridpriv.grid.zoning import Zoning
from gridpriv.privacy.accounting import Charges, pure_epsilon, total_epsilon, total_pure
from gridpriv.privacy.adjacency import DemandAdjacency
from gridpriv.privacy.filters import GrantFilter, PlannedFilter, RenyiFilter, Rule, combined
from gridpriv.privacy.ledger_file import reading
from gridpriv.privacy.mechanism import Charge

LARGE, SMALL = 30.0, 0.2  # pure epsilon and Gaussian multiplier of a release that hides nothing


@dataclass(frozen=True)
class Dataset:
    """One owner's private data, as a ledger knows them.

    Attributes
    ----------
    owner : str
    digest : str
        SHA-256 of the data. Never stored: data with few unknowns can be guessed from it. The
        ledger keeps its HMAC under the ledger's own secret key.
    adjacency : str
        What is protected, in words.
    """

    owner: str
    digest: str = field(repr=False)
    adjacency: str


def zone_datasets(case: Case, zoning: Zoning, adjacency: DemandAdjacency) -> tuple[Dataset, ...]:
    """Return every zone's dataset: the buses it owns and their demand.

    Only the private data count: a run with other generators or branches out of service charges
    the same ledger, one with scaled demand does not.
    """
    return tuple(
        Dataset(name, _digest(case, members), str(adjacency))
        for name, members in zip(zoning.names, zoning.members, strict=True)
    )


def _digest(case: Case, members: Ints) -> str:
    order = members[np.argsort(case.bus_id[members])]
    digest = hashlib.sha256(f"gridpriv demand {case.base_mva!r}".encode())
    for values in (case.bus_id, case.pd, case.qd):
        digest.update(np.ascontiguousarray(values[order]).tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class Account:
    """One owner's grant, and what has been charged.

    Attributes
    ----------
    owner, dataset, adjacency : str
        ``dataset`` is the ledger's own mark of the data.
    epsilon, delta : float
    granted_at : str
        UTC.
    rule : Rule or None
        Fixed by the first charge; None before it and where delta is 0.
    spent : dict of Charge to int
    """

    owner: str
    dataset: str
    adjacency: str
    epsilon: float
    delta: float
    granted_at: str
    rule: Rule | None
    spent: dict[Charge, int]

    @property
    def filter(self) -> GrantFilter:
        """What decides whether a charge fits."""
        return GrantFilter(self.epsilon, self.rule)

    @property
    def total_pure(self) -> float:
        """Pure epsilon of all charges; inf with Gaussian noise."""
        return total_pure(self.spent)

    @property
    def total(self) -> float:
        """Epsilon of all charges at the grant's delta, if their parameters were fixed ahead."""
        return total_of(self.spent, self.delta)

    @property
    def kept_by(self) -> str:
        """What keeps the grant, in words."""
        unfixed = self.delta > 0.0 and self.rule is None
        return str(self.filter) + (" or a rule that the first charge fixes" if unfixed else "")

    def __str__(self) -> str:
        return f"epsilon {self.epsilon:g}" + (f" at delta {self.delta:g}" if self.delta else "")


@dataclass(frozen=True)
class Entry:
    """One charge as it stands in the ledger."""

    id: int
    owner: str
    run: str
    charged_at: str
    kind: str
    parameter: float
    count: int


def read_accounts(path: str | Path) -> tuple[Account, ...]:
    """Return every owner's account, in the order they were granted."""
    with reading(Path(path)) as db:
        owners = [row[0] for row in db.execute("SELECT owner FROM grants ORDER BY rowid")]
        found = [read_account(db, owner) for owner in owners]
    return tuple(account for account in found if account is not None)


def read_entries(path: str | Path) -> tuple[Entry, ...]:
    """Return every charge, oldest first."""
    with reading(Path(path)) as db:
        rows = db.execute(
            "SELECT id, owner, run, charged_at, kind, parameter, count FROM charges ORDER BY id"
        )
        return tuple(Entry(*row) for row in rows)


def marks(db: sqlite3.Connection) -> Callable[[Dataset], str]:
    """Return how this ledger marks a dataset: HMAC-SHA256 under its own secret key."""
    key = bytes(db.execute("SELECT key FROM secret").fetchone()[0])
    return lambda data: hmac.new(key, data.digest.encode(), hashlib.sha256).hexdigest()


GrantRow = tuple[str, str, str, float, float, str]


def grant_row(db: sqlite3.Connection, owner: str) -> GrantRow | None:
    """Return the owner's row of ``grants``."""
    row: GrantRow | None = db.execute(
        "SELECT owner, dataset, adjacency, epsilon, delta, granted_at FROM grants WHERE owner = ?",
        (owner,),
    ).fetchone()
    return row


def read_account(db: sqlite3.Connection, owner: str) -> Account | None:
    """Return the owner's grant, rule and summed charges."""
    row = grant_row(db, owner)
    if row is None:
        return None
    spent = db.execute(
        "SELECT kind, parameter, sum(count) FROM charges WHERE owner = ? GROUP BY kind, parameter",
        (owner,),
    )
    counts = {Charge(kind, parameter): int(count) for kind, parameter, count in spent}
    return Account(*row, rule=_read_rule(db, owner), spent=counts)


def _read_rule(db: sqlite3.Connection, owner: str) -> Rule | None:
    row = db.execute(
        "SELECT name, renyi_order, capacity FROM rules WHERE owner = ?", (owner,)
    ).fetchone()
    if row is None:
        return None
    if row[0] == "renyi":
        return RenyiFilter(row[1], row[2])
    plan = db.execute("SELECT kind, parameter, count FROM plans WHERE owner = ?", (owner,))
    return PlannedFilter(tuple((Charge(kind, parameter), n) for kind, parameter, n in plan))


def write_rule(db: sqlite3.Connection, owner: str, rule: Rule | None) -> None:
    """Fix the rule of an owner who was never charged."""
    db.execute("DELETE FROM plans WHERE owner = ?", (owner,))
    db.execute("DELETE FROM rules WHERE owner = ?", (owner,))
    if isinstance(rule, RenyiFilter):
        row = (owner, "renyi", rule.order, rule.capacity)
        db.execute("INSERT INTO rules VALUES (?, ?, ?, ?)", row)
    elif isinstance(rule, PlannedFilter):
        db.execute("INSERT INTO rules VALUES (?, 'planned', NULL, NULL)", (owner,))
        db.executemany(
            "INSERT INTO plans VALUES (?, ?, ?, ?)",
            [(owner, c.kind, c.parameter, n) for c, n in rule.plan],
        )


def total_of(charges: Charges, delta: float) -> float:
    """Return epsilon of charges at ``delta`` (0: pure), to be shown.

    Parameters that agree to nine digits are taken as one. The loss distribution of a release
    that hides nothing needs gigabytes: it is composed purely, or by its Renyi divergences.
    """
    if not charges or delta == 0.0:
        return total_pure(charges)
    near: dict[Charge, int] = {}
    for charge, count in charges.items():
        rounded = float(f"{charge.parameter:.9g}")
        kind = charge.kind
        if kind == "gaussian" and rounded < SMALL and len(charges) > 1:
            kind, rounded = "zcdp", 0.5 / rounded**2
        near = combined(near, {Charge(kind, rounded): count})
    if any(LARGE < pure_epsilon(c) < math.inf for c in near):
        return min(total_pure(near), total_epsilon(_as_zcdp(near), delta))
    return total_epsilon(near, delta)


def _as_zcdp(charges: Charges) -> dict[Charge, int]:
    """Return pure charges as zero-concentrated ones (Bun and Steinke 2016, proposition 1.4)."""
    total: dict[Charge, int] = {}
    for charge, count in charges.items():
        pure = pure_epsilon(charge)
        same = Charge("zcdp", 0.5 * pure**2) if math.isfinite(pure) else charge
        total = combined(total, {same: count})
    return total

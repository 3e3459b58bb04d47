"""Rows of a ledger: grants to units, rules of their filters, charges, and stored releases.

A unit is the least that a grant protects: a bus, a training sample. The ledger identifies it by a
mark, the HMAC of its name under the owner's key, and its data by another mark. Names and data can
be guessed, so a digest without a key would reveal them. Units are numbered in the order of their
grants, and a charge states ranges of these numbers. So budgets belong to units, whatever their
grouping in a release.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeAlias

import numpy as np

from gridpriv.core.arrays import Ints
from gridpriv.core.errors import InputError
from gridpriv.core.text import Json
from gridpriv.privacy.accounting import Charges, total_of, total_pure
from gridpriv.privacy.adjacency import Move, Protection
from gridpriv.privacy.filters import GrantFilter, PlannedFilter, RenyiFilter, Rule, combined
from gridpriv.privacy.ledger_file import Key
from gridpriv.privacy.mechanism import Charge

MARK_BYTES = 16

Ranges: TypeAlias = tuple[tuple[int, int], ...]
Counted: TypeAlias = tuple[tuple[Charge, int], ...]


@dataclass(frozen=True)
class Unit:
    """One unit of the private data.

    Attributes
    ----------
    name : str
        Its identity, the same in every grouping of the data.
    record : bytes
        Its data, or the constant part of data that differ from release to release. Only the marks
        of name and data are stored.
    account : str
        Digest of the physical unit or the data set, for the machine's register; empty for none.
    """

    name: str
    record: bytes = field(repr=False)
    account: str = ""

    def marks(self, key: Key) -> tuple[str, str]:
        """Return the marks of the unit and of its data."""
        name = self.name.encode("utf-8", "surrogatepass")
        return _mark(key, "unit", name), _mark(key, "record", name + b"\0" + self.record)


@dataclass(frozen=True)
class LedgerDataset:
    """The units that release together, and the protection of their releases.

    Attributes
    ----------
    owner : str
        Name in messages (a zone, a client); no identity.
    units : tuple of Unit
    protection : Protection
    kind : str
        Kind of the owner, for messages.
    """

    owner: str
    units: tuple[Unit, ...]
    protection: Protection
    kind: str = "owner"


@dataclass(frozen=True)
class Grant:
    """A row: the same budget for each of some new units, numbered after the existing units.

    Attributes
    ----------
    owners : tuple of (str, int)
        Owners at the time of the grant, each with its number of units.
    units, records : tuple of str
        Marks.
    """

    at: str
    epsilon: float
    delta: float
    protection: Protection
    owners: tuple[tuple[str, int], ...]
    units: tuple[str, ...]
    records: tuple[str, ...]

    def __str__(self) -> str:
        return f"epsilon {self.epsilon:g}" + (f" at delta {self.delta:g}" if self.delta else "")


@dataclass(frozen=True)
class Fixed:
    """A row: the rule of units that were never charged."""

    at: str
    units: Ranges
    rule: Rule | None


@dataclass(frozen=True)
class Charged:
    """A row: one group of releases of some units.

    Attributes
    ----------
    owner, run : str
        Owner of the releases, and their run.
    units : Ranges
        The units that were charged.
    charges : tuple of (Charge, int)
    """

    at: str
    owner: str
    run: str
    units: Ranges
    charges: Counted


@dataclass(frozen=True)
class Stored:
    """A row: number of an owner's releases of a run in its stored state, before one is sent."""

    at: str
    owner: str
    run: str
    releases: int


Entry: TypeAlias = Grant | Fixed | Charged | Stored


@dataclass(frozen=True)
class Account:
    """The grant, the rule and the charges that some units have in common.

    Attributes
    ----------
    owner : str
        Owner of the units at the time of the grant.
    units : int
        Their number.
    rule : Rule or None
        Fixed by the first charge; None before it and where delta is 0.
    spent : dict of Charge to int
        Charges of each unit, with their number.
    """

    owner: str
    units: int
    grant: Grant
    rule: Rule | None = None
    spent: Charges = field(default_factory=dict)

    @property
    def filter(self) -> GrantFilter:
        """Filter that admits or refuses a charge."""
        return GrantFilter(self.grant.epsilon, self.rule)

    @property
    def total_pure(self) -> float:
        """Pure epsilon of all charges; inf with Gaussian noise."""
        return total_pure(self.spent)

    @property
    def total(self) -> float:
        """Epsilon of all charges at the grant's delta, if their parameters were fixed before."""
        return total_of(self.spent, self.grant.delta)

    @property
    def filter_name(self) -> str:
        """Name of the filter of the grant."""
        unfixed = self.grant.delta > 0.0 and self.rule is None
        return str(self.filter) + (" or a rule that the first charge fixes" if unfixed else "")


class Book:
    """Content of all rows of a ledger; it grows row by row."""

    def __init__(self) -> None:
        self.charged: list[tuple[int, Charged]] = []
        self.stored: Counter[tuple[str, str]] = Counter()  # releases, by owner and run
        self._accounts: list[Account] = []
        self._numbers: dict[str, int] = {}
        self._records: list[str] = []
        self._account_of: Ints = np.zeros(0, dtype=np.int64)

    @property
    def accounts(self) -> tuple[Account, ...]:
        """Every account, in the order the units were granted."""
        order = dict.fromkeys(self._account_of.tolist())
        return tuple(self._accounts[position] for position in order)

    def number(self, mark: str) -> int | None:
        """Return the number of the unit with this mark."""
        return self._numbers.get(mark)

    def record(self, number: int) -> str:
        """Return the mark of a unit's data."""
        return self._records[number]

    def accounts_of(self, units: Ints) -> list[tuple[Account, Ints]]:
        """Return the accounts of some units, each with its units among them."""
        current = self._account_of[units]
        return [(self._accounts[i], units[current == i]) for i in np.unique(current).tolist()]

    def apply(self, number: int, entry: Entry) -> None:
        """Add a row."""
        if isinstance(entry, Grant):
            self._grant(entry)
            return
        if isinstance(entry, Stored):
            self.stored[entry.owner, entry.run] = entry.releases
            return
        for position in self._split_accounts(as_numbers(entry.units)):
            account = self._accounts[position]
            if isinstance(entry, Fixed):
                account = replace(account, rule=entry.rule)
            else:
                account = replace(account, spent=combined(account.spent, dict(entry.charges)))
            self._accounts[position] = account
        if isinstance(entry, Charged):
            self.charged.append((number, entry))

    def _grant(self, grant: Grant) -> None:
        first = len(self._records)
        self._numbers |= {mark: first + i for i, mark in enumerate(grant.units)}
        self._records += grant.records
        for owner, count in grant.owners:
            new = np.full(count, len(self._accounts))
            self._account_of = np.concatenate([self._account_of, new])
            self._accounts.append(Account(owner, count, grant))

    def _split_accounts(self, units: Ints) -> list[int]:
        """Return the positions of accounts of exactly these units; split accounts where needed."""
        positions = []
        current = self._account_of[units]
        for i in np.unique(current).tolist():
            inside, account = units[current == i], self._accounts[i]
            if len(inside) == account.units:
                positions.append(i)
                continue
            self._accounts[i] = replace(account, units=account.units - len(inside))
            self._account_of[inside] = len(self._accounts)
            positions.append(len(self._accounts))
            self._accounts.append(replace(account, units=len(inside)))
        return positions


def as_ranges(numbers: Ints) -> Ranges:
    """Return whole numbers as ranges (first, last)."""
    ordered = np.unique(numbers)
    parts = np.split(ordered, np.flatnonzero(np.diff(ordered) > 1) + 1)
    return tuple((int(part[0]), int(part[-1])) for part in parts)


def as_numbers(ranges: Ranges) -> Ints:
    """Return the whole numbers of ranges."""
    return np.concatenate([np.arange(first, last + 1) for first, last in ranges])


def now() -> str:
    """Return the time in UTC to the millisecond, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def encode(entry: Entry) -> bytes:
    """Return a row as it is in the file."""
    entries: Json
    if isinstance(entry, Grant):
        entries = {"grant": asdict(entry)}
    elif isinstance(entry, Fixed):
        entries = {
            "rule": {"at": entry.at, "units": entry.units, "rule": _encoded_rule(entry.rule)}
        }
    elif isinstance(entry, Stored):
        entries = {"stored": vars(entry)}
    else:
        entries = {"charge": vars(entry) | {"charges": _encoded_charges(entry.charges)}}
    return json.dumps(entries, separators=(",", ":"), allow_nan=True).encode("ascii")


def decode(body: bytes) -> Entry:
    """Decode a row.

    Raises
    ------
    InputError
        For a row of another version.
    """
    try:
        ((kind, text),) = json.loads(body).items()
        make, read = ROWS[kind]
        return make(**text | {name: of(text[name]) for name, of in read.items()})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(
            f"it was written by another version of gridpriv ({error!r}): use that version"
        ) from error


def _protection(entry: Json) -> Protection:
    return Protection(**entry | {"moves": tuple(Move(**move) for move in entry["moves"])})


def _rule(entry: Json | None) -> Rule | None:
    if entry is None:
        return None
    if "plan" in entry:
        return PlannedFilter(_charges(entry["plan"]))
    return RenyiFilter(entry["order"], entry["capacity"])


def _charges(entries: Iterable[Sequence[Any]]) -> Counted:
    return tuple((Charge(kind, parameter, second), n) for kind, parameter, second, n in entries)


def _pairs(entries: Iterable[Sequence[Any]]) -> tuple[tuple[Any, Any], ...]:
    return tuple((first, last) for first, last in entries)


ROWS: dict[str, tuple[Callable[..., Entry], dict[str, Callable[[Any], Any]]]] = {
    "grant": (
        Grant,
        {"protection": _protection, "owners": _pairs, "units": tuple, "records": tuple},
    ),
    "rule": (Fixed, {"units": _pairs, "rule": _rule}),
    "charge": (Charged, {"units": _pairs, "charges": _charges}),
    "stored": (Stored, {}),
}
"""By kind of row: its class, and converters of entries other than numbers and texts."""


def _encoded_rule(rule: Rule | None) -> Json | None:
    if isinstance(rule, PlannedFilter):
        return {"plan": _encoded_charges(rule.plan)}
    return None if rule is None else vars(rule)


def _encoded_charges(charges: Counted) -> list[tuple[str, float, float, int]]:
    return [(charge.kind, charge.parameter, charge.second, n) for charge, n in charges]


def _mark(key: Key, purpose: str, content: bytes) -> str:
    return key.digest(purpose, content)[:MARK_BYTES].hex()

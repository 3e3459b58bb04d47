"""The ledger: grants to the units of the data, and every release that is charged to them.

A charge is on disk before its release leaves the agent. It is refused, and nothing is written,
where the charges of one of the units would exceed its grant (:mod:`gridpriv.privacy.filters`). The
check and the write happen under one lock, so concurrent processes cannot overspend together. A
process that dies has been charged for everything it released, and at most for one group of releases
that it did not send.

Budgets belong to units (:mod:`gridpriv.privacy.ledger_rows`): a release of a zone is charged to
each of its buses, so under another zone map every bus has the rest of its own budget.

The machine's register detects a restored older copy of the file and a second ledger for the same
units (:mod:`gridpriv.privacy.ledger_file`). Another machine detects neither, but :func:`verify`
detects an older copy by a head stored elsewhere. Keep the key where only the owner can read it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import TypeAlias

import numpy as np

from gridpriv.core.arrays import Ints
from gridpriv.core.errors import BudgetError, InputError, positive
from gridpriv.core.text import counted
from gridpriv.privacy.accounting import Charges, check_delta, total_of, total_pure
from gridpriv.privacy.certificate import charges_of
from gridpriv.privacy.filters import SLACK, Rule, check_charges, choose_rule, combined
from gridpriv.privacy.ledger_file import UNDONE, ChainedRow, Head, LedgerFile, Register, key_path
from gridpriv.privacy.ledger_rows import (
    Account,
    Book,
    Charged,
    Entry,
    Fixed,
    Grant,
    LedgerDataset,
    Stored,
    Unit,
    as_ranges,
    decode,
    encode,
    now,
)
from gridpriv.privacy.mechanism import Charge
from gridpriv.privacy.release import Release

Rules: TypeAlias = list[tuple[Ints, Rule | None]]
WAIT = 30.0  # seconds for other processes
CHARGE_NAMES = {
    "laplace": "Laplace or K-norm noise, multiplier",
    "split-laplace": "Laplace or K-norm noise on several numbers, multiplier",
    "gaussian": "Gaussian noise, multiplier",
    "staircase": "staircase noise, epsilon",
    "pure": "pure epsilon",
    "zcdp": "zCDP, rho",
}
"""Names of charges, each with its number, in messages."""


class OpenLedger:
    """A ledger's file and the content of its rows, which grow together."""

    def __init__(self, path: Path, key: Path | None, timeout: float = WAIT) -> None:
        self.file = LedgerFile(path, key_path(path, key), timeout)
        self.book = Book()
        self.identity = ""  # MAC of the first row

    def take(self, rows: Iterable[ChainedRow]) -> None:
        """Enter rows that were read."""
        for row in rows:
            self.identity = self.identity or row.head.mac.hex()
            try:
                self.book.apply(row.head.count, decode(row.body))
            except InputError as error:
                raise InputError(
                    f"ledger {self.file.path}, row {row.head.count}: {error}; {UNDONE}"
                ) from error

    def write(self, entry: Entry) -> None:
        """Add a row to the file and to the content."""
        self.file.append(encode(entry))
        self.identity = self.identity or self.file.head.mac.hex()
        self.book.apply(self.file.head.count, entry)

    def fix(self, rules: Rules) -> None:
        """Fix the rules of units that were never charged."""
        for units, rule in rules:
            self.write(Fixed(now(), as_ranges(units), rule))

    def number(self, unit: Unit) -> int | None:
        """Return a unit's number, or None without a grant."""
        return self.book.number(unit.marks(self.file.key)[0])


def read_open_ledger(path: Path, key: Path | None) -> tuple[OpenLedger, list[ChainedRow]]:
    """Return a ledger read from the start, and its rows."""
    ledger = OpenLedger(path, key)
    with ledger.file.reading() as rows:
        ledger.take(rows)
    return ledger, rows


def refuse_shared(datasets: Iterable[LedgerDataset]) -> None:
    """Refuse a unit that is in two datasets, or twice in one."""
    unit_names: set[str] = set()
    for dataset in datasets:
        if not dataset.units:
            raise InputError(
                f"{dataset.owner!r} has no {dataset.protection.units}: name one or more"
            )
        for unit in dataset.units:
            if unit.name in unit_names:
                raise InputError(f"{unit.name} is in two datasets, or twice in one: name it once")
            unit_names.add(unit.name)


def decide(
    book: Book, units: Ints, charges: Charges, *, planned: bool
) -> tuple[Rules, list[tuple[Account, int]]]:
    """Return the rules to fix for these charges, and the accounts whose grants they exceed."""
    rules: Rules = []
    lacking = []
    for account, members in book.accounts_of(units):
        ruled = under_rule(account, charges, planned=planned)
        if not ruled.filter.fits(combined(account.spent, charges)):
            lacking.append((ruled, len(members)))
        if ruled.rule != account.rule:
            rules.append((members, ruled.rule))
    return rules, lacking


def under_rule(account: Account, charges: Charges, *, planned: bool) -> Account:
    """Return an account with the rule under which it takes these charges.

    The first charge fixes it. Until then a rule that a plan has fixed stays if it admits the
    charges.
    """
    if account.spent or (account.rule is not None and account.rule.used(charges) <= 1.0):
        return account
    grant = account.grant
    return replace(account, rule=choose_rule(grant.epsilon, grant.delta, charges, planned=planned))


def grant(
    path: str | Path,
    datasets: Iterable[LedgerDataset],
    epsilon: float,
    delta: float = 0.0,
    key: Path | None = None,
) -> None:
    """Grant (epsilon, delta) to each unit, all or none; make the ledger if there is none.

    A grant is made once. The filter's proof does not cover an increase after releases were read:
    that needs a new dataset.

    Parameters
    ----------
    path : path
        The ledger.
    datasets : iterable of LedgerDataset
        The units of each owner, all protected against the same changes.
    epsilon, delta : float
        Of all releases of a unit together; a delta of 0 is a pure budget.
    key : Path, optional
        The owner's key; by default a file in the ledger's folder, made with the ledger.

    Raises
    ------
    InputError
        For a unit that has a grant, owners that share a unit or protect different changes, or a
        ledger that is damaged or of another key; nothing is granted then.

    References
    ----------
    Rules of refusal and their proofs for adaptive releases:
    :mod:`gridpriv.privacy.filters`.
    """
    owners = list(datasets)
    positive("epsilon", epsilon)
    if delta != 0.0:
        check_delta("delta", delta)
    if not owners:
        raise InputError("a grant needs an owner: name one")
    if len({dataset.protection for dataset in owners}) > 1:
        raise InputError(
            "a grant protects the same moves of every unit: make one grant per kind of move"
        )
    refuse_shared(owners)
    accounts = [unit.account for dataset in owners for unit in dataset.units if unit.account]
    register = Register(Path(path))
    plural = owners[0].protection.units
    with register.granting(accounts, plural, lambda: _complete_identity(Path(path), key)):
        ledger = OpenLedger(Path(path), key)
        with ledger.file.making() as rows:
            ledger.take(rows)
            _write_grant(ledger, owners, epsilon, delta)
    if accounts:
        register.note(ledger.identity, ledger.file.head)


def ledger_identity(path: str | Path | None, key: str | Path | None = None) -> str:
    """Return the MAC of a ledger's first row (public), the same at every path of the ledger.

    It is an empty text without a path, and for a ledger without rows.
    """
    if path is None:
        return ""
    return read_open_ledger(Path(path), None if key is None else Path(key))[0].identity


def _complete_identity(path: Path, key: Path | None) -> str:
    """Return the identity of a ledger; an empty text where there is no complete ledger."""
    try:
        return ledger_identity(path, key)
    except InputError:
        return ""


def _write_grant(
    current: OpenLedger, owners: list[LedgerDataset], epsilon: float, delta: float
) -> None:
    """Add the row of a grant; refuse units that have one."""
    for dataset in owners:
        again = [u for u in dataset.units if current.number(u) is not None]
        if again:
            raise InputError(
                f"ledger {current.file.path}: {_some(len(again), dataset)} of {dataset.owner!r} "
                "have a grant already; nothing was granted"
            )
    marks = [unit.marks(current.file.key) for dataset in owners for unit in dataset.units]
    units, records = zip(*marks, strict=True)
    counts = tuple((dataset.owner, len(dataset.units)) for dataset in owners)
    current.write(Grant(now(), epsilon, delta, owners[0].protection, counts, units, records))


def read_book(path: str | Path, key: Path | None = None) -> Book:
    """Return the content of a ledger; its disk may be read-only.

    Parameters
    ----------
    path : path
    key : Path, optional
        The owner's key; by default the one in the ledger's folder.

    Raises
    ------
    InputError
        For a file that is not a ledger, is damaged, or has another key.
    """
    return read_open_ledger(Path(path), key)[0].book


def verify(path: str | Path, expect: Head | None = None, key: Path | None = None) -> LedgerFile:
    """Return the file of a ledger after a check of every byte.

    Parameters
    ----------
    expect : Head, optional
        An earlier head of this ledger, stored where nobody who could restore an older copy can
        change it; the ledger must continue from it.

    Raises
    ------
    InputError
        If anything was changed, or the ledger does not continue from ``expect``.
    """
    current, rows = read_open_ledger(Path(path), key)
    if expect is not None and expect not in {Head(), *(row.head for row in rows)}:
        raise InputError(
            f"ledger {path} does not go on from the head {expect}: it is an older copy, or another "
            f"ledger; its own head is {current.file.head}; restore the newer copy"
        )
    return current.file


class Ledger:
    """A ledger to charge. Use it as a context manager, or close it.

    Parameters
    ----------
    path : str or Path
        An existing ledger.
    datasets : iterable of LedgerDataset
        Data that the caller will release from; no unit is in two of them.
    key : Path, optional
        The owner's key; by default the one in the ledger's folder.
    timeout : float
        Seconds to wait for other processes' charges.

    Raises
    ------
    InputError
        For a file that is not a complete, writable ledger, or that belongs to another dataset.
    BudgetError
        For a unit without a grant.
    """

    def __init__(
        self,
        path: str | Path,
        datasets: Iterable[LedgerDataset],
        key: Path | None = None,
        timeout: float = WAIT,
    ) -> None:
        self.path = Path(path)
        self._arguments = tuple(datasets), key, timeout
        self._datasets = {dataset.owner: dataset for dataset in self._arguments[0]}
        refuse_shared(self._arguments[0])
        self._lock = Lock()
        self._held = OpenLedger(self.path, key, timeout)
        entered = any(unit.account for dataset in self._arguments[0] for unit in dataset.units)
        self._register = Register(self.path) if entered else None
        self._checked = not entered
        with self._transaction() as current:
            self._units = {owner: self._numbers(current, d) for owner, d in self._datasets.items()}
        for owner in self._datasets:
            self.factor(owner)

    def factor(self, owner: str) -> float:
        """Return the ratio of the granted adjacency distance to that of the data set."""
        dataset = self._dataset(owner)
        accounts = self._held.book.accounts_of(self._units[owner])
        try:
            return max(
                account.grant.protection.factor(dataset.protection) for account, _ in accounts
            )
        except InputError as error:
            raise InputError(f"ledger {self.path}: {error}; {UNDONE}") from error

    def charge(self, owner: str, run_id: str, charges: Charges) -> None:
        """Charge one group of releases to each unit of a dataset; return when it is on disk.

        Raises
        ------
        BudgetError
            If all charges of one unit together would exceed its grant; nothing is charged.
        InputError
            If the ledger cannot be read, or is not the one that was opened; nothing is charged.
        StorageError
            If it cannot be written; the group may have been charged.
        """
        check_charges(charges)
        units = self._units[self._dataset(owner).owner]
        self._warm_up(units, charges, planned=False)
        with self._transaction() as current:
            rules, lacking = decide(current.book, units, charges, planned=False)
            if not lacking:
                current.fix(rules)
                current.write(
                    Charged(now(), owner, run_id, as_ranges(units), tuple(charges.items()))
                )
        if lacking:
            raise self._refused(owner, lacking, charges, "nothing was charged")

    def plan(self, planned: Mapping[str, Charges]) -> None:
        """Check before the first release that whole runs fit the grants; nothing is charged.

        The plan of units that were never charged also fixes their rule: a plan that fits only by
        its own PLD total becomes the rule. A plan reserves nothing: charges of other processes may
        come first.

        Raises
        ------
        BudgetError
            If one owner's plan does not fit; no rule is fixed then.
        """
        for owner, charges in planned.items():
            check_charges(charges)
            self._warm_up(self._units[self._dataset(owner).owner], charges, planned=True)
        with self._transaction() as current:
            decided = {
                owner: decide(current.book, self._units[owner], charges, planned=True)
                for owner, charges in planned.items()
            }
            if not any(lacking for _, lacking in decided.values()):
                for rules, _ in decided.values():
                    current.fix(rules)
        for owner, (_, lacking) in decided.items():
            if lacking:
                raise self._refused(owner, lacking, planned[owner], "the run was not started")

    def note_stored(self, owner: str, run_id: str, releases: int) -> None:
        """Note how many releases of a run the owner has stored; a later start needs them all."""
        with self._transaction() as current:
            if current.book.stored.get((owner, run_id), -1) < releases:
                current.write(Stored(now(), owner, run_id, releases))

    def check_charged(self, run_id: str, releases: Mapping[str, int]) -> None:
        """Refuse a ledger with fewer charges of a run than each owner has releases.

        Raises
        ------
        InputError
            For an older copy, or another ledger.
        """
        charged = Counter[str]()
        for _, row in self._held.book.charged:
            charged[row.owner] += sum(n for _, n in row.charges) if row.run == run_id else 0
        for owner, number in releases.items():
            if charged[owner] < number:
                raise InputError(
                    f"ledger {self.path} lacks charges of the stored releases of "
                    f"{self._dataset(owner).kind} {owner!r}, so it is an older copy: put back the "
                    f"copy with these charges; {UNDONE}"
                )

    def close(self) -> None:
        """Flush the file's head to disk."""
        self._held.file.close()

    def __reduce__(self) -> tuple[type[Ledger], tuple[object, ...]]:
        """Open the file again where a worker process unpickles the ledger."""
        return Ledger, (self.path, *self._arguments)

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _transaction(self) -> Iterator[OpenLedger]:
        with self._lock, self._held.file.writing() as rows:
            self._held.take(rows)
            if self._register is not None and not self._checked:
                self._register.check(self._held.identity, [row.head for row in rows])
                self._checked = True
            before = self._held.file.head
            try:
                yield self._held
            finally:
                if self._register is not None and self._held.file.head != before:
                    self._register.note(self._held.identity, self._held.file.head)

    def _dataset(self, owner: str) -> LedgerDataset:
        if owner not in self._datasets:
            raise InputError(f"ledger {self.path}: {owner!r} is not a dataset of this run")
        return self._datasets[owner]

    def _numbers(self, current: OpenLedger, dataset: LedgerDataset) -> Ints:
        """Return the numbers of a dataset's units; refuse data of another ledger."""
        numbers = [current.number(unit) for unit in dataset.units]
        granted = [number for number in numbers if number is not None]
        if len(granted) < len(numbers):
            raise BudgetError(
                f"ledger {self.path} holds no grant for {_of_units(numbers.count(None), dataset)}; "
                f"{UNDONE}"
            )
        mismatched = [
            number
            for number, unit in zip(granted, dataset.units, strict=True)
            if current.book.record(number) != unit.marks(current.file.key)[1]
        ]
        if mismatched:
            raise InputError(
                f"ledger {self.path}: the grant of {_of_units(len(mismatched), dataset)} "
                f"is for other data than this run's; {UNDONE}"
            )
        return np.array(granted, dtype=np.int64)

    def _warm_up(self, units: Ints, charges: Charges, *, planned: bool) -> None:
        """Compute and cache rules before the file is locked, as that is slow."""
        with self._lock:
            accounts = [account for account, _ in self._held.book.accounts_of(units)]
        for account in accounts:
            under_rule(account, charges, planned=planned).filter.used(charges)

    def _refused(
        self, owner: str, lacking: list[tuple[Account, int]], requested: Charges, outcome: str
    ) -> BudgetError:
        """Return the error with requested and remaining budget of the units."""
        account, _ = max(lacking, key=lambda pair: pair[0].filter.used(pair[0].spent))
        short = _some(sum(count for _, count in lacking), self._datasets[owner])
        kind = self._datasets[owner].kind
        grant_filter = account.filter
        after = combined(account.spent, requested)
        before = grant_filter.used(account.spent)
        share = math.gcd(*requested.values())
        room = grant_filter.room(
            account.spent, {charge: n // share for charge, n in requested.items()}
        )
        releases = " + ".join(
            f"{counted(n, 'release')} of {_noise(c)}" for c, n in requested.items()
        )
        more = f", room for {room} more such release{'s' * (room != 1)}"
        if any(charge.kind == "approximate" for charge in requested):
            more = ""  # a shorter plan may fit, which the remaining count does not show
        return BudgetError(
            f"{kind} {owner!r} in ledger {self.path}: {short} lack the budget: "
            f"needs {_epsilon(account, requested)} for {releases}, "
            f"left {_percent(max(0.0, 1.0 - before))} of {account.grant}{more} "
            f"(rule: {account.filter_name}); {outcome}. "
            f"{_remedy(account, self._datasets[owner], after)}"
        )


@dataclass(frozen=True)
class ReleaseCharge:
    """Callable that charges an agent's releases before they are drawn; it can be pickled."""

    ledger: Ledger
    run_id: str

    def __call__(self, owner: str, releases: Mapping[Release, int]) -> None:
        """Charge the certified cost of the releases."""
        self.ledger.charge(owner, self.run_id, self.cost(owner, releases))

    def cost(self, owner: str, releases: Mapping[Release, int]) -> Charges:
        """Return the cost of releases under the granted adjacency."""
        return charges_of(releases, self.ledger.factor(owner))

    def admit(self, planned: Mapping[str, Mapping[Release, int]], runs: int = 1) -> None:
        """Check that the planned releases of owners, in so many runs, fit their grants."""
        costs = {owner: self.cost(owner, releases) for owner, releases in planned.items()}
        self.ledger.plan({owner: combined({}, cost, runs) for owner, cost in costs.items()})


def _some(number: int, dataset: LedgerDataset) -> str:
    """Return ``3 of the 5 buses``, or ``all 5 buses``."""
    every = number == len(dataset.units)
    share = "all" if every else f"{number} of the"
    return f"{share} {len(dataset.units)} {dataset.protection.units}"


def _of_units(number: int, dataset: LedgerDataset) -> str:
    """Return ``3 of the 5 buses of 'west'``, or the name of an owner that is one unit."""
    if dataset.kind == dataset.protection.unit:
        return f"{dataset.kind} {dataset.owner!r} (the unit of this run is a whole {dataset.kind})"
    return f"{_some(number, dataset)} of {dataset.owner!r}"


def _remedy(account: Account, dataset: LedgerDataset, after: Charges) -> str:
    """Return advice after a refusal: a smaller request or another step."""
    remaining = account.grant.epsilon - account.total_pure
    used = account.filter.used(account.spent) > 1.0 - SLACK
    if account.grant.delta == 0.0 and math.isinf(total_pure(after)):
        request = "Releases without a pure epsilon need a grant with a delta: request pure noise"
    elif not account.spent:
        request = "Request less (a smaller --budget)"
    elif math.isfinite(remaining) and remaining > 1e-9 * account.grant.epsilon:
        request = f"Request pure noise (such as laplace) of epsilon {remaining:.4g} or less in all"
    else:
        request = "Nothing more fits this grant" if used else "Request less (a smaller --budget)"
    if any(unit.account for unit in dataset.units):
        return (
            f"{request}. This machine accepts one grant for these {dataset.protection.units}, so "
            "it cannot be enlarged."
        )
    other = ". Grant" if used else ", or grant"
    return f"{request}{other} a larger total in a new ledger (gridpriv ledger grant)."


def _noise(charge: Charge) -> str:
    """Return a charge in words."""
    return f"{CHARGE_NAMES.get(charge.kind, charge.kind)} {charge.parameter:.6g}"


def _percent(share: float) -> str:
    return f"{100.0 * share:.4g} %"


def _epsilon(account: Account, charges: Charges) -> str:
    """Return the total of charges; a Renyi filter admits less than it."""
    fixed = " if fixed in advance" if account.grant.delta else ""
    return f"epsilon {total_of(charges, account.grant.delta):.5g}{fixed}"

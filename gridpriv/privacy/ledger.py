"""The ledger: what each data owner has granted, and every release charged against it.

A charge is committed, on disk, before its release leaves the agent; it is refused, and nothing
is written, when the owner's filter (:mod:`gridpriv.privacy.filters`) says that all charges
together would pass the grant. Deciding and writing are one ``BEGIN IMMEDIATE`` transaction, so
processes that charge at once cannot overspend together. A process that dies has been charged
for everything it released, and at most for one group of releases that never left.

What the file cannot know: an older copy put back in its place, or a second ledger for the same
data, forgets charges. Keep one ledger per dataset, and keep it private: it names every run,
and its secret key makes the dataset marks comparable with guessed data.
"""

from __future__ import annotations

import math
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from types import TracebackType

from gridpriv.core.errors import BudgetError, InputError, positive
from gridpriv.privacy.accounting import Charges, check_delta
from gridpriv.privacy.filters import Rule, check_charges, choose_rule, combined
from gridpriv.privacy.ledger_file import connect, immediate, now, refusing
from gridpriv.privacy.ledger_rows import (
    Account,
    Dataset,
    grant_row,
    marks,
    read_account,
    total_of,
    write_rule,
)
from gridpriv.privacy.mechanism import Charge
from gridpriv.privacy.release import Release

UNDONE = "nothing charged, nothing released"


def grant(
    path: str | Path,
    datasets: Iterable[Dataset],
    epsilon: float,
    delta: float = 0.0,
    timeout: float = 30.0,
) -> None:
    """Grant (epsilon, delta) to each owner, all or none; make the ledger if there is none.

    A grant is made once: raising it after releases were seen is no longer what the filter
    proves, and needs a new dataset.
    """
    file, owners = Path(path), list(datasets)
    positive("epsilon", epsilon)
    if delta != 0.0:
        check_delta("delta", delta)
    if not owners:
        raise InputError("a grant needs an owner")
    db = connect(file, timeout, create=True)
    try:
        with refusing(file), immediate(db):
            mark = marks(db)
            for dataset in owners:
                if grant_row(db, dataset.owner) is not None:
                    raise InputError(
                        f"ledger {file}: {dataset.owner!r} has a grant already; nothing was granted"
                    )
                db.execute(
                    "INSERT INTO grants VALUES (?, ?, ?, ?, ?, ?)",
                    (dataset.owner, mark(dataset), dataset.adjacency, epsilon, delta, now()),
                )
    finally:
        db.close()


class Ledger:
    """A ledger to charge. Use it as a context manager, or close it.

    Parameters
    ----------
    path : str or Path
        An existing ledger.
    datasets : iterable of Dataset
        The data that the caller is about to release from.
    timeout : float
        Seconds to wait for other processes' charges.

    Raises
    ------
    InputError
        For a file that is no whole, writable ledger, or that is another dataset's.
    BudgetError
        For an owner without a grant.
    """

    def __init__(
        self, path: str | Path, datasets: Iterable[Dataset], timeout: float = 30.0
    ) -> None:
        self.path = Path(path)
        self._datasets = {dataset.owner: dataset for dataset in datasets}
        self._timeout = timeout
        self._lock = Lock()
        self._fixed: set[str] = set()
        self._opened: dict[int, tuple[sqlite3.Connection, tuple[int, int]]] = {}
        with self._transaction() as db:
            for owner in self._datasets:
                self._account(db, owner)

    def charge(self, owner: str, run_id: str, charges: Charges) -> None:
        """Charge one group of releases; return when the charge is on disk.

        Raises
        ------
        BudgetError
            If all of the owner's charges together would pass the grant; nothing is charged.
        InputError
            If the ledger cannot be written or is another dataset's; nothing is charged.
        """
        check_charges(charges)
        self._warm_up(owner, charges, planned=False)
        with self._transaction() as db:
            account = self._account(db, owner)
            after = combined(account.spent, charges)
            if not account.spent and (account.rule is None or account.rule.used(after) > 1.0):
                rule = choose_rule(account.epsilon, account.delta, charges)
                account = replace(account, rule=rule)
            allowed = account.filter.fits(after)
            if allowed:
                if not account.spent:
                    write_rule(db, owner, account.rule)
                db.executemany(
                    "INSERT INTO charges (owner, run, charged_at, kind, parameter, count) "
                    "VALUES (?, ?, ?, ?, ?, ?)",
                    [(owner, run_id, now(), c.kind, c.parameter, n) for c, n in charges.items()],
                )
        if not allowed:
            raise BudgetError(_refused(self.path, account, charges, "nothing was charged"))

    def plan(self, planned: Mapping[str, Charges]) -> None:
        """Check that whole runs fit before their first release; nothing is charged.

        The plan of an owner who was never charged also fixes the grant's rule: a plan for which
        only its own PLD total has room becomes the rule. Other processes' charges come first
        where they are sooner: a plan reserves nothing.

        Raises
        ------
        BudgetError
            If one owner's plan does not fit; no rule is fixed then.
        """
        for owner, charges in planned.items():
            check_charges(charges)
            self._warm_up(owner, charges, planned=True)
        refused = None
        with self._transaction() as db:
            rules: dict[str, Rule | None] = {}
            for owner, charges in planned.items():
                account = self._account(db, owner)
                if not account.spent:
                    rule = choose_rule(account.epsilon, account.delta, charges, planned=True)
                    account, rules[owner] = replace(account, rule=rule), rule
                if not account.filter.fits(combined(account.spent, charges)):
                    refused = account, charges
                    break
            else:
                for owner, rule in rules.items():
                    write_rule(db, owner, rule)
        if refused is not None:
            raise BudgetError(_refused(self.path, *refused, "the run was not started"))

    def close(self) -> None:
        """Close the file."""
        opened = self._opened.pop(os.getpid(), None)
        if opened is not None:
            opened[0].close()

    def __reduce__(self) -> tuple[type[Ledger], tuple[Path, tuple[Dataset, ...], float]]:
        """Open the file anew where a worker process unpickles the ledger."""
        return Ledger, (self.path, tuple(self._datasets.values()), self._timeout)

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, refusing(self.path):
            db = self._connection()
            with immediate(db):
                yield db

    def _connection(self) -> sqlite3.Connection:
        """Return this process's connection: SQLite's must not cross a fork, not even to close."""
        if os.getpid() not in self._opened:
            found = connect(self.path, self._timeout)
            self._opened[os.getpid()] = found, _identity(self.path)
        db, identity = self._opened[os.getpid()]
        if _identity(self.path) != identity:
            raise InputError(f"ledger {self.path} was moved or replaced during the run; {UNDONE}")
        return db

    def _account(self, db: sqlite3.Connection, owner: str) -> Account:
        """Return the owner's account, if this ledger is its dataset's."""
        account = read_account(db, owner)
        if account is None:
            raise BudgetError(
                f"ledger {self.path} holds no grant of {owner!r}; {UNDONE} "
                f"('gridpriv ledger show {self.path}' lists its owners)"
            )
        dataset = self._datasets.get(owner)
        if dataset is None:
            raise InputError(f"ledger {self.path}: {owner!r} is not a dataset of this run")
        if marks(db)(dataset) != account.dataset:
            raise InputError(
                f"ledger {self.path}: the grant of {owner!r} is for other data than this run's; "
                + UNDONE
            )
        if dataset.adjacency != account.adjacency:
            raise InputError(
                f"ledger {self.path}: the grant of {owner!r} protects: {account.adjacency}; the "
                f"run: {dataset.adjacency} (--beta, --protects); {UNDONE}"
            )
        return account

    def _warm_up(self, owner: str, charges: Charges, *, planned: bool) -> None:
        """Do the slow part of fixing a rule, which is cached, before the file is locked."""
        if owner in self._fixed:
            return
        with self._lock, refusing(self.path):
            account = read_account(self._connection(), owner)
        if account is None:
            return
        if account.spent:
            self._fixed.add(owner)
            account.filter.used(charges)
        else:
            choose_rule(account.epsilon, account.delta, charges, planned=planned)


@dataclass(frozen=True)
class ReleaseCharge:
    """What an agent calls with its new releases before its message leaves; it can be pickled."""

    ledger: Ledger
    run_id: str

    def __call__(self, owner: str, releases: dict[Release, int]) -> None:
        """Charge what the releases certifiably cost."""
        charges: dict[Charge, int] = {}
        for release, count in releases.items():
            charges = combined(charges, {release.certified: count})
        self.ledger.charge(owner, self.run_id, charges)


def ledger_charge(
    ledger: Ledger, run_id: str, planned: Mapping[str, Charges] | None = None
) -> Callable[[str, dict[Release, int]], None]:
    """Return the ``charge`` of :func:`gridpriv.zonal.run.run`.

    Parameters
    ----------
    ledger : Ledger
    run_id : str
    planned : mapping of owner to Charges, optional
        All releases that the run may make, known from its settings: a run that does not fit
        is refused here, before it starts (:meth:`Ledger.plan`).
    """
    if planned is not None:
        ledger.plan(planned)
    return ReleaseCharge(ledger, run_id)


def _identity(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError as error:
        raise InputError(f"ledger {path}: {error.strerror}; {UNDONE}") from error
    return found.st_dev, found.st_ino


def _refused(path: Path, account: Account, asked: Charges, outcome: str) -> str:
    """Return what was granted, spent, asked and left."""
    keeper = account.filter
    after = combined(account.spent, asked)
    before, then = keeper.used(account.spent), keeper.used(after)
    share = math.gcd(*asked.values())
    room = keeper.room(account.spent, {charge: count // share for charge, count in asked.items()})
    releases = " + ".join(f"{n} of {c.kind} {c.parameter:.6g}" for c, n in asked.items())
    hint = ""
    if math.isinf(then) and account.delta == 0.0:
        hint = ", as Gaussian noise has no pure epsilon: it needs a grant with a delta"
    return (
        f"{account.owner!r} in ledger {path}: granted {account}; "
        f"spent {_percent(before)} ({_epsilon(account, account.spent)}); "
        f"asked {releases}, in all {_percent(then)} ({_epsilon(account, after)}{hint}); "
        f"left {_percent(max(0.0, 1.0 - before))}, room for {room} more such "
        f"release{'s' * (room != 1)}; kept by {account.kept_by}; {outcome}"
    )


def _percent(share: float) -> str:
    return f"{100.0 * share:.4g} %"


def _epsilon(account: Account, charges: Charges) -> str:
    return f"epsilon {total_of(charges, account.delta):.5g}"

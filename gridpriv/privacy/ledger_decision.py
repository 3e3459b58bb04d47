"""Decision on charges: remaining budget of units, from the file and book of the ledger."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from gridpriv.core.arrays import Ints
from gridpriv.core.errors import InputError
from gridpriv.privacy.accounting import Charges
from gridpriv.privacy.filters import Rule, choose_rule, combined
from gridpriv.privacy.ledger_file import ChainedRow, LedgerFile
from gridpriv.privacy.ledger_key import UNDONE, key_path
from gridpriv.privacy.ledger_rows import (
    Account,
    Book,
    Entry,
    Fixed,
    LedgerDataset,
    Unit,
    as_ranges,
    decode,
    encode,
    now,
)

Rules: TypeAlias = list[tuple[Ints, Rule | None]]


class HeldLedger:
    """A ledger's file and the book of its rows, which grow together."""

    def __init__(self, path: Path, key: Path | None, timeout: float) -> None:
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
        """Add a row to both."""
        self.file.append(encode(entry))
        self.identity = self.identity or self.file.head.mac.hex()
        self.book.apply(self.file.head.count, entry)

    def fix(self, rules: Rules) -> None:
        """Fix the rules of units that were never charged."""
        for units, rule in rules:
            self.write(Fixed(now(), as_ranges(units), rule))

    def number(self, unit: Unit) -> int | None:
        """Return a unit's number, if it was granted anything."""
        return self.book.number(unit.marks(self.file.key)[0])


def read_held(path: Path, key: Path | None, timeout: float) -> tuple[HeldLedger, list[ChainedRow]]:
    """Return a ledger that was read whole, and its rows."""
    held = HeldLedger(path, key, timeout)
    with held.file.reading() as rows:
        held.take(rows)
    return held, rows


def refuse_shared(datasets: Iterable[LedgerDataset]) -> None:
    """Refuse a unit that stands in two datasets, or twice in one."""
    seen: set[str] = set()
    for dataset in datasets:
        if not dataset.units:
            raise InputError(f"{dataset.owner!r} has no {dataset.protection.units}")
        for unit in dataset.units:
            if unit.name in seen:
                raise InputError(f"{unit.name} stands in two datasets, or twice in one")
            seen.add(unit.name)


def decide(
    book: Book, units: Ints, charges: Charges, *, planned: bool
) -> tuple[Rules, list[tuple[Account, int]]]:
    """Return the rules to fix for these charges, and the accounts that have no room for them."""
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

    The first charge fixes it. Until then a rule that a plan has fixed is kept if it has room.
    """
    if account.spent or (account.rule is not None and account.rule.used(charges) <= 1.0):
        return account
    grant = account.grant
    return replace(account, rule=choose_rule(grant.epsilon, grant.delta, charges, planned=planned))

"""Ledgers for tests: units without a grid, and actions in processes that are killed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from gridpriv.privacy.adjacency import Move, Protection
from gridpriv.privacy.ledger import Ledger, grant, read_book
from gridpriv.privacy.ledger_rows import LedgerDataset, Unit
from gridpriv.privacy.mechanism import Charge

ONE_MW = Protection("bus", "buses", (Move("active demand", 1.0, "MW"),))
TENTH = Charge("laplace", 10.0)


def dataset(owner: str, buses: Iterable[int], protection: Protection = ONE_MW) -> LedgerDataset:
    return LedgerDataset(
        owner, tuple(Unit(f"bus {b}", f"{b} MW".encode()) for b in buses), protection
    )


NORTH, SOUTH = dataset("north", (1, 2, 3)), dataset("south", (4, 5))


def granted(folder: Path, epsilon: float = 1.0, delta: float = 0.0) -> Path:
    """Return a new ledger with a grant to the buses of north and south."""
    grant(folder / "ledger", [NORTH, SOUTH], epsilon, delta)
    return folder / "ledger"


def charge_once(path: Path, owner: LedgerDataset = NORTH, timeout: float = 30.0) -> None:
    with Ledger(path, [owner], timeout=timeout) as ledger:
        ledger.charge(owner.owner, "r", {TENTH: 1})


def spent(path: Path, owner: str = "north") -> int:
    """Return how many releases were charged in the name of an owner."""
    charged = [entry for _, entry in read_book(path).charged if entry.owner == owner]
    return sum(count for entry in charged for _, count in entry.charges)


def in_child(act: Callable[[], None]) -> int:
    """Return the exit code of a fork that acts."""
    child = os.fork()
    if child == 0:
        try:
            act()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def error_of_child(act: Callable[[], object]) -> str:
    """Return the result or error of an action in a fork, as text."""
    receiving, sending = os.pipe()

    def tell() -> None:
        try:
            text = str(act())
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
        os.write(sending, text.encode())

    in_child(tell)
    os.close(sending)
    with os.fdopen(receiving) as pipe:
        return pipe.read()

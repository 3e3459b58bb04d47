"""Training data as a ledger knows them: the units are samples, released client by client.

``dp-fedavg`` protects a client's whole training set, so there the units are clients.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from itertools import chain

import numpy as np

from gridpriv.learning.algorithms.base import Task, make_algorithm
from gridpriv.learning.datasets.base import Dataset, Indices
from gridpriv.learning.releases import covering
from gridpriv.learning.settings import LearnSettings
from gridpriv.privacy import ledger_rows
from gridpriv.privacy.adjacency import Move, Protection
from gridpriv.privacy.ledger_rows import Unit
from gridpriv.privacy.release import Release

CLIENTS = Protection("client", "clients", (Move("training set", math.inf, "(any other)"),))


def protection_of(settings: LearnSettings) -> Protection:
    """Return the protection of an algorithm's releases in the form that grants are compared by."""
    if settings.algorithm == "dp-fedavg":
        return CLIENTS
    move = Move("features and label", math.inf, f"({settings.adjacency})")
    return Protection("sample", "samples", (move,))


def client_datasets(
    dataset: Dataset, parts: Sequence[Indices], settings: LearnSettings
) -> tuple[ledger_rows.LedgerDataset, ...]:
    """Return every client's dataset: its samples, or itself as one unit.

    Parameters
    ----------
    parts : sequence of (m,) int
        Training rows of every client. A sample is known by its row and its data, so a budget is
        found again however rows are split over clients; other rows in its place are refused.
    """
    protection = protection_of(settings)
    whole = settings.algorithm == "dp-fedavg"
    return tuple(
        ledger_rows.LedgerDataset(
            str(p + 1),
            _client(dataset, p, part) if whole else _samples(dataset, part),
            protection,
            "client",
        )
        for p, part in enumerate(parts)
    )


def planned(task: Task) -> dict[str, Counter[Release]]:
    """Return the remaining charges of every client, from settings and public numbers only."""
    entries: dict[str, Counter[Release]] = {}
    if task.rule is None:
        return entries
    algorithm = make_algorithm(task)
    for t in range(task.begun.rounds + 1, task.settings.rounds + 1):
        for client, release in algorithm.releases(t):
            entries.setdefault(str(client + 1), Counter())[covering(release)] += 1
    return entries


def _samples(dataset: Dataset, rows: Indices) -> tuple[Unit, ...]:
    return tuple(Unit(f"{dataset.name} row {row}", _record(dataset, int(row))) for row in rows)


def _client(dataset: Dataset, number: int, rows: Indices) -> tuple[Unit, ...]:
    # a part of a keyed mark, never stored: one digest stands for all of the client's rows
    digest = hashlib.sha256()
    for row in rows:
        digest.update(_record(dataset, int(row)))
    return (Unit(f"{dataset.name} client {number + 1} of rows {_spans(rows)}", digest.digest()),)


def _record(dataset: Dataset, row: int) -> bytes:
    x, y = dataset.x_train[row], dataset.y_train[row : row + 1]
    return np.ascontiguousarray(x).tobytes() + np.ascontiguousarray(y).tobytes()


def _spans(rows: Indices) -> str:
    """Return the rows' first and last numbers of every unbroken stretch."""
    ordered = np.sort(rows)
    breaks = np.flatnonzero(np.diff(ordered) != 1)
    firsts, lasts = ordered[np.r_[0, breaks + 1]], ordered[np.r_[breaks, len(ordered) - 1]]
    return ",".join(map(str, chain.from_iterable(zip(firsts, lasts, strict=True))))

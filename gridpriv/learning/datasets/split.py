"""Who holds which samples."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from gridpriv.core.errors import InputError, not_allowed
from gridpriv.learning.datasets.base import Dataset

Indices = NDArray[np.int64]
SPLITS = "iid, contiguous, writer or dirichlet:A"
TRIES = 100


def split(dataset: Dataset, how: str, clients: int | None, seed: int) -> list[Indices]:
    """Return the training rows of every client.

    Parameters
    ----------
    how : str
        ``iid`` (random, equal sizes), ``contiguous`` (equal parts in file order),
        ``writer`` (one client per writer), ``dirichlet:A`` (class shares drawn per client).
    clients : int or None
        None with ``writer``: all of them; a number keeps the first so many writers.
    seed : int
        Of the random splits.

    Raises
    ------
    InputError
        If a client would have no sample.
    """
    rows = len(dataset.y_train)
    if how == "writer":
        return _by_writer(dataset, clients)
    if clients is None:
        raise not_allowed("clients", None, f"a number, with split {how!r}")
    if not 1 <= clients <= rows:
        raise not_allowed(
            "clients", clients, f"1 to {rows}, the number of samples: no client may be empty"
        )
    random = np.random.Generator(np.random.PCG64(seed))
    if how == "contiguous":
        return list(np.array_split(np.arange(rows), clients))
    if how == "iid":
        return [np.sort(part) for part in np.array_split(random.permutation(rows), clients)]
    match = re.fullmatch(r"dirichlet:([\d.eE+-]+)", how)
    try:
        concentration = float(match[1]) if match else float("nan")
    except ValueError:
        concentration = float("nan")
    if not (np.isfinite(concentration) and concentration > 0):
        raise not_allowed("split", how, SPLITS + " with A a positive number")
    return _dirichlet(dataset, clients, concentration, random)


def _by_writer(dataset: Dataset, clients: int | None) -> list[Indices]:
    if dataset.writer_of is None:
        raise not_allowed("split", "writer", f"another: {dataset.name} names no writers")
    writers = np.unique(dataset.writer_of)
    if clients is not None and not 1 <= clients <= len(writers):
        raise not_allowed("clients", clients, f"1 to {len(writers)}, the number of writers")
    return [np.flatnonzero(dataset.writer_of == w) for w in writers[:clients]]


def _dirichlet(
    dataset: Dataset, clients: int, concentration: float, random: np.random.Generator
) -> list[Indices]:
    """Split every class by shares drawn from Dirichlet(A); draw again while one is empty."""
    if dataset.task == "regression":
        raise not_allowed("split", f"dirichlet:{concentration:g}", "another: there are no classes")
    for _ in range(TRIES):
        owner = np.empty(len(dataset.y_train), np.int64)
        for label in np.unique(dataset.y_train):
            rows = random.permutation(np.flatnonzero(dataset.y_train == label))
            shares = random.dirichlet(np.full(clients, concentration))
            owner[rows] = np.searchsorted(np.cumsum(shares)[:-1], random.random(len(rows)))
        if len(np.unique(owner)) == clients:
            return [np.flatnonzero(owner == c) for c in range(clients)]
    raise InputError(
        f"split = 'dirichlet:{concentration:g}' leaves a client with no samples "
        f"({TRIES} draws for {clients} clients): use fewer clients or a larger A"
    )

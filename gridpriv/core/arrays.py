"""Array types of signatures, and sums over groups."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Complexes = NDArray[np.complex128]


def last_of_each(group: Ints, groups: int, *keys: NDArray[Any]) -> Ints:
    """Return the last member of each of ``groups`` groups by these keys, the last key first."""
    order, last = np.lexsort(keys), np.zeros(groups, dtype=np.int64)
    last[group[order]] = order
    return last


def sums_at(place: Ints, terms: Floats, count: int) -> Floats:
    """Return the sums of the terms at each of ``count`` places, shape (count,)."""
    return np.bincount(place, terms, count).astype(np.float64, copy=False)

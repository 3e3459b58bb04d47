"""Names of the array types that signatures use, and sums over places."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Complexes = NDArray[np.complex128]


def sums_at(place: Ints, terms: Floats, count: int) -> Floats:
    """Return the sums of the terms at each of ``count`` places, shape (count,)."""
    return np.bincount(place, terms, count).astype(np.float64, copy=False)

"""Weighted sums over levels of parts, such as the zone and its buses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gridpriv.core.arrays import Floats, Ints
from gridpriv.core.errors import InputError
from gridpriv.privacy.strategies.linear import Statistics


def tree(levels: Sequence[Ints], weights: Sequence[float]) -> Statistics:
    """Return the strategy that releases weighted sums over the parts of every level.

    A unit is in one part of each level, so it moves the statistics by the sum of all weights (in
    norm 2, the root of their squares), whatever the parts are.

    Parameters
    ----------
    levels : sequence of (n,) int
        Every unit's part, level by level.
    weights : sequence of float
        Of each level, positive: a part's sum carries noise of the common scale over the weight.
    """
    if len(levels) != len(weights) or not all(weight > 0 for weight in weights):
        raise InputError("a tree needs one positive weight for every level")
    found: dict[tuple[int, ...], float] = {}
    for parts, weight in zip(levels, weights, strict=True):
        for part in np.unique(parts):
            members = tuple(np.flatnonzero(parts == part).tolist())
            found[members] = found.get(members, 0.0) + weight  # the same part twice is one sum
    return Statistics("tree", _rows(found, len(levels[0])))


def _rows(found: dict[tuple[int, ...], float], units: int) -> Floats:
    matrix = np.zeros((len(found), units))
    for row, (members, weight) in enumerate(found.items()):
        matrix[row, list(members)] = weight
    return matrix

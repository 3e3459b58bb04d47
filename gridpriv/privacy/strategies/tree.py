"""Weighted sums over levels of parts, such as the zone and its buses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gridpriv.core.arrays import Ints
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
        raise InputError("a tree needs one positive weight for every level: give one per level")
    entries: dict[bytes, float] = {}
    for parts, weight in zip(levels, weights, strict=True):
        for members in np.unique(parts)[:, None] == parts:
            part = members.tobytes()
            entries[part] = entries.get(part, 0.0) + weight  # the same part twice is one sum
    member = np.frombuffer(b"".join(entries), dtype=bool).reshape(len(entries), len(levels[0]))
    return Statistics("tree", member * np.array(list(entries.values()))[:, None])

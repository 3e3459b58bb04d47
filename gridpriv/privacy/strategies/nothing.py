"""No statistic at all: everybody goes by the public prior, and epsilon is 0."""

from __future__ import annotations

import numpy as np

from gridpriv.privacy.strategies.linear import Statistics


def nothing(units: int) -> Statistics:
    """Return the strategy that releases nothing: S without rows."""
    return Statistics("nothing", np.zeros((0, units)))

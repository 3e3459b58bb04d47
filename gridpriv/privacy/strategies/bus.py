"""Every unit's own demand: the noise of the zone's sum grows with the root of its units."""

from __future__ import annotations

import numpy as np

from gridpriv.privacy.strategies.linear import Statistics


def bus(units: int) -> Statistics:
    """Return the strategy that releases every unit by itself: S = I."""
    return Statistics("bus", np.eye(units))

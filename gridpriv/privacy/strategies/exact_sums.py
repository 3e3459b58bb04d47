"""Sums of demand without rounding errors, and the rounding that is charged in their place.

The sensitivity of S d is that of exact arithmetic. In floating point S d and S d' may lie further
apart: sums of 2,000 numbers that add up to 299 p.u. by 4.6e-5 of a beta of 1e-9 p.u. Under secure
noise demand is therefore put on a grid of g = 2^-36 p.u. first, within 2^17/n p.u. at each of n
units (public). Then:

1. Clipping and rounding are monotone, clipping moves no two numbers apart, and rounding commutes
   with whole steps: numbers that were at most beta apart are at most beta + g apart.
2. Sums of n such numbers are whole multiples of g below 2^53 g: every partial sum is exact in
   double precision, in any order.
3. Weights multiply exact sums once: an error of at most 2^-53 2^17 = g on each side. Where demand
   was scaled or sheared before, or sums are averaged over T steps afterwards, there are at most
   2 (T + 1) more roundings of at most g.

So every statistic moves by at most (1 + 8 (T + 1) g / beta) times its weight times beta, with T = 0
for one step. That is the sensitivity which is declared, and which the noise is drawn for.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.privacy.sensitivity import Sensitivity

GRID = 2.0**-36
LARGEST = 2.0**17


def on_grid(demand: Floats) -> Floats:
    """Return demand (..., n) in whole steps of the grid, within its public range."""
    most = LARGEST / max(1, demand.shape[-1])
    return np.asarray(np.round(np.clip(demand, -most, most) / GRID) * GRID)


def exact_statistics(matrix: Floats, demand: Floats) -> Floats:
    """Return S d of demand (n,) on the grid: each row of S has one weight."""
    weights = np.abs(matrix).max(axis=1, initial=0.0)
    members = matrix / np.where(weights > 0.0, weights, 1.0)[:, None]
    return np.asarray(weights * (members @ demand))


def with_rounding(bound: Sensitivity, beta: float, steps: int = 0) -> Sensitivity:
    """Return a sensitivity that covers the rounding of demand, and of averages over steps."""
    share = 8.0 * (steps + 1) * GRID / beta
    source = f"{bound.bound_source}, with rounding to {GRID:.2g} p.u."
    return replace(bound, value=(1.0 + share) * bound.value, bound_source=source)

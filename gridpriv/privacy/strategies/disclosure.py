"""Disclosure of one agent: released statistics of its data, and the public estimate.

Sums of demand without rounding errors, and the rounding that is charged in their place.

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

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.privacy.adjacency import DemandAdjacency, PowerFactors
from gridpriv.privacy.release import Release
from gridpriv.privacy.sensitivity import Norm, Sensitivity
from gridpriv.privacy.strategies.linear import Prior, Statistics, Sums, posterior_covariance

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


@dataclass(frozen=True, eq=False)
class Disclosure:
    """A strategy, and the public prior its releases are read with.

    Attributes
    ----------
    expected : float
        Root of the expected squared error of what the objective counts of the data, per unit; from
        public quantities.
    scale : float
        By how much the data are a multiple of their owner's, publicly. What is released are the
        owner's statistics, between neighbours of the owner's data; the estimate is scaled, which
        is post-processing.
    power_factors : PowerFactors or None
        Whose coordinates (p', q') the statistics are of, in place of (p, q).
    exact : bool
        Sum without rounding errors (:mod:`gridpriv.privacy.strategies.disclosure`), as secure
        noise needs.
    """

    strategy: Statistics
    prior: Prior
    expected: float
    scale: float = 1.0
    power_factors: PowerFactors | None = None
    exact: bool = False

    @property
    def matrix(self) -> Floats:
        """From the data (2n,) to what is measured of them."""
        pairs = np.eye(2) if self.power_factors is None else self.power_factors.shear
        weights = np.diag([1.0, self.strategy.reactive])
        return np.asarray(np.kron(weights @ pairs, self.strategy.matrix)) / (self.scale or 1.0)

    def measure(self, data: Floats) -> Floats:
        """Return the private statistics that are to be released."""
        owned = data / self.scale if self.scale else data
        if self.power_factors is not None:
            owned = (self.power_factors.shear @ owned.reshape(2, -1)).ravel()
        if self.exact:
            halves = zip(self.strategy.matrices, on_grid(owned.reshape(2, -1)), strict=True)
            return np.concatenate([exact_statistics(matrix, half) for matrix, half in halves])
        return self.strategy.measure(owned)

    def sensitivity(self, adjacency: DemandAdjacency, norm: Norm) -> Sensitivity:
        """Return the sensitivity of the statistics."""
        if adjacency.power_factors != self.power_factors:
            raise ValueError("neighbours at other power factors than what is measured")
        bound = self.strategy.sensitivity(adjacency, norm)
        return with_rounding(bound, adjacency.beta) if self.exact else bound

    def estimate(self, released: Floats, release: Release | None) -> Floats:
        """Return the demand that what was released leaves likely; the prior where nothing was."""
        noise = 0.0 if release is None else release.mechanism.variance
        result = self.strategy.estimate(released, noise, self.prior, self.power_factors)
        return self.scale * result


DEVIATION = 1.5
"""Public guess of s: the median over the zones of 25 published grids (0.1 to 9)."""


def expected_error(
    strategy: Statistics,
    variance: float,
    prior: Prior,
    use: Floats,
    deviation: float = DEVIATION,
    *,
    reactive: bool = False,
    power_factors: PowerFactors | None = None,
) -> float:
    """Return the root of the expected squared error of ``use`` times the demand.

    Parameters
    ----------
    variance : float
        Of the noise on a statistic.
    use : (k, n)
        What is computed from the demand, and whose error counts.
    reactive : bool
        Count the error of the reactive demand beside that of the active one.
    power_factors : PowerFactors, optional
        Whose coordinates (p', q') the statistics are of: q = middle p + half q'.
    """

    def error(matrix: Floats, belief: Sums) -> float:
        left = posterior_covariance(matrix, variance, belief, deviation)
        return max(float(np.trace(use @ left @ use.T)), 0.0)

    of_p, of_q = strategy.matrices
    active = error(of_p, prior.active)
    if not reactive:
        return math.sqrt(active)
    belief = prior.reactive(prior.active.mean)
    if power_factors is None:
        return math.sqrt(active + error(of_q, belief))
    along, half = power_factors.middle * prior.active.mean, power_factors.half
    across = error(of_q, belief.less(along, half))
    return math.sqrt((1.0 + power_factors.middle**2) * active + half**2 * across)


def auto(
    options: Iterable[Statistics],
    variance_of: Callable[[Statistics], float],
    prior: Prior,
    use: Floats,
    *,
    reactive: bool = False,
    power_factors: PowerFactors | None = None,
) -> Disclosure:
    """Return the option of least expected error; the first of equals.

    Parameters
    ----------
    variance_of : callable
        Of the noise on each statistic of an option, at the run's budget.
    use, reactive, power_factors
        As of :func:`expected_error`.
    """

    def scored(option: Statistics) -> float:
        variance = variance_of(option)
        return expected_error(
            option, variance, prior, use, reactive=reactive, power_factors=power_factors
        )

    matches = [Disclosure(option, prior, scored(option)) for option in options]
    return min(matches, key=lambda disclosure: disclosure.expected)

"""The strategy of least expected error, from public quantities only."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.privacy.adjacency import PowerFactors
from gridpriv.privacy.strategies.disclosure import Disclosure
from gridpriv.privacy.strategies.linear import Statistics, posterior_covariance
from gridpriv.privacy.strategies.prior import Prior, Sums

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

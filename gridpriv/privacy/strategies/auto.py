"""The strategy of least expected error, from public quantities only."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.privacy.strategies.disclosure import Disclosure
from gridpriv.privacy.strategies.linear import Statistics, posterior_covariance
from gridpriv.privacy.strategies.prior import Prior

DEVIATION = 1.5
"""Public guess of s: the median over the zones of 25 published grids (0.1 to 9)."""


def expected_error(
    strategy: Statistics, variance: float, prior: Prior, use: Floats, deviation: float = DEVIATION
) -> float:
    """Return the root of the expected squared error of ``use`` times the active demand.

    Parameters
    ----------
    variance : float
        Of the noise on a statistic.
    use : (k, n)
        What neighbours use of the demand.
    """
    left = posterior_covariance(strategy.matrix, variance, prior.active, deviation)
    return float(np.sqrt(max(np.trace(use @ left @ use.T), 0.0)))


def auto(
    options: Iterable[Statistics],
    variance_of: Callable[[Statistics], float],
    prior: Prior,
    use: Floats,
) -> Disclosure:
    """Return the option of least expected error; the first of equals.

    Parameters
    ----------
    variance_of : callable
        Of the noise on each statistic of an option, at the run's budget.
    use : (k, n)
        What neighbours use of the active demand.
    """
    found = [
        Disclosure(option, prior, expected_error(option, variance_of(option), prior, use))
        for option in options
    ]
    return min(found, key=lambda disclosure: disclosure.expected)

"""The strategy of least expected error, from public quantities only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.privacy.strategies.linear import Statistics, posterior_covariance
from gridpriv.privacy.strategies.prior import Prior

DEVIATION = 1.25
"""Public guess of s: how far the loads of a usual grid are from equal shares, relative to them."""


@dataclass(frozen=True, eq=False)
class Expected:
    """What a strategy is expected to leave open.

    Attributes
    ----------
    strategy : Statistics
    error : float
        Root of the expected squared error of what neighbours use, per unit.
    """

    strategy: Statistics
    error: float


def expected_error(
    strategy: Statistics, variance: float, prior: Prior, use: Floats, deviation: float = DEVIATION
) -> float:
    """Return the root of the expected squared error of ``use`` times the active demand.

    Parameters
    ----------
    strategy : Statistics
    variance : float
        Of the noise on a statistic.
    prior : Prior
    use : (k, n)
        What neighbours use of the demand: flows on tie lines per unit of each demand.
    deviation : float
    """
    left = posterior_covariance(strategy.matrix, variance, prior.active, deviation)
    return float(np.sqrt(max(np.trace(use @ left @ use.T), 0.0)))


def auto(
    options: Sequence[Statistics],
    variance_of: Callable[[Statistics], float],
    prior: Prior,
    use: Floats,
) -> Expected:
    """Return the option of least expected error; the first of equals."""
    found = [
        Expected(option, expected_error(option, variance_of(option), prior, use))
        for option in options
    ]
    return min(found, key=lambda expected: expected.error)

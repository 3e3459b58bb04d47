r"""From counts to a lower bound on epsilon, and what a number of runs can show.

A mechanism is (epsilon, delta)-private only if P[S on D] <= exp(epsilon) P[S on D'] + delta for
every event S, so that for any S

    epsilon >= ln( (P[S on D] - delta) / P[S on D'] ).

S is chosen on one half of the runs and counted on the other, P[S on D] is bounded from below
and P[S on D'] from above by Clopper and Pearson (1934), each at half the allowed error, and
the bound holds with the stated confidence whatever the mechanism is.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError, not_allowed


def proportion_below(hits: Floats, runs: int, error: float) -> Floats:
    """Return the one-sided Clopper-Pearson lower bound of a proportion."""
    ppf = stats.beta.ppf(error, hits, runs - hits + 1)
    return np.where(hits > 0, ppf, 0.0)


def proportion_above(hits: Floats, runs: int, error: float) -> Floats:
    """Return the one-sided Clopper-Pearson upper bound of a proportion."""
    ppf = stats.beta.ppf(1.0 - error, hits + 1, runs - hits)
    return np.where(hits < runs, ppf, 1.0)


def epsilon_bound(
    hits: Floats, misses: Floats, runs: int, delta: float, confidence: float
) -> Floats:
    """Return lower bounds on epsilon, 0 at least.

    Parameters
    ----------
    hits, misses : array
        Runs on D, and on D', in which the event happened.
    runs : int
        Number of runs on each.
    """
    error = (1.0 - confidence) / 2.0
    low = proportion_below(np.asarray(hits, dtype=float), runs, error) - delta
    high = proportion_above(np.asarray(misses, dtype=float), runs, error)
    ratio = np.maximum(low, 1e-300) / high
    return np.asarray(np.maximum(np.log(ratio), 0.0))


def ceiling(runs: int, delta: float, confidence: float) -> float:
    """Return the largest bound that ``runs`` counted runs on each side can give at all."""
    return float(epsilon_bound(np.array(runs), np.array(0), runs, delta, confidence))


def runs_needed(epsilon: float, delta: float, confidence: float) -> int:
    """Return the fewest counted runs on each side whose ceiling is above ``epsilon``."""
    runs = 1
    while ceiling(runs, delta, confidence) <= epsilon:
        if runs > 10**9:
            raise InputError(
                f"no number of runs below 10^9 can show an epsilon of {epsilon:g}"
                ": raise --confidence or the budget"
            )
        runs *= 2
    low, high = runs // 2, runs
    while high - low > 1:
        middle = (low + high) // 2
        enough = ceiling(middle, delta, confidence) > epsilon
        low, high = (low, middle) if enough else (middle, high)
    return high


def detectable(nominal: float, runs: int, delta: float, confidence: float) -> float:
    """Return the power: the least epsilon distinguishable from ``nominal``.

    Of a mechanism that answers one question with randomised response at that epsilon, counted
    at its expected frequencies; vector mechanisms spread their loss and need more.
    """
    for factor in np.geomspace(1.0, 1e4, 400):
        epsilon = nominal * float(factor)
        truth = 1.0 / (1.0 + math.exp(-min(epsilon, 700.0)))
        bound = epsilon_bound(
            np.array(runs * truth), np.array(runs * (1.0 - truth)), runs, delta, confidence
        )
        if float(bound) > nominal:
            return epsilon
    return math.inf


def check_runs(runs: int, nominal: float, delta: float, confidence: float) -> None:
    """Refuse a number of runs (half of them counted) that cannot exceed ``nominal``."""
    if not 0.5 <= confidence < 1.0:
        raise not_allowed("confidence", confidence, "a number of at least 0.5 and below 1")
    needed = 2 * runs_needed(nominal, delta, confidence)
    if runs < needed:
        raise not_allowed(
            "runs",
            runs,
            f"at least {needed} on each of the two data sets: with fewer, no outcome could show "
            f"an epsilon above {nominal:.4g} at confidence {confidence:g}",
        )

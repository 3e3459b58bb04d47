"""Releases over time: a stream of zone totals hour by hour, and one release for a whole series.

**Streams.** A zone's total is released continually under w-event privacy. Adjacent streams differ
at one unit in at most w consecutive hours, by at most beta in each (Kellaris, Papadopoulos, Xiao
and Papadias, VLDB 2014). With w = 24 that includes any one day. Each release is the mean of the
total over the last b hours, at the end of every b-th hour, with fresh noise. b divides w.

Loss. Let one unit change by x_t, |x_t| <= beta, in hours t of a window W of w hours. Block k
changes by b^-1 sum over its hours in W of x_t, at most beta |W and block k| / b in each of p and q.
The changes of all blocks lie in the convex hull of those of the windows that begin and end with a
block: a window that begins c hours into a block changes its first block by (1 - c/b) beta and its
last by (c/b) beta, which is the mean, in the shares 1 - c/b and c/b, of two aligned windows of w/b
whole blocks each. Norms are convex, so in every norm the changes of a window are at most those of
w/b blocks. Where the noise is log-concave and even, the same holds of the loss: delta(eps; v) =
1 - M(v) with M log-concave and even (:class:`gridpriv.privacy.mechanism.KNorm`), which is least at
an extreme point of the hull. So any w hours cost as much as w/b releases of sensitivity beta, and h
hours of a unit that differs in all of them as much as ceil(h/b) releases.
Staircase noise is not log-concave: part of a block's change would cost a whole epsilon.

Estimate. It is post-processing of the releases. The model of the total is

    s_t = level + sum over k = 1..3 of (a_k cos + b_k sin)(2 pi k t / 24) + e_t,

with drifting level, a_k and b_k, and autoregressive e_t. A Kalman filter is updated with the
released means and predicts every hour from the releases until then. Its variances depend on public
data only, so they can choose b.

**Series.** The temporal basis gives one release for all T steps. Adjacent series differ at one
unit, by (dp_t, dq_t) in each step t, all within beta. Released are, for p and for q,

    S m,        m the units' means over the steps,
    v_j h_j,    h_j = 1/T sum_t c_jt 1'd_t,    c_jt = sqrt(2) cos(pi j (t - 1/2) / T),

j = 1..K: the first DCT-II coefficients of the zone's sum, 1'd_t = 1'm + sum_j h_j c_jt + remainder.
S m costs as much as the release of one step.

Sensitivity. Let one kind of demand of unit i change by x, |x_t| <= beta. With b_0t = ||S_i|| / T
and b_jt = v_j c_jt / T the statistics change by b_j'x, and by b_0'x along S_i. For a set J of them,

    max over x of sum_J |b_j'x| = beta f(J),    f(J) = max over signs s of sum_t |sum_J s_j b_jt|,

as the maximum over x and over s may be taken in either order. So

    norm 1    f(all) beta for p, and as much for q;
    norm box  sum_j max(|b_j'x|, |b_j'y|) counts either term for each j: max over J of
              f(J) + f(rest), or f(all) where q does not change;
    norm 2    the b_j are orthogonal, T ||b_0||^2 = ||S_i||^2 and T ||b_j||^2 = v_j^2:
              max(||S_i||_2, v_j) beta for p, and as much for q.

Those of norm 1 and box are attained, that of norm 2 where no v_j is larger. Half of the signs
suffice, as f is even.

Estimate. m is estimated as for one step. h_j ~ N(a_j, s^2 g_j^2), where g_j of the zone's sum is
:data:`COEFFICIENT_SPREAD` / j, a = 0 for p and along the power factor of m for q; s is weighed by
the likelihood of the release (:mod:`gridpriv.privacy.linear`). The sum of a step is projected on
its public range.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations, product

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import not_allowed
from gridpriv.privacy.adjacency import DemandAdjacency
from gridpriv.privacy.linear import DEVIATIONS, GRID, Disclosure, Sums, on_grid, with_rounding
from gridpriv.privacy.release import Release
from gridpriv.privacy.sensitivity import Norm, Sensitivity

MOST_COEFFICIENTS = 6
"""Largest number of released cosines of a sum (:mod:`gridpriv.privacy.temporal`)."""

HOURS = {"hour": 1, "day": 24, "week": 168, "month": 720, "year": 8760}
WINDOW = "a number of hours such as 24h, or hour, day, week, month or year"
HARMONICS = 3
HARMONIC_SPREAD = 0.4
"""Standard deviation of the first harmonic relative to the level; of the k-th, 1/k of it."""
DRIFT = 0.2
"""Of level and harmonics in a day, relative to their size."""
RESIDUAL, MEMORY = 0.2, 0.95
"""Standard deviation of e_t relative to the level, and its autocorrelation from hour to hour.

With these four the filter's own error is that of the load profiles of SimBench's high-voltage grid
(1-HV-mixed) in January and February: 14.3 MW expected and 15.1 MW measured on case14 at 1 MW, 150
and 158 MW on case118 at 10 MW, total 5 in 24 hours. With a fourth of them it was 29 and 364 MW."""
BLOCKS = (1, 2, 3, 4, 6, 8, 12, 24, 48, 72, 168, 360, 720)
TRIAL_HOURS = 28 * 24


def parse_window(text: str) -> int:
    """Return the number of hours of a window.

    >>> parse_window("day"), parse_window("48h")
    (24, 48)
    """
    match = re.fullmatch(r"(\d{1,6})\s*h", text.strip())
    hours = int(match[1]) if match else HOURS.get(text.strip(), 0)
    if hours < 1:
        raise not_allowed("stream", text, WINDOW)
    return hours


def blocks_of(window: int) -> list[int]:
    """Return the possible numbers of hours of a block: the divisors of the window."""
    return [block for block in BLOCKS if window % block == 0 and block <= window]


@dataclass(eq=False)
class TotalFilter:
    """The Kalman filter of one zone's total of p, or of q.

    The state is (level, a_1, b_1, ..., a_3, b_3, e, sum of s over the block so far).

    Parameters
    ----------
    level : float
        Publicly expected total.
    spread : float
        Its standard deviation.
    """

    level: float
    spread: float

    def __post_init__(self) -> None:
        size = max(abs(self.level), 1e-9)
        harmonics = np.repeat(HARMONIC_SPREAD * size / np.arange(1, HARMONICS + 1), 2)
        parts = np.concatenate([[self.spread], harmonics, [RESIDUAL * size]])
        self._state = np.zeros(len(parts) + 1)
        self._state[0] = self.level
        self._covariance = np.diag(np.append(parts**2, 0.0))
        drift = DRIFT * np.concatenate([[size], harmonics]) / math.sqrt(24.0)
        residual = RESIDUAL * size * math.sqrt(1.0 - MEMORY**2)
        self._noise = np.diag(np.concatenate([drift, [residual]]) ** 2)
        self._hour = 0

    @property
    def expected(self) -> float:
        """Estimate of the current hour's total from the releases so far."""
        return float(self._row @ self._state[:-1])

    @property
    def variance(self) -> float:
        """Variance of the estimate."""
        return float(self._row @ self._covariance[:-1, :-1] @ self._row)

    @property
    def _row(self) -> Floats:
        angle = 2.0 * np.pi * np.arange(1, HARMONICS + 1) * (self._hour % 24) / 24.0
        waves = np.stack([np.cos(angle), np.sin(angle)], axis=1).ravel()
        return np.concatenate([[1.0], waves, [1.0]])

    def advance(self, hour: int) -> None:
        """Advance to an hour, counted from 0, and add it to its block."""
        self._hour, size = hour, len(self._state)
        transition = np.eye(size)
        transition[-2, -2] = MEMORY
        step = np.zeros((size, size - 1))
        step[:-1] = np.eye(size - 1)
        step[-1] = self._row
        transition[-1, :-1] = self._row @ transition[:-1, :-1]
        self._state = transition @ self._state
        self._covariance = (
            transition @ self._covariance @ transition.T + step @ self._noise @ step.T
        )

    def predicted(self, hours: Sequence[int]) -> Floats:
        """Return predicted totals of the present and later hours from the releases so far.

        Parameters
        ----------
        hours : (k,) int
            In ascending order.
        """
        result, later = [], copy.copy(self)
        for hour in hours:
            for passed in range(later._hour + 1, hour + 1):
                later.advance(passed)
            result.append(later.expected)
        return np.array(result)

    def observe(self, mean: float | None, hours: int, variance: float) -> None:
        """Update with the released mean of a block that ends here, and begin the next block.

        Parameters
        ----------
        mean : float or None
            None to compute variances only.
        variance : float
            Of its noise.
        """
        row = np.zeros(len(self._state))
        row[-1] = 1.0 / hours
        size = float(row @ self._covariance @ row) + variance
        gain = self._covariance @ row / max(size, 1e-300)
        if mean is not None:
            self._state = self._state + gain * (mean - float(row @ self._state))
        self._covariance = self._covariance - np.outer(gain, row @ self._covariance)
        self._state[-1] = 0.0
        self._covariance[-1] = self._covariance[:, -1] = 0.0


@lru_cache(maxsize=256)
def expected_error(level: float, spread: float, block: int, variance: float) -> float:
    """Return the root mean square error of an hour's total after the first half of the trial.

    Parameters
    ----------
    variance : float
        Of the noise of one release of a block's mean.
    """
    filter_, errors = TotalFilter(level, spread), []
    hours = max(TRIAL_HOURS, 4 * block)
    for hour in range(hours):
        filter_.advance(hour)
        if (hour + 1) % block == 0:
            filter_.observe(None, block, variance)
        if hour >= hours // 2:
            errors.append(filter_.variance)
    return math.sqrt(float(np.mean(errors)))


def releases_in(hours: int, block: int) -> int:
    """Return the number of block releases that a change in h consecutive hours costs.

    >>> releases_in(24, 4), releases_in(8760, 4)
    (6, 2190)
    """
    return math.ceil(hours / block)


def costs_over_time(total: float) -> list[dict[str, str | float]]:
    """Return the pure epsilon of hourly releases to a unit that differs in all of them.

    Parameters
    ----------
    total : float
        Of one hour, or of any 24 hours of a stream.

    >>> costs_over_time(5.0)[-1]
    {'period': 'year', 'fresh': 43800.0, 'stream_24h': 1825.0}
    """
    return [
        {"period": name, "fresh": hours * total, "stream_24h": hours / 24 * total}
        for name, hours in HOURS.items()
        if name in ("day", "month", "year")
    ]


COEFFICIENT_SPREAD = 0.15
"""g_1: of the six daily curves of the IEEE RTS-79, the first six g are 0.12, 0.09, 0.02, 0.03,
0.06 and 0.01 in the root mean square."""
WEIGHTS = (0.2, 0.35, 0.7, 1.0)
"""v: in norm 1 cosines add no cost while sqrt(2) sum v_j <= 1, as |b_0'x| then covers them."""


@dataclass(frozen=True)
class TemporalBasis:
    """Cosine coefficients of a sum over time, released with its mean.

    Attributes
    ----------
    steps : int
        T.
    weights : tuple of float
        v_j, j = 1..K.
    """

    steps: int
    weights: tuple[float, ...] = ()

    @property
    def rows(self) -> Floats:
        """c_jt, shape (K, T)."""
        j = np.arange(1, len(self.weights) + 1)[:, None]
        angle = np.pi * j * (np.arange(self.steps) + 0.5) / self.steps
        return np.asarray(np.sqrt(2.0) * np.cos(angle))


def basis_candidates(steps: int, choice: str = "auto") -> list[TemporalBasis]:
    """Return the candidates for a number of cosines, or ``auto``, in a series of given length."""
    most = min(MOST_COEFFICIENTS, steps - 1)
    numbers = range(most + 1) if choice == "auto" else [min(int(choice), most)]
    return [
        TemporalBasis(steps, (weight,) * number)
        for number in numbers
        for weight in (WEIGHTS if number else WEIGHTS[:1])
    ]


@dataclass(frozen=True, eq=False)
class TemporalEstimate:
    """Posterior mean of a demand (p, q) of n units over time.

    Attributes
    ----------
    mean : (2n,)
        Over the steps.
    temporal_coefficients : (2, K)
        h of p and of q.
    """

    mean: Floats
    temporal_coefficients: Floats


@dataclass(frozen=True, eq=False)
class TemporalDisclosure:
    """Disclosure of one agent over all steps: released statistics and the public estimate.

    Attributes
    ----------
    level : Disclosure
        Of the units' means; its expected error is that of a step, on average.
    over : TemporalBasis
    """

    level: Disclosure
    over: TemporalBasis

    @property
    def weights(self) -> tuple[float, ...]:
        """Weights of the released cosine coefficients."""
        return self.over.weights

    def measure(self, days: Floats) -> Floats:
        """Return the true statistics (2(m + K),) of demand over time (T, 2n)."""
        owned = days.reshape(self.over.steps, 2, -1)
        if self.level.power_factors is not None:
            owned = np.einsum("kl,tln->tkn", self.level.power_factors.shear, owned)
        if self.level.exact:
            owned = on_grid(owned)
            mean = np.mean([self.level.exact_sums(step) for step in owned], axis=0)
        else:
            mean = self.level.strategy.measure(owned.mean(axis=0).ravel())
        temporal_coefficients = owned.sum(axis=2).T @ self.over.rows.T / self.over.steps
        weighted = temporal_coefficients * np.array(self.over.weights)
        return np.hstack([mean.reshape(2, -1), weighted]).ravel()

    def sensitivity(self, adjacency: DemandAdjacency, norm: Norm) -> Sensitivity:
        """Return the sensitivity of the statistics."""
        still = self.level.sensitivity(adjacency, norm)
        if not self.over.weights:
            return (
                with_rounding(still, adjacency.beta, self.over.steps) if self.level.exact else still
            )
        if norm in {"pair", "number"}:  # a unit changes the cosines too
            return replace(still, value=np.inf, share=1.0)
        weight = self.level.strategy.weight(norm)
        both = adjacency.protects == "p+q"
        kinds = {1: 2.0, 2: math.sqrt(2.0), "box": 1.0}[norm] if both else 1.0
        value = adjacency.beta * kinds * _unit_sensitivity(self.over, weight, norm, both=both)
        if self.level.exact:
            value *= 1.0 + 8.0 * (self.over.steps + 1) * GRID / adjacency.beta
        text = f", with {len(self.over.weights)} cosines over {self.over.steps} steps"
        return replace(still, value=value, bound_source=still.bound_source + text, share=1.0)

    def estimate(self, released: Floats, release: Release | None) -> TemporalEstimate:
        """Return the posterior mean; the prior, with zero coefficients, without a release."""
        statistics, temporal_coefficients = np.split(
            released.reshape(2, -1), [len(self.level.strategy.matrix)], axis=1
        )
        mean = self.level.estimate(statistics.ravel(), release)
        noise = 0.0 if release is None else release.mechanism.variance
        return TemporalEstimate(mean, self._coefficients(temporal_coefficients, mean, noise))

    def _coefficients(self, released: Floats, mean: Floats, noise: float) -> Floats:
        """Return h of p and of q, (2, K)."""
        weights = np.array(self.over.weights)
        released, variance = released / weights, noise / weights**2
        p_sum, q_sum = mean.reshape(2, -1).sum(axis=1)
        active = _posterior_coefficients(released[0], variance, np.zeros_like(weights), p_sum)
        follows = (q_sum / p_sum if p_sum > 0 else 0.0) * active
        factors = self.level.power_factors
        if factors is None:
            return np.stack(
                [active, _posterior_coefficients(released[1], variance, follows, q_sum)]
            )
        along, half = factors.middle * active, factors.half
        centred = _posterior_coefficients(
            released[1], variance, (follows - along) / half, q_sum / half
        )
        return np.stack([active, along + half * centred])

    def at(self, step: int, basis: TemporalEstimate) -> Floats:
        """Return the demand (2n,) of a step, counted from 0; its sums in their public range."""
        demands, prior, means = [], self.level.prior, basis.mean.reshape(2, -1)
        changes = basis.temporal_coefficients @ self.over.rows[:, step]
        beliefs = prior.active, prior.reactive(means[0])
        for mean, change, sums in zip(means, changes, beliefs, strict=True):
            total = float(mean.sum())
            shift = float(np.clip(total + change, sums.lower, sums.upper)) - total
            demands.append(mean + shift * _shares(mean, sums))
        return np.concatenate(demands)


def coefficient_error(over: TemporalBasis, variance: float, level: float) -> float:
    """Return the expected squared error of a sum's cosines, before any draw.

    Parameters
    ----------
    over : TemporalBasis
        Coefficients that are not released have their prior's error.
    variance : float
        Of the noise on a statistic.
    level : float
        Of the sum, publicly.
    """
    most, number = min(MOST_COEFFICIENTS, over.steps - 1), len(over.weights)
    prior_variance = (COEFFICIENT_SPREAD * level / np.arange(1, most + 1)) ** 2
    released = prior_variance[:number]
    information = np.array(over.weights) ** 2 * released
    return float(prior_variance.sum() - (released * information / (variance + information)).sum())


def _posterior_coefficients(
    released: Floats, variance: Floats, expected: Floats, level: float
) -> Floats:
    """Return the posterior mean of h, s weighed by the likelihood."""
    if not released.size:
        return released
    guess = COEFFICIENT_SPREAD * abs(level) / np.arange(1, len(released) + 1)
    spread = np.outer(DEVIATIONS, guess) ** 2
    size = np.maximum(variance + spread, np.finfo(float).tiny)
    gap = released - expected
    log_likelihood = -0.5 * (np.log(size) + gap**2 / size).sum(axis=1)
    weight = np.exp(log_likelihood - log_likelihood.max())
    pull: Floats = (weight / weight.sum()) @ (spread / size)
    return np.asarray(expected + pull * gap)


def _shares(mean: Floats, sums: Sums) -> Floats:
    """Return the shares of the units in a coefficient of the sum: those of their demand."""
    size = np.abs(mean)
    return size / size.sum() if size.sum() > 0 else sums.shares


@lru_cache(maxsize=1024)
def _unit_sensitivity(over: TemporalBasis, weight: float, norm: Norm, *, both: bool) -> float:
    """Return the sensitivity of the statistics of p or of q at a beta of 1; see the module."""
    if norm == 2:
        return max(weight, *over.weights)
    rows = np.vstack([np.full(over.steps, weight), np.array(over.weights)[:, None] * over.rows])
    rows /= over.steps
    every = range(len(rows))
    if norm == 1 or not both:
        return _largest_change(rows)
    parts = (list(part) for size in every for part in combinations(every, size))
    return max(
        _largest_change(rows[part]) + _largest_change(np.delete(rows, part, axis=0))
        for part in parts
    )


def _largest_change(rows: Floats) -> float:
    """Return f of these b_j."""
    if not len(rows):
        return 0.0
    signs = np.array(list(product((1.0,), *[(-1.0, 1.0)] * (len(rows) - 1))))
    return float(np.abs(signs @ rows).sum(axis=1).max())

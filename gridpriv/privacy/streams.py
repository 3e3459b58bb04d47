r"""Continual release of a zone's total, hour by hour, under w-event privacy.

Neighbours are two streams that differ at one unit in at most w consecutive hours, by at most beta
in each (Kellaris, Papadopoulos, Xiao and Papadias, VLDB 2014). With w = 24 that includes any one
day. What is released is a banded linear query of the stream: at the end of every b-th hour the mean
of the total over the last b hours, with fresh noise. b divides w.

Loss. Let one unit move by x_t, |x_t| <= beta, in hours t of a window W of w hours. Block k moves by
b^-1 sum over its hours in W of x_t, at most beta |W and block k| / b in each of p and q. The moves
of all blocks lie in the convex hull of those of the windows that begin and end with a block: a
window that begins c hours into a block moves its first block by (1 - c/b) beta and its last by
(c/b) beta, which is the mean, in the shares 1 - c/b and c/b, of two aligned windows of w/b whole
blocks each. Norms are convex, so in every norm the moves of a window are at most those of w/b
blocks; and where the noise is log-concave and even, so is the loss: delta(eps; v) = 1 - M(v) with M
log-concave and even (:class:`gridpriv.privacy.mechanism.KNorm`), which is least at an extreme point
of the hull. So any w hours cost what w/b releases of sensitivity beta cost, and h hours of a unit
that differs in all of them what ceil(h/b) releases cost.
Staircase noise is not log-concave: part of a block's move would cost a whole epsilon.

Estimate. Everything after the releases is post-processing. The total is modelled as

    s_t = level + sum over k = 1..3 of (a_k cos + b_k sin)(2 pi k t / 24) + e_t,

with level, a_k and b_k that drift, and e_t autoregressive. A Kalman filter takes in the released
means and predicts every hour from the releases until then. Its variances depend on public figures
only, so that b is chosen by them.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import not_allowed

MOST_COSINES = 6
"""Cosines of a sum over time that are released at most (:mod:`gridpriv.privacy.temporal_basis`)."""

HOURS = {"hour": 1, "day": 24, "week": 168, "month": 720, "year": 8760}
WINDOW = "a number of hours such as 24h, or hour, day, week, month or year"
HARMONICS = 3
SWING = 0.4
"""Standard deviation of the first harmonic relative to the level; of the k-th, 1/k of it."""
DRIFT = 0.2
"""Of level and harmonics in a day, relative to their size."""
REST, MEMORY = 0.2, 0.95
"""Standard deviation of e_t relative to the level, and its autocorrelation from hour to hour.

With these four the filter's own error is that of the load profiles of SimBench's high-voltage grid
(1-HV-mixed) in January and February: 14.3 MW expected and 15.1 MW found on case14 at 1 MW, 150 and
158 MW on case118 at 10 MW, total 5 in 24 hours. With a fourth of them it was 29 and 364 MW."""
BLOCKS = (1, 2, 3, 4, 6, 8, 12, 24, 48, 72, 168, 360, 720)
TRIAL_HOURS = 28 * 24


def parse_window(text: str) -> int:
    """Return the hours of a window.

    >>> parse_window("day"), parse_window("48h")
    (24, 48)
    """
    match = re.fullmatch(r"(\d{1,6})\s*h", text.strip())
    hours = int(match[1]) if match else HOURS.get(text.strip(), 0)
    if hours < 1:
        raise not_allowed("stream", text, WINDOW)
    return hours


def blocks_of(window: int) -> list[int]:
    """Return the numbers of hours that a block may have: those that divide the window."""
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
        swings = np.repeat(SWING * size / np.arange(1, HARMONICS + 1), 2)
        parts = np.concatenate([[self.spread], swings, [REST * size]])
        self._state = np.zeros(len(parts) + 1)
        self._state[0] = self.level
        self._covariance = np.diag(np.append(parts**2, 0.0))
        drift = DRIFT * np.concatenate([[size], swings]) / math.sqrt(24.0)
        rest = REST * size * math.sqrt(1.0 - MEMORY**2)
        self._noise = np.diag(np.concatenate([drift, [rest]]) ** 2)
        self._hour = 0

    @property
    def expected(self) -> float:
        """Total of the hour that was reached, as likely by the releases until now."""
        return float(self._row @ self._state[:-1])

    @property
    def variance(self) -> float:
        """Variance of that."""
        return float(self._row @ self._covariance[:-1, :-1] @ self._row)

    @property
    def _row(self) -> Floats:
        angle = 2.0 * np.pi * np.arange(1, HARMONICS + 1) * (self._hour % 24) / 24.0
        waves = np.stack([np.cos(angle), np.sin(angle)], axis=1).ravel()
        return np.concatenate([[1.0], waves, [1.0]])

    def advance(self, hour: int) -> None:
        """Go on to an hour, counted from 0, and add it to its block."""
        self._hour, size = hour, len(self._state)
        move = np.eye(size)
        move[-2, -2] = MEMORY
        step = np.zeros((size, size - 1))
        step[:-1] = np.eye(size - 1)
        step[-1] = self._row
        move[-1, :-1] = self._row @ move[:-1, :-1]
        self._state = move @ self._state
        self._covariance = move @ self._covariance @ move.T + step @ self._noise @ step.T

    def predicted(self, hours: Sequence[int]) -> Floats:
        """Return the totals of hours from now on, the present one first, by the releases so far.

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
        """Take in the released mean of a block that ends here, and begin the next block.

        Parameters
        ----------
        mean : float or None
            None where only variances are asked for.
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
    """Return the largest number of whole releases that h consecutive hours change.

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

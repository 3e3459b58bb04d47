"""Rank methods by a figure: only where the difference over paired seeds is significant."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from gridpriv.core.arrays import Floats
from gridpriv.privacy.settings import QUIET
from gridpriv.report.metrics import Metric

LEVEL = 0.95


def half_width(values: ArrayLike, level: float = LEVEL) -> float:
    """Return the half width of Student's confidence interval of the mean; NaN below two values."""
    from scipy.stats import t

    given = np.asarray(values, dtype=float)
    given = given[np.isfinite(given)]
    if len(given) < 2:
        return math.nan
    spread = float(given.std(ddof=1)) / math.sqrt(len(given))
    return float(t.ppf(0.5 + level / 2.0, len(given) - 1)) * spread


@dataclass(frozen=True)
class Ranking:
    """Methods by a figure, the lowest first.

    Attributes
    ----------
    order : tuple of str
    leaders : tuple of str
        The lowest, and those whose difference from it is not significant.
    seeds : int
        Fewest seeds that two compared methods share.
    """

    order: tuple[str, ...]
    leaders: tuple[str, ...]
    seeds: int

    @property
    def decided(self) -> bool:
        """True if one method is significantly the lowest."""
        return len(self.leaders) == 1


def rank(runs: pd.DataFrame, metric: Metric) -> Ranking:
    """Rank the methods (column ``series``) of finished runs by the mean of a figure.

    The lowest is compared with every other method over the seeds that both have. The level is
    Bonferroni's over all pairs, since which one is the lowest is chosen by the same figures.
    """
    known = runs[runs[metric.key].notna()]
    means = known.groupby("series", sort=False)[metric.key].mean().sort_values(kind="stable")
    order = [str(name) for name in means.index]
    if len(order) < 2:
        return Ranking(tuple(order), tuple(order), len(known))
    drawn = {
        str(name): _by_seed(rows, metric) for name, rows in known.groupby("series", sort=False)
    }
    pairs = len(order) * (len(order) - 1) / 2.0
    differences = {name: _difference(drawn[order[0]], drawn[name]) for name in order[1:]}
    leaders = [order[0]] + [
        name
        for name, difference in differences.items()
        if not _significant(difference, metric, 1.0 - (1.0 - LEVEL) / pairs)
    ]
    noisy = [len(difference) for difference in differences.values()]
    return Ranking(tuple(order), tuple(leaders), min(noisy))


def _by_seed(rows: pd.DataFrame, metric: Metric) -> pd.Series:
    """Return a method's figure by seed; of one that draws nothing, one value for every seed."""
    values = pd.to_numeric(rows[metric.key])
    if bool(rows["budget"].isin(QUIET).all()):
        return pd.Series([float(values.iloc[0])], index=["any"])
    seeds = rows["seed"] if "seed" in rows else pd.Series(range(len(rows)), index=rows.index)
    return pd.Series(values.to_numpy(dtype=float), index=seeds.astype(str))


def _difference(lowest: pd.Series, other: pd.Series) -> Floats:
    """Return the other's figure less the lowest one's, by common seed."""
    for item, rest in ((lowest, other), (other, lowest)):
        if list(item.index) == ["any"]:
            sign = 1.0 if item is lowest else -1.0
            return np.asarray(sign * (rest.to_numpy() - item.iloc[0]), dtype=float)
    return np.asarray((other - lowest).dropna(), dtype=float)


def _significant(difference: Floats, metric: Metric, level: float) -> bool:
    mean = float(difference.mean()) if len(difference) else 0.0
    if mean <= metric.least:
        return False
    if np.ptp(difference) <= 1e-9 * abs(mean):  # deterministic, whatever the seed
        return True
    return mean > half_width(difference, level)

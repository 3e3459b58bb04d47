"""Public prior of a zone's demand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError

LEAST_SHARE = 0.1  # of the mean demand: how much a unit that should have none may have


@dataclass(frozen=True, eq=False)
class Prior:
    """A public belief about the demand (p, q) of n units.

    Attributes
    ----------
    mean : (2n,)
        Expected p, then q.
    spread : (2,)
        Standard deviation of the sum of p, and of the sum of q.
    lower, upper : (2,)
        Public range of both sums.
    """

    mean: Floats
    spread: Floats
    lower: Floats
    upper: Floats

    def __post_init__(self) -> None:
        if not (np.isfinite(self.mean).all() and (self.spread > 0).all()):
            raise InputError(
                "a prior needs finite means and positive spreads: correct --public-demand"
            )
        if not (self.lower <= self.upper).all():
            raise InputError("a prior's range is empty: correct --public-demand")

    @property
    def active(self) -> Sums:
        """The belief about p."""
        return self._half(0, np.split(self.mean, 2)[0])

    def reactive(self, active: Floats) -> Sums:
        """Return the belief about q once p is estimated: the public power factor carries over."""
        p, q = np.split(self.mean, 2)
        total = float(p.sum())
        ratio = float(q.sum()) / total if total > 0 else 0.0
        return self._half(1, q + ratio * (active - p))

    def _half(self, half: int, mean: Floats) -> Sums:
        size = np.abs(np.split(self.mean, 2)[half])
        typical = float(size.mean())
        scale = np.maximum(size, LEAST_SHARE * typical) if typical > 0 else np.ones_like(size)
        return Sums(
            mean,
            scale,
            float(self.spread[half]),
            float(self.lower[half]),
            float(self.upper[half]),
        )


@dataclass(frozen=True, eq=False)
class Sums:
    """A belief about one kind of demand of n units.

    Attributes
    ----------
    mean : (n,)
    scale : (n,)
        How far units deviate from their share, relative to each other.
    spread : float
        Standard deviation of the sum.
    lower, upper : float
        Range of the sum.
    """

    mean: Floats
    scale: Floats
    spread: float
    lower: float
    upper: float

    def less(self, known: Floats, unit: float) -> Sums:
        """Return the belief about what is left beside a known part (n,), in units of ``unit``."""
        part = float(known.sum())
        return Sums(
            (self.mean - known) / unit,
            self.scale / unit,
            self.spread / unit,
            (self.lower - part) / unit,
            (self.upper - part) / unit,
        )

    @property
    def shares(self) -> Floats:
        """Shares of the units in an error of the sum: proportional to their scales."""
        return np.asarray(self.scale / self.scale.sum())

    @property
    def deviations(self) -> Floats:
        """Covariance (n, n) of the units' deviations, at relative size 1, given their sum."""
        variance = self.scale**2
        return np.asarray(np.diag(variance) - np.outer(variance, variance) / variance.sum())

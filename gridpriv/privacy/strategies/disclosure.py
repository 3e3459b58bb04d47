"""Disclosure of one agent: released statistics of its data, and the public estimate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.privacy.adjacency import DemandAdjacency, PowerFactors
from gridpriv.privacy.release import Release
from gridpriv.privacy.sensitivity import Norm, Sensitivity
from gridpriv.privacy.strategies.exact_sums import exact_statistics, on_grid, with_rounding
from gridpriv.privacy.strategies.linear import Statistics
from gridpriv.privacy.strategies.prior import Prior


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
        Sum without rounding errors (:mod:`gridpriv.privacy.strategies.exact_sums`), as secure
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

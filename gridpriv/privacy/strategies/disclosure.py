"""What one agent releases of its data, and what everybody makes of it."""

from __future__ import annotations

from dataclasses import dataclass

from gridpriv.core.arrays import Floats
from gridpriv.privacy.adjacency import DemandAdjacency
from gridpriv.privacy.release import Release
from gridpriv.privacy.sensitivity import Norm, Sensitivity
from gridpriv.privacy.strategies.linear import Statistics
from gridpriv.privacy.strategies.prior import Prior


@dataclass(frozen=True, eq=False)
class Disclosure:
    """A strategy, and the public prior its releases are read with.

    Attributes
    ----------
    strategy : Statistics
    prior : Prior
    expected : float
        Root of the expected squared error of what neighbours use, per unit; from public
        quantities.
    scale : float
        By how much the data are a multiple of their owner's, publicly. What is released are the
        owner's statistics, between neighbours of the owner's data; the estimate is scaled, which
        is post-processing.
    """

    strategy: Statistics
    prior: Prior
    expected: float
    scale: float = 1.0

    def measure(self, data: Floats) -> Floats:
        """Return the private statistics that are to be released."""
        return self.strategy.measure(data / self.scale if self.scale else data)

    def sensitivity(self, adjacency: DemandAdjacency, norm: Norm) -> Sensitivity:
        """Return how far the statistics move between neighbours."""
        return self.strategy.sensitivity(adjacency, norm)

    def estimate(self, released: Floats, release: Release | None) -> Floats:
        """Return the demand that what was released leaves likely; the prior where nothing was."""
        noise = 0.0 if release is None else release.mechanism.variance
        return self.scale * self.strategy.estimate(released, noise, self.prior)

"""What algorithms are given, what they report after a round, and steps they share."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError
from gridpriv.learning.accounting import Charging, charge
from gridpriv.learning.adjacency import SampleAdjacency
from gridpriv.learning.arrays import Array, like, to_numpy
from gridpriv.learning.clients import Clients
from gridpriv.learning.regularizers import Regularizer
from gridpriv.learning.settings import LearnSettings
from gridpriv.privacy.noise import NoiseStreams


@dataclass(frozen=True, eq=False)
class Task:
    """A learning problem split over clients, and how it is to be solved.

    Attributes
    ----------
    clients : Clients
    regularizer : Regularizer
    norm : float
        Public bound of the features' 2-norm.
    settings : LearnSettings
    streams : NoiseStreams
    charging : Charging
        Noise multiplier of the budget, and the tally of releases.
    """

    clients: Clients
    regularizer: Regularizer
    norm: float
    settings: LearnSettings
    streams: NoiseStreams
    charging: Charging

    @property
    def adjacency(self) -> SampleAdjacency:
        """What one sample may do."""
        return SampleAdjacency(self.settings.adjacency)

    @property
    def multiplier(self) -> float:
        """Noise scale over sensitivity; 0 without noise."""
        return self.charging.multiplier

    @property
    def size(self) -> int:
        """Parameters of the model, J K."""
        return self.clients.shape[0] * self.clients.shape[1]

    def sample_gradient(self) -> float:
        """Return the largest 2-norm of a sample's gradient, from public bounds.

        Raises
        ------
        InputError
            If noise is calibrated to it and there is none.
        """
        bound = self.clients.loss.gradient_bound(self.norm, self.settings.clip)
        if self.settings.mechanism != "none" and not np.isfinite(bound):
            raise InputError(
                f"the {self.clients.loss.name} loss has no gradient bound: give --clip, a positive "
                "number"
            )
        return bound

    def mean_sensitivity(self) -> Floats:
        """Return how far each client's mean gradient moves between neighbours, shape (P,)."""
        bound = self.sample_gradient()
        if not np.isfinite(bound):
            return np.zeros(self.clients.number)
        return self.adjacency.factor * bound / self.clients.counts

    def record(
        self, multiplier: float, distance: Floats, provenance: str, *, proved: bool = True
    ) -> None:
        """Charge every client one release with Gaussian noise of ``multiplier * distance``.

        A release whose distance is not proved, or without noise where a run has noise, certifies
        nothing.
        """
        if self.settings.mechanism == "none":
            return
        proved = proved and math.isfinite(multiplier) and multiplier > 0
        what = charge("gaussian", multiplier) if proved else charge("uncertified", 0.0)
        for p in range(self.clients.number):
            self.charging.record(p, what)
            self.charging.calibrated(
                p, distance[p], distance[p], multiplier * distance[p], provenance
            )

    def noise(self, t: int, scales: Floats) -> Array:
        """Return Gaussian noise of a scale per client, shape (P, J, K).

        One stream a round: what is drawn depends on the seed and the round alone.
        """
        draw = self.streams.stream(0, t, 0).normal(size=(len(scales), *self.clients.shape))
        return like(draw * scales[:, None, None], self.clients.x)


@dataclass(frozen=True, eq=False)
class Round:
    """What a round left: the global and local models and the noise in them (private)."""

    number: int
    w: Array
    local: Array
    noise_magnitude: float = 0.0


Watch = Callable[[Round], None]


class Algorithm(Protocol):
    """Runs all rounds of a task and reports each."""

    def __call__(self, task: Task, watch: Watch) -> None:
        """Call ``watch`` after every round; charge ``task.charging`` for every release."""
        ...


def magnitude(noise: Array) -> float:
    """Return the sum of |noise|, (6.2) of Ryu and Kim."""
    return float(np.abs(to_numpy(noise)).sum())


def spread(values: Floats, x: Array) -> Any:
    """Return per-client numbers as (P, 1, 1), in the library of ``x``."""
    return like(values[:, None, None], x)

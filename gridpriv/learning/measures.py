"""Figures by which single papers judge a round, beside loss and error: private, for studies."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.learning.algorithms.base import Round
from gridpriv.learning.algorithms.centralized import solve
from gridpriv.learning.arrays import to_numpy
from gridpriv.learning.clients import make_clients
from gridpriv.learning.datasets.base import Dataset, split
from gridpriv.learning.schedules import parse_regularizer
from gridpriv.learning.settings import LearnSettings


class NormalizedError:
    """sum_k ||beta_k - beta_c||^2 / ||beta_c||^2, beta_c the centralized solution (Gauthier)."""

    name = "normalized_error"

    def __init__(self, dataset: Dataset, settings: LearnSettings) -> None:
        clients = make_clients(dataset, split(dataset, settings.split, settings.clients, 0))
        self._reference = solve(clients, parse_regularizer(settings.regularizer))
        self.values: list[float] = []

    def __call__(self, done: Round) -> None:
        """See one round."""
        difference = float(np.sum((to_numpy(done.local) - self._reference[None]) ** 2))
        self.values.append(difference / float(np.sum(self._reference**2)))


class AugmentedObjective:
    """sum_i f_i(mean of w_i) + rho ||mean of w_i - mean of w|| of every tenth round (Huang).

    With an l1 regularizer the local mean is over w_i^0 .. w_i^{t-1} (theorem 3), else over
    w_i^1 .. w_i^t.
    """

    name = "augmented_objective"

    def __init__(self, dataset: Dataset, settings: LearnSettings) -> None:
        parts = split(dataset, settings.split, settings.clients, settings.seed)
        self._clients = make_clients(dataset, parts)
        self._regularizer = parse_regularizer(settings.regularizer)
        self._penalty = settings.penalty.at(1)
        shape = (self._clients.number, *self._clients.shape)
        self._last: Floats = np.zeros(shape)
        self._local: Floats = np.zeros(shape)
        self._w: Floats = np.zeros(shape[1:])
        self.values: list[float] = []

    def __call__(self, done: Round) -> None:
        """See one round."""
        local = to_numpy(done.local)
        self._local = self._local + (self._last if self._regularizer.kind == "l1" else local)
        self._w, self._last = self._w + to_numpy(done.w), local
        if done.number % 10 and done.number != 1:
            self.values.append(math.nan)
            return
        mean, w = self._local / done.number, self._w / done.number
        losses = self._clients.values(mean)
        penalties = [self._regularizer.value(item) for item in mean]
        sqrt = np.sqrt(((mean - w[None]) ** 2).sum(axis=(1, 2)))
        self.values.append(float(np.sum(losses + penalties + self._penalty * sqrt)))


Measure = NormalizedError | AugmentedObjective
"""Sees every round and keeps a figure of it: NaN where it has none."""
MEASURES: Mapping[str, Callable[[Dataset, LearnSettings], Measure]] = {
    "normalized-error": NormalizedError,
    "augmented-objective": AugmentedObjective,
}

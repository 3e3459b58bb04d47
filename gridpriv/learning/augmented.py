"""The augmented objective by which Huang et al. show convergence (section VI)."""

from __future__ import annotations

from typing import Any

import numpy as np

from gridpriv.learning.algorithms.base import Round
from gridpriv.learning.arrays import like, to_numpy
from gridpriv.learning.clients import Clients
from gridpriv.learning.regularizers import Regularizer

# rho of their experiments
PENALTY = 0.1


class AugmentedObjective:
    """sum_i f_i(mean of w_i) + rho ||mean of w_i - mean of w|| of every tenth round.

    ``lagged`` takes w_i^0 .. w_i^{t-1} in the local mean (theorem 3), else w_i^1 .. w_i^t.
    """

    def __init__(self, clients: Clients, regularizer: Regularizer, lagged: bool) -> None:
        self._clients, self._regularizer, self._lagged = clients, regularizer, lagged
        self._local: Any = 0.0
        self._w: Any = 0.0
        self._last: Any = None
        self._values: list[float] = []

    def __repr__(self) -> str:
        return f"augmented objective, lagged {self._lagged}"

    def __call__(self, done: Round) -> None:
        """See one round."""
        local = to_numpy(done.local)
        before = np.zeros_like(local) if self._last is None else self._last
        self._local = self._local + (before if self._lagged else local)
        self._w = self._w + to_numpy(done.w)
        self._last = local
        if done.number % 10 and done.number != 1:
            self._values.append(float("nan"))
            return
        mean, w = self._local / done.number, self._w / done.number
        losses = self._clients.values(like(mean, self._clients.x))
        penalties = [self._regularizer.value(one) for one in mean]
        apart = np.sqrt(((mean - w[None]) ** 2).sum(axis=(1, 2)))
        self._values.append(float(np.sum(losses + penalties + PENALTY * apart)))

    def series(self) -> dict[str, list[float]]:
        """Return the values."""
        return {"augmented_objective": self._values}

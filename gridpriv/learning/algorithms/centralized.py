"""The centralized reference, scipy's L-BFGS-B on all samples with bounds for the box, and measures.

Measures are figures by which single papers judge a round, beside loss and error: private, for
studies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import SolverError
from gridpriv.core.threads import one_blas_thread
from gridpriv.learning.algorithms.base import Algorithm, Round, Watch
from gridpriv.learning.clients import (
    Clients,
    like,
    make_clients,
    mean_gradient,
    mean_value,
    to_numpy,
)
from gridpriv.learning.datasets.base import Dataset, split
from gridpriv.learning.schedules import Regularizer, parse_regularizer
from gridpriv.learning.settings import LearnSettings

MOST_VALUES = 2**25


class Centralized(Algorithm):
    """Solve once and report it as the last round; it protects nothing."""

    def run(self, watch: Watch) -> None:
        """Report the centralized solution."""
        solution = solve(self.task.linear_clients(), self.regularizer, self.settings.box)
        w = like(solution, self.clients.x)
        watch(Round(self.settings.rounds, w, self.xp.stack([w] * self.clients.number)))


def solve(
    clients: Clients, regularizer: Regularizer, box: float | None = None, tolerance: float = 1e-7
) -> Floats:
    """Return argmin of the mean loss of all samples + lambda R(w) over the box, shape (J, K).

    The l1 norm is split into positive and negative parts, w = u - v with u, v >= 0, which
    makes the problem smooth with bounds.

    Raises
    ------
    SolverError
        If L-BFGS-B does not converge.
    """
    from scipy.optimize import minimize

    clients = _precise(clients)
    shape = clients.shape
    size = shape[0] * shape[1]
    split = regularizer.kind == "l1"

    def objective(flat: Floats) -> tuple[float, Floats]:
        w = flat[:size] - flat[size:] if split else flat
        value, gradient = _smooth_part(clients, regularizer, w.reshape(shape))
        if not split:
            return value, gradient
        value += regularizer.strength * float(flat.sum())
        return value, np.concatenate([gradient, -gradient]) + regularizer.strength

    most = np.inf if box is None else box
    bounds = (0.0, most) if split else (-most, most)
    options = {"maxiter": 20000, "maxfun": 50000, "ftol": 1e-12, "gtol": tolerance, "maxcor": 30}
    start = np.zeros(2 * size if split else size)
    with one_blas_thread():
        result = minimize(
            objective,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=[bounds] * len(start),
            options=options,
        )
    if not result.success and "ABNORMAL" not in result.message:
        raise SolverError(f"the centralized solution was not found: {result.message}")
    w = result.x[:size] - result.x[size:] if split else result.x
    solution: Floats = w.reshape(shape)
    return solution


def objective_value(clients: Clients, regularizer: Regularizer, w: Floats) -> float:
    """Return the mean loss of all samples + lambda R(w)."""
    loss = float(mean_value(clients.loss, clients.x, clients.targets, like(w, clients.x)))
    return loss + regularizer.value(w)


def _precise(clients: Clients) -> Clients:
    """Return the clients in float64 where that fits; gradients then reach the tolerance."""
    if not isinstance(clients.x, np.ndarray) or clients.x.size > MOST_VALUES:
        return clients
    return replace(
        clients, x=clients.x.astype(np.float64), targets=clients.targets.astype(np.float64)
    )


def _smooth_part(clients: Clients, regularizer: Regularizer, w: Floats) -> tuple[float, Floats]:
    typed = like(w, clients.x)
    value = float(mean_value(clients.loss, clients.x, clients.targets, typed))
    gradient = to_numpy(mean_gradient(clients.loss, clients.x, clients.targets, typed))
    if regularizer.kind == "l2":
        value += regularizer.value(w)
        gradient = gradient + regularizer.subgradient(w)
    return value, np.asarray(gradient).reshape(-1).copy()


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

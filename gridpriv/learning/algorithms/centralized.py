"""The centralized reference: scipy's L-BFGS-B on all samples, with bounds for the box."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import SolverError
from gridpriv.core.threads import one_blas_thread
from gridpriv.learning.algorithms.base import Algorithm, Round, Watch
from gridpriv.learning.arrays import like, to_numpy
from gridpriv.learning.clients import Clients
from gridpriv.learning.losses import mean_gradient, mean_value
from gridpriv.learning.schedules import Regularizer

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

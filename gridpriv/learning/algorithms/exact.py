"""Exact local minimisation for the ADMM baselines: Nesterov's method, all clients at once."""

from __future__ import annotations

import math

from gridpriv.core.errors import SolverError
from gridpriv.learning.algorithms.base import Task
from gridpriv.learning.arrays import Array, namespace

TOLERANCE = 1e-6
MOST_STEPS = 5000


def minimise_locally(task: Task, linear: Array, rho: float, start: Array) -> Array:
    """Return every client's argmin of f_i(v) + lambda R(v) + <linear_i, v> + rho/2 ||v||^2.

    The smooth part is rho-strongly convex with a gradient of Lipschitz constant
    curvature ||x||^2 + rho, so the error falls by a constant factor a step. A client's answer is
    its iterate at the first gradient mapping of at most 1e-6, the precision of float32 gradients,
    so that it does not depend on other clients' data. It is within 1e-6/rho of the minimiser.

    Parameters
    ----------
    linear, start : (P, J, K)

    Raises
    ------
    SolverError
        After 5,000 steps.
    """
    xp, clients, regularizer = namespace(start), task.clients, task.regularizer
    lipschitz = clients.loss.smoothness(task.norm) + rho
    root = math.sqrt(rho / lipschitz)
    momentum = (1.0 - root) / (1.0 + root)
    v, ahead, answer = start, start, start
    left = xp.ones_like(start[:, :1, :1]) > 0
    for _ in range(MOST_STEPS):
        slope = clients.gradients(ahead, task.settings.clip) + linear + rho * ahead
        found = regularizer.prox(ahead - slope / lipschitz, 1.0 / lipschitz)
        mapping = lipschitz * xp.sqrt(xp.sum((found - ahead) ** 2, axis=(1, 2)))[:, None, None]
        ahead = found + momentum * (found - v)
        v = found
        answer = xp.where(left, v, answer)
        left = left & (mapping > TOLERANCE)
        if not bool(xp.any(left)):
            return answer
    raise SolverError(
        f"a local problem is not solved to {TOLERANCE:g} after {MOST_STEPS} steps: "
        "take a larger --penalty"
    )

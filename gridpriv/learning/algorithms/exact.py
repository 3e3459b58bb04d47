"""Exact local minimisation for the ADMM baselines: Nesterov's method, all clients at once."""

from __future__ import annotations

import math

from gridpriv.errors import SolverError
from gridpriv.learning.algorithms.base import Task
from gridpriv.learning.arrays import Array, namespace

TOLERANCE = 1e-6
MOST_STEPS = 5000


def minimise_locally(task: Task, linear: Array, rho: float, start: Array) -> Array:
    """Return every client's argmin of f_i(v) + lambda R(v) + <linear_i, v> + rho/2 ||v||^2.

    The smooth part is rho-strongly convex with a gradient of Lipschitz constant
    curvature ||x||^2 + rho, so the error falls by a constant factor a step. It stops when no
    client's gradient mapping is longer than 1e-6, the precision of float32 gradients.

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
    v, ahead = start, start
    for _ in range(MOST_STEPS):
        slope = clients.gradients(ahead, task.settings.clip) + linear + rho * ahead
        found = regularizer.prox(ahead - slope / lipschitz, 1.0 / lipschitz)
        mapping = lipschitz * xp.sqrt(xp.max(xp.sum((found - ahead) ** 2, axis=(1, 2))))
        ahead = found + momentum * (found - v)
        v = found
        if float(mapping) <= TOLERANCE:
            return v
    raise SolverError(
        f"a local problem is not solved to {TOLERANCE:g} after {MOST_STEPS} steps: "
        "take a larger --penalty"
    )

"""Exact local minimisation for the ADMM baselines, all clients at once: Newton's or Nesterov's."""

from __future__ import annotations

import math

import numpy as np

from gridpriv.core.errors import SolverError
from gridpriv.learning.algorithms.base import Task
from gridpriv.learning.arrays import Array, like, namespace, precise, transposed
from gridpriv.learning.clients import Clients
from gridpriv.learning.regularizers import Regularizer

TOLERANCE = 1e-6
MOST_STEPS = 5000
NEAR = 0.5


def minimise_locally(task: Task, linear: Array, rho: float, start: Array) -> Array:
    """Return every client's argmin of f_i(v) + lambda R(v) + <linear_i, v> + rho/2 ||v||^2.

    It is rho-strongly convex. A client's answer is its iterate at the first gradient (with an l1
    regularizer: least subgradient, or gradient mapping) of at most 1e-6, the precision of float32
    gradients, so that it does not depend on other clients' data. It is within 1e-6/rho of the
    minimiser.

    Parameters
    ----------
    linear, start : (P, J, K)

    Returns
    -------
    (P, J, K), in float64 by Newton's method

    Raises
    ------
    SolverError
        After 5,000 steps.
    """
    clients = task.clients
    # gradients without bound, as of squares, may be too long for float32 to tell 1e-6 of them
    able = task.regularizer.kind != "l1" or math.isfinite(clients.loss.bound_2)
    able = able and task.settings.clip is None and clients.loss.slopes is not None
    if able and isinstance(clients, Clients):
        return _newton(task, clients, linear, rho + task.regularizer.modulus, start)
    return _nesterov(task, linear, rho, start)


def _newton(task: Task, clients: Clients, linear: Array, rho: float, start: Array) -> Array:
    """Minimise by Newton steps in the features' leading directions, all clients at once.

    There the Hessian is U H U' + rho I; across them it is rho I and little more, for features
    whose moments fall fast, so a step there divides by rho plus half the least of H's diagonal.
    A client whose gradient is shorter than NEAR rho/||x|| keeps its last H while gradients fall
    fast: its scores are within NEAR of the minimiser's, and a logistic loss's curvature within a
    factor of e^NEAR.
    Iterates are float64: in float32 those of long models stop short of 1e-6.
    With an l1 regularizer a step is taken on a side of 0 in every coordinate that has one (it is
    not 0, or would leave it), as if the norm were linear there, and ends at 0 where it would change
    sides (Andrew and Gao 2007). A client whose least subgradient grows goes back and takes a
    proximal gradient step. That cannot fail: the least subgradient after it is at most
    ||(v - grad/L) - (v' - grad'/L)|| L <= L ||v - v'||, which is at most the one before.
    """
    start, linear = precise(start), precise(linear)
    regularizer = task.regularizer if task.regularizer.kind == "l1" else Regularizer("l1", 0.0)
    xp, basis = namespace(start), precise(clients.leading[0])
    identity = like(np.eye(basis.shape[-1]), start)
    bound = clients.loss.smoothness(task.norm) + rho
    v, answer, before, slope_before = start, start, start, start
    shortest = xp.full_like(start[:, :1, :1], math.inf)
    left = shortest > 0
    last = shortest
    far, hessian = left, 0.0 * xp.matmul(transposed(basis), basis)
    for _ in range(MOST_STEPS):
        if bool(xp.any(left & far)):
            gradient, fresh = clients.curved(v)
            hessian = xp.where(far, fresh, hessian)
        else:
            gradient = clients.gradients(like(v, clients.x))
        slope = gradient + linear + rho * v
        # of v, and where that is 0 the side that it would go to
        side = xp.where(v != 0, xp.sign(v), xp.sign(-regularizer.prox(slope, 1.0)))
        least = xp.where(side != 0, slope + regularizer.strength * side, 0.0)
        length = xp.sqrt(xp.sum(least**2, axis=(1, 2)))[:, None, None]
        answer = xp.where(left, v, answer)
        left = left & (length > TOLERANCE)
        if not bool(xp.any(left)):
            return answer
        far = (length * task.norm > NEAR * rho) | (length > 0.3 * last)
        last = length
        grew = length > shortest
        # below every eigenvalue that the directions have
        lowest = xp.min(xp.sum(hessian * identity, axis=-1), axis=-1)[:, None, None]
        across = rho + 0.5 * lowest
        # (across I + U B U') of the free coordinates is inverted by way of U
        free = xp.where(side != 0, basis, 0.0) if bool(xp.any(side == 0)) else basis
        more = hessian + (rho - across) * identity
        solved = xp.linalg.solve(
            across * identity + xp.matmul(more, xp.matmul(transposed(free), free)),
            xp.matmul(more, xp.matmul(transposed(free), least)),
        )
        stepped = v - (least - xp.matmul(free, solved)) / across
        if regularizer.strength > 0.0:
            stepped = xp.where(stepped * side > 0, stepped, 0.0)
        before = xp.where(grew, before, v)
        slope_before = xp.where(grew, slope_before, slope)
        shortest = xp.where(grew, shortest, length)
        descended = regularizer.prox(before - slope_before / bound, 1.0 / bound)
        v = xp.where(grew, descended, stepped)
    raise _unsolved()


def _nesterov(task: Task, linear: Array, rho: float, start: Array) -> Array:
    """Minimise by Nesterov's method: the gradient's Lipschitz constant is curvature ||x||^2 + rho.

    The error falls by a constant factor a step.
    """
    xp, clients, regularizer = namespace(start), task.clients, task.regularizer
    lipschitz = clients.loss.smoothness(task.norm) + rho
    root = math.sqrt(rho / lipschitz)
    momentum = (1.0 - root) / (1.0 + root)
    v, ahead, answer = start, start, start
    left = xp.ones_like(start[:, :1, :1]) > 0
    for _ in range(MOST_STEPS):
        slope = clients.gradients(ahead, task.settings.clip) + linear + rho * ahead
        prox = regularizer.prox(ahead - slope / lipschitz, 1.0 / lipschitz)
        mapping = lipschitz * xp.sqrt(xp.sum((prox - ahead) ** 2, axis=(1, 2)))[:, None, None]
        ahead = prox + momentum * (prox - v)
        v = prox
        answer = xp.where(left, v, answer)
        left = left & (mapping > TOLERANCE)
        if not bool(xp.any(left)):
            return answer
    raise _unsolved()


def _unsolved() -> SolverError:
    return SolverError(
        f"a local problem is not solved to {TOLERANCE:g} after {MOST_STEPS} steps: "
        "take a larger --penalty"
    )

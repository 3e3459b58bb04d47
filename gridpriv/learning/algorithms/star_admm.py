"""The star ADMM of Huang et al. (algorithms 1 to 3): clients, an aggregator, dual updates.

The local step is exact without noise (``admm``), exact with noise on the minimizer (``pvp``: primal
variable perturbation), or linearized with noise on what is sent (``dp-admm``).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from gridpriv.consensus.schedules import StepSize
from gridpriv.core.arrays import Floats, Ints
from gridpriv.core.errors import InputError, not_allowed
from gridpriv.learning.algorithms.base import (
    Drawing,
    Releases,
    Round,
    Task,
    Watch,
    held,
    magnitude,
    spread,
)
from gridpriv.learning.algorithms.exact import TOLERANCE, minimise_locally
from gridpriv.learning.arrays import Array, like, namespace
from gridpriv.learning.schedules import nonsmooth_step, smooth_step

# (k, rho, local models, global model, duals) -> released local models, noise in them or None
LocalStep = Callable[[int, float, Array, Array, Array], tuple[Array, Array | None]]


def star_admm(task: Task, watch: Watch, local_step: LocalStep) -> None:
    """Run T rounds of local steps, (10c) and (10d).

    The aggregator and, in dp-admm, the next local step see released models only.
    """
    first = task.clients.start()
    xp = namespace(first)
    rounds, (local, dual, w) = task.left(first, task.clients.zeros(), xp.mean(first, axis=0))
    for k in rounds:
        rho = task.settings.penalty.at(k)
        local, noise = local_step(k, rho, local, w, dual)
        w = xp.mean(local - dual / rho, axis=0)
        dual = dual - rho * (local - w[None])
        watch(Round(k, w, local, 0.0 if noise is None else magnitude(noise), held(local, dual, w)))


def admm(task: Task, watch: Watch) -> None:
    """Run algorithm 1; it protects nothing."""

    def step(_: int, rho: float, local: Array, w: Array, dual: Array) -> tuple[Array, None]:
        return like(minimise_locally(task, -dual - rho * w[None], rho, local), local), None

    star_admm(task, watch, step)


def dp_admm(task: Task, watch: Watch) -> None:
    """Run algorithm 3 with the step sizes of theorem 3 (nonsmooth) or 4 (smooth)."""
    clients, regularizer = task.clients, task.regularizer
    steps, drawing = step_sizes(task), dp_admm_releases(task)

    def step(k: int, rho: float, local: Array, w: Array, dual: Array) -> tuple[Array, Array]:
        """(12a) and (10b): every client's minimiser in closed form, and its noise."""
        inverse = _inverse(steps, k)
        slope = clients.gradients(local, task.settings.clip) + regularizer.subgradient(local)
        pull = dual + rho * w[None] + local * spread(inverse, clients.x)
        minimiser = (pull - slope) / spread(rho + inverse, clients.x)
        return task.release(k, minimiser, drawing(k))

    star_admm(task, watch, step)


def dp_admm_releases(task: Task) -> Releases:
    """Return the releases of a round: one minimizer per client."""
    gradient, schedule = task.mean_sensitivity(), task.settings.penalty
    assumed = assumed_sensitivity(task)
    steps = step_sizes(task)

    def of_round(k: int) -> Drawing:
        rho, inverse = schedule.at(k), _inverse(steps, k)
        distance = minimizer_sensitivity(gradient, rho, inverse)
        noisy = minimizer_sensitivity(assumed, rho, inverse)
        return Drawing.of_all(task.releases(distance, "lemma 1 of Huang et al.", assumed=noisy))

    return of_round


def assumed_sensitivity(task: Task) -> Floats:
    """Return the bound on each client's mean gradient that the published noise assumes.

    With ``gradient_change`` 2G and sensitivity ``published`` it is 2 G for any number of samples,
    as Li et al. charge their own algorithm.
    """
    own, settings = task.mean_sensitivity(), task.settings
    if settings.sensitivity == "published" and settings.gradient_change == "2G":
        return np.full_like(own, 2.0 * task.sample_gradient())
    return own


def minimizer_sensitivity(gradient: Floats, rho: float, inverse_step: Floats) -> Floats:
    """Return lemma 1: the update is affine in the gradient with factor 1/(rho + 1/eta).

    It starts from released models, so the mean gradient is all that a neighbour changes.
    """
    distance: Floats = gradient / (rho + inverse_step)
    return distance


def step_size(task: Task, gradient_sensitivity: float) -> StepSize:
    """Return eta_i^k of a client."""
    settings, regularizer = task.settings, task.regularizer
    if settings.step == "smooth":
        if regularizer.kind == "l1":
            raise not_allowed("step", "smooth", "nonsmooth with an l1 regularizer")
        smoothness = task.clients.loss.smoothness(task.norm) + regularizer.modulus
        return smooth_step(
            settings.radius, smoothness, task.size, gradient_sensitivity, task.multiplier
        )
    sample = task.sample_gradient()
    if not math.isfinite(sample):
        raise InputError("dp-admm's nonsmooth step needs a gradient bound: give --clip")
    bound = sample + regularizer.strength * regularizer.subgradient_bound(
        task.size, settings.radius
    )
    return nonsmooth_step(settings.radius, bound, task.size, gradient_sensitivity, task.multiplier)


def step_sizes(task: Task) -> tuple[list[StepSize], Ints]:
    """Return the different step sizes, and which is each client's."""
    distinct, place = np.unique(assumed_sensitivity(task), return_inverse=True)
    return [step_size(task, float(s)) for s in distinct], place


def _inverse(steps: tuple[list[StepSize], Ints], k: int) -> Floats:
    distinct, place = steps
    return np.array([1.0 / step(k) for step in distinct])[place]


BOUND_SOURCE = "two neighbours' strongly convex local problems (lemma 4)"


def pvp(task: Task, watch: Watch) -> None:
    """Run algorithm 2: exact local updates, Gaussian noise on what is sent.

    Sensitivity (lemma 4). The local objective on D is (rho + modulus)-strongly convex,
    whatever the regularizer's smoothness, and on D' its gradient differs by g with
    ||g|| <= factor c_1/m_i at any point. For the minimisers v, v' strong convexity gives
    (rho + modulus) ||v - v'||^2 <= <g(v'), v - v'>, so
    ||v - v'|| <= factor c_1/(m_i (rho + modulus)). That needs the gradient of a convex loss: with a
    clip on several outputs it is none, and nothing is certified. Each minimiser is found to
    TOLERANCE/rho, which adds twice that.
    """
    drawing = pvp_releases(task)

    def step(k: int, rho: float, local: Array, w: Array, dual: Array) -> tuple[Array, Array]:
        linear = -dual - rho * w[None]
        # from where the loss is left out: the client's last model is as far off as its noise
        result = minimise_locally(task, linear, rho, -linear / rho)
        noisy, noise = task.release(k, result, drawing(k))
        return like(noisy, local), noise

    star_admm(task, watch, step)


def pvp_releases(task: Task) -> Releases:
    """Return the releases of a round: one minimizer per client."""
    schedule, gradient = task.settings.penalty, task.mean_sensitivity()
    convex = task.settings.clip is None or task.clients.shape[1] == 1
    if not convex and task.rule is not None and task.settings.sensitivity == "proven":
        raise not_allowed(
            "clip",
            task.settings.clip,
            "none with pvp and several outputs: a clipped loss of several outputs is not convex, "
            "so that lemma 4 does not hold and nothing is certified",
        )
    if not convex:
        task.tally.note("a clipped loss of several outputs is not convex: lemma 4 does not hold")

    def of_round(k: int) -> Drawing:
        rho = schedule.at(k)
        distance = gradient / (rho + task.regularizer.modulus) + 2.0 * TOLERANCE / rho
        return Drawing.of_all(task.releases(distance, BOUND_SOURCE, proved=convex))

    return of_round

"""DP-ADMM (Huang et al., algorithm 3): linearized local updates, noise on what is sent."""

from __future__ import annotations

import math

import numpy as np

from gridpriv.consensus.schedules import StepSize
from gridpriv.core.arrays import Floats, Ints
from gridpriv.core.errors import InputError, not_allowed
from gridpriv.learning.algorithms.base import Drawing, Releases, Task, Watch, spread
from gridpriv.learning.algorithms.star import star_admm
from gridpriv.learning.arrays import Array
from gridpriv.learning.schedules import nonsmooth_step, smooth_step


def dp_admm(task: Task, watch: Watch) -> None:
    """Run algorithm 3 with the step sizes of theorem 3 (nonsmooth) or 4 (smooth)."""
    clients, regularizer = task.clients, task.regularizer
    steps, drawing = step_sizes(task), releases(task)

    def step(k: int, rho: float, local: Array, w: Array, dual: Array) -> tuple[Array, Array]:
        """(12a) and (10b): every client's minimiser in closed form, and its noise."""
        inverse = _inverse(steps, k)
        slope = clients.gradients(local, task.settings.clip) + regularizer.subgradient(local)
        pull = dual + rho * w[None] + local * spread(inverse, clients.x)
        minimiser = (pull - slope) / spread(rho + inverse, clients.x)
        return task.release(k, minimiser, drawing(k))

    star_admm(task, watch, step)


def releases(task: Task) -> Releases:
    """Return the releases of a round: one minimizer per client."""
    gradient, schedule = task.mean_sensitivity(), task.settings.penalty
    assumed = assumed_sensitivity(task)
    steps = step_sizes(task)

    def of_round(k: int) -> Drawing:
        rho, inverse = schedule.at(k), _inverse(steps, k)
        distance = sensitivity(gradient, rho, inverse)
        noisy = sensitivity(assumed, rho, inverse)
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


def sensitivity(gradient: Floats, rho: float, inverse_step: Floats) -> Floats:
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

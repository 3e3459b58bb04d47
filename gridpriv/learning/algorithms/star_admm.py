"""The star ADMM of Huang et al. (algorithms 1 to 3): clients, an aggregator, dual updates.

The local step is exact without noise (``admm``), exact with noise on the minimizer (``pvp``: primal
variable perturbation), or linearized with noise on what is sent (``dp-admm``).
"""

from __future__ import annotations

import math

import numpy as np

from gridpriv.consensus.schedules import StepSize
from gridpriv.core.arrays import Floats, Ints
from gridpriv.core.errors import InputError, not_allowed
from gridpriv.learning.algorithms.base import Algorithm, Drawing, Outcome, Sent, State, Task, spread
from gridpriv.learning.algorithms.exact import TOLERANCE, minimise_locally
from gridpriv.learning.arrays import like
from gridpriv.learning.schedules import nonsmooth_step, smooth_step


class StarAdmm(Algorithm):
    """Clients and an aggregator: (10c) and (10d) on released models.

    The aggregator and, in dp-admm, the next local step see released models only. The state is
    local models, duals and the global model.
    """

    def start(self) -> State:
        """Return the start of the models, and duals of 0."""
        first = self.clients.start()
        return first, self.clients.zeros(), self.xp.mean(first, axis=0)

    def aggregate(self, t: int, state: State, sent: Sent) -> Outcome:
        """Average released models and duals, and move the duals."""
        before, dual, _ = state
        rho, each = self.settings.penalty.at(t), like(sent.values, before)
        w = self.xp.mean(each - dual / rho, axis=0)
        return (each, dual - rho * (each - w[None]), w), w, each


class Admm(StarAdmm):
    """Algorithm 1; it protects nothing."""

    def local(self, t: int, state: State) -> State:
        """Return the exact minimisers."""
        each, dual, w = state
        rho = self.settings.penalty.at(t)
        return (minimise_locally(self.task, -dual - rho * w[None], rho, each),)


class DpAdmm(StarAdmm):
    """Algorithm 3 with the step sizes of theorem 3 (nonsmooth) or 4 (smooth)."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.gradient, self.assumed = task.mean_sensitivity(), assumed_sensitivity(task)
        self.steps, self.place = step_sizes(task)

    def inverse(self, t: int) -> Floats:
        """Return 1/eta of every client."""
        return np.array([1.0 / step(t) for step in self.steps])[self.place]

    def local(self, t: int, state: State) -> State:
        """Return every client's minimiser in closed form, (12a) and (10b)."""
        each, dual, w = state
        inverse, rho = self.inverse(t), self.settings.penalty.at(t)
        slope = self.clients.gradients(each, self.settings.clip) + self.regularizer.subgradient(
            each
        )
        pull = dual + rho * w[None] + each * spread(inverse, self.clients.x)
        return ((pull - slope) / spread(rho + inverse, self.clients.x),)

    def releases(self, t: int) -> Drawing:
        """Return one minimizer per client."""
        rho, inverse = self.settings.penalty.at(t), self.inverse(t)
        distance = minimizer_sensitivity(self.gradient, rho, inverse)
        noisy = minimizer_sensitivity(self.assumed, rho, inverse)
        source = "lemma 1 of Huang et al."
        return Drawing.of_all(self.task.releases(distance, source, assumed=noisy))


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


BOUND_SOURCE = "two neighbours' strongly convex local problems (lemma 4)"


class Pvp(StarAdmm):
    """Algorithm 2: exact local updates, Gaussian noise on what is sent.

    Sensitivity (lemma 4). The local objective on D is (rho + modulus)-strongly convex,
    whatever the regularizer's smoothness, and on D' its gradient differs by g with
    ||g|| <= factor c_1/m_i at any point. For the minimisers v, v' strong convexity gives
    (rho + modulus) ||v - v'||^2 <= <g(v'), v - v'>, so
    ||v - v'|| <= factor c_1/(m_i (rho + modulus)). That needs the gradient of a convex loss: with a
    clip on several outputs it is none, and nothing is certified. Each minimiser is found to
    TOLERANCE/rho, which adds twice that.
    """

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.gradient, clip = task.mean_sensitivity(), task.settings.clip
        self.convex = clip is None or task.clients.shape[1] == 1
        if self.convex:
            return
        if task.rule is not None and task.settings.sensitivity == "proven":
            raise not_allowed(
                "clip",
                clip,
                "none with pvp and several outputs: a clipped loss of several outputs is not "
                "convex, so that lemma 4 does not hold and nothing is certified",
            )
        task.tally.note("a clipped loss of several outputs is not convex: lemma 4 does not hold")

    def local(self, t: int, state: State) -> State:
        """Return the exact minimisers.

        From where the loss is left out: the client's last model is as far off as its noise.
        """
        _, dual, w = state
        rho = self.settings.penalty.at(t)
        linear = -dual - rho * w[None]
        return (minimise_locally(self.task, linear, rho, -linear / rho),)

    def releases(self, t: int) -> Drawing:
        """Return one minimizer per client."""
        rho = self.settings.penalty.at(t)
        distance = self.gradient / (rho + self.regularizer.modulus) + 2.0 * TOLERANCE / rho
        return Drawing.of_all(self.task.releases(distance, BOUND_SOURCE, proved=self.convex))

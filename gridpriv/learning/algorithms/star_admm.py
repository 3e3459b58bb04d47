"""The star ADMM of Huang et al. (algorithms 1 to 3): clients, an aggregator, dual updates.

The local step is exact without noise (``admm``), exact with noise on the minimizer (``pvp``: primal
variable perturbation), or linearized with noise on what is sent (``dp-admm``).
"""

from __future__ import annotations

import math

import numpy as np

from gridpriv.consensus.schedules import StepSize
from gridpriv.core.arrays import Floats, Ints
from gridpriv.core.errors import InputError, SolverError, not_allowed
from gridpriv.learning.algorithms.base import Algorithm, Drawing, Outcome, Sent, State, Task, spread
from gridpriv.learning.arrays import Array, like, namespace, precise, transposed
from gridpriv.learning.clients import Clients
from gridpriv.learning.schedules import Regularizer, nonsmooth_step, smooth_step

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

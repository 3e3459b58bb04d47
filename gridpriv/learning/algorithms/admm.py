"""ADMM of clients with an aggregator (star), and on a graph without a server.

**Star** (Huang et al., algorithms 1 to 3): clients, an aggregator and dual updates. The local step
is exact without noise (``admm``), exact with noise on the minimizer (``pvp``: primal variable
perturbation), or linearized with noise on the released model (``dp-admm``). Dual variable
perturbation is that of Zhang and Zhu (2017), with Gaussian noise as in Huang et al.

**Graph** (Gauthier et al.): CDP-ADMM and DDP-ADMM, both linearized. The variance of their noise
falls by a constant factor R per round (CDP) or as 1/sqrt(t) (DDP). The releases of a run are
Gaussian and compose to one Gaussian release of multiplier (sum 1/m_t^2)^(-1/2), which is set to
that of the budget.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

from gridpriv.consensus.schedules import StepSize
from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError, SolverError, excerpt, not_allowed
from gridpriv.core.files import MIB, read_text
from gridpriv.learning.accounting import MARGIN, ROUNDING, Unproved
from gridpriv.learning.algorithms.base import (
    Algorithm,
    Outcome,
    RoundReleases,
    Sent,
    State,
    Task,
    spread,
)
from gridpriv.learning.clients import Array, Clients, like, namespace, precise, transposed
from gridpriv.learning.settings import Regularizer
from gridpriv.privacy.accounting import gaussian_multiplier, total_epsilon
from gridpriv.privacy.mechanism import Charge, Gaussian, Wrapped
from gridpriv.privacy.release import Release
from gridpriv.privacy.sensitivity import Sensitivity
from gridpriv.privacy.settings import noise_multiplier

TOLERANCE = 1e-6
MOST_STEPS = 5000
REUSE = 0.5
UNSOLVED = (
    f"a local problem is not solved to {TOLERANCE:g} after {MOST_STEPS} steps: "
    "take a larger --penalty"
)


def minimise_locally(task: Task, linear: Array, rho: float, start: Array) -> Array:
    """Return every client's argmin of f_i(v) + lambda R(v) + <linear_i, v> + rho/2 ||v||^2.

    It is rho-strongly convex. A client returns its iterate at the first gradient (with an l1
    regularizer: least subgradient, or gradient mapping) of at most 1e-6, the precision of float32
    gradients, so that it does not depend on other clients' data. It is within 1e-6/rho of the
    minimizer.

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
    # unbounded gradients, as of squares, may be too large for an error of 1e-6 in float32
    precise_in_float32 = task.regularizer.kind != "l1" or math.isfinite(clients.loss.bound_2)
    if precise_in_float32 and task.settings.clip is None and clients.loss.slopes is not None:
        return _newton(task, clients, linear, rho + task.regularizer.modulus, start)
    return _nesterov(task, linear, rho, start)


def _newton(task: Task, clients: Clients, linear: Array, rho: float, start: Array) -> Array:
    """Minimize by Newton steps in the features' leading directions, all clients at once.

    In these directions the Hessian is U H U' + rho I; orthogonal to them it is nearly rho I, for
    features whose moments fall fast, so a step there divides by rho plus half the least diagonal
    entry of H. A client with a gradient below REUSE rho/||x|| keeps its last H while gradients fall
    fast: its scores are within REUSE of the minimizer's, and the curvature of a logistic loss is
    within a factor of e^REUSE. Iterates are float64: in float32 large models do not reach 1e-6.
    With an l1 regularizer a step treats the norm as linear on the present side of 0 in every
    coordinate that is not 0, or would leave it. It ends at 0 where the sign would change (Andrew
    and Gao 2007). A client whose least subgradient grows takes a proximal gradient step instead.
    That cannot fail: the least subgradient after it is at most ||(v - grad/L) - (v' - grad'/L)|| L
    <= L ||v - v'||, which is at most the one before.
    """
    start, linear = precise(start), precise(linear)
    regularizer = task.regularizer if task.regularizer.kind == "l1" else Regularizer("l1", 0.0)
    xp, basis = namespace(start), precise(clients.leading[0])
    identity = like(np.eye(basis.shape[-1]), start)
    bound = clients.loss.smoothness(task.norm) + rho
    v, minimizer, best, best_slope = start, start, start, start
    shortest = xp.full_like(start[:, :1, :1], math.inf)
    unsolved = shortest > 0
    last = shortest
    outdated, hessian = unsolved, 0.0 * xp.matmul(transposed(basis), basis)
    for _ in range(MOST_STEPS):
        if bool(xp.any(unsolved & outdated)):
            gradient, fresh = clients.curved(v)
            hessian = xp.where(outdated, fresh, hessian)
        else:
            gradient = clients.gradients(like(v, clients.x))
        slope = gradient + linear + rho * v
        # of v, and where that is 0 of its next change
        signs = xp.where(v != 0, xp.sign(v), xp.sign(-regularizer.prox(slope, 1.0)))
        least = xp.where(signs != 0, slope + regularizer.strength * signs, 0.0)
        length = xp.sqrt(xp.sum(least**2, axis=(1, 2)))[:, None, None]
        minimizer = xp.where(unsolved, v, minimizer)
        unsolved = unsolved & (length > TOLERANCE)
        if not bool(xp.any(unsolved)):
            return minimizer
        outdated = (length * task.norm > REUSE * rho) | (length > 0.3 * last)
        last = length
        grew = length > shortest
        # below every eigenvalue in the directions
        lowest = xp.min(xp.sum(hessian * identity, axis=-1), axis=-1)[:, None, None]
        across = rho + 0.5 * lowest
        # (across I + U B U') of the free coordinates is inverted in terms of U
        free = xp.where(signs != 0, basis, 0.0) if bool(xp.any(signs == 0)) else basis
        excess = hessian + (rho - across) * identity
        solved = xp.linalg.solve(
            across * identity + xp.matmul(excess, xp.matmul(transposed(free), free)),
            xp.matmul(excess, xp.matmul(transposed(free), least)),
        )
        stepped = v - (least - xp.matmul(free, solved)) / across
        if regularizer.strength > 0.0:
            stepped = xp.where(stepped * signs > 0, stepped, 0.0)
        best = xp.where(grew, best, v)
        best_slope = xp.where(grew, best_slope, slope)
        shortest = xp.where(grew, shortest, length)
        descended = regularizer.prox(best - best_slope / bound, 1.0 / bound)
        v = xp.where(grew, descended, stepped)
    raise SolverError(UNSOLVED)


def _nesterov(task: Task, linear: Array, rho: float, start: Array) -> Array:
    """Minimize by Nesterov's method: the gradient's Lipschitz constant is curvature ||x||^2 + rho.

    The error falls by a constant factor a step.
    """
    xp, clients, regularizer = namespace(start), task.clients, task.regularizer
    lipschitz = clients.loss.smoothness(task.norm) + rho
    root = math.sqrt(rho / lipschitz)
    momentum = (1.0 - root) / (1.0 + root)
    v, ahead, minimizer = start, start, start
    unsolved = xp.ones_like(start[:, :1, :1]) > 0
    for _ in range(MOST_STEPS):
        slope = clients.gradients(ahead, task.settings.clip) + linear + rho * ahead
        prox = regularizer.prox(ahead - slope / lipschitz, 1.0 / lipschitz)
        mapping = lipschitz * xp.sqrt(xp.sum((prox - ahead) ** 2, axis=(1, 2)))[:, None, None]
        ahead = prox + momentum * (prox - v)
        v = prox
        minimizer = xp.where(unsolved, v, minimizer)
        unsolved = unsolved & (mapping > TOLERANCE)
        if not bool(xp.any(unsolved)):
            return minimizer
    raise SolverError(UNSOLVED)


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
        """Average released models and duals, and update the duals."""
        before, dual, _ = state
        rho, each = self.settings.penalty.at(t), like(sent.values, before)
        w = self.xp.mean(each - dual / rho, axis=0)
        return (each, dual - rho * (each - w[None]), w), w, each

    def exact(self, t: int, state: State, perturbed: Array, start: Array | None = None) -> Array:
        """Return the exact minimizers at (noisy) negative duals.

        They start from the minimizer without the loss, unless ``start`` is given: with noise a
        client's last model has the error of that noise.
        """
        rho = self.settings.penalty.at(t)
        linear = perturbed - rho * state[2][None]
        return minimise_locally(self.task, linear, rho, -linear / rho if start is None else start)


class Admm(StarAdmm):
    """Algorithm 1; it protects nothing."""

    def local(self, t: int, state: State) -> State:
        """Return the exact minimizers."""
        return (self.exact(t, state, -state[1], state[0]),)


class DpAdmm(StarAdmm):
    """Algorithm 3 with the step sizes of theorem 3 (nonsmooth) or 4 (smooth)."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.gradient, self.assumed = task.mean_sensitivity(), assumed_sensitivity(task)
        distinct, self.place = np.unique(self.assumed, return_inverse=True)
        self.steps = [step_size(task, float(sensitivity)) for sensitivity in distinct]

    def inverse(self, t: int) -> Floats:
        """Return 1/eta of every client."""
        return np.array([1.0 / step(t) for step in self.steps])[self.place]

    def local(self, t: int, state: State) -> State:
        """Return every client's minimizer in closed form, (12a) and (10b)."""
        each, dual, w = state
        inverse, rho = self.inverse(t), self.settings.penalty.at(t)
        slope = self.slopes(each)
        pull = dual + rho * w[None] + each * spread(inverse, self.clients.x)
        return ((pull - slope) / spread(rho + inverse, self.clients.x),)

    def releases(self, t: int) -> RoundReleases:
        """Return one minimizer per client."""
        rho, inverse = self.settings.penalty.at(t), self.inverse(t)
        distance = minimizer_sensitivity(self.gradient, rho, inverse)
        noisy = minimizer_sensitivity(self.assumed, rho, inverse)
        source = "lemma 1 of Huang et al."
        return self.task.releases(distance, source, assumed=noisy)


def assumed_sensitivity(task: Task) -> Floats:
    """Return the published noise's assumed bound on each client's mean gradient.

    With ``gradient_change`` 2G and sensitivity ``published`` it is 2 G for any number of samples,
    as Li et al. charge their own algorithm.
    """
    own, settings = task.mean_sensitivity(), task.settings
    if settings.sensitivity == "published" and settings.gradient_change == "2G":
        return np.full_like(own, 2.0 * task.sample_gradient())
    return own


def minimizer_sensitivity(gradient: Floats, rho: float, inverse_step: Floats) -> Floats:
    """Return lemma 1: the update is affine in the gradient with factor 1/(rho + 1/eta).

    It starts from released models, so adjacent data change only the mean gradient.
    """
    return np.asarray(gradient / (rho + inverse_step))


def nonsmooth_step(
    radius: float, gradient: float, size: int, sensitivity: float, multiplier: float
) -> StepSize:
    """Return Huang et al.'s (29), eta^k = c_w/sqrt(2k) (g^2 + n (s m)^2)^(-1/2).

    With s = 2 c_1/m_i and m = sqrt(2 ln(1.25/delta))/epsilon, n (s m)^2 is
    8 d p c_1^2 ln(1.25/delta)/(m_i epsilon)^2; g bounds the whole subgradient.
    """
    spread = math.hypot(gradient, math.sqrt(size) * sensitivity * multiplier)
    return lambda k: radius / (math.sqrt(2.0 * k) * spread)


def smooth_step(
    radius: float, smoothness: float, size: int, sensitivity: float, multiplier: float
) -> StepSize:
    """Return Huang et al.'s (34), eta^k = (L + s m sqrt(2 n k)/c_w)^(-1)."""
    return lambda k: (
        1.0 / (smoothness + sensitivity * multiplier * math.sqrt(2.0 * size * k) / radius)
    )


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


BOUND_SOURCE = "strongly convex local problems of adjacent data sets (lemma 4)"


class Pvp(StarAdmm):
    """Algorithm 2: exact local updates, Gaussian noise on the released minimizer.

    Sensitivity (lemma 4). The local objective on D is (rho + modulus)-strongly convex, whatever the
    regularizer's smoothness, and on D' its gradient differs by g with ||g|| <= factor c_1/m_i at
    any point. For the minimizers v, v' strong convexity gives (rho + modulus) ||v - v'||^2 <=
    <g(v'), v - v'>, so ||v - v'|| <= factor c_1/(m_i (rho + modulus)). That needs the gradient of a
    convex loss: a clipped gradient with several outputs is not one, and nothing is certified. Each
    minimizer is computed to TOLERANCE/rho, which adds twice that.
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
        """Return the exact minimizers."""
        return (self.exact(t, state, -state[1]),)

    def releases(self, t: int) -> RoundReleases:
        """Return one minimizer per client."""
        rho = self.settings.penalty.at(t)
        distance = self.gradient / (rho + self.regularizer.modulus) + 2.0 * TOLERANCE / rho
        return self.task.releases(distance, BOUND_SOURCE, proved=self.convex)


COVER = 0.05  # of a release's epsilon, for the noise that covers the solver's error


class Dvp(StarAdmm):
    """Exact ADMM with Gaussian noise of scale m s on the dual before each local update.

    s = factor c_1/m_i is the gradient's sensitivity. The exact minimizer is not an additive noise
    mechanism; :func:`certificate` bounds its privacy loss. A solver's result is within
    TOLERANCE/rho of that minimizer, so it is sent with Gaussian noise on a value that changes by 2
    TOLERANCE/rho: given the exact minimizer that is a further release (approximate minima
    perturbation: Iyengar et al. 2019). It uses :data:`COVER` of a release's epsilon and half of its
    delta. Under sensitivity ``published`` the finite iterate is sent as it is: not certified.
    """

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.split, self.curvature = budget_split(task), self.clients.loss.smoothness(task.norm)
        if task.rule is not None and self.split is None:
            task.tally.note(
                "dual perturbation is certified with noise that covers the solver's error "
                "(sensitivity 'proven') only"
            )

    def local(self, t: int, state: State) -> State:
        """Return the minimizers under a noisy dual, and that noise."""
        # its own stream: the noise for the solver's error uses the first of the round
        draw = self.task.streams.stream(0, t, 1).normal(size=state[0].shape)
        multiplier = self.task.multiplier if self.split is None else self.split.dual
        scale = (multiplier * self.task.mean_sensitivity())[:, None, None]
        noise = like(draw * scale, state[0])
        return self.exact(t, state, noise - state[1]), noise

    def noise_of(self, sent: Sent) -> Array:
        """Return the noise on the duals."""
        return sent.local[1]

    def releases(self, t: int) -> RoundReleases:
        """Return one minimizer per client, with a margin for its error."""
        rho, split = self.settings.penalty.at(t), self.split
        number = self.clients.number if self.task.rule is not None else 0
        error = Sensitivity(2.0 * TOLERANCE / rho, 2, "two minimizers, each computed to 1e-6/rho")
        if split is None:
            unproved = Release(Unproved(Gaussian(0.0)), error, error.value)
            return [(client, unproved) for client in range(number)]
        cover = Gaussian(split.cover * error.value)
        half, modulus = split.delta / 2.0, rho + self.regularizer.modulus
        epsilons = [
            split.cover_epsilon + certificate(split.dual, half, self.curvature, samples, modulus)
            for samples in self.clients.counts
        ]
        minimisers = [CoveredMinimiser(cover, e, split.delta, error.value) for e in epsilons]
        return [(p, Release(m, error, error.value)) for p, m in enumerate(minimisers)]


@dataclass(frozen=True)
class Split:
    """Shares of the (epsilon, delta) of a release.

    Attributes
    ----------
    dual : float
        Multiplier m of the noise on the dual.
    cover : float
        Multiplier of the noise that covers the solver's error.
    cover_epsilon : float
        Cost of that noise, at half of ``delta``.
    delta : float
        Of the whole release.
    """

    dual: float
    cover: float
    cover_epsilon: float
    delta: float


@dataclass(frozen=True)
class CoveredMinimiser(Wrapped):
    """An exact minimizer of a perturbed objective, with noise that covers the solver's error.

    Attributes
    ----------
    noise : Gaussian
        On the solver's result.
    epsilon, delta : float
        Of the minimizer and the covering noise together.
    distance : float
        Largest difference of the solver's errors between adjacent data.
    """

    epsilon: float
    delta: float
    distance: float

    def charge(self, distance: float) -> Charge:
        """Return (epsilon, delta); at a larger distance those of group privacy."""
        steps = max(1, math.ceil(distance / self.distance - 2.0 * MARGIN))
        delta = self.delta * steps * math.exp((steps - 1) * self.epsilon)
        return Charge("approximate", steps * self.epsilon, min(1.0, delta))


def budget_split(task: Task) -> Split | None:
    """Return the least noise at which every release, or all together, meet the budget.

    None without noise, and where nothing is certified.

    Raises
    ------
    InputError
        If the ratio of determinants alone, which noise does not lower, exceeds the budget.
    """
    if task.rule is None or task.settings.sensitivity == "published":
        return None
    if task.regularizer.kind == "l1" or task.clients.shape[1] > 1:
        raise not_allowed(
            "algorithm",
            "dvp",
            "another, or sensitivity 'published': it is certified for smooth regularizers and one "
            "output (two classes, or numbers) only",
        )
    settings, budget = task.settings, task.settings.budget
    delta, epsilon = _release_delta(task), budget.epsilon
    if budget.scope == "total":
        whole = settings.total_delta
        epsilon = _release_epsilon(budget.epsilon, whole, delta, _releases(task))
    cover_epsilon = COVER * epsilon
    # penalties do not fall, so the first round's problem is the least convex
    modulus = settings.penalty.at(1) + task.regularizer.modulus
    curvature = task.clients.loss.smoothness(task.norm)
    samples = float(task.clients.counts.min()) / task.shared.noise
    ratio = math.log1p(curvature / (samples * modulus))
    if ratio >= epsilon - cover_epsilon:
        raise not_allowed(
            "budget",
            str(task.settings.budget),
            f"more than {ratio:.3g} a release with dvp here, which allows "
            f"{epsilon - cover_epsilon:.3g}: what a sample's curvature gives away is not covered "
            "by noise; take a larger --penalty",
        )
    # certificate() is t x + x^2/2 + ratio with x = 1/m and t = sqrt(2 ln(1/delta))
    tail = math.sqrt(2.0 * math.log(2.0 / delta))
    remaining = epsilon - cover_epsilon - ratio
    return Split(
        dual=task.shared.noise / (math.sqrt(tail**2 + 2.0 * remaining) - tail),
        cover=task.shared.noise * gaussian_multiplier(cover_epsilon, delta / 2.0, 1),
        cover_epsilon=cover_epsilon,
        delta=delta,
    )


def _release_epsilon(total: float, whole: float, delta: float, releases: int) -> float:
    """Return the largest epsilon of each of ``releases`` (epsilon, delta) within a total."""
    low, high = total / releases, total
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        cost = total_epsilon({Charge("approximate", middle, delta): releases}, whole)
        low, high = (middle, high) if cost <= total else (low, middle)
    return low * (1.0 - 1e-6)  # a release's own sum may round up to the next step of the grid


def _release_delta(task: Task) -> float:
    """Return each release's delta: half of the total's is for releases, half for composition."""
    settings = task.settings
    whole = min(settings.total_delta, settings.budget.delta or settings.total_delta)
    return whole / (2.0 * _releases(task))


def _releases(task: Task) -> int:
    """Return the releases that share the budget."""
    return task.settings.rounds * task.shared.runs


def certificate(
    multiplier: float, delta: float, curvature: float, samples: float, modulus: float
) -> float:
    r"""Return an epsilon of one release at ``delta``.

    The noise b and the minimizer v determine each other: b = -grad F_D(v), so the density of v
    is phi(b_D(v)) det(Hessian F_D(v)). Between adjacent data b changes by u(v) with ||u|| <= s, and
    for a linear model of one output u lies in the plane of the two samples' features, whatever
    v is. So the log of the ratio of the phi's is at most s ||Pi b||/sigma^2 + s^2/(2 sigma^2),
    where Pi projects on that plane and ||Pi b||/sigma exceeds sqrt(2 ln(1/delta)) with
    probability delta. The Hessians differ by two terms of rank one, each at most
    curvature/samples, over a remainder of at least ``modulus``: the determinants' ratio is at
    most 1 + curvature/(samples modulus). With s/sigma = 1/m,

        epsilon = sqrt(2 ln(1/delta))/m + 1/(2 m^2) + ln(1 + curvature/(samples modulus)).

    Parameters
    ----------
    curvature : float
        Largest eigenvalue of one sample's Hessian.
    samples : float
        m_i.
    modulus : float
        Strong convexity of the local problem without the two samples.
    """
    tail = math.sqrt(2.0 * math.log(1.0 / delta)) / multiplier
    return tail + 0.5 / multiplier**2 + math.log1p(curvature / (samples * modulus))


GRAPHS = "regular:D (2 is a ring), or a file with two client numbers a line"


def variances_of(task: Task) -> Floats:
    """Return the variance of every round's noise, up to a factor: R^t, or 1/sqrt(t) (DDP)."""
    t = np.arange(1.0, task.settings.rounds + 1.0)
    falling = task.settings.decay ** (t - 1.0), 1.0 / np.sqrt(t)
    return falling[0] if task.settings.algorithm == "cdp-admm" else falling[1]


def multipliers(task: Task, variances: Floats) -> Floats:
    """Return every round's noise multiplier, in proportion to the square root of a variance.

    A total budget fixes sum 1/m_t^2. A budget per release applies to the last release, which has
    the least noise; under sensitivity ``published`` it is the first round's, as published.
    """
    if task.settings.mechanism == "none":
        return np.zeros(len(variances))
    budget = task.settings.budget
    if budget.scope == "per-release":
        least = variances[0] if task.settings.sensitivity == "published" else variances.min()
        falling: Floats = task.multiplier * np.sqrt(variances / least)
        return falling
    whole = (task.shared.noise * ROUNDING) * noise_multiplier(
        budget, "gaussian", "proven", task.shared.runs, task.settings.delta, task.settings.noise
    )
    return np.asarray(whole * np.sqrt(variances * np.sum(1.0 / variances)))


class GraphAdmm(Algorithm):
    """Algorithm 1; the state is the clients' models and duals.

    Sensitivity (lemma I): the update is affine in the gradient, factor 1/(2 rho |N_k| + 1/eta).
    """

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        settings, number = task.settings, task.clients.number
        graph = make_graph(settings.graph, number, settings.seed)
        links = np.asarray(nx.to_numpy_array(graph, nodelist=range(number), weight=None))
        self.rho, self.eta, degrees = settings.penalty.at(1), settings.step_scale, links.sum(axis=1)
        self.multipliers = multipliers(task, variances_of(task))
        metric = 2.0 * self.rho * degrees + 1.0 / self.eta
        self.distance = task.mean_sensitivity() / metric
        self.adjacent, self.count = like(links, self.clients.x), spread(degrees, self.clients.x)
        self.metric = spread(metric, self.clients.x)

    def neighbours(self, beta: Array) -> Array:
        """Return the sum of the models of every client's graph neighbours."""
        flat = self.xp.reshape(beta, (self.clients.number, -1))
        return self.xp.reshape(self.xp.matmul(self.adjacent, flat), beta.shape)

    def start(self) -> State:
        """Return the start of the models, and duals of 0."""
        return self.clients.start(), self.clients.zeros()

    def local(self, _: int, state: State) -> State:
        """Return the clients' models after a linearized step."""
        beta, dual = state
        slope = self.slopes(beta)
        pull = beta / self.eta + self.rho * (self.count * beta + self.neighbours(beta))
        return ((pull - slope - dual) / self.metric,)

    def aggregate(self, _: int, state: State, sent: Sent) -> Outcome:
        """Update the duals by the distance from graph neighbours."""
        each = sent.values
        dual = state[1] + self.rho * (self.count * each - self.neighbours(each))
        return (each, dual), self.xp.mean(each, axis=0), each

    def releases(self, t: int) -> RoundReleases:
        """Return one model per client, sent to its graph neighbours."""
        scale, source = float(self.multipliers[t - 1]), "lemma I of Gauthier et al."
        return self.task.releases(self.distance, source, multiplier=scale)


def make_graph(how: str, clients: int, seed: int) -> Any:
    """Return a connected undirected graph on clients 0..P-1.

    Raises
    ------
    InputError
        Naming a client that is not connected.
    """
    if match := re.fullmatch(r"regular:(\d+)", how):
        return check_graph(_regular(int(match[1]), clients, seed))
    if Path(how).is_file():
        return check_graph(_read(Path(how), clients))
    raise not_allowed("graph", how, GRAPHS)


def check_graph(graph: Any) -> Any:
    """Return the graph if it connects all clients."""
    if not nx.is_connected(graph):
        parts = sorted(nx.connected_components(graph), key=len)
        alone = ", ".join(str(p + 1) for p in sorted(parts[0])[:5])
        raise InputError(
            f"the graph is not connected: {len(parts)} parts, clients {alone} reach no other part"
            "; add links between them"
        )
    return graph


def _regular(degree: int, clients: int, seed: int) -> Any:
    if not 1 <= degree < clients or degree * clients % 2:
        raise not_allowed(
            "graph", f"regular:{degree}", f"a degree below {clients} with an even number of ends"
        )
    for attempt in range(100):
        graph = nx.random_regular_graph(degree, clients, seed=seed + attempt)
        if nx.is_connected(graph):
            return graph
    return graph


def _read(path: Path, clients: int) -> Any:
    """Return the graph of a file of edges, two client numbers per line."""
    lines = read_text(path, "graph", MIB).replace(",", " ").splitlines()
    graph = nx.empty_graph(clients)
    for number, line in enumerate(lines, 1):
        ends = line.split("#")[0].split()
        inside = all(word.isdecimal() and 1 <= int(word) <= clients for word in ends)
        if len(ends) not in (0, 2) or not inside:
            allowed = f"two client numbers, 1 to {clients}"
            raise InputError(f"{path}, line {number}: {excerpt(line)}: must be {allowed}")
        if ends:
            graph.add_edge(*(int(word) - 1 for word in ends))
    if nx.number_of_selfloops(graph):
        raise InputError(f"{path}: an edge of a client with itself; leave it out")
    return graph

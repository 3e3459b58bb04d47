"""ADMM with dual variable perturbation (Zhang and Zhu 2017), Gaussian as in Huang et al."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gridpriv.core.errors import not_allowed
from gridpriv.learning.algorithms.base import Drawing, Sent, State, Task
from gridpriv.learning.algorithms.star_admm import TOLERANCE, StarAdmm, minimise_locally
from gridpriv.learning.arrays import Array, like
from gridpriv.learning.releases import MARGIN, Unproved
from gridpriv.privacy.accounting import gaussian_multiplier, total_epsilon
from gridpriv.privacy.mechanism import Charge, Gaussian, Wrapped
from gridpriv.privacy.release import Release
from gridpriv.privacy.sensitivity import Sensitivity

COVER = 0.05  # of a release's epsilon, for the noise that covers the solver's error


class Dvp(StarAdmm):
    """Exact ADMM with Gaussian noise of scale m s on the dual before each local update.

    s = factor c_1/m_i is the gradient's sensitivity. The exact minimiser is no additive noise
    mechanism; :func:`certificate` bounds its privacy loss. What a solver finds lies within
    TOLERANCE/rho of that minimiser, so it is sent with Gaussian noise on a value that moves by
    2 TOLERANCE/rho: given the exact minimiser that is one more release (approximate minima
    perturbation: Iyengar et al. 2019). It takes :data:`COVER` of a release's epsilon and half of
    its delta. Under sensitivity ``published`` the finite iterate is sent as it is: not certified.
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
        """Return the minimisers under a noisy dual, and that noise.

        They start from where the loss is left out: the client's last model is as far off as its
        noise.
        """
        each, dual, w = state
        rho = self.settings.penalty.at(t)
        # its own stream: what covers the solver's error is drawn from the round's first
        draw = self.task.streams.stream(0, t, 1).normal(size=each.shape)
        multiplier = self.task.multiplier if self.split is None else self.split.dual
        scale = (multiplier * self.task.mean_sensitivity())[:, None, None]
        noise = like(draw * scale, each)
        linear = noise - dual - rho * w[None]
        return minimise_locally(self.task, linear, rho, -linear / rho), noise

    def noise_of(self, sent: Sent) -> Array:
        """Return the noise on the duals."""
        return sent.local[1]

    def releases(self, t: int) -> Drawing:
        """Return one minimizer per client, with a margin for its error."""
        rho, split = self.settings.penalty.at(t), self.split
        number = self.clients.number if self.task.rule is not None else 0
        error = Sensitivity(2.0 * TOLERANCE / rho, 2, "two minimisers, each found to 1e-6/rho")
        if split is None:
            return Drawing.of_all([Release(Unproved(Gaussian(0.0)), error, error.value)] * number)
        cover, modulus = Gaussian(split.cover * error.value), rho + self.regularizer.modulus
        minimisers = [
            CoveredMinimiser(
                cover,
                split.cover_epsilon
                + certificate(split.dual, split.delta / 2.0, self.curvature, samples, modulus),
                split.delta,
                error.value,
            )
            for samples in self.clients.counts
        ]
        return Drawing.of_all([Release(m, error, error.value) for m in minimisers])


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
        What that noise costs, at half of ``delta``.
    delta : float
        Of the whole release.
    """

    dual: float
    cover: float
    cover_epsilon: float
    delta: float


@dataclass(frozen=True)
class CoveredMinimiser(Wrapped):
    """An exact minimiser of a perturbed objective, known to a solver's error that noise covers.

    Attributes
    ----------
    noise : Gaussian
        On what the solver found.
    epsilon, delta : float
        Of the minimiser and the covering noise together, between neighbours.
    distance : float
        Between two neighbours' errors.
    """

    epsilon: float
    delta: float
    distance: float

    def charge(self, distance: float) -> Charge:
        """Return (epsilon, delta), where neighbours lie further apart that of a group of them."""
        steps = max(1, math.ceil(distance / self.distance - 2.0 * MARGIN))
        delta = self.delta * steps * math.exp((steps - 1) * self.epsilon)
        return Charge("approximate", steps * self.epsilon, min(1.0, delta))


def budget_split(task: Task) -> Split | None:
    """Return the least noise with which every release, or all of them, meet the budget.

    None without noise, and where nothing is certified.

    Raises
    ------
    InputError
        If the determinants' ratio alone, which no noise lowers, is past the budget.
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
        whole = budget.delta or settings.target_delta
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
    left = epsilon - cover_epsilon - ratio
    return Split(
        dual=task.shared.noise / (math.sqrt(tail**2 + 2.0 * left) - tail),
        cover=task.shared.noise * gaussian_multiplier(cover_epsilon, delta / 2.0, 1),
        cover_epsilon=cover_epsilon,
        delta=delta,
    )


def _release_epsilon(total: float, whole: float, delta: float, releases: int) -> float:
    """Return the largest epsilon that ``releases`` of (epsilon, delta) may have in a total."""
    low, high = total / releases, total
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        cost = total_epsilon({Charge("approximate", middle, delta): releases}, whole)
        low, high = (middle, high) if cost <= total else (low, middle)
    return low * (1.0 - 1e-6)  # a release's own sum may round up to the next step of the grid


def _release_delta(task: Task) -> float:
    """Return each release's delta: half of the total's is theirs, half the composition's."""
    settings = task.settings
    whole = min(settings.target_delta, settings.budget.delta or settings.target_delta)
    return whole / (2.0 * _releases(task))


def _releases(task: Task) -> int:
    """Return the releases that share the budget."""
    return task.settings.rounds * task.shared.runs


def certificate(
    multiplier: float, delta: float, curvature: float, samples: float, modulus: float
) -> float:
    r"""Return an epsilon of one release at ``delta``.

    The noise b and the minimiser v determine each other: b = -grad F_D(v), so the density of v
    is phi(b_D(v)) det(Hessian F_D(v)). Between neighbours b moves by u(v) with ||u|| <= s, and
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

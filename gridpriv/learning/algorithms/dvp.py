"""ADMM with dual variable perturbation (Zhang and Zhu 2017), Gaussian as in Huang et al."""

from __future__ import annotations

import math

from gridpriv.core.errors import not_allowed
from gridpriv.learning.accounting import charge
from gridpriv.learning.algorithms.base import Task, Watch
from gridpriv.learning.algorithms.exact import TOLERANCE, minimise_locally
from gridpriv.learning.algorithms.star import star_admm
from gridpriv.learning.arrays import Array
from gridpriv.privacy.accounting import total_epsilon


def dvp(task: Task, watch: Watch) -> None:
    """Run exact ADMM with Gaussian noise of scale m s on the dual before each local update.

    s = factor c_1/m_i is the gradient's sensitivity, and what either minimiser is short of
    stationary. The minimiser that is sent is no additive
    noise mechanism; :func:`certificate` bounds its privacy loss. Under calibration ``sound`` m is
    the least that meets the budget with it.
    """
    schedule = task.settings.penalty_schedule()
    if task.multiplier and task.settings.calibration == "sound" and _smooth(task):
        task.charging.multiplier = sound_multiplier(task)
    sensitivity = task.mean_sensitivity() + 2.0 * TOLERANCE

    def step(k: int, local: Array, w: Array, dual: Array) -> tuple[Array, Array]:
        rho = schedule.at(k)
        noise = task.noise(k, task.multiplier * sensitivity)
        found = minimise_locally(task, noise - dual - rho * w[None], rho, local)
        _record(task, rho)
        return found, noise

    star_admm(task, watch, step)


def sound_multiplier(task: Task) -> float:
    """Return the least multiplier with which every release, or all of them, meet the budget.

    Raises
    ------
    InputError
        If the determinants' ratio alone, which no noise lowers, is past the budget.
    """
    settings, budget = task.settings, task.settings.privacy_budget
    delta, epsilon = _release_delta(task), budget.epsilon
    if budget.scope == "total":
        whole = budget.delta or settings.target_delta
        epsilon = _release_epsilon(budget.epsilon, whole, delta, settings.rounds)
    # penalties do not fall, so the first round's problem is the least convex
    modulus = settings.penalty_schedule().at(1) + task.regularizer.modulus
    curvature = task.clients.loss.smoothness(task.norm)
    ratio = math.log1p(curvature / (float(task.clients.counts.min()) * modulus))
    if ratio >= epsilon:
        raise not_allowed(
            "budget", task.settings.budget,
            f"more than {ratio:.3g} a release with dvp here, which allows {epsilon:.3g}: what a "
            "sample's curvature gives away is not covered by noise; take a larger --penalty",
        )  # fmt: skip
    # certificate() is t x + x^2/2 + ratio with x = 1/m and t = sqrt(2 ln(1/delta))
    tail = math.sqrt(2.0 * math.log(1.0 / delta))
    return 1.0 / (math.sqrt(tail**2 + 2.0 * (epsilon - ratio)) - tail)


def _release_epsilon(total: float, whole: float, delta: float, releases: int) -> float:
    """Return the largest epsilon that ``releases`` of (epsilon, delta) may have in a total."""
    low, high = total / releases, total
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        cost = total_epsilon({charge("approximate", middle, delta): releases}, whole)
        low, high = (middle, high) if cost <= total else (low, middle)
    return low


def _release_delta(task: Task) -> float:
    """Return each release's delta: half of the total's is theirs, half the composition's."""
    settings = task.settings
    whole = min(settings.target_delta, settings.privacy_budget.delta or settings.target_delta)
    return whole / (2.0 * settings.rounds)


def _smooth(task: Task) -> bool:
    return task.regularizer.kind != "l1" and task.clients.shape[1] == 1


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


def _record(task: Task, rho: float) -> None:
    if task.multiplier == 0.0:
        return
    smooth = _smooth(task)
    if not smooth:
        task.charging.note(
            "dual perturbation is certified for smooth regularizers and one output only"
        )
    delta = _release_delta(task)
    modulus = rho + task.regularizer.modulus
    for p, samples in enumerate(task.clients.counts):
        epsilon = certificate(
            task.multiplier, delta, task.clients.loss.smoothness(task.norm), samples, modulus
        )
        what = charge("approximate", epsilon, delta) if smooth else charge("uncertified", 0.0)
        task.charging.record(p, what)

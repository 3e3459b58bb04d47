"""The statistical audit: from many runs to a lower bound on epsilon.

A mechanism is (epsilon, delta)-private only if P[S on D] <= exp(epsilon) P[S on D'] + delta for
every event S, so that for any S

    epsilon >= ln( (P[S on D] - delta) / P[S on D'] ).

S is a threshold on a statistic that distinguishes D from D'. It is chosen on one half of the runs
and counted on the other, P[S on D] is bounded from below and P[S on D'] from above by Clopper and
Pearson (1934), each at half the allowed error, and the bound holds with the stated confidence
whatever the mechanism is.

Statistics are rounded (:data:`RESOLUTION` of their range) before they are compared with a
threshold. Unrounded, the ratio of two Laplace densities reads the low bits of the output where it
is constant in exact arithmetic, and shows that floating-point noise reveals D (Mironov, CCS 2012):
a true leak of simulated noise, but not of the mechanism under audit. ``--noise secure`` closes it.

A zone is audited at three levels:

``release``   one local update's perturbed quantity (gradient, minimizer or demand), to which the
              paper's guarantee applies, and which reveals most;
``solution``  the local solution computed from it;
``messages``  the messages of the zone over several rounds: all that crosses the network.

Later levels are computed from earlier ones, so their true epsilon is no larger; the audit reports
how much remains.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy import stats

from gridpriv.assurance import adversary
from gridpriv.assurance.replay import Draw, Tape, agent_play
from gridpriv.consensus.agent import Agent
from gridpriv.core.arrays import Floats, Ints
from gridpriv.core.errors import InputError, not_allowed
from gridpriv.privacy.accounting import epsilon_of, total_epsilon, total_pure
from gridpriv.privacy.mechanism import Staircase, is_installed
from gridpriv.privacy.noise import NoiseStreams
from gridpriv.privacy.release import Release
from gridpriv.privacy.sensitivity import Norm
from gridpriv.zonal.prepared import Prepared, nominal_epsilon

Statistic = Callable[[Floats], Floats]
TINY = 1e-300
RESOLUTION = 1e-9
WHITENED = 1000  # at most so many coordinates for the covariance of the linear statistic


@dataclass(frozen=True)
class Measured:
    """A lower bound on epsilon, and the statistic and counts behind it.

    Attributes
    ----------
    epsilon : float
        Lower bound at the audit's confidence and delta.
    statistic : str
        Statistic with the best bound on the training half.
    hits, misses : int
        Numbers of runs on D and on D' beyond the threshold.
    runs : int
        Number of counted runs on each side.
    """

    epsilon: float
    statistic: str
    hits: int
    misses: int
    runs: int


def measure(
    here: Floats,
    there: Floats,
    delta: float,
    confidence: float,
    log_ratio: Statistic | None = None,
    resolution: float = RESOLUTION,
) -> Measured:
    """Return the lower bound on epsilon from outputs on D and on D'.

    Parameters
    ----------
    here, there : (runs, k)
        Outputs on D and on D'; the first half trains, the second is counted.
    log_ratio : callable, optional
        Log-likelihood ratio of the stated mechanism, from outputs (any, k) to (any,).
    resolution : float
        Statistics are rounded to this part of their range; 0 reads every bit.
    """
    half = len(here) // 2
    if here.shape[1] == 0:
        return Measured(0.0, "nothing is observed", 0, 0, len(here) - half)
    first, second, at = here[:half], there[:half], (delta, confidence)
    candidates = _candidates(first, second)
    if log_ratio is not None:
        candidates["likelihood ratio"] = log_ratio
    train = np.concatenate([first, second])
    candidates = {
        name: _rounded(statistic, float(np.ptp(statistic(train))) * resolution)
        for name, statistic in candidates.items()
    }
    scored = [
        (*_threshold(sign * statistic(first), sign * statistic(second), *at), sign, name)
        for name, statistic in candidates.items()
        for sign in (1, -1)
    ]
    _, threshold, sign, name = max(scored, key=lambda score: score[0])
    runs = min(len(here), len(there)) - half
    a, b = (sign * candidates[name](side[half : half + runs]) for side in (here, there))
    hits, misses = int((a > threshold).sum()), int((b > threshold).sum())
    bound = float(epsilon_bound(np.array(hits), np.array(misses), runs, *at))
    return Measured(bound, name, hits, misses, runs)


def _rounded(statistic: Statistic, step: float) -> Statistic:
    if step == 0.0:
        return statistic
    return lambda x: np.round(statistic(x) / step)


def _threshold(a: Floats, b: Floats, delta: float, confidence: float) -> tuple[float, float]:
    """Return (bound, threshold) of the best of a grid of thresholds."""
    tails = np.geomspace(1e-4, 1e-2, 8)
    shares = np.concatenate([tails, np.linspace(0.02, 0.98, 49), 1.0 - tails])
    grid = np.unique(np.quantile(np.concatenate([a, b]), shares))
    middles = np.concatenate([grid, (a.mean() + b.mean())[None] / 2.0])
    hits = len(a) - np.sort(a).searchsorted(middles, side="right").astype(float)
    misses = len(b) - np.sort(b).searchsorted(middles, side="right").astype(float)
    bounds = epsilon_bound(hits, misses, len(a), delta, confidence)
    best = int(np.argmax(bounds))
    return float(bounds[best]), float(middles[best])


def _candidates(here: Floats, there: Floats) -> dict[str, Statistic]:
    """Return statistics fitted to the training half; their sign is chosen later."""
    gap = here.mean(axis=0) - there.mean(axis=0)
    spread = (here.var(axis=0) + there.var(axis=0)) / 2.0
    significance = np.abs(gap) / np.sqrt(np.maximum(spread, TINY))
    statistics: dict[str, Statistic] = {}
    diagonal = gap / np.maximum(spread, TINY)
    statistics["linear, per coordinate"] = lambda x: x @ _unit(diagonal)
    single = int(np.argmax(significance))
    statistics["one coordinate"] = lambda x: x[:, single]
    if here.shape[1] <= min(WHITENED, len(here) // 3):
        whitened = _whitened(here, there, gap)
        statistics["linear, whitened"] = lambda x: x @ _unit(whitened)
    statistics["Laplace, per coordinate"] = _laplace(here, there, significance)
    return statistics


def _unit(direction: Floats) -> Floats:
    size = float(np.abs(direction).max())
    return direction / size if size > 0 else direction


def _whitened(here: Floats, there: Floats, gap: Floats) -> Floats:
    """Return Fisher's direction, with a tenth of the covariance shrunk to its diagonal."""
    pooled = (np.cov(here, rowvar=False) + np.cov(there, rowvar=False)).reshape(len(gap), -1) / 2.0
    diagonal = np.diag(pooled)
    shrunk = 0.9 * pooled + np.diag(0.1 * diagonal + 1e-12 * diagonal.max() + TINY)
    return np.asarray(np.linalg.lstsq(shrunk, gap, rcond=None)[0])


def _laplace(here: Floats, there: Floats, significance: Floats) -> Statistic:
    """Return the ratio of Laplace densities fitted to the coordinates that clearly change."""
    clear = significance > 4.0 * np.sqrt(2.0 / len(here))
    clear[int(np.argmax(significance))] = True
    a, b = np.median(here[:, clear], axis=0), np.median(there[:, clear], axis=0)
    scale = (np.abs(here[:, clear] - a) + np.abs(there[:, clear] - b)).mean(axis=0) / 2.0
    scale = np.maximum(scale, TINY ** (1 / 4))
    return lambda x: ((np.abs(x[:, clear] - b) - np.abs(x[:, clear] - a)) / scale).sum(axis=1)


def proportion_below(hits: Floats, runs: int, error: float) -> Floats:
    """Return the one-sided Clopper-Pearson lower bound of a proportion."""
    ppf = stats.beta.ppf(error, hits, runs - hits + 1)
    return np.where(hits > 0, ppf, 0.0)


def proportion_above(hits: Floats, runs: int, error: float) -> Floats:
    """Return the one-sided Clopper-Pearson upper bound of a proportion."""
    ppf = stats.beta.ppf(1.0 - error, hits + 1, runs - hits)
    return np.where(hits < runs, ppf, 1.0)


def epsilon_bound(
    hits: Floats, misses: Floats, runs: int, delta: float, confidence: float
) -> Floats:
    """Return lower bounds on epsilon, 0 at least.

    Parameters
    ----------
    hits, misses : array
        Numbers of runs on D, and on D', with the event.
    runs : int
        Number of runs on each.
    """
    error = (1.0 - confidence) / 2.0
    low = proportion_below(np.asarray(hits, dtype=float), runs, error) - delta
    high = proportion_above(np.asarray(misses, dtype=float), runs, error)
    ratio = np.maximum(low, 1e-300) / high
    return np.asarray(np.maximum(np.log(ratio), 0.0))


def ceiling(runs: int, delta: float, confidence: float) -> float:
    """Return the largest bound that ``runs`` counted runs on each side can give at all."""
    return float(epsilon_bound(np.array(runs), np.array(0), runs, delta, confidence))


def runs_needed(epsilon: float, delta: float, confidence: float) -> int:
    """Return the fewest counted runs on each side whose ceiling is above ``epsilon``."""
    if not 0.5 <= confidence < 1.0:
        raise not_allowed("confidence", confidence, "a number of at least 0.5 and below 1")
    # the ceiling of n runs is ln((x - delta)/(1 - x)) with x^n = error of one side
    least = -math.log1p(-(1.0 - delta) / (1.0 + math.exp(min(epsilon, 700.0))))
    runs = max(1, math.floor(-math.log((1.0 - confidence) / 2.0) / least) - 1)
    if runs > 10**9:
        raise InputError(
            f"no number of runs below 10^9 can show an epsilon of {epsilon:g}"
            ": raise --confidence or the budget"
        )
    while ceiling(runs, delta, confidence) <= epsilon:
        runs += 1
    return runs


POWER = 0.8
"""Probability that an audit distinguishes the detectable epsilon from the nominal one."""
RARE = 1e-12


def detectable(nominal: float, runs: int, delta: float, confidence: float) -> float:
    """Return the least epsilon distinguishable from ``nominal`` with probability :data:`POWER`.

    It is for randomized response to one question, whose loss is in one event; vector mechanisms
    distribute their loss over many events and need more runs.

    Parameters
    ----------
    runs : int
        Number of counted runs on each side.

    Returns
    -------
    float
        inf where no outcome of so many runs could show more than ``nominal``.
    """
    if ceiling(runs, delta, confidence) <= nominal:
        return math.inf
    low, high = nominal, nominal + 1.0
    while detection(nominal, high, runs, delta, confidence) < POWER:
        low, high = high, nominal + 2.0 * (high - nominal)
    while high - low > 1e-6 * high:
        middle = 0.5 * (low + high)
        is_detected = detection(nominal, middle, runs, delta, confidence) >= POWER
        low, high = (low, middle) if is_detected else (middle, high)
    return high


def detection(nominal: float, epsilon: float, runs: int, delta: float, confidence: float) -> float:
    """Return the probability that the bound of randomized response exceeds ``nominal``.

    The event S has P[S on D] = delta + (1 - delta) e^epsilon/(1 + e^epsilon) and P[S on D'] =
    (1 - delta)/(1 + e^epsilon); counts on the two sides are independent and binomial. For each
    count on D' the least count on D that exceeds ``nominal`` is exact.
    """
    truth = 1.0 / (1.0 + math.exp(-min(epsilon, 700.0)))
    false_rate = (1.0 - delta) / (1.0 + math.exp(min(epsilon, 700.0)))
    needed = _needed(nominal, runs, delta, confidence)
    misses = np.arange(len(needed))
    beyond = stats.binom.sf(needed - 1, runs, delta + (1.0 - delta) * truth)
    return float(stats.binom.pmf(misses, runs, false_rate) @ beyond)


@lru_cache(maxsize=64)
def _needed(nominal: float, runs: int, delta: float, confidence: float) -> Floats:
    """Return the least hits of each number of misses whose bound is above ``nominal``.

    A lower Clopper-Pearson bound is above t where P[Bin(runs, t) >= hits] is below its error. More
    misses than are likely at ``nominal`` are left out, as are those with which no hits do.
    """
    error = (1.0 - confidence) / 2.0
    most = stats.binom.isf(RARE, runs, 1.0 / (1.0 + math.exp(min(nominal, 700.0))))
    misses = np.arange(int(most) + 1)
    share = delta + np.exp(nominal) * proportion_above(misses.astype(float), runs, error)
    share = share[share < 1.0]
    hits = stats.binom.isf(error, runs, share) + 1.0
    return np.asarray(hits[hits <= runs])


def check_runs(runs: int, nominal: float, delta: float, confidence: float) -> None:
    """Refuse a number of runs (half of them counted) that cannot exceed ``nominal``."""
    needed = 2 * runs_needed(nominal, delta, confidence)
    if runs < needed:
        raise not_allowed(
            "runs",
            runs,
            f"at least {needed} on each of the two data sets: with fewer, no outcome could show "
            f"an epsilon above {nominal:.4g} at confidence {confidence:g}",
        )


LEVELS = ("release", "solution", "messages")
VISIBLE = 256  # coordinates of a release that change most; the rest reveal almost nothing


class Stated(NamedTuple):
    """Nominal and certified epsilon at a delta."""

    nominal: float
    certified: float
    delta: float


@dataclass(frozen=True, eq=False)
class ZoneLevel:
    """One level of a zone: a mechanism with a stated epsilon between two adjacent data sets.

    Attributes
    ----------
    nominal, certified : float
        Epsilon of one release or of all its releases: as stated by the settings, and as charged by
        the accountant.
    delta : float
        Delta of both epsilons; 0 for pure privacy.
    level : str
        Name of the observation.
    here, there : array
        Protected quantity on D and on D'.
    """

    nominal: float
    certified: float
    delta: float
    level: str
    here: Floats
    there: Floats


@dataclass(frozen=True, eq=False)
class ReleaseLevel(ZoneLevel):
    """One release: a fixed protected quantity on D and on D', under the run's own mechanism."""

    release: Release

    @property
    def visible(self) -> Ints:
        """Coordinates that change, in descending order of change; at most :data:`VISIBLE`.

        In the norm ``box`` both coordinates of a pair, as the density needs both.
        """
        change = np.abs(self.here - self.there)
        if self.release.sensitivity.norm in ("box", "pair"):
            pairs = len(change) // 2
            first = _largest(change.reshape(2, pairs).max(axis=0))
            return np.concatenate([first, first + pairs])
        return _largest(change)

    def sample(self, neighbour: bool, seed: int) -> Floats:
        """Return one noisy release, at the coordinates that change."""
        value = self.there if neighbour else self.here
        noisy = self.release.apply(value, lambda: NoiseStreams(seed).stream(1, 1, 1))
        return np.asarray(noisy[self.visible])

    @property
    def log_ratio(self) -> Statistic:
        """Logarithm of p(o | D) / p(o | D') of the stated density."""
        a, b = self.here[self.visible], self.there[self.visible]
        scale = self.release.mechanism.scale
        if isinstance(self.release.mechanism, Staircase):
            stairs = self.release.mechanism.energy
            return lambda x: stairs(x - b) - stairs(x - a)
        energy = ENERGIES[self.release.sensitivity.norm]
        return lambda x: energy((x - b) / scale) - energy((x - a) / scale)


ENERGIES: dict[Norm, Statistic] = {
    1: lambda x: np.abs(x).sum(axis=1),
    2: lambda x: 0.5 * (x**2).sum(axis=1),
    "box": lambda x: np.abs(x.reshape(len(x), 2, -1)).max(axis=1).sum(axis=1),
}
"""Minus the logarithm of each mechanism's density at scale 1, from (runs, k) to (runs,)."""


def _largest(change: Floats) -> Ints:
    order = np.argsort(-change, kind="stable")[:VISIBLE]
    return np.asarray(order[change[order] > 1e-9 * change.max(initial=0.0)])


@dataclass(frozen=True, eq=False)
class RunLevel(ZoneLevel):
    """An agent run against a recorded network with fresh noise: its solution or messages."""

    prepared: Prepared
    zone: int
    script: Sequence[adversary.RecordedRound]
    log_ratio: Statistic | None = None

    def sample(self, neighbour: bool, seed: int) -> Floats:
        """Return the zone's solution, or all its messages in order."""
        agent = self._warm_started.twin(self.there if neighbour else self.here, NoiseStreams(seed))
        sent = [adversary.answer(agent, r).sent for r in self.script if not r.warm_start]
        if self.level == "messages":
            return np.concatenate(sent)
        rules, shared = self.prepared.rules, self.prepared.shared[self.zone]
        # of an exact update with noise on the output, only the shared coordinates are released
        exact = rules.perturbation.target == "output" and rules.update == "exact"
        return agent.average[shared] if exact else agent.average

    @cached_property
    def _warm_started(self) -> Agent:
        """The agent after the warm start, which is public and the same in every run."""
        rules, streams = self.prepared.rules, NoiseStreams(0)
        agent = adversary.zone_agent(self.prepared, self.zone, self.here, rules, streams)
        for record in self.script:
            if record.warm_start:
                adversary.answer(agent, record)
        return agent


AuditedMechanism: TypeAlias = ReleaseLevel | RunLevel
"""A level with its ``log_ratio``, the log-likelihood ratio of the stated mechanism if it is known,
and ``sample(neighbour, seed)``: one output (k,) on D or D', with equal noise at an equal seed."""


def zone_levels(
    prepared: Prepared,
    zone: int,
    script: Sequence[adversary.RecordedRound],
    other: adversary.Neighbour,
    levels: Sequence[str] = LEVELS,
) -> list[AuditedMechanism]:
    """Return a zone's audited levels between its demand and an adjacent demand.

    Parameters
    ----------
    prepared : Prepared
        With noise.
    zone : int
        Position of the zone.
    script : sequence of RecordedRound
        The rounds of the ``messages`` level; the others use the first.
    """
    single = adversary.varied(prepared, rules=replace(prepared.rules, local_updates=1))
    opened, data = adversary.opening(script), prepared.problems[zone].program.zone.demand
    adjacent = data + other.change
    play = agent_play(single, zone, opened)
    first = play(data.copy(), Tape()).draws
    release = adversary.rule_of(single).release(first[0].sensitivity)
    once = _stated_once(single, release)

    def of_level(level: str) -> AuditedMechanism:
        if level == "messages":
            draws = agent_play(prepared, zone, script)(data.copy(), Tape()).draws
            total = _stated_total(prepared, draws)
            return RunLevel(*total, level, data, adjacent, prepared, zone, script)
        if level == "solution" and single.rules.perturbation.target != "output":
            return RunLevel(*once, level, data, adjacent, single, zone, opened)
        # under output perturbation the solution is the release, which saves a solve per run
        twin = play(adjacent.copy(), Tape([draw.output for draw in first])).draws
        return ReleaseLevel(*once, level, first[0].value, twin[0].value, release)

    return [of_level(level) for level in levels]


def secure_level(prepared: Prepared, simulated: ReleaseLevel) -> ReleaseLevel | None:
    """Return the same release under secure noise; None where it is audited already or missing.

    Only coordinates that change are released: secure noise is slow, and others reveal nothing.
    """
    rule, visible = adversary.rule_of(prepared), simulated.visible
    installed = is_installed(rule.mechanism, "secure")
    if rule.source == "secure" or not installed or not visible.size:
        return None
    release = replace(rule, source="secure").release(simulated.release.sensitivity)
    here, there = simulated.here[visible], simulated.there[visible]
    return ReleaseLevel(*_stated_once(prepared, release), "secure", here, there, release)


def _stated_once(prepared: Prepared, release: Release) -> Stated:
    """Return nominal and certified epsilon of one release."""
    settings = prepared.settings
    pure = release.sensitivity.norm != 2
    certified = epsilon_of(release.certified, settings.release_delta)
    delta = 0.0 if pure else settings.release_delta
    return Stated(nominal_epsilon(settings, prepared.rules), certified, delta)


def _stated_total(prepared: Prepared, draws: Sequence[Draw]) -> Stated:
    """Return nominal and certified totals of all releases in the rounds of the level."""
    releases = [adversary.rule_of(prepared).release(draw.sensitivity) for draw in draws]
    delta = prepared.settings.total_delta
    certified = Counter(release.certified for release in releases)
    nominal = Counter(release.nominal for release in releases)
    if all(r.sensitivity.norm != 2 for r in releases):
        pure = Stated(total_pure(nominal), total_pure(certified), 0.0)
        if math.isfinite(pure.certified):
            return pure
    return Stated(total_epsilon(nominal, delta), total_epsilon(certified, delta), delta)

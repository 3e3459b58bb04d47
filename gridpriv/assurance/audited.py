"""Interface of the statistical audit, and the three levels of a zone.

``release``   one local update's perturbed quantity (gradient, minimiser or demand): where the
              paper states its guarantee, and the most that can be seen;
``solution``  the local solution computed from it;
``messages``  what the zone sends over several rounds, which is all that a network carries.

Later levels are computed from earlier ones, so their true epsilon is no larger; the audit
reports how much of it survives.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from typing import NamedTuple, Protocol

import numpy as np

from gridpriv.assurance.eavesdrop import Heard, Neighbour, answer, opening, varied, zone_agent
from gridpriv.assurance.replay import Draw, Tape, agent_play
from gridpriv.assurance.statistic import Statistic
from gridpriv.assurance.whole import rule_of
from gridpriv.consensus.agent import Agent
from gridpriv.core.arrays import Floats, Ints
from gridpriv.privacy.accounting import epsilon_of, total_epsilon, total_pure
from gridpriv.privacy.mechanism import MECHANISMS, Staircase
from gridpriv.privacy.noise import NoiseStreams
from gridpriv.privacy.release import Release
from gridpriv.privacy.sensitivity import Norm
from gridpriv.zonal.prepared import Prepared, nominal_epsilon

LEVELS = ("release", "solution", "messages")
VISIBLE = 256  # coordinates of a release that move most; the rest carry next to nothing


class AuditedMechanism(Protocol):
    """Anything that claims (epsilon, delta) between two neighbouring data sets.

    Attributes
    ----------
    level : str
        What is observed.
    nominal, certified : float
        Epsilon as stated by the settings, and as charged by the accountant.
    delta : float
        At which both are stated; 0 for pure privacy.
    """

    @property
    def level(self) -> str: ...  # noqa: D102
    @property
    def nominal(self) -> float: ...  # noqa: D102
    @property
    def certified(self) -> float: ...  # noqa: D102
    @property
    def delta(self) -> float: ...  # noqa: D102
    @property
    def log_ratio(self) -> Statistic | None:
        """Log-likelihood ratio of the stated mechanism, where it is known."""
        ...

    def sample(self, neighbour: bool, seed: int) -> Floats:
        """Return one observed output on D, or on its neighbour, shape (k,).

        The same seed must give the same noise on both.
        """
        ...


class Stated(NamedTuple):
    """Claimed and certified epsilon at a delta."""

    nominal: float
    certified: float
    delta: float


@dataclass(frozen=True, eq=False)
class ZoneLevel:
    """One level of a zone, and what is stated of it: of one release, or of all that are played."""

    nominal: float
    certified: float
    delta: float
    level: str
    here: Floats
    there: Floats


@dataclass(frozen=True, eq=False)
class ReleaseLevel(ZoneLevel):
    """One release: a fixed private quantity on D and on D', under the run's own mechanism."""

    release: Release

    @property
    def visible(self) -> Ints:
        """Coordinates that move, the most moved first; at most :data:`VISIBLE`.

        In the norm ``box`` both coordinates of a pair, as the density needs both.
        """
        moved = np.abs(self.here - self.there)
        if self.release.sensitivity.norm in ("box", "pair"):
            pairs = len(moved) // 2
            first = _largest(moved.reshape(2, pairs).max(axis=0))
            return np.concatenate([first, first + pairs])
        return _largest(moved)

    def sample(self, neighbour: bool, seed: int) -> Floats:
        """Return one noisy release, at the coordinates that move."""
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


def _largest(moved: Floats) -> Ints:
    order = np.argsort(-moved, kind="stable")[:VISIBLE]
    return np.asarray(order[moved[order] > 1e-9 * moved.max(initial=0.0)])


@dataclass(frozen=True, eq=False)
class RunLevel(ZoneLevel):
    """An agent played against a recorded network with fresh noise: its solution or messages."""

    prepared: Prepared
    zone: int
    script: Sequence[Heard]
    log_ratio: Statistic | None = None

    def sample(self, neighbour: bool, seed: int) -> Floats:
        """Return the zone's solution, or all its messages one after the other."""
        agent = self._rehearsed.twin(self.there if neighbour else self.here, NoiseStreams(seed))
        sent = [answer(agent, heard).sent for heard in self.script if not heard.warm_start]
        if self.level == "messages":
            return np.concatenate(sent)
        shared = self.prepared.shared[self.zone]
        return agent.average if _all_released(self.prepared) else agent.average[shared]

    @cached_property
    def _rehearsed(self) -> Agent:
        """The agent after the warm start, which is public and the same in every run."""
        rules, streams = self.prepared.rules, NoiseStreams(0)
        agent = zone_agent(self.prepared, self.zone, self.here, rules, streams)
        for heard in self.script:
            if heard.warm_start:
                answer(agent, heard)
        return agent


def _all_released(prepared: Prepared) -> bool:
    """Test for a local solution that depends on releases in all coordinates."""
    rules = prepared.rules
    return not (rules.perturbation.target == "output" and rules.update == "exact")


def zone_levels(
    prepared: Prepared,
    zone: int,
    script: Sequence[Heard],
    other: Neighbour,
    levels: Sequence[str] = LEVELS,
) -> list[AuditedMechanism]:
    """Return a zone's audited levels between its demand and a neighbour.

    Parameters
    ----------
    prepared : Prepared
        With noise.
    zone : int
        Position of the zone.
    script : sequence of Heard
        The rounds of the ``messages`` level; the others use the first.
    """
    single = varied(prepared, rules=replace(prepared.rules, local_updates=1))
    opened, data = opening(script, 1), prepared.problems[zone].program.zone.demand
    moved = data + other.change
    play = agent_play(single, zone, opened)
    first = play(data.copy(), Tape()).draws
    release = rule_of(single).release(first[0].sensitivity)
    once = _stated_once(single, release)

    def of_level(level: str) -> AuditedMechanism:
        if level == "messages":
            every = agent_play(prepared, zone, script)(data.copy(), Tape()).draws
            total = _stated_total(prepared, every)
            return RunLevel(*total, level, data, moved, prepared, zone, script)
        if level == "solution" and single.rules.perturbation.target != "output":
            return RunLevel(*once, level, data, moved, single, zone, opened)
        # under output perturbation the solution is what was released: a solve less for each run
        twin = play(moved.copy(), Tape([draw.output for draw in first])).draws
        return ReleaseLevel(*once, level, first[0].value, twin[0].value, release)

    return [of_level(level) for level in levels]


def secure_level(prepared: Prepared, simulated: ReleaseLevel) -> ReleaseLevel | None:
    """Return the same release under secure noise; None where it is audited anyway or missing.

    Only what moves is released: secure noise takes its time, and the rest says nothing.
    """
    rule, kept = rule_of(prepared), simulated.visible
    missing = find_spec("opendp") is None or (rule.mechanism, "secure") not in MECHANISMS
    if rule.source == "secure" or missing or not kept.size:
        return None
    release = replace(rule, source="secure").release(simulated.release.sensitivity)
    here, there = simulated.here[kept], simulated.there[kept]
    return ReleaseLevel(*_stated_once(prepared, release), "secure", here, there, release)


def _stated_once(prepared: Prepared, release: Release) -> Stated:
    """Return nominal and certified epsilon of one release."""
    settings = prepared.settings
    pure = release.sensitivity.norm != 2
    certified = epsilon_of(release.certified, settings.release_delta)
    delta = 0.0 if pure else settings.release_delta
    return Stated(nominal_epsilon(settings, prepared.rules), certified, delta)


def _stated_total(prepared: Prepared, draws: Sequence[Draw]) -> Stated:
    """Return nominal and certified totals of all releases of the rounds that are played."""
    releases = [rule_of(prepared).release(draw.sensitivity) for draw in draws]
    delta = prepared.settings.target_delta
    certified = Counter(release.certified for release in releases)
    nominal = Counter(release.nominal for release in releases)
    if all(r.sensitivity.norm != 2 for r in releases):
        pure = Stated(total_pure(nominal), total_pure(certified), 0.0)
        if math.isfinite(pure.certified):
            return pure
    return Stated(total_epsilon(nominal, delta), total_epsilon(certified, delta), delta)

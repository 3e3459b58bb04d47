"""The seam between the algorithm and its applications: a local problem and its agent's records.

An application gives a :class:`LocalProblem` and :class:`AgentRules`. Beside them are an agent's
state between rounds, its figures for its owner, and its releases: sensitivity, charge, draw, count.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gridpriv.consensus.schedules import Update
from gridpriv.core.arrays import Floats, Ints
from gridpriv.core.threads import uninterrupted
from gridpriv.privacy.perturbation import NoiseRule, Perturbation
from gridpriv.privacy.release import Charging, Release
from gridpriv.privacy.sensitivity import Norm, Sensitivity, reach
from gridpriv.privacy.strategies.disclosure import Disclosure


@dataclass(frozen=True, eq=False)
class Minimiser:
    """A local solution and what it took.

    Attributes
    ----------
    z : (n,)
    iterations, retries : int
        Of the solver; retries counts repeats with safer settings.
    """

    z: Floats
    iterations: int = 0
    retries: int = 0


class LocalProblem(Protocol):
    """min f(z; data) over a public convex set W, seen by one agent.

    Attributes
    ----------
    key : int
        Identity for noise streams: the same whatever the order of agents.
    coordinates : (n,) int
        Number of each variable in the global vector; agents share equal numbers.
    smoothness : float
        Lipschitz constant L of the gradient of f (public).
    solver_share : mapping from update to float
        By what share of a minimiser's sensitivity errors of solvers may add to it; 0 where there
        are none.
    """

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def key(self) -> int: ...  # noqa: D102

    @property
    def coordinates(self) -> Ints: ...  # noqa: D102

    @property
    def smoothness(self) -> float: ...  # noqa: D102

    @property
    def solver_share(self) -> Mapping[Update, float]: ...  # noqa: D102

    def start(self) -> Floats:
        """Return the public start z^1, shape (n,)."""
        ...

    def gradient(self, z: Floats, data: Floats) -> Floats:
        """Return the gradient of f at z, shape (n,)."""
        ...

    def minimise(
        self, linear: Floats, metric: Floats, *, near: bool = False, within: float = math.inf
    ) -> Minimiser:
        """Return argmin over W of <linear, z> + 1/2 z' diag(metric) z.

        With ``near`` a point serves that a solver ended near it: no release rests on it. Where one
        does, its error in the norm of diag(metric) is proven to be at most ``within``.
        """
        ...

    def minimise_exact(
        self, linear: Floats, metric: Floats, *, near: bool = False, within: float = math.inf
    ) -> Minimiser:
        """Return argmin over W of f's own public quadratic + <linear, z> + 1/2 z' diag(metric) z.

        For f(z; data) = 1/2 z'Hz + <gradient(0, data), z> + constant with H public.
        """
        ...

    def figures(self, z: Floats, data: Floats) -> dict[str, float]:
        """Return figures that add up over agents; ``objective`` is one. They use private data."""
        ...

    def gradient_sensitivity(self, adjacency: Any, norm: Norm) -> Sensitivity:
        """Return the sensitivity of the gradient, at any z."""
        ...

    def output_sensitivity(
        self, adjacency: Any, norm: Norm, update: Update, metric: Floats
    ) -> Sensitivity:
        """Return the sensitivity of the released minimiser; ``metric`` is the local quadratic's."""
        ...

    @property
    def disclosure(self) -> Disclosure:
        """The statistics that demand perturbation releases; refuses where that is no release."""
        ...


Place = tuple[int, int]
"""Round and local update, each from 1."""


class Streams(Protocol):
    """Where simulated noise comes from; the same arguments give the same generator."""

    def stream(self, zone: int, round_: int, update: int) -> np.random.Generator:
        """Return the generator of one agent's update."""
        ...


@dataclass(frozen=True)
class AgentRules:
    """Rules that all agents of a run follow (public).

    Attributes
    ----------
    update : {'linearized', 'exact'}
    local_updates : int
        E.
    noise : NoiseRule or None
        None without perturbation.
    adjacency : object
        What the problem's sensitivities are taken for.
    """

    update: Update
    local_updates: int
    perturbation: Perturbation
    noise: NoiseRule | None
    adjacency: Any


@dataclass(frozen=True)
class Effort:
    """A solver's effort in a round: iterations, repeats with safer settings, solves; private."""

    iterations: int = 0
    retries: int = 0
    solves: int = 0


@dataclass(frozen=True, eq=False)
class Figures:
    """An agent's last round, for its owner only: computed from private data.

    Attributes
    ----------
    values : dict
        The problem's own figures at the average that was sent.
    noise_magnitude : float
        Sum of |noise| over updates and coordinates (6.2).
    """

    values: dict[str, float]
    noise_magnitude: float
    effort: Effort


@dataclass(frozen=True, eq=False)
class Iterate:
    """An agent's variables between rounds.

    Attributes
    ----------
    z : (n,)
        Last iterate: the next round starts here.
    average : (n,)
        Of the last round's iterates; its shared part was sent.
    dual : (n,)
        0 on coordinates that nobody shares.
    """

    z: Floats
    average: Floats
    dual: Floats


@dataclass(frozen=True, eq=False)
class AgentState:
    """All that an agent keeps from one round to the next; private.

    Attributes
    ----------
    draw : (int, int) or None
        Where the noise of the data in use was drawn.
    estimate : array
        The data in use, where noise was drawn on them; else empty.
    drawn : mapping of Release to int
        Every release so far.
    """

    at: Iterate
    draw: Place | None
    estimate: Floats
    drawn: Mapping[Release, int]


class AgentReleases:
    """Perturbs what an agent releases; every release is charged, then drawn, and counted.

    Attributes
    ----------
    draw : (int, int) or None
        Where the noise of the data in use was drawn.
    estimate : array
        The data in use: an estimate by the last draw, or the data themselves before one.
    of_round, drawn : Counter of Release
        Releases of this round, and of all rounds.
    magnitude : float
        Sum of |noise| in this round; private.
    """

    def __init__(
        self,
        problem: LocalProblem,
        data: Floats,
        rules: AgentRules,
        streams: Streams,
        charge: Charging | None,
    ) -> None:
        self.problem, self.rules, self.streams, self.charge = problem, rules, streams, charge
        self.draw: Place | None = None
        self.estimate = data
        self.of_round: Counter[Release] = Counter()
        self.drawn: Counter[Release] = Counter()
        self.magnitude = 0.0

    def begin_round(self) -> None:
        """Forget the releases of the round before, which are counted in ``drawn``."""
        self.of_round.clear()
        self.magnitude = 0.0

    def resume(self, draw: Place | None, estimate: Floats, drawn: Mapping[Release, int]) -> None:
        """Go on after earlier releases."""
        self.draw, self.estimate, self.drawn = draw, estimate, Counter(drawn)

    @property
    def released_data(self) -> Floats | None:
        """The data as others may know them; None before a release, or if others are released."""
        target = self.rules.perturbation.target
        known = target == "none" or (target == "demand" and self.draw is not None)
        return self.estimate if known else None

    def perturb(self, target: str, value: Floats, place: Place, metric: Floats) -> Floats:
        """Return ``value`` with noise if it is what this run perturbs; charge, then draw."""
        if self.rules.perturbation.target != target or not value.size:
            return value
        release = self.release(metric)
        if target == "demand":
            noisy = self._disclosed(release, value, place)
        else:
            noisy = self._released_at(release, value, place)
        self.magnitude += float(np.abs(noisy - value).sum())
        return noisy

    def release(self, metric: Floats) -> Release | None:
        """Return the release of one draw in this metric; None where nothing private is in it."""
        noise = self.rules.noise
        if noise is None:
            return None
        sensitivity = self._sensitivity(noise, metric)
        return noise.release(sensitivity) if sensitivity.value else None

    @property
    def certifies_minimisers(self) -> bool:
        """True where errors of minimisers count, which a published sensitivity ignores."""
        noise = self.rules.noise
        output = self.rules.perturbation.target == "output"
        return output and noise is not None and noise.assumed is None

    def covered(self, metric: Floats) -> float:
        """Return the error of a minimiser that its noise covers, in the norm of the metric."""
        noise, share = self.rules.noise, self.problem.solver_share[self.rules.update]
        met = metric[metric > 0.0]
        if noise is None or not share or not met.size:
            return math.inf
        noisy = self._sensitivity(noise, metric).value
        return 0.5 * share / (1.0 + share) * noisy / reach(met, noise.norm) or math.inf

    def _disclosed(self, release: Release | None, data: Floats, place: Place) -> Floats:
        """Return the estimate of the data by a release of its statistics; drawn when it is due."""
        draw = self.rules.perturbation.drawn_at(*place)
        if draw != self.draw:
            disclosure = self.problem.disclosure
            noisy = self._released_at(release, disclosure.measure(data), draw)
            self.draw, self.estimate = draw, disclosure.estimate(noisy, release)
        return self.estimate

    def _released_at(self, release: Release | None, value: Floats, place: Place) -> Floats:
        """Return the value with the noise of a place; as it is where nothing private is in it."""
        if release is None:
            return value
        self._pay(release)
        return release.apply(value, lambda: self.streams.stream(self.problem.key, *place))

    def _pay(self, release: Release) -> None:
        """Charge a release that is about to be drawn, and count it; an interrupt splits nothing.

        Where nobody is charged there is nothing to split: what is not drawn need not be counted.
        """
        if self.charge is None:
            self._count(release)
            return
        with uninterrupted():
            self.charge(self.problem.name, {release: 1})
            self._count(release)

    def _count(self, release: Release) -> None:
        self.of_round[release] += 1
        self.drawn[release] += 1

    def _sensitivity(self, noise: NoiseRule, metric: Floats) -> Any:
        rules = self.rules
        problem, adjacency = self.problem, rules.adjacency
        if rules.perturbation.target == "objective":
            return problem.gradient_sensitivity(adjacency, noise.norm)
        if rules.perturbation.target == "demand":
            return problem.disclosure.sensitivity(adjacency, noise.norm)
        exact = problem.output_sensitivity(adjacency, noise.norm, rules.update, metric)
        share = problem.solver_share[rules.update] if self.certifies_minimisers else 0.0
        return exact.widened(share)

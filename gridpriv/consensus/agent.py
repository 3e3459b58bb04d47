"""An agent: lines 11-23 of Algorithm 3.1 (Ryu and Kim 2022)."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gridpriv.consensus.problem import LocalProblem, Minimiser, Update
from gridpriv.core.arrays import Floats
from gridpriv.core.errors import SolverError
from gridpriv.privacy.perturbation import NoiseRule, Perturbation
from gridpriv.privacy.release import Release


class Streams(Protocol):
    """Where simulated noise comes from; the same arguments give the same generator."""

    def stream(self, zone: int, round_: int, update: int) -> np.random.Generator:
        """Return the generator of one agent's update."""
        ...


@dataclass(frozen=True)
class AgentRules:
    """What every agent of a run does alike (public).

    Attributes
    ----------
    update : {'linearized', 'exact'}
    local_updates : int
        E.
    perturbation : Perturbation
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


@dataclass(frozen=True, eq=False)
class Message:
    """What comes back from an agent's round; only ``sent`` would cross a network.

    Attributes
    ----------
    sent : (shared,)
        Shared part of the average of the round's iterates.
    figures : dict
        Private figures at that average, for the simulation's report.
    noise_magnitude : float
        Sum of |noise| over updates and coordinates (6.2); private.
    releases : dict of Release to int
        New releases of this round.
    iterations, retries, solves : int
    """

    sent: Floats
    figures: dict[str, float]
    noise_magnitude: float
    releases: dict[Release, int]
    iterations: int
    retries: int
    solves: int


class Agent:
    """One agent's state: its last iterate, its duals and, for noisy data, their last draw.

    Parameters
    ----------
    problem : LocalProblem
    data : array
        Private.
    shared : (n,) bool
        Which coordinates another agent (or, under consensus ``all``, the server) holds.
    rules : AgentRules
    streams : Streams
    charge : callable, optional
        Called with every release before its noise is drawn; refusing raises.
    proxy : array, optional
        Public stand-in for the data, for rehearsals.
    """

    def __init__(
        self,
        problem: LocalProblem,
        data: Floats,
        shared: NDArray[np.bool_],
        rules: AgentRules,
        streams: Streams,
        charge: Callable[[str, dict[Release, int]], None] | None = None,
        proxy: Floats | None = None,
    ) -> None:
        self.problem = problem
        self.shared = shared
        self.average = problem.start()
        self._data = data
        self._proxy = proxy
        self._rehearsal = False
        self._rules = rules
        self._streams = streams
        self._charge = charge
        self._z = self.average
        self._dual = np.zeros_like(self._z)
        self._draw: tuple[int, int] | None = None
        self._noisy = data
        self._releases: Counter[Release] = Counter()
        self._drawn: Counter[Release] = Counter()
        self._magnitude = 0.0

    @property
    def drawn(self) -> dict[Release, int]:
        """Every release so far, those of a round that failed included: what was charged."""
        return dict(self._drawn)

    @property
    def data(self) -> Floats:
        """The private data."""
        return self._data

    def twin(self, data: Floats, streams: Streams) -> Agent:
        """Return a copy on other data and noise, in the same state and around the same problem."""
        shared = (self.problem, self._rules, self.shared)
        twin = copy.deepcopy(self, {id(part): part for part in shared})
        twin._data, twin._noisy, twin._streams = data, data, streams
        return twin

    def rehearse(self, number: int, w: Floats, penalty: Floats, step: float) -> Message:
        """Run a round on the public proxy, without noise: nothing private is touched."""
        self._rehearsal = True
        try:
            return self.round(number, w, penalty, step)
        finally:
            self._rehearsal = False

    def round(self, number: int, w: Floats, penalty: Floats, step: float) -> Message:
        """Run one round: E local updates, their average, the dual update.

        Parameters
        ----------
        number : int
            t, from 1.
        w, penalty : (shared,)
            Global variables of this agent's shared coordinates, and rho of each.
        step : float
            eta^t.
        """
        self._releases.clear()
        self._magnitude = 0.0
        rho = self._spread(penalty)
        pull = self._spread(penalty * w) + self._dual
        solved = [
            self._local_update((number, e), pull, rho, step)
            for e in range(1, self._rules.local_updates + 1)
        ]
        self.average = np.mean([m.z for m in solved], axis=0) if len(solved) > 1 else self._z
        sent = self.average[self.shared]
        self._dual += self._spread(penalty * (w - sent))
        return Message(
            sent=sent,
            figures=self.problem.figures(self.average, self._seen),
            noise_magnitude=self._magnitude,
            releases=dict(self._releases),
            iterations=sum(m.iterations for m in solved),
            retries=sum(m.retries for m in solved),
            solves=len(solved),
        )

    @property
    def _seen(self) -> Floats:
        """The data of this round: private, or in a rehearsal the public proxy."""
        if not self._rehearsal:
            return self._data
        if self._proxy is None:
            raise ValueError("a rehearsal needs a proxy of the data")
        return self._proxy

    def _local_update(
        self, place: tuple[int, int], pull: Floats, rho: Floats, step: float
    ) -> Minimiser:
        """(3.2): the noisy linearized update, or the exact one, from the last iterate."""
        exact = self._rules.update == "exact"
        metric = rho if exact else rho + 1.0 / step
        at = np.zeros_like(self._z) if exact else self._z
        data = self._perturb("demand", self._seen, place, metric)
        gradient = self._perturb("objective", self.problem.gradient(at, data), place, metric)
        try:
            if exact:
                found = self.problem.minimise_exact(gradient - pull, metric)
            else:
                found = self.problem.minimise(gradient - pull - self._z / step, metric)
        except SolverError as error:
            phase = "rehearsal round" if self._rehearsal else "round"
            raise SolverError(
                f"zone {self.problem.name}, {phase} {place[0]}, local update {place[1]}: {error}"
            ) from error
        self._z = self._released(found.z, place, metric)
        return Minimiser(self._z, found.iterations, found.retries)

    def _released(self, z: Floats, place: tuple[int, int], metric: Floats) -> Floats:
        """Perturb the minimiser: all of it where it is fed back, else what is sent."""
        if self._rules.update == "linearized":
            return self._perturb("output", z, place, metric)
        kept = z.copy()
        kept[self.shared] = self._perturb("output", z[self.shared], place, metric)
        return kept

    def _perturb(
        self, target: str, value: Floats, place: tuple[int, int], metric: Floats
    ) -> Floats:
        """Return ``value`` with noise if it is what this run perturbs; record the release."""
        rules = self._rules
        if rules.perturbation.target != target or rules.noise is None or self._rehearsal:
            return value
        draw = rules.perturbation.drawn_at(*place)
        if target != "demand" or draw != self._draw:
            release = rules.noise.release(self._sensitivity(rules.noise, metric))
            if self._charge is not None:
                self._charge(self.problem.name, {release: 1})
            noisy = release.apply(value, lambda: self._streams.stream(self.problem.key, *draw))
            self._releases[release] += 1
            self._drawn[release] += 1
            self._draw, self._noisy = draw, noisy
        self._magnitude += float(np.abs(self._noisy - value).sum())
        return self._noisy

    def _sensitivity(self, noise: NoiseRule, metric: Floats) -> Any:
        rules = self._rules
        problem, adjacency = self.problem, rules.adjacency
        if rules.perturbation.target == "objective":
            return problem.gradient_sensitivity(adjacency, noise.norm)
        if rules.perturbation.target == "demand":
            return problem.data_sensitivity(adjacency, noise.norm)
        return problem.output_sensitivity(adjacency, noise.norm, rules.update, metric)

    def _spread(self, shared: Floats) -> Floats:
        full = np.zeros_like(self._z)
        full[self.shared] = shared
        return full

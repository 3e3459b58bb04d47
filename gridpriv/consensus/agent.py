"""An agent (lines 11-23 of Algorithm 3.1, Ryu and Kim 2022) and its local problem.

An application gives a :class:`LocalProblem` and :class:`AgentRules`. The module also has an agent's
state between rounds, its values for its owner, and its releases (sensitivity, charge, draw, count).
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gridpriv.consensus.messages import Order, Reply
from gridpriv.consensus.schedules import Update
from gridpriv.core.arrays import Floats, Ints
from gridpriv.core.errors import SolverError
from gridpriv.core.threads import uninterrupted
from gridpriv.privacy.linear import Disclosure
from gridpriv.privacy.perturbation import NoiseRule, Perturbation, Target
from gridpriv.privacy.release import Charging, KeptReleases, Release
from gridpriv.privacy.sensitivity import Norm, Sensitivity, reach


@dataclass(frozen=True, eq=False)
class Minimiser:
    """A local solution and the effort of its solver.

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
    """Local problem of one agent: min f(z; data) over a public convex set W.

    Attributes
    ----------
    key : int
        Identity for noise streams, independent of the order of agents.
    coordinates : (n,) int
        Number of each variable in the global vector; variables of equal number are coupled.
    smoothness : float
        Lipschitz constant L of the gradient of f (public).
    solver_error : float
        Error bound of a minimizer, in the norm of the metric, that its solver must prove and its
        noise covers, 5 to 50 % of the sensitivity; 0 where minimizers are exact.
    """

    name: str
    key: int
    solver_error: float

    @property
    def coordinates(self) -> Ints: ...  # noqa: D102

    @property
    def smoothness(self) -> float: ...  # noqa: D102

    def start(self) -> Floats:
        """Return the public start z^1, shape (n,)."""

    def gradient(self, z: Floats, data: Floats) -> Floats:
        """Return the gradient of f at z, shape (n,)."""

    def minimise(
        self, linear: Floats, metric: Floats, *, near: bool = False, within: float = math.inf
    ) -> Minimiser:
        """Return argmin over W of <linear, z> + 1/2 z' diag(metric) z.

        With ``near`` an approximate point suffices, as it is not released. Otherwise its error in
        the norm of diag(metric) is proven to be at most ``within``.
        """

    def minimise_exact(
        self, linear: Floats, metric: Floats, *, near: bool = False, within: float = math.inf
    ) -> Minimiser:
        """Return argmin over W of f's own public quadratic + <linear, z> + 1/2 z' diag(metric) z.

        For f(z; data) = 1/2 z'Hz + <gradient(0, data), z> + constant with H public.
        """

    def metrics(self, z: Floats, data: Floats) -> dict[str, float]:
        """Return values that add up over agents, such as ``objective``; for the owner only."""

    def gradient_sensitivity(self, adjacency: Any, norm: Norm) -> Sensitivity:
        """Return the sensitivity of the gradient, at any z."""

    def output_sensitivity(
        self, adjacency: Any, norm: Norm, update: Update, metric: Floats
    ) -> Sensitivity:
        """Return the sensitivity of the released minimizer; ``metric`` is the local quadratic's."""

    @property
    def disclosure(self) -> Disclosure:
        """Statistics of a release under demand perturbation; refuses where there are none."""


Place = tuple[int, int]
"""Round and local update, each from 1."""


class Streams(Protocol):
    """Source of simulated noise; the same arguments give the same generator."""

    def stream(self, zone: int, round_: int, update: int) -> np.random.Generator:
        """Return the generator of one agent's update."""


@dataclass(frozen=True)
class AgentRules:
    """Rules of all agents of a run (public).

    Attributes
    ----------
    update : {'linearized', 'exact'}
    local_updates : int
        E.
    noise : NoiseRule or None
        None without perturbation.
    adjacency : object
        Adjacency of the problem's sensitivities.
    """

    update: Update
    local_updates: int
    perturbation: Perturbation
    noise: NoiseRule | None
    adjacency: Any


@dataclass(frozen=True)
class Effort:
    """A solver's effort in a round, for the owner only: iterations, repeats, solves."""

    iterations: int = 0
    retries: int = 0
    solves: int = 0


@dataclass(frozen=True, eq=False)
class RoundMetrics:
    """Values of an agent's last round, for its owner only.

    Attributes
    ----------
    values : dict
        The problem's own values at the average that was sent.
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
        Last iterate, where the next round starts.
    average : (n,)
        Of the last round's iterates; its shared part was sent.
    dual : (n,)
        0 on coordinates without coupling.
    """

    z: Floats
    average: Floats
    dual: Floats


@dataclass(frozen=True, eq=False)
class AgentState:
    """State of an agent between rounds, for its owner only.

    Attributes
    ----------
    draw : (int, int) or None
        Round and update at which the noise of the data in use was drawn.
    estimate : array
        The data in use, if noise was drawn on them; else empty.
    drawn : mapping of Release to int
        Every release so far.
    """

    at: Iterate
    draw: Place | None
    estimate: Floats
    drawn: Mapping[Release, int]


class AgentReleases:
    """Perturbs the released values of an agent; every release is charged, then drawn, and counted.

    Attributes
    ----------
    draw : (int, int) or None
        Round and update at which the noise of the data in use was drawn.
    estimate : array
        The data in use: an estimate by the last draw, or the data themselves before one.
    of_round, drawn : Counter of Release
        Releases of this round, and of all rounds.
    magnitude : float
        Sum of |noise| in this round; for its owner only.
    """

    def __init__(
        self,
        problem: LocalProblem,
        data: Floats,
        rules: AgentRules,
        streams: Streams,
        charge: Charging | None,
        kept: KeptReleases | None = None,
    ) -> None:
        self.problem, self.rules, self.streams = problem, rules, streams
        self.charge, self.kept = charge, kept
        self.draw: Place | None = None
        self.estimate = data
        self.of_round: Counter[Release] = Counter()
        self.drawn: Counter[Release] = Counter()
        self.magnitude = 0.0

    def begin_round(self) -> None:
        """Reset the count of the round; ``drawn`` keeps it."""
        self.of_round.clear()
        self.magnitude = 0.0

    def resume(self, draw: Place | None, estimate: Floats, drawn: Mapping[Release, int]) -> None:
        """Continue after earlier releases."""
        self.draw, self.estimate, self.drawn = draw, estimate, Counter(drawn)

    @property
    def released_data(self) -> Floats | None:
        """Released estimate of the data; None before one, or if another quantity is released."""
        target = self.rules.perturbation.target
        is_estimate = target == "none" or (target == "demand" and self.draw is not None)
        return self.estimate if is_estimate else None

    def perturb(self, target: str, value: Floats, place: Place, metric: Floats) -> Floats:
        """Return ``value`` with noise if it is the perturbed quantity; charge, then draw."""
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
        """Return the release of one draw in this metric; None without private data."""
        noise = self.rules.noise
        if noise is None:
            return None
        sensitivity = self._sensitivity(noise, metric)
        return noise.release(sensitivity) if sensitivity.value else None

    @property
    def certifies_minimisers(self) -> bool:
        """True where errors of minimizers count; a published sensitivity ignores them."""
        noise = self.rules.noise
        output = self.rules.perturbation.target == "output"
        return output and noise is not None and noise.assumed is None

    def covered(self, metric: Floats) -> float:
        """Return the error bound of a minimizer that its noise covers, in the norm of the metric.

        It is 0 where errors do not count.
        """
        noise, positive = self.rules.noise, metric[metric > 0.0]
        error = self.problem.solver_error
        if noise is None or not error or not self.certifies_minimisers or not positive.size:
            return 0.0
        most = self._output(noise, metric).value / (2.0 * reach(positive, noise.norm))
        return min(max(error, 0.1 * most), most)  # two errors add 10 to 100 % to the sensitivity

    def _disclosed(self, release: Release | None, data: Floats, place: Place) -> Floats:
        """Return the estimate of the data from a release, drawn by the noise schedule."""
        draw = self.rules.perturbation.drawn_at(*place)
        if draw != self.draw:
            disclosure = self.problem.disclosure
            noisy = self._released_at(release, disclosure.measure(data), draw)
            self.draw, self.estimate = draw, disclosure.estimate(noisy, release)
        return self.estimate

    def _released_at(self, release: Release | None, value: Floats, place: Place) -> Floats:
        """Return the value with the noise of a round and update; unchanged without private data."""
        if release is None:
            return value
        key, kept = self.problem.key, self.kept
        if kept is not None and (earlier := kept.value(key, release, value.shape)) is not None:
            self._count(release)  # it was charged when it was drawn
            return earlier
        self._charge_and_count(release)
        noisy = release.apply(value, lambda: self.streams.stream(key, *place))
        if kept is not None:  # before it is used
            kept.keep(key, release, noisy)
        return noisy

    def _charge_and_count(self, release: Release) -> None:
        """Charge a release before its draw, and count it; an interrupt cannot separate the two.

        Without a ledger there is nothing to separate: a release that is not drawn need not be
        counted.
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
        exact, error = self._output(noise, metric), self.covered(metric)
        if not error:
            return exact
        return exact.widened(2.0 * error * reach(metric[metric > 0.0], noise.norm) / exact.value)

    def _output(self, noise: NoiseRule, metric: Floats) -> Sensitivity:
        """Return the sensitivity of exact minimizers."""
        rules = self.rules
        return self.problem.output_sensitivity(rules.adjacency, noise.norm, rules.update, metric)


Perturb = Callable[[str, Floats, Place, Floats], Floats]
"""Function of target, value, round, update and metric that returns the value to use."""

NOISY = 3.0  # distance of a trial's w, in scales of the noise


@dataclass(frozen=True, eq=False)
class View:
    """The data of a round: private data with noise, or the public proxy.

    Attributes
    ----------
    label : str
        The round, in words.
    released : {'none', 'objective', 'output', 'demand'}
        The released quantity. The noise of an output covers the change of the minimizer, not a
        solver's error; demand and gradient are released before a solve.
    """

    data: Floats
    perturb: Perturb
    label: str
    released: Target


class Agent:
    """One agent's state: its iterate, its duals and its releases.

    Parameters
    ----------
    data : array
        Private.
    shared : (n,) bool
        True for coordinates that another agent (or, under consensus ``all``, the server) has too.
    charge : Charging, optional
        Called with every release before its noise is drawn; refusing raises.
    proxy : array, optional
        Public estimate of the data, for the warm start.
    kept : KeptReleases, optional
        Store of the released values.

    Attributes
    ----------
    iterate : Iterate
        Private once a round was run.
    """

    def __init__(
        self,
        problem: LocalProblem,
        data: Floats,
        shared: NDArray[np.bool_],
        rules: AgentRules,
        streams: Streams,
        charge: Charging | None = None,
        proxy: Floats | None = None,
        kept: KeptReleases | None = None,
    ) -> None:
        self.problem, self.shared, self.data = problem, shared, data
        self.releases = AgentReleases(problem, data, rules, streams, charge, kept)
        self._all_shared = bool(shared.all())
        start = problem.start()
        self.iterate = Iterate(start, start, np.zeros_like(start))
        self._proxy = proxy
        self._effort = Effort()

    @property
    def rules(self) -> AgentRules:
        """The rules of the run."""
        return self.releases.rules

    @property
    def average(self) -> Floats:
        """The average of the last round's iterates; its shared part was sent."""
        return self.iterate.average

    def twin(self, data: Floats, streams: Streams) -> Agent:
        """Return a copy with other data and noise, in the same state and with the same problem."""
        shared = (self.problem, self.rules, self.shared)
        twin = copy.deepcopy(self, {id(part): part for part in shared})
        twin.data, twin.releases.estimate, twin.releases.streams = data, data, streams
        return twin

    def ready(self, order: Order) -> Reply:
        """Run a trial round on the public proxy, so that a failure comes before the first charge.

        The solver runs at the accuracy of a round. Where its errors count, w is as far from the
        proxy's as noise may shift it.
        """
        view = self._public_view("trial on public data, round")
        release = self.release(order.penalty, order.step)
        if self.releases.certifies_minimisers and release is not None:
            directions = np.where(np.arange(len(order.w)) % 2, -1.0, 1.0)
            order = replace(order, w=order.w + NOISY * release.mechanism.scale * directions)
        self._updated(order, replace(view, released=self.rules.perturbation.target))
        return Reply(np.zeros(0), {})

    def warm_start(self, order: Order) -> Reply:
        """Run a round on the public proxy, without noise or private data."""
        self.iterate, _ = self._updated(order, self._public_view("warm-start round"))
        return Reply(self._part(self.iterate.average), {})

    def round(self, order: Order) -> Reply:
        """Run one round: E local updates, their average, the dual update."""
        self.releases.begin_round()
        target = self.rules.perturbation.target
        private = View(self.data, self.releases.perturb, "round", target)
        self.iterate, self._effort = self._updated(order, private)
        return Reply(self._part(self.iterate.average), dict(self.releases.of_round))

    def disclose(self) -> Floats:
        """Release the data's statistics; return the estimate of the data from them (public)."""
        self.releases.begin_round()
        return self.releases.perturb("demand", self.data, (1, 1), np.zeros_like(self.iterate.z))

    def reuse(self, estimate: Floats) -> None:
        """Use the estimate of an earlier release; draw nothing where noise is drawn once."""
        draw = self.rules.perturbation.drawn_at(1, 1)
        self.releases.draw, self.releases.estimate = draw, estimate

    def set_iterate(self, z: Floats) -> None:
        """Set a schedule computed from all disclosed estimates, in place of rounds."""
        self.iterate = Iterate(z, z, np.zeros_like(z))

    def metrics(self) -> RoundMetrics:
        """Return the values of the last round, for the owner only."""
        values = self.problem.metrics(self.iterate.average, self.data)
        return RoundMetrics(values, self.releases.magnitude, self._effort)

    def drawn(self) -> dict[Release, int]:
        """Return every charged release so far, including those of a failed round."""
        return dict(self.releases.drawn)

    def state(self) -> AgentState:
        """Return the state from which another agent of the same problem and data can continue."""
        releases = self.releases
        estimate = np.zeros(0) if releases.draw is None else releases.estimate
        return AgentState(self.iterate, releases.draw, estimate, self.drawn())

    def resume(self, state: AgentState) -> None:
        """Continue from a state."""
        self.iterate = state.at
        estimate = self.data if state.draw is None else state.estimate
        self.releases.resume(state.draw, estimate, state.drawn)

    def miss(self, order: Order) -> None:
        """Note a round that used this agent's last message: nothing is drawn or solved."""
        at = self.iterate
        dual = at.dual + self._spread(order.penalty * (order.w - self._part(at.average)))
        self.iterate = Iterate(at.z, at.average, dual)

    def smoothness(self) -> float:
        """Return L of the agent's objective (public)."""
        return self.problem.smoothness

    def release(self, penalty: Floats, step: float) -> Release | None:
        """Return the release of one draw at this penalty and step; None without one (public).

        None also for a quantity without coordinates or without private data.
        """
        perturbation = self.rules.perturbation
        if self.releases.draw is not None and perturbation.noise_schedule == "once":
            return None
        exact, rho = self.rules.update == "exact", self._spread(penalty)
        empty = perturbation.target == "output" and exact and not self.shared.any()
        return None if empty else self.releases.release(rho if exact else rho + 1.0 / step)

    def _updated(self, order: Order, view: View) -> tuple[Iterate, Effort]:
        """Return the next state after a round, and the values of the round."""
        rho = self._spread(order.penalty)
        pull = self._spread(order.penalty * order.w) + self.iterate.dual
        z, solved = self.iterate.z, []
        for e in range(1, self.rules.local_updates + 1):
            try:
                place = (order.number, e)
                solved.append(self._local_update(z, place, pull, rho, order.step, view))
            except SolverError as error:
                where = f"zone {self.problem.name}, {view.label} {order.number}, local update {e}"
                raise SolverError(f"{where}: {error}") from error
            z = solved[-1].z
        average = np.mean([m.z for m in solved], axis=0) if len(solved) > 1 else z
        dual = self.iterate.dual + self._spread(order.penalty * (order.w - self._part(average)))
        iterations, retries = sum(m.iterations for m in solved), sum(m.retries for m in solved)
        return Iterate(z, average, dual), Effort(iterations, retries, len(solved))

    def _local_update(
        self, z: Floats, place: Place, pull: Floats, rho: Floats, step: float, view: View
    ) -> Minimiser:
        """(3.2): the noisy linearized update from ``z``, or the exact one.

        Global variables attract its minimizer by -<pull, z> + 1/2 z' diag(rho) z, with pull =
        rho w + dual; rho is 0 on coordinates without coupling.
        """
        exact = self.rules.update == "exact"
        metric = rho if exact else rho + 1.0 / step
        at = np.zeros_like(z) if exact else z
        near, within = view.released != "output", math.inf
        if self.releases.certifies_minimisers and not near:
            within = self.releases.covered(metric) or math.inf
        data = view.perturb("demand", view.data, place, metric)
        gradient = view.perturb("objective", self.problem.gradient(at, data), place, metric)
        linear = gradient - pull if exact else gradient - pull - z / step
        minimise = self.problem.minimise_exact if exact else self.problem.minimise
        solved = minimise(linear, metric, near=near, within=within)
        return replace(solved, z=self._released(solved.z, place, metric, view))

    def _released(self, z: Floats, place: Place, metric: Floats, view: View) -> Floats:
        """Perturb the minimizer: all of it where the next update uses it, else the sent part."""
        if self.rules.update == "linearized":
            return view.perturb("output", z, place, metric)
        sent = z.copy()
        sent[self.shared] = view.perturb("output", z[self.shared], place, metric)
        return sent

    def _public_view(self, label: str) -> View:
        if self._proxy is None:
            raise ValueError("a warm start needs a proxy of the data")
        return View(self._proxy, lambda _, value, *__: value, label, "none")

    def _spread(self, shared: Floats) -> Floats:
        if self._all_shared:  # nothing is modified in place, so no copy is needed
            return shared
        full = np.zeros_like(self.iterate.z)
        full[self.shared] = shared
        return full

    def _part(self, values: Floats) -> Floats:
        """Return the coupling coordinates of values."""
        return values if self._all_shared else values[self.shared]


class WarmStart:
    """An agent's warm start, computed once for all runs with the same warm start.

    It uses public data without noise, so the same orders give the same replies.
    """

    def __init__(self) -> None:
        self._cached: list[tuple[Order, Reply]] = []
        self._end: Iterate | None = None
        self._replied = 0  # in this run; the agent's state is there unless more are stored

    def reset(self) -> None:
        """Start again with the first order."""
        self._replied = 0

    def reply(self, agent: Agent, order: Order) -> Reply:
        """Return the agent's reply; a stored one while the orders are the same as before."""
        if self._replied < len(self._cached):
            cached_order, reply = self._cached[self._replied]
            if _same_order(cached_order, order):
                self._replied += 1
                if self._replied == len(self._cached) and self._end is not None:
                    agent.iterate = self._end
                return reply
            self._drop_later(agent)
        reply = agent.warm_start(order)
        self._cached.append((order, reply))
        self._end, self._replied = agent.iterate, len(self._cached)
        return reply

    def leave(self, agent: Agent) -> None:
        """Set the agent to the end of its warm start."""
        if 0 < self._replied < len(self._cached):
            self._drop_later(agent)

    def _drop_later(self, agent: Agent) -> None:
        for order, _ in self._cached[: self._replied]:
            agent.warm_start(order)
        del self._cached[self._replied :]
        self._end = agent.iterate


def _same_order(item: Order, other: Order) -> bool:
    return (item.number, item.step) == (other.number, other.step) and (
        item.w.tobytes() + item.penalty.tobytes() == other.w.tobytes() + other.penalty.tobytes()
    )

"""An agent: lines 11-23 of Algorithm 3.1 (Ryu and Kim 2022)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gridpriv.consensus.messages import Order, Reply
from gridpriv.consensus.problem import (
    AgentReleases,
    AgentRules,
    AgentState,
    Effort,
    Figures,
    Iterate,
    LocalProblem,
    Minimiser,
    Place,
    Streams,
)
from gridpriv.core.arrays import Floats
from gridpriv.core.errors import SolverError
from gridpriv.privacy.perturbation import Target
from gridpriv.privacy.release import Charging, Release

Perturb = Callable[[str, Floats, Place, Floats], Floats]
"""From a target, a value, its place and the local metric to what may be used of the value."""

NOISY = 3.0  # scales of noise that a trial's w is away


@dataclass(frozen=True, eq=False)
class View:
    """The data of a round: private data behind noise, or the public proxy as it is.

    Attributes
    ----------
    called : str
        The round, in words.
    released : {'none', 'objective', 'output', 'demand'}
        What of it is released. The noise of an output covers how far the minimiser moves, not a
        solver's error; demand and gradient are released before a solver sees them.
    """

    data: Floats
    perturb: Perturb
    called: str
    released: Target


@dataclass(frozen=True, eq=False)
class Attraction:
    """The attraction of minimisers to global variables: -<pull, z> + 1/2 z' diag(rho) z.

    Attributes
    ----------
    pull : (n,)
        rho w + dual.
    rho : (n,)
        0 on coordinates that nobody shares.
    step : float
        eta, of the proximal term of a linearized update.
    """

    pull: Floats
    rho: Floats
    step: float


class Agent:
    """One agent's state: its iterate, its duals and its releases.

    Parameters
    ----------
    data : array
        Private.
    shared : (n,) bool
        Which coordinates another agent (or, under consensus ``all``, the server) holds.
    charge : Charging, optional
        Called with every release before its noise is drawn; refusing raises.
    proxy : array, optional
        Public estimate of the data, for the warm start.

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
    ) -> None:
        self.problem, self.shared, self.data = problem, shared, data
        self.releases = AgentReleases(problem, data, rules, streams, charge)
        self._whole = bool(shared.all())
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
        """Return a copy on other data and noise, in the same state and around the same problem."""
        shared = (self.problem, self.rules, self.shared)
        twin = copy.deepcopy(self, {id(part): part for part in shared})
        twin.data, twin.releases.estimate, twin.releases.streams = data, data, streams
        return twin

    def ready(self, order: Order) -> Reply:
        """Try a round on the public proxy and forget it: what cannot work fails before it costs.

        The solver is asked for what it will be asked for in rounds: where its errors count, for a
        minimiser near a w as far from the proxy's as noise may carry it.
        """
        view = self._public_view("warm-start round")
        release = self.release(order.penalty, order.step)
        if self.releases.certifies_minimisers and release is not None:
            signs = np.where(np.arange(len(order.w)) % 2, -1.0, 1.0)
            order = replace(order, w=order.w + NOISY * release.mechanism.scale * signs)
        self._updated(order, replace(view, released=self.rules.perturbation.target))
        return Reply(np.zeros(0), {})

    def warm_start(self, order: Order) -> Reply:
        """Run a round on the public proxy, without noise: nothing private is touched."""
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
        """Release the data's statistics; return what they leave likely of the data (public)."""
        self.releases.begin_round()
        return self.releases.perturb("demand", self.data, (1, 1), np.zeros_like(self.iterate.z))

    def reuse(self, estimate: Floats) -> None:
        """Use the estimate of an earlier release; draw nothing where noise is drawn once."""
        draw = self.rules.perturbation.drawn_at(1, 1)
        self.releases.draw, self.releases.estimate = draw, estimate

    def set_iterate(self, z: Floats) -> None:
        """Take a schedule that was made of what all have disclosed, in place of rounds."""
        self.iterate = Iterate(z, z, np.zeros_like(z))

    def figures(self) -> Figures:
        """Return the figures of the last round; private."""
        values = self.problem.figures(self.iterate.average, self.data)
        return Figures(values, self.releases.magnitude, self._effort)

    def drawn(self) -> dict[Release, int]:
        """Return every release so far, those of a round that failed included: what was charged."""
        return dict(self.releases.drawn)

    def state(self) -> AgentState:
        """Return the state from which another agent of the same problem and data can go on."""
        releases = self.releases
        estimate = np.zeros(0) if releases.draw is None else releases.estimate
        return AgentState(self.iterate, releases.draw, estimate, self.drawn())

    def resume(self, state: AgentState) -> None:
        """Go on from where a state was taken."""
        self.iterate = state.at
        estimate = self.data if state.draw is None else state.estimate
        self.releases.resume(state.draw, estimate, state.drawn)

    def miss(self, order: Order) -> None:
        """Note a round that went on with what was sent last: nothing is drawn or solved."""
        at = self.iterate
        dual = at.dual + self._spread(order.penalty * (order.w - self._part(at.average)))
        self.iterate = Iterate(at.z, at.average, dual)

    def smoothness(self) -> float:
        """Return L of the agent's objective (public)."""
        return self.problem.smoothness

    def release(self, penalty: Floats, step: float) -> Release | None:
        """Return the release of one draw at this penalty and step; None without one (public).

        None also for a quantity without coordinates, and for one that no private datum moves.
        """
        perturbation = self.rules.perturbation
        if self.releases.draw is not None and perturbation.noise_schedule == "once":
            return None
        exact, rho = self.rules.update == "exact", self._spread(penalty)
        empty = perturbation.target == "output" and exact and not self.shared.any()
        return None if empty else self.releases.release(rho if exact else rho + 1.0 / step)

    def _updated(self, order: Order, view: View) -> tuple[Iterate, Effort]:
        """Return where a round leads from here, and what it took."""
        rho = self._spread(order.penalty)
        pull = self._spread(order.penalty * order.w) + self.iterate.dual
        attraction = Attraction(pull, rho, order.step)
        z, solved = self.iterate.z, []
        for e in range(1, self.rules.local_updates + 1):
            try:
                solved.append(self._local_update(z, (order.number, e), attraction, view))
            except SolverError as error:
                where = f"zone {self.problem.name}, {view.called} {order.number}, local update {e}"
                raise SolverError(f"{where}: {error}") from error
            z = solved[-1].z
        average = np.mean([m.z for m in solved], axis=0) if len(solved) > 1 else z
        dual = self.iterate.dual + self._spread(order.penalty * (order.w - self._part(average)))
        iterations, retries = sum(m.iterations for m in solved), sum(m.retries for m in solved)
        return Iterate(z, average, dual), Effort(iterations, retries, len(solved))

    def _local_update(self, z: Floats, place: Place, to: Attraction, view: View) -> Minimiser:
        """(3.2): the noisy linearized update from ``z``, or the exact one."""
        exact = self.rules.update == "exact"
        metric = to.rho if exact else to.rho + 1.0 / to.step
        at = np.zeros_like(z) if exact else z
        near, within = view.released != "output", math.inf
        if self.releases.certifies_minimisers and not near:
            within = self.releases.covered(metric)
        data = view.perturb("demand", view.data, place, metric)
        gradient = view.perturb("objective", self.problem.gradient(at, data), place, metric)
        if exact:
            minimise_exact = self.problem.minimise_exact(
                gradient - to.pull, metric, near=near, within=within
            )
        else:
            linear = gradient - to.pull - z / to.step
            minimise_exact = self.problem.minimise(linear, metric, near=near, within=within)
        released = self._released(minimise_exact.z, place, metric, view)
        return Minimiser(released, minimise_exact.iterations, minimise_exact.retries)

    def _released(self, z: Floats, place: Place, metric: Floats, view: View) -> Floats:
        """Perturb the minimiser: all of it where it is fed back, else what is sent."""
        if self.rules.update == "linearized":
            return view.perturb("output", z, place, metric)
        kept = z.copy()
        kept[self.shared] = view.perturb("output", z[self.shared], place, metric)
        return kept

    def _public_view(self, called: str) -> View:
        if self._proxy is None:
            raise ValueError("a warm start needs a proxy of the data")
        return View(self._proxy, lambda _, value, *__: value, called, "none")

    def _spread(self, shared: Floats) -> Floats:
        if self._whole:  # nothing is modified in place, so no copy is needed
            return shared
        full = np.zeros_like(self.iterate.z)
        full[self.shared] = shared
        return full

    def _part(self, values: Floats) -> Floats:
        """Return the shared coordinates of values."""
        return values if self._whole else values[self.shared]


class WarmStart:
    """An agent's warm start, computed once for all runs that warm start alike.

    It is on public data and without noise, so the same orders give the same replies.
    """

    def __init__(self) -> None:
        self._held: list[tuple[Order, Reply]] = []
        self._end: Iterate | None = None
        self._replied = 0  # in this run; the agent is there unless more are held

    def reset(self) -> None:
        """Begin with the first order again."""
        self._replied = 0

    def reply(self, agent: Agent, order: Order) -> Reply:
        """Return the agent's reply; a remembered one while the orders are those of before."""
        if self._replied < len(self._held):
            known, reply = self._held[self._replied]
            if _alike(known, order):
                self._replied += 1
                if self._replied == len(self._held) and self._end is not None:
                    agent.iterate = self._end
                return reply
            self._forget_the_rest(agent)
        reply = agent.warm_start(order)
        self._held.append((order, reply))
        self._end, self._replied = agent.iterate, len(self._held)
        return reply

    def leave(self, agent: Agent) -> None:
        """Let the agent go on to something else from where its warm start has come."""
        if 0 < self._replied < len(self._held):
            self._forget_the_rest(agent)

    def _forget_the_rest(self, agent: Agent) -> None:
        for order, _ in self._held[: self._replied]:
            agent.warm_start(order)
        del self._held[self._replied :]
        self._end = agent.iterate


def _alike(item: Order, other: Order) -> bool:
    return (item.number, item.step) == (other.number, other.step) and (
        item.w.tobytes() + item.penalty.tobytes() == other.w.tobytes() + other.penalty.tobytes()
    )

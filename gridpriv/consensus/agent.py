"""An agent: lines 11-23 of Algorithm 3.1 (Ryu and Kim 2022)."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridpriv.consensus.memory import AgentRules, Effort, Figures, Iterate, Memory, Place, Streams
from gridpriv.consensus.messages import Order, Reply
from gridpriv.consensus.problem import LocalProblem, Minimiser
from gridpriv.core.arrays import Floats
from gridpriv.core.errors import SolverError
from gridpriv.core.interrupts import uninterrupted
from gridpriv.privacy.perturbation import NoiseRule, Target
from gridpriv.privacy.release import Charging, Release
from gridpriv.privacy.sensitivity import reach

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
    """One agent's state: its iterate, its duals and, for noisy data, their last draw.

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
    """

    verbs = frozenset(
        {
            "ready",
            "release",
            "warm_start",
            "round",
            "disclose",
            "reuse",
            "adopt",
            "figures",
            "drawn",
            "smoothness",
        }
    )

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
        self.problem = problem
        self.shared = shared
        self._whole = bool(shared.all())
        start = problem.start()
        self._at = Iterate(start, start, np.zeros_like(start))
        self._data = data
        self._proxy = proxy
        self._rules = rules
        self._streams = streams
        self._charge = charge
        self._draw: Place | None = None
        self._estimate = data
        self._releases: Counter[Release] = Counter()
        self._drawn: Counter[Release] = Counter()
        self._magnitude = 0.0
        self._effort = Effort()

    @property
    def data(self) -> Floats:
        """The private data."""
        return self._data

    @property
    def released(self) -> Floats:
        """The data as others may know them: by the one release, or as they are without noise.

        Raises
        ------
        ValueError
            Where nothing of the data has been released yet, or something else is perturbed.
        """
        if self.released_data is None:
            raise ValueError(f"{self.problem.name}: no data have been released")
        return self.released_data

    @property
    def released_data(self) -> Floats | None:
        """The same, or None where ``released`` raises."""
        target = self._rules.perturbation.target
        drawn = target == "none" or (target == "demand" and self._draw is not None)
        return self._estimate if drawn else None

    @property
    def average(self) -> Floats:
        """The average of the last round's iterates; its shared part was sent."""
        return self._at.average

    @property
    def iterate(self) -> Iterate:
        """Where the agent stands; private once a round was run."""
        return self._at

    def stand(self, at: Iterate) -> None:
        """Stand where the same warm start has led before."""
        self._at = at

    def perform(self, verb: str, *given: Any) -> Any:
        """Do what a message asks for by name.

        Raises
        ------
        ValueError
            For a verb that no agent knows.
        """
        if verb not in self.verbs:
            raise ValueError(f"no agent knows the verb {verb!r}")
        return getattr(self, verb)(*given)

    def twin(self, data: Floats, streams: Streams) -> Agent:
        """Return a copy on other data and noise, in the same state and around the same problem."""
        shared = (self.problem, self._rules, self.shared)
        twin = copy.deepcopy(self, {id(part): part for part in shared})
        twin._data, twin._estimate, twin._streams = data, data, streams
        return twin

    def ready(self, order: Order) -> None:
        """Try a round on the public proxy and forget it: what cannot work fails before it costs.

        The solver is asked for what it will be asked for in rounds: where its errors count, for a
        minimiser near a w as far from the proxy's as noise may carry it.
        """
        view = self._public_view("warm-start round")
        release = self.release(order.penalty, order.step)
        if self._certifies_minimisers and release is not None:
            signs = np.where(np.arange(len(order.w)) % 2, -1.0, 1.0)
            order = replace(order, w=order.w + NOISY * release.mechanism.scale * signs)
        self._updated(order, replace(view, released=self._rules.perturbation.target))

    def warm_start(self, order: Order) -> Reply:
        """Run a round on the public proxy, without noise: nothing private is touched."""
        self._at, _ = self._updated(order, self._public_view("warm-start round"))
        return Reply(self._part(self._at.average), {})

    def round(self, order: Order) -> Reply:
        """Run one round: E local updates, their average, the dual update."""
        self._releases.clear()
        self._magnitude = 0.0
        private = View(self._data, self._perturb, "round", self._rules.perturbation.target)
        self._at, self._effort = self._updated(order, private)
        return Reply(self._part(self._at.average), dict(self._releases))

    def disclose(self) -> Floats:
        """Release the data's statistics; return what they leave likely of the data (public)."""
        self._releases.clear()
        self._magnitude = 0.0
        return self._perturb("demand", self._data, (1, 1), np.zeros_like(self._at.z))

    def reuse(self, estimate: Floats) -> None:
        """Go by what an earlier release leaves likely, and draw nothing where noise is kept."""
        self._draw, self._estimate = self._rules.perturbation.drawn_at(1, 1), estimate

    def adopt(self, z: Floats) -> None:
        """Take a schedule that was made of what all have disclosed, in place of rounds."""
        self._at = Iterate(z, z, np.zeros_like(z))

    def figures(self) -> Figures:
        """Return the figures of the last round; private."""
        return Figures(
            values=self.problem.figures(self._at.average, self._data),
            noise_magnitude=self._magnitude,
            effort=self._effort,
        )

    def drawn(self) -> dict[Release, int]:
        """Return every release so far, those of a round that failed included: what was charged."""
        return dict(self._drawn)

    def memory(self) -> Memory:
        """Return the state from which another agent of the same problem and data can go on."""
        estimate = np.zeros(0) if self._draw is None else self._estimate
        return Memory(self._at, self._draw, estimate, dict(self._drawn))

    def resume(self, memory: Memory) -> None:
        """Go on from where a memory was taken."""
        self._at, self._draw = memory.at, memory.draw
        self._estimate = self._data if memory.draw is None else memory.estimate
        self._drawn = Counter(memory.drawn)

    def miss(self, order: Order) -> None:
        """Note a round that went on with what was sent last: nothing is drawn or solved."""
        at = self._at
        apart = self._spread(order.penalty * (order.w - self._part(at.average)))
        self._at = Iterate(at.z, at.average, at.dual + apart)

    def smoothness(self) -> float:
        """Return L of the agent's objective (public)."""
        return self.problem.smoothness

    def release(self, penalty: Floats, step: float) -> Release | None:
        """Return the release of one draw at this penalty and step; None without one (public).

        None also for a quantity without coordinates, and for one that no private datum moves.
        """
        if self._draw is not None and self._rules.perturbation.noise_schedule == "once":
            return None
        exact = self._rules.update == "exact"
        rho = self._spread(penalty)
        empty = self._rules.perturbation.target == "output" and exact and not self.shared.any()
        return None if empty else self._release_at(rho if exact else rho + 1.0 / step)

    def _updated(self, order: Order, view: View) -> tuple[Iterate, Effort]:
        """Return where a round leads from here, and what it took."""
        rho = self._spread(order.penalty)
        pull = self._spread(order.penalty * order.w) + self._at.dual
        attraction = Attraction(pull, rho, order.step)
        z, solved = self._at.z, []
        for e in range(1, self._rules.local_updates + 1):
            try:
                solved.append(self._local_update(z, (order.number, e), attraction, view))
            except SolverError as error:
                where = f"zone {self.problem.name}, {view.called} {order.number}, local update {e}"
                raise SolverError(f"{where}: {error}") from error
            z = solved[-1].z
        average = np.mean([m.z for m in solved], axis=0) if len(solved) > 1 else z
        dual = self._at.dual + self._spread(order.penalty * (order.w - self._part(average)))
        iterations, retries = sum(m.iterations for m in solved), sum(m.retries for m in solved)
        return Iterate(z, average, dual), Effort(iterations, retries, len(solved))

    def _local_update(self, z: Floats, place: Place, to: Attraction, view: View) -> Minimiser:
        """(3.2): the noisy linearized update from ``z``, or the exact one."""
        exact = self._rules.update == "exact"
        metric = to.rho if exact else to.rho + 1.0 / to.step
        at = np.zeros_like(z) if exact else z
        near, within = view.released != "output", math.inf
        if self._certifies_minimisers and not near:
            within = self._covered(metric)
        data = view.perturb("demand", view.data, place, metric)
        gradient = view.perturb("objective", self.problem.gradient(at, data), place, metric)
        if exact:
            found = self.problem.minimise_exact(
                gradient - to.pull, metric, near=near, within=within
            )
        else:
            linear = gradient - to.pull - z / to.step
            found = self.problem.minimise(linear, metric, near=near, within=within)
        released = self._released(found.z, place, metric, view)
        return Minimiser(released, found.iterations, found.retries)

    def _released(self, z: Floats, place: Place, metric: Floats, view: View) -> Floats:
        """Perturb the minimiser: all of it where it is fed back, else what is sent."""
        if self._rules.update == "linearized":
            return view.perturb("output", z, place, metric)
        kept = z.copy()
        kept[self.shared] = view.perturb("output", z[self.shared], place, metric)
        return kept

    def _perturb(self, target: str, value: Floats, place: Place, metric: Floats) -> Floats:
        """Return ``value`` with noise if it is what this run perturbs; charge, then draw."""
        if self._rules.perturbation.target != target or not value.size:
            return value
        release = self._release_at(metric)
        if target == "demand":
            found = self._disclosed(release, value, place)
        else:
            found = self._released_at(release, value, place)
        self._magnitude += float(np.abs(found - value).sum())
        return found

    def _disclosed(self, release: Release | None, data: Floats, place: Place) -> Floats:
        """Return the estimate of the data by a release of its statistics; drawn when it is due."""
        draw = self._rules.perturbation.drawn_at(*place)
        if draw != self._draw:
            disclosure = self.problem.disclosure
            noisy = self._released_at(release, disclosure.measure(data), draw)
            self._draw, self._estimate = draw, disclosure.estimate(noisy, release)
        return self._estimate

    def _released_at(self, release: Release | None, value: Floats, place: Place) -> Floats:
        """Return the value with the noise of a place; as it is where nothing private is in it."""
        if release is None:
            return value
        self._pay(release)
        return release.apply(value, lambda: self._streams.stream(self.problem.key, *place))

    def _pay(self, release: Release) -> None:
        """Charge a release that is about to be drawn, and count it; an interrupt splits nothing.

        Where nobody is charged there is nothing to split: what is not drawn need not be counted.
        """
        if self._charge is None:
            self._count(release)
            return
        with uninterrupted():
            self._charge(self.problem.name, {release: 1})
            self._count(release)

    def _count(self, release: Release) -> None:
        self._releases[release] += 1
        self._drawn[release] += 1

    def _release_at(self, metric: Floats) -> Release | None:
        """Return the release of one draw in this metric; None where nothing private is in it."""
        noise = self._rules.noise
        if noise is None:
            return None
        sensitivity = self._sensitivity(noise, metric)
        return noise.release(sensitivity) if sensitivity.value else None

    def _sensitivity(self, noise: NoiseRule, metric: Floats) -> Any:
        rules = self._rules
        problem, adjacency = self.problem, rules.adjacency
        if rules.perturbation.target == "objective":
            return problem.gradient_sensitivity(adjacency, noise.norm)
        if rules.perturbation.target == "demand":
            return problem.disclosure.sensitivity(adjacency, noise.norm)
        exact = problem.output_sensitivity(adjacency, noise.norm, rules.update, metric)
        share = problem.solver_share[rules.update] if self._certifies_minimisers else 0.0
        return exact.widened(share)

    @property
    def _certifies_minimisers(self) -> bool:
        """Return True where errors of minimisers count, which a published sensitivity ignores."""
        noise = self._rules.noise
        output = self._rules.perturbation.target == "output"
        return output and noise is not None and noise.assumed is None

    def _covered(self, metric: Floats) -> float:
        """Return the error of a minimiser that its noise covers, in the norm of the metric."""
        noise, share = self._rules.noise, self.problem.solver_share[self._rules.update]
        met = metric[metric > 0.0]
        if noise is None or not share or not met.size:
            return math.inf
        noisy = self._sensitivity(noise, metric).value
        return 0.5 * share / (1.0 + share) * noisy / reach(met, noise.norm) or math.inf

    def _public_view(self, called: str) -> View:
        if self._proxy is None:
            raise ValueError("a warm start needs a proxy of the data")
        return View(self._proxy, _unperturbed, called, "none")

    def _spread(self, shared: Floats) -> Floats:
        if self._whole:  # nothing is modified in place, so no copy is needed
            return shared
        full = np.zeros_like(self._at.z)
        full[self.shared] = shared
        return full

    def _part(self, values: Floats) -> Floats:
        """Return the shared coordinates of values."""
        return values if self._whole else values[self.shared]


def _unperturbed(target: str, value: Floats, place: Place, metric: Floats) -> Floats:
    """Return a public value as it is."""
    del target, place, metric
    return value

"""A run as an adversary on the network observes it, and adjacent demands of its zones.

Messages are recorded in both directions, by round. Adjacent demands are
the worst by public topology, one for every class of buses, and random ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from gridpriv.consensus.agent import Agent, AgentRules, Streams
from gridpriv.consensus.messages import Order, Reply
from gridpriv.consensus.transport import Calls, InProcess, R, Transport, each
from gridpriv.core.arrays import Floats
from gridpriv.core.errors import SolverError, not_allowed
from gridpriv.power.problem import ZoneProblem
from gridpriv.power.zone_agent import public_proxy
from gridpriv.privacy.adjacency import DemandAdjacency
from gridpriv.privacy.noise import NoiseStreams
from gridpriv.privacy.perturbation import NoiseRule, Perturbation
from gridpriv.zonal.prepared import Prepared
from gridpriv.zonal.run import open_rounds, run_rounds

MakeAgent = Callable[..., Agent]
"""Builds an audited agent from the arguments of :class:`Agent`: that class, or a faulty variant."""
Watch = Callable[[str], None]
"""Called with a name after each part of the work."""


@dataclass(frozen=True, eq=False)
class RecordedRound(Order):
    """One round of one zone, as seen on the network: the order, and the reply to it.

    Attributes
    ----------
    warm_start : bool
        True for a round of the warm start, on the public proxy.
    """

    reply: Reply
    warm_start: bool

    @property
    def sent(self) -> Floats:
        """Reply of the zone, (m,)."""
        return self.reply.sent


OWN = ("metrics", "outcome", "drawn", "plan")
"""Methods of a simulation whose results stay with the zone's owner."""


class RecordingTransport:
    """A transport that records everything that crosses the network, and each zone's rounds.

    Every argument of a call comes from the coordinator. Answers are recorded except those that stay
    with the owner (:data:`OWN`). Only the first plan is recorded: replans depend on measurements.
    """

    def __init__(self, inner: Transport, zones: int) -> None:
        self._inner, self._zones = inner, zones
        self.crossed: list[tuple[str, Any, Any]] = []
        self.recorded: list[list[RecordedRound]] = [[] for _ in range(zones)]

    def call_all(self, calls: Calls[R]) -> list[R | Exception]:
        """Call every zone; record the calls and the answers that are sent."""
        outcomes = self._inner.call_all(calls)
        sent = each(calls, self._zones)
        name, given = sent[0].method.__name__, [request.arguments for request in sent]
        if name not in OWN:
            self.crossed.append((name, given, outcomes))
        elif name == "plan" and all(method != "plan" for method, _, _ in self.crossed):
            self.crossed.append((name, given, None))
        warm = name == "warm_start"
        for script, call, reply in zip(self.recorded, sent, outcomes, strict=True):
            if (warm or name == "round") and isinstance(reply, Reply):
                (order,) = call.arguments
                script.append(RecordedRound(**vars(order), reply=reply, warm_start=warm))
        return outcomes

    def close(self) -> None:
        """Close the transport."""
        self._inner.close()


def record_run(
    prepared: Prepared,
    seed: int | None = None,
    *,
    make_agent: MakeAgent = Agent,
    data: Sequence[Floats] | None = None,
) -> RecordingTransport:
    """Run the consensus algorithm as :func:`gridpriv.zonal.run.run` does and record its messages.

    Parameters
    ----------
    seed : int, optional
        Of the simulated noise; the prepared run's own if not given.
    data : sequence of array, optional
        Every zone's demand, in place of its own.

    Raises
    ------
    InputError
        For a run without rounds, where a zone sends only its release.
    """
    if prepared.settings.coordination == "central":
        raise not_allowed(
            "coordination",
            "central",
            "'rounds': audits and attacks observe rounds; with one central schedule all that "
            "leaves a zone is the release, which --release studies as well",
        )
    streams = NoiseStreams(prepared.seed if seed is None else seed)
    agents = [
        zone_agent(prepared, zone, own, prepared.rules, streams, make_agent)
        for zone, own in enumerate(data or [None] * len(prepared.zones))
    ]
    transport = RecordingTransport(InProcess(agents), len(agents))
    settings = replace(
        prepared.settings,
        planning="soc",
        acceleration="anderson" if prepared.settings.repeats() else "none",
    )
    relaxed = varied(prepared, settings=settings)
    deque(run_rounds(relaxed, transport, open_rounds(relaxed, transport)), maxlen=0)
    return transport


def zone_agent(
    prepared: Prepared,
    zone: int,
    data: Floats | None,
    rules: AgentRules,
    streams: Streams,
    make_agent: MakeAgent = Agent,
) -> Agent:
    """Return the agent of the zone at a position, on its own demand or on ``data``."""
    problem, shared = prepared.problems[zone], prepared.shared[zone]
    own = problem.program.zone
    demand = own.demand if data is None else data
    return make_agent(problem, demand, shared, rules, streams, proxy=public_proxy(own))


def varied(prepared: Prepared, **changes: Any) -> Prepared:
    """Return a prepared run with other rules or settings, around the same compiled problems.

    Zones, consensus and solver are the same.
    """
    twin = replace(prepared, **changes)
    twin.__dict__["problems"] = prepared.problems
    return twin


def rule_of(prepared: Prepared) -> NoiseRule:
    """Return the noise rule of a run that has one."""
    assert prepared.rules.noise is not None
    return prepared.rules.noise


def with_fresh_noise(prepared: Prepared) -> Prepared:
    """Return the run with noise drawn in every round, if it is drawn once; else the run."""
    if prepared.rules.perturbation.noise_schedule != "once":
        return prepared
    return varied(
        prepared, rules=replace(prepared.rules, perturbation=Perturbation("demand", "round"))
    )


def opening(script: Sequence[RecordedRound]) -> Sequence[RecordedRound]:
    """Return the warm start, if there is one, and the first noisy round."""
    return script[: sum(record.warm_start for record in script) + 1]


def answer(agent: Agent, record: RecordedRound) -> Reply:
    """Return the agent's answer to the order of a recorded round.

    Raises
    ------
    SolverError
        With the zone and round, from the agent.
    """
    try:
        return agent.warm_start(record) if record.warm_start else agent.round(record)
    except SolverError as error:
        error.add_note("while a recorded run was played again")
        raise


@dataclass(frozen=True, eq=False)
class Neighbour:
    """A change of one bus's demand within the adjacency.

    Attributes
    ----------
    bus : int
        Bus number.
    dp, dq : float
        Change of its active and reactive demand, per unit.
    change : (2 |N_z|,)
        The same as a change of the zone's data.
    """

    bus: int
    dp: float
    dq: float
    change: Floats

    def __str__(self) -> str:
        return f"bus {self.bus}, dp {self.dp:+.3g}, dq {self.dq:+.3g} p.u."


def neighbour(problem: ZoneProblem, own: int, dp: float, dq: float) -> Neighbour:
    """Return the adjacent demand with own bus number ``own`` (0..|N_z|-1) changed by (dp, dq)."""
    zone = problem.program.zone
    change = np.zeros(2 * len(zone.own))
    change[own], change[own + len(zone.own)] = dp, dq
    return Neighbour(int(zone.network.case.bus_id[zone.own[own]]), dp, dq, change)


def corners(adjacency: DemandAdjacency) -> list[tuple[float, float]]:
    """Return the extreme (dp, dq) of an adjacency."""
    beta, factors, signs = adjacency.beta, adjacency.power_factors, (1.0, -1.0)
    if factors is not None:
        middle, half = factors.middle, factors.half
        return [(p * beta, (p * middle + q * half) * beta) for p, q in product(signs, repeat=2)]
    p_signs, q_signs = (signs if part in adjacency.protects else (0.0,) for part in "pq")
    return [(p * beta, q * beta) for p, q in product(p_signs, q_signs)]


def gradient_norms(problem: ZoneProblem, adjacency: DemandAdjacency) -> Floats:
    """Return the largest change of the gradient by each own bus, in the 2-norm, (|N_z|,)."""
    own = len(problem.program.zone.own)
    changes = [
        [problem.program.pull(other.change) for other in _corners_at(problem, adjacency, bus)]
        for bus in range(own)
    ]
    return np.asarray(np.linalg.norm(changes, axis=2).max(axis=1))


def worst_neighbours(problem: ZoneProblem, adjacency: DemandAdjacency) -> list[Neighbour]:
    """Return every corner change at the bus that changes the gradient most."""
    return _corners_at(problem, adjacency, int(np.argmax(gradient_norms(problem, adjacency))))


def _corners_at(problem: ZoneProblem, adjacency: DemandAdjacency, own: int) -> list[Neighbour]:
    return [neighbour(problem, own, dp, dq) for dp, dq in corners(adjacency)]


def class_neighbours(problem: ZoneProblem, adjacency: DemandAdjacency) -> list[Neighbour]:
    """Return corner changes at one bus of every class that a zone has.

    The classes are buses with demand and without, with generators, with shunts, at tie lines, at
    the reference, and inside the zone at a single line. For each class it is the bus that changes
    the gradient most, with one of each pair of opposite corners.
    """
    zone = problem.program.zone
    case, own = zone.network.case, zone.own
    across = ~np.isin(case.f_bus, own) | ~np.isin(case.t_bus, own)
    tied = np.union1d(case.f_bus[across], case.t_bus[across])
    degree = np.bincount(np.concatenate([case.f_bus, case.t_bus]), minlength=case.n_bus)
    loaded = (case.pd != 0.0) | (case.qd != 0.0)
    generates = np.isin(own, case.gen_bus)
    classes = (
        loaded[own],
        ~loaded[own],
        generates,
        (case.gs != 0.0)[own] | (case.bs != 0.0)[own],
        np.isin(own, tied),
        case.reference[own],
        degree[own] == 1,
        ~generates & ~loaded[own],
    )
    norms = gradient_norms(problem, adjacency)
    buses = {int(np.argmax(np.where(members, norms, -1.0))) for members in classes if members.any()}
    unpaired = corners(adjacency)[: 2 if adjacency.protects == "p+q" else 1]
    return [neighbour(problem, bus, dp, dq) for bus in sorted(buses) for dp, dq in unpaired]


def corner_neighbours(
    problem: ZoneProblem, adjacency: DemandAdjacency, bus_id: int
) -> list[Neighbour]:
    """Return every corner change at a bus of the zone."""
    zone = problem.program.zone
    own = int(np.flatnonzero(zone.network.case.bus_id[zone.own] == bus_id)[0])
    return _corners_at(problem, adjacency, own)


def random_neighbours(
    problem: ZoneProblem, adjacency: DemandAdjacency, count: int, generator: np.random.Generator
) -> list[Neighbour]:
    """Return adjacent demands at random buses, uniform within the adjacency."""
    own = len(problem.program.zone.own)
    drawn = []
    for _ in range(count):
        bus = int(generator.integers(own))
        dp, dq = generator.uniform(-adjacency.beta, adjacency.beta, 2)
        if adjacency.power_factors is not None:
            dq = adjacency.power_factors.middle * dp + adjacency.power_factors.half * dq
        p, q = ("p" in adjacency.protects) * float(dp), ("q" in adjacency.protects) * float(dq)
        drawn.append(neighbour(problem, bus, p, q))
    return drawn

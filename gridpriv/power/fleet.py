"""The zones of a run: each an agent, and an owner who may look at its private figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridpriv.consensus.agent import Agent
from gridpriv.consensus.kept import WarmStart
from gridpriv.consensus.memory import AgentRules, Streams
from gridpriv.consensus.settings import SolverTolerance
from gridpriv.consensus.transport import Performer
from gridpriv.core.arrays import Floats, Ints
from gridpriv.power.ac.joint import TieEnds, ZoneBlock, zone_block
from gridpriv.power.ac.quadratic import Solved
from gridpriv.power.ac.redispatch import (
    Boundary,
    Scheduled,
    ZonePlan,
    operating_unit,
    plan_zone,
)
from gridpriv.power.ac.service import Service
from gridpriv.power.objective import ObjectiveKind
from gridpriv.power.prior import capacity
from gridpriv.power.problem import ZoneProblem
from gridpriv.power.program import compile_zone
from gridpriv.power.zone import Zone
from gridpriv.privacy.release import Charging
from gridpriv.privacy.strategies.disclosure import Disclosure

# A stand-in for demand that nobody has to protect: a share of the generating capacity, equal
# at every bus, at a usual power factor. With a price on generation it is near the usual load over
# capacity (0.6), so that the warm start provides prices as well as points.
# docs/decisions/0007-warm-start.md compares shares.
PROXY_SHARE: dict[ObjectiveKind, float] = {"imbalance": 0.3, "cost": 0.5, "losses": 0.5}
PROXY_REACTIVE = 0.3


@dataclass(frozen=True, eq=False)
class Fleet:
    """The zones of a run as a crew: whoever is sent it makes the zones that it is asked for."""

    zones: tuple[Zone, ...]
    shared: tuple[NDArray[np.bool_], ...]
    rules: AgentRules
    solver: str
    streams: Streams
    disclosures: tuple[Disclosure | None, ...]
    charge: Charging | None = None
    service: Service = field(default_factory=Service)
    solver_tolerance: SolverTolerance = "tight"

    @property
    def sizes(self) -> list[int]:
        """Number of variables of every zone."""
        return [len(zone.coordinates) for zone in self.zones]

    def members(self, positions: Sequence[int]) -> list[Performer]:
        """Return the zones at these positions, compiled."""
        unit = operating_unit(self.zones[0].network.case)
        return [self._member(position, unit) for position in positions]

    def beginnings(self) -> list[list[Any]]:
        """Return every zone's rules, noise streams, disclosure and charge."""
        alike: list[Any] = [self.rules, self.streams, self.charge]
        rules, streams, charge = ([one] * len(self.zones) for one in alike)
        return [rules, streams, list(self.disclosures), charge]

    def _member(self, position: int, unit: float | None) -> ZoneMember:
        problem = ZoneProblem(
            compile_zone(self.zones[position]), self.solver, solver_tolerance=self.solver_tolerance
        )
        member = ZoneMember(problem, self.shared[position], self.service, unit)
        member.begin(self.rules, self.streams, self.disclosures[position], self.charge)
        return member


@dataclass(eq=False)
class ZoneMember:
    """A zone: its agent, and what its owner does with the last round besides."""

    problem: ZoneProblem
    shared: NDArray[np.bool_]
    service: Service
    unit: float | None
    agent: Agent = field(init=False)
    _warm_start: WarmStart = field(init=False, default_factory=WarmStart)
    _planned: Solved | None = field(init=False, default=None)
    _ac: ZoneBlock | None = field(init=False, default=None)

    def begin(
        self,
        rules: AgentRules,
        streams: Streams,
        disclosure: Disclosure | None,
        charge: Charging | None,
    ) -> None:
        """Begin a run, another one's iterates and draws forgotten.

        What is compiled stays, and so does the warm start where zones' solvers have no memory.
        """
        if hasattr(self, "agent") and self.problem.solver.startswith("pyomo:"):
            self.problem = ZoneProblem(
                self.problem.program,
                self.problem.solver,
                solver_tolerance=self.problem.solver_tolerance,
            )
            self._warm_start = WarmStart()
        self.problem = self.problem.disclosing(disclosure)
        self._warm_start.begin()
        self._planned = self._ac = None
        zone = self.problem.program.zone
        self.agent = Agent(
            self.problem, zone.demand, self.shared, rules, streams, charge, public_proxy(zone)
        )

    def perform(self, verb: str, *given: Any) -> Any:
        """Do what a verb names: what an owner does here, the rest is the agent's."""
        if verb == "begin":
            return self.begin(*given)
        if verb == "warm_start":
            return self._warm_start.reply(self.agent, *given)
        self._warm_start.leave(self.agent)
        if verb == "outcome":
            return self.outcome(self.agent.average)
        if verb == "plan":
            return self.plan(*given)
        if verb == "ac_open":
            return self.ac_open(*given)
        if verb.startswith("ac_"):
            return None if self._ac is None else self.ac_verb(self._ac, verb, *given)
        return self.agent.perform(verb, *given)

    def ac_open(self, ends: TieEnds, estimated: bool) -> Ints | None:
        """Begin AC rounds on the released demand; return the numbers of the border entries."""
        self._ac = zone_block(
            self.problem.program.zone,
            self.agent.released,
            ends,
            self.service.voll,
            self.unit,
            estimated=estimated,
        )
        return None if self._ac is None else self._ac.at

    def ac_verb(self, zone: ZoneBlock, verb: str, *given: Any) -> Any:
        """Answer a verb of AC rounds; every answer is a function of released demand."""
        block = zone.block
        match verb:
            case "ac_begin":
                block.begin(*given)
                return block.merit(block.point, *given)
            case "ac_merit":
                return block.merit(block.point, *given)
            case "ac_eliminate":
                return block.eliminate(*given)
            case "ac_direction":
                return block.direction(*given)
            case "ac_trial":
                return block.trial(*given)
            case "ac_accept":
                return block.accept()
            case "ac_schedule":
                return zone.voltage, zone.slope, zone.price_level
        raise ValueError(f"no zone knows the verb {verb!r}")

    def outcome(self, z: Floats) -> ZoneOutcome:
        """Return the zone at z, by its true demand."""
        p, q = np.split(self.problem.imbalance(z, self.agent.data), 2)
        return ZoneOutcome(z, p, q, self.agent.released_data)

    def plan(self, boundary: Boundary | None) -> ZonePlan | None:
        """Return the zone's plan at a boundary; None keeps its plan."""
        if boundary is None:
            return None
        agent = self.agent
        zone = self.problem.program.zone
        plan, self._planned = plan_zone(
            zone,
            agent.data,
            boundary,
            self.service,
            self.unit,
            agent.average,
            self._planned,
            self._scheduled(boundary),
        )
        return plan

    def _scheduled(self, boundary: Boundary) -> Scheduled | None:
        """Return the zone at the AC schedule: of its AC rounds, or as a coordinator sent it."""
        if boundary.worth is None:
            return None
        if self._ac is not None:
            return self._ac.scheduled
        zone, z = self.problem.program.zone, self.agent.average
        start, number = zone.network.offsets, zone.coordinates
        pg, qg = (
            z[(number >= start[name]) & (number < start[end])]
            for name, end in (("pg", "qg"), ("qg", "pc"))
        )
        return Scheduled(boundary.worth.voltage, pg, qg)


def public_proxy(zone: Zone) -> Floats:
    """Return a public estimate of the zone's demand: (p, q) of its own buses."""
    case = zone.network.case
    share = PROXY_SHARE[zone.network.objective.kind]
    active = np.full(len(zone.own), share * capacity(case) / case.n_bus)
    return np.concatenate([active, PROXY_REACTIVE * active])


@dataclass(frozen=True, eq=False)
class ZoneOutcome:
    """A zone after the last round; private, but for ``released``.

    Attributes
    ----------
    z : (n,)
        Its average.
    p_imbalance, q_imbalance : (own,)
        At that average.
    released : (2 own,) or None
        Its demand as others may know it: p, then q. None where no demand was released.
    """

    z: Floats
    p_imbalance: Floats
    q_imbalance: Floats
    released: Floats | None = None

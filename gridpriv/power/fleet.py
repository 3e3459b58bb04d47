"""The zones of a run: each an agent, and an owner who may look at its private figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridpriv.consensus.agent import Agent
from gridpriv.consensus.kept import Rehearsal
from gridpriv.consensus.memory import AgentRules, Streams
from gridpriv.consensus.settings import Accuracy
from gridpriv.consensus.transport import Performer
from gridpriv.core.arrays import Floats
from gridpriv.power.ac.quadratic import Solved
from gridpriv.power.ac.recourse import Boundary, ZonePlan, operating_unit, plan_zone
from gridpriv.power.ac.service import Service
from gridpriv.power.objective import ObjectiveKind
from gridpriv.power.prior import capacity
from gridpriv.power.problem import ZoneProblem
from gridpriv.power.program import compile_zone
from gridpriv.power.zone import Zone
from gridpriv.privacy.release import Charging
from gridpriv.privacy.strategies.disclosure import Disclosure

# A stand-in for demand that nobody has to protect: a share of the generating capacity, equal
# at every bus, at a usual power factor. With a price on generation the share is small, because
# what the proxy leaves unserved would rehearse prices of M. docs/decisions/0007-public-proxy.md
# compares shares.
PROXY_SHARE: dict[ObjectiveKind, float] = {"imbalance": 0.3, "cost": 0.1, "losses": 0.1}
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
    accuracy: Accuracy = "exact"

    @property
    def sizes(self) -> list[int]:
        """Number of variables of every zone."""
        return [len(zone.coordinates) for zone in self.zones]

    def members(self, positions: Sequence[int]) -> list[Performer]:
        """Return the zones at these positions, compiled."""
        unit = operating_unit(self.zones[0].network.case)
        return [self._member(position, unit) for position in positions]

    def beginnings(self) -> list[list[Any]]:
        """Return what every zone begins with: rules, streams, disclosure and charge."""
        alike: list[Any] = [self.rules, self.streams, self.charge]
        rules, streams, charge = ([one] * len(self.zones) for one in alike)
        return [rules, streams, list(self.disclosures), charge]

    def _member(self, position: int, unit: float | None) -> ZoneMember:
        problem = ZoneProblem(
            compile_zone(self.zones[position]), self.solver, accuracy=self.accuracy
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
    _rehearsal: Rehearsal = field(init=False, default_factory=Rehearsal)
    _planned: Solved | None = field(init=False, default=None)

    def begin(
        self,
        rules: AgentRules,
        streams: Streams,
        disclosure: Disclosure | None,
        charge: Charging | None,
    ) -> None:
        """Begin a run, another one's iterates and draws forgotten.

        What is compiled stays, and so does the rehearsal where zones' solvers have no memory.
        """
        if hasattr(self, "agent") and self.problem.solver.startswith("pyomo:"):
            self.problem = ZoneProblem(
                self.problem.program, self.problem.solver, accuracy=self.problem.accuracy
            )
            self._rehearsal = Rehearsal()
        self.problem = self.problem.disclosing(disclosure)
        self._rehearsal.begin()
        self._planned = None
        zone = self.problem.program.zone
        self.agent = Agent(
            self.problem, zone.demand, self.shared, rules, streams, charge, public_proxy(zone)
        )

    def perform(self, verb: str, *given: Any) -> Any:
        """Do what a verb names: what an owner does here, the rest is the agent's."""
        if verb == "begin":
            return self.begin(*given)
        if verb == "rehearse":
            return self._rehearsal.reply(self.agent, *given)
        self._rehearsal.leave(self.agent)
        if verb == "outcome":
            return self.outcome(self.agent.average)
        if verb == "plan":
            return self.plan(*given)
        return self.agent.perform(verb, *given)

    def outcome(self, z: Floats) -> ZoneOutcome:
        """Return the zone at z, by its true demand."""
        p, q = np.split(self.problem.imbalance(z, self.agent.data), 2)
        return ZoneOutcome(z, p, q)

    def plan(self, boundary: Boundary | None) -> ZonePlan | None:
        """Return what the zone would do at a boundary; None keeps its plan."""
        if boundary is None:
            return None
        agent = self.agent
        zone = self.problem.program.zone
        plan, self._planned = plan_zone(
            zone, agent.data, boundary, self.service, self.unit, agent.average, self._planned
        )
        return plan


def public_proxy(zone: Zone) -> Floats:
    """Return a public stand-in for the zone's demand: (p, q) of its own buses."""
    case = zone.network.case
    share = PROXY_SHARE[zone.network.objective.kind]
    active = np.full(len(zone.own), share * capacity(case) / case.n_bus)
    return np.concatenate([active, PROXY_REACTIVE * active])


@dataclass(frozen=True, eq=False)
class ZoneOutcome:
    """A zone after the last round; private.

    Attributes
    ----------
    z : (n,)
        Its average.
    p_imbalance, q_imbalance : (own,)
        At that average.
    """

    z: Floats
    p_imbalance: Floats
    q_imbalance: Floats

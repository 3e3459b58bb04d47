"""The zones of a run as agents, in this process or in workers that compile and hold them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gridpriv.consensus.agent import Agent, AgentRules
from gridpriv.consensus.transport import InProcess, Transport, Workers
from gridpriv.core.arrays import Floats
from gridpriv.power.objective import ObjectiveKind
from gridpriv.power.prior import capacity
from gridpriv.power.problem import ZoneProblem
from gridpriv.power.program import compile_zone
from gridpriv.power.recourse import Pin, pinned_solution
from gridpriv.power.zone import Zone
from gridpriv.privacy.noise import NoiseStreams
from gridpriv.privacy.release import Release

Charge = Callable[[str, dict[Release, int]], None]

# A stand-in for demand that nobody has to protect: a share of the generating capacity, equal
# at every bus, at a usual power factor. With a cost the share is small, because what the proxy
# leaves unserved would rehearse prices of M. docs/decisions/0007-public-proxy.md compares shares.
PROXY_SHARE: dict[ObjectiveKind, float] = {"imbalance": 0.3, "cost": 0.1}
PROXY_REACTIVE = 0.3


@dataclass(frozen=True, eq=False)
class FleetPlan:
    """Everything a process needs to make agents of zones (it is sent to workers)."""

    zones: tuple[Zone, ...]
    shared: tuple[NDArray[np.bool_], ...]
    rules: AgentRules
    solver: str
    streams: NoiseStreams
    charge: Charge | None = None

    def __call__(self, positions: Sequence[int]) -> list[Agent]:
        """Return the agents of the zones at these positions."""
        return [self._agent(ZoneProblem(compile_zone(self.zones[i]), self.solver), i)
                for i in positions]  # fmt: skip

    def around(self, problems: Sequence[ZoneProblem]) -> list[Agent]:
        """Return the agents of problems that are already compiled, in the zones' order."""
        return [self._agent(problem, i) for i, problem in enumerate(problems)]

    def _agent(self, problem: ZoneProblem, position: int) -> Agent:
        zone = self.zones[position]
        return Agent(
            problem,
            zone.demand,
            self.shared[position],
            self.rules,
            self.streams,
            self.charge,
            public_proxy(zone),
        )


def make_transport(
    plan: FleetPlan, workers: int, problems: Sequence[ZoneProblem] | None
) -> Transport:
    """Return the zones' agents behind a transport."""
    if workers == 1:
        agents = plan(range(len(plan.zones))) if problems is None else plan.around(problems)
        return InProcess(agents)
    return Workers(plan, [len(zone.coordinates) for zone in plan.zones], workers)


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


def outcome(agent: Agent, _: None = None) -> ZoneOutcome:
    """Return an agent's zone after the last round."""
    problem = agent.problem
    assert isinstance(problem, ZoneProblem)
    p, q = np.split(problem.imbalance(agent.average, agent.data), 2)
    return ZoneOutcome(agent.average, p, q)


def after_recourse(agent: Agent, pin: Pin) -> ZoneOutcome | None:
    """Return an agent's zone after recourse, or None where the pinned problem has no solution."""
    problem = agent.problem
    assert isinstance(problem, ZoneProblem)
    z = pinned_solution(problem, agent.data, pin)
    if z is None:
        return None
    p, q = np.split(problem.imbalance(z, agent.data), 2)
    return ZoneOutcome(z, p, q)


def smoothness(agent: Agent, _: None = None) -> float:
    """Return L of an agent's objective."""
    return agent.problem.smoothness

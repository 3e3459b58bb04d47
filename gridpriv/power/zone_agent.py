"""The zones of a run: each an agent, with methods for its owner that return its own values."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from gridpriv.consensus.agent import Agent, AgentRules, RoundMetrics, Streams, WarmStart
from gridpriv.consensus.messages import Order, Reply
from gridpriv.consensus.schedules import SolverTolerance
from gridpriv.consensus.transport import Call, call
from gridpriv.core.arrays import Complexes, Floats, Ints
from gridpriv.power.ac.block import Block, R
from gridpriv.power.ac.joint import TieEnds, ZoneBlock, zone_block
from gridpriv.power.ac.quadratic import Compiled, Solved
from gridpriv.power.ac.zone_redispatch import (
    Boundary,
    ScheduledState,
    ZonePlan,
    operating_unit,
    plan_zone,
)
from gridpriv.power.objective import ObjectiveKind, Service
from gridpriv.power.prior import bus_ranges, capacity
from gridpriv.power.problem import ZoneProblem
from gridpriv.power.program import compile_zone
from gridpriv.power.zone import Zone, coordinates, within_limits_without_load
from gridpriv.privacy.linear import Disclosure
from gridpriv.privacy.release import Charging, KeptReleases, Release

if TYPE_CHECKING:
    from gridpriv.power.conic_block import ConicBlock

# Public substitute for demand in the warm start: a share of the generating capacity, equal at every
# bus, at a usual power factor. With a price on generation it is near the usual load over capacity
# (0.6), so the warm start also provides prices. docs/decisions/0007-warm-start.md compares shares.
PROXY_SHARE: dict[ObjectiveKind, float] = {"imbalance": 0.3, "cost": 0.5, "losses": 0.5}
PROXY_REACTIVE = 0.3


MOST_COMPILED = 400
"""Number of compiled redispatch programs of all zones, of up to 1 MiB each."""


@dataclass(frozen=True, eq=False)
class ZoneAgentFactory:
    """Factory of the zones of a run, by their positions."""

    zones: tuple[Zone, ...]
    shared: tuple[NDArray[np.bool_], ...]
    rules: AgentRules
    solver: str
    streams: Streams
    disclosures: tuple[Disclosure | None, ...]
    charge: Charging | None = None
    service: Service = field(default_factory=Service)
    solver_tolerance: SolverTolerance = "tight"
    kept: KeptReleases | None = None

    @property
    def sizes(self) -> list[int]:
        """Number of variables of every zone."""
        return [len(zone.coordinates) for zone in self.zones]

    @property
    def model(self) -> tuple[str, ...]:
        """The grid with its demand and limits, and the zones."""
        case = self.zones[0].network.case
        return case.fingerprint, *(zone.name for zone in self.zones)

    def make(self, positions: Sequence[int]) -> list[ZoneAgent]:
        """Return the zones at these positions, compiled."""
        unit = operating_unit(self.zones[0].network.case)
        return [self._agent_at(position, unit) for position in positions]

    def resets(self) -> list[Call[None]]:
        """Return the calls that start every zone on this run."""
        return [
            call(ZoneAgent.reset, self.rules, self.streams, disclosure, self.charge, self.kept)
            for disclosure in self.disclosures
        ]

    def _agent_at(self, position: int, unit: float | None) -> ZoneAgent:
        problem = ZoneProblem(
            compile_zone(self.zones[position]), self.solver, solver_tolerance=self.solver_tolerance
        )
        compiled: deque[Compiled] = deque(maxlen=MOST_COMPILED // len(self.zones))
        agent = ZoneAgent(problem, self.shared[position], self.service, unit, compiled)
        agent.reset(self.rules, self.streams, self.disclosures[position], self.charge, self.kept)
        return agent


@dataclass(eq=False)
class ZoneAgent:
    """A zone: its agent, and the computations of its owner after the last round."""

    problem: ZoneProblem
    shared: NDArray[np.bool_]
    service: Service
    unit: float | None
    compiled: deque[Compiled]
    _agent: Agent = field(init=False)
    _warm_start: WarmStart = field(init=False, default_factory=WarmStart)
    _last_solution: Solved | None = field(init=False, default=None)
    _ac_block: ZoneBlock | None = field(init=False, default=None)
    _previous_ac_block: ZoneBlock | None = field(init=False, default=None)
    _block: Block | ConicBlock | None = field(init=False, default=None)

    def reset(
        self,
        rules: AgentRules,
        streams: Streams,
        disclosure: Disclosure | None,
        charge: Charging | None,
        kept: KeptReleases | None = None,
    ) -> None:
        """Start a run; iterates and draws of another run are removed.

        Compiled programs stay, and so does the warm start where zones' solvers have no memory.
        """
        if hasattr(self, "_agent") and self.problem.solver.startswith("pyomo:"):
            self.problem = ZoneProblem(
                self.problem.program,
                self.problem.solver,
                solver_tolerance=self.problem.solver_tolerance,
            )
            self._warm_start = WarmStart()
        self.problem = self.problem.disclosing(disclosure)
        self._warm_start.reset()
        self._last_solution = self._ac_block = self._previous_ac_block = self._block = None
        zone = self.problem.program.zone
        inputs = self.shared, rules, streams, charge, public_proxy(zone), kept
        self._agent = Agent(self.problem, zone.demand, *inputs)

    @property
    def agent(self) -> Agent:
        """The zone's agent, after its warm start."""
        self._warm_start.leave(self._agent)
        return self._agent

    def warm_start(self, order: Order) -> Reply:
        """Run a round on public data, or return the reply of an earlier run to the same orders."""
        return self._warm_start.reply(self._agent, order)

    def ready(self, order: Order) -> Reply:
        """Run a trial round on public data."""
        return self.agent.ready(order)

    def trial(self, order: Order) -> Reply:
        """Run a trial round on public data, unless the limits certainly have a feasible state."""
        if within_limits_without_load(self.problem.program.zone):
            return Reply(np.zeros(0), {})
        return self.ready(order)

    def round(self, order: Order) -> Reply:
        """Run one round."""
        return self.agent.round(order)

    def disclose(self) -> Floats:
        """Release the demand; return the estimate of it."""
        return self.agent.disclose()

    def reuse(self, estimate: Floats) -> None:
        """Use the estimate of an earlier release."""
        self.agent.reuse(estimate)

    def set_iterate(self, z: Floats) -> None:
        """Set a schedule in place of rounds."""
        self.agent.set_iterate(z)

    def smoothness(self) -> float:
        """Return L of the zone's objective (public)."""
        return self.agent.smoothness()

    def release(self, penalty: Floats, step: float) -> Release | None:
        """Return the release of one draw (public)."""
        return self.agent.release(penalty, step)

    def metrics(self) -> RoundMetrics:
        """Return the values of the last round, for the owner only."""
        return self.agent.metrics()

    def drawn(self) -> dict[Release, int]:
        """Return every release so far."""
        return self.agent.drawn()

    def ac_open(self, ends: TieEnds, estimated: bool, moved: bool) -> Ints | None:
        """Begin AC rounds on the released demand; return the numbers of the border entries.

        Every reply of AC rounds is a function of released demand. With ``moved`` the estimate of
        each bus is moved into its range.
        """
        self._previous_ac_block = self._ac_block
        zone, released = self.problem.program.zone, self._released()
        if moved:
            released = bus_ranges(zone.network.case).within(released, zone.own)
        inputs = released, ends, self.service.voll, self.unit
        self._ac_block = zone_block(zone, *inputs, estimated=estimated)
        self._block = None if self._ac_block is None else self._ac_block.block
        return None if self._ac_block is None else self._ac_block.at

    def _released(self) -> Floats:
        released = self.agent.releases.released_data
        if released is None:
            raise ValueError(f"{self.problem.name}: no data have been released")
        return released

    def in_block(self, method: Callable[..., R], *arguments: Any) -> R | None:
        """Return the result of a method of the zone's block; None without an energized part."""
        return None if self._block is None else method(self._block, *arguments)

    def ac_value(self) -> tuple[float, float] | None:
        """Return the objective of the zone's block and its load shedding, p.u."""
        return None if self._ac_block is None else self._ac_block.value

    def ac_restore(self) -> None:
        """Return to the block of the rounds before the last ones."""
        self._ac_block = self._previous_ac_block

    def ac_schedule(self) -> tuple[Complexes, Complexes, float, float] | None:
        """Return voltages, slopes, the price level and the load shedding of the zone."""
        block = self._ac_block
        return (
            None
            if block is None
            else (block.voltage, block.slope, block.price_level, block.value[1])
        )

    def ac_take(self) -> Floats:
        """Set the AC schedule in place of rounds; return its coupling variables."""
        zone = self.problem.program.zone
        case = zone.network.case
        voltage = np.zeros(case.n_bus, complex)
        pg, qg = np.zeros((2, case.n_gen))
        if self._ac_block is not None:
            at = self._ac_block.scheduled
            voltage[zone.buses], pg[zone.gens], qg[zone.gens] = at.voltage, at.pg, at.qg
        self.set_iterate(coordinates(zone.network, voltage, pg, qg, zone.elements))
        return self.agent.average[self.shared]

    def open_block(self, shared: Ints) -> Ints:
        """Begin conic rounds on the relaxation; return the block's coupling variables.

        Every reply of these rounds is a function of released demand.
        """
        from gridpriv.power.conic_block import ConicBlock  # imports the conic solver

        self._block = block = ConicBlock(self.problem, self._released(), shared)
        return block.at

    def take_block(self) -> Floats:
        """Set the block's point in place of rounds; return its coupling variables."""
        self.set_iterate(cast("ConicBlock", self._block).variables)
        return self.agent.average[self.shared]

    def outcome(self) -> ZoneOutcome:
        """Return the zone's values at its average, with its true demand."""
        agent = self.agent
        p, q = np.split(self.problem.imbalance(agent.average, agent.data), 2)
        return ZoneOutcome(agent.average, p, q, agent.releases.released_data)

    def plan(self, boundary: Boundary | None) -> ZonePlan | None:
        """Return the zone's plan at a boundary; None keeps its plan."""
        if boundary is None:
            return None
        agent = self.agent
        zone = self.problem.program.zone
        inputs = agent.data, boundary, self.service, self.unit, agent.average
        start = self._last_solution, self._scheduled(boundary), self.compiled
        plan, self._last_solution = plan_zone(zone, *inputs, *start)
        return plan

    def _scheduled(self, boundary: Boundary) -> ScheduledState | None:
        """Return the zone at the AC schedule: of its AC rounds, or as a coordinator sent it."""
        if boundary.valuation is None:
            return None
        if self._ac_block is not None:
            return self._ac_block.scheduled
        outputs = self.problem.program.zone.outputs(self.agent.average)
        return ScheduledState(boundary.valuation.voltage, *outputs)


def public_proxy(zone: Zone) -> Floats:
    """Return a public estimate of the zone's demand: (p, q) of its own buses."""
    case = zone.network.case
    share = PROXY_SHARE[zone.network.objective.kind]
    loads = case.load_buses
    active = share * capacity(case) / max(1, int(loads.sum())) * loads[zone.own]
    return np.concatenate([active, PROXY_REACTIVE * active])


@dataclass(frozen=True, eq=False)
class ZoneOutcome:
    """A zone after the last round; for its owner only, but for ``released``.

    Attributes
    ----------
    z : (n,)
        Average of the last round.
    p_imbalance, q_imbalance : (own,)
        At that average.
    released : (2 own,) or None
        Released estimate of its demand: p, then q. None where no demand was released.
    """

    z: Floats
    p_imbalance: Floats
    q_imbalance: Floats
    released: Floats | None = None

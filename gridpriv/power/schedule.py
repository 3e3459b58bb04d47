"""Schedules of the whole grid for released demand: by a central search, or in rounds of zones.

In rounds zones solve the AC optimum (:func:`schedule_in_rounds`) or the relaxation
(:func:`conic_rounds`) by an interior-point method with a block per zone.

A schedule has the voltages at the ends of tie lines, and the derivative of the other zones'
Lagrangian by each zone's deviations. It is a function of released demand and public data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple

import numpy as np
from scipy.sparse.linalg import splu

from gridpriv.consensus.transport import Calls, Transport, answers, call
from gridpriv.core.arrays import Complexes, Floats, Ints
from gridpriv.core.errors import SolverError
from gridpriv.grid.case import Case
from gridpriv.grid.network import deenergized_buses
from gridpriv.power.ac.block import Elimination, P, R
from gridpriv.power.ac.interior import FIRST_MU, MU_FACTOR, Border, Iteration, iterate
from gridpriv.power.ac.joint import TieEnds, tie_ends
from gridpriv.power.ac.optimum import AcOptimum, acopf, overloaded
from gridpriv.power.objective import AcObjective
from gridpriv.power.prior import bus_ranges
from gridpriv.power.zone import Network, Zone, coordinates, with_demand
from gridpriv.power.zone_agent import ZoneAgent

if TYPE_CHECKING:
    from gridpriv.power.conic_block import Progress

AC_TOLERANCE = 1e-6
"""Error of the optimality conditions (p.u., and multiples of c0) at which AC rounds end."""
MOST_AC_ROUNDS = 200
BARRIERS = tuple(FIRST_MU / MU_FACTOR**k for k in (0, 1, 2, -2))
"""First barriers of AC rounds, tried in turn. Further ones follow where earlier ones shed load or
do not converge: a small barrier can fix load shedding before power flows are near their optimum.
The last is for network limits at which all others stop short of the optimum (pandapower's iceland
sheds 68 MW for 39 at 1.13 times its load)."""
CLEARLY_SHED = 1e-3
"""Share of shed demand above which the last barrier is tried, where capacity suffices."""
SHED_TOLERANCE = 1e-4
"""p.u. of load shedding above which further searches follow."""


@dataclass(frozen=True, eq=False)
class AcSchedule:
    """An AC optimal power flow of released demand, in the form that zones use.

    Attributes
    ----------
    voltage : (n,) complex
        Of tie-end buses; others are not read.
    slopes : tuple of (buses,) complex
        Per zone, the other zones' valuation of tie-end voltages
        (:class:`gridpriv.power.ac.zone_redispatch.TieEndValuation`).
    price_level : float
        Largest price of active power at a tie end over the typical marginal cost of generation;
        1 at least. Under shortage it is the value of lost load over that cost.
    shed : (zones,)
        Load shedding of every zone, energized buses only, p.u.
    output_prices : tuple of (gens,), optional
        Per zone, the value of output in other steps (multiples of c0 per p.u.).
    """

    voltage: Complexes
    slopes: tuple[Complexes, ...]
    price_level: float
    shed: Floats
    output_prices: tuple[Floats, ...] | None = None


@dataclass(frozen=True, eq=False)
class AcRounds:
    """The rounds in which zones solve the AC optimal power flow together; public.

    Attributes
    ----------
    schedule : AcSchedule or None
        None where they did not converge.
    iterations : tuple of Iteration
        One per round of the selected search.
    """

    schedule: AcSchedule | None
    iterations: tuple[Iteration, ...]


@dataclass(frozen=True, eq=False)
class CentralSchedule:
    """A schedule that a coordinator computes from the demands that zones disclosed.

    Attributes
    ----------
    z : (end,)
        In the grid's coordinates.
    schedule : AcSchedule or None
        None where it is the relaxation's.
    """

    z: Floats
    schedule: AcSchedule | None


def central_schedule(
    network: Network,
    zones: Sequence[Zone],
    demands: Sequence[Floats],
    voll: float,
    *,
    ac: bool,
    slack: bool = True,
    noisy: bool = False,
) -> CentralSchedule | None:
    """Return the optimal schedule for the demands of all zones.

    None where ``ac`` is set without ``slack`` and there is no AC optimum.

    Parameters
    ----------
    network : Network
        The demand of its case is not read.
    demands : sequence of (2 |N_z|,) array
        p, then q, of every zone's own buses; public.
    voll : float
        Value of lost load in $/MWh.
    ac : bool
        Plan on the AC equations. Otherwise, or for demand without an AC optimum (noisy demand may
        exceed what any AC state can serve), plan on the relaxation.
    slack : bool
        As of :func:`estimated_optimum`.
    noisy : bool
        True if the demands are estimates from noisy releases. Where no AC state serves them
        (:func:`gridpriv.power.ac.optimum.overloaded`), those of each bus are moved into its range.

    Raises
    ------
    SolverError
        If no optimum is found.
    """
    case, objective = with_demand(network.case, zones, demands), network.objective
    if noisy and overloaded(case).any():
        ranges = bus_ranges(network.case)
        moved = [ranges.within(part, zone.own) for part, zone in zip(demands, zones, strict=True)]
        case = with_demand(network.case, zones, moved)
    if deenergized_buses(case).all():  # no generation anywhere: there is no voltage to schedule
        return CentralSchedule(np.zeros(network.offsets["end"]), None)
    if ac and objective.kind != "imbalance":
        optimum = estimated_optimum(case, objective.kind, voll, slack=slack)
        if optimum is not None:
            state = optimum.state
            z = coordinates(network, state.voltage, state.pg, state.qg)
            return CentralSchedule(z, _by_zone(optimum, zones))
        if not slack:
            return None
    from gridpriv.power.centralized import relax  # imports the conic solver

    priced = objective.kind == "cost"
    relaxed = relax(case, "cost", imbalance_weight=objective.weight) if priced else relax(case)
    return CentralSchedule(relaxed.z, None)


def estimated_optimum(
    case: Case, objective: AcObjective, voll: float, *, slack: bool = True
) -> AcOptimum | None:
    """Return the AC optimum of an estimated demand; None if there is none.

    Where the estimate has no optimum, its reactive part gets a priced slack, if ``slack``.
    """
    for estimated in (False, True)[: 1 + slack]:
        try:
            return acopf(case, objective, voll, estimated=estimated)
        except SolverError:
            continue
    return None


def _by_zone(optimum: AcOptimum, zones: Sequence[Zone]) -> AcSchedule:
    """Return an AC optimum as a schedule of zones."""
    state, gradient = optimum.state, optimum.voltage_gradient
    case, lost = state.case, np.where(state.deenergized, 0.0, state.p_shed)
    ends = tie_ends(case, zones).number[0] >= 0
    slopes = []
    for zone in zones:
        own = np.asarray(gradient[zone.own].sum(axis=0)).ravel()
        slopes.append(np.where(ends, -own, 0.0)[zone.buses])
    prices = np.abs(np.nan_to_num(optimum.p_price[ends])) / optimum.price_unit
    shed = np.array([lost[zone.own].sum() for zone in zones])
    return AcSchedule(state.voltage, tuple(slopes), float(prices.max(initial=1.0)), shed)


def schedule_in_rounds(
    network: Network,
    zones: Sequence[Zone],
    demands: Sequence[Floats],
    transport: Transport,
    watch: Callable[[Iteration], None] = lambda _: None,
    *,
    noisy: bool = False,
) -> AcRounds:
    """Return the AC optimal power flow of all zones, computed in rounds.

    Parameters
    ----------
    demands : sequence of (2 |N_z|,) array
        As of :func:`central_schedule`.
    transport : Transport
        To all zones (:class:`gridpriv.power.zone_agent.ZoneAgent`).
    watch : callable
        Called after each round.
    noisy : bool
        As of :func:`central_schedule`.
    """
    ends = tie_ends(network.case, zones)
    parts = [ends.of(zone) for zone in zones]
    best_iterations: tuple[Iteration, ...] | None = None
    least, plan_shed = np.inf, 0.0
    disclosed = with_demand(network.case, zones, demands)
    moved = noisy and bool(overloaded(disclosed).any())
    clearly_shed = CLEARLY_SHED * float(np.maximum(disclosed.pd, 0.0).sum())
    for estimated, first_mu in _searches(disclosed):
        if estimated and best_iterations is not None:
            break
        if first_mu < FIRST_MU and plan_shed <= clearly_shed:
            continue
        opening = [call(ZoneAgent.ac_open, part, estimated, moved) for part in parts]
        places = answers(transport, opening)
        energized = [z for z, at in enumerate(places) if at is not None]
        if not energized:  # no generation anywhere: there is no voltage to schedule
            return AcRounds(None, ())
        border = Border(ends.size, [at for at in places if at is not None])
        blocks = _TransportBlocks(transport, len(zones), energized)
        iterations: list[Iteration] = []
        for each in iterate(blocks, border, MOST_AC_ROUNDS, AC_TOLERANCE, first_mu):
            iterations.append(each)
            watch(each)
        converged = bool(iterations) and iterations[-1].converged(AC_TOLERANCE)
        objective, shed = blocks.value() if converged else (np.inf, np.inf)
        if objective < least:
            best_iterations, least, plan_shed = tuple(iterations), objective, shed
        elif best_iterations is not None:
            answers(transport, call(ZoneAgent.ac_restore))
        if shed <= SHED_TOLERANCE:
            break
    if best_iterations is None:
        return AcRounds(None, tuple(iterations))
    return AcRounds(_schedule(network, zones, ends, transport), best_iterations)


def _schedule(
    network: Network, zones: Sequence[Zone], ends: TieEnds, transport: Transport
) -> AcSchedule:
    """Return the schedule of the zones' AC rounds."""
    voltage = np.zeros(network.case.n_bus, complex)
    slopes = [np.zeros(len(zone.buses), complex) for zone in zones]
    level, lost = 1.0, np.zeros(len(zones))
    for z, answer in enumerate(answers(transport, call(ZoneAgent.ac_schedule))):
        if answer is not None:
            zone_voltage, slopes[z], price, lost[z] = answer
            level = max(level, price)
            at_ties = ends.number[0, zones[z].buses] >= 0
            voltage[zones[z].buses[at_ties]] = zone_voltage[at_ties]
    return AcSchedule(voltage, tuple(slopes), level, lost)


def _searches(case: Case) -> tuple[tuple[bool, float], ...]:
    """Return the searches in turn: a flag of priced reactive slack, and the first barrier.

    The search with slack is last, for demand that no other search can plan. The last barrier is
    for a grid of sufficient capacity.
    """
    enough = np.maximum(case.pd, 0.0).sum() <= case.pmax.sum()
    barriers = BARRIERS if enough else BARRIERS[:-1]
    return (*((False, barrier) for barrier in barriers), (True, FIRST_MU))


@dataclass(frozen=True, eq=False)
class _TransportBlocks:
    """The zones' blocks, called through a transport."""

    transport: Transport
    zones: int
    live: Sequence[int]

    def call_all(
        self, method: Callable[Concatenate[Any, P], R], *arguments: P.args, **_: P.kwargs
    ) -> list[R]:
        return self._all(call(ZoneAgent.in_block, method, *arguments))

    def each(self, method: Callable[[Any, Floats], R], arguments: Sequence[Floats]) -> list[R]:
        parts = dict(zip(self.live, arguments, strict=True))
        return self._all(
            [call(ZoneAgent.in_block, method, parts.get(z)) for z in range(self.zones)]
        )

    def value(self) -> tuple[float, float]:
        """Return the objective, in multiples of c0, and the load shedding, p.u., of all zones."""
        objective, shed = np.sum(self._all(call(ZoneAgent.ac_value)), axis=0)
        return float(objective), float(shed)

    def _all(self, calls: Calls[Any]) -> list[Any]:
        """Return the energized zones' replies."""
        replies = answers(self.transport, calls)
        return [replies[z] for z in self.live]


WITHIN = 0.99
"""Length of a step as a share of the distance to the cones' boundary."""
SHORTEST = 1e-4
"""Length of a step below which rounding errors dominate, and rounds end."""
Solve = Callable[[Sequence[Floats]], list[Floats]]


class ConicRound(NamedTuple):
    """One round; a function of released demand.

    Attributes
    ----------
    residual, farthest : float
        2-norm and largest entry of all constraint violations.
    dual_residual : float
        2-norm of the Lagrangian's gradient; 0 where rounding errors of its terms are larger.
    gap : float
        s'z, by which objective and dual objective differ.
    """

    residual: float
    farthest: float
    dual_residual: float
    gap: float

    def below(self, primal: float, dual: float) -> bool:
        """Return True where the optimality conditions hold to tolerances."""
        return self.farthest < primal and max(self.dual_residual, self.gap) < dual


def conic_rounds(transport: Transport, shared: Ints) -> Iterator[ConicRound]:
    """Solve the relaxation of all zones' released demands in rounds; yield every round.

    The first round is a least-squares start. In later rounds, zones send a Schur complement once
    and at most three vectors of the border's size: for the predictor, for Mehrotra's corrector, and
    the gradient at the new point. Rounds end where rounding errors leave no step.

    Parameters
    ----------
    transport : Transport
        To all zones (:class:`gridpriv.power.zone_agent.ZoneAgent`).
    shared : int array
        Voltage products of several zones, as coordinates of the grid.

    Raises
    ------
    SolverError
        Where the first system has no solution.
    """
    from gridpriv.power.conic_block import ConicBlock  # imports the conic solver

    places = answers(transport, call(ZoneAgent.open_block, shared))
    blocks = _TransportBlocks(transport, len(places), range(len(places)))
    call_all, each = blocks.call_all, blocks.each
    border_columns = np.unique(np.concatenate(places))
    border = Border(len(border_columns), [np.searchsorted(border_columns, at) for at in places])
    opened = call_all(ConicBlock.open)
    parts = _solve(border, opened)([part.residual for part in opened])
    progress = each(ConicBlock.begin, parts)
    yield _round(border, progress)
    while True:
        try:
            eliminated = call_all(ConicBlock.eliminate)
            solve = _solve(border, eliminated)
        except SolverError:
            return
        affine = solve([part.residual for part in eliminated])
        share = 1.0 - (1.0 - min(1.0, *each(ConicBlock.predict, affine))) ** 3
        mean = sum(item.product for item in progress) / sum(item.degree for item in progress)
        residuals = call_all(ConicBlock.correct, share, (1.0 - share) * mean)
        reach = min(each(ConicBlock.direction, solve(residuals)))
        length = min(1.0, WITHIN * reach)
        if not length > SHORTEST:
            return
        progress = call_all(ConicBlock.step, length)
        yield _round(border, progress)


def _solve(border: Border, parts: Sequence[Elimination]) -> Solve:
    """Return the solve of the border's system, factored once; it returns each zone's part."""
    try:
        factors = splu(border.matrix([part.matrix for part in parts])) if border.size else None
    except RuntimeError as error:
        raise SolverError("the zones' Schur complements add up to a singular matrix") from error

    def solve(residuals: Sequence[Floats]) -> list[Floats]:
        total = -border.added(residuals)
        return border.split(total if factors is None else factors.solve(total))

    return solve


def _round(border: Border, progress: Sequence[Progress]) -> ConicRound:
    shared = border.added([item.shared for item in progress])
    dual = float(np.sqrt(shared @ shared + sum(item.gradient for item in progress)))
    rounding = float(np.sqrt(sum(item.rounding for item in progress)))
    return ConicRound(
        float(np.linalg.norm([item.violation for item in progress])),
        max(item.farthest for item in progress),
        dual if dual > rounding else 0.0,
        sum(item.product for item in progress),
    )

"""AC power flow of a dispatch, and the derivatives of tie-line flows by demand.

Generators keep their voltage set points within their reactive limits, and follow their active set
points. The generators of each control area balance the rest in proportion to their headroom, so
that the area's interchange is the scheduled one. All areas of an island share what an area cannot
balance, in proportion to their regulating range. Where every area of an island is at its limits,
the reference bus exceeds its own; the state reports it.

Interchange is metered in the middle of a tie line, so each side bears half of its losses, and the
exports of all areas add up to zero. Every island has its own reference. An island without
generation is de-energized: its demand is shed, and its voltages are 0.

Derivatives. Around the state after redispatch every generator keeps its set point and voltage,
areas within their limits regulate to the scheduled interchange, and areas at a limit do not
regulate. With x the voltage angles and magnitudes, the regulation of areas and the frequency
deviation of islands, these are the equations F(x; pd, qd) = 0 of :mod:`gridpriv.power.ac.areas`,
and

    dF/dx dx/dpd = -dF/dpd,

so one factorization gives the derivative of every tie-line flow and of every zone's interchange by
the active and the reactive demand of every bus. It holds until a generator or an area reaches or
leaves a limit, and until a zone replans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from scipy.sparse.linalg import SuperLU, splu

from gridpriv.core.arrays import Bools, Complexes, Floats, Ints
from gridpriv.grid.case import Case
from gridpriv.grid.network import DcPowerFlow, branch_admittance, deenergized_buses, islands
from gridpriv.power.ac.areas import AreaGrid, AreaPowerFlow, injection, interchange_of, solve
from gridpriv.power.ac.newton import FlowSolution, Point, PowerFlowError
from gridpriv.power.ac.part import SubCase, part_at
from gridpriv.power.ac.state import AcState, Dispatch, Schedule

SWITCH_TOLERANCE = 1e-7
"""p.u. beyond a reactive or active limit at which a generator or an area stops regulating."""
MOST_RELAXED = 10
"""Power flows in which violations of reactive limits are removed in small steps."""
LARGEST_STEP = 0.25
"""p.u. of voltage: a state at a larger distance is on another branch of solutions."""
LOW_VOLTAGE = 0.1
"""p.u. of voltage below its band: such a state may be on a lower branch of solutions, where a
search from it would stay."""
MOST_POWER_FLOWS = 40


@dataclass(frozen=True, eq=False)
class PreviousState:
    """Previous state of a grid: its voltages and the outputs of its generators."""

    voltage: Complexes
    pg: Floats

    def on(self, grid: AreaGrid) -> AreaPowerFlow:
        """Return the start of a search; areas at a limit start at that limit."""
        case, count = grid.case, len(grid.interchange)
        up, down = (
            np.bincount(grid.gen_area, room > SWITCH_TOLERANCE, minlength=count) == 0
            for room in (case.pmax - self.pg, self.pg - case.pmin)
        )
        bound = np.where(up | grid.idle, 1, np.where(down, -1, 0))
        regulation = np.bincount(grid.gen_area, self.pg - grid.dispatch.pg, minlength=count)
        alpha: Floats = np.clip(regulation, grid.least, grid.most)
        delta = np.zeros(len(grid.reference))
        solution = FlowSolution(self.voltage, alpha, delta, bound == 0, np.inf, 0)
        return AreaPowerFlow(solution, bound, delta > 0, 0.0, 0)


def ac_flow(
    case: Case, dispatch: Dispatch, schedule: Schedule | None = None, before: AcState | None = None
) -> AcState:
    """Return the AC state of a dispatch.

    Parameters
    ----------
    schedule : Schedule, optional
        Control areas and their interchange; without it every island is one area.
    before : AcState, optional
        Of a similar dispatch: where the first power flow violates reactive limits, the search for a
        state within them begins there. (There may be several.)

    Raises
    ------
    PowerFlowError
        If there is no solution with every generator at its voltage set point. (If there is one, but
        none within reactive limits, the state violates them.)
    """
    schedule = Schedule.one_area(case) if schedule is None else schedule
    deenergized = deenergized_buses(case)
    served = dispatch.without_service(case, deenergized)
    voltage = np.zeros(case.n_bus, complex)
    pg, qg, regulation = np.zeros((3, case.n_gen))
    mismatch, power_flows = 0.0, 0
    for live in _parts(case, deenergized, schedule):
        grid, area_flow = _part_flow(live, served, schedule, before)
        voltage[live.buses] = area_flow.solution.voltage
        regulation[live.gens] = grid.regulation(area_flow)
        pg[live.gens] = grid.dispatch.pg + regulation[live.gens]
        qg[live.gens] = grid.reactive(area_flow.solution.voltage)
        mismatch = max(mismatch, area_flow.solution.mismatch)
        power_flows = max(power_flows, area_flow.power_flows)
    state = AcState.of(case, voltage, served, (pg, qg), regulation, deenergized)
    interchange = interchange_of(case, schedule, state.s_from, state.s_to)
    return replace(
        state,
        interchange=interchange,
        deviation=interchange - schedule.interchange,
        mismatch=mismatch,
        power_flows=power_flows,
    )


def _parts(case: Case, deenergized: Bools, schedule: Schedule) -> Iterator[SubCase]:
    """Yield the energized islands, separately unless a scheduled area is in several of them.

    Reactive limits that an island cannot satisfy are then relaxed there only.
    """
    island = islands(case) if len(schedule.interchange) == 1 else np.zeros(case.n_bus, int)
    for number in np.unique(island[~deenergized]):
        yield part_at(case, ~deenergized & (island == number))


def _part_flow(
    live: SubCase, dispatch: Dispatch, schedule: Schedule, before: AcState | None
) -> tuple[AreaGrid, AreaPowerFlow]:
    """Return the state of an energized part of a grid; errors name its bus."""
    inner = live.dispatch(dispatch)
    previous = None
    if before is not None:
        previous = PreviousState(before.voltage[live.buses], before.pg[live.gens])
    areas = replace(schedule, zone_of=schedule.zone_of[live.buses])
    try:
        return _at_interchange(live.case, inner, areas, previous)
    except PowerFlowError as error:
        raise error.named(int(live.case.bus_id[error.bus]), live.case.base_mva) from None


def _within_limits(
    grid: AreaGrid, starts: Iterable[Complexes], before: PreviousState | None
) -> AreaPowerFlow:
    """Solve power flows until every reactive limit holds and no area changes its limit."""
    result = None if before is None else _near_previous(grid, before)
    if result is None:
        first = _first(grid, starts)
        try:
            result = _within_reactive_limits(grid, first)
        except PowerFlowError:  # no state within the limits of areas
            result = _within_reactive_limits(grid.without_limits, first)
    return _within_area_limits(grid, result)


def _within_area_limits(grid: AreaGrid, result: AreaPowerFlow) -> AreaPowerFlow:
    """Return the state in which no area is beyond its limits, or the last state."""
    ran_out = np.zeros(len(result.bound), dtype=bool)
    for number in range(2, MOST_POWER_FLOWS):
        after = _areas_switched(grid, result, ran_out)
        if np.array_equal(after, result.bound):
            return replace(result, power_flows=number)
        ran_out |= (result.bound == 0) & (after != 0)
        # from a state outside limits a search within them may end on a lower branch
        near = None if result.relaxed else _nearby(grid, replace(result, bound=after), 0.0)
        try:
            result = near or _within_reactive_limits(
                grid, solve(grid, after, result.solution.voltage, result, np.inf)
            )
        except PowerFlowError:
            return replace(result, power_flows=number)
    return result


def _near_previous(grid: AreaGrid, before: PreviousState) -> AreaPowerFlow | None:
    """Return the state within reactive limits near the previous one, unless voltages fall."""
    nearby = _nearby(grid, before.on(grid), 0.0)
    if nearby is None:
        return None
    floor = grid.case.vmin - LOW_VOLTAGE
    sinking = (np.abs(nearby.solution.voltage) < floor) & (np.abs(before.voltage) >= floor)
    return None if sinking.any() else nearby


def _within_reactive_limits(grid: AreaGrid, last: AreaPowerFlow) -> AreaPowerFlow:
    """Return the state within reactive limits, or the nearest one with a power flow.

    Where the first search fails, violations are removed in small steps, as far as possible.
    """
    nearby = _nearby(grid, last, 0.0)
    if nearby is not None:
        return nearby
    share, nearest = 0.5, solve(grid, last.bound, last.solution.voltage, last, np.inf)
    if (within := _with_one_regulating(grid, nearest)) is not None:
        return within
    for _ in range(1, MOST_RELAXED):
        nearby = _nearby(grid, nearest, share)
        if nearby is None:
            share = 0.5 * (1.0 + share)
            continue
        if nearby.solution.steps == 0:
            return nearby
        nearest = nearby
    return nearest if share > 0.5 else _nearby(grid, nearest, 0.0) or nearest


def _with_one_regulating(grid: AreaGrid, last: AreaPowerFlow) -> AreaPowerFlow | None:
    """Return the state within reactive limits in which one generator of an island regulates.

    Newton's method puts all generators beyond their limits at these at once. Where they are all of
    an island, none is left to balance its reactive power, although one at its limit may suffice.
    """
    case, reactive = grid.case, grid.reactive(last.solution.voltage)
    beyond = (reactive > case.qmax) | (reactive < case.qmin)
    inside = np.bincount(grid.island[case.gen_bus], ~beyond, len(grid.reference))
    for bus in np.unique(case.gen_bus[beyond & (inside[grid.island[case.gen_bus]] == 0)]):
        here = case.gen_bus == bus
        qmin, qmax = np.where(here, -np.inf, case.qmin), np.where(here, np.inf, case.qmax)
        first = _nearby(grid.within(qmin, qmax), last, 0.0)
        if first is not None and (result := _nearby(grid, first, 0.0)) is not None:
            return result
    return None


def _nearby(grid: AreaGrid, last: AreaPowerFlow, relaxed: float) -> AreaPowerFlow | None:
    """Return the state within relaxed reactive limits, unless it is on another branch."""
    try:
        solution = solve(grid, last.bound, last.solution.voltage, last, relaxed)
    except PowerFlowError:
        return None
    change = np.abs(np.abs(solution.solution.voltage) - np.abs(last.solution.voltage))
    return None if change.max() > LARGEST_STEP or _is_unstable(grid, solution) else solution


def _is_unstable(grid: AreaGrid, result: AreaPowerFlow) -> bool:
    """Return True where all generators of an island are at their lower reactive limits, unstably.

    A higher voltage then increases the charging of lines and reduces losses, and no generator can
    balance that. Reactors and inductive shunts consume more at a higher voltage: the state is
    stable where no eigenvalue of the generator buses' dV/dQ is negative (V-Q modal analysis: Gao,
    Morison and Kundur 1992).
    """
    case, n = grid.case, grid.case.n_bus
    ranged = np.bincount(case.gen_bus, case.qmax - case.qmin, n) > 0
    vm, regulating = np.abs(result.solution.voltage), result.solution.regulating[:n]
    at_lower_limit = ~regulating & (vm > grid.dispatch.vm)
    free = np.bincount(grid.island, ranged & ~at_lower_limit, len(grid.reference))
    buses = np.flatnonzero(ranged & (free == 0)[grid.island])
    try:
        return len(buses) > 0 and bool(
            np.linalg.eigvals(_response(grid, result, buses)).real.min() < 0
        )
    except RuntimeError:  # SuperLU's for a singular Jacobian: the border of stability
        return True


def _response(grid: AreaGrid, area_flow: AreaPowerFlow, buses: Ints) -> Floats:
    """Return the change of voltage magnitudes per reactive power injected, both at buses, p.u."""
    jacobian, turning = grid.jacobian, ~grid.equations.reference
    injected = np.zeros((len(jacobian.row_order), len(buses)))
    injected[grid.case.n_bus + buses, np.arange(len(buses))] = 1.0
    change = _factors(grid, area_flow).solve(injected[jacobian.row_order])[jacobian.column_place]
    return np.asarray(change[turning.sum() + buses], dtype=np.float64)


def _factors(grid: AreaGrid, area_flow: AreaPowerFlow) -> SuperLU:
    """Return the factors of the power flow's Jacobian at its state."""
    solution = area_flow.solution
    voltage = solution.voltage
    point = Point(np.angle(voltage), np.abs(voltage), solution.alpha, solution.delta)
    equations = replace(grid.equations, exhausted=area_flow.exhausted)
    return splu(grid.jacobian.at(equations, point, solution.regulating))


def _at_interchange(
    case: Case, dispatch: Dispatch, schedule: Schedule, before: PreviousState | None
) -> tuple[AreaGrid, AreaPowerFlow]:
    """Return the state in which areas meet their interchange.

    The searches, in turn: from the first start, without limits of areas; within these limits from
    the state in which all generators of an island share the deficit, and within reactive limits
    from there; from the other starts; within all limits from that state. Otherwise that state is
    returned.
    """
    grid = AreaGrid(case, dispatch, schedule)
    if len(schedule.interchange) == 1:
        return grid, _within_limits(grid, _starts(grid), before)
    try:
        return grid, _within_limits(grid, islice(_starts(grid), 1), before)
    except PowerFlowError:
        shared = AreaGrid(case, dispatch, Schedule.one_area(case))
    try:
        first = _first(shared, _starts(shared))
    except PowerFlowError:
        return grid, _within_limits(grid, islice(_starts(grid), 1, None), None)
    pg = dispatch.pg + shared.regulation(first)
    previous = PreviousState(first.solution.voltage, pg).on(grid)

    def regulated() -> AreaPowerFlow:
        return solve(grid, previous.bound, previous.solution.voltage, previous, np.inf)

    searches: tuple[Callable[[], AreaPowerFlow], ...] = (
        lambda: _within_area_limits(grid, _within_reactive_limits(grid, regulated())),
        lambda: _within_limits(grid, islice(_starts(grid), 1, None), None),
        lambda: _within_area_limits(grid, _within_reactive_limits(grid, previous)),
    )
    for search in searches:
        with suppress(PowerFlowError):
            return grid, search()
    return shared, _within_limits(shared, [first.solution.voltage], before)


def _starts(grid: AreaGrid) -> Iterator[Complexes]:
    """Yield the dispatch's voltages, angles of the DC power flow if it has any, and a flat start.

    They are sorted by missing active power.
    """
    vm, injected = grid.dispatch.vm, injection(grid).real
    flat = np.where(np.isin(np.arange(grid.case.n_bus), grid.case.gen_bus), vm, 1.0)
    starts: list[Complexes] = [
        vm * np.exp(1j * grid.dispatch.va),
        flat * np.exp(1j * _dc_angles(grid)),
        flat.astype(complex),
    ]

    def missing_power(voltage: Complexes) -> float:
        drawn = voltage * np.conj(grid.admittance @ voltage)
        return float(np.linalg.norm(drawn.real - injected))

    yield from sorted((start for start in starts if np.isfinite(start).all()), key=missing_power)


def _first(grid: AreaGrid, starts: Iterable[Complexes]) -> AreaPowerFlow:
    """Solve from the first start that leads to a solution."""
    failure: PowerFlowError | None = None
    for start in starts:
        try:
            return solve(grid, np.where(grid.idle, 1, 0), start, None, np.inf)
        except PowerFlowError as error:
            failure = failure or error
    assert failure is not None
    raise failure


def _dc_angles(grid: AreaGrid) -> Floats:
    """Return the angles of the DC power flow at the dispatch; NaN where it has no solution."""
    case = grid.case
    try:
        dc = DcPowerFlow.of(case, grid.reference)
    except RuntimeError:
        return np.full(case.n_bus, np.nan)
    injected = injection(grid).real - case.gs
    np.add.at(injected, case.f_bus, dc.susceptance * case.shift)
    np.add.at(injected, case.t_bus, -dc.susceptance * case.shift)
    return dc.angles(injected)


def _areas_switched(grid: AreaGrid, last: AreaPowerFlow, ran_out: Bools) -> Ints:
    """Fix areas beyond their limits at them; release areas of an exhausted island.

    Areas that reached their limits before are not released, as the search would cycle.
    """
    bound, alpha = last.bound.copy(), last.solution.alpha
    active = bound == 0
    bound[active & (alpha > grid.most + SWITCH_TOLERANCE)] = 1
    bound[active & (alpha < grid.least - SWITCH_TOLERANCE)] = -1
    # with a negative slack all areas at their upper limits generate too much
    slack = last.slack[grid.area_island]
    bound[(last.bound * slack < -SWITCH_TOLERANCE) & ~grid.idle & ~ran_out] = 0
    return bound


@dataclass(frozen=True, eq=False)
class MeterDerivatives:
    """Changes of metered active power per unit of active demand at every bus, in MW/MW.

    Attributes
    ----------
    interchange : (zones, n_bus)
        Of every zone's interchange, positive for a larger export.
    ties : (t,) int
        Branches between two zones.
    flow : (t, n_bus)
        Of the active flow in the middle of each, positive from its from end.
    """

    interchange: Floats
    ties: Ints
    flow: Floats


def meter_derivatives(state: AcState, dispatch: Dispatch, schedule: Schedule) -> MeterDerivatives:
    """Return the derivatives of the meters by the active demand at every bus, after redispatch.

    Parameters
    ----------
    state : AcState
    dispatch : Dispatch
        Dispatch of the state.
    schedule : Schedule
        Control areas and their scheduled interchange.

    Raises
    ------
    PowerFlowError
        If no power flow is found at the state.
    """
    case = state.case
    live = part_at(case, ~state.deenergized)
    areas = replace(schedule, zone_of=schedule.zone_of[live.buses])
    grid = AreaGrid(live.case, live.dispatch(dispatch), areas)
    before = PreviousState(state.voltage[live.buses], state.pg[live.gens]).on(grid)
    area_flow = solve(grid, before.bound, before.solution.voltage, before, 0.0)
    zones, n = len(schedule.interchange), case.n_bus
    near, far = schedule.zone_of[case.f_bus], schedule.zone_of[case.t_bus]
    ties = np.flatnonzero(near != far)
    place = np.full(case.n_branch, -1)
    place[live.branches] = np.arange(len(live.branches))
    there = np.flatnonzero(place[ties] >= 0)
    flow, export = np.zeros((len(ties), n)), np.zeros((zones, n))
    flow[np.ix_(there, live.buses)] = _flow_change(grid, area_flow, place[ties[there]])
    np.add.at(export, near[ties], flow)
    np.add.at(export, far[ties], -flow)
    return MeterDerivatives(export, ties, flow)


def _flow_change(grid: AreaGrid, area_flow: AreaPowerFlow, branches: Ints) -> Floats:
    """Return the change of the active flow in the middle of branches, (branches, n).

    Per unit of p demanded at every bus. The transposed system is solved, as there are fewer tie
    lines than buses.
    """
    n, solution, jacobian = grid.case.n_bus, area_flow.solution, grid.jacobian
    by_angle, by_magnitude = _by_voltage(grid.case, solution.voltage, branches)
    by_state = np.zeros((len(branches), len(jacobian.column_place)))
    turning = ~grid.equations.reference
    free = int(turning.sum())
    by_state[:, :free], by_state[:, free : free + n] = by_angle[:, turning], by_magnitude
    rows = np.zeros_like(by_state.T)
    rows[jacobian.column_place] = by_state.T
    adjoint = np.zeros_like(rows)
    adjoint[jacobian.row_order] = _factors(grid, area_flow).solve(rows, trans="T")
    return -adjoint[:n].T  # F of active power has + pd


def _by_voltage(case: Case, voltage: Complexes, branches: Ints) -> tuple[Floats, Floats]:
    """Return the derivative of flows in the middle of branches by va and by vm, (branches, n)."""
    y, f, t = branch_admittance(case), case.f_bus[branches], case.t_bus[branches]
    v_f, v_t, rows = voltage[f], voltage[t], np.arange(len(branches))
    i_f = y.ff[branches] * v_f + y.ft[branches] * v_t
    i_t = y.tf[branches] * v_f + y.tt[branches] * v_t
    by = np.zeros((2, len(branches), case.n_bus))
    for end, (bus, v) in enumerate(((f, v_f), (t, v_t))):
        ends = (y.ff, y.tf) if end == 0 else (y.ft, y.tt)
        for part, dv in enumerate((1j * v, v / np.abs(v))):
            s_f = v_f * np.conj(ends[0][branches] * dv) + (dv * np.conj(i_f)) * (end == 0)
            s_t = v_t * np.conj(ends[1][branches] * dv) + (dv * np.conj(i_t)) * (end == 1)
            by[part, rows, bus] += 0.5 * (s_f - s_t).real
    return by[0], by[1]

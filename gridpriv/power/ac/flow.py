"""AC power flow of a dispatch: the judge of what a grid does with it.

Generators hold their voltage set points while their reactive limits allow, and follow their
active set points; what is missing or in excess is taken up by the generators of each control
area, in proportion to their headroom, until the area exchanges what it has agreed to. What an
area cannot take up is carried by all areas of the island, in proportion to their regulating
range. Only where every area of an island is at its limits does the reference bus give more than
it can; the state says so.

Interchange is metered in the middle of a tie line, so each side bears half of its losses, and
what one area exports the others import.

Every island has a reference of its own. An island in which nothing can generate is dead: its
demand is shed, its voltages are 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import spsolve

from gridpriv.core.arrays import Bools, Complexes, Floats, Ints
from gridpriv.grid.admittance import branch_admittance
from gridpriv.grid.case import Case
from gridpriv.power.ac.newton import (
    FlowEquations,
    FlowSolution,
    PowerFlowError,
    solve_power_flow,
)
from gridpriv.power.ac.part import part_of
from gridpriv.power.ac.state import AcState, Dispatch, Schedule

SWITCH_TOLERANCE = 1e-7
"""p.u. beyond a reactive or active limit at which a generator or an area stops regulating."""
MOST_EASED = 10
"""Power flows in which what is beyond reactive limits is taken away little by little."""
LARGEST_MOVE = 0.25
"""p.u. of voltage: a state farther away is another branch of solutions, which no grid jumps to."""
MOST_POWER_FLOWS = 40
FREE_SWITCHING = 20
"""Power flows after which a generator at a limit stays there, so that switching ends."""


def islands(case: Case) -> Ints:
    """Return the number of the island of every bus."""
    links = sparse.coo_array(
        (np.ones(case.n_branch), (case.f_bus, case.t_bus)),
        shape=(case.n_bus, case.n_bus),
    )
    return np.asarray(connected_components(links, directed=False)[1], dtype=np.int64)


def dead_buses(case: Case) -> Bools:
    """Return the buses of islands in which no generator can give active power."""
    island = islands(case)
    alive = np.zeros(island.max() + 1, bool)
    alive[island[case.gen_bus[case.pmax > 0]]] = True
    dead: Bools = ~alive[island]
    return dead


def ac_flow(case: Case, dispatch: Dispatch, schedule: Schedule | None = None) -> AcState:
    """Return the AC state of a dispatch.

    Parameters
    ----------
    case : Case
    dispatch : Dispatch
    schedule : Schedule, optional
        Control areas and their interchange; without it every island is one area.

    Raises
    ------
    PowerFlowError
        If there is no solution with every generator holding its voltage. (Where there is none
        within reactive limits only, the state is outside them.)
    """
    if schedule is None:
        schedule = Schedule(np.zeros(case.n_bus, dtype=np.int64), np.zeros(1))
    dead = dead_buses(case)
    served = _on_dead_buses_none(case, dispatch, dead)
    if dead.all():
        return _dead_state(case, served, schedule)
    lines = ~dead[case.f_bus]
    live = part_of(
        case,
        np.flatnonzero(~dead),
        np.flatnonzero(lines),
        np.flatnonzero(~dead[case.gen_bus]),
    )
    inner = Dispatch(
        dispatch.pg[live.gens],
        *(getattr(served, name)[live.buses] for name in ("vm", "va", "p_shed", "q_shed", "spill")),
    )
    try:
        grid, settled = _held_or_shared(
            live.case, inner, replace(schedule, zone_of=schedule.zone_of[live.buses])
        )
    except PowerFlowError as error:
        raise error.named(int(live.case.bus_id[error.bus]), case.base_mva) from None
    voltage = np.zeros(case.n_bus, complex)
    voltage[live.buses] = settled.solution.voltage
    pg, qg, regulation = (
        np.zeros(case.n_gen),
        np.zeros(case.n_gen),
        np.zeros(case.n_gen),
    )
    regulation[live.gens] = grid.regulation(settled)
    pg[live.gens] = inner.pg + regulation[live.gens]
    qg[live.gens] = grid.reactive(settled.solution.voltage)
    s_from, s_to = branch_flows(case, voltage)
    interchange = _interchange(case, schedule, s_from, s_to)
    return AcState(
        case, np.abs(voltage), np.angle(voltage), s_from, s_to, pg, qg,
        served.p_shed, served.q_shed, served.spill, regulation, dead,
        interchange, interchange - schedule.interchange,
        settled.solution.mismatch, settled.power_flows,
    )  # fmt: skip


def _dead_state(case: Case, served: Dispatch, schedule: Schedule) -> AcState:
    flow, output, none = (
        np.zeros(case.n_branch, complex),
        np.zeros(case.n_gen),
        np.zeros(case.n_bus),
    )
    return AcState(
        case, none, none, flow, flow, output, output, served.p_shed, served.q_shed, served.spill,
        output, np.ones(case.n_bus, bool), np.zeros_like(schedule.interchange),
        -schedule.interchange, 0.0, 0,
    )  # fmt: skip


def branch_flows(case: Case, voltage: Complexes) -> tuple[Complexes, Complexes]:
    """Return the flow into every branch at its from end and at its to end, p.u."""
    y, f, t = branch_admittance(case), voltage[case.f_bus], voltage[case.t_bus]
    return f * np.conj(y.ff * f + y.ft * t), t * np.conj(y.tf * f + y.tt * t)


def _interchange(case: Case, schedule: Schedule, s_from: Complexes, s_to: Complexes) -> Floats:
    """Return what each zone's tie lines take from it, metered in their middle."""
    near, far = schedule.zone_of[case.f_bus], schedule.zone_of[case.t_bus]
    through = np.where(near != far, 0.5 * (s_from - s_to).real, 0.0)
    zones = len(schedule.interchange)
    out = np.bincount(near, through, zones) - np.bincount(far, through, zones)
    return np.asarray(out, dtype=np.float64)


def _on_dead_buses_none(case: Case, dispatch: Dispatch, dead: Bools) -> Dispatch:
    """Return the dispatch with all demand of dead buses shed, and what they feed in spilt."""
    return replace(
        dispatch,
        p_shed=np.where(dead, np.maximum(case.pd, 0.0), dispatch.p_shed),
        q_shed=np.where(dead, case.qd, dispatch.q_shed),
        spill=np.where(dead, np.maximum(-case.pd, 0.0), dispatch.spill),
    )


def _by_room(room: Floats, group: Ints, groups: int) -> Floats:
    """Return shares in proportion to ``room`` in a group; infinite rooms share all of it."""
    endless = np.isinf(room)
    unlimited = np.bincount(group, endless, minlength=groups) > 0
    return np.where(unlimited[group], endless.astype(float), room)


@dataclass(frozen=True, eq=False)
class _Settled:
    solution: FlowSolution
    bound: Ints
    alpha: Floats
    slack: Floats
    power_flows: int


@dataclass(frozen=True, eq=False)
class _Grid:
    """A grid whose islands all generate, its dispatch and its areas (a zone's part of an island).

    ``up`` and ``down`` are the generators' shares of their area's alpha, ``most`` and ``least``
    alpha's limits.
    """

    case: Case
    dispatch: Dispatch
    island: Ints
    reference: Ints
    area_of: Ints
    area_island: Ints
    interchange: Floats
    admittance: sparse.csr_array
    up: Floats
    down: Floats
    most: Floats
    least: Floats
    bias: Floats

    @staticmethod
    def of(case: Case, dispatch: Dispatch, schedule: Schedule) -> _Grid:
        island = islands(case)
        place = np.stack([island, schedule.zone_of], axis=1)
        areas, area_of = np.unique(place, axis=0, return_inverse=True)
        area_of = area_of.reshape(-1)
        gen_area, count = area_of[case.gen_bus], len(areas)
        upward = np.maximum(case.pmax - dispatch.pg, 0.0)
        downward = np.maximum(dispatch.pg - case.pmin, 0.0)
        up, down = (_by_room(room, gen_area, count) for room in (upward, downward))
        most, least = (_reach(room, gen_area, count) for room in (upward, downward))
        span = np.bincount(gen_area, upward + downward, minlength=count).astype(float)
        return _Grid(
            case, dispatch, island, _references(case, island), area_of, areas[:, 0],
            _area_interchange(schedule, areas, area_of, case), bus_admittance(case),
            up, down, most, -least, _by_room(span, areas[:, 0], island.max() + 1),
        )  # fmt: skip

    @property
    def gen_area(self) -> Ints:
        return self.area_of[self.case.gen_bus]

    def regulation(self, settled: _Settled) -> Floats:
        """Return what every generator gives beyond its set point."""
        alpha = settled.alpha[self.gen_area]
        given = np.where(alpha >= 0, self.up, self.down) * alpha
        at_reference = np.isin(self.case.gen_bus, self.reference)
        shares = 1.0 / np.bincount(self.case.gen_bus, minlength=self.case.n_bus)[self.case.gen_bus]
        slack = settled.slack[self.island[self.case.gen_bus]]
        return given + np.where(at_reference, shares * slack, 0.0)

    def reactive(self, voltage: Complexes) -> Floats:
        """Return every generator's reactive power, shared at a bus in proportion to range."""
        total = _reactive_generation(self, voltage)
        return share_reactive(self.case, total)


def _reach(room: Floats, group: Ints, groups: int) -> Floats:
    """Return how far alpha can go: 1 with finite room, inf with infinite, 0 without any."""
    total = np.bincount(group, room, minlength=groups)
    return np.where(np.isinf(total), np.inf, (total > 0).astype(float))


def _references(case: Case, island: Ints) -> Ints:
    """Return a bus of each island: the source's reference or its largest generator's."""
    worth = np.where(np.isinf(case.pmax), np.finfo(float).max / 2, case.pmax)
    given = case.reference[case.gen_bus]
    order = np.lexsort((worth, given))  # the last of an island wins
    chosen = np.zeros(island.max() + 1, dtype=np.int64)
    chosen[island[case.gen_bus[order]]] = case.gen_bus[order]
    return chosen


def _area_interchange(schedule: Schedule, areas: Ints, area_of: Ints, case: Case) -> Floats:
    """Return X of every area; a zone in several islands splits its own by tie lines."""
    zone = areas[:, 1]
    ties = schedule.zone_of[case.f_bus] != schedule.zone_of[case.t_bus]
    ends = np.concatenate([area_of[case.f_bus[ties]], area_of[case.t_bus[ties]]])
    count = np.bincount(ends, minlength=len(areas)).astype(float)
    of_zone = np.bincount(zone, count, minlength=len(schedule.interchange))
    share = count / np.maximum(of_zone[zone], 1.0)
    return share * schedule.interchange[zone]


def bus_admittance(case: Case) -> sparse.csr_array:
    """Return Y of the buses, shape (n, n): branches and shunts."""
    y, f, t, every = (
        branch_admittance(case),
        case.f_bus,
        case.t_bus,
        np.arange(case.n_bus),
    )
    rows, columns = (
        np.concatenate([f, f, t, t, every]),
        np.concatenate([f, t, f, t, every]),
    )
    values = np.concatenate([y.ff, y.ft, y.tf, y.tt, case.gs + 1j * case.bs])
    return sparse.coo_array((values, (rows, columns)), shape=(case.n_bus, case.n_bus)).tocsr()


def _settled(grid: _Grid, starts: Iterable[Complexes]) -> _Settled:
    """Solve power flows until every reactive limit holds and every area is settled."""
    bound = np.where((grid.most == 0) & (grid.least == 0), 1, 0)
    last = _first(grid, bound, starts)
    for number in range(2, MOST_POWER_FLOWS):
        found = _within_limits(grid, last)
        after = _areas_switched(grid, found, release=number <= FREE_SWITCHING)
        if np.array_equal(after, found.bound):
            return replace(found, power_flows=number)
        try:
            last = _solve(grid, after, found.solution.voltage, found, np.inf)
        except PowerFlowError:
            return replace(found, power_flows=number)
    return found


def _within_limits(grid: _Grid, last: _Settled) -> _Settled:
    """Return the state within reactive limits, or as near to it as a power flow is found.

    Where none is found at once, what is beyond the limits is taken away little by little.
    """
    share, nearest = 0.0, last
    for _ in range(MOST_EASED):
        found = _nearby(grid, nearest, share)
        if found is None:
            share = 0.5 * (1.0 + share)
            continue
        if share == 0.0 or found.solution.steps == 0:
            return found
        nearest = found
    return _nearby(grid, nearest, 0.0) or nearest


def _nearby(grid: _Grid, last: _Settled, eased: float) -> _Settled | None:
    """Return the state within eased reactive limits, unless it lies on another branch."""
    try:
        found = _solve(grid, last.bound, last.solution.voltage, last, eased)
    except PowerFlowError:
        return None
    moved = np.abs(np.abs(found.solution.voltage) - np.abs(last.solution.voltage))
    return None if moved.max() > LARGEST_MOVE else found


def _held_or_shared(case: Case, dispatch: Dispatch, schedule: Schedule) -> tuple[_Grid, _Settled]:
    """Return the state in which areas hold their interchange.

    Where that is not found, the search starts again from the state in which all generators of an
    island share what is missing; where it is not found from there, that state it is.
    """
    grid = _Grid.of(case, dispatch, schedule)
    try:
        return grid, _settled(grid, _starts(grid))
    except PowerFlowError:
        if len(schedule.interchange) == 1:
            raise
    shared = _Grid.of(case, dispatch, Schedule(np.zeros_like(schedule.zone_of), np.zeros(1)))
    found = _settled(shared, _starts(shared))
    try:
        return grid, _settled(grid, [found.solution.voltage])
    except PowerFlowError:
        return shared, found


def _starts(grid: _Grid) -> Iterator[Complexes]:
    """Yield the dispatch's voltages, then angles of the DC power flow, then a flat start."""
    vm = grid.dispatch.vm
    yield vm * np.exp(1j * grid.dispatch.va)
    flat = np.where(np.isin(np.arange(grid.case.n_bus), grid.case.gen_bus), vm, 1.0)
    yield flat * np.exp(1j * _dc_angles(grid))
    yield flat.astype(complex)


def _first(grid: _Grid, bound: Ints, starts: Iterable[Complexes]) -> _Settled:
    """Solve from the first start from which there is a solution."""
    failure: PowerFlowError | None = None
    for start in starts:
        try:
            return _solve(grid, bound, start, None, np.inf)
        except PowerFlowError as error:
            failure = failure or error
    assert failure is not None
    raise failure


def _dc_angles(grid: _Grid) -> Floats:
    """Return the angles of the DC power flow at the dispatch."""
    case = grid.case
    weight = 1.0 / np.where(case.x != 0, case.x, np.abs(case.r)) / case.tap
    f, t = case.f_bus, case.t_bus
    rows, columns = np.concatenate([f, t, f, t]), np.concatenate([f, t, t, f])
    values = np.concatenate([weight, weight, -weight, -weight])
    laplacian = sparse.coo_array((values, (rows, columns)), shape=(case.n_bus,) * 2).tocsr()
    injected = _injection(grid).real - case.gs
    np.add.at(injected, f, weight * case.shift)
    np.add.at(injected, t, -weight * case.shift)
    turning = np.setdiff1d(np.arange(case.n_bus), grid.reference)
    angles = np.zeros(case.n_bus)
    if len(turning):
        angles[turning] = spsolve(laplacian[turning][:, turning].tocsc(), injected[turning])
    return angles


def _injection(grid: _Grid) -> Complexes:
    """Return what is injected at every bus before regulation; reactive: without generators."""
    case, asked = grid.case, grid.dispatch
    p = np.bincount(case.gen_bus, asked.pg, minlength=case.n_bus) - asked.spill
    total: Complexes = p - (case.pd - asked.p_shed) - 1j * (case.qd - asked.q_shed)
    return total


def _solve(
    grid: _Grid, bound: Ints, voltage: Complexes, last: _Settled | None, eased: float
) -> _Settled:
    case, count = grid.case, len(grid.interchange)
    active = np.flatnonzero(bound == 0)
    regulated = np.unique(grid.area_island[active])
    slack = np.setdiff1d(np.arange(len(grid.reference)), regulated)
    injected = _injection(grid)
    limit = np.where(bound > 0, grid.most, grid.least)
    fixed = np.where(bound != 0, limit, 0.0)
    alpha_of_gen = fixed[grid.gen_area]
    stuck = np.where(alpha_of_gen >= 0, grid.up, grid.down) * alpha_of_gen
    p = injected.real + np.bincount(case.gen_bus, stuck, minlength=case.n_bus)
    near, far = grid.area_of[case.f_bus], grid.area_of[case.t_bus]
    ends = _tie_ends(grid, near != far)
    at_slack = sparse.coo_array(
        (np.ones(len(slack)), (grid.reference[slack], np.arange(len(slack)))),
        shape=(case.n_bus, len(slack)),
    )
    up, down = (_columns(grid, way)[:, active] for way in ("up", "down"))
    column = np.searchsorted(regulated, grid.area_island[active])
    bias = sparse.coo_array(
        (grid.bias[active], (np.arange(len(active)), column)),
        shape=(len(active), len(regulated)),
    )
    low, high = _reactive_limits(grid, voltage, eased)
    equations = FlowEquations(
        injected=sparse.vstack([grid.admittance, ends.rows], format="csr"),
        at=sparse.vstack([sparse.eye_array(case.n_bus), ends.at], format="csr"),
        tie_area=ends.area[active],
        p=p,
        q=injected.imag,
        q_low=low,
        q_high=high,
        setpoint=grid.dispatch.vm,
        reference=np.isin(np.arange(case.n_bus), grid.reference),
        up=sparse.hstack([up, at_slack], format="csr"),
        down=sparse.hstack([down, at_slack], format="csr"),
        interchange=grid.interchange[active],
        bias=bias.tocsr(),
    )
    given = np.zeros(count) if last is None else last.alpha
    begin = np.concatenate([given[active], np.zeros(len(slack))])
    found = solve_power_flow(equations, voltage, begin, np.zeros(len(regulated)))
    alpha, taken = fixed.copy(), np.zeros(len(grid.reference))
    alpha[active], taken[slack] = found.alpha[: len(active)], found.alpha[len(active) :]
    return _Settled(found, bound, alpha, taken, 1)


@dataclass(frozen=True, eq=False)
class _Ends:
    rows: sparse.csr_array
    at: sparse.csr_array
    area: sparse.csr_array


def _tie_ends(grid: _Grid, ties: Bools) -> _Ends:
    """Return admittance rows and buses of the ends of tie lines, and what areas meter of them.

    A tie line is metered in its middle: an area counts half the flow at its own end less half
    that at the other.
    """
    case, y = grid.case, branch_admittance(grid.case)
    k = np.flatnonzero(ties)
    number, size = np.arange(2 * len(k)), (2 * len(k), case.n_bus)
    near = np.concatenate([case.f_bus[k], case.t_bus[k]])
    far = np.concatenate([case.t_bus[k], case.f_bus[k]])
    values = np.concatenate([y.ff[k], y.tt[k], y.ft[k], y.tf[k]])
    places = (np.tile(number, 2), np.concatenate([near, far]))
    return _Ends(
        rows=sparse.coo_array((values, places), shape=size).tocsr(),
        at=sparse.coo_array((np.ones(len(number)), (number, near)), shape=size).tocsr(),
        area=sparse.coo_array(
            (
                np.repeat([0.5, -0.5], len(number)),
                (
                    np.concatenate([grid.area_of[near], grid.area_of[far]]),
                    np.tile(number, 2),
                ),
            ),
            shape=(len(grid.interchange), len(number)),
        ).tocsr(),
    )


def _columns(grid: _Grid, way: str) -> sparse.csr_array:
    """Return the injection of buses by areas' alpha; one without room there: by the other room."""
    here, other = (grid.up, grid.down) if way == "up" else (grid.down, grid.up)
    reach = np.abs(grid.most if way == "up" else grid.least)
    values = np.where(reach[grid.gen_area] > 0, here, other)
    places = (grid.case.gen_bus, grid.gen_area)
    return sparse.coo_array(
        (values, places), shape=(grid.case.n_bus, len(grid.interchange))
    ).tocsr()


def _reactive_limits(grid: _Grid, voltage: Complexes, eased: float) -> tuple[Floats, Floats]:
    """Return limits of reactive generation, eased by a share of the most that is beyond one now."""
    case = grid.case
    generating = np.isin(np.arange(case.n_bus), case.gen_bus)
    if np.isinf(eased):
        return np.where(generating, -np.inf, 0.0), np.where(generating, np.inf, 0.0)
    low, high = (
        np.bincount(case.gen_bus, bound, minlength=case.n_bus).astype(float)
        for bound in (case.qmin, case.qmax)
    )
    now = np.where(generating, _reactive_generation(grid, voltage), 0.0)
    beyond = np.where(generating, np.maximum(now - high, low - now), 0.0).max(initial=0.0)
    room = np.where(generating, eased * max(beyond, 0.0), 0.0)
    return low - room, high + room


def _reactive_generation(grid: _Grid, voltage: Complexes) -> Floats:
    drawn = voltage * np.conj(grid.admittance @ voltage)
    total: Floats = (drawn - _injection(grid)).imag
    return total


def _areas_switched(grid: _Grid, last: _Settled, *, release: bool) -> Ints:
    """Stop areas beyond their limits; let those regulate again that would go back inside."""
    bound = last.bound.copy()
    active = bound == 0
    bound[active & (last.alpha > grid.most + SWITCH_TOLERANCE)] = 1
    bound[active & (last.alpha < grid.least - SWITCH_TOLERANCE)] = -1
    if not release:
        return bound
    s_from, s_to = branch_flows(grid.case, last.solution.voltage)
    areas = Schedule(grid.area_of, grid.interchange)
    excess = _interchange(grid.case, areas, s_from, s_to) - grid.interchange
    common = np.zeros(len(grid.reference))
    common[np.unique(grid.area_island[active])] = last.solution.delta
    excess -= grid.bias * common[grid.area_island]
    slack = last.slack[grid.area_island]
    # a negative slack says that all areas at their upper limits give too much
    too_much = np.where(slack != 0, -slack, excess) > SWITCH_TOLERANCE
    too_little = np.where(slack != 0, slack, -excess) > SWITCH_TOLERANCE
    bound[(last.bound > 0) & too_much & (grid.least < 0)] = 0
    bound[(last.bound < 0) & too_little & (grid.most > 0)] = 0
    return bound


def share_reactive(case: Case, total: Floats) -> Floats:
    """Return the reactive power of every generator for that of its bus.

    Generators of a bus stand at one share of their ranges; where some have no limit, the others
    stand as near 0 as theirs allow and those without share the rest equally.
    """
    bus, n = case.gen_bus, case.n_bus

    def at_bus(values: Floats) -> Floats:
        return np.asarray(np.bincount(bus, values, minlength=n)[bus], dtype=np.float64)

    endless = np.isinf(case.qmin) | np.isinf(case.qmax)
    unlimited = at_bus(endless.astype(float))
    nearest = np.where(endless, 0.0, np.clip(0.0, case.qmin, case.qmax))
    rest = (total[bus] - at_bus(nearest)) / np.maximum(unlimited, 1.0)
    low, high = np.where(endless, 0.0, case.qmin), np.where(endless, 0.0, case.qmax)
    span, number = at_bus(high - low), at_bus(np.ones(len(bus)))
    above = total[bus] - at_bus(low)
    share = np.where(span > 0, (high - low) / np.where(span > 0, span, 1.0), 1.0 / number)
    ranged = low + share * above
    return np.where(unlimited > 0, np.where(endless, rest, nearest), ranged)

"""Control areas of a grid in AC redispatch, and the equations of their power flow.

Generators of an area share its regulation (alpha, p.u.) in proportion to their headroom. An area at
a limit of its alpha is ``bound``; where all areas of an island are bound, the reference bus
balances the rest (``slack``).
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from scipy import sparse

from gridpriv.core.arrays import Bools, Complexes, Floats, Ints, last_of_each
from gridpriv.grid.case import Case
from gridpriv.grid.network import branch_admittance, bus_admittance, islands
from gridpriv.power.ac.newton import FlowEquations, FlowSolution, Jacobian, solve_power_flow
from gridpriv.power.ac.state import Dispatch, Schedule

NEARLY_ALL = 1e4
"""Share of an area with a limit on one side only, in multiples of that of all areas with limits."""


def interchange_of(case: Case, schedule: Schedule, s_from: Complexes, s_to: Complexes) -> Floats:
    """Return each zone's export over its tie lines, metered in their middle."""
    near, far = schedule.zone_of[case.f_bus], schedule.zone_of[case.t_bus]
    through = np.where(near != far, 0.5 * (s_from - s_to).real, 0.0)
    zones = len(schedule.interchange)
    out = np.bincount(near, through, zones) - np.bincount(far, through, zones)
    return np.asarray(out, dtype=np.float64)


def _by_room(room: Floats, group: Ints, groups: int) -> Floats:
    """Return shares in proportion to ``room`` in a group; infinite rooms share all of it."""
    infinite = np.isinf(room)
    unlimited = np.bincount(group, infinite, minlength=groups) > 0
    return np.where(unlimited[group], infinite.astype(float), room)


@dataclass(frozen=True, eq=False)
class AreaPowerFlow:
    """A power flow, the limit of each area in it (-1, 0, 1), and a mask of exhausted islands.

    ``relaxed`` is the share by which reactive limits were relaxed (0: not at all, inf: no limits).
    """

    solution: FlowSolution
    bound: Ints
    exhausted: Bools
    relaxed: float
    power_flows: int

    @property
    def slack(self) -> Floats:
        """Excess of every island's reference bus beyond the regulation of all areas."""
        return np.where(self.exhausted, self.solution.delta, 0.0)


class AreaGrid:
    """A grid of islands with generation, its dispatch and its areas (a zone's part of an island).

    ``up`` and ``down`` are the generators' shares of their area's alpha, which add up to 1 whatever
    the headroom: otherwise Newton's method fails where there is little on one side. ``most`` and
    ``least`` are alpha's limits. ``island`` and ``area_of`` are those of every bus, ``reference``
    a bus of every island, and ``area_island`` the island of every area.
    """

    def __init__(self, case: Case, dispatch: Dispatch, schedule: Schedule) -> None:
        self.case, self.dispatch = case, dispatch
        zone_of = schedule.zone_of.astype(np.int64, copy=False).tobytes()
        self.island, self.reference, areas, area_of, self.admittance = _places(case, zone_of)
        self.area_of, self.area_island = area_of, areas[:, 0]
        gen_area, count = area_of[case.gen_bus], len(areas)
        upward = np.maximum(case.pmax - dispatch.pg, 0.0)
        downward = np.maximum(dispatch.pg - case.pmin, 0.0)
        most, least = (
            np.bincount(gen_area, room, minlength=count).astype(float)
            for room in (upward, downward)
        )
        up, down = (_shares(room, gen_area, count) for room in (upward, downward))
        # an area without headroom on one side would regulate there by its other generators
        self.up = np.where(most[gen_area] > 0, up, down)
        self.down = np.where(least[gen_area] > 0, down, up)
        self.most, self.least = most, -least
        self.interchange = _area_interchange(schedule, areas, area_of, case)
        self.bias = _bias(most, least, self.area_island, self.island.max() + 1)

    @cached_property
    def equations(self) -> FlowEquations:
        """The power flow without limits."""
        case, n, count = self.case, self.case.n_bus, len(self.interchange)
        rows, at, metered = _metered(case, self.area_of.tobytes())
        injected, islands = injection(self), np.arange(len(self.reference))
        infinite, areas = np.full(n, np.inf), np.arange(count)
        shape = (count, len(islands))
        return FlowEquations(
            injected=rows,
            at=at,
            tie_area=metered,
            p=injected.real,
            q=injected.imag,
            q_low=-infinite,
            q_high=infinite,
            setpoint=self.dispatch.vm,
            reference=np.isin(np.arange(n), self.reference),
            up=_columns(self, self.up),
            down=_columns(self, self.down),
            least=np.full(count, -np.inf),
            most=np.full(count, np.inf),
            interchange=self.interchange,
            bias=sparse.coo_array((self.bias, (areas, self.area_island)), shape=shape).tocsr(),
            slack=sparse.coo_array(
                (np.ones(len(islands)), (self.reference, islands)), shape=(n, len(islands))
            ).tocsr(),
            exhausted=np.zeros(len(islands), dtype=bool),
        )

    @cached_property
    def jacobian(self) -> Jacobian:
        """The sparsity pattern of all its power flows."""
        return _pattern(self.case, self.area_of.tobytes())

    @property
    def gen_area(self) -> Ints:
        """The area of every generator."""
        return self.area_of[self.case.gen_bus]

    @property
    def idle(self) -> Bools:
        """Areas that cannot regulate."""
        return np.asarray((self.most == 0) & (self.least == 0))

    @property
    def without_limits(self) -> AreaGrid:
        """The grid whose areas have no limits if they can regulate at all."""
        most = np.where(self.idle, 0.0, np.inf)
        return self._with(most=most, least=-most)

    def within(self, qmin: Floats, qmax: Floats) -> AreaGrid:
        """Return the grid with other limits of generators' reactive power."""
        return self._with(case=replace(self.case, qmin=qmin, qmax=qmax))

    def _with(self, **limits: Any) -> AreaGrid:
        """Return the grid with other limits, on which its equations do not depend."""
        grid = copy(self)
        vars(grid).update(limits, equations=self.equations, jacobian=self.jacobian)
        return grid

    def regulation(self, area_flow: AreaPowerFlow) -> Floats:
        """Return the regulation of every generator: output less set point."""
        alpha = area_flow.solution.alpha[self.gen_area]
        area_regulation = np.where(alpha >= 0, self.up, self.down) * alpha
        at_reference = np.isin(self.case.gen_bus, self.reference)
        shares = 1.0 / np.bincount(self.case.gen_bus, minlength=self.case.n_bus)[self.case.gen_bus]
        slack = area_flow.slack[self.island[self.case.gen_bus]]
        return area_regulation + np.where(at_reference, shares * slack, 0.0)

    def reactive(self, voltage: Complexes) -> Floats:
        """Return every generator's reactive power, distributed at a bus in proportion to range."""
        return share_reactive(self.case, _reactive_generation(self, voltage))


@lru_cache(maxsize=4)
def _places(case: Case, zone_of: bytes) -> tuple[Ints, Ints, Ints, Ints, sparse.csr_array]:
    """Return islands, references, areas, the area of every bus, and Y, for all dispatches."""
    island = islands(case)
    place = np.stack([island, np.frombuffer(zone_of, dtype=np.int64)], axis=1)
    areas, area_of = np.unique(place, axis=0, return_inverse=True)
    references = _references(case, island)
    return island, references, areas, area_of.reshape(-1), bus_admittance(case)


@lru_cache(maxsize=4)
def _pattern(case: Case, area_of: bytes) -> Jacobian:
    """Return the pattern of the power flows of areas, which is the same for all dispatches."""
    areas = np.frombuffer(area_of, dtype=np.int64)
    nothing = Dispatch(np.zeros(case.n_gen), np.ones(case.n_bus), *np.zeros((4, case.n_bus)))
    schedule = Schedule(areas, np.zeros(areas.max() + 1))
    return Jacobian(AreaGrid(case, nothing, schedule).equations)


def _shares(room: Floats, group: Ints, groups: int) -> Floats:
    """Return shares in proportion to ``room`` that add up to 1 in a group; 0 where none has any."""
    weight = _by_room(room, group, groups)
    total = np.bincount(group, weight, minlength=groups)[group]
    return weight / np.where(total > 0, total, 1.0)


def _bias(most: Floats, least: Floats, island: Ints, islands: int) -> Floats:
    """Return K in proportion to range; areas without any limit share all of it.

    An area without a limit on one side can reach the limit on the other. Until then the shares of
    the rest are small but not zero, as they balance afterwards.
    """
    range_ = most + least
    limited = np.bincount(island, np.where(np.isinf(range_), 0.0, range_), islands)[island]
    half = np.isinf(most) != np.isinf(least)
    return _by_room(np.where(half, NEARLY_ALL * (1.0 + limited), range_), island, islands)


def _references(case: Case, island: Ints) -> Ints:
    """Return a bus of each island: the source's reference or its largest generator's."""
    capacity = np.where(np.isinf(case.pmax), np.finfo(float).max / 2, case.pmax)
    is_reference = case.reference[case.gen_bus]
    return case.gen_bus[
        last_of_each(island[case.gen_bus], island.max() + 1, capacity, is_reference)
    ]


def _area_interchange(schedule: Schedule, areas: Ints, area_of: Ints, case: Case) -> Floats:
    """Return X of every area; that of a zone in several islands is split by tie lines."""
    zone = areas[:, 1]
    ties = schedule.zone_of[case.f_bus] != schedule.zone_of[case.t_bus]
    ends = np.concatenate([area_of[case.f_bus[ties]], area_of[case.t_bus[ties]]])
    count = np.bincount(ends, minlength=len(areas)).astype(float)
    of_zone = np.bincount(zone, count, minlength=len(schedule.interchange))
    share = count / np.maximum(of_zone[zone], 1.0)
    return share * schedule.interchange[zone]


def injection(grid: AreaGrid) -> Complexes:
    """Return bus injections before regulation; reactive ones without generators."""
    case, dispatch = grid.case, grid.dispatch
    p = np.bincount(case.gen_bus, dispatch.pg, minlength=case.n_bus) - dispatch.curtailment
    return np.asarray(p - (case.pd - dispatch.p_shed) - 1j * (case.qd - dispatch.q_shed))


def solve(
    grid: AreaGrid, bound: Ints, voltage: Complexes, last: AreaPowerFlow | None, relaxed: float
) -> AreaPowerFlow:
    """Solve the power flow in which areas meet their interchange or are at a limit.

    In every island one area that is not ``bound`` has no limits, as there might be no solution
    otherwise. An island with all areas bound is exhausted.

    Parameters
    ----------
    last : AreaPowerFlow or None
        Start of alpha and delta; with None, areas that are not bound have no limits.
    relaxed : float
        Argument of :func:`reactive_limits`.
    """
    equations, least, most, stays = _limited(grid, bound, voltage, last is None, relaxed)
    exhausted = equations.exhausted
    alpha, delta = np.zeros(len(bound)), np.zeros(len(exhausted))
    if last is not None:
        alpha = last.solution.alpha
        delta = np.where(exhausted == last.exhausted, last.solution.delta, 0.0)
    result = solve_power_flow(equations, grid.jacobian, voltage, alpha, delta)
    at_interchange = result.regulating[grid.case.n_bus :]
    at_limit = np.where(most - result.alpha <= result.alpha - least, 1, -1)
    return AreaPowerFlow(
        result, np.where(stays, bound, np.where(at_interchange, 0, at_limit)), exhausted, relaxed, 1
    )


def _limited(
    grid: AreaGrid, bound: Ints, voltage: Complexes, first: bool, relaxed: float
) -> tuple[FlowEquations, Floats, Floats, Bools]:
    """Return equations with limits, the limits of alpha, and the areas that stay at a limit."""
    # the area of each island without limits
    widest = last_of_each(grid.area_island, len(grid.reference), grid.bias, bound == 0)
    exhausted = bound[widest] != 0
    unlimited = np.isin(np.arange(len(bound)), widest[~exhausted]) | (first & (bound == 0))
    stopped = np.where(bound > 0, grid.most, grid.least)
    stays = exhausted[grid.area_island]
    least = np.where(unlimited, -np.inf, np.where(stays, stopped, grid.least))
    most = np.where(unlimited, np.inf, np.where(stays, stopped, grid.most))
    low, high = reactive_limits(grid, voltage, relaxed)
    equations = replace(
        grid.equations, q_low=low, q_high=high, least=least, most=most, exhausted=exhausted
    )
    return equations, least, most, stays


@lru_cache(maxsize=4)
def _metered(case: Case, areas: bytes) -> tuple[sparse.csr_array, Ints, sparse.csr_array]:
    """Return admittance rows of buses and tie ends, their buses, and the areas' metering of ends.

    A tie line is metered in its middle: an area counts half the flow at its own end less half
    that at the other.
    """
    y, area_of = branch_admittance(case), np.frombuffer(areas, dtype=np.int64)
    k = np.flatnonzero(area_of[case.f_bus] != area_of[case.t_bus])
    number, size = np.arange(2 * len(k)), (2 * len(k), case.n_bus)
    near = np.concatenate([case.f_bus[k], case.t_bus[k]])
    far = np.concatenate([case.t_bus[k], case.f_bus[k]])
    values = np.concatenate([y.ff[k], y.tt[k], y.ft[k], y.tf[k]])
    places = (np.tile(number, 2), np.concatenate([near, far]))
    owner = np.concatenate([area_of[near], area_of[far]])
    ends = sparse.coo_array((values, places), shape=size).tocsr()
    halves = (np.repeat([0.5, -0.5], len(number)), (owner, np.tile(number, 2)))
    metered = sparse.coo_array(halves, shape=(area_of.max() + 1, len(number))).tocsr()
    rows = sparse.vstack([bus_admittance(case), ends], format="csr")
    return rows, np.concatenate([np.arange(case.n_bus), near]), metered


def _columns(grid: AreaGrid, shares: Floats) -> sparse.csr_array:
    """Return the injection of buses by areas' alpha."""
    size = (grid.case.n_bus, len(grid.interchange))
    return sparse.coo_array((shares, (grid.case.gen_bus, grid.gen_area)), shape=size).tocsr()


def reactive_limits(grid: AreaGrid, voltage: Complexes, relaxed: float) -> tuple[Floats, Floats]:
    """Return limits of reactive generation, relaxed by a share of the largest present violation."""
    case = grid.case
    generating = np.isin(np.arange(case.n_bus), case.gen_bus)
    if np.isinf(relaxed):
        return np.where(generating, -np.inf, 0.0), np.where(generating, np.inf, 0.0)
    low, high = (
        np.bincount(case.gen_bus, bound, minlength=case.n_bus).astype(float)
        for bound in (case.qmin, case.qmax)
    )
    now = np.where(generating, _reactive_generation(grid, voltage), 0.0)
    violation = np.where(generating, np.maximum(now - high, low - now), 0.0).max(initial=0.0)
    room = np.where(generating, relaxed * max(violation, 0.0), 0.0)
    return low - room, high + room


def _reactive_generation(grid: AreaGrid, voltage: Complexes) -> Floats:
    drawn = voltage * np.conj(grid.admittance @ voltage)
    return np.asarray((drawn - injection(grid)).imag)


def share_reactive(case: Case, total: Floats) -> Floats:
    """Return the reactive power of every generator for that of its bus.

    Generators of a bus are at the same share of their ranges; where some have no limit, the others
    are as near 0 as their limits allow and those without share the rest equally.
    """
    bus, n = case.gen_bus, case.n_bus

    def at_bus(values: Floats) -> Floats:
        return np.asarray(np.bincount(bus, values, minlength=n)[bus], dtype=np.float64)

    infinite = np.isinf(case.qmin) | np.isinf(case.qmax)
    unlimited = at_bus(infinite.astype(float))
    nearest = np.where(infinite, 0.0, np.clip(0.0, case.qmin, case.qmax))
    rest = (total[bus] - at_bus(nearest)) / np.maximum(unlimited, 1.0)
    low, high = np.where(infinite, 0.0, case.qmin), np.where(infinite, 0.0, case.qmax)
    span, number = at_bus(high - low), at_bus(np.ones(len(bus)))
    above = total[bus] - at_bus(low)
    share = np.where(span > 0, (high - low) / np.where(span > 0, span, 1.0), 1.0 / number)
    ranged = low + share * above
    return np.where(unlimited > 0, np.where(infinite, rest, nearest), ranged)

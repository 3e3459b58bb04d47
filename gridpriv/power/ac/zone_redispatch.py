"""Zone redispatch: a zone's AC optimal power flow with its true demand around the schedule.

A zone z solves the AC optimal power flow of its own buses and tie lines:

    minimize   C(pg)/c0 + (VOLL shed + balancing price |X - X_z|)/c0
               + k_f ||tie flows - agreed||^2 + k_v ||w at tie ends - agreed||^2
    subject to AC power flow at own buses, their limits, 0 <= shed <= demand

Control areas control their net interchange, not single tie lines. So a deviation from X_z has a
price, below that of load shedding, and the tie terms keep the assumptions of neighbours close to
each other. In a case without (convex) costs all generation has the same price: least losses. After
AC redispatch a zone measures its boundary, and the reaction of the grid beyond
(:mod:`gridpriv.power.ac.part`) replaces k_f ||p - agreed||^2: k ||p - p0 + B (theta - theta0) - s
a||^2 at the far ends.

The agreed values are public: a function of releases. The plan is local, and so are a zone's
measurements at its own tie ends after AC redispatch. With them it can replan without a message.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from gridpriv.core.arrays import Bools, Complexes, Floats, Ints
from gridpriv.grid.case import Case
from gridpriv.grid.network import deenergized_buses, islands
from gridpriv.power.ac.model import CURTAILMENT_WEIGHT, AcModel
from gridpriv.power.ac.part import ExternalEquivalent, SubCase, live_part
from gridpriv.power.ac.quadratic import Compiled, Solved
from gridpriv.power.objective import BASE_MVA, Service, cost_unit, has_convex_costs
from gridpriv.power.zone import Zone

FLOW_WEIGHT, VOLTAGE_WEIGHT = 1.0, 10.0
"""k_f and k_v on a base of 100 MVA."""
ANGLE_WEIGHT = 10.0
"""k of tie-end voltages, as complex numbers, on a base of 100 MVA."""
REACTION_WEIGHT = 1000.0
"""k of deviations from the modelled reaction of the grid beyond the tie lines."""
SINGLE_REPLAN_SHARE = 0.1
"""Share of the price of deviations from the interchange, for a zone that replans alone."""
CURTAILED_LAST = 2.0
"""Least price of curtailment in such a replan, in multiples of that of deviations."""
NEGLIGIBLE = 1e-6
"""p.u. of shedding below which an interior point sheds nothing."""


LIMITS = dict.fromkeys(("vmin", "vmax"), "buses")
LIMITS |= dict.fromkeys(("rate", "angmin", "angmax"), "branches") | {"qmax": "gens"}
"""Limits of a boundary, with the elements that have them."""


@dataclass(frozen=True, eq=False)
class Reaction:
    """Measurements at the far ends of a zone's tie lines, and the reaction of the grid beyond.

    Attributes
    ----------
    p, q : (k,)
        Flow into the zone's tie lines at the far ends.
    voltage : (buses,) complex
        Of the zone's own and its neighbours' buses.
    """

    equivalent: ExternalEquivalent
    p: Floats
    q: Floats
    voltage: Complexes


@dataclass(frozen=True, eq=False)
class Boundary:
    """A zone's tie lines as agreed or as measured; per unit.

    Attributes
    ----------
    p, q : (j,)
        Flow into every tie line at the zone's own end, in the order of the zone's branches.
    w_near, w_far : (j,)
        Squared voltage magnitude at its own end and at the other.
    interchange : float
        X_z: the zone's export, metered in the middle of tie lines.
    vmin, vmax : (buses,)
        Voltage bands of the plan, of the zone's own and its neighbours' buses.
    rate : (branches,)
        Apparent power limits of the plan (0: none).
    angmin, angmax : (branches,)
        Limits of angle differences of the plan, rad.
    qmax : (gens,)
        Upper reactive limits of the plan.
    firmness : float
        Factor on k_f, k_v and k.
    reaction : Reaction, optional
        With it, active flows follow the reaction of the grid beyond instead of ``p``.
    valuation : TieEndValuation, optional
        With it, voltages at tie ends have the other zones' value at the AC schedule.
    firm : bool
        With it, a deviation from the interchange costs as much as load shedding: under shortage
        others have no reserves.
    free : bool
        With it, tie flows and voltages depend on ``reaction`` only: for a zone that replans alone.
    violation_price : float
        Violations of voltage and flow limits are priced, at this multiple of a price between those
        of interchange deviations and of load shedding; 0 for hard limits.
    output_price : (gens,), optional
        Value of output in other steps, in multiples of c0 per p.u.
    reserve : (gens,), optional
        Reserved generation of the schedule, up and down; with it, a replan keeps the scheduled
        interchange.
    """

    p: Floats
    q: Floats
    w_near: Floats
    w_far: Floats
    interchange: float
    vmin: Floats
    vmax: Floats
    rate: Floats
    angmin: Floats
    angmax: Floats
    qmax: Floats
    firmness: float = 1.0
    reaction: Reaction | None = None
    valuation: TieEndValuation | None = None
    firm: bool = False
    free: bool = False
    violation_price: float = 0.0
    output_price: Floats | None = None
    reserve: Floats | None = None


@dataclass(frozen=True, eq=False)
class TieEndValuation:
    """The other zones' valuation of tie-end voltages at an AC schedule; public.

    Attributes
    ----------
    voltage : (buses,) complex
        Of the zone's own and its neighbours' buses; read at tie ends only.
    slope : (buses,) complex
        Derivative of the other zones' Lagrangian by voltage, dL/de + j dL/df; 0 elsewhere.
    """

    voltage: Complexes
    slope: Complexes

    def at(self, measured: Complexes, ends: Ints) -> TieEndValuation:
        """Return the valuation around measured voltages, rotated to their reference angle.

        Parameters
        ----------
        measured : (buses,) complex
        ends : int array
            Places of the tie ends among the buses.
        """
        turn = np.sum(measured[ends] * np.conj(self.voltage[ends]))
        return TieEndValuation(measured, self.slope * (turn / abs(turn) if turn != 0 else 1.0))


@dataclass(frozen=True, eq=False)
class ZonePlan:
    """Plan of a zone: its dispatch; local. Per unit.

    Attributes
    ----------
    pg, qg : (gens,)
        Of the zone's generators.
    voltage : (buses,) complex
        Of its own and its neighbours' buses (``zone.buses``), with the zone's own reference angle.
    p_shed, q_shed, curtailment : (own,)
        Of its own buses.
    p_price, q_price : (own,)
        Derivative of the zone's cost by demand: $/MWh, or MW of generation per MW where the case
        has no convex costs. NaN without a solution.
    interchange : float
        Planned export; NaN without a solution.
    solved : bool
        False for the fallback where its problem has no solution.
    """

    pg: Floats
    qg: Floats
    voltage: Complexes
    p_shed: Floats
    q_shed: Floats
    curtailment: Floats
    p_price: Floats
    q_price: Floats
    interchange: float
    solved: bool

    def toward(self, new: ZonePlan, step: float) -> ZonePlan:
        """Return the plan with its set points interpolated towards another plan by a share."""
        if step == 1.0:
            return new
        names = ("pg", "qg", "p_shed", "q_shed", "curtailment")
        interpolated = {
            name: getattr(self, name) + step * (getattr(new, name) - getattr(self, name))
            for name in names
        }
        vm = np.abs(self.voltage) + step * (np.abs(new.voltage) - np.abs(self.voltage))
        return replace(new, voltage=vm * np.exp(1j * np.angle(new.voltage)), **interpolated)


@dataclass(frozen=True, eq=False)
class ScheduledState:
    """A zone at an AC schedule; per unit.

    Attributes
    ----------
    voltage : (buses,) complex
        Of its own and its neighbours' buses.
    pg, qg : (gens,)
    """

    voltage: Complexes
    pg: Floats
    qg: Floats


@dataclass(frozen=True, eq=False)
class _Area:
    """The energized part of a zone, with its tie lines (rows of the part, own end near)."""

    part: SubCase
    own: Bools
    ties: Ints
    near_is_from: Bools


@lru_cache(maxsize=64)
def tie_branches(zone: Zone) -> Ints:
    """Return a zone's tie lines, as indices of the network's branches, in the zone's order.

    Tie lines on islands without generation are left out.
    """
    case = zone.network.case
    f, t = case.f_bus[zone.branches], case.t_bus[zone.branches]
    crossing = np.isin(f, zone.own) != np.isin(t, zone.own)
    ties: Ints = zone.branches[crossing & ~deenergized_buses(case)[f]]
    ties.setflags(write=False)
    return ties


def tie_places(zone: Zone) -> Ints:
    """Return the places of a zone's tie ends among its own and its neighbours' buses."""
    case, ties = zone.network.case, tie_branches(zone)
    ends = np.union1d(case.f_bus[ties], case.t_bus[ties])
    return np.asarray(np.searchsorted(zone.buses, ends))


def plan_zone(
    zone: Zone,
    demand: Floats,
    boundary: Boundary,
    service: Service,
    unit: float | None,
    last: Floats,
    before: Solved | None = None,
    scheduled: ScheduledState | None = None,
    compiled: deque[Compiled] | None = None,
) -> tuple[ZonePlan, Solved | None]:
    """Return a zone's plan, and its solution for the start of the next plan.

    Where its problem has no solution, the plan is that of the last round.

    Parameters
    ----------
    demand : (2 own,)
        Its true (pd, qd).
    unit : float or None
        As of :func:`operating_unit`.
    last : (n,)
        The zone's variables after the last round.
    before : Solved, optional
        Solution of its previous plan.
    scheduled : ScheduledState, optional
        The zone at the AC schedule, where the first search begins.
    compiled : deque of Compiled, optional
        Patterns of earlier plans, to which this one's is added.
    """
    area = _area(zone, demand, boundary)
    if area is None:
        return _deenergized_plan(zone, demand), None
    valuation = boundary.valuation
    model = AcModel(
        area.part.case,
        area.own,
        np.isin(np.arange(area.part.case.n_branch), area.ties),
        reference=None if valuation is None else _references_without_ties(area),
        reach=np.inf if boundary.violation_price else 1.0,
    )
    physical = model.program.columns
    price = model.add_operating_cost(unit)
    if boundary.output_price is not None:
        at = np.searchsorted(zone.gens, area.part.gens)
        model.program.add_cost(model.pg, boundary.output_price[at])
    curtailment = CURTAILMENT_WEIGHT * service.voll
    deviation = service.voll if boundary.firm else service.balancing_price
    if boundary.violation_price:
        model.add_violations(boundary.violation_price * np.sqrt(deviation * service.voll) / price)
    if boundary.free:
        deviation *= SINGLE_REPLAN_SHARE
        curtailment = max(curtailment, CURTAILED_LAST * deviation)
    model.add_service_cost(service.voll / price, curtailment / price)
    _hold_interchange(model, area, boundary.interchange, deviation / price)
    if not boundary.free:
        _hold_ties(model, area, boundary)
    rows = np.searchsorted(zone.buses, area.part.buses)
    if valuation is not None:
        _value_tie_voltages(
            model, area, valuation.voltage[rows], valuation.slope[rows], boundary.firmness
        )
    if (reaction := boundary.reaction) is not None:
        _expect_reaction(model, area, reaction, reaction.voltage[rows], boundary.firmness)
    start = _start(zone, area, model, physical, before, scheduled)
    solution = model.program.solve_again(before, start, compiled)
    if not solution.solved:
        return _last_round_plan(zone, last), before
    return _plan(zone, demand, area, model, solution, price), solution


def _area(zone: Zone, demand: Floats, boundary: Boundary) -> _Area | None:
    """Return the energized part of a zone within a boundary's limits; None without one."""
    live = live_part(zone, demand)
    if live is None:
        return None
    part, own = live
    limits: dict[str, Any] = {}
    for name, elements in LIMITS.items():
        at = np.searchsorted(getattr(zone, elements), getattr(part, elements))
        limits[name] = getattr(boundary, name)[at]
    if boundary.reserve is not None:
        reserve = boundary.reserve[np.searchsorted(zone.gens, part.gens)]
        limits |= {"pmin": part.case.pmin - reserve, "pmax": part.case.pmax + reserve}
    ties = np.flatnonzero(own[part.case.f_bus] != own[part.case.t_bus])
    part = replace(part, case=replace(part.case, **limits))
    return _Area(part, own, ties, own[part.case.f_bus[ties]])


def _start(
    zone: Zone,
    area: _Area,
    model: AcModel,
    physical: int,
    before: Solved | None,
    scheduled: ScheduledState | None,
) -> Floats | None:
    """Return the program's point at the zone's last plan, or else at the AC schedule.

    Programs of a zone may differ in their objective, but the first ``physical`` variables are those
    of the same equations.
    """
    if before is not None:
        last, start = before.x[:physical], model.program.start
        start[: len(last)] = last
        return start
    if scheduled is None:
        return None
    gens = np.searchsorted(zone.gens, area.part.gens)
    voltage = scheduled.voltage[np.searchsorted(zone.buses, area.part.buses)]
    return model.starting_from(voltage, scheduled.pg[gens], scheduled.qg[gens])


def operating_unit(case: Case) -> float | None:
    """Return c0 in $/h per p.u.; None where a case has no (convex) costs. It is public."""
    return cost_unit(case) if has_convex_costs(case) else None


def _references_without_ties(area: _Area) -> Ints:
    """Return a bus of every island of a zone without tie lines; the others' angles follow ties."""
    case = area.part.case
    island = islands(case)
    tied = np.unique(island[case.f_bus[area.ties]])
    first = np.unique(island, return_index=True)[1]
    return np.asarray(first[~np.isin(island[first], tied)])


def _value_tie_voltages(
    model: AcModel, area: _Area, voltage: Complexes, slope: Complexes, firmness: float
) -> None:
    """Add Re(conj(slope) V) + k ||V - voltage||^2 over tie ends."""
    case = model.case
    ends = np.union1d(case.f_bus[area.ties], case.t_bus[area.ties])
    weight = firmness * ANGLE_WEIGHT * BASE_MVA / case.base_mva
    for variables, at, price in (
        (model.e, voltage.real, slope.real),
        (model.f, voltage.imag, slope.imag),
    ):
        model.program.add_cost(variables[ends], price[ends] - 2 * weight * at[ends], weight)


def _tie_flows(model: AcModel, area: _Area) -> tuple[Ints, Ints, Ints, Ints]:
    """Return the variables p and q at own ends, then at the other ends, of tie lines."""
    flows = model.flow[:, np.searchsorted(model.metered, area.ties)]
    p, q, p_far, q_far = np.where(area.near_is_from, flows, flows[[2, 3, 0, 1]])
    return p, q, p_far, q_far


def _hold_interchange(model: AcModel, area: _Area, agreed: float, price: float) -> None:
    """Price the deviation from the agreed interchange, metered in the middle of tie lines."""
    if not len(area.ties):
        return
    near, _, far, _ = _tie_flows(model, area)
    row = model.program.add_rows(1, agreed, agreed)
    flows = np.concatenate([near, far])
    halves = np.repeat([0.5, -0.5], len(near))
    model.program.add_linear(np.repeat(row, len(flows)), flows, halves)
    model.program.add_slack(np.repeat(row, 2), np.array([-1.0, 1.0]), price)


def _hold_ties(model: AcModel, area: _Area, boundary: Boundary) -> None:
    """Add k_f ||tie flows - agreed||^2 + k_v ||w at tie ends - agreed||^2."""
    case, program = model.case, model.program
    scale = case.base_mva / BASE_MVA  # flows and voltages weigh as on a base of 100 MVA
    p, q, _, _ = _tie_flows(model, area)
    targets = [(q, boundary.q)]
    if boundary.reaction is None:
        targets.append((p, boundary.p))
    for flow, agreed in targets:
        weight = boundary.firmness * FLOW_WEIGHT * scale
        program.add_cost(flow, -2 * weight * agreed, weight)
    f, t = case.f_bus[area.ties], case.t_bus[area.ties]
    near, far = np.where(area.near_is_from, f, t), np.where(area.near_is_from, t, f)
    for bus, agreed in ((near, boundary.w_near), (far, boundary.w_far)):
        first = np.unique(bus, return_index=True)[1]  # a bus may be the end of several tie lines
        bus, agreed = bus[first], agreed[first]  # noqa: PLW2901
        w = program.add_variables(len(bus), 0.0, start=agreed)
        row = program.add_sums(0.0, 0.0, (w, -1.0))
        for part in (model.e, model.f):
            program.add_product(row, part[bus], part[bus], 1.0)
        weight = boundary.firmness * VOLTAGE_WEIGHT / scale
        program.add_cost(w, -2 * weight * agreed, weight)


def _expect_reaction(
    model: AcModel, area: _Area, reaction: Reaction, voltage: Complexes, firmness: float
) -> None:
    """Add k ||p - p0 + B (theta - theta0) - s a||^2 + k ||q - q0 + K (v - v0)||^2 at far ends.

    Angles and magnitudes to first order.
    """
    case, program, equivalent = model.case, model.program, reaction.equivalent
    ends = np.searchsorted(area.part.buses, equivalent.ends)
    island = islands(case)
    framed = len(model.reference) <= island.max()  # angles are those of the measured frame
    if not framed:
        frame = voltage[model.reference][island]
        voltage = voltage * np.conj(frame) / np.abs(frame)
    e, f = voltage[ends].real, voltage[ends].imag
    size = np.abs(voltage[ends])
    far = np.where(area.near_is_from, case.t_bus[area.ties], case.f_bus[area.ties])
    at = np.searchsorted(ends, far)
    _, _, p, q = _tie_flows(model, area)
    weight = firmness * REACTION_WEIGHT * case.base_mva / BASE_MVA
    generation_change = program.add_variables(1)
    columns = np.tile(np.arange(len(ends)), len(ends))
    # theta - theta0 = (e0 f - f0 e) / v0^2 and v = (e0 e + f0 f) / v0
    for flow, measured, slope, by_e, by_f in (
        (p, reaction.p, equivalent.susceptance, -f / size**2, e / size**2),
        (q, reaction.q + equivalent.stiffness @ size, equivalent.stiffness, e / size, f / size),
    ):
        row = program.add_rows(len(measured), measured, measured)
        program.add_linear(row[at], flow, 1.0)
        deviation = program.add_variables(len(ends))
        program.add_linear(row, deviation, -1.0)
        program.add_cost(deviation, 0.0, weight)
        rows, flat = np.repeat(row, len(ends)), slope.ravel()
        program.add_linear(rows, model.f[ends][columns], flat * by_f[columns])
        program.add_linear(rows, model.e[ends][columns], flat * by_e[columns])
        if flow is p:
            program.add_linear(row, np.repeat(generation_change, len(row)), -equivalent.share)
            if island.max() > 0 and not framed:  # reference angle of an island
                turns = program.add_variables(int(island.max()))
                other = island[ends][columns] > 0
                program.add_linear(
                    rows[other], turns[island[ends][columns][other] - 1], flat[other]
                )


def _interchange(model: AcModel, area: _Area, x: Floats) -> float:
    """Return the zone's export in a solution, metered in the middle of tie lines."""
    near, _, far, _ = _tie_flows(model, area)
    return 0.5 * float((x[near] - x[far]).sum())


def _plan(
    zone: Zone, demand: Floats, area: _Area, model: AcModel, result: Solved, price: float
) -> ZonePlan:
    dispatch, part, plan = model.dispatch(result.x), area.part, _deenergized_plan(zone, demand)
    own = np.searchsorted(zone.own, part.buses[area.own])
    gens = np.searchsorted(zone.gens, part.gens)
    plan.pg[gens], plan.qg[gens] = result.x[model.pg], result.x[model.qg]
    plan.voltage[np.searchsorted(zone.buses, part.buses)] = model.voltage(result.x)
    served, used = dispatch.p_shed < NEGLIGIBLE, dispatch.curtailment < NEGLIGIBLE
    for name, none in (("p_shed", served), ("q_shed", served), ("curtailment", used)):
        getattr(plan, name)[own] = np.where(none, 0.0, getattr(dispatch, name))[area.own]
    for prices, rows in ((plan.p_price, model.p_balance), (plan.q_price, model.q_balance)):
        prices[own] = price * result.multiplier[rows[area.own]]
    return replace(plan, interchange=_interchange(model, area, result.x))


def _deenergized_plan(zone: Zone, demand: Floats) -> ZonePlan:
    """Return the plan of a de-energized zone: no generation, all load shed."""
    p, q = np.split(demand, 2)
    pg, qg = np.zeros((2, len(zone.gens)))
    p_price, q_price = np.full((2, len(zone.own)), np.nan)
    voltage, shed = np.zeros(len(zone.buses), complex), (np.maximum(p, 0.0), q.copy())
    return ZonePlan(pg, qg, voltage, *shed, np.maximum(-p, 0.0), p_price, q_price, 0.0, True)


def _last_round_plan(zone: Zone, last: Floats) -> ZonePlan:
    """Return outputs and voltages of the last round, with all demand served."""
    pg, qg = zone.outputs(last)
    w = last[: len(zone.buses)]
    voltage = np.sqrt(np.where(w > 0, w, 1.0)).astype(complex)
    plan = _deenergized_plan(zone, np.zeros(2 * len(zone.own)))
    return replace(plan, pg=pg, qg=qg, voltage=voltage, interchange=np.nan, solved=False)

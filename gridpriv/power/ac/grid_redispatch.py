"""AC redispatch: the AC state of the whole grid under all zones' plans, and zones' replans.

An AC power flow takes the plans of all zones (:func:`gridpriv.power.ac.flow.ac_flow`). It keeps
every zone's scheduled interchange within its generators' limits and distributes the rest over the
headroom of all zones as balancing power. A zone with a violated limit replans. It uses the boundary
measured at its own ends, its actual interchange, and a linear model of the grid beyond; afterwards
it keeps the interchange of the replan. Limits then have a price, so that no zone sheds load for a
violation that its neighbours can correct. From the second replan on, neighbours of zones whose
voltages stay outside their band replan too, on request. Where load is still shed or a limit
violated, zones replan one at a time, subject only to the model of the grid beyond. A zone that
sheds as much as an AC optimum of its true demand does not replan within limits.

Requests. A zone can only change voltages that its own generators reach. Where its replan leaves a
voltage outside the band, it requests from its neighbours to change the voltages of the buses that
both see by as much; a neighbour without generators forwards the request.

Privacy. A request contains the violation of a voltage band, so it depends on true demand. Like the
voltages and flows that neighbours measure at their tie lines it belongs to operation, and no
certificate covers it (docs/threat-model.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np

from gridpriv.core.arrays import Complexes, Floats, Ints, sums_at
from gridpriv.grid.case import Case
from gridpriv.grid.network import branch_flows
from gridpriv.power.ac.flow import ac_flow
from gridpriv.power.ac.newton import PowerFlowError
from gridpriv.power.ac.part import ExternalEquivalent, Lossless, external_equivalent, lossless
from gridpriv.power.ac.state import (
    AcState,
    Dispatch,
    Limit,
    Schedule,
    Status,
    emergency_shedding,
    status,
)
from gridpriv.power.ac.zone_redispatch import (
    LIMITS,
    Boundary,
    Reaction,
    TieEndValuation,
    ZonePlan,
    tie_branches,
    tie_places,
)
from gridpriv.power.objective import generation_cost
from gridpriv.power.zone import FLOWS, Network, Zone, owner_of

MOST_REPLANS = 10
AS_MEASURED = 1
GAIN = 1.0
"""From the replan after ``AS_MEASURED`` on, a limit is tightened by this share of its violation."""
MOST_IDLE, IMPROVEMENT = 4, 0.02
"""Consecutive replans without an improvement by this share, after which replans end."""
PRICE_FACTOR = 10.0
"""Factor on the price of violated limits after each replan without an improvement."""
MOST_PASSES = 20
"""Number of separate replans of each zone."""
UNDO_FACTOR = 20.0
"""A separate replan above this many times the least severity (MW, at least 1) is undone."""
SHARE_RESTARTED = 0.1
"""Share of the zones up to which only those with shed load or a violation restart."""
DAMPED, MOST_IDLE_DAMPED = 0.5, 2
"""Length of damped steps from the best state, after full steps stall; consecutive passes without an
improvement, after which they end."""
FIRMNESS_FACTORS = 0.1, 1e-3, 1e-4
"""Factors on the firmness of a schedule for softer starts (0038-hedging)."""
COST_INCREASE = 0.005
"""Share by which replans may increase the cost of generation before softer starts are tried."""
MOST_DAMPED, MOST_IDLE_TOGETHER = 10, 3
"""Length of damped steps of all zones together; consecutive steps without an improvement, after
which they end."""
RESTART_FACTOR = 10.0
"""Factor on the least severity, and its least value in MW, beyond which a restart ends."""
MOST_CUTS = 8
"""Steps of emergency load shedding."""
VIOLATION_SEVERITY = 10.0
BALANCING_SEVERITY, USUAL_BALANCING = 0.02, 0.001
"""Severity of balancing power: 50 MW count as one shed MW. Up to this share of the load it counts
only at its price."""
UNIT_SEVERITY = {"p.u.": 100.0}

Order = Callable[["GridRedispatch"], tuple[bool, float, float]]
Planning = Callable[[Sequence[Boundary | None]], Sequence[ZonePlan | None]]


@dataclass(frozen=True, eq=False)
class GridRedispatch:
    """The grid after AC redispatch; local.

    Attributes
    ----------
    state : AcState or None
        None where the plans have no AC power flow; ``failure`` then has the reason.
    failure : str
    plans : tuple of ZonePlan
        In the order of the zones.
    scheduled : (zones,)
        Agreed interchange, p.u.; public.
    replans : int
        Number of replans.
    """

    state: AcState | None
    failure: str
    plans: tuple[ZonePlan, ...]
    scheduled: Floats
    replans: int

    @property
    def violations(self) -> tuple[Limit, ...]:
        """Violated limits of the grid."""
        return () if self.state is None else self.state.violations

    @property
    def status(self) -> Status:
        """AC feasibility of the state; infeasible without an AC power flow."""
        return "infeasible" if self.state is None else status(self.violations)


@dataclass(frozen=True, eq=False)
class _RedispatchInputs:
    """A grid, its zones and their planning functions.

    Attributes
    ----------
    plan : callable
        As of :func:`redispatch_grid`.
    equivalent : callable
        Returns the grid beyond the tie lines of the zone at a position.
    owners : (n,) int
        As of :func:`gridpriv.power.zone.owner_of`.
    least_shed : (zones,)
        As of :func:`redispatch_grid`; 0 where it is not known.
    """

    case: Case
    zones: Sequence[Zone]
    plan: Planning
    equivalent: Callable[[int], ExternalEquivalent | None]
    owners: Ints
    least_shed: Floats

    def measured(self, z: int, state: AcState, planned: Boundary, gain: float) -> Boundary:
        """Return the measured boundary of the zone at a position."""
        return measured_boundary(self.zones[z], state, planned, self.equivalent(z), gain)

    def plans(
        self, plans: Sequence[ZonePlan], boundaries: Sequence[Boundary | None], step: float = 1.0
    ) -> list[ZonePlan]:
        """Return plans, with those of given zones changed by a share of the new ones' change."""
        return [
            old if new is None or not new.solved else old.toward(new, step)
            for old, new in zip(plans, self.plan(boundaries), strict=True)
        ]

    def redispatched(
        self,
        scheduled: Floats,
        current: Floats,
        plans: Sequence[ZonePlan],
        before: GridRedispatch | None,
    ) -> GridRedispatch:
        """Return the AC redispatch of plans; ``before`` is the state that zones measured."""
        schedule = Schedule(self.owners, current)
        replans, previous = (0, None) if before is None else (before.replans + 1, before.state)
        try:
            dispatch = joint_dispatch(self.case, self.zones, plans)
            state = ac_flow(self.case, dispatch, schedule, previous)
        except PowerFlowError as error:
            return GridRedispatch(None, str(error), tuple(plans), scheduled, replans)
        state = replace(state, deviation=state.interchange - scheduled)
        return GridRedispatch(state, "", tuple(plans), scheduled, replans)


def agreed_boundaries(
    network: Network, zones: Sequence[Zone], averages: Sequence[Floats]
) -> tuple[Boundary, ...]:
    """Return every zone's boundary from the mean of the last sent copies; public."""
    size = network.offsets["end"]
    total, holders = np.zeros(size), np.zeros(size)
    for zone, average in zip(zones, averages, strict=True):
        total[zone.coordinates] += average
        holders[zone.coordinates] += 1.0
    mean = total / np.maximum(holders, 1.0)
    start, case = network.offsets, network.case
    p_from, q_from, p_to, q_to = (mean[start[flow] : start[flow] + case.n_branch] for flow in FLOWS)
    s_from, s_to, w = p_from + 1j * q_from, p_to + 1j * q_to, mean[: case.n_bus]
    return tuple(_boundary(zone, s_from, s_to, w) for zone in zones)


def scheduled_boundaries(
    network: Network,
    zones: Sequence[Zone],
    voltage: Complexes,
    slopes: Sequence[Complexes],
    firmness: float,
    output_prices: Sequence[Floats] | None = None,
) -> tuple[Boundary, ...]:
    """Return every zone's boundary from an AC schedule; public.

    Parameters
    ----------
    voltage : (n,) complex
        Read at tie ends only.
    slopes : sequence of (buses,) complex
        As of :class:`gridpriv.power.ac.zone_redispatch.TieEndValuation`.
    firmness : float
        Factor on the quadratic terms that keep tie flows and voltages near the schedule.
    output_prices : sequence of (gens,), optional
        As of :class:`gridpriv.power.schedule.AcSchedule`.
    """
    prices = [None] * len(zones) if output_prices is None else output_prices
    s_from, s_to = branch_flows(network.case, voltage)
    return tuple(
        replace(
            _boundary(zone, s_from, s_to, np.abs(voltage) ** 2),
            firmness=firmness,
            valuation=TieEndValuation(voltage[zone.buses], slope),
            output_price=price,
        )
        for zone, slope, price in zip(zones, slopes, prices, strict=True)
    )


def measured_boundary(
    zone: Zone,
    state: AcState,
    planned: Boundary,
    equivalent: ExternalEquivalent | None,
    gain: float,
) -> Boundary:
    """Return a zone's boundary as measured at its tie ends, with the reaction of the grid beyond.

    The other end's voltage follows from voltage and flow at its own by Ohm's law. Violated limits
    of voltage magnitudes, angle differences, ratings and upper reactive power are tightened by
    ``gain`` times the violation, as neighbours did not act as the zone expected: at most to the
    middle of the range (an absent angle limit counts as 90 degrees), half the rating, or the lower
    reactive limit. Limits that are not reached are relaxed again by their slack.
    """
    case, limits = zone.network.case, _limits(zone)
    vm, low, high = (values[zone.buses] for values in (state.vm, case.vmin, case.vmax))
    middle = (low + high) / 2
    ends = state.s_from[zone.branches], state.s_to[zone.branches]
    flow = np.maximum(*np.abs(ends))
    qg, qmin, qmax = (values[zone.gens] for values in (state.qg, case.qmin, case.qmax))
    limited = np.isfinite(qmax)
    above = np.where(limited, qg - np.where(limited, qmax, 0.0), 0.0)
    rate = limits["rate"]
    tightened = np.clip(planned.rate - gain * (flow - rate), rate / 2, rate)
    angle = np.angle(state.voltage[case.f_bus] * np.conj(state.voltage[case.t_bus]))[zone.branches]
    least = np.maximum(limits["angmin"], -np.pi / 2)
    most = np.minimum(limits["angmax"], np.pi / 2)
    between = (least + most) / 2
    valuation, here = planned.valuation, state.voltage[zone.buses]
    return replace(
        planned,
        **_at_ties(zone, state.s_from, state.s_to, state.vm**2),
        free=False,
        reaction=_reaction(zone, state, equivalent),
        valuation=None if valuation is None else valuation.at(here, tie_places(zone)),
        vmin=np.clip(planned.vmin + gain * (low - vm), low, middle),
        vmax=np.clip(planned.vmax - gain * (vm - high), middle, high),
        rate=np.where(rate > 0, tightened, 0.0),
        angmin=np.where(
            np.isfinite(limits["angmin"]),
            np.clip(planned.angmin + gain * (least - angle), least, between),
            -np.inf,
        ),
        angmax=np.where(
            np.isfinite(limits["angmax"]),
            np.clip(planned.angmax - gain * (angle - most), between, most),
            np.inf,
        ),
        qmax=np.clip(planned.qmax - gain * above, qmin, qmax),
    )


def _reaction(zone: Zone, state: AcState, equivalent: ExternalEquivalent | None) -> Reaction | None:
    if equivalent is None:
        return None
    case, ties = zone.network.case, tie_branches(zone)
    out = np.isin(case.f_bus[ties], zone.own)
    far = np.where(out, case.t_bus[ties], case.f_bus[ties])
    flow, at = (
        np.where(out, state.s_to[ties], state.s_from[ties]),
        equivalent.ends.searchsorted(far),
    )
    p, q = (sums_at(at, part, len(equivalent.ends)) for part in (flow.real, flow.imag))
    return Reaction(equivalent, p, q, state.voltage[zone.buses])


def zone_equivalent(zone: Zone, grid: Lossless | None) -> ExternalEquivalent | None:
    """Return the grid beyond a zone's tie lines, None without any; public."""
    ties = tie_branches(zone)
    return external_equivalent(grid, zone.own, ties) if grid is not None and len(ties) else None


def _boundary(zone: Zone, s_from: Complexes, s_to: Complexes, w: Floats) -> Boundary:
    return Boundary(**_at_ties(zone, s_from, s_to, w), **_limits(zone))


def _at_ties(zone: Zone, s_from: Complexes, s_to: Complexes, w: Floats) -> dict[str, Any]:
    """Return flows, squared voltages and interchange of a boundary, from those of branches."""
    case, ties = zone.network.case, tie_branches(zone)
    f, t = case.f_bus[ties], case.t_bus[ties]
    out = np.isin(f, zone.own)
    near, far = np.where(out, (s_from[ties], s_to[ties]), (s_to[ties], s_from[ties]))
    w_near, w_far = np.where(out, (w[f], w[t]), (w[t], w[f]))
    ends = {"p": near.real, "q": near.imag, "w_near": w_near, "w_far": w_far}
    return ends | {"interchange": 0.5 * float((near - far).real.sum())}


def _limits(zone: Zone) -> dict[str, Any]:
    """Return the limits of a zone's plan, by the names of a boundary."""
    case = zone.network.case
    return {name: getattr(case, name)[getattr(zone, of)] for name, of in LIMITS.items()}


def redispatch_grid(
    case: Case,
    zones: Sequence[Zone],
    agreed: Sequence[Boundary],
    plan: Planning,
    balancing_price: float,
    least_shed: Floats | None = None,
) -> GridRedispatch:
    """Plan in every zone, compute the AC redispatch, and replan in zones with a violation.

    Where the outcome sheds load, is infeasible, or costs clearly more than the first plans, zones
    restart from the agreed boundary. Restarts have hard limits, then interchange deviations at the
    price of load shedding (unless nothing is shed), then less firmness (``FIRMNESS_FACTORS``).
    Where only the cost is high, all zones also take damped steps together, from their first plans
    and from the best outcome. The best outcome has the least severity, including excessive
    balancing power (``BALANCING_SEVERITY``), then the least cost with balancing power.

    Parameters
    ----------
    case : Case
        With the true demand.
    zones : sequence of Zone
    agreed : sequence of Boundary
    plan : callable
        Returns every zone's plan for its boundary; None for a zone whose boundary is None, which
        keeps its plan.
    balancing_price : float
        Of balancing power, $/MWh.
    least_shed : (zones,), optional
        Load shedding of the AC optimum of true demand, p.u.: zones that shed no more do not replan
        unless a limit is violated.
    """
    lossless_grid = cache(lambda: lossless(case))  # computed where a zone replans
    equivalent = cache(lambda z: zone_equivalent(zones[z], lossless_grid()))
    least = np.zeros(len(zones)) if least_shed is None else least_shed
    grid = _RedispatchInputs(case, zones, plan, equivalent, owner_of(case, zones), least)
    order = partial(_order, balancing_price=balancing_price)
    first = _first(grid, agreed)
    priced = [replace(item, violation_price=1.0) for item in agreed]
    best = _replanned(grid, priced, first, order)
    restarts = [
        [replace(item, firmness=share * item.firmness) for item in agreed]
        for share in FIRMNESS_FACTORS
    ]
    if first.state is None or not _is_served(grid, best) or _shedding(grid, first):
        restarts.insert(0, [replace(item, firm=True) for item in agreed])
    for start in (agreed, *restarts):
        if _is_served(grid, best) and not _exceeds_planned_cost(grid, best, first):
            return best
        initial = first if start is agreed else _restarted(grid, start, best)
        if (
            start is not agreed
            and _severity(initial) > RESTART_FACTOR * _severity(best) > RESTART_FACTOR**2
        ):
            continue
        best = min(best, _replanned(grid, start, initial, order), key=order)
    for free in (True, False):
        if _exceeds_planned_cost(grid, best, first):
            begin = first if free else best
            best = min(best, _damped(grid, agreed, begin, order, free=free), key=order)
    return best


def _damped(
    grid: _RedispatchInputs,
    agreed: Sequence[Boundary],
    last: GridRedispatch,
    order: Order,
    *,
    free: bool,
) -> GridRedispatch:
    """Take damped steps of all zones to the agreed interchange; return the best outcome.

    Where all zones correct their measured violations at once they overshoot, and may end far from
    their cheapest dispatch.

    Parameters
    ----------
    free : bool
        As of :class:`gridpriv.power.ac.zone_redispatch.Boundary`.
    """
    boundaries, best, idle = list(agreed), last, 0
    for k in range(MOST_DAMPED):
        if last.state is None or idle == MOST_IDLE_TOGETHER:
            break
        for z, agreed_boundary in enumerate(agreed):
            measured = grid.measured(z, last.state, boundaries[z], DAMPED * GAIN)
            boundaries[z] = replace(measured, interchange=agreed_boundary.interchange, free=free)
        plans = grid.plans(last.plans, boundaries, DAMPED)
        current = last.state.interchange + DAMPED * (last.scheduled - last.state.interchange)
        last = grid.redispatched(last.scheduled, current, plans, last)
        better = k == 0 or order(last) < order(best)
        best, idle = (last, 0) if better else (best, idle + 1)
    return best


def _first(grid: _RedispatchInputs, agreed: Sequence[Boundary]) -> GridRedispatch:
    """Return the AC redispatch of every zone's first plan."""
    scheduled = np.array([boundary.interchange for boundary in agreed])
    plans = [boundary for boundary in grid.plan(agreed) if boundary is not None]
    return grid.redispatched(scheduled, scheduled, plans, None)


def _restarted(
    grid: _RedispatchInputs, start: Sequence[Boundary], best: GridRedispatch
) -> GridRedispatch:
    """Return the AC redispatch from another start: of all zones, or of the few concerned.

    Where few of many zones have shed load or a violation, the others keep their plans.
    """
    few = set() if best.state is None else _affected(grid, best)
    if best.state is None or not 0 < len(few) <= SHARE_RESTARTED * len(grid.zones):
        return _first(grid, start)
    boundaries = [item if z in few else None for z, item in enumerate(start)]
    plans, current = list(best.plans), best.state.interchange.copy()
    for z, new in enumerate(grid.plan(boundaries)):
        if new is not None and new.solved:
            plans[z], current[z] = new, start[z].interchange
    return grid.redispatched(best.scheduled, current, plans, best)


def _is_served(grid: _RedispatchInputs, redispatch: GridRedispatch) -> bool:
    return redispatch.status != "infeasible" and not _shedding(grid, redispatch)


def _exceeds_planned_cost(
    grid: _RedispatchInputs, best: GridRedispatch, first: GridRedispatch
) -> bool:
    """Return True for a feasible outcome without shedding that costs clearly more than planned."""
    cost = _generation_cost(first)
    return _is_served(grid, best) and _generation_cost(best) > cost + COST_INCREASE * abs(cost)


def _generation_cost(redispatch: GridRedispatch) -> float:
    """Return the cost of generation in $/h; infinite without a state, 0 without costs."""
    state = redispatch.state
    return np.inf if state is None else generation_cost(state.case, state.pg) or 0.0


def _order(redispatch: GridRedispatch, balancing_price: float) -> tuple[bool, float, float]:
    """Return the sort key of outcomes of different searches.

    It is severity, including balancing power above ``USUAL_BALANCING``, then cost.
    """
    infeasible, severity = _rank(redispatch)
    state = redispatch.state
    if state is None:
        return infeasible, severity, np.inf
    balancing = 0.5 * state.case.base_mva * float(np.abs(state.deviation).sum())
    usual = USUAL_BALANCING * state.case.base_mva * float(np.maximum(state.case.pd, 0.0).sum())
    severity += BALANCING_SEVERITY * max(balancing - usual, 0.0)
    expense = _generation_cost(redispatch) + balancing_price * balancing
    return infeasible, round(severity / state.negligible_mw), expense


def _replanned(
    grid: _RedispatchInputs, agreed: Sequence[Boundary], first: GridRedispatch, order: Order
) -> GridRedispatch:
    """Replan in zones with a violation or shed load, until replans end.

    Zones that then replan one at a time may draw far too much balancing power to serve all load.
    """
    zones, scheduled, boundaries = grid.zones, first.scheduled, list(agreed)
    interchange, plans = scheduled.copy(), list(first.plans)
    best = last = first
    idle = 0
    for replans in range(1, MOST_REPLANS + 1):
        if last.state is None or not (last.violations or _shedding(grid, last)):
            break
        gain = GAIN if replans > AS_MEASURED else 0.0
        replan_boundaries: list[Boundary | None] = [None] * len(zones)
        for z in _affected(grid, last):
            replan_boundaries[z] = boundaries[z] = grid.measured(z, last.state, boundaries[z], gain)
        for z, (low, high) in requests(zones, grid.owners, last.state).items() if gain else ():
            measured = replan_boundaries[z] or grid.measured(z, last.state, boundaries[z], gain)
            replan_boundaries[z] = boundaries[z] = within_request(measured, low, high)
        plans = grid.plans(plans, replan_boundaries)
        for z, boundary in enumerate(replan_boundaries):
            if boundary is not None and boundary.reserve is None and plans[z].solved:
                interchange[z] = plans[z].interchange
        last = grid.redispatched(scheduled, interchange, plans, last)
        idle = 0 if _severity(last) < (1.0 - IMPROVEMENT) * _severity(best) else idle + 1
        if idle:
            boundaries = [
                replace(boundary, violation_price=PRICE_FACTOR * boundary.violation_price)
                for boundary in boundaries
            ]
        best = min(best, last, key=_rank)
        if idle == MOST_IDLE:
            break
    last = _after_emergency_shedding(grid, interchange, _in_turn(grid, agreed, best))
    return min(last, best, key=order)


def _in_turn(
    grid: _RedispatchInputs, agreed: Sequence[Boundary], redispatch: GridRedispatch
) -> GridRedispatch:
    """Replan in one zone at a time where load is shed or the state is not AC-feasible.

    Simultaneous replans assume that other zones do not change, so they need terms on tie flows and
    voltages to converge. A separate replan uses only the reaction of the grid beyond its ties, and
    a lower price of interchange deviations. After full steps without an improvement, damped steps
    start from the best state.
    """
    zones = grid.zones
    if _is_served(grid, redispatch):
        return redispatch
    best = last = redispatch
    agreed_priced = [
        replace(item, violation_price=PRICE_FACTOR**2 * item.violation_price) for item in agreed
    ]
    boundaries, step, idle = list(agreed_priced), 1.0, 0
    for _ in range(MOST_PASSES):
        if last.state is None or not (last.violations or _shedding(grid, last)):
            break
        before = _severity(best)
        for z in sorted(_affected(grid, last)):
            if grid.equivalent(z) is None or last.state is None:
                continue
            measured = grid.measured(z, last.state, boundaries[z], GAIN)
            boundaries[z] = replace(measured, free=True, valuation=None)
            new = grid.plan([boundaries[z] if k == z else None for k in range(len(zones))])[z]
            if new is None or not new.solved:
                continue
            plans, current = list(last.plans), last.state.interchange.copy()
            plans[z] = plans[z].toward(new, step)
            if boundaries[z].reserve is None:
                current[z] += step * (new.interchange - current[z])
            after = grid.redispatched(best.scheduled, current, plans, last)
            if _severity(after) > UNDO_FACTOR * max(1.0, _severity(best), _severity(last)):
                continue
            last = after
            best = min(best, last, key=_rank)
        idle = 0 if _severity(best) < (1.0 - IMPROVEMENT) * before else idle + 1
        if step == DAMPED and idle == MOST_IDLE_DAMPED:
            break
        if idle == MOST_IDLE:
            last, boundaries, step, idle = best, list(agreed_priced), DAMPED, 0
    return best


def _after_emergency_shedding(
    grid: _RedispatchInputs, current: Floats, redispatch: GridRedispatch
) -> GridRedispatch:
    """Shed load until no generator is above a limit; keep the better outcome."""
    best, case = redispatch, grid.case
    for _ in range(MOST_CUTS):
        share = (
            None if redispatch.state is None else emergency_shedding(redispatch.state, grid.owners)
        )
        if share is None:
            break
        plans = []
        for zone, plan in zip(grid.zones, redispatch.plans, strict=True):
            pd, qd, cut = (values[zone.own] for values in (case.pd, case.qd, share))
            p_shed = plan.p_shed + cut * (np.maximum(pd, 0.0) - plan.p_shed)
            q_shed = plan.q_shed + np.where(pd > 0, cut, 0.0) * (qd - plan.q_shed)
            plans.append(replace(plan, p_shed=p_shed, q_shed=q_shed))
        redispatch = replace(
            grid.redispatched(redispatch.scheduled, current, plans, redispatch),
            replans=redispatch.replans,
        )
        best = min(best, redispatch, key=_rank)
    return best


def _rank(redispatch: GridRedispatch) -> tuple[bool, float]:
    """Return the sort key of outcomes: AC-feasible (or marginal) ones first."""
    return redispatch.status == "infeasible", _severity(redispatch)


def _severity(redispatch: GridRedispatch) -> float:
    """Return the severity: MW shed, plus 10 for each MW (0.01 p.u.) outside a limit."""
    if redispatch.state is None:
        return np.inf
    outside = (limit.amount * UNIT_SEVERITY.get(limit.unit, 1.0) for limit in redispatch.violations)
    return VIOLATION_SEVERITY * sum(outside) + redispatch.state.shed_mw


def _affected(grid: _RedispatchInputs, redispatch: GridRedispatch) -> set[int]:
    """Return the zones with shed load or a violation."""
    return _shedding(grid, redispatch) | _observing(grid.zones, redispatch.violations)


def _shedding(grid: _RedispatchInputs, redispatch: GridRedispatch) -> set[int]:
    """Return the zones with shed load on energized islands.

    Without violated limits, those that shed more than ``least_shed``.
    """
    assert redispatch.state is not None
    shed = np.where(redispatch.state.deenergized, 0.0, redispatch.state.p_shed)
    most = np.zeros(len(grid.zones)) if redispatch.violations else grid.least_shed
    most = most + redispatch.state.negligible_mw / grid.case.base_mva
    return {z for z, zone in enumerate(grid.zones) if shed[zone.own].sum() > most[z]}


def _observing(zones: Sequence[Zone], outside: tuple[Limit, ...]) -> set[int]:
    """Return the zones with a violation at their own buses or at the far ends of their ties.

    Values at a far end are computed from measurements at the near end.
    """
    case = zones[0].network.case
    buses = {case.index_of[int(bus)] for limit in outside for bus in limit.at.split("-")}
    return {z for z, zone in enumerate(zones) if not buses.isdisjoint(zone.buses.tolist())}


def joint_dispatch(case: Case, zones: Sequence[Zone], plans: Sequence[ZonePlan]) -> Dispatch:
    """Return the zones' plans as one dispatch; angles are rotated to match at tie lines."""
    pg = np.zeros(case.n_gen)
    voltage = np.ones(case.n_bus, complex)
    unserved = np.zeros((3, case.n_bus))
    for zone, plan, turn in zip(zones, plans, _turns(case, zones, plans), strict=True):
        pg[zone.gens] = plan.pg
        own = np.searchsorted(zone.buses, zone.own)
        voltage[zone.own] = plan.voltage[own] * np.exp(1j * turn)
        unserved[:, zone.own] = plan.p_shed, plan.q_shed, plan.curtailment
    vm = np.abs(voltage)
    return Dispatch(pg, np.where(vm > 0, vm, 1.0), np.angle(voltage), *unserved)


def _turns(case: Case, zones: Sequence[Zone], plans: Sequence[ZonePlan]) -> Floats:
    """Return the angle to add to each zone's, so that both sides of a tree of ties match."""
    owner, turns, known = owner_of(case, zones), np.zeros(len(zones)), set[int]()
    angles = [np.angle(plan.voltage) for plan in plans]
    for root in range(len(zones)):
        queue = [] if root in known else [root]
        known.add(root)
        while queue:
            z = queue.pop()
            for place, bus in enumerate(zones[z].buses):
                other = int(owner[bus])
                if other not in known:
                    seen = angles[other][np.searchsorted(zones[other].buses, bus)]
                    turns[other] = turns[z] + angles[z][place] - seen
                    known.add(other)
                    queue.append(other)
    return turns


Bands = dict[int, tuple[Floats, Floats]]
"""Requested voltage bands (buses,), by zone."""


def requests(zones: Sequence[Zone], owner: Ints, state: AcState) -> Bands:
    """Return the voltage bands that zones request from others.

    Parameters
    ----------
    owner : (n,) int
        As of :func:`gridpriv.power.zone.owner_of`.
    """
    above, below = _outside(zones, owner, state)
    bands: Bands = {}
    for asking in np.flatnonzero((above > 0) | (below > 0)).tolist():
        for z, through in _request_receivers(zones, owner, asking):
            zone = zones[z]
            low, high = bands.setdefault(
                z, (np.full(len(zone.buses), -np.inf), np.full(len(zone.buses), np.inf))
            )
            both = np.isin(zone.buses, zones[through].buses)
            vm = state.vm[zone.buses[both]]
            if above[asking] > 0:
                high[both] = np.minimum(high[both], vm - above[asking])
            if below[asking] > 0:
                low[both] = np.maximum(low[both], vm + below[asking])
    return bands


def within_request(boundary: Boundary, low: Floats, high: Floats) -> Boundary:
    """Return a boundary with its voltage bands narrowed, except where they would be empty."""
    vmin, vmax = np.maximum(boundary.vmin, low), np.minimum(boundary.vmax, high)
    not_empty = vmin <= vmax
    return replace(
        boundary,
        vmin=np.where(not_empty, vmin, boundary.vmin),
        vmax=np.where(not_empty, vmax, boundary.vmax),
    )


def _outside(zones: Sequence[Zone], owner: Ints, state: AcState) -> tuple[Floats, Floats]:
    """Return the largest violation of voltage bands in every zone, above and below, p.u."""
    above, below = np.zeros((2, len(zones)))
    for limit in state.violations:
        if limit.kind == "voltage":
            side = above if limit.limit == "upper" else below
            z = owner[state.case.index_of[int(limit.at)]]
            side[z] = max(side[z], limit.amount)
    return above, below


def _request_receivers(
    zones: Sequence[Zone], owner: Ints, asking: int
) -> Iterator[tuple[int, int]]:
    """Yield the zones with generators that a request reaches, and the zone that forwards it."""
    reached, waiting = {asking}, [asking]
    while waiting:
        through = waiting.pop()
        for z in np.unique(owner[zones[through].buses]).tolist():
            if z in reached:
                continue
            reached.add(z)
            if len(zones[z].gens):
                yield z, through
            else:
                waiting.append(z)

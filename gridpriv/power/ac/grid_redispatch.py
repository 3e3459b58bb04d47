"""AC redispatch: the AC state of the whole grid under all zones' plans, and zones' replans.

An AC power flow takes the plans of all zones (:func:`gridpriv.power.ac.flow.ac_flow`). It keeps
every zone's interchange within its generators' limits and distributes the rest over the headroom of
all zones as balancing power. A zone with a violated limit replans. It uses the boundary measured at
its own ends, its actual interchange, and a linear model of the grid beyond; afterwards it keeps the
interchange of the replan. Limits then have a price, so that no zone sheds load for a violation that
its neighbours can correct. From the second replan on, zones adjacent to one whose voltages stay
outside their band replan too, on request: a zone can only change voltages that its own generators
reach. Where load is still shed or a limit violated, zones replan one at a time, subject only to the
model of the grid beyond. While a zone sheds load, zones that curtail generation replan too, for
their surplus may serve it. A zone that sheds as much as an AC optimum of its true demand does not
replan within limits. Where load is still shed or a limit violated, zones request other tie flows
from adjacent zones. At the end all zones move their set points towards outcomes that shed less but
exceed limits, as far as the limits allow: flows and voltages change almost linearly in between.

Requests of tie flows. A zone that sheds load because of its branches can only change tie flows that
its own generators reach. It then plans without the reaction of the grid beyond, at a weight on tie
flows that follows from the balancing price; the planned flows and tie-end voltages are its request.
Zones that shed load or measure a violation at a bus of their own request in turn.

Privacy. A request depends on true demand, and so do a common move and the choice of the best
outcome. Like the voltages and flows that neighbours measure at their tie lines they belong to
operation, and no certificate covers them (docs/threat-model.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from gridpriv.core.arrays import Bools, Complexes, Floats, Ints, sums_at
from gridpriv.grid.case import Case
from gridpriv.grid.network import branch_flows
from gridpriv.power.ac.flow import ac_flow
from gridpriv.power.ac.model import NOTIONAL_COST
from gridpriv.power.ac.newton import PowerFlowError
from gridpriv.power.ac.part import ExternalEquivalent, Lossless, external_equivalent, lossless
from gridpriv.power.ac.state import (
    AcState,
    Dispatch,
    Limit,
    Schedule,
    Status,
    emergency_curtailment,
    emergency_shedding,
    status,
)
from gridpriv.power.ac.zone_redispatch import (
    LIMITS,
    Boundary,
    Reaction,
    TieEndValuation,
    ZonePlan,
    operating_unit,
    tie_branches,
    tie_places,
)
from gridpriv.power.objective import generation_cost
from gridpriv.power.zone import Network, Zone, mean_of_copies, owner_of

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
LEAST_OUTCOMES, MOST_BUSES = 10, 200_000
"""The number of outcomes is at most ``MOST_BUSES`` over the number of buses, or the former."""
LEAST_GAIN, AVOIDABLE_LOSSES = 0.005, 0.01
"""Share of shed load. Where it could fall by less, zones do not plan for other outcomes. Share of
losses that another outcome is assumed to avoid."""
SHARE_RESTARTED = 0.1
"""Share of the zones up to which only those with shed load or a violation restart."""
DAMPED, MOST_IDLE_DAMPED = 0.5, 2
"""Length of damped steps from the best state, after full steps stall; consecutive passes without an
improvement, after which they end."""
FIRMNESS_FACTORS = 0.1, 1e-3, 1e-4
"""Factors on the firmness of a schedule for softer starts (0038-hedging)."""
SAVING = 1e-4
"""Share of the cost of generation that another start saves, from which zones replan from it too."""
COST_INCREASE = 0.005
"""Share by which replans may increase the cost of generation before softer starts are tried."""
MOST_DAMPED, MOST_IDLE_TOGETHER = 10, 3
"""Length of damped steps of all zones together; consecutive steps without an improvement, after
which they end."""
RESTART_FACTOR = 10.0
"""Factor on the least severity, and its least value in MW, beyond which a restart ends."""
MOST_NEAR, MOST_HALVINGS, MOST_USELESS = 8, 6, 3
"""Number of infeasible outcomes, those of the least severity, towards which zones move from one
that sheds more; halvings of each move; first halvings without an improvement, after which it
ends."""
MOST_REQUESTS, REQUEST_SHARE = 3, 0.05
"""Number of consecutive searches by requests of tie flows. The plans that are the requests have
this share of the balancing price over c0 as their firmness, so that zones exchange little for a MW
not shed."""
REQUEST_STEPS, MOST_IDLE_REQUESTS, MOST_ANSWERS = (1.0, 1.0, *7 * (DAMPED,)), 2, 30
"""Lengths of the steps of such a search, one per pass over the zones; consecutive passes without an
improvement, and number of answered requests, after which it ends."""
REPLANS = (False, 1.0, MOST_IDLE), (True, 1.0, MOST_IDLE), (True, DAMPED, MOST_IDLE_DAMPED)
"""Orders of replans, one after the other: True for one zone at a time, length of steps, and number
of consecutive passes without an improvement that end it."""
MOST_CUTS = 8
"""Steps of emergency load shedding and curtailment."""
VIOLATION_SEVERITY = 10.0
BALANCING_SEVERITY, USUAL_BALANCING = 0.02, 0.001
"""Severity of balancing power: 50 MW count as one shed MW. Up to this share of the load it counts
only at its price."""
UNIT_SEVERITY = {"p.u.": 100.0}

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
    interchange : (zones,)
        Interchange that the zones regulate to, p.u.
    """

    state: AcState | None
    failure: str
    plans: tuple[ZonePlan, ...]
    scheduled: Floats
    replans: int
    interchange: Floats

    @property
    def violations(self) -> tuple[Limit, ...]:
        """Violated limits of the grid."""
        return () if self.state is None else self.state.violations

    @property
    def status(self) -> Status:
        """AC feasibility of the state; infeasible without an AC power flow."""
        return "infeasible" if self.state is None else status(self.violations)

    @property
    def shed_mw(self) -> float:
        """Load shedding in MW; infinite without a state."""
        return np.inf if self.state is None else self.state.shed_mw

    @property
    def severity(self) -> float:
        """MW shed, plus 10 for each MW (0.01 p.u.) outside a limit; infinite without a state."""
        if self.state is None:
            return np.inf
        outside = (limit.amount * UNIT_SEVERITY.get(limit.unit, 1.0) for limit in self.violations)
        return VIOLATION_SEVERITY * sum(outside) + self.state.shed_mw

    @property
    def rank(self) -> tuple[bool, float]:
        """Sort key of the outcomes of one search: AC-feasible (or marginal) ones first."""
        return self.status == "infeasible", self.severity

    @property
    def generation_cost(self) -> float:
        """Cost of generation in $/h; infinite without a state, 0 without costs."""
        state = self.state
        return np.inf if state is None else generation_cost(state.case, state.pg) or 0.0

    def order(self, balancing_price: float) -> tuple[bool, float, float]:
        """Return the sort key of outcomes of different searches.

        It is severity, including balancing power above ``USUAL_BALANCING``, then cost.
        """
        infeasible, severity = self.rank
        state = self.state
        if state is None:
            return infeasible, severity, np.inf
        balancing = _balancing_mw(state)
        limit = USUAL_BALANCING * state.case.base_mva * float(np.maximum(state.case.pd, 0.0).sum())
        severity += BALANCING_SEVERITY * max(balancing - limit, 0.0)
        expense = self.generation_cost + balancing_price * balancing
        return infeasible, round(severity / state.negligible_mw), expense


def agreed_boundaries(
    network: Network, zones: Sequence[Zone], averages: Sequence[Floats]
) -> tuple[Boundary, ...]:
    """Return every zone's boundary from the mean of the last sent copies; public."""
    part = network.families(mean_of_copies(network, zones, averages))
    s_from, s_to = part["p_from"] + 1j * part["q_from"], part["p_to"] + 1j * part["q_to"]
    return tuple(_boundary(zone, s_from, s_to, part["w"]) for zone in zones)


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
    zone: Zone, state: AcState, planned: Boundary, external: ExternalEquivalent | None, gain: float
) -> Boundary:
    """Return a zone's boundary as measured at its tie ends, with the reaction of the grid beyond.

    The other end's voltage follows from voltage and flow at its own by Ohm's law. Violated limits
    of voltage magnitudes, angle differences, ratings and upper reactive power are tightened by
    ``gain`` times the violation, as neighbours did not act as the zone expected: at most to the
    middle of the range (an absent angle limit counts as 90 degrees), half the rating, or the lower
    reactive limit. Limits that are not reached are relaxed again by their slack.
    """
    case, limits, valuation = zone.network.case, _limits(zone), planned.valuation
    least, most = np.maximum(limits["angmin"], -np.pi / 2), np.minimum(limits["angmax"], np.pi / 2)
    limits["angmin"] = np.where(np.isfinite(limits["angmin"]), least, -np.inf)
    limits["angmax"] = np.where(np.isfinite(limits["angmax"]), most, np.inf)
    angle = np.angle(state.voltage[case.f_bus] * np.conj(state.voltage[case.t_bus]))[zone.branches]
    flow = np.maximum(*np.abs((state.s_from[zone.branches], state.s_to[zone.branches])))
    voltage = state.vm[zone.buses], (limits["vmin"] + limits["vmax"]) / 2
    measured = {  # value of each limited quantity, and its tightest limit
        **dict.fromkeys(("vmin", "vmax"), voltage),
        **dict.fromkeys(("angmin", "angmax"), (angle, (least + most) / 2)),
        "rate": (flow, limits["rate"] / 2),
        "qmax": (state.qg[zone.gens], case.qmin[zone.gens]),
    }
    changes: dict[str, Any] = {
        name: _tightened(getattr(planned, name), limits[name], *of, gain)
        for name, of in measured.items()
    }
    changes |= _at_ties(zone, state.s_from, state.s_to, state.vm**2)
    if valuation is not None:
        changes["valuation"] = valuation.at(state.voltage[zone.buses], tie_places(zone))
    return replace(planned, **changes, reaction=_reaction(zone, state, external))


def _tightened(
    planned: Floats, limit: Floats, value: Floats, tightest: Floats, gain: float
) -> Floats:
    """Return a planned limit moved by a share of its violation, from ``limit`` to ``tightest``."""
    change = gain * (np.where(np.isfinite(limit), limit, value) - value)
    return np.clip(planned + change, np.minimum(limit, tightest), np.maximum(limit, tightest))


def _reaction(zone: Zone, state: AcState, equivalent: ExternalEquivalent | None) -> Reaction | None:
    if equivalent is None:
        return None
    case, ties, ends = zone.network.case, tie_branches(zone), equivalent.ends
    out = np.isin(case.f_bus[ties], zone.own)
    at = ends.searchsorted(np.where(out, case.t_bus[ties], case.f_bus[ties]))
    flow = np.where(out, state.s_to[ties], state.s_from[ties])
    p, q = (sums_at(at, part, len(ends)) for part in (flow.real, flow.imag))
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


def _balancing_mw(state: AcState) -> float:
    return 0.5 * state.case.base_mva * float(np.abs(state.deviation).sum())


class Outcomes(NamedTuple):
    """The best outcome, the nearest infeasible ones that shed less, and the number of outcomes."""

    best: GridRedispatch
    near: tuple[GridRedispatch, ...] = ()
    number: int = 0


@dataclass(frozen=True, eq=False)
class _RedispatchSearch:
    """The search for the AC redispatch of a grid.

    Attributes
    ----------
    plan, agreed, balancing_price : callable, sequence of Boundary, float
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
    agreed: Sequence[Boundary]
    plan: Planning
    balancing_price: float
    equivalent: Callable[[int], ExternalEquivalent | None]
    owners: Ints
    least_shed: Floats

    def better(self, *outcomes: GridRedispatch) -> GridRedispatch:
        """Return the best outcome, the first of equal ones."""
        return min(outcomes, key=lambda outcome: outcome.order(self.balancing_price))

    def collected(self, known: Outcomes, outcomes: Iterable[GridRedispatch]) -> Outcomes:
        """Return the known outcomes and those of a search, up to the largest number of outcomes."""
        best, near, number = known
        for outcome in islice(outcomes, self.left(known)):
            number += 1
            best = self.better(best, outcome)
            most = np.inf if best.status == "infeasible" else best.shed_mw
            new = (outcome,) if outcome.status == "infeasible" and outcome not in near else ()
            less = (other for other in (*near, *new) if other.shed_mw < most)
            near = tuple(sorted(less, key=lambda other: other.severity)[:MOST_NEAR])
        return Outcomes(best, near, number)

    def left(self, known: Outcomes) -> int:
        """Return the number of outcomes up to the largest one."""
        return max(LEAST_OUTCOMES, MOST_BUSES // self.case.n_bus, known.number) - known.number

    def measured(self, z: int, state: AcState, planned: Boundary, gain: float) -> Boundary:
        """Return the measured boundary of the zone at a position."""
        return measured_boundary(self.zones[z], state, planned, self.equivalent(z), gain)

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
            return GridRedispatch(None, str(error), tuple(plans), scheduled, replans, current)
        state = replace(state, deviation=state.interchange - scheduled)
        return GridRedispatch(state, "", tuple(plans), scheduled, replans, current)

    def plans(
        self, last: GridRedispatch, boundaries: Mapping[int, Boundary], step: float = 1.0
    ) -> dict[int, ZonePlan]:
        """Return the plans of zones at boundaries, moved a share of the way to new solutions."""
        new = enumerate(self.plan([boundaries.get(z) for z in range(len(self.zones))]))
        return {z: last.plans[z].toward(p, step) for z, p in new if p is not None and p.solved}

    def actual(self, redispatch: GridRedispatch) -> Floats:
        """Return the actual interchange; of zones that keep theirs, the scheduled one."""
        if redispatch.state is None or self.agreed[0].reserve is not None:
            return redispatch.scheduled
        return redispatch.state.interchange

    def changed(
        self, last: GridRedispatch, kept: Floats, new: Mapping[int, ZonePlan], step: float = 1.0
    ) -> GridRedispatch:
        """Return the AC redispatch with new plans of some zones; ``last`` where there are none.

        ``kept`` is the interchange of the other zones.
        """
        current = kept.copy()
        for z, plan in new.items():
            if self.agreed[z].reserve is None:
                current[z] += step * (plan.interchange - current[z])
        plans = [new.get(z, plan) for z, plan in enumerate(last.plans)]
        return self.redispatched(last.scheduled, current, plans, last) if new else last

    def first(self, start: Sequence[Boundary]) -> GridRedispatch:
        """Return the AC redispatch of every zone's first plan."""
        scheduled = np.array([boundary.interchange for boundary in start])
        plans = [plan for plan in self.plan(start) if plan is not None]
        return self.redispatched(scheduled, scheduled, plans, None)

    def restarted(self, start: Sequence[Boundary], best: GridRedispatch) -> GridRedispatch:
        """Return the AC redispatch from another start: of all zones, or of the few concerned.

        Where few of many zones have shed load or a violation, the others keep their plans.
        """
        few = set() if best.state is None else self.affected(best)
        if not 0 < len(few) <= SHARE_RESTARTED * len(self.zones):
            return self.first(start)
        plans = self.plans(best, {z: start[z] for z in few})
        return self.changed(best, self.actual(best), plans)

    def shedding(self, redispatch: GridRedispatch) -> set[int]:
        """Return the zones with shed load on energized islands.

        Without violated limits, those that shed more than ``least_shed``.
        """
        assert redispatch.state is not None
        shed = np.where(redispatch.state.deenergized, 0.0, redispatch.state.p_shed)
        most = np.zeros(len(self.zones)) if redispatch.violations else self.least_shed
        most = most + redispatch.state.negligible_mw / self.case.base_mva
        return {z for z, zone in enumerate(self.zones) if shed[zone.own].sum() > most[z]}

    def violated(self, redispatch: GridRedispatch) -> set[int]:
        """Return the buses of violated limits."""
        limits, index = redispatch.violations, self.case.index_of
        return {index[int(bus)] for limit in limits for bus in limit.at.split("-")}

    def affected(self, redispatch: GridRedispatch) -> set[int]:
        """Return the zones with shed load, or with a violation at a bus of theirs or of a tie line.

        While load is shed in a zone, those that curtail generation are affected too.
        Values at the far end of a tie line are computed from measurements at the near end.
        """
        buses = self.violated(redispatch)
        own = (z for z, zone in enumerate(self.zones) if not buses.isdisjoint(zone.buses.tolist()))
        shedding = self.shedding(redispatch)
        curtailing = (z for z, plan in enumerate(redispatch.plans) if plan.curtailment.any())
        return shedding.union(own, curtailing if shedding else ())

    def requesting(self, redispatch: GridRedispatch) -> set[int]:
        """Return the zones that request tie flows: with shed load, or a violation at an own bus."""
        if redispatch.state is None:
            return set()
        return self.shedding(redispatch).union(
            int(self.owners[b]) for b in self.violated(redispatch)
        )

    def is_served(self, redispatch: GridRedispatch) -> bool:
        """Return True for a feasible outcome without load shedding."""
        return redispatch.status != "infeasible" and not self.shedding(redispatch)

    def is_settled(self, redispatch: GridRedispatch) -> bool:
        """Return True for a feasible outcome that sheds nothing, or that hardly any can improve.

        A marginal one is not: another may be within all limits. Load shedding could fall by unused
        capacity and a share of losses, both on its islands.
        """
        state = redispatch.state
        if state is None or redispatch.status != "feasible":
            return False
        losses = (state.s_from + state.s_to).real[state.short_buses[self.case.f_bus]].sum()
        gain = state.unused_mw + AVOIDABLE_LOSSES * self.case.base_mva * losses
        gain += BALANCING_SEVERITY * _balancing_mw(state)
        most = LEAST_GAIN * (state.shed_mw - state.deenergized_mw)
        return not self.shedding(redispatch) or bool(gain <= most)

    def exceeds_cost(self, best: GridRedispatch, first: GridRedispatch) -> bool:
        """Return True for a feasible outcome without shedding that costs clearly too much."""
        cost = first.generation_cost
        return self.is_served(best) and best.generation_cost > cost + COST_INCREASE * abs(cost)


def _damped(
    search: _RedispatchSearch, last: GridRedispatch, *, free: bool
) -> Iterator[GridRedispatch]:
    """Yield the outcomes of damped steps of all zones together, to the agreed interchange.

    Where all zones correct their measured violations at once they overshoot, and may end far from
    their cheapest dispatch.

    Parameters
    ----------
    free : bool
        As of :class:`gridpriv.power.ac.zone_redispatch.Boundary`.
    """
    boundaries, best, idle = [replace(b, free=free) for b in search.agreed], None, 0
    for _ in range(MOST_DAMPED):
        if last.state is None or idle == MOST_IDLE_TOGETHER:
            break
        for z, agreed in enumerate(search.agreed):
            measured = search.measured(z, last.state, boundaries[z], DAMPED * GAIN)
            boundaries[z] = replace(measured, interchange=agreed.interchange)
        plans = search.plans(last, dict(enumerate(boundaries)), DAMPED)
        last = search.changed(last, search.actual(last), plans, DAMPED)
        yield last
        better = last if best is None else search.better(best, last)
        best, idle = better, 0 if better is last else idle + 1


def _replanned(
    search: _RedispatchSearch, start: Sequence[Boundary], first: GridRedispatch
) -> Iterator[GridRedispatch]:
    """Yield an outcome, and those of zones with a violation or shed load that replan from it.

    They replan together, then one at a time where load is shed or the state is not AC-feasible, at
    last by damped steps. Simultaneous replans assume that other zones do not change, so they need
    terms on tie flows and voltages to converge. A separate replan uses only the reaction of the
    grid beyond its ties, and a lower price of interchange deviations.
    """
    best, passes = first, iter(range(MOST_PASSES))
    yield first
    for alone, step, most_idle in REPLANS:
        if alone and search.is_settled(best):
            break
        last, idle, boundaries = best, 0, list(_alone(start) if alone else start)
        for number in passes if alone else range(MOST_REPLANS):
            if last.state is None or idle == most_idle or not search.affected(last):
                break
            before, gain = best.severity, GAIN if alone or number >= AS_MEASURED else 0.0
            affected = sorted(search.affected(last))
            for zones in [[z] for z in affected] if alone else [affected]:
                changed = {z: search.measured(z, last.state, boundaries[z], gain) for z in zones}
                if gain and not alone:
                    for z, through, *band in requests(search.zones, search.owners, last.state):
                        planned = changed.get(z) or search.measured(
                            z, last.state, boundaries[z], gain
                        )
                        shared = np.isin(search.zones[z].buses, search.zones[through].buses)
                        vm = last.state.vm[search.zones[z].buses]
                        changed[z] = within_request(planned, shared, vm, *band)
                for z, boundary in changed.items():
                    boundaries[z] = boundary
                new = search.plans(last, changed, step)
                kept = search.actual(last) if alone else last.interchange
                after = search.changed(last, kept, new, step)
                yield after
                limit = UNDO_FACTOR * max(1.0, best.severity, last.severity)
                if not alone or after.severity <= limit:
                    last, best = after, min(best, after, key=lambda outcome: outcome.rank)
            idle = (
                0 if min(best.severity, last.severity) < (1.0 - IMPROVEMENT) * before else idle + 1
            )
            if idle and not alone:
                boundaries = _priced(boundaries, PRICE_FACTOR)
    yield from _after_emergency(search, best)


def _requested(
    search: _RedispatchSearch, begin: GridRedispatch, *, replan: bool
) -> Iterator[GridRedispatch]:
    """Yield outcomes after zones with shed load or violated limits request tie flows in turn.

    Adjacent zones plan the requested flows, until passes over all zones no longer reduce the
    severity. With ``replan``, zones then replan from the least severe of these outcomes. Zones that
    keep their interchange (``Boundary.reserve``) request nothing.
    """
    if search.agreed[0].reserve is not None:
        return
    unit = operating_unit(search.case)
    cost_mw = NOTIONAL_COST if unit is None else unit / search.case.base_mva
    firmness = REQUEST_SHARE * search.balancing_price / cost_mw
    soft = [
        replace(b, valuation=None, firmness=firmness, violation_price=1.0) for b in search.agreed
    ]
    boundaries, last, best, idle, answers = list(soft), begin, None, 0, 0
    for step in REQUEST_STEPS:
        before = np.inf if best is None else best.severity
        for z in range(len(search.zones)):
            if last.state is None or answers == MOST_ANSWERS or z not in search.requesting(last):
                continue
            answers += 1
            last = _answered(search, boundaries, last, last.state, z, step)
            yield last
            best = last if best is None else min(best, last, key=lambda outcome: outcome.severity)
        improved = best is not None and best.severity < (1.0 - IMPROVEMENT) * before
        idle = 0 if improved else idle + 1
        if idle == MOST_IDLE_REQUESTS:
            break
    if replan and best is not None:
        yield from _replanned(search, soft, best)


def _answered(
    search: _RedispatchSearch,
    boundaries: list[Boundary],
    last: GridRedispatch,
    state: AcState,
    requesting: int,
    step: float,
) -> GridRedispatch:
    """Return the outcome after a zone requests tie flows and adjacent zones plan with them.

    ``boundaries`` are updated to the measured ones.
    """
    zone = search.zones[requesting]
    adjacent = set(search.owners[zone.buses].tolist())
    for z in adjacent:
        boundaries[z] = measured_boundary(search.zones[z], state, boundaries[z], None, step * GAIN)
    wish = replace(boundaries[requesting], violation_price=0.0)
    planned = search.plans(last, {requesting: wish}, step)
    flows = state.s_from.copy(), state.s_to.copy(), state.vm**2
    for plan in planned.values():
        ties, voltage = tie_branches(zone), state.voltage.copy()
        voltage[zone.buses] = plan.voltage
        for flow, new in zip(flows, branch_flows(search.case, voltage), strict=False):
            flow[ties] = new[ties]
        flows[2][zone.own] = np.abs(voltage[zone.own]) ** 2
    answers = {
        z: replace(
            boundaries[z],
            firmness=search.agreed[z].firmness,
            **_at_ties(search.zones[z], *flows),
        )
        for z in adjacent - {requesting}
    }
    plans = planned | search.plans(last, answers if planned else {}, step)
    return search.changed(last, search.actual(last), plans, step)


def _moved(
    search: _RedispatchSearch, begin: GridRedispatch, other: GridRedispatch
) -> Iterator[GridRedispatch]:
    """Yield outcomes with all set points moved towards those of an infeasible one that sheds less.

    They violate no more limits. Prices stay those of the plans at which the move begins.
    """
    best, share = begin, 0.0
    if other.shed_mw >= begin.shed_mw or not all(plan.solved for plan in other.plans):
        return
    current, change = search.actual(begin), search.actual(other) - search.actual(begin)
    for halving in range(1, MOST_HALVINGS + 1):
        trial = share + 0.5**halving
        plans = [
            replace(old.toward(new, trial), p_price=old.p_price, q_price=old.q_price)
            for old, new in zip(begin.plans, other.plans, strict=True)
        ]
        after = search.redispatched(begin.scheduled, current + trial * change, plans, begin)
        if len(after.violations) <= len(begin.violations) and search.better(best, after) is after:
            best, share = replace(after, replans=begin.replans), trial
            yield best
        elif share == 0.0 and halving == MOST_USELESS:
            return


def _priced(boundaries: Sequence[Boundary], factor: float) -> list[Boundary]:
    """Return boundaries with a factor on the price of violated limits."""
    return [replace(b, violation_price=factor * b.violation_price) for b in boundaries]


def _alone(boundaries: Sequence[Boundary]) -> list[Boundary]:
    """Return the boundaries of zones that replan one at a time."""
    return [replace(b, free=True, valuation=None) for b in _priced(boundaries, PRICE_FACTOR**2)]


def _after_emergency(
    search: _RedispatchSearch, redispatch: GridRedispatch
) -> Iterator[GridRedispatch]:
    """Yield outcomes with load shed and generation curtailed for generators beyond a limit."""
    case = search.case
    for _ in range(MOST_CUTS):
        state = redispatch.state
        if state is None:
            break
        share, surplus = emergency_shedding(state, search.owners), emergency_curtailment(state)
        if share is None and not surplus.any():
            break
        cuts = np.zeros(case.n_bus) if share is None else share
        plans = []
        for zone, plan in zip(search.zones, redispatch.plans, strict=True):
            pd, qd, cut = (values[zone.own] for values in (case.pd, case.qd, cuts))
            p_shed = plan.p_shed + cut * (np.maximum(pd, 0.0) - plan.p_shed)
            q_shed = plan.q_shed + np.where(pd > 0, cut, 0.0) * (qd - plan.q_shed)
            curtailment = plan.curtailment + surplus[zone.own]
            plans.append(replace(plan, p_shed=p_shed, q_shed=q_shed, curtailment=curtailment))
        scheduled, current = redispatch.scheduled, redispatch.interchange
        after = search.redispatched(scheduled, current, plans, redispatch)
        redispatch = replace(after, replans=redispatch.replans)
        yield redispatch


def _last(search: _RedispatchSearch, outcomes: Outcomes, first: GridRedispatch) -> GridRedispatch:
    """Return the best outcome after the last searches, which begin from the best one known.

    Zones with shed load request tie flows, then all zones move towards outcomes that shed less. If
    only the cost is high, they take damped steps. Emergency load shedding and curtailment follow
    where a generator is beyond its limits.
    """
    if outcomes.best.status != "infeasible" and search.shedding(outcomes.best):
        for _ in range(MOST_REQUESTS):
            before = outcomes.best
            if not search.is_settled(before):
                outcomes = search.collected(outcomes, _requested(search, before, replan=True))
            if outcomes.best is before:
                break
        for other in outcomes.near:
            outcomes = search.collected(outcomes, _moved(search, outcomes.best, other))
    for free in (True, False):
        if search.exceeds_cost(outcomes.best, first):
            damped = _damped(search, first if free else outcomes.best, free=free)
            outcomes = search.collected(outcomes, damped)
    return search.better(outcomes.best, *_after_emergency(search, outcomes.best))


def redispatch_grid(
    case: Case,
    zones: Sequence[Zone],
    starts: Sequence[Sequence[Boundary]],
    plan: Planning,
    balancing_price: float,
    least_shed: Floats | None = None,
) -> GridRedispatch:
    """Plan in every zone, compute the AC redispatch, and replan in zones with a violation.

    Zones plan for every start. They replan from the best outcome, and from another one where it is
    cheaper or load is still shed. Where the outcome then sheds load, is infeasible, or costs
    clearly more than the first plans, they replan with hard limits, then restart from the first
    start with interchange deviations at the price of load shedding (unless nothing is shed), then
    with less firmness (``FIRMNESS_FACTORS``), then from the last start at firmness 1. Zones request
    tie flows before these starts, and again at the end where load is still shed within the limits.
    Then they move towards the infeasible outcomes of the least severity. Where only the cost is
    high, all zones take damped steps together, from their first plans and from the best outcome.
    The best outcome has the least severity, including excessive balancing power
    (``BALANCING_SEVERITY``), then the least cost with balancing power. Zones replan no further
    where load shedding could hardly fall (``LEAST_GAIN``), or after a number of outcomes
    (``MOST_BUSES``).

    Parameters
    ----------
    case : Case
        With the true demand.
    zones : sequence of Zone
    starts : sequence of sequence of Boundary
        Agreed boundaries of all zones: one set, or several among which the outcome decides.
    plan : callable
        Returns every zone's plan for its boundary; None for a zone whose boundary is None, which
        keeps its plan.
    balancing_price : float
        Of balancing power, $/MWh.
    least_shed : (zones,), optional
        Load shedding of the AC optimum of true demand, p.u.: zones that shed no more do not replan
        unless a limit is violated.
    """
    whole = cache(lambda: lossless(case))  # computed where a zone replans
    equivalent = cache(lambda z: zone_equivalent(zones[z], whole()))
    least = np.zeros(len(zones)) if least_shed is None else least_shed
    owners = owner_of(case, zones)
    search = _RedispatchSearch(
        case, zones, starts[0], plan, balancing_price, equivalent, owners, least
    )
    firsts = [(search.first(start), start) for start in starts]
    firsts.sort(key=lambda item: item[0].order(balancing_price))
    first, agreed = firsts[0]
    search, outcomes = replace(search, agreed=agreed), Outcomes(first)
    for begin, start in firsts:
        worth = begin.generation_cost < (1.0 - SAVING) * outcomes.best.generation_cost
        if begin is first or worth or not search.is_settled(outcomes.best):
            priced = [replace(b, violation_price=1.0) for b in start]
            outcomes = search.collected(outcomes, _replanned(search, priced, begin))
    replanned = outcomes.best
    if not search.is_settled(replanned):
        outcomes = search.collected(outcomes, _requested(search, replanned, replan=False))
    restarts = [[replace(b, firmness=k * b.firmness) for b in starts[0]] for k in FIRMNESS_FACTORS]
    if first.state is None or not search.is_settled(outcomes.best) or search.shedding(first):
        restarts.insert(0, [replace(b, firm=True) for b in starts[0]])
    if len(starts) > 1:
        restarts.append([replace(b, firmness=1.0) for b in starts[-1]])
    for planned, start in (*firsts, *((None, start) for start in restarts)):
        best = outcomes.best
        settled = search.is_settled(best) and not search.exceeds_cost(best, first)
        if settled or not search.left(outcomes):
            break
        new = planned or search.restarted(start, best)
        known = replanned if best.status == "infeasible" else best
        if planned or not new.severity > RESTART_FACTOR * known.severity > RESTART_FACTOR**2:
            outcomes = search.collected(outcomes, _replanned(search, start, new))
    return _last(search, outcomes, first)


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
    owner, turns, visited = owner_of(case, zones), np.zeros(len(zones)), set[int]()
    angles = [np.angle(plan.voltage) for plan in plans]
    for root in range(len(zones)):
        queue = [] if root in visited else [root]
        visited.add(root)
        while queue:
            z = queue.pop()
            for place, bus in enumerate(zones[z].buses):
                other = int(owner[bus])
                if other not in visited:
                    angle = angles[other][np.searchsorted(zones[other].buses, bus)]
                    turns[other] = turns[z] + angles[z][place] - angle
                    visited.add(other)
                    queue.append(other)
    return turns


def requests(
    zones: Sequence[Zone], owner: Ints, state: AcState
) -> Iterator[tuple[int, int, float, float]]:
    """Yield the requests for voltage support that reach zones with generators.

    Each has the zone, the zone that forwards it, and by how much the requesting zone's voltages are
    below and above their bands at most (-inf: not).

    Parameters
    ----------
    owner : (n,) int
        As of :func:`gridpriv.power.zone.owner_of`.
    """
    violation = np.full((2, len(zones)), -np.inf)
    for limit in state.violations:
        if limit.kind == "voltage":
            of = int(limit.limit == "upper"), owner[state.case.index_of[int(limit.at)]]
            violation[of] = max(violation[of], limit.amount)
    for requesting in np.flatnonzero(violation.max(axis=0) > 0).tolist():
        reached, forwarding = {requesting}, [requesting]
        for through in forwarding:  # grows by zones without generators
            for z in sorted(set(owner[zones[through].buses].tolist()) - reached):
                reached.add(z)
                if len(zones[z].gens):
                    yield z, through, *violation[:, requesting].tolist()
                else:
                    forwarding.append(z)


def within_request(
    boundary: Boundary, shared: Bools, vm: Floats, below: float, above: float
) -> Boundary:
    """Return a boundary with narrower voltage bands at shared buses, unless they would be empty."""
    vmin = np.where(shared, np.maximum(boundary.vmin, vm + below), boundary.vmin)
    vmax = np.where(shared, np.minimum(boundary.vmax, vm - above), boundary.vmax)
    fits = vmin <= vmax
    vmin, vmax = np.where(fits, vmin, boundary.vmin), np.where(fits, vmax, boundary.vmax)
    return replace(boundary, vmin=vmin, vmax=vmax)

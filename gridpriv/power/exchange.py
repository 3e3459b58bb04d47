"""Flow-based exchange between zones: PTDFs, margins, and the domain of net positions.

A zone's net position changes by its *generation shift key* (GSK): its generators, in proportion to
their capacity (public), or its demand where it has none. The PTDF of a branch for a zone is the
change of its active flow per unit of net position, balanced by all zones of the island in
proportion to their capacity, so that only differences between zones count. The domain is the set of
net positions whose changes add up to zero in every island and change no branch's flow by more than
its remaining available margin (RAM): its rating, less the flow before, with the reactive flow of
each end unchanged.

PTDFs are those of the DC power flow (susceptances alone; MATPOWER manual, section 4.3), or the
derivative of the AC power flow, from one more power flow per zone.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.optimize import linprog

from gridpriv.core.arrays import Complexes, Floats, Ints
from gridpriv.core.errors import InputError
from gridpriv.grid.case import Case
from gridpriv.grid.network import DcPowerFlow, islands
from gridpriv.power.ac.areas import interchange_of
from gridpriv.power.ac.flow import ac_flow
from gridpriv.power.ac.state import TOLERANCE, AcState, Dispatch, Schedule

FlowModel = Literal["dc", "ac"]
STEP = 0.01
"""p.u. of a zone's net position by which AC flows are differentiated."""
NEGLIGIBLE = 1e-9


@dataclass(frozen=True, eq=False)
class FlowDomain:
    """Net positions of zones that leave every branch within its rating; per unit.

    Attributes
    ----------
    case : Case
    zone_of : (n,) int
    net_position : (zones,)
        Generation less demand of each zone before a change, tie lines metered in their middle.
    branch : (k,) int
        Rated branches.
    flow : (k,)
        Active flow from the from end, before a change.
    ptdf : (k, zones)
    margin : (k, 2)
        Room for more flow, and for less (towards the other end); negative where overloaded.
    keys : (n, zones)
        Share of each bus in its zone's change of net position; columns add up to 1.
    balance : (islands, zones)
        Share of each island in the change of each zone; columns add up to 1.
    """

    case: Case
    zone_of: Ints
    net_position: Floats
    branch: Ints
    flow: Floats
    ptdf: Floats
    margin: Floats
    keys: Floats
    balance: Floats

    @property
    def constraints(self) -> tuple[Floats, Floats]:
        """Matrix and bounds of the changes of net positions: A dn <= b."""
        return np.vstack([self.ptdf, -self.ptdf]), self.margin.T.ravel()

    def exchange(self, seller: int, buyer: int) -> tuple[float, int]:
        """Return the largest exchange from one zone to another, others unchanged, and its limit.

        Returns
        -------
        amount : float
            p.u.; infinite where no branch limits it, 0 where one is overloaded already, or where
            the zones are not in the same islands.
        limit : int
            Index of the limiting branch in the case; -1 where there is none.
        """
        if np.abs(self.balance[:, seller] - self.balance[:, buyer]).max() > NEGLIGIBLE:
            return 0.0, -1
        matrix, bound = self.constraints
        slope = matrix[:, seller] - matrix[:, buyer]
        room = np.where(
            slope > NEGLIGIBLE, bound / np.where(slope > NEGLIGIBLE, slope, 1.0), np.inf
        )
        if not len(room) or np.isinf(room.min()):
            return np.inf, -1
        at = int(np.argmin(room))
        return max(float(room[at]), 0.0), int(np.tile(self.branch, 2)[at])

    def position_range(self, zone: int) -> tuple[float, float]:
        """Return least and largest net position of a zone in the domain, p.u.; NaN if empty."""
        matrix, bound = self.constraints
        direction = np.eye(len(self.net_position))[zone]
        ends = []
        even = np.zeros(len(self.balance))
        limits = {"A_ub": matrix, "b_ub": bound, "A_eq": self.balance, "b_eq": even}
        for sign in (1.0, -1.0):
            result = linprog(sign * direction, **limits, bounds=(None, None))
            change = {0: sign * (result.fun or 0.0), 3: -sign * np.inf}.get(result.status, np.nan)
            ends.append(float(self.net_position[zone] + change))
        return ends[0], ends[1]

    def slice(self, first: int, second: int, balancing: int, most: float) -> Floats:
        """Return the corners of the domain's slice in two net positions, in order; p.u.

        The other zones keep their net positions, except one that balances.

        Parameters
        ----------
        most : float
            Largest change of the search, p.u.

        Returns
        -------
        (corners, 2) float
            Net positions of the two zones; empty where no change is possible.
        """
        matrix, bound = self.constraints
        uneven = self.balance[:, [first, second]] - self.balance[:, [balancing]]
        uneven = uneven[np.abs(uneven).max(axis=1) > NEGLIGIBLE]
        plane = np.vstack([matrix[:, [first, second]] - matrix[:, [balancing]], uneven, -uneven])
        corners = most * np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
        for normal, limit in zip(plane, [*bound, *np.zeros(2 * len(uneven))], strict=True):
            corners = _clipped(corners, normal, limit)
        return corners + self.net_position[[first, second]]


def flow_domain(state: AcState, zone_of: Ints, model: FlowModel = "dc") -> FlowDomain:
    """Return the flow-based domain around an AC state.

    Parameters
    ----------
    state : AcState
    zone_of : (n,) int
        Zone of every bus.
    model : {'dc', 'ac'}
        Power flow of the PTDFs; flows before a change and margins are those of the AC state.

    Raises
    ------
    InputError
        If no branch has a rating, or a zone has neither generation nor demand.
    """
    case = state.case
    branch = np.flatnonzero(
        (case.rate > 0) & ~state.deenergized[case.f_bus] & ~state.deenergized[case.t_bus]
    )
    if not len(branch):
        raise InputError(
            f"case {case.name} has no rated branch, so no exchange is limited. Give ratings (rateA)"
        )
    keys, island = shift_keys(case, zone_of), islands(case)
    balance = np.array([keys[island == k].sum(axis=0) for k in range(island.max() + 1)])
    weight = keys @ _capacity(case, zone_of)
    total = np.bincount(island, weight)
    balancing = weight / np.where(total > 0, total, 1.0)[island]
    change = keys - balancing[:, None] * balance[island]
    flows = dc_ptdf(case, change) if model == "dc" else _ac_flows(state, change)
    sent = state.s_from[branch].real
    margin = _margins(case.rate[branch], state.s_from[branch], -state.s_to[branch])
    margin[(margin < 0) & (margin > -TOLERANCE["MVA"] / case.base_mva)] = 0.0  # of the solver
    areas = Schedule(zone_of, np.zeros(keys.shape[1]))
    position = interchange_of(case, areas, state.s_from, state.s_to)
    return FlowDomain(case, zone_of, position, branch, sent, flows[branch], margin, keys, balance)


def _margins(rate: Floats, sent: Complexes, received: Complexes) -> Floats:
    """Return the change of active flow up and down that keeps both ends within the rating.

    Parameters
    ----------
    rate : (k,)
    sent, received : (k,) complex
        Power into the branch at its from end and out of it at its to end, p.u. The reactive power
        of each end is unchanged.

    Returns
    -------
    (k, 2)
        Negative where an end is overloaded.
    """
    ends = np.stack([sent, received])
    most = np.sqrt(np.maximum(rate**2 - ends.imag**2, 0.0))
    return np.column_stack([(most - ends.real).min(axis=0), (most + ends.real).min(axis=0)])


def shift_keys(case: Case, zone_of: Ints) -> Floats:
    """Return the share of every bus in its zone's change of net position, (n, zones)."""
    count = int(zone_of.max()) + 1
    capacity = np.bincount(case.gen_bus, _stated(case), case.n_bus)
    has_capacity = np.bincount(zone_of, capacity, count) > 0
    weight = np.where(has_capacity[zone_of], capacity, np.maximum(case.pd, 0.0))
    total = np.bincount(zone_of, weight, count)
    if (total <= 0).any():
        raise InputError(
            f"zone {int(np.argmin(total)) + 1} of case {case.name} has neither generation of a "
            "stated capacity nor demand, so its net position cannot change"
        )
    keys = np.zeros((case.n_bus, count))
    keys[np.arange(case.n_bus), zone_of] = weight / total[zone_of]
    return keys


def _stated(case: Case) -> Floats:
    """Return the capacity of every generator, 0 if not given."""
    return np.where(np.isfinite(case.pmax), np.maximum(case.pmax, 0.0), 0.0)


def _capacity(case: Case, zone_of: Ints) -> Floats:
    """Return every zone's share of capacity; equal shares if no capacity is given."""
    capacity = np.bincount(zone_of[case.gen_bus], _stated(case), int(zone_of.max()) + 1)
    total = capacity.sum()
    return np.asarray(capacity / total if total > 0 else np.full(len(capacity), 1 / len(capacity)))


def dc_ptdf(case: Case, change: Floats) -> Floats:
    """Return the change of active branch flows by the DC power flow, column by column.

    Parameters
    ----------
    change : (n, k)
        Changes of bus injections, each adding up to 0 in every island.

    Raises
    ------
    InputError
        If reactances of both signs cancel, so that there is no DC power flow.
    """
    try:
        dc = DcPowerFlow.of(case)
    except RuntimeError:
        raise InputError(
            f"case {case.name} has no DC power flow: positive and negative reactances"
            f"{_where_cancelling(case)} cancel. Change them, or use PTDFs of the AC power flow "
            "(--ptdf ac)"
        ) from None
    return dc.flows(change)


def _where_cancelling(case: Case) -> str:
    """Return a sentence on the first two buses between which parallel reactances cancel."""
    ends = np.sort(np.stack([case.f_bus, case.t_bus], axis=1), axis=1)
    pairs, place = np.unique(ends, axis=0, return_inverse=True)
    susceptance = 1.0 / np.where(case.x != 0, case.x, np.abs(case.r)) / case.tap
    place = place.ravel()
    total, size = np.bincount(place, susceptance), np.bincount(place, np.abs(susceptance))
    cancelling = np.flatnonzero(np.abs(total) < NEGLIGIBLE * size)
    if not len(cancelling):
        return ""
    first, second = case.bus_id[pairs[cancelling[0]]]
    return f" of branches between buses {first} and {second}"


def shifted(state: AcState, change: Floats) -> AcState:
    """Return the AC state after a change of bus injections (p.u.), at constant voltage set points.

    All generators balance the change of losses in proportion to their headroom.
    """
    case = replace(state.case, pd=state.case.pd - change)
    vm = np.where(state.vm > 0, state.vm, 1.0)
    dispatch = Dispatch(state.pg, vm, state.va, state.p_shed, state.q_shed, state.curtailment)
    return ac_flow(case, dispatch, None, state)


def _ac_flows(state: AcState, change: Floats) -> Floats:
    columns = []
    for column in change.T:
        after = shifted(state, STEP * column)
        flow_change = 0.5 * ((after.s_from - after.s_to) - (state.s_from - state.s_to)).real
        columns.append(flow_change / STEP)
    return np.column_stack(columns)


def _clipped(corners: Floats, normal: Floats, limit: float) -> Floats:
    """Return the part of a convex polygon where ``normal . x <= limit``."""
    excess = corners @ normal - limit
    vertices: list[Floats] = []
    for at in range(len(corners)):
        here, there = corners[at], corners[(at + 1) % len(corners)]
        a, b = excess[at], excess[(at + 1) % len(corners)]
        if a <= 0:
            vertices.append(here)
        if (a <= 0) != (b <= 0):
            vertices.append(here + a / (a - b) * (there - here))
    return np.array(vertices).reshape(-1, 2)


def merit_order(low: Floats, total: float, segments: Floats) -> Floats:
    """Return the cheapest outputs of generators that add up to ``total``, network ignored.

    Parameters
    ----------
    low : (g,)
        Least outputs, p.u.
    total : float
        Generation, p.u.
    segments : (s, 4)
        Generator, width (p.u.), and marginal cost at the lower and the upper end, linear between
        them. That of a generator does not decrease.

    Returns
    -------
    (g,) float
        Segments of the same constant price are taken in equal shares.
    """
    gen, width, first, last = segments.T
    flat = first == last

    def taken(price: float, *, at_price: bool) -> Floats:
        rising = np.clip((price - first) / np.where(flat, 1.0, last - first), 0.0, 1.0)
        reached = first <= price if at_price else first < price
        return np.asarray(width * np.where(flat, reached, rising))

    prices = np.unique(segments[:, 2:]).tolist()
    needed = float(np.clip(total - low.sum(), 0.0, width.sum()))
    at = bisect_left(prices, needed, key=lambda price: float(taken(price, at_price=True).sum()))
    around = [(price, side) for price in prices[max(at - 1, 0) : at + 1] for side in (False, True)]
    steps = [taken(price, at_price=side) for price, side in around] or [np.zeros(0)]
    sums = [step.sum() for step in steps]
    upper = min(bisect_left(sums, needed), len(sums) - 1)
    lower = max(upper - 1, 0)
    part = (needed - sums[lower]) / max(sums[upper] - sums[lower], NEGLIGIBLE)
    added = steps[lower] + min(max(part, 0.0), 1.0) * (steps[upper] - steps[lower])
    return np.asarray(low + np.bincount(gen.astype(np.int64), added, len(low)))

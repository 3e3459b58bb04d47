"""Dispatch, schedule and AC state of a grid, the limits of its elements, and emergency shedding.

A plan that uses missing reserves leaves the reference generators of an island above their active
limits, or generators above their reactive limits. Protection then sheds load: under-frequency
shedding for active power and under-voltage shedding for reactive power, both at constant power
factor. Zones that draw more than their schedule are shed first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from gridpriv.core.arrays import Bools, Complexes, Floats, Ints
from gridpriv.core.text import counted
from gridpriv.grid.case import Case
from gridpriv.grid.network import branch_flows, islands

if TYPE_CHECKING:
    import pandas as pd

Status = Literal["feasible", "marginal", "infeasible"]

TOLERANCE = {"MW": 0.01, "MVAr": 0.01, "MVA": 0.01, "p.u.": 1e-4, "degree": 1e-2}
"""An amount beyond a limit below this is rounding."""
ROUNDING = 1e-4
"""The same for powers and angles, as a share of the element's limits, where these are small."""
NEGLIGIBLE = 1e-4
"""The same for shed, curtailed or balancing power, as a share of a grid's load."""
SOLVER_ROUNDING = 1e-7
"""Power in p.u. up to which values of an optimal power flow are rounding."""
AT_LIMIT = 1e-3
"""Distance from a limit that counts as 0, as a share of the limit, in addition to rounding."""
KINDS = {
    "generator P": "active output",
    "line": "line",
    "voltage": "voltage",
    "generator Q": "reactive output",
    "angle": "angle difference",
}
"""Kinds of limits in words; those that cap supply first."""


@dataclass(frozen=True, eq=False)
class LimitedQuantities:
    """The limited quantities of a grid, per unit and rad.

    Attributes
    ----------
    pg, qg : (g,)
    flow : (m,)
        Apparent power of the more loaded end.
    vm : (n,)
    angle : (m,)
        Angle difference across every branch.
    deenergized : (n,) bool
        Buses without voltage: they have no band.
    """

    pg: Floats
    qg: Floats
    flow: Floats
    vm: Floats
    angle: Floats
    deenergized: Bools


class Limit(NamedTuple):
    """One limit, and the amount of its violation.

    Attributes
    ----------
    kind : str
        generator P, generator Q, line, voltage or angle.
    element : int
        Row of the generator or branch in its source table; number of the bus.
    limit : str
        lower or upper.
    at : str
        Bus numbers.
    amount : float
        Violation; negative within the limit.
    rating : float
        Size of the element's limits: the larger of a finite lower and upper one.
    """

    kind: str
    element: int
    limit: str
    at: str
    value: float
    bound: float
    amount: float
    unit: str
    rating: float = 0.0

    @property
    def marginal(self) -> bool:
        """True where the amount is at most :data:`MARGIN` of the element's rating."""
        return self.amount <= MARGIN * self.rating


def negligible_mw(load_mw: float) -> float:
    """Return the power in MW below which a value of a grid with this load is rounding."""
    most = TOLERANCE["MW"]
    return min(most, NEGLIGIBLE * load_mw) if load_mw > 0 else most


class _Family(NamedTuple):
    kind: str
    unit: str
    element: Ints
    ends: tuple[Ints, ...]
    value: Floats
    low: Floats
    high: Floats

    @property
    def rating(self) -> Floats:
        """Size of each element's limits; 0 where it has none."""
        finite = (np.where(np.isfinite(x), np.abs(x), 0.0) for x in (self.low, self.high))
        return np.asarray(np.maximum(*finite))

    @property
    def rounding(self) -> Floats:
        """Violations that count as rounding, by element."""
        most = TOLERANCE[self.unit]
        if self.unit == "p.u.":
            return np.full(len(self.value), most)
        return np.where(self.rating > 0, np.minimum(most, ROUNDING * self.rating), most)


def _families(case: Case, here: LimitedQuantities) -> Iterator[_Family]:
    base = case.base_mva
    gen = (case.gen_row, (case.bus_id[case.gen_bus],))
    ends = (case.bus_id[case.f_bus], case.bus_id[case.t_bus])
    rate = base * np.where(case.rate > 0, case.rate, np.inf)
    band = (
        np.where(here.deenergized, -np.inf, case.vmin),
        np.where(here.deenergized, np.inf, case.vmax),
    )
    limits = (np.degrees(case.angmin), np.degrees(case.angmax))
    off = here.deenergized[case.gen_bus]
    outputs = (case.pmin, case.pmax), (case.qmin, case.qmax)
    p_range, q_range = (
        (base * np.where(off, -np.inf, low), base * np.where(off, np.inf, high))
        for low, high in outputs
    )
    yield _Family("generator P", "MW", *gen, base * here.pg, *p_range)
    yield _Family("generator Q", "MVAr", *gen, base * here.qg, *q_range)
    yield _Family("line", "MVA", case.branch_row, ends, base * here.flow, -rate, rate)
    yield _Family("voltage", "p.u.", case.bus_id, (case.bus_id,), here.vm, *band)
    yield _Family("angle", "degree", case.branch_row, ends, np.degrees(here.angle), *limits)


MARGIN = 1e-3
"""A violation within this share of the rating or voltage limit is marginal."""


def status(limits: tuple[Limit, ...]) -> Status:
    """Return the feasibility status of a state from its violated limits."""
    if not limits:
        return "feasible"
    return "marginal" if all(limit.marginal for limit in limits) else "infeasible"


def violated(case: Case, here: LimitedQuantities) -> tuple[Limit, ...]:
    """Return the limits that are violated by more than rounding (:data:`TOLERANCE`)."""
    return tuple(
        limit
        for family in _families(case, here)
        for name, amount in _amounts(family)
        for limit in _named(family, name, amount, amount > family.rounding)
    )


def binding(case: Case, here: LimitedQuantities) -> tuple[Limit, ...]:
    """Return the binding limits of a grid (:data:`AT_LIMIT`), except those of fixed outputs."""
    limits: list[Limit] = []
    for family in _families(case, here):
        for name, amount in _amounts(family):
            bound = family.low if name == "lower" else family.high
            near = family.rounding + AT_LIMIT * np.abs(np.where(np.isinf(bound), 0, bound))
            is_binding = (np.abs(amount) <= near) & (family.low < family.high)
            limits += _named(family, name, amount, is_binding)
    return tuple(limits)


def _amounts(family: _Family) -> tuple[tuple[str, Floats], tuple[str, Floats]]:
    return ("lower", family.low - family.value), ("upper", family.value - family.high)


def _named(family: _Family, name: str, amount: Floats, which: Bools) -> Iterator[Limit]:
    bound, rating = family.low if name == "lower" else family.high, family.rating
    for k in np.flatnonzero(which).tolist():
        at = "-".join(str(end[k]) for end in family.ends)
        value, limit, outside, size = (float(of[k]) for of in (family.value, bound, amount, rating))
        place = family.kind, int(family.element[k]), name, at
        yield Limit(*place, value, limit, outside, family.unit, size)


def limit_table(limits: tuple[Limit, ...]) -> pd.DataFrame:
    """Return limits as a table, one row each."""
    import pandas as pd

    return pd.DataFrame(limits, columns=list(Limit._fields)).drop(columns="rating")


def limit_sentence(current: tuple[Limit, ...]) -> str:
    """Return the binding limits of a grid as a sentence, a few elements of each kind."""
    parts = []
    for kind, words in KINDS.items():
        for limit in ("upper", "lower"):
            places = dict.fromkeys(
                row.at for row in current if (row.kind, row.limit) == (kind, limit)
            )
            if not places or (kind.startswith("generator") and limit == "lower"):
                continue
            where = "at its limit" if kind == "line" else f"at its {limit} limit"
            parts.append(f"{words} {where} {at_elements(kind, tuple(places), 3)}")
    return "; ".join(parts) if parts else "no limit binds at this objective"


def at_elements(kind: str, places: tuple[str, ...], most: int) -> str:
    """Return the number of elements with a limit of a kind, and the names of the first."""
    named = ", ".join(places[:most]) + (" and others" if len(places) > most else "")
    return f"at {counted(len(places), 'branch' if kind in ('line', 'angle') else 'bus')} ({named})"


@dataclass(frozen=True, eq=False)
class Dispatch:
    """Set points, load shedding and curtailment of a grid, in per unit.

    Attributes
    ----------
    pg : (g,)
        Active set points.
    vm : (n,)
        Voltage magnitudes; those at generators' buses are set points.
    va : (n,)
        Angles (rad): start of the power flow.
    p_shed, q_shed : (n,)
        Load shedding, 0 <= p_shed <= pd where pd is positive.
    curtailment : (n,)
        Curtailed injection: of generators at their lower limit, of negative demand.
    """

    pg: Floats
    vm: Floats
    va: Floats
    p_shed: Floats
    q_shed: Floats
    curtailment: Floats

    def without_service(self, case: Case, buses: Bools) -> Dispatch:
        """Return the dispatch with all demand of some buses shed, and their infeed curtailed."""
        return replace(
            self,
            p_shed=np.where(buses, np.maximum(case.pd, 0.0), self.p_shed),
            q_shed=np.where(buses, case.qd, self.q_shed),
            curtailment=np.where(buses, np.maximum(-case.pd, 0.0), self.curtailment),
        )


BY_BUS = ("vm", "va", "p_shed", "q_shed", "curtailment")
"""Fields of a dispatch with values of buses."""


@dataclass(frozen=True, eq=False)
class Schedule:
    """Scheduled interchange of control areas.

    Attributes
    ----------
    zone_of : (n,) int
        Zone of every bus.
    interchange : (zones,)
        Active export of a zone over its tie lines, metered in their middle: half the flow at its
        own end less half that at the other; p.u. The sum is 0.
    """

    zone_of: Ints
    interchange: Floats

    @staticmethod
    def one_area(case: Case) -> Schedule:
        """Return the schedule in which every island is one area."""
        return Schedule(np.zeros(case.n_bus, dtype=np.int64), np.zeros(1))


@dataclass(frozen=True, eq=False)
class GridState:
    """The state of a whole grid in per unit.

    Attributes
    ----------
    case : Case
        With the original demand.
    vm, va : (n,)
        Voltage magnitude, and angle in rad.
    s_from, s_to : (m,) complex
        Flow into the branch at either end.
    pg, qg : (g,)
    p_shed, q_shed : (n,)
        Load shedding.
    """

    case: Case
    vm: Floats
    va: Floats
    s_from: Complexes
    s_to: Complexes
    pg: Floats
    qg: Floats
    p_shed: Floats
    q_shed: Floats


@dataclass(frozen=True, eq=False)
class AcState(GridState):
    """Voltages at which every bus is in balance (0 if de-energized), and the values they imply.

    Attributes
    ----------
    curtailment : (n,)
        As dispatched, like load shedding; a de-energized bus sheds all its demand.
    regulation : (g,)
        Active output of each generator beyond its set point.
    deenergized : (n,) bool
        Buses of islands without generation, and stranded ones.
    interchange : (zones,)
        Actual, as in :class:`Schedule`.
    deviation : (zones,)
        Actual minus scheduled.
    mismatch : float
        Largest residual of the balance.
    power_flows : int
        Number of power flows solved until every limit held.
    """

    curtailment: Floats
    regulation: Floats
    deenergized: Bools
    interchange: Floats
    deviation: Floats
    mismatch: float
    power_flows: int

    @staticmethod
    def of(
        case: Case,
        voltage: Complexes,
        served: Dispatch,
        output: tuple[Floats, Floats],
        regulation: Floats,
        deenergized: Bools,
    ) -> AcState:
        """Return the state of voltages with outputs (pg, qg), without a schedule or a solve."""
        shape = np.abs(voltage), np.angle(voltage), *branch_flows(case, voltage)
        shed, none = (served.p_shed, served.q_shed, served.curtailment), np.zeros(1)
        return AcState(case, *shape, *output, *shed, regulation, deenergized, none, none, 0.0, 0)

    @cached_property
    def voltage(self) -> Complexes:
        """Complex voltages."""
        return np.asarray(self.vm * np.exp(1j * self.va))

    @cached_property
    def limited_quantities(self) -> LimitedQuantities:
        """The limited quantities."""
        case, voltage = self.case, self.voltage
        return LimitedQuantities(
            pg=self.pg,
            qg=self.qg,
            flow=np.maximum(np.abs(self.s_from), np.abs(self.s_to)),
            vm=self.vm,
            angle=np.angle(voltage[case.f_bus] * np.conj(voltage[case.t_bus])),
            deenergized=self.deenergized,
        )

    @cached_property
    def violations(self) -> tuple[Limit, ...]:
        """Violated limits of the state."""
        return violated(self.case, self.limited_quantities)

    @cached_property
    def binding(self) -> tuple[Limit, ...]:
        """Binding limits of the state."""
        return binding(self.case, self.limited_quantities)

    @property
    def losses_mw(self) -> float:
        """Active power losses of branches, in MW; bus shunts are loads."""
        return self.case.base_mva * float((self.s_from + self.s_to).real.sum())

    @property
    def shed_mw(self) -> float:
        """Load shedding in MW."""
        return self.case.base_mva * float(self.p_shed.sum())

    @property
    def negligible_mw(self) -> float:
        """Power in MW below which a value of this grid is rounding, of the solver too."""
        base = self.case.base_mva
        load_mw = base * float(np.maximum(self.case.pd, 0.0).sum())
        return max(negligible_mw(load_mw), SOLVER_ROUNDING * base)

    @property
    def deenergized_mw(self) -> float:
        """The part of load shedding on de-energized islands, in MW."""
        return self.case.base_mva * float(self.p_shed[self.deenergized].sum())

    @cached_property
    def short_buses(self) -> Bools:
        """Buses of energized islands that shed load."""
        island, shed = islands(self.case), np.where(self.deenergized, 0.0, self.p_shed)
        by_island = self.case.base_mva * np.bincount(island, shed)
        return np.asarray(by_island[island] > self.negligible_mw)

    @property
    def unused_mw(self) -> float:
        """Capacity at :attr:`short_buses` without active output, or with curtailed output, in MW.

        Other capacity has no path to the shed load.
        """
        case, short = self.case, self.short_buses
        unused = np.maximum(case.pmax - self.pg, 0.0)[short[case.gen_bus]]
        return case.base_mva * float(unused.sum() + self.curtailment[short].sum())

    @property
    def curtailed_mw(self) -> float:
        """Curtailed generation in MW."""
        return self.case.base_mva * float(self.curtailment.sum())


STEP = 0.95
"""Share of an excess that is shed at once, as losses fall with the load."""


def emergency_shedding(state: AcState, zone_of: Ints) -> Floats | None:
    """Return the share of the remaining load that each bus sheds, shape (n,).

    Parameters
    ----------
    state : AcState
    zone_of : (n,) int
        Zone of every bus, in the order of ``state.deviation``.

    Returns
    -------
    (n,) or None
        None where no generator is above a limit, or no load is left.
    """
    case = state.case
    island = islands(case)
    load = np.maximum(case.pd, 0.0) - state.p_shed
    reactive = np.where(load > 0, case.qd - state.q_shed, 0.0)
    area = zone_of + (1 + zone_of.max()) * island  # a zone may be on several islands
    share = np.zeros(case.n_bus)
    above = _above(state.pg, case.pmax, TOLERANCE["MW"] / case.base_mva)
    for k in np.unique(island[case.gen_bus[above > 0]]):
        there = island == k
        excess = above[there[case.gen_bus]].sum()
        drawing = there & (state.deviation[zone_of] < 0)
        drawn = -state.deviation[np.unique(zone_of[drawing])].sum() if drawing.any() else 0.0
        first = min(excess, drawn, load[drawing].sum())
        for where, amount in ((drawing, first), (there, excess - first)):
            share[where] += amount / max(load[where].sum(), amount, 1e-12)
    above = _above(state.qg, case.qmax, TOLERANCE["MVAr"] / case.base_mva)
    for k in np.unique(area[case.gen_bus[above > 0]]):
        there = area == k
        excess, available = above[there[case.gen_bus]].sum(), reactive[there].sum()
        if available > 0:
            share[there] += excess / max(available, excess)
    share = STEP * np.minimum(share, 1.0)
    return share if (share * load).sum() > 0 else None


def emergency_curtailment(state: AcState) -> Floats:
    """Return the shortfall of generators from their least output, at their buses, (n,) in p.u."""
    case = state.case
    below = _above(-state.pg, -case.pmin, TOLERANCE["MW"] / case.base_mva)
    return np.asarray(np.bincount(case.gen_bus, STEP * below, case.n_bus))


def _above(value: Floats, limit: Floats, tolerance: float) -> Floats:
    excess = value - limit
    return np.asarray(np.where(excess > tolerance, excess, 0.0))

"""A dispatch, and the AC state that a grid settles in under it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gridpriv.core.arrays import Bools, Complexes, Floats, Ints
from gridpriv.grid.case import Case
from gridpriv.power.ac.limits import Limit, LimitedQuantities, binding, violated


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
        Angles (rad): where the power flow starts.
    p_shed, q_shed : (n,)
        Demand that is cut, 0 <= p_shed <= pd where pd is positive.
    curtailment : (n,)
        Injection that cannot be used: of generators that cannot go lower, of negative demand.
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
"""Set points of a dispatch that are of buses."""


def dispatch_of(case: Case) -> Dispatch:
    """Return the dispatch that the source of a case states, with all demand served."""
    vm = case.vm.copy()
    vm[case.gen_bus[::-1]] = case.vg[::-1]  # generators of one bus hold the first one's
    none = np.zeros(case.n_bus)
    return Dispatch(case.pg, np.where(vm > 0, vm, 1.0), case.va, none, none, none)


@dataclass(frozen=True, eq=False)
class Schedule:
    """Scheduled interchange of control areas.

    Attributes
    ----------
    zone_of : (n,) int
        Zone of every bus.
    interchange : (zones,)
        Active power that a zone's tie lines take from it, metered in their middle: half the flow
        at its own end less half that at the other; p.u. They add up to 0.
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
        With the demand that was asked for.
    vm, va : (n,)
        Voltage magnitude, and angle in rad.
    s_from, s_to : (m,) complex
        Flow into the branch at either end.
    pg, qg : (g,)
    p_shed, q_shed : (n,)
        Demand that is not served.
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
    """Voltages at which every bus is in balance (0 at dead ones), and what follows from them.

    Attributes
    ----------
    curtailment : (n,)
        As dispatched, as is what is shed; a dead bus sheds all its demand.
    regulation : (g,)
        Active power each generator took up beyond its set point.
    dead : (n,) bool
        Buses of islands in which nothing generates.
    interchange : (zones,)
        Actual, as in :class:`Schedule`.
    deviation : (zones,)
        Actual minus scheduled.
    mismatch : float
        Largest residual of the balance.
    power_flows : int
        How many were solved until every limit and area was settled.
    """

    curtailment: Floats
    regulation: Floats
    dead: Bools
    interchange: Floats
    deviation: Floats
    mismatch: float
    power_flows: int

    @cached_property
    def voltage(self) -> Complexes:
        """Complex voltages."""
        voltage: Complexes = self.vm * np.exp(1j * self.va)
        return voltage

    @cached_property
    def standing(self) -> LimitedQuantities:
        """The limited quantities."""
        case, voltage = self.case, self.voltage
        return LimitedQuantities(
            pg=self.pg,
            qg=self.qg,
            flow=np.maximum(np.abs(self.s_from), np.abs(self.s_to)),
            vm=self.vm,
            angle=np.angle(voltage[case.f_bus] * np.conj(voltage[case.t_bus])),
            dead=self.dead,
        )

    @cached_property
    def violations(self) -> tuple[Limit, ...]:
        """Limits that the state is outside of."""
        return violated(self.case, self.standing)

    @cached_property
    def binding(self) -> tuple[Limit, ...]:
        """Limits that the state stands at."""
        return binding(self.case, self.standing)

    @property
    def losses_mw(self) -> float:
        """Active power losses of branches, in MW; bus shunts are loads."""
        return self.case.base_mva * float((self.s_from + self.s_to).real.sum())

    @property
    def shed_mw(self) -> float:
        """Demand that is not served, in MW."""
        return self.case.base_mva * float(self.p_shed.sum())

    @property
    def deenergized_mw(self) -> float:
        """The part of it that lies on islands in which nothing generates, in MW."""
        return self.case.base_mva * float(self.p_shed[self.dead].sum())

    @property
    def curtailed_mw(self) -> float:
        """Generation that cannot be used, in MW."""
        return self.case.base_mva * float(self.curtailment.sum())

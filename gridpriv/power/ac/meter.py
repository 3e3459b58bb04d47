r"""Derivatives of tie-line meters by demand, at the AC state after redispatch.

Around the settled state every generator keeps its set point and voltage, control areas that have
room regulate until their interchange is the scheduled one, and areas at a limit do not regulate.
With x the voltage angles and magnitudes, the areas' regulation and the islands' common deviation,
these are the equations F(x; pd, qd) = 0 of :mod:`gridpriv.power.ac.areas`, and

    dF/dx dx/dpd = -dF/dpd,

so that one factorization gives the change of every tie flow, and of every zone's interchange, by
the active and the reactive demand of every bus. The derivative holds until a generator or an area
reaches a limit or leaves one, and until a zone plans again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse.linalg import splu

from gridpriv.core.arrays import Complexes, Floats, Ints
from gridpriv.grid.admittance import branch_admittance
from gridpriv.grid.case import Case
from gridpriv.power.ac.areas import AreaGrid, Settled, equations_at, solve
from gridpriv.power.ac.equations import Point, residual
from gridpriv.power.ac.flow import PreviousState
from gridpriv.power.ac.part import part_at
from gridpriv.power.ac.state import AcState, Dispatch, Schedule


@dataclass(frozen=True, eq=False)
class MeterDerivatives:
    """Changes of metered active power per unit of demand at every bus, in MW/MW and MW/MVAr.

    Attributes
    ----------
    interchange_p, interchange_q : (zones, n_bus)
        Of every zone's interchange, positive where more leaves the zone.
    ties : (t,) int
        Branches between two zones.
    flow_p, flow_q : (t, n_bus)
        Of the active flow in the middle of each, positive from its from end.
    """

    interchange_p: Floats
    interchange_q: Floats
    ties: Ints
    flow_p: Floats
    flow_q: Floats


def meter_derivatives(state: AcState, dispatch: Dispatch, schedule: Schedule) -> MeterDerivatives:
    """Return the derivatives of the meters by the demand at every bus, after redispatch.

    Parameters
    ----------
    state : AcState
    dispatch : Dispatch
        Of which it is the state.
    schedule : Schedule
        Control areas and the interchange that they hold.

    Raises
    ------
    PowerFlowError
        If no power flow is found at the state.
    """
    case = state.case
    live = part_at(case, ~state.dead)
    areas = replace(schedule, zone_of=schedule.zone_of[live.buses])
    grid = AreaGrid.of(live.case, live.dispatch(dispatch), areas)
    before = PreviousState(state.voltage[live.buses], state.pg[live.gens]).on(grid)
    settled = solve(grid, before.bound, before.solution.voltage, before, 0.0)
    zones, n = len(schedule.interchange), case.n_bus
    near, far = schedule.zone_of[case.f_bus], schedule.zone_of[case.t_bus]
    ties = np.flatnonzero(near != far)
    place = np.full(case.n_branch, -1)
    place[live.branches] = np.arange(len(live.branches))
    there = np.flatnonzero(place[ties] >= 0)
    flows = np.zeros((2, len(ties), n))
    flows[np.ix_(np.arange(2), there, live.buses)] = _flow_change(grid, settled, place[ties[there]])
    out = np.zeros((2, zones, n))
    for part in range(2):
        np.add.at(out[part], near[ties], flows[part])
        np.add.at(out[part], far[ties], -flows[part])
    return MeterDerivatives(out[0], out[1], ties, flows[0], flows[1])


def _flow_change(grid: AreaGrid, settled: Settled, branches: Ints) -> Floats:
    """Return the change of the active flow in the middle of branches, (2, branches, n).

    Per unit of p and of q demanded at every bus. Solved for the transpose: there are fewer tie
    lines than buses.
    """
    n, solution = grid.case.n_bus, settled.solution
    equations, jacobian = equations_at(grid, settled), grid.jacobian
    voltage = solution.voltage
    point = Point(np.angle(voltage), np.abs(voltage), solution.alpha, solution.delta)
    current = residual(equations, point).held
    factors = splu(jacobian.at(equations, point, current))
    by_angle, by_magnitude = _by_voltage(grid.case, voltage, branches)
    by_state = np.zeros((len(branches), len(jacobian.column_place)))
    turning = ~equations.reference
    free = int(turning.sum())
    by_state[:, :free], by_state[:, free : free + n] = by_angle[:, turning], by_magnitude
    asked = np.zeros_like(by_state.T)
    asked[jacobian.column_place] = by_state.T
    adjoint = np.zeros_like(asked)
    adjoint[jacobian.row_order] = factors.solve(asked, trans="T")
    active, reactive = adjoint[:n].T, np.where(current[:n], 0.0, adjoint[n : 2 * n].T)
    return -np.stack([active, reactive])  # F of each power has + pd and + qd


def _by_voltage(case: Case, voltage: Complexes, branches: Ints) -> tuple[Floats, Floats]:
    """Return the derivative of flows in the middle of branches by va and by vm, (branches, n)."""
    y, f, t = branch_admittance(case), case.f_bus[branches], case.t_bus[branches]
    v_f, v_t, rows = voltage[f], voltage[t], np.arange(len(branches))
    i_f = y.ff[branches] * v_f + y.ft[branches] * v_t
    i_t = y.tf[branches] * v_f + y.tt[branches] * v_t
    by = np.zeros((2, len(branches), case.n_bus))
    for end, (bus, v) in enumerate(((f, v_f), (t, v_t))):
        ends = (y.ff, y.tf) if end == 0 else (y.ft, y.tt)
        for part, moved in enumerate((1j * v, v / np.abs(v))):
            s_f = v_f * np.conj(ends[0][branches] * moved) + (moved * np.conj(i_f)) * (end == 0)
            s_t = v_t * np.conj(ends[1][branches] * moved) + (moved * np.conj(i_t)) * (end == 1)
            by[part, rows, bus] += 0.5 * (s_f - s_t).real
    return by[0], by[1]

"""AC optimal power flow of a whole grid, and the nearest demand that the grid can serve.

Ipopt finds a local optimum; the relaxation's bound limits its distance from the global optimum.
Where no dispatch serves all demand, load is shed at the value of lost load. The optimum is the
reference for all other results.

The nearest demand that can be served has demand as variables:

    minimize   N(x)    subject to the AC equations and limits of the grid at demand d + x.

N is the norm of the noise in d: sum_i max(|x_pi|, |x_qi|) for noise on pairs (p, q), the 1-norm for
noise on numbers, and the squared 2-norm for normal noise. A point on the boundary is feasible in
exact arithmetic only, and other solvers may reject it, so limits are tightened by a small share.
The projection is post-processing where d is released demand.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from gridpriv.core.arrays import Bools, Complexes, Floats, Ints, sums_at
from gridpriv.core.errors import GridprivError, SolverError, check_choice, not_allowed
from gridpriv.grid.case import Case
from gridpriv.grid.network import deenergized_buses, islands
from gridpriv.power.ac.model import CURTAILMENT_WEIGHT, REACTIVE_SLACK_WEIGHT, AcModel
from gridpriv.power.ac.part import SubCase, part_at
from gridpriv.power.ac.quadratic import Solved
from gridpriv.power.ac.state import AcState, Limit
from gridpriv.power.objective import (
    AC_OBJECTIVES,
    VOLL,
    AcObjective,
    check_voll,
    cost_objective,
    cost_unit,
    generation_cost,
    has_convex_costs,
)
from gridpriv.privacy.sensitivity import Norm

if TYPE_CHECKING:
    import pandas as pd

    from gridpriv.power.ac.zone_redispatch import ScheduledState

AMOUNTS = ("shed_mw", "deenergized_mw", "curtailed_mw", "losses_mw")
NEGLIGIBLE_SHED = 1e-4
"""Share of load shedding of an estimated demand up to which there is no second search."""


@dataclass(frozen=True, eq=False)
class AcOptimum:
    """A local optimum of the AC equations; per unit unless named otherwise.

    Attributes
    ----------
    objective : {'cost', 'shed', 'losses'}
    voll : float
        Value of lost load in $/MWh.
    p_price, q_price : (n,)
        Derivative of the objective by demand at a bus: $/MWh for ``cost``; MW per MW else. NaN at
        de-energized buses, and on islands without demand.
    status : str
        Ipopt's.
    voltage_gradient : (n, n) sparse complex
        Derivative dL/de + j dL/df of the terms of the Lagrangian that belong to the bus of the
        row, by the voltage of the bus of the column. Every column adds up to 0.
    price_unit : float
        Price per unit of multiplier: $/MWh for ``cost``, else 1.
    """

    state: AcState
    objective: AcObjective
    voll: float
    p_price: Floats
    q_price: Floats
    status: str
    iterations: int
    seconds: float
    voltage_gradient: sparse.csr_array
    price_unit: float

    @property
    def generation_cost(self) -> float | None:
        """Cost of generation in $/h; None where the case has no costs."""
        return generation_cost(self.state.case, self.state.pg)

    @property
    def cost(self) -> float | None:
        """Cost of generation and of load shedding in $/h; None where the case has no costs."""
        generated = self.generation_cost
        return None if generated is None else generated + self.voll * self.state.shed_mw

    @property
    def violations(self) -> tuple[Limit, ...]:
        """Violated limits of the state: none, up to the solver's error."""
        return self.state.violations

    @cached_property
    def buses(self) -> pd.DataFrame:
        """One row per bus: demand, shed, voltage, prices."""
        import pandas as pd

        state, base = self.state, self.state.case.base_mva
        return pd.DataFrame(
            {
                "bus": state.case.bus_id,
                "pd_mw": base * state.case.pd,
                "qd_mvar": base * state.case.qd,
                "shed_mw": base * state.p_shed,
                "shed_mvar": base * state.q_shed,
                "curtailed_mw": base * state.curtailment,
                "vm_pu": state.vm,
                "va_degree": np.degrees(state.va),
                "p_price": self.p_price,
                "q_price": self.q_price,
            }
        )

    @cached_property
    def generators(self) -> pd.DataFrame:
        """One row per generator: its output."""
        import pandas as pd

        case, base = self.state.case, self.state.case.base_mva
        return pd.DataFrame(
            {
                "gen_row": case.gen_row,
                "bus": case.bus_id[case.gen_bus],
                "p_mw": base * self.state.pg,
                "q_mvar": base * self.state.qg,
            }
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the optimum as a JSON value."""
        return {
            "case": self.state.case.name,
            "objective": self.objective,
            "cost": self.cost,
            "generation_cost": self.generation_cost,
            **{name: getattr(self.state, name) for name in AMOUNTS},
            "status": self.status,
            "violations": [limit._asdict() for limit in self.violations],
            "iterations": self.iterations,
            "seconds": self.seconds,
        }


def acopf(
    case: Case,
    objective: AcObjective = "cost",
    voll: float = VOLL,
    *,
    near: AcState | ScheduledState | None = None,
    estimated: bool = False,
    shedding: bool = True,
) -> AcOptimum:
    """Return the AC optimum of a grid.

    Parameters
    ----------
    case : Case
    objective : {'cost', 'shed', 'losses'}
        Cost of generation and load shedding; least load shedding; least losses.
    voll : float
        Value of lost load in $/MWh.
    near : AcState or ScheduledState, optional
        Start of Ipopt: a state that may be near a local optimum. By default it is a flat start.
    estimated : bool
        True if demand is an estimate; its reactive part then has a priced slack where nothing else
        is feasible.
    shedding : bool
        True if load may be shed where not all of it can be served.

    Raises
    ------
    InputError
        For ``cost`` where the case has none, or one that is not convex.
    SolverError
        If Ipopt ends without a local optimum.
    """
    check_choice("objective", objective, AC_OBJECTIVES)
    if objective == "cost":
        if not case.cost:
            allowed = f"'shed' or 'losses': case {case.name} has no costs"
            raise not_allowed("objective", "cost", allowed)
        cost_objective(case)
        check_voll(case, voll)
    began = time.perf_counter()
    deenergized = deenergized_buses(case)
    if deenergized.all():
        allowed = "one with a generator that can run: active power, and reactive power in its range"
        raise not_allowed("case", case.name, allowed)
    live = part_at(case, ~deenergized)
    model = AcModel(live.case)
    unit = _add_objective(model, objective, voll)
    if estimated:
        model.add_reactive_slack(REACTIVE_SLACK_WEIGHT * voll / unit)
    negligible_shed = NEGLIGIBLE_SHED * np.maximum(live.case.pd, 0.0).sum() if estimated else 0.0
    if near is None:
        solve = _solve(model, negligible_shed, shedding=shedding)
    else:
        begin = model.starting_from(
            near.voltage[live.buses], near.pg[live.gens], near.qg[live.gens]
        )
        solve = model.program.solve(begin, None if shedding else model.unserved, "near")
    state = _state(case, live, model, solve.x)
    if not solve.solved:
        error = SolverError(_ended(solve.status, state))
        error.add_note("gridpriv relax bounds what any dispatch can do")  # not part of its own text
        raise error
    p_price, q_price = np.full(case.n_bus, np.nan), np.full(case.n_bus, np.nan)
    island = islands(case)
    has_demand = np.bincount(island, (case.pd != 0) | (case.qd != 0)) > 0
    priced = has_demand[island][live.buses]  # on islands with demand
    for price, rows in ((p_price, model.p_balance), (q_price, model.q_balance)):
        price[live.buses] = np.where(priced, unit * solve.multiplier[rows], np.nan)
    ipopt_result = solve.status, solve.iterations, time.perf_counter() - began
    gradient = _voltage_gradient(case, live, model, solve)
    return AcOptimum(state, objective, voll, p_price, q_price, *ipopt_result, gradient, unit)


def _voltage_gradient(
    case: Case, live: SubCase, model: AcModel, result: Solved
) -> sparse.csr_array:
    """Return the Lagrangian's gradient in voltages, with terms assigned to buses."""
    form = model.program.form()
    rows = np.concatenate([form.row, form.row])
    columns = np.concatenate([form.i, form.j])
    values = form.slopes(result.x)[: len(rows)] * result.multiplier[rows]
    n = case.n_bus
    total = sparse.csr_array((n, n), dtype=np.complex128)
    for variables, unit in ((model.e, 1.0), (model.f, 1j)):
        bus = np.full(form.columns, -1)
        bus[variables] = np.arange(len(variables))
        here = (bus[columns] >= 0) & (rows < len(model.owner))
        place = (live.buses[model.owner[rows[here]]], live.buses[bus[columns[here]]])
        total += sparse.coo_array((unit * values[here], place), shape=(n, n)).tocsr()
    return total


def _ended(status: str, state: AcState) -> str:
    """Return the point at which Ipopt ended without an optimum, and advice, as a sentence."""
    case, text = state.case, ""
    if np.isfinite(state.mismatch):
        violations = sorted(state.violations, key=lambda v: -v.amount / max(abs(v.bound), 1e-3))
        named = [f"{v.kind} at {v.at} is {v.amount:.3g} {v.unit} outside" for v in violations[:3]]
        balance = f"power balances to {case.base_mva * state.mismatch:.3g} MVA"
        text = f" where {', '.join([balance, *named])}"
    return (
        f"case {case.name}: ipopt ended {status}{text}. Limits of adjacent elements may contradict "
        "each other: widen them or lower the demand"
    )


def _add_objective(model: AcModel, objective: AcObjective, voll: float) -> float:
    """Add the objective, scaled to about 1 per p.u.; return a price's unit per multiplier."""
    case = model.case
    if objective == "shed":
        model.add_service_cost(1.0, CURTAILMENT_WEIGHT)
        return 1.0
    price = model.add_operating_cost(cost_unit(case) if objective == "cost" else None)
    model.add_service_cost(voll / price, CURTAILMENT_WEIGHT * voll / price)
    return price if objective == "cost" else 1.0


def overloaded(case: Case) -> Bools:
    """Return the buses without a source or shunt whose demand exceeds the ratings of all branches.

    No AC state serves them.
    """
    rate = np.where(case.rate > 0, case.rate, np.inf)
    able = sums_at(np.concatenate([case.f_bus, case.t_bus]), np.tile(rate, 2), case.n_bus)
    able[case.gen_bus] = np.inf
    able[(case.gs != 0) | (case.bs != 0)] = np.inf
    return np.asarray((np.hypot(case.pd, case.qd) > able) & ~deenergized_buses(case))


def _solve(model: AcModel, negligible_shed: float, *, shedding: bool) -> Solved:
    """Solve with all demand served, or where that has no solution, with some of it shed.

    Where shedding is allowed, a search that serves all demand ends early (``BRIEF``). The last
    search begins with all demand shed. The result of the last search is returned even without a
    solution. After a solution that sheds more than ``negligible_shed`` (p.u.) a second search
    starts from a larger barrier; both give local optima, and the better one is returned
    (0031-ac-rounds).
    """
    flat, unloaded = model.program.start, model.program.start
    unloaded[model.cut] = 1.0
    served = not (shedding and overloaded(model.case).any())
    for zero in ([model.unserved] if served else []) + ([None] if shedding else []):
        for begin in (flat, unloaded) if zero is None else (flat,):
            kind = "brief" if shedding and zero is not None else "anew"
            solution = model.program.solve(begin, zero, kind)
            if solution.solved and zero is not None:
                return solution
            if solution.solved and model.dispatch(solution.x).p_shed.sum() <= negligible_shed:
                return solution
            if solution.solved:
                again = model.program.solve(begin, kind="far")
                value = model.program.form().objective
                return min(solution, again, key=lambda x: value(x.x) if x.solved else np.inf)
    return solution


def _state(case: Case, live: SubCase, model: AcModel, x: Floats) -> AcState:
    whole = live.in_whole(case, model.dispatch(x))
    voltage = np.zeros(case.n_bus, complex)
    voltage[live.buses] = model.voltage(x)
    qg = np.zeros(case.n_gen)
    qg[live.gens] = x[model.qg]
    deenergized = np.isin(np.arange(case.n_bus), live.buses, invert=True)
    state = AcState.of(case, voltage, whole, (whole.pg, qg), np.zeros(case.n_gen), deenergized)
    balance = case.pd + 1j * case.qd - whole.p_shed - 1j * whole.q_shed + whole.curtailment
    balance += np.abs(voltage) ** 2 * (case.gs - 1j * case.bs)
    np.add.at(balance, case.f_bus, state.s_from)
    np.add.at(balance, case.t_bus, state.s_to)
    np.subtract.at(balance, case.gen_bus, whole.pg + 1j * qg)
    return replace(state, mismatch=float(np.abs(balance).max()))


MARGINS = (1e-3, 1e-2, 5e-2)
"""Shares by which limits are tightened, tried in turn."""
SERVED = 1e-6
"""Change of demand in p.u., and shed or curtailed power in MW, below which they count as 0."""


@dataclass(frozen=True, eq=False)
class Served:
    """A demand that the grid can serve, with its AC optimum.

    Attributes
    ----------
    optimum : AcOptimum
        Of the case with this demand; nothing is shed or curtailed.
    demand_change : (2, n)
        Change of active and reactive demand by the projection, per unit.
    margin : float
        Share by which limits were tightened; 0 without a change.
    """

    optimum: AcOptimum
    demand_change: Floats
    margin: float

    @property
    def case(self) -> Case:
        """The case with the demand that can be served."""
        return self.optimum.state.case


def nearest_served(case: Case, norm: Norm) -> Served:
    """Return the nearest demand that an AC optimum serves within all limits.

    Parameters
    ----------
    case : Case
        With the demand to be projected.
    norm : {1, 2, 'box', 'pair', 'number'}
        Of the noise.

    Raises
    ------
    SolverError
        If Ipopt ends without one at every margin.
    """
    objective: AcObjective = "cost" if has_convex_costs(case) else "losses"
    # a projection takes a hundredth of the time of an infeasible optimal power flow
    projected = _projected(case, norm, None)
    if projected is None or np.abs(projected[0]).max() <= SERVED:
        best = _all_served(case, objective, *(projected or ())[1:])
        if best is not None:
            return Served(best, np.zeros((2, case.n_bus)), 0.0)
    for voltage in _starts(case):
        for margin in MARGINS:
            projected = _projected(tightened(case, margin), norm, voltage)
            if projected is None:
                continue
            demand_change, state = projected
            served = replace(case, pd=case.pd + demand_change[0], qd=case.qd + demand_change[1])
            best = _all_served(served, objective, state)
            if best is not None:
                return Served(best, demand_change, margin)
    raise SolverError(
        f"case {case.name}: no demand near the released one was found that an AC optimum serves "
        f"within all limits (limits tightened by up to {MARGINS[-1]:.0%}). Check with gridpriv "
        "acopf that the grid's limits allow any dispatch at all"
    )


def tightened(case: Case, margin: float) -> Case:
    """Return the case with its limits tightened by a share of their width."""
    limits: dict[str, Any] = {"rate": (1.0 - margin) * case.rate}
    for name in ("v", "p", "q", "ang"):
        low, high = getattr(case, f"{name}min"), getattr(case, f"{name}max")
        width = high - low
        room = margin / 2.0 * np.where(np.isfinite(width), width, 0.0)
        limits |= {f"{name}min": low + room, f"{name}max": high - room}
    return replace(case, **limits)


def _all_served(case: Case, objective: AcObjective, *states: AcState) -> AcOptimum | None:
    """Return the AC optimum where it serves all demand within all limits.

    Ipopt starts flat, then from the states.
    """
    for near in (None, *states):
        with suppress(SolverError):
            best = acopf(case, objective, near=near, shedding=False)
            state = best.state
            unserved = state.shed_mw + state.curtailed_mw + state.deenergized_mw
            return best if unserved <= SERVED and not best.violations else None
    return None


def _starts(case: Case) -> Iterator[Complexes | None]:
    """Yield voltages to start from: flat, then those of least load shedding."""
    yield None
    try:
        state = acopf(case, "shed").state
    except GridprivError:
        return
    yield state.vm * np.exp(1j * state.va)


def _projected(case: Case, norm: Norm, voltage: Complexes | None) -> tuple[Floats, AcState] | None:
    """Return the least feasible change (2, n) of demand, and a state that serves it.

    None where Ipopt finds none.
    """
    model = AcModel(case)
    changes = add_changes(model, norm)
    start = model.program.start
    if voltage is not None:
        start = model.starting_from(voltage, start[model.pg], start[model.qg])
    solution = model.program.solve(start, model.unserved)
    if not solution.solved:
        return None
    whole = part_at(case, np.ones(case.n_bus, bool))
    state = _state(case, whole, model, solution.x)
    return np.stack([solution.x[part] for part in changes]), state


def add_changes(model: AcModel, norm: Norm) -> tuple[Ints, Ints]:
    """Add a change of every demand to the balances, and its norm to the objective.

    There is none at buses that can have no load.
    """
    n, program = model.case.n_bus, model.program
    most = np.where(model.case.load_buses, np.inf, 0.0)
    p, q = (program.add_variables(n, -most, most) for _ in "pq")
    program.add_linear(model.p_balance, p, 1.0)
    program.add_linear(model.q_balance, q, 1.0)
    if norm == 2:
        for part in (p, q):
            program.add_cost(part, 0.0, 1.0)
        return p, q
    pairs = norm in ("box", "pair")
    sizes = [program.add_variables(n, 0.0, price=1.0) for _ in range(1 if pairs else 2)]
    for part, size in zip((p, q), sizes * 2 if pairs else sizes, strict=True):
        for sign in (1.0, -1.0):
            program.add_sums(0.0, np.inf, (size, 1.0), (part, sign))
    return p, q

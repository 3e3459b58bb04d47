"""The AC optimum of a whole grid: the reference that everything else is held against.

Ipopt finds a local optimum; its distance to the relaxation's bound says how far from the global
one it can be. Where no dispatch serves all demand, some is shed at the value of lost load.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from gridpriv.core.arrays import Bools, Complexes, Floats
from gridpriv.core.errors import SolverError, not_allowed, one_of
from gridpriv.grid.admittance import branch_flows
from gridpriv.grid.case import Case
from gridpriv.grid.islands import dead_buses, islands
from gridpriv.power.ac.limits import Limit
from gridpriv.power.ac.model import AcModel, ac_model, add_generation_cost, add_service_cost
from gridpriv.power.ac.part import Part, part_of
from gridpriv.power.ac.quadratic import Solved
from gridpriv.power.ac.service import VOLL, check_voll
from gridpriv.power.ac.state import AcState, Dispatch
from gridpriv.power.objective import (
    AC_OBJECTIVES,
    AcObjective,
    cost_objective,
    cost_unit,
    generation_cost,
)

if TYPE_CHECKING:
    import pandas as pd

SPILL_WEIGHT = 0.01
"""Price of a spilt MW over that of a shed one."""
NOTIONAL_COST = 50.0
"""$/MWh of generation where losses are minimised: it weighs them against shed demand."""


@dataclass(frozen=True, eq=False)
class AcOptimum:
    """A local optimum of the AC equations; per unit unless named otherwise.

    Attributes
    ----------
    objective : {'cost', 'shed', 'losses'}
    voll : float
        Value of lost load in $/MWh.
    p_price, q_price : (n,)
        What one more MW (MVAr) of demand at a bus costs: $/MWh for ``cost``; MW per MW else.
        NaN at dead buses, and on islands without demand: there is nobody to pay it.
    status : str
        Ipopt's.
    """

    state: AcState
    objective: AcObjective
    voll: float
    p_price: Floats
    q_price: Floats
    status: str
    iterations: int
    seconds: float

    @property
    def generation_cost(self) -> float | None:
        """Cost of generation in $/h; None where the case has no costs."""
        return generation_cost(self.state.case, self.state.pg)

    @property
    def cost(self) -> float | None:
        """Cost of generation and of shed demand in $/h; None where the case has no costs."""
        generated = self.generation_cost
        return None if generated is None else generated + self.voll * self.state.shed_mw

    @property
    def violations(self) -> tuple[Limit, ...]:
        """Limits that the state is outside of: none, but for the solver's own error."""
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
                "spill_mw": base * state.spill,
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
        """Return the optimum as JSON can hold it."""
        return {
            "case": self.state.case.name,
            "objective": self.objective,
            "cost": self.cost,
            "generation_cost": self.generation_cost,
            "shed_mw": self.state.shed_mw,
            "dead_mw": self.state.dead_mw,
            "spill_mw": self.state.spill_mw,
            "losses_mw": self.state.losses_mw,
            "status": self.status,
            "violations": [limit._asdict() for limit in self.violations],
            "iterations": self.iterations,
            "seconds": self.seconds,
        }


def acopf(
    case: Case,
    objective: AcObjective = "cost",
    voll: float = VOLL,
    start: Dispatch | None = None,
) -> AcOptimum:
    """Return the AC optimum of a grid.

    Parameters
    ----------
    case : Case
    objective : {'cost', 'shed', 'losses'}
        Generation and shed demand at their costs; the least shed demand; the least losses.
    voll : float
        Value of lost load in $/MWh.
    start : Dispatch, optional
        Where Ipopt starts when it finds nothing from a flat start.

    Raises
    ------
    InputError
        For ``cost`` where the case has none, or one that is not convex.
    SolverError
        If Ipopt ends without a local optimum from either start.
    """
    one_of("objective", objective, AC_OBJECTIVES)
    if objective == "cost":
        if not case.cost:
            allowed = f"'shed' or 'losses': case {case.name} has no costs"
            raise not_allowed("objective", "cost", allowed)
        cost_objective(case)
        check_voll(case, voll)
    began = time.perf_counter()
    dead = dead_buses(case)
    if dead.all():
        raise not_allowed("case", case.name, "one with a generator that can give active power")
    live = part_of(
        case, np.flatnonzero(~dead), np.flatnonzero(~dead[case.f_bus]),
        np.flatnonzero(~dead[case.gen_bus]),
    )  # fmt: skip
    model = ac_model(live.case)
    unit = _add_objective(model, objective, voll)
    found = _solve(model, live, start)
    state = _state(case, live, model, found.x)
    if not found.solved:
        raise SolverError(_ended(found.status, state))
    p_price, q_price = np.full(case.n_bus, np.nan), np.full(case.n_bus, np.nan)
    priced = _with_demand(case)[live.buses]
    for price, rows in ((p_price, model.p_balance), (q_price, model.q_balance)):
        price[live.buses] = np.where(priced, unit * found.multiplier[rows], np.nan)
    return AcOptimum(
        state, objective, voll, p_price, q_price, found.status, found.iterations,
        time.perf_counter() - began,
    )  # fmt: skip


def _ended(status: str, state: AcState, most: int = 3) -> str:
    """Return in words where Ipopt ended without an optimum, and what can be tried."""
    case, told = state.case, ""
    if np.isfinite(state.mismatch):
        missed = sorted(state.violations, key=lambda v: -v.amount / max(abs(v.bound), 1e-3))
        named = [f"{v.kind} at {v.at} is {v.amount:.3g} {v.unit} outside" for v in missed[:most]]
        balance = f"power balances to {case.base_mva * state.mismatch:.3g} MVA"
        told = f" where {', '.join([balance, *named])}"
    return (
        f"case {case.name}: ipopt ended {status}{told}. Limits of neighbours may contradict each "
        f"other: try other ones, less load, or gridpriv relax, which says what no dispatch can do"
    )


def _with_demand(case: Case) -> Bools:
    """Return the buses of islands on which somebody asks for power."""
    island = islands(case)
    asked = np.bincount(island, (case.pd != 0) | (case.qd != 0))
    found: Bools = asked[island] > 0
    return found


def _add_objective(model: AcModel, objective: AcObjective, voll: float) -> float:
    """Add the objective, scaled to about 1 per p.u.; return a price's unit per multiplier."""
    case = model.case
    if objective == "shed":
        add_service_cost(model, 1.0, SPILL_WEIGHT)
        return 1.0
    if objective == "losses":
        model.program.add_cost(model.pg, 1.0)
        weight = voll / NOTIONAL_COST
        add_service_cost(model, weight, SPILL_WEIGHT * weight)
        return 1.0
    unit = cost_unit(case)
    add_generation_cost(model, unit)
    weight = voll * case.base_mva / unit
    add_service_cost(model, weight, SPILL_WEIGHT * weight)
    return unit / case.base_mva


def _solve(model: AcModel, live: Part, start: Dispatch | None) -> Solved:
    """Solve with all demand served, or where that has no solution, with some of it shed.

    What the last try ended at is returned whether or not it is a solution.
    """
    starts = [model.program.start]
    if start is not None:
        voltage: Complexes = (start.vm * np.exp(1j * start.va))[live.buses]
        qg = np.zeros(live.case.n_gen)
        starts.append(model.starting_from(voltage, start.pg[live.gens], qg))
    everything = np.concatenate([model.cut, model.spill])
    for zero in (everything, None):
        for begin in starts:
            found = model.program.solve(begin, zero)
            if found.solved:
                return found
    return found


def _state(case: Case, live: Part, model: AcModel, x: Floats) -> AcState:
    inner = model.dispatch(x)
    voltage = np.zeros(case.n_bus, complex)
    voltage[live.buses] = model.voltage(x)
    pg, qg = np.zeros(case.n_gen), np.zeros(case.n_gen)
    pg[live.gens], qg[live.gens] = x[model.pg], x[model.qg]
    dead = np.ones(case.n_bus, bool)
    dead[live.buses] = False
    p_shed, q_shed = np.where(dead, np.maximum(case.pd, 0.0), 0.0), np.where(dead, case.qd, 0.0)
    spill = np.where(dead, np.maximum(-case.pd, 0.0), 0.0)
    for whole, part in ((p_shed, inner.p_shed), (q_shed, inner.q_shed), (spill, inner.spill)):
        whole[live.buses] = part
    s_from, s_to = branch_flows(case, voltage)
    balance = case.pd + 1j * case.qd - p_shed - 1j * q_shed + spill
    balance += np.abs(voltage) ** 2 * (case.gs - 1j * case.bs)
    np.add.at(balance, case.f_bus, s_from)
    np.add.at(balance, case.t_bus, s_to)
    np.subtract.at(balance, case.gen_bus, pg + 1j * qg)
    return AcState(
        case, np.abs(voltage), np.angle(voltage), s_from, s_to, pg, qg, p_shed, q_shed, spill,
        np.zeros(case.n_gen), dead, np.zeros(1), np.zeros(1),
        float(np.abs(balance).max()), 0,
    )  # fmt: skip

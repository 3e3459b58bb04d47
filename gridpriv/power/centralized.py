"""The whole grid in one model: the bound that zonal runs are held against.

The whole grid is one zone that owns every bus. ``cost`` with a hard balance is the SOC relaxation
of AC-OPF (with lifted nonlinear cuts, as PowerModels' SOCWRPowerModel); ``imbalance`` is the
least squared imbalance that any dispatch can reach.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import SolverError, not_allowed, one_of
from gridpriv.grid.case import Case
from gridpriv.power.binding import (
    SHED_TOLERANCE_MW,
    binding_limits,
    binding_sentence,
    binding_table,
)
from gridpriv.power.conic import ConicSolution, solve_conic
from gridpriv.power.objective import (
    IMBALANCE,
    OBJECTIVES,
    Objective,
    ObjectiveKind,
    cost_objective,
    fixed_cost,
)
from gridpriv.power.program import compile_zone
from gridpriv.power.zone import Network, Zone, make_network

WIDE_BAND = (0.5, 1.5)


@dataclass(frozen=True, eq=False)
class Relaxation:
    """A solved relaxation of a whole grid.

    Attributes
    ----------
    network : Network
    objective : {'imbalance', 'cost'}
    bound : float or None
        In $/h for ``cost``, p.u. squared for ``imbalance``; None where it is infeasible.
    error : float
        Estimate of the bound's relative error; NaN where the solver gives no duals.
    status : str
        ``Solved``, ``AlmostSolved`` (error between 1e-4 and 1e-3) or ``Infeasible``.
    solver : str
    seconds : float
        Of compiling and solving.
    z : (N,)
        The grid's variables.
    p_imbalance, q_imbalance : (n,)
        Unserved demand of every bus, p.u.; 0 where the balance is hard.
    p_price, q_price : (n,)
        What one more MW (MVAr) of demand at a bus costs: $/MWh for ``cost``, p.u. squared per
        p.u. for ``imbalance``. NaN where the solver gives no duals.
    """

    network: Network
    objective: ObjectiveKind
    bound: float | None
    error: float
    status: str
    solver: str
    seconds: float
    z: Floats
    p_imbalance: Floats
    q_imbalance: Floats
    p_price: Floats
    q_price: Floats

    @property
    def case(self) -> Case:
        """The case."""
        return self.network.case

    @property
    def shed_mw(self) -> float:
        """Unserved active demand in MW."""
        return self.case.base_mva * float(np.maximum(self.p_imbalance, 0.0).sum())

    @cached_property
    def binding(self) -> pd.DataFrame:
        """What stands at a limit, one row each (:class:`gridpriv.power.binding.Binding`)."""
        return binding_table(binding_limits(self.network, self.z))

    @property
    def buses(self) -> pd.DataFrame:
        """One row per bus: demand, shed, voltage, prices."""
        case = self.case
        return pd.DataFrame(
            {
                "bus": case.bus_id,
                "pd_mw": case.base_mva * case.pd,
                "qd_mvar": case.base_mva * case.qd,
                "shed_mw": case.base_mva * self.p_imbalance,
                "shed_mvar": case.base_mva * self.q_imbalance,
                "vm_pu": np.sqrt(np.maximum(self.z[: case.n_bus], 0.0)),
                "p_price": self.p_price,
                "q_price": self.q_price,
            }
        )

    def explanation(self) -> str:
        """Return in a sentence what binds, or which constraints leave no solution."""
        if self.status == "Infeasible":
            return explain_infeasible(self.case)
        held = binding_sentence(binding_limits(self.network, self.z))
        if self.shed_mw > SHED_TOLERANCE_MW:
            return f"{self.shed_mw:.4g} MW cannot be served; {held}"
        return f"all load is served; {held}"

    def as_dict(self) -> dict[str, Any]:
        """Return the relaxation as JSON can hold it."""
        solved = self.status != "Infeasible"
        return {
            "case": self.case.name,
            "objective": self.objective,
            "bound": self.bound,
            "unit": "$/h" if self.objective == "cost" else "p.u.^2",
            "relative_error": self.error if solved and np.isfinite(self.error) else None,
            "status": self.status,
            "solver": self.solver,
            "seconds": self.seconds,
            "shed_mw": self.shed_mw if solved else None,
            "explanation": self.explanation(),
        }


def relax(
    case: Case,
    objective: ObjectiveKind = "imbalance",
    solver: str = "clarabel",
    imbalance_weight: float | None = None,
) -> Relaxation:
    """Solve the SOC relaxation of a whole grid.

    Parameters
    ----------
    case : Case
    objective : {'imbalance', 'cost'}
    solver : str
        ``clarabel``, ``ipopt`` or ``pyomo:NAME``; the last two solve the Pyomo model itself.
    imbalance_weight : float, optional
        With ``cost``: M of the squared imbalance. Without it the balance is hard.

    Returns
    -------
    Relaxation

    Raises
    ------
    InputError
        For a case without costs, or a cost that is not convex.
    SolverError
        If the solver ends neither solved nor infeasible.
    """
    one_of("objective", objective, OBJECTIVES)
    chosen = _objective(case, objective, imbalance_weight)
    hard = objective == "cost" and imbalance_weight is None
    network = make_network(case, chosen)
    began = time.perf_counter()
    if solver == "clarabel":
        zone = whole_grid(network)
        found = solve_conic(compile_zone(zone), zone.demand, hard_balance=hard)
    else:
        found = _solve_pyomo(whole_grid(network), solver, hard_balance=hard)
    solved = found.status != "Infeasible"
    unit = chosen.cost_unit / case.base_mva if objective == "cost" else 1.0
    p, q = np.split(found.imbalance, 2)
    p_price, q_price = np.split(unit * found.price, 2)
    return Relaxation(
        network=network,
        objective=objective,
        bound=chosen.cost_unit * found.value + _fixed_cost(network) if solved else None,
        error=found.error,
        status=found.status,
        solver=solver,
        seconds=time.perf_counter() - began,
        z=found.z,
        p_imbalance=np.zeros_like(p) if hard else p,
        q_imbalance=np.zeros_like(q) if hard else q,
        p_price=p_price,
        q_price=q_price,
    )


def whole_grid(network: Network) -> Zone:
    """Return the zone that owns every bus, pair, branch and generator."""
    case = network.case
    every = np.arange(case.n_bus)
    return Zone(
        network=network,
        name="whole grid",
        key=int(case.bus_id.min()),
        own=every,
        buses=every,
        pairs=np.arange(len(network.pair_i)),
        branches=np.arange(case.n_branch),
        gens=np.arange(case.n_gen),
    )


def _objective(case: Case, kind: ObjectiveKind, weight: float | None) -> Objective:
    if kind == "imbalance" and weight is not None:
        raise not_allowed(
            "imbalance_weight", weight, "left out: objective imbalance has no other term"
        )
    return IMBALANCE if kind == "imbalance" else cost_objective(case, weight)


def _fixed_cost(network: Network) -> float:
    """Return the constant of the objective's cost in $/h, which no dispatch changes."""
    if network.objective.kind != "cost":
        return 0.0
    return fixed_cost(network.case, np.arange(network.case.n_gen))


def _solve_pyomo(zone: Zone, solver: str, *, hard_balance: bool) -> ConicSolution:
    """Solve the Pyomo model itself: the cross-check of the conic form; without duals."""
    from gridpriv.power.solvers.pyomo import solve_whole_model

    name = solver.removeprefix("pyomo:")
    z, imbalance, value = solve_whole_model(zone, name, hard_balance=hard_balance)
    variable = value - _fixed_cost(zone.network) / zone.network.objective.cost_unit
    return ConicSolution(z, imbalance, np.full(len(imbalance), np.nan), variable, np.nan, "Solved")


GROUPS = {
    "generator P limits": {"pmin": -np.inf, "pmax": np.inf},
    "generator Q limits": {"qmin": -np.inf, "qmax": np.inf},
    "line ratings": {"rate": 0.0},
    "voltage limits": {"vmin": WIDE_BAND[0], "vmax": WIDE_BAND[1]},
    "angle limits": {"angmin": -np.inf, "angmax": np.inf},
}


def explain_infeasible(case: Case) -> str:
    """Return which groups of limits leave no balanced solution.

    Every group is dropped alone, then in pairs (voltages: widened to 0.5-1.5 p.u.); what makes
    the balance possible is named.
    """
    for size in (1, 2):
        freeing = [" and ".join(g) for g in combinations(GROUPS, size) if _feasible(case, g)]
        if freeing:
            return f"no balanced solution; one exists without {', or without '.join(freeing)}"
    return "no balanced solution, whichever one or two groups of limits are dropped"


def _feasible(case: Case, dropped: tuple[str, ...]) -> bool:
    """Return whether a balanced solution exists without some groups of limits."""
    changes = {
        name: np.full_like(getattr(case, name), value)
        for group in dropped
        for name, value in GROUPS[group].items()
    }
    zone = whole_grid(make_network(replace(case, **changes)))
    try:
        found = solve_conic(compile_zone(zone), zone.demand, hard_balance=True)
    except SolverError:
        return False
    return found.status == "Solved"

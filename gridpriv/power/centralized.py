"""The whole grid in one model: the lower bound for zonal runs, and its least load shedding.

The grid is one zone with all buses. ``cost`` with a hard balance is the SOC relaxation of AC-OPF
(with lifted nonlinear cuts, as PowerModels' SOCWRPowerModel); ``imbalance`` is the least squared
imbalance of any dispatch.

Two values enclose the least shed load at constant power factor: the relaxation's bound (no dispatch
sheds less) and an AC schedule (which sheds no more than that). A limit is reported as a cause only
if the AC schedule sheds less without exactly the reported limits.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from gridpriv.core.arrays import Bools, Floats
from gridpriv.core.errors import SolverError, check_choice, not_allowed
from gridpriv.grid.case import Case
from gridpriv.grid.network import without_stranded
from gridpriv.power.ac.optimum import AcOptimum, acopf
from gridpriv.power.ac.state import (
    KINDS,
    Limit,
    LimitedQuantities,
    at_elements,
    binding,
    limit_sentence,
    limit_table,
)
from gridpriv.power.ac.zone_redispatch import ScheduledState
from gridpriv.power.conic import (
    ConicSolution,
    hard_balance,
    shed_demand,
    solve_conic,
    squared_imbalance,
)
from gridpriv.power.objective import (
    IMBALANCE,
    RELAXED_OBJECTIVES,
    Objective,
    ObjectiveKind,
    cost_objective,
    fixed_cost,
)
from gridpriv.power.program import ZoneProgram, compile_zone
from gridpriv.power.zone import Network, make_network, whole_grid

if TYPE_CHECKING:
    import pandas as pd

NOTICED = 0.01
"""Share of the shed demand by which it must fall for a limit to be a cause."""
WIDE_BAND = (0.5, 1.5)


@dataclass(frozen=True)
class Cause:
    """Limits of one kind without which less load is shed.

    Attributes
    ----------
    places : tuple of str
        Bus numbers of the limited elements.
    without_mw : float
        Load shedding without these limits.
    """

    kind: str
    places: tuple[str, ...]
    without_mw: float


@dataclass(frozen=True)
class Shortage:
    """Least load shedding of a grid and its causes.

    Attributes
    ----------
    shed_mw : float
        Load shedding of the AC schedule that sheds least.
    deenergized_mw : float
        The part of it on de-energized islands.
    curtailed_mw : float
        Generation that cannot be used in that plan.
    negligible_mw : float
        Values below it are rounding.
    causes : tuple of Cause
        In descending order of effect.
    """

    shed_mw: float
    deenergized_mw: float
    curtailed_mw: float
    negligible_mw: float
    causes: tuple[Cause, ...]

    def sentence(self) -> str:
        """Return the least load shedding and its causes as a sentence."""
        if self.shed_mw <= self.negligible_mw:
            parts = ["An AC schedule serves all demand"]
        else:
            parts = [f"The best AC schedule found sheds {self.shed_mw:.4g} MW"]
        if self.curtailed_mw > self.negligible_mw:
            parts.append(f"It curtails {self.curtailed_mw:.4g} MW of lower limits of generators")
        if self.deenergized_mw > 0:
            parts.append(
                f"{self.deenergized_mw:.4g} MW of the shed load is on de-energized islands"
            )
        for cause in self.causes:
            parts.append(
                f"Without the limit on {KINDS[cause.kind]} "
                f"{at_elements(cause.kind, cause.places, 12)} it would shed "
                f"{cause.without_mw:.4g} MW"
            )
        return ". ".join(parts)


def shortage(case: Case) -> Shortage:
    """Return the least load shedding of an AC schedule and its causes.

    Raises
    ------
    SolverError
        If no AC schedule is found.
    """
    least = acopf(case, "shed")
    state = least.state
    causes: list[Cause] = []
    if state.shed_mw - state.deenergized_mw > state.negligible_mw:
        causes = sorted(_causes(case, least), key=lambda cause: cause.without_mw)
    amounts = state.shed_mw, state.deenergized_mw, state.curtailed_mw, state.negligible_mw
    return Shortage(*amounts, tuple(causes))


def _causes(case: Case, least: AcOptimum) -> Iterator[Cause]:
    shed = least.state.shed_mw
    for kind in KINDS:
        limits = [limit for limit in least.state.binding if limit.kind == kind]
        limits = [limit for limit in limits if (kind, limit.limit) != ("generator P", "lower")]
        if not limits:
            continue
        try:
            without = acopf(without_limits(case, limits), "shed").state.shed_mw
        except SolverError:
            continue
        if without < (1 - NOTICED) * shed:
            yield Cause(kind, tuple(dict.fromkeys(limit.at for limit in limits)), without)


def without_limits(case: Case, limits: list[Limit]) -> Case:
    """Return the case without some limits; voltages may then be from 0.5 to 1.5 p.u."""
    changes: dict[str, Floats] = {}
    for field, kind, side, rows, free in (
        ("pmax", "generator P", "upper", case.gen_row, case.pmax + np.abs(case.pd).sum()),
        ("qmin", "generator Q", "lower", case.gen_row, np.full(case.n_gen, -np.inf)),
        ("qmax", "generator Q", "upper", case.gen_row, np.full(case.n_gen, np.inf)),
        ("rate", "line", "upper", case.branch_row, np.zeros(case.n_branch)),
        ("vmin", "voltage", "lower", case.bus_id, np.minimum(case.vmin, WIDE_BAND[0])),
        ("vmax", "voltage", "upper", case.bus_id, np.maximum(case.vmax, WIDE_BAND[1])),
        ("angmin", "angle", "lower", case.branch_row, np.full(case.n_branch, -np.inf)),
        ("angmax", "angle", "upper", case.branch_row, np.full(case.n_branch, np.inf)),
    ):
        named = [limit.element for limit in limits if (limit.kind, limit.limit) == (kind, side)]
        dropped: Bools = np.isin(rows, named)
        if dropped.any():
            changes[field] = np.where(dropped, free, getattr(case, field))
    return replace(case, **changes)  # type: ignore[arg-type]


BALANCE_TOLERANCE_MVA = 1e-2


@dataclass(frozen=True, eq=False)
class SolvedRelaxation:
    """A solved relaxation of a whole grid.

    Attributes
    ----------
    objective : {'imbalance', 'cost'}
    bound : float or None
        In $/h for ``cost``, p.u. squared for ``imbalance``; None where it is infeasible.
    error : float
        Estimate of the bound's relative error; NaN where the solver gives no duals.
    status : str
        ``Solved``, ``AlmostSolved`` (error between 1e-4 and 1e-3) or ``Infeasible``.
    seconds : float
        Of compiling and solving.
    z : (N,)
        The grid's variables.
    p_imbalance, q_imbalance : (n,)
        Imbalance of every bus (positive: shortage), p.u.; 0 where the balance is hard.
    p_price, q_price : (n,)
        Derivative of the objective by demand at a bus: $/MWh for ``cost``, p.u. squared per p.u.
        for ``imbalance``. NaN where the solver gives no duals.
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
    def nearest_state(self) -> ScheduledState:
        """Voltages whose magnitudes are those of the solution and whose angles are nearest."""
        part, angle = self.network.families(self.z), self.network.angles(self.z)
        voltage = np.sqrt(np.maximum(part["w"], 0.0)) * np.exp(1j * angle)
        return ScheduledState(voltage, part["pg"], part["qg"])

    @property
    def balanced(self) -> bool:
        """True where every bus is in balance."""
        imbalance = self.case.base_mva * np.abs([self.p_imbalance, self.q_imbalance]).max()
        return self.status != "Infeasible" and bool(imbalance <= BALANCE_TOLERANCE_MVA)

    @cached_property
    def least_shed_mw(self) -> float | None:
        """Lower bound on load shedding in MW; None where the relaxation has no solution."""
        return 0.0 if self.balanced else least_shed_mw(self.case)

    @cached_property
    def shortage(self) -> Shortage:
        """Load shedding of an AC schedule, and its causes."""
        return shortage(self.case)

    @cached_property
    def limits(self) -> tuple[Limit, ...]:
        """Binding limits of the solution."""
        network, case = self.network, self.case
        part = network.families(self.z)
        ends = (("p_from", "q_from"), ("p_to", "q_to"))
        across = np.arctan2(part["wi"], part["wr"])[network.pair_of]
        here = LimitedQuantities(
            pg=part["pg"],
            qg=part["qg"],
            flow=np.maximum(*(np.hypot(part[p], part[q]) for p, q in ends)),
            vm=np.sqrt(np.maximum(part["w"], 0.0)),
            angle=np.where(network.forward, across, -across),
            deenergized=np.zeros(case.n_bus, bool),
        )
        return binding(case, here)

    @property
    def binding(self) -> pd.DataFrame:
        """Binding limits, one row each (:class:`gridpriv.power.ac.state.Limit`)."""
        return limit_table(self.limits)

    @property
    def buses(self) -> pd.DataFrame:
        """One row per bus: demand, imbalance (positive: shortage), voltage, prices."""
        import pandas as pd

        case = self.case
        return pd.DataFrame(
            {
                "bus": case.bus_id,
                "pd_mw": case.base_mva * case.pd,
                "qd_mvar": case.base_mva * case.qd,
                "imbalance_mw": case.base_mva * self.p_imbalance,
                "imbalance_mvar": case.base_mva * self.q_imbalance,
                "vm_pu": np.sqrt(np.maximum(self.z[: case.n_bus], 0.0)),
                "p_price": self.p_price,
                "q_price": self.q_price,
            }
        )

    def explanation(self) -> str:
        """Return the load shedding and the binding limits as a sentence."""
        if self.balanced:
            return f"the relaxation serves all demand; {limit_sentence(self.limits)}"
        least = self.least_shed_mw
        bound = (
            "no balanced solution"
            if least is None
            else f"load shedding is at least {least:.4g} MW (by the relaxation)"
        )
        try:
            return f"{bound}. {self.shortage.sentence()}"
        except SolverError as error:
            return f"{bound}; no AC schedule was found ({error})"

    def as_dict(self) -> dict[str, Any]:
        """Return the relaxation as a JSON value."""
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
            "shed_mw": self.least_shed_mw,
            "explanation": self.explanation(),
        }


LARGE_GAP = 0.02
"""Gap of an AC optimum to the bound, above which another local optimum is sought."""


def searched_again(best: AcOptimum, relaxation: SolvedRelaxation) -> AcOptimum:
    """Return an AC optimum of least cost, or a cheaper one near the solution of the relaxation.

    There is a second search only where the gap to the bound is large and all demand is served.
    """
    cost, state = best.cost or 0.0, best.state
    small = relaxation.bound is None or relaxation.bound >= (1.0 - LARGE_GAP) * cost
    if small or state.shed_mw > 0 or state.curtailed_mw > state.negligible_mw:
        return best
    near = relaxation.nearest_state
    try:
        other = acopf(state.case, "cost", best.voll, near=near, shedding=False)
    except SolverError:
        return best
    least = other if (other.cost or 0.0) < cost else best
    return replace(least, seconds=best.seconds + other.seconds)


def relax(
    case: Case,
    objective: ObjectiveKind = "imbalance",
    solver: str = "clarabel",
    imbalance_weight: float | None = None,
) -> SolvedRelaxation:
    """Solve the SOC relaxation of a whole grid.

    Parameters
    ----------
    case : Case
    objective : {'imbalance', 'cost'}
    solver : str
        ``clarabel``, ``ipopt`` or ``pyomo:NAME``; the last two by way of Pyomo.
    imbalance_weight : float, optional
        With ``cost``: M of the squared imbalance. Without it the balance is hard.

    Returns
    -------
    SolvedRelaxation

    Raises
    ------
    InputError
        For a case without costs, or a cost that is not convex.
    SolverError
        If the solver ends neither solved nor infeasible.

    References
    ----------
    Ryu and Kim (2022), appendix D, with the sign of its (D.2f)-(D.2i) corrected; with ``cost`` the
    relaxation of PowerModels' SOCWRPowerModel (:mod:`gridpriv.power.program`).
    """
    check_choice("objective", objective, RELAXED_OBJECTIVES)
    case = without_stranded(case)
    chosen = _objective(case, objective, imbalance_weight)
    hard = objective == "cost" and imbalance_weight is None
    network = make_network(case, chosen)
    began = time.perf_counter()
    zone = whole_grid(network)
    program = compile_zone(zone)
    if solver == "clarabel":
        missing = hard_balance(program) if hard else squared_imbalance(program)
        result = solve_conic(program, zone.demand, missing)
    else:
        result = _solve_pyomo(program, zone.demand, solver, hard_balance=hard)
    solved = result.status != "Infeasible"
    unit = chosen.cost_unit / case.base_mva if objective == "cost" else 1.0
    # no dispatch changes the constants of costs
    fixed = fixed_cost(case, np.arange(case.n_gen)) if objective == "cost" else 0.0
    p, q = np.split(result.imbalance, 2)
    p_price, q_price = np.split(unit * result.price, 2)
    return SolvedRelaxation(
        network=network,
        objective=objective,
        bound=chosen.cost_unit * result.value + fixed if solved else None,
        error=result.error,
        status=result.status,
        solver=solver,
        seconds=time.perf_counter() - began,
        z=result.z,
        p_imbalance=np.zeros_like(p) if hard else p,
        q_imbalance=np.zeros_like(q) if hard else q,
        p_price=p_price,
        q_price=q_price,
    )


def _objective(case: Case, kind: ObjectiveKind, weight: float | None) -> Objective:
    if kind == "imbalance" and weight is not None:
        raise not_allowed(
            "imbalance_weight", weight, "left out: objective imbalance has no other term"
        )
    return IMBALANCE if kind == "imbalance" else cost_objective(case, weight)


def _solve_pyomo(
    program: ZoneProgram, demand: Floats, solver: str, *, hard_balance: bool
) -> ConicSolution:
    """Solve the grid with one of Pyomo's solvers: the cross-check of the conic form; no duals."""
    from gridpriv.power.solvers.pyomo import solve_whole_model

    name, none = solver.removeprefix("pyomo:"), np.full(len(demand), np.nan)
    z, imbalance, value = solve_whole_model(program, demand, name, hard_balance=hard_balance)
    return ConicSolution(z, imbalance, none, value, np.nan, np.nan, "Solved")


def least_shed_mw(case: Case) -> float | None:
    """Return a bound on shed demand: at constant power factor, no dispatch sheds less (MW).

    None where the relaxation has no solution even with load shedding: generation has a lower limit.
    """
    zone = whole_grid(make_network(without_stranded(case)))
    result = solve_conic(compile_zone(zone), zone.demand, shed_demand(zone.demand))
    if result.status == "Infeasible":
        return None
    return case.base_mva * max(result.value * (1.0 - result.error), 0.0)

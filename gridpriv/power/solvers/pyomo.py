"""Any solver that Pyomo knows, on the matrices of a zone.

The model is written and the result read back by Pyomo at every solve, so this is slow.
``pyomo:ipopt`` needs an ``ipopt`` executable; where none is on the PATH, the Ipopt in CasADi's
wheel is started through the same AMPL interface (:mod:`gridpriv.power.ampl_ipopt`).
"""

from __future__ import annotations

import shutil
import sys
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyomo.environ as pyo
from pyomo.common.errors import ApplicationError
from pyomo.common.log import LoggingIntercept
from scipy import sparse

from gridpriv.consensus.agent import Minimiser
from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError, SolverError
from gridpriv.power.program import Matrix, ZoneProgram


def zone_model(program: ZoneProgram) -> pyo.ConcreteModel:
    """Return the Pyomo model of a zone's feasible set, its variables ``z``, without objective."""
    m = pyo.ConcreteModel(name=f"zone {program.name}")
    bounds = [
        tuple(float(end) if np.isfinite(end) else None for end in ends)
        for ends in zip(program.lower, program.upper, strict=True)
    ]
    start = dict(enumerate(program.start.tolist()))
    m.z = pyo.Var(range(program.size), bounds=dict(enumerate(bounds)), initialize=start)
    m.rows = pyo.ConstraintList()
    for value, limit in zip(_products(program.a_eq, m), program.b_eq.tolist(), strict=True):
        m.rows.add(value == limit)
    for value, limit in zip(_products(program.a_in, m), program.b_in.tolist(), strict=True):
        m.rows.add(value <= limit)
    cone = _products(program.cone, m, program.cone_offset)
    ends = np.concatenate([[0], np.cumsum(program.cone_sizes)]).tolist()
    for head, end in pairwise(ends):
        m.rows.add(sum(part**2 for part in cone[head + 1 : end]) <= cone[head] ** 2)
    return m


def _products(rows: Matrix, m: pyo.ConcreteModel, offset: Floats | None = None) -> list[Any]:
    """Return each row's product with the variables, and its offset if there is one."""
    added = np.zeros(rows.shape[0]) if offset is None else offset
    columns, values, ends = rows.indices.tolist(), rows.data.tolist(), rows.indptr.tolist()
    return [
        pyo.quicksum(values[k] * m.z[columns[k]] for k in range(first, last)) + constant
        for (first, last), constant in zip(pairwise(ends), added.tolist(), strict=True)
    ]


def _quadratic(m: pyo.ConcreteModel, linear: Floats, hessian: Matrix) -> Any:
    """Return linear'z + z'Hz / 2."""
    curved = sparse.coo_array(sparse.tril(hessian))
    entries = zip(curved.row.tolist(), curved.col.tolist(), curved.data.tolist(), strict=True)
    sloped = pyo.quicksum(c * m.z[k] for k, c in enumerate(linear.tolist()))
    return sloped + pyo.quicksum(
        (0.5 if i == j else 1.0) * h * m.z[i] * m.z[j] for i, j, h in entries
    )


class PyomoSolver:
    """Solve a zone's Pyomo model with a solver that Pyomo knows by name."""

    def __init__(self, program: ZoneProgram, solver: str, *, exact: bool) -> None:
        self.name = f"pyomo:{solver}"
        self._solver, self._model = pyomo_solver(solver), zone_model(program)
        self._hessian = program.hessian if exact else Matrix((program.size, program.size))

    def solve(self, linear: Floats, metric: Floats, *, near: bool = False) -> Minimiser:
        """Return the minimizer; ``linear`` includes linear costs and the effect of demand."""
        del near
        m = self._model
        m.del_component("objective")
        hessian = self._hessian + sparse.diags_array(metric)
        m.objective = pyo.Objective(expr=_quadratic(m, linear, hessian))
        return Minimiser(_solve(m, self._solver, self.name), 0, 0)


def _solve(m: pyo.ConcreteModel, solver: Any, name: str) -> Floats:
    """Return the minimizer of a model; raise :class:`SolverError` where there is none."""
    try:
        result = solver.solve(m, load_solutions=False)
    except (ApplicationError, RuntimeError, ValueError) as error:
        raise SolverError(f"{name} failed: {error}") from error
    status = str(result.solver.termination_condition)
    if status != "optimal":
        raise SolverError(f"{name} ended {status}: {result.solver.message}")
    m.solutions.load_from(result)
    return np.array([pyo.value(variable) for variable in m.z.values()])


@lru_cache
def pyomo_solver(name: str) -> Any:
    """Return Pyomo's solver ``name``; Ipopt falls back on the bundled one."""
    if name == "ipopt" and shutil.which("ipopt") is None:
        return pyo.SolverFactory("ipopt", executable=bundled_ipopt())
    return pyo.SolverFactory(name)


def bundled_ipopt() -> str:
    """Return the path of the ``gridpriv-ipopt`` executable."""
    value = Path(sys.executable).parent / "gridpriv-ipopt"
    result = str(value) if value.exists() else shutil.which("gridpriv-ipopt")
    if result is None:
        raise InputError("the executable gridpriv-ipopt is missing: install gridpriv with pip")
    return result


def check_available(name: str) -> None:
    """Raise :class:`InputError` unless Pyomo can run the solver ``name``."""
    try:
        with LoggingIntercept():  # Pyomo logs an unknown name to standard output
            available = bool(pyomo_solver(name).available(exception_flag=False))
    except (ApplicationError, RuntimeError, ValueError, AttributeError):
        available = False
    if not available:
        raise InputError(
            f"solver = 'pyomo:{name}': must be a solver that Pyomo finds here "
            "(pyomo:ipopt comes with gridpriv; others need their own installation)"
        )


def solve_whole_model(
    program: ZoneProgram, demand: Floats, solver: str, *, hard_balance: bool
) -> tuple[Floats, Floats, float]:
    """Solve a zone's problem for a demand.

    Parameters
    ----------
    program : ZoneProgram
    demand : (2 b,)
        (pd, qd) of own buses.
    solver : str
        A name that Pyomo knows.
    hard_balance : bool
        True if the balance is a constraint; else its weighted square is minimized.

    Returns
    -------
    (z, imbalance, value) : (n,), (2 b,), float
        The value without the cost's constant.
    """
    m = zone_model(program)
    missing = _products(program.imbalance, m, demand)
    cost = _quadratic(m, program.cost_linear, sparse.diags_array(program.cost_square))
    if hard_balance:
        for value in missing:
            m.rows.add(value == 0.0)
    else:
        cost += program.weight * pyo.quicksum(value**2 for value in missing)
    m.objective = pyo.Objective(expr=cost)
    z = _solve(m, pyomo_solver(solver), f"pyomo:{solver}")
    return z, np.asarray(program.imbalance @ z + demand), float(pyo.value(m.objective))

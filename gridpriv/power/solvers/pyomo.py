"""Any Pyomo solver on the Pyomo model itself: the cross-check of the compiled program.

The model is written and the result read back by Pyomo at every solve, so this is slow. It
shares nothing with the compiled program but the variables' order. ``pyomo:ipopt`` needs an
``ipopt`` executable; where none is on the PATH, the Ipopt that came with CasADi is started
through the same AMPL interface (:mod:`gridpriv.power.ampl_ipopt`).
"""

from __future__ import annotations

import shutil
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyomo.environ as pyo
from pyomo.common.errors import ApplicationError
from pyomo.common.log import LoggingIntercept

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError, SolverError
from gridpriv.power.program import ZoneProgram
from gridpriv.power.relaxation import require_balance, set_demand, variables, zone_model
from gridpriv.power.solvers.base import Solution
from gridpriv.power.zone import Zone


class PyomoSolver:
    """Solve a zone's Pyomo model with a solver that Pyomo knows by name."""

    def __init__(self, program: ZoneProgram, solver: str, *, exact: bool) -> None:
        self.name = f"pyomo:{solver}"
        self._program = program
        self._solver = pyomo_solver(solver)
        self._model = zone_model(program.zone)
        self._variables = variables(self._model)
        # the objective at no demand; its linear part comes with ``linear``
        self._quadratic = self._model.objective.expr if exact else 0.0
        self._counted = program.cost_linear if exact else np.zeros(program.size)
        self._model.objective.deactivate()

    def solve(self, linear: Floats, metric: Floats, *, near: bool = False) -> Solution:
        """Return the minimiser; the model's demand stays 0, ``linear`` holds its effect."""
        del near
        if hasattr(self._model, "local"):
            self._model.del_component("local")
        terms = zip(linear - self._counted, metric, self._variables, strict=True)
        self._model.local = pyo.Objective(
            expr=self._quadratic + sum(float(c) * v + 0.5 * float(m) * v**2 for c, m, v in terms)
        )
        try:
            result = self._solver.solve(self._model, load_solutions=False)
        except (ApplicationError, RuntimeError, ValueError) as error:
            raise SolverError(f"{self.name} failed: {error}") from error
        status = str(result.solver.termination_condition)
        if status != "optimal":
            raise SolverError(f"{self.name} ended {status}: {result.solver.message}")
        self._model.solutions.load_from(result)
        return Solution(np.array([pyo.value(v) for v in self._variables]), 0, 0)


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
        with LoggingIntercept():  # what Pyomo logs of an unknown name goes to standard output
            available = bool(pyomo_solver(name).available(exception_flag=False))
    except (ApplicationError, RuntimeError, ValueError, AttributeError):
        available = False
    if not available:
        raise InputError(
            f"solver = 'pyomo:{name}': must be a solver that Pyomo finds here "
            "(pyomo:ipopt comes with gridpriv; others need their own installation)"
        )


def solve_whole_model(
    zone: Zone, solver: str, *, hard_balance: bool
) -> tuple[Floats, Floats, float]:
    """Solve a zone's Pyomo model at its own demand.

    Parameters
    ----------
    zone : Zone
    solver : str
        A name that Pyomo knows.
    hard_balance : bool
        Whether the balance is a constraint; else its weighted square is minimised.

    Returns
    -------
    (z, imbalance, value) : (n,), (2 b,), float
    """
    model = zone_model(zone)
    set_demand(model, zone)
    model.objective.deactivate()
    if hard_balance:
        require_balance(model)
    model.whole = pyo.Objective(expr=model.cost.expr if hard_balance else model.objective.expr)
    try:
        result = pyomo_solver(solver).solve(model, load_solutions=False)
    except (ApplicationError, RuntimeError, ValueError) as error:
        raise SolverError(f"pyomo:{solver} failed: {error}") from error
    status = str(result.solver.termination_condition)
    if status != "optimal":
        raise SolverError(f"pyomo:{solver} ended {status}: {result.solver.message}")
    model.solutions.load_from(result)
    left = [*model.p_imbalance.values(), *model.q_imbalance.values()]
    return (
        np.array([pyo.value(v) for v in variables(model)]),
        np.array([pyo.value(e) for e in left]),
        float(pyo.value(model.whole)),
    )

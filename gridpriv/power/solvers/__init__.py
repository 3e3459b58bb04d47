"""Solvers of zone problems, one file each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gridpriv.consensus.schedules import SolverTolerance
from gridpriv.core.errors import not_allowed
from gridpriv.power.presolve import ReducedProgram
from gridpriv.power.program import ZoneProgram
from gridpriv.power.solvers.base import Attempting, OnePoint, Rescued, ZoneSolver

SOLVERS = ("ipopt", "clarabel", "pyomo:NAME")

__all__ = ["SOLVERS", "ZoneSolver", "check_solver", "make_solver", "solver_version"]


def check_solver(name: str) -> None:
    """Raise :class:`gridpriv.core.errors.InputError` unless ``name`` is a solver that can run."""
    if name.startswith("pyomo:"):
        from gridpriv.power.solvers.pyomo import check_available

        check_available(name.removeprefix("pyomo:"))
    elif name not in ("ipopt", "clarabel"):
        raise not_allowed("solver", name, f"one of {', '.join(SOLVERS)}")


def make_solver(
    name: str,
    program: ZoneProgram,
    reduced: Callable[[], ReducedProgram],
    *,
    exact: bool,
    solver_tolerance: SolverTolerance = "tight",
) -> ZoneSolver:
    """Return a solver of a zone.

    Parameters
    ----------
    name : str
        ``ipopt``, ``clarabel`` or ``pyomo:NAME``.
    program : ZoneProgram
    reduced : callable
        Returns the presolved program; called by solvers that use it.
    exact : bool
        True if the objective has f's own quadratic.
    solver_tolerance : {'matched', 'tight'}
        Accuracy of Clarabel where a point near the minimizer suffices.
    """
    if name.startswith("pyomo:"):
        from gridpriv.power.solvers.pyomo import PyomoSolver

        return PyomoSolver(program, name.removeprefix("pyomo:"), exact=exact)
    presolved = reduced()
    if presolved.size == 0:
        return OnePoint(presolved)
    other = "ipopt" if name == "clarabel" else "clarabel"
    first, second = (
        partial(_attempting, each, presolved, exact, solver_tolerance) for each in (name, other)
    )
    return Rescued(first(), second)


def _attempting(
    name: str, program: ReducedProgram, exact: bool, solver_tolerance: SolverTolerance
) -> Attempting:
    if name == "clarabel":
        from gridpriv.power.solvers.clarabel import ClarabelSolver

        return ClarabelSolver(program, exact=exact, solver_tolerance=solver_tolerance)
    from gridpriv.power.solvers.ipopt import IpoptSolver

    return IpoptSolver(program, exact=exact)


def solver_version(name: str) -> str:
    """Return the version of a solver's package."""
    from importlib.metadata import version

    package = {"ipopt": "casadi", "clarabel": "clarabel"}.get(name, "pyomo")
    return f"{package} {version(package)}"

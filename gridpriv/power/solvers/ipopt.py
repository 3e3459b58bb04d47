"""Ipopt in memory through CasADi, whose wheel has it with MUMPS."""

from __future__ import annotations

from typing import Any

import casadi
import numpy as np
from scipy import sparse

from gridpriv.consensus.agent import Minimiser
from gridpriv.core.arrays import Floats
from gridpriv.core.errors import SolverError
from gridpriv.core.threads import interruptible
from gridpriv.power.presolve import ReducedProgram

OPTIONS: dict[str, Any] = {
    "print_time": False,
    "show_eval_warnings": False,  # the status reports NaN
    "ipopt.print_level": 0,
    "ipopt.sb": "yes",
    "ipopt.tol": 1e-9,
    "ipopt.bound_relax_factor": 0.0,
    "ipopt.max_iter": 1000,
}
SAFER: tuple[dict[str, Any], ...] = (
    {"ipopt.mu_strategy": "adaptive"},
    {"ipopt.tol": 1e-8, "ipopt.max_iter": 3000},
)


class IpoptSolver:
    """Solve a zone with Ipopt; the linear and quadratic coefficients are parameters."""

    @interruptible()
    def __init__(self, program: ReducedProgram, *, exact: bool) -> None:
        self._program = program
        self._exact = exact
        self._problem, self._low, self._high = _nlp(program)
        self._solver = casadi.nlpsol("zone", "ipopt", self._problem, OPTIONS)
        self._x = np.clip(_start(program), program.lower, program.upper)

    @interruptible()
    def solve(self, linear: Floats, metric: Floats, *, near: bool = False) -> Minimiser:
        """Return the minimizer; a solve not ended as solved is repeated with safer settings."""
        del near  # no status of Ipopt has the distance of a point
        p = self._program.quadratic(metric, exact=self._exact)
        q = self._program.linear(linear, metric, exact=self._exact)
        parameters = np.concatenate([q, p])
        solver, iterations = self._solver, 0
        for retries, more in enumerate((None, {}, *SAFER)):
            if more is not None:
                solver = casadi.nlpsol("zone", "ipopt", self._problem, OPTIONS | more)
            result, stats = self._run(solver, parameters)
            iterations += int(stats["iter_count"])
            if stats["return_status"] == "Solve_Succeeded":
                return Minimiser(self._program.restore(result), iterations, retries)
        raise SolverError(f"ipopt ended {stats['return_status']} after safer settings")

    def _run(self, solver: Any, parameters: Floats) -> tuple[Floats, dict[str, Any]]:
        result = solver(
            x0=self._x,
            p=parameters,
            lbx=self._program.lower,
            ubx=self._program.upper,
            lbg=self._low,
            ubg=self._high,
        )
        return np.asarray(result["x"]).ravel(), solver.stats()


def _start(program: ReducedProgram) -> Floats:
    """Return the flat start in reduced coordinates (kept variables are copied by T)."""
    remaining = np.asarray(sparse.csc_array(program.expand).argmax(axis=0)).ravel()
    identity = np.asarray(program.expand[remaining, np.arange(program.size)]).ravel()
    return np.where(identity == 1.0, program.program.start[remaining], 0.0)


def _nlp(program: ReducedProgram) -> tuple[dict[str, Any], Floats, Floats]:
    """Return CasADi's symbols of the program and the bounds of its constraint rows."""
    x = casadi.SX.sym("x", program.size)
    q = casadi.SX.sym("q", program.size)
    p = casadi.SX.sym("p", len(program.p_indices))
    column = np.repeat(np.arange(program.size), np.diff(program.p_indptr))
    half = np.where(column == program.p_indices, 0.5, 1.0)
    quadratic = casadi.dot(p * half, x[program.p_indices.tolist()] * x[column.tolist()])
    rows = [casadi.DM(sparse.csc_matrix(program.a_in)) @ x, _cone_slacks(program, x)]
    sizes = [len(program.b_in), len(program.cone_sizes)]
    low = np.concatenate([np.full(sizes[0], -np.inf), np.zeros(sizes[1])])
    high = np.concatenate([program.b_in, np.full(sizes[1], np.inf)])
    problem = {"x": x, "p": casadi.vertcat(q, p), "f": quadratic + casadi.dot(q, x)}
    problem["g"] = casadi.vertcat(*rows)
    return problem, low, high


def _cone_slacks(program: ReducedProgram, x: Any) -> Any:
    """Return t^2 - ||u||^2 of each cone, divided by 4 where it is a rotated one."""
    row = casadi.DM(sparse.csc_matrix(program.cone)) @ x + program.cone_offset
    heads = np.concatenate([[0], np.cumsum(program.cone_sizes)])
    slacks = []
    for head, end in zip(heads[:-1].tolist(), heads[1:].tolist(), strict=True):
        t, u = row[head], row[head + 1 : end]
        slacks.append((t * t - casadi.dot(u, u)) / 4)
    return casadi.vertcat(*slacks) if slacks else casadi.SX(0, 1)

"""Clarabel: a conic interior-point solver, kept in memory and updated in place."""

from __future__ import annotations

from typing import Any

import clarabel
import numpy as np
from scipy import sparse

from gridpriv.errors import SolverError
from gridpriv.grid.case import Floats
from gridpriv.power.presolve import ReducedProgram
from gridpriv.power.program import Matrix
from gridpriv.power.solvers.base import Solution



class ClarabelSolver:
    """Solve a zone with Clarabel; P and q change in place between solves."""

    name = "clarabel"

    def __init__(self, program: ReducedProgram, *, exact: bool) -> None:
        self._program = program
        self._exact = exact
        self._rows, self._offset, self._cones = _conic_rows(program)
        self._solver: Any = None

    def solve(self, linear: Floats, metric: Floats) -> Solution:
        """Return the minimiser; a solve not ended as Solved is repeated with safer settings."""
        p = self._program.quadratic(metric, exact=self._exact)
        q = self._program.linear(linear, metric, exact=self._exact)
        if self._solver is None:
            self._solver = self._setup(p, q, _settings())
        else:
            self._solver.update(P=p, q=q)
        found = self._solver.solve()
        iterations = int(found.iterations)
        for retries, settings in enumerate((_settings(), *_safer_settings())):
            if found.status == clarabel.SolverStatus.Solved:
                x = np.asarray(found.x)
                return Solution(self._program.restore(x), iterations, retries)
            found = self._setup(p, q, settings).solve()
            iterations += int(found.iterations)
        if found.status == clarabel.SolverStatus.Solved:
            return Solution(self._program.restore(np.asarray(found.x)), iterations, 3)
        raise SolverError(f"clarabel ended {found.status} after safer settings were tried")

    def _setup(self, p: Floats, q: Floats, settings: Any) -> Any:
        size = self._program.size
        pattern = (p, self._program.p_indices, self._program.p_indptr)
        quadratic = sparse.csc_matrix(pattern, shape=(size, size))
        return clarabel.DefaultSolver(
            quadratic, q, self._rows, self._offset, self._cones, settings
        )


def _conic_rows(program: ReducedProgram) -> tuple[sparse.csc_matrix, Floats, list[Any]]:
    """Return (A, b, cones) of A x + s = b: bounds and inequalities, then second-order cones."""
    eye = sparse.eye_array(program.size, format="csr")
    above, below = np.isfinite(program.upper), np.isfinite(program.lower)
    rows = [Matrix(eye[above]), Matrix(-eye[below]), program.a_in, Matrix(-program.cone)]
    offset = np.concatenate(
        [program.upper[above], -program.lower[below], program.b_in, program.cone_offset]
    )
    linear = int(above.sum() + below.sum() + len(program.b_in))
    cones = [clarabel.NonnegativeConeT(linear)] if linear else []
    cones += [clarabel.SecondOrderConeT(int(s)) for s in program.cone_sizes]
    return sparse.csc_matrix(sparse.vstack(rows)), offset, cones


def _settings() -> Any:
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.presolve_enable = False  # presolve forbids updating in place
    return settings


def _safer_settings() -> list[Any]:
    """Return settings for a repeated solve: more steps, then stronger regularisation."""
    longer = _settings()
    longer.max_iter = 1000
    longer.equilibrate_max_iter = 50
    firmer = _settings()
    firmer.max_iter = 2000
    firmer.equilibrate_enable = False
    firmer.static_regularization_constant = 1e-7
    firmer.iterative_refinement_max_iter = 50
    firmer.max_step_fraction = 0.9
    return [longer, firmer]

"""Clarabel: a conic interior-point solver, kept in memory and updated in place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import clarabel
import numpy as np
from scipy import sparse

from gridpriv.consensus.schedules import SolverTolerance
from gridpriv.core.arrays import Floats
from gridpriv.core.errors import SolverError
from gridpriv.power.presolve import LiftedProgram, ReducedProgram, lifted
from gridpriv.power.program import Matrix, ZoneProgram
from gridpriv.power.solvers.base import Solution, Unsolved


class ClarabelSolver:
    """Solve a zone with Clarabel; P and q change in place between solves."""

    name = "clarabel"

    def __init__(
        self, program: ReducedProgram, *, exact: bool, solver_tolerance: SolverTolerance = "tight"
    ) -> None:
        matched = solver_tolerance == "matched"
        self._program = lifted(program, FEW_TERMS) if exact and matched else program
        self._exact = exact
        self._near = MATCHED if matched else FAST
        rows, self._offset, self._cones = _rows(self._program)
        self._rows = sparse.csc_matrix(rows)
        self._kept: dict[bool, _Kept] = {}  # where a point near the minimiser serves, or not

    def attempt(self, linear: Floats, metric: Floats, *, near: bool) -> Solution | Unsolved:
        """Return the minimiser; a solve not ended as Solved is repeated with safer settings.

        Where none ends so, the first that ended AlmostSolved is the point near it; where such a
        point serves and is there, only the settings that are likeliest to end as Solved are tried.

        Raises
        ------
        SolverError
            With a certificate that there is none.
        """
        p = self._program.quadratic(metric, exact=self._exact)
        q = self._program.linear(linear, metric, exact=self._exact)
        solution = self._first(p, q, near=near).solve()
        ended = [solution]
        for repeat, (scale, settings) in enumerate(SAFER):
            if solution.status == clarabel.SolverStatus.Solved:
                break
            if near and repeat >= LIKELIEST and _almost(ended):
                break
            solution = self._setup(scale * p, scale * q, settings).solve()
            ended.append(solution)
        iterations, retries = sum(int(item.iterations) for item in ended), len(ended) - 1
        if retries == len(SAFER) and solution.status == clarabel.SolverStatus.PrimalInfeasible:
            raise SolverError("there is no solution (clarabel's certificate at its defaults)")
        if solution.status != clarabel.SolverStatus.Solved:
            almost = _almost(ended)
            z = self._program.restore(np.asarray(almost[0].x)) if almost else None
            return Unsolved(f"clarabel ended {solution.status}", iterations, retries, z)
        return Solution(self._program.restore(np.asarray(solution.x)), iterations, retries)

    def _first(self, p: Floats, q: Floats, *, near: bool) -> Any:
        """Return the solver that is tried first, at P and q."""
        kept = self._kept.get(near)
        if kept is None:
            kept = _Kept(self._setup(p, q, self._near if near else FAST), p)
        elif np.array_equal(kept.quadratic, p):  # rounds keep their penalty
            kept.solver.update(q=q)
        else:
            kept.solver.update(P=p, q=q)
        self._kept[near] = replace(kept, quadratic=p)
        return kept.solver

    def _setup(self, p: Floats, q: Floats, settings: dict[str, Any]) -> Any:
        return clarabel.DefaultSolver(
            self._program.upper_triangle(p),
            q,
            self._rows,
            self._offset,
            self._cones,
            clarabel_settings(settings),
        )


@dataclass(frozen=True, eq=False)
class _Kept:
    """A solver that is updated in place, and the values of P that it has."""

    solver: Any
    quadratic: Floats


def _almost(ended: list[Any]) -> list[Any]:
    return [item for item in ended if item.status == clarabel.SolverStatus.AlmostSolved]


def _rows(program: ReducedProgram) -> tuple[Matrix, Floats, list[Any]]:
    """Return (A, b, cones) with what says what lifted variables are."""
    rows, offset, cones = conic_rows(program)
    if not isinstance(program, LiftedProgram):
        return rows, offset, cones
    none = np.zeros(program.hubs.shape[0])
    every = Matrix(sparse.vstack([program.hubs, rows], format="csr"))
    return every, np.concatenate([none, offset]), [clarabel.ZeroConeT(len(none)), *cones]


def conic_rows(program: ZoneProgram | ReducedProgram) -> tuple[Matrix, Floats, list[Any]]:
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
    return Matrix(sparse.vstack(rows, format="csr")), offset, cones


# Without equilibration and with refinement to 1e-9 a solve takes half the time, and far fewer
# solves end AlmostSolved (docs/decisions/0005-solvers.md). What does not end as Solved is
# repeated at a tolerance of 1e-7 in place of 1e-8, with the objective scaled, with firmer
# refinement, with less regularisation of the factors, and last with Clarabel's defaults.
PLAIN = {"equilibrate_enable": False}
FAST = PLAIN | {"iterative_refinement_abstol": 1e-9, "iterative_refinement_reltol": 1e-9}
FINE = PLAIN | {"static_regularization_constant": 1e-10}
LOOSER = PLAIN | {"tol_feas": 1e-7, "tol_gap_abs": 1e-7, "tol_gap_rel": 1e-7}
MATCHED = LOOSER | {"iterative_refinement_enable": False}
SAFER: tuple[tuple[float, dict[str, Any]], ...] = (
    (1.0, LOOSER),
    (10.0, FAST),
    (0.01, FAST),
    (1e-4, FAST),
    (0.01, PLAIN),
    (10.0, PLAIN),
    (100.0, PLAIN),
    (1.0, FINE),
    (1e-4, FINE),
    (1.0, {}),
)
LIKELIEST = 3
FEW_TERMS = 12
"""Variables that make up what a bus lacks, above which it is a variable itself."""


def clarabel_settings(given: dict[str, Any]) -> Any:
    """Return Clarabel's settings: quiet, one thread, updatable in place, and what is given."""
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.presolve_enable = False  # presolve forbids updating in place
    settings.max_threads = 1
    for name, value in given.items():
        setattr(settings, name, value)
    return settings

r"""A minimiser whose error is proven, for releases that rest on it.

A zone's presolved problem is to minimise 1/2 x'Px + q'x where b - Ax is in K, half-lines and
second-order cones. Let x be feasible with slack s = b - Ax, let x* (slack s*) be the minimiser, y
any point of K, which is its own dual, and r = Px + q + A'y. As <Px* + q, x - x*> >= 0 and
<y, s*> >= 0,

    (x - x*)'P(x - x*) <= <Px + q, x - x*> = <r, x - x*> - <y, A(x - x*)>
                       =  <r, x - x*> + <y, s - s*>  <=  sum_k |r_k| width_k + <y, s>,

with the public range of each variable, in which both points are. P is T'DT for the metric D on
z = Tx + t, plus f's own quadratic in the exact update, so the left side is at least the square of
||z - z*||_D. Everything on the right is known once x and y are: whatever the solver did to find
them, the bound holds.

An interior-point solver ends outside K by its tolerance, and a point outside bounds nothing. So it
is given b less a margin; where a row ends outside all the same, its margin is doubled beyond that
and the solve is repeated.
"""

from __future__ import annotations

import math
from typing import Any

import clarabel
import numpy as np
from scipy import sparse

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import SolverError
from gridpriv.power.presolve import ReducedProgram
from gridpriv.power.program import Matrix
from gridpriv.power.solvers.base import Solution
from gridpriv.power.solvers.clarabel import FAST, clarabel_settings, conic_rows

ROUNDING = 1e-13
"""Least slack of a feasible point, p.u.: more than rounding takes from it."""
ATTEMPTS = (
    (1e-9, None, 0.99),
    (1e-10, 1.0, 0.9),
    (1e-10, 10.0, 0.95),
    (1e-10, 1.0, 0.99),
    (1e-10, 100.0, 0.99),
    (3e-10, None, 0.95),
    (3e-11, 1.0, 0.95),
)
"""First margin, p.u.; largest entry of q, where it is scaled; how far a step goes.

The error grows with the margin's root. Which attempt comes furthest is chance: of 18 problems at
which the first failed, each of the others solved 8 to 15, and all together 17.
"""
SOLVES = 8  # of an attempt, at most


class Certified:
    """Solve a zone with Clarabel until the error of what it gives is proven to be small enough.

    Parameters
    ----------
    program : ReducedProgram
        With variables left.
    exact : bool
        Whether the objective holds f's own quadratic.
    """

    def __init__(self, program: ReducedProgram, *, exact: bool) -> None:
        self._program = program
        self._exact = exact
        rows, self._offset, self._cones = conic_rows(program)
        self._rows, self._columns = sparse.csc_matrix(rows), Matrix(rows.T)
        self._solvers: dict[int, Any] = {}  # of every attempt that was made, updated in place
        self._linear = len(self._offset) - int(program.cone_sizes.sum())
        starts = np.concatenate([[0], np.cumsum(program.cone_sizes)])[:-1]
        self._heads = (self._linear + starts).astype(np.int64)
        self._depths = np.concatenate([np.arange(self._linear), self._heads])

    def solve(self, linear: Floats, metric: Floats, within: float) -> Solution:
        """Return a point at most ``within`` from the minimiser in the norm of diag(metric).

        Raises
        ------
        SolverError
            Where no solve comes to such a point.
        """
        if np.isinf(self._program.width).any():
            raise SolverError(
                "a release rests on this minimiser, and where a generator has no limits no error "
                "of it is proven; noise on demand or objective rests on no solver"
            )
        p = self._program.quadratic(metric, exact=self._exact)
        q = self._program.linear(linear, metric, exact=self._exact)
        least, iterations, solves = math.inf, 0, 0
        for number, (first, largest, _) in enumerate(ATTEMPTS):
            margin = np.full(len(self._depths), first)
            scale = 1.0 if largest is None else largest / max(float(np.abs(q).max()), 1.0)
            for _ in range(SOLVES):
                attempt = self._attempt(number, scale * p, scale * q, margin)
                iterations, solves = iterations + int(attempt.iterations), solves + 1
                x = np.asarray(attempt.x)
                slack = self._offset - self._rows @ x
                outside = ROUNDING - self._depth(slack)
                if not np.isfinite(x).all() or (outside <= 0.0).all():
                    break
                margin = np.where(outside > 0.0, 2.0 * (margin + outside), margin)
            else:
                continue
            least = min(least, self._error(p, q, x, slack, np.asarray(attempt.z) / scale))
            if least <= within:
                return Solution(self._program.restore(x), iterations, solves - 1)
        proven = f"none below {least:.3g}" if math.isfinite(least) else "none"
        raise SolverError(
            f"a release rests on this minimiser: noise covers an error of {within:.3g}, and "
            f"{proven} is proven (in the norm of the penalty). A smaller penalty or a larger beta "
            "leaves more; noise on demand or objective rests on no solver"
        )

    def _attempt(self, number: int, p: Floats, q: Floats, margin: Floats) -> Any:
        offset = self._offset.copy()
        offset[self._depths] -= margin
        if number in self._solvers:
            self._solvers[number].update(P=p, q=q, b=offset)
        else:
            first, _, step = ATTEMPTS[number]
            chosen = FAST | {
                "tol_feas": first,
                "tol_gap_abs": 0.1 * first,
                "tol_gap_rel": 0.1 * first,
                "max_step_fraction": step,
            }
            upper, settings = self._program.upper_triangle(p), clarabel_settings(chosen)
            self._solvers[number] = clarabel.DefaultSolver(
                upper, q, self._rows, offset, self._cones, settings
            )
        return self._solvers[number].solve()

    def _error(self, p: Floats, q: Floats, x: Floats, slack: Floats, y: Floats) -> float:
        """Return the bound on the error of a feasible point; ``y`` is moved into K first."""
        if not np.isfinite(y).all():
            return math.inf
        y = y.copy()
        y[self._depths] += np.maximum(-self._depth(y), 0.0)
        gradient = self._program.curved(p, x) + q + self._columns @ y
        value = np.abs(gradient) @ self._program.width
        return math.sqrt(max(float(y @ slack), 0.0) + float(value))

    def _depth(self, slack: Floats) -> Floats:
        """Return the distance of each block of a slack from its cone's boundary; < 0: outside."""
        squares = slack**2
        squares[: self._linear], squares[self._heads] = 0.0, 0.0
        radius = np.zeros(len(self._depths))
        if len(self._heads):
            radius[self._linear :] = np.sqrt(np.add.reduceat(squares, self._heads))
        return np.asarray(slack[self._depths] - radius)

"""A zone's block of the relaxation, for conic rounds, and products of second-order cones.

The blocks and the border of voltage products at tie lines (w, wr, wi; flows are functions of them)
form the relaxation of the whole grid without copies,

    minimize 1/2 x'Px + q'x   subject to   A x + s = b,  s in K        in every block.

An iteration of the primal-dual method is Newton's step on the optimality conditions, in the scaling
W of Nesterov and Todd with Mehrotra's corrector:

    [P       A' W^-1] [dx  ]   [r_x     ]
    [W^-1 A    -I   ] [W dz] = [W^-1 r_z].

A block eliminates its own variables and sends its Schur complement on the border. In exact
arithmetic the iterates are those of the whole program, whatever the partition. All messages are
functions of *released* demand and of earlier messages.

W^2 is never formed. Eigenvalues of W in a cone may differ by a factor of 1e10, and rounding W^2
loses the least. The Schur complement of a zone whose cones have border variables only, A' W^-2 A,
divides by them (docs/decisions/0017-acceleration.md has the step's error by round).

A cone is { (t, u) : ||u|| <= t }; a half-line is one of a single row. With J = diag(1, -1, ..., -1)
and det v = v'Jv, the scaling W of interior s and z is the symmetric matrix with W z = W^-1 s:

    W = eta (a a' / (1 + w_0) - J),   W^-1 = (b b' / (1 + w_0) - J) / eta,   eta^4 = det s / det z,

where a = w + e, b = J w + e, and w, of det w = 1, is the scaling point of s and z over their
determinants' roots (Nesterov and Todd 1997; Vandenberghe 2010, *The CVXOPT linear and quadratic
cone program solvers*).

The derivative of a minimizer of a local update,  min 1/2 x'Px + q'x,  Ax + s = b,  s in K.  On the
central path at the solver's last barrier, s = -mu grad F*(y) for the dual y, whose derivative is
ds = -W^2 dy. With P dx + A'dy = -dq and A dx + ds = 0:

    [ P   A'   ] [ dx ]   [ -dq ]
    [ A  -W^2  ] [ dy ] = [  0  ]

a quasi-definite system, also where constraints are nearly active (the path is smooth there).
With z = T x + t0, a change g of the gradient gives dz = T dx, dq = T'g.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from clarabel import SolverStatus
from scipy import sparse
from scipy.sparse.linalg import SuperLU, splu

from gridpriv.core.arrays import Floats, Ints
from gridpriv.core.errors import SolverError
from gridpriv.power.ac.block import Elimination
from gridpriv.power.presolve import ReducedProgram
from gridpriv.power.problem import ZoneProblem
from gridpriv.power.program import Matrix
from gridpriv.power.solvers.clarabel import SAFER, ClarabelSolver, Cones, conic_rows


@dataclass(frozen=True, eq=False)
class ConeScaling:
    """The scaling W of interior s and z.

    Attributes
    ----------
    point : (rows,)
        w; its det is 1.
    eta : (k,)
    """

    cones: Cones
    point: Floats
    eta: Floats

    @staticmethod
    def of(cones: Cones, s: Floats, z: Floats) -> ConeScaling:
        """Return the scaling of s and z."""
        root_s, root_z = (np.sqrt(np.multiply(*cones.depth(v))) for v in (s, z))
        s, z = s / root_s[cones.block], z / root_z[cones.block]
        norm = np.sqrt(2.0 * (1.0 + cones.dot(s, z)))[cones.block]
        return ConeScaling(cones, (s + cones.reflected(z)) / norm, np.sqrt(root_s / root_z))

    @staticmethod
    def identity(cones: Cones) -> ConeScaling:
        """Return W = I."""
        return ConeScaling(cones, cones.unit, np.ones(len(cones.sizes)))

    def times(self, v: Floats) -> Floats:
        """Return W v."""
        return self.eta[self.cones.block] * self._product(self.point, v)

    def inverse_times(self, v: Floats) -> Floats:
        """Return W^-1 v."""
        return self._product(self.cones.reflected(self.point), v) / self.eta[self.cones.block]

    def _product(self, w: Floats, v: Floats) -> Floats:
        cones = self.cones
        whole = cones.dot(w, v)
        share = (whole + v[cones.head]) / (1.0 + w[cones.head])
        result = v + share[cones.block] * w
        result[cones.head] = whole
        return result

    def matrix(self, *, inverse: bool = False) -> Matrix:
        """Return W, or W^-1, shape (rows, rows)."""
        cones, rows = self.cones, np.arange(len(self.point))
        width = cones.sizes[cones.block]
        row = np.repeat(rows, width)
        first = np.repeat(cones.head[cones.block], width)
        column = first + np.arange(len(row)) - np.repeat(np.cumsum(width) - width, width)
        root = (cones.reflected(self.point) if inverse else self.point) + cones.unit
        values = root[row] * root[column] / root[first]
        values -= np.where(row == column, 2.0 * cones.unit[row] - 1.0, 0.0)
        eta = self.eta[cones.block[row]]
        values = values / eta if inverse else values * eta
        return Matrix(sparse.csr_array((values, (row, column)), shape=(len(rows), len(rows))))


REGULARIZATION = 1e-9
"""Regularization of the factored system's P; a refinement step removes its effect."""
INSIDE = 1e-8
EPSILON = float(np.finfo(np.float64).eps)


class Progress(NamedTuple):
    """A block at its point.

    Attributes
    ----------
    product : float
        s'z.
    degree : int
        Number of cones.
    violation, farthest : float
        2-norm and largest entry of A x + s - b.
    gradient : float
        Squared 2-norm of the Lagrangian's gradient in the block's own variables.
    shared : (k,)
        That gradient in the block's border variables.
    rounding : float
        Squared 2-norm of the rounding errors of the gradient's terms.
    """

    product: float
    degree: int
    violation: float
    farthest: float
    gradient: float
    shared: Floats
    rounding: float


class ConicBlock:
    """A zone's part of the relaxation.

    Parameters
    ----------
    problem : ZoneProblem
    demand : (2 own,)
        Released estimate of (pd, qd); exact without perturbation.
    border : int array
        Coordinates of the border variables in the grid, sorted.
    """

    def __init__(self, problem: ZoneProblem, demand: Floats, border: Ints) -> None:
        self._reduced = reduced = problem.reduced
        none = np.zeros(problem.program.size)
        upper = reduced.upper_triangle(reduced.quadratic(none, exact=True))
        diagonal = sparse.diags_array(upper.diagonal())
        self._p = Matrix(upper + upper.T - diagonal)
        self._q = reduced.linear(problem.gradient(none, demand), none, exact=True)
        self._a, self._b, _ = conic_rows(reduced)
        self._cones = Cones.of(reduced)
        number = problem.coordinates[reduced.remaining]
        shared = np.isin(number, border)
        self._own, self._edge = np.flatnonzero(~shared), np.flatnonzero(shared)
        self.at = number[self._edge]
        self._x = self._s = self._z = np.zeros(0)
        self._factor(ConeScaling.identity(self._cones))

    def _factor(self, scaling: ConeScaling) -> None:
        """Factor [P_oo G_o'; G_o -I], G = W^-1 A, and eliminate the border's columns from it."""
        own, edge, rows = self._own, self._edge, len(self._b)
        self._scaling = scaling
        whole = Matrix(scaling.matrix(inverse=True) @ self._a)
        inner, g = self._p[own][:, own], whole[:, own]
        self._system = sparse.block_array(
            [[inner, g.T], [g, -sparse.eye_array(rows)]], format="csc"
        )
        small = np.repeat([REGULARIZATION, 0.0], [len(own), rows])
        self._lu = splu(sparse.csc_array(self._system + sparse.diags_array(small)))
        self._coupling = sparse.vstack([self._p[own], whole], format="csc")[:, edge].toarray()
        self._solved = self._solve(self._coupling)
        self._corner = self._p[edge][:, edge].toarray() - self._coupling.T @ self._solved

    def _solve(self, right: Floats) -> Floats:
        first = self._lu.solve(right)
        return np.asarray(first + self._lu.solve(right - self._system @ first))

    def _eliminated(self, rx: Floats, rz: Floats) -> Floats:
        """Return the reduced residual of the border, shape (k,)."""
        scaled = self._scaling.inverse_times(rz)
        self._right = self._solve(np.concatenate([rx[self._own], scaled]))
        return np.asarray(rx[self._edge] - self._coupling.T @ self._right)

    def _expanded(self, border: Floats) -> tuple[Floats, Floats]:
        """Return the step of x and z for the border's step."""
        inner = -self._right - self._solved @ border
        dx = np.zeros(len(self._q))
        dx[self._own], dx[self._edge] = inner[: len(self._own)], border
        return dx, self._scaling.inverse_times(inner[len(self._own) :])

    def open(self) -> Elimination:
        """Return the Schur complement of the start: least squares with W = I."""
        return Elimination(self._corner, self._eliminated(self._q, -self._b))

    def begin(self, border: Floats) -> Progress:
        """Start at the border's solution, shifted into the cones."""
        self._x, z = self._expanded(border)
        self._s, self._z = self._inside(-z), self._inside(z)
        return self.progress()

    def _inside(self, v: Floats) -> Floats:
        """Return v shifted into the cones along their axes, where it is not inside."""
        least = float(self._cones.depth(v)[0].min(initial=1.0))
        return v if least > INSIDE else v + (1.0 - min(least, 0.0)) * self._cones.unit

    def progress(self) -> Progress:
        """Return the residuals of the optimality conditions at the block's point."""
        self._rx = self._p @ self._x + self._q + self._a.T @ self._z
        self._rz = self._a @ self._x + self._s - self._b
        terms = abs(self._p) @ abs(self._x) + abs(self._q) + abs(self._a).T @ abs(self._z)
        return Progress(
            float(self._s @ self._z),
            len(self._cones.sizes),
            float(np.linalg.norm(self._rz)),
            float(np.abs(self._rz).max(initial=0.0)),
            float(np.sum(self._rx[self._own] ** 2)),
            self._rx[self._edge],
            float(np.sum((EPSILON * terms) ** 2)),
        )

    def eliminate(self) -> Elimination:
        """Return the Schur complement of the predictor's step.

        Raises
        ------
        SolverError
            Where s or z is on the cones' boundary, up to rounding errors.
        """
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            try:
                self._factor(ConeScaling.of(self._cones, self._s, self._z))
                residual = self._eliminated(self._rx, self._rz - self._s)
            except RuntimeError as error:
                raise SolverError("the zone's equations of the step are singular") from error
            if not (np.isfinite(self._corner).all() and np.isfinite(residual).all()):
                raise SolverError("the zone's equations of the step have no finite solution")
        return Elimination(self._corner, residual)

    def predict(self, border: Floats) -> float:
        """Return the largest length of the predictor's step within the cones."""
        return self._set_step(border, 1.0)

    def _set_step(self, border: Floats, share: float) -> float:
        """Set the step that removes a share of the residuals; return its largest length."""
        dx, dz = self._expanded(border)
        self._step = dx, -share * self._rz - self._a @ dx, dz
        points = (self._s, self._step[1]), (self._z, self._step[2])
        return min(self._cones.longest(v, change) for v, change in points)

    def correct(self, share: float, product: float) -> Floats:
        """Return the reduced residual of Mehrotra's step.

        Parameters
        ----------
        share : float
            Of the residuals that the step removes.
        product : float
            Target of s'z of every cone.
        """
        cones, scaling, (_, ds, dz) = self._cones, self._scaling, self._step
        scaled = scaling.times(self._z)
        second = cones.product(scaling.inverse_times(ds), scaling.times(dz))
        aim = cones.product(scaled, scaled) + second - product * cones.unit
        target = scaling.times(cones.quotient(aim, scaled))
        self._share = share
        return self._eliminated(share * self._rx, share * self._rz - target)

    def direction(self, border: Floats) -> float:
        """Return the largest length of Mehrotra's step within the cones."""
        return self._set_step(border, self._share)

    def step(self, length: float) -> Progress:
        """Take a share of the step."""
        dx, ds, dz = self._step
        self._x, self._s, self._z = (
            self._x + length * dx,
            self._s + length * ds,
            self._z + length * dz,
        )
        return self.progress()

    @property
    def variables(self) -> Floats:
        """The zone's variables."""
        return self._reduced.restore(self._x)


FLOOR = 1e-14
"""Least distance of slacks and duals to a cone's boundary, so that the scaling stays finite."""


@dataclass(frozen=True, eq=False)
class SolvedUpdate:
    """A local update's minimizer and the factors of its derivative."""

    z: Floats
    factor: SuperLU
    program: ReducedProgram

    def response(self, directions: Floats) -> Floats:
        """Return dz for changes of the linear term, shape (n, k) -> (n, k)."""
        size = self.program.size
        rhs = np.zeros((self.factor.shape[0], directions.shape[1]))
        rhs[:size] = -(self.program.expand.T @ directions)
        return np.asarray(self.program.expand @ self.factor.solve(rhs)[:size])


class DifferentiableSolver(ClarabelSolver):
    """Clarabel on a zone's reduced program, with the derivative of its minimizer."""

    def update(self, linear: Floats, metric: Floats) -> SolvedUpdate:
        """Return the minimizer for a linear term on z and a diagonal quadratic."""
        program, cones = self._program, Cones.of(self._program)
        p = program.quadratic(metric, exact=self._exact)
        q = program.linear(linear, metric, exact=self._exact)
        solution, scale = self._first(p, q, near=False).solve(), 1.0
        for scale_next, settings in SAFER:
            if solution.status == SolverStatus.Solved:
                break
            scale = scale_next
            solution = self._setup(scale * p, scale * q, settings).solve()
        if solution.status != SolverStatus.Solved:
            raise SolverError(f"clarabel ended {solution.status} in the forward model")
        dual, slack = np.asarray(solution.z) / scale, np.asarray(solution.s)
        inside = [
            v + np.maximum(FLOOR - cones.depth(v)[0], 0.0)[cones.block] * cones.unit
            for v in (slack, dual)
        ]
        scaling = ConeScaling.of(cones, *inside).matrix()
        upper = program.upper_triangle(p)
        full = upper + sparse.triu(upper, 1).T
        system = sparse.block_array(
            [[full, self._rows.T], [self._rows, -scaling @ scaling]], format="csc"
        )
        return SolvedUpdate(program.restore(np.asarray(solution.x)), splu(system), program)

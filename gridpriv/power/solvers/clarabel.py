"""Clarabel, a conic interior-point solver, updated in place, and minimizers with a proven error.

A zone's presolved problem is to minimize 1/2 x'Px + q'x where b - Ax is in K, half-lines and
second-order cones. Let x be feasible with slack s = b - Ax, let x* (slack s*) be the minimizer, y
any point of K, which is its own dual, and r = Px + q + A'y. As <Px* + q, x - x*> >= 0 and
<y, s*> >= 0,

    (x - x*)'P(x - x*) <= <Px + q, x - x*> = <r, x - x*> - <y, A(x - x*)>
                       =  <r, x - x*> + <y, s - s*>  <=  sum_k |r_k| width_k + <y, s>,

with the public range of each variable, which contains both points. P is T'DT for the metric D on
z = Tx + t, plus f's own quadratic in the exact update, so the left side is at least the square of
||z - z*||_D. The right side depends only on x and y, so the bound holds however they were computed.

An interior-point solver may end outside K within its tolerance, and a point outside proves no
bound. So b is reduced by a margin; where a row still ends outside, its margin becomes twice the sum
of margin and excess, and the solve is repeated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import clarabel
import numpy as np
from scipy import sparse

from gridpriv.consensus.agent import Minimiser
from gridpriv.consensus.schedules import SolverTolerance
from gridpriv.core.arrays import Floats, Ints
from gridpriv.core.errors import SolverError
from gridpriv.power.presolve import ReducedProgram
from gridpriv.power.program import Matrix, ZoneProgram


class ClarabelSolver:
    """Solve a zone with Clarabel; P and q change in place between solves."""

    def __init__(
        self, program: ReducedProgram, *, exact: bool, solver_tolerance: SolverTolerance = "tight"
    ) -> None:
        self._program = program
        self._exact = exact
        self._near = MATCHED if solver_tolerance == "matched" else FAST
        rows, self._offset, self._cones = conic_rows(program)
        self._rows = sparse.csc_matrix(rows)
        # the solver and its values of P, where a point near the minimizer suffices, or not
        self._cached: dict[bool, tuple[Any, Floats]] = {}

    def solve(self, linear: Floats, metric: Floats, *, near: bool = False) -> Minimiser:
        """Return the minimizer; a solve not ended as Solved is repeated with safer settings.

        Where a point ``near`` it suffices and a solve ended as AlmostSolved, only the settings that
        most often end as Solved are tried, and the first such point is returned.
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
            raise SolverError(
                "no dispatch of the relaxation meets all limits of voltages, angles and branches, "
                "whatever load is shed (clarabel's certificate): widen them; gridpriv acopf names "
                "some"
            )
        if solution.status != clarabel.SolverStatus.Solved:
            if not near or not _almost(ended):
                raise SolverError(f"clarabel ended {solution.status} after safer settings")
            (solution, *_) = _almost(ended)
        return Minimiser(self._program.restore(np.asarray(solution.x)), iterations, retries)

    def _first(self, p: Floats, q: Floats, *, near: bool) -> Any:
        """Return the first solver, at P and q."""
        solver, last = self._cached.get(near, (None, p))
        if solver is None:
            solver = self._setup(p, q, self._near if near else FAST)
        elif np.array_equal(last, p):  # rounds keep their penalty
            solver.update(q=q)
        else:
            solver.update(P=p, q=q)
        self._cached[near] = solver, p
        return solver

    def _setup(self, p: Floats, q: Floats, settings: dict[str, Any]) -> Any:
        upper, chosen = self._program.upper_triangle(p), clarabel_settings(settings)
        return clarabel.DefaultSolver(upper, q, self._rows, self._offset, self._cones, chosen)


def _almost(ended: list[Any]) -> list[Any]:
    return [item for item in ended if item.status == clarabel.SolverStatus.AlmostSolved]


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


HALF_LINE_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Cones:
    """A product of cones, stacked.

    Attributes
    ----------
    sizes : (k,) int
        Number of rows of each.
    """

    sizes: Ints

    @staticmethod
    def of(program: ReducedProgram) -> Cones:
        """Return the cones of a zone's rows (:func:`conic_rows`)."""
        bounds = np.isfinite(program.upper).sum() + np.isfinite(program.lower).sum()
        ones = np.ones(bounds + len(program.b_in), dtype=np.int64)
        return Cones(np.concatenate([ones, program.cone_sizes]))

    @cached_property
    def head(self) -> Ints:
        """The first row of every cone."""
        return np.asarray(np.cumsum(self.sizes) - self.sizes, dtype=np.int64)

    @cached_property
    def block(self) -> Ints:
        """The cone of every row."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    @cached_property
    def unit(self) -> Floats:
        """The neutral element e: 1 in first rows, 0 below."""
        unit = np.zeros(len(self.block))
        unit[self.head] = 1.0
        return unit

    def dot(self, u: Floats, v: Floats) -> Floats:
        """Return u'v of every cone, shape (k,)."""
        return np.bincount(self.block, u * v, minlength=len(self.sizes)).astype(np.float64)

    def reflected(self, v: Floats) -> Floats:
        """Return J v."""
        return v * (2.0 * self.unit - 1.0)

    def depth(self, v: Floats) -> tuple[Floats, Floats]:
        """Return t - ||u|| and t + ||u|| of every cone: the eigenvalues of v."""
        t = v[self.head]
        radius = np.sqrt(self.dot(v * (1.0 - self.unit), v))
        return t - radius, t + radius

    def product(self, u: Floats, v: Floats) -> Floats:
        """Return the Jordan product of u and v."""
        result = u[self.head][self.block] * v + v[self.head][self.block] * u
        result[self.head] = self.dot(u, v)
        return result

    def quotient(self, v: Floats, u: Floats) -> Floats:
        """Return x whose Jordan product with u is v."""
        least, most = self.depth(u)
        first = self.dot(self.reflected(u), v) / (least * most)
        result = (v - first[self.block] * u) / u[self.head][self.block]
        result[self.head] = first
        return result

    def longest(self, v: Floats, change: Floats) -> float:
        """Return the largest step along ``change`` that keeps an interior v in the cones."""
        mirrored = self.reflected(change)
        square, mixed = self.dot(mirrored, change), self.dot(mirrored, v)
        least, most = self.depth(v)
        det = least * most
        under = mixed**2 - square * det  # 0 in half-lines, but for rounding
        root = np.sqrt(np.maximum(under, 0.0)) - mixed
        leaves = (under >= -HALF_LINE_ROUNDING * mixed**2) & (root > 0.0)
        return float((det[leaves] / root[leaves]).min(initial=np.inf))


# Without equilibration and with refinement to 1e-9 a solve takes half the time, and far fewer
# solves end AlmostSolved (docs/decisions/0005-solvers.md). What does not end as Solved is
# repeated at a tolerance of 1e-7 in place of 1e-8, with the objective scaled, with firmer
# refinement, with less regularization of the factors, and last with Clarabel's defaults.
PLAIN = {"equilibrate_enable": False}
FAST = PLAIN | {"iterative_refinement_abstol": 1e-9, "iterative_refinement_reltol": 1e-9}
FINE = PLAIN | {"static_regularization_constant": 1e-10}
LOOSER = PLAIN | {"tol_feas": 1e-7, "tol_gap_abs": 1e-7, "tol_gap_rel": 1e-7}
MATCHED = LOOSER | {"iterative_refinement_enable": False}
SAFER: tuple[tuple[float, dict[str, Any]], ...] = (
    (1.0, LOOSER),
    *((scale, FAST) for scale in (10.0, 0.01, 1e-4)),
    *((scale, PLAIN) for scale in (0.01, 10.0, 100.0)),
    *((scale, FINE) for scale in (1.0, 1e-4)),
    (1.0, {}),
)
LIKELIEST = 3


def clarabel_settings(options: dict[str, Any]) -> Any:
    """Return Clarabel's settings: quiet, one thread, updatable in place, and the given options."""
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.presolve_enable = False  # presolve forbids updating in place
    settings.max_threads = 1
    for name, value in options.items():
        setattr(settings, name, value)
    return settings


ROUNDING = 1e-13
"""Least slack of a feasible point, p.u.: larger than rounding."""
ATTEMPTS = ((1e-9, None, 0.99), (1e-10, 1.0, 0.95))
"""First margin, p.u.; largest entry of scaled q; length of a step."""
SOLVES = 8  # of an attempt, at most
POLISHES = 4  # steps of Newton's method


class Certified:
    """Solve a zone with Clarabel until the error of the point is proven to be small enough.

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
        self._solvers: dict[int, Any] = {}  # of every attempt, updated in place
        self._product = Cones.of(program)
        self._rest = self._product.unit == 0.0  # of a cone, after its head

    def solve(self, linear: Floats, metric: Floats, within: float) -> Minimiser:
        """Return a point at most ``within`` from the minimizer in the norm of diag(metric).

        Raises
        ------
        SolverError
            Where no solve gives such a point.
        """
        if np.isinf(self._program.width).any():
            raise SolverError(
                "no error of the solver can be proven where a generator has no limits, and this "
                "release needs such a proof; noise on demand or objective needs none "
                "(--perturbation)"
            )
        p = self._program.quadratic(metric, exact=self._exact)
        q = self._program.linear(linear, metric, exact=self._exact)
        least, iterations, solves = math.inf, 0, 0
        for number, (first, largest, _) in enumerate(ATTEMPTS):
            margin = np.full(len(self._product.head), first)
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
            points = self._points(p, q, x, np.asarray(attempt.z) / scale)
            for point, slack, y in points:
                if (self._depth(slack) >= ROUNDING).all():
                    least = min(least, self._error(p, q, point, slack, y))
                if least <= within:
                    return Minimiser(self._program.restore(point), iterations, solves - 1)
        proven = "none is proven" if math.isinf(least) else f"the proven bound is {least:.3g}"
        raise SolverError(
            f"the solver is not accurate enough for this release: its noise covers a solver error "
            f"of at most {within:.3g}, but {proven} (in the norm of the penalty). Lower --penalty "
            "or raise --beta. Noise on demand or objective (--perturbation) does not depend on the "
            "solver's error"
        )

    def _attempt(self, number: int, p: Floats, q: Floats, margin: Floats) -> Any:
        offset = self._offset.copy()
        offset[self._product.head] -= margin
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

    def _points(self, p: Floats, q: Floats, x: Floats, y: Floats) -> Iterator[tuple[Floats, ...]]:
        """Yield a point with its slack and multipliers, initially and after each Newton step.

        The steps are on the active constraints and leave them almost no slack. The bound counts
        slack times multiplier, so the margin of an active constraint alone may exceed the allowed
        error. A constraint with a negative multiplier is no longer active.
        """
        slack, head, block = self._offset - self._rows @ x, self._product.head, self._product.block
        yield x, slack, y
        if not np.isfinite(x).all() or not np.isfinite(y).all():
            return
        upper = self._program.upper_triangle(p).toarray()
        metric = upper + np.triu(upper, 1).T
        scale = 1.0 / np.sqrt(np.maximum(np.diag(metric), 1.0))
        active = y[head] > self._depth(slack)
        price = np.where(active, y[head], 0.0)
        for _ in range(POLISHES):
            radius = slack[head] - self._depth(slack)  # of cones; 0 of other constraints
            curvature = np.divide(price, radius, out=np.zeros_like(price), where=radius > 0.0)
            inwards = np.add.reduceat(self._normal(slack)[:, None] * self._dense, head)
            along = (self._dense[head] - inwards)[curvature > 0.0]
            curved = np.flatnonzero(self._rest & (curvature[block] > 0.0))
            square = metric - along.T @ (curvature[curvature > 0.0, None] * along)
            square += self._dense[curved].T @ (curvature[block][curved, None] * self._dense[curved])
            across = inwards[active] * scale
            gradient = self._program.curved(p, x) + q + self._columns @ y
            corner = np.zeros((len(across), len(across)))
            try:
                step = np.linalg.solve(
                    np.block([[scale[:, None] * square * scale, across.T], [across, corner]]),
                    np.concatenate(
                        [-scale * gradient, self._depth(slack)[active] - 2.0 * ROUNDING]
                    ),
                )
            except np.linalg.LinAlgError:
                return
            x, price[active] = x + scale * step[: len(x)], price[active] + step[len(x) :]
            active, price = active & (price > 0.0), np.maximum(price, 0.0)
            slack = self._offset - self._rows @ x
            y = self._normal(slack) * price[block]
            yield x, slack, y

    @cached_property
    def _dense(self) -> Floats:
        return np.asarray(self._rows.toarray())

    def _normal(self, slack: Floats) -> Floats:
        """Return the gradient of the depth of every block by its part of the slack."""
        radius = np.maximum(slack[self._product.head] - self._depth(slack), ROUNDING)
        return np.where(self._rest, -slack / radius[self._product.block], 1.0)

    def _error(self, p: Floats, q: Floats, x: Floats, slack: Floats, y: Floats) -> float:
        """Return the bound on the error of a feasible point; ``y`` is shifted into K first."""
        if not np.isfinite(y).all():
            return math.inf
        y = y.copy()
        y[self._product.head] += np.maximum(-self._depth(y), 0.0)
        gradient = self._program.curved(p, x) + q + self._columns @ y
        value = np.abs(gradient) @ self._program.width
        return math.sqrt(max(float(y @ slack), 0.0) + float(value))

    def _depth(self, slack: Floats) -> Floats:
        """Return the distance of each block of a slack from its cone's boundary; < 0: outside."""
        return self._product.depth(slack)[0]

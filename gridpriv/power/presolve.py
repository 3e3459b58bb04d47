"""Presolve of a zone's program: z = T x + t0 with fewer variables x.

Flows are linear in w, wr, wi (Ohm's law), so the equalities are solved for them; variables
with equal bounds are constants. The diagonal quadratic that a local update adds to z becomes
a sparse quadratic in x whose entries are linear in that diagonal (``metric_map``), so a solve
needs no matrix product. Bounds of wr and wi that the cones imply are dropped.

Measured in docs/decisions/0004-presolve.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from gridpriv.core.arrays import Floats, Ints
from gridpriv.core.errors import SolverError
from gridpriv.power.program import Inequalities, Matrix, ZoneProgram

CONSTANT_TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class ReducedProgram(Inequalities):
    """The program of a zone in the remaining variables x, shape (r,).

    minimize 1/2 x'Px + q'x  subject to the inequalities.

    P is upper triangular in the pattern (``p_indices``, ``p_indptr``) of a csc matrix, with values
    ``metric_map @ metric (+ curvature)``. All variables of the zone are z = ``expand`` x +
    ``shift``, in per unit; x are those at ``remaining``. ``width`` (r,) is the range of each, inf
    without one.
    """

    program: ZoneProgram
    expand: Matrix
    shift: Floats
    remaining: Ints
    p_indices: Ints
    p_indptr: Ints
    metric_map: Matrix
    curvature: Floats
    width: Floats

    @property
    def size(self) -> int:
        """Number of remaining variables."""
        return int(self.expand.shape[1])

    def quadratic(self, metric: Floats, *, exact: bool) -> Floats:
        """Return the values of P for the diagonal ``metric`` on z (exact: and f's Hessian on z)."""
        if not exact:
            return np.asarray(self.metric_map @ metric)
        return np.asarray(self.metric_map @ (metric + self.program.cost_square) + self.curvature)

    def upper_triangle(self, values: Floats) -> Any:
        """Return P of its values."""
        pattern = (values, self.p_indices, self.p_indptr)
        return sparse.csc_matrix(pattern, shape=(self.size, self.size))

    def curved(self, values: Floats, x: Floats) -> Floats:
        """Return Px from the values of P; making a sparse matrix would take ten times as long."""
        row, column, off = self.p_indices, *self._columns
        above = np.bincount(row, values * x[column], minlength=self.size)
        below = np.bincount(column[off], (values * x[row])[off], minlength=self.size)
        return np.asarray(above + below, dtype=float)

    @cached_property
    def _columns(self) -> tuple[Ints, NDArray[np.bool_]]:
        """The column of each of P's values, and a mask of those off the diagonal."""
        column = np.repeat(np.arange(self.size), np.diff(self.p_indptr))
        return column, column != self.p_indices

    def linear(self, linear: Floats, metric: Floats, *, exact: bool) -> Floats:
        """Return q for the linear term ``linear`` on z and the quadratic of :meth:`quadratic`."""
        on_z = linear + metric * self.shift
        if exact:
            on_z = on_z + self.program.hessian @ self.shift
        return np.asarray(self._collect @ on_z)

    @cached_property
    def _collect(self) -> Matrix:
        """The transpose of ``expand``, cached."""
        return Matrix(self.expand.T)

    def restore(self, x: Floats) -> Floats:
        """Return z of x."""
        return np.asarray(self.expand @ x + self.shift)


def presolve(program: ZoneProgram) -> ReducedProgram:
    """Return the reduced form of a program."""
    fixed = program.lower == program.upper
    row_of = _pivots(program, fixed)
    remaining = np.flatnonzero(~fixed & (row_of < 0))
    expand, shift = _substitution(program, fixed, row_of, remaining)
    lower, upper = program.lower[remaining], program.upper[remaining]
    cone, cone_offset, cone_sizes = _cones(program, expand, shift)
    implied = _implied(program, remaining)
    a_in, b_in = _rows(program, expand, shift, row_of)
    half = Matrix(program.imbalance @ expand)
    hessian = Matrix(2.0 * program.weight * half.T @ half)
    return ReducedProgram(
        program=program,
        expand=expand,
        shift=shift,
        remaining=remaining,
        a_in=a_in,
        b_in=b_in,
        lower=np.where(implied, -np.inf, lower),
        upper=np.where(implied, np.inf, upper),
        cone=cone,
        cone_offset=cone_offset,
        cone_sizes=cone_sizes,
        width=upper - lower,
        **_quadratic_pattern(expand, hessian),
    )


def _pivots(program: ZoneProgram, fixed: NDArray[np.bool_]) -> Ints:
    """Return for each variable the equality that is solved for it, or -1.

    A variable can be a pivot when it is in a single equality; each equality has one pivot. Free
    variables come first, so flows are eliminated and bounds stay bounds.
    """
    columns = sparse.csc_array(program.a_eq)
    counts = np.diff(columns.indptr)
    row_of = np.full(program.size, -1, dtype=np.int64)
    eliminated = np.zeros(program.a_eq.shape[0], dtype=bool)
    bounded = np.isfinite(program.lower) | np.isfinite(program.upper)
    alone = np.flatnonzero((counts == 1) & ~fixed)
    for c in alone[np.argsort(bounded[alone], kind="stable")]:
        row = columns.indices[columns.indptr[c]]
        if not eliminated[row]:
            eliminated[row], row_of[c] = True, row
    if not eliminated.all():
        raise ValueError(f"zone {program.name}: an equality has no variable of its own")
    return row_of


def _substitution(
    program: ZoneProgram, fixed: NDArray[np.bool_], row_of: Ints, remaining: Ints
) -> tuple[Matrix, Floats]:
    """Return (T, t0): identity on kept variables, constants on fixed, rows of Ohm on pivots."""
    n, pivots = program.size, np.flatnonzero(row_of >= 0)
    constant = np.where(fixed, np.where(np.isfinite(program.lower), program.lower, 0.0), 0.0)
    identity = Matrix(
        (np.ones(len(remaining)), (remaining, np.arange(len(remaining)))), shape=(n, len(remaining))
    )
    rows = program.a_eq[row_of[pivots]]
    place = Matrix((np.ones(len(pivots)), (pivots, np.arange(len(pivots)))), shape=(n, len(pivots)))
    scale = (rows @ place).diagonal()  # a pivot is in no other row
    solved = sparse.diags_array(-1.0 / scale) @ rows @ identity
    shift = constant.copy()
    shift[pivots] = (program.b_eq[row_of[pivots]] - rows @ constant) / scale
    expand = Matrix(identity + place @ solved)
    expand.eliminate_zeros()
    return expand, shift


def _rows(
    program: ZoneProgram, expand: Matrix, shift: Floats, row_of: Ints
) -> tuple[Matrix, Floats]:
    """Return the inequality rows on x: those of the program and the bounds of pivots."""
    blocks = [Matrix(program.a_in @ expand)]
    rhs = [program.b_in - program.a_in @ shift]
    for bound, sign in ((program.upper, 1.0), (program.lower, -1.0)):
        bounded = np.flatnonzero((row_of >= 0) & np.isfinite(bound))
        blocks.append(Matrix(sign * expand[bounded]))
        rhs.append(sign * (bound[bounded] - shift[bounded]))
    rows, limits = Matrix(sparse.vstack(blocks, format="csr")), np.concatenate(rhs)
    rows.eliminate_zeros()
    empty = np.diff(rows.indptr) == 0
    _check_constant(program, -limits[empty])
    return rows[~empty], limits[~empty]


def _cones(program: ZoneProgram, expand: Matrix, shift: Floats) -> tuple[Matrix, Floats, Ints]:
    """Return the cones on x, without those that have no variable left."""
    rows = Matrix(program.cone @ expand)
    rows.eliminate_zeros()
    offset = np.asarray(program.cone @ shift + program.cone_offset)
    block = np.repeat(np.arange(len(program.cone_sizes)), program.cone_sizes)
    entries = np.bincount(block, np.diff(rows.indptr), minlength=len(program.cone_sizes))
    constant = entries == 0
    head = np.concatenate([[0], np.cumsum(program.cone_sizes)])[:-1]
    square = np.bincount(block, offset**2, minlength=len(constant))
    apex = offset[head] if len(head) else np.zeros(0)
    _check_constant(program, (np.sqrt(np.maximum(square - apex**2, 0.0)) - apex)[constant])
    keep = ~constant[block]
    return rows[keep], offset[keep], program.cone_sizes[~constant]


def _check_constant(program: ZoneProgram, excess: Floats) -> None:
    """Raise unless constraints without variables are satisfied."""
    if (excess > CONSTANT_TOLERANCE).any():
        raise SolverError(
            f"zone {program.name}: its fixed variables violate a constraint by {excess.max():.3g}"
        )


def _implied(program: ZoneProgram, remaining: Ints) -> NDArray[np.bool_]:
    """Mark kept variables whose bounds a rotated cone implies: |x| <= sqrt(ymax zmax)."""
    counts = np.diff(program.cone.indptr)
    heads = np.concatenate([[0], np.cumsum(program.cone_sizes)])[:-1].astype(np.int64)
    most = np.full(program.size, np.inf)
    rotated = heads[counts[heads] == 2]  # t = y + z
    if len(rotated):
        first = program.cone.indptr[rotated]
        y, z = program.cone.indices[first], program.cone.indices[first + 1]
        reach = np.sqrt(program.upper[y] * program.upper[z])
        block = np.repeat(np.arange(len(heads)), program.cone_sizes)
        of_head = np.full(len(heads), np.inf)
        of_head[np.isin(heads, rotated)] = reach
        tails = np.flatnonzero((counts == 1) & np.isfinite(of_head[block]))
        most[program.cone.indices[program.cone.indptr[tails]]] = of_head[block[tails]]
    slack = 1e-12
    inside = (program.upper >= most - slack) & (program.lower <= -most + slack)
    return np.asarray(inside[remaining])


def _quadratic_pattern(expand: Matrix, hessian: Matrix) -> dict[str, Any]:
    """Return the pattern of P, the map from a diagonal on z to its values, and f's in it."""
    size = expand.shape[1]
    source, row, column, value = _products(expand)
    curved = sparse.coo_array(sparse.triu(hessian))
    keys = np.concatenate([column * size + row, curved.col.astype(np.int64) * size + curved.row])
    places, where = np.unique(keys, return_inverse=True)
    shape = (len(places), expand.shape[0])
    metric_map = Matrix((value, (where[: len(value)], source)), shape=shape)
    curvature = np.bincount(where[len(value) :], curved.data, minlength=len(places)).astype(float)
    pattern = sparse.csc_array(
        (np.ones(len(places)), (places % size, places // size)), shape=(size, size)
    )
    pattern.sort_indices()
    return {
        "p_indices": pattern.indices.astype(np.int64),
        "p_indptr": pattern.indptr.astype(np.int64),
        "metric_map": metric_map,
        "curvature": curvature,
    }


def _products(expand: Matrix) -> tuple[Ints, Ints, Ints, Floats]:
    """Return (i, a, b, T_ia T_ib) for each row i of T and its pairs of columns a <= b."""
    counts = np.diff(expand.indptr)
    none = np.zeros(0, dtype=np.int64)
    products: list[tuple[Ints, Ints, Ints, Floats]] = [(none, none, none, np.zeros(0))]
    for length in np.unique(counts[counts > 0]):
        rows = np.flatnonzero(counts == length)
        take = expand.indptr[rows][:, None] + np.arange(length)
        columns, values = expand.indices[take].astype(np.int64), expand.data[take]
        first, second = np.triu_indices(length)
        pair, value = (columns[:, first], columns[:, second]), values[:, first] * values[:, second]
        low, high = np.minimum(*pair).ravel(), np.maximum(*pair).ravel()
        products.append((np.repeat(rows, len(first)), low, high, value.ravel()))
    i, a, b, v = (np.concatenate(part) for part in zip(*products, strict=True))
    return i, a, b, v

"""Programs whose objective and constraints are quadratic, solved by Ipopt.

    minimise   sum_v (c_v x_v + d_v x_v^2)
    subject to low_k <= sum_v b_kv x_v + sum_t a_t x_i(t) x_j(t) [over terms t of row k] <= high_k
               low <= x <= high

In rectangular voltages every equation of AC power flow is such a row. The Jacobian is then linear
in x and the Hessian of the Lagrangian linear in the multipliers: both are one sparse product,
given to Ipopt as they are, so nothing is differentiated and a model is built in milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import casadi
import numpy as np
from scipy import sparse

from gridpriv.core.arrays import Floats, Ints
from gridpriv.core.interrupts import interruptible

OPTIONS: dict[str, Any] = {
    "print_time": False,
    "show_eval_warnings": False,  # what ends in NaN is told by the status
    "ipopt.print_level": 0,
    "ipopt.sb": "yes",
    "ipopt.max_iter": 500,
    "ipopt.bound_relax_factor": 0.0,
}
SOLVED = ("Solve_Succeeded", "Solved_To_Acceptable_Level")


@dataclass(frozen=True, eq=False)
class Solved:
    """What Ipopt returned.

    Attributes
    ----------
    x : (n,)
    multiplier : (m,)
        Of the rows: the objective rises by it when the row's bounds fall by one unit.
    status : str
        Ipopt's.
    """

    x: Floats
    multiplier: Floats
    status: str
    iterations: int

    @property
    def solved(self) -> bool:
        """Whether this is a local optimum."""
        return self.status in SOLVED


@dataclass
class QuadraticProgram:
    """A program under construction; each ``add`` returns the indices of what it added."""

    columns: int = 0
    rows: int = 0
    _bounds: list[tuple[Floats, Floats, Floats]] = field(default_factory=list)
    _sides: list[tuple[Floats, Floats]] = field(default_factory=list)
    _linear: list[tuple[Ints, Ints, Floats]] = field(default_factory=list)
    _terms: list[tuple[Ints, Ints, Ints, Floats]] = field(default_factory=list)
    _cost: list[tuple[Ints, Floats, Floats]] = field(default_factory=list)

    def add_variables(self, low: Floats, high: Floats, start: Floats) -> Ints:
        """Add variables between bounds, with a starting point."""
        added = np.arange(self.columns, self.columns + len(low))
        self.columns += len(low)
        self._bounds.append((low, high, np.clip(start, low, high)))
        return added

    def add_rows(self, low: Floats, high: Floats) -> Ints:
        """Add empty rows between bounds."""
        added = np.arange(self.rows, self.rows + len(low))
        self.rows += len(low)
        self._sides.append((low, high))
        return added

    def add_linear(self, row: Ints, column: Ints, factor: Floats | float) -> None:
        """Add ``factor`` x_column to each row."""
        self._linear.append((row, column, np.broadcast_to(factor, row.shape)))

    def add_product(self, row: Ints, i: Ints, j: Ints, factor: Floats | float) -> None:
        """Add ``factor`` x_i x_j to each row."""
        self._terms.append((row, i, j, np.broadcast_to(factor, row.shape)))

    def add_cost(self, column: Ints, linear: Floats | float, square: Floats | float = 0.0) -> None:
        """Add ``linear`` x + ``square`` x^2 to the objective."""
        shape = column.shape
        self._cost.append((column, np.broadcast_to(linear, shape), np.broadcast_to(square, shape)))

    @property
    def start(self) -> Floats:
        """The starting point, shape (n,)."""
        return np.concatenate([start for _, _, start in self._bounds])

    @interruptible()
    def solve(self, start: Floats | None = None, zero: Ints | None = None) -> Solved:
        """Solve with Ipopt.

        Parameters
        ----------
        start : (n,), optional
            By default the variables' own starting points.
        zero : int array, optional
            Variables that are held at 0.
        """
        solver = casadi.nlpsol("program", "ipopt", *_problem(self, OPTIONS))
        low, high = (np.concatenate([b[side] for b in self._bounds]) for side in (0, 1))
        if zero is not None:
            low[zero] = high[zero] = 0.0
        lower, upper = (np.concatenate([b[side] for b in self._sides]) for side in (0, 1))
        begin = self.start if start is None else np.clip(start, low, high)
        found = solver(x0=begin, lbx=low, ubx=high, lbg=lower, ubg=upper)
        stats = solver.stats()
        return Solved(
            np.asarray(found["x"]).ravel(), np.asarray(found["lam_g"]).ravel(),
            str(stats["return_status"]), int(stats["iter_count"]),
        )  # fmt: skip


def _joined(parts: list[Any], place: int, kind: type) -> Any:
    return np.concatenate([part[place] for part in parts] or [np.zeros(0)]).astype(kind)


def _problem(program: QuadraticProgram, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return CasADi's symbols of the program, and options that hold its exact derivatives."""
    n, m = program.columns, program.rows
    row, i, j = (_joined(program._terms, place, np.int64) for place in (0, 1, 2))
    factor = _joined(program._terms, 3, np.float64)
    x, p = casadi.MX.sym("x", n), casadi.MX.sym("p", 0)
    sigma, multiplier = casadi.MX.sym("sigma"), casadi.MX.sym("multiplier", m)
    linear = sparse.csc_array(
        (
            _joined(program._linear, 2, np.float64),
            (_joined(program._linear, 0, np.int64), _joined(program._linear, 1, np.int64)),
        ),
        shape=(m, n),
    )
    summed = sparse.csc_array((factor, (row, np.arange(len(row)))), shape=(m, len(row)))
    slope, curve = np.zeros(n), np.zeros(n)
    np.add.at(slope, _joined(program._cost, 0, np.int64), _joined(program._cost, 1, np.float64))
    np.add.at(curve, _joined(program._cost, 0, np.int64), _joined(program._cost, 2, np.float64))

    f = casadi.dot(casadi.DM(slope) + casadi.DM(curve) * x, x)
    gradient = casadi.DM(slope) + 2 * casadi.DM(curve) * x
    products = x[i.tolist()] * x[j.tolist()]
    g = _product(linear, x) + _product(summed, products)

    entry = linear.tocoo()
    pattern, at = _pattern((m, n), np.r_[row, row, entry.row], np.r_[i, j, entry.col])
    turning = sparse.csc_array(
        (np.tile(factor, 2), (at[: 2 * len(row)], np.r_[j, i])), shape=(pattern.nnz(), n)
    )
    constant = np.bincount(at[2 * len(row) :], entry.data, minlength=pattern.nnz())
    jacobian = casadi.MX(pattern, casadi.DM(constant) + _product(turning, x))

    own = np.arange(n)
    pattern, at = _pattern((n, n), np.r_[np.minimum(i, j), own], np.r_[np.maximum(i, j), own])
    weights = sparse.csc_array(
        (np.where(i == j, 2 * factor, factor), (at[: len(row)], row)), shape=(pattern.nnz(), m)
    )
    cost = np.bincount(at[len(row) :], 2 * curve, minlength=pattern.nnz())
    hessian = casadi.MX(pattern, sigma * casadi.DM(cost) + _product(weights, multiplier))
    derivatives = {
        "grad_f": casadi.Function("grad_f", [x, p], [f, gradient]),
        "jac_g": casadi.Function("jac_g", [x, p], [g, jacobian]),
        "hess_lag": casadi.Function("hess_lag", [x, p, sigma, multiplier], [hessian]),
    }
    return {"x": x, "p": p, "f": f, "g": g}, options | derivatives


def _product(matrix: sparse.csc_array, vector: Any) -> Any:
    matrix.sum_duplicates()
    # CasADi reads a SciPy matrix ten times slower than its arrays
    rows, columns = matrix.shape
    pattern = casadi.Sparsity(rows, columns, matrix.indptr.tolist(), matrix.indices.tolist())
    return casadi.mtimes(casadi.DM(pattern, matrix.data), vector)


def _pattern(shape: tuple[int, int], row: Ints, column: Ints) -> tuple[Any, Ints]:
    """Return the sparsity of entries, and where in its nonzeros (column by column) each stands."""
    key, at = np.unique(column * np.int64(shape[0]) + row, return_inverse=True)
    starts = np.searchsorted(key // shape[0], np.arange(shape[1] + 1))
    return casadi.Sparsity(*shape, starts.tolist(), (key % shape[0]).tolist()), at.reshape(-1)

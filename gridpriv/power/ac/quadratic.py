"""Programs whose objective and constraints are quadratic, solved by Ipopt.

    minimize   sum_v (c_v x_v + d_v x_v^2)
    subject to low_k <= sum_v b_kv x_v + sum_t a_t x_i(t) x_j(t) [over terms t of row k] <= high_k
               low <= x <= high

In rectangular voltages every equation of AC power flow is such a row. The Jacobian is then linear
in x and the Hessian of the Lagrangian linear in the multipliers: both are sparse products that
Ipopt gets directly, so a model needs no automatic differentiation and is built in milliseconds.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from threading import get_ident
from typing import Any

import casadi
import numpy as np

from gridpriv.core.arrays import Floats, Ints, sums_at
from gridpriv.core.threads import interruptible

OPTIONS: dict[str, Any] = {
    "print_time": False,
    "no_nlp_grad": True,  # not used, and a third of the setup time
    "calc_lam_p": False,
    "show_eval_warnings": False,  # the status reports NaN
    "inputs_check": False,  # without a choice it prints a warning for each radial zone
    "ipopt.print_level": 0,
    "ipopt.sb": "yes",
    "ipopt.max_iter": 500,
    "ipopt.bound_relax_factor": 0.0,
    "ipopt.nlp_scaling_method": "none",  # scaled by the price of shed load, Ipopt ends too early
    "ipopt.min_refinement_steps": 0,
    "ipopt.mumps_permuting_scaling": 0,
    "ipopt.mumps_pivot_order": 0,
    "ipopt.mumps_scaling": 0,
}
NEAR = 1e-4
EARLY = {"ipopt.barrier_tol_factor": 100.0}
"""Reduces the barrier early; from a far start Ipopt is then slow at many limits."""
WARM: dict[str, Any] = EARLY | {
    "ipopt.warm_start_init_point": "yes",
    "ipopt.mu_init": NEAR,
    "ipopt.warm_start_bound_push": NEAR,
    "ipopt.warm_start_bound_frac": NEAR,
    "ipopt.warm_start_slack_bound_push": NEAR,
    "ipopt.warm_start_slack_bound_frac": NEAR,
    "ipopt.warm_start_mult_bound_push": NEAR,
}
"""In addition to ``OPTIONS``, where a solution of nearly the same program is known."""
CLOSE = 1e-6
POINT: dict[str, Any] = EARLY | {
    "ipopt.mu_init": NEAR,
    "ipopt.bound_push": CLOSE,
    "ipopt.bound_frac": CLOSE,
    "ipopt.slack_bound_push": CLOSE,
    "ipopt.slack_bound_frac": CLOSE,
}
"""In addition to ``OPTIONS``, where a point near the solution is known, without multipliers."""
FAR: dict[str, Any] = {"ipopt.mu_init": 2.5}
"""In addition to ``OPTIONS``, for a second search where prices far exceed generation costs."""
BRIEF: dict[str, Any] = {"ipopt.max_iter": 200, "ipopt.max_resto_iter": 0}
"""In addition to ``OPTIONS``, for a search before another one: it ends where Ipopt begins to
restore feasibility (0031-ac-rounds)."""
STARTS: dict[str, dict[str, Any]] = {
    "anew": {},
    "brief": BRIEF,
    "far": FAR,
    "near": POINT,
    "warm": WARM,
}
SOLVED = ("Solve_Succeeded", "Solved_To_Acceptable_Level")


@dataclass(frozen=True, eq=False)
class Solved:
    """Solution and status of Ipopt.

    Attributes
    ----------
    x : (n,)
    multiplier : (m,)
        Of the rows: the objective rises by it when the row's bounds fall by one unit.
    bound_multiplier : (n,)
        Of the variables' bounds, in the same way.
    status : str
        Ipopt's.
    """

    x: Floats
    multiplier: Floats
    bound_multiplier: Floats
    status: str
    iterations: int

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and variables of the program."""
        return len(self.multiplier), len(self.x)

    @property
    def solved(self) -> bool:
        """True for a local optimum."""
        return self.status in SOLVED


@dataclass(frozen=True, eq=False)
class QuadraticForm:
    """A quadratic program as arrays, with its values and derivatives.

    Attributes
    ----------
    low, high : (n,)
        Bounds of the variables.
    lower, upper : (m,)
        Bounds of the rows.
    line, column, slope : (a,)
        Linear entries of rows.
    row, i, j, factor : (t,)
        Products in rows.
    linear, square : (n,)
        Objective, ``linear`` x + ``square`` x^2.
    """

    low: Floats
    high: Floats
    lower: Floats
    upper: Floats
    line: Ints
    column: Ints
    slope: Floats
    row: Ints
    i: Ints
    j: Ints
    factor: Floats
    linear: Floats
    square: Floats

    @property
    def columns(self) -> int:
        """Number of variables, n."""
        return len(self.low)

    @property
    def rows(self) -> int:
        """Number of rows, m."""
        return len(self.lower)

    def objective(self, x: Floats) -> float:
        """Return the objective at x."""
        return float(self.linear @ x + self.square @ x**2)

    def gradient(self, x: Floats) -> Floats:
        """Return the objective's gradient at x, shape (n,)."""
        return np.asarray(self.linear + 2.0 * self.square * x)

    def values(self, x: Floats) -> Floats:
        """Return the rows' values at x, shape (m,)."""
        return sums_at(self.row, self.factor * x[self.i] * x[self.j], self.rows) + sums_at(
            self.line, self.slope * x[self.column], self.rows
        )

    def slopes(self, x: Floats) -> Floats:
        """Return the entries of the rows' Jacobian: by i and by j of products, then linear ones."""
        return np.concatenate([self.factor * x[self.j], self.factor * x[self.i], self.slope])

    @cached_property
    def places(self) -> tuple[Ints, Ints]:
        """Row and column of each entry of :meth:`slopes`."""
        columns = np.concatenate([self.i, self.j, self.column])
        return np.concatenate([self.row, self.row, self.line]), columns

    def along(self, x: Floats, step: Floats) -> Floats:
        """Return the derivative of the rows at x along a step, shape (m,)."""
        rows, columns = self.places
        return sums_at(rows, self.slopes(x) * step[columns], self.rows)

    def adjoint(self, x: Floats, multiplier: Floats) -> Floats:
        """Return the rows' Jacobian at x, transposed, times multipliers, shape (n,)."""
        rows, columns = self.places
        return sums_at(columns, self.slopes(x) * multiplier[rows], self.columns)


@dataclass
class QuadraticProgram:
    """A program under construction; each ``add`` returns the added indices."""

    columns: int = 0
    rows: int = 0
    owners: list[Ints] = field(default_factory=list)
    _bounds: list[tuple[Floats, Floats, Floats]] = field(default_factory=list)
    _sides: list[tuple[Floats, Floats]] = field(default_factory=list)
    _linear: list[tuple[Ints, Ints, Floats]] = field(default_factory=list)
    _terms: list[tuple[Ints, Ints, Ints, Floats]] = field(default_factory=list)
    _cost: list[tuple[Ints, Floats, Floats]] = field(default_factory=list)

    def add_variables(
        self,
        count: int,
        low: Floats | float = -np.inf,
        high: Floats | float = np.inf,
        start: Floats | float = 0.0,
        price: Floats | float = 0.0,
    ) -> Ints:
        """Add variables between bounds, with a starting point, at a price per unit."""
        added = np.arange(self.columns, self.columns + count)
        self.columns += count
        below, above = np.full(count, low, float), np.full(count, high, float)
        self._bounds.append((below, above, np.clip(start, below, above)))
        self.add_cost(added, price)
        return added

    def add_rows(
        self, count: int, low: Floats | float, high: Floats | float, owner: Ints | int = -1
    ) -> Ints:
        """Add empty rows between bounds, with the number of an owner for each."""
        added = np.arange(self.rows, self.rows + count)
        self.rows += count
        self._sides.append((np.full(count, low, float), np.full(count, high, float)))
        self.owners.append(np.full(count, owner))
        return added

    def add_linear(self, row: Ints, column: Ints, factor: Floats | float) -> None:
        """Add ``factor`` x_column to each row."""
        self._linear.append((row, column, _each(factor, row)))

    def add_sums(
        self,
        low: Floats | float,
        high: Floats | float,
        *terms: tuple[Ints, Floats | float],
        owner: Ints | int = -1,
    ) -> Ints:
        """Add rows low <= sum over terms of factor x_column <= high, elementwise; return them."""
        rows = self.add_rows(len(terms[0][0]), low, high, owner)
        for column, factor in terms:
            self.add_linear(rows, column, factor)
        return rows

    def add_slack(self, row: Ints, factor: Floats | float, price: Floats | float) -> None:
        """Add ``factor`` s to each row, with s >= 0 at a price."""
        self.add_linear(row, self.add_variables(len(row), 0.0, price=price), factor)

    def add_product(self, row: Ints, i: Ints, j: Ints, factor: Floats | float) -> None:
        """Add ``factor`` x_i x_j to each row."""
        self._terms.append((row, i, j, _each(factor, row)))

    def add_cost(self, column: Ints, linear: Floats | float, square: Floats | float = 0.0) -> None:
        """Add ``linear`` x + ``square`` x^2 to the objective."""
        self._cost.append((column, _each(linear, column), _each(square, column)))

    @property
    def start(self) -> Floats:
        """The starting point, shape (n,)."""
        return np.concatenate([start for _, _, start in self._bounds])

    def form(self) -> QuadraticForm:
        """Return the program as arrays."""
        priced, *costs = _joined(self._cost, np.int64, np.float64, np.float64)
        whole, real = np.int64, np.float64
        return QuadraticForm(
            *_joined(self._bounds, real, real),
            *_joined(self._sides, real, real),
            *_joined(self._linear, whole, whole, real),
            *_joined(self._terms, whole, whole, whole, real),
            *(sums_at(priced, cost, self.columns) for cost in costs),
        )

    def solve_again(
        self,
        before: Solved | None,
        start: Floats | None = None,
        compiled_patterns: deque[Compiled] | None = None,
    ) -> Solved:
        """Solve from a solution of a program of this shape, a point near it, or the start.

        ``compiled_patterns`` are compiled patterns; this program's is added to them.
        """
        if before is None or before.shape != (self.rows, self.columns):
            if start is None:
                return self._solve("anew", self.start, compiled_patterns)
            solved = self._solve("near", start, compiled_patterns)
        else:
            solved = self._solve(
                "warm",
                before.x,
                compiled_patterns,
                lam_g0=before.multiplier,
                lam_x0=before.bound_multiplier,
            )
        return solved if solved.solved else self._solve("anew", self.start, compiled_patterns)

    def solve(
        self, start: Floats | None = None, zero: Ints | None = None, kind: str = "anew"
    ) -> Solved:
        """Solve with Ipopt.

        Parameters
        ----------
        start : (n,), optional
            By default the variables' own starting points.
        zero : int array, optional
            Variables fixed at 0.
        kind : {'anew', 'brief', 'far', 'near'}
            As of ``STARTS``.
        """
        return self._solve(kind, self.start if start is None else start, None, zero)

    @interruptible()
    def _solve(
        self,
        kind: str,
        start: Floats,
        compiled_patterns: deque[Compiled] | None,
        zero: Ints | None = None,
        **multipliers: Floats,
    ) -> Solved:
        form = self.form()
        compiled = next((each for each in compiled_patterns or () if each.fits(form)), None)
        if compiled is None:
            compiled = _compiled(form)
            if compiled_patterns is not None:
                compiled_patterns.append(compiled)
        low, high = form.low, form.high
        if zero is not None:
            low[zero] = high[zero] = 0.0
        bounds = {"lbx": low, "ubx": high, "lbg": form.lower, "ubg": form.upper}
        solver = compiled.solver(kind)
        inputs = {"x0": np.clip(start, low, high), "p": compiled.numbers(form)}
        result = solver(**inputs, **bounds, **multipliers)
        stats = solver.stats()
        x, multiplier, bound = (
            np.asarray(result[name]).ravel() for name in ("x", "lam_g", "lam_x")
        )
        status, iterations = str(stats["return_status"]), int(stats["iter_count"])
        return Solved(x, multiplier, bound, status, iterations)


def _joined(parts: list[Any], *kinds: type) -> list[Any]:
    """Return the concatenated columns of parts."""
    columns = zip(*parts, strict=True) if parts else ([np.zeros(0)] for _ in kinds)
    return [np.concatenate(c).astype(k, copy=False) for c, k in zip(columns, kinds, strict=False)]


def _each(value: Floats | float, place: Ints) -> Floats:
    """Return a value for each place."""
    if isinstance(value, np.ndarray) and value.shape == place.shape:
        return value
    return np.full(place.shape, value)


PATTERN = ("row", "i", "j", "line", "column")


class Compiled:
    """Ipopt for all programs of a pattern, with exact derivatives; their numbers are parameters.

    Parameters
    ----------
    form : QuadraticForm
        A program of the pattern.

    Attributes
    ----------
    slots : tuple of int arrays
        Positions of the form's numbers among the nonzeros of four matrices: coefficients of x in
        the Jacobian, its constants, coefficients of the multipliers in the Hessian, its constants.
    counts : tuple of int
        Nonzeros of each.
    problem, derivatives : dict
        CasADi's symbols and functions.
    """

    def __init__(self, form: QuadraticForm) -> None:
        self.form, self.solvers = form, dict[str, Any]()
        n, m, quadratic = form.columns, form.rows, len(form.row)
        rows, columns = form.places
        i, j, own = form.i, form.j, np.arange(n)
        slope, at = _pattern((m, n), rows, columns)
        turn, turning = _pattern((slope.nnz(), n), at[: 2 * quadratic], np.r_[j, i])
        curve, place = _pattern((n, n), np.r_[np.minimum(i, j), own], np.r_[np.maximum(i, j), own])
        bend, bending = _pattern((curve.nnz(), m), place[:quadratic], form.row)
        self.counts = (turn.nnz(), slope.nnz(), bend.nnz(), curve.nnz())
        ends = np.cumsum([0, *self.counts, n, n]).tolist()
        x, p = casadi.MX.sym("x", n), casadi.MX.sym("p", ends[-1])
        by_x, fixed, by_multiplier, cost, linear, square = casadi.vertsplit(p, ends)
        sigma, multiplier = casadi.MX.sym("sigma"), casadi.MX.sym("multiplier", m)

        fixed = casadi.MX(slope, fixed)
        jacobian = casadi.MX(slope, casadi.mtimes(casadi.MX(turn, by_x), x)) + fixed
        gradient = linear + square * x
        # a quadratic without a constant is half of (slope at x + slope at 0) x
        f, g = casadi.dot(gradient + linear, x) / 2, casadi.mtimes(jacobian + fixed, x) / 2
        turned = casadi.mtimes(casadi.MX(bend, by_multiplier), multiplier) + sigma * cost
        hessian, arguments = casadi.MX(curve, turned), [x, p, sigma, multiplier]
        self.derivatives = {
            "grad_f": casadi.Function("grad_f", [x, p], [f, gradient]),
            "jac_g": casadi.Function("jac_g", [x, p], [g, jacobian]),
            "hess_lag": casadi.Function("hess_lag", arguments, [hessian]),
        }
        self.slots = turning, at[2 * quadratic :], bending, place[quadratic:]
        self.problem = {"x": x, "p": p, "f": f, "g": g}

    def fits(self, form: QuadraticForm) -> bool:
        """Return True for a program of the pattern."""
        same = (form.rows, form.columns) == (self.form.rows, self.form.columns)
        pairs = ((getattr(self.form, name), getattr(form, name)) for name in PATTERN)
        return same and all(np.array_equal(*match) for match in pairs)

    def numbers(self, form: QuadraticForm) -> Floats:
        """Return the parameters of a program of the pattern."""
        weight, square = np.where(form.i == form.j, 2.0, 1.0) * form.factor, 2.0 * form.square
        terms = (np.tile(form.factor, 2), form.slope, weight, square)
        sums = map(sums_at, self.slots, terms, self.counts)
        return np.concatenate([*sums, form.linear, square])

    def solver(self, kind: str) -> Any:
        """Return Ipopt with the options of one of ``STARTS``."""
        if kind not in self.solvers:
            options = OPTIONS | STARTS[kind] | self.derivatives
            self.solvers[kind] = casadi.nlpsol("program", "ipopt", self.problem, options)
        return self.solvers[kind]


SMALL = 1000
"""Number of variables up to which compiled programs are kept for other runs of the process."""


def _compiled(form: QuadraticForm) -> Compiled:
    """Return the programs of a form's pattern; small ones are compiled once in a thread."""
    if form.columns > SMALL:
        return Compiled(form)
    pattern = (getattr(form, name).astype(np.int64, copy=False).tobytes() for name in PATTERN)
    return _small(get_ident(), form.rows, form.columns, *pattern)


@lru_cache(maxsize=64)
def _small(thread: int, rows: int, columns: int, *pattern: bytes) -> Compiled:  # noqa: ARG001
    row, i, j, line, column = (np.frombuffer(part, np.int64) for part in pattern)
    variables, sides = np.zeros((2, columns)), np.zeros((2, rows))
    terms: list[Any] = [line, column, np.zeros(len(line)), row, i, j, np.zeros(len(row))]
    return Compiled(QuadraticForm(*variables, *sides, *terms, *variables))


def _pattern(shape: tuple[int, int], row: Ints, column: Ints) -> tuple[Any, Ints]:
    """Return the sparsity of entries, and the position of each in its nonzeros (by column)."""
    key, at = np.unique(column * np.int64(shape[0]) + row, return_inverse=True)
    starts = np.searchsorted(key // shape[0], np.arange(shape[1] + 1))
    return casadi.Sparsity(*shape, starts.tolist(), (key % shape[0]).tolist()), at.reshape(-1)

"""A zone's Pyomo model compiled once to sparse matrices.

:func:`compile_zone` reads the model's linear rows, bounds and cones; what it returns is the
feasible set and the map B of imbalances, and holds no demand:

    W_z = { z : A_eq z = b_eq, A_in z <= b_in, lower <= z <= upper, cone rows in their cones }
    s = B z + d
    f(z; d) = 1/2 z'Hz + c'z + M ||s||^2, H diagonal
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyomo.core as pyo
from pyomo.repn import generate_standard_repn
from scipy import sparse

from gridpriv.core.arrays import Floats, Ints
from gridpriv.power.relaxation import CONES, variables, zone_model
from gridpriv.power.zone import Zone, flat_start

if TYPE_CHECKING:
    Matrix: TypeAlias = Any  # scipy has no types of its own
else:
    Matrix = sparse.csr_array


@dataclass(frozen=True, eq=False)
class ZoneProgram:
    """The matrices of one zone.

    Attributes
    ----------
    name, key
        Of the zone.
    coordinates : (n,) int
        Number of each variable in the whole grid.
    a_eq, b_eq, a_in, b_in, lower, upper
        Linear part of the feasible set.
    cone, cone_offset : (c, n), (c,)
        Rows of all cones, one below the other: (cone z + cone_offset) = (t, u) with
        ||u|| <= t for each block.
    cone_sizes : (k,) int
        Number of rows of each block.
    imbalance : (2 b, n)
        B: active rows, then reactive rows, of the b own buses.
    weight : float
        M.
    cost_linear, cost_square : (n,)
        c and the diagonal of H: cost of generation, 0 where the objective has none.
    start : (n,)
        The flat start.
    zone : Zone
        What was compiled; the Pyomo model can be built from it again.
    """

    name: str
    key: int
    coordinates: Ints
    a_eq: Matrix
    b_eq: Floats
    a_in: Matrix
    b_in: Floats
    lower: Floats
    upper: Floats
    cone: Matrix
    cone_offset: Floats
    cone_sizes: Ints
    imbalance: Matrix
    weight: float
    cost_linear: Floats
    cost_square: Floats
    start: Floats
    zone: Zone

    @property
    def size(self) -> int:
        """Number of variables n."""
        return len(self.coordinates)

    @cached_property
    def hessian(self) -> Matrix:
        """Hessian 2 M B'B + H of the objective (public: it holds no demand)."""
        squares = 2.0 * self.weight * self.imbalance.T @ self.imbalance
        return Matrix(squares + sparse.diags_array(self.cost_square))

    @cached_property
    def by_demand(self) -> Floats:
        """2 M B', the gradient's derivative by the demand, shape (n, 2 b)."""
        return np.asarray(2.0 * self.weight * self.imbalance.T.toarray())

    def pull(self, residual: Floats) -> Floats:
        """Return 2 M B' residual: what an imbalance adds to the gradient, shape (n,)."""
        return np.asarray(2.0 * self.weight * (self._incidence @ residual))

    @cached_property
    def _incidence(self) -> Matrix:
        """B', kept: scipy builds a transpose anew each time, which costs more than the product."""
        return Matrix(self.imbalance.T)


def compile_zone(zone: Zone) -> ZoneProgram:
    """Build a zone's Pyomo model and compile it."""
    return compile_model(zone_model(zone), zone)


def compile_model(model: pyo.ConcreteModel, zone: Zone) -> ZoneProgram:
    """Compile a zone's Pyomo model to matrices; the model is left as it was."""
    columns = variables(model)
    number = {id(var): c for c, var in enumerate(columns)}
    lower, upper = _bounds(columns)
    a_eq, b_eq, a_in, b_in = _linear_rows(model, number)
    cone, cone_offset, cone_sizes = _cone_rows(_cone_constraints(model), number)
    cost_linear, cost_square = _cost(model, number)
    return ZoneProgram(
        name=zone.name,
        key=zone.key,
        coordinates=zone.coordinates,
        a_eq=a_eq,
        b_eq=b_eq,
        a_in=a_in,
        b_in=b_in,
        lower=lower,
        upper=upper,
        cone=cone,
        cone_offset=cone_offset,
        cone_sizes=cone_sizes,
        imbalance=_imbalance_rows(model, number),
        weight=zone.network.objective.weight,
        cost_linear=cost_linear,
        cost_square=cost_square,
        start=flat_start(zone),
        zone=zone,
    )


def _bounds(columns: list[Any]) -> tuple[Floats, Floats]:
    lower = [-np.inf if v.lb is None else v.lb for v in columns]
    upper = [np.inf if v.ub is None else v.ub for v in columns]
    return np.array(lower, dtype=float), np.array(upper, dtype=float)


def _linear_rows(
    model: pyo.ConcreteModel, number: dict[int, int]
) -> tuple[Matrix, Floats, Matrix, Floats]:
    """Return (A_eq, b_eq, A_in, b_in) of the model's constraints other than cones."""
    equal, at_most = _Rows(), _Rows()
    for constraint in model.component_data_objects(pyo.Constraint):
        if constraint.parent_component().local_name in CONES:
            continue
        repn = generate_standard_repn(constraint.body, quadratic=False, compute_values=True)
        if not repn.is_linear():
            raise ValueError(f"{constraint.name} is not linear and no cone of {', '.join(CONES)}")
        low, high = constraint.lb, constraint.ub
        columns = [number[id(v)] for v in repn.linear_vars]
        if constraint.equality:
            equal.add(columns, repn.linear_coefs, high - repn.constant)
            continue
        if high is not None:
            at_most.add(columns, repn.linear_coefs, high - repn.constant)
        if low is not None:
            at_most.add(columns, [-c for c in repn.linear_coefs], repn.constant - low)
    return *equal.matrix(len(number)), *at_most.matrix(len(number))


class _Rows:
    """Rows of a sparse matrix with their right-hand sides, gathered one by one."""

    def __init__(self) -> None:
        self._entries: list[tuple[int, int, float]] = []
        self._rhs: list[float] = []

    def add(self, columns: Sequence[int], coefficients: Sequence[float], rhs: float) -> None:
        row = len(self._rhs)
        self._rhs.append(float(rhs))
        for column, coefficient in zip(columns, coefficients, strict=True):
            self._entries.append((row, column, float(coefficient)))

    def matrix(self, width: int) -> tuple[Matrix, Floats]:
        return _matrix(self._entries, (len(self._rhs), width)), np.array(self._rhs, dtype=float)


def _cone_constraints(model: pyo.ConcreteModel) -> Iterable[Any]:
    for family in CONES:
        yield from getattr(model, family).values()


def _cone_rows(constraints: Iterable[Any], number: dict[int, int]) -> tuple[Matrix, Floats, Ints]:
    """Return the stacked second-order cones of convex quadratic constraints.

    Two shapes are recognised: a ball, sum a_i x_i^2 <= r^2, and a rotated cone,
    sum a_i x_i^2 <= y z with y, z >= 0, written as ||(2 sqrt(a_i) x_i, y - z)|| <= y + z.
    """
    entries: list[tuple[int, int, float]] = []
    offset: list[float] = []
    sizes: list[int] = []
    for constraint in constraints:
        repn = generate_standard_repn(constraint.body, quadratic=True, compute_values=True)
        head = len(offset)
        products = [
            (number[id(x)], number[id(y)], float(c))
            for (x, y), c in zip(repn.quadratic_vars, repn.quadratic_coefs, strict=True)
        ]
        squares = [(x, c) for x, y, c in products if x == y and c > 0]
        mixed = [(x, y) for x, y, c in products if x != y and c == -1.0]
        if len(squares) + len(mixed) != len(products) or repn.linear_vars or len(mixed) > 1:
            raise ValueError(f"{constraint.name} is neither a ball nor a rotated cone")
        limit = float(pyo.value(constraint.upper)) - float(repn.constant)
        if mixed:
            (x, y), scale = mixed[0], 2.0
            entries += [(head, x, 1.0), (head, y, 1.0), (head + 1, x, 1.0), (head + 1, y, -1.0)]
            offset += [0.0, 0.0]
        else:
            scale = 1.0
            offset.append(float(np.sqrt(limit)))
        for x, c in squares:
            entries.append((len(offset), x, scale * float(np.sqrt(c))))
            offset.append(0.0)
        sizes.append(len(offset) - head)
    shape = (len(offset), len(number))
    return _matrix(entries, shape), np.array(offset), np.array(sizes, dtype=np.int64)


def _imbalance_rows(model: pyo.ConcreteModel, number: dict[int, int]) -> Matrix:
    """Return B: the linear coefficients of the active, then the reactive, imbalances."""
    entries = []
    expressions = [*model.p_imbalance.values(), *model.q_imbalance.values()]
    for row, expression in enumerate(expressions):
        repn = generate_standard_repn(expression.expr, compute_values=True)
        for var, coefficient in zip(repn.linear_vars, repn.linear_coefs, strict=True):
            entries.append((row, number[id(var)], float(coefficient)))
    return _matrix(entries, (len(expressions), len(number)))


def _cost(model: pyo.ConcreteModel, number: dict[int, int]) -> tuple[Floats, Floats]:
    """Return c and the diagonal of H of the model's cost, without its constant."""
    linear, square = np.zeros(len(number)), np.zeros(len(number))
    repn = generate_standard_repn(model.cost.expr, quadratic=True, compute_values=True)
    for var, coefficient in zip(repn.linear_vars, repn.linear_coefs, strict=True):
        linear[number[id(var)]] += coefficient
    for (x, y), coefficient in zip(repn.quadratic_vars, repn.quadratic_coefs, strict=True):
        if x is not y:
            raise ValueError(f"the cost has a product of {x.name} and {y.name}")
        square[number[id(x)]] += 2.0 * coefficient
    return linear, square


def _matrix(entries: list[tuple[int, int, float]], shape: tuple[int, int]) -> Matrix:
    if not entries:
        return Matrix(shape)
    rows, columns, values = zip(*entries, strict=True)
    return Matrix((values, (rows, columns)), shape=shape)

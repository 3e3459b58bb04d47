"""Pyomo's model of a zone as matrices: the reference of ``compile_zone``.

Every number is read from Pyomo's representation of the model's constraints and expressions.
"""

from __future__ import annotations

import numpy as np
import pyomo.core as pyo
from pyomo.repn import generate_standard_repn
from pyomo_model import variables, zone_model
from scipy import sparse

CONES = ("thermal_from", "thermal_to", "soc")


def read_model(zone):
    """Return the matrices of a zone's Pyomo model, named as in ``ZoneProgram``."""
    model = zone_model(zone)
    columns = variables(model)
    number = {id(var): c for c, var in enumerate(columns)}
    lower, upper = _bounds(columns)
    a_eq, b_eq, a_in, b_in = _linear_rows(model, number)
    cone, cone_offset, cone_sizes = _cone_rows(_cone_constraints(model), number)
    cost_linear, cost_square = _cost(model, number)
    return {
        "a_eq": a_eq,
        "b_eq": b_eq,
        "a_in": a_in,
        "b_in": b_in,
        "lower": lower,
        "upper": upper,
        "cone": cone,
        "cone_offset": cone_offset,
        "cone_sizes": cone_sizes,
        "imbalance": _imbalance_rows(model, number),
        "cost_linear": cost_linear,
        "cost_square": cost_square,
    }


def _bounds(columns):
    lower = [-np.inf if v.lb is None else v.lb for v in columns]
    upper = [np.inf if v.ub is None else v.ub for v in columns]
    return np.array(lower, dtype=float), np.array(upper, dtype=float)


def _linear_rows(model, number):
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

    def __init__(self):
        self._entries = []
        self._rhs = []

    def add(self, columns, coefficients, rhs):
        row = len(self._rhs)
        self._rhs.append(float(rhs))
        for column, coefficient in zip(columns, coefficients, strict=True):
            self._entries.append((row, column, float(coefficient)))

    def matrix(self, width):
        return _matrix(self._entries, (len(self._rhs), width)), np.array(self._rhs, dtype=float)


def _cone_constraints(model):
    for family in CONES:
        yield from getattr(model, family).values()


def _cone_rows(constraints, number):
    """Return the stacked second-order cones of convex quadratic constraints.

    Two shapes are recognised: a ball, sum a_i x_i^2 <= r^2, and a rotated cone,
    sum a_i x_i^2 <= y z with y, z >= 0, written as ||(2 sqrt(a_i) x_i, y - z)|| <= y + z.
    """
    entries = []
    offset = []
    sizes = []
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


def _imbalance_rows(model, number):
    """Return B: the linear coefficients of the active, then the reactive, imbalances."""
    entries = []
    expressions = [*model.p_imbalance.values(), *model.q_imbalance.values()]
    for row, expression in enumerate(expressions):
        repn = generate_standard_repn(expression.expr, compute_values=True)
        for var, coefficient in zip(repn.linear_vars, repn.linear_coefs, strict=True):
            entries.append((row, number[id(var)], float(coefficient)))
    return _matrix(entries, (len(expressions), len(number)))


def _cost(model, number):
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


def _matrix(entries, shape):
    if not entries:
        return sparse.csr_array(shape)
    rows, columns, values = zip(*entries, strict=True)
    return sparse.csr_array((values, (rows, columns)), shape=shape)

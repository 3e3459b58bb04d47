"""A zone's problem as sparse matrices: the feasible set and the map B of imbalances, no demand.

    W_z = { z : A_eq z = b_eq, A_in z <= b_in, lower <= z <= upper, cone rows in their cones }
    s = B z + d
    f(z; d) = 1/2 z'Hz + c'z + M ||s||^2, H diagonal

:func:`compile_zone` writes the constraints family by family, all rows of a family at once. Numbers
are those of Ryu and Kim (2022), appendix D; their (D.2f)-(D.2i) print w^RI_ji + w^RI_ij where the
power-flow equations have the difference, which is used here. A test compares every matrix with that
of Pyomo for the same equations.

Symbols, per unit: ``w`` = |V_i|^2; ``wr`` and ``wi`` = real and imaginary part of V_i V_j* for each
connected pair i < j; ``p_from, q_from, p_to, q_to`` flows into each branch at its ends; ``pg, qg``
generation; ``pc`` a piecewise linear cost over c0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from scipy import sparse

from gridpriv.core.arrays import Floats, Ints
from gridpriv.power.objective import per_unit_polynomial, piecewise_lines
from gridpriv.power.zone import FLOWS, Zone, flat_start

if TYPE_CHECKING:
    Matrix: TypeAlias = Any  # scipy has no types of its own
else:
    Matrix = sparse.csr_array


@dataclass(frozen=True, eq=False)
class Inequalities:
    """A feasible set without its equalities: a_in z <= b_in, lower <= z <= upper, and cones.

    Attributes
    ----------
    cone, cone_offset : (c, n), (c,)
        Rows of all cones, stacked: (cone z + cone_offset) = (t, u) with
        ||u|| <= t for each block.
    cone_sizes : (k,) int
        Number of rows of each block.
    """

    a_in: Matrix
    b_in: Floats
    lower: Floats
    upper: Floats
    cone: Matrix
    cone_offset: Floats
    cone_sizes: Ints


@dataclass(frozen=True, eq=False)
class ZoneProgram(Inequalities):
    """The matrices of one zone.

    Attributes
    ----------
    name, key
        Of the zone.
    coordinates : (n,) int
        Number of each variable in the whole grid.
    a_eq, b_eq
        Equalities of the feasible set.
    imbalance : (2 b, n)
        B: active rows, then reactive rows, of the b own buses.
    weight : float
        M.
    cost_linear, cost_square : (n,)
        c and the diagonal of H: cost of generation, 0 where the objective has none.
    start : (n,)
        The flat start.
    zone : Zone
        The compiled zone.
    """

    name: str
    key: int
    coordinates: Ints
    a_eq: Matrix
    b_eq: Floats
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
        """Hessian 2 M B'B + H of the objective (public: independent of demand)."""
        squares = 2.0 * self.weight * self.imbalance.T @ self.imbalance
        return Matrix(squares + sparse.diags_array(self.cost_square))

    @cached_property
    def by_demand(self) -> Floats:
        """2 M B', the gradient's derivative by the demand, shape (n, 2 b)."""
        return np.asarray(2.0 * self.weight * self.imbalance.T.toarray())

    def pull(self, residual: Floats) -> Floats:
        """Return 2 M B' residual, the effect of an imbalance on the gradient, shape (n,)."""
        return np.asarray(2.0 * self.weight * (self._incidence @ residual))

    @cached_property
    def _incidence(self) -> Matrix:
        """B', cached: scipy builds a transpose each time, which costs more than the product."""
        return Matrix(self.imbalance.T)


def compile_zone(zone: Zone) -> ZoneProgram:
    """Compile a zone's problem."""
    at = Columns(zone)
    lower, upper = _bounds(zone, at)
    a_eq, b_eq = stacked(_ohm(zone, at), at.size)
    inequalities = [_piecewise_cost(zone, at), *_angles(zone, at), *_envelope(zone, at)]
    a_in, b_in = stacked(inequalities, at.size)
    cones = [*_thermal(zone, at), _soc(zone, at)]
    cone, cone_offset = stacked(cones, at.size)
    cost_linear, cost_square = _cost(zone, at)
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
        cone_sizes=np.concatenate([np.full(len(c.rhs) // c.block, c.block) for c in cones]),
        imbalance=_imbalance(zone, at),
        weight=zone.network.objective.weight,
        cost_linear=cost_linear,
        cost_square=cost_square,
        start=flat_start(zone),
        zone=zone,
    )


class Columns:
    """Positions of a zone's variables in its vector z, by element of the grid."""

    def __init__(self, zone: Zone) -> None:
        self._elements = zone.elements
        ends = np.cumsum([len(current) for current in zone.elements.values()])
        self._starts = dict(zip(zone.elements, [0, *ends[:-1].tolist()], strict=True))
        self.size = int(ends[-1])

    def __call__(self, family: str, elements: Ints) -> Ints:
        """Return the columns of a family's variables at buses, pairs, branches or generators."""
        return np.asarray(self._starts[family] + np.searchsorted(self._elements[family], elements))

    def all(self, family: str) -> Ints:
        """Return the columns of all variables of a family."""
        return np.asarray(self._starts[family] + np.arange(len(self._elements[family])))


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a few terms each: sum_t coefficients[i, t] z[columns[i, t]] against rhs[i].

    Each ``block`` consecutive rows are one cone.
    """

    columns: Ints
    coefficients: Floats
    rhs: Floats
    block: int = 1


def term_rows(rhs: Floats, *terms: tuple[Ints, Floats]) -> Rows:
    """Return rows of (column, coefficient) terms, each of shape (rows,)."""
    columns = np.stack([column for column, _ in terms], axis=1)
    return Rows(columns, np.stack([value for _, value in terms], axis=1), rhs)


def cone_rows(*rows: Rows) -> Rows:
    """Return cones (t, u_1, ...), ||u|| <= t, of the rows of t, of u_1, ..., cone by cone."""
    terms = rows[0].columns.shape[1]
    columns = np.stack([row.columns for row in rows], axis=1).reshape(-1, terms)
    coefficients = np.stack([row.coefficients for row in rows], axis=1).reshape(-1, terms)
    return Rows(columns, coefficients, np.stack([r.rhs for r in rows], axis=1).ravel(), len(rows))


def stacked(families: list[Rows], width: int) -> tuple[Matrix, Floats]:
    """Return (A, b) of families of rows, stacked."""
    rhs = np.concatenate([rows.rhs for rows in families])
    terms = np.concatenate([np.full(len(r.rhs), r.columns.shape[1]) for r in families])
    column = np.concatenate([rows.columns.ravel() for rows in families])
    value = np.concatenate([rows.coefficients.ravel() for rows in families])
    return _matrix(np.repeat(np.arange(len(rhs)), terms), column, value, (len(rhs), width)), rhs


def _matrix(row: Ints, column: Ints, value: Floats, shape: tuple[int, int]) -> Matrix:
    nonzero = value != 0.0
    return Matrix((value[nonzero], (row[nonzero], column[nonzero])), shape=shape)


def _bounds(zone: Zone, at: Columns) -> tuple[Floats, Floats]:
    """Return the bounds (D.2d)-(D.2e), and those of wr and wi implied by voltage and angle bounds.

    The latter are |V_i||V_j| times the range of cosine and sine.
    """
    case, pairs = zone.network.case, zone.pairs
    i, j = zone.network.pair_i[pairs], zone.network.pair_j[pairs]
    low, high = (limits[pairs] for limits in zone.network.angle_limits)
    limited = np.isfinite(low) & np.isfinite(high)
    low, high = np.where(limited, low, 0.0), np.where(limited, high, 0.0)
    least, most = case.vmin[i] * case.vmin[j], case.vmax[i] * case.vmax[j]
    nearest = np.minimum(abs(low), abs(high))
    cosine = np.where((low <= 0.0) & (high >= 0.0), 1.0, np.cos(nearest))
    sin_low, sin_high = np.sin(low), np.sin(high)
    boxes = {
        "w": (case.vmin[zone.buses] ** 2, case.vmax[zone.buses] ** 2),
        "wr": (least * np.cos(np.maximum(abs(low), abs(high))), most * cosine),
        "wi": (
            sin_low * np.where(sin_low < 0, most, least),
            sin_high * np.where(sin_high > 0, most, least),
        ),
        "pg": (case.pmin[zone.gens], case.pmax[zone.gens]),
        "qg": (case.qmin[zone.gens], case.qmax[zone.gens]),
    }
    for family in ("wr", "wi"):
        lowest, highest = boxes[family]
        boxes[family] = np.where(limited, lowest, -most), np.where(limited, highest, most)
    lower, upper = np.full(at.size, -np.inf), np.full(at.size, np.inf)
    for family, (lowest, highest) in boxes.items():
        columns = at.all(family)
        lower[columns] = np.where(np.isfinite(lowest), lowest, -np.inf)
        upper[columns] = np.where(np.isfinite(highest), highest, np.inf)
    return lower, upper


def _ohm(zone: Zone, at: Columns) -> list[Rows]:
    """Ohm's law of each branch, (D.2f)-(D.2i) with their sign corrected."""
    case, network, k = zone.network.case, zone.network, zone.branches
    y = network.admittance
    ff, ft, tf, tt = y.ff[k], y.ft[k], y.tf[k], y.tt[k]
    wf, wt = at("w", case.f_bus[k]), at("w", case.t_bus[k])
    wr, wi = at("wr", network.pair_of[k]), at("wi", network.pair_of[k])
    # V_f V_t* = wr + j wi where the branch runs from i to j, its conjugate where it does not
    sign, ones, zero = np.where(network.forward[k], 1.0, -1.0), np.ones(len(k)), np.zeros(len(k))
    p_from, q_from, p_to, q_to = ((at.all(family), ones) for family in FLOWS)
    return [
        term_rows(zero, p_from, (wf, -ff.real), (wr, -ft.real), (wi, -sign * ft.imag)),
        term_rows(zero, q_from, (wf, ff.imag), (wr, ft.imag), (wi, -sign * ft.real)),
        term_rows(zero, p_to, (wt, -tt.real), (wr, -tf.real), (wi, sign * tf.imag)),
        term_rows(zero, q_to, (wt, tt.imag), (wr, tf.imag), (wi, sign * tf.real)),
    ]


def _piecewise_cost(zone: Zone, at: Columns) -> Rows:
    """Keep pc above every line of a generator's piecewise linear cost over c0."""
    case, unit = zone.network.case, zone.network.objective.cost_unit
    lines = [
        (g, slope, fixed)
        for g in zone.priced.tolist()
        for slope, fixed in zip(*piecewise_lines(case.cost[g], case.base_mva), strict=True)
    ]
    of, slopes, fixed = np.array(lines, dtype=float).reshape(-1, 3).T
    gens, ones = of.astype(np.int64), np.ones(len(lines))
    return term_rows(0.0 - fixed / unit, (at("pg", gens), slopes / unit), (at("pc", gens), -ones))


def _angles(zone: Zone, at: Columns) -> Iterator[Rows]:
    """Angle differences where limits are given, (D.2k): tan(min) wr <= wi <= tan(max) wr."""
    for limits, sign in zip(zone.network.angle_limits, (1.0, -1.0), strict=True):
        pairs = zone.pairs[np.isfinite(limits[zone.pairs])]
        wr, wi = at("wr", pairs), at("wi", pairs)
        ones, zero = np.ones(len(pairs)), np.zeros(len(pairs))
        yield term_rows(zero, (wr, sign * np.tan(limits[pairs])), (wi, -sign * ones))


def _envelope(zone: Zone, at: Columns) -> Iterator[Rows]:
    """Add the lifted nonlinear cuts of V_i V_j* within voltage and angle bounds.

    Coffrin, Hijazi and Van Hentenryck (arXiv:1512.04644), for pairs with both angle limits;
    PowerModels' SOC relaxation, the source of published bounds, has them.
    """
    case, network = zone.network.case, zone.network
    low, high = (limits[zone.pairs] for limits in network.angle_limits)
    limited = np.isfinite(low) & np.isfinite(high)
    pairs, low, high = zone.pairs[limited], low[limited], high[limited]
    i, j = network.pair_i[pairs], network.pair_j[pairs]
    middle, cosine = (high + low) / 2, np.cos((high - low) / 2)
    sum_i, sum_j = case.vmin[i] + case.vmax[i], case.vmin[j] + case.vmax[j]
    gap = case.vmin[i] * case.vmin[j] - case.vmax[i] * case.vmax[j]
    for bound, sign in ((case.vmax, 1.0), (case.vmin, -1.0)):
        vi, vj = bound[i], bound[j]
        yield term_rows(
            0.0 - sign * vi * vj * cosine * gap,
            (at("wr", pairs), -(sum_i * sum_j * np.cos(middle))),
            (at("wi", pairs), -(sum_i * sum_j * np.sin(middle))),
            (at("w", i), vj * cosine * sum_j),
            (at("w", j), vi * cosine * sum_i),
        )


def _thermal(zone: Zone, at: Columns) -> Iterator[Rows]:
    """Apparent power limits at both ends of rated branches, (D.2j), as cones (rate, p, q)."""
    rate = zone.network.case.rate[zone.branches]
    rated = (rate > 0.0) & np.isfinite(rate)
    ones, zero = np.ones(int(rated.sum())), np.zeros(int(rated.sum()))
    for end in ("from", "to"):
        p, q = at.all(f"p_{end}")[rated], at.all(f"q_{end}")[rated]
        yield cone_rows(
            term_rows(rate[rated], (p, zero)),
            term_rows(zero, (p, ones)),
            term_rows(zero, (q, ones)),
        )


def _soc(zone: Zone, at: Columns) -> Rows:
    """|V_i V_j*|^2 <= |V_i|^2 |V_j|^2 of each pair, (D.2l): (w_i + w_j, w_i - w_j, 2 wr, 2 wi)."""
    network, pairs = zone.network, zone.pairs
    i, j = at("w", network.pair_i[pairs]), at("w", network.pair_j[pairs])
    wr, wi = at.all("wr"), at.all("wi")
    ones, zero = np.ones(len(pairs)), np.zeros(len(pairs))
    return cone_rows(
        term_rows(zero, (i, ones), (j, ones)),
        term_rows(zero, (i, ones), (j, -ones)),
        term_rows(zero, (wr, ones), (wr, ones)),
        term_rows(zero, (wi, ones), (wi, ones)),
    )


def _imbalance(zone: Zone, at: Columns) -> Matrix:
    """Return B of (D.2b)-(D.2c): outgoing flows less generation, plus consumption of shunts."""
    case, own = zone.network.case, zone.own
    f_bus, t_bus = case.f_bus[zone.branches], case.t_bus[zone.branches]
    owns = np.zeros(case.n_bus, dtype=bool)
    owns[own] = True
    entries = []
    for below, power, shunt in ((0, "p", case.gs), (len(own), "q", -case.bs)):
        for ends, columns, value in (
            (f_bus, at.all(f"{power}_from"), np.ones(len(f_bus))),
            (t_bus, at.all(f"{power}_to"), np.ones(len(t_bus))),
            (case.gen_bus[zone.gens], at.all(f"{power}g"), -np.ones(len(zone.gens))),
            (own, at("w", own), shunt[own]),
        ):
            here = owns[ends]
            entries.append((below + np.searchsorted(own, ends[here]), columns[here], value[here]))
    row, column, values = (np.concatenate(part) for part in zip(*entries, strict=True))
    return _matrix(row, column, values, (2 * len(own), at.size))


def _cost(zone: Zone, at: Columns) -> tuple[Floats, Floats]:
    """Return c and the diagonal of H: cost over c0, or the sum of generation for losses."""
    case, objective = zone.network.case, zone.network.objective
    linear, square = np.zeros(at.size), np.zeros(at.size)
    if objective.kind == "losses":
        linear[at.all("pg")] = 1.0
    if objective.kind == "cost":
        gens = np.setdiff1d(zone.gens, zone.priced)
        costs = [per_unit_polynomial(case.cost[g], case.base_mva) for g in gens.tolist()]
        c2, c1, _ = (1.0 / objective.cost_unit) * np.array(costs, dtype=float).reshape(-1, 3).T
        linear[at("pg", gens)], square[at("pg", gens)] = c1, 2.0 * c2
        linear[at.all("pc")] = 1.0
    return linear, square

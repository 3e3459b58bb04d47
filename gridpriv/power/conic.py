"""A zone's whole problem, demand included, as one conic program: for centralized solves.

    minimise 1/2 z'Hz + c'z [+ M ||s||^2]   subject to   z in W,  B z + d = s

with s = 0 where the balance is hard; or s is what is shed of the demand at constant power factor,
0 <= s <= d, at a price of 1 per unit of active power. Flows stay variables: eliminating them saves
time in thousands of small solves, but one large solve ends more often as solved with them
(docs/decisions/0008-cost-objective.md has figures on PGLib-OPF).

It is solved in variables and rows of order one. With gamma about |V_i - V_j| of a pair at its rated
flow (|z| times rate, within bounds),

    wr = (w_i + w_j)/2 - gamma^2 u / 2,   wi = gamma v,   flows over their rates,

so that u and v need not be found as differences of nearly equal numbers. With m = (w_i + w_j)/2 the
cone wr^2 + wi^2 <= w_i w_j becomes, exactly (square both sides),

    ||(m - (1 + gamma^2/4) u, (w_i - w_j)/gamma, 2 v)|| <= m + (1 - gamma^2/4) u.

Linear rows are scaled to a largest coefficient of 1, thermal limits to 1. It takes a third of the
iterations (docs/decisions/0008-cost-objective.md). Factors on the objective and looser tolerances
are tried in turn until one ends as solved.

"Solved" alone says too little on a large grid: Clarabel's tolerance is relative to all variables
together, and a thermal limit violated by 3e-4 p.u. moved the bound of case1888_rte by 0.08 %.
So every solution carries an estimate of its value's error, and only one within 1e-4 is taken:

    |y|'|A x + slack - b| + |x|'|P x + q + A'y|   over the value,

what the rows' dual y charges for all that the rows miss, and what x makes of the gradient left.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import clarabel
import numpy as np
from scipy import sparse

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import SolverError
from gridpriv.power.program import (
    Columns,
    Matrix,
    Rows,
    ZoneProgram,
    cone_rows,
    stacked,
    term_rows,
)
from gridpriv.power.solvers.clarabel import conic_rows
from gridpriv.power.zone import FLOWS, Zone


@dataclass(frozen=True)
class Scaling:
    """A factor on the objective, and how Clarabel is set.

    ``feasibility`` and ``gap`` are Clarabel's tolerances, relative to the size of all variables
    together and to the objective.
    """

    objective: float
    equilibrate: bool = False
    feasibility: float = 1e-8
    gap: float = 1e-8


SCALINGS = (
    Scaling(1.0),
    Scaling(10.0),
    Scaling(100.0),
    Scaling(1e4),
    Scaling(1.0, equilibrate=True),
    Scaling(10.0, feasibility=1e-7, gap=1e-6),
    Scaling(0.1, equilibrate=True, feasibility=1e-7, gap=1e-6),
)
LARGEST_RATE = 10.0
"""p.u.: flows are not scaled up beyond it."""
SMALLEST_SPREAD, LARGEST_SPREAD = 1e-2, 0.5
MOST_ITERATIONS = 300
GOOD_ERROR, MOST_ERROR = 1e-4, 1e-3
INFEASIBLE = ("PrimalInfeasible", "AlmostPrimalInfeasible")


@dataclass(frozen=True, eq=False)
class ConicSolution:
    """A solved conic program.

    Attributes
    ----------
    z : (n,)
        The zone's variables.
    imbalance : (2 b,)
        s = Bz + d: active, then reactive, of own buses.
    price : (2 b,)
        Derivative of the objective by each entry of d: what one more unit of demand costs.
    value : float
        Objective, without the cost's constant.
    error : float
        Estimate of the value's error, relative to it (absolute below a value of 1).
    status : str
        ``Solved``; ``AlmostSolved`` where no scaling ends better (its error is at most 1e-3);
        ``Infeasible`` where the balance cannot hold.
    """

    z: Floats
    imbalance: Floats
    price: Floats
    value: float
    error: float
    status: str


@dataclass(frozen=True, eq=False)
class Slack:
    """Slack of the power balance: B z + d = columns s.

    Attributes
    ----------
    columns : sparse (2 b, k)
    square, linear : (k,)
        Its price: square s^2 / 2 + linear s.
    most : (k,) or None
        Upper bounds, with 0 as the lower one; None without bounds.
    """

    columns: Matrix
    square: Floats
    linear: Floats
    most: Floats | None


def hard_balance(program: ZoneProgram) -> Slack:
    """Nothing may be missing."""
    rows, none = program.imbalance.shape[0], np.zeros(0)
    return Slack(Matrix((rows, 0)), none, none, None)


def squared_imbalance(program: ZoneProgram) -> Slack:
    """All may be missing, at M times its square."""
    rows = program.imbalance.shape[0]
    eye = Matrix(sparse.eye_array(rows, format="csr"))
    return Slack(eye, np.full(rows, 2.0 * program.weight), np.zeros(rows), None)


def shed_demand(demand: Floats) -> Slack:
    """Demand may be shed at constant power factor, where active demand is positive."""
    p, q = np.split(demand, 2)
    loaded = np.flatnonzero(p > 0)
    at, none = np.arange(len(loaded)), np.zeros(len(loaded))
    columns = sparse.coo_array(
        (
            np.concatenate([p[loaded], q[loaded]]),
            (np.concatenate([loaded, loaded + len(p)]), np.tile(at, 2)),
        ),
        shape=(len(demand), len(loaded)),
    )
    return Slack(Matrix(columns), none, p[loaded], np.ones(len(loaded)))


def solve_conic(program: ZoneProgram, demand: Floats, slack: Slack) -> ConicSolution:
    """Solve a zone's problem for a demand.

    Parameters
    ----------
    program : ZoneProgram
    demand : (2 b,)
        (pd, qd) of own buses.
    slack : Slack
        What may be missing, and its price.

    Raises
    ------
    SolverError
        If no scaling ends as solved or infeasible; the last status is named.
    """
    form = _form(program, demand, slack)
    best: ConicSolution | None = None
    status = ""
    for scaling in SCALINGS:
        solve = _solve(form, scaling)
        status = str(solve.status)
        if status not in ("Solved", "AlmostSolved", *INFEASIBLE):
            continue
        solution = _solution(program, demand, form, solve, scaling)
        if status in INFEASIBLE or (status == "Solved" and solution.error <= GOOD_ERROR):
            return solution
        if best is None or solution.error < best.error:
            best = solution
    if best is not None and best.error <= MOST_ERROR:
        return replace(best, status="AlmostSolved")
    tried = f"clarabel ended {status} after {len(SCALINGS)} scalings were tried"
    if best is not None:
        tried += (
            f"; the best point may be {best.error:.2g} off, relatively, for {MOST_ERROR:g} allowed"
        )
    raise SolverError(tried)


@dataclass(frozen=True, eq=False)
class _Form:
    """1/2 x'Px + q'x, A x + slack = b in the cones, with (z, s) = expand x.

    ``row_scale`` is by what the first rows, those of the balance, were multiplied.
    """

    quadratic: Matrix
    linear: Floats
    rows: Matrix
    offset: Floats
    cones: list[Any]
    expand: Matrix
    row_scale: Floats


def _form(program: ZoneProgram, demand: Floats, slack: Slack) -> _Form:
    inside, limits, cones = conic_rows(program)
    missing, zone, at = len(slack.linear), program.zone, Columns(program.zone)
    products = 4 * len(zone.pairs)  # rows of the voltage products' cones, the last
    others = len(limits) - products
    spread = _spread(zone)
    expand = Matrix(sparse.block_diag([_variables(program, at, spread), sparse.eye_array(missing)]))
    rows = sparse.vstack([program.imbalance, program.a_eq, inside[:others]])
    short = sparse.vstack(
        [-slack.columns, Matrix((rows.shape[0] - len(demand), missing))], format="csr"
    )
    rows = Matrix(sparse.hstack([rows, short], format="csr") @ expand)
    offset = np.concatenate([-demand, program.b_eq, limits[:others]])
    scale = 1.0 / np.maximum(abs(rows).max(axis=1).toarray().ravel(), 1e-12)
    thermal = program.cone_sizes[: len(program.cone_sizes) - len(zone.pairs)]
    if len(thermal):  # one scale for all rows of a limit
        heads = len(scale) - int(thermal.sum()) + np.cumsum(thermal) - thermal
        scale[heads[0] :] = np.repeat(1.0 / offset[heads], thermal)
    cone, _ = stacked([_products(zone, at, spread)], at.size)
    blocks = [
        Matrix(sparse.diags_array(scale) @ rows),
        sparse.hstack([-cone, Matrix((products, missing))]),
    ]
    offsets = [scale * offset, np.zeros(products)]
    cones = [clarabel.ZeroConeT(len(demand) + len(program.b_eq)), *cones]
    if slack.most is not None:
        eye = sparse.eye_array(missing)
        none = Matrix((2 * missing, program.size))
        blocks.append(sparse.hstack([none, sparse.vstack([eye, -eye])]))
        offsets += [slack.most, np.zeros(missing)]
        cones.append(clarabel.NonnegativeConeT(2 * missing))
    square = np.concatenate([program.cost_square, slack.square])
    return _Form(
        quadratic=Matrix(expand.T @ sparse.diags_array(square) @ expand),
        linear=expand.T @ np.concatenate([program.cost_linear, slack.linear]),
        rows=Matrix(sparse.vstack(blocks, format="csr")),
        offset=np.concatenate(offsets),
        cones=cones,
        expand=expand,
        row_scale=scale[: len(demand)],
    )


def _rates(zone: Zone) -> Floats:
    """Return the rate of every branch of a zone as a scale, p.u.; 1 where there is none.

    A rate that no flow comes near says nothing of flows: many files write 9900 MVA or more for
    "no limit", and flows in that unit would be zeros to a solver.
    """
    rate = zone.network.case.rate[zone.branches]
    known = (rate > 0.0) & np.isfinite(rate)
    return np.asarray(np.where(known, np.minimum(rate, LARGEST_RATE), 1.0))


def _spread(zone: Zone) -> Floats:
    """Return gamma of each pair: |V_i - V_j| at the rated flow of its weakest branch."""
    case, k = zone.network.case, zone.branches
    across = np.hypot(case.r[k], case.x[k]) * _rates(zone)
    spread = np.full(len(zone.pairs), np.inf)
    np.minimum.at(spread, np.searchsorted(zone.pairs, zone.network.pair_of[k]), across)
    return np.asarray(np.clip(spread, SMALLEST_SPREAD, LARGEST_SPREAD))


def _variables(program: ZoneProgram, at: Columns, spread: Floats) -> Matrix:
    """Return S of z = S x: shape (n, n)."""
    zone = program.zone
    i, j = zone.network.pair_i[zone.pairs], zone.network.pair_j[zone.pairs]
    wr, half = at.all("wr"), np.full(len(zone.pairs), 0.5)
    scale = np.ones(program.size)
    scale[wr], scale[at.all("wi")] = -0.5 * spread**2, spread
    for family in FLOWS:
        scale[at.all(family)] = _rates(zone)
    every = np.arange(program.size)
    row = np.concatenate([every, wr, wr])
    column = np.concatenate([every, at("w", i), at("w", j)])
    values = np.concatenate([scale, half, half])
    return Matrix((values, (row, column)), shape=(program.size, program.size))


def _products(zone: Zone, at: Columns, spread: Floats) -> Rows:
    """Return the cone of every pair's voltage products in the scaled variables."""
    i, j = (at("w", ends[zone.pairs]) for ends in (zone.network.pair_i, zone.network.pair_j))
    u, v = at.all("wr"), at.all("wi")
    item, zero = np.ones(len(zone.pairs)), np.zeros(len(zone.pairs))
    half, quarter = 0.5 * item, 0.25 * spread**2
    return cone_rows(
        term_rows(zero, (i, half), (j, half), (u, 1.0 - quarter)),
        term_rows(zero, (i, half), (j, half), (u, -1.0 - quarter)),
        term_rows(zero, (i, item / spread), (j, -item / spread), (u, zero)),
        term_rows(zero, (v, item), (v, item), (u, zero)),
    )


def _solve(form: _Form, scaling: Scaling) -> Any:
    factor = scaling.objective
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    settings.max_iter = MOST_ITERATIONS
    settings.equilibrate_enable = scaling.equilibrate
    settings.tol_feas = scaling.feasibility
    settings.tol_gap_rel = settings.tol_gap_abs = scaling.gap
    return clarabel.DefaultSolver(
        sparse.csc_matrix(factor * form.quadratic),
        factor * form.linear,
        sparse.csc_matrix(form.rows),
        form.offset,
        form.cones,
        settings,
    ).solve()


def _solution(
    program: ZoneProgram, demand: Floats, form: _Form, result: Any, scaling: Scaling
) -> ConicSolution:
    """Undo the scaling. The dual y of the row Bz = -d is the derivative of the value by d."""
    x, y = np.asarray(result.x), np.asarray(result.z) / scaling.objective
    missed = form.rows @ x + np.asarray(result.s) - form.offset
    gradient = form.quadratic @ x + form.linear + form.rows.T @ y
    value = float(result.obj_val) / scaling.objective
    error = float(np.abs(y) @ np.abs(missed) + np.abs(x) @ np.abs(gradient))
    z = (form.expand @ x)[: program.size]
    return ConicSolution(
        z=z,
        imbalance=np.asarray(program.imbalance @ z + demand),
        price=form.row_scale * y[: len(demand)],
        value=value,
        error=error / max(abs(value), 1.0),
        status="Infeasible" if str(result.status) in INFEASIBLE else "Solved",
    )

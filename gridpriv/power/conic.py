"""A zone's whole problem, demand included, as one conic program: for centralized solves.

    minimise 1/2 z'Hz + c'z [+ M ||s||^2]   subject to   z in W,  B z + d = s

with s = 0 where the balance is hard; or s is what is shed of the demand at constant power factor,
0 <= s <= d, at a price of 1 per unit of active power. Flows stay variables: eliminating them saves
time in thousands of small solves, but one large solve ends more often as solved with them
(docs/decisions/0008-cost-objective.md has figures on PGLib-OPF).

Rows and objective are scaled: equalities to a largest coefficient of 1, thermal limits to 1,
the objective by a factor. Scalings are tried in turn until one ends as solved.

"Solved" alone says too little on a large grid: Clarabel's tolerance is relative to all variables
together, and a thermal limit that is passed by 3e-4 p.u. moved the bound of case1888_rte by 0.08 %.
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
from gridpriv.power.program import Matrix, ZoneProgram
from gridpriv.power.solvers.clarabel import conic_rows


@dataclass(frozen=True)
class Scaling:
    """How a conic program is scaled: factor on the objective, rows to 1, Clarabel's own.

    ``feasibility`` and ``gap`` are Clarabel's tolerances, relative to the size of all variables
    together and to the objective.
    """

    objective: float
    rows: bool
    equilibrate: bool
    feasibility: float = 1e-8
    gap: float = 1e-8


SCALINGS = (
    Scaling(100.0, rows=False, equilibrate=False),
    Scaling(1.0, rows=True, equilibrate=False),
    Scaling(10.0, rows=False, equilibrate=False),
    Scaling(1e4, rows=False, equilibrate=False),
    Scaling(1e3, rows=True, equilibrate=False),
    Scaling(1.0, rows=True, equilibrate=True, feasibility=1e-7, gap=1e-6),
    Scaling(1e3, rows=False, equilibrate=True, feasibility=1e-7, gap=1e-6),
    Scaling(10.0, rows=False, equilibrate=False, feasibility=1e-7, gap=1e-6),
    Scaling(0.1, rows=True, equilibrate=True, feasibility=1e-7, gap=1e-6),
)
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
    """What may be missing of the balance: B z + d = columns s.

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
        found = _solve(form, scaling)
        status = str(found.status)
        if status not in ("Solved", "AlmostSolved", *INFEASIBLE):
            continue
        solution = _solution(program, demand, form, found, scaling)
        if status in INFEASIBLE or (status == "Solved" and solution.error <= GOOD_ERROR):
            return solution
        if best is None or solution.error < best.error:
            best = solution
    if best is not None and best.error <= MOST_ERROR:
        return replace(best, status="AlmostSolved")
    raise SolverError(f"clarabel ended {status} after {len(SCALINGS)} scalings were tried")


@dataclass(frozen=True, eq=False)
class _Form:
    """1/2 x'Px + q'x, A x + slack = b with x = (z, s); ``row_scale`` makes rows of size 1."""

    quadratic: Matrix
    linear: Floats
    rows: Matrix
    offset: Floats
    cones: list[Any]
    row_scale: Floats

    def scale(self, scaling: Scaling) -> Floats:
        """Return the scale of every row."""
        return self.row_scale if scaling.rows else np.ones_like(self.row_scale)


def _form(program: ZoneProgram, demand: Floats, slack: Slack) -> _Form:
    inside, limits, cones = conic_rows(program)
    rows = Matrix(sparse.vstack([program.imbalance, program.a_eq, inside], format="csr"))
    offset = np.concatenate([-demand, program.b_eq, limits])
    equalities = len(demand) + len(program.b_eq)
    scale = _row_scale(program, rows, equalities)
    square = np.concatenate([program.cost_square, slack.square])
    linear = np.concatenate([program.cost_linear, slack.linear])
    rest = Matrix((rows.shape[0] - len(demand), len(slack.linear)))
    missing = sparse.vstack([-slack.columns, rest], format="csr")
    rows = Matrix(sparse.hstack([rows, missing], format="csr"))
    cones = [clarabel.ZeroConeT(equalities), *cones]
    if slack.most is not None:
        eye = sparse.eye_array(len(slack.most), format="csr")
        bounds = sparse.vstack([eye, -eye], format="csr")
        none = Matrix((bounds.shape[0], program.size))
        rows = Matrix(sparse.vstack([rows, sparse.hstack([none, bounds])], format="csr"))
        offset = np.concatenate([offset, slack.most, np.zeros(len(slack.most))])
        scale = np.concatenate([scale, np.ones(bounds.shape[0])])
        cones.append(clarabel.NonnegativeConeT(bounds.shape[0]))
    return _Form(sparse.diags_array(square), linear, rows, offset, cones, scale)


def _solve(form: _Form, scaling: Scaling) -> Any:
    scale = form.scale(scaling)
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
        sparse.csc_matrix(sparse.diags_array(scale) @ form.rows),
        scale * form.offset,
        form.cones,
        settings,
    ).solve()


def _row_scale(program: ZoneProgram, rows: Matrix, equalities: int) -> Floats:
    """Return 1 over the largest coefficient of equalities, and 1 over the radius of balls."""
    scale = np.ones(rows.shape[0])
    largest = np.asarray(abs(rows[:equalities]).max(axis=1).toarray()).ravel()
    scale[:equalities] = 1.0 / np.maximum(largest, 1e-12)
    heads = np.concatenate([[0], np.cumsum(program.cone_sizes)])[:-1].astype(np.int64)
    radius = program.cone_offset[heads]
    block = np.repeat(1.0 / np.where(radius > 0, radius, 1.0), program.cone_sizes)
    scale[len(scale) - len(block) :] = block
    return scale


def _solution(
    program: ZoneProgram, demand: Floats, form: _Form, found: Any, scaling: Scaling
) -> ConicSolution:
    """Undo the scaling. The dual y of the row Bz = -d is the derivative of the value by d."""
    x, slack = np.asarray(found.x), np.asarray(found.s)
    y = np.asarray(found.z) / scaling.objective
    scale = form.scale(scaling)
    missed = scale * (form.rows @ x - form.offset) + slack
    gradient = form.quadratic @ x + form.linear + form.rows.T @ (scale * y)
    value = float(found.obj_val) / scaling.objective
    error = float(np.abs(y) @ np.abs(missed) + np.abs(x) @ np.abs(gradient))
    z = x[: program.size]
    return ConicSolution(
        z=z,
        imbalance=np.asarray(program.imbalance @ z + demand),
        price=(scale * y)[: len(demand)],
        value=value,
        error=error / max(abs(value), 1.0),
        status="Infeasible" if str(found.status) in INFEASIBLE else "Solved",
    )

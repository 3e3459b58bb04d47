"""A zone's whole problem, demand included, as one conic program: for centralized solves.

    minimise 1/2 z'Hz + c'z [+ M ||s||^2]   subject to   z in W,  B z + d = s

with s = 0 where the balance is hard. Flows stay variables: eliminating them saves time in
thousands of small solves, but one large solve ends more often as solved with them
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


def solve_conic(program: ZoneProgram, demand: Floats, *, hard_balance: bool) -> ConicSolution:
    """Solve a zone's problem for a demand.

    Parameters
    ----------
    program : ZoneProgram
    demand : (2 b,)
        (pd, qd) of own buses.
    hard_balance : bool
        Whether the imbalance must be 0; else M times its square is minimised with the cost.

    Raises
    ------
    SolverError
        If no scaling ends as solved or infeasible; the last status is named.
    """
    form = _form(program, demand, hard_balance=hard_balance)
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


def _form(program: ZoneProgram, demand: Floats, *, hard_balance: bool) -> _Form:
    inside, limits, cones = conic_rows(program)
    rows = Matrix(sparse.vstack([program.imbalance, program.a_eq, inside], format="csr"))
    offset = np.concatenate([-demand, program.b_eq, limits])
    equalities = len(demand) + len(program.b_eq)
    scale = _row_scale(program, rows, equalities)
    if not hard_balance:
        rows = _with_slack(rows, len(demand))
    return _Form(
        *_objective(program, hard_balance=hard_balance),
        rows, offset, [clarabel.ZeroConeT(equalities), *cones], scale,
    )  # fmt: skip


def _with_slack(rows: Matrix, slack: int) -> Matrix:
    """Add the columns of s, -1 in the rows of the balance."""
    minus = Matrix(-sparse.eye_array(slack, format="csr"))
    column = sparse.vstack([minus, Matrix((rows.shape[0] - slack, slack))], format="csr")
    return Matrix(sparse.hstack([rows, column], format="csr"))


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


def _objective(program: ZoneProgram, *, hard_balance: bool) -> tuple[Matrix, Floats]:
    """Return (P, q) on (z, s); s is there only where the balance is soft."""
    if hard_balance:
        return sparse.diags_array(program.cost_square), program.cost_linear
    slack = program.imbalance.shape[0]
    square = np.concatenate([program.cost_square, np.full(slack, 2.0 * program.weight)])
    return sparse.diags_array(square), np.concatenate([program.cost_linear, np.zeros(slack)])


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

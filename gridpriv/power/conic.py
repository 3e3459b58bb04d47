"""A zone's whole problem, demand included, as one conic program: for centralized solves.

    minimise 1/2 z'Hz + c'z [+ M ||s||^2]   subject to   z in W,  B z + d = s

with s = 0 where the balance is hard. Flows stay variables: eliminating them saves time in
thousands of small solves, but one large solve ends more often as solved with them
(docs/decisions/0010-cost-objective.md has the count on PGLib-OPF).

Rows and objective are scaled: equalities to a largest coefficient of 1, thermal limits to 1,
the objective by a factor. Scalings are tried in turn until one ends as solved and within limits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import clarabel
import numpy as np
from scipy import sparse

from gridpriv.errors import SolverError
from gridpriv.grid.case import Floats
from gridpriv.power.program import Matrix, ZoneProgram


@dataclass(frozen=True)
class Scaling:
    """How a conic program is scaled: factor on the objective, rows to 1, Clarabel's own.

    ``tolerance`` is Clarabel's of feasibility, relative to the size of all variables together.
    """

    objective: float
    rows: bool
    equilibrate: bool
    tolerance: float = 1e-8


SCALINGS = (
    Scaling(100.0, rows=False, equilibrate=False),
    Scaling(1.0, rows=True, equilibrate=False),
    Scaling(10.0, rows=False, equilibrate=False),
    Scaling(1e4, rows=False, equilibrate=False),
    Scaling(1e3, rows=True, equilibrate=False),
    Scaling(1e3, rows=False, equilibrate=True, tolerance=1e-7),
    Scaling(10.0, rows=False, equilibrate=False, tolerance=1e-7),
    Scaling(10.0, rows=True, equilibrate=True, tolerance=1e-7),
    Scaling(100.0, rows=False, equilibrate=False, tolerance=1e-7),
)
MOST_ITERATIONS = 300
MOST_VIOLATION = 1e-5
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
    value, dual_value : float
        Objective of the primal and of the dual solution.
    status : str
        ``Solved``, or that the balance cannot hold: ``Infeasible``.
    attempts : int
        Scalings tried.
    """

    z: Floats
    imbalance: Floats
    price: Floats
    value: float
    dual_value: float
    status: str
    attempts: int


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
    status = ""
    for attempt, scaling in enumerate(SCALINGS, start=1):
        found = _solve(program, demand, scaling, hard_balance=hard_balance)
        status = str(found.status)
        if status in INFEASIBLE:
            return _solution(program, demand, found, scaling, attempt)
        if status == "Solved":
            solution = _solution(program, demand, found, scaling, attempt)
            if violation(program, solution.z) <= MOST_VIOLATION:
                return solution
            status = "Solved, at limits passed by more than 1e-5 p.u.,"
    raise SolverError(f"clarabel ended {status} after {len(SCALINGS)} scalings were tried")


def violation(program: ZoneProgram, z: Floats) -> float:
    """Return by how much z misses Ohm's law or passes a cone, at most, in per unit.

    Clarabel's tolerance is relative to the size of all variables together; on a large grid a
    thermal limit may be passed by enough to move the bound by 0.1 %.
    """
    rows = np.asarray(program.cone @ z + program.cone_offset)
    heads = np.concatenate([[0], np.cumsum(program.cone_sizes)])[:-1].astype(np.int64)
    block = np.repeat(np.arange(len(heads)), program.cone_sizes)
    tail = rows.copy()
    tail[heads] = 0.0
    passed = np.sqrt(np.bincount(block, tail**2, minlength=len(heads))) - rows[heads]
    missed = np.abs(program.a_eq @ z - program.b_eq)
    return float(np.concatenate([passed, missed, [0.0]]).max())


def _solve(program: ZoneProgram, demand: Floats, scaling: Scaling, *, hard_balance: bool) -> Any:
    quadratic, linear = _objective(program, hard_balance=hard_balance)
    rows, offset, scale = _rows(program, demand, scaling, hard_balance=hard_balance)
    factor = scaling.objective
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    settings.max_iter = MOST_ITERATIONS
    settings.equilibrate_enable = scaling.equilibrate
    settings.tol_feas = scaling.tolerance
    return clarabel.DefaultSolver(
        sparse.csc_matrix(factor * quadratic),
        factor * linear,
        sparse.csc_matrix(sparse.diags_array(scale) @ rows),
        scale * offset,
        _cones(program),
        settings,
    ).solve()


def _objective(program: ZoneProgram, *, hard_balance: bool) -> tuple[Matrix, Floats]:
    """Return (P, q) on (z, s); s is there only where the balance is soft."""
    if hard_balance:
        return sparse.diags_array(program.cost_square), program.cost_linear
    slack = program.imbalance.shape[0]
    square = np.concatenate([program.cost_square, np.full(slack, 2.0 * program.weight)])
    return sparse.diags_array(square), np.concatenate([program.cost_linear, np.zeros(slack)])


def _rows(
    program: ZoneProgram, demand: Floats, scaling: Scaling, *, hard_balance: bool
) -> tuple[Matrix, Floats, Floats]:
    """Return (A, b, row scales) of A x + slack = b, slack in the cones of :func:`_cones`."""
    eye = sparse.eye_array(program.size, format="csr")
    above, below = np.isfinite(program.upper), np.isfinite(program.lower)
    blocks = [
        program.imbalance, program.a_eq, Matrix(eye[above]), Matrix(-eye[below]),
        program.a_in, Matrix(-program.cone),
    ]  # fmt: skip
    offset = np.concatenate(
        [
            -demand, program.b_eq, program.upper[above], -program.lower[below],
            program.b_in, program.cone_offset,
        ]
    )  # fmt: skip
    rows = Matrix(sparse.vstack(blocks, format="csr"))
    scale = _row_scale(program, rows) if scaling.rows else np.ones(len(offset))
    if not hard_balance:
        slack = len(demand)
        below_balance = Matrix((len(offset) - slack, slack))
        minus = Matrix(-sparse.eye_array(slack, format="csr"))
        column = sparse.vstack([minus, below_balance], format="csr")
        rows = Matrix(sparse.hstack([rows, column], format="csr"))
    return rows, offset, scale


def _row_scale(program: ZoneProgram, rows: Matrix) -> Floats:
    """Return 1 over the largest coefficient of equalities, and 1 over the radius of balls."""
    scale = np.ones(rows.shape[0])
    equalities = program.imbalance.shape[0] + len(program.b_eq)
    largest = np.asarray(abs(rows[:equalities]).max(axis=1).toarray()).ravel()
    scale[:equalities] = 1.0 / np.maximum(largest, 1e-12)
    heads = np.concatenate([[0], np.cumsum(program.cone_sizes)])[:-1].astype(np.int64)
    radius = program.cone_offset[heads]
    block = np.repeat(1.0 / np.where(radius > 0, radius, 1.0), program.cone_sizes)
    scale[len(scale) - len(block) :] = block
    return scale


def _cones(program: ZoneProgram) -> list[Any]:
    equalities = program.imbalance.shape[0] + len(program.b_eq)
    bounds = int(np.isfinite(program.upper).sum() + np.isfinite(program.lower).sum())
    cones: list[Any] = [clarabel.ZeroConeT(equalities)]
    cones.append(clarabel.NonnegativeConeT(bounds + len(program.b_in)))
    return cones + [clarabel.SecondOrderConeT(int(size)) for size in program.cone_sizes]


def _solution(
    program: ZoneProgram, demand: Floats, found: Any, scaling: Scaling, attempt: int
) -> ConicSolution:
    """Undo the scaling. The dual y of the row Bz = -d is the derivative of the value by d."""
    z = np.asarray(found.x)[: program.size]
    rows = len(demand)
    _, _, scale = _rows(program, demand, scaling, hard_balance=True)
    dual = np.asarray(found.z)[:rows] * scale[:rows]
    return ConicSolution(
        z=z,
        imbalance=np.asarray(program.imbalance @ z + demand),
        price=dual / scaling.objective,
        value=float(found.obj_val) / scaling.objective,
        dual_value=float(found.obj_val_dual) / scaling.objective,
        status="Infeasible" if str(found.status) in INFEASIBLE else "Solved",
        attempts=attempt,
    )

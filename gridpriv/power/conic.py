"""A zone's whole problem, demand included, as one conic program: for centralized solves.

    minimize 1/2 z'Hz + c'z [+ M ||s||^2]   subject to   z in W,  B z + d = s

with s = 0 where the balance is hard; or s is the load shedding at constant power factor, 0 <= s <=
d, at a price of 1 per unit of active power. Flows stay variables: eliminating them saves time in
thousands of small solves, but a large solve more often ends as solved with them
(docs/decisions/0008-cost-objective.md has figures on PGLib-OPF).

It is solved in variables and rows of order one. With gamma about |V_i - V_j| of a pair at its rated
flow (|z| times rate, within bounds),

    wr = (w_i + w_j)/2 - gamma^2 u / 2,   wi = gamma v,   flows over their rates,

so u and v are not differences of nearly equal numbers. With m = (w_i + w_j)/2 the
cone wr^2 + wi^2 <= w_i w_j becomes, exactly (square both sides),

    ||(m - (1 + gamma^2/4) u, (w_i - w_j)/gamma, 2 v)|| <= m + (1 - gamma^2/4) u.

A short pair joins its ends by an impedance so small (couplers, jumpers) that the voltages differ by
less than the solver's resolution, though their difference determines the flow. Its wi and w_i - w_j
are variables of order one too: gamma is its own |z| times rate, and along a forest of short pairs
the voltages are those of a root and differences gamma d,

    w_j = w_i / |tau|^2 - gamma d,
    wr + j wi = tau ((w_i / |tau|^2 + w_j)/2 - gamma^2 u / 2 + j gamma v),

with the complex ratio tau = V_i / V_j of its transformer without load (1 of a line).

Linear rows are scaled to a largest coefficient of 1, thermal limits to 1. It takes a third of the
iterations (docs/decisions/0008-cost-objective.md). Factors on the objective and looser tolerances
are tried in turn until one ends as solved.

The status "Solved" is not enough on a large grid: Clarabel's tolerance is relative to all variables
together, and a thermal limit violated by 3e-4 p.u. changed the bound of case1888_rte by 0.08 %.
So every solution carries an estimate of its value's error, and is accepted up to 1e-4:

    |y|'|A x + slack - b| + |x|'|P x + q + A'y|   over the value,

the residuals of the rows weighted by their dual y, plus the rest of the gradient weighted by x. A
wrong dual would give too small an estimate, so residuals of the balance and of Ohm's law are also
limited by themselves, in p.u. of power.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import clarabel
import numpy as np
from scipy import sparse

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import SolverError
from gridpriv.power.program import Columns, Matrix, Rows, ZoneProgram, cone_rows, stacked, term_rows
from gridpriv.power.solvers.clarabel import conic_rows
from gridpriv.power.zone import FLOWS, Zone


@dataclass(frozen=True)
class Scaling:
    """A factor on the objective, and Clarabel's settings.

    ``feasibility`` and ``gap`` are Clarabel's tolerances, relative to the size of all variables
    together and to the objective.
    """

    objective: float
    equilibrate: bool = False
    feasibility: float = 1e-8
    gap: float = 1e-8


SCALINGS = (
    *map(Scaling, (1.0, 10.0, 100.0, 1e4)),
    Scaling(1.0, equilibrate=True),
    Scaling(10.0, feasibility=1e-7, gap=1e-6),
    Scaling(0.1, equilibrate=True, feasibility=1e-7, gap=1e-6),
)
LARGEST_RATE = 10.0
"""p.u.: flows are not scaled up beyond it."""
SMALLEST_SPREAD, LARGEST_SPREAD = 1e-2, 0.5
SHORT = 1e-5
"""p.u.: |V_i - V_j| at the rated flow of a pair, below which it is a short pair."""
LARGEST_RESIDUAL = 1e-4
"""p.u.: largest residual of the power balance or Ohm's law."""
SMALL_BASE = 0.1
"""MVA: below it transmission grids have admittances and flows that solvers cannot scale."""
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
        Derivative of the objective by each entry of d.
    value : float
        Objective, without the cost's constant.
    error : float
        Estimate of the value's error, relative to it (absolute below a value of 1).
    largest_residual : float
        Largest residual of the balance or Ohm's law, p.u.; NaN where it was not computed.
    status : str
        ``Solved``; ``AlmostSolved`` (error of at most 1e-3) where no scaling gives a better result;
        ``Infeasible`` where the balance has no solution.
    """

    z: Floats
    imbalance: Floats
    price: Floats
    value: float
    error: float
    largest_residual: float
    status: str

    def within(self, error: float) -> bool:
        """Return True where the value's error is at most this, and balance and Ohm's law hold."""
        return self.error <= error and self.largest_residual <= LARGEST_RESIDUAL


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
    """No slack: the balance is hard."""
    rows, none = program.imbalance.shape[0], np.zeros(0)
    return Slack(Matrix((rows, 0)), none, none, None)


def squared_imbalance(program: ZoneProgram) -> Slack:
    """Any imbalance is allowed, at M times its square."""
    rows = program.imbalance.shape[0]
    eye = Matrix(sparse.eye_array(rows, format="csr"))
    return Slack(eye, np.full(rows, 2.0 * program.weight), np.zeros(rows), None)


def shed_demand(demand: Floats) -> Slack:
    """Demand may be shed at constant power factor, where active demand is positive."""
    p, q = np.split(demand, 2)
    loaded = np.flatnonzero(p > 0)
    at, none = np.arange(len(loaded)), np.zeros(len(loaded))
    entries = np.concatenate([p[loaded], q[loaded]])
    rows, shape = np.concatenate([loaded, loaded + len(p)]), (len(demand), len(loaded))
    columns = sparse.coo_array((entries, (rows, np.tile(at, 2))), shape=shape)
    return Slack(Matrix(columns), none, p[loaded], np.ones(len(loaded)))


def solve_conic(program: ZoneProgram, demand: Floats, slack: Slack) -> ConicSolution:
    """Solve a zone's problem for a demand.

    Parameters
    ----------
    program : ZoneProgram
    demand : (2 b,)
        (pd, qd) of own buses.
    slack : Slack
        Slack of the balance, and its price.

    Raises
    ------
    SolverError
        If no scaling ends as solved or infeasible; the last status is named.
    """
    form = _Form(program, demand, slack)
    best: ConicSolution | None = None
    status = ""
    for scaling in SCALINGS:
        result = form.solve(scaling)
        status = str(result.status)
        if status not in ("Solved", "AlmostSolved", *INFEASIBLE):
            continue
        solution = form.solution(result, scaling)
        if status in INFEASIBLE or (status == "Solved" and solution.within(GOOD_ERROR)):
            return solution
        if best is None or solution.within(best.error):
            best = solution
    if best is not None and best.within(MOST_ERROR):
        return replace(best, status="AlmostSolved")
    tried = f"clarabel ended {status} after {len(SCALINGS)} scalings were tried"
    if best is not None and best.largest_residual > LARGEST_RESIDUAL:
        base = program.zone.network.case.base_mva
        advice = f"state a larger baseMVA than {base:g}, or " if base < SMALL_BASE else ""
        tried += (
            f"; the power balance or Ohm's law misses {best.largest_residual:.2g} p.u., for "
            f"{LARGEST_RESIDUAL:g} allowed: {advice}join the ends of branches of negligible "
            "impedance"
        )
    elif best is not None:
        tried += (
            f"; the best point may be {best.error:.2g} off, relatively, for {MOST_ERROR:g} allowed"
        )
    raise SolverError(tried)


class _Form:
    """1/2 x'Px + q'x, A x + slack = b in the cones, with (z, s) = expand x.

    ``row_scale`` multiplied the first rows, those of the balance and of Ohm's law.
    """

    def __init__(self, program: ZoneProgram, demand: Floats, slack: Slack) -> None:
        inside, limits, cones = conic_rows(program)
        missing, zone, at = len(slack.linear), program.zone, Columns(program.zone)
        products = 4 * len(zone.pairs)  # rows of the voltage products' cones, the last
        n_scaled = len(limits) - products
        pairs = _Pairs(zone, at)
        voltages = pairs.voltages(program.size)
        variables = _variables(program, at, pairs) @ voltages
        expand = Matrix(sparse.block_diag([variables, sparse.eye_array(missing)]))
        self.program, self.demand, self.expand = program, demand, expand
        rows = sparse.vstack([program.imbalance, program.a_eq, inside[:n_scaled]])
        shortage = sparse.vstack(
            [-slack.columns, Matrix((rows.shape[0] - len(demand), missing))], format="csr"
        )
        rows = Matrix(sparse.hstack([rows, shortage], format="csr") @ expand)
        offset = np.concatenate([-demand, program.b_eq, limits[:n_scaled]])
        largest = abs(rows).max(axis=1).toarray().ravel()
        scale = 1.0 / np.where(
            largest >= SHORT, largest, 1.0
        )  # keeps a bound on wi of a short pair
        thermal = program.cone_sizes[: len(program.cone_sizes) - len(zone.pairs)]
        if len(thermal):  # one scale for all rows of a limit
            heads = len(scale) - int(thermal.sum()) + np.cumsum(thermal) - thermal
            scale[heads[0] :] = np.repeat(1.0 / offset[heads], thermal)
        cone, _ = stacked([_products(at, pairs)], at.size)
        blocks = [
            Matrix(sparse.diags_array(scale) @ rows),
            sparse.hstack([-cone @ voltages, Matrix((products, missing))]),
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
        self.quadratic = Matrix(expand.T @ sparse.diags_array(square) @ expand)
        self.linear = expand.T @ np.concatenate([program.cost_linear, slack.linear])
        self.rows = Matrix(sparse.vstack(blocks, format="csr"))
        self.offset, self.cones = np.concatenate(offsets), cones
        self.row_scale = scale[: len(demand) + len(program.b_eq)]

    def solve(self, scaling: Scaling) -> Any:
        """Return Clarabel's result."""
        factor = scaling.objective
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.max_threads = 1
        settings.max_iter = MOST_ITERATIONS
        settings.equilibrate_enable = scaling.equilibrate
        settings.tol_feas = scaling.feasibility
        settings.tol_gap_rel = settings.tol_gap_abs = scaling.gap
        objective = sparse.csc_matrix(factor * self.quadratic), factor * self.linear
        limits = sparse.csc_matrix(self.rows), self.offset, self.cones
        return clarabel.DefaultSolver(*objective, *limits, settings).solve()

    def solution(self, result: Any, scaling: Scaling) -> ConicSolution:
        """Undo the scaling. The dual y of the row Bz = -d is the derivative of the value by d."""
        x, y, scale = np.asarray(result.x), np.asarray(result.z) / scaling.objective, self.row_scale
        residual = self.rows @ x + np.asarray(result.s) - self.offset
        gradient = self.quadratic @ x + self.linear + self.rows.T @ y
        value = float(result.obj_val) / scaling.objective
        error = float(np.abs(y) @ np.abs(residual) + np.abs(x) @ np.abs(gradient))
        z = (self.expand @ x)[: self.program.size]
        return ConicSolution(
            z=z,
            imbalance=np.asarray(self.program.imbalance @ z + self.demand),
            price=(scale * y[: len(scale)])[: len(self.demand)],
            value=value,
            error=error / max(abs(value), 1.0),
            largest_residual=float(np.abs(residual[: len(scale)] / scale).max()),
            status="Infeasible" if str(result.status) in INFEASIBLE else "Solved",
        )


def _rates(zone: Zone) -> Floats:
    """Return the rate of every branch of a zone as a scale, p.u.; 1 where there is none.

    A rate far above all flows is no scale: many files have 9900 MVA or more for "no limit", and
    flows in that unit would be nearly zero.
    """
    rate = zone.network.case.rate[zone.branches]
    limited = (rate > 0.0) & np.isfinite(rate)
    return np.asarray(np.where(limited, np.minimum(rate, LARGEST_RATE), 1.0))


class _Pairs:
    """Voltage scale of a zone's pairs (i, j).

    Attributes
    ----------
    i, j : (P,) int
        Columns of w at both ends.
    spread : (P,)
        gamma.
    ratio : (P,) complex
        tau of short pairs, 1 of others.
    """

    def __init__(self, zone: Zone, at: Columns) -> None:
        # the weakest branch of a pair sets its gamma
        network, case, k = zone.network, zone.network.case, zone.branches
        across = np.hypot(case.r[k], case.x[k]) * _rates(zone)
        weakest_last = np.argsort(-across, kind="stable")
        pair = np.searchsorted(zone.pairs, network.pair_of[k])[weakest_last]
        spread, ratio = np.full(len(zone.pairs), np.inf), np.ones(len(zone.pairs), complex)
        spread[pair] = across[weakest_last]
        no_load = case.tap[k] * np.exp(1j * case.shift[k])
        ratio[pair] = np.where(network.forward[k], no_load, 1.0 / no_load)[weakest_last]
        passive = np.ones(len(spread), bool)
        passive[pair] = (case.r[k] >= 0.0)[weakest_last]
        short = passive & (spread < SHORT)  # a source of power, r < 0, is bounded by |V_i - V_j|
        self.i, self.j = (at("w", ends[zone.pairs]) for ends in (network.pair_i, network.pair_j))
        self.spread = np.where(short, spread, np.clip(spread, SMALLEST_SPREAD, LARGEST_SPREAD))
        self.ratio = np.where(short, ratio, 1.0)

    @cached_property
    def square(self) -> Floats:
        """|tau|^2 of every pair."""
        return np.asarray(np.abs(self.ratio) ** 2)

    def voltages(self, size: int) -> Matrix:
        """Return T of w = T x, shape (size, size), with d in place of w at ends of short pairs."""
        scale, parent = np.ones(size), sparse.lil_array((size, size))
        for pair, here, there in self._forest():
            up, square = there == self.i[pair], self.square[pair]
            scale[there] = square * self.spread[pair] if up else -self.spread[pair]
            parent[there, here] = square if up else 1.0 / square
        step, level = Matrix(parent), Matrix(sparse.diags_array(scale))
        voltages = level
        while level.nnz:
            level = Matrix(step @ level)
            voltages = Matrix(voltages + level)
        return voltages

    def _forest(self) -> Iterator[tuple[int, int, int]]:
        """Yield (pair, from, to) of a spanning forest of the short pairs, of least gamma."""
        short = np.flatnonzero(self.spread < SHORT)
        if not len(short):
            return
        import networkx as nx  # slow to import

        graph, reached = nx.Graph(), set()
        rank = np.argsort(np.argsort(self.spread, kind="stable"))
        for pair in short.tolist():
            graph.add_edge(int(self.i[pair]), int(self.j[pair]), weight=int(rank[pair]), pair=pair)
        tree = nx.minimum_spanning_tree(graph)
        for root in graph:
            if root not in reached:
                for here, there in nx.bfs_edges(tree, root):
                    yield tree[here][there]["pair"], here, there
                    reached.add(there)


def _variables(program: ZoneProgram, at: Columns, pairs: _Pairs) -> Matrix:
    """Return S of z = S x: shape (n, n)."""
    wr, wi, tau, gamma = at.all("wr"), at.all("wi"), pairs.ratio, pairs.spread
    scale = np.ones(program.size)
    scale[wr], scale[wi] = -0.5 * tau.real * gamma**2, tau.real * gamma
    for family in FLOWS:
        scale[at.all(family)] = _rates(program.zone)
    every = np.arange(program.size)
    entries = [
        (every, every, scale),
        (wr, pairs.i, 0.5 * tau.real / pairs.square),
        (wr, pairs.j, 0.5 * tau.real),
        (wr, wi, -tau.imag * gamma),
        (wi, pairs.i, 0.5 * tau.imag / pairs.square),
        (wi, pairs.j, 0.5 * tau.imag),
        (wi, wr, -0.5 * tau.imag * gamma**2),
    ]
    row, column, values = (np.concatenate(part) for part in zip(*entries, strict=True))
    nonzero = values != 0.0
    shape = (program.size, program.size)
    return Matrix((values[nonzero], (row[nonzero], column[nonzero])), shape=shape)


def _products(at: Columns, pairs: _Pairs) -> Rows:
    """Return the cone of every pair's voltage products, of x with w in place of d."""
    u, v = at.all("wr"), at.all("wi")
    ones, zero = np.ones(len(u)), np.zeros(len(u))
    half, quarter = 0.5 * ones, 0.25 * pairs.spread**2
    own, steep = 1.0 / pairs.square, 1.0 / pairs.spread
    return cone_rows(
        term_rows(zero, (pairs.i, half * own), (pairs.j, half), (u, 1.0 - quarter)),
        term_rows(zero, (pairs.i, half * own), (pairs.j, half), (u, -1.0 - quarter)),
        term_rows(zero, (pairs.i, steep * own), (pairs.j, -steep), (u, zero)),
        term_rows(zero, (v, ones), (v, ones), (u, zero)),
    )

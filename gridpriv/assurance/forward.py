"""Forward model of a zone's messages, its derivatives, and the inversion of optimality conditions.

**Forward model.** The adversary knows everything but the demand: the feasible set, B, the settings,
and what the network sent. The duals follow from messages. So each solution can be computed, and its
derivatives by demand and by noise.

Derivative of a local update. Its reduced program is  min 1/2 x'Px + q'x,  Ax + s = b,  s in K.
On the central path at the solver's last barrier, s = -mu grad F*(y) for the dual y, whose
derivative is ds = -H dy with H the Nesterov-Todd scaling matrix (H y = s): s/y for a linear
row, eta^2 (2 u u' - J) for a second-order cone. With P dx + A'dy = -dq and A dx + ds = 0:

    [ P   A' ] [ dx ]   [ -dq ]
    [ A  -H  ] [ dy ] = [  0  ]

a quasi-definite system, also where constraints are nearly active (the path is smooth there).
With z = T x + t0, a change g of the gradient gives dz = T dx, dq = T'g.

**Stationarity inversion.** Under consensus ``all`` every variable crosses the network, so the
minimizer z of an update and the iterate before it are known. With z = T x + t0, A x + s = b, s in
K, optimality is

    T'(g + 2 M B'd) + A'y = 0,    y in K*, orthogonal to s

with g the known part of the gradient. y is zero where a constraint is slack, and lies along one
known direction where it is active (for a cone: s mirrored). Projected off these directions N, this
is linear in d and in the noise xi on the gradient:

    (I - N N^+) T' (2 M B'd + xi) = -(I - N N^+) T'g.

No program is solved and nothing is linearized. Demand in the null space of the projection stays
hidden in that round: at buses where everything is at a limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import clarabel
import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import splu

from gridpriv.assurance.adversary import RecordedRound
from gridpriv.core.arrays import Floats
from gridpriv.core.errors import SolverError
from gridpriv.power.presolve import ReducedProgram
from gridpriv.power.problem import ZoneProblem
from gridpriv.power.solvers.clarabel import SAFER, ClarabelSolver, conic_rows
from gridpriv.zonal.prepared import Prepared

FLOOR = 1e-14  # of slacks and duals, so that the scaling stays finite


@dataclass(frozen=True, eq=False)
class SolvedUpdate:
    """A local update's minimizer and the factors of its derivative."""

    z: Floats
    factor: Any
    program: ReducedProgram

    def response(self, directions: Floats) -> Floats:
        """Return dz for changes of the linear term, shape (n, k) -> (n, k)."""
        size = self.program.size
        rhs = np.zeros((self.factor.shape[0], directions.shape[1]))
        rhs[:size] = -(self.program.expand.T @ directions)
        return np.asarray(self.program.expand @ self.factor.solve(rhs)[:size])


class DifferentiableSolver(ClarabelSolver):
    """Clarabel on a zone's reduced program, with the derivative of its minimizer."""

    def __init__(self, program: ReducedProgram, *, exact: bool) -> None:
        super().__init__(program, exact=exact)
        self._linear = self._rows.shape[0] - int(program.cone_sizes.sum())
        self._blocks = _cone_pattern(self._linear, program.cone_sizes)

    def solve(self, linear: Floats, metric: Floats) -> SolvedUpdate:
        """Return the minimizer for a linear term on z and a diagonal quadratic."""
        program = self._program
        p = program.quadratic(metric, exact=self._exact)
        q = program.linear(linear, metric, exact=self._exact)
        solution, scale = self._first(p, q, near=False).solve(), 1.0
        for scale_next, settings in SAFER:
            if solution.status == clarabel.SolverStatus.Solved:
                break
            scale = scale_next
            solution = self._setup(scale * p, scale * q, settings).solve()
        if solution.status != clarabel.SolverStatus.Solved:
            raise SolverError(f"clarabel ended {solution.status} in the forward model")
        dual, slack = np.asarray(solution.z) / scale, np.asarray(solution.s)
        upper = program.upper_triangle(p)
        full = upper + sparse.triu(upper, 1).T
        system = sparse.block_array(
            [[full, self._rows.T], [self._rows, -self._scaling(slack, dual)]], format="csc"
        )
        return SolvedUpdate(program.restore(np.asarray(solution.x)), splu(system), program)

    def _scaling(self, slack: Floats, dual: Floats) -> Any:
        """Return H with H dual = slack, block by block."""
        cut = self._linear
        diagonal = np.maximum(slack[:cut], FLOOR) / np.maximum(dual[:cut], FLOOR)
        rows, columns, groups = self._blocks
        values = [diagonal]
        for heads, size in groups:
            entries = heads[:, None] + np.arange(size)
            values.append(_cone_scaling(slack[entries], dual[entries]).ravel())
        total = len(slack)
        return sparse.csc_matrix((np.concatenate(values), (rows, columns)), shape=(total, total))


def _cone_pattern(linear: int, sizes: NDArray[np.int64]) -> tuple[Any, Any, list[tuple[Any, int]]]:
    """Return rows and columns of the block-diagonal H, and the heads of equal-sized cones."""
    rows, columns = [np.arange(linear)], [np.arange(linear)]
    heads = linear + np.concatenate([[0], np.cumsum(sizes)])[:-1].astype(np.int64)
    groups = []
    for size in np.unique(sizes):
        heads_of_size = heads[sizes == size]
        entries = heads_of_size[:, None] + np.arange(size)
        rows.append(np.repeat(entries, size, axis=1).ravel())
        columns.append(np.tile(entries, (1, int(size))).ravel())
        groups.append((heads_of_size, int(size)))
    return np.concatenate(rows), np.concatenate(columns), groups


def _cone_scaling(slack: Floats, dual: Floats) -> Floats:
    """Return eta^2 (2 u u' - J) for second-order cones of one size, (k, size) -> (k, size, size).

    Nesterov-Todd scaling (Vandenberghe 2010, CVXOPT's coneprog, section 4).
    """
    s_norm, y_norm = _hyperbolic(slack), _hyperbolic(dual)
    s, y = slack / s_norm[:, None], dual / y_norm[:, None]
    mirrored = y.copy()
    mirrored[:, 1:] *= -1.0
    gamma = np.sqrt(np.maximum((1.0 + (s * y).sum(axis=1)) / 2.0, 0.5))
    u = (s + mirrored) / (2.0 * gamma[:, None])
    mirror = np.diag(np.concatenate([[1.0], -np.ones(slack.shape[1] - 1)]))
    block = 2.0 * u[:, :, None] * u[:, None, :] - mirror
    return np.asarray(block * (s_norm / y_norm)[:, None, None])


def _hyperbolic(x: Floats) -> Floats:
    """Return sqrt(x0^2 - ||x1||^2), away from zero."""
    square = x[:, 0] ** 2 - (x[:, 1:] ** 2).sum(axis=1)
    return np.asarray(np.sqrt(np.maximum(square, FLOOR)))


@dataclass(frozen=True, eq=False)
class Predicted:
    """Predicted messages of a demand.

    Attributes
    ----------
    sent : (R, m)
    by_demand : (R, m, 2 |N_z|)
        Derivative of each round's message by the demand.
    by_gradient : (R, m, n) or None
        Derivative by that round's gradient noise.
    """

    sent: Floats
    by_demand: Floats
    by_gradient: Floats | None


class ForwardModel:
    """Predicts a zone's messages from a demand, round by round.

    Parameters
    ----------
    shared : (n,) bool
    script : sequence of RecordedRound
        The recorded rounds.
    exact : bool
        True for the exact local update.
    proxy : (2 |N_z|,), optional
        Public estimate of the demand, where the script has a warm start.
    """

    def __init__(
        self,
        problem: ZoneProblem,
        shared: NDArray[np.bool_],
        script: Sequence[RecordedRound],
        *,
        exact: bool,
        local_updates: int,
        proxy: Floats | None = None,
    ) -> None:
        self.problem = problem
        self.shared = shared
        self.last = problem.start()
        self.script: Sequence[RecordedRound] = [
            record for record in script if not record.warm_start
        ]
        self._warm_start = [record for record in script if record.warm_start]
        self._proxy = proxy
        self.exact = exact
        # an exact update has no start, so its E repetitions without noise are equal
        self.updates = 1 if exact else local_updates

    @cached_property
    def observed(self) -> Floats:
        """Messages of the zone, (R, m)."""
        return np.array([record.sent for record in self.script])

    @cached_property
    def _solver(self) -> DifferentiableSolver:
        return DifferentiableSolver(self.problem.reduced, exact=self.exact)

    @cached_property
    def duals(self) -> list[Floats]:
        """The zone's dual before each round, from messages alone."""
        duals, dual = [], np.zeros(len(self.script[0].w))
        for record in self._warm_start:
            dual = dual + record.penalty * (record.w - record.sent)
        for record in self.script:
            duals.append(dual)
            dual = dual + record.penalty * (record.w - record.sent)
        return duals

    @cached_property
    def start(self) -> Floats:
        """The zone's iterate before the first private round; an exact update does not use it."""
        if not self._warm_start or self.exact or self._proxy is None:
            return self.problem.start()
        warm_started = ForwardModel(
            self.problem,
            self.shared,
            [replace(h, warm_start=False) for h in self._warm_start],
            exact=False,
            local_updates=self.updates,
        )
        warm_started.predict(self._proxy)
        return warm_started.last

    def predict(
        self, demand: Floats, rounds: int | None = None, *, gradients: bool = False
    ) -> Predicted:
        """Return the messages of a demand and their derivatives.

        Parameters
        ----------
        demand : (2 |N_z|,)
        rounds : int, optional
            Number of recorded rounds.
        gradients : bool
            Return derivatives by the gradient too (for noise on the gradient).
        """
        z = self.start
        z_by_demand = np.zeros((len(z), len(demand)))
        sent, by_demand, by_gradient = [], [], []
        for place, record in enumerate(self.script[:rounds]):
            rho, pull = np.zeros_like(z), np.zeros_like(z)
            rho[self.shared] = record.penalty
            pull[self.shared] = record.penalty * record.w + self.duals[place]
            total, total_by_demand = np.zeros_like(z), np.zeros_like(z_by_demand)
            for _ in range(self.updates):
                solved, z, z_by_demand = self._update(
                    z, z_by_demand, demand, pull, rho, record.step
                )
                total, total_by_demand = total + z, total_by_demand + z_by_demand
            sent.append(total[self.shared] / self.updates)
            by_demand.append(total_by_demand[self.shared] / self.updates)
            if gradients:
                chosen = np.zeros((len(z), int(self.shared.sum())))
                chosen[self.shared, np.arange(chosen.shape[1])] = 1.0
                by_gradient.append(solved.response(chosen).T)
            z, z_by_demand = self._with_observed(z, z_by_demand, record)
        self.last = z
        return Predicted(
            np.array(sent), np.array(by_demand), np.array(by_gradient) if gradients else None
        )

    def _update(
        self, z: Floats, z_by_demand: Floats, demand: Floats, pull: Floats, rho: Floats, step: float
    ) -> tuple[SolvedUpdate, Floats, Floats]:
        """(3.2), and its derivative by the demand given that of z."""
        program = self.problem.program
        if self.exact:
            linear = self.problem.gradient(np.zeros_like(z), demand) - pull
            changes = program.by_demand
            solved = self._solver.solve(linear, rho)
        else:
            linear = self.problem.gradient(z, demand) - pull - z / step
            changes = program.by_demand + program.hessian @ z_by_demand - z_by_demand / step
            solved = self._solver.solve(linear, rho + 1.0 / step)
        return solved, solved.z, solved.response(np.asarray(changes))

    def _with_observed(
        self, z: Floats, z_by_demand: Floats, record: RecordedRound
    ) -> tuple[Floats, Floats]:
        """Replace predicted by observed values, which include the noise of earlier rounds."""
        if self.updates > 1:
            return z, z_by_demand
        z, z_by_demand = z.copy(), z_by_demand.copy()
        z[self.shared] = record.sent
        z_by_demand[self.shared] = 0.0
        return z, z_by_demand


BINDS = 1e-4  # slack below which a constraint may be active (p.u.)


def sends_all_variables(prepared: Prepared) -> bool:
    """Return True if every variable is sent, so that optimality conditions can be inverted."""
    rules = prepared.rules
    all_sent = all(shared.all() for shared in prepared.shared)
    return all_sent and rules.local_updates == 1 and rules.perturbation.target != "output"


class StationarityModel:
    """The projected optimality conditions as a model that is linear in demand.

    Its ``observed`` (right sides) and ``predict`` (left sides) are those of
    :func:`gridpriv.assurance.inversion.fit`, divided by the round's largest quadratic coefficient,
    so they are in the units of z.

    Parameters
    ----------
    model : ForwardModel
        With one local update per round, whose variables are all sent.
    """

    def __init__(self, model: ForwardModel) -> None:
        if model.updates > 1 or not model.shared.all():
            raise ValueError("stationarity needs every variable of every local update")
        self.problem: ZoneProblem = model.problem
        self.script = model.script
        self._model = model

    @cached_property
    def observed(self) -> Floats:
        """Right side of every round, (R, r)."""
        return np.array([right for _, _, right in self._rounds])

    def predict(
        self, demand: Floats, rounds: int | None = None, *, gradients: bool = False
    ) -> Predicted:
        """Return the left sides at a demand, with the coefficients of d and xi."""
        chosen = self._rounds[:rounds]
        by_demand = np.array([factors for factors, _, _ in chosen])
        by_gradient = np.array([noise for _, noise, _ in chosen]) if gradients else None
        return Predicted(by_demand @ demand, by_demand, by_gradient)

    @cached_property
    def _rounds(self) -> list[tuple[Floats, Floats, Floats]]:
        before, result = self._model.start, []
        for record, dual in zip(self.script, self._model.duals, strict=True):
            result.append(
                self._round(record.sent, before, record.penalty, record.w, dual, record.step)
            )
            before = record.sent
        return result

    def _round(
        self, z: Floats, before: Floats, rho: Floats, w: Floats, dual: Floats, step: float
    ) -> tuple[Floats, Floats, Floats]:
        """Return the factors of d and of xi, and the right-hand side, of one round."""
        program = self.problem.program
        if self._model.exact:
            known, metric = program.hessian @ z, rho
        else:
            known, metric = program.hessian @ before - before / step, rho + 1.0 / step
        known = known + program.cost_linear - rho * w - dual + metric * z
        expand = self.problem.reduced.expand
        hidden, _ = np.linalg.qr(self._binding(z))
        scale = float(metric.max())

        def projected(rows: Floats) -> Floats:
            return np.asarray(rows - hidden @ (hidden.T @ rows)) / scale

        return (
            projected(expand.T @ program.by_demand),
            projected(expand.T.toarray()),
            -projected(expand.T @ known),
        )

    def _binding(self, z: Floats) -> Floats:
        """Return the directions A'y of the constraints that may be active at z, (r, active)."""
        reduced = self.problem.reduced
        rows, offset, _ = conic_rows(reduced)
        slack = offset - rows @ self._gram_factor.solve(reduced.expand.T @ (z - reduced.shift))
        linear = len(slack) - int(reduced.cone_sizes.sum())
        normals = [rows[np.flatnonzero(slack[:linear] < BINDS)].toarray()]
        head = linear
        for size in reduced.cone_sizes:
            s = slack[head : head + size]
            if s[0] - np.linalg.norm(s[1:]) < BINDS:
                mirrored = np.concatenate([s[:1], -s[1:]])
                normals.append((mirrored @ rows[head : head + size])[None])
            head += int(size)
        return np.asarray(np.vstack(normals).T)

    @cached_property
    def _gram_factor(self) -> sparse.linalg.SuperLU:
        """Factors of T'T, which turn z back into x."""
        expand = self.problem.reduced.expand
        return splu(sparse.csc_matrix(expand.T @ expand))

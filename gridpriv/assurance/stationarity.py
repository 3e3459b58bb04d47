r"""Stationarity inversion: demand from a round's optimality conditions, where z is all heard.

Under consensus ``all`` every variable crosses the network, so an update's minimiser z and the
iterate it started from are both known. With z = T x + t0, A x + s = b, s in K, optimality is

    T'(g + 2 M B'd) + A'y = 0,    y in K*, orthogonal to s

with g all that is known of the gradient. y is zero where a constraint is slack and lies along
one known direction where it binds (for a cone: s mirrored). Projected away from the directions
that bind, N, this is linear in d, and in the noise xi on the gradient:

    (I - N N^+) T' (2 M B'd + xi) = -(I - N N^+) T'g.

No solver runs and nothing is linearised. What the projection leaves no trace of is hidden in
that round: demand at buses around which everything is at a limit.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import splu

from gridpriv.assurance.forward import ForwardModel, Predicted
from gridpriv.core.arrays import Floats
from gridpriv.power.problem import ZoneProblem
from gridpriv.power.solvers.clarabel import conic_rows
from gridpriv.zonal.prepared import Prepared

BINDS = 1e-4  # slack below which a constraint may bind (p.u.)


def all_heard(prepared: Prepared) -> bool:
    """Test if the optimality conditions of an update hold at the observed messages."""
    rules = prepared.rules
    everything = all(shared.all() for shared in prepared.shared)
    return everything and rules.local_updates == 1 and rules.perturbation.target != "output"


class StationarityModel:
    """The projected optimality conditions as a model that is linear in demand.

    It has what :func:`gridpriv.assurance.inversion.fit` asks of a model: ``observed``, the right
    sides, and ``predict``, the left sides; all divided by the round's largest quadratic
    coefficient, so that they are in the units of z.

    Parameters
    ----------
    model : ForwardModel
        Of one local update a round, all of whose variables are heard.
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
        """Return the left sides at a demand, with what multiplies d and xi in them."""
        chosen = self._rounds[:rounds]
        by_demand = np.array([left for left, _, _ in chosen])
        by_gradient = np.array([noise for _, noise, _ in chosen]) if gradients else None
        return Predicted(by_demand @ demand, by_demand, by_gradient)

    @cached_property
    def _rounds(self) -> list[tuple[Floats, Floats, Floats]]:
        before, result = self._model.start, []
        for heard, dual in zip(self.script, self._model.duals, strict=True):
            result.append(self._round(heard.sent, before, heard.penalty, heard.w, dual, heard.step))
            before = heard.sent
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

        def seen(rows: Floats) -> Floats:
            return np.asarray(rows - hidden @ (hidden.T @ rows)) / scale

        return (
            seen(expand.T @ program.by_demand),
            seen(expand.T.toarray()),
            -seen(expand.T @ known),
        )

    def _binding(self, z: Floats) -> Floats:
        """Return the directions A'y of the constraints that may bind at z, (r, active)."""
        reduced = self.problem.reduced
        rows, offset, _ = conic_rows(reduced)
        slack = offset - rows @ self._squeeze.solve(reduced.expand.T @ (z - reduced.shift))
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
    def _squeeze(self) -> sparse.linalg.SuperLU:
        """Factors of T'T, which turn z back into x."""
        expand = self.problem.reduced.expand
        return splu(sparse.csc_matrix(expand.T @ expand))

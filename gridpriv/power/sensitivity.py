"""Sensitivities of a zone's releases, from public topology only, with derivations.

Adjacent data differ at one own bus i by (dp, dq) with |dp|, |dq| <= beta (dq or dp is zero where
``protects`` is p or q). With a_p, a_q the rows of B of bus i and e_p, e_q the unit vectors:

demand
    The data change by dp e_p + dq e_q: D1 = 2 beta, D2 = sqrt(2) beta, and beta in the norm `box`
    (beta in all of them for p or q alone).

objective (gradient 2 B'(Bz + d), and the linear term 2 B'd of the exact update)
    They change by g = 2 (dp a_p + dq a_q), whatever z. In each coordinate
    |g_k| <= 2 beta (|a_p,k| + |a_q,k|), so D1 = 2 beta max_i || |a_p| + |a_q| ||_1. The 2-norm is
    convex in (dp, dq), so it is largest at a corner: D2 = 2 beta max_i max_+- ||a_p +- a_q||_2.

output, linearized
    z minimizes <c, z> + 1/2 z'Qz over a convex W with Q = diag(metric), and c changes by g.
    Adding the two optimality conditions, <Q dz + g, dz> <= 0, that is
        ||dz + u||_Q <= ||u||_Q,   u = Q^{-1} g / 2:
    dz lies in a ball around -u. Over that ball, by the triangle inequality,
        ||dz||_2 <= ||u||_2 + ||u||_Q / sqrt(min Q),
        ||dz||_1 <= ||u||_1 + ||u||_Q sqrt(sum 1/Q_kk).
    The first is ||g||_{Q^-1}/sqrt(min Q) where Q is uniform; the second is about half of
    sqrt(n) times it. docs/decisions/0006-output-sensitivity.md has the proof at length.

output, exact
    f is not linearized, Q = 2 B'B + diag(rho) with rho on the shared coordinates y only, and
    only y is released. With e the change of d, g = 2 B'e and the condition above reads
        2 ||B dz||^2 + sum_y rho dy^2 <= -2 <B dz, e>  <=  2 ||B dz||^2 + ||e||^2 / 2,
    so sum_y rho dy^2 <= ||e||^2 / 2 and
        ||dy||_2 <= ||e||_2 / sqrt(2 min rho),  ||dy||_1 <= ||e||_2 sqrt(sum 1/(2 rho)).

objective ``cost``, f = C(pg)/c0 + M ||Bz + d||^2
    The cost does not depend on demand. The change of the gradient is M times as large. Where the
    cost is linearized, its own gradient is part of c and equal for adjacent data at equal z. Where
    it is not, its gradient is monotone: <grad C(z') - grad C(z), dz> >= 0 is added on the left of
    the last condition and may be dropped, with 2M for 2 and M||e||^2/2 on the right; so the output
    bounds of the exact update grow by sqrt(M).

Both output bounds D are those of exact minimizers. The error of a solver's point is proven for each
solve (gridpriv/power/solvers/clarabel.py), and the distance of two points is at most D plus two
such errors. An agent draws noise for D + 2 E r and releases no point whose error in the norm of the
metric may exceed E. E is SOLVER_ERROR, at least D/20r and at most D/2r, with r the largest length
of a vector whose norm in the metric is 1: errors add 10 to 100 % to D.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from gridpriv.consensus.schedules import Update
from gridpriv.core.arrays import Floats
from gridpriv.power.program import Matrix, ZoneProgram
from gridpriv.privacy.adjacency import DemandAdjacency
from gridpriv.privacy.sensitivity import Norm, Sensitivity, length, reach

SOLVER_ERROR = 5e-4
"""Error of a minimizer in the norm of the metric, proven for each (docs/decisions/0006)."""


def demand_sensitivity(adjacency: DemandAdjacency, norm: Norm) -> Sensitivity:
    """Return the sensitivity of a zone's demand."""
    entries = 2 if adjacency.protects == "p+q" else 1
    moved = np.zeros(2)
    moved[:entries] = adjacency.beta
    return Sensitivity(
        length(moved, norm), norm, f"{entries} demand entries of one bus move by beta each"
    )


def gradient_sensitivity(
    program: ZoneProgram, adjacency: DemandAdjacency, norm: Norm
) -> Sensitivity:
    """Return the sensitivity of the gradient of the squared imbalance."""
    rows = _changes(program.imbalance, adjacency, norm)
    lengths = _row_norms(rows, norm)
    worst = int(np.argmax(lengths))
    bus = _bus(program, worst)
    row = {"p+q": "|a_p|+|a_q|" if norm == 1 else "a_p+-a_q", "p": "a_p", "q": "a_q"}
    weight = "" if program.weight == 1.0 else f"{program.weight:g} * "
    return Sensitivity(
        2.0 * program.weight * adjacency.beta * float(lengths[worst]),
        norm,
        f"{weight}2 beta ||{row[adjacency.protects]}||_{norm} = "
        f"{weight}2 beta {lengths[worst]:.6g} at bus {bus}",
    )


def output_sensitivity(
    program: ZoneProgram, adjacency: DemandAdjacency, norm: Norm, update: Update, metric: Floats
) -> Sensitivity:
    """Return the sensitivity of the minimizer; ``metric``: the local quadratic's diagonal."""
    if update == "exact":
        return _exact_output(adjacency, norm, metric[metric > 0], program.weight)
    size, square = _corner_gradients(program, adjacency)
    radius = np.sqrt(np.asarray(square @ (0.25 / metric)))  # ||Q^{-1}g/2||_Q
    half = size @ (0.5 / metric) if norm == 1 else np.sqrt(square @ (0.25 / metric**2))
    bounds = np.asarray(half) + radius * reach(metric, norm)
    worst = int(np.argmax(bounds))
    return Sensitivity(
        float(bounds[worst]),
        norm,
        f"bound on the change of the local minimizer (smallest diagonal entry of the update's "
        f"quadratic term: {metric.min():.6g}), largest at bus {_bus(program, worst)}",
    )


@lru_cache(maxsize=4096)
def _corner_gradients(program: ZoneProgram, adjacency: DemandAdjacency) -> tuple[Matrix, Matrix]:
    """Return |g| and g^2, entry by entry, of the gradient's change at every corner."""
    gradients = 2.0 * program.weight * adjacency.beta * _corner_rows(program.imbalance, adjacency)
    return Matrix(abs(gradients)), Matrix(gradients.multiply(gradients))


def _exact_output(
    adjacency: DemandAdjacency, norm: Norm, rho: Floats, weight: float
) -> Sensitivity:
    change = float(np.sqrt(weight)) * demand_sensitivity(adjacency, 2).value
    return Sensitivity(
        change * reach(2.0 * rho, norm),
        norm,
        f"shared part of the exact minimizer at penalty of at least {rho.min():.6g}",
    )


def _changes(imbalance: Matrix, adjacency: DemandAdjacency, norm: Norm) -> Matrix:
    """Return the rows whose largest norm bounds a change of the gradient (over 2 beta)."""
    if norm == 2 or adjacency.protects != "p+q":
        return _corner_rows(imbalance, adjacency)
    active, reactive = _halves(imbalance)
    return Matrix(abs(active) + abs(reactive))


def _corner_rows(imbalance: Matrix, adjacency: DemandAdjacency) -> Matrix:
    """Return a_p, a_q, or both a_p + a_q and a_p - a_q, of every own bus, stacked."""
    from scipy import sparse

    active, reactive = _halves(imbalance)
    if adjacency.protects == "p":
        return active
    if adjacency.protects == "q":
        return reactive
    return Matrix(sparse.vstack([active + reactive, active - reactive], format="csr"))


def _halves(imbalance: Matrix) -> tuple[Matrix, Matrix]:
    own = imbalance.shape[0] // 2
    return imbalance[:own], imbalance[own:]


def _row_norms(rows: Matrix, norm: Norm) -> Floats:
    if norm == 1:
        return np.asarray(abs(rows).sum(axis=1), dtype=float).ravel()
    squares: Floats = np.asarray(rows.multiply(rows).sum(axis=1), dtype=float).ravel()
    return np.sqrt(squares)


def _bus(program: ZoneProgram, row: int) -> int:
    own = program.zone.own
    return int(program.zone.network.case.bus_id[own[row % len(own)]])

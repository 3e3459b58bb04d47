"""Admittances, DC power flow, islands, and parts of the inverse of a grid's matrix.

Branches are pi models with an ideal transformer at the from end. Islands are sets of buses that
branches connect; some have no generation.

Parts of the inverse at a few buses are computed from the factors.

In A = L D L' a column of L^-1 is nonzero only at its bus and the ancestors of that bus in the
elimination tree. These are a few hundred even in a grid of 70,000 buses, so a zone's part of A^-1 =
L'^-1 D^-1 L^-1 comes from a small dense triangle.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import solve_triangular
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import SuperLU, splu

from gridpriv.core.arrays import Bools, Complexes, Floats, Ints, sums_at
from gridpriv.grid.case import Case


@dataclass(frozen=True, eq=False)
class BranchAdmittance:
    """Two-port admittances of every branch, per unit: [i_f; i_t] = [ff ft; tf tt] [v_f; v_t]."""

    ff: Complexes
    ft: Complexes
    tf: Complexes
    tt: Complexes


def branch_admittance(case: Case) -> BranchAdmittance:
    """Return the two-port admittances of the branches (MATPOWER manual, equation 3.2).

    Returns
    -------
    BranchAdmittance
        Each entry of shape (m,).
    """
    series = 1.0 / (case.r + 1j * case.x)
    ratio = case.tap * np.exp(1j * case.shift)
    to_end: Complexes = series + 0.5j * case.b
    return BranchAdmittance(
        ff=to_end / case.tap**2,
        ft=-series / np.conj(ratio),
        tf=-series / ratio,
        tt=to_end,
    )


def laplacian(i: Ints, j: Ints, weight: Floats, n: int) -> sparse.csr_array:
    """Return the Laplacian (n, n) of a graph whose edges (i, j) have these weights."""
    rows, columns = np.concatenate([i, j, i, j]), np.concatenate([i, j, j, i])
    values = np.concatenate([weight, weight, -weight, -weight])
    return sparse.coo_array((values, (rows, columns)), shape=(n, n)).tocsr()


@dataclass(frozen=True, eq=False)
class DcPowerFlow:
    """The DC power flow of a grid (MATPOWER manual, section 4.3), factored once.

    Attributes
    ----------
    susceptance : (m,)
        Of the branches, p.u.
    turning : int array
        Buses that are not the reference of their island.
    factors : SuperLU or None
        Of the susceptances at these; None where there are none.
    """

    case: Case
    susceptance: Floats
    turning: Ints
    factors: SuperLU | None

    @staticmethod
    def of(case: Case, reference: Ints | None = None) -> DcPowerFlow:
        """Return the DC power flow of a grid.

        Parameters
        ----------
        reference : int array, optional
            A bus of every island, whose angle is 0; by default its first one.

        Raises
        ------
        RuntimeError
            Where reactances of both signs cancel.
        """
        if reference is None:
            reference = np.unique(islands(case), return_index=True)[1]
        susceptance = 1.0 / np.where(case.x != 0, case.x, np.abs(case.r)) / case.tap
        matrix = laplacian(case.f_bus, case.t_bus, susceptance, case.n_bus)
        turning = np.setdiff1d(np.arange(case.n_bus), reference)
        factors = splu(matrix[turning][:, turning].tocsc()) if len(turning) else None
        return DcPowerFlow(case, susceptance, turning, factors)

    def angles(self, injected: Floats) -> Floats:
        """Return the voltage angles (rad) of injections (n,) or (n, k), column by column."""
        angles = np.zeros(injected.shape)
        if self.factors is not None:
            angles[self.turning] = self.factors.solve(injected[self.turning])
        return angles

    def flows(self, injected: Floats) -> Floats:
        """Return the active branch flows of injections (n, k), column by column, p.u."""
        angles = self.angles(injected)
        change = angles[self.case.f_bus] - angles[self.case.t_bus]
        return np.asarray(self.susceptance[:, None] * change)


def branch_flows(case: Case, voltage: Complexes) -> tuple[Complexes, Complexes]:
    """Return the flow into every branch at its from end and at its to end (Ohm's law), p.u."""
    y, f, t = branch_admittance(case), voltage[case.f_bus], voltage[case.t_bus]
    return f * np.conj(y.ff * f + y.ft * t), t * np.conj(y.tf * f + y.tt * t)


def bus_admittance(case: Case) -> sparse.csr_array:
    """Return Y of the buses, shape (n, n): branches and shunts."""
    y, f, t, every = branch_admittance(case), case.f_bus, case.t_bus, np.arange(case.n_bus)
    rows, columns = np.concatenate([f, f, t, t, every]), np.concatenate([f, t, f, t, every])
    values = np.concatenate([y.ff, y.ft, y.tf, y.tt, case.gs + 1j * case.bs])
    return sparse.coo_array((values, (rows, columns)), shape=(case.n_bus, case.n_bus)).tocsr()


def no_load_angles(case: Case, reference: Ints) -> Floats:
    """Return the voltage angles (rad) of a grid without load, shape (n,).

    Phase shifts of transformers add up along branches; the rest around a loop is distributed by the
    DC power flow.

    Parameters
    ----------
    reference : int array
        A bus of every island, whose angle is 0.
    """
    if not case.shift.any():
        return np.zeros(case.n_bus)
    weight = 1.0 / np.abs(case.r + 1j * case.x)
    return nearest_angles((case.f_bus, case.t_bus), case.shift, weight, reference, case.n_bus)


def nearest_angles(
    ends: tuple[Ints, Ints], difference: Floats, weight: Floats, reference: Ints, n: int
) -> Floats:
    """Return the bus angles (n,) whose differences are nearest to given ones (least squares).

    Parameters
    ----------
    ends : (i, j)
        Buses of every difference, angle i less angle j.
    reference : int array
        A bus of every island, whose angle is 0.
    """
    angles, free = np.zeros(n), np.setdiff1d(np.arange(n), reference)
    driven = sums_at(ends[0], weight * difference, n) - sums_at(ends[1], weight * difference, n)
    if len(free):
        matrix = laplacian(*ends, weight, n)[free][:, free].tocsc()
        angles[free] = splu(matrix).solve(driven[free])
    return angles


@dataclass(frozen=True, eq=False)
class Factors:
    """L D L' of a symmetric matrix (n, n) that needs no pivots but its diagonal, as definite ones.

    Attributes
    ----------
    lu : SuperLU
    lower : sparse (n, n)
        L in the order of elimination, the row numbers of a column increasing.
    pivots : (n,)
        D.
    place : (n,) int
        Position of each bus in that order.
    parent : list of int
        Of every place in the elimination tree; n at a root.
    """

    lu: SuperLU
    lower: sparse.csc_array
    pivots: Floats
    place: Ints
    parent: list[int]

    @staticmethod
    def of(matrix: sparse.csc_array) -> Factors:
        """Return the factors of a matrix.

        Raises
        ------
        RuntimeError
            Where a pivot is 0.
        """
        n = matrix.shape[0]
        lu = splu(
            matrix,
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=0.0,
            options={"SymmetricMode": True},
        )
        if not np.array_equal(lu.perm_r, lu.perm_c):
            raise RuntimeError("a pivot on the diagonal is 0")
        lower = sparse.csc_array(lu.L)
        lower.sort_indices()
        below = np.minimum(lower.indptr[:-1] + 1, lower.nnz - 1)  # next to the diagonal
        parent = np.where(np.diff(lower.indptr) > 1, lower.indices[below], n)
        return Factors(lu, lower, lu.U.diagonal(), lu.perm_c, parent.tolist())

    def solve(self, right: Floats) -> Floats:
        """Return A^-1 right."""
        return np.asarray(self.lu.solve(right))

    def solve_at(self, buses: Ints, right: Floats) -> Floats:
        """Return the rows ``buses`` of A^-1 right, where right is 0 except in these rows.

        Parameters
        ----------
        buses : (k,) int
        right : (k, m)
            Its rows at the buses.
        """
        up = self._upwards(buses)
        at = np.searchsorted(up, self.place[buses])
        solved, unit = np.zeros((len(up), right.shape[1])), np.zeros((len(up), len(buses)))
        solved[at], unit[at, np.arange(len(buses))] = right, 1.0
        solution = solve_triangular(
            self._triangle(up),
            np.hstack([unit, solved]),
            lower=True,
            unit_diagonal=True,
            check_finite=False,
        )
        unit, solved = solution[:, : len(buses)], solution[:, len(buses) :]
        return np.asarray(unit.T @ (solved / self.pivots[up, None]))

    def _upwards(self, buses: Ints) -> Ints:
        """Return the places of buses and of all above them in the tree, in increasing order."""
        path: set[int] = set()
        for place in self.place[buses].tolist():
            while place < len(self.parent) and place not in path:
                path.add(place)
                place = self.parent[place]  # noqa: PLW2901
        return np.array(sorted(path))

    def _triangle(self, up: Ints) -> Floats:
        """Return L at these places, which include all rows of their columns."""
        first, count = self.lower.indptr[up], np.diff(self.lower.indptr)[up]
        column = np.repeat(np.arange(len(up)), count)
        entry = np.arange(len(column)) + np.repeat(first - np.cumsum(count) + count, count)
        row = np.empty(len(self.place), dtype=np.int64)
        row[up] = np.arange(len(up))
        triangle = np.zeros((len(up), len(up)))
        triangle[row[self.lower.indices[entry]], column] = self.lower.data[entry]
        return triangle


def islands(case: Case) -> Ints:
    """Return the number of the island of every bus; read-only."""
    return _joined(case.n_bus, np.stack([case.f_bus, case.t_bus]).astype(np.int64).tobytes())


@lru_cache(maxsize=64)
def _joined(n_bus: int, ends: bytes) -> Ints:
    """Return the islands of all cases whose branches have these ends, whatever their limits."""
    island = _components(n_bus, *np.frombuffer(ends, np.int64).reshape(2, -1))
    island.setflags(write=False)
    return island


def islands_by(case: Case, lines: Bools) -> Ints:
    """Return the number of the island of every bus, by some of the branches only."""
    return _components(case.n_bus, case.f_bus[lines], case.t_bus[lines])


def _components(n_bus: int, f_bus: Ints, t_bus: Ints) -> Ints:
    links = sparse.coo_array((np.ones(len(f_bus)), (f_bus, t_bus)), shape=(n_bus, n_bus))
    return np.asarray(connected_components(links, directed=False)[1], dtype=np.int64)


@lru_cache(maxsize=16)
def deenergized_buses(case: Case) -> Bools:
    """Return the buses of islands without generation, and stranded buses; read-only."""
    deenergized: Bools = without_generation(case) | stranded_buses(case)
    deenergized.setflags(write=False)
    return deenergized


def without_generation(case: Case) -> Bools:
    """Return the buses of islands without a generator of active power (public)."""
    island = islands(case)
    energized = np.zeros(island.max() + 1, bool)
    energized[island[case.gen_bus[case.pmax > 0]]] = True
    return np.asarray(~energized[island])


def stranded_buses(case: Case) -> Bools:
    """Return the buses without branches whose generators cannot balance them: they are off.

    Reactive output must be that of the shunt and of the served share of demand. A bus without
    demand cannot take active output. A bus with a storage stays energized: plans of several steps
    have its energy.
    """
    least, most, least_p = (
        np.bincount(case.gen_bus, limit, case.n_bus) for limit in (case.qmin, case.qmax, case.pmin)
    )
    shunt = -case.bs * np.stack([case.vmin, case.vmax]) ** 2
    balanced = least <= np.maximum(case.qd, 0.0) + shunt.max(axis=0)
    balanced &= most >= np.minimum(case.qd, 0.0) + shunt.min(axis=0)
    idle = (case.pd == 0) & (case.qd == 0) & (least_p > 0)
    branches = np.bincount(np.concatenate([case.f_bus, case.t_bus]), minlength=case.n_bus)
    storage = np.bincount(case.gen_bus, case.pmin < 0, case.n_bus) > 0
    return np.asarray((branches == 0) & ~storage & (idle | ~balanced))


def without_stranded(case: Case) -> Case:
    """Return the case without output of generators at stranded buses."""
    off = stranded_buses(case)[case.gen_bus]
    names = ("pmin", "pmax", "qmin", "qmax")
    limits: dict[str, Any] = {name: np.where(off, 0.0, getattr(case, name)) for name in names}
    return replace(case, **limits) if off.any() else case

"""Factors of a grid's matrix, of which a few buses' part of the inverse is found without the rest.

In A = L D L' a column of L^-1 is 0 but where its bus leads up the elimination tree: from a bus to
the first of those, eliminated after it, that it is joined to. These are few hundred even in a grid
of 70,000 buses, so what a zone needs of A^-1 = L'^-1 D^-1 L^-1 comes from a small dense triangle.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.linalg import solve_triangular
from scipy.sparse.linalg import SuperLU, splu

from gridpriv.core.arrays import Floats, Ints


@dataclass(frozen=True, eq=False)
class Factors:
    """L D L' of a symmetric matrix (n, n) that needs no pivots but its diagonal, as definite ones.

    Attributes
    ----------
    whole : SuperLU
    lower : sparse (n, n)
        L in the order of elimination, the row numbers of a column increasing.
    pivots : (n,)
        D.
    place : (n,) int
        Where in that order each bus stands.
    parent : list of int
        Of every place in the elimination tree; n at a root.
    """

    whole: SuperLU
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
        whole = splu(
            matrix,
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=0.0,
            options={"SymmetricMode": True},
        )
        if not np.array_equal(whole.perm_r, whole.perm_c):
            raise RuntimeError("a pivot on the diagonal is 0")
        lower = sparse.csc_array(whole.L)
        lower.sort_indices()
        below = np.minimum(lower.indptr[:-1] + 1, lower.nnz - 1)  # next to the diagonal
        parent = np.where(np.diff(lower.indptr) > 1, lower.indices[below], n)
        return Factors(whole, lower, whole.U.diagonal(), whole.perm_c, parent.tolist())

    def solve(self, right: Floats) -> Floats:
        """Return A^-1 right."""
        return np.asarray(self.whole.solve(right))

    def solve_at(self, buses: Ints, right: Floats) -> Floats:
        """Return the rows ``buses`` of A^-1 right, where right is 0 but in these rows.

        Parameters
        ----------
        buses : (k,) int
        right : (k, m)
            Its rows at the buses.
        """
        up = self._upwards(buses)
        at = np.searchsorted(up, self.place[buses])
        given, here = np.zeros((len(up), right.shape[1])), np.zeros((len(up), len(buses)))
        given[at], here[at, np.arange(len(buses))] = right, 1.0
        both = solve_triangular(
            self._triangle(up),
            np.hstack([here, given]),
            lower=True,
            unit_diagonal=True,
            check_finite=False,
        )
        here, given = both[:, : len(buses)], both[:, len(buses) :]
        return np.asarray(here.T @ (given / self.pivots[up, None]))

    def _upwards(self, buses: Ints) -> Ints:
        """Return the places of buses and of all above them in the tree, in increasing order."""
        path: set[int] = set()
        for place in self.place[buses].tolist():
            while place < len(self.parent) and place not in path:
                path.add(place)
                place = self.parent[place]  # noqa: PLW2901
        return np.array(sorted(path))

    def _triangle(self, up: Ints) -> Floats:
        """Return L at these places, which hold all rows of their columns."""
        first, count = self.lower.indptr[up], np.diff(self.lower.indptr)[up]
        column = np.repeat(np.arange(len(up)), count)
        entry = np.arange(len(column)) + np.repeat(first - np.cumsum(count) + count, count)
        row = np.empty(len(self.place), dtype=np.int64)
        row[up] = np.arange(len(up))
        triangle = np.zeros((len(up), len(up)))
        triangle[row[self.lower.indices[entry]], column] = self.lower.data[entry]
        return triangle

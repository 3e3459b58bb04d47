"""Products of second-order cones: their algebra and Nesterov-Todd scaling, for interior points.

A cone is { (t, u) : ||u|| <= t }; a half-line is one of a single row. With J = diag(1, -1, ..., -1)
and det v = v'Jv, the scaling W of interior s and z is the symmetric matrix with W z = W^-1 s:

    W = eta (a a' / (1 + w_0) - J),   W^-1 = (b b' / (1 + w_0) - J) / eta,   eta^4 = det s / det z,

where a = w + e, b = J w + e, and w, of det w = 1, is the scaling point of s and z over their
determinants' roots (Nesterov and Todd 1997; Vandenberghe 2010, *The CVXOPT linear and quadratic
cone program solvers*).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from gridpriv.core.arrays import Floats, Ints
from gridpriv.power.program import Matrix

ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Cones:
    """A product of cones, one below the other.

    Attributes
    ----------
    sizes : (k,) int
        Number of rows of each.
    """

    sizes: Ints

    @cached_property
    def head(self) -> Ints:
        """The first row of every cone."""
        return np.asarray(np.cumsum(self.sizes) - self.sizes, dtype=np.int64)

    @cached_property
    def block(self) -> Ints:
        """The cone of every row."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    @cached_property
    def unit(self) -> Floats:
        """The neutral element e: 1 in first rows, 0 below."""
        unit = np.zeros(len(self.block))
        unit[self.head] = 1.0
        return unit

    def dot(self, u: Floats, v: Floats) -> Floats:
        """Return u'v of every cone, shape (k,)."""
        return np.bincount(self.block, u * v, minlength=len(self.sizes)).astype(np.float64)

    def reflected(self, v: Floats) -> Floats:
        """Return J v."""
        return v * (2.0 * self.unit - 1.0)

    def depth(self, v: Floats) -> tuple[Floats, Floats]:
        """Return t - ||u|| and t + ||u|| of every cone: the eigenvalues of v."""
        t = v[self.head]
        radius = np.sqrt(self.dot(v * (1.0 - self.unit), v))
        return t - radius, t + radius

    def product(self, u: Floats, v: Floats) -> Floats:
        """Return the Jordan product of u and v."""
        result = u[self.head][self.block] * v + v[self.head][self.block] * u
        result[self.head] = self.dot(u, v)
        return result

    def quotient(self, v: Floats, u: Floats) -> Floats:
        """Return x whose Jordan product with u is v."""
        least, most = self.depth(u)
        first = self.dot(self.reflected(u), v) / (least * most)
        result = (v - first[self.block] * u) / u[self.head][self.block]
        result[self.head] = first
        return result

    def longest(self, v: Floats, change: Floats) -> float:
        """Return the largest step along ``change`` that keeps an interior v in the cones."""
        mirrored = self.reflected(change)
        square, mixed = self.dot(mirrored, change), self.dot(mirrored, v)
        least, most = self.depth(v)
        det = least * most
        under = mixed**2 - square * det  # 0 in half-lines, but for rounding
        root = np.sqrt(np.maximum(under, 0.0)) - mixed
        leaves = (under >= -ROUNDING * mixed**2) & (root > 0.0)
        return float((det[leaves] / root[leaves]).min(initial=np.inf))


@dataclass(frozen=True, eq=False)
class ConeScaling:
    """The scaling W of interior s and z.

    Attributes
    ----------
    point : (rows,)
        w; its det is 1.
    eta : (k,)
    """

    cones: Cones
    point: Floats
    eta: Floats

    @staticmethod
    def of(cones: Cones, s: Floats, z: Floats) -> ConeScaling:
        """Return the scaling of s and z."""
        root_s, root_z = (np.sqrt(np.multiply(*cones.depth(v))) for v in (s, z))
        s, z = s / root_s[cones.block], z / root_z[cones.block]
        norm = np.sqrt(2.0 * (1.0 + cones.dot(s, z)))[cones.block]
        return ConeScaling(cones, (s + cones.reflected(z)) / norm, np.sqrt(root_s / root_z))

    @staticmethod
    def identity(cones: Cones) -> ConeScaling:
        """Return W = I."""
        return ConeScaling(cones, cones.unit, np.ones(len(cones.sizes)))

    def times(self, v: Floats) -> Floats:
        """Return W v."""
        return self.eta[self.cones.block] * self._turned(self.point, v)

    def inverse_times(self, v: Floats) -> Floats:
        """Return W^-1 v."""
        return self._turned(self.cones.reflected(self.point), v) / self.eta[self.cones.block]

    def _turned(self, w: Floats, v: Floats) -> Floats:
        cones = self.cones
        whole = cones.dot(w, v)
        share = (whole + v[cones.head]) / (1.0 + w[cones.head])
        result = v + share[cones.block] * w
        result[cones.head] = whole
        return result

    def inverse(self) -> Matrix:
        """Return W^-1, shape (rows, rows)."""
        cones, rows = self.cones, np.arange(len(self.point))
        width = cones.sizes[cones.block]
        row = np.repeat(rows, width)
        first = np.repeat(cones.head[cones.block], width)
        column = first + np.arange(len(row)) - np.repeat(np.cumsum(width) - width, width)
        root = cones.reflected(self.point) + cones.unit
        values = root[row] * root[column] / root[first]
        values -= np.where(row == column, 2.0 * cones.unit[row] - 1.0, 0.0)
        values /= self.eta[cones.block[row]]
        return Matrix(sparse.csr_array((values, (row, column)), shape=(len(rows), len(rows))))

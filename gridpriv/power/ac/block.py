"""One block of an arrow-shaped interior-point method: a quadratic program with a border.

    minimize   sum over blocks of f_b(x_b, y)
    subject to lower_b <= g_b(x_b, y) <= upper_b,   low_b <= x_b <= high_b

Blocks have only the border y in common. Each barrier step solves the primal-dual Newton equations
of the whole program; a block eliminates its own variables and multipliers from its part of them,

    [K_b  B_b] [dx_b]     [r_b]            S_b = C_b - B_b' K_b^-1 B_b
    [B_b' C_b] [dy  ] = - [c_b]   so that  (sum S_b) dy = - sum (c_b - B_b' K_b^-1 r_b)

and returns only S_b and the reduced residual. The multipliers of some rows (balances of buses at
the border) belong to the border too: with fixed border voltages the block's own variables could not
satisfy all those rows, and K_b would be singular.

Slacks s of inequality rows and multipliers z of bounds are eliminated in place (Waechter and
Biegler 2006, section 3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import SuperLU, splu

from gridpriv.core.arrays import Bools, Floats, Ints, sums_at
from gridpriv.power.ac.quadratic import QuadraticForm

P = ParamSpec("P")
R = TypeVar("R")
PUSH = 1e-2
"""Least share of a range, and of 1 or the bound itself, between a start and a bound."""
PRIMAL_REGULARIZATION, DUAL_REGULARIZATION = 1e-9, 1e-9
"""Permanent proximal terms: they change the step, not the solution."""
MULTIPLIER_RANGE = 1e10
"""Factor by which z may differ from mu over the distance to its bound."""
LEAST_DISTANCE = float(np.finfo(float).eps)
"""Least distance to a bound, below which rounding would leave none."""


class Elimination(NamedTuple):
    """A block without its own variables: S_b (k, k) and the reduced residual (k,)."""

    matrix: Floats
    residual: Floats


class Direction(NamedTuple):
    """A block's share of a Newton step.

    Attributes
    ----------
    primal, dual : float
        Longest step lengths that keep a share 1 - tau of every distance to a bound.
    slope : float
        Derivative of the barrier objective along the step.
    curvature : float
        d'(W + Sigma) d.
    square : float
        d'd.
    """

    primal: float
    dual: float
    slope: float
    curvature: float
    square: float


class Merit(NamedTuple):
    """A block at a point: sums for the line search, and largest errors.

    Attributes
    ----------
    violation : float
        1-norm of the constraint residuals.
    barrier : float
        f - mu sum log(distances).
    primal, dual, complement, product : float
        Largest residual of a constraint; of the Lagrangian's gradient in the block's own
        variables; largest distance times multiplier, and its largest distance from mu.
    gradient : (k,)
        Of the Lagrangian in the border's voltages, 0 at its rows.
    multiplier_sum : float
        Of absolute multipliers.
    n_multiplier : int
    """

    violation: float
    barrier: float
    primal: float
    dual: float
    complement: float
    product: float
    gradient: Floats
    multiplier_sum: float
    n_multiplier: int


@dataclass(frozen=True, eq=False)
class BlockPoint:
    """Primal and dual variables of a block.

    Attributes
    ----------
    x : (n,)
        Variables, those of the border included.
    s : (i,)
        Slacks of the inequality rows.
    multiplier : (m,)
        Of the rows.
    z_low, z_high : (n + i,)
        Of the bounds of (x, s); 0 where there is none.
    """

    x: Floats
    s: Floats
    multiplier: Floats
    z_low: Floats
    z_high: Floats

    def stepped(self, step: BlockPoint, primal: float, dual: float) -> BlockPoint:
        """Return the point after a step."""
        return BlockPoint(
            self.x + primal * step.x,
            self.s + primal * step.s,
            self.multiplier + primal * step.multiplier,
            self.z_low + dual * step.z_low,
            self.z_high + dual * step.z_high,
        )


class Block:
    """A quadratic program as a block of an interior-point method.

    Parameters
    ----------
    form : QuadraticForm
        The program.
    border_columns : int array
        Variables in common with other blocks; their own bounds are not used.
    border_rows : int array
        Equality rows whose multipliers belong to the border.
    start : (n,)
    """

    def __init__(
        self, form: QuadraticForm, border_columns: Ints, border_rows: Ints, start: Floats
    ) -> None:
        self.form = form
        n, m = form.columns, form.rows
        self._inequality = np.flatnonzero(form.lower < form.upper)
        low = np.concatenate([form.low, form.lower[self._inequality]])
        high = np.concatenate([form.high, form.upper[self._inequality]])
        fixed = np.zeros(n + len(self._inequality), dtype=bool)
        fixed[:n] = form.low == form.high
        self._border = np.concatenate([border_columns, n + border_rows])
        shared = np.isin(np.arange(len(low)), border_columns)
        self._has_low = np.isfinite(low) & ~fixed & ~shared
        self._has_high = np.isfinite(high) & ~fixed & ~shared
        self._low, self._high = low, high
        self._own = np.setdiff1d(
            np.concatenate([np.flatnonzero(~fixed[:n]), np.arange(n, n + m)]), self._border
        )
        self._free = ~fixed[:n]
        self._pattern = _pattern(form)
        self.point = _first_point(form, start, (low, self._has_low), (high, self._has_high))

    def begin(self, mu: float) -> Merit:
        """Set the multipliers of bounds to mu over the distances; return sums and errors."""
        low, high = self._distances(self.point)
        self.point = replace(
            self.point,
            z_low=np.where(self._has_low, mu / low, 0.0),
            z_high=np.where(self._has_high, mu / high, 0.0),
        )
        return self.merit(mu)

    def _distances(self, at: BlockPoint) -> tuple[Floats, Floats]:
        u = np.concatenate([at.x, at.s])
        return (
            np.where(self._has_low, np.maximum(u - self._low, LEAST_DISTANCE), 1.0),
            np.where(self._has_high, np.maximum(self._high - u, LEAST_DISTANCE), 1.0),
        )

    def _residual(self, at: BlockPoint) -> Floats:
        """Return the constraint residuals, shape (m,)."""
        form = self.form
        c = form.values(at.x) - np.where(form.lower < form.upper, 0.0, form.lower)
        c[self._inequality] -= at.s
        return c

    def eliminate(self, mu: float, delta: float) -> Elimination | None:
        """Return the block's Schur complement; None where its own system is singular."""
        form, at = self.form, self.point
        n, k = form.columns, self._inequality
        low, high = self._distances(at)
        self._sigma = at.z_low / low + at.z_high / high
        push = np.where(self._has_low, mu / low, 0.0) - np.where(self._has_high, mu / high, 0.0)
        self._mu, self._push = mu, push
        self._gradient = form.gradient(at.x)
        lagrangian = self._gradient + form.adjoint(at.x, at.multiplier)
        self._rx = lagrangian - push[:n]
        self._rs = -at.multiplier[k] - push[n:]
        self._c = self._residual(at)
        sigma_s = self._sigma[n:] + delta + PRIMAL_REGULARIZATION
        diagonal = np.full(form.rows, -DUAL_REGULARIZATION)
        diagonal[k] = -1.0 / sigma_s
        row_residual = self._c.copy()
        row_residual[k] += self._rs / sigma_s
        self._sigma_s = sigma_s
        primal = self._sigma[:n] + delta + PRIMAL_REGULARIZATION
        inner, coupling, corner = self._parts(primal, diagonal)
        right = np.concatenate([self._rx, row_residual])
        try:
            self._factors: SuperLU = splu(inner)
        except RuntimeError:
            return None
        solved = self._factors.solve(np.column_stack([coupling, right[self._own]]))
        if not np.isfinite(solved).all():
            return None
        self._solved = solved
        return Elimination(
            corner - coupling.T @ solved[:, :-1], right[self._border] - coupling.T @ solved[:, -1]
        )

    def _parts(self, primal: Floats, dual: Floats) -> tuple[sparse.csc_array, Floats, Floats]:
        """Return the Newton matrix at the point: of own variables, with the border, of the border.

        Parameters
        ----------
        primal, dual : arrays
            Diagonals of variables and of rows.
        """
        form, at, (place, rows, starts) = self.form, self.point, self._pattern
        curved, slopes = form.factor * at.multiplier[form.row], form.slopes(at.x)
        terms = curved, curved, 2.0 * form.square + primal, slopes, slopes, dual
        values = sums_at(place, np.concatenate(terms), len(rows))
        size = form.columns + form.rows
        whole = sparse.csc_array((values, rows, starts), shape=(size, size))
        inner, border = whole[:, self._own][self._own], whole[:, self._border].toarray()
        inner.sort_indices()  # factors depend on their order
        return inner, border[self._own], border[self._border]

    def direction(self, border: Floats) -> Direction:
        """Return the block's share of the step for the border's step (k,)."""
        form, at, k = self.form, self.point, self._inequality
        n = form.columns
        step = np.zeros(n + form.rows)
        step[self._own] = -self._solved[:, -1] - self._solved[:, :-1] @ border
        step[self._border] = border
        dx, dual = step[:n], step[n:]
        ds = (dual[k] - self._rs) / self._sigma_s
        du = np.concatenate([dx, ds])
        low, high = self._distances(at)
        dz_low = np.where(self._has_low, (self._mu - at.z_low * du) / low - at.z_low, 0.0)
        dz_high = np.where(self._has_high, (self._mu + at.z_high * du) / high - at.z_high, 0.0)
        self._step = BlockPoint(dx, ds, dual, dz_low, dz_high)
        tau = max(0.99, 1.0 - self._mu)
        return Direction(
            min(_longest(low, du, self._has_low, tau), _longest(high, -du, self._has_high, tau)),
            min(
                _longest(at.z_low, dz_low, self._has_low, tau),
                _longest(at.z_high, dz_high, self._has_high, tau),
            ),
            float(self._gradient @ dx - self._push @ du),
            float(-self._rx @ dx - dual @ form.along(at.x, dx) - self._rs @ ds + dual[k] @ ds),
            float(du @ du),
        )

    def trial(self, primal: float, dual: float) -> Merit:
        """Return the block after a step of these lengths; the point does not change yet."""
        self._next = self.point.stepped(self._step, primal, dual)
        return self._merit(self._next, self._mu)

    def merit(self, mu: float) -> Merit:
        """Return the block's sums and errors at its point."""
        return self._merit(self.point, mu)

    def _merit(self, at: BlockPoint, mu: float) -> Merit:
        form, n = self.form, self.form.columns
        low, high = self._distances(at)
        c = self._residual(at)
        with np.errstate(invalid="ignore", divide="ignore"):
            logs = np.log(low[self._has_low]).sum() + np.log(high[self._has_high]).sum()
        lagrangian = form.gradient(at.x) + form.adjoint(at.x, at.multiplier)
        in_x = lagrangian - at.z_low[:n] + at.z_high[:n]
        in_s = -at.multiplier[self._inequality] - at.z_low[n:] + at.z_high[n:]
        products = np.concatenate(
            [(low * at.z_low)[self._has_low], (high * at.z_high)[self._has_high]]
        )
        inside = self._own[self._own < n]
        gradient = np.zeros(len(self._border))
        columns = self._border[self._border < n]
        gradient[: len(columns)] = lagrangian[columns]
        size = np.abs(at.multiplier).sum() + at.z_low.sum() + at.z_high.sum()
        return Merit(
            float(np.abs(c).sum()),
            float(form.objective(at.x) - mu * logs),
            float(np.abs(c).max(initial=0.0)),
            float(max(np.abs(in_x[inside]).max(initial=0.0), np.abs(in_s).max(initial=0.0))),
            float(products.max(initial=0.0)),
            float(np.abs(products - mu).max(initial=0.0)),
            gradient,
            float(size),
            form.rows + int(self._has_low.sum() + self._has_high.sum()),
        )

    def accept(self) -> None:
        """Set the point to the last trial's."""
        at = self._next
        low, high = self._distances(at)
        self.point = replace(
            at,
            z_low=_near(at.z_low, self._mu / low, self._has_low),
            z_high=_near(at.z_high, self._mu / high, self._has_high),
        )


class Blocks(Protocol):
    """Interface to all blocks of a program."""

    def call_all(
        self, method: Callable[Concatenate[Block, P], R], *arguments: P.args, **_: P.kwargs
    ) -> list[R]:
        """Return the results of a method of all blocks, in order."""

    def each(self, method: Callable[[Block, Floats], R], arguments: Sequence[Floats]) -> list[R]:
        """Return the blocks' results, each for its own array."""


@dataclass(frozen=True)
class LocalBlocks:
    """Blocks of an interior-point method in one process."""

    blocks: Sequence[Block]

    def call_all(
        self, method: Callable[Concatenate[Block, P], R], *arguments: P.args, **named: P.kwargs
    ) -> list[R]:
        """Return the results of a method of all blocks, in order."""
        return [method(block, *arguments, **named) for block in self.blocks]

    def each(self, method: Callable[[Block, Floats], R], arguments: Sequence[Floats]) -> list[R]:
        """Return the blocks' results, each for its own array."""
        return [method(block, part) for block, part in zip(self.blocks, arguments, strict=True)]


def _first_point(
    form: QuadraticForm, start: Floats, low: tuple[Floats, Bools], high: tuple[Floats, Bools]
) -> BlockPoint:
    """Return the point near ``start`` within the finite bounds of (x, s)."""
    x = np.where(form.low == form.high, form.low, start)
    u = np.concatenate([x, form.values(x)[form.lower < form.upper]])
    u = np.clip(u, _pushed(low[0], high[0], low[1], 1.0), _pushed(high[0], low[0], high[1], -1.0))
    multipliers = np.zeros(form.rows), low[1].astype(float), high[1].astype(float)
    return BlockPoint(u[: form.columns], u[form.columns :], *multipliers)


def _pushed(bound: Floats, other: Floats, bounded: Bools, inward: float) -> Floats:
    """Return the starting points nearest to a bound; infinite without one."""
    at = np.where(bounded, bound, 0.0)
    span = np.where(np.isfinite(other), np.abs(other - at), np.inf)
    inner = at + inward * PUSH * np.minimum(np.maximum(1.0, np.abs(at)), span)
    return np.where(bounded, inner, -inward * np.inf)


def _near(z: Floats, central: Floats, where: Bools) -> Floats:
    clipped = np.clip(z, central / MULTIPLIER_RANGE, central * MULTIPLIER_RANGE)
    return np.where(where, clipped, 0.0)


def _longest(distance: Floats, change: Floats, where: Bools, tau: float) -> float:
    """Return the longest step up to 1 that keeps a share 1 - tau of every distance."""
    falling = where & (change < 0)
    if not falling.any():
        return 1.0
    return float(min(1.0, (-tau * distance[falling] / change[falling]).min()))


def _pattern(form: QuadraticForm) -> tuple[Ints, Ints, Ints]:
    """Return the place of each of a program's Newton terms, and their rows and column starts.

    Terms come in a fixed order: the Hessian's, their mirror images, the diagonal of variables,
    the Jacobian's entries and their mirror images, the diagonal of rows.
    """
    n, size = form.columns, form.columns + form.rows
    i, j, (row, column) = form.i, form.j, form.places
    x, multiplier = np.arange(n), np.arange(n, size)
    rows = np.concatenate([i, j, x, n + row, column, multiplier])
    columns = np.concatenate([j, i, x, column, n + row, multiplier])
    key, place = np.unique(columns * np.int64(size) + rows, return_inverse=True)
    starts = np.searchsorted(key, size * np.arange(size + 1))
    return place.reshape(-1), key % max(size, 1), starts

"""An interior-point method for programs of blocks with a common border (arrow structure).

This is the coordinator's part. Blocks (:mod:`gridpriv.power.ac.block`) eliminate their own
variables; the coordinator adds up their Schur complements, solves for the border's step, and
chooses the barrier parameter and the step length from sums over blocks. In exact arithmetic the
iterates are those of the same method on the whole program, whatever the partition.

The method is the primal-dual barrier method of Waechter and Biegler (2006): monotone barrier
parameter, filter line search. In place of counting eigenvalues, the Hessian is regularized until
the step has positive curvature (Chiang and Zavala 2016).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import splu

from gridpriv.core.arrays import Floats, Ints, sums_at
from gridpriv.power.ac.block import Block, Blocks, Direction, Merit

FIRST_MU, LEAST_MU = 0.1, 1e-9
MU_FACTOR, MU_POWER, MU_ERROR = 0.2, 1.5, 10.0
"""mu falls to min(MU_FACTOR mu, mu^MU_POWER) once the error is below MU_ERROR mu."""
CURVATURE = 1e-8
FIRST_DELTA, LEAST_DELTA, LARGEST_DELTA = 1e-4, 1e-10, 1e8
GROWTH_FIRST, GROWTH, DECAY = 100.0, 8.0, 3.0
SCALE = 100.0
"""Mean multiplier above which dual errors are measured relative to it."""
HALVINGS = 8
"""Halvings of a step, before the full step is taken and the filter is cleared."""
GAMMA_VIOLATION, GAMMA_BARRIER, ARMIJO = 1e-5, 1e-5, 1e-4


@dataclass(frozen=True, eq=False)
class Border:
    """The border variables, and the positions of each block's among them.

    Attributes
    ----------
    size : int
    at : sequence of (k,) int
        Number of each of a block's border entries in the whole border.
    """

    size: int
    at: Sequence[Ints]

    def split(self, values: Floats) -> list[Floats]:
        """Return each block's part of values of the whole border."""
        return [values[at] for at in self.at]

    def added(self, parts: Sequence[Floats]) -> Floats:
        """Return the sum over blocks of parts of the border, shape (size,)."""
        return sums_at(np.concatenate(self.at), np.concatenate(parts), self.size)

    def matrix(self, parts: Sequence[Floats]) -> sparse.csc_array:
        """Return the sum over blocks of matrices (k, k)."""
        rows = np.concatenate([np.repeat(at, len(at)) for at in self.at])
        columns = np.concatenate([np.tile(at, len(at)) for at in self.at])
        values = np.concatenate([part.ravel() for part in parts])
        shape = (self.size, self.size)
        return sparse.coo_array((values, (rows, columns)), shape=shape).tocsc()


class Iteration(NamedTuple):
    """One iteration of the method; all of it is a function of the blocks' results.

    Attributes
    ----------
    number : int
    mu : float
    primal, dual, complement : float
        Largest constraint residual, Lagrangian gradient and complementarity.
    step : float
        Length of the primal step.
    delta : float
        Regularization of the Hessian.
    error : float
        The largest of the three, dual ones relative to the size of the multipliers.
    """

    number: int
    mu: float
    primal: float
    dual: float
    complement: float
    step: float
    delta: float
    error: float

    def converged(self, tolerance: float) -> bool:
        """Return True where the optimality conditions hold to a tolerance."""
        return self.error < tolerance


class _Sums(NamedTuple):
    violation: float
    barrier: float
    primal: float
    dual: float
    complement: float
    product: float
    scale: float

    @property
    def error(self) -> float:
        """Error of the barrier problem."""
        return max(self.primal, self.dual / self.scale, self.product / self.scale)

    @property
    def optimality(self) -> float:
        """Error of the program itself."""
        return max(self.primal, self.dual / self.scale, self.complement / self.scale)


def _sums(border: Border, merits: Sequence[Merit]) -> _Sums:
    shared = border.added([merit.gradient for merit in merits])
    count = max(sum(merit.n_multiplier for merit in merits), 1)
    mean = sum(merit.multiplier_sum for merit in merits) / count
    return _Sums(
        sum(merit.violation for merit in merits),
        sum(merit.barrier for merit in merits),
        max(merit.primal for merit in merits),
        max(*(merit.dual for merit in merits), float(np.abs(shared).max(initial=0.0))),
        max(merit.complement for merit in merits),
        max(merit.product for merit in merits),
        max(SCALE, mean) / SCALE,
    )


def iterate(
    blocks: Blocks, border: Border, most: int, tolerance: float, first_mu: float = FIRST_MU
) -> Iterator[Iteration]:
    """Run the method and yield every iteration.

    Parameters
    ----------
    most : int
        Largest number of iterations.
    tolerance : float
        Error of the optimality conditions at which it ends.

    Yields
    ------
    Iteration
        The last one's errors are below ``tolerance`` if the method converged.
    """
    mu, last_delta = first_mu, 0.0
    now = _sums(border, blocks.call_all(Block.begin, mu))
    filter_: list[tuple[float, float]] = []
    largest = 1e4 * max(1.0, now.violation)
    for number in range(1, most + 1):
        while now.error < MU_ERROR * mu and mu > LEAST_MU:
            mu = max(LEAST_MU, min(MU_FACTOR * mu, mu**MU_POWER))
            now = _sums(border, blocks.call_all(Block.merit, mu))
            filter_ = []
        step = _step(blocks, border, mu, last_delta)
        if step is None:
            return
        directions, delta = step
        last_delta = delta or last_delta
        primal = min(direction.primal for direction in directions)
        dual = min(direction.dual for direction in directions)
        slope = sum(direction.slope for direction in directions)
        now, length = _searched(blocks, border, now, filter_, (primal, dual, slope), largest)
        blocks.call_all(Block.accept)
        errors = now.primal, now.dual, now.complement
        yield Iteration(number, mu, *errors, length, delta, now.optimality)
        if now.optimality < tolerance:
            return


def _searched(
    blocks: Blocks,
    border: Border,
    now: _Sums,
    filter_: list[tuple[float, float]],
    step: tuple[float, float, float],
    largest: float,
) -> tuple[_Sums, float]:
    """Return the sums after the accepted trial step, and its length (Waechter and Biegler)."""
    primal, dual, slope = step
    length = primal
    small = 1e-4 * max(1.0, now.violation)
    for _ in range(HALVINGS):
        after = _sums(border, blocks.call_all(Block.trial, length, dual))
        ok = (
            np.isfinite(after.barrier)
            and after.violation <= largest
            and all(
                after.violation <= (1 - GAMMA_VIOLATION) * v
                or after.barrier <= b - GAMMA_BARRIER * v
                for v, b in filter_
            )
        )
        if ok:
            descent = slope < 0 and length * (-slope) ** 2.3 > now.violation**1.1
            if descent and now.violation <= small:
                slack = 1e-12 * abs(now.barrier)
                if after.barrier <= now.barrier + ARMIJO * length * slope + slack:
                    return after, length
            elif (
                after.violation <= (1 - GAMMA_VIOLATION) * now.violation
                or after.barrier <= now.barrier - GAMMA_BARRIER * now.violation
                or now.violation < 1e-12
            ):
                filter_.append((now.violation, now.barrier))
                return after, length
        length /= 2
    filter_.clear()
    return _sums(border, blocks.call_all(Block.trial, primal, dual)), primal


def _step(
    blocks: Blocks, border: Border, mu: float, last_delta: float
) -> tuple[Sequence[Direction], float] | None:
    """Return the blocks' directions, regularized until their curvature is positive."""
    delta = 0.0
    while delta < LARGEST_DELTA:
        directions = _directions(blocks, border, mu, delta)
        if directions is not None:
            curvature = sum(direction.curvature for direction in directions)
            square = sum(direction.square for direction in directions)
            if curvature >= CURVATURE * square or delta > 1e6:
                return directions, delta
        if delta == 0.0:
            delta = FIRST_DELTA if last_delta == 0.0 else max(LEAST_DELTA, last_delta / DECAY)
        else:
            delta *= GROWTH_FIRST if last_delta == 0.0 else GROWTH
    return None


def _directions(
    blocks: Blocks, border: Border, mu: float, delta: float
) -> Sequence[Direction] | None:
    parts = blocks.call_all(Block.eliminate, mu, delta)
    eliminated = [part for part in parts if part is not None]
    if len(eliminated) < len(parts):
        return None
    if not border.size:
        return blocks.each(Block.direction, border.split(np.zeros(0)))
    residual = border.added([part.residual for part in eliminated])
    try:
        change = splu(border.matrix([part.matrix for part in eliminated])).solve(-residual)
    except RuntimeError:
        return None
    if not np.isfinite(change).all():
        return None
    return blocks.each(Block.direction, border.split(change))

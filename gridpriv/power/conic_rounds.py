"""The coordinator of rounds in which zones solve the relaxation by an interior-point method."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Concatenate, NamedTuple, ParamSpec, TypeVar

import numpy as np
from scipy.sparse.linalg import splu

from gridpriv.consensus.transport import Transport, answers, call
from gridpriv.core.arrays import Floats, Ints
from gridpriv.core.errors import SolverError
from gridpriv.power.ac.block import Elimination
from gridpriv.power.ac.interior import Border
from gridpriv.power.conic_block import ConicBlock, Progress
from gridpriv.power.fleet import ZoneMember

WITHIN = 0.99
"""Share of the way to the cones' boundary that a step goes."""
SHORTEST = 1e-4
"""Length of a step at which rounding errors have taken over, and rounds end."""
P = ParamSpec("P")
R = TypeVar("R")
Solve = Callable[[Sequence[Floats]], list[Floats]]


class ConicRound(NamedTuple):
    """One round; a function of released demand.

    Attributes
    ----------
    residual, farthest : float
        2-norm and largest entry of all constraint violations.
    dual_residual : float
        2-norm of the Lagrangian's gradient; 0 where rounding errors of its terms are larger.
    gap : float
        s'z, by which objective and dual objective differ.
    """

    residual: float
    farthest: float
    dual_residual: float
    gap: float

    def below(self, primal: float, dual: float) -> bool:
        """Return True where the optimality conditions hold to tolerances."""
        return self.farthest < primal and max(self.dual_residual, self.gap) < dual


def conic_rounds(transport: Transport, shared: Ints) -> Iterator[ConicRound]:
    """Let zones solve the relaxation of their released demands together; yield every round.

    The first round is a least-squares start. In every other, zones send a Schur complement once and
    three vectors of the border's size at most: for the predictor, for Mehrotra's corrector, and the
    gradient at the point that they have come to. Rounds end where rounding errors leave no step.

    Parameters
    ----------
    transport : Transport
        To all zones (:class:`gridpriv.power.fleet.ZoneMember`).
    shared : int array
        Voltage products that several zones hold, as coordinates of the grid.

    Raises
    ------
    SolverError
        Where the first system has no solution.
    """

    def ask(
        verb: Callable[Concatenate[ConicBlock, P], R], *given: P.args, **_: P.kwargs
    ) -> list[R]:
        return answers(transport, call(ZoneMember.in_block, verb, *given))

    def each(verb: Callable[[ConicBlock, Floats], R], parts: list[Floats]) -> list[R]:
        return answers(transport, [call(ZoneMember.in_block, verb, part) for part in parts])

    places = answers(transport, call(ZoneMember.open_block, shared))
    known = np.unique(np.concatenate(places))
    border = Border(len(known), [np.searchsorted(known, at) for at in places])
    opened = ask(ConicBlock.open)
    parts = _solve(border, opened)([part.residual for part in opened])
    progress = each(ConicBlock.begin, parts)
    yield _round(border, progress)
    while True:
        try:
            eliminated = ask(ConicBlock.eliminate)
            solve = _solve(border, eliminated)
        except SolverError:
            return
        affine = solve([part.residual for part in eliminated])
        share = 1.0 - (1.0 - min(1.0, *each(ConicBlock.predict, affine))) ** 3
        mean = sum(item.product for item in progress) / sum(item.degree for item in progress)
        residuals = ask(ConicBlock.correct, share, (1.0 - share) * mean)
        reach = min(each(ConicBlock.direction, solve(residuals)))
        length = min(1.0, WITHIN * reach)
        if not length > SHORTEST:
            return
        progress = ask(ConicBlock.step, length)
        yield _round(border, progress)


def _solve(border: Border, parts: Sequence[Elimination]) -> Solve:
    """Return the solve of the border's system, factored once; it returns each zone's part."""
    try:
        factors = splu(border.matrix([part.matrix for part in parts])) if border.size else None
    except RuntimeError as error:
        raise SolverError("the zones' Schur complements add up to a singular matrix") from error

    def solve(residuals: Sequence[Floats]) -> list[Floats]:
        total = -border.added(residuals)
        return border.split(total if factors is None else factors.solve(total))

    return solve


def _round(border: Border, progress: Sequence[Progress]) -> ConicRound:
    shared = border.added([item.shared for item in progress])
    dual = float(np.sqrt(shared @ shared + sum(item.gradient for item in progress)))
    rounding = float(np.sqrt(sum(item.rounding for item in progress)))
    return ConicRound(
        float(np.linalg.norm([item.violation for item in progress])),
        max(item.farthest for item in progress),
        dual if dual > rounding else 0.0,
        sum(item.product for item in progress),
    )

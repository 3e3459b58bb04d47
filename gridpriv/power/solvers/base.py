"""Interface of zone solvers, their results, and two solvers that need none or one more.

A zone whose presolve leaves no variable has one feasible point (a bus without generator or line of
its own, once its voltage is given). What one solver does not solve is handed to a second one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from gridpriv.consensus.agent import Minimiser
from gridpriv.core.arrays import Floats
from gridpriv.core.errors import SolverError
from gridpriv.power.presolve import ReducedProgram


class ZoneSolver(Protocol):
    """Solve minimize 1/2 z'(D + [exact] 2B'B) z + linear'z over a zone's feasible set.

    D is the diagonal ``metric``. A solver keeps what does not change between solves.
    """

    name: str

    def solve(self, linear: Floats, metric: Floats, *, near: bool = False) -> Minimiser:
        """Return the minimizer, or with ``near`` what a solver ends near it.

        Raises
        ------
        SolverError
            Where there is none, or none is found.
        """


@dataclass(frozen=True)
class Unsolved:
    """Status and effort of a solver that ended without a solution at all its settings.

    Attributes
    ----------
    ended : str
        Solver and status.
    iterations, retries : int
    z : (n,), optional
        A point near the minimizer, where a setting came that far.
    """

    ended: str
    iterations: int
    retries: int
    z: Floats | None = None


class OnePoint:
    """Return the point; presolve has checked that it satisfies every constraint."""

    name = "one point"

    def __init__(self, program: ReducedProgram) -> None:
        self._point = program.restore(np.zeros(0))

    def solve(self, linear: Floats, metric: Floats, *, near: bool = False) -> Minimiser:
        """Return the point, whatever the objective."""
        del linear, metric, near
        return Minimiser(self._point.copy(), 0, 0)


class Attempting(Protocol):
    """A solver that says how it ended."""

    name: str

    def attempt(self, linear: Floats, metric: Floats, *, near: bool) -> Minimiser | Unsolved:
        """Return the minimizer, or how the last setting ended; ``near``: a point near it serves.

        Raises
        ------
        SolverError
            With a certificate that there is none.
        """


class Rescued:
    """Solve a zone with ``first``, and with ``second`` what that does not solve.

    Parameters
    ----------
    first : Attempting
    second : callable
        Makes the other solver where it is needed.
    """

    def __init__(self, first: Attempting, second: Callable[[], Attempting]) -> None:
        self.name = first.name
        self._first = first
        self._make_second = second

    @cached_property
    def _second(self) -> Attempting:
        return self._make_second()

    def solve(self, linear: Floats, metric: Floats, *, near: bool = False) -> Minimiser:
        """Return the minimizer; the second solver's is counted as one retry more.

        With ``near`` a point near the minimizer serves wherever a solver does not come to it.
        """
        first = self._first.attempt(linear, metric, near=near)
        if isinstance(first, Minimiser):
            return first
        if near and first.z is not None:
            return Minimiser(first.z, first.iterations, first.retries)
        try:
            attempt = self._second.attempt(linear, metric, near=near)
        except SolverError as error:
            raise SolverError(f"{first.ended} after safer settings; {error}") from error
        iterations, retries = first.iterations + attempt.iterations, first.retries + attempt.retries
        if attempt.z is not None and (near or isinstance(attempt, Minimiser)):
            return Minimiser(attempt.z, iterations, retries + 1)
        raise SolverError(
            f"{first.ended} after safer settings; {attempt.ended} after safer settings"
        )

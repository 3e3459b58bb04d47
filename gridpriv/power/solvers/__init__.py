"""Solvers of zone problems, one file each: their interface, and a fallback pair.

A zone whose presolve leaves no variable has a single feasible point (such as a bus with a fixed
voltage, without generators). A solve that fails is repeated with a second solver.
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

    D is the diagonal ``metric``. A solver reuses the parts that do not change between solves.
    """

    name: str

    def solve(self, linear: Floats, metric: Floats, *, near: bool = False) -> Minimiser:
        """Return the minimizer, or with ``near`` a point near it.

        Raises
        ------
        SolverError
            Where there is no minimizer, or none is found.
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
        A point near the minimizer, if a setting reached one.
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
    """A solver that returns the status of a failed solve."""

    name: str

    def attempt(self, linear: Floats, metric: Floats, *, near: bool) -> Minimiser | Unsolved:
        """Return the minimizer or the last failure; with ``near`` a point near it suffices.

        Raises
        ------
        SolverError
            With a certificate that there is none.
        """


class Rescued:
    """Solve a zone with ``first``, or with ``second`` if that fails.

    Parameters
    ----------
    first : Attempting
    second : callable
        Makes the second solver where it is needed.
    """

    def __init__(self, first: Attempting, second: Callable[[], Attempting]) -> None:
        self.name = first.name
        self._first = first
        self._make_second = second

    @cached_property
    def _second(self) -> Attempting:
        return self._make_second()

    def solve(self, linear: Floats, metric: Floats, *, near: bool = False) -> Minimiser:
        """Return the minimizer; that of the second solver counts as a further retry.

        With ``near`` a point near the minimizer suffices where a solver does not reach it.
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

"""Two solvers of one zone: what the first does not solve is handed to the second."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Protocol

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import SolverError
from gridpriv.power.solvers.base import Solution, Unsolved


class Attempting(Protocol):
    """A solver that says how it ended."""

    name: str

    def attempt(self, linear: Floats, metric: Floats, *, near: bool) -> Solution | Unsolved:
        """Return the minimiser, or how the last setting ended; ``near``: a point near it serves.

        Raises
        ------
        SolverError
            With a certificate that there is none.
        """
        ...


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

    def solve(self, linear: Floats, metric: Floats, *, near: bool = False) -> Solution:
        """Return the minimiser; the second solver's is counted as one retry more.

        With ``near`` a point near the minimiser serves wherever a solver does not come to it.
        """
        first = self._first.attempt(linear, metric, near=near)
        if isinstance(first, Solution):
            return first
        if near and first.z is not None:
            return Solution(first.z, first.iterations, first.retries)
        try:
            attempt = self._second.attempt(linear, metric, near=near)
        except SolverError as error:
            raise SolverError(f"{first.ended} after safer settings; {error}") from error
        iterations, retries = first.iterations + attempt.iterations, first.retries + attempt.retries
        if isinstance(attempt, Solution):
            return Solution(attempt.z, iterations, retries + 1)
        if near and attempt.z is not None:
            return Solution(attempt.z, iterations, retries + 1)
        raise SolverError(
            f"{first.ended} after safer settings; {attempt.ended} after safer settings"
        )

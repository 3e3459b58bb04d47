"""Interface of zone solvers, and their results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gridpriv.core.arrays import Floats


@dataclass(frozen=True, eq=False)
class Solution:
    """A solved local problem.

    Attributes
    ----------
    z : (n,)
        The minimiser.
    iterations : int
    retries : int
        How often the solve was repeated with safer settings before it ended as solved.
    """

    z: Floats
    iterations: int
    retries: int


class ZoneSolver(Protocol):
    """Solve minimise 1/2 z'(D + [exact] 2B'B) z + linear'z over a zone's feasible set.

    D is the diagonal ``metric``. A solver keeps what does not change between solves.
    """

    name: str

    def solve(self, linear: Floats, metric: Floats, *, near: bool = False) -> Solution:
        """Return the minimiser, or with ``near`` what a solver ends near it.

        Raises
        ------
        SolverError
            Where there is none, or none is found.
        """
        ...


@dataclass(frozen=True)
class Unsolved:
    """Status and effort of a solver that ended without a solution at all its settings.

    Attributes
    ----------
    ended : str
        Solver and status.
    iterations, retries : int
    z : (n,), optional
        A point near the minimiser, where a setting came that far.
    """

    ended: str
    iterations: int
    retries: int
    z: Floats | None = None

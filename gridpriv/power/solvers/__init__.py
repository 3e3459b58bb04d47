"""Solvers of zone problems, one file each, and their interface.

A zone whose presolve leaves no variable has a single feasible point (such as a bus with a fixed
voltage, without generators).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from gridpriv.consensus.agent import Minimiser
from gridpriv.core.arrays import Floats
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


class OnePoint:
    """Return the point; presolve has checked that it satisfies every constraint."""

    name = "one point"

    def __init__(self, program: ReducedProgram) -> None:
        self._point = program.restore(np.zeros(0))

    def solve(self, linear: Floats, metric: Floats, *, near: bool = False) -> Minimiser:
        """Return the point, whatever the objective."""
        del linear, metric, near
        return Minimiser(self._point.copy(), 0, 0)

"""A feasible set of one point: presolve left no variable, so nothing is to be minimised.

A bus without generator or line of its own, once its voltage is given, is such a zone.
"""

from __future__ import annotations

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.power.presolve import ReducedProgram
from gridpriv.power.solvers.base import Solution


class OnePoint:
    """Return the point; presolve has checked that it satisfies every constraint."""

    name = "one point"

    def __init__(self, program: ReducedProgram) -> None:
        self._point = program.restore(np.zeros(0))

    def solve(self, linear: Floats, metric: Floats, *, near: bool = False) -> Solution:
        """Return the point, whatever the objective."""
        del linear, metric, near
        return Solution(self._point.copy(), 0, 0)

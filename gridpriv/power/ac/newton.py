"""Newton's method for the equations of AC power flow with shared regulation.

Every step solves one sparse system. A step may raise the residual where it moves buses from one
side of a reactive limit to the other; where that leads in a circle, the search ends.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse.linalg import splu

from gridpriv.core.arrays import Complexes, Floats
from gridpriv.core.errors import SolverError
from gridpriv.power.ac.equations import FlowEquations, Jacobian, Point, Residual, residual

TOLERANCE = 1e-10
ACCEPTED = 1e-8
MOST_STEPS = 20
SWITCHING_GROWTH = 10.0
CIRCLE = 1e-6
"""Share of the residual within which a point that was passed is come to again."""
LEAST_PIVOT = 0.01
"""Of the largest of its column, below which a diagonal entry is no pivot."""
SHORTEST_STEP = 1e-3
LARGEST_ANGLE = 1e3
"""rad: beyond it an iterate is lost."""


class PowerFlowError(SolverError):
    """Newton's method found no solution.

    Attributes
    ----------
    bus : int
        The bus of the largest mismatch.
    mismatch : float
        That mismatch.
    """

    def __init__(self, bus: int, mismatch: float, unit: str = "p.u.") -> None:
        super().__init__(
            "the AC power flow has no solution: "
            f"largest mismatch {mismatch:.4g} {unit} at bus {bus}"
        )
        self.bus, self.mismatch = bus, mismatch

    def named(self, bus: int, base_mva: float) -> PowerFlowError:
        """Return the error with the bus's number and the mismatch in MVA."""
        return PowerFlowError(bus, base_mva * self.mismatch, "MVA")


@dataclass(frozen=True, eq=False)
class FlowSolution:
    """Where the equations hold.

    Attributes
    ----------
    voltage : (n,) complex
    mismatch : float
        Largest residual, p.u.
    """

    voltage: Complexes
    alpha: Floats
    delta: Floats
    mismatch: float
    steps: int


def solve_power_flow(
    equations: FlowEquations, voltage: Complexes, alpha: Floats, delta: Floats
) -> FlowSolution:
    """Solve from a starting point.

    Parameters
    ----------
    voltage : (n,) complex
        Its angles at references are kept.

    Raises
    ------
    PowerFlowError
        If Newton's method does not converge from there.
    """
    point = Point(np.angle(voltage), np.abs(voltage), alpha, delta)
    lack, jacobian = residual(equations, point), Jacobian.of(equations)
    passed: list[Residual] = []
    for step in range(MOST_STEPS):
        if lack.largest <= TOLERANCE:
            return FlowSolution(point.voltage(), point.alpha, point.delta, lack.largest, step)
        if any(_same(lack, other) for other in passed):
            break
        passed.append(lack)
        nearer = _improved(jacobian, point, lack)
        if nearer is None:
            break
        point, lack = nearer
    if lack.largest <= ACCEPTED:
        return FlowSolution(point.voltage(), point.alpha, point.delta, lack.largest, MOST_STEPS)
    raise _lost(len(equations.p), lack)


def _same(one: Residual, other: Residual) -> bool:
    """Return whether Newton's method is where it was, but for what it refines."""
    near = np.abs(one.values - other.values) <= CIRCLE * one.largest
    return bool(near.all()) and np.array_equal(one.held, other.held)


def _lost(n: int, lack: Residual) -> PowerFlowError:
    size = np.abs(lack.values[: 2 * n])
    worst = int(np.argmax(np.where(np.isfinite(size), size, np.inf)))
    return PowerFlowError(worst % n, float(size[worst]))


def _improved(jacobian: Jacobian, point: Point, lack: Residual) -> tuple[Point, Residual] | None:
    """Return the point after a Newton step, shortened until the residual falls."""
    try:
        factors = splu(
            jacobian.at(point, lack.held), permc_spec="NATURAL", diag_pivot_thresh=LEAST_PIVOT,
            options={"SymmetricMode": True},
        )  # fmt: skip
    except RuntimeError:  # exactly singular
        return None
    change = factors.solve(-lack.values[jacobian.row_order])[jacobian.column_place]
    if not np.isfinite(change).all():
        return None
    norm, length = float(np.linalg.norm(lack.values)), 1.0
    while length >= SHORTEST_STEP:
        moved = point.moved(length * change, jacobian.equations.reference)
        if (moved.vm > 0).all() and np.abs(moved.va).max() < LARGEST_ANGLE:
            after = residual(jacobian.equations, moved)
            same = np.array_equal(lack.held, after.held)
            most = norm if same else SWITCHING_GROWTH * norm
            if float(np.linalg.norm(after.values)) < most:
                return moved, after
        length /= 2
    return None

"""Newton's method for the equations of AC power flow with shared regulation.

Every step solves one sparse system. Once, a step may raise the residual where it moves buses or
areas from one side of a limit to the other; if it always might, the search could go in a circle.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse.linalg import SuperLU, splu

from gridpriv.core.arrays import Bools, Complexes, Floats
from gridpriv.core.errors import SolverError
from gridpriv.power.ac.equations import FlowEquations, Jacobian, Point, Residual, residual

TOLERANCE = 1e-10
ACCEPTED = 1e-8
MOST_STEPS = 20
SWITCHING_GROWTH = 10.0
LEAST_PIVOT = 0.01
"""Of the largest of its column, below which a diagonal entry is no pivot."""
FAST = 0.1
"""Share of the residual that a step leaves where its factors serve for another one."""
SHORTEST_STEP = 0.05
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
    held : (n + areas,) bool
        Buses that hold their set point, areas that hold their interchange.
    mismatch : float
        Largest residual, p.u.
    """

    voltage: Complexes
    alpha: Floats
    delta: Floats
    held: Bools
    mismatch: float
    steps: int


def solve_power_flow(
    equations: FlowEquations,
    jacobian: Jacobian,
    voltage: Complexes,
    alpha: Floats,
    delta: Floats,
) -> FlowSolution:
    """Solve from a starting point.

    Parameters
    ----------
    jacobian : Jacobian
        Of equations of the same pattern.
    voltage : (n,) complex
        Its angles at references are kept.

    Raises
    ------
    PowerFlowError
        If Newton's method does not converge from there.
    """
    point = Point(np.angle(voltage), np.abs(voltage), alpha, delta)
    lack = residual(equations, point)
    growth = SWITCHING_GROWTH
    for step in range(MOST_STEPS):
        if lack.largest <= TOLERANCE:
            return _solution(point, lack, step)
        nearer = _improved(equations, jacobian, point, lack, growth)
        if nearer is None:
            break
        if nearer[1].norm > lack.norm:
            growth = 1.0
        point, lack = nearer
    if lack.largest <= ACCEPTED:
        return _solution(point, lack, MOST_STEPS)
    raise _lost(len(equations.p), lack)


def _solution(point: Point, lack: Residual, steps: int) -> FlowSolution:
    return FlowSolution(point.voltage(), point.alpha, point.delta, lack.held, lack.largest, steps)


def _lost(n: int, lack: Residual) -> PowerFlowError:
    size = np.abs(lack.values[: 2 * n])
    worst = int(np.argmax(np.where(np.isfinite(size), size, np.inf)))
    return PowerFlowError(worst % n, float(size[worst]))


def _improved(
    equations: FlowEquations, jacobian: Jacobian, point: Point, lack: Residual, growth: float
) -> tuple[Point, Residual] | None:
    """Return the point after a Newton step, shortened until the residual falls.

    Where it switches limits, the residual may be ``growth`` times as large.
    """
    try:
        factors = splu(
            jacobian.at(equations, point, lack.held),
            permc_spec="NATURAL",
            diag_pivot_thresh=LEAST_PIVOT,
            options={"SymmetricMode": True},
        )
    except RuntimeError:  # exactly singular
        return None
    change = _change(jacobian, factors, lack)
    if not np.isfinite(change).all():
        return None
    length = 1.0
    while length >= SHORTEST_STEP:
        moved = point.moved(length * change, equations.reference)
        if (moved.vm > 0).all() and np.abs(moved.va).max() < LARGEST_ANGLE:
            after = residual(equations, moved)
            same = np.array_equal(lack.held, after.held)
            if after.norm < (lack.norm if same else growth * lack.norm):
                return _refined(equations, jacobian, factors, lack, moved, after)
        length /= 2
    return None


def _change(jacobian: Jacobian, factors: SuperLU, lack: Residual) -> Floats:
    step: Floats = factors.solve(-lack.values[jacobian.row_order])[jacobian.column_place]
    return step


def _refined(
    equations: FlowEquations,
    jacobian: Jacobian,
    factors: SuperLU,
    before: Residual,
    point: Point,
    lack: Residual,
) -> tuple[Point, Residual]:
    """Return the point after more steps with the same factors, while the residual falls fast."""
    moved, after = point, lack
    while after.norm < FAST * before.norm and np.array_equal(before.held, after.held):
        point, before, lack = moved, after, after
        if lack.largest <= TOLERANCE:
            break
        moved = point.moved(_change(jacobian, factors, lack), equations.reference)
        after = residual(equations, moved)
    return point, lack

"""Newton's method for AC power flow with shared regulation, in polar coordinates.

Unknown are the voltages V = vm e^{j va} and, beside them, what regulates active power: alpha_a of
every area and, where an island has several areas, their common frequency deviation delta. With
S = diag(V) conj(Y V) and S_tie the flows into tie lines at their own ends,

    Re S_i - (p_i + sum_a R_ia alpha_a) = 0      at every bus
    Im S_i - q_i - mid(low_i, high_i, Im S_i - q_i + kappa (vset_i - vm_i)) = 0    at every bus
    sum of Re S_tie / 2 at own ends less other ends - X_a - K_a delta = 0    in every area

so one solve finds the state whose areas keep their interchange X_a, up to what all of them lack,
which they share by K_a. mid is the middle of three: a bus whose generators can still move holds
its set point vset; else they stand at a limit, with the voltage beyond the set point on that side.
(low = high = 0 where nothing generates.) The Jacobian is exact on either side; every step solves
one sparse system. A step may raise the residual where it moves buses from one side to the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import splu

from gridpriv.core.arrays import Bools, Complexes, Floats
from gridpriv.core.errors import SolverError

TOLERANCE = 1e-10
ACCEPTED = 1e-8
MOST_STEPS = 20
KAPPA = 10.0
"""p.u. of reactive power by which a bus wants more for each p.u. of voltage that it lacks."""
SWITCHING_GROWTH = 10.0
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
class FlowEquations:
    """A power flow: what is injected, what is held, who regulates.

    Attributes
    ----------
    injected : sparse (k, n) complex
        Y of the buses (n rows), then the admittance rows of the tie line ends.
    at : sparse (k, n)
        Whose voltage multiplies each row's conjugate current: the identity, then the ends' buses.
    tie_area : sparse (a, k - n)
        What each area meters of the flow into each tie line end.
    p, q : (n,)
        Net injection before regulation, without reactive generation.
    q_low, q_high : (n,)
        Limits of reactive generation.
    setpoint : (n,)
        Voltage magnitude that generators hold within them.
    reference : (n,) bool
        Buses whose angle is fixed: one an island.
    up, down : sparse (n, a)
        Injection by each area's alpha, where it is positive and where it is negative.
    interchange : (a,)
        X_a.
    bias : sparse (a, islands)
        K of each area by its island's delta.
    """

    injected: sparse.csr_array
    at: sparse.csr_array
    tie_area: sparse.csr_array
    p: Floats
    q: Floats
    q_low: Floats
    q_high: Floats
    setpoint: Floats
    reference: Bools
    up: sparse.csr_array
    down: sparse.csr_array
    interchange: Floats
    bias: sparse.csr_array


@dataclass(frozen=True, eq=False)
class FlowSolution:
    """Where the equations hold.

    Attributes
    ----------
    voltage : (n,) complex
    alpha, delta : arrays
    mismatch : float
        Largest residual, p.u.
    steps : int
    """

    voltage: Complexes
    alpha: Floats
    delta: Floats
    mismatch: float
    steps: int


@dataclass(frozen=True, eq=False)
class _Point:
    va: Floats
    vm: Floats
    alpha: Floats
    delta: Floats

    def voltage(self) -> Complexes:
        voltage: Complexes = self.vm * np.exp(1j * self.va)
        return voltage


def solve_power_flow(
    equations: FlowEquations, voltage: Complexes, alpha: Floats, delta: Floats
) -> FlowSolution:
    """Solve from a starting point.

    Parameters
    ----------
    equations : FlowEquations
    voltage : (n,) complex
        Its angles at references are kept.
    alpha, delta : arrays

    Raises
    ------
    PowerFlowError
        If Newton's method does not converge from there.
    """
    point = _Point(np.angle(voltage), np.abs(voltage), alpha, delta)
    residual = _residual(equations, point)
    for step in range(MOST_STEPS):
        size = _largest(residual)
        if size <= TOLERANCE:
            return FlowSolution(point.voltage(), point.alpha, point.delta, size, step)
        nearer = _improved(equations, point, residual)
        if nearer is None:
            break
        point, residual = nearer
    size = _largest(residual)
    if size <= ACCEPTED:
        return FlowSolution(point.voltage(), point.alpha, point.delta, size, MOST_STEPS)
    raise _lost(equations, residual)


def _lost(equations: FlowEquations, residual: Floats) -> PowerFlowError:
    n = len(equations.p)
    size = np.abs(residual[: 2 * n])
    worst = int(np.argmax(np.where(np.isfinite(size), size, np.inf)))
    return PowerFlowError(worst % n, float(size[worst]))


def _largest(residual: Floats) -> float:
    return float(np.abs(residual).max(initial=0.0))


def _residual(equations: FlowEquations, point: _Point) -> Floats:
    n, voltage = len(equations.p), point.voltage()
    power = (equations.at @ voltage) * np.conj(equations.injected @ voltage)
    rising, falling = np.maximum(point.alpha, 0.0), np.minimum(point.alpha, 0.0)
    regulated = equations.up @ rising + equations.down @ falling
    active = power.real[:n] - equations.p - regulated
    generated = power.imag[:n] - equations.q
    stand = np.clip(generated + _pull(equations, point), equations.q_low, equations.q_high)
    actual = equations.tie_area @ power.real[n:]
    area = actual - equations.interchange - equations.bias @ point.delta
    return np.concatenate([active, generated - stand, area])


def _pull(equations: FlowEquations, point: _Point) -> Floats:
    return KAPPA * (equations.setpoint - point.vm)


def _held(equations: FlowEquations, point: _Point) -> Bools:
    """Return buses that hold their set point."""
    n, voltage = len(equations.p), point.voltage()
    power = (equations.at @ voltage) * np.conj(equations.injected @ voltage)
    wanted = power.imag[:n] - equations.q + _pull(equations, point)
    held: Bools = (equations.q_low < wanted) & (wanted < equations.q_high)
    return held


def _regulation(equations: FlowEquations, alpha: Floats) -> sparse.csr_array:
    """Return dp/d alpha: upward room where alpha is positive, downward room where negative."""
    rising = sparse.diags_array((alpha >= 0).astype(float))
    falling = sparse.diags_array((alpha < 0).astype(float))
    return equations.up @ rising + equations.down @ falling


def _improved(
    equations: FlowEquations, point: _Point, residual: Floats
) -> tuple[_Point, Floats] | None:
    """Return the point after a Newton step, shortened until the residual falls."""
    try:
        change = splu(_jacobian(equations, point)).solve(-residual)
    except RuntimeError:  # exactly singular
        return None
    if not np.isfinite(change).all():
        return None
    norm, length = float(np.linalg.norm(residual)), 1.0
    held = _held(equations, point)
    while length >= SHORTEST_STEP:
        moved = _moved(equations, point, length * change)
        if (moved.vm > 0).all() and np.abs(moved.va).max() < LARGEST_ANGLE:
            after = _residual(equations, moved)
            most = norm
            if not np.array_equal(held, _held(equations, moved)):
                most *= SWITCHING_GROWTH
            if float(np.linalg.norm(after)) < most:
                return moved, after
        length /= 2
    return None


def _moved(equations: FlowEquations, point: _Point, change: Floats) -> _Point:
    turning = ~equations.reference
    cuts = np.cumsum([turning.sum(), len(point.vm), len(point.alpha)])
    angle, magnitude, alpha, delta = np.split(change, cuts)
    va = point.va.copy()
    va[turning] += angle
    return _Point(va, point.vm + magnitude, point.alpha + alpha, point.delta + delta)


def _jacobian(equations: FlowEquations, point: _Point) -> sparse.csc_array:
    """Return the derivative of the residual by (va, vm, alpha, delta)."""
    n, voltage = len(equations.p), point.voltage()
    held = _held(equations, point)
    free, holding = (sparse.diags_array(mask.astype(float)) for mask in (~held, held))
    turning = np.flatnonzero(~equations.reference)
    by_angle, by_magnitude = _power_derivatives(equations, voltage)
    by_angle = by_angle[:, turning]
    area = equations.tie_area
    regulation = -_regulation(equations, point.alpha)
    return sparse.block_array(
        [
            [by_angle.real[:n], by_magnitude.real[:n], regulation, None],
            [
                free @ by_angle.imag[:n],
                free @ by_magnitude.imag[:n] + KAPPA * holding,
                None,
                None,
            ],
            [
                area @ by_angle.real[n:],
                area @ by_magnitude.real[n:],
                None,
                -equations.bias,
            ],
        ],
        format="csc",
    )


def _power_derivatives(
    equations: FlowEquations, voltage: Complexes
) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Return dS/dva and dS/dvm of S = diag(C V) conj(Y V).

    With E = diag(V / vm): dS/dvm = diag(conj(Y V)) C E + diag(C V) conj(Y E) and
    dS/dva = j (diag(conj(Y V)) C diag(V) - diag(C V) conj(Y diag(V))).
    """
    current = sparse.diags_array(np.conj(equations.injected @ voltage))
    here = sparse.diags_array(equations.at @ voltage)
    turned = sparse.diags_array(voltage)
    phasor = sparse.diags_array(voltage / np.abs(voltage))
    own, far = current @ equations.at, here @ equations.injected.conj()
    by_angle = 1j * (own @ turned - far @ turned.conj())
    by_magnitude = own @ phasor + far @ phasor.conj()
    return by_angle.tocsr(), by_magnitude.tocsr()

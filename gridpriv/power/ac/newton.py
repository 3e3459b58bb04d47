"""AC power flow with shared regulation: its equations, their Jacobian, and Newton's method.

The unknowns are the voltages V = vm e^{j va} and the regulation of active power: alpha_a of every
area, and the frequency deviation delta that the areas of an island have in common. With S =
diag(V) conj(Y V) and S_tie the flows into tie lines at their own ends,

    Re S_i - (p_i + sum_a R_ia alpha_a) = 0      at every bus
    Im S_i - q_i - mid(low_i, high_i, Im S_i - q_i + kappa (vset_i - vm_i)) = 0    at every bus
    alpha_a - mid(least_a, most_a, alpha_a - excess_a) = 0    in every area
    excess_a = sum of Re S_tie / 2 at own ends less other ends - X_a - K_a delta

so that areas meet their interchange X_a, up to the deficit of the island, which they share by K_a.
mid is the middle of three. A bus whose generators are within their reactive limits is at its set
point vset; otherwise they are at a limit, and the voltage is beyond the set point on that side (low
= high = 0 where nothing generates). Likewise an area meets its interchange or is at a limit of
alpha. The Jacobian is exact on either side. Where all areas of an island are at their limits, no
equation has delta, and the reference bus injects it.

Rows of Y are those of the buses, then those of the tie line ends; row i is multiplied by the
voltage of the bus a(i) where it is measured. With I = Y V its derivatives are

    dS_i/dva_c = j ([c = a(i)] conj(I_i) V_c - V_a(i) conj(Y_ic V_c))
    dS_i/dvm_c =   ([c = a(i)] conj(I_i) V_c + V_a(i) conj(Y_ic V_c)) / vm_c

on a sparsity pattern that is the same in all iterations, so the places of all terms and the
elimination order are computed once. Rows and columns of a bus (of an area) stay together and buses
are eliminated by least degree, which halves the nonzeros of a general ordering.

Every Newton step solves one sparse system. A single step per solve may raise the residual where it
takes buses or areas across a limit; without that bound the iteration could cycle.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import SuperLU, splu

from gridpriv.core.arrays import Bools, Complexes, Floats, Ints
from gridpriv.core.errors import SolverError

KAPPA = 10.0
"""p.u. of additional reactive power per p.u. of voltage below the set point."""


@dataclass(frozen=True, eq=False)
class FlowEquations:
    """Equations of a power flow: injections, set points and regulation.

    Attributes
    ----------
    injected : sparse (k, n) complex
        Y of the buses (n rows), then the admittance rows of the tie line ends.
    at : (k,) int
        Bus whose voltage multiplies each row's conjugate current: the buses, then the ends' buses.
    tie_area : sparse (a, k - n)
        Each area's share of the flow into each tie line end.
    p, q : (n,)
        Net injection before regulation, without reactive generation.
    q_low, q_high : (n,)
        Limits of reactive generation.
    setpoint : (n,)
        Set point of the voltage magnitude.
    reference : (n,) bool
        Buses whose angle is fixed: one per island.
    up, down : sparse (n, a)
        Injection by each area's alpha, where it is positive and where it is negative.
    least, most : (a,)
        Limits of alpha.
    interchange : (a,)
        X_a.
    bias : sparse (a, islands)
        K of each area by its island's delta.
    slack : sparse (n, islands)
        Injection by delta where an island is exhausted.
    exhausted : (islands,) bool
        True where all areas of an island are at their limits.
    """

    injected: sparse.csr_array
    at: Ints
    tie_area: sparse.csr_array
    p: Floats
    q: Floats
    q_low: Floats
    q_high: Floats
    setpoint: Floats
    reference: Bools
    up: sparse.csr_array
    down: sparse.csr_array
    least: Floats
    most: Floats
    interchange: Floats
    bias: sparse.csr_array
    slack: sparse.csr_array
    exhausted: Bools


@dataclass(frozen=True, eq=False)
class Point:
    """Values of the unknowns."""

    va: Floats
    vm: Floats
    alpha: Floats
    delta: Floats

    def voltage(self) -> Complexes:
        """Return V."""
        return np.asarray(self.vm * np.exp(1j * self.va))

    def plus(self, change: Floats, reference: Bools) -> Point:
        """Return the point after a change of (va but at references, vm, alpha, delta)."""
        delta = len(change) - len(self.delta)
        alpha = delta - len(self.alpha)
        vm = alpha - len(self.vm)
        va = self.va.copy()
        va[~reference] += change[:vm]
        changed = self.vm + change[vm:alpha], self.alpha + change[alpha:delta]
        return Point(va, *changed, self.delta + change[delta:])


@dataclass(frozen=True, eq=False)
class Residual:
    """Residuals of the equations at a point.

    Attributes
    ----------
    values : (2 n + a,)
        Active and reactive power of buses, interchange or alpha of areas.
    regulating : (n + a,) bool
        Buses at their set point, areas at their interchange.
    """

    values: Floats
    regulating: Bools

    @property
    def largest(self) -> float:
        """Largest residual."""
        return float(np.abs(self.values).max(initial=0.0))

    @cached_property
    def norm(self) -> float:
        """Euclidean norm of the residuals."""
        return float(np.linalg.norm(self.values))


def residual(equations: FlowEquations, point: Point) -> Residual:
    """Return the residuals of the equations at a point."""
    n, voltage = len(equations.p), point.voltage()
    power = voltage[equations.at] * np.conj(equations.injected @ voltage)
    rising, falling = np.maximum(point.alpha, 0.0), np.minimum(point.alpha, 0.0)
    shared = np.where(equations.exhausted, 0.0, point.delta)
    regulated = equations.up @ rising + equations.down @ falling
    regulated += equations.slack @ (point.delta - shared)
    active = power.real[:n] - equations.p - regulated
    generated = power.imag[:n] - equations.q
    reactive_target = generated + KAPPA * (equations.setpoint - point.vm)
    limited = np.clip(reactive_target, equations.q_low, equations.q_high)
    actual = equations.tie_area @ power.real[n:]
    alpha_target = point.alpha - (actual - equations.interchange - equations.bias @ shared)
    area = point.alpha - np.clip(alpha_target, equations.least, equations.most)
    of_voltage = (equations.q_low < reactive_target) & (reactive_target < equations.q_high)
    of_output = (equations.least < alpha_target) & (alpha_target < equations.most)
    regulating = np.concatenate([of_voltage, of_output])
    return Residual(np.concatenate([active, generated - limited, area]), regulating)


class Jacobian:
    """Pattern of the derivative of the residual by (va except at references, vm, alpha, delta).

    It is the same for equations of other limits or injections.
    Row k of the result of :meth:`at` is equation ``row_order[k]``, and unknown c has the column
    ``column_place[c]``.
    """

    def __init__(self, equations: FlowEquations) -> None:
        n, (areas, islands) = len(equations.p), equations.bias.shape
        y, up, down, bias, slack = (
            getattr(equations, name).tocoo() for name in ("injected", "up", "down", "bias", "slack")
        )
        self.up, self.down, self.bias, self.slack = up, down, bias, slack
        rows = np.arange(len(equations.at))
        row = self.row = np.concatenate([y.row, rows])
        column = self.column = np.concatenate([y.col, equations.at])
        self.own = np.repeat([False, True], [len(y.data), len(rows)])
        self.area, self.metered, self.weight = _metered(equations.tie_area, row, n)
        at_bus = row < n
        turns = ~equations.reference
        angle, free = np.cumsum(turns) - 1, turns.sum()
        power = np.concatenate([row[at_bus], n + row[at_bus], self.area])
        by = np.concatenate([column[at_bus], column[at_bus], column[self.metered]])
        turning = self.turning = turns[by]
        alpha, delta = free + n, free + n + areas
        terms = [  # row and column of each; terms at the same place are added
            (power[turning], angle[by[turning]]),
            (power, free + by),
            (n + np.arange(n), free + np.arange(n)),
            (up.row, alpha + up.col),
            (down.row, alpha + down.col),
            (2 * n + bias.row, delta + bias.col),
            (slack.row, delta + slack.col),
            (2 * n + np.arange(areas), alpha + np.arange(areas)),
        ]
        self.slot, self.indices, self.indptr, *orders = _ordered(terms, turns, areas, islands)
        self.row_order, self.column_place = orders

    def at(self, equations: FlowEquations, point: Point, regulating: Bools) -> sparse.csc_array:
        """Return the derivative of equations of this pattern at a point.

        Parameters
        ----------
        regulating : (n + a,) bool
            Buses at their set point, areas at their interchange.
        """
        n, voltage = len(equations.p), point.voltage()
        current = np.conj(equations.injected @ voltage)
        here, y = voltage[self.column], equations.injected.data
        admittance = np.concatenate([y, np.zeros(len(here) - len(y))])
        mutual = voltage[equations.at[self.row]] * np.conj(admittance * here)
        own = np.where(self.own, current[self.row] * here, 0.0)
        by_angle, by_magnitude = 1j * (own - mutual), (own + mutual) / point.vm[self.column]
        rising = (point.alpha >= 0).astype(float)
        values = np.concatenate(
            [
                self._rows(by_angle, regulating, n)[self.turning],
                self._rows(by_magnitude, regulating, n),
                KAPPA * regulating[:n],
                -equations.up.data * rising[self.up.col],
                -equations.down.data * (1.0 - rising[self.down.col]),
                -equations.bias.data
                * (regulating[n + self.bias.row] & ~equations.exhausted[self.bias.col]),
                -equations.slack.data * equations.exhausted[self.slack.col],
                ~regulating[n:],
            ]
        )
        data = np.bincount(self.slot, values, minlength=len(self.indices))
        shape = (2 * n + equations.bias.shape[0], len(self.indptr) - 1)
        return sparse.csc_array((data, self.indices, self.indptr), shape=shape)

    def _rows(self, derivative: Complexes, regulating: Bools, n: int) -> Floats:
        """Return the terms of active, reactive and metered power at their equations."""
        at_bus = self.row < n
        reactive = np.where(regulating[self.row[at_bus]], 0.0, derivative.imag[at_bus])
        weight = np.where(regulating[self.area - n], self.weight, 0.0)
        return np.concatenate(
            [derivative.real[at_bus], reactive, weight * derivative.real[self.metered]]
        )


def _ordered(
    terms: list[tuple[Ints, Ints]], turns: Bools, areas: int, islands: int
) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Return the places of terms in a matrix ordered for elimination.

    Parameters
    ----------
    terms : list of (row, column)
        Places of terms among equations and unknowns.
    turns : (n,) bool
        Buses whose angle is unknown.

    Returns
    -------
    slot, indices, indptr, row_order, column_place : int arrays
        As in :class:`Jacobian`.
    """
    n, free = len(turns), int(turns.sum())
    size = 2 * n + areas
    # an area is paired with its alpha, a reference with a regulation in place of its angle
    bus, area_node = np.arange(n), n + np.arange(areas)
    row_node = np.concatenate([bus, bus, area_node])
    column_node = np.concatenate([bus[turns], bus, area_node, bus[~turns]])
    place = _elimination(
        np.concatenate([row_node[r] for r, _ in terms]),
        np.concatenate([column_node[c] for _, c in terms]),
        n + areas,
    )
    vm = np.isin(np.arange(size), np.arange(free, free + n))
    row_order = np.argsort(place[row_node], kind="stable")
    column_order = np.lexsort((vm, place[column_node]))
    row_place, column_place = np.argsort(row_order), np.argsort(column_order)
    # indices of SciPy's matrices are of 32 bits, which a place's number outgrows
    key = np.concatenate([column_place[c].astype(np.int64) * size + row_place[r] for r, c in terms])
    places, slot = np.unique(key, return_inverse=True)
    indptr = np.searchsorted(places, size * np.arange(free + n + areas + islands + 1))
    return slot, places % size, indptr, row_order, column_place


def _elimination(row: Ints, column: Ints, n: int) -> Ints:
    """Return the position of each node of a graph in an elimination by least degree."""
    ends = (np.concatenate([row, column]), np.concatenate([column, row]))
    graph = sparse.coo_array((np.ones(len(ends[0])), ends), shape=(n, n)).tocsc()
    graph.data[:] = 1.0
    dominant = (graph + sparse.diags_array(np.full(n, n + 1.0))).tocsc()
    factors = splu(
        dominant, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
    )
    return np.asarray(factors.perm_c, dtype=np.int64)


def _metered(tie_area: sparse.csr_array, row: Ints, n: int) -> tuple[Ints, Ints, Floats]:
    """Return for all metered terms: the area's equation, the term of Y, its weight."""
    tie_terms = tie_area.tocoo()
    terms = np.flatnonzero(row >= n)
    terms = terms[np.argsort(row[terms], kind="stable")]
    first = np.searchsorted(row[terms], n + tie_terms.col)
    count = np.searchsorted(row[terms], n + tie_terms.col, side="right") - first
    of = np.repeat(np.arange(len(tie_terms.data)), count)
    within = np.arange(len(of)) - np.repeat(np.cumsum(count) - count, count)
    return 2 * n + tie_terms.row[of], terms[first[of] + within], tie_terms.data[of]


TOLERANCE = 1e-10
ACCEPTED = 1e-8
MOST_STEPS = 20
SWITCHING_GROWTH = 10.0
LEAST_PIVOT = 0.01
"""Share of the largest entry of its column below which a diagonal entry is not a pivot."""
FAST = 0.1
"""Share of the residual after a step up to which its factors are used again."""
SHORTEST_STEP = 0.05
LARGEST_ANGLE = 1e3
"""rad: largest angle of an iterate."""


class PowerFlowError(SolverError):
    """Newton's method found no solution.

    Attributes
    ----------
    bus : int
        Bus of the largest mismatch.
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
    """Solution of the equations.

    Attributes
    ----------
    voltage : (n,) complex
    regulating : (n + areas,) bool
        Buses at their set point, areas at their interchange.
    mismatch : float
        Largest residual, p.u.
    """

    voltage: Complexes
    alpha: Floats
    delta: Floats
    regulating: Bools
    mismatch: float
    steps: int


def solve_power_flow(
    equations: FlowEquations, jacobian: Jacobian, voltage: Complexes, alpha: Floats, delta: Floats
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
    residuals = residual(equations, point)
    growth = SWITCHING_GROWTH
    for step in range(MOST_STEPS):
        if residuals.largest <= TOLERANCE:
            return _solution(point, residuals, step)
        improved = _improved(equations, jacobian, point, residuals, growth)
        if improved is None:
            break
        if improved[1].norm > residuals.norm:
            growth = 1.0
        point, residuals = improved
    if residuals.largest <= ACCEPTED:
        return _solution(point, residuals, MOST_STEPS)
    n = len(equations.p)
    size = np.abs(residuals.values[: 2 * n])
    worst = int(np.argmax(np.where(np.isfinite(size), size, np.inf)))
    raise PowerFlowError(worst % n, float(size[worst]))


def _solution(point: Point, residuals: Residual, steps: int) -> FlowSolution:
    return FlowSolution(
        point.voltage(), point.alpha, point.delta, residuals.regulating, residuals.largest, steps
    )


def _improved(
    equations: FlowEquations, jacobian: Jacobian, point: Point, residuals: Residual, growth: float
) -> tuple[Point, Residual] | None:
    """Return the point after a Newton step, with a step length that reduces the residual.

    Where the step crosses limits, the residual may grow by the factor ``growth``.
    """
    try:
        factors = splu(
            jacobian.at(equations, point, residuals.regulating),
            permc_spec="NATURAL",
            diag_pivot_thresh=LEAST_PIVOT,
            options={"SymmetricMode": True},
        )
    except RuntimeError:  # exactly singular
        return None
    change = _change(jacobian, factors, residuals)
    if not np.isfinite(change).all():
        return None
    length = 1.0
    while length >= SHORTEST_STEP:
        candidate = point.plus(length * change, equations.reference)
        if (candidate.vm > 0).all() and np.abs(candidate.va).max() < LARGEST_ANGLE:
            after = residual(equations, candidate)
            same = np.array_equal(residuals.regulating, after.regulating)
            if after.norm < (residuals.norm if same else growth * residuals.norm):
                return _refined(equations, jacobian, factors, residuals, candidate, after)
        length /= 2
    return None


def _change(jacobian: Jacobian, factors: SuperLU, residuals: Residual) -> Floats:
    return np.asarray(factors.solve(-residuals.values[jacobian.row_order])[jacobian.column_place])


def _refined(
    equations: FlowEquations,
    jacobian: Jacobian,
    factors: SuperLU,
    before: Residual,
    point: Point,
    residuals: Residual,
) -> tuple[Point, Residual]:
    """Return the point after more steps with the same factors, while the residual falls fast."""
    candidate, after = point, residuals
    while after.norm < FAST * before.norm and np.array_equal(before.regulating, after.regulating):
        point, before, residuals = candidate, after, after
        if residuals.largest <= TOLERANCE:
            break
        candidate = point.plus(_change(jacobian, factors, residuals), equations.reference)
        after = residual(equations, candidate)
    return point, residuals

"""Unit commitment: a mixed-integer linear program, solved by HiGHS.

The network is one node: what generators give in a step meets the released demand and the losses
of the plan in which all run. Costs are the largest of tangents, in perspective form, so that a
generator that does not run costs nothing:

    cost >= C(p_k) u + C'(p_k) (p - p_k u)        at points p_k of its range

The AC plan of what runs follows (:mod:`gridpriv.power.ac.day`); it sheds demand where the network
needs a generator that does not run. Without a commitment every generator runs, between its
limits: the usual relaxation.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from gridpriv.core.arrays import Bools, Floats, Ints
from gridpriv.core.errors import SolverError
from gridpriv.grid.case import Case
from gridpriv.grid.chronology import Chronology, Storage, Switch
from gridpriv.power.objective import cost_at, marginal_cost

TANGENTS = 6
LARGEST = 1e4
"""p.u. in place of an output without a limit."""
GAP = 1e-4
"""Relative distance to the optimum at which the search ends."""


@dataclass
class _Linear:
    """A mixed-integer linear program under construction."""

    low: list[Floats] = field(default_factory=list)
    high: list[Floats] = field(default_factory=list)
    cost: list[Floats] = field(default_factory=list)
    whole: list[Floats] = field(default_factory=list)
    entries: list[tuple[Ints, Ints, Floats]] = field(default_factory=list)
    sides: list[tuple[Floats, Floats]] = field(default_factory=list)
    columns: int = 0
    rows: int = 0

    def variables(
        self, low: Floats, high: Floats, cost: float = 0.0, *, whole: bool = False
    ) -> Ints:
        """Add variables; return their indices."""
        added = np.arange(self.columns, self.columns + len(low))
        self.columns += len(low)
        for current, values in (
            (self.low, low),
            (self.high, high),
            (self.cost, np.full(len(low), cost)),
            (self.whole, np.full(len(low), float(whole))),
        ):
            current.append(np.asarray(values, float))
        return added

    def row(self, low: Floats, high: Floats, *terms: tuple[Ints, Floats | float]) -> None:
        """Add rows low <= sum of factor times variable <= high, elementwise over terms."""
        rows = np.arange(self.rows, self.rows + len(low))
        self.rows += len(low)
        self.sides.append((np.asarray(low, float), np.asarray(high, float)))
        for columns, factor in terms:
            self.entries.append((rows, columns, np.broadcast_to(factor, len(rows)).astype(float)))

    def solve(self) -> Floats:
        """Return the solution.

        Raises
        ------
        SolverError
            If there is none.
        """
        rows, columns, values = (np.concatenate(part) for part in zip(*self.entries, strict=True))
        matrix = sparse.coo_array((values, (rows, columns)), shape=(self.rows, self.columns))
        lower, upper = (np.concatenate(side) for side in zip(*self.sides, strict=True))
        result = milp(
            np.concatenate(self.cost),
            integrality=np.concatenate(self.whole),
            bounds=Bounds(np.concatenate(self.low), np.concatenate(self.high)),
            constraints=LinearConstraint(matrix.tocsr(), lower, upper),
            options={"mip_rel_gap": GAP},
        )
        if result.x is None:
            raise SolverError(f"no commitment serves the released demand: HiGHS: {result.message}")
        return np.asarray(result.x)


def commitment(case: Case, chronology: Chronology, need: Floats) -> Bools:
    """Return the generators that run in each step at least cost, (T, g).

    Parameters
    ----------
    need : (T,)
        Demand and losses of all zones, p.u.

    Raises
    ------
    SolverError
        If no commitment meets the need and the reserves.
    """
    program, count = _Linear(), len(need)
    item, none = np.ones(count), np.zeros(count)
    switches = {switch.gen: switch for switch in chronology.switches}
    storages = {storage.gen: storage for storage in chronology.storages}
    running, outputs, reserves = {}, [], {}
    for g in range(case.n_gen):
        on = program.variables(none if g in switches else item, item, whole=g in switches)
        running[g] = on
        low, high = np.clip([case.pmin[g], case.pmax[g]], -LARGEST, LARGEST)
        output = program.variables(np.full(count, min(low, 0.0)), np.full(count, max(high, 0.0)))
        outputs.append(output)
        program.row(none - np.inf, none, (output, 1.0), (on, -high))
        program.row(none, none + np.inf, (output, 1.0), (on, -low))
        if (chronology.reserve_most[:, g] > 0).any():
            reserves[g] = _reserve(program, chronology, g, output, on, (low, high))
        _ramps(program, chronology, g, output, high)
        if g in storages:
            _energy(program, chronology, storages[g], output)
        elif case.cost:
            _cost(program, case, g, output, on, (low, high))
        if g in switches:
            _starts(program, switches[g], on, chronology.hours)
    program.row(need, need, *((output, 1.0) for output in outputs))
    for k in (0, 1):
        if chronology.reserve_required[k].any():
            matches = [(up_down[k], 1.0) for up_down in reserves.values()]
            program.row(chronology.reserve_required[k], none + np.inf, *matches)
    x = program.solve()
    return np.column_stack([x[running[g]] > 0.5 for g in range(case.n_gen)])


def _reserve(
    program: _Linear,
    chronology: Chronology,
    g: int,
    output: Ints,
    on: Ints,
    limits: tuple[float, float],
) -> tuple[Ints, Ints]:
    """Add a generator's reserves, up and down; return their variables."""
    count, hours = len(output), chronology.hours
    none = np.zeros(count)
    up, down = (
        program.variables(none, np.full(count, most), hours * price)
        for most, price in zip(
            chronology.reserve_most[:, g], chronology.reserve_price[:, g], strict=True
        )
    )
    program.row(none - np.inf, none, (output, 1.0), (up, 1.0), (on, -limits[1]))
    program.row(none, none + np.inf, (output, 1.0), (down, -1.0), (on, -limits[0]))
    return up, down


def _ramps(program: _Linear, chronology: Chronology, g: int, output: Ints, high: float) -> None:
    """Add ramps, with room for a start or a stop at any output."""
    up, down = chronology.ramp_up[g] * chronology.hours, chronology.ramp_down[g] * chronology.hours
    if len(output) < 2 or (np.isinf(up) and np.isinf(down)):
        return
    if any(switch.gen == g for switch in chronology.switches):
        return  # the AC plan holds ramps between steps in which it runs
    rows = np.ones(len(output) - 1)
    program.row(
        -min(down, 2 * high) * rows,
        min(up, 2 * high) * rows,
        (output[1:], 1.0),
        (output[:-1], -1.0),
    )


def _energy(program: _Linear, chronology: Chronology, storage: Storage, output: Ints) -> None:
    """Add charge, discharge and energy of a storage."""
    count, hours = len(output), chronology.hours
    none = np.zeros(count)
    charge = program.variables(none, none + storage.charge)
    discharge = program.variables(none, none + storage.discharge)
    least = none.copy()
    least[-1] = storage.end
    energy = program.variables(least, none + storage.energy)
    program.row(none, none, (output, 1.0), (discharge, -1.0), (charge, 1.0))
    kept = 1.0 - storage.loss * hours
    start = np.array([kept * storage.start])
    gained, lost = -hours * storage.charge_efficiency, hours / storage.discharge_efficiency
    for rows, before, right in (
        (slice(0, 1), None, start),
        (slice(1, None), energy[:-1], none[1:]),
    ):
        terms = [(energy[rows], 1.0), (charge[rows], gained), (discharge[rows], lost)]
        program.row(right, right, *terms, *(() if before is None else ((before, -kept),)))


def _cost(
    program: _Linear, case: Case, g: int, output: Ints, on: Ints, limits: tuple[float, float]
) -> None:
    """Add a generator's cost in $/h, the largest of its tangents."""
    count = len(output)
    endless = np.full(count, np.inf)
    height = program.variables(-endless, endless, 1.0)
    for point in np.unique(np.linspace(*limits, TANGENTS)):
        slope = marginal_cost(case.cost[g], case.base_mva, float(point))
        level = cost_at(case.cost[g], case.base_mva, float(point)) - slope * point
        program.row(np.zeros(count), endless, (height, 1.0), (output, -slope), (on, -level))


def _starts(program: _Linear, switch: Switch, on: Ints, hours: float) -> None:
    """Add starts at their cost, and least times of running and of standing still."""
    count = len(on)
    if count < 2:
        return
    none, endless = np.zeros(count), np.full(count, np.inf)
    start = program.variables(none, none + 1.0, switch.start_cost / hours)
    stop = program.variables(none, none + 1.0)
    program.row(
        none[1:], none[1:], (on[1:], 1.0), (on[:-1], -1.0), (start[1:], -1.0), (stop[1:], 1.0)
    )
    for hours_least, changed, sign in ((switch.min_up, start, 1.0), (switch.min_down, stop, -1.0)):
        steps = int(np.ceil(hours_least / hours - 1e-9))
        for t in range(1, count):
            window = changed[max(1, t - steps + 1) : t + 1]
            bound = 0.0 if sign > 0 else 1.0
            terms = [(window[[k]], 1.0) for k in range(len(window))]
            program.row(-endless[:1], np.array([bound]), *terms, (on[[t]], -sign))

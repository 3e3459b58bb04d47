"""AC optimal power flow of zones over many steps (ramps, storage, reserves); unit commitment.

The interior-point method of :mod:`gridpriv.power.ac.interior` takes blocks with a common border. A
block is a zone in one step (:func:`gridpriv.power.ac.joint.zone_block`), a generator or a storage
over all steps, or the reserve requirement of one step. The border has the tie-end voltages, the
outputs of coupled generators and their reserves, for every step.

A storage is a generator whose output p = discharge - charge changes its energy,

    e_t = (1 - loss)^h e_(t-1) + h (efficiency_charge charge_t - discharge_t / efficiency_discharge)

with h the hours of a step. Simultaneous charging and discharging is not excluded: with losses it
pays only where power has a negative price. This is the usual convex relaxation. Reserves satisfy
pg + up <= pmax and pg - down >= pmin. Their sum over all zones meets the requirement of a step; a
deficit is priced as load shedding.

Privacy. As in the joint rounds of one step: all blocks use public data and released demand.

Unit commitment is a mixed-integer linear program, solved by HiGHS. In every island generation meets
the released demand and the losses of an AC schedule, with load shedding and curtailed generation by
bus at the prices of the AC schedule. Active flows within ratings and angle limits change from its
flows as in the DC power flow; limits are added where a solution violates them. Ramps hold between
steps in which a generator runs. Cost is the maximum of tangents, in perspective form, so that a
generator that does not run costs nothing:

    cost >= C(p_k) u + C'(p_k) (p - p_k u)        at points p_k of its range

Tangents at the solution are added until its cost is that of the curves.

The AC schedule of the committed generators follows (:mod:`gridpriv.power.ac.day`); it sheds load
where the network needs a generator that does not run. Without a commitment every generator runs,
between its limits: the usual relaxation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from gridpriv.core.arrays import Bools, Floats, Ints, sums_at
from gridpriv.core.errors import SolverError
from gridpriv.grid.case import Case
from gridpriv.grid.chronology import Chronology, CommittableGenerator, Storage
from gridpriv.grid.network import DcPowerFlow, branch_flows, deenergized_buses, islands
from gridpriv.power.ac.block import Block, LocalBlocks
from gridpriv.power.ac.interior import Border, iterate
from gridpriv.power.ac.joint import ZoneBlock, tie_ends, zone_block
from gridpriv.power.ac.model import CURTAILMENT_WEIGHT
from gridpriv.power.ac.quadratic import QuadraticProgram
from gridpriv.power.ac.state import Dispatch
from gridpriv.power.objective import VOLL, cost_at, marginal_cost
from gridpriv.power.zone import Zone

MOST_ROUNDS, TOLERANCE, ACCEPTED = 300, 1e-6, 1e-5
NO_ROWS = np.zeros(0, dtype=np.int64)


class UnitBlock:
    """A generator or a storage over all steps.

    Attributes
    ----------
    gen : int
        Index in the case.
    output : (T,) int
        Variables of its output: border entries.
    energy : (T,) int
        Variables of a storage's energy; empty for a generator.
    reserve : (2, T) int
        Variables of its reserves, up and down: border entries; of shape (2, 0) without any.
    limits : int array
        Rows with its limits of output in single steps.
    """

    def __init__(
        self,
        case: Case,
        chronology: Chronology,
        gen: int,
        start: Floats,
        price: float,
        on: Floats,
    ) -> None:
        self.gen, count, program = gen, len(start), QuadraticProgram()
        low, high = (np.where(on > 0, limit[gen], 0.0) for limit in (case.pmin, case.pmax))
        output = self.output = program.add_variables(count, start=start)
        self.reserve = np.zeros((2, 0), dtype=np.int64)
        if (chronology.reserve_most[:, gen] > 0).any():
            up, down = self.reserve = program.add_variables(2 * count).reshape(2, -1)
            program.add_sums(-np.inf, high, (output, 1.0), (up, 1.0))
            program.add_sums(low, np.inf, (output, 1.0), (down, -1.0))
            for k, current in enumerate(self.reserve):
                program.add_sums(0.0, chronology.reserve_most[k, gen] * on, (current, 1.0))
                program.add_cost(current, chronology.reserve_price[k, gen] / price)
        self.limits = program.add_sums(low, high, (output, 1.0))
        self._add_ramps(program, chronology, on)
        self.energy = NO_ROWS
        for storage in (each for each in chronology.storages if each.gen == gen):
            self.energy = add_storage(program, output, storage, chronology)
        border = np.concatenate([output, self.reserve.ravel()])
        self.block = Block(program.form(), border, NO_ROWS, program.start)

    def _add_ramps(self, program: QuadraticProgram, chronology: Chronology, on: Floats) -> None:
        """Add -down h <= pg_t - pg_(t-1) <= up h, where the generator runs in both steps."""
        ramps = chronology.ramp_up[self.gen], chronology.ramp_down[self.gen]
        up, down = (ramp * chronology.hours for ramp in ramps)
        if np.isinf(up) and np.isinf(down):
            return
        if chronology.before is not None:
            last = chronology.before[[self.gen]]
            program.add_sums(last - down, last + up, (self.output[:1], 1.0))
        both = np.flatnonzero((on[1:] > 0) & (on[:-1] > 0))
        terms = (self.output[1:][both], 1.0), (self.output[:-1][both], -1.0)
        program.add_sums(-down, up, *terms)

    @property
    def price(self) -> Floats:
        """Derivative by output, (T,), of the Lagrangian's terms that couple steps or reserves."""
        form, at = self.block.form, self.block.point
        multiplier = at.multiplier.copy()
        multiplier[self.limits] = 0.0
        return form.adjoint(at.x, multiplier)[self.output]


@dataclass(frozen=True, eq=False)
class DayOptimum:
    """The blocks at their joint optimum.

    Attributes
    ----------
    steps : list of list of ZoneBlock
        The energized zones' blocks, by step.
    units : list of UnitBlock
    rounds : int
    mismatch : float
        Largest AC mismatch, p.u.
    """

    steps: list[list[ZoneBlock]]
    units: list[UnitBlock]
    rounds: int
    mismatch: float


@dataclass(frozen=True, eq=False)
class DayProblem:
    """The AC optimal power flow of zones over all steps.

    Attributes
    ----------
    demands : sequence of sequence of (2 own,)
        Released demand, by step and zone.
    voll : float
        Value of lost load in $/MWh.
    unit : float or None
        Of the objective in $/h per p.u.; None where losses are minimized.
    """

    zones: Sequence[Zone]
    demands: Sequence[Sequence[Floats]]
    chronology: Chronology
    voll: float
    unit: float | None

    @property
    def case(self) -> Case:
        """The grid; its demand is not read."""
        return self.zones[0].network.case

    def everything_running(self) -> Bools:
        """Return the commitment in which all generators run, (T, g)."""
        return np.ones((len(self.demands), self.case.n_gen), bool)

    def optimum(self, committed: Bools | None = None) -> DayOptimum:
        """Return the joint optimum of zones over all steps.

        Parameters
        ----------
        committed : (T, g) bool, optional
            Generators that run in each step; by default all.

        Raises
        ------
        SolverError
            If the rounds do not converge.
        """
        on = self.everything_running() if committed is None else committed
        for estimated in (False, True):
            steps, units, blocks, border = self._blocks(on, estimated)
            last = None
            for last in iterate(LocalBlocks(blocks), border, MOST_ROUNDS, TOLERANCE):  # noqa: B007
                pass
            if last is not None and last.converged(ACCEPTED):
                return DayOptimum(steps, units, last.number, last.primal)
        error = "none" if last is None else f"{last.error:.3g}"
        raise SolverError(
            f"the plan of {len(on)} steps did not converge in {MOST_ROUNDS} rounds (error {error})"
        )

    def _blocks(
        self, committed: Bools, estimated: bool
    ) -> tuple[list[list[ZoneBlock]], list[UnitBlock], list[Block], Border]:
        """Return zones' blocks by step and those of units, then all blocks, and their border."""
        case, chronology = self.case, self.chronology
        ends, count = tie_ends(case, self.zones), len(self.demands)
        reserved = (chronology.reserve_most > 0).any(axis=0)
        joined = np.isfinite(chronology.ramp_up) | np.isfinite(chronology.ramp_down) | reserved
        joined[[storage.gen for storage in chronology.storages]] = True
        coupled, holding = np.flatnonzero(joined), np.flatnonzero(reserved)
        steps = []
        for t, released in enumerate(self.demands):
            of = {"estimated": estimated, "shared_gens": coupled, "running": committed[t]}
            settings: Any = {"voll": self.voll, "unit": self.unit, **of}
            parts = zip(self.zones, released, strict=True)
            every = [zone_block(z, d, ends.of(z), **settings) for z, d in parts]
            steps.append([block for block in every if block is not None])
        price = next((block.price for live in steps for block in live), 1.0)
        size = count * len(coupled)
        outputs = count * ends.size + np.arange(size).reshape(count, len(coupled))
        blocks, at, start = [], [], np.zeros(outputs.shape)
        for t, live in enumerate(steps):
            for block in live:
                place = np.searchsorted(coupled, block.part.gens[block.shared])
                start[t, place] = block.block.point.x[block.model.pg[block.shared]]
                blocks.append(block.block)
                at.append(_numbered(block, t * ends.size, outputs[t, place]))
        size = 2 * count * len(holding)
        reserves = count * ends.size + outputs.size + np.arange(size).reshape(2, count, -1)
        units = []
        for j, gen in enumerate(coupled.tolist()):
            on = committed[:, gen].astype(float)
            units.append(UnitBlock(case, chronology, gen, start[:, j], price, on))
            at.append(np.append(outputs[:, j], reserves[:, :, holding == gen].ravel()))
        blocks += [own.block for own in units]
        for t in range(count) if len(holding) else ():
            blocks.append(_reserve_block(chronology, holding, t, self.voll / price))
            at.append(reserves[:, t].ravel())
        border = Border(count * ends.size + outputs.size + reserves.size, at)
        return steps, units, blocks, border


def _numbered(block: ZoneBlock, offset: int, entries: Ints) -> Ints:
    """Return a zone block's border numbers in its step; its coupled outputs come after voltages."""
    columns = len(block.at) - block.balance_entries
    at = offset + block.at
    return np.concatenate([at[:columns], entries, at[columns:]])


def add_storage(
    program: QuadraticProgram, output: Ints, storage: Storage, chronology: Chronology
) -> Ints:
    """Add charge, discharge and energy of a storage; return the variables of its energy."""
    count, hours = len(output), chronology.hours
    charge = program.add_variables(count, 0.0, storage.charge)
    discharge = program.add_variables(count, 0.0, storage.discharge)
    least, right = np.zeros((2, count))
    least[-1] = storage.end
    energy = program.add_variables(count, least, storage.energy, storage.start)
    program.add_sums(0.0, 0.0, (output, 1.0), (discharge, -1.0), (charge, 1.0))
    retention = storage.retention(hours)
    right[0] = retention * storage.start
    row = program.add_sums(right, right, (energy, 1.0))
    program.add_linear(row[1:], energy[:-1], -retention)
    program.add_linear(row, charge, -hours * storage.charge_efficiency)
    program.add_linear(row, discharge, hours / storage.discharge_efficiency)
    return energy


def _reserve_block(chronology: Chronology, holding: Ints, step: int, shed_price: float) -> Block:
    """Return the requirement of one step: reserves of all zones, or a priced shortfall."""
    program, count = QuadraticProgram(), len(holding)
    reserve = program.add_variables(2 * count)
    row = program.add_rows(2, chronology.reserve_required[:, step], np.inf)
    program.add_linear(np.repeat(row, count), reserve, 1.0)
    program.add_slack(row, 1.0, shed_price)
    return Block(program.form(), reserve, NO_ROWS, program.start)


TANGENTS, REFINEMENTS, LEAST_SHARE = 6, 20, 1e-3
GAP = 1e-4
"""Relative distance to the optimum at which the search ends, and that of its cost to the curves."""
LOADING = 1.05
"""Largest loading of a branch: voltages of the AC schedule can lower a flow by some percent."""
OVERLOAD, NO_OVERLOAD = 10.0, 1e-6
"""Price of an overload over that of the shed load that relieves it best; p.u. that counts as none.
"""


@dataclass(frozen=True, eq=False)
class LinearGrid:
    """The active branch flows of every step, linear in the injections.

    Attributes
    ----------
    dc : DcPowerFlow
    need : (T, n)
        Demand and losses of every bus, p.u.; half of a branch's losses belong to each end.
    low, high : (T, m)
        Limits of the DC flows of generation less need, p.u.; infinite without a limit.
    """

    dc: DcPowerFlow
    need: Floats
    low: Floats
    high: Floats

    @staticmethod
    def of(case: Case, plans: Sequence[Dispatch]) -> LinearGrid:
        """Return the linear grid about the AC schedules of all steps.

        Losses are those of the plans. Flows change from those of the plans by the DC power flow. A
        plan that exceeds a rating or an angle limit widens it.

        Raises
        ------
        SolverError
            Where reactances of both signs cancel, so that there is no DC power flow.
        """
        try:
            dc = DcPowerFlow.of(case)
        except RuntimeError:
            raise SolverError(
                f"--commitment: {case.name} has no DC power flow, as reactances of both signs "
                "cancel. Change them or leave --commitment out."
            ) from None
        rate = np.where(case.rate > 0, LOADING * case.rate, np.inf)
        live, f, t = ~deenergized_buses(case)[case.f_bus], case.f_bus, case.t_bus
        needs, limits = [], []
        for plan in plans:
            voltage = plan.vm * np.exp(1j * plan.va)
            here, there = branch_flows(case, voltage)
            flow = np.where(live, (here - there).real / 2, 0.0)
            out = sums_at(f, flow, case.n_bus) - sums_at(t, flow, case.n_bus)
            supply = sums_at(case.gen_bus, plan.pg, case.n_bus) + plan.p_shed - plan.curtailment
            needs.append(supply - out)
            change = np.stack([case.angmin, case.angmax]) - np.angle(voltage[f] * voltage[t].conj())
            low, high = np.sort(dc.susceptance * change, axis=0)
            low, high = np.maximum(low, -rate - flow), np.minimum(high, rate - flow)
            room = np.stack([np.minimum(low, 0.0), np.maximum(high, 0.0)])
            limits.append(dc.flows(out[:, None])[:, 0] + room)
        return LinearGrid(dc, np.array(needs), *np.moveaxis(np.array(limits), 0, 1))


@dataclass(frozen=True, eq=False)
class _Injections:
    """Variables of injections: generation, load shedding, and, with sign -1, curtailment.

    Attributes
    ----------
    bus : (v,) int
    sign : (v,)
    column : (v, T) int
    """

    bus: Ints
    sign: Floats
    column: Ints

    def at_buses(self, x: Floats, n_bus: int) -> Floats:
        """Return the injections (n, T) of a solution."""
        total = np.zeros((n_bus, self.column.shape[1]))
        np.add.at(total, self.bus, self.sign[:, None] * x[self.column])
        return total

    def add_to(self, program: QuadraticProgram, row: Ints, factor: Floats, steps: Ints) -> None:
        """Add ``factor`` (n,) times the injections of some steps to the rows of these steps."""
        used = np.flatnonzero(factor[self.bus])
        columns = self.column[used][:, steps]
        entries = np.repeat((self.sign * factor[self.bus])[used], len(row))
        program.add_linear(np.tile(row, len(used)), columns.ravel(), entries)


def commitment(
    case: Case,
    chronology: Chronology,
    grid: LinearGrid,
    voll: float = VOLL,
    required: Sequence[tuple[int, Ints]] = (),
) -> Bools:
    """Return the generators that run in each step at least cost, (T, g).

    Parameters
    ----------
    grid : LinearGrid
        Demand, losses and limits of flows.
    voll : float
        Value of lost load in $/MWh.
    required : sequence of (int, int array)
        Steps, and generators of which at least one must run in that step.

    Raises
    ------
    SolverError
        If HiGHS fails: demand, reserves and limits of flows that cannot be met are priced.
    """
    problem = _Commitment(case, chronology, grid, voll * case.base_mva)
    running = problem.running
    for step, gens in required:
        problem.program.add_sums(1.0, np.inf, *((running[[g], step], 1.0) for g in gens.tolist()))
    injections = problem.balanced()
    problem.require_reserves()
    whole = running[[switch.gen for switch in chronology.switches]].ravel()
    limited = np.zeros(grid.low.T.shape, bool)

    def refine(x: Floats) -> bool:
        tangents = problem.refine(x)
        return problem.limit(injections, x, limited) or tangents

    def refine_linear(*fixed: Floats) -> None:
        for _ in range(REFINEMENTS):
            if not refine(_solved(problem.program, NO_ROWS, *((whole, each) for each in fixed))):
                return

    refine_linear()  # linear programs are cheaper to refine: the relaxation, and each commitment
    for _ in range(REFINEMENTS):
        x = _solved(problem.program, whole)
        if not refine(x):
            break
        refine_linear(np.round(x[whole]))
    return np.asarray(x[running.T] > 0.5)


class _Commitment:
    """The mixed-integer linear program of a commitment, with its generators and storages.

    Attributes
    ----------
    price : float
        Of shed load, $/h per p.u.
    output, running : (g, T) int
        Variables.
    reserves : list of (up, down)
        Variables of the generators with reserve.
    priced : dict of int to (output, running, cost)
        Variables of the generators with costs.
    """

    def __init__(self, case: Case, chronology: Chronology, grid: LinearGrid, price: float) -> None:
        self.case, self.chronology, self.grid, self.price = case, chronology, grid, price
        self.program, self.count = QuadraticProgram(), len(grid.need)
        self.reserves: list[tuple[Ints, Ints]] = []
        self.priced: dict[int, Sequence[Ints]] = {}
        units = [self._unit(g) for g in range(case.n_gen)]
        self.output, self.running = np.array(units).swapaxes(0, 1)

    @cached_property
    def _reach(self) -> float:
        """The largest output that a generator without limits can have, p.u."""
        limits = np.abs([self.case.pmin, self.case.pmax])
        required = self.chronology.reserve_required.sum(axis=0).max()
        finite = limits[np.isfinite(limits)].sum() + required
        return float(np.abs(self.grid.need).sum(axis=1).max() + finite)

    def _unit(self, g: int) -> tuple[Ints, Ints]:
        """Add a generator or a storage; return the variables of its output and of its state."""
        program, chronology, count = self.program, self.chronology, self.count
        switch = next((s for s in chronology.switches if s.gen == g), None)
        storage = next((s for s in chronology.storages if s.gen == g), None)
        on = program.add_variables(count, float(switch is None), 1.0)
        low, high = np.clip([self.case.pmin[g], self.case.pmax[g]], -self._reach, self._reach)
        output = program.add_variables(count, min(low, 0.0), max(high, 0.0))
        program.add_sums(-np.inf, 0.0, (output, 1.0), (on, -high))
        program.add_sums(0.0, np.inf, (output, 1.0), (on, -low))
        if (chronology.reserve_most[:, g] > 0).any():
            self._add_reserve(g, output, on, (low, high))
        self._add_ramps(g, output, on, max(abs(low), abs(high)))
        if storage is not None:
            add_storage(program, output, storage, chronology)
        elif self.case.cost:
            self.priced[g] = output, on, program.add_variables(count, price=1.0)
            for point in np.unique(np.linspace(low, high, TANGENTS)):
                self._add_tangents(g, self.priced[g], np.full(count, point))
        if switch is not None:
            self._add_starts(switch, on)
        return output, on

    def _add_reserve(self, g: int, output: Ints, on: Ints, limits: tuple[float, float]) -> None:
        """Add a generator's reserves, up and down."""
        program, chronology, base = self.program, self.chronology, self.case.base_mva
        terms = zip(chronology.reserve_most[:, g], chronology.reserve_price[:, g], strict=True)
        up, down = (
            program.add_variables(self.count, 0.0, most, price=base * price)
            for most, price in terms
        )
        program.add_sums(-np.inf, 0.0, (output, 1.0), (up, 1.0), (on, -limits[1]))
        program.add_sums(0.0, np.inf, (output, 1.0), (down, -1.0), (on, -limits[0]))
        self.reserves.append((up, down))

    def _add_ramps(self, g: int, output: Ints, on: Ints, largest: float) -> None:
        """Add ramps between steps in which the generator runs, with room for any start or stop."""
        before, after = slice(None, -1), slice(1, None)
        for ramp, (new, old) in (
            (self.chronology.ramp_up[g], (after, before)),
            (self.chronology.ramp_down[g], (before, after)),
        ):
            most = ramp * self.chronology.hours
            if self.count < 2 or np.isinf(most):
                continue
            room = max(largest - most, 0.0)
            terms = (output[new], 1.0), (output[old], -1.0), (on[new], room), (on[old], room)
            self.program.add_sums(-np.inf, most + 2.0 * room, *terms)

    def _add_tangents(self, g: int, unit: Sequence[Ints], point: Floats) -> None:
        """Add the tangent of a generator's cost in $/h at a point (p.u.) of every step.

        Parameters
        ----------
        unit : (output, on, cost)
            Variables of these steps.
        """
        output, on, height = unit
        curve = self.case.cost[g], self.case.base_mva
        slope = np.array([marginal_cost(*curve, p) for p in point.tolist()])
        level = np.array([cost_at(*curve, p) for p in point.tolist()]) - slope * point
        self.program.add_sums(0.0, np.inf, (height, 1.0), (output, -slope), (on, -level))

    def _add_starts(self, switch: CommittableGenerator, on: Ints) -> None:
        """Add starts at their cost, and minimum up and down times."""
        program, count, hours = self.program, self.count, self.chronology.hours
        if count < 2:
            return
        start = program.add_variables(count, 0.0, 1.0, price=switch.start_cost / hours)
        stop = program.add_variables(count, 0.0, 1.0)
        changes = (on[1:], 1.0), (on[:-1], -1.0), (start[1:], -1.0), (stop[1:], 1.0)
        program.add_sums(0.0, 0.0, *changes)
        times = (switch.min_up, start, 1.0), (switch.min_down, stop, -1.0)
        for hours_least, changed, sign in times:
            steps = int(np.ceil(hours_least / hours - 1e-9))
            for t in range(1, count):
                window = changed[max(1, t - steps + 1) : t + 1]
                terms = [(window[[k]], 1.0) for k in range(len(window))]
                program.add_sums(-np.inf, 0.0 if sign > 0 else 1.0, *terms, (on[[t]], -sign))

    def require_reserves(self) -> None:
        """Add the reserve requirement of every step; a shortfall is priced as load shedding."""
        for k, least in enumerate(self.chronology.reserve_required):
            row = self.program.add_rows(self.count, least, np.inf)
            self.program.add_slack(row, 1.0, self.price)
            for up_down in self.reserves:
                self.program.add_linear(row, up_down[k], 1.0)

    def balanced(self) -> _Injections:
        """Add every island's balance, with load shedding and curtailment by bus, at a price."""
        program, case, need, count = self.program, self.case, self.grid.need, self.count
        forced = np.maximum(case.pmin, 0.0)
        firm = sums_at(case.gen_bus, forced, case.n_bus) > 0
        most = np.maximum([need.T, -need.T], 0.0)
        buses = [np.flatnonzero(most[0].any(axis=1)), np.flatnonzero(firm | most[1].any(axis=1))]
        largest = most[0][buses[0]].ravel()
        shed = program.add_variables(len(largest), 0.0, largest, 0.0, self.price)
        curtailed = program.add_variables(
            buses[1].size * count, 0.0, price=CURTAILMENT_WEIGHT * self.price
        )
        columns = self.output, shed.reshape(-1, count), curtailed.reshape(-1, count)
        for bus, column in zip(buses[1].tolist(), columns[2], strict=True):
            here = np.flatnonzero(case.gen_bus == bus).tolist()
            terms = [(self.running[g], -forced[g]) for g in here]
            program.add_sums(-np.inf, most[1][bus], (column, 1.0), *terms)
        place = np.concatenate([case.gen_bus, *buses])
        sign = np.repeat([1.0, 1.0, -1.0], [len(column) for column in columns])
        injections = _Injections(place, sign, np.concatenate(columns))
        island, every = islands(case), np.arange(count)
        for number in range(island.max() + 1):
            inside = (island == number).astype(float)
            row = program.add_rows(count, need @ inside, need @ inside)
            injections.add_to(program, row, inside, every)
        return injections

    def refine(self, x: Floats) -> bool:
        """Add tangents at a solution; return False where its cost is that of the curves already."""
        case, units = self.case, self.priced.values()
        if not units:
            return False
        point, curve, gap = np.zeros((3, len(units), self.count))
        for k, (g, unit) in enumerate(self.priced.items()):
            output, on, height = (x[variables] for variables in unit)
            running = on > LEAST_SHARE
            point[k, running] = output[running] / on[running]
            costs = [cost_at(case.cost[g], case.base_mva, p) for p in point[k].tolist()]
            curve[k] = np.where(running, on * costs, 0.0)
            gap[k] = np.where(running, curve[k] - height, 0.0)
        allowed = GAP * np.abs(curve).sum()
        if gap.sum() <= allowed:
            return False
        for k, (g, unit) in enumerate(self.priced.items()):
            at = np.flatnonzero(gap[k] > allowed / gap.size)
            self._add_tangents(g, [v[at] for v in unit], point[k, at])
        return True

    def limit(self, injections: _Injections, x: Floats, limited: Bools) -> bool:
        """Limit the flows that a solution overloads; return False where none is new.

        An overload is priced per p.u. of the injection that relieves it best.

        Parameters
        ----------
        limited : (m, T) bool
            Flows with a limit, to which the new ones are added.
        """
        grid, case = self.grid, self.case
        flow = grid.dc.flows(injections.at_buses(x, case.n_bus) - grid.need.T)
        excess = np.maximum(flow - grid.high.T, grid.low.T - flow)
        new = (excess > NO_OVERLOAD) & ~limited
        limited |= new
        for branch in np.flatnonzero(new.any(axis=1)).tolist():
            steps, ends = np.flatnonzero(new[branch]), np.zeros(case.n_bus)
            ends[[case.f_bus[branch], case.t_bus[branch]]] = 1.0, -1.0
            ptdf = grid.dc.susceptance[branch] * grid.dc.angles(ends)
            unit = np.ptp(ptdf)
            fixed = grid.need[steps] @ ptdf
            sides = ((limit[steps, branch] + fixed) / unit for limit in (grid.low, grid.high))
            row = self.program.add_rows(len(steps), *sides)
            injections.add_to(self.program, row, ptdf / unit, steps)
            for sign in (1.0, -1.0):
                self.program.add_slack(row, sign, OVERLOAD * self.price)
        return bool(new.any())


def _solved(program: QuadraticProgram, whole: Ints, *fixed: tuple[Ints, Floats]) -> Floats:
    """Return the solution of a mixed-integer linear program.

    Parameters
    ----------
    whole : int array
        Integer variables.
    fixed : tuples of (int array, array)
        Variables, and the values at which they are fixed.

    Raises
    ------
    SolverError
        If there is none.
    """
    form = program.form()
    matrix = sparse.coo_array(
        (form.slope, (form.line, form.column)), shape=(form.rows, form.columns)
    )
    for variables, values in fixed:
        form.low[variables] = form.high[variables] = values
    result = milp(
        form.linear,
        integrality=np.isin(np.arange(form.columns), whole),
        bounds=Bounds(form.low, form.high),
        constraints=LinearConstraint(matrix.tocsr(), form.lower, form.upper),
        options={"mip_rel_gap": GAP},
    )
    if result.x is None:
        raise SolverError(f"HiGHS finds no commitment: {result.message}")
    return np.asarray(result.x)

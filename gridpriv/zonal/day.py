"""Joint plan of all steps of a series, from a single release of their demand.

Zones plan the series jointly (:mod:`gridpriv.power.ac.day`) on their released demand. Each step is
then run separately: zones redispatch around the plan with their true demand. Public limits keep
steps within ramps, energies and reserves: storages follow the plan, and limits of a generator in
each step allow for any output within limits in adjacent steps. With u_t = pg_t - pg_(t-1) of the
plan and a ramp of r per step, up and down, it may deviate from the plan by

    at most  min(r - u_t, r + u_(t+1)) / 2  upwards,   min(r + u_t, r - u_(t+1)) / 2  downwards:

the sum of two consecutive deviations never exceeds the rest of the ramp.

For a stream the horizon recedes: in every step zones plan the next :data:`LOOK_AHEAD` hours on
predictions from the releases so far, and use the first step of that plan. The next step is not
known then, so :data:`PLANNED` of every ramp is for plans and the rest for the deviations of two
consecutive steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gridpriv.core.arrays import Bools, Floats, Ints
from gridpriv.core.text import Json
from gridpriv.grid.case import POLYNOMIAL, Case, GenCost
from gridpriv.grid.chronology import Chronology
from gridpriv.power.ac.day import GAP, DayOptimum, DayProblem, LinearGrid, commitment
from gridpriv.power.ac.flow import ac_flow
from gridpriv.power.ac.joint import NEGLIGIBLE, ZoneBlock, joint_plan, tie_ends
from gridpriv.power.ac.model import CURTAILMENT_WEIGHT
from gridpriv.power.ac.state import Dispatch
from gridpriv.power.ac.zone_redispatch import operating_unit
from gridpriv.power.objective import cost_at
from gridpriv.power.schedule import AcSchedule, CentralSchedule
from gridpriv.power.zone import coordinates, with_demand
from gridpriv.zonal.documents import CommitmentStep, ReserveStep, StorageStep
from gridpriv.zonal.prepared import Prepared

LOOK_AHEAD = 24
"""Hours of a receding plan."""
PLANNED = 0.8
"""Share of every ramp that a receding plan uses."""
COMMITMENTS = 5
"""Most commitments of a day: each but the first is based on the plan of the one before."""
FREE = GenCost(POLYNOMIAL, (0.0, 0.0))


@dataclass(frozen=True, eq=False)
class DayPlan:
    """The plan of all steps; public.

    Attributes
    ----------
    chronology : Chronology
    schedules : tuple of CentralSchedule
        By step.
    output : (T, g)
        Planned output of the generators, p.u.
    low, high : (T, g)
        Limits of output in every step's redispatch.
    reserve : (2, T, g)
        Reserves, up and down.
    energy : (T, storages)
        After every step, p.u. hours.
    running : (T, g) bool or None
        Committed generators.
    efforts : tuple of (int, float)
        Rounds of each step's plan, and its largest AC mismatch in p.u.
    """

    chronology: Chronology
    schedules: tuple[CentralSchedule, ...]
    output: Floats
    low: Floats
    high: Floats
    reserve: Floats
    energy: Floats
    running: Bools | None
    efforts: tuple[tuple[int, float], ...]

    def step(self, case: Case, number: int) -> Case:
        """Return a step's case with the plan's limits of output."""
        limits = {"pmin": self.low[number], "pmax": self.high[number]}
        if self.running is None:
            return replace(case, **limits)
        on = self.running[number]
        limits |= {name: np.where(on, getattr(case, name), 0.0) for name in ("qmin", "qmax")}
        pairs = zip(case.cost, on, strict=False)  # a case without costs has none
        cost = tuple(curve if runs else FREE for curve, runs in pairs)
        return replace(case, **limits, cost=cost)

    def tables(self, case: Case, steps: Sequence[str]) -> dict[str, list[Json]]:
        """Return the rows of storages, reserves and commitment by step."""
        return {
            StorageStep.table.name: self.rows(case, steps),
            ReserveStep.table.name: self.reserve_rows(case, steps),
            CommitmentStep.table.name: self.commitment_rows(case, steps),
        }

    def rows(self, case: Case, steps: Sequence[str]) -> list[Json]:
        """Return one row per step and storage (:class:`gridpriv.zonal.documents.StorageStep`)."""
        base = case.base_mva
        return [
            {
                "step": name,
                "storage": storage.name,
                "bus": int(case.bus_id[case.gen_bus[storage.gen]]),
                "p_mw": base * float(self.output[t, storage.gen]),
                "energy_mwh": base * (energy := storage.floor + float(self.energy[t, k])),
                "soc_percent": 100.0 * energy / full if full > 0 else None,
            }
            for t, name in enumerate(steps)
            for k, storage in enumerate(self.chronology.storages)
            for full in (storage.floor + storage.energy,)
        ]

    def reserve_rows(self, case: Case, steps: Sequence[str]) -> list[Json]:
        """Return one row per step and generator with reserve.

        Columns: :class:`gridpriv.zonal.documents.ReserveStep`.
        """
        holding = np.flatnonzero((self.chronology.reserve_most > 0).any(axis=0)).tolist()
        up, down = case.base_mva * self.reserve
        return [
            {
                "step": name,
                "gen": int(case.gen_row[gen]),
                "bus": int(case.bus_id[case.gen_bus[gen]]),
                "up_mw": float(up[t, gen]),
                "down_mw": float(down[t, gen]),
            }
            for t, name in enumerate(steps)
            for gen in holding
        ]

    def commitment_rows(self, case: Case, steps: Sequence[str]) -> list[Json]:
        """Return one row per step and generator that may be switched off.

        Columns: :class:`gridpriv.zonal.documents.CommitmentStep`.
        """
        on = np.zeros((0, case.n_gen), bool) if self.running is None else self.running
        starts = on & ~np.vstack([on[:1], on[:-1]])
        return [
            {
                "step": name,
                "gen": int(case.gen_row[switch.gen]),
                "bus": int(case.bus_id[case.gen_bus[switch.gen]]),
                "running": bool(on[t, switch.gen]),
                "start_cost": switch.start_cost * float(starts[t, switch.gen]),
            }
            for t, name in enumerate(steps)
            for switch in self.chronology.switches
        ]


def plan_day(prepared: Sequence[Prepared], chronology: Chronology) -> DayPlan:
    """Return the joint plan of all steps.

    Parameters
    ----------
    prepared : sequence of Prepared
        The steps; their estimated demand is read, or true demand without perturbation.
    chronology : Chronology
        Where it has switches, a commitment (:func:`gridpriv.power.ac.day.commitment`) takes
        losses and flows from the plan in which all generators run, the next one from the plan of
        the one before. Where a step of a plan sheds more load than with all generators, one more
        must run in it next, and all of them the second time; likewise where a commitment repeats
        and a step costs more. The cheapest plan is returned.

    Raises
    ------
    SolverError
        If the rounds do not converge.
    """
    first = prepared[0]
    demands = [_released(step) for step in prepared]
    case, count = first.case, len(prepared)
    problem = DayProblem(
        first.zones, demands, chronology, first.settings.voll, operating_unit(case)
    )
    optimum, running = problem.optimum(), None
    if chronology.switches:
        optimum, running = _committed(problem, optimum)
    on = problem.everything_running() if running is None else running
    output, prices, reserve = _coupled(optimum, case)
    output, reserve = np.where(on, output, 0.0), np.where(on, reserve, 0.0)  # without rounding
    schedules = tuple(map(_schedule, prepared, demands, optimum.steps, prices))
    low, high = _windows(case, chronology, output, reserve, on)
    planned = (output, low, high, reserve, _energies(optimum, chronology, count), running)
    efforts = ((optimum.rounds, optimum.mismatch),) * count
    return DayPlan(chronology, schedules, *planned, efforts)


def look_ahead(hours: float) -> int:
    """Return the steps of a receding plan of so many hours, including the first."""
    return max(math.ceil(LOOK_AHEAD / hours), 1)


def plan_receding(
    prepared: Sequence[Prepared],
    predicted: Callable[[int], Sequence[Sequence[Floats]]],
    chronology: Chronology,
) -> DayPlan:
    """Return the first step of each step's receding plan.

    Parameters
    ----------
    prepared : sequence of Prepared
        The steps.
    predicted : callable
        Returns predicted demand of zones in a step and later ones, from the releases until that
        step.
    chronology : Chronology
        Every plan satisfies the end conditions of storages in its last step.

    Raises
    ------
    SolverError
        If the rounds of a plan do not converge.
    """
    case, count = prepared[0].case, len(prepared)
    output, low, high = np.zeros((3, count, case.n_gen))
    reserve = np.zeros((2, count, case.n_gen))
    energy = np.zeros((count, len(chronology.storages)))
    level, last = np.array([storage.start for storage in chronology.storages]), None
    schedules, efforts = [], []
    for t, step in enumerate(prepared):
        demands = predicted(t)
        ahead = chronology.later(level, last, PLANNED, len(demands))
        optimum = DayProblem(
            step.zones, demands, ahead, step.settings.voll, operating_unit(case)
        ).optimum()
        outputs, prices, current = _coupled(optimum, case)
        output[t], reserve[:, t] = outputs[0], current[:, 0]
        efforts.append((optimum.rounds, optimum.mismatch))
        energy[t] = _energies(optimum, ahead, len(demands))[0]
        _follow_energy(output[t], level, energy[t], ahead)
        schedules.append(_schedule(step, demands[0], optimum.steps[0], prices[0]))
        level, last = energy[t], output[t]
    departure = 0.5 * (1.0 - PLANNED) * chronology.hours
    low = np.maximum(case.pmin + reserve[1], output - departure * chronology.ramp_down)
    high = np.minimum(case.pmax - reserve[0], output + departure * chronology.ramp_up)
    low, high = _including_plan(low, high, output, chronology)
    planned = (output, low, high, reserve, energy, None)
    return DayPlan(chronology, tuple(schedules), *planned, tuple(efforts))


def _coupled(optimum: DayOptimum, case: Case) -> tuple[Floats, Floats, Floats]:
    """Return outputs (T, g), their values in other steps (T, g), and reserves (2, T, g)."""
    output = _outputs(optimum, case)
    prices, reserve = np.zeros_like(output), np.zeros((2, *output.shape))
    for unit in optimum.units:
        prices[:, unit.gen] = unit.price
        if unit.reserve.size:
            reserve[:, :, unit.gen] = unit.block.point.x[unit.reserve]
    return output, prices, reserve


def _outputs(optimum: DayOptimum, case: Case) -> Floats:
    """Return the planned output of all generators in all steps, (T, g)."""
    output = np.zeros((len(optimum.steps), case.n_gen))
    for t, blocks in enumerate(optimum.steps):
        for zone in blocks:
            output[t, zone.part.gens] = zone.block.point.x[zone.model.pg]
    return output


def _committed(problem: DayProblem, optimum: DayOptimum) -> tuple[DayOptimum, Bools]:
    """Return the cheapest plan of several commitments, and its running generators.

    Parameters
    ----------
    optimum : DayOptimum
        The plan in which all generators run: one of those compared.
    """
    case, required = problem.case, dict[int, list[Ints]]()
    tried = [(optimum, problem.everything_running())]

    def extended(on: Bools, plans: Sequence[Dispatch], dear: Bools) -> Bools | None:
        """Return a new commitment with more units in dear steps; None where it is not new."""
        for t in np.flatnonzero(dear & ~on.all(axis=1)).tolist():
            off = np.flatnonzero(~on[t])
            required[t] = [off] if t not in required else [*required[t], *off[:, None]]
        rows = [(t, gens) for t, each in required.items() for gens in each]
        grid = LinearGrid.of(case, plans)
        running = commitment(case, problem.chronology, grid, problem.voll, rows)
        return None if any(np.array_equal(running, each) for _, each in tried) else running

    least = np.array([joint_plan(case, blocks).p_shed.sum() for blocks in optimum.steps])
    cheap = _step_costs(problem, *tried[0])
    for _ in range(COMMITMENTS):
        optimum, on = tried[-1]
        plans = [joint_plan(case, blocks) for blocks in optimum.steps]
        shed = np.array([plan.p_shed.sum() for plan in plans])
        running = extended(on, plans, shed > least + NEGLIGIBLE)
        if running is None:
            dear = _step_costs(problem, optimum, on) - cheap > GAP * np.abs(cheap)
            running = extended(on, plans, dear) if dear.any() else None
        if running is None:
            break
        tried.append((problem.optimum(running), running))
    return min(tried, key=lambda plan: _cost(problem, *plan))


def _cost(problem: DayProblem, optimum: DayOptimum, on: Bools) -> float:
    """Return the cost of a plan in $/h, summed over its steps."""
    starts, chronology = (np.diff(on.astype(int), axis=0) > 0).sum(axis=0), problem.chronology
    begun = sum(s.start_cost * starts[s.gen] for s in chronology.switches) / chronology.hours
    return float(_step_costs(problem, optimum, on).sum() + begun)


def _step_costs(problem: DayProblem, optimum: DayOptimum, on: Bools) -> Floats:
    """Return the cost of every step of a plan in $/h, without starts."""
    case, chronology = problem.case, problem.chronology
    output, _, reserve = _coupled(optimum, case)
    unserved = np.maximum(chronology.reserve_required - reserve.sum(axis=2), 0.0).sum(axis=0)
    for t, plan in enumerate(joint_plan(case, blocks) for blocks in optimum.steps):
        unserved[t] += plan.p_shed.sum() + CURTAILMENT_WEIGHT * plan.curtailment.sum()
    reserve_cost = (chronology.reserve_price[:, None] * reserve).sum(axis=(0, 2))
    cost = case.base_mva * (problem.voll * unserved + reserve_cost)
    for t, g in np.argwhere(on).tolist() if case.cost else ():
        cost[t] += cost_at(case.cost[g], case.base_mva, output[t, g])
    return np.asarray(cost)


def _released(step: Prepared) -> list[Floats]:
    """Return the estimated demand of every zone in a step; true demand without perturbation."""
    if step.posteriors is None:
        return [zone.demand for zone in step.zones]
    return [earlier.demand for earlier in step.posteriors]


def _schedule(
    step: Prepared, demands: Sequence[Floats], blocks: Sequence[ZoneBlock], prices: Floats
) -> CentralSchedule:
    """Return one step of the plan as a schedule of zones."""
    case, zones = step.network.case, step.zones
    dispatch = joint_plan(case, blocks)
    names = {block.zone.name: block for block in blocks}
    slopes = tuple(
        names[zone.name].slope if zone.name in names else np.zeros(len(zone.buses), complex)
        for zone in zones
    )
    level = max((block.price_level for block in blocks), default=1.0)
    ends = tie_ends(case, zones).number[0] >= 0
    voltage = np.where(ends, dispatch.vm * np.exp(1j * dispatch.va), 0.0)
    state = ac_flow(with_demand(case, zones, demands), dispatch)
    shed = np.array([dispatch.p_shed[zone.own].sum() for zone in zones])
    schedule = AcSchedule(
        voltage, slopes, max(level, 1.0), shed, tuple(prices[zone.gens] for zone in zones)
    )
    z = coordinates(step.network, state.voltage, state.pg, state.qg)
    return CentralSchedule(z, schedule)


def _windows(
    case: Case, chronology: Chronology, output: Floats, reserve: Floats, on: Bools
) -> tuple[Floats, Floats]:
    """Return the limits of output in every step that allow for deviations in adjacent steps."""
    infinite = np.full((1, case.n_gen), np.inf)
    change = np.diff(output, axis=0)
    up = np.maximum(chronology.ramp_up * chronology.hours - change, 0.0)
    down = np.maximum(chronology.ramp_down * chronology.hours + change, 0.0)
    both = on[1:] & on[:-1]  # starts and stops are not ramps
    up, down = np.where(both, up, np.inf), np.where(both, down, np.inf)
    above = np.minimum(np.vstack([infinite, up]), np.vstack([down, infinite])) / 2
    below = np.minimum(np.vstack([infinite, down]), np.vstack([up, infinite])) / 2
    least, most = np.where(on, case.pmin, 0.0), np.where(on, case.pmax, 0.0)
    low = np.maximum(least + reserve[1], output - below)
    high = np.minimum(most - reserve[0], output + above)
    return _including_plan(low, high, output, chronology)


def _including_plan(
    low: Floats, high: Floats, output: Floats, chronology: Chronology
) -> tuple[Floats, Floats]:
    """Return limits that include the plan; storages follow it."""
    for storage in chronology.storages:
        low[:, storage.gen] = high[:, storage.gen] = output[:, storage.gen]
    return np.minimum(low, output), np.maximum(high, np.minimum(low, output))


def _follow_energy(output: Floats, before: Floats, after: Floats, chronology: Chronology) -> None:
    """Set the output of storages to that of the planned change of energy, in place.

    A plan may charge and discharge at once where energy has no value; a storage cannot.
    """
    hours = chronology.hours
    for k, storage in enumerate(chronology.storages):
        gained = (after[k] - storage.retention(hours) * before[k]) / hours
        charge = gained / storage.charge_efficiency
        discharge = gained * storage.discharge_efficiency
        output[storage.gen] = -charge if gained > 0 else -discharge


def _energies(optimum: DayOptimum, chronology: Chronology, count: int) -> Floats:
    energy = np.zeros((count, len(chronology.storages)))
    for k, storage in enumerate(chronology.storages):
        unit = next(u for u in optimum.units if u.gen == storage.gen)
        energy[:, k] = unit.block.point.x[unit.energy]
    return energy

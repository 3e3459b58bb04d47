"""One private zonal run: case, zones and settings in; a :class:`RunResult` out."""

from __future__ import annotations

import math
import secrets
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gridpriv.consensus.agent import AgentRules
from gridpriv.consensus.coordinator import (
    Consensus,
    Plan,
    RoundRecord,
    State,
    Trace,
    coordinate,
    make_consensus,
)
from gridpriv.consensus.schedules import (
    BalancedPenalty,
    InUnits,
    KeptPenalty,
    StepSize,
    nonsmooth_step,
    smooth_step,
    strongly_convex_step,
)
from gridpriv.consensus.transport import Transport
from gridpriv.core.arrays import Floats
from gridpriv.core.errors import BudgetError, GridprivWarning, SolverError, not_allowed
from gridpriv.grid.case import Case
from gridpriv.grid.zoning import Zoning
from gridpriv.power.fleet import (
    FleetPlan,
    after_recourse,
    make_transport,
    outcome,
    smoothness,
)
from gridpriv.power.objective import penalty_units
from gridpriv.power.problem import ZoneProblem
from gridpriv.power.program import compile_zone
from gridpriv.power.recourse import Pin, Recourse, agreed_point, dispatch
from gridpriv.power.sensitivity import demand_sensitivity
from gridpriv.power.solvers import check_solver
from gridpriv.power.zone import Network, Zone, flat_start, make_network, make_zones
from gridpriv.privacy.adjacency import DemandAdjacency
from gridpriv.privacy.budget import noise_multiplier
from gridpriv.privacy.noise import NoiseStreams
from gridpriv.privacy.perturbation import NoiseRule
from gridpriv.privacy.release import Charging, Release
from gridpriv.zonal.checks import Checker, Finished, check, claimed_epsilon
from gridpriv.zonal.result import RunResult, Timing
from gridpriv.zonal.settings import Settings

PAPER_SENSITIVITY = {"objective": 2.0, "output": 1.0}  # times beta, RK section 6.1.1


REHEARSAL_ROUNDS = 20
SMALLEST_OUTPUT_BETA = 1e-4


@dataclass(frozen=True, eq=False)
class Prepared:
    """A run ready to start: everything public about it, and the zones.

    ``zones``, ``shared`` and ``problems`` are in the order of the zones' keys, which does not
    depend on how a zone map orders or names them. ``scale`` is by how much the demand was
    multiplied.
    """

    case: Case
    zoning: Zoning
    settings: Settings
    network: Network
    zones: tuple[Zone, ...]
    shared: tuple[NDArray[np.bool_], ...]
    seed: int
    rules: AgentRules
    scale: float

    @cached_property
    def problems(self) -> tuple[ZoneProblem, ...]:
        """The zones' problems, compiled in this process."""
        return tuple(ZoneProblem(compile_zone(zone), self.settings.solver) for zone in self.zones)

    @cached_property
    def consensus(self) -> Consensus:
        """Which global variable each zone's shared coordinates are."""
        return make_consensus(
            [z.coordinates[s] for z, s in zip(self.zones, self.shared, strict=True)]
        )


def run(
    case: Case,
    zoning: Zoning,
    settings: Settings,
    watch: Callable[[RoundRecord], None] = lambda _: None,
    load_seconds: float = 0.0,
    charge: Charging | None = None,
) -> RunResult:
    """Run the consensus algorithm on a case.

    Parameters
    ----------
    case : Case
    zoning : Zoning
    settings : Settings
    watch : callable
        Called after every round with its :class:`RoundRecord`.
    load_seconds : float
        What reading the case took, for the timing table.
    charge : Charging, optional
        Called with a zone's name and its new releases before they are drawn (a ledger).

    Returns
    -------
    RunResult

    Raises
    ------
    InputError
        For settings that this case or machine cannot have.
    SolverError
        Naming zone, round and status; ``error.result`` holds the rounds before it.
    BudgetError
        If ``charge`` refuses; ``error.result`` holds the rounds before it.
    """
    return run_prepared(prepare(case, zoning, settings), watch, load_seconds, charge)


def run_prepared(
    prepared: Prepared,
    watch: Callable[[RoundRecord], None] = lambda _: None,
    load_seconds: float = 0.0,
    charge: Charging | None = None,
    checker: Checker = check,
) -> RunResult:
    """Run what :func:`prepare` returned; problems it has compiled are used again.

    ``checker`` computes what :func:`gridpriv.zonal.checks.check` does, elsewhere if it likes.
    """
    settings = prepared.settings
    began = time.perf_counter()
    plan = FleetPlan(
        prepared.zones, prepared.shared, prepared.rules, settings.solver,
        NoiseStreams(prepared.seed), charge and charge.scaled(prepared.scale),
    )  # fmt: skip
    local = prepared.problems if settings.workers == 1 else None
    transport = make_transport(plan, settings.workers, local)
    built = time.perf_counter()
    trace = Trace()
    failure: SolverError | BudgetError | None = None
    try:
        try:
            coordinate_zones(prepared, transport, trace, watch)
        except (SolverError, BudgetError) as error:
            failure = error
        solved = time.perf_counter()
        outcomes = transport.apply(outcome, [None] * len(prepared.zones))
        after = None if failure else _recourse(prepared, transport, [o.z for o in outcomes])
    finally:
        transport.close()
    checks = checker(_finished(prepared, trace, after))
    result = RunResult(
        case=prepared.case,
        zoning=prepared.zoning,
        settings=settings,
        zone_models=prepared.zones,
        shared=prepared.shared,
        consensus=prepared.consensus,
        trace=trace,
        outcomes=tuple(outcomes),
        seed=prepared.seed,
        rules=prepared.rules,
        recourse=after,
        ac=checks.ac,
        statements=checks.statements,
        timing=Timing(
            load=load_seconds,
            build=built - began,
            solve=solved - built,
            total=load_seconds + time.perf_counter() - began,
        ),
    )
    if failure is not None:
        failure.result = result  # type: ignore[union-attr]
        raise failure
    return result


def prepare(case: Case, zoning: Zoning, settings: Settings) -> Prepared:
    """Return everything a run needs before its zones are compiled."""
    check_solver(settings.solver)
    case = case.scale_load(settings.load_scale).without(settings.outage)
    if settings.workers > zoning.n_zone:
        raise not_allowed(
            "workers", settings.workers, f"at most {zoning.n_zone}, the number of zones"
        )
    network = make_network(case, settings.case_objective(case))
    zones = tuple(sorted(make_zones(network, zoning), key=lambda zone: zone.key))
    adjacency = settings.adjacency(case)
    _warn_of_large_delta(settings, 2 * case.n_bus)
    _warn_of_small_beta(settings, adjacency)
    rules = AgentRules(
        update=settings.update,
        local_updates=settings.local_updates,
        perturbation=settings.effective_perturbation(),
        noise=noise_rule(settings, adjacency),
        adjacency=adjacency,
    )
    return Prepared(
        case=case,
        zoning=zoning,
        settings=settings,
        network=network,
        zones=zones,
        shared=shared_coordinates(zones, settings.consensus),
        seed=secrets.randbits(64) if settings.seed is None else settings.seed,
        rules=rules,
        scale=settings.load_scale,
    )


def _warn_of_large_delta(settings: Settings, entries: int) -> None:
    """Warn where a delta in use allows one demand entry in ``entries`` to be published as it is."""
    if settings.mechanism == "none":
        return
    in_use = {"target_delta": settings.target_delta}
    if settings.mechanism == "gaussian":
        in_use["delta"] = settings.release_delta
    for name, delta in in_use.items():
        if delta >= 1.0 / entries:
            warnings.warn(
                f"{name} = {delta:g} is at least 1/{entries}, one over the number of demand "
                "entries: it would allow one entry to be published",
                GridprivWarning,
                stacklevel=3,
            )


def _warn_of_small_beta(settings: Settings, adjacency: DemandAdjacency) -> None:
    """Warn where a released minimiser moves less than the solver errs.

    The output sensitivity is that of the exact minimiser. A solver's error of 1e-6 to 1e-5 is
    far below it at usual distances; it is not at beta 1e-6.
    """
    noisy_output = settings.mechanism != "none" and settings.perturbation == "output"
    if noisy_output and adjacency.beta < SMALLEST_OUTPUT_BETA:
        warnings.warn(
            f"beta = {adjacency.beta:g} p.u. is so small that the solver's own error is not "
            "hidden by output perturbation; perturb the objective or the demand, whose "
            "guarantees do not rest on the solver",
            GridprivWarning,
            stacklevel=3,
        )


def shared_coordinates(zones: Sequence[Zone], consensus: str) -> tuple[NDArray[np.bool_], ...]:
    """Return a mask per zone: coordinates with two holders or more, or all of them."""
    if consensus == "all":
        return tuple(np.ones(len(zone.coordinates), dtype=bool) for zone in zones)
    holders = np.bincount(np.concatenate([zone.coordinates for zone in zones]))
    return tuple(holders[zone.coordinates] > 1 for zone in zones)


def coordinate_zones(
    prepared: Prepared,
    transport: Transport,
    trace: Trace,
    watch: Callable[[RoundRecord], None],
) -> State:
    """Rehearse on the public proxy if the settings ask for it, then run the private rounds."""
    settings, consensus = prepared.settings, prepared.consensus
    schedule, step = settings.penalty, step_size(prepared, transport)
    balanced = isinstance(schedule, BalancedPenalty)
    if balanced:
        schedule = InUnits(schedule, _penalty_units(prepared))
    names = [zone.name for zone in prepared.zones]
    start = consensus.stack(
        [flat_start(zone)[s] for zone, s in zip(prepared.zones, prepared.shared, strict=True)]
    )
    state = State(start, np.zeros_like(start), schedule.first(consensus.size))
    if settings.effective_start() == "proxy":
        rehearsal = Plan(REHEARSAL_ROUNDS, step, schedule, rehearsal=True)
        state = coordinate(transport, consensus, state, rehearsal, names, Trace())
    if settings.noise_is_fresh() and balanced:
        schedule = KeptPenalty(schedule)
    plan = Plan(settings.rounds, step, schedule, settings.tolerance)
    return coordinate(transport, consensus, state, plan, names, trace, watch)


def _penalty_units(prepared: Prepared) -> Floats:
    """Return the units of rho of every global variable."""
    network = prepared.network
    held = [z.coordinates[s] for z, s in zip(prepared.zones, prepared.shared, strict=True)]
    number, start = np.unique(np.concatenate(held)), network.offsets
    flows = (number >= start["p_from"]) & (number < start["pc"])
    return penalty_units(network.case, network.objective, flows)


def _recourse(prepared: Prepared, transport: Transport, averages: list[Floats]) -> Recourse:
    """Return local recourse at the agreed point."""
    network, solver = prepared.network, prepared.settings.solver
    tied, point = agreed_point(network, prepared.zoning, prepared.zones, averages, solver)
    pins = [Pin(tied[z.coordinates], point[z.coordinates], solver) for z in prepared.zones]
    found = transport.apply(after_recourse, pins)
    p, q = np.full(network.case.n_bus, np.nan), np.full(network.case.n_bus, np.nan)
    solution, failed = point.copy(), []
    for zone, answer in zip(prepared.zones, found, strict=True):
        if answer is None:
            failed.append(zone.name)
            continue
        p[zone.own], q[zone.own] = answer.p_imbalance, answer.q_imbalance
        solution[zone.coordinates] = answer.z
    return Recourse(p, q, solution, tuple(failed))


def _finished(prepared: Prepared, trace: Trace, after: Recourse | None) -> Finished:
    """Return what is to be checked after the rounds; zones in the order of the zone map."""
    releases = trace.releases
    return Finished(
        case=prepared.network.case,
        dispatch=None if after is None else dispatch(prepared.network, after),
        releases={name: releases[name] for name in prepared.zoning.names if name in releases},
        settings=prepared.settings,
        rules=prepared.rules,
    )


def planned_releases(prepared: Prepared) -> dict[str, dict[Release, int]] | None:
    """Return what every zone's releases will cost, where the settings alone tell."""
    settings, rule = prepared.settings, prepared.rules.noise
    if rule is None or settings.calibration == "paper":
        return None
    # sound noise is one multiple of whatever the sensitivity is, so every release costs the same
    some = demand_sensitivity(prepared.rules.adjacency, rule.norm)
    each = {rule.release(some): settings.planned_releases()}
    return {zone.name: each for zone in prepared.zones}


def noise_rule(settings: Settings, adjacency: DemandAdjacency) -> NoiseRule | None:
    """Return how much noise the budget asks for, or None without a mechanism."""
    if settings.mechanism == "none":
        return None
    multiplier = noise_multiplier(
        settings.budget,
        settings.mechanism,
        settings.calibration,
        settings.planned_releases(),
        settings.delta,
        settings.noise,
    )
    assumed = None
    if settings.calibration == "paper":
        assumed = PAPER_SENSITIVITY[settings.perturbation] * adjacency.beta
    return NoiseRule(settings.mechanism, settings.noise, multiplier, assumed)


def step_size(prepared: Prepared, transport: Transport) -> StepSize:
    """Return the step size rule; L is the largest of the zones', epsilon that of one release."""
    settings = prepared.settings
    if settings.step == "nonsmooth" or settings.update == "exact":
        return nonsmooth_step()
    if settings.step == "strongly-convex":
        return strongly_convex_step(settings.convexity)
    largest = max(transport.apply(smoothness, [None] * len(prepared.zones)))
    if prepared.rules.noise is None:
        return smooth_step(largest, math.inf)
    return smooth_step(largest, claimed_epsilon(settings, prepared.rules))

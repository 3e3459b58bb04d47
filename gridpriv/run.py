"""One private zonal run: case, zones and settings in; :class:`gridpriv.result.RunResult` out."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gridpriv.coordination.agent import Agent, AgentRules
from gridpriv.coordination.coordinator import (
    InProcess,
    RoundRecord,
    Trace,
    coordinate,
    make_consensus,
)
from gridpriv.coordination.schedules import (
    StepSize,
    nonsmooth_step,
    smooth_step,
    strongly_convex_step,
)
from gridpriv.errors import SolverError, not_allowed
from gridpriv.grid.case import Case, Floats
from gridpriv.grid.zoning import Zoning
from gridpriv.power.accheck import AcCheck, ac_check
from gridpriv.power.problem import ZoneProblem
from gridpriv.power.program import compile_zone
from gridpriv.power.recourse import Recourse, dispatch, recourse
from gridpriv.power.solvers import check_solver
from gridpriv.power.zone import make_network, make_zones
from gridpriv.privacy.adjacency import DemandAdjacency, parse_beta
from gridpriv.privacy.budget import noise_multiplier
from gridpriv.privacy.noise import NoiseStreams
from gridpriv.privacy.perturbation import NoiseRule
from gridpriv.result import RunResult, Timing, claimed_epsilon
from gridpriv.settings import Settings

PAPER_SENSITIVITY = {"objective": 2.0, "output": 1.0}  # times beta, RK section 6.1.1


@dataclass(frozen=True, eq=False)
class Prepared:
    """A run ready to start: everything public about it, and the zones' problems."""

    case: Case
    zoning: Zoning
    settings: Settings
    problems: tuple[ZoneProblem, ...]
    shared: tuple[Any, ...]
    seed: int
    rules: AgentRules
    build_seconds: float


def run(
    case: Case,
    zoning: Zoning,
    settings: Settings,
    watch: Callable[[RoundRecord], None] = lambda _: None,
    load_seconds: float = 0.0,
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

    Returns
    -------
    RunResult

    Raises
    ------
    InputError
        For settings that this case or machine cannot have.
    SolverError
        Naming zone, round and status; ``error.result`` holds the rounds before it.
    """
    prepared = prepare(case, zoning, settings)
    trace = Trace()
    began = time.perf_counter()
    agents = [
        Agent(problem, problem.program.zone.demand, shared, prepared.rules, NoiseStreams(prepared.seed))
        for problem, shared in zip(prepared.problems, prepared.shared, strict=True)
    ]
    transport = InProcess(agents)
    consensus = make_consensus(
        [p.coordinates[s] for p, s in zip(prepared.problems, prepared.shared, strict=True)]
    )
    start = np.concatenate(
        [p.start()[s] for p, s in zip(prepared.problems, prepared.shared, strict=True)]
    )
    failure: SolverError | None = None
    try:
        coordinate(
            transport,
            consensus,
            start,
            [p.name for p in prepared.problems],
            settings.rounds,
            step_size(prepared),
            settings.penalty_schedule(),
            trace,
            watch,
            settings.tolerance,
        )
    except SolverError as error:
        failure = error
    solve_seconds = time.perf_counter() - began
    averages = tuple(transport.averages())
    after = None if failure else _after(prepared, averages)
    result = RunResult(
        case=prepared.case,
        zoning=zoning,
        settings=settings,
        problems=prepared.problems,
        shared=prepared.shared,
        consensus=consensus,
        trace=trace,
        averages=averages,
        seed=prepared.seed,
        rules=prepared.rules,
        recourse=after[0] if after else None,
        ac=after[1] if after else None,
        timing=Timing(
            load=load_seconds,
            build=prepared.build_seconds,
            solve=solve_seconds,
            total=load_seconds + prepared.build_seconds + time.perf_counter() - began,
        ),
    )
    if failure is not None:
        failure.result = result  # type: ignore[attr-defined]
        raise failure
    return result


def _after(prepared: Prepared, averages: tuple[Floats, ...]) -> tuple[Recourse, AcCheck]:
    """Return local recourse and the AC check of what it would dispatch."""
    network = prepared.problems[0].program.zone.network
    solved = recourse(
        network, prepared.zoning, prepared.problems, averages, prepared.settings.solver
    )
    plan = dispatch(prepared.problems, solved, network.case.n_bus)
    return solved, ac_check(network.case, plan)


def prepare(case: Case, zoning: Zoning, settings: Settings) -> Prepared:
    """Return everything a run needs before its first round."""
    check_solver(settings.solver)
    case = case.scale_load(settings.load_scale).without(settings.outage)
    if settings.workers > zoning.n_zone:
        raise not_allowed(
            "workers", settings.workers, f"at most {zoning.n_zone}, the number of zones"
        )
    began = time.perf_counter()
    zones = make_zones(make_network(case), zoning)
    problems = sorted(
        (ZoneProblem(compile_zone(zone), settings.solver) for zone in zones), key=lambda p: p.key
    )
    adjacency = DemandAdjacency(parse_beta(settings.beta, case.base_mva), settings.protects)
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
        problems=tuple(problems),
        shared=shared_coordinates(problems, settings.consensus),
        seed=secrets.randbits(64) if settings.seed is None else settings.seed,
        rules=rules,
        build_seconds=time.perf_counter() - began,
    )


def shared_coordinates(problems: list[ZoneProblem], consensus: str) -> tuple[Any, ...]:
    """Return a mask per problem: coordinates with two holders or more, or all of them."""
    if consensus == "all":
        return tuple(np.ones(len(p.coordinates), dtype=bool) for p in problems)
    holders = np.bincount(np.concatenate([p.coordinates for p in problems]))
    return tuple(holders[p.coordinates] > 1 for p in problems)


def noise_rule(settings: Settings, adjacency: DemandAdjacency) -> NoiseRule | None:
    """Return how much noise the budget asks for, or None without a mechanism."""
    if settings.mechanism == "none":
        return None
    multiplier = noise_multiplier(
        settings.privacy_budget,
        settings.mechanism,
        settings.calibration,
        settings.planned_releases(),
        settings.delta,
    )
    assumed = None
    if settings.calibration == "paper":
        assumed = PAPER_SENSITIVITY[settings.perturbation] * adjacency.beta
    return NoiseRule(settings.mechanism, settings.noise, multiplier, assumed)


def step_size(prepared: Prepared) -> StepSize:
    """Return the step size rule; L is the largest of the zones', epsilon that of one release."""
    settings = prepared.settings
    if settings.step == "nonsmooth" or settings.update == "exact":
        return nonsmooth_step()
    if settings.step == "strongly-convex":
        return strongly_convex_step(settings.convexity)
    smoothness = max(problem.smoothness for problem in prepared.problems)
    if prepared.rules.noise is None:
        return smooth_step(smoothness, math.inf)
    return smooth_step(smoothness, claimed_epsilon(settings, prepared.rules))

"""The audit of a run's settings: replay on neighbouring demand, then statistics over many runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gridpriv.assurance.audit_result import ROUNDS, AuditPlan, AuditResult, LevelAudit
from gridpriv.assurance.audited import AuditedMechanism, ReleaseLevel, secure_level, zone_levels
from gridpriv.assurance.eavesdrop import Eavesdropper, MakeAgent, listen, varied
from gridpriv.assurance.independence import low_bits, mechanism_laws, noise_checks
from gridpriv.assurance.neighbours import (
    Neighbour,
    class_neighbours,
    corner_neighbours,
    gradient_norms,
    random_neighbours,
    worst_neighbours,
)
from gridpriv.assurance.public_state import bytes_findings, other_demands, state_findings
from gridpriv.assurance.publishing import publish_findings
from gridpriv.assurance.replay import Finding, replay_run
from gridpriv.assurance.series import series_findings, stream_findings
from gridpriv.assurance.statistic import ceiling, check_runs, detectable, measure, runs_needed
from gridpriv.assurance.whole import fresh, rule_of, whole_run
from gridpriv.consensus.agent import Agent
from gridpriv.core.errors import InputError, not_allowed
from gridpriv.privacy.perturbation import Perturbation
from gridpriv.privacy.sensitivity import Norm, length
from gridpriv.privacy.settings import NOTHING
from gridpriv.zonal.prepared import Prepared, prepare
from gridpriv.zonal.settings import Coordination

RUNS = {"release": 50_000, "solution": 10_000, "messages": 3_000}
"""Of each level; of messages for the rounds below, and for more as many as take as long."""
SECURE_RUNS = 8_000  # of the same release under secure noise


def audit(
    prepared: Prepared,
    plan: AuditPlan | None = None,
    make_agent: MakeAgent = Agent,
    watch: Callable[[str], None] = lambda _: None,
) -> AuditResult:
    """Audit what a run's settings promise.

    Parameters
    ----------
    prepared : Prepared
    plan : AuditPlan, optional
    make_agent : callable
        Builds the agent that is audited.
    watch : callable
        Called with a note about every hundredth of the work.

    Returns
    -------
    AuditResult
        Nominal, certified and measured epsilon, level by level, and the findings of the replay.

    Raises
    ------
    InputError
        Without noise, where nothing is released, with too few runs, or for a bus that no zone
        owns.

    References
    ----------
    Lower bounds of epsilon by Clopper and Pearson's intervals
    (:mod:`gridpriv.assurance.statistic`); checks, and limits of a passed audit:
    docs/audit-and-attack.md.
    """
    plan = plan or AuditPlan()
    rule = prepared.rules.noise
    if rule is None:
        raise InputError(
            "mechanism = 'none': must be one that draws noise; without noise there is no "
            "epsilon to audit (gridpriv attack runs without noise)"
        )
    check_draws(prepared)
    prepared = _in_rounds(prepared)
    zone, other = target(prepared, plan.bus)
    rounds = min(plan.rounds, prepared.settings.rounds)
    short = varied(prepared, settings=replace(prepared.settings, rounds=rounds))
    network = listen(short, make_agent=make_agent)
    script = network.heard[zone]
    mechanisms = zone_levels(short, zone, script, other, plan.levels, make_agent)
    runs = {m.level: _runs(m, plan, rounds) for m in mechanisms}
    findings = _replayed(prepared, short, network, (zone, other), plan, make_agent, watch)
    findings += whole_run(prepared, make_agent)
    findings += low_bits(rule)
    findings += _lanes(prepared, plan, make_agent)
    levels = tuple(
        audit_mechanism(mechanism, runs[mechanism.level], plan.confidence, watch)
        for mechanism in mechanisms
    ) + tuple(
        audit_mechanism(secure, min(SECURE_RUNS, runs["release"]), plan.confidence, watch)
        for mechanism in mechanisms
        if isinstance(mechanism, ReleaseLevel)
        and mechanism.level == "release"
        and (secure := secure_level(short, mechanism)) is not None
    )
    return AuditResult(prepared, plan, prepared.problems[zone].name, other, tuple(findings), levels)


def _in_rounds(prepared: Prepared) -> Prepared:
    """Return the run with rounds; a central schedule releases the same and is a lane of its own."""
    if prepared.settings.coordination == "rounds":
        return prepared
    return _coordinated(prepared, "rounds")


def _coordinated(prepared: Prepared, coordination: Coordination) -> Prepared:
    """Return the run with another coordination."""
    settings = replace(
        prepared.settings, coordination=coordination, acceleration=None, load_scale=1.0, outage=()
    )
    ready = prepare(prepared.case, prepared.zoning, settings, prepared.scale)
    return replace(ready, seed=prepared.seed)


def _replayed(
    prepared: Prepared,
    short: Prepared,
    network: Eavesdropper,
    observed: tuple[int, Neighbour],
    plan: AuditPlan,
    make_agent: MakeAgent,
    watch: Callable[[str], None],
) -> list[Finding]:
    """Replay all rounds on the worst neighbours, and the first ones on the other neighbours."""
    generator = np.random.default_rng(short.seed)

    def worst(at: int) -> list[Neighbour]:
        neighbours = worst_neighbours(prepared.problems[at], prepared.moved)
        return [*neighbours, observed[1]] if at == observed[0] else neighbours

    def others(at: int) -> list[Neighbour]:
        problem, adjacency = short.problems[at], short.moved
        return [
            *class_neighbours(problem, adjacency),
            *random_neighbours(problem, adjacency, plan.random_neighbours, generator),
        ]

    every = listen(prepared, make_agent=make_agent)
    findings = replay_run(prepared, every.heard, worst, make_agent, watch)
    return findings + replay_run(short, network.heard, others, make_agent)


def _lanes(prepared: Prepared, plan: AuditPlan, make_agent: MakeAgent) -> list[Finding]:
    """Return the findings on noise, public state, and the other ways to run the same settings."""

    def central() -> list[Finding]:
        run = _coordinated(prepared, "central")
        return bytes_findings(run, other_demands(run), "central")

    lanes: dict[str, Callable[[], list[Finding]]] = {
        "noise": lambda: (
            noise_checks(fresh(prepared), plan.confidence, make_agent)
            + mechanism_laws(rule_of(prepared).multiplier, plan.confidence)
        ),
        "public": lambda: (
            state_findings(prepared, other_demands(prepared))
            + bytes_findings(prepared, other_demands(prepared), "rounds")
        ),
    }
    if prepared.rules.perturbation == Perturbation("demand", "once"):
        lanes |= {
            "central": central,
            "series": lambda: series_findings(prepared),
            "stream": lambda: stream_findings(prepared),
            "publish": lambda: publish_findings(prepared),
        }
    return [finding for name, lane in lanes.items() if name in plan.lanes for finding in lane()]


def _runs(mechanism: AuditedMechanism, plan: AuditPlan, rounds: int) -> int:
    """Return the number of runs of a level on each of the two data sets."""
    claim = mechanism.nominal, mechanism.delta, plan.confidence
    if plan.runs is not None:
        check_runs(plan.runs[mechanism.level], *claim)
        return plan.runs[mechanism.level]
    usual = RUNS[mechanism.level]
    if mechanism.level == "messages" and rounds > ROUNDS:
        usual = max(usual * ROUNDS // rounds, 2 * runs_needed(*claim))
    check_runs(usual, *claim)
    return usual


def audit_mechanism(
    mechanism: AuditedMechanism,
    runs: int,
    confidence: float = 0.999,
    watch: Callable[[str], None] = lambda _: None,
) -> LevelAudit:
    """Run a mechanism many times on D and on D' and bound its epsilon from below.

    The half that trains the statistic draws the same noise on both, so that what moves is seen
    without it; the half that is counted draws independently.
    """
    here, there = [], []
    for seed in range(runs):
        here.append(mechanism.sample(False, seed))
        there.append(mechanism.sample(True, seed if seed < runs // 2 else runs + seed))
        if (seed + 1) % max(runs // 100, 1) == 0:
            watch(mechanism.level)
    measured = measure(
        np.array(here), np.array(there), mechanism.delta, confidence, mechanism.log_ratio
    )
    return LevelAudit(
        mechanism.level,
        mechanism.nominal,
        mechanism.certified,
        mechanism.delta,
        measured,
        ceiling(measured.runs, mechanism.delta, confidence),
        detectable(mechanism.nominal, measured.runs, mechanism.delta, confidence),
    )


def target(prepared: Prepared, bus: int | None) -> tuple[int, Neighbour]:
    """Return the position of the zone whose bus is moved, and the neighbour.

    Raises
    ------
    InputError
        For a bus that is not in the case, or whose zone shares nothing.
    """
    adjacency = prepared.moved
    if bus is None:
        norms = [float(gradient_norms(p, adjacency).max()) for p in prepared.problems]
        order = np.argsort(norms)[::-1]
        zone = next((int(z) for z in order if prepared.shared[z].any()), int(order[0]))
        options = worst_neighbours(prepared.problems[zone], adjacency)
    else:
        zone = zone_of_bus(prepared, bus)
        options = corner_neighbours(prepared.problems[zone], adjacency, bus)
    check_released(prepared, zone, options[0].bus)
    imbalance = prepared.problems[zone].program.imbalance
    laplace = prepared.rules.noise is not None and prepared.rules.noise.norm == 1
    norm: Norm = 1 if laplace else 2
    return zone, max(options, key=lambda o: length(imbalance.T @ o.change, norm))


def zone_of_bus(prepared: Prepared, bus: int) -> int:
    """Return the position of the zone that owns a bus number."""
    for zone, problem in enumerate(prepared.problems):
        if bus in prepared.case.bus_id[problem.program.zone.own]:
            return zone
    raise not_allowed(
        "bus", bus, f"a bus in service of {prepared.case.name}, and so of one of its zones"
    )


def check_draws(prepared: Prepared) -> None:
    """Refuse a run that releases nothing of demand."""
    if prepared.settings.drawn == NOTHING:
        raise not_allowed(
            "release",
            NOTHING,
            "bus, total, tree or auto: this run releases nothing of demand, at epsilon 0",
        )


def check_released(prepared: Prepared, zone: int, bus: int) -> None:
    """Refuse a bus of a zone that sends nothing."""
    if not prepared.shared[zone].any():
        raise not_allowed(
            "bus",
            bus,
            f"a bus of a zone that releases something: zone {prepared.problems[zone].name} shares "
            "no variable with another zone, so nothing of it leaves (--consensus all shares all)",
        )

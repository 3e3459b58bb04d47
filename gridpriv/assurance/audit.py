"""The audit of a run's settings: replay on neighbouring demand, then statistics over many runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gridpriv.assurance.audited import (
    LEVELS,
    AuditedMechanism,
    ReleaseLevel,
    secure_level,
    zone_levels,
)
from gridpriv.assurance.bounds import ceiling, check_runs, detectable, runs_needed
from gridpriv.assurance.eavesdrop import MakeAgent, listen, varied
from gridpriv.assurance.low_bits import LOW_BITS, low_bits
from gridpriv.assurance.neighbours import (
    Neighbour,
    corner_neighbours,
    gradient_norms,
    random_neighbours,
    worst_neighbours,
)
from gridpriv.assurance.replay import CHECKS, Finding, replay_run
from gridpriv.assurance.statistic import Measured, measure
from gridpriv.assurance.whole import WHOLE_CHECKS, whole_run
from gridpriv.consensus.agent import Agent
from gridpriv.core.document import Json
from gridpriv.core.errors import InputError, not_allowed, one_of
from gridpriv.privacy.budget import NOTHING
from gridpriv.privacy.sensitivity import Norm, length
from gridpriv.zonal.prepared import Prepared

RUNS = {"release": 50_000, "solution": 10_000, "messages": 3_000}
"""Of each level; of messages for the rounds below, and for more as many as take as long."""
SECURE_RUNS = 8_000  # of the same release under secure noise
ROUNDS = 5
SETTINGS = (
    "mechanism", "perturbation", "refresh", "calibration", "update", "consensus", "budget", "beta",
    "protects", "power_factor", "local_updates", "penalty", "solver",
)  # fmt: skip


@dataclass(frozen=True)
class AuditPlan:
    """How much of an audit to make.

    Attributes
    ----------
    runs : mapping of str to int, optional
        Per level, on each of D and D'; half trains and half is counted. By default :data:`RUNS`,
        and no fewer than can show the claimed epsilon to be exceeded.
    confidence : float
        Of each measured bound.
    rounds : int
        Rounds of the replay and of the level ``messages``.
    random_neighbours : int
        Per zone, in the replay, beside the worst ones.
    levels : tuple of str
    bus : int or None
        Bus number whose demand is moved; None for the one that moves the gradient most.
    """

    runs: Mapping[str, int] | None = None
    confidence: float = 0.999
    rounds: int = ROUNDS
    random_neighbours: int = 4
    levels: tuple[str, ...] = LEVELS
    bus: int | None = None

    def __post_init__(self) -> None:
        for level in self.levels:
            one_of("level", level, LEVELS)
        if self.rounds < 1:
            raise not_allowed("audit-rounds", self.rounds, "1 or more")


@dataclass(frozen=True)
class LevelAudit:
    """One level's claimed and certified epsilon against the measured lower bound.

    Attributes
    ----------
    ceiling : float
        Largest bound that so many runs can give.
    detectable : float
        Least epsilon that so many runs would tell from the claimed one (power).
    """

    level: str
    claimed: float
    certified: float
    delta: float
    measured: Measured
    ceiling: float
    detectable: float

    @property
    def verdict(self) -> str:
        """``violation`` above the certified, ``claim refuted`` above the claimed epsilon."""
        if self.measured.epsilon > self.certified:
            return "violation"
        return "claim refuted" if self.measured.epsilon > self.claimed else "consistent"


@dataclass(frozen=True, eq=False)
class AuditResult:
    """A finished audit."""

    prepared: Prepared
    plan: AuditPlan
    zone: str
    neighbour: Neighbour
    findings: tuple[Finding, ...]
    levels: tuple[LevelAudit, ...]

    @property
    def failed(self) -> list[Finding]:
        """Replay findings that are not within what is declared."""
        return [finding for finding in self.findings if not finding.passed]

    @property
    def passed(self) -> bool:
        """Whether nothing contradicts the certified epsilon."""
        return not self.failed and all(row.verdict != "violation" for row in self.levels)

    @property
    def verdict(self) -> str:
        """In one sentence."""
        if self.failed:
            checks = ", ".join(sorted({finding.check for finding in self.failed}))
            return f"FAILED: the replay contradicts what the run declares ({checks})"
        if not self.passed:
            return "FAILED: more than the certified epsilon was measured"
        if any(row.verdict == "claim refuted" for row in self.levels):
            return "the certified epsilon stands; the claimed one is refuted"
        return "nothing contradicts the certified or the claimed epsilon"

    def as_dict(self) -> Json:
        """Return the audit as JSON can hold it."""
        shown = self.prepared.settings.as_dict()
        return {
            "case": self.prepared.case.name,
            "settings": {name: shown[name] for name in SETTINGS},
            "zone": self.zone,
            "neighbour": {
                "bus": self.neighbour.bus, "dp": self.neighbour.dp, "dq": self.neighbour.dq
            },
            "confidence": self.plan.confidence,
            "replay": [
                _check(self.findings, check)
                for check in (*CHECKS, *WHOLE_CHECKS, LOW_BITS)
                if check in {finding.check for finding in self.findings}
            ],
            "statistical": [_level(row) for row in self.levels],
            "passed": self.passed,
            "verdict": self.verdict,
        }  # fmt: skip


def _check(findings: Sequence[Finding], check: str) -> Json:
    """Return the worst finding of a check."""
    rows = [finding for finding in findings if finding.check == check]
    worst = max(rows, key=lambda row: (row.measured - row.allowed, row.ratio))
    return {
        "check": check, "neighbours": len(rows), "zone": worst.zone, "neighbour": worst.neighbour,
        "measured": worst.measured, "allowed": worst.allowed,
        "ratio": max(row.ratio for row in rows) if check == "values" else None,
        "passed": all(row.passed for row in rows),
    }  # fmt: skip


def _level(row: LevelAudit) -> Json:
    return {
        "level": row.level, "claimed": row.claimed, "certified": row.certified,
        "delta": row.delta, "measured": row.measured.epsilon, "statistic": row.measured.statistic,
        "runs": 2 * row.measured.runs, "counted": row.measured.runs, "hits": row.measured.hits,
        "misses": row.measured.misses, "ceiling": row.ceiling,
        "detectable": row.detectable if math.isfinite(row.detectable) else None,
        "verdict": row.verdict,
    }  # fmt: skip


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
        Claimed, certified and measured epsilon, level by level, and what the replay found.

    Raises
    ------
    InputError
        Without noise, where nothing is released, with too few runs, or for a bus that no zone
        owns.

    References
    ----------
    Lower bounds of epsilon by Clopper and Pearson's intervals (:mod:`gridpriv.assurance.bounds`);
    what is replayed and what a passed audit does not prove: docs/audit-and-attack.md.
    """
    plan = plan or AuditPlan()
    if prepared.rules.noise is None:
        raise InputError(
            "mechanism = 'none' is not allowed: without noise there is no epsilon to audit "
            "(gridpriv attack runs without noise)"
        )
    check_draws(prepared)
    zone, other = target(prepared, plan.bus)
    rounds = min(plan.rounds, prepared.settings.rounds)
    short = varied(prepared, settings=replace(prepared.settings, rounds=rounds))
    network = listen(short, make_agent=make_agent)
    script = network.heard[zone]
    mechanisms = zone_levels(short, zone, script, other, plan.levels, make_agent)
    runs = {m.level: _runs(m, plan, rounds) for m in mechanisms}
    generator = np.random.default_rng(short.seed)

    def others(at: int) -> list[Neighbour]:
        problem, adjacency = short.problems[at], short.moved
        found = worst_neighbours(problem, adjacency)
        found += random_neighbours(problem, adjacency, plan.random_neighbours, generator)
        return [*found, other] if at == zone else found

    findings = replay_run(short, network.heard, others, make_agent, watch)
    findings += whole_run(prepared, plan.confidence, make_agent)
    findings += low_bits(prepared.rules.noise)
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


def _runs(mechanism: AuditedMechanism, plan: AuditPlan, rounds: int) -> int:
    """Return how often a level is run on each of the two data sets."""
    claim = mechanism.claimed, mechanism.delta, plan.confidence
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
        mechanism.claimed,
        mechanism.certified,
        mechanism.delta,
        measured,
        ceiling(measured.runs, mechanism.delta, confidence),
        detectable(mechanism.claimed, measured.runs, mechanism.delta, confidence),
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

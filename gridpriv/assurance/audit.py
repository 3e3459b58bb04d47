"""The audit of a run's settings: replay on adjacent demand, then statistics over many runs.

The module also has the extent of an audit, its findings, and their JSON.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gridpriv.assurance import adversary, independence, statistic, whole
from gridpriv.assurance.replay import Finding, replay_run
from gridpriv.core import errors
from gridpriv.core.text import Json
from gridpriv.privacy.sensitivity import Norm, Sensitivity, length
from gridpriv.privacy.settings import NOTHING
from gridpriv.zonal.prepared import Prepared, nominal_epsilon
from gridpriv.zonal.settings import Coordination

ROUNDS = 5
ANY_VALUE = Sensitivity(1.0, 1, "any value")
LANES = ("noise", "public", "central", "series", "stream", "publish")
"""Parts of an audit in addition to the replay of zones and rounds."""
CHECKS = {
    "calls": "releases that differ",
    "values": "change of value",
    "messages": "change of messages",
    "history": "change of values",
    "noise": "numbers without noise",
    "coordinator": "orders that differ",
    "rounds": "numbers without noise",
    "stated": "",
    "outputs": "change / proven bound",
    "distribution": "-log10 p-value",
    "independence": "agreement - 0.5",
    "public state": "values that differ",
    "public bytes": "values that differ",
    "series": "change, or count",
    "stream": "",
    "publish": "",
    "low bits": "values on the lattice of float sums",
}
"""Checks of an audit in the order in which they are shown, with the quantity that each measures.

Changes are per unit, in the norm of the sensitivity. Where the quantity is empty, it is in the
finding."""
SETTINGS = (
    *("mechanism", "perturbation", "noise_schedule", "sensitivity", "coordination", "update"),
    *("consensus", "budget", "beta", "protects", "power_factor", "local_updates", "penalty"),
    "solver",
)


@dataclass(frozen=True)
class AuditPlan:
    """The extent of an audit.

    Attributes
    ----------
    runs : mapping of str to int, optional
        Per level, on each of D and D'; half trains and half is counted. By default
        :data:`gridpriv.assurance.audit.RUNS`, and at least as many as can show that the nominal
        epsilon is exceeded.
    confidence : float
        Of each measured bound.
    rounds : int
        Rounds of the level ``messages``, and of the replay of random demand changes and of every
        class of buses. The demand changes that change the gradient most are replayed over all
        rounds.
    random_neighbours : int
        Per zone, in the replay.
    levels : tuple of str
    bus : int or None
        Bus number whose demand is changed; None for the bus that changes the gradient most.
    lanes : tuple of str
        Of :data:`LANES`.
    """

    runs: Mapping[str, int] | None = None
    confidence: float = 0.999
    rounds: int = ROUNDS
    random_neighbours: int = 4
    levels: tuple[str, ...] = statistic.LEVELS
    bus: int | None = None
    lanes: tuple[str, ...] = LANES

    def __post_init__(self) -> None:
        for level in self.levels:
            errors.check_choice("levels", level, statistic.LEVELS)
        for lane in self.lanes:
            errors.check_choice("lane", lane, LANES)
        errors.whole("audit-rounds", self.rounds)


@dataclass(frozen=True)
class LevelAudit:
    """One level's nominal and certified epsilon against the measured lower bound.

    Attributes
    ----------
    ceiling : float
        Largest bound that so many runs can give.
    detectable : float
        Least epsilon that so many runs distinguish from the nominal one with probability 80 %.
    """

    level: str
    nominal: float
    certified: float
    delta: float
    measured: statistic.Measured
    ceiling: float
    detectable: float

    @property
    def verdict(self) -> str:
        """``violation`` above the certified, ``claim refuted`` above the nominal epsilon."""
        if self.measured.epsilon > self.certified:
            return "violation"
        return "claim refuted" if self.measured.epsilon > self.nominal else "consistent"

    def as_dict(self) -> Json:
        """Return the level as a JSON value."""
        measured = self.measured
        stated = {name: getattr(self, name) for name in ("level", "nominal", "certified", "delta")}
        return stated | {
            "measured": measured.epsilon,
            "statistic": measured.statistic,
            "runs": 2 * measured.runs,
            "counted": measured.runs,
            "hits": measured.hits,
            "misses": measured.misses,
            "ceiling": self.ceiling,
            "detectable": self.detectable if math.isfinite(self.detectable) else None,
            "verdict": self.verdict,
        }


@dataclass(frozen=True, eq=False)
class AuditResult:
    """A finished audit.

    Attributes
    ----------
    left_out : mapping of str to str
        Lanes of the plan that the run does not allow, with the reasons.
    """

    prepared: Prepared
    plan: AuditPlan
    zone: str
    neighbour: adversary.Neighbour
    findings: tuple[Finding, ...]
    levels: tuple[LevelAudit, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def failed(self) -> list[Finding]:
        """Replay findings beyond the declared values."""
        return [finding for finding in self.findings if not finding.passed]

    @property
    def passed(self) -> bool:
        """True if nothing contradicts the certified epsilon."""
        return not self.failed and all(row.verdict != "violation" for row in self.levels)

    @property
    def not_checked(self) -> tuple[str, ...]:
        """Checks that the run's mechanism does not allow: its distribution is not declared."""
        rule = adversary.rule_of(self.prepared)
        known = independence.has_distribution(rule.mechanism, rule.release(ANY_VALUE).mechanism)
        return () if known or "noise" not in self.plan.lanes else ("distribution",)

    @property
    def verdict(self) -> str:
        """Verdict in one sentence."""
        if self.failed:
            checks = ", ".join(sorted({finding.check for finding in self.failed}))
            return f"FAILED: the replay contradicts what the run declares ({checks})"
        if not self.passed:
            return "FAILED: more than the certified epsilon was measured"
        if any(row.verdict == "claim refuted" for row in self.levels):
            return "the certified epsilon holds; the nominal epsilon is refuted"
        return "nothing contradicts the certified or the nominal epsilon"

    def as_dict(self) -> Json:
        """Return the audit as a JSON value."""
        shown = self.prepared.settings.as_dict()
        return {
            "case": self.prepared.case.name,
            "settings": {name: shown[name] for name in SETTINGS},
            "zone": self.zone,
            "neighbour": {name: getattr(self.neighbour, name) for name in ("bus", "dp", "dq")},
            "confidence": self.plan.confidence,
            "replay": [
                _check([row for row in self.findings if row.check == check])
                for check in CHECKS
                if any(row.check == check for row in self.findings)
            ],
            "not_checked": list(self.not_checked),
            "left_out": [{"lane": k, "reason": reason} for k, reason in self.left_out.items()],
            "statistical": [row.as_dict() for row in self.levels],
            "passed": self.passed,
            "verdict": self.verdict,
        }


def _check(rows: Sequence[Finding]) -> Json:
    """Return the worst finding of a check: failed, or nearest to its limit."""
    worst = max(rows, key=lambda row: (not row.passed, _share(row), row.ratio))
    return {
        "check": worst.check,
        "neighbours": len(rows),
        "zone": worst.zone,
        "neighbour": worst.neighbour,
        "measured": worst.measured,
        "allowed": worst.allowed,
        "ratio": max(row.ratio for row in rows) if worst.check == "values" else None,
        "passed": all(row.passed for row in rows),
    }


def _share(row: Finding) -> float:
    """Return the measured value divided by the allowed one."""
    if row.allowed > 0.0:
        return row.measured / row.allowed
    return math.inf if row.measured > 0.0 else 0.0


RUNS = {"release": 50_000, "solution": 10_000, "messages": 3_000}
"""Runs of each level; of messages for the rounds below, and fewer for more rounds."""
SECURE_RUNS = 8_000  # of the same release under secure noise


def audit(
    prepared: Prepared, plan: AuditPlan | None = None, watch: adversary.Watch = lambda _: None
) -> AuditResult:
    """Audit the privacy claims of a run's settings.

    Parameters
    ----------
    prepared : Prepared
    plan : AuditPlan, optional
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
        raise errors.InputError(
            "mechanism = 'none': must be one that draws noise; without noise there is no "
            "epsilon to audit (gridpriv attack runs without noise)"
        )
    check_draws(prepared)
    if prepared.settings.coordination != "rounds":  # a central schedule releases the same
        prepared = _coordinated(prepared, "rounds")
    _check_runs(prepared, plan)
    zone, other = target(prepared, plan.bus)
    rounds = min(plan.rounds, prepared.settings.rounds)
    short = adversary.varied(prepared, settings=replace(prepared.settings, rounds=rounds))
    network = adversary.record_run(short)
    script = network.recorded[zone]
    mechanisms = statistic.zone_levels(short, zone, script, other, plan.levels)
    runs = {m.level: _runs(m, plan, rounds) for m in mechanisms}
    findings = _replayed(prepared, short, network, (zone, other), plan, watch)
    findings += whole.whole_run(prepared)
    findings += independence.low_bits(rule)
    of_lanes, left_out = _lanes(prepared, plan)
    findings += of_lanes
    levels = tuple(
        audit_mechanism(mechanism, runs[mechanism.level], plan.confidence, watch)
        for mechanism in mechanisms
    ) + tuple(
        audit_mechanism(secure, min(SECURE_RUNS, runs["release"]), plan.confidence, watch)
        for mechanism in mechanisms
        if isinstance(mechanism, statistic.ReleaseLevel)
        and mechanism.level == "release"
        and (secure := statistic.secure_level(short, mechanism)) is not None
    )
    name = prepared.problems[zone].name
    return AuditResult(prepared, plan, name, other, tuple(findings), levels, left_out)


def _coordinated(prepared: Prepared, coordination: Coordination) -> Prepared:
    """Return the run with another coordination."""
    return independence.prepared_again(
        prepared, prepared.case, coordination=coordination, acceleration=None
    )


def _replayed(
    prepared: Prepared,
    short: Prepared,
    network: adversary.RecordingTransport,
    observed: tuple[int, adversary.Neighbour],
    plan: AuditPlan,
    watch: adversary.Watch,
) -> list[Finding]:
    """Replay all rounds on the worst adjacent demands, and the first rounds on the others."""
    generator = np.random.default_rng(short.seed)

    def worst(at: int) -> list[adversary.Neighbour]:
        neighbours = adversary.worst_neighbours(prepared.problems[at], prepared.run_adjacency)
        return [*neighbours, observed[1]] if at == observed[0] else neighbours

    def sampled(at: int) -> list[adversary.Neighbour]:
        problem, adjacency = short.problems[at], short.run_adjacency
        return [
            *adversary.class_neighbours(problem, adjacency),
            *adversary.random_neighbours(problem, adjacency, plan.random_neighbours, generator),
        ]

    all_rounds = adversary.record_run(prepared)
    findings = replay_run(prepared, all_rounds.recorded, worst, watch=watch)
    return findings + replay_run(short, network.recorded, sampled)


def _lanes(prepared: Prepared, plan: AuditPlan) -> tuple[list[Finding], dict[str, str]]:
    """Return the findings on noise, public state, and the other ways to run the same settings.

    The second value has the lanes that are left out, with the reasons.
    """

    def central() -> list[Finding]:
        run = _coordinated(prepared, "central")
        return independence.bytes_findings(run, independence.other_demands(run), "central")

    lanes: dict[str, Callable[[], list[Finding]]] = {
        "noise": lambda: (
            independence.noise_checks(adversary.with_fresh_noise(prepared), plan.confidence)
            + independence.mechanism_laws(adversary.rule_of(prepared).multiplier, plan.confidence)
        ),
        "public": lambda: (
            independence.state_findings(prepared, independence.other_demands(prepared))
            + independence.bytes_findings(prepared, independence.other_demands(prepared), "rounds")
        ),
        "central": central,
        "series": lambda: whole.series_findings(prepared),
        "stream": lambda: whole.stream_findings(prepared),
        "publish": lambda: whole.publish_findings(prepared),
    }
    findings: list[Finding] = []
    left_out = {k: reason for k, reason in whole.left_out(prepared).items() if k in plan.lanes}
    for name in (name for name in LANES if name in plan.lanes and name not in left_out):
        try:
            findings += lanes[name]()
        except errors.SolverError as error:
            left_out[name] = str(error)
    return findings, left_out


def _check_runs(prepared: Prepared, plan: AuditPlan) -> None:
    """Refuse too few runs for one release, before anything is replayed."""
    if plan.runs is None:
        return
    nominal = nominal_epsilon(prepared.settings, prepared.rules)
    delta = prepared.settings.release_delta if adversary.rule_of(prepared).norm == 2 else 0.0
    for level in set(plan.levels) - {"messages"}:
        statistic.check_runs(plan.runs[level], nominal, delta, plan.confidence)


def _runs(mechanism: statistic.AuditedMechanism, plan: AuditPlan, rounds: int) -> int:
    """Return the number of runs of a level on each of the two data sets."""
    claim = mechanism.nominal, mechanism.delta, plan.confidence
    if plan.runs is not None:
        statistic.check_runs(plan.runs[mechanism.level], *claim)
        return plan.runs[mechanism.level]
    usual = RUNS[mechanism.level]
    if mechanism.level == "messages" and rounds > ROUNDS:
        usual = max(usual * ROUNDS // rounds, 2 * statistic.runs_needed(*claim))
    statistic.check_runs(usual, *claim)
    return usual


def audit_mechanism(
    mechanism: statistic.AuditedMechanism,
    runs: int,
    confidence: float = 0.999,
    watch: adversary.Watch = lambda _: None,
) -> LevelAudit:
    """Run a mechanism many times on D and on D' and bound its epsilon from below.

    The training half draws the same noise on both, so the statistic is fitted without noise; the
    counted half draws independently.
    """
    here, there = [], []
    for seed in range(runs):
        here.append(mechanism.sample(False, seed))
        there.append(mechanism.sample(True, seed if seed < runs // 2 else runs + seed))
        if (seed + 1) % max(runs // 100, 1) == 0:
            watch(mechanism.level)
    measured = statistic.measure(
        np.array(here), np.array(there), mechanism.delta, confidence, mechanism.log_ratio
    )
    nominal, number, delta = mechanism.nominal, measured.runs, mechanism.delta
    detectable = statistic.detectable(nominal, number, delta, confidence)
    ceiling = statistic.ceiling(number, delta, confidence)
    own = mechanism.level, nominal, mechanism.certified, delta
    return LevelAudit(*own, measured, ceiling, detectable)


def target(prepared: Prepared, bus: int | None) -> tuple[int, adversary.Neighbour]:
    """Return the position of the zone whose bus is changed, and the adjacent demand.

    Raises
    ------
    InputError
        For a bus that is not in the case, or whose zone shares nothing.
    """
    adjacency = prepared.run_adjacency
    if bus is None:
        norms = [float(adversary.gradient_norms(p, adjacency).max()) for p in prepared.problems]
        order = np.argsort(norms)[::-1]
        zone = next((int(z) for z in order if prepared.shared[z].any()), int(order[0]))
        options = adversary.worst_neighbours(prepared.problems[zone], adjacency)
    else:
        zone = zone_of_bus(prepared, bus)
        options = adversary.corner_neighbours(prepared.problems[zone], adjacency, bus)
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
    raise errors.not_allowed(
        "bus", bus, f"a bus in service of {prepared.case.name}, and so of one of its zones"
    )


def check_draws(prepared: Prepared) -> None:
    """Refuse a run that releases nothing of demand."""
    if prepared.settings.noise_budget == NOTHING:
        some = "bus, total, tree or auto: this run releases nothing of demand, at epsilon 0"
        raise errors.not_allowed("release", NOTHING, some)


def check_released(prepared: Prepared, zone: int, bus: int) -> None:
    """Refuse a bus of a zone that sends nothing."""
    if not prepared.shared[zone].any():
        raise errors.not_allowed(
            "bus",
            bus,
            f"a bus of a zone that releases something: zone {prepared.problems[zone].name} shares "
            "no variable with another zone, so nothing of it leaves (--consensus all shares all)",
        )

"""The statistical audit detects each fault, and passes valid mechanisms."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from assurance_broken import HalfNoise, SkipsOne, broken, few_draws, prepared
from scipy import stats

from gridpriv.assurance import independence, whole
from gridpriv.assurance.adversary import answer, record_run, zone_agent
from gridpriv.assurance.audit import (
    CHECKS,
    RUNS,
    AuditPlan,
    AuditResult,
    LevelAudit,
    _lanes,
    _runs,
    audit,
    audit_mechanism,
    target,
)
from gridpriv.assurance.replay import Finding, agent_play, replay
from gridpriv.assurance.statistic import (
    POWER,
    ceiling,
    check_runs,
    detectable,
    detection,
    epsilon_bound,
    measure,
    proportion_above,
    proportion_below,
    runs_needed,
    secure_level,
    zone_levels,
)
from gridpriv.cli.assurance import _print_audit
from gridpriv.core.errors import InputError, SolverError
from gridpriv.privacy.noise import NoiseStreams
from gridpriv.zonal import protected_case
from gridpriv.zonal.settings import Settings


def test_clopper_pearson_is_the_exact_interval() -> None:
    """scipy's own exact interval, two-sided at 98 %, is one-sided at 99 % on each side."""
    for hits, runs in ((0, 40), (7, 40), (40, 40)):
        exact = stats.binomtest(hits, runs).proportion_ci(0.98, method="exact")
        assert proportion_below(np.array(hits), runs, 0.01) == pytest.approx(exact.low, abs=1e-12)
        assert proportion_above(np.array(hits), runs, 0.01) == pytest.approx(exact.high, abs=1e-12)


def test_bound_covers_randomised_response() -> None:
    """At 90 % confidence, at most one audit in ten may exceed the true epsilon."""
    generator, truth, runs = np.random.default_rng(3), 1.0, 500
    p = math.exp(truth) / (1.0 + math.exp(truth))
    hits, misses = generator.binomial(runs, p, 4000), generator.binomial(runs, 1 - p, 4000)
    bounds = epsilon_bound(hits, misses, runs, 0.0, 0.9)
    assert (bounds > truth).mean() < 0.1
    assert np.median(bounds) > 0.7


def test_runs_needed_is_the_least() -> None:
    for epsilon in (0.1, 1.0, 5.0):
        runs = runs_needed(epsilon, 0.0, 0.999)
        assert ceiling(runs, 0.0, 0.999) > epsilon >= ceiling(runs - 1, 0.0, 0.999)
    with pytest.raises(InputError, match=rf"at least {2 * runs_needed(5.0, 0.0, 0.999)}"):
        check_runs(100, 5.0, 0.0, 0.999)


@pytest.mark.parametrize("level", RUNS)
def test_the_default_audit_of_the_default_run_has_runs_enough(level: str) -> None:
    check_runs(RUNS[level], Settings().budget.epsilon, 0.0, AuditPlan().confidence)


def test_more_runs_see_smaller_violations() -> None:
    assert detectable(0.5, 500, 0.0, 0.999) > detectable(0.5, 50_000, 0.0, 0.999) > 0.5


@pytest.mark.parametrize(
    ("nominal", "runs", "delta", "confidence"),
    [
        (0.5, 500, 0.0, 0.999),
        (1.0, 400, 0.02, 0.95),
        pytest.param(1.0, 30, 0.0, 0.95, marks=pytest.mark.slow),
        pytest.param(5.0, 1200, 0.0, 0.999, marks=pytest.mark.slow),
    ],
)
def test_an_audit_distinguishes_the_detectable_epsilon_from_the_nominal_one(
    nominal: float, runs: int, delta: float, confidence: float
) -> None:
    """Audits of randomised response: a fifth of them miss the epsilon that is called detectable."""
    at = (runs, delta, confidence)
    epsilon = detectable(nominal, *at)
    assert detection(nominal, epsilon, *at) == pytest.approx(POWER, abs=2e-5)
    rng, audits = np.random.default_rng(5), 4000
    likely = np.array([delta + (1.0 - delta) / (1.0 + np.exp(-epsilon)), 0.0])
    likely[1] = (1.0 - delta) / (1.0 + np.exp(epsilon))
    here, there = rng.binomial(runs, likely, (audits, 2)).T
    detected = epsilon_bound(here, there, runs, delta, confidence) > nominal
    assert abs(detected.mean() - POWER) < 4.0 * np.sqrt(POWER * (1.0 - POWER) / audits)
    answers = (rng.random((100, 2, 2 * runs, 1)) < likely[:, None, None]).astype(float)
    bounds = [measure(*pair, delta, confidence).epsilon for pair in answers]
    assert np.mean(np.array(bounds) > nominal) < POWER + 4.0 * np.sqrt(POWER * (1.0 - POWER) / 100)


def test_no_epsilon_is_detectable_with_too_few_runs() -> None:
    needed = runs_needed(5.0, 0.0, 0.999)
    assert detectable(5.0, needed - 1, 0.0, 0.999) == math.inf
    assert 5.0 < detectable(5.0, needed, 0.0, 0.999) < math.inf


@dataclass(frozen=True)
class Plain:
    """A one-dimensional Laplace mechanism of known epsilon: any mechanism can be audited."""

    delivered: float
    nominal: float
    certified: float
    level: str = "release"
    delta: float = 0.0
    log_ratio: Any = None

    def sample(self, neighbour: bool, seed: int) -> Any:
        noise = NoiseStreams(seed).stream(0, 0, 0).laplace(0.0, 1.0 / self.delivered, 1)
        return float(neighbour) + noise


def test_protocol_audits_any_mechanism() -> None:
    sound = audit_mechanism(Plain(1.0, 1.0, 1.0), 8000)
    assert 0.7 < sound.measured.epsilon < 1.0
    assert sound.verdict == "consistent"
    nominal = audit_mechanism(Plain(2.0, 1.0, 2.0), 2000)
    assert nominal.verdict == "claim refuted"
    assert audit_mechanism(Plain(2.0, 1.0, 1.0), 2000).verdict == "violation"


def test_floating_point_gives_simulated_laplace_away() -> None:
    """Mironov (CCS 2012): the low bits reveal the value; rounded statistics do not read them."""
    streams = [NoiseStreams(seed).stream(0, 0, 0) for seed in range(40_000)]
    noise = np.array([stream.laplace(0.0, 2.0, 1) for stream in streams])
    here, there = 0.123 + noise[:20_000], 1.123 + noise[20_000:]
    assert measure(here, there, 0.0, 0.999).epsilon < 0.5
    assert measure(here, there, 0.0, 0.999, resolution=0.0).epsilon > 0.5


def _release(run: Any, runs: int, bus: int | None = None) -> Any:
    zone, other = target(run, bus)
    script = record_run(run).recorded[zone]
    return audit_mechanism(zone_levels(run, zone, script, other, ("release",))[0], runs)


@pytest.mark.parametrize("perturbation", ["objective", "demand"])
def test_half_the_noise_is_caught(perturbation: str) -> None:
    """With half the noise twice the epsilon is delivered: above the certified one."""
    run = prepared(perturbation=perturbation, protects="p", rounds=1, budget="per-release:2")
    assert _release(run, 3000).verdict == "consistent"
    assert _release(broken(run, HalfNoise), 3000).verdict == "violation"


def test_noise_skipped_on_one_coordinate_is_caught() -> None:
    """A change of that coordinate identifies the data set."""
    run = broken(
        prepared(perturbation="demand", protects="q", rounds=1, budget="per-release:1"), SkipsOne
    )
    zone = run.problems[0].program.zone
    last = int(zone.network.case.bus_id[zone.own[-1]])
    assert _release(run, 4000, last).verdict == "violation"


def test_paper_calibration_is_refuted_on_case118() -> None:
    """RK erratum 2: at the largest bus the noise certifies 13 times the nominal 0.1."""
    run = prepared(
        "case118",
        perturbation="objective",
        sensitivity="published",
        update="linearized",
        consensus="all",
        protects="p",
        rounds=1,
        budget="per-release:0.1",
        penalty="100",
    )
    level = _release(run, 10_000)
    assert level.certified == pytest.approx(1.3, rel=1e-6)
    assert 0.1 < level.measured.epsilon < level.certified
    assert level.verdict == "claim refuted"


def test_audit_without_noise_is_refused() -> None:
    with pytest.raises(InputError, match="mechanism"):
        audit(prepared(mechanism="none"))


def test_audit_of_an_unknown_bus_is_refused() -> None:
    with pytest.raises(InputError, match=r"bus = 99: .*one of its zones"):
        audit(prepared(), AuditPlan({"release": 4000}, levels=("release",), bus=99))


def test_too_few_runs_are_refused_with_the_number_needed() -> None:
    with pytest.raises(InputError, match=r"runs = 10: must be at least \d+"):
        audit(prepared(), AuditPlan({"release": 10}, levels=("release",)))


def test_audit_document(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = {"release": 400, "solution": 100, "messages": 100}
    run = prepared(rounds=2, noise_schedule="round", update="linearized", protects="p")
    few_draws(monkeypatch)
    result = audit(run, AuditPlan(runs, 0.9, rounds=2, lanes=()))
    document = result.as_dict()
    assert result.passed
    levels = [row["level"] for row in document["statistical"]]
    assert levels == ["release", "solution", "messages", "secure"]
    messages = document["statistical"][2]
    assert messages["certified"] == pytest.approx(2.0)  # two rounds at epsilon 1
    assert all(row["measured"] <= row["certified"] for row in document["statistical"])


@pytest.mark.parametrize(("mechanism", "audited"), [("knorm", True), ("laplace", False)])
def test_secure_knorm_noise_is_audited_without_opendp(
    mechanism: str, audited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = prepared(mechanism=mechanism, noise_schedule="once", release="bus")
    zone, other = target(run, None)
    script = record_run(run).recorded[zone]
    (simulated,) = zone_levels(run, zone, script, other, ("release",))
    monkeypatch.setitem(sys.modules, "opendp", None)
    level = secure_level(run, simulated)
    assert (level is not None) == audited
    if level is not None:
        assert np.isfinite(level.sample(False, 1)).all()


@pytest.mark.slow
@pytest.mark.parametrize("update", ["linearized", "exact"])
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("perturbation", ["objective", "output", "demand"])
def test_sound_calibration_holds(perturbation: str, mechanism: str, update: str) -> None:
    run = prepared(perturbation=perturbation, mechanism=mechanism, update=update, rounds=3)
    runs = {"release": 20_000, "solution": 4_000, "messages": 2_000}
    result = audit(run, AuditPlan(runs, rounds=3))
    assert not result.failed
    assert [row.level for row in result.levels if row.verdict != "consistent"] == []


@pytest.mark.parametrize("objective", ["imbalance", "cost"])
def test_the_exact_minimiser_nearly_reaches_its_bound_whatever_zones_minimise(
    objective: str,
) -> None:
    """A bound of half the size would be seen, also where costs weigh against the imbalance."""
    run = prepared(objective=objective)
    ratios = [whole._outputs(run, zone).ratio for zone in range(len(run.zones))]
    assert 0.8 < max(ratios) <= 1.0


@pytest.mark.parametrize("protects", ["p+q", pytest.param("p", marks=pytest.mark.slow)])
def test_knorm_noise_is_seen_at_nearly_what_it_states(protects: str) -> None:
    run = prepared(
        mechanism="knorm",
        budget="total:1",
        noise_schedule="once",
        release="bus",
        beta="10MW",
        protects=protects,
    )
    level = _release(run, 5_000)
    assert level.verdict == "consistent"
    assert 0.7 < level.measured.epsilon <= level.certified == 1.0


@pytest.mark.parametrize("scale", [0.5, 2.0])
@pytest.mark.parametrize("perturbation", ["demand", "objective"])
def test_neighbours_of_a_scaled_run_move_as_its_owners_demand_does(
    scale: float, perturbation: str
) -> None:
    """Beta of the owner's demand is scale * beta of the run's, which needs the full noise."""
    run = prepared(perturbation=perturbation, load_scale=scale, beta="2MW", rounds=2)
    zone, worst = target(run, None)
    beta = scale * 2.0 / run.case.base_mva
    assert (abs(worst.dp), abs(worst.dq)) == pytest.approx((beta, beta))
    script = record_run(run).recorded[zone]
    play, data = agent_play(run, zone, script), run.problems[zone].program.zone.demand
    values = [row for row in replay(play, data, [worst], "z") if row.check == "values"]
    assert [row.ratio for row in values] == pytest.approx([1.0], rel=1e-6)


def test_more_rounds_take_fewer_runs_but_enough_to_exceed_the_claim() -> None:
    """The messages of all rounds are audited in the time that five take."""
    nominal = {rounds: _Claims(0.1 * rounds) for rounds in (5, 12, 50)}
    runs = {rounds: _runs(mechanism, AuditPlan(), rounds) for rounds, mechanism in nominal.items()}
    assert runs[5] == RUNS["messages"]
    assert runs[12] == RUNS["messages"] * 5 // 12
    needed = 2 * runs_needed(5.0, 0.0, 0.999)
    assert runs[50] == needed > RUNS["messages"] * 5 // 50


@dataclass(frozen=True)
class _Claims:
    """Messages that claim an epsilon."""

    nominal: float
    level: str = "messages"
    delta: float = 0.0


LANES = (whole.series_findings, whole.stream_findings, whole.publish_findings)


@pytest.mark.usefixtures("no_replans")
@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("noise", ["secure", "simulated"])
def test_lanes_are_audited_with_either_noise(lane: Any, noise: str, monkeypatch: Any) -> None:
    """Settings with secure noise were given the seed of the audit, and refused it."""
    monkeypatch.setattr(protected_case, "RANGE_DRAWS", 2)
    run = prepared(noise=noise, seed=1 if noise == "simulated" else None, budget="total:5")
    assert whole.left_out(run) == {}
    findings = lane(run)
    assert findings
    assert [finding for finding in findings if not finding.passed] == []


ONE_RELEASE = ["central", "series", "stream", "publish"]


@pytest.mark.parametrize(
    ("given", "lanes", "reason"),
    [
        ({"noise_schedule": "round"}, ONE_RELEASE, "does not release demand once"),
        ({"perturbation": "output"}, ONE_RELEASE, "does not release demand once"),
        ({"mechanism": "gaussian"}, ["stream", "publish"], "no pure epsilon"),
        ({"mechanism": "staircase"}, ["stream"], "mechanism must be knorm"),
        ({"power_factor": "0.9..0.95"}, ["stream", "publish"], "power_factor must be left out"),
    ],
)
def test_a_lane_that_is_left_out_is_named_with_the_reason(
    given: dict[str, Any], lanes: list[str], reason: str, capsys: Any, monkeypatch: Any
) -> None:
    """All others run: none is left out because of an error."""
    for name in ("bytes_findings", "state_findings", "noise_checks", "mechanism_laws"):
        monkeypatch.setattr(independence, name, lambda *_: [])
    for name in ("_last_step", "_values", "_loss_of_windows"):
        monkeypatch.setattr(whole, name, lambda *_: Finding("stream", "1", "-", 0.0, 0.0))
    monkeypatch.setattr(protected_case, "RANGE_DRAWS", 2)
    run = prepared(**given)
    findings, left_out = _lanes(run, AuditPlan())
    assert list(left_out) == lanes
    assert reason in left_out[lanes[0]]
    assert ("publish" in {finding.check for finding in findings}) == ("publish" not in lanes)
    _, other = target(run, None)
    result = AuditResult(run, AuditPlan(), "1", other, tuple(findings), (), left_out)
    _print_audit(result.as_dict())
    shown = " ".join(capsys.readouterr().out.split())
    assert all(f"Not audited, {lane}: {left_out[lane]}." in shown for lane in lanes)


def test_equal_public_output_is_compared_without_writing_the_arrays_of_its_releases() -> None:
    """A release on case118 is 92 kB of text, and a key of every round of every zone."""

    @dataclass(frozen=True)
    class Unwritable:
        scale: float

        def __repr__(self) -> str:
            raise AssertionError

    def output(pd: float) -> dict[Any, Any]:
        return {
            "charged": {Unwritable(0.5): (np.arange(3.0), {"2": pd})},
            "messages": [np.zeros(2), {"pd": np.array([pd])}],
        }

    same = independence.equality_finding("public bytes", "run", output(1.0), output(1.0))
    assert (same.neighbour, same.measured, same.passed) == ("run", 0.0, True)
    first, second = output(1.0)["messages"], output(2.0)["messages"]
    other = independence.equality_finding(
        "public bytes", "run", {"messages": first}, {"messages": second}
    )
    assert (other.neighbour, other.measured, other.passed) == ("run: messages.1.pd", 1.0, False)


def test_a_publication_without_an_ac_optimum_is_named(monkeypatch: Any) -> None:
    def unserved(*_: Any) -> None:
        raise SolverError("no AC optimum serves it")

    monkeypatch.setattr(protected_case, "protect", unserved)
    _, left_out = _lanes(prepared(), AuditPlan(lanes=("publish",)))
    assert left_out == {"publish": "no AC optimum serves it"}


def test_under_noise_on_outputs_the_local_solution_is_the_release(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a further solve: sent and released values are equal, bit by bit."""
    run = prepared(perturbation="output", update="exact", penalty="3", rounds=1)
    network = record_run(run)
    zone, other = target(run, None)
    levels = zone_levels(run, zone, network.recorded[zone], other, ("release", "solution"))
    problem, streams = run.problems[zone], NoiseStreams(7)
    agent = zone_agent(run, zone, problem.program.zone.demand + other.change, run.rules, streams)
    sent = [answer(agent, recorded).sent for recorded in network.recorded[zone]][-1]
    for level in levels:
        noisy = level.release.apply(level.there, lambda: streams.stream(problem.key, 1, 1))
        assert np.array_equal(noisy, sent)
    few_draws(monkeypatch)
    runs = {"release": 400, "solution": 400}
    plan = AuditPlan(runs, 0.9, levels=("release", "solution"), random_neighbours=1, lanes=())
    result = audit(run, plan)
    assert [row.level for row in result.levels] == ["release", "solution", "secure"]


def test_the_command_prints_every_check_of_an_audit(capsys: pytest.CaptureFixture[str]) -> None:
    """A check without a description ended the command after all its work."""
    run = prepared(rounds=1)
    findings = [Finding(check, "1", "-", 0.0, 0.0) for check in CHECKS]
    plan, level = AuditPlan(), measure(np.zeros((4, 1)), np.zeros((4, 1)), 0.0, 0.9)
    levels = (LevelAudit("release", 1.0, 1.0, 0.0, level, 1.0, 1.0),)
    _, other = target(run, None)
    _print_audit(AuditResult(run, plan, "1", other, tuple(findings), levels).as_dict())
    shown = capsys.readouterr().out
    assert all(word in shown for name in CHECKS for word in name.split())
    assert "beta in p.u. (norm of the sensitivity)" in " ".join(shown.split())
    assert "secure: the release under secure noise" in shown

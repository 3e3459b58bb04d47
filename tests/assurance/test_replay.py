"""Replay on adjacent demand, releases frozen: values change by at most the sensitivity."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from assurance_broken import (
    DataDependentNoise,
    DataDependentStep,
    HiddenState,
    SkipsOne,
    Uncharged,
    broken,
    prepared,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gridpriv import load_case, make_settings, partition
from gridpriv.assurance.adversary import neighbour, random_neighbours, record_run, worst_neighbours
from gridpriv.assurance.replay import CHECKS, Finding, agent_play, replay, replay_run
from gridpriv.consensus.agent import Agent
from gridpriv.core.errors import SolverError
from gridpriv.zonal.prepared import Prepared, prepare
from gridpriv.zonal.run import run_prepared

CONSENSUS = (
    ("objective", "boundary", None),
    ("objective", "all", None),
    ("output", "boundary", None),
    ("output", "all", None),
    ("demand", "boundary", "update"),
    ("demand", "boundary", "round"),
    ("demand", "boundary", "once"),
)
EVERY = [
    dict(
        zip(
            ("perturbation", "consensus", "noise_schedule", "mechanism", "update", "local_updates"),
            (*place, m, u, e),
            strict=True,
        )
    )
    for place, m, u, e in itertools.product(
        CONSENSUS, ("laplace", "gaussian"), ("linearized", "exact"), (1, 2)
    )
]
PAIRS = [
    config if number % 8 in chosen else pytest.param(config, marks=pytest.mark.slow)
    for number, config in enumerate(EVERY)
    for chosen in [(0, 3, 5, 6) if number // 8 % 2 else (1, 2, 4, 7)]
]
"""Any two of mechanism, update and number of local updates together, under every consensus."""


def _name(config: dict[str, Any]) -> str:
    return "-".join(str(v) for v in config.values() if v is not None)


def _worst(run: Any, zone: int) -> Any:
    return worst_neighbours(run.problems[zone], run.rules.adjacency)


def _failed(findings: Any) -> set[str]:
    return {finding.check for finding in findings if not finding.passed}


def replayed(run: Prepared, choose: Any, make_agent: Any = Agent) -> list[Finding]:
    """Return the findings of a run that was listened to."""
    return replay_run(run, record_run(run, make_agent=make_agent).recorded, choose, make_agent)


@pytest.mark.parametrize("config", PAIRS, ids=_name)
def test_every_configuration_on_worst_and_random_neighbours(config: dict[str, Any]) -> None:
    """No allowance for the solver: at beta 0.01 its error is far below every sensitivity."""
    run = prepared(**config, rounds=2)
    generator = np.random.default_rng(5)

    def choose(zone: int) -> Any:
        problem, adjacency = run.problems[zone], run.rules.adjacency
        return _worst(run, zone) + random_neighbours(problem, adjacency, 1, generator)

    findings = replayed(run, choose)
    assert {finding.check for finding in findings} == set(CHECKS)
    assert [f for f in findings if not f.passed] == []


@pytest.mark.parametrize("factors", ["0.5..1", "0.9..0.95", "0.8..1"])
def test_a_zone_of_generators_alone_is_moved_by_the_sensitivity_to_rounding(factors: str) -> None:
    """Buses 1 to 3 of case9 have no demand, so an allowance in proportion to it would be none."""
    case = load_case("case9")
    own = {"budget": "total:1", "power_factor": factors, "rounds": 2, "seed": 1}
    run = prepare(case, partition(case, 3), make_settings(**own))
    values = [f for f in replayed(run, lambda z: _worst(run, z)) if f.check == "values"]
    assert [f for f in values if not f.passed] == []
    assert max(f.ratio for f in values) > 0.999


@pytest.mark.parametrize("protects", ["p", "q", "p+q"])
@pytest.mark.parametrize("norm", ["laplace", "gaussian"])
def test_gradient_sensitivity_is_reached(protects: str, norm: str) -> None:
    """The declared sensitivity is tight for the worst bus: half of it would be caught."""
    run = prepared(perturbation="objective", mechanism=norm, protects=protects)
    ratios = [f.ratio for f in replayed(run, lambda z: _worst(run, z)) if f.check == "values"]
    assert max(ratios) > 0.999


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    config=st.sampled_from(EVERY),
    zone=st.integers(0, 2),
    bus=st.integers(0, 100),
    dp=st.floats(-0.01, 0.01),
    dq=st.floats(-0.01, 0.01),
)
def test_any_neighbour(config: dict[str, Any], zone: int, bus: int, dp: float, dq: float) -> None:
    run = prepared(**config)
    problem = run.problems[zone]
    other = neighbour(problem, bus % len(problem.program.zone.own), dp, dq)
    script = record_run(run).recorded[zone]
    findings = replay(agent_play(run, zone, script), problem.program.zone.demand, [other], "z")
    assert [f for f in findings if not f.passed] == []


@pytest.mark.parametrize(
    ("perturbation", "update", "mechanism"),
    [
        ("objective", "linearized", "laplace"),
        ("objective", "exact", "gaussian"),
        ("output", "linearized", "gaussian"),
        ("output", "exact", "laplace"),
        ("demand", "linearized", "laplace"),
        ("demand", "exact", "gaussian"),
    ],
)
def test_a_cost_added_to_the_imbalance(perturbation: str, update: str, mechanism: str) -> None:
    """The weight of the imbalance scales the private value; the cost is not private."""
    run = prepared(
        objective="cost",
        imbalance_weight=30.0,
        perturbation=perturbation,
        update=update,
        mechanism=mechanism,
    )
    findings = replayed(run, lambda z: _worst(run, z))
    assert [f for f in findings if not f.passed] == []
    ratios = [f.ratio for f in findings if f.check == "values"]
    if perturbation != "output":
        assert max(ratios) > 0.999


@pytest.mark.parametrize(
    ("perturbation", "update"),
    [
        ("objective", "exact"),
        ("output", "linearized"),
        ("demand", "linearized"),
        *(
            pytest.param(*pair, marks=pytest.mark.slow)
            for pair in (("objective", "linearized"), ("output", "exact"), ("demand", "exact"))
        ),
    ],
)
def test_case118(perturbation: str, update: str) -> None:
    run = prepared("case118", perturbation=perturbation, update=update, rounds=2)
    findings = replayed(run, lambda z: _worst(run, z)[:2])
    assert [f for f in findings if not f.passed] == []


def test_the_error_is_proven_where_many_constraints_are_active() -> None:
    """A margin of 1e-9 p.u. at each of them was more than the noise covers."""
    run = prepared(
        "case39",
        perturbation="output",
        update="linearized",
        consensus="all",
        penalty="100",
        rounds=3,
    )
    findings = replayed(run, lambda z: _worst(run, z)[:2])
    assert [f for f in findings if not f.passed] == []


def test_paper_calibration_declares_the_sound_sensitivity() -> None:
    """The charged sensitivity is proven, also where the noise has the published one."""
    run = prepared(
        "case118",
        perturbation="objective",
        sensitivity="published",
        mechanism="laplace",
        update="linearized",
        consensus="all",
        protects="p",
        rounds=1,
    )
    findings = replayed(run, lambda z: _worst(run, z))
    assert not _failed(findings)
    largest = max(f.measured for f in findings if f.check == "values")
    # 2 beta ||a||_1 = 2 * 0.01 * 13 at the largest bus, against the paper's 2 beta
    assert largest == pytest.approx(0.26, rel=1e-6)


@pytest.mark.parametrize(
    "changed",
    [
        {"penalty": "1e6"},
        {"penalty": "geometric:100,2,1,100000", "rounds": 12},  # the last round's counts
        {"penalty": "1", "beta": "1e-9"},
    ],
)
def test_noise_on_outputs_that_a_solver_cannot_keep_is_refused_before_anything_is_drawn(
    changed: dict[str, Any],
) -> None:
    """Clarabel's minimizers change by more than the sensitivity that would be declared."""
    run = prepared(perturbation="output", update="linearized", consensus="all", **changed)
    drawn: list[Any] = []
    with pytest.raises(SolverError, match=r"trial on public data, round \d+.*not accurate enough"):
        run_prepared(run, charge=lambda *release: drawn.append(release))
    assert drawn == []


def test_a_papers_calibration_is_certified_for_exact_minimisers() -> None:
    declared = []
    for sensitivity in ("published", "proven"):
        run = prepared(perturbation="output", sensitivity=sensitivity, penalty="100", rounds=1)
        (releases, *_) = record_run(run).recorded[0][-1].reply.releases
        declared.append(releases.sensitivity.value)
    assert declared[1] == pytest.approx(1.1 * declared[0])


def test_a_data_dependent_step_size_is_caught() -> None:
    run = prepared(perturbation="objective", update="linearized")
    findings = replayed(run, lambda z: _worst(run, z), make_agent=DataDependentStep)
    assert "messages" in _failed(findings)
    assert not _failed(replayed(run, lambda z: _worst(run, z)))


def test_hidden_state_is_caught() -> None:
    run = prepared(perturbation="output", update="linearized")
    findings = replayed(run, lambda z: _worst(run, z), make_agent=HiddenState)
    assert "history" in _failed(findings)


def test_noise_skipped_on_one_coordinate_is_caught() -> None:
    run = broken(prepared(perturbation="objective"), SkipsOne)
    assert _failed(replayed(run, lambda z: _worst(run, z))) == {"noise"}


def test_an_uncharged_release_is_caught() -> None:
    run = prepared(perturbation="demand")
    findings = replayed(run, lambda z: _worst(run, z), make_agent=Uncharged)
    assert _failed(findings) == {"noise"}


def test_a_sensitivity_read_off_the_data_is_caught() -> None:
    run = prepared(perturbation="demand", noise_schedule="update")
    # the largest demand of zone 1 is bus 3's: moving it moves what the agent believes
    problem = run.problems[0]
    own = int(np.argmax(problem.program.zone.demand)) % len(problem.program.zone.own)
    script = record_run(run, make_agent=DataDependentNoise).recorded[0]
    play = agent_play(run, 0, script, DataDependentNoise)
    other = neighbour(problem, own, 0.01, 0.0)
    assert "calls" in _failed(replay(play, problem.program.zone.demand, [other], "1"))

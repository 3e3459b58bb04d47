"""Runs with a dishonest coordinator or zone, by a grammar; every party may end at any point.

    pytest -m slow tests/network/test_byzantine.py

makes 10,000 of them, by seed; a failing one is printed with its script by hypothesis.
"""

from __future__ import annotations

import pytest
from bench import (
    ANSWER_LIES,
    KINDS,
    POINTS,
    Coordination,
    CoordinatorLie,
    Lie,
    LyingCoordinator,
    Script,
)
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

VALUES = st.one_of(
    st.sampled_from([0.0, 1.0, -1.0, 1e-6, 5.0, 1e12, -1e12, 1e300, float("inf"), float("nan")]),
    st.floats(-10.0, 10.0),
    st.integers(0, 400).map(float),
)
WHOLE = st.integers(0, 400).map(float)
COORDINATOR_LIES = st.builds(
    CoordinatorLie,
    st.sampled_from(KINDS),
    st.one_of(WHOLE, st.floats(-1e13, 1e13)),
    st.sampled_from(POINTS),
)
LIES = st.builds(
    lambda kind, at, whole, figure: Lie(kind, at, figure if kind == "value" else whole),
    st.sampled_from((*ANSWER_LIES, "hello")),
    st.integers(0, 7),
    WHOLE,
    VALUES,
)
SCRIPTS = st.builds(
    Script,
    st.lists(LIES, max_size=3),
    st.lists(st.tuples(st.sampled_from(POINTS[3:]), st.integers(1, 8)), max_size=2),
    st.lists(st.integers(1, 8), max_size=2).map(sorted),
    st.lists(st.integers(0, 1), max_size=6),
    st.sampled_from(["wait", "last", "stop"]),
)
COORDINATORS = st.lists(COORDINATOR_LIES, min_size=4, max_size=14)
QUICK = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}
BLOCKS = 10


def zone_runs(number, count):
    @seed(number)
    @settings(max_examples=count, **QUICK)
    @given(SCRIPTS)
    def runs(script):
        Coordination(script).run()

    runs()


def coordinator_runs(number, count):
    @seed(number)
    @settings(max_examples=count, **QUICK)
    @given(COORDINATORS)
    def runs(script):
        LyingCoordinator(script).run()

    runs()


def test_a_lying_zone_spoils_no_ledger_and_blames_nobody_else():
    zone_runs(0, 30)


def test_a_lying_coordinator_gets_no_more_than_was_agreed():
    coordinator_runs(0, 60)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(1, BLOCKS + 1))
def test_ten_thousand_runs(block):
    zone_runs(block, 500)
    coordinator_runs(block, 500)
    print(f"seed {block}: 1,000 runs")


def test_an_honest_run_finishes_wherever_somebody_ends():
    for point in POINTS[3:]:
        for at in (1, 3, 6):
            for end in ([], [at + 1]):
                script = Script(crashes=[(point, at)], coordinator=sorted(end))
                outcome = Coordination(script).run()
                assert not isinstance(outcome, Exception), (point, at, end, outcome)

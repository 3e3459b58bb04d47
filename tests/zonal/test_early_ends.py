"""Totals of runs that end early: at a delta they count all planned releases.

The number of rounds may depend on releases. PLDs compose only for a number of releases that is
fixed in advance; the transcript until a stop is post-processing of all planned releases.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridpriv import make_settings, run
from gridpriv.core.errors import SolverError
from gridpriv.privacy.accounting import total_epsilon, total_pure
from gridpriv.privacy.certificate import all_planned, charges_of
from gridpriv.zonal.prepared import prepare
from gridpriv.zonal.run import run_prepared

ROUNDS, DELTA = 12, 1e-5
METHODS = [
    {"perturbation": "demand", "noise_schedule": "round", "mechanism": "laplace"},
    {"perturbation": "demand", "noise_schedule": "round", "mechanism": "gaussian"},
    {"perturbation": "output", "mechanism": "gaussian"},
]


def settings(**more):
    budget = {"budget": f"total:5,{DELTA}", "target_delta": DELTA, "seed": 1}
    return make_settings(**budget, rounds=ROUNDS, preset="ryu-kim", sensitivity="proven", **more)


@pytest.mark.parametrize("method", METHODS)
def test_a_run_that_stops_early_is_certified_for_all_rounds(case14, zones14, method):
    whole = run(case14, zones14, settings(**method))
    stopped = run(case14, zones14, settings(**method, tolerance=1e3))
    assert len(whole.rounds) == ROUNDS > len(stopped.rounds)
    for all_of, some in zip(whole.certificates, stopped.certificates, strict=True):
        assert some.releases == len(stopped.rounds) < all_of.releases
        assert some.total == pytest.approx(min(all_of.total, some.total_pure), rel=1e-9)


def test_a_run_that_fails_is_certified_for_all_rounds(case14, zones14):
    method = METHODS[1]
    whole = run(case14, zones14, settings(**method))
    left = []

    def fail(record):
        if record.round == 3:
            raise SolverError("a solver ended early")

    with pytest.raises(SolverError):
        run_prepared(prepare(case14, zones14, settings(**method)), fail, leave=left.append)
    (early,) = left
    assert [item.releases for item in early.certificates] == [3, 3, 3]
    assert [item.total for item in early.certificates] == pytest.approx(
        [item.total for item in whole.certificates], rel=1e-9
    )


def test_a_run_without_a_draw_states_none(case14, zones14):
    left = []

    def refuse(*_):
        raise SolverError("refused")

    with pytest.raises(SolverError):
        run_prepared(
            prepare(case14, zones14, settings(**METHODS[0])), charge=refuse, leave=left.append
        )
    assert left[0].certificates == ()


def test_all_planned_tops_up_with_the_largest_loss(case14, zones14):
    result = run(case14, zones14, settings(**METHODS[0]))
    drawn = dict.fromkeys(result.trace.releases["1"], 2)
    topped = all_planned(drawn, ROUNDS)
    assert sum(topped.values()) == ROUNDS
    assert total_pure(charges_of(topped)) == pytest.approx(6 * total_pure(charges_of(drawn)))
    assert total_epsilon(charges_of(topped), DELTA) > total_epsilon(charges_of(drawn), DELTA)
    assert all_planned(drawn, 1) == drawn
    (cheap,) = drawn
    costly = replace(
        cheap, sensitivity=replace(cheap.sensitivity, value=2.0 * cheap.sensitivity.value)
    )
    for order in ((cheap, costly), (costly, cheap)):
        assert all_planned(dict.fromkeys(order, 1), 4) == {cheap: 1, costly: 3}
    assert all_planned({}, ROUNDS) == {}

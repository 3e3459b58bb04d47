"""Accuracy matched: what rounds can use; exact: what the solver can. Both come to one place."""

from __future__ import annotations

import numpy as np
import pytest

from gridpriv import load_case, make_settings, run, shipped_zoning
from gridpriv.grid.partition import partition
from gridpriv.zonal.prepared import prepare
from gridpriv.zonal.run import crew

STILL = 1e-4


@pytest.fixture(scope="module", autouse=True)
def many():
    """Zones as of a large grid: on few of them matched is exact."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gridpriv.zonal.prepared.FEW_ZONES", 0)
        yield


@pytest.fixture(scope="module")
def pair(many):  # noqa: ARG001
    case = load_case("case118")
    zoning = shipped_zoning(case)
    return {
        accuracy: run(case, zoning, make_settings(rounds=100, seed=3, accuracy=accuracy))
        for accuracy in ("matched", "exact")
    }


def test_matched_rounds_stop_where_all_agree(pair):
    matched, exact = (pair[accuracy].trace.rounds for accuracy in ("matched", "exact"))
    assert len(exact) == 100
    assert 10 < len(matched) < 70
    assert matched[-1].disagreement < STILL
    assert all(record.disagreement >= STILL for record in matched[:-1])


def test_what_is_released_does_not_depend_on_accuracy(pair):
    assert pair["matched"].trace.releases == pair["exact"].trace.releases
    for one, other in zip(pair["matched"].statements, pair["exact"].statements, strict=True):
        assert one == other


def test_both_settle_at_one_cost(pair):
    matched, exact = (pair[accuracy].physical for accuracy in ("matched", "exact"))
    assert matched["carried"] and exact["carried"]
    assert matched["cost"] == pytest.approx(exact["cost"], rel=2e-5)
    assert matched["shed_mw"] == exact["shed_mw"] == 0.0


@pytest.mark.parametrize(("name", "zones", "rounds"), [("case14", 5, 100), ("case118", 3, 40)])
def test_more_zones_settle_at_one_cost_too(name, zones, rounds):
    """A tenth of what solves to 1e-6 add to the cost here."""
    case = load_case(name)
    zoning = partition(case, zones, "spectral", 0)
    cost = {
        accuracy: run(
            case, zoning, make_settings(rounds=rounds, mechanism="none", accuracy=accuracy)
        ).physical["cost"]
        for accuracy in ("matched", "exact")
    }
    assert cost["matched"] == pytest.approx(cost["exact"], rel=1e-4)


@pytest.mark.parametrize("accuracy", ["matched", "exact"])
def test_zones_are_solved_as_far_as_settings_say(case14, zones14, accuracy):
    prepared = prepare(case14, zones14, make_settings(accuracy=accuracy))
    (member,) = crew(prepared).members([0])
    assert member.problem.accuracy == prepared.problems[0].accuracy == accuracy


@pytest.mark.parametrize("calibration", ["sound", "paper"])
def test_minimisers_that_are_released_are_solved_as_before(calibration):
    """Sound noise covers a proven error, a paper's is for exact ones: accuracy has no say there."""
    case = load_case("case14")
    found = [
        run(case, shipped_zoning(case), make_settings(
            perturbation="output", mechanism="gaussian", budget="total:5,1e-5", beta="5 MW",
            start="flat", rounds=2, seed=3, calibration=calibration, accuracy=accuracy,
        ))
        for accuracy in ("matched", "exact")
    ]  # fmt: skip
    for one, other in zip(found[0].outcomes, found[1].outcomes, strict=True):
        np.testing.assert_array_equal(one.z, other.z)


@pytest.mark.parametrize(
    ("given", "stops"),
    [
        ({}, STILL),
        ({"accuracy": "exact"}, 0.0),
        ({"tolerance": 1e-3, "accuracy": "exact"}, 1e-3),
        ({"tolerance": 0.0}, 0.0),
        ({"refresh": "round"}, 0.0),
        ({"update": "linearized"}, 0.0),
    ],
)
def test_rounds_stop_by_default_only_where_they_repeat_one_map(given, stops):
    settings = make_settings(**given)
    assert settings.effective_tolerance() == stops
    assert settings.as_dict()["tolerance"] == stops

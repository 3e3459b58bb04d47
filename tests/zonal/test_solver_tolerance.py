"""Solver tolerances matched and tight lead to the same result."""

from __future__ import annotations

import numpy as np
import pytest

from gridpriv import load_case, make_settings, run, shipped_zoning
from gridpriv.consensus.coordinator import DUAL_TOLERANCE
from gridpriv.grid.partition import partition
from gridpriv.zonal.prepared import prepare
from gridpriv.zonal.run import zone_agents

DEFAULT_TOLERANCE = 1e-4


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
        solver_tolerance: run(
            case,
            zoning,
            make_settings(
                rounds=100,
                seed=3,
                planning="soc",
                acceleration="anderson",
                solver_tolerance=solver_tolerance,
            ),
        )
        for solver_tolerance in ("matched", "tight")
    }


def test_matched_rounds_stop_at_the_tolerance(pair):
    matched, exact = (
        pair[solver_tolerance].trace.rounds for solver_tolerance in ("matched", "tight")
    )
    assert len(exact) == 100
    assert 10 < len(matched) < 70
    assert matched[-1].consensus_residual_max < DEFAULT_TOLERANCE
    assert not any(
        record.consensus_residual_max < DEFAULT_TOLERANCE
        and record.dual_residual < DUAL_TOLERANCE * DEFAULT_TOLERANCE
        for record in matched[:-1]
    )


def test_what_is_released_does_not_depend_on_accuracy(pair):
    assert pair["matched"].trace.releases == pair["tight"].trace.releases
    for item, other in zip(pair["matched"].certificates, pair["tight"].certificates, strict=True):
        assert item == other


def test_both_have_the_same_cost_after_redispatch(pair):
    matched, exact = (pair[solver_tolerance].physical for solver_tolerance in ("matched", "tight"))
    assert matched["ac_feasible"] and exact["ac_feasible"]
    assert matched["cost"] == pytest.approx(exact["cost"], rel=2e-5)
    assert matched["shed_mw"] == exact["shed_mw"] == 0.0


@pytest.mark.parametrize(("name", "zones", "rounds"), [("case14", 5, 100), ("case118", 3, 40)])
def test_more_zones_have_the_same_cost_after_redispatch_too(name, zones, rounds):
    """The cost differs by a tenth of the error of solves to 1e-6."""
    case = load_case(name)
    zoning = partition(case, zones, "spectral", 0)
    cost = {
        solver_tolerance: run(
            case,
            zoning,
            make_settings(rounds=rounds, mechanism="none", solver_tolerance=solver_tolerance),
        ).physical["cost"]
        for solver_tolerance in ("matched", "tight")
    }
    assert cost["matched"] == pytest.approx(cost["tight"], rel=1e-4)


@pytest.mark.parametrize("solver_tolerance", ["matched", "tight"])
def test_zones_are_solved_as_far_as_settings_say(case14, zones14, solver_tolerance):
    prepared = prepare(case14, zones14, make_settings(solver_tolerance=solver_tolerance))
    (member,) = zone_agents(prepared).make([0])
    assert (
        member.problem.solver_tolerance == prepared.problems[0].solver_tolerance == solver_tolerance
    )


@pytest.mark.parametrize("sensitivity", ["proven", "published"])
def test_minimisers_that_are_released_are_solved_as_before(sensitivity):
    """Sound noise covers a proven error, a published one is for exact minimisers."""
    case = load_case("case14")
    result = [
        run(
            case,
            shipped_zoning(case),
            make_settings(
                perturbation="output",
                mechanism="gaussian",
                budget="total:5,1e-5",
                beta="5 MW",
                start="flat",
                rounds=2,
                seed=3,
                sensitivity=sensitivity,
                solver_tolerance=solver_tolerance,
            ),
        )
        for solver_tolerance in ("matched", "tight")
    ]
    for item, other in zip(result[0].outcomes, result[1].outcomes, strict=True):
        np.testing.assert_array_equal(item.z, other.z)


@pytest.mark.parametrize(
    ("given", "stops"),
    [
        ({}, DEFAULT_TOLERANCE),
        ({"solver_tolerance": "tight"}, 0.0),
        ({"tolerance": 1e-3, "solver_tolerance": "tight"}, 1e-3),
        ({"tolerance": 0.0}, 0.0),
        ({"noise_schedule": "round"}, 0.0),
        ({"update": "linearized"}, 0.0),
    ],
)
def test_rounds_stop_by_default_only_where_they_repeat_one_map(given, stops):
    settings = make_settings(**given)
    assert settings.effective_tolerance() == stops
    assert settings.as_dict()["tolerance"] == stops

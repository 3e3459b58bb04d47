"""Grids without a feasible plan: a clear result, and no error after a charge."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gridpriv import load_case, run, shipped_zoning
from gridpriv.power import schedule
from gridpriv.power.ac import grid_redispatch

pytestmark = pytest.mark.usefixtures("few_replans")


@pytest.fixture
def few_rounds(monkeypatch):
    """Let searches that do not converge end early; those that do converge take fewer rounds."""
    monkeypatch.setattr(schedule, "MOST_AC_ROUNDS", 30)
    monkeypatch.setattr(grid_redispatch, "MOST_REPLANS", 1)
    monkeypatch.setattr(grid_redispatch, "MOST_BUSES", 0)  # LEAST_OUTCOMES at most


def _with(values, place, value):
    changed = np.array(values, dtype=float)
    changed[place] = value
    return changed


def redispatched(case, coordination, zones=3):
    charged = []
    result = run(
        case, zones, seed=1, coordination=coordination, charge=lambda *item: charged.append(item)
    )
    assert len(charged) == 3
    return result


@pytest.mark.parametrize("coordination", ["central", "rounds"])
def test_without_generation_all_load_is_shed(coordination):
    """Central coordination charged every zone and then found no optimum."""
    case = load_case("case14")
    dark = replace(case, pmin=np.zeros(case.n_gen), pmax=np.zeros(case.n_gen))
    physical = redispatched(dark, coordination).physical
    assert physical["shed_mw"] == pytest.approx(case.base_mva * case.pd.sum())


@pytest.mark.parametrize("coordination", ["central", "rounds"])
def test_zones_may_be_islands(coordination):
    case, zoning = load_case("case14"), shipped_zoning(load_case("case14"), 3)
    ties = np.flatnonzero(zoning.zone_of[case.f_bus] != zoning.zone_of[case.t_bus])
    islands = case.without(tuple(f"branch:{row}" for row in case.branch_row[ties].tolist()))
    result = redispatched(islands, coordination, zoning)
    assert result.redispatch.status == "feasible"
    assert np.abs(result.redispatch.state.interchange).max() < 1e-9


@pytest.mark.usefixtures("few_rounds")
def test_a_slack_fixed_outside_its_neighbours_reach_is_not_ac_feasible():
    case = load_case("case14")
    fixed = replace(case, vmin=_with(case.vmin, 0, 1.5), vmax=_with(case.vmax, 0, 1.5))
    redispatch = redispatched(fixed, "central").redispatch
    assert redispatch.status == "infeasible"
    assert redispatch.violations or redispatch.failure


@pytest.mark.usefixtures("few_rounds")
def test_negative_loads_everywhere_end_with_a_status():
    """Their reactive part cannot be curtailed; no AC state within all limits is known."""
    case = load_case("case14")
    redispatch = redispatched(replace(case, pd=-case.pd, qd=-case.qd), "rounds").redispatch
    assert redispatch.status == "feasible" or redispatch.violations
    assert redispatch.state.shed_mw == 0.0


@pytest.mark.slow
@pytest.mark.usefixtures("all_replans")
def test_negative_loads_end_with_a_status_after_all_replans():
    test_negative_loads_everywhere_end_with_a_status()

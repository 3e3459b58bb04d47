"""Audit of series: a zone's statistics change by at most the declared sensitivity."""

from __future__ import annotations

import pytest

from gridpriv import load_case, make_settings, partition
from gridpriv.assurance.whole import series_findings
from gridpriv.zonal.prepared import prepare


@pytest.mark.parametrize("seed", [1, 2])
def test_a_zone_without_demand_is_moved_by_the_sensitivity_to_rounding(seed: int) -> None:
    """Its values are 0, so an allowance in proportion to them alone would be none."""
    case = load_case("case5")
    settings = make_settings(mechanism="laplace", budget="total:5", seed=seed)
    findings = series_findings(prepare(case, partition(case, 5), settings))
    assert findings
    assert all(item.measured <= item.allowed for item in findings)


@pytest.mark.parametrize("mechanism", ["knorm", "laplace"])
def test_p_and_q_of_every_step_keep_to_the_power_factors(mechanism: str) -> None:
    """With separate signs of p and q in every step a change was outside of the band."""
    case = load_case("case5")
    given = {"mechanism": mechanism, "budget": "total:5", "seed": 1, "power_factor": "0.9..0.95"}
    findings = series_findings(prepare(case, partition(case, 5), make_settings(**given)))
    assert all(item.measured <= item.allowed for item in findings)
    assert max(item.ratio for item in findings) > 0.9

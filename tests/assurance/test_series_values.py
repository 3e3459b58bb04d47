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

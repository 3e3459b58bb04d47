"""Runs of published pandapower grids, with an external grid that is unlimited or fixed."""

from __future__ import annotations

from typing import Any

import pytest

from gridpriv import make_settings, run
from gridpriv.grid.pandapower import case_from_pandapower
from gridpriv.grid.partition import partition

networks = pytest.importorskip("pandapower.networks")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


def redispatched(name: str, of: dict[str, Any] | None = None, **settings: Any) -> dict[str, Any]:
    case = case_from_pandapower(getattr(networks, name)(**of or {}))
    return run(case, partition(case, 3, "spectral"), make_settings(**settings)).physical


@pytest.mark.parametrize(
    "name", ["create_cigre_network_mv", pytest.param("mv_oberrhein", marks=pytest.mark.slow)]
)
def test_released_demand_is_used_behind_an_unlimited_source(name: str) -> None:
    """With a prior of 0 MW behind it, a run drew 9 MW of balancing power at any budget."""
    physical = redispatched(name, beta="0.01MW", seed=1)
    assert physical["ac_feasible"]
    assert physical["balancing_mw"] <= 0.3


def test_zones_of_ieee30_come_to_the_optimum_with_its_slack_fixed() -> None:
    """9,000 $/h is pandapower's own optimum (runopp)."""
    physical = redispatched("case_ieee30", mechanism="none")
    assert physical["ac_feasible"]
    assert physical["cost"] == pytest.approx(9000.0, rel=0.005)


def test_no_load_is_shed_in_one_zone_while_another_curtails_wind() -> None:
    """Zone 1 shed 0.69 MW at the rating of its transformer, zone 3 curtailed 1.42 MW at bus 7."""
    physical = redispatched("create_cigre_network_mv", {"with_der": "pv_wind"}, beta="2MW", seed=77)
    assert physical["status"] == "feasible"
    assert physical["shed_mw"] == pytest.approx(0.0, abs=1e-3)
    assert physical["curtailed_mw"] == pytest.approx(0.0, abs=1e-3)

"""Elements whose fixed power is part of demand, which load scales multiply too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gridpriv.core.errors import GridprivWarning
from gridpriv.grid.case import Case
from gridpriv.grid.chronology import with_storage
from gridpriv.grid.library import load_case
from gridpriv.grid.pandapower import case_from_pandapower
from gridpriv.grid.scenarios import override_demand
from gridpriv.power.prior import warn_of_demand

pandapower = pytest.importorskip("pandapower")


def net_with_solar() -> Any:
    """Return a net of 4 MW of load, 1 MW of solar, and a storage unit that charges 0.5 MW."""
    net = pandapower.create_empty_network(sn_mva=10.0)
    for _ in range(2):
        pandapower.create_bus(net, 20.0)
    pandapower.create_ext_grid(net, 0, max_p_mw=10.0)
    pandapower.create_line(net, 0, 1, 1.0, "NA2XS2Y 1x240 RM/25 12/20 kV")
    pandapower.create_load(net, 1, 4.0)
    pandapower.create_sgen(net, 1, 1.0)
    pandapower.create_sgen(net, 1, 1.0, in_service=False)
    pandapower.create_sgen(net, 1, 1.0, controllable=True, min_p_mw=0.0, max_p_mw=1.0)
    pandapower.create_storage(net, 1, 0.5, 2.0)
    return net


@pytest.fixture
def case() -> Case:
    return case_from_pandapower(net_with_solar(), "solar")


def test_the_case_counts_what_its_demand_contains_besides_loads(case: Case) -> None:
    assert case.base_mva * case.pd[1] == pytest.approx(4.0 - 1.0 + 0.5)
    assert case.fixed == {"static generator": 1, "storage unit": 1}
    assert load_case("case14").fixed == {}
    net = net_with_solar()
    pandapower.create_dcline(net, 0, 1, 1.0, 0.0, 0.0, 1.0, 1.0)
    pandapower.create_dcline(net, 0, 1, 1.0, 0.0, 0.0, 1.0, 1.0, in_service=False)
    assert case_from_pandapower(net, "solar").fixed == case.fixed | {"DC line": 1}


def test_a_load_scale_says_that_it_multiplies_them(case: Case) -> None:
    """MATPOWER's scale_load multiplies Pd of a bus, too; pandapower has a scaling by element."""
    scaled = case.scale_load(2.0)
    assert scaled.base_mva * scaled.pd[1] == pytest.approx(2.0 * 3.5)
    words = r"scale also multiplies the power of 1 static generator, 1 storage unit of solar, which"
    with pytest.warns(GridprivWarning, match=words):
        warn_of_demand(scaled, "case solar", 2.0)
    warn_of_demand(case, "case solar")  # no warning, which would be an error
    warn_of_demand(replace(scaled, fixed={}), "case solar", 2.0)


def test_given_demand_and_planned_storage_do_not_contain_them(case: Case, tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("bus,pd_mw,qd_mvar\n0,0,0\n1,4,1\n", encoding="utf-8")
    assert override_demand(case, tmp_path / "d.csv").fixed == {}
    (tmp_path / "d.csv").write_text("bus,pd_mw,qd_mvar\n0,1,1\n", encoding="utf-8")
    assert override_demand(case, tmp_path / "d.csv").fixed == case.fixed
    net = net_with_solar()
    net.storage[["max_e_mwh", "max_p_mw", "min_p_mw"]] = [2.0, 1.0, -1.0]
    net.storage[["min_e_mwh", "soc_percent", "min_q_mvar", "max_q_mvar"]] = [0.0, 50.0, 0.0, 0.0]
    pandapower.to_json(net, tmp_path / "solar.json")
    planned, _ = with_storage(load_case(tmp_path / "solar.json"), tmp_path / "solar.json")
    assert planned.fixed == {"static generator": 1}

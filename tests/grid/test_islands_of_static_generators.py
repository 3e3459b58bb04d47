"""Outages that leave an island with static generators only: it has no voltage, as in pandapower."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dispatch import dispatch_of

from gridpriv.grid.case import Case, network_text, read_network
from gridpriv.grid.network import deenergized_buses
from gridpriv.grid.pandapower import case_from_pandapower
from gridpriv.grid.scenarios import contingencies
from gridpriv.power.ac.optimum import acopf
from gridpriv.power.security import pre_contingency, security_analysis

pandapower = pytest.importorskip("pandapower")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


def line_of_four(table: str) -> Any:
    """Return buses 0 to 3 in a line: external grid, 2 MW, a generator of ``table``, 1 MW."""
    net = pandapower.create_empty_network(sn_mva=10.0)
    for _ in range(4):
        pandapower.create_bus(net, 20.0)
    pandapower.create_ext_grid(net, 0, max_p_mw=20.0, min_p_mw=0.0)
    for bus in range(3):
        pandapower.create_line(net, bus, bus + 1, 1.0, "NA2XS2Y 1x240 RM/25 12/20 kV")
    pandapower.create_load(net, 1, 2.0)
    pandapower.create_load(net, 3, 1.0)
    limits = {"min_p_mw": 0.0, "max_p_mw": 5.0, "min_q_mvar": -2.0, "max_q_mvar": 2.0}
    if table == "sgen":
        pandapower.create_sgen(net, 2, 1.0, controllable=True, **limits)
    else:
        pandapower.create_gen(net, 2, 1.0, **limits)
    for name, price in (("ext_grid", 20.0), (table, 10.0)):
        pandapower.create_poly_cost(net, 0, name, cp1_eur_per_mw=price)
    return net


@pytest.fixture
def case() -> Case:
    return case_from_pandapower(line_of_four("sgen"), "line")


def test_an_island_of_static_generators_is_deenergized_as_in_pandapower(case: Case) -> None:
    net = line_of_four("sgen")
    net.line.loc[1, "in_service"] = False
    pandapower.runpp(net)
    after = case.without(("branch:2",))
    np.testing.assert_array_equal(deenergized_buses(after), net.res_bus["vm_pu"].isna())
    state = acopf(after).state
    assert state.deenergized_mw == pytest.approx(1.0)
    assert acopf(case).cost == pytest.approx(3.0 * 10.0, abs=0.1), "in service it supplies all"
    assert case.gen_row[case.forming].tolist() == [1]


def test_a_generator_that_holds_the_voltage_keeps_its_island() -> None:
    case = case_from_pandapower(line_of_four("gen"), "line")
    assert case.following is None
    assert not deenergized_buses(case.without(("branch:2",))).any()


def test_a_security_analysis_counts_its_load_as_islanded(case: Case) -> None:
    before = pre_contingency(case, dispatch_of(case))
    after = {o.contingency.name: o for o in security_analysis(before, contingencies(case, "all"))}
    assert after["branch:1"].islanded_mw == pytest.approx(3.0)
    assert after["branch:2"].islanded_mw == pytest.approx(1.0)
    assert after["gen:2"].islanded_mw == pytest.approx(0.0)


def test_the_network_file_has_them(case: Case, tmp_path: Path) -> None:
    (tmp_path / "network.json").write_text(network_text(case), encoding="utf-8")
    read = read_network(tmp_path / "network.json")
    assert deenergized_buses(read.without(("branch:2",))).tolist() == [False, False, True, True]


def test_an_external_grid_that_only_absorbs_holds_the_voltage() -> None:
    net = line_of_four("sgen")
    net.ext_grid[["min_p_mw", "max_p_mw"]] = [-20.0, 0.0]
    net.sgen["p_mw"] = 3.1
    case = case_from_pandapower(net, "line")
    after = case.without(("branch:3",))
    assert after.gen_row.tolist() == [1, 2]
    np.testing.assert_array_equal(deenergized_buses(after), [False, False, False, True])
    before = pre_contingency(case, dispatch_of(case))
    outages = {o.contingency.name: o for o in security_analysis(before, contingencies(case, "all"))}
    assert outages["branch:3"].islanded_mw == pytest.approx(1.0)
    assert outages["branch:1"].shed_mw == pytest.approx(3.0), "neither part has a source"

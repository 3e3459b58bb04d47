"""Star points and open line ends: no demand is expected, released or published there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gridpriv import load_case, make_settings, run
from gridpriv.cli.main import main
from gridpriv.cli.output import worded
from gridpriv.core.errors import InputError
from gridpriv.grid.case import Case, network_text, read_network
from gridpriv.grid.pandapower import case_from_pandapower
from gridpriv.grid.scenarios import (
    DemandSeries,
    contingencies,
    override_demand,
    read_demand_series,
)
from gridpriv.grid.zoning import read_zoning, zoning_from_groups
from gridpriv.power.ac.optimum import nearest_served
from gridpriv.power.prior import bus_ranges, public_demand, zone_prior
from gridpriv.power.security import worst_loading
from gridpriv.privacy.adjacency import Beta
from gridpriv.study.forecast import Forecasting, forecast_series
from gridpriv.zonal.prepared import prepare
from gridpriv.zonal.protected_case import prepare_publication, protect

pandapower = pytest.importorskip("pandapower")


def net_of_three_voltages() -> Any:
    """Return a net with a three-winding transformer (bus 5) and an open line end (bus 6).

    A closed switch joins bus 4 to bus 3.
    """
    net = pandapower.create_empty_network(sn_mva=100.0)
    for volts in (110.0, 20.0, 10.0, 20.0, 20.0):
        pandapower.create_bus(net, volts)
    pandapower.create_ext_grid(net, 0, max_p_mw=60.0, min_p_mw=0.0, max_q_mvar=40, min_q_mvar=-40)
    pandapower.create_poly_cost(net, 0, "ext_grid", cp1_eur_per_mw=30.0)
    pandapower.create_transformer3w(net, 0, 1, 2, "63/25/38 MVA 110/20/10 kV")
    for _ in range(2):
        pandapower.create_line(net, 1, 3, 2.0, "NA2XS2Y 1x240 RM/25 12/20 kV")
    pandapower.create_line(net, 1, 3, 2.0, "NA2XS2Y 1x240 RM/25 12/20 kV")
    pandapower.create_switch(net, 3, 2, "l", closed=False)
    pandapower.create_switch(net, 3, 4, "b", closed=True)
    for bus, p in ((1, 4.0), (2, 6.0), (3, 2.0), (4, 3.0)):
        pandapower.create_load(net, bus, p, 0.3 * p)
    return net


@pytest.fixture(scope="module")
def case() -> Case:
    return case_from_pandapower(net_of_three_voltages(), "three")


ADDED = [5, 6]


def test_only_the_buses_that_the_net_lacks_are_auxiliary(case: Case) -> None:
    assert case.auxiliary is not None
    assert case.bus_id[case.auxiliary].tolist() == ADDED
    assert not case.load_buses[[4, 5]].any()
    assert case.bus_id.tolist() == [0, 1, 2, 3, 5, 6]


def test_the_public_prior_has_no_demand_there(case: Case) -> None:
    """60 % of the 60 MW of capacity, on the four buses of the net: 9 MW each."""
    expected = case.base_mva * public_demand(case, None).mean[0]
    np.testing.assert_allclose(expected, [9.0, 9.0, 9.0, 9.0, 0.0, 0.0])
    moved = bus_ranges(case).within(np.full(12, 0.05), np.arange(6)).reshape(2, 6)
    np.testing.assert_array_equal(moved[:, 4:], 0.0)


def test_a_file_of_public_demand_may_leave_them_out(case: Case, tmp_path: Path) -> None:
    rows = "".join(f"{bus},{3 + bus},1\n" for bus in range(4))
    (tmp_path / "usual.csv").write_text(f"bus,pd_mw,qd_mvar\n{rows}", encoding="utf-8")
    mean = case.base_mva * public_demand(case, tmp_path / "usual.csv").mean
    np.testing.assert_allclose(mean[0], [3.0, 4.0, 5.0, 6.0, 0.0, 0.0])


def test_a_forecast_of_zones_leaves_them_out_and_its_spread_too(case: Case, tmp_path: Path) -> None:
    zones = zoning_from_groups(case, [[0, 1, 4, 5], [2, 3]], "two", ["a", "b"])
    days = pd.date_range("2026-01-05", periods=48, freq="h").strftime("%Y-%m-%dT%H:%M").tolist()
    demand = np.outer(1.0 + 0.1 * np.sin(np.arange(48)), case.pd), np.tile(case.qd, (48, 1))
    history = DemandSeries(case, tuple(days), *demand, "history")
    result = forecast_series(Forecasting(beta=Beta(0.1, "MW"), steps=2, seed=1), history, zones)
    rows = result.table()
    assert sorted(set(rows["bus"])) == [0, 1, 2, 3]
    rows.to_csv(tmp_path / "f.csv", index=False)
    expected = public_demand(case, f"{tmp_path / 'f.csv'}@{result.times[0]}")
    np.testing.assert_array_equal(expected.mean[:, 4:], 0.0)
    first = rows[rows["step"] == result.times[0]].set_index("bus")
    problem = prepare(case, zones, make_settings(beta="1MW", budget="total:1", seed=1)).zones[0]
    size = np.abs(first.loc[[0, 1], "pd_mw"]).sum() / case.base_mva
    spread = zone_prior(problem, expected).spread[0]
    assert spread == pytest.approx(first.loc[0, "zone_spread"] * size)


@pytest.mark.parametrize("release", ["bus", "total", "tree"])
def test_a_published_case_has_no_demand_there(case: Case, release: str) -> None:
    settings = make_settings(beta="1MW", budget="total:1", seed=3, release=release)
    published = protect(prepare_publication(case, settings, priced=True))
    for served in (published.served, *published.scenarios(3)):
        np.testing.assert_array_equal(served.case.pd[4:], 0.0)
        np.testing.assert_array_equal(served.case.qd[4:], 0.0)
    assert (published.served.case.pd[:4] != 0.0).all()
    variances = np.diag(published.posterior.covariance[0])
    np.testing.assert_allclose(variances[4:], 0.0, atol=1e-15)
    _, of_a_bus = published.contents.errors
    assert of_a_bus == pytest.approx(np.sqrt(variances[:4].mean()))


def test_a_publication_reads_joined_buses_and_states_how_its_file_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MATPOWER counts from 1: buses 3 and 4 of the net are bus 4 of the file, 5 and 6 are 6, 7."""
    monkeypatch.chdir(tmp_path)
    pandapower.to_json(net_of_three_voltages(), "net.json")
    rows = "".join(f"{bus},3,1\n" for bus in range(5))
    Path("usual.csv").write_text(f"bus,pd_mw,qd_mvar\n{rows}", encoding="utf-8")
    words = ["--public-demand", "usual.csv", "--seed", "1", "--scenarios", "1"]
    assert main(["publish", "net.json", *words, "--out", "own.m"]) == 0
    sheet = " ".join(Path("own.datasheet.md").read_text(encoding="utf-8").split())
    assert "5 is part of bus 4." in sheet
    assert "6, 7 are star points or open line ends" in sheet
    case = load_case("own.m")
    assert case.bus_id.tolist() == [1, 2, 3, 4, 6, 7]
    assert case.pd[3] == pytest.approx(2.0 * case.pd[1], rel=1e-5)


@pytest.mark.parametrize("norm", [1, 2, "box"])
def test_the_projection_moves_no_demand_there(case: Case, norm: Any) -> None:
    """90 MW behind a transformer of 38 MVA: the change is large."""
    heavy = replace(case, pd=np.array([0.0, 0.0, 0.9, 0.0, 0.0, 0.0]))
    served = nearest_served(heavy, norm)
    assert np.abs(served.demand_change[0]).max() > 0.3
    np.testing.assert_array_equal(served.case.pd[4:], 0.0)


def test_a_run_estimates_no_demand_there(case: Case) -> None:
    zones = zoning_from_groups(case, [[0, 1, 4, 5], [2, 3]], "two", ["a", "b"])
    result = run(case, zones, make_settings(beta="1MW", budget="total:1", seed=3, release="bus"))
    estimates = np.zeros((2, 6))
    for members, outcome in zip(result.zoning.members, result.outcomes, strict=True):
        assert outcome.released is not None
        estimates[:, members] = outcome.released.reshape(2, -1)
    np.testing.assert_array_equal(estimates[:, 4:], 0.0)
    assert (estimates[0, :4] != 0.0).all()


def test_all_parties_of_a_consortium_read_them(case: Case, tmp_path: Path) -> None:
    path = tmp_path / "network.json"
    path.write_text(network_text(case), encoding="utf-8")
    read = read_network(path)
    np.testing.assert_array_equal(read.load_buses, case.load_buses)
    np.testing.assert_array_equal(public_demand(read, None).mean, public_demand(case, None).mean)


def test_files_cannot_place_demand_there(case: Case, tmp_path: Path) -> None:
    path = tmp_path / "demand.csv"
    path.write_text("bus,pd_mw,qd_mvar\n1,7,1\n5,0,0\n", encoding="utf-8")
    assert override_demand(case, path).pd[1] == pytest.approx(0.07)
    path.write_text("bus,pd_mw\n5,0.1\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"line 2: pd_mw = '0.1': must be 0: bus 5 is a star"):
        override_demand(case, path)
    path.write_text("step,bus,pd_mw\na,1,7\na,6,1\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"line 3: pd_mw = '1': must be 0: bus 6 is"):
        read_demand_series(path, case)


@pytest.mark.parametrize("series", [False, True])
@pytest.mark.parametrize("listed", [range(4), (1, 2)])
def test_a_file_that_leaves_out_other_buses_is_filled_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, series: bool, listed: Any
) -> None:
    """With a row for every bus of the net, no demand of the net is scaled: no warning remains."""
    monkeypatch.chdir(tmp_path)
    net = net_of_three_voltages()
    pandapower.create_sgen(net, 1, 1.0)
    pandapower.to_json(net, "net.json")
    rows = "".join(f"{'a,' * series}{bus},3,1\n" for bus in listed)
    Path("d.csv").write_text(f"{'step,' * series}bus,pd_mw,qd_mvar\n{rows}", encoding="utf-8")
    words = ["relax", "net.json", "--demand", "d.csv", "--load-scale", "1.5"]
    flag = "--series" if series else "--demand"
    if series:
        words = ["run", "net.json", "--zones", "2", "--dry-run", "--series", "d.csv"]
        words += ["--load-scale", "1.5"]
    assert main(words) == 0
    said = " ".join(capsys.readouterr().err.split())
    left = {"source": f"{flag} d.csv", "number": "2 buses", "first": "0, 3"}
    filled = " ".join(worded("demand-unlisted", **left).split())
    complete = len(listed) == 4
    assert (filled in said) != complete
    assert ("leaves out" in said) != complete
    assert ("load scale also multiplies" in said) != complete


def test_the_winding_of_a_transformer_is_named_by_the_buses_of_the_net(case: Case) -> None:
    """Branches 4 to 6 are its windings to buses 0, 1 and 2; branch 1 is a line."""
    listed = {item.outages[0]: item.places(case) for item in contingencies(case, "branches")}
    assert [listed[f"branch:{row}"][0] for row in (1, 4, 5, 6)] == (
        ["1-3", "0-1-2", "1-0-2", "2-0-1"]
    )
    flow = np.zeros(case.n_branch)
    flow[4] = 0.5 * case.rate[4]
    assert worst_loading(case, flow) == (pytest.approx(50.0), "1-0-2")


def test_a_zone_map_may_leave_them_out(case: Case, tmp_path: Path) -> None:
    path = tmp_path / "zones.csv"
    path.write_text("bus,zone\n0,north\n1,north\n2,south\n3,north\n4,north\n", encoding="utf-8")
    zoning = read_zoning(path, case)
    zone_of = dict(zip(case.bus_id.tolist(), zoning.zone_of.tolist(), strict=True))
    assert zone_of == {0: 0, 1: 0, 2: 1, 3: 0, 5: 0, 6: 0}
    path.write_text("bus,zone\n0,north\n1,north\n2,south\n3,north\n4,south\n", encoding="utf-8")
    with pytest.raises(
        InputError, match=r"line 6: zone = 'south': must be north, as closed switches join bus 3"
    ):
        read_zoning(path, case)

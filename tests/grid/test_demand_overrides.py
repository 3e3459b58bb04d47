"""Demand from CSV and profiles: changed, unchanged and refused values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridpriv.core.errors import GridprivWarning, InputError
from gridpriv.grid.library import load_case
from gridpriv.grid.pandapower import convert_net, series_from_simbench
from gridpriv.grid.scenarios import (
    DemandSeries,
    override_demand,
    read_demand_series,
)

CASE14 = load_case("case14")


def write(folder: Path, text: str) -> Path:
    path = folder / "demand.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_no_bus_draws_more_than_the_world_generates() -> None:
    with pytest.raises(InputError, match=r"bus 2: pd = .*: must be .* \(1e\+07 MVA\)"):
        CASE14.scale_load(1e6)


def test_named_buses_change_and_the_others_do_not(tmp_path: Path) -> None:
    case = override_demand(CASE14, write(tmp_path, "bus,pd_mw,qd_mvar\n9,50,10\n1,3,\n"))
    assert case.pd[8] == 0.5
    assert case.qd[8] == 0.1
    assert (case.pd[0], case.qd[0]) == (0.03, 0.0), "an empty cell keeps the demand"
    rest = [bus for bus in range(14) if bus not in (0, 8)]
    np.testing.assert_array_equal(case.pd[rest], CASE14.pd[rest])
    with pytest.warns(GridprivWarning, match="gives no pd_mw: active demand is the case's"):
        only_q = override_demand(CASE14, write(tmp_path, "qd_mvar,bus\n-2,4\n"))
    np.testing.assert_array_equal(only_q.pd, CASE14.pd)
    assert only_q.qd[3] == -0.02


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"line 1 is ''; it must be bus,pd_mw,qd_mvar"),
        ("bus,pd_mw\n", r"names no bus"),
        ("bus,pd_mw\n9,1e308\n", r"line 2: pd_mw = '1e308': must be .* within \+-1e\+07"),
        ("bus\n9\n", r"line 1 is 'bus'"),
        ("bus,pd\n9,1\n", r"line 1 is 'bus,pd'"),
        ("bus,pd_mw,pd_mw\n9,1,1\n", r"line 1 is"),
        ("bus,pd_mw\n9,1\n90,1\n", r"line 3: bus = '90': must be a bus in service"),
        ("bus,pd_mw\n9.5,1\n", r"line 2: bus = '9.5'"),
        ("bus,pd_mw\n٣,1\n", r"line 2: bus = '٣'"),
        ("bus,pd_mw\n9,1\n9,2\n", r"line 3: bus 9 is repeated \(first on line 2\)"),
        ("bus,pd_mw\n9,nan\n", r"line 2: pd_mw = 'nan': must be a finite number"),
        ("bus,pd_mw\n9,inf\n", r"line 2: pd_mw = 'inf'"),
        ("bus,pd_mw\n9,1_0\n", r"line 2: pd_mw = '1_0'"),
        ("bus,pd_mw\n9,ten\n", r"line 2: pd_mw = 'ten'"),
        ("bus,pd_mw\n9,1,2\n", r"line 2: '9,1,2'; it must be bus,pd_mw$"),
    ],
)
def test_wrong_overrides_are_refused_with_the_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        override_demand(CASE14, write(tmp_path, text))


def test_a_series_of_factors(tmp_path: Path) -> None:
    series = read_demand_series(write(tmp_path, "step,load_scale\n00:00,0.5\n00:15,2\n"), CASE14)
    assert series.steps == ("00:00", "00:15")
    np.testing.assert_allclose(series.pd, [0.5 * CASE14.pd, 2 * CASE14.pd])
    np.testing.assert_allclose(series.table().pd_mw, [129.5, 518.0])
    cases = list(series)
    np.testing.assert_allclose(cases[1].qd, 2 * CASE14.qd)
    assert cases[0].fingerprint == CASE14.scale_load(0.5).fingerprint


def test_a_series_per_bus_starts_every_step_from_the_case(tmp_path: Path) -> None:
    text = "step,bus,pd_mw,qd_mvar\na,9,10,1\na,2,20,2\nb,9,30,\n"
    series = read_demand_series(write(tmp_path, text), CASE14)
    assert series.steps == ("a", "b")
    assert series.pd[0, 8] == 0.1
    assert series.pd[1, 8] == 0.3
    assert series.qd[1, 8] == CASE14.qd[8]
    assert series.pd[1, 1] == CASE14.pd[1], "what step a changed is not carried to b"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("step,load_scale\n", "needs at least one step"),
        ("step,load_scale\n1,-1\n", r"line 2: load_scale = '-1': must be 0 or more"),
        ("step,load_scale\n1,1\n1,2\n", r"line 3: step 1 is repeated"),
        ("step,load_scale\n,1\n", r"line 2: step = '': must be"),
        ("step,load_scale,bus\n1,1,1\n", r"line 1 is"),
        ("step,bus,pd_mw\n1,9,5\n1,9,6\n", r"line 3: step 1: bus 9 is repeated"),
        ("step,bus,pd_mw\n1,9,5\n2,9,6\n1,2,6\n", r"line 4: step 1 is repeated"),
        ("time,load_scale\n1,1\n", r"it must be step,load_scale or step,bus,pd_mw,qd_mvar"),
    ],
)
def test_wrong_series_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_demand_series(write(tmp_path, text), CASE14)


@given(st.text(max_size=60))
def test_any_text_is_refused_or_read(tmp_path: Path, text: str) -> None:
    path = tmp_path / "any.csv"
    path.write_bytes(("step,bus,pd_mw,qd_mvar\n" + text).encode("utf-8", "surrogatepass"))
    try:
        series = read_demand_series(path, CASE14)
    except InputError as error:
        assert "any.csv" in str(error)
    else:
        assert np.isfinite(series.pd).all()


def test_series_refuse_wrong_shapes_and_steps() -> None:
    day = np.tile(CASE14.pd, (2, 1))
    with pytest.raises(InputError, match="pd has shape"):
        DemandSeries(CASE14, ("a",), day, day, "test")
    wrong = day.copy()
    wrong[1, 2] = np.nan
    with pytest.raises(InputError, match="step b, bus 3: qd is not a finite number"):
        DemandSeries(CASE14, ("a", "b"), day, wrong, "test")
    with pytest.raises(InputError, match="step = 2: must be 0 to 1"):
        DemandSeries(CASE14, ("a", "b"), day, day, "test").at(2)


def test_simbench_profiles_agree_with_simbench() -> None:
    simbench = pytest.importorskip("simbench")
    net = simbench.get_simbench_net("1-LV-rural1--0-sw")
    converted = convert_net(net)
    first, steps = 4000, 96
    series = series_from_simbench(net, converted.case, converted.link.bus, first, steps)
    values = simbench.get_absolute_values(net, profiles_instead_of_study_cases=True)
    for step in (0, 40, 95):
        net.load["p_mw"] = values["load", "p_mw"].loc[first + step]
        net.load["q_mvar"] = values["load", "q_mvar"].loc[first + step]
        net.sgen["p_mw"] = values["sgen", "p_mw"].loc[first + step]
        expected = convert_net(net).case
        np.testing.assert_allclose(series.pd[step], expected.pd, atol=1e-12)
        np.testing.assert_allclose(series.qd[step], expected.qd, atol=1e-12)
    with pytest.raises(InputError, match="steps = '4000 to 90000': must be"):
        series_from_simbench(net, converted.case, converted.link.bus, first, 86000)


def test_a_net_without_profiles_is_refused() -> None:
    networks = pytest.importorskip("pandapower.networks")
    net = networks.case14()
    converted = convert_net(net)
    with pytest.raises(InputError, match="the net has no profiles"):
        series_from_simbench(net, converted.case, converted.link.bus)

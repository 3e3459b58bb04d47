"""pandapower nets: their power flow satisfies the case's equations; refused input."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gridpriv.core.errors import GridprivWarning, InputError
from gridpriv.grid.case import PIECEWISE, Case
from gridpriv.grid.library import load_case, read_report
from gridpriv.grid.network import branch_admittance
from gridpriv.grid.pandapower import Conversion, case_from_pandapower, convert_net
from gridpriv.grid.pandapower_tables import Element
from gridpriv.power.ac.optimum import acopf

pp = pytest.importorskip("pandapower")
networks = pytest.importorskip("pandapower.networks")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


def solved(net: Any) -> Any:
    pp.runpp(
        net,
        numba=False,
        init="dc",
        calculate_voltage_angles=True,
        tolerance_mva=1e-9,
        voltage_depend_loads=False,
    )
    return net


def bus_admittance(case: Case) -> np.ndarray:
    y = branch_admittance(case)
    total = np.diag(case.gs + 1j * case.bs)
    f, t = case.f_bus, case.t_bus
    for rows, columns, values in ((f, f, y.ff), (f, t, y.ft), (t, f, y.tf), (t, t, y.tt)):
        np.add.at(total, (rows, columns), values)
    return total


def mismatch_mva(net: Any, actual: Conversion) -> float:
    """Return the largest mismatch of the net's AC solution in the case's equations.

    Auxiliary buses (star points, open line ends) have no result; no current enters them, so
    their voltages follow from the others'.
    """
    case = actual.case
    known = np.array([int(b) in net.bus.index for b in case.bus_id])
    v = np.zeros(case.n_bus, dtype=complex)
    at = case.bus_id[known]
    v[known] = net.res_bus.vm_pu[at] * np.exp(1j * np.deg2rad(net.res_bus.va_degree[at]))
    y = bus_admittance(case)
    if not known.all():
        v[~known] = -np.linalg.solve(y[np.ix_(~known, ~known)], y[np.ix_(~known, known)] @ v[known])
    given_in = v * np.conj(y @ v) + case.pd + 1j * case.qd
    produced = np.zeros(case.n_bus, dtype=complex)
    for element in actual.link.gen:
        result = net[f"res_{element.table}"].loc[element.index]
        number = actual.link.bus[int(net[element.table].bus[element.index])]
        produced[case.index_of[number]] += (result.p_mw + 1j * result.q_mvar) / case.base_mva
    return float(case.base_mva * np.abs(given_in - produced).max())


def multivoltage() -> Any:
    net = networks.example_multivoltage()
    net.xward.in_service = False
    return net


NETS = {
    "case14": networks.case14,
    "case118": networks.case118,
    "case145": networks.case145,  # negative reactances
    "case33bw": networks.case33bw,  # open tie lines
    "iceland": networks.iceland,
    "GBreducednetwork": networks.GBreducednetwork,
    "cigre mv with open lines": networks.create_cigre_network_mv,
    "cigre mv with generation": lambda: networks.create_cigre_network_mv(with_der="pv_wind"),
    "cigre lv": networks.create_cigre_network_lv,
    "kerber with iron losses": networks.create_kerber_landnetz_freileitung_1,
    "example with switches and shunt": networks.example_simple,
    "three windings, impedance, aux buses": multivoltage,
    "oberrhein": networks.mv_oberrhein,
}


LARGE = ("case118", "oberrhein")
"""Nets whose elements others have too."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name in LARGE else name for name in NETS],
)
def test_the_nets_own_power_flow_satisfies_the_case(name: str) -> None:
    net = solved(NETS[name]())
    converted = convert_net(net)
    assert mismatch_mva(net, converted) < 1e-6


@pytest.mark.parametrize("name", ["case14", pytest.param("case118", marks=pytest.mark.slow)])
def test_line_flows_of_the_net_are_the_admittance_flows(name: str) -> None:
    net = solved(NETS[name]())
    converted = convert_net(net)
    case, y = converted.case, branch_admittance(converted.case)
    v = case.vm * np.exp(1j * case.va)
    f, t = case.f_bus, case.t_bus
    flow = 100 * v[f] * np.conj(y.ff * v[f] + y.ft * v[t])
    for row, element in enumerate(converted.link.branch):
        near = "from" if element.table == "line" else "hv"
        own = net[f"res_{element.table}"].loc[element.index]
        lost = 100 * abs(v[f[row]]) ** 2 * np.conj(converted.link.shunts[0, row])
        expected = own[f"p_{near}_mw"] + 1j * own[f"q_{near}_mvar"]
        assert abs(flow[row] + lost - expected) < 1e-6, element


def test_case14_is_the_shipped_case14() -> None:
    ours, reference = load_case("case14"), case_from_pandapower(networks.case14())
    assert reference.bus_id.tolist() == list(range(14))
    np.testing.assert_allclose(reference.pd, ours.pd, atol=1e-12)
    np.testing.assert_allclose(reference.qd, ours.qd, atol=1e-12)
    np.testing.assert_allclose(reference.bs, ours.bs, atol=1e-9)
    np.testing.assert_allclose(sorted(reference.x), sorted(ours.x), atol=1e-9)
    np.testing.assert_allclose(np.sort(reference.pmax), np.sort(ours.pmax), atol=1e-9)
    by_bus = dict(zip(ours.gen_bus.tolist(), ours.cost, strict=True))
    for bus, cost in zip(reference.gen_bus.tolist(), reference.cost, strict=True):
        np.testing.assert_allclose(cost.values, by_bus[bus].values, rtol=1e-5)
    np.testing.assert_allclose(reference.rate, 99.0, rtol=1e-6)  # 9900 MVA in old MATPOWER files
    net = small()
    net.line["max_i_ka"] = 99999.0
    assert case_from_pandapower(net).rate[0] == 0, "the field's way to say no limit"


def small() -> Any:
    """Return two buses behind a switch, a line, a load, a generator and an external grid."""
    net = pp.create_empty_network(sn_mva=10.0)
    for number in (4, 7, 9):
        pp.create_bus(net, vn_kv=20.0, index=number, min_vm_pu=0.95, max_vm_pu=1.05)
    net.bus.loc[9, "max_vm_pu"] = 1.02
    pp.create_switch(net, 7, 9, et="b", closed=True)
    pp.create_line_from_parameters(
        net,
        4,
        7,
        length_km=2.0,
        r_ohm_per_km=0.4,
        x_ohm_per_km=0.3,
        c_nf_per_km=100.0,
        max_i_ka=0.2,
        parallel=2,
        df=0.9,
        max_loading_percent=80.0,
    )
    pp.create_load(net, 9, p_mw=4.0, q_mvar=1.0, scaling=0.5)
    pp.create_sgen(net, 9, p_mw=1.0, q_mvar=0.2)
    pp.create_gen(
        net, 7, p_mw=1.5, vm_pu=1.0, min_p_mw=0.5, max_p_mw=3.0, max_q_mvar=2.0, min_q_mvar=-2.0
    )
    pp.create_ext_grid(net, 4)
    return net


def test_units_fused_buses_limits_and_links() -> None:
    converted_net = convert_net(small())
    case, link = converted_net.case, converted_net.link
    assert case.bus_id.tolist() == [4, 7]
    assert link.bus == {4: 4, 7: 7, 9: 7}
    assert case.pd[1] == pytest.approx((4.0 * 0.5 - 1.0) / 10)
    assert case.qd[1] == pytest.approx((1.0 * 0.5 - 0.2) / 10)
    assert (case.vmin[1], case.vmax[1]) == (0.95, 1.02), "the tightest band of fused buses"
    ohm = 20.0**2 / 10
    assert case.r[0] == pytest.approx(0.4 * 2 / 2 / ohm)
    assert case.x[0] == pytest.approx(0.3 * 2 / 2 / ohm)
    assert case.b[0] == pytest.approx(2 * np.pi * 50 * 100e-9 * 2 * 2 * ohm)
    assert case.rate[0] == pytest.approx(0.8 * 0.2 * 0.9 * 2 * 20 * np.sqrt(3) / 10)
    assert link.gen == (Element("ext_grid", 0), Element("gen", 0))
    assert np.isinf(case.pmax[0])
    assert np.isinf(case.qmin[0])
    assert (case.pmin[1], case.pmax[1]) == (0.05, 0.3)
    assert case.bus_id[case.reference].tolist() == [4]


def test_generators_that_may_not_move_are_held() -> None:
    net = small()
    net.gen["controllable"] = False
    case = case_from_pandapower(net)
    assert case.pmin[1] == case.pmax[1] == pytest.approx(0.15)
    net = small()
    net.gen["max_p_mw"] = np.nan
    assert case_from_pandapower(net).pmax[1] == pytest.approx(0.15)


def test_dispatchable_static_generators_are_generators() -> None:
    net = small()
    pp.create_sgen(
        net,
        4,
        p_mw=2.0,
        min_p_mw=0.0,
        max_p_mw=5.0,
        max_q_mvar=1.0,
        min_q_mvar=-1.0,
        controllable=True,
    )
    converted_net = convert_net(net)
    assert converted_net.link.gen[2] == Element("sgen", 1)
    assert (converted_net.case.pmin[2], converted_net.case.pmax[2]) == (0, 0.5)
    assert converted_net.case.pd[0] == 0, "its output is not negative demand as well"


def test_costs() -> None:
    net = small()
    pp.create_poly_cost(net, 0, "ext_grid", cp1_eur_per_mw=20.0, cp0_eur=3.0, cp2_eur_per_mw2=0.5)
    pp.create_pwl_cost(net, 0, "gen", [[0.5, 2.0, 10.0], [2.0, 3.0, 30.0]])
    case = case_from_pandapower(net)
    assert case.cost[0].values == (0.5, 20.0, 3.0)
    assert case.cost[1].model == PIECEWISE
    assert case.cost[1].values == (0.5, 5.0, 2.0, 20.0, 3.0, 50.0)
    net.pwl_cost.at[0, "points"] = [[0.5, 2.0, 10.0], [2.5, 3.0, 30.0]]
    with pytest.raises(InputError, match=r"net.pwl_cost row 0: points"):
        case_from_pandapower(net)


def test_the_net_is_not_changed() -> None:
    net = small()
    before = {name: net[name].copy() for name in ("bus", "line", "load", "sgen", "gen")}
    convert_net(net)
    for name, table in before.items():
        assert table.equals(net[name]), name


def test_the_report_names_what_is_unsupported() -> None:
    net = small()
    net.load["const_z_p_percent"] = 40.0
    net.load["controllable"] = True
    pp.create_dcline(
        net, 4, 9, p_mw=1.0, loss_percent=1.0, loss_mw=0.1, vm_from_pu=1.0, vm_to_pu=1.0
    )
    pp.create_bus(net, vn_kv=20.0, index=20)
    pp.create_load(net, 20, p_mw=0.7)
    report = convert_net(net).report
    computed = {note.field: note for note in report.unsupported}
    assert set(computed) == {
        "load: voltage dependence",
        "load: controllable",
        "dcline",
        "bus: not connected to an external grid",
    }
    assert computed["dcline"].left_out
    assert "0.7 MW" in computed["bus: not connected to an external grid"].note
    assert report.table().status.isin(["read", "ignored", "unsupported"]).all()


def test_json_reads_as_the_net_and_warns_of_what_is_left_out(tmp_path: Path) -> None:
    net = networks.case14()
    pp.to_json(net, str(tmp_path / "grid.json"))
    case = load_case(tmp_path / "grid.json")
    assert case.name == "grid"
    assert case.fingerprint == case_from_pandapower(net).fingerprint
    assert read_report(tmp_path / "grid.json").format == "pandapower JSON"
    pp.create_dcline(net, 0, 1, p_mw=1.0, loss_percent=0, loss_mw=0, vm_from_pu=1, vm_to_pu=1)
    pp.to_json(net, str(tmp_path / "dc.json"))
    with pytest.warns(GridprivWarning, match="dcline: DC lines are fixed demand"):
        load_case(tmp_path / "dc.json")


def test_json_that_is_no_net_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.json"
    whole = pp.to_json(small(), None)
    for text in ("", "{", "[]", "null", '{"a": 1}', '{"_class": "pandapowerNet"}', whole[:-40]):
        path.write_text(text)
        with pytest.raises(InputError, match=r"net\.json"):
            load_case(path)


DAMAGE = [
    ("line", "to_bus", 99, r"net.line row 0: to_bus = 99: must be a row of net.bus"),
    ("line", "max_i_ka", -0.2, r"net.line row 0: max_i_ka = -0.2: must be"),
    ("line", "max_loading_percent", -80.0, r"net.line 0: .*rateA = -"),
    ("line", "length_km", 0.0, r"net.line row 0: length_km = 0.0: must be a positive"),
    ("line", "r_ohm_per_km", np.nan, r"net.line row 0: r_ohm_per_km = nan: must be"),
    ("line", "to_bus", 4, r"net.line 0: .*from = to bus"),
    ("load", "p_mw", np.inf, r"net.load row 0: p_mw = inf: must be a finite number"),
    ("load", "bus", 5, r"net.load row 0: bus = 5: must be"),
    ("gen", "min_p_mw", 4.0, r"net.gen 0: .*pmin = 4.0: must be at most pmax = .* MW"),
    ("gen", "vm_pu", -1.0, r"net.gen row 0: vm_pu = -1.0: must be"),
    ("bus", "vn_kv", 0.0, r"net.bus row 4: vn_kv = 0.0: must be a positive number"),
    ("bus", "min_vm_pu", 1.2, r"bus 4: vmin = 1.2: must be at most vmax"),
    ("switch", "element", 77, r"net.switch row 0: element = 77: must be a row of net.bus"),
    ("switch", "et", "x", r"net.switch row 0: et = 'x': must be"),
]


@pytest.mark.parametrize(("table", "column", "value", "message"), DAMAGE)
def test_damaged_nets_are_refused_with_the_row(
    table: str, column: str, value: Any, message: str
) -> None:
    net = small()
    net[table].loc[net[table].index[0], column] = value
    with pytest.raises(InputError, match=message):
        convert_net(net)


@pytest.mark.parametrize("column", ["et", "element"])
def test_a_switch_that_names_a_list_is_refused(column: str) -> None:
    net = small()
    net.switch[column] = [[9]]
    with pytest.raises(InputError, match=rf"net.switch row 0: {column} = \[9\]: must be"):
        convert_net(net)


def test_structure_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(InputError, match="a pandapower net is needed, not dict"):
        case_from_pandapower({})
    with pytest.raises(InputError, match=r"net\.bus is empty"):
        case_from_pandapower(pp.create_empty_network())
    net = small()
    net.ext_grid.in_service = False
    with pytest.raises(InputError, match="pandapower cannot convert the net"):
        case_from_pandapower(net)
    net = small()
    net.line = net.line.drop(columns="x_ohm_per_km")
    with pytest.raises(InputError, match=r"net\.line has no column x_ohm_per_km"):
        case_from_pandapower(net)
    net = small()
    net.load = net.load.iloc[[0, 0]]
    with pytest.raises(InputError, match=r"net\.load row 0 is listed more than once"):
        case_from_pandapower(net)
    with pytest.raises(InputError, match=r"net.xward has 2 rows in service"):
        case_from_pandapower(networks.example_multivoltage())
    net = multivoltage()
    net.impedance["rtf_pu"] *= 2
    with pytest.raises(InputError, match=r"net.impedance 0: impedances that differ by direction"):
        case_from_pandapower(net)


@settings(max_examples=10, phases=[Phase.explicit, Phase.generate])
@pytest.mark.filterwarnings("ignore")
@given(
    st.sampled_from(["bus", "line", "load", "gen", "ext_grid", "sgen", "switch"]),
    st.data(),
    st.one_of(st.floats(), st.integers(-3, 12), st.sampled_from([1e300, -1e-300, True, False])),
)
def test_any_number_anywhere_is_refused_or_satisfied(
    table: str, data: st.DataObject, value: Any
) -> None:
    net = small()
    columns = [c for c in net[table] if net[table][c].dtype.kind in "biuf"]
    column = data.draw(st.sampled_from(columns))
    row = data.draw(st.sampled_from(net[table].index.tolist()))
    kind = net[table][column].dtype
    with np.errstate(all="ignore"):
        if kind.kind == "b":
            value = bool(value)
        elif kind.kind in "iu":
            value = int(value) if np.isfinite(value) and abs(value) < 2**31 else 3
    net[table].loc[row, column] = value
    try:
        converted_net = convert_net(net)
    except InputError as error:
        assert str(error)
        return
    if isinstance(value, float) and abs(value) > 1e3:
        return  # no power flow is accurate there
    try:
        solved(net)
    except Exception:  # pandapower itself finds no solution
        return
    if net.res_bus.loc[net.bus.in_service, "vm_pu"].notna().all():
        scale = 1 + abs(converted_net.case.pd).max() * converted_net.case.base_mva
        assert mismatch_mva(net, converted_net) < 1e-5 * scale


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("oberrhein", 100.0),
        ("cigre mv with open lines", 100.0),
        ("cigre lv", 1.0),
        ("kerber with iron losses", 1.0),
        ("case14", 100.0),
    ],
)
def test_the_base_comes_from_name_plates_not_from_demand(name: str, base: float) -> None:
    net = NETS[name]()
    assert case_from_pandapower(net).base_mva == base
    net.load["p_mw"] *= 1000.0
    assert case_from_pandapower(net).base_mva == base
    net.sn_mva = 7.0
    assert case_from_pandapower(net).base_mva == 7.0, "a base that somebody chose is kept"


def test_a_missing_band_is_that_of_the_standard_and_a_given_one_is_kept() -> None:
    net = small()
    net.bus["max_vm_pu"] = [np.nan, 1.2, np.nan]
    net.bus["min_vm_pu"] = [np.nan, 0.85, np.nan]
    net.ext_grid["controllable"] = True
    case = case_from_pandapower(net)
    assert (case.vmin[0], case.vmax[0]) == (0.9, 1.1)
    assert (case.vmin[1], case.vmax[1]) == (0.85, 1.2), "a fused bus without a band adds none"
    net.bus["min_vm_pu"] = [1.15, 1.0, 1.0]
    assert case_from_pandapower(net).vmax[0] == 1.15, "never a band turned round"


@pytest.mark.parametrize("controllable", [None, False, True])
def test_an_external_grid_holds_its_set_point_unless_it_is_controllable(
    controllable: bool | None,
) -> None:
    net = small()
    net.ext_grid["vm_pu"] = 0.99
    if controllable is not None:
        net.ext_grid["controllable"] = controllable
    case = case_from_pandapower(net)
    assert (case.vmin[0], case.vmax[0]) == ((0.95, 1.05) if controllable else (0.99, 0.99))
    optimum = acopf(
        replace(case, pmax=case.pmax.clip(max=10), pmin=case.pmin.clip(min=-10)), "losses"
    ).state
    assert (abs(optimum.vm[0] - 0.99) < 1e-6) is not bool(controllable)


def stored_row(net: Any, row: str) -> tuple[str, str, bool]:
    (note,) = [note for note in convert_net(net).report.notes if note.field == f"{row}: vm_pu"]
    return note.status, note.note, note.left_out


def test_a_fixed_voltage_is_reported_with_its_bus() -> None:
    net = small()
    net.ext_grid["vm_pu"] = 0.99
    status, note, left_out = stored_row(net, "ext_grid 0")
    assert (status, left_out) == ("read", False)
    assert note.startswith("bus 4 is fixed at 0.99 p.u., as in pandapower's optimal power flow")
    net.ext_grid["controllable"] = True
    assert not [n for n in convert_net(net).report.notes if n.field.endswith(": vm_pu")]


def test_a_voltage_that_is_fixed_outside_its_band_is_warned_of(tmp_path: Path) -> None:
    """pandapower fixes it all the same: its optimum, where it finds one, has that voltage."""
    net = small()
    net.ext_grid["vm_pu"] = 1.07
    case = case_from_pandapower(net)
    assert (case.vmin[0], case.vmax[0]) == (1.07, 1.07)
    status, note, left_out = stored_row(net, "ext_grid 0")
    assert (status, left_out) == ("unsupported", True)
    assert "outside its voltage band of 0.95 to 1.05 p.u." in note
    pp.to_json(net, str(tmp_path / "high.json"))
    with pytest.warns(
        GridprivWarning, match=r"high.json: ext_grid 0: vm_pu: bus 4 is fixed at 1.0"
    ):
        load_case(tmp_path / "high.json")


@pytest.mark.parametrize("kept", ["ext_grid", "gen"])
def test_a_bus_without_its_generators_has_its_own_band(kept: str) -> None:
    """The band stayed fixed at the set point of the lost external grid, a violation after it."""
    net = small()
    pp.create_ext_grid(net, 4, vm_pu=0.99)
    net.ext_grid["vm_pu"] = 0.99
    net.gen[["min_vm_pu", "max_vm_pu"]] = 0.99, 1.0
    case, link = convert_net(net).case, convert_net(net).link
    row = {element: f"gen:{number}" for number, element in enumerate(link.gen, 1)}
    lost = [row[element] for element in link.gen if element.table != kept]
    bands = np.stack([case.vmin, case.vmax]).T.tolist()
    assert bands == [[0.99, 0.99], [0.99, 1.0]]
    after = case.without(tuple(lost))
    bands[kept == "ext_grid"] = [0.95, 1.02] if kept == "ext_grid" else [0.95, 1.05]
    assert np.stack([after.vmin, after.vmax]).T.tolist() == bands
    if kept == "gen":  # one of two external grids is left
        assert case.without(tuple(lost[:1])).vmin[0] == 0.99


def test_voltages_of_generators_are_those_of_pandapowers_optimal_power_flow() -> None:
    """A generator that is not controllable fixes its bus; its own limits narrow the band."""
    net = networks.case9()
    net.gen["max_vm_pu"] = [1.04, np.nan]
    case = case_from_pandapower(net)
    at = [case.index_of[int(bus)] for bus in net.gen["bus"]]
    assert case.vmax[at].tolist() == [1.04, 1.1]
    assert case.vmin[at].tolist() == [0.9, 0.9]
    net.gen["vm_pu"], net.gen["controllable"] = [1.02, 1.03], [False, True]
    case = case_from_pandapower(net)
    assert (case.vmin[at[0]], case.vmax[at[0]]) == (1.02, 1.02)
    assert case.vmax[at[1]] == 1.1
    assert stored_row(net, "gen 0")[0] == "read"
    net.gen = net.gen.drop(columns="max_vm_pu")
    pp.runopp(net, numba=False, delta=1e-9)
    assert net.res_bus.vm_pu[net.gen["bus"].iloc[0]] == pytest.approx(1.02, abs=1e-6)
    assert acopf(case, "cost").cost == pytest.approx(net.res_cost, rel=1e-4)


def test_the_optimum_of_ieee30_is_pandapowers_with_its_slack_fixed() -> None:
    net = networks.case_ieee30()
    pp.runopp(net, numba=False)
    assert net.res_cost == pytest.approx(9000.0, rel=1e-3)
    assert acopf(case_from_pandapower(net), "cost").cost == pytest.approx(net.res_cost, rel=1e-5)


@pytest.mark.parametrize("sent", [3.0, -3.0])
def test_dc_lines_are_what_pandapower_injects(sent: float) -> None:
    net = networks.case14()
    pp.create_dcline(
        net, 3, 9, p_mw=sent, loss_percent=2.0, loss_mw=0.1, vm_from_pu=1.02, vm_to_pu=1.02
    )
    pp.runpp(net, numba=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        case = case_from_pandapower(net)
    plain = case_from_pandapower(networks.case14())
    changed = 100 * (case.pd - plain.pd)
    ends = net.res_dcline.iloc[0]
    assert changed[[3, 9]] == pytest.approx([ends.p_from_mw, ends.p_to_mw])
    assert np.count_nonzero(changed) == 2
    net.dcline["in_service"] = False
    np.testing.assert_array_equal(case_from_pandapower(net).pd, plain.pd)
    net.dcline["in_service"] = True
    net.dcline["loss_mw"] = np.nan
    with pytest.raises(InputError, match=r"net.dcline row 0: loss_mw = nan"):
        case_from_pandapower(net)


def test_loads_that_follow_the_voltage_are_constant_with_a_warning(tmp_path: Path) -> None:
    net = networks.case14()
    net.load["const_i_p_percent"] = 30.0
    pp.to_json(net, str(tmp_path / "zip.json"))
    with pytest.warns(GridprivWarning, match="voltage dependence: constant power is taken"):
        load_case(tmp_path / "zip.json")

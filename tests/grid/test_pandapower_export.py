"""Results in pandapower: its power flow equals the tables, and files contain them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gridpriv
from gridpriv.core.errors import InputError
from gridpriv.grid.case import Case
from gridpriv.grid.library import load_case, shipped_zoning
from gridpriv.grid.network import branch_flows
from gridpriv.grid.pandapower import case_from_pandapower, convert_net
from gridpriv.grid.pandapower_writer import write_net
from gridpriv.power.ac.state import GridState
from gridpriv.power.centralized import relax
from gridpriv.power.zone import make_network
from gridpriv.zonal.physical import solution_of_variables
from gridpriv.zonal.run import run
from gridpriv.zonal.tables import result_tables, to_pandapower

pp = pytest.importorskip("pandapower")
networks = pytest.importorskip("pandapower.networks")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
FLOWS = {
    "line": "p_from_mw q_from_mvar p_to_mw q_to_mvar pl_mw ql_mvar i_ka loading_percent",
    "trafo": "p_hv_mw q_hv_mvar p_lv_mw q_lv_mvar pl_mw ql_mvar i_hv_ka loading_percent",
    "bus": "vm_pu va_degree p_mw q_mvar",
    "gen": "p_mw q_mvar vm_pu va_degree",
    "ext_grid": "p_mw q_mvar",
}


def power_flow(net: Any) -> Any:
    pp.runpp(net, numba=False, init="dc", calculate_voltage_angles=True, tolerance_mva=1e-9)
    assert net.converged
    return net


def solution_of_voltages(case: Case, voltage: Any, pg: Any, qg: Any) -> GridState:
    """Return the solution at given voltages; demand that generators do not cover is shed."""
    s_from, s_to = branch_flows(case, voltage)
    lacking = case.pd + 1j * case.qd + abs(voltage) ** 2 * (case.gs - 1j * case.bs)
    for at, flow in ((case.f_bus, s_from), (case.t_bus, s_to), (case.gen_bus, -(pg + 1j * qg))):
        np.add.at(lacking, at, flow)
    return GridState(
        case,
        np.abs(voltage),
        np.angle(voltage),
        s_from,
        s_to,
        pg,
        qg,
        lacking.real,
        lacking.imag,
    )


def ac_solution(net: Any, served: float = 1.0) -> tuple[GridState, Any]:
    """Return an AC-feasible state of a net's case, where ``served`` of the load is served."""
    net = power_flow(net)
    converted = convert_net(net)
    case = converted.case
    voltage = case.vm * np.exp(1j * case.va)
    output = [net[f"res_{e.table}"].loc[e.index] for e in converted.link.gen]
    pg = np.array([row.p_mw for row in output]) / case.base_mva
    qg = np.array([row.q_mvar for row in output]) / case.base_mva
    requested = case.scale_load(1 / served)
    return solution_of_voltages(requested, voltage, pg, qg), net


def assert_flows_of(filled: Any, net: Any, tolerance: float = 1e-6) -> None:
    """Assert that a net filled with a state has the results of another net in that state."""
    for name, columns in FLOWS.items():
        for column in columns.split():
            if len(net[f"res_{name}"]):
                gap = np.abs(filled[f"res_{name}"][column] - net[f"res_{name}"][column]).max()
                unit = 100.0 if column == "loading_percent" else 1.0
                assert gap < tolerance * unit, (name, column, gap)


def assert_state(filled: Any, solution: GridState, tolerance: float = 1e-8) -> None:
    """Assert that the results of a net are those of a solution: voltages and served demand."""
    ours = result_tables(solution)["res_bus"]
    both = filled.res_bus.vm_pu.dropna().index.intersection(ours.index)
    assert len(both) > 1
    gap = (filled.res_bus - ours).loc[both]
    assert gap.vm_pu.abs().max() < tolerance
    assert np.ptp(gap.va_degree) < 100.0 * tolerance


@pytest.mark.parametrize(
    "make",
    [
        networks.case14,
        pytest.param(networks.case118, marks=pytest.mark.slow),
        networks.iceland,
        networks.create_kerber_landnetz_freileitung_1,
    ],
)
def test_there_and_back_power_flow_and_losses_agree(make: Any) -> None:
    solution, net = ac_solution(make())
    assert np.abs(solution.p_shed).max() < 1e-9
    filled = to_pandapower(solution, net)
    assert_flows_of(filled, net)
    assert_state(filled, solution)


@pytest.mark.parametrize("name", ["case14", pytest.param("case118", marks=pytest.mark.slow)])
def test_a_case_without_a_net_gets_one(name: str) -> None:
    case = load_case(name)
    net, _ = write_net(case)
    solution, _ = ac_solution(net)
    filled = to_pandapower(solution, None)
    assert_flows_of(filled, net, tolerance=2e-6)
    assert_state(filled, solution)


def test_currents_are_left_out_where_base_voltages_are_unknown() -> None:
    """The net has 1 kV in their place, so its currents in kA would be those of no grid."""
    solution, net = ac_solution(write_net(load_case("case14"))[0])
    assert (net.res_line.i_ka > 0.5).any()
    filled = to_pandapower(replace(solution, case=replace(solution.case, base_kv=np.zeros(14))))
    assert filled.res_line.filter(like="_ka").isna().all(axis=None)
    assert filled.res_trafo.filter(like="_ka").isna().all(axis=None)
    assert filled.res_line.p_from_mw.notna().all() and filled.res_line.loading_percent.notna().all()


@pytest.mark.parametrize("name", ["case14", pytest.param("case118", marks=pytest.mark.slow)])
def test_a_written_net_is_the_case(name: str) -> None:
    case = load_case(name)
    net, link = write_net(case)
    back = convert_net(net)
    row = {element: at for at, element in enumerate(back.link.branch)}
    order = [row[element] for element in link.branch]
    for field in ("r", "x", "tap", "shift", "rate"):
        np.testing.assert_allclose(
            getattr(back.case, field)[order], getattr(case, field), atol=1e-9
        )
    for field in ("bus_id", "pd", "qd", "vmin", "vmax"):
        np.testing.assert_allclose(getattr(back.case, field), getattr(case, field), atol=1e-12)
    gens = [back.link.gen.index(element) for element in link.gen]
    for field in ("gen_bus", "pmin", "pmax", "qmin", "qmax"):
        np.testing.assert_allclose(getattr(back.case, field)[gens], getattr(case, field), atol=1e-9)
    assert [back.case.cost[g].values[-2] for g in gens] == [c.values[-2] for c in case.cost]
    power_flow(net)
    # MATPOWER's printed losses of both cases: 13.393 MW and 132.863 MW.
    losses = net.res_line.pl_mw.sum() + net.res_trafo.pl_mw.sum()
    assert losses == pytest.approx({"case14": 13.393, "case118": 132.863}[name], abs=1e-3)


def test_shed_load_becomes_a_static_generator_and_a_table() -> None:
    solution, net = ac_solution(networks.case14(), served=0.8)
    loads = solution.case.pd.sum() * 100
    assert solution.p_shed.sum() * 100 == pytest.approx(0.2 * loads)
    filled = to_pandapower(solution, net)
    assert filled.res_shed.p_mw.sum() == pytest.approx(0.2 * loads)
    added = filled.sgen[filled.sgen.name == "gridpriv: load shedding"]
    assert len(added) == 0, "the net asks for what is served: load scale and shed cancel"
    assert_flows_of(filled, net)
    without = to_pandapower(solution, None)
    assert without.sgen.p_mw.sum() == pytest.approx(0.2 * loads)
    assert_state(without, solution)


def with_a_price(net: Any) -> Any:
    if len(net.poly_cost) == 0:
        pp.create_poly_cost(net, 0, "ext_grid", cp1_eur_per_mw=30.0)
    return net


@pytest.mark.parametrize(
    "make",
    [
        networks.create_kerber_landnetz_freileitung_1,
        pytest.param(networks.case33bw, marks=pytest.mark.slow),
    ],
)
def test_a_tight_optimum_is_its_own_power_flow(make: Any) -> None:
    """pandapower case -> relaxation -> pandapower: on radial grids flows agree to 1e-6 MW."""
    net = with_a_price(make())
    actual = relax(case_from_pandapower(net), "cost")
    w, product = actual.z[: actual.case.n_bus], product_of(actual)
    i, j = actual.network.pair_i, actual.network.pair_j
    assert np.abs(w[i] * w[j] - np.abs(product) ** 2).max() < 1e-7, "tight on every branch"
    solution = solution_of_variables(actual.network, actual.z)
    filled = to_pandapower(solution, net)
    assert_state(filled, solution, tolerance=1e-6)
    produced = filled.res_ext_grid.p_mw.sum() + filled.res_gen.p_mw.sum()
    assert produced == pytest.approx(solution.case.base_mva * solution.pg.sum(), abs=1e-6)


def test_on_a_meshed_grid_a_tight_cone_on_every_branch_is_not_enough() -> None:
    """case14's optimum is tight branch by branch, but its angles do not close around loops."""
    net = networks.case14()
    computed = relax(case_from_pandapower(net), "cost")
    w, i, j = computed.z[: computed.case.n_bus], computed.network.pair_i, computed.network.pair_j
    assert np.abs(w[i] * w[j] - np.abs(product_of(computed)) ** 2).max() < 1e-7
    solution = solution_of_variables(computed.network, computed.z)
    around = np.angle(product_of(computed)) - (solution.va[i] - solution.va[j])
    assert np.abs(around).max() > 1e-3
    flows = to_pandapower(solution, net).res_line.p_from_mw.to_numpy()
    planned = result_tables(solution)["res_line"].p_from_mw.to_numpy()[: len(flows)]
    assert np.abs(planned - flows).max() > 1.0


def product_of(actual: Any) -> Any:
    """Return V_i conj(V_j) of every connected pair, as the relaxation has it."""
    start = actual.network.offsets
    pairs = len(actual.network.pair_i)
    return actual.z[start["wr"] :][:pairs] + 1j * actual.z[start["wi"] :][:pairs]


def run_small(**settings: Any) -> Any:
    case = load_case("case14")
    zoning = shipped_zoning(case, 2)
    assert zoning is not None
    chosen = gridpriv.Settings(mechanism="none", solver="clarabel", rounds=6, **settings)
    return run(case, zoning, chosen)


def test_a_stressed_run_lands_in_pandapower() -> None:
    result = run_small(load_scale=3.5)
    solution = result.solution
    shed = result.physical["shed_mw"]
    assert 100 * np.maximum(solution.p_shed, 0).sum() == pytest.approx(shed, abs=1e-6)
    assert shed > 100
    filled = result.to_pandapower()
    supplied = filled.load.p_mw.sum() - filled.sgen.p_mw.sum()
    assert supplied == pytest.approx(259 * 3.5 - 100 * solution.p_shed.sum(), abs=1e-6)
    power_flow(filled)


def test_an_outage_is_out_of_service_in_the_users_net() -> None:
    net = networks.case14()
    case = case_from_pandapower(net)
    link = convert_net(net).link
    zoning = gridpriv.partition(case, 2)
    settings = gridpriv.Settings(
        mechanism="none", solver="clarabel", rounds=4, outage=("branch:3", "gen:2")
    )
    filled = run(case, zoning, settings).to_pandapower(net)
    for element in (link.branch[2], link.gen[1]):
        assert not filled[element.table].in_service[element.index]
        assert net[element.table].in_service[element.index], "the user's net is not changed"
    power_flow(filled)


def test_another_net_is_refused() -> None:
    solution, _ = ac_solution(networks.case14())
    with pytest.raises(InputError, match="this net is not the one case case14 was converted from"):
        to_pandapower(solution, networks.case30())


def test_angles_of_a_tight_solution_are_the_ac_angles(case118: Case) -> None:
    network = make_network(case118)
    v = case118.vm * np.exp(1j * case118.va)
    exact = solution_of_voltages(case118, v, case118.pg, np.zeros(case118.n_gen))
    product = v[network.pair_i] * np.conj(v[network.pair_j])
    z = np.concatenate(
        [
            np.abs(v) ** 2,
            product.real,
            product.imag,
            exact.s_from.real,
            exact.s_from.imag,
            exact.s_to.real,
            exact.s_to.imag,
            exact.pg,
            exact.qg,
        ]
    )
    ours = solution_of_variables(network, z)
    np.testing.assert_allclose(ours.va, case118.va, atol=1e-10)
    np.testing.assert_allclose(ours.vm, case118.vm, atol=1e-12)
    np.testing.assert_allclose(ours.p_shed, exact.p_shed, atol=1e-10)


def test_tables_balance_and_keep_source_rows(case14: Case) -> None:
    case = case14.without(("branch:1", "gen:3"))
    v = case.vm * np.exp(1j * case.va)
    tables = result_tables(solution_of_voltages(case, v, case.pg, np.zeros(case.n_gen)))
    assert tables["res_line"].index.tolist() == list(range(2, 21))
    assert tables["res_gen"].index.tolist() == [1, 2, 4, 5]
    line = tables["res_line"]
    np.testing.assert_allclose(line.pl_mw, line.p_from_mw + line.p_to_mw)
    leaving = (
        line.groupby("from_bus")
        .p_from_mw.sum()
        .add(line.groupby("to_bus").p_to_mw.sum(), fill_value=0)
    )
    np.testing.assert_allclose(tables["res_bus"].p_mw, -leaving, atol=1e-9)
    made = tables["res_gen"].groupby("bus").p_mw.sum().reindex(range(1, 15), fill_value=0)
    shed = 100 * case.pd - made.to_numpy() - tables["res_bus"].p_mw.to_numpy()
    np.testing.assert_allclose(tables["res_shed"].p_mw, shed, atol=1e-9)
    assert line.loading_percent.isna().all(), "case14 has no limits"


def half_open_lines() -> Any:
    net = networks.case14()
    for line, end in ((3, "from_bus"), (7, "to_bus")):
        pp.create_switch(net, int(net.line[end].at[line]), line, et="l", closed=False)
    return net


def three_windings() -> Any:
    net = networks.example_multivoltage()
    net.xward["in_service"] = False
    return net


@pytest.mark.parametrize("make", [half_open_lines, three_windings])
def test_a_settled_run_is_the_power_flow_of_its_net_with_auxiliary_buses(make: Any) -> None:
    net = make()
    case = case_from_pandapower(net)
    assert len(set(case.bus_id.tolist()) - set(net.bus.index)) > 0
    settings = gridpriv.make_settings(mechanism="none", rounds=3, solver="clarabel")
    result = run(case, gridpriv.partition(case, 2), settings)
    filled = result.to_pandapower(net)
    assert_state(filled, result.solution)
    state = result.redispatch.state
    produced = filled.res_ext_grid.p_mw.sum() + filled.res_gen.p_mw.sum()
    link = convert_net(net).link
    ours = [p for p, element in zip(state.pg, link.gen, strict=True) if element.table != "sgen"]
    assert produced == pytest.approx(case.base_mva * sum(ours), abs=1e-5)


def test_a_dispatch_without_power_flow_has_set_points_and_no_results() -> None:
    case = load_case("case14")
    solution, _ = ac_solution(write_net(case)[0])
    overloaded = case.scale_load(60.0)
    none = np.zeros(case.n_bus)
    asked = GridState(
        overloaded,
        solution.vm,
        solution.va,
        solution.s_from,
        solution.s_to,
        solution.pg,
        solution.qg,
        none,
        none,
    )
    filled = to_pandapower(asked)
    assert filled.load.p_mw.sum() == pytest.approx(60.0 * 259.0)
    assert filled.res_bus.vm_pu.dropna().empty
    assert filled.res_shed.p_mw.tolist() == [0.0] * 14


@pytest.mark.parametrize("out", [("lv",), ("mv",), ("mv", "lv")])
def test_an_outage_of_sides_of_a_three_winding_transformer_leaves_the_others(
    out: tuple[str, ...],
) -> None:
    net = pp.create_empty_network(sn_mva=100.0)
    hv, mv, lv = (pp.create_bus(net, kv) for kv in (110.0, 20.0, 10.0))
    trafo = pp.create_transformer3w(net, hv, mv, lv, "63/25/38 MVA 110/20/10 kV")
    net.trafo3w[["pfe_kw", "i0_percent"]] = 0.0  # the case has no-load losses at the buses
    pp.create_ext_grid(net, hv, 1.02)
    loads = {"mv": pp.create_load(net, mv, 12.0, 4.0), "lv": pp.create_load(net, lv, 5.0, 1.0)}
    case = case_from_pandapower(net)
    elements = convert_net(net).link.branch
    rows = tuple(f"branch:{k}" for k, e in enumerate(elements, 1) if e.side in out)
    settings = gridpriv.make_settings(mechanism="none", rounds=3, solver="clarabel", outage=rows)
    filled = run(case, gridpriv.partition(case, 1), settings).to_pandapower(net)
    kept = sum(net.load.p_mw[load] for side, load in loads.items() if side not in out)
    served = power_flow(filled).res_ext_grid.p_mw[0]
    assert kept - 1e-6 < served < kept + 0.1
    assert filled.trafo3w.in_service[trafo]

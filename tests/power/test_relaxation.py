"""The model against AC power flows that pandapower computed."""

from __future__ import annotations

import numpy as np
import pytest

from gridpriv import load_case, shipped_zoning
from gridpriv.grid.admittance import branch_admittance
from gridpriv.grid.pandapower_writer import write_net
from gridpriv.power.program import compile_zone
from gridpriv.power.zone import make_network, make_zones


def power_flow(case):
    """Return complex voltages of pandapower's AC power flow at the case's own set points."""
    import pandapower as pp

    net, _ = write_net(case)
    pp.runpp(net, tolerance_mva=1e-9, trafo_model="pi", calculate_voltage_angles=True, numba=False)
    found = net.res_bus.loc[case.bus_id]
    return found.vm_pu.to_numpy() * np.exp(1j * np.deg2rad(found.va_degree.to_numpy()))


def lifted(network, v):
    """Return the grid's variables at complex voltages, generation matched to the flows."""
    case = network.case
    y = branch_admittance(case)
    vf, vt = v[case.f_bus], v[case.t_bus]
    s_from = vf * np.conj(y.ff * vf + y.ft * vt)
    s_to = vt * np.conj(y.tf * vf + y.tt * vt)
    product = v[network.pair_i] * np.conj(v[network.pair_j])
    out = np.zeros(case.n_bus, complex)
    np.add.at(out, case.f_bus, s_from)
    np.add.at(out, case.t_bus, s_to)
    out += (case.gs - 1j * case.bs) * abs(v) ** 2 + case.pd + 1j * case.qd
    at = np.bincount(case.gen_bus, minlength=case.n_bus)
    each = out[case.gen_bus] / at[case.gen_bus]
    return np.concatenate(
        [
            abs(v) ** 2,
            product.real,
            product.imag,
            s_from.real,
            s_from.imag,
            s_to.real,
            s_to.imag,
            each.real,
            each.imag,
        ]
    )


@pytest.mark.parametrize("name", ["case14", "case118"])
def test_an_ac_power_flow_satisfies_the_equalities_and_the_cones_with_equality(name):
    case = load_case(name)
    network = make_network(case)
    grid = lifted(network, power_flow(case))
    for zone in make_zones(network, shipped_zoning(case)):
        program = compile_zone(zone)
        z = grid[zone.coordinates]
        assert abs(program.a_eq @ z - program.b_eq).max() < 1e-8
        rows = program.cone @ z + program.cone_offset
        at = 0
        for size in program.cone_sizes:
            assert abs(rows[at] - np.linalg.norm(rows[at + 1 : at + size])) < 1e-8
            at += size
        imbalance = program.imbalance @ z + zone.demand
        with_gen = np.isin(zone.own, case.gen_bus)
        assert abs(imbalance[np.tile(with_gen, 2)]).max() < 1e-10
        assert abs(imbalance).max() < 1e-8


def test_the_sign_printed_in_the_paper_is_refuted_by_a_power_flow():
    """(D.2f) prints w_ji + w_ij where Ohm's law has the difference: the sum misses by far."""
    case = load_case("case14")
    network = make_network(case)
    v = power_flow(case)
    y = branch_admittance(case)
    vf, vt = v[case.f_bus], v[case.t_bus]
    p_from = (vf * np.conj(y.ff * vf + y.ft * vt)).real
    wr, w = (vf * np.conj(vt)).real, abs(vf) ** 2
    difference = vt.real * vf.imag - vf.real * vt.imag
    total = vt.real * vf.imag + vf.real * vt.imag
    right = y.ff.real * w + y.ft.real * wr + y.ft.imag * difference
    wrong = y.ff.real * w + y.ft.real * wr + y.ft.imag * total
    assert abs(p_from - right).max() < 1e-10
    assert abs(p_from - wrong).max() > 0.1
    assert network.case is case


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("case14", {"1": 74, "2": 51, "3": 58}), ("case118", {"1": 381, "2": 483, "3": 526})],
)
def test_zones_have_the_published_number_of_variables(name, sizes):
    case = load_case(name)
    zones = make_zones(make_network(case), shipped_zoning(case))
    assert {zone.name: compile_zone(zone).size for zone in zones} == sizes


def test_the_feasible_set_does_not_depend_on_demand():
    case = load_case("case14")
    zoning = shipped_zoning(case)
    for scaled in (case.scale_load(0.0), case.scale_load(3.0)):
        pair = zip(
            make_zones(make_network(case), zoning),
            make_zones(make_network(scaled), zoning),
            strict=True,
        )
        for one, other in pair:
            a, b = compile_zone(one), compile_zone(other)
            for field in ("a_eq", "cone", "imbalance"):
                assert abs(getattr(a, field) - getattr(b, field)).max() == 0
            for field in ("lower", "upper", "b_eq", "cone_offset", "start"):
                assert np.array_equal(getattr(a, field), getattr(b, field))


def test_parallel_branches_of_opposite_orientation_share_a_pair():
    case = load_case("case118")
    network = make_network(case)
    order = np.argsort(network.pair_of, kind="stable")
    same = network.pair_of[order][1:] == network.pair_of[order][:-1]
    assert same.sum() == 7  # 186 branches on 179 bus pairs
    assert len(network.pair_i) == 179
    assert (network.pair_i < network.pair_j).all()

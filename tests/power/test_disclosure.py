"""Public beliefs about demand, what zones may release, and flows on their tie lines."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gridpriv import InputError
from gridpriv.grid.library import load_case, shipped_zoning
from gridpriv.power.disclosure import grounded, strategies, tie_flows
from gridpriv.power.prior import public_demand, supply, zone_prior
from gridpriv.power.zone import make_network, make_zones


def zones_of(case):
    return make_zones(make_network(case), shipped_zoning(case))


def test_the_belief_from_capacity_does_not_read_the_demand():
    case = load_case("case14")
    other = replace(case, pd=7.0 - 3.0 * case.pd, qd=case.qd[::-1].copy())
    assert np.array_equal(public_demand(case, None).mean, public_demand(other, None).mean)
    for here, there in zip(zones_of(case), zones_of(other), strict=True):
        one, two = (zone_prior(zone, public_demand(case, None)) for zone in (here, there))
        assert np.array_equal(one.mean, two.mean)
        assert np.array_equal(one.upper, two.upper)
        one, two = (tie_flows(z, grounded(z.network.case)) for z in (here, there))
        assert np.array_equal(one, two)
        pairs = zip(strategies(here, "auto"), strategies(there, "auto"), strict=True)
        assert all(np.array_equal(one.matrix, two.matrix) for one, two in pairs)


def test_a_file_states_every_bus_or_is_refused(tmp_path):
    case = load_case("case14")
    rows = [f"{b},{10 + k},{k}" for k, b in enumerate(case.bus_id.tolist())]
    path = tmp_path / "usual.csv"
    path.write_text("bus,pd_mw,qd_mvar\n" + "\n".join(rows))
    expected = public_demand(case, path).mean
    assert case.base_mva * expected[0] == pytest.approx(10.0 + np.arange(14))
    assert case.base_mva * expected[1] == pytest.approx(np.arange(14.0))
    path.write_text("bus,pd_mw,qd_mvar\n" + "\n".join(rows[:-2]))
    with pytest.raises(InputError, match=r"misses 2 of 14 buses \(13, 14\)"):
        public_demand(case, path)
    path.write_text("bus,pd_mw\n" + "\n".join(f"{b},1" for b in case.bus_id))
    with pytest.raises(InputError, match="misses 14 of 14"):
        public_demand(case, path)


def test_rated_ties_bound_what_a_zone_can_take():
    case = load_case("case14")
    zone = zones_of(case)[1]
    assert supply(zone) == pytest.approx(case.pmax.sum())  # case14 has no ratings
    rated = zones_of(replace(case, rate=np.full(case.n_branch, 0.5)))[1]
    inside = np.isin(case.f_bus, zone.own) & np.isin(case.t_bus, zone.own)
    touching = np.isin(case.f_bus, zone.own) | np.isin(case.t_bus, zone.own)
    own = case.pmax[np.isin(case.gen_bus, zone.own)].sum()
    assert supply(rated) == pytest.approx(own + 0.5 * (touching & ~inside).sum())


def test_a_tree_is_the_zones_sum_and_its_buses():
    """Its weights add up to 1, so that no bus moves it by more than it moves itself."""
    for zone in zones_of(load_case("case118")):
        n = len(zone.own)
        for option in strategies(zone, "tree"):
            share = option.matrix[0, 0]
            want = np.vstack([np.full(n, share), (1.0 - share) * np.eye(n)])
            assert option.matrix == pytest.approx(want)
            assert np.abs(option.matrix).sum(axis=0) == pytest.approx(np.ones(n))


def test_tie_flows_are_those_of_a_dc_power_flow():
    """Against pandapower's DC power flow: a load moves, and generators share it by capacity."""
    pp = pytest.importorskip("pandapower")
    case = load_case("case14")
    zone = zones_of(case)[0]
    net = pp.create_empty_network(sn_mva=1.0, f_hz=50.0)
    buses = [pp.create_bus(net, vn_kv=1.0) for _ in range(case.n_bus)]
    for f, t, r, x in zip(case.f_bus, case.t_bus, case.r, case.x, strict=True):
        z = abs(complex(r, x))
        pp.create_impedance(net, buses[f], buses[t], rft_pu=0.0, xft_pu=z, sn_mva=1.0)
    pp.create_ext_grid(net, buses[0])
    moved = 3
    pp.create_load(net, buses[zone.own[moved]], p_mw=1.0)
    share = case.pmax / case.pmax.sum()
    for bus, part in zip(case.gen_bus, share, strict=True):
        pp.create_sgen(net, buses[bus], p_mw=float(part))
    pp.rundcpp(net)
    own = np.isin(np.arange(case.n_bus), zone.own)
    ties = [b for b in zone.branches if own[case.f_bus[b]] != own[case.t_bus[b]]]
    expected = net.res_impedance.p_from_mw.to_numpy()[ties]
    found = tie_flows(zone, grounded(case))
    assert found[:, moved] == pytest.approx(expected, abs=1e-6)
    outward = np.where(own[case.f_bus[ties]], 1.0, -1.0)
    inside = case.pmax[np.isin(case.gen_bus, zone.own)].sum() / case.pmax.sum()
    assert outward @ found == pytest.approx(np.full(len(zone.own), inside - 1.0), abs=1e-6)

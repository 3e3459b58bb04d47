"""Public priors of demand, releases of zones, and flows on their tie lines."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gridpriv import InputError, make_settings
from gridpriv.core.errors import GridprivWarning
from gridpriv.grid.library import load_case, shipped_zoning
from gridpriv.grid.matpower import parse_matpower
from gridpriv.grid.pandapower import case_from_pandapower
from gridpriv.grid.partition import partition
from gridpriv.grid.tables import case_from_tables
from gridpriv.grid.zoning import zoning_from_groups
from gridpriv.power.ac.optimum import acopf
from gridpriv.power.prior import (
    DirectCurrent,
    capacity,
    public_demand,
    strategies,
    tie_flows,
    used,
    zone_prior,
    zone_range,
)
from gridpriv.power.zone import make_network, make_zones
from gridpriv.privacy.linear import bus, total
from gridpriv.zonal.prepared import prepare


def zones_of(case):
    return make_zones(make_network(case), shipped_zoning(case))


def test_the_prior_from_capacity_does_not_read_the_demand():
    case = load_case("case14")
    other = replace(case, pd=7.0 - 3.0 * case.pd, qd=case.qd[::-1].copy())
    assert np.array_equal(public_demand(case, None).mean, public_demand(other, None).mean)
    for here, there in zip(zones_of(case), zones_of(other), strict=True):
        first, two = (zone_prior(zone, public_demand(case, None)) for zone in (here, there))
        assert np.array_equal(first.mean, two.mean)
        assert np.array_equal(first.upper, two.upper)
        first, two = (tie_flows(z, DirectCurrent(z.network.case)) for z in (here, there))
        assert np.array_equal(first, two)
        pairs = zip(strategies(here, "auto"), strategies(there, "auto"), strict=True)
        assert all(np.array_equal(first.matrix, two.matrix) for first, two in pairs)


@pytest.mark.parametrize("objective", ["imbalance", "cost"])
@pytest.mark.parametrize("beta", ["1MW", "10MW"])
@pytest.mark.parametrize("total", [0.5, 5.0])
def test_auto_is_beaten_by_no_fixed_strategy_in_its_own_score(objective, beta, total):
    for name in ("case14", "case118"):
        case = load_case(name)
        scores = {
            release: [
                disclosure.expected
                for disclosure in prepare(
                    case,
                    shipped_zoning(case),
                    make_settings(
                        objective=objective, beta=beta, budget=f"total:{total}", release=release
                    ),
                ).disclosures
            ]
            for release in ("auto", "bus", "tree", "total", "nothing")
        }
        chosen = np.array(scores.pop("auto"))
        assert (chosen <= 1.02 * np.min(list(scores.values()), axis=0)).all()


@pytest.mark.parametrize(
    ("objective", "beta", "name"),
    [("imbalance", "1MW", "bus"), ("imbalance", "10MW", "bus"), ("cost", "10MW", "total")],
)
def test_the_imbalance_counts_every_bus_and_the_cost_counts_the_sum(objective, beta, name):
    case = load_case("case14")
    settings = make_settings(objective=objective, beta=beta, budget="total:0.5")
    prepared = prepare(case, shipped_zoning(case), settings)
    assert {disclosure.strategy.name for disclosure in prepared.disclosures} == {name}


def test_the_score_of_an_imbalance_is_the_imbalance_that_follows():
    """Mean squared error of p and q over all buses, of sampled releases of one demand."""
    case = load_case("case14")
    settings = make_settings(objective="imbalance", budget="total:5", release="bus")
    prepared = prepare(case, shipped_zoning(case), settings)
    rule, squares = prepared.rules.noise, []
    for zone, disclosure in zip(prepared.zones, prepared.disclosures, strict=True):
        release = rule.release(disclosure.sensitivity(prepared.rules.adjacency, rule.norm))
        demand = np.concatenate([case.pd[zone.own], case.qd[zone.own]])
        for seed in range(200):
            noisy = release.apply(
                disclosure.measure(demand), lambda s=seed: np.random.default_rng(s)
            )
            squares.append(((disclosure.estimate(noisy, release) - demand) ** 2).sum())
    stated = sum(disclosure.expected**2 for disclosure in prepared.disclosures)
    assert sum(squares) / 200 == pytest.approx(stated, rel=0.15)


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


def test_a_zone_takes_and_gives_what_its_ratings_and_generators_allow():
    case = load_case("case14")  # without ratings, as published
    for low, high in map(zone_range, zones_of(case)):
        assert np.isneginf(low).all()
        assert np.isposinf(high).all(), "an unrated tie imports without a limit"
    case = replace(case, rate=np.full(case.n_branch, 0.5), gs=np.zeros(case.n_bus))
    zone = zones_of(case)[1]
    ends = np.isin(case.f_bus, zone.own).astype(int) + np.isin(case.t_bus, zone.own)
    own = case.pmax[np.isin(case.gen_bus, zone.own)].sum()
    (least, _), (most, _) = zone_range(zone)
    assert most == pytest.approx(own + 0.5 * (ends == 1).sum())
    # each end of a line takes 0.5 at most; no generator takes power
    assert least == pytest.approx(-0.5 * (ends == 1).sum() - (ends == 2).sum())
    pmax = np.where(np.isin(case.gen_bus, zone.own), np.inf, case.pmax)
    assert np.isposinf(zone_range(zones_of(replace(case, pmax=pmax))[1])[1][0])


@pytest.mark.parametrize("sign", [1.0, -0.5])
def test_demand_that_an_ac_optimum_serves_is_within_the_range_of_its_zone(sign):
    """Also embedded generation: half of the zone's load turned round, which it exports."""
    case = load_case("case14")
    own = zones_of(case)[1].own
    at = np.isin(np.arange(case.n_bus), own)
    case = replace(case, pd=np.where(at, sign * case.pd, case.pd), rate=np.full(case.n_branch, 2.0))
    assert acopf(case, "shed").state.shed_mw < 1e-3
    for zone in zones_of(case):
        low, high = zone_range(zone)
        for k, demand in enumerate((case.pd, case.qd)):
            assert low[k] <= demand[zone.own].sum() <= high[k]
            assert np.isfinite([low[k], high[k]]).all()


def source(rates=(0.4, 0.3, 0.2), ends=((1, 2), (2, 3), (2, 4))):
    """Return four buses behind an unlimited generator at bus 1; rates in p.u. of 100 MVA."""
    lines = (
        f"{f} {t} 0.01 0.1 0 {100 * rate} 0 0 0 0 1 -360 360;"
        for (f, t), rate in zip(ends, rates, strict=True)
    )
    buses = (f"{bus} {3 if bus == 1 else 1} 10 2 0 0 1 1 0 20 1 1.1 0.9;" for bus in range(1, 5))
    tables = parse_matpower(
        "mpc.version = '2';\nmpc.baseMVA = 100;\nmpc.bus = [\n"
        + "\n".join(buses)
        + "\n];\nmpc.gen = [\n1 0 0 Inf -Inf 1 100 1 Inf -Inf;\n];\nmpc.branch = [\n"
        + "\n".join(lines)
        + "\n];\n",
        "source",
    )
    return case_from_tables(tables)


def test_an_unlimited_source_delivers_what_the_ratings_around_it_allow():
    assert capacity(source()) == pytest.approx(0.4)
    # an unrated line joins bus 2 to the source: what leaves both is what counts
    assert capacity(source((0.0, 0.3, 0.2))) == pytest.approx(0.5)
    two = source()
    two = replace(
        two,
        gen_bus=np.array([0, 0]),
        gen_row=np.array([1, 2]),
        **{
            name: getattr(two, name)[[0, 0]]
            for name in ("pmin", "pmax", "qmin", "qmax", "vg", "pg")
        },
    )
    assert capacity(two) == pytest.approx(0.4), "two sources share the ratings of one bus"
    mean = public_demand(source(), None).mean
    assert mean[0].sum() == pytest.approx(0.45 * 0.4)
    assert mean[1] == pytest.approx(0.3 * mean[0])


@pytest.mark.parametrize("rates", [(0.0, 0.0, 0.0), (0.0, 0.0, 0.2)])
def test_a_source_of_unknown_size_leaves_the_release_as_it_is(rates):
    """No rated line around it, or around most of the grid: the warning names the bus."""
    case = source(rates)
    with pytest.warns(GridprivWarning, match=r"prior of demand is uninformative.* bus 1 .*--pub"):
        expected = public_demand(case, None)
    zone = make_zones(make_network(case), zoning_from_groups(case, [range(4)], "all"))[0]
    prior = zone_prior(zone, expected)
    released = np.array([5.0, -3.0, 0.2, 1.0, 0.5, 0.5, 0.1, -0.2])
    assert bus(4).estimate(released, 1e-6, prior) == pytest.approx(released, abs=1e-3)
    sums = total(4).estimate(np.array([3.2, 0.9]), 1e-6, prior).reshape(2, -1).sum(axis=1)
    assert sums == pytest.approx([3.2, 0.9], abs=1e-3)


@pytest.mark.parametrize(
    ("name", "budget"),
    [
        pytest.param("mv_oberrhein", "total:5", marks=pytest.mark.slow),
        pytest.param("mv_oberrhein", "total:0.1", marks=pytest.mark.slow),
        ("create_cigre_network_mv", "total:5"),
        ("case14", "total:5"),
        ("case14", "total:0.1"),
    ],
)
def test_the_expected_error_is_that_of_thirty_draws(name, budget):
    """Printed before a run from public data, it is the error of the estimate after the run."""
    if name == "case14":
        case, beta = load_case(name), "1MW"
        zoning = shipped_zoning(case)
    else:
        networks = pytest.importorskip("pandapower.networks")
        case, beta = case_from_pandapower(getattr(networks, name)()), "0.01MW"
        zoning = partition(case, 3, "spectral")
    prepared = prepare(case, zoning, make_settings(beta=beta, budget=budget))
    rule = prepared.rules.noise
    for zone, disclosure in zip(prepared.zones, prepared.disclosures, strict=True):
        release = rule.release(disclosure.sensitivity(prepared.rules.adjacency, rule.norm))
        use, square = used(zone, prepared.direct_current), 0.0
        for seed in range(30):
            noisy = release.apply(
                disclosure.measure(zone.demand), lambda seed=seed: np.random.default_rng(seed)
            )
            gap = (disclosure.estimate(noisy, release) - zone.demand)[: len(zone.own)]
            square += float(((use @ gap) ** 2).sum()) / 30
        assert 0.5 < np.sqrt(square) / disclosure.expected < 1.5


def test_a_tree_is_the_zones_sum_and_its_buses():
    """Its weights add up to 1, so no bus changes it by more than its own change."""
    for zone in zones_of(load_case("case118")):
        n = len(zone.own)
        for option in strategies(zone, "tree"):
            share = option.matrix[0, 0]
            want = np.vstack([np.full(n, share), (1.0 - share) * np.eye(n)])
            assert option.matrix == pytest.approx(want)
            assert np.abs(option.matrix).sum(axis=0) == pytest.approx(np.ones(n))


def test_tie_flows_are_those_of_a_dc_power_flow():
    """Compared with pandapower's DC power flow: generators share a change by capacity."""
    pp = pytest.importorskip("pandapower")
    case = load_case("case14")
    zone = zones_of(case)[0]
    net = pp.create_empty_network(sn_mva=1.0, f_hz=50.0)
    buses = [pp.create_bus(net, vn_kv=1.0) for _ in range(case.n_bus)]
    for f, t, r, x in zip(case.f_bus, case.t_bus, case.r, case.x, strict=True):
        z = abs(complex(r, x))
        pp.create_impedance(net, buses[f], buses[t], rft_pu=0.0, xft_pu=z, sn_mva=1.0)
    pp.create_ext_grid(net, buses[0])
    changed_bus = 3
    pp.create_load(net, buses[zone.own[changed_bus]], p_mw=1.0)
    share = case.pmax / case.pmax.sum()
    for at, part in zip(case.gen_bus, share, strict=True):
        pp.create_sgen(net, buses[at], p_mw=float(part))
    pp.rundcpp(net)
    own = np.isin(np.arange(case.n_bus), zone.own)
    ties = [b for b in zone.branches if own[case.f_bus[b]] != own[case.t_bus[b]]]
    expected = net.res_impedance.p_from_mw.to_numpy()[ties]
    flows = tie_flows(zone, DirectCurrent(case))
    assert flows[:, changed_bus] == pytest.approx(expected, abs=1e-6)
    outward = np.where(own[case.f_bus[ties]], 1.0, -1.0)
    inside = case.pmax[np.isin(case.gen_bus, zone.own)].sum() / case.pmax.sum()
    assert outward @ flows == pytest.approx(np.full(len(zone.own), inside - 1.0), abs=1e-6)

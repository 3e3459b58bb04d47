"""Corrective redispatch: by formula, against a second optimum, and by pypowsybl.

Requests for voltage: receivers and content.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import casadi as ca
import numpy as np
import pytest
from dispatch import dispatch_of
from polar_optimum import polar_optimum
from test_ac_flow import meshed

from gridpriv import load_case, partition
from gridpriv.grid.scenarios import Contingency, contingencies
from gridpriv.grid.zoning import Zoning
from gridpriv.power import corrective
from gridpriv.power.ac.grid_redispatch import requests, within_request
from gridpriv.power.ac.optimum import acopf
from gridpriv.power.ac.state import Dispatch
from gridpriv.power.corrective import correct
from gridpriv.power.objective import IMBALANCE
from gridpriv.power.security import Outage, post_contingency, pre_contingency, security_analysis
from gridpriv.power.zone import make_network, make_zones, owner_of

PGLIB = "tests/data/pglib/pglib_opf_case30_ieee.m"


def single(name):
    return Contingency(name, name.partition(":")[0], (name,))


def two_lines(second):
    """Return 80 MW at the second of two buses, joined by two lines of 50 MVA."""
    ends = ([0, 0], [1, 1])
    case = meshed([0.0, 0.8], 99.0, [0, 1], [0.0, 0.0], [2.0, second], ends, [0.0] * 2, [0.1] * 2)
    return replace(case, rate=np.array([0.5, 0.5]), pg=np.array([0.8, 0.0]))


@pytest.mark.parametrize(("second", "moves"), [(1.0, (30, 30, 0)), (0.0, (30, 0, 30))])
def test_a_line_is_relieved_by_the_other_zone(second, moves):
    case = two_lines(second)
    before = pre_contingency(case, dispatch_of(case))
    zones = [("a", np.array([0])), ("b", np.array([1]))]
    correction = correct(before, single("branch:1"), zones, 1e4)
    assert correction.status == "corrected" and not correction.violations
    a, b = correction.zones
    assert (a.up_mw, b.down_mw, a.shed_mw) == pytest.approx((0, 0, 0), abs=0.05)
    # the line carries 50 MVA with the reactive power that it draws itself
    assert (a.down_mw, b.up_mw, b.shed_mw) == pytest.approx(moves, abs=0.6)


def test_nothing_is_left_to_redispatch_after_the_outage_of_the_only_source(monkeypatch):
    """The empty grid was refused as a case without a bus, and no outage had a result."""
    case = two_lines(0.0).without(("gen:2",))
    before = pre_contingency(case, dispatch_of(case))
    computed = []

    def counted(*given):
        computed.append(given)
        return post_contingency(*given)

    monkeypatch.setattr(corrective, "post_contingency", counted)
    correction = correct(before, single("gen:1"), [("all", np.array([0, 1]))], 1e4)
    assert (correction.status, correction.violations) == ("corrected", ())
    assert (correction.shed_mw, correction.secure) == (pytest.approx(80.0), False)
    assert len(computed) == 1  # a state was computed for the set points, and again for the shedding


def test_no_set_points_keep_a_voltage_that_a_reactor_sinks():
    case = two_lines(1.0)
    sunk = replace(case, bs=np.array([0.0, -6.0]), rate=np.zeros(2), qmax=np.array([9.0, 0.0]))
    before = pre_contingency(sunk, dispatch_of(sunk))
    correction = correct(before, single("branch:1"), [("all", np.array([0, 1]))], 1e4)
    assert (correction.status, correction.state, correction.secure) == ("no state", None, False)


def test_redispatch_is_the_least_of_a_second_formulation():
    case = load_case(PGLIB)
    s = acopf(case).state
    before = pre_contingency(case, Dispatch(s.pg, s.vm, s.va, s.p_shed, s.q_shed, s.curtailment))
    zones = [(name, np.flatnonzero(np.arange(30) % 2 == k)) for k, name in enumerate("ab")]
    outside = [c for c in security_analysis(before, contingencies(case, "all")) if not c.secure]
    compared = 0
    for one in outside[:4]:
        outage = Outage(before, one.contingency)
        if outage.deenergized.any():
            continue
        correction = correct(before, one.contingency, zones, 1e4)
        pg = post_contingency(before, outage).pg

        def cost(k, output, pg=pg):
            return ca.sqrt((output - pg[k]) ** 2 + 1e-12)

        least, shed = polar_optimum(outage.case, 200.0, cost)
        redispatched = sum(zone.up_mw + zone.down_mw for zone in correction.zones)
        total = redispatched + 200 * correction.shed_mw
        assert total == pytest.approx(case.base_mva * least, rel=5e-3, abs=0.05)
        assert correction.shed_mw == pytest.approx(case.base_mva * shed.sum(), abs=0.05)
        compared += 1
    assert compared >= 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::gridpriv.core.errors.GridprivWarning")
def test_pypowsybl_finds_no_limit_passed_after_redispatch_on_the_rts():
    lf = pytest.importorskip("pypowsybl.loadflow")
    from powsybl_judge import kilovolts, network, parameters

    case = load_case("case_RTS_GMLC")
    s = acopf(case).state
    before = pre_contingency(case, Dispatch(s.pg, s.vm, s.va, s.p_shed, s.q_shed, s.curtailment))
    zoning = partition(case, 3)
    zones = [
        (name, np.flatnonzero(np.array(zoning.zone_of) == k)) for k, name in enumerate(zoning.names)
    ]
    status = {}
    for item in security_analysis(before, contingencies(case, "all")):
        if item.secure:
            continue
        correction = correct(before, item.contingency, zones, 1e4)
        status[item.contingency.name] = correction.status
        if correction.state is None or correction.state.deenergized.any():
            continue
        state, kv = correction.state, kilovolts(correction.state.case)
        net = network(state.case, state, state.vm, "A")  # the case holds emergency ratings
        settings = parameters(state.case)
        settings.component_mode = lf.ComponentMode.ALL_CONNECTED  # an outage can leave two islands
        assert all(str(part.status).endswith("CONVERGED") for part in lf.run_ac(net, settings))
        volts = net.get_buses().v_mag.to_numpy() / kv
        assert (volts > state.case.vmin - 1e-4).all() and (volts < state.case.vmax + 1e-4).all()
        flows = net.get_branches()
        size = np.maximum(np.hypot(flows.p1, flows.q1), np.hypot(flows.p2, flows.q2))
        rate = dict(zip(state.case.branch_row.tolist(), state.case.rate, strict=True))
        bound = case.base_mva * np.array([rate[int(name[1:])] for name in flows.index])
        assert (size.to_numpy() <= np.where(bound > 0, 1.001 * bound, np.inf)).all()
    assert len(status) > 90
    # a cable leaves a reactor of 100 MVAr on one line: 0.88 p.u. at most
    none = {name for name, correction in status.items() if correction != "corrected"}
    assert none == {"branch:10", "branch:51", "branch:89"}


@dataclass(frozen=True)
class SimpleBands:
    vmin: np.ndarray
    vmax: np.ndarray


MAP = {1: "a", 2: "a", 5: "a", 3: "c", 4: "b", 7: "b", 9: "b", 6: "d", 8: "f"}


def test_a_zone_without_generators_passes_a_request_on():
    """Buses 10 to 14 have no generator; neither has {4, 7, 9}: zones with generators are asked."""
    case = load_case("case14")
    names, zone_of = np.unique([MAP.get(int(bus), "e") for bus in case.bus_id], return_inverse=True)
    zones = make_zones(make_network(case, IMBALANCE), Zoning(tuple(names), zone_of, "test"))
    state = acopf(case).state
    high = state.vm.copy()
    high[case.index_of[14]] = case.vmax[case.index_of[14]] + 0.004
    asked = list(requests(zones, owner_of(case, zones), replace(state, vm=high)))
    assert {zones[z].name for z, *_ in asked} == {zone.name for zone in zones if len(zone.gens)}
    for z, through, below, above in asked:
        assert below == -np.inf
        assert above == pytest.approx(0.004)
        assert len(np.intersect1d(zones[z].buses, zones[through].buses))
    forwarding = {zones[through].name for _, through, *_ in asked}
    assert forwarding == {"b", "e"}


def test_a_request_narrows_bands_at_shared_buses_unless_they_would_be_empty():
    bands = SimpleBands(np.full(3, 0.9), np.full(3, 1.1))
    shared, vm = np.array([True, True, False]), np.array([1.12, 1.0, 1.12])
    narrow = within_request(bands, shared, vm, -np.inf, 0.02)
    np.testing.assert_allclose(narrow.vmax, [1.1, 0.98, 1.1])
    np.testing.assert_allclose(narrow.vmin, 0.9)
    below = within_request(bands, shared, np.full(3, 0.88), 0.3, -np.inf)  # 1.18 is above the band
    np.testing.assert_allclose(below.vmin, 0.9)


def test_no_zone_gets_a_request_within_the_bands():
    case = load_case("case14")
    zones = make_zones(make_network(case, IMBALANCE), partition(case, 3))
    assert list(requests(zones, owner_of(case, zones), acopf(case).state)) == []

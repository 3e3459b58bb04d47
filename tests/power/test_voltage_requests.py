"""Requests for voltage: who is asked, and for what."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gridpriv import load_case, partition
from gridpriv.grid.zoning import Zoning
from gridpriv.power.ac.optimum import acopf
from gridpriv.power.ac.requests import requests
from gridpriv.power.objective import IMBALANCE
from gridpriv.power.zone import make_network, make_zones, owner_of

MAP = {1: "a", 2: "a", 5: "a", 3: "c", 4: "b", 7: "b", 9: "b", 6: "d", 8: "f"}


def test_a_zone_without_generators_passes_a_request_on():
    """Buses 10 to 14 have no generator; neither has {4, 7, 9}: zones with generators are asked."""
    case = load_case("case14")
    names, zone_of = np.unique([MAP.get(int(bus), "e") for bus in case.bus_id], return_inverse=True)
    zones = make_zones(make_network(case, IMBALANCE), Zoning(tuple(names), zone_of, "test"))
    state = acopf(case).state
    high = state.vm.copy()
    high[case.index_of[14]] = case.vmax[case.index_of[14]] + 0.004
    asked = requests(zones, owner_of(case, zones), replace(state, vm=high))
    helped = {zones[z].name for z in asked}
    assert helped == {zone.name for zone in zones if len(zone.gens)}
    for z, (low, most) in asked.items():
        limited = np.isfinite(most)
        assert np.isneginf(low).all() and limited.any()
        np.testing.assert_allclose(most[limited], high[zones[z].buses[limited]] - 0.004)


def test_nobody_is_asked_within_the_bands():
    case = load_case("case14")
    zones = make_zones(make_network(case, IMBALANCE), partition(case, 3))
    assert requests(zones, owner_of(case, zones), acopf(case).state) == {}

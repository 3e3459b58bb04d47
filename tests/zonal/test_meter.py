"""Derivatives of tie-line meters, compared with finite differences of the AC state."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import gridpriv
from gridpriv.power.ac.flow import ac_flow, meter_derivatives
from gridpriv.power.ac.grid_redispatch import joint_dispatch
from gridpriv.power.ac.state import Schedule
from gridpriv.power.zone import owner_of
from gridpriv.zonal.meter import shows_total

STEP = 1e-5  # p.u.: a generator of case57 is within 1e-4 of its limit
SLOW = ("case39", "case57", "case118")


@cache
def redispatched(name: str) -> Any:
    case = gridpriv.load_case(name)
    zoning = gridpriv.shipped_zoning(case)
    assert zoning is not None
    result = gridpriv.run(case, zoning, gridpriv.make_settings(seed=1))
    zone_of = np.zeros(case.n_bus, dtype=int)
    for number, zone in enumerate(result.zone_models):
        zone_of[zone.own] = number
    schedule = Schedule(zone_of, result.redispatch.scheduled)
    dispatch = joint_dispatch(result.case, result.zone_models, result.redispatch.plans)
    return result, dispatch, schedule


GRIDS = ["case14", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]


@pytest.mark.parametrize("name", GRIDS)
def test_derivatives_are_those_of_the_state_after_redispatch(name: str) -> None:
    """At a kink (a generator at its limit) the derivative is that of one side."""
    result, dispatch, schedule = redispatched(name)
    state, case = result.redispatch.state, result.case
    derivatives = meter_derivatives(state, dispatch, schedule)

    def metered(bus: int, change: float) -> Any:
        demand = case.pd.copy()
        demand[bus] += change
        changed = ac_flow(replace(case, pd=demand), dispatch, schedule, state)
        return np.concatenate(
            [changed.interchange, 0.5 * (changed.s_from - changed.s_to).real[derivatives.ties]]
        )

    for bus in range(0, case.n_bus, max(1, case.n_bus // 14)):
        here = metered(bus, 0.0)
        up = (metered(bus, STEP) - here) / STEP
        down = (here - metered(bus, -STEP)) / STEP
        stated = np.concatenate([derivatives.interchange[:, bus], derivatives.flow[:, bus]])
        difference = np.minimum(np.abs(up - stated), np.abs(down - stated))
        assert difference.max() < 1e-4, case.bus_id[bus]


def test_a_zone_without_room_shows_its_load() -> None:
    """Zone 2 of case14 has no room left: a megawatt of load is one of interchange."""
    result, _, _ = redispatched("case14")
    rows = {row["zone"]: row for row in result.as_dict()["final"]["meter"]}
    assert 0.9 < rows["2"]["interchange_mw_per_mw"] < 1.1
    assert [zone for zone, row in rows.items() if row["meter_tells_more"]] == ["2"]
    assert max(rows[zone]["interchange_mw_per_mw"] for zone in "13") < 0.01
    texts = [message["text"] for message in result.as_dict()["messages"]]
    (text,) = (text for text in texts if text.startswith("Meters on tie lines of zone 2 reveal"))
    least, most, noise = map(float, re.search(METERED, text).groups())
    assert 0.9 < least <= most < 1.1
    assert noise == pytest.approx(rows["2"]["noise_mw"], rel=0.01)


METERED = (
    r"a small change of demand at a bus changes the interchange by ([\d.]+) to ([\d.]+) MW per MW "
    r"in zone 2 "
    r"\(released total: standard deviation ([\d.]+) MW\)"
)


def test_a_zone_with_room_does_not_show_its_total_load() -> None:
    """Its buses change the interchange by a few kW per MW, in both directions: no total follows."""
    case = gridpriv.load_case("case24_ieee_rts")
    result = gridpriv.run(case, zones=4, beta="600MW", seed=1)
    derivatives = meter_derivatives(
        result.redispatch.state,
        joint_dispatch(result.case, result.zone_models, result.redispatch.plans),
        Schedule(owner_of(case, result.zone_models), result.redispatch.scheduled),
    )
    both = [
        zone.name
        for number, zone in enumerate(result.zone_models)
        if np.ptp(np.sign(derivatives.interchange[number, zone.own])) == 2
    ]
    assert both == ["2", "3"]
    rows = {row["zone"]: row for row in result.as_dict()["final"]["meter"]}
    assert [zone for zone, row in rows.items() if row["meter_tells_more"]] == ["1", "4"]
    texts = [message["text"] for message in result.as_dict()["messages"]]
    assert sum("Meters on tie lines" in text for text in texts) == 1


@pytest.mark.parametrize(
    ("least", "most", "noise", "shown"),
    [
        (0.98, 1.03, 400.0, True),
        (0.98, 1.03, 0.01, False),  # the meter's error exceeds the noise
        (0.0, 0.005, 400.0, False),  # both directions
        (0.5, 0.9, 400.0, True),  # 400 MW at a bus are read as 286 to 514 MW
        (0.002, 0.9, 400.0, False),  # they are read as 1.8 to 798 MW
        (0.98, 1.03, np.inf, True),
        (0.002, 0.9, np.inf, False),
    ],
)
def test_a_meter_shows_a_total_that_it_reads_better_than_the_release(
    least: float, most: float, noise: float, shown: bool
) -> None:
    assert shows_total(least, most, noise) == shown


def test_meters_are_private() -> None:
    result, _, _ = redispatched("case14")
    document = result.as_dict(public=True)
    assert document["final"]["meter"] is None
    assert "meters" not in str(document)

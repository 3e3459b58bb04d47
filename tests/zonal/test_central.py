"""One release per zone, and one schedule of the whole grid on the releases."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gridpriv import InputError, load_case, make_settings, run, shipped_zoning

pytestmark = pytest.mark.usefixtures("few_replans")

CENTRAL = {
    "coordination": "central",
    "objective": "cost",
    "mechanism": "knorm",
    "release": "total",
    "budget": "total:1",
    "beta": "10MW",
    "seed": 3,
    "solver": "clarabel",
}


def ran(case, **given):
    return run(case, shipped_zoning(case), make_settings(**(CENTRAL | given)))


def test_without_noise_it_costs_what_the_ac_optimum_does():
    """MATPOWER's runopf of case14: 8,081.53 $/h."""
    physical = ran(load_case("case14"), mechanism="none").physical
    assert physical["cost"] == pytest.approx(8081.53, abs=0.05)
    assert physical["balancing_mw"] == pytest.approx(0.0, abs=0.01)


def test_each_zone_draws_once_and_pays_the_total():
    result = ran(load_case("case14"))
    assert [sum(counts.values()) for counts in result.trace.releases.values()] == [1, 1, 1]
    assert [s.total_pure for s in result.certificates] == pytest.approx([1.0] * 3)
    assert result.physical["ac_feasible"]


@pytest.mark.usefixtures("no_replans")
def test_the_schedule_reads_releases_only():
    """The data are others; the releases are the same, as none is made."""
    case = load_case("case14")
    other = replace(case, pd=case.pd[::-1] + 0.1, qd=case.qd[::-1] - 0.02)
    here, there = (ran(item, release="nothing") for item in (case, other))
    assert np.array_equal(here.trace.sent, there.trace.sent)
    assert not any(here.trace.releases.values())


def test_where_zones_work_does_not_matter():
    case = load_case("case14")
    here, there = (ran(case, objective="imbalance", workers=n) for n in (1, 2))
    assert np.array_equal(here.trace.sent, there.trace.sent)


def test_demand_that_no_ac_state_serves_has_a_schedule_all_the_same():
    """Noise of this size asks for more reactive power than there is, or less."""
    result = ran(load_case("case14"), release="bus", budget="total:0.02", beta="40MW")
    assert result.physical["shed_mw"] is not None


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"perturbation": "objective", "mechanism": "laplace", "release": "bus"}, "coordination"),
        ({"noise_schedule": "round"}, "noise_schedule"),
    ],
)
def test_what_one_exchange_cannot_have_is_refused(given, named):
    with pytest.raises(InputError, match=named):
        make_settings(**(CENTRAL | given))

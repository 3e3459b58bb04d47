"""Contingencies against pypowsybl's security analysis, and the preventive plan by it."""

from __future__ import annotations

import numpy as np
import pytest
from dispatch import dispatch_of
from powsybl_judge import judged

from gridpriv import load_case, partition, shipped_zoning
from gridpriv.grid.scenarios import Contingency, contingencies
from gridpriv.power.ac.optimum import acopf
from gridpriv.power.ac.state import Dispatch, Limit
from gridpriv.power.ac.zone_redispatch import operating_unit
from gridpriv.power.corrective import StateDerivative
from gridpriv.power.objective import generation_cost
from gridpriv.power.secure import SecureProblem, secure_plan
from gridpriv.power.security import (
    Outage,
    PreContingency,
    post_contingency,
    pre_contingency,
    security_analysis,
)
from gridpriv.zonal.prepared import prepare
from gridpriv.zonal.settings import make_settings

JUDGED = ("line", "voltage")


def optimum(case):
    s = acopf(case).state
    return Dispatch(s.pg, s.vm, s.va, s.p_shed, s.q_shed, s.curtailment)


def limited_motors(case):
    """pypowsybl lets a generator with negative output regulate up to 0 only."""
    from dataclasses import replace

    return replace(case, pmax=np.where(case.pg < 0, np.minimum(case.pmax, 0.0), case.pmax))


def compared(case, dispatch, kind):
    """Return the violations that both find, and every difference."""
    before = pre_contingency(case, dispatch, "C")
    listed = contingencies(case, kind)
    reference = judged(case, before.state, before.dispatch.vm, listed)
    both, different = 0, []
    for item in security_analysis(before, listed):
        name, outside = item.contingency.name, Outage(before, item.contingency)
        limits = {
            (v.kind, v.element): (v.value, v.bound) for v in item.violations if v.kind in JUDGED
        }
        if reference[name] is None:  # its reactive limits cannot all be met: ours says which
            beyond = any(v.kind == "generator Q" for v in item.violations)
            if not beyond and item.status != "diverged":
                different.append((name, "no state by pypowsybl"))
            continue
        if item.status == "diverged" or item.shed_mw > 0.01:  # it sheds nothing
            continue
        separated = set(case.bus_id[outside.separated].tolist())
        for place in {*limits, *reference[name]}:
            if place[0] == "voltage" and place[1] in separated:
                continue  # it analyses the main island only
            ours, other = limits.get(place), reference[name].get(place)
            value, bound = ours or other
            near = abs(value - bound) <= 1e-3 * abs(bound)
            if ours and other:
                both += 1
                if abs(ours[0] - other[0]) > 1e-3 * abs(bound):
                    different.append((name, place, ours, other))
            elif not near:
                different.append((name, place, ours, other))
    return both, different


@pytest.mark.parametrize(("grid", "kind"), [("case14", "all"), ("case118", "branches")])
def test_the_limits_passed_after_every_outage_are_those_of_pypowsybl(grid, kind):
    pytest.importorskip("pypowsybl")
    case = load_case(grid)
    both, different = compared(case, dispatch_of(case), kind)
    assert both >= 20 and different == []


@pytest.mark.slow
@pytest.mark.large
@pytest.mark.parametrize("grid", ["case_RTS_GMLC", "case300", "case1354pegase"])
@pytest.mark.filterwarnings("ignore::gridpriv.core.errors.GridprivWarning")
def test_the_same_on_larger_grids(grid):
    pytest.importorskip("pypowsybl")
    case = limited_motors(load_case(grid))
    dispatch = optimum(case) if grid == "case_RTS_GMLC" else dispatch_of(case)
    both, different = compared(case, dispatch, "all")
    assert both > 100 and different == []


def problem(name, zoning, kind="all", listed=None):
    prepared = prepare(load_case(name), zoning, make_settings(mechanism="none"))
    case = prepared.case
    listed = contingencies(case, kind) if listed is None else listed
    return SecureProblem(case, prepared.zones, listed, "C", 1e4, operating_unit(case))


def test_the_derivatives_of_a_state_after_an_outage_are_its_differences():
    case = load_case("case14")
    before = pre_contingency(case, optimum(case))
    outage = Outage(before, Contingency("line", "branch", ("branch:3",)))
    state = post_contingency(before, outage)
    linear = StateDerivative(state, before.dispatch.vm)
    for element in (4, 10, 14):
        limit = Limit("voltage", element, "upper", "", 0, 0, 0, "p.u.")
        by_pg, by_vm = linear.of(limit)
        bus = int(np.flatnonzero(case.bus_id == element)[0])
        for values, slopes, at in (("pg", by_pg, 2), ("vm", by_vm, int(case.gen_bus[2]))):
            ends = []
            for sign in (1.0, -1.0):
                from dataclasses import replace

                set_points = getattr(before.dispatch, values).copy()
                set_points[at] += sign * 1e-5
                changed = replace(before.dispatch, **{values: set_points})
                stood = PreContingency(before.state, before.case, changed)
                ends.append(post_contingency(stood, outage).vm[bus])
            assert slopes[at] == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=2e-4)


@pytest.mark.parametrize("zones", [1, 3])
def test_a_preventive_plan_passes_no_limit_after_any_outage_by_pypowsybl(zones):
    pytest.importorskip("pypowsybl")
    case = load_case("case14")
    zoning = shipped_zoning(case) if zones == 3 else partition(case, 1)
    listed = [c for c in contingencies(case, "all") if c.name != "branch:1"]  # no AC state within Q
    inputs = problem("case14", zoning, listed=listed)
    first, plan = secure_plan(inputs)
    assert any(c.violations for c in first.contingencies)
    assert not any(c.violations for c in plan.contingencies)
    before = plan.before
    passed = judged(before.case, before.state, before.dispatch.vm, listed)
    for name, limits in passed.items():
        assert limits is not None, name
        for value, bound in limits.values():
            assert abs(value - bound) < 1e-3 * bound, name
    cost = [generation_cost(case, p.before.state.pg) for p in (first, plan)]
    assert cost[0] < cost[1] < 1.002 * cost[0]
    assert cost[0] == pytest.approx(acopf(case).cost, rel=1e-6)


@pytest.mark.slow
def test_the_preventive_plan_of_case118_is_secure_by_pypowsybl():
    pytest.importorskip("pypowsybl")
    case = load_case("case118")
    inputs = problem("case118", shipped_zoning(case))
    first, plan = secure_plan(inputs)
    before = plan.before
    islanding = {c.contingency.name for c in plan.contingencies if c.shed_mw > 0.01}
    passed = judged(before.case, before.state, before.dispatch.vm, inputs.listed)
    for name, limits in passed.items():
        outside = Outage(before, next(c for c in inputs.listed if c.name == name)).separated
        for (_, element), (value, bound) in (limits or {}).items():
            lone = element in set(case.bus_id[outside].tolist())
            assert lone or abs(value - bound) < 1e-3 * bound, (name, element)
    assert len(islanding) <= 2 and sum(bool(c.violations) for c in first.contingencies) > 50

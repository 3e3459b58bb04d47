"""Flow-based exchange against brute force: central power flows, DC and AC, exchange by exchange."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError
from gridpriv.grid.case import Case, GenCost
from gridpriv.grid.library import case_files, load_case
from gridpriv.grid.partition import partition
from gridpriv.power.ac.optimum import acopf
from gridpriv.power.ac.part import part_at
from gridpriv.power.exchange import (
    FlowDomain,
    dc_ptdf,
    flow_domain,
    merit_order,
    shift_keys,
    shifted,
)
from gridpriv.power.objective import marginal_segments
from gridpriv.zonal.exchange import _market

CASES = [
    pytest.param(name, marks=pytest.mark.skipif(name not in case_files(), reason="extra cases"))
    for name in ("case24_ieee_rts", "case39")
]
PAIRS = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]


@cache
def domain(name: str, model: str) -> tuple[FlowDomain, object]:
    case = load_case(name)
    state = acopf(case, "cost").state
    zones = partition(case, 3, "spectral").zone_of
    return flow_domain(state, zones, model), state  # type: ignore[arg-type]


def dc_flows(case: Case, injected: Floats) -> Floats:
    """Return DC flows by a dense inverse, independently of the package."""
    b = 1.0 / case.x / case.tap
    incidence = np.zeros((case.n_branch, case.n_bus))
    incidence[np.arange(case.n_branch), case.f_bus] = 1.0
    incidence[np.arange(case.n_branch), case.t_bus] -= 1.0
    angles = np.linalg.pinv(incidence.T @ (b[:, None] * incidence)) @ injected
    return np.asarray(b * (incidence @ angles))


@pytest.mark.parametrize("name", CASES)
def test_dc_exchanges_are_those_of_dc_power_flows(name: str) -> None:
    """Sell until the first branch is at its margin: by power flows of larger and larger sales."""
    flows, _ = domain(name, "dc")
    for seller, buyer in PAIRS:
        sold = flows.keys[:, seller] - flows.keys[:, buyer]
        per_unit = dc_flows(flows.case, sold)[flows.branch]
        np.testing.assert_allclose(
            per_unit, flows.ptdf[:, seller] - flows.ptdf[:, buyer], atol=1e-9
        )

        def passed(amount: float, per_unit: Floats = per_unit) -> bool:
            change = amount * per_unit
            return bool((change > flows.margin[:, 0]).any() or (-change > flows.margin[:, 1]).any())

        low, high = 0.0, 1e4
        for _ in range(80):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if passed(middle) else (middle, high)
        assert flows.exchange(seller, buyer)[0] == pytest.approx(low, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("model", "tolerance"), [("dc", 0.06), ("ac", 0.03)])
def test_exchanges_are_those_of_ac_power_flows(name: str, model: str, tolerance: float) -> None:
    """In the AC state after a sale of the whole margin the limiting branch is at its rating.

    Active flow only: reactive flows, which the domain keeps constant, change with the sale.
    """
    flows, state = domain(name, model)
    case = flows.case
    for seller, buyer in PAIRS:
        amount, limit = flows.exchange(seller, buyer)
        if not 0.05 < amount < 10.0:
            continue
        after = shifted(state, amount * (flows.keys[:, seller] - flows.keys[:, buyer]))  # type: ignore[arg-type]
        flow = max(abs(after.s_from[limit].real), abs(after.s_to[limit].real))
        q = max(abs(state.s_from[limit].imag), abs(state.s_to[limit].imag))  # type: ignore[attr-defined]
        most = np.sqrt(case.rate[limit] ** 2 - q**2)
        assert flow == pytest.approx(most, rel=tolerance), (seller, buyer)
        others = np.maximum(np.abs(after.s_from), np.abs(after.s_to)) / case.rate
        assert others[np.isfinite(others)].max() < 1.0 + 2 * tolerance


def test_ptdfs_of_a_line_of_three_buses_are_known() -> None:
    """In a row of buses every exchange flows through every branch between: PTDF 1 or 0."""
    case14 = load_case("case14")
    case = replace(
        case14.without(tuple(f"branch:{k}" for k in (2, 5, 7))), rate=np.full(17, 9.0)
    )  # 1-2-3-4: buses 1 and 3 hang in a row
    state = acopf(case, "cost").state
    zone = np.where(np.arange(14) == 0, 0, 1)
    flow_based = flow_domain(state, zone)
    row = flow_based.branch.tolist().index(0)
    assert flow_based.ptdf[row, 0] - flow_based.ptdf[row, 1] == pytest.approx(1.0)
    most = flow_based.exchange(0, 1)
    assert most[0] == pytest.approx(flow_based.margin[row, 0]) or most[1] != 0


@pytest.mark.parametrize("name", CASES)
def test_the_slice_and_the_ranges_hold_every_constraint(name: str) -> None:
    flow_based, _ = domain(name, "dc")
    matrix, bound = flow_based.constraints
    corners = flow_based.slice(0, 1, 2, 1e3) - flow_based.net_position[:2]
    assert len(corners) >= 3
    for corner in corners:
        change = np.array([*corner, -corner.sum()])
        slack = bound - matrix @ change
        assert slack.min() > -1e-7
        assert (np.abs(slack) < 1e-7).sum() >= 2, "a corner is where two branches bind"
    draw = np.random.default_rng(0)
    for zone in range(3):
        low, high = flow_based.position_range(zone)
        for weights in draw.dirichlet(np.ones(len(corners)), 50):
            change = weights @ corners
            whole = flow_based.net_position + np.array([*change, -change.sum()])
            assert low - 1e-7 <= whole[zone] <= high + 1e-7


def test_a_market_serves_the_load_of_each_island_from_its_own_generators() -> None:
    """Without branches 5-6 and 7-8 of case9 the third generator is alone on its island."""
    case = load_case("case9").without(("branch:3", "branch:6"))
    case = replace(case, cost=tuple(GenCost(2, (price, 0.0)) for price in (30.0, 10.0, 20.0)))
    assert case.pmin.tolist() == [0.1] * 3
    market = _market(case, np.array([0.9, 0.6, 0.5]))
    assert market == pytest.approx([0.1, 1.4, 0.5])


def test_a_generator_without_a_lower_limit_stays_at_its_output() -> None:
    """It takes 0.2 p.u.; the others cannot go so low that their total serves nothing at 0."""
    case = replace(load_case("case9"), pmin=np.array([-np.inf, 0.2, 0.1]))
    case = replace(case, cost=tuple(GenCost(2, (price, 0.0)) for price in (30.0, 10.0, 20.0)))
    assert _market(case, np.array([-0.2, 0.2, 0.1])) == pytest.approx([-0.2, 0.2, 0.1])


def test_the_merit_order_is_the_cheapest() -> None:
    from scipy.optimize import linprog

    case = load_case("case14")
    draw = np.random.default_rng(1)
    marginal = np.sort(draw.uniform(10, 50, (case.n_gen, 4)), axis=1)
    total = 2.3
    parts = [
        (g, (case.pmax[g] - case.pmin[g]) / 4, price, price)
        for g in range(case.n_gen)
        for price in marginal[g]
    ]
    output = merit_order(case.pmin, total, np.array(parts))
    assert output.sum() == pytest.approx(total)
    width = np.repeat((case.pmax - case.pmin) / 4, 4)
    best = linprog(
        marginal.ravel(),
        A_eq=np.ones((1, len(width))),
        b_eq=[total - case.pmin.sum()],
        bounds=[(0.0, w) for w in width],
    )
    parts = (output - case.pmin)[:, None] - np.arange(4) * width.reshape(case.n_gen, 4)
    cost = (np.clip(parts, 0.0, width.reshape(case.n_gen, 4)) * marginal).sum()
    assert cost == pytest.approx(best.fun)


@pytest.mark.parametrize(
    ("total", "expected"),
    [(0.2, (0.0, 0.2)), (0.5, (1 / 6, 1 / 3)), (1.1, (0.5, 0.6)), (1.6, (23 / 30, 25 / 30))],
)
def test_the_merit_order_turns_where_a_cost_turns(
    total: float, expected: tuple[float, float]
) -> None:
    """Of 20 $/MWh up to 50 MW and 35 beyond, and of 10 to 40 $/MWh at 0 to 100 MW."""
    costs = GenCost(1, (0.0, 0.0, 50.0, 1000.0, 100.0, 2750.0)), GenCost(2, (0.15, 10.0, 0.0))
    parts = [(g, *p) for g, cost in enumerate(costs) for p in marginal_segments(cost, 100.0, 0, 1)]
    output = merit_order(np.zeros(2), total, np.array(parts))
    assert output == pytest.approx(expected)


@pytest.mark.parametrize("model", ["dc", "ac"])
def test_zones_of_different_islands_exchange_nothing(model: str) -> None:
    """Without branches 5-6 and 7-8 buses 3, 6 and 7 of case9 are an island, and a zone."""
    case = load_case("case9").without(("branch:3", "branch:6"))
    zone = np.array([0, 1, 2, 0, 0, 2, 2, 1, 0])
    whole = flow_domain(acopf(case, "cost").state, zone, model)  # type: ignore[arg-type]
    kept = part_at(case, zone < 2).case
    alone = flow_domain(acopf(kept, "cost").state, zone[zone < 2], model)  # type: ignore[arg-type]
    for seller, buyer in PAIRS:
        most = whole.exchange(seller, buyer)
        if 2 in (seller, buyer):
            assert most == (0.0, -1)
        else:
            assert most[0] == pytest.approx(alone.exchange(seller, buyer)[0], rel=1e-4)
    assert whole.position_range(2) == pytest.approx((0.0, 0.0), abs=1e-6)
    for number in (0, 1):
        assert whole.position_range(number) == pytest.approx(alone.position_range(number), rel=1e-4)
    corners = whole.slice(0, 1, 2, 1e3)
    assert corners.sum(axis=1) == pytest.approx(np.zeros(len(corners)), abs=1e-6)
    assert corners[:, 0].max() == pytest.approx(alone.position_range(0)[1], rel=1e-4)


def test_what_is_refused() -> None:
    case = load_case("case14")
    state = acopf(case, "cost").state
    zone = np.repeat([0, 1], 7)
    with pytest.raises(InputError, match="no rated branch"):
        flow_domain(state, zone)
    bare = replace(case, pd=np.where(np.arange(14) == 6, 0.0, case.pd))
    with pytest.raises(InputError, match="neither generation"):
        shift_keys(bare, np.where(np.arange(14) == 6, 1, 0))


@pytest.mark.skipif("case5" not in case_files(), reason="extra cases")
@pytest.mark.parametrize("model", ["dc", "ac"])
def test_a_net_position_at_a_binding_rating_is_within_its_range(model: str) -> None:
    """The active flow of each end is compared with that end's own reactive flow."""
    case = load_case("case5")
    state = acopf(case, "cost").state
    flow_based = flow_domain(state, partition(case, 2, "spectral").zone_of, model)  # type: ignore[arg-type]
    assert (flow_based.margin >= 0.0).all()
    for zone in range(2):
        least, most = flow_based.position_range(zone)
        assert least - 1e-9 <= flow_based.net_position[zone] <= most + 1e-9


def test_reactances_that_cancel_are_named() -> None:
    case = load_case("case14")
    f, t, x = case.f_bus.copy(), case.t_bus.copy(), case.x.copy()
    f[19], t[19], x[19] = f[13], t[13], -x[13]  # beside the only branch of bus 8
    cancelling = replace(case, f_bus=f, t_bus=t, x=x, tap=np.ones(20))
    with pytest.raises(InputError, match=r"case14 has no DC power flow.*buses 7 and 8.*cancel"):
        dc_ptdf(cancelling, np.zeros((14, 1)))

"""Zones that replan in turn (decision 0038), on a grid that sheds load."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gridpriv import Case, acopf, load_case, make_settings, partition, run, shipped_zoning
from gridpriv.cli.main import main
from gridpriv.power.ac import grid_redispatch
from gridpriv.power.ac.zone_redispatch import Boundary, ZonePlan
from gridpriv.power.zone_agent import ZoneAgent

STRONG = {"budget": "total:1", "beta": "10 MW"}
CASE30 = "tests/data/pglib/pglib_opf_case30_ieee.m"


def on_base(case: Case, base_mva: float) -> Case:
    """Return the case with every per-unit figure on another base."""
    scale = case.base_mva / base_mva
    powers = ("pd", "qd", "gs", "bs", "pmin", "pmax", "qmin", "qmax", "pg", "rate", "b")
    changed = {field: scale * getattr(case, field) for field in powers}
    return replace(case, base_mva=base_mva, r=case.r / scale, x=case.x / scale, **changed)


def end_early(monkeypatch: pytest.MonkeyPatch, passes: int = 2, together: int = 1) -> None:
    """Let zones replan once together, and a few times in turn."""
    few = {"MOST_REPLANS": together, "MOST_PASSES": passes, "MOST_DAMPED": 1}
    few |= {"MOST_NEAR": 2, "MOST_HALVINGS": 3}
    few |= {"FIRMNESS_FACTORS": grid_redispatch.FIRMNESS_FACTORS[:1]}
    for name, value in few.items():
        monkeypatch.setattr(grid_redispatch, name, value)


def test_a_zone_alone_redispatches_before_it_sheds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Line 6-8 binds in zone 2; 0.99 MW were shed although generation was unused."""
    end_early(monkeypatch, passes=4)
    settings = make_settings(budget="total:1", beta="10 MW", coordination="central", seed=11)
    case = load_case("case30")
    result = run(case, partition(case, 5), settings)
    assert result.redispatch.status == "feasible"
    assert result.physical["shed_mw"] == pytest.approx(0.0, abs=1e-3)
    assert result.physical["balancing_mw"] > 1.0


def test_replans_in_turn_shed_no_more_than_joint_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    case = load_case(CASE30).scale_load(1.3)
    settings = make_settings(objective="cost", coordination="central", seed=1, **STRONG)
    end_early(monkeypatch, passes=1)
    after = run(case, partition(case, 3), settings).redispatch
    monkeypatch.setattr(grid_redispatch, "REPLANS", grid_redispatch.REPLANS[:1])
    before = run(case, partition(case, 3), settings).redispatch
    assert before.status != "infeasible"
    assert before.state.shed_mw > 0.1  # else no zone replans in turn
    assert after.status != "infeasible"
    assert after.state.shed_mw <= before.state.shed_mw + 1e-6


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_what_is_public_does_not_depend_on_who_replans_when(
    whole: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Zones that replan, and their order, follow from true demand: no public byte may show them."""
    grid = [CASE30, "--load-scale", "1.3"] if whole else ["case9", "--load-scale", "2.7"]
    words = ["run", *grid, "--zones", "3", "--objective", "cost"]
    words += ["--budget", "total:1", "--beta", "10MW", "--coordination", "central", "--seed", "1"]
    words += ["--no-reference"]
    if not whole:
        end_early(monkeypatch, passes=1)
    ranked, turns = sorted, list[list[int]]()

    def ordered(reverse: bool):
        def order(items, **how):
            if how:  # outcomes, by severity
                return ranked(items, **how)
            turns.append(ranked(items, reverse=reverse))
            return turns[-1]

        return order

    exports = []
    for name in ("first", "reversed", "none"):
        turns.clear()
        monkeypatch.setattr(grid_redispatch, "sorted", ordered(name == "reversed"), raising=False)
        if name == "none":
            monkeypatch.setattr(grid_redispatch, "REPLANS", ())
            monkeypatch.setattr(grid_redispatch, "_moved", lambda *_: ())
        folder = tmp_path / name
        assert main([*words, "--public", "--json", "--out", str(folder)]) == 0
        files = {p.name: p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
        exports.append((capsys.readouterr().out, files))
        assert name == "none" or any(len(turn) > 1 for turn in turns)  # else there is no order
    assert exports[0][1]
    assert exports[0] == exports[1] == exports[2]


def requested_plans(monkeypatch: pytest.MonkeyPatch) -> list[Boundary | None]:
    """Return the list to which every boundary that a zone plans at is added."""
    boundaries, honest = list[Boundary | None](), ZoneAgent.plan

    def plan(member: ZoneAgent, boundary: Boundary | None) -> ZonePlan | None:
        boundaries.append(boundary)
        return honest(member, boundary)

    monkeypatch.setattr(ZoneAgent, "plan", plan)
    return boundaries


@pytest.mark.parametrize("coordination", ["central", "rounds"])
def test_zones_that_shed_the_least_do_not_replan(
    coordination: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    boundaries = requested_plans(monkeypatch)
    case = load_case("case14").scale_load(2.2)
    settings = make_settings(mechanism="none", coordination=coordination)
    result = run(case, partition(case, 3), settings)
    assert result.redispatch.status == "feasible"
    assert result.physical["shed_mw"] == pytest.approx(36.958, abs=0.01)  # least: gridpriv acopf
    assert len(boundaries) == 3


def test_where_nothing_is_shed_no_start_prices_deviations_as_shedding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    boundaries = requested_plans(monkeypatch)
    case = load_case("case14")
    result = run(case, shipped_zoning(case), make_settings(release="nothing", seed=0))
    assert result.redispatch.status == "feasible"
    assert sum(item is not None for item in boundaries) > 3  # else nobody replans
    assert not any(item is not None and item.firm for item in boundaries)


@pytest.mark.parametrize(
    ("name", "zones", "seed", "noise", "first", "replans"),
    [
        ("case14", 3, 1, {}, {True}, set()),  # a small expected error
        ("case39", 3, 5, STRONG, {True, False}, {True}),  # the other start is no cheaper
        ("case57", 3, 2, STRONG, {True, False}, {False}),
        ("case30", 4, 4, STRONG, {True, False}, {True, False}),  # congested: some replan alone
    ],
)
def test_zones_replan_from_the_better_start(
    name: str,
    zones: int,
    seed: int,
    noise: dict[str, str],
    first: set[bool],
    replans: set[bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each set has True for plans that value tie-end voltages, and False for others."""
    boundaries = requested_plans(monkeypatch)
    case = load_case(name)
    settings = make_settings(coordination="central", seed=seed, **noise)
    result = run(case, partition(case, zones), settings)
    assert result.redispatch.status == "feasible"
    assert result.physical["shed_mw"] == pytest.approx(0.0, abs=1e-3)
    plans = [(b.reaction is not None, b.valuation is not None) for b in boundaries if b]
    assert {valued for again, valued in plans if not again} == first
    assert {valued for again, valued in plans if again} == replans
    assert sum(not again for again, _ in plans) == len(first) * zones


def test_zones_that_shed_load_move_to_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outcomes within the limits shed 240 MW, others less; some of the way keeps the limits."""
    end_early(monkeypatch, passes=1)
    moves, honest = [], grid_redispatch._moved

    def watched(search, best, near):
        moved = list(honest(search, best, near))
        moves.extend((best, after) for after in moved)
        return moved

    monkeypatch.setattr(grid_redispatch, "_moved", watched)
    case = load_case("case9").scale_load(2.7)
    least, saved = acopf(case, "shed").state.shed_mw, []
    for seed in (2, 4, 6):  # which of these runs move depends on the processor's rounding
        moves.clear()
        settings = make_settings(coordination="central", seed=seed, **STRONG)
        result = run(case, partition(case, 3), settings)
        if not moves:
            continue
        before, after = moves[0][0], moves[-1][1]
        assert before.status == after.status == result.redispatch.status == "feasible"
        assert least <= result.physical["shed_mw"]
        saved.append(before.state.shed_mw - result.physical["shed_mw"])
        assert result.physical["replans"] == before.replans
        plans = list(zip(before.plans, after.plans, strict=True))
        assert any((old.pg != new.pg).any() for old, new in plans)
        for old, new in plans:
            np.testing.assert_array_equal(new.p_price, old.p_price)
    assert max(saved, default=0.0) >= 5.0


def test_zones_replan_further_from_a_marginal_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """The highest voltage exceeds its limit by 0.05 %: a next outcome may be within all limits."""
    searches, honest = [], grid_redispatch._last

    def watched(search, outcomes, first):
        searches.append(search)
        return honest(search, outcomes, first)

    monkeypatch.setattr(grid_redispatch, "_last", watched)
    within = run("case14", mechanism="none", coordination="central").redispatch
    case = within.state.case
    vm, vmax = within.state.vm, case.vmax.copy()
    vmax[vm.argmax()] = vm.max() / 1.0005
    beyond = replace(within, state=replace(within.state, case=replace(case, vmax=vmax)))
    assert (within.status, beyond.status) == ("feasible", "marginal")
    assert [searches[0].is_settled(state) for state in (within, beyond)] == [True, False]


def test_a_last_start_serves_load_that_the_others_shed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without plans at firmness 1 and without values of tie-end voltages, 1.1 MW were shed."""
    end_early(monkeypatch, passes=8, together=grid_redispatch.MOST_REPLANS)
    case = load_case("case30")
    settings = make_settings(release="nothing", coordination="central")
    result = run(case, partition(case, 5), settings)
    assert result.redispatch.status == "feasible"
    assert result.physical["shed_mw"] == pytest.approx(0.0, abs=1e-3)


@pytest.mark.parametrize("base_mva", [100.0, 1.0])
def test_adjacent_zones_plan_the_tie_flows_that_a_shedding_zone_requests(
    base_mva: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No single zone can serve the load; zones that keep their interchange request nothing."""
    requests, honest = [], grid_redispatch._requested

    def watched(search, best, *, replan):
        kept = [replace(boundary, reserve=np.zeros(1)) for boundary in search.agreed]
        assert not list(honest(replace(search, agreed=kept), best, replan=replan))
        outcomes = list(honest(search, best, replan=replan))
        if replan:
            requests.append((best, search.better(best, *outcomes)))
        return outcomes

    monkeypatch.setattr(grid_redispatch, "_requested", watched)
    end_early(monkeypatch)
    case = on_base(load_case("case30"), base_mva)
    settings = make_settings(coordination="central", seed=12, **STRONG)
    result = run(case, partition(case, 4), settings)
    before, after = requests[0]
    assert before.status == after.status == result.redispatch.status == "feasible"
    assert after.state.shed_mw < before.state.shed_mw - 0.3
    assert result.physical["shed_mw"] <= after.state.shed_mw
    assert acopf(case, "shed").state.shed_mw == pytest.approx(0.0, abs=1e-3)


def test_zones_request_tie_flows_in_turn_until_all_load_is_served() -> None:
    """Angle limits of 7.4 degrees bind in all zones: 58.7 MW were shed though all can be served."""
    case = load_case("case24_ieee_rts")
    limit = np.full(case.n_branch, np.radians(7.4))
    case = replace(case, angmin=-limit, angmax=limit)
    settings = make_settings(coordination="central", seed=1, **STRONG)
    result = run(case, partition(case, 3), settings)
    assert acopf(case, "shed").state.shed_mw == pytest.approx(0.0, abs=1e-3)
    assert result.redispatch.status != "infeasible"
    assert result.physical["shed_mw"] == pytest.approx(0.0, abs=1e-3)

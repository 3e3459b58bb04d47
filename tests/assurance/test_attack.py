"""Attacks on messages: nearly all demands without noise, none with enough noise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from assurance_broken import prepared

from gridpriv.assurance.adversary import RecordedRound, record_run
from gridpriv.assurance.attack import (
    AttackOutcome,
    AttackPlan,
    AttackResult,
    attack,
    averaging,
    forward_model,
    noise_model,
    recovered,
    tie_distance,
    with_total,
    zone_prior,
)
from gridpriv.assurance.inversion import Identified, StationarityModel, identify
from gridpriv.cli.assurance import _print_attack
from gridpriv.consensus.messages import Reply
from gridpriv.core.errors import InputError
from gridpriv.privacy.adjacency import Beta

SILENT: dict[str, Any] = {
    "mechanism": "none",
    "update": "linearized",
    "start": "flat",
    "rounds": 5,
    "solver_tolerance": "tight",
}


@pytest.mark.parametrize("update", ["linearized", "exact"])
@pytest.mark.parametrize("start", ["flat", "warm"])
def test_forward_model_predicts_every_message(update: str, start: str) -> None:
    run = prepared(**(SILENT | {"update": update, "start": start, "rounds": 3}))
    network = record_run(run)
    for zone, problem in enumerate(run.problems):
        model = forward_model(run, zone, network.recorded[zone])
        predicted = model.predict(problem.program.zone.demand)
        np.testing.assert_allclose(predicted.sent, model.observed, atol=1e-6)


def test_derivative_of_a_local_update_against_differences() -> None:
    """Round 1 of zone 1, where no active set changes within the difference."""
    run = prepared(**(SILENT | {"rounds": 1}))
    model = forward_model(run, 0, record_run(run).recorded[0])
    demand = run.problems[0].program.zone.demand
    direction, h = np.random.default_rng(0).normal(size=len(demand)), 1e-3
    up, down = model.predict(demand + h * direction), model.predict(demand - h * direction)
    measured = (up.sent - down.sent) / (2.0 * h)
    stated = model.predict(demand).by_demand @ direction
    assert np.linalg.norm(measured) > 0.1
    assert np.linalg.norm(measured - stated) < 0.02 * np.linalg.norm(measured)


@pytest.mark.slow
def test_without_noise_boundary_messages_give_the_demands_of_case14() -> None:
    result = attack(prepared(**SILENT), AttackPlan(rounds=5))
    silent = result.summary().set_index("configuration").loc["noise-free"]
    assert round(float(silent["within_1mw"]) * 14) >= 12
    assert silent["of_prior"] < 0.1


@pytest.mark.slow
def test_demand_noise_at_the_size_of_the_load_leaves_the_prior() -> None:
    """Total epsilon 1 and beta the largest demand: the fit does no better than the prior."""
    run = prepared(
        update="exact", budget="total:1", beta="94.2MW", rounds=3, penalty="auto", release="bus"
    )
    result = attack(run, AttackPlan(seeds=3, rounds=3))
    table = result.summary().set_index(["configuration", "adversary"])
    seen = table.loc["protected", "messages"]
    assert seen["mae_mw"] + seen["interval_mw"] > 0.98 * table.loc["prior", "prior"]["mae_mw"]
    assert seen["recovered"] < 0.1


def test_sums_reveal_nothing_of_a_bus_but_its_zones_sum() -> None:
    """The adversary has every zone's total; with the grid's only, it learns the zones' totals."""
    given = {"mechanism": "laplace", "noise_schedule": "once", "rounds": 20, "beta": "10MW"}
    run = prepared(**given, budget="total:1", release="total")
    released_totals = {
        prior: attack(run, AttackPlan(seeds=3, rounds=1, prior=prior)) for prior in ("zone", "grid")
    }
    gain = {
        prior: result.errors(result.shown).mean(axis=0) / result.prior_errors
        for prior, result in released_totals.items()
    }
    assert (gain["zone"] > 1.0 - 1e-9).all()
    assert (gain["grid"] < 0.99).any()
    totals = [run.case.pd[zone.own].mean() for zone in run.zones]
    for zone, mean in zip(run.zones, totals, strict=True):
        assert released_totals["zone"].prior[zone.own] == pytest.approx(mean)


def test_better_than_the_prior_begins_at_a_hundredth_of_its_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Estimates are put at stated shares of the way from the true demand to the prior."""
    shares = np.ones(14)
    shares[:8] = 0.0, 0.5, 0.989, 0.991, 0.999, 1.0 - 1e-9, 1.0 + 1e-9, 1.5  # three are better
    run = prepared(**SILENT)
    load, prior = run.case.pd, np.full(14, 1.0)
    off = np.where(np.arange(14) % 2, 0.1, -0.1) * (prior - load)  # two seeds apart
    estimates = load + shares * (prior - load) + np.stack([off, -off])
    sides = np.sign(estimates - load) == np.sign(prior - load)
    assert sides[:, 1:].all()  # so that errors average to the stated share of the prior's
    estimates[:, 0] = load[0]
    outcomes = tuple(
        AttackOutcome(label, 1.0, "messages", estimate, np.zeros(14))
        for label, estimate in (("noise-free", np.stack([load, load])), ("protected", estimates))
    )
    every = np.arange(14)
    identified = {
        number: Identified(("hidden",) * len(zone.own), np.ones(14), np.ones(2), np.ones(2))
        for number, zone in enumerate(run.zones)
    }
    _print_attack(AttackResult(run, AttackPlan(seeds=2), every, every, prior, outcomes, identified))
    printed = " ".join(capsys.readouterr().out.split())
    assert (
        "Run protected, messages: at 3 of 14 buses the error is at least 1 % below the prior's. "
        "The prior is an equal share of the grid's total."
    ) in printed
    assert "Compare rows of one channel" not in printed  # both rows read messages


def test_a_beta_of_reactive_demand_is_no_bound_on_active_demand(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Errors are of active demand, in MW: a beta of 0.1 MVAr says nothing about them."""
    run = prepared(**SILENT)
    run = replace(run, settings=replace(run.settings, beta=Beta(0.1, "MW"), protects="q"))
    load, every = run.case.pd, np.arange(14)
    identified = {
        number: Identified(("hidden",) * len(zone.own), np.ones(14), np.ones(2), np.ones(2))
        for number, zone in enumerate(run.zones)
    }
    outcome = AttackOutcome("protected", 1.0, "releases", load[None] + 1.0, np.zeros(14))
    _print_attack(AttackResult(run, AttackPlan(), every, every, load + 1.0, (outcome,), identified))
    printed = " ".join(capsys.readouterr().out.split())
    assert "reveals active demand to 100 MW on average. --protects q does not protect" in printed
    assert "beta" not in printed


def test_a_negative_demand_is_recovered_within_5_percent_of_its_size() -> None:
    true = np.array([-100.0, 100.0, 0.0])
    assert recovered(np.array([4.9, 4.9, 0.04]), true).all()
    assert not recovered(np.array([5.1, 5.1, 0.06]), true).any()


def test_a_setting_that_reveals_loads_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    run, load = prepared(**SILENT), prepared(**SILENT).case.pd
    every = np.arange(14)
    identified = {
        number: Identified(("hidden",) * len(zone.own), np.ones(14), np.ones(2), np.ones(2))
        for number, zone in enumerate(run.zones)
    }
    close = np.stack([load + 0.01, load - 0.01])  # 1 MW on a base of 100
    # after a scale of 0.5 an error is compared with half of the owner's beta
    rows = ((0.9, 1.0, True), (0.4, 1.0, False), (1.8, 0.5, True), (0.9, 0.5, False))
    for beta, scale, warned in rows:
        settings = replace(run.settings, beta=Beta(beta, "MW"), load_scale=scale)
        at = replace(run, settings=settings)
        outcomes = tuple(
            AttackOutcome(label, 1.0, adversary, close, np.zeros(14))
            for label, adversary in (("noise-free", "messages"), ("protected", "releases"))
        )
        prior = np.full(14, 1.0)
        _print_attack(
            AttackResult(at, AttackPlan(seeds=2), every, every, prior, outcomes, identified)
        )
        printed = " ".join(capsys.readouterr().out.split())
        assert ("reveals demand to 1 MW" in printed) == warned
        assert ("load-scale" in printed) == (scale != 1.0)
        if warned and scale != 1.0:
            assert (
                "MW on average after --load-scale 0.5. Changes above beta (0.9 MW after " in printed
            )
        assert "Compare rows of one channel only" in printed


def test_document_and_tables_agree() -> None:
    """Two rounds give the four loads of zone 2 away, from boundary messages and no noise."""
    run = prepared(**(SILENT | {"rounds": 2}))
    result = attack(run, AttackPlan(rounds=2, bus=12))
    assert (result.errors(result.outcomes[0]) < 1.0).all()
    assert result.buses()["bus"].tolist() == [6, 11, 12, 13]
    document = result.as_dict()
    assert len(document["buses"]) == 4
    assert sum(row["buses"] for row in document["by_distance"]) == 4


def test_the_adversary_observes_exact_solves_whatever_the_run_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gridpriv.zonal.prepared.FEW_ZONES", 0)
    given = SILENT | {"update": "exact", "rounds": 2}
    matched, exact = (
        attack(
            prepared(**(given | {"solver_tolerance": solver_tolerance})),
            AttackPlan(rounds=2, bus=12),
        )
        for solver_tolerance in ("matched", "tight")
    )
    for first, other in zip(matched.outcomes, exact.outcomes, strict=True):
        np.testing.assert_array_equal(first.estimates, other.estimates)


@pytest.mark.parametrize(
    ("update", "objective"),
    [("linearized", "imbalance"), ("exact", "imbalance"), ("exact", "cost")],
)
def test_optimality_conditions_give_every_demand_away(update: str, objective: str) -> None:
    """All variables heard, no noise, two rounds: every load of zone 2 to a hundredth of a MW."""
    chosen = {"update": update, "objective": objective, "rounds": 2, "consensus": "all"}
    run = prepared(**(SILENT | chosen))
    result = attack(run, AttackPlan(rounds=2, bus=12))
    read = {outcome.adversary: result.errors(outcome).max() for outcome in result.outcomes}
    assert set(read) == {"messages", "stationarity"}
    assert read["stationarity"] < 0.01


def test_optimality_conditions_need_all_variables() -> None:
    run = prepared(**(SILENT | {"rounds": 1}))
    with pytest.raises(ValueError, match="every variable"):
        StationarityModel(forward_model(run, 0, record_run(run).recorded[0]))


def test_demands_that_messages_do_not_distinguish() -> None:
    """Exact updates on case118: the generators of zone 1 compensate changes of its demands."""
    run = prepared("case118", objective="imbalance", mechanism="none", update="exact", rounds=3)
    model = forward_model(run, 0, record_run(run).recorded[0])
    prior, demand = zone_prior(run, AttackPlan(), 0), run.zones[0].demand
    identified = identify(model, prior, demand, np.full(len(demand) // 2, 0.01))
    assert identified.rank <= 2
    assert set(identified.verdict) == {"unobservable"}
    change = identified.hidden * prior.spread
    change *= 0.3 / np.abs(change).max()  # 30 MW at one bus
    change_of_messages = model.predict(demand + change).sent - model.predict(demand).sent
    assert np.abs(change_of_messages).max() < 1e-6


def test_linearized_updates_hold_every_demand_of_case14() -> None:
    run = prepared(**(SILENT | {"rounds": 3}))
    network = record_run(run)
    for zone in range(3):
        model, demand = forward_model(run, zone, network.recorded[zone]), run.zones[zone].demand
        limit = np.full(len(demand) // 2, 0.01)
        identified = identify(model, zone_prior(run, AttackPlan(), zone), demand, limit)
        assert set(identified.verdict) == {"identifiable"}
        assert identified.rank == len(demand)


def test_distance_from_ties() -> None:
    """Zone {6, 11, 12, 13} of case14: 6, 11 and 13 end tie lines (5-6, 10-11, 13-14)."""
    run = prepared(**SILENT)
    distance = dict(zip(run.case.bus_id, tie_distance(run.case, run.zoning), strict=True))
    assert [distance[bus] for bus in (6, 11, 13, 12)] == [0, 0, 0, 1]


def test_bad_input_is_refused() -> None:
    run = prepared(**SILENT)
    with pytest.raises(InputError, match="bus = 99"):
        attack(run, AttackPlan(bus=99))
    with pytest.raises(InputError, match="mechanism"):
        attack(run, AttackPlan(totals=(1.0,)))
    with pytest.raises(InputError, match="seeds = 0"):
        AttackPlan(seeds=0)
    with pytest.raises(InputError, match="totals"):
        AttackPlan(totals=(0.0,))


@pytest.mark.slow
def test_noise_drawn_each_round_averages_out() -> None:
    run = prepared(
        update="linearized",
        start="flat",
        budget="per-release:20",
        protects="p",
        rounds=16,
        consensus="all",
    )
    table = averaging(run, AttackPlan(seeds=3, bus=12), (1, 16))
    mean = table.groupby(["noise_schedule", "rounds"])["mae_mw"].mean()
    assert mean["round", 16] < 0.5 * mean["round", 1]
    assert mean["once", 16] == pytest.approx(mean["once", 1], rel=0.01)


def test_noise_on_demand_is_modelled_in_units_of_the_demand_that_is_run() -> None:
    """The same megawatts: 10 at one bus of the scaled demand, at any scale."""
    variances = []
    for load_scale, beta in ((1.0, "10MW"), (0.5, "20MW")):
        run = prepared(mechanism="laplace", release="bus", beta=beta, load_scale=load_scale)
        assert run.rules.noise is not None
        sensitivity = run.problems[0].disclosure.sensitivity(run.rules.adjacency, 1)
        message = Reply(np.zeros(0), {run.rules.noise.release(sensitivity): 1})
        record = RecordedRound(1, np.zeros(0), np.zeros(0), 1.0, message, warm_start=False)
        variances.append(noise_model(run, [record]).variance)
    assert variances[0] == pytest.approx(variances[1])


@pytest.mark.parametrize("load_scale", [pytest.param(1.0, marks=pytest.mark.slow), 0.5])
def test_sums_reveal_a_zones_mean_and_nothing_of_a_bus(load_scale: float) -> None:
    """Without noise to speak of, the sum is known, and every bus is off by the same."""
    summed = prepared(
        mechanism="knorm",
        noise_schedule="once",
        release="total",
        budget="total:1e5",
        beta="1MW",
        solver="clarabel",
        seed=1,
        rounds=2,
        load_scale=load_scale,
    )
    result = attack(summed, AttackPlan(seeds=1, rounds=2))
    (outcome,) = [o for o in result.outcomes if o.adversary == "releases"]
    for zone in summed.zones:
        guess, true = outcome.estimates[0, zone.own], summed.case.pd[zone.own]
        assert guess.sum() == pytest.approx(true.sum(), abs=1e-3)
        assert np.ptp(guess) == pytest.approx(0.0, abs=1e-6)
    assert {o.adversary for o in result.outcomes if o.label == "protected"} == {"releases"}


@pytest.mark.parametrize(
    ("mechanism", "budget", "target", "total"),
    [
        ("gaussian", "per-release:1,1e-5", 1e-6, "total:2,1e-06"),
        ("gaussian", "per-release:1,1e-6", None, "total:2,1e-05"),
        ("gaussian", "total:1,1e-6", None, "total:2,1e-06"),
        ("laplace", "per-release:1,1e-5", 1e-6, "total:2"),
        ("laplace", "total:1,1e-6", None, "total:2,1e-06"),
    ],
)
def test_an_attack_at_another_total_has_the_delta_of_totals(
    mechanism: str, budget: str, target: float | None, total: str
) -> None:
    given: dict[str, Any] = {"mechanism": mechanism, "budget": budget, "target_delta": target}
    run = with_total(prepared(**given), 2.0)
    assert str(run.settings.budget) == total


def test_auxiliary_buses_are_not_attacked() -> None:
    """That a star point has no demand is public: it was the worst protected bus."""
    given = {"mechanism": "laplace", "noise_schedule": "once", "rounds": 20, "beta": "10MW"}
    run = prepared(**given, budget="total:1", release="total")
    star = run.case.bus_id == 7
    assert run.case.pd[star] == 0.0
    marked = replace(run, case=replace(run.case, auxiliary=star))
    result = attack(marked, AttackPlan(seeds=1, rounds=1))
    assert 7 not in result.buses()["bus"].tolist()
    assert len(result.attacked) == 13
    assert 7 not in result.worst()
    assert result.prior[~star] == pytest.approx(run.case.pd.sum() / 13)

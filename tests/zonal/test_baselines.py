"""Baselines of a run: noise-free, prior-only and the AC optimum, and the messages about them."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from sentences import series_sentences

from gridpriv import load_case, partition, run, shipped_zoning
from gridpriv.cli.main import main
from gridpriv.cli.run import summarise
from gridpriv.power.ac.newton import PowerFlowError
from gridpriv.power.ac.optimum import acopf
from gridpriv.report.panel import run_card
from gridpriv.zonal import run as zonal_run
from gridpriv.zonal.messages import TEMPLATES, messages
from gridpriv.zonal.meter import MOST_ZONES_NAMED
from gridpriv.zonal.run import reference
from gridpriv.zonal.settings import make_settings
from gridpriv.zonal.summary import (
    notes,
    released,
    results,
    summary_table,
)

pytestmark = pytest.mark.usefixtures("few_replans")

GRID = [
    "run",
    "case14",
    "--objective",
    "cost",
    "--rounds",
    "5",
    "--solver",
    "clarabel",
    "--planning",
    "soc",
    "--json",
]
ONCE = ["--mechanism", "knorm", "--noise-schedule", "once", "--beta", "20MW", "--seed", "4"]


def document_of(capsys, *flags):
    assert main([*GRID, *flags]) == 0
    return json.loads(capsys.readouterr().out)


def final(capsys, *flags):
    return document_of(capsys, *flags)["final"]


@pytest.fixture(scope="module")
def private():
    """Return the document of a private run with all its baselines."""
    case = load_case("case14")
    result = run(case, shipped_zoning(case), make_settings(seed=1))
    with_baselines = copy.copy(result)
    object.__setattr__(with_baselines, "reference", reference(result, 1.0))
    return with_baselines.as_dict()


def changed(document, *, physical=(), costs=(), settings=(), **more):
    """Return a copy of a document with other figures."""
    other = copy.deepcopy(document) | more
    other["final"]["physical"] |= dict(physical)
    other["final"]["cost_of_privacy"] |= dict(costs)
    other["settings"] |= dict(settings)
    return other


def codes(document):
    return [message.code for message in messages(document)]


def test_baselines_are_those_of_runs_that_ask_for_them(capsys):
    costs = final(capsys, *ONCE)["cost_of_privacy"]
    plain = final(capsys, "--mechanism", "none")["physical"]
    silent = final(capsys, *ONCE, "--release", "nothing", "--seed", "9")["physical"]
    assert costs["noise_free_cost"] == pytest.approx(plain["cost"], rel=1e-9)
    assert costs["prior_only_cost"] == pytest.approx(silent["cost"], rel=1e-9)
    assert costs["prior_only_shed_mw"] == silent["shed_mw"]
    assert costs["prior_only_balancing_mw"] == pytest.approx(silent["balancing_mw"], rel=1e-9)
    assert silent["balancing_mw"] > 1.0
    assert costs["noise_free_status"] == plain["status"]
    assert costs["prior_only_status"] == silent["status"]


def test_the_prior_of_a_scaled_run_expects_scaled_demand(capsys):
    """The factor is public, also without a release."""
    heavy = [*ONCE, "--load-scale", "1.2"]
    costs = final(capsys, *heavy)["cost_of_privacy"]
    silent = final(capsys, *heavy, "--release", "nothing", "--seed", "9")["physical"]
    assert costs["prior_only_cost"] == pytest.approx(silent["cost"], rel=1e-9)


def test_the_gap_is_to_the_ac_optimum(private):
    """MATPOWER's runopf of case14: 8,081.53 $/h."""
    costs, cost = private["final"]["cost_of_privacy"], private["final"]["physical"]["cost"]
    assert cost - costs["optimality_gap"] == pytest.approx(8081.53, abs=0.01)
    assert cost - costs["cost"] == pytest.approx(costs["noise_free_cost"], abs=1e-9)
    assert acopf(load_case("case14")).cost == pytest.approx(8081.53, abs=0.01)


def test_a_good_run_has_no_warning(private):
    warnings = {m.code for m in messages(private) if m.severity == "warning"}
    assert warnings <= {"meter", "meter-advice"}, "meters are no fault of the run"
    assert private["messages"] == [m.as_dict() for m in notes(private)]


def test_a_budget_that_costs_more_than_prior_only_is_the_first_message(capsys):
    noise = ["--perturbation", "objective", "--beta", "20MW", "--seed", "4"]
    document = document_of(capsys, *noise, "--mechanism", "laplace", "--budget", "total:0.1")
    physical, costs = document["final"]["physical"], document["final"]["cost_of_privacy"]
    worse = physical["cost"] is None or physical["cost"] > costs["prior_only_cost"]
    assert worse
    assert {"dearer-than-prior-only", "worse-than-prior-only"} & set(codes(document))


@pytest.mark.parametrize(
    ("cost", "prior", "expected"),
    [(10.0, 12.0, False), (10.0, 10.0, False), (12.0, 10.0, True), (-9.0, -9.0, False)],
)
def test_a_run_is_dearer_than_the_prior_only_baseline_where_it_is(private, cost, prior, expected):
    for key, code in (("cost", "dearer"), ("shed_mw", "sheds-more")):
        costs = {"prior_only_cost": None, "prior_only_shed_mw": 0.0} | {f"prior_only_{key}": prior}
        document = changed(private, physical={key: cost}, costs=costs)
        assert (f"{code}-than-prior-only" in codes(document)) == expected


def test_costs_within_the_effect_of_rounds_are_reported_as_close(private):
    """On case300 the cost of prior-only changes by 0.18 % with the number of rounds."""
    for cost, near in ((8107.0, True), (8090.8, True), (8112.0, False), (9000.0, False)):
        document = changed(private, physical={"cost": cost}, costs={"prior_only_cost": 8090.7})
        for on_ac in (True, False):  # rounds on the AC equations reach one optimum to 1e-6
            document["final"]["ac_rounds"]["converged"] = on_ac
            (message,) = (m for m in messages(document) if m.code == "dearer-than-prior-only")
            assert ("either may be the cheaper" in str(message)) == (near and not on_ac)
        if cost == 8090.8:
            assert "8090.80 against 8090.70" in str(message)
        central = changed(document, settings={"coordination": "central"})
        assert "either" not in " ".join(map(str, messages(central)))


@pytest.mark.parametrize("converged", [True, False])
@pytest.mark.parametrize(
    ("cost", "near"), [(8090.6, True), (8075.0, True), (8070.0, False), (8090.7, False)]
)
def test_a_saving_within_the_effect_of_rounds_is_reported_as_close(private, cost, near, converged):
    document = changed(private, physical={"cost": cost}, costs={"prior_only_cost": 8090.7})
    document["final"]["ac_rounds"]["converged"] = converged
    texts = [str(m) for m in messages(document) if "either may be the cheaper" in str(m)]
    assert len(texts) == (near and not converged)
    assert all(
        "costs less than" in text and f"{cost:.2f} against 8090.70" in text for text in texts
    )


def test_a_run_without_a_dispatch_is_worse_than_one_with(private):
    document = changed(private, physical={"cost": None, "status": "infeasible"})
    assert "worse-than-prior-only" in codes(document)


def test_a_negative_cost_of_privacy_is_chance_only_over_an_optimal_baseline(private):
    for cost, gap, expected in (
        (-0.67, 14.0, "14.67 $/h above"),  # it leaves room for a systematic saving
        (-0.67, None, "That is chance."),
        (-0.67, -0.67, None),  # below the optimum: rounding, not chance
        (0.0, 14.0, None),
        (0.67, 14.0, None),
        (None, None, None),
    ):
        document = changed(private, costs={"cost": cost, "optimality_gap": gap})
        text = " ".join(str(m) for m in messages(document) if m.code == "negative-cost-of-privacy")
        assert (expected in text) if expected else not text
        assert ("chance" in text) == (expected == "That is chance.")
        silent = changed(document, settings={"release": "nothing"})
        assert "negative-cost-of-privacy" not in codes(silent)  # it has no noise


@pytest.mark.parametrize(
    ("difference", "printed", "words"),
    [
        (50.0, "50.00", "5.0 % over noise-free"),
        (-50.0, "-50.00", "5.0 % below noise-free"),
        (0.0041, "0.00", "over noise-free"),
        (-0.0041, "0.00", "over noise-free"),
        (0.0, "0", "over noise-free"),
    ],
)
def test_a_difference_keeps_its_sign_and_below_rounding_there_is_no_verdict(
    private, difference, printed, words
):
    costs = {"cost": difference, "noise_free_cost": 1000.0, "optimality_gap": None}
    costs |= {"prior_only_cost": 1000.0, "prior_only_shed_mw": 0.0}
    document = changed(private, physical={"cost": 1000.0 + difference}, costs=costs)
    (row,) = [row for row in results(document) if row[0] == "cost of privacy"]
    assert (str(row[1]), row[3]) == (printed, words)
    verdicts = {"dearer-than-prior-only", "negative-cost-of-privacy"} & set(codes(document))
    expected = "dearer-than-prior-only" if difference > 0 else "negative-cost-of-privacy"
    assert verdicts == ({expected} if abs(difference) > 1.0 else set())


VIOLATION = {
    "kind": "line",
    "element": 3,
    "at": "1-2",
    "limit": "upper",
    "amount": 4.5,
    "unit": "MVA",
}


def test_infeasible_and_marginal_states_are_named_with_their_limits(private):
    for status in ("infeasible", "marginal"):
        document = changed(
            private,
            physical={"status": status, "violations": [VIOLATION] * 5},
            costs={"least_shed_mw": 12.5},
        )
        (message,) = (m for m in messages(document) if m.code == status)
        assert "rating of branch 1-2 by 4.5 MVA" in str(message) and "and 2 more" in str(message)
        assert ("sheds at least 12.50 MW" in str(message)) == (status == "infeasible")
        assert message.severity == "warning"
    failed = changed(private, physical={"failure": "no solution near bus 4"})
    (text,) = (str(m) for m in messages(failed) if m.code == "no-power-flow")
    assert "fails. No solution" in text


@pytest.mark.parametrize(
    ("run_status", "baseline", "code"),
    [
        ("infeasible", "feasible", "noise-free-feasible"),
        ("infeasible", "infeasible", "noise-free-infeasible"),
        ("feasible", "infeasible", "noise-free-infeasible"),
        ("feasible", "feasible", None),
        ("infeasible", None, None),
    ],
)
def test_the_noise_free_baseline_is_reported_where_it_matters(private, run_status, baseline, code):
    document = changed(
        private,
        physical={"status": run_status, "violations": [VIOLATION]},
        costs={"noise_free_status": baseline},
    )
    text = [c for c in codes(document) if c.startswith("noise-free-")]
    assert text == ([code] if code else [])


@pytest.mark.parametrize(
    ("residual", "expected"),
    [(0.0312, True), (0.0100001, True), (0.01, False), (1e-9, False), (None, False)],
)
def test_a_noise_free_baseline_that_has_not_converged_is_reported(private, residual, expected):
    document = changed(private, costs={"noise_free_residual": residual})
    text = [str(m) for m in messages(document) if m.code == "noise-free-not-converged"]
    assert len(text) == expected
    if expected:
        assert f"residual {residual:.4g} p.u.), so the cost of privacy is approximate" in text[0]
        unpriced = changed(document, costs={"cost": None})
        assert "approximate" not in " ".join(map(str, messages(unpriced)))


@pytest.mark.parametrize(
    ("mechanism", "noise_schedule", "release", "code"),
    [
        ("none", "once", "bus", "not-converged"),
        ("knorm", "once", "bus", "not-converged"),
        ("laplace", "round", "bus", "not-converged-fresh-noise"),
        ("laplace", None, "bus", "not-converged-fresh-noise"),
        ("laplace", "round", "nothing", "not-converged"),
    ],
)
def test_a_run_that_has_not_converged_is_advised_what_helps(
    private, mechanism, noise_schedule, release, code
):
    settings = {
        "mechanism": mechanism,
        "noise_schedule": noise_schedule,
        "release": release,
        "rounds": 1,
    }
    document = changed(private, settings=settings, rounds=[{}])
    document["final"] |= {"consensus_residual": 0.3, "ac_rounds": None}
    assert code in codes(document)


def test_balancing_power_without_noise_is_a_warning(private):
    for balancing, text in ((1.0, False), (30.0, True)):
        document = changed(
            private, physical={"balancing_mw": balancing}, settings={"mechanism": "none"}
        )
        assert ("balancing-without-noise" in codes(document)) == text
        assert "balancing-without-noise" not in codes(
            changed(document, settings={"mechanism": "laplace"})
        )


def test_load_that_unused_capacity_could_serve_is_named_also_in_a_grid_short_of_capacity(private):
    assert private["final"]["physical"]["unused_capacity_mw"] == 0.0  # no load is shed
    rows = copy.deepcopy(private["final"]["physical"]["interchange"])
    rows[0] |= {"shed_mw": 20.0, "actual_mw": 30.0}
    stranded, short = "shed-by-exporters", "short-of-capacity"
    for unused, expected in ((100.0, {stranded}), (5.0, {stranded, short}), (0.01, {short})):
        physical = {"interchange": rows, "unused_capacity_mw": unused, "shed_mw": 20.0}
        document = changed(private, physical=physical)
        assert {stranded, short} & set(codes(document)) == expected
        texts = {note.code: str(note) for note in messages(document)}
        if short in expected:  # load and losses - capacity = load shedding - unused capacity
            assert f"by {20.0 - unused:.2f} MW" in texts[short]
        if stranded in expected:
            assert texts[stranded].endswith(
                "gridpriv relax case14 names the limits that cause the shedding."
            )


def test_exporters_are_not_blamed_for_load_of_a_deenergized_island(private):
    rows = copy.deepcopy(private["final"]["physical"]["interchange"])
    rows[0] |= {"shed_mw": 20.0, "actual_mw": 30.0}
    for island, blamed in ((0.0, True), (15.0, True), (20.0, False)):
        physical = {"interchange": rows, "shed_mw": 20.0, "deenergized_mw": island}
        physical |= {"unused_capacity_mw": 100.0}
        assert ("shed-by-exporters" in codes(changed(private, physical=physical))) == blamed


@pytest.mark.parametrize(
    ("unused", "island", "status", "short"),
    [
        (5.0, 0.0, "feasible", "15.00"),
        (9.0, 0.0, "marginal", "11.00"),
        (5.0, 4.0, "feasible", "11.00"),
        (20.0, 0.0, "feasible", None),
        (5.0, 0.0, "infeasible", None),
    ],
)
def test_demand_exceeds_capacity_by_shed_load_less_unused_capacity(
    private, unused, island, status, short
):
    """Load of de-energized islands has no capacity to exceed."""
    physical = {"shed_mw": 20.0, "unused_capacity_mw": unused, "interchange": []}
    document = changed(private, physical=physical | {"deenergized_mw": island, "status": status})
    texts = {note.code: str(note) for note in messages(document)}
    assert ("short-of-capacity" in texts) == (short is not None)
    if short:
        assert texts["short-of-capacity"].endswith(f"by {short} MW.")


def test_advice_on_unused_capacity_is_a_whole_command(private):
    rows = copy.deepcopy(private["final"]["physical"]["interchange"])
    rows[0] |= {"shed_mw": 20.0, "actual_mw": 30.0}
    physical = {"interchange": rows, "shed_mw": 20.0, "unused_capacity_mw": 100.0}
    settings = {"load_scale": 1.3, "outage": ["branch:2"]}
    document = changed(private, physical=physical, settings=settings)
    texts = {note.code: str(note) for note in messages(document)}
    command = "gridpriv relax case14 --load-scale 1.3 --outage branch:2 names"
    assert command in texts["shed-by-exporters"]


def test_every_template_takes_its_values(private):
    """No message that a document gives rise to lacks a value, and every text ends a sentence."""
    for code, (severity, template) in TEMPLATES.items():
        assert severity in ("info", "warning")
        assert template.endswith((".", "least}", "gap}", "chance}", "caveat}", "payment}"))
        assert code == code.lower()
    assert all(str(message).endswith(".") for message in messages(private))


def test_a_baseline_without_a_power_flow_sheds_nothing_that_is_known(monkeypatch):
    """Its zones' plans alone shed nothing; no grid has served them."""
    case, settings = load_case("case14"), make_settings(rounds=1, mechanism="laplace", seed=1)
    result = run(case, shipped_zoning(case), settings)

    def lost(*_: object) -> None:
        raise PowerFlowError(3, 1.0)

    monkeypatch.setattr("gridpriv.power.ac.grid_redispatch.ac_flow", lost)
    baselines = reference(result, 1.0)
    assert (baselines.noise_free_status, baselines.prior_only_status) == ("infeasible",) * 2
    assert baselines.noise_free_shed_mw is None
    assert baselines.prior_only_shed_mw is None


def test_a_prior_only_baseline_that_is_not_feasible_has_a_row(private):
    for status, cell in (("infeasible", "no"), ("marginal", "marginal")):
        document = changed(private, costs={"prior_only_status": status})
        rows = {row[0]: row[1] for row in summary_table(document)[2]}
        assert rows["AC-feasible, prior-only"] == cell
    assert "AC-feasible, prior-only" not in {row[0] for row in summary_table(private)[2]}


@pytest.mark.parametrize(("heavy", "noise"), [(0, 0), (1, 1)])
def test_no_state_after_shortage_has_a_generator_above_its_limit(capsys, heavy, noise):
    """At four times its load, with much noise and an outage: by the run's own tables."""
    words = [["--load-scale", "4"], ["--load-scale", "3", "--outage", "branch:1"]][heavy]
    noisy = ["--budget", "total:0.3", "--beta", "30MW", "--seed", "3"]
    more = [noisy, ["--mechanism", "none"]][noise]
    document = document_of(capsys, *words, *more, "--no-reference")
    kinds = {(v["kind"], v["limit"]) for v in document["final"]["physical"]["violations"]}
    assert ("generator P", "upper") not in kinds


@pytest.mark.slow
@pytest.mark.usefixtures("all_replans")
@pytest.mark.parametrize("heavy", [0, 1])
@pytest.mark.parametrize("noise", [0, 1])
def test_no_state_after_all_replans_has_one_either(capsys, heavy, noise):
    test_no_state_after_shortage_has_a_generator_above_its_limit(capsys, heavy, noise)


def test_a_series_says_how_many_steps_and_baselines_are_feasible():
    steps = [
        {
            "step": str(k),
            "consensus_residual": 0.0,
            "cost": None,
            "status": "feasible" if k else "infeasible",
            "noise_free_status": "feasible",
            "prior_only_status": silent,
        }
        for k, silent in enumerate(("feasible", "infeasible", None))
    ]
    text = series_sentences(steps, 3, {"voll": 1.0, "objective": "cost"})
    assert text[1:4] == [
        "AC-feasible steps: 2 of 3.",
        "AC-feasible steps of the noise-free baseline: 3 of 3.",
        "AC-feasible steps of the prior-only baseline: 1 of 2.",
    ]
    bare = [{k: v for k, v in step.items() if "_status" not in k} for step in steps]
    text = series_sentences(bare, 3, {"voll": 1.0, "objective": "cost"})
    assert "AC-feasible steps: 2 of 3." in text


def test_a_series_says_in_how_many_steps_the_noise_free_baseline_has_not_converged():
    steps = [
        {"step": str(k), "consensus_residual": 0.0, "cost": None, "noise_free_residual": residual}
        for k, residual in enumerate((0.5, 0.02, 1e-3, None))
    ]
    settings = {"voll": 1.0, "objective": "cost"}
    text = " ".join(series_sentences(steps, 4, settings))
    assert "In 2 steps, the noise-free baseline has not converged" in text and "0.5 p.u." in text
    assert "approximate" not in text
    steps[3]["noise_free_cost"] = 8.0
    assert "approximate" in series_sentences(steps, 4, settings)[-1]
    assert not any("noise-free baseline" in s for s in series_sentences(steps[2:], 2, settings))


def test_baselines_are_computed_on_request_only(capsys):
    assert final(capsys, *ONCE, "--no-reference")["cost_of_privacy"] is None


def test_statistics_that_auto_chose_are_named_and_a_zone_of_one_bus_too(capsys, tmp_path):
    zones = tmp_path / "zones.csv"
    rows = [f"{bus},{'alone' if bus == 8 else 'rest'}" for bus in range(1, 15)]
    zones.write_text("bus,zone\n" + "\n".join(rows))
    words = [*GRID[:-1], *ONCE, "--no-reference", "--zoning", str(zones)]
    assert main([*words, "--release", "auto"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert re.search(r"Released: .*(?:bus values|zone total) by zones? (?:alone, )?rest ", text)
    assert "Zones of one bus release that bus's demand: alone." in text
    assert main([*words, "--release", "bus"]) == 0
    assert "Released: " not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("zones", "expected"),
    [
        (
            MOST_ZONES_NAMED,
            "Released: bus values and zone total by zones 1, 2 (--release tree); bus values by "
            "zones 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 (--release bus).",
        ),
        (
            MOST_ZONES_NAMED + 12,
            "Released: bus values and zone total by zones 1, 2 (--release tree); bus values by 22 "
            "zones (--release bus).",
        ),
    ],
)
def test_of_many_zones_the_number_of_each_statistic_is_given(zones, expected):
    rows = [
        {"zone": str(z), "statistics": "tree" if z < 3 else "bus", "expected_error_mw": float(z)}
        for z in range(1, zones + 1)
    ]
    sized = [{"zone": str(z), "buses": 2} for z in range(1, zones + 1)]
    document = {"released": rows, "zones": sized, "settings": {"release": "auto"}}
    assert expected in str(released(document)[0])


@pytest.mark.parametrize("scale", ["1.3", pytest.param("2.2", marks=pytest.mark.slow)])
def test_a_run_that_releases_nothing_speaks_of_no_noise(capsys, scale):
    silent = ["--release", "nothing", "--seed", "1", "--load-scale", scale]
    assert main([*GRID[:-1], *silent]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "no demand released" in text
    assert "simulated noise" not in text and "noise on" not in text and "drawn" not in text
    assert "than the prior-only baseline" not in text


def test_the_price_of_a_run_is_its_cost_and_certificate(private):
    facts = verdict_of(private)
    assert facts["Certified total"] == "epsilon 5"
    assert facts["Cost"] == f"{private['final']['physical']['cost']:.2f} $/h"


def test_labels_of_a_report_keep_capital_letters(private):
    """A label in its own case: AC is an abbreviation."""
    labels = verdict_of(changed(private, costs={"prior_only_status": "infeasible"}))
    assert "AC-feasible, prior-only" in labels


def verdict_of(document):
    return {fact.label: fact.value for fact in run_card(document).facts}


def test_a_run_that_releases_nothing_is_its_own_baseline(capsys):
    result = final(capsys, "--release", "nothing", "--seed", "1")
    baseline = result["cost_of_privacy"]["prior_only_cost"]
    assert result["physical"]["cost"] == pytest.approx(baseline, rel=1e-9)


def test_what_is_released_for_scaled_demand_errs_by_scaled_power(capsys):
    """Other zones use the estimate of the owner's release, times the public factor."""
    item, half = (
        document_of(capsys, *ONCE, "--no-reference", "--load-scale", factor)["released"]
        for factor in ("1", "0.5")
    )
    for row, scaled in zip(item, half, strict=True):
        assert scaled["expected_error_mw"] == pytest.approx(0.5 * row["expected_error_mw"])


def test_a_run_that_releases_nothing_is_at_epsilon_0(capsys):
    silent = document_of(capsys, "--release", "nothing", "--seed", "1", "--no-reference")
    assert verdict_of(silent)["Certified total"] == "epsilon 0"
    bare = document_of(capsys, "--mechanism", "none", "--no-reference")
    assert verdict_of(bare)["Privacy"] == "none"


def test_what_a_release_saves_is_in_percent_of_the_prior_only_cost(private) -> None:
    costs = {"prior_only_cost": 400.0, "noise_free_cost": 200.0}
    document = changed(private, physical={"cost": 300.0}, costs=costs)
    rows = {name: words for name, _, _, words in results(document)}
    assert rows["cost saved by the release"] == "25 % of prior-only (epsilon = 0)"
    lost = changed(private, physical={"cost": 500.0}, costs=costs)
    extra = {name: (str(value), words) for name, value, _, words in results(lost)}
    assert extra["extra cost of the release"] == ("100.00", "25 % of prior-only (epsilon = 0)")
    assert "cost saved by the release" not in extra
    document["settings"]["release"] = "nothing"
    assert "cost saved by the release" not in {row[0] for row in results(document)}, (
        "nothing released"
    )


def test_the_prior_only_balancing_power_follows_the_saving_that_leaves_it_out(private) -> None:
    costs = {"prior_only_cost": 400.0, "prior_only_balancing_mw": 8.77}
    document = changed(private, physical={"cost": 300.0}, costs=costs)
    rows = {row[0]: row for row in results(document)}
    names = list(rows)
    assert names[names.index("cost saved by the release") + 1] == "balancing power, prior-only"
    assert [str(cell) for cell in rows["balancing power, prior-only"][1:3]] == ["8.770", "MW"]
    document["settings"]["release"] = "nothing"
    assert "balancing power, prior-only" not in {row[0] for row in results(document)}


def test_a_noisy_run_says_next_to_its_figures_that_they_are_of_one_draw(private, capsys):
    summarise(private)
    _, _, rest = capsys.readouterr().out.partition("highest voltage")
    assert "Other noise gives other figures" in rest.splitlines()[2]
    quiet = changed(private, settings={"release": "nothing"})
    summarise(quiet)
    assert "one draw" not in capsys.readouterr().out


def test_balancing_power_is_next_to_the_cost_of_privacy_with_its_value(private):
    physical = {"cost": 300.0, "balancing_mw": 25.9, "balancing_cost": 25900.0}
    document = changed(private, physical=physical, costs={"cost": 1.0, "noise_free_cost": 299.0})
    names = [row[0] for row in results(document)]
    assert names[names.index("cost of privacy") + 1] == "balancing power"
    note = results(document)[names.index("balancing power")][3]
    assert note == "deviation, 10 % of the gross demand"
    (text,) = (str(m) for m in messages(document) if m.code == "costs-include")
    assert "At 1000 $/MWh (--balancing-price), that power is worth 25900.0 $/h" in text
    assert " pay " not in text, "no rule says which zone pays"
    beyond = changed(private, physical={"balancing_mw": 2590.0})
    (row,) = (row for row in results(beyond) if row[0] == "balancing power")
    assert row[3] == "deviation, 10 times the gross demand", "2590 MW of 259 MW"
    physical |= {"balancing_mw": 0.43749, "balancing_cost": 437.49}
    physical |= {"worst_loading_percent": 100.06, "worst_branch": "6-8"}
    document = changed(private, physical=physical)
    rows = {row[0]: row for row in results(document)}
    (text,) = (str(m) for m in messages(document) if m.code == "costs-include")
    assert " 437.49 $/h" in text, "of the power, not of 0.437 MW as printed"
    assert rows["largest loading (6-8)"][1] == "100.06", "above the rating"


@pytest.mark.parametrize("island_mw", [0.0, 3.0])
def test_islands_are_named_where_there_are_some(private, island_mw):
    shed = {"shed_mw": 5.0 + island_mw}
    costs = {"island_mw": island_mw, "unavoidable_mw": 5.0}
    document = changed(private, physical=shed, costs=costs)
    notes_of = {str(name).strip(): note for name, _, _, note in results(document)}
    assert notes_of["in the AC optimum"] == ("beyond islands" if island_mw else "")
    assert ("on de-energized islands" in notes_of) == bool(island_mw)


@pytest.mark.parametrize("least", [5.0, 5.6])
def test_the_optimum_s_load_shedding_is_never_replaced_by_that_of_the_run(private, least):
    """Ipopt's optimum is local, and can shed more than the run (case24_ieee_rts__api, 1.15)."""
    costs = {"optimum_shed_mw": least, "island_mw": 0.0, "unavoidable_mw": min(least, 5.3)}
    document = changed(private, physical={"shed_mw": 5.3}, costs=costs)
    rows = {str(name).strip(): str(value) for name, value, *_ in results(document)}
    printed = {"in the AC optimum", "load shedding, AC optimum"} & set(rows)
    assert [rows[name] for name in printed] == [f"{least:.3f}"]
    assert ("load shedding, AC optimum" in rows) == (least > 5.3)


@pytest.mark.parametrize("release", ["tree", "nothing"])
def test_noise_is_no_cause_of_load_shedding_where_nothing_is_released(private, release):
    costs = {"optimum_shed_mw": 5.0, "unavoidable_mw": 5.0, "noise_mw": 10.0}
    document = changed(
        private, physical={"shed_mw": 15.0}, costs=costs, settings={"release": release}
    )
    names = {str(row[0]).strip() for row in results(document)}
    cause = "due to the noise" if release == "tree" else "due to error of the prior"
    assert {name for name in names if name.startswith("due to")} == {cause}


@pytest.mark.parametrize(
    ("beta", "scale", "expected"),
    [("1MW", 1.3, "change is 1.3 MW."), ("0.01", 0.5, "change is 0.005 p.u."), ("1MW", 1.0, "")],
)
def test_the_protected_change_of_scaled_demand_is_stated_in_megawatts(
    private, beta, scale, expected
):
    document = changed(private, settings={"beta": beta, "load_scale": scale})
    texts = {note.code: str(note) for note in notes(document)}
    assert (expected in texts["protected-scaled"]) if expected else "protected-scaled" not in texts


@pytest.mark.parametrize(
    ("balancing", "prior", "cost", "expected"),
    [(77.8, 8.8, 300.0, True), (8.8, 8.8, 300.0, False), (77.8, 8.8, 500.0, False)],
)
def test_a_release_that_saves_cost_and_draws_more_balancing_power_does_not_pay(
    private, balancing, prior, cost, expected
) -> None:
    costs = {"prior_only_cost": 400.0, "prior_only_balancing_mw": prior}
    physical = {"cost": cost, "balancing_mw": balancing}
    document = changed(private, physical=physical, costs=costs)
    assert ("more-balancing-than-prior-only" in codes(document)) == expected


def test_a_cost_below_the_optimum_is_laid_to_rounding_not_to_chance(private):
    for gap, expected in ((-6.96, True), (-1e-9, False), (6.96, False), (None, False)):
        document = changed(private, costs={"cost": gap, "optimality_gap": gap})
        assert ("below-optimum" in codes(document)) is expected
        if expected:
            assert "negative-cost-of-privacy" not in codes(document)


@pytest.mark.large
def test_the_ac_optimum_is_no_worse_than_a_state_that_the_run_found():
    """From a flat start Ipopt ends at 769,526 $/h, with 1,068 MW more of curtailed generation."""
    case = load_case("pglib_opf_case179_goc__sad")
    load = 0.9056 * np.exp(np.random.default_rng(842951).normal(0.0, 0.15, case.n_bus))
    case = replace(case, pd=load * case.pd, qd=load * case.qd)
    result = run(case, partition(case, 8), make_settings(mechanism="none"))
    assert result.redispatch.status == "feasible"
    assert reference(result, 1.0).optimum_cost == pytest.approx(result.physical["cost"], rel=1e-5)


def test_a_worse_local_optimum_is_searched_again_from_the_state_of_the_run(monkeypatch):
    result = run("case14", settings=make_settings(mechanism="none"))
    honest = acopf(result.case)

    def local(case, objective, voll, near=None):
        """Ipopt from a flat start, as if it ended where the dearest generator runs at 50 MW."""
        pmin = np.where(np.arange(case.n_gen) == 2, 0.5, case.pmin)
        return acopf(replace(case, pmin=pmin) if near is None else case, objective, voll, near=near)

    monkeypatch.setattr(zonal_run, "acopf", local)
    assert local(result.case, "cost", 1e4).cost > 1.001 * honest.cost
    assert reference(result, 1.0).optimum_cost == pytest.approx(honest.cost, rel=1e-7)


def test_a_local_optimum_that_sheds_more_than_the_run_is_searched_again(monkeypatch):
    """The flat start is made to end where another generator has half of its capacity."""
    case = load_case("case14").scale_load(2.0).without(("gen:1",))
    result = run(case, partition(case, 3), make_settings(mechanism="none"))
    honest = acopf(case, "shed").state.shed_mw
    assert honest > 1.0

    def local(case, objective, voll, near=None):
        pmax = np.where(np.arange(case.n_gen) == 0, 0.5, 1.0) * case.pmax
        return acopf(replace(case, pmax=pmax) if near is None else case, objective, voll, near=near)

    monkeypatch.setattr(zonal_run, "acopf", local)
    assert local(case, "shed", 1e4).state.shed_mw > honest + 10.0
    assert reference(result, 1.0).least_shed_mw == pytest.approx(honest, abs=0.01)

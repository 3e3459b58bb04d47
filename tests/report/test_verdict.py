"""Verdict cards and messages of a study, computed again from its runs."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import gridpriv
from gridpriv.core.store import Study
from gridpriv.report.contents import contents
from gridpriv.report.export import make_report, study_messages, to_html
from gridpriv.report.figures import split_bars
from gridpriv.report.panel import cards
from gridpriv.report.source import (
    COSTS,
    TEMPLATES,
    rank,
    read_source,
    summary,
    with_cost_of_privacy,
)
from gridpriv.study import Method, compare, make_plan
from gridpriv.zonal.messages import TEMPLATES as OF_RUNS

COST = next(metric for metric in COSTS if metric.key == "cost_of_privacy")
TOTAL = "total:5,1e-05"
PLAIN = {
    "case": "case14",
    "zoning": "",
    "load_scale": 1.0,
    "local_updates": 1,
    "status": "done",
    "ac_feasible": True,
    "consensus_residual": 1e-4,
    "redispatch_shed_mw": 0.0,
    "target_delta": 1e-5,
    "configuration": "c",
    "noise_schedule": "once",
    "mechanism": "laplace",
    "total_epsilon": 5.0,
    "noise": "simulated",
    "protects": "p+q",
    "protection": "a change",
}


def method(name: str, costs: list[float], **other: Any) -> list[dict[str, Any]]:
    return [
        PLAIN | {"method": name, "budget": TOTAL, "seed": n, "cost": c} | other
        for n, c in enumerate(costs, 1)
    ]


def noise_free(cost: float, name: str = "noise-free", **other: Any) -> list[dict[str, Any]]:
    quiet = {"budget": "none", "mechanism": "none", "total_epsilon": None} | other
    return method(name, [cost], **quiet)


def prior_only(cost: float, **other: Any) -> list[dict[str, Any]]:
    return method("prior-only", [cost], budget="nothing", total_epsilon=0.0, **other)


def made(*groups: list[dict[str, Any]], **manifest: Any) -> Study:
    runs = pd.DataFrame([row for group in groups for row in group])
    runs["run"] = [str(k) for k in range(len(runs))]
    bare = pd.DataFrame({"run": pd.Series(dtype=str)})
    tables = dict.fromkeys(("rounds", "zones", "buses", "certificates", "timing"), bare)
    manifest_entries = {"title": "", "question": "", "study": {}, "planned": len(runs)} | manifest
    return Study(Path("none"), manifest_entries, {"runs": runs} | tables)


def codes(study: Study) -> set[str]:
    return {m.code for m in study_messages(study, summary(study))}


def texts_of(study: Study, code: str) -> list[str]:
    return [str(m) for m in study_messages(study, summary(study)) if m.code == code]


def test_a_method_is_ranked_first_where_its_paired_difference_is_significant() -> None:
    base = np.array([10.0, 400.0, 90.0, 220.0, 310.0])  # seeds matter more than methods
    for gap, significant in (
        (np.array([4.0, 5.0, 4.0, 6.0, 5.0]), True),
        (np.array([40.0, -50.0, 4.0, -6.0, 50.0]), False),
    ):
        study = made(
            noise_free(8000.0), method("a", list(8000 + base)), method("b", list(8000 + base + gap))
        )
        p = stats.ttest_1samp(gap, 0.0).pvalue
        assert (p < 0.05) == significant
        assert ("lowest" in codes(study)) == significant
        assert ("not-distinguishable" in codes(study)) == (not significant)
        assert ("next-seeds" in codes(study)) == (not significant)


def test_equal_methods_are_distinguished_in_at_most_one_study_of_twenty() -> None:
    """Six equal methods: each pair at 95 % distinguishes some in a third of studies."""
    rng, ranked, trials = np.random.default_rng(3), 0, 100
    for _ in range(trials):
        runs = pd.DataFrame(
            [
                {"series": f"m{k}", "seed": seed, "budget": TOTAL, "cost_of_privacy": cost}
                for k in range(6)
                for seed, cost in enumerate(rng.normal(50.0, 20.0, 5))
            ]
        )
        ranked += len(rank(runs, COST).leaders) < 6
    assert ranked <= 0.05 * trials + 2.0 * math.sqrt(0.05 * 0.95 * trials)


def test_one_seed_is_never_a_ranking() -> None:
    study = made(noise_free(8000.0), method("a", [8001.0]), method("b", [8900.0]))
    assert {"one-seed", "next-seeds"} <= codes(study) and "lowest" not in codes(study)


def test_a_method_with_failed_runs_is_not_ranked() -> None:
    """Its mean is over the seeds that succeeded; the others had a message of one seed each."""
    failed = method("c", [0.0] * 2, status="failed", cost=math.nan, ac_feasible=None)
    study = made(
        noise_free(8000.0),
        method("a", [8001.0, 8002.0, 8003.0]),
        method("b", [8900.0, 8950.0, 8970.0]),
        method("c", [8000.5]),
        [row | {"seed": row["seed"] + 1} for row in failed],
    )
    assert {"partly-failed", "lowest"} <= codes(study) and "one-seed" not in codes(study)
    assert '"c": 2 of 3' in texts_of(study, "partly-failed")[0]
    assert '"a"' in texts_of(study, "lowest")[0]


@pytest.mark.parametrize(
    ("costs", "code"),
    [((5.0, 2.0, 3.0), "lowest-noise-free"), ((2.0, 2.0, 2.0), "not-distinguishable")],
)
def test_noise_free_methods_are_compared_exactly(costs: tuple[float, ...], code: str) -> None:
    """They draw nothing, so one run of each is exact."""
    study = made(
        *(noise_free(8000.0, f"m{k}", redispatch_shed_mw=mw) for k, mw in enumerate(costs))
    )
    assert code in codes(study)
    assert "next-seeds" not in codes(study)


@pytest.mark.parametrize("shed", [0.0, 9e-4])
def test_methods_that_shed_no_load_have_no_lowest_load_shedding(shed: float) -> None:
    """A grid without costs; a thousandth of a MW is the accuracy of solvers."""
    no_cost = {"cost": math.nan, "cost_of_privacy": math.nan}
    study = made(
        method("a", [math.nan] * 3, redispatch_shed_mw=0.0, **no_cost),
        method("b", [math.nan] * 3, redispatch_shed_mw=shed, **no_cost),
    )
    assert "all-least" in codes(study)
    assert not {"lowest", "not-distinguishable", "next-seeds"} & codes(study)
    (text,) = texts_of(study, "all-least")
    assert "load shedding of every ranked method is under 0.001 MW" in text


def test_the_cost_of_privacy_is_that_of_the_method_and_that_of_the_noise() -> None:
    study = made(
        noise_free(8000.0),
        noise_free(8300.0, "noise-free, linearized", configuration="d"),
        method("exact", [8010.0, 8030.0]),
        method("linearized", [8250.0, 8310.0], configuration="d"),
    )
    rows = summary(study).set_index("method")
    assert rows.cost_of_privacy[["exact", "linearized"]].tolist() == [20.0, 280.0]
    assert rows.method_cost[["exact", "linearized"]].tolist() == [0.0, 300.0]
    assert rows.noise_cost[["exact", "linearized"]].tolist() == [20.0, -20.0]
    assert rows.cost_of_privacy[["noise-free", "noise-free, linearized"]].isna().all()
    facts = {f.label: f.value for f in cards(study, summary(study))[0].facts}
    assert facts["Cost of privacy"] == "+20.00 $/h (0.25 % of the noise-free cost)"
    bars = split_bars("t", summary(study)[summary(study).panel == "case14"], TOTAL)
    assert [(b.name, b.parts) for b in bars.bars] == [
        ("exact", (0.0, 20.0)),
        ("linearized", (300.0, -20.0)),
    ]


def test_an_infeasible_baseline_gives_no_cost() -> None:
    study = made(noise_free(8000.0, ac_feasible=False), method("a", [8100.0, 8120.0]))
    assert summary(study).cost_of_privacy.isna().all()
    assert "noise-free-infeasible" in codes(study)
    other = made(
        noise_free(7000.0, ac_feasible=False),
        noise_free(8000.0, "other"),
        method("a", [8100.0, 8120.0]),
    )
    row = summary(other).set_index("method").loc["a"]
    assert row.cost_of_privacy == 110.0, "the cheapest AC-feasible one is the baseline"
    assert "noise-free-infeasible" not in codes(other)


def test_an_infeasible_run_has_no_cost_and_its_method_no_rank() -> None:
    study = made(
        noise_free(8000.0),
        method("a", [8001.0, 8001.5, 8001.2], ac_feasible=False),
        method("b", [8100.0, 8101.0, 8102.0]),
    )
    study.runs.loc[1, "ac_feasible"] = True
    assert "partly-infeasible" in codes(study) and "lowest" not in codes(study)
    assert texts_of(study, "partly-infeasible")[0].count('"a": 2 of 3') == 1
    facts = {f.label: f for f in cards(study, summary(study))[0].facts}
    assert facts["AC-feasible"].value == "3 of 3 runs"
    study.runs.loc[study.runs.method == "a", "ac_feasible"] = False
    assert "infeasible-methods" in codes(study)
    study.runs.loc[study.runs.budget == TOTAL, "ac_feasible"] = False
    (card,) = cards(study, summary(study))
    assert [f.value for f in card.facts if f.state == "bad"] == ["no method"]


@pytest.mark.parametrize(
    ("prior", "feasible", "code"),
    [
        (8050.0, True, "prior-only-cheaper"),
        (9000.0, True, None),
        (8050.0, False, "prior-only-infeasible"),
    ],
)
def test_a_budget_is_compared_with_releasing_nothing(
    prior: float, feasible: bool, code: str | None
) -> None:
    study = made(
        noise_free(8000.0), prior_only(prior, ac_feasible=feasible), method("a", [8100.0, 8120.0])
    )
    shown_codes = codes(study) & {"prior-only-cheaper", "prior-only-infeasible"}
    assert shown_codes == ({code} if code else set())
    assert ("next-budget" in codes(study)) == (code == "prior-only-cheaper")
    labels = [f.label for f in cards(study, summary(study))[0].facts]
    assert ("Cost of privacy, prior-only" in labels) == feasible


@pytest.mark.parametrize(("schedule", "step"), [("round", "next-once"), ("once", "next-rounds")])
def test_a_study_that_has_not_converged_says_what_helps(schedule: str, step: str) -> None:
    study = made(
        noise_free(8000.0),
        method("a", [8100.0, 8120.0], consensus_residual=0.5, noise_schedule=schedule),
    )
    (text,) = texts_of(study, "not-converged")
    assert ("more rounds mean more noise in each" in text) == (schedule == "round")
    assert codes(study) & {"next-once", "next-rounds"} == {step}
    late = made(noise_free(8000.0, consensus_residual=0.5), method("a", [8100.0, 8120.0]))
    assert "noise-free-not-converged" in codes(late) and "not-converged" not in codes(late)


def test_the_chart_follows_the_verdict_and_warnings_on_its_methods_follow_it() -> None:
    study = made(noise_free(8000.0), method("a", [8100.0, 8120.0], consensus_residual=0.5))
    page = to_html(make_report(study))
    places = [page.find(part) for part in ('class="card"', "<figure", "runs that did not converge")]
    assert -1 < places[0] < places[1] < places[2] < page.find("<h2>Next steps")
    (text,) = texts_of(study, "not-converged")
    assert text not in page.split("<figure")[0]
    assert '<span class="flag">--tolerance</span>' in page


def test_an_interval_over_zero_is_not_distinguishable_from_it() -> None:
    for costs, zero in (([8030.0, 7990.0, 8010.0], True), ([8030.0, 8031.0, 8032.0], False)):
        study = made(noise_free(8000.0), method("a", costs))
        facts = {f.label: f for f in cards(study, summary(study))[0].facts}
        assert ("not distinguishable from zero" in facts["Cost of privacy"].note) == zero


def test_a_negative_cost_due_to_the_noise_is_explained() -> None:
    """By chance, or since the method's own noise-free run, at 8600 $/h, is not an optimum."""
    for own, cost, says in (
        (8000.0, 7950.0, True),
        (8000.0, 8050.0, False),
        (8600.0, 8500.0, True),
        (8600.0, 8700.0, False),
    ):
        study = made(
            noise_free(8000.0, "plain", configuration="c"),
            noise_free(own, "other", configuration="d"),
            method("a", [cost] * 2, configuration="d"),
        )
        page = " ".join(to_html(make_report(study)).split())
        assert ("the noise led to a cheaper dispatch" in page) == says


def test_methods_that_protect_different_things_are_named() -> None:
    study = made(method("a", [1.0]), method("b", [1.0], protection="another", protects="q"))
    assert texts_of(study, "protected-by") == [
        'Protected by "a": a change.',
        'Protected by "b": another.',
    ]
    assert "protected-one-kind" in codes(study)
    assert texts_of(made(method("a", [1.0]), method("b", [1.0])), "protected") == [
        "Protected: a change."
    ]


def test_many_methods_are_counted_and_not_all_named() -> None:
    study = made(noise_free(8000.0), *(method(f"m{k}", [8001.0, 8002.0]) for k in range(9)))
    (text,) = texts_of(study, "not-distinguishable")
    assert "is not distinguishable from 8 methods (95 %, paired seeds, Bonferroni). " in text


def test_a_template_is_at_most_three_sentences_of_25_words() -> None:
    for templates in (TEMPLATES, OF_RUNS):
        for code, (_, text) in templates.items():
            sentences = [s for s in text.replace(":", ".").split(". ") if s.strip(". ")]
            assert max(len(s.split()) for s in sentences) <= 25, code
            assert not text.startswith(("What", "Whether", "How", "Whose", "Which")), code


@pytest.mark.parametrize("reference", [True, False])
def test_the_card_of_a_real_study_is_that_of_its_runs(reference: bool, tmp_path: Path) -> None:
    schedule = (("perturbation", "demand"), ("noise_schedule", "once"))
    methods = [Method("once", schedule), Method("two rounds", (*schedule, ("rounds", 2)))]
    plan = make_plan(
        ["case14"],
        budgets=[1, 8],
        methods=methods,
        seeds=[1, 2],
        settings={"solver": "clarabel", "rounds": 4},
        reference=reference,
    )
    compare(plan, out=tmp_path, jobs=1)
    study = read_source(tmp_path)
    runs, (card,) = with_cost_of_privacy(study.runs), cards(study, summary(study))
    facts = {f.label: f for f in card.facts}
    assert card.title == "case14 (259.0 MW of demand), budget: total epsilon 8"
    assert (facts["Compared at budget"].value, facts["Compared at budget"].note) == (
        "total epsilon 8",
        "pure; budgets of the study: 1, 8",
    )
    key = "cost_of_privacy" if reference else "redispatch_shed_mw"
    at = runs[runs.budget.str.startswith("total:8")].groupby("method")[key].mean()
    lowest = facts["Lowest mean cost of privacy" if reference else "Lowest mean load shedding"]
    words = (
        "not distinguishable from 1 of 1 other method (95 %, 2 paired seeds, Bonferroni for 1 pair)"
    )
    assert lowest.note == words
    assert at[lowest.value] == at.min()
    plain = runs[runs.budget == "none"]
    assert len(plain) == (2 if reference else 0)
    if reference:
        assert (runs.cost - runs.cost_of_privacy - plain.cost.min()).abs().max() < 1e-6
        for _, row in runs[~runs.budget.isin(["none", "nothing"])].iterrows():
            own = plain[plain.configuration == row.configuration].cost.item()
            assert row.method_cost == pytest.approx(own - plain.cost.min(), abs=1e-9)
    assert facts["Certified total"].value == "epsilon 8"
    assert facts["Protected"].value.startswith(
        "any change of one bus's active demand by at most 1 MW"
    )
    assert "Largest interchange deviation of a zone" not in facts, "with three zones: balancing"
    tables = {table.name: table for table in contents(study, summary(study))}
    assert "zoning" not in [column.name for column in tables["cases"].columns], "the shipped map"
    noises = [(row[0], row[2]) for row in tables["settings"].rows if row[1] == "mechanism"]
    methods = [("method: once", "knorm (default)"), ("method: two rounds", "knorm (default)")]
    assert [row for row in noises if "default" in row[1]] == methods
    assert "zonings" not in (tmp_path / "study.toml").read_text(encoding="utf-8")


def test_the_residual_is_that_of_the_runs_that_are_counted() -> None:
    """At every budget, not only at the one of the card."""
    study = made(
        noise_free(8000.0),
        method("a", [8100.0, 8120.0], consensus_residual=0.5),
        method("a", [8100.0, 8120.0], consensus_residual=8.2, budget="total:1,1e-05"),
        method("b", [8100.0, 8120.0], budget=TOTAL),
        method("b", [8100.0, 8120.0], consensus_residual=0.02, budget="total:1,1e-05"),
    )
    (text,) = texts_of(study, "not-converged")
    assert "2 of 2 noisy methods" in text
    assert '8.20 p.u. ("a" at total epsilon 1)' in text


def test_a_total_that_rounds_to_the_pure_one_is_called_pure() -> None:
    for pure, kind in ((5.0, "pure"), (11.6, "at delta = 1e-05"), (math.nan, "at delta = 1e-05")):
        costs = method("a", [8100.0, 8120.0], total_epsilon=4.99996, total_pure=pure)
        facts = {f.label: f for f in cards(*_summed(made(noise_free(8000.0), costs)))[0].facts}
        assert facts["Certified total"].note == f"of one run, {kind}"


def _summed(study: Study) -> tuple[Study, pd.DataFrame]:
    return study, summary(study)


def test_the_cost_of_noise_free_methods_is_that_of_the_methods_they_are_a_part_of() -> None:
    study = made(
        noise_free(8000.0, "plain", configuration="c"),
        noise_free(8331.0, "other", configuration="d"),
        method("a", [8400.0, 8420.0], configuration="d"),
    )
    rows = summary(study).set_index("method")
    assert rows.method_cost["other"] == rows.method_cost["a"] == pytest.approx(331.0)
    assert texts_of(study, "noise-free-costs") == [
        'case14: without any noise, "other" costs 331.00 $/h more than "plain", the cheapest '
        "noise-free method. Noisy methods with the same update can cost more or less. As epsilon "
        "grows, their costs approach this one."
    ]
    alone = made(noise_free(8000.0), method("a", [8400.0, 8420.0]))
    assert "noise-free-costs" not in codes(alone)


@pytest.mark.parametrize("update", ["linearized", "exact"])
@pytest.mark.parametrize(
    ("shortage", "shed", "least", "marked"),
    [
        (2.0, 0.0, 0.0, False),
        (138.4, 0.0, 0.0, True),
        (238.4, 100.0, 100.0, True),
        (238.4, 190.0, 100.0, True),  # 90 MW are shed because of the imbalance
        (138.4, 138.4, 138.4, False),  # shed for want of capacity, and scheduled so
        (math.nan, 0.0, 0.0, False),
    ],
)
def test_a_noise_free_schedule_that_misses_load_is_marked(
    shortage: float, shed: float, least: float, marked: bool, update: str
) -> None:
    """Consensus alone does not show it: the Ryu-Kim update of case39 misses 4994 of 6254 MW."""
    figures = {"plan_shortage_mw": shortage, "redispatch_shed_mw": shed, "update": update}
    late = noise_free(8331.0, "other", consensus_residual=1e-4, **figures)
    base = noise_free(8000.0, redispatch_shed_mw=least)
    study = made(base, late, method("a", [8400.0, 8420.0]))
    study.manifest["cases"] = [{"case": "case14", "load_mw": 259.0}]
    texts = texts_of(study, "noise-free-imbalance")
    assert len(texts) == marked
    if marked:
        assert 'rounds of "other" have converged in the coupling variables' in texts[0]
        assert "leave 138.4 MW of 259.0 MW of the demand without supply" in texts[0]
        named = "With the linearized update, more rounds (--rounds) leave less" in texts[0]
        assert named == (update == "linearized")


@pytest.mark.slow
def test_more_rounds_of_the_linearized_update_leave_less_demand_without_supply() -> None:
    case = gridpriv.load_case("case14")
    zoning, short = gridpriv.shipped_zoning(case), []
    for rounds in (20, 100, 400):
        settings = gridpriv.make_settings("ryu-kim", mechanism="none", rounds=rounds)
        last = gridpriv.run(case, zoning, settings).trace.rounds[-1]
        short.append(last.metrics["plan_shortage_mw"])
    assert short[0] > 1.5 * short[1] > 2.0 * short[2] > 0.0


def test_a_method_with_a_preset_says_that_its_noise_has_the_proven_sensitivity() -> None:
    methods = [{"name": "a", "preset": "ryu-kim", "sensitivity": "proven"}]
    runs = noise_free(8000.0), method("a", [8001.0, 8002.0])
    (text,) = texts_of(made(*runs, study={"methods": methods}), "proven-of-preset")
    assert "ryu-kim" in text and "not to the published one" in text
    methods[0]["sensitivity"] = "published"
    assert not texts_of(made(*runs, study={"methods": methods}), "proven-of-preset")


def test_a_method_below_the_budget_is_named_with_the_cause() -> None:
    study = made(noise_free(8000.0), method("a", [8400.0, 8420.0], total_epsilon=3.86))
    (text,) = texts_of(study, "budget-unused")
    assert 'below the budget for "a" (3.86 of 5): runs ended before' in text
    noise = {"owner": "1", "kind": "split-laplace", "parameter": 3.5, "second": 0.7}
    charges = pd.DataFrame({"run": study.runs.run}).assign(**noise, count=20, drawn=20)
    tree = replace(study, tables=study.tables | {"charges": charges})
    assert codes(tree) & UNUSED == {"budget-unused-tree"}
    pure = method("a", [8400.0, 8420.0], total_epsilon=3.86, budget="total:5")
    assert codes(made(noise_free(8000.0), pure)) & UNUSED == {"budget-unused-pure"}


UNUSED = {"budget-unused", "budget-unused-pure", "budget-unused-tree"}


def test_cost_and_cost_of_privacy_are_means_over_the_same_runs() -> None:
    """A marginal run has a cost, but none in a study."""
    marginal = method("a", [9000.0], seed=3, ac_feasible=False)
    study = made(noise_free(8000.0), method("a", [8100.0, 8120.0]), marginal)
    row = summary(study).set_index("method").loc["a"]
    assert row.cost == pytest.approx(8110.0)
    assert row.cost_of_privacy == pytest.approx(110.0)
    assert row.ac_feasible == pytest.approx(2 / 3)


def test_a_certificate_explains_the_delta_and_the_norms_that_it_states(tmp_path: Path) -> None:
    way = (("perturbation", "objective"), ("mechanism", "gaussian"))
    plan = make_plan(
        ["case14"],
        budgets=["per-release:1,1e-3"],
        methods=[Method("gradient", way)],
        seeds=[1],
        settings={"rounds": 2},
        reference=False,
    )
    compare(plan, out=tmp_path, jobs=1)
    sections = {section.title: section for section in make_report(read_source(tmp_path)).sections}
    notes = {note.code: str(note) for note in sections["Privacy"].notes}
    assert "one release at delta = 0.001," in notes["gaussian-delta"]
    assert "scale of the noise divided by the sensitivity" in notes["certificates"]

"""Every sentence of a study's answer and of a run, worked out again from its tables.

The studies are such that a careless sentence is false of them: one round (not converged), an
island without generation, only noisy runs, a grid without costs.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from gridpriv import load_case, run, shipped_zoning
from gridpriv.report import schema
from gridpriv.report.answers import answers
from gridpriv.report.document import make_report
from gridpriv.report.html import to_html
from gridpriv.report.source import read_source
from gridpriv.report.summary import PANEL, summary, with_cost_of_privacy
from gridpriv.study import Scheme, Study, compare, make_plan
from gridpriv.zonal.settings import make_settings
from gridpriv.zonal.summary import sentences

DEMAND = (("perturbation", "demand"), ("refresh", "run"))
QUIET = Scheme("no noise", (("mechanism", "none"),))
NOISY = [Scheme("demand, once", DEMAND), Scheme("demand, 2 rounds", (*DEMAND, ("rounds", 2)))]
STUDIES = {
    "usual": ([QUIET, *NOISY], {"rounds": 6}),
    "not converged": ([QUIET, *NOISY], {"rounds": 1, "beta": "30MW"}),
    "islanded": ([QUIET, *NOISY], {"rounds": 4, "outage": ("branch:17", "branch:20")}),
    "noise only": (NOISY, {"rounds": 4}),
}
NUMBER = r"(-?[\d.,e+-]*\d|under [\d.]+)"


@pytest.fixture(scope="module", params=STUDIES)
def studied(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Study:
    schemes, settings = STUDIES[request.param]
    folder = tmp_path_factory.mktemp("study")
    plan = make_plan(["case14"], budgets=[1, 8], schemes=schemes, seeds=[1, 2],
                     reference=False, settings={"solver": "clarabel"} | settings)  # fmt: skip
    compare(plan, out=folder, jobs=1)
    return read_source(folder)


def agree(text: str, value: float) -> bool:
    if text.startswith("under "):
        return value < float(text.removeprefix("under "))
    return float(text.replace(",", "")) == pytest.approx(value, rel=6e-3)


def means(study: Study) -> tuple[dict[tuple[str, str], float], str]:
    """Cost of privacy of every way at every budget where there are quiet runs, else shed."""
    runs = study.runs
    quiet = runs[runs.mechanism == "none"]
    noisy = runs[runs.mechanism != "none"].groupby(["scheme", "budget"])
    if len(quiet):
        return dict(noisy.cost.mean() - quiet.cost.mean()), "cost of privacy"
    return dict(noisy.recourse_shed_mw.mean()), "shed after local recourse"


def test_every_sentence_of_an_answer_follows_from_the_runs(studied: Study) -> None:
    answer = answers(studied, summary(studied))[0]
    found, noun = means(studied)
    at = {
        scheme: value for (scheme, budget), value in found.items() if budget.startswith("total:8")
    }
    best, worst = min(at, key=at.__getitem__), max(at, key=at.__getitem__)
    runs = studied.runs
    for sentence in re.split(r"(?<=\.) (?=[A-Z])", answer):
        if sentence.startswith("Not converged"):
            apart = runs[runs.budget.str.startswith("total:8")]
            apart = apart.groupby("scheme").consensus_residual.mean()
            assert agree(re.search(rf"up to {NUMBER} p.u.", sentence)[1], apart.max())
            assert set(re.findall(r'"(.+?)"', sentence)) == set(apart[apart > 0.01].index)
        elif match := re.search(rf"{noun} does not tell the 2 ways apart: {NUMBER}", sentence):
            assert all(agree(match[1], value) for value in at.values())
        elif match := re.search(rf"has the lowest {noun}, {NUMBER}", sentence):
            assert f'"{best}" has' in sentence
            assert agree(match[1], at[best])
        elif match := re.search(rf"costs? the least, {NUMBER} MW {noun}", sentence):
            assert f'"{best}"' in sentence
            assert agree(match[1], at[best])
        elif match := re.search(r'[Tt]he (?:worst|dearest) of the 2 ways, "(.+)",', sentence):
            assert match[1] == worst
            assert agree(re.search(rf"(?:has|costs) {NUMBER}", sentence)[1], at[worst])
        elif match := re.search(r"The grid can carry (all|[\d.]+ %) of its runs", sentence):
            mine = runs[(runs.scheme == best) & runs.budget.str.startswith("total:8")]
            share = 100.0 if match[1] == "all" else float(match[1].removesuffix(" %"))
            assert share == pytest.approx(100.0 * mine.carried.astype(bool).mean(), rel=5e-3)
        elif match := re.search(rf'"(.+)" goes from {NUMBER}.* to {NUMBER}', sentence):
            first = next(v for (s, b), v in found.items() if s == match[1] and b[:7] == "total:1")
            assert agree(match[2], first)
            assert agree(match[3], at[match[1]])
        elif match := re.search(rf"Without noise it is {NUMBER}", sentence):
            assert agree(match[1], float(runs[runs.mechanism == "none"].cost.mean()))
        elif match := re.search(rf'^Zones of "no noise" .* they differ by {NUMBER}', sentence):
            apart = runs[runs.mechanism == "none"].consensus_residual.mean()
            assert apart > 0.01
            assert agree(match[1], apart)
        elif sentence.startswith("More rounds"):
            assert set(runs.refresh[runs.mechanism != "none"]) == {"run"}
        else:
            pytest.fail(f"a sentence that nobody checks: {sentence}")


def test_cost_of_privacy_stands_beside_runs_without_noise_only(studied: Study) -> None:
    table, runs = summary(studied), studied.runs
    quiet = runs[runs.mechanism == "none"]
    assert table[table.mechanism == "none"].cost_of_privacy.isna().all()
    for row in table[table.mechanism != "none"].itertuples():
        mine = runs[(runs.scheme == row.scheme) & (runs.budget == row.budget)]
        assert row.carried == mine.carried.astype(bool).mean()
        if len(quiet):
            expected = mine.cost.mean() - quiet.cost.mean()
            assert row.cost_of_privacy == pytest.approx(expected, abs=1e-6)
        else:
            assert row.cost_of_privacy != row.cost_of_privacy  # NaN


@pytest.mark.parametrize(
    "settings",
    [
        {"mechanism": "none", "rounds": 15},
        {"mechanism": "none", "rounds": 1},
        {"mechanism": "none", "rounds": 8, "outage": ("branch:17", "branch:20")},
        {"rounds": 2, "beta": "30MW", "budget": "total:0.5", "seed": 3},
    ],
)
def test_every_sentence_of_a_run_follows_from_its_document(settings: dict[str, object]) -> None:
    case = load_case("case14")
    case = replace(case, pd=case.pd * (case.bus_id != 9), qd=case.qd * (case.bus_id != 9))
    result = run(case, shipped_zoning(case), make_settings(solver="clarabel", **settings))
    document = json.loads(json.dumps(result.as_dict()))
    final, told = document["final"], sentences(document)
    physical, state = final["physical"], result.settlement.state
    residual = result.rounds.consensus_residual.iloc[-1]
    assert told[0].startswith("Not converged") == bool(residual > 0.01)
    verdict = next(one for one in told if one.startswith("The grid can"))
    assert verdict.startswith("The grid can carry") == (not state.violations)
    shed = 100.0 * float((state.p_shed).sum())
    named = re.search(rf"{NUMBER} MW of demand is not served", verdict)
    assert (named is None) == (shed <= 0.01)
    assert ("all demand is served" in verdict) == (shed <= 0.01)
    if named:
        assert agree(named[1], shed)
    island = re.search(rf"{NUMBER} of it on islands", verdict)
    lost = 100.0 * case.pd[case.bus_id == 14].sum() if "outage" in settings else 0.0
    assert (island is None) == (lost == 0.0)
    assert island is None or agree(island[1], lost)
    leaned = sum(max(row["scheduled_mw"] - row["actual_mw"], 0) for row in physical["interchange"])
    lean = re.search(rf"others' reserves for {NUMBER} MW", verdict)
    assert (lean is None) == (leaned <= 0.01)
    assert lean is None or agree(lean[1], leaned)


def test_a_grid_without_costs_has_no_cost_of_privacy(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "cases" / "case14.m").read_text()
    (tmp_path / "free.m").write_text(text[: text.index("mpc.gencost")])
    zones = tmp_path / "zones.csv"
    zones.write_text("bus,zone\n" + "".join(f"{bus},{bus > 5}\n" for bus in range(1, 15)))
    quick = {"rounds": 2, "solver": "clarabel"}
    plan = make_plan([str(tmp_path / "free.m")], budgets=[8], schemes=[QUIET, NOISY[0]],
                     seeds=[1], zonings=[str(zones)], settings=quick)  # fmt: skip
    compare(plan, out=tmp_path / "study", jobs=1)
    study = read_source(tmp_path / "study")
    answer = answers(study, summary(study))[0]
    assert "$/h" not in answer
    assert "MW shed after local recourse" in answer


@pytest.mark.parametrize("beyond", [-50.0, 50.0])
def test_a_negative_cost_of_privacy_is_called_chance(beyond: float, studied: Study) -> None:
    runs = studied.runs
    quiet = runs.cost[runs.mechanism == "none"]
    base = 8000.0 if quiet.empty else quiet.item()
    changed = runs.assign(cost=runs.cost.where(runs.mechanism == "none", base + beyond))
    study = Study(studied.folder, studied.manifest, studied.tables | {"runs": changed})
    page = to_html(make_report(study))
    assert ("A negative one is chance and no gain" in page) == (beyond < 0.0 and len(quiet) > 0)


@pytest.mark.parametrize("refresh", ["round", "run"])
def test_a_study_that_is_not_converged_is_told_what_helps(refresh: str, studied: Study) -> None:
    """Noise that is drawn anew keeps zones apart; more rounds help runs without any."""
    quiet = studied.runs.budget == "none"
    runs = studied.runs.assign(consensus_residual=1.0, carried=True)
    study = Study(studied.folder, studied.manifest,
                  studied.tables | {"runs": runs.assign(refresh=refresh)})  # fmt: skip
    told = answers(study, summary(study))[0].partition("Not converged: ")[2]
    assert ("drawn anew in every round" in told) == (refresh == "round")
    assert ("More rounds" in told) == (refresh == "run")
    alone = Study(studied.folder, studied.manifest, study.tables | {"runs": runs[quiet]})
    assert not quiet.any() or "More rounds" in answers(alone, summary(alone))[0]


@pytest.mark.parametrize("objective", ["imbalance", "cost"])
def test_a_difference_of_costs_is_a_price_only_where_cost_is_minimised(objective: str) -> None:
    case = load_case("case14")
    settings = make_settings(mechanism="none", rounds=1, objective=objective, solver="clarabel")
    document = run(case, shipped_zoning(case), settings).as_dict()
    document["final"]["cost_of_privacy"] = {
        "cost": -195.0, "nothing_released_shed_mw": None
    }  # fmt: skip
    told = [one for one in sentences(document) if "no price of privacy" in one]
    assert len(told) == (objective == "imbalance")


def test_every_way_is_held_against_the_cheapest_without_noise() -> None:
    """A way that is dear without noise, which noise happens to help, is not the best."""
    told = pd.DataFrame(
        {"scheme": ["dear", "cheap", "dear, noisy", "cheap, noisy"],
         "budget": ["none", "none", "total:1", "total:1"],
         "update": ["linearized", "exact", "linearized", "exact"],
         "cost": [8413.0, 8096.0, 8257.0, 8097.0], "status": "done"}
    ).assign(**dict.fromkeys(PANEL, "same"))  # fmt: skip
    priced = with_cost_of_privacy(told).cost_of_privacy
    assert priced.tolist()[2:] == [161.0, 1.0]
    assert priced.isna().tolist() == [True, True, False, False]


def test_a_reader_is_told_that_cost_of_privacy_counts_more_than_noise(studied: Study) -> None:
    """A way of two rounds costs what its own run without noise costs, and yet is not free."""
    quiet = studied.runs.budget == "none"
    dear = studied.runs.assign(scheme="two rounds", cost=studied.runs.cost.max() + 200.0)
    dear = dear.assign(run=[f"dear {run}" for run in dear.run])
    told = with_cost_of_privacy(pd.concat([studied.runs, dear], ignore_index=True))
    counted = told.cost_of_privacy[(told.scheme == "two rounds") & (told.budget != "none")]
    assert (counted >= 200.0 - 1e-6).all() == quiet.any()
    docs = (Path(__file__).parents[2] / "docs" / "report.md").read_text()
    for text, tells in ((to_html(make_report(studied)), quiet.any()), (docs, True)):
        told_of = re.findall(r"[^.]*cheapest\s+way\s+without\s+noise,\s+one[^.]*", text)
        for varied in ("rounds", "objective", "penalty", "update"):
            assert any(varied in one for one in told_of) == tells, varied


def test_a_reader_is_told_that_no_cost_holds_balancing(studied: Study) -> None:
    study = Study(studied.folder, studied.manifest,
                  studied.tables | {"runs": studied.runs.assign(cost=None)})  # fmt: skip
    for found, costs in ((studied, True), (study, False)):
        page = " ".join(to_html(make_report(found)).split())
        assert ("pay each other for balancing power is in none of them" in page) == costs
    columns = [schema.told()[name]["columns"] for name in ("runs", "run --json", "steps")]
    for held in columns:
        costs = [one for one in held if one["name"] in ("cost", "final.physical.cost")]
        assert costs and all("balancing power" in one["meaning"] for one in costs)


def test_many_ways_of_equal_cost_are_counted_and_not_all_named(studied: Study) -> None:
    table = summary(studied)
    at = table[table.budget.str.startswith("total:8")]
    metric = next(m for m in ("cost_of_privacy", "recourse_shed_mw") if at.get(m) is not None)
    best = at[at[metric] == at[metric].min()].iloc[:1]
    alike = [best.assign(series=f"way {k}") for k in range(9)]
    answer = answers(studied, pd.concat([table, *alike], ignore_index=True))[0]
    assert re.search(r"\b\d+ ways (cost the least|have the lowest)|does not tell", answer)
    assert '"way 1"' not in answer

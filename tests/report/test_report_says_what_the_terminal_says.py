"""A report of a stressed run has the same messages as the terminal.

The runs are those of which a report could be false: no convergence, an island, a bus without
demand, a dispatch that is not AC-feasible, noise that costs more than prior-only.
"""

from __future__ import annotations

import html
import io
import json
import re
from contextlib import redirect_stdout
from pathlib import Path

import pandas as pd
import pytest

from gridpriv.cli.main import main
from gridpriv.core.text import amount, number_text
from gridpriv.report.contents import protections
from gridpriv.report.export import export, make_report, to_html
from gridpriv.report.panel import cards
from gridpriv.report.source import read_source
from gridpriv.study import Method, compare, make_plan
from gridpriv.study.engine import study_totals
from gridpriv.study.plan import DEFAULT_METHODS
from gridpriv.study.record import publish_study

QUICK = ["--solver", "clarabel", "--seed", "5"]
NOISE = ["--noise-schedule", "once", "--budget", "total:0.2", "--beta", "30MW", "--rounds", "2"]
PUBLIC = {
    "not-converged",
    "ended-early",
    "ac-rounds-not-converged",
    "released-statistics",
    "protected",
    "published-sensitivity",
    "noise-source",
    "adaptive-penalty",
    "protected-scaled",
}
"""Codes of messages that follow from releases and public data."""
STRESSED = {
    "not converged": ["--rounds", "1", "--mechanism", "none"],
    "islanded": [
        "--rounds",
        "3",
        "--mechanism",
        "none",
        "--outage",
        "branch:17",
        "--outage",
        "branch:20",
    ],
    "zero demand": ["--rounds", "2", "--mechanism", "none", "--demand", "DEMAND"],
    "worth nothing": NOISE,
    "overloaded": [
        *NOISE,
        "--load-scale",
        "3",
        "--outage",
        "branch:1",
        "--no-reference",
        "--release",
        "tree",
    ],
}


@pytest.fixture(scope="module", params=STRESSED)
def run_and_sentences(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[str]]:
    """Return the folder of a stressed run, and its messages, which the terminal printed."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "demand.csv").write_text("bus,pd_mw,qd_mvar\n9,0,0\n")
    words = [str(folder / "demand.csv") if w == "DEMAND" else w for w in STRESSED[request.param]]
    printed = io.StringIO()
    with redirect_stdout(printed):
        assert main(["run", "case14", *QUICK, *words, "--out", str(folder / "run")]) == 0
    lines = printed.getvalue().splitlines()
    document = json.loads((folder / "run" / "run.json").read_text())
    sentences = [note["text"] for note in document["messages"]]
    if document["privacy"]["mechanism"] == "none":  # the title says it
        assert lines[0].endswith("no noise")
        sentences = [text for text in sentences if not text.startswith("no privacy")]
    assert len(sentences) > 1 and set(sentences) <= set(lines)
    export(folder / "run")
    return folder / "run", sentences


def codes(folder: Path) -> set[str]:
    return {note["code"] for note in json.loads((folder / "run.json").read_text())["messages"]}


def visible(page: Path) -> str:
    """Return the words of a page as a reader sees them, on one line."""
    text = re.sub(r"(?s)<(style|script|svg).*?</\1>", " ", page.read_text(encoding="utf-8"))
    return " ".join(
        html.unescape(re.sub(r"<[^>]+>", " ", re.sub("</?span[^>]*>", "", text))).split()
    )


def test_a_report_says_every_sentence_that_the_terminal_said(
    run_and_sentences: tuple[Path, list[str]],
) -> None:
    folder, sentences = run_and_sentences
    page = visible(folder / "report.html")
    assert [sentence for sentence in sentences if sentence not in page] == []


def test_a_report_has_the_row_of_an_infeasible_prior_only_baseline(tmp_path: Path) -> None:
    words = [*QUICK, *NOISE, "--quiet", "--out", str(tmp_path / "run")]
    assert main(["run", "case14", *words]) == 0
    study = read_source(tmp_path / "run")
    costs = study.manifest["document"]["final"]["cost_of_privacy"]
    assert costs["prior_only_status"] == "feasible" and costs["prior_only_cost"] > 0
    for feasible in (True, False):
        if not feasible:
            costs |= {"prior_only_status": "infeasible", "prior_only_cost": None}
        text = to_html(make_report(study))
        assert ("AC-feasible, prior-only" in text) == (not feasible)
        assert ("Extra cost of the release" in text) == feasible  # its noise costs more


def test_a_report_shows_the_figures_of_the_state_after_redispatch(
    run_and_sentences: tuple[Path, list[str]],
) -> None:
    folder, _ = run_and_sentences
    page, run = visible(folder / "report.html"), read_source(folder).runs.iloc[0]
    shown = re.search(r"[Ll]oad shedding (under [\d.]+|[\d.e+-]+) MW", page)
    assert shown is not None
    value = 0.0 if shown[1].startswith("under") else float(shown[1])
    assert value == pytest.approx(run.redispatch_shed_mw, rel=1e-3, abs=1e-3)
    assert ("AC-feasible yes" in page) == bool(run.ac_feasible)
    assert bool(codes(folder) & {"infeasible", "marginal", "no-power-flow"}) == (
        not run.ac_feasible
    )


def test_the_settings_are_those_that_were_used(run_and_sentences: tuple[Path, list[str]]) -> None:
    """No objective was given: case14 has costs, and the run's document states the objective."""
    folder, _ = run_and_sentences
    used = json.loads((folder / "run.json").read_text())["settings"]["objective"]
    assert used == "cost"
    page = visible(folder / "report.html")
    assert f"all runs objective {used} " in page
    assert "None" not in page and "[]" not in page


def test_every_file_states_the_same_settings(run_and_sentences: tuple[Path, list[str]]) -> None:
    folder, _ = run_and_sentences
    used = json.loads((folder / "run.json").read_text())["settings"]
    manifest = json.loads((folder / "manifest.json").read_text())["study"]["settings"]
    assert {key: used[key] for key in manifest} == manifest
    assert manifest["imbalance_weight"] == 1e4


def test_the_verdict_says_dollars_and_epsilon(run_and_sentences: tuple[Path, list[str]]) -> None:
    folder, _ = run_and_sentences
    page, run = visible(folder / "report.html"), json.loads((folder / "run.json").read_text())
    (card,) = make_report(read_source(folder)).cards
    facts = {fact.label: fact.value for fact in card.facts}
    cost, epsilon = run["final"]["physical"]["cost"], run["privacy"]["total"]["epsilon"]
    assert facts.get("Cost") == (None if cost is None else f"{amount(cost, '$/h')} $/h")
    if run["privacy"]["mechanism"] == "none":
        assert facts["Privacy"] == "none"
    else:
        assert facts["Certified total"] == f"epsilon {epsilon:.3g}"
    for fact in card.facts:
        assert f"{fact.label} {fact.value}" in page


def test_what_zones_exchange_is_shown_after_redispatch(
    run_and_sentences: tuple[Path, list[str]],
) -> None:
    folder, _ = run_and_sentences
    page, run = visible(folder / "report.html"), json.loads((folder / "run.json").read_text())
    rows = run["final"]["physical"]["interchange"]
    assert ("Interchange, exports positive" in page) == bool(rows)
    for row in rows or ():
        known = row["scheduled_mw"] if row["actual_mw"] is None else row["actual_mw"]
        assert f" {number_text(known)} " in page
    assert "Shortage of the SOC relaxation" not in page


def test_a_public_report_of_it_says_what_is_public_only(
    run_and_sentences: tuple[Path, list[str]], tmp_path: Path
) -> None:
    folder, sentences = run_and_sentences
    export(folder, public=True, out=tmp_path / "public")
    page = visible(tmp_path / "public" / "report-public.html")
    noisy = any(text.startswith("Protected") for text in sentences)
    for note in json.loads((folder / "run.json").read_text())["messages"]:
        text, public = note["text"].partition("; seed")[0], note["code"] in PUBLIC
        assert (text in page) == (public and noisy), note
        assert noisy or note["code"] != "noise-source"
    # what zones agreed on is of releases, and of none where they carry no noise
    assert ("Interchange, exports positive" in page) == noisy
    assert "AC-feasible" not in page and "$/h" not in page
    assert not re.search(r"\.\.(?!\.)", page)


NOISY = Method("2 rounds", (("perturbation", "demand"), ("noise_schedule", "once"), ("rounds", 2)))


def test_the_prior_only_row_of_a_study_is_that_of_a_run_that_asks_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    methods = [m for m in DEFAULT_METHODS if m.name in ("noise-free", "prior-only")]
    plan = make_plan(
        ["case14"],
        budgets=[0.2],
        methods=[*methods, NOISY],
        seeds=[1, 2],
        settings={"solver": "clarabel", "beta": "30MW"},
        reference=False,
    )
    study = compare(plan, out=tmp_path / "study", jobs=1)
    silent = study.runs[study.runs.method == "prior-only"]
    words = ["--mechanism", "knorm", "--release", "nothing", "--noise-schedule", "once"]
    words += ["--no-reference"]
    assert main(["run", "case14", "--solver", "clarabel", *words, "--seed", "8", "--json"]) == 0
    alone = json.loads(capsys.readouterr().out)["final"]["physical"]["cost"]
    assert silent.cost.tolist() == pytest.approx([alone], rel=1e-9)
    (total,) = study_totals(study)
    assert (total.runs, total.unknown) == (2, 0), "a run that draws nothing is not noisy"
    (protection,) = protections(study)
    change = "active demand by at most 30 MW and reactive demand by at most 30 MVAr"
    assert str(protection) == f"Protected: any change of one bus's {change}."
    assert protections(publish_study(study)) == [protection]


def test_the_report_of_a_series_says_what_it_protects(tmp_path: Path) -> None:
    series = tmp_path / "day.csv"
    series.write_text("step,load_scale\nnight,0.6\nday,1.0\n", encoding="utf-8")
    words = ["--series", str(series), "--rounds", "2", "--beta", "3MW", "--no-reference"]
    assert main(["run", "case14", *words, "--quiet", "--out", str(tmp_path / "run")]) == 0
    study = read_source(tmp_path / "run")
    (protection,) = map(str, protections(study))
    assert protection.startswith(
        "Protected: any change of one bus's active demand by at most 3 MW and "
    )
    assert protection.endswith(" at most 3 MVAr, of the demand before the public factors.")
    (card,) = cards(study, pd.DataFrame())
    (fact,) = (fact for fact in card.facts if fact.label == "Protected")
    assert protection == f"Protected: {fact.value}."

"""Reports and reproductions of the learning papers: units, bounds, words and figures."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from gridpriv.cli.main import main
from gridpriv.core.text import number_text
from gridpriv.learning.algorithms.base import Task
from gridpriv.report.export import export, make_report
from gridpriv.report.panel import cards
from gridpriv.report.source import read_source, summary
from gridpriv.study import Study


@pytest.fixture(scope="module")
def lasso(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lasso") / "study"
    words = [
        "learn",
        "compare",
        "lasso",
        "--preset",
        "gauthier",
        "--algorithms",
        "cdp-admm,ddp-admm",
        "--totals",
        "1",
        "--seeds",
        "2",
        "--rounds",
        "5",
        "--out",
        str(folder),
        "--quiet",
    ]
    assert main(words) == 0
    return folder


def made_up(**columns):
    """Return a study of one algorithm at one total whose runs have the given values."""
    runs = pd.DataFrame(columns).assign(
        case="adult",
        zoning="",
        load_scale=1.0,
        method="pvp",
        local_updates=1,
        budget="total:1,1e-05",
        mechanism="gaussian",
        status="done",
        reason="",
        total_epsilon=1.0,
        target_delta=1e-5,
    )
    runs["run"] = [str(k) for k in range(len(runs))]
    nothing = pd.DataFrame({"run": pd.Series(dtype=str)})
    tables = dict.fromkeys(("rounds", "zones", "buses", "certificates", "timing"), nothing)
    manifest = {"title": "", "question": "", "study": {}, "planned": len(runs)}
    return Study(None, manifest, {"runs": runs} | tables)


@pytest.mark.parametrize(("seeds", "most"), [([20.0, 36.0], 100.0), ([90.0, 99.0], 100.0)])
def test_a_share_is_never_above_a_hundred_percent(seeds, most):
    (row,) = summary(made_up(test_error_pct=seeds)).itertuples()
    assert row.test_error_pct == pytest.approx(np.mean(seeds))
    assert 0.0 <= row.test_error_pct_low < row.test_error_pct
    assert row.test_error_pct_high == most


def test_other_figures_have_no_upper_bound():
    (row,) = summary(made_up(test_mse=[20.0, 180.0])).itertuples()
    assert row.test_mse_low == 0.0 and row.test_mse_high > 1000.0


def test_one_seed_has_no_interval():
    (row,) = summary(made_up(test_error_pct=[20.0])).itertuples()
    assert np.isnan(row.test_error_pct_low) and np.isnan(row.test_error_pct_high)


def test_regression_is_reported_by_its_mean_squared_error(lasso):
    study = read_source(lasso)
    table = summary(study)
    runs = study.done
    best = table.sort_values("test_mse").iloc[0]
    assert best.test_mse == pytest.approx(runs[runs.method == best.series].test_mse.mean())
    facts = {fact.label: fact for card in cards(study, table) for fact in card.facts}
    assert facts["Lowest mean squared test error"].value == best.series
    assert facts["Mean squared test error"].value == number_text(best.test_mse)
    assert not any("Cost" in label or "$/h" in fact.value for label, fact in facts.items())
    report = make_report(study)
    assert "Test mean squared error" in [c.header for c in report.tables[0].columns]
    (page,) = export(lasso, ["html"])
    text = page.read_text()
    assert text.count("Mean squared test error") >= 2  # against epsilon and by round
    assert "Test error (%)" not in text


def test_an_objective_alone_is_reported_as_mean_loss():
    study = made_up(mean_objective=[0.129, 0.131])
    facts = {fact.label: fact for card in cards(study, summary(study)) for fact in card.facts}
    assert facts["Mean loss"].value == "0.130"
    assert facts["Mean loss"].note.startswith("95 % interval")


def test_two_seeds_are_warned_of():
    warned = [
        any(
            note.code == "two-seeds"
            for section in make_report(made_up(mean_objective=values)).sections
            for note in section.notes
        )
        for values in ([0.129, 0.131], [0.129, 0.13, 0.131])
    ]
    assert warned == [True, False]


def test_no_text_of_a_report_ends_in_two_full_stops(lasso):
    texts = [
        line
        for section in make_report(read_source(lasso)).sections
        for line in map(str, section.notes)
    ]
    assert texts
    assert not [line for line in texts if ".." in line]


@pytest.mark.parametrize("noise", ["secure", "simulated"])
def test_an_interrupted_learning_run_says_what_it_released(tmp_path, monkeypatch, noise):
    real = Task.with_noise

    def dying(self, t, values, releases):
        noisy = real(self, t, values, releases)
        if t == 2:
            raise KeyboardInterrupt
        return noisy

    words = [
        "learn",
        "run",
        "lasso",
        "--algorithm",
        "dpsgd",
        "--rounds",
        "4",
        "--clients",
        "5",
        "--clip",
        "1",
        "--budget",
        "total:2,1e-5",
        "--noise",
        noise,
    ]
    with monkeypatch.context() as patch:
        patch.setattr(Task, "with_noise", dying)
        assert main([*words, "--quiet", "--out", str(tmp_path)]) == 130
    assert main(["report", str(tmp_path)]) == 0
    page = (tmp_path / "report.html").read_text()
    message = "The unfinished run released at most 4 rounds at budget total:2,"
    assert "No run finished" in page and message in page and f"{noise} noise" in page


def test_a_learning_run_has_a_report_with_its_figures_and_its_total(tmp_path):
    words = ["learn", "run", "lasso", "--rounds", "2", "--clients", "5", "--clip", "1", "--quiet"]
    assert main([*words, "--out", str(tmp_path)]) == 0
    document = json.loads((tmp_path / "run.json").read_text())
    assert main(["report", str(tmp_path)]) == 0
    page = (tmp_path / "report.html").read_text()
    assert document["privacy"]["adjacency"].endswith("to any other; no server is trusted")
    assert f"Protected: {document['privacy']['adjacency']}." in page
    assert (
        number_text(document["final"]["test_error"]) in page and "gridpriv learn run lasso" in page
    )
    (total,) = json.loads((tmp_path / "manifest.json").read_text())["totals"]
    assert total["pure"] == pytest.approx(document["privacy"]["total_pure"])
    assert main([*words, "--out", str(tmp_path)]) == 2, "what it released is not written over"
    assert main([*words, "--out", str(tmp_path), "--resume"]) == 0
    assert json.loads((tmp_path / "run.json").read_text()) == document

"""Reports and reproductions of the learning papers: units, bounds, words and figures."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from gridpriv.cli.main import main
from gridpriv.core.display import figure
from gridpriv.learning import reproduce_huang, reproduce_li
from gridpriv.learning.reproduce import Bench
from gridpriv.learning.stored import PlannedRuns
from gridpriv.report.document import make_report, sentence
from gridpriv.report.export import export
from gridpriv.report.source import read_source
from gridpriv.report.summary import answers, summary
from gridpriv.study import Study


@pytest.fixture(scope="module")
def lasso(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lasso") / "study"
    words = ["learn", "compare", "lasso", "--preset", "gauthier", "--algorithms",
             "cdp-admm,ddp-admm", "--totals", "1", "--seeds", "2", "--rounds", "5",
             "--out", str(folder), "--quiet"]  # fmt: skip
    assert main(words) == 0
    return folder


def made_up(**columns):
    """Return a study of one algorithm at one total whose runs have the given figures."""
    runs = pd.DataFrame(columns).assign(
        case="adult", zoning="", load_scale=1.0, scheme="pvp", local_updates=1,
        budget="total:1,1e-05", mechanism="gaussian", status="done", reason="",
        total_epsilon=1.0, target_delta=1e-5,
    )  # fmt: skip
    runs["run"] = [str(k) for k in range(len(runs))]
    nothing = pd.DataFrame({"run": pd.Series(dtype=str)})
    tables = dict.fromkeys(("rounds", "zones", "buses", "statements", "timing"), nothing)
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
    assert best.test_mse == pytest.approx(runs[runs.scheme == best.series].test_mse.mean())
    told, *_ = answers(study, table)
    lowest = f"has the lowest mean squared test error, {figure(best.test_mse)} ("
    assert f'"{best.series}" {lowest}' in told
    assert "costs" not in told
    report = make_report(study)
    assert "Test mean squared error" in [c.header for c in report.tables[0].columns]
    (page,) = export(lasso, ["html"])
    text = page.read_text()
    assert text.count("Test error (mean squared error)") >= 2  # against epsilon and by round
    assert "Test error (%)" not in text


def test_an_objective_alone_is_told_as_mean_loss():
    study = made_up(mean_objective=[0.129, 0.131])
    told, *_ = answers(study, summary(study))
    assert '"pvp" has the lowest mean loss, 0.130 (95 % interval' in told


def test_two_seeds_are_warned_of():
    warned = [
        "12.7 standard errors" in make_report(made_up(mean_objective=values)).sections[0].text[0]
        for values in ([0.129, 0.131], [0.129, 0.13, 0.131])
    ]
    assert warned == [True, False]


@pytest.mark.parametrize("text", ["lemma 1 of Huang et al", "lemma 1 of Huang et al.", "x.. "])
def test_a_sentence_has_one_full_stop(text):
    assert re.search(r"[^.]\.$", sentence(text))


def test_no_text_of_a_report_ends_in_two_full_stops(lasso):
    texts = [line for section in make_report(read_source(lasso)).sections for line in section.text]
    assert any("et al." in line for line in texts)
    assert not [line for line in texts if ".." in line]


def test_a_learning_run_is_refused_in_one_line(tmp_path, capsys):
    words = ["learn", "run", "lasso", "--preset", "gauthier", "--rounds", "2", "--quiet"]
    assert main([*words, "--out", str(tmp_path)]) == 0
    assert main(["report", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "a single learning run" in error and "'gridpriv learn compare'" in error


class StandIn(Bench):
    """A bench whose runs are stand-ins and whose data are four rows."""

    def dataset(self, name, missing="drop", scaling="minmax"):
        del name, missing, scaling
        return SimpleNamespace(y_test=np.array([-1, -1, -1, 1]))


@pytest.fixture
def bench():
    return StandIn("quick", None, PlannedRuns())


@pytest.mark.parametrize(
    "make", [reproduce_huang.figure4, reproduce_huang.figure6, reproduce_li.figure2,
             reproduce_li.figure5],
)  # fmt: skip
def test_reproductions_on_adult_say_that_seeds_share_a_split(bench, make):
    notes = " ".join(make(bench).notes)
    assert "one division of Adult into training and test rows, that of seed 0" in notes


def test_accuracy_is_set_beside_the_larger_class(bench):
    assert "75.0 % of the test rows" in " ".join(reproduce_li.figure3(bench).notes)


@pytest.mark.parametrize(
    "make", [reproduce_huang.figure1, reproduce_huang.figure3, reproduce_huang.table2,
             reproduce_li.figure4, reproduce_li.figure5, reproduce_li.figure6],
)  # fmt: skip
def test_legends_stand_beside_the_axes(bench, make):
    page = Figure(figsize=(9, 4), layout="constrained")
    make(bench).draw(page)
    page.draw_without_rendering()
    (legend,) = page.legends
    box, whole = legend.get_window_extent(), page.bbox
    assert box.x0 >= whole.x0 and box.x1 <= whole.x1 and box.y0 >= whole.y0
    assert all(ax.get_window_extent().y0 >= box.y1 for ax in page.axes)
    assert all(ax.get_legend() is None for ax in page.axes)


class Timed:
    """Runs of 100 rounds of a second (DP-ADMM: a tenth), one of which was held up for an hour."""

    def run(self, *_, algorithm, **__):
        second = 0.1 if algorithm == "dp-admm" else 1.0
        return {"series": {"seconds": [second] * 50 + [3600.0] + [second] * 49}}


def test_times_are_in_seconds_and_survive_a_pause():
    found = reproduce_huang.table2(Timed())
    assert list(found.table.columns) == ["epsilon", "ADMM (s)", "PVP (s)", "DVP (s)", "DP-ADMM (s)"]
    assert found.table["ADMM (s)"].tolist() == pytest.approx([100.0] * 3)
    assert found.table["DP-ADMM (s)"].tolist() == pytest.approx([10.0] * 3)
    assert found.claims[0].outcome == "holds"
    assert "what else the machine does" in found.notes[0] and "median" in found.notes[0]


def test_totals_are_compared_with_either_certificate():
    found = reproduce_li.figure6(None)
    outcomes = {c.text: (c.outcome, c.numbers) for c in found.claims}
    (with_sampling,) = [k for k in outcomes if "full participation" in k and "Poisson" in k]
    (without,) = [k for k in outcomes if "full participation" in k and "amplification" in k]
    assert "add-one" in with_sampling and outcomes[with_sampling][0] == "holds"
    assert outcomes[without][0] == "does not hold"
    assert "0.7048 against 0.5084" in outcomes[without][1]


def test_headers_are_not_broken_within_words(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["learn", "reproduce", "li-fig6", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out.partition("────")[0].split()
    wanted = [word for name in reproduce_li.figure6(None).table.columns for word in name.split()]
    assert sorted(printed[-len(wanted) :]) == sorted(wanted)

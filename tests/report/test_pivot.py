"""Tables for papers against pandas and scipy."""

from __future__ import annotations

import csv
import itertools
import re
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pandas as pd
import pytest
from scipy import stats

from gridpriv.cli.main import main
from gridpriv.core.errors import InputError
from gridpriv.core.store import read_study
from gridpriv.report.export import _pivot
from gridpriv.report.tables import _cell
from gridpriv.study import Study


def test_cells_are_means_and_students_intervals_over_seeds(study: Study) -> None:
    table = study.table("method", "budget", "cost")
    runs = study.done[study.done.mechanism != "none"]
    for (method, budget), rows in runs.groupby(["method", "budget"]):
        column = "cost", f"total epsilon {budget.split(':')[1].split(',')[0]}"
        assert table.mean.loc[method, column] == pytest.approx(rows.cost.mean(), rel=1e-12)
        low, _ = stats.t.interval(0.95, len(rows) - 1, rows.cost.mean(), stats.sem(rows.cost))
        half = rows.cost.mean() - low
        assert table.half.loc[method, column] == pytest.approx(half, rel=1e-9, abs=1e-9)
    assert list(table.mean.index) == list(dict.fromkeys(study.done.method)), "the plan's order"
    assert table.caption.startswith("Cost ($/h): mean and 95 % interval over 3 seeds")


def test_rows_and_columns_may_be_several(study: Study) -> None:
    table = study.table(["case", "method"], "budget", ["cost", "redispatch_shed_mw"])
    assert table.mean.index.nlevels == 2
    assert {name for name, _ in table.mean.columns} == {"cost", "redispatch_shed_mw"}
    assert "±" in table.text.to_string() and "<table" in table._repr_html_()


AXES = ["case", "method", "budget"]
SPLITS = [
    (list(order[:n]), list(order[n:])) for order in itertools.permutations(AXES) for n in (1, 2)
]


@pytest.mark.parametrize(("rows", "columns"), SPLITS)
@pytest.mark.parametrize("missing", [(), (2, 3)])
def test_every_cell_is_under_its_own_labels(
    study: Study, rows: list[str], columns: list[str], missing: tuple[int, ...]
) -> None:
    plan = itertools.product(["case30", "case14"], ["z", "a"], ["total:5", "total:1"], [1, 2])
    runs = [
        {**dict(zip([*AXES, "seed"], run, strict=True)), "cost": 100.0 + 3.0**n, "status": "done"}
        for n, run in enumerate(plan)
        if n not in missing
    ]
    like = study.done.drop(columns=list(runs[0])).iloc[[0] * len(runs)].reset_index(drop=True)
    made = replace(study, tables={"runs": pd.concat([pd.DataFrame(runs), like], axis=1)})
    costs: dict[tuple[str, ...], list[float]] = {}
    for run in runs:
        words = {**run, "budget": str(run["budget"]).replace("total:", "total epsilon ")}
        costs.setdefault(tuple(words[name] for name in [*rows, *columns]), []).append(run["cost"])
    t95 = 12.7062047  # Student's quantile of 97.5 % at one degree of freedom
    expected = {
        (" ".join(key[: len(rows)]), " ".join(key[len(rows) :])): (
            _cell("{} \u00b1 {}", fmean(pair), t95 * abs(pair[1] - pair[0]) / 2, "$/h")
        )
        for key, pair in costs.items()
    }
    files = _pivot(made, (rows, columns), ["cost"], "report")
    header, *lines = csv.reader(files["report-csv/pivot.csv"].decode().splitlines())
    n = len(rows)
    assert header[:n] == rows
    assert expected == {
        (" ".join(line[:n]), name.removeprefix("cost ")): cell
        for line in lines
        for name, cell in zip(header[n:], line[n:], strict=True)
        if cell != "\u2013"
    }
    text = files["report-tex/pivot.tex"].decode().replace(r" \\", "")
    grid = [line.split(" & ") for line in text.splitlines() if "&" in line]
    levels, body = grid[: len(columns)], grid[len(columns) :]
    assert expected == {
        (line[0], " ".join(level[j] for level in levels)): line[j]
        .strip("$")
        .replace(r"\pm", "\u00b1")
        for line in body
        for j in range(1, len(line))
        if "pm" in line[j]
    }


def test_latex_is_booktabs_and_inert(study: Study) -> None:
    text = study.table("method", "budget", "cost").to_latex()
    assert text.count(r"\toprule") == text.count(r"\bottomrule") == 1
    assert re.search(r"\$[\d.]+ \\pm [\d.]+\$", text)
    assert r"100 \% name" in text and r"\& 100" in text
    head, _, body = text.partition(r"\midrule")
    assert {line.count("&") for line in head.splitlines() if "&" in line} == {
        line.count("&") - line.count(r"\&") for line in body.splitlines() if "&" in line
    }


@pytest.mark.parametrize(
    ("rows", "columns", "values", "message"),
    [
        ("method", "case", "cost", "different values of budget. Add 'budget'"),
        ("methud", "budget", "cost", "did you mean 'method'"),
        ("method", "budget", "cots", "did you mean 'cost'"),
    ],
)
def test_a_table_that_says_nothing_is_refused(
    study: Study, rows: str, columns: str, values: str, message: str
) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        study.table(rows, columns, values)


def test_a_study_without_values_is_refused(study: Study) -> None:
    for changed, message in (
        ({"status": "failed"}, "no finished run to tabulate"),
        ({"redispatch_shed_mw": float("nan")}, "has a value of redispatch_shed_mw"),
    ):
        empty = replace(study, tables={"runs": study.runs.assign(**changed)})
        with pytest.raises(InputError, match=message):
            empty.table("method", "budget", "redispatch_shed_mw")


def test_a_missing_baseline_is_not_replaced_by_another_value(
    study: Study,
) -> None:
    noisy = study.runs[study.runs.mechanism != "none"]
    with pytest.raises(InputError, match=r"has a cost of privacy.*--values redispatch_shed_mw"):
        replace(study, tables={"runs": noisy}).table("method", "budget")


def test_the_command_writes_it(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(copied), "--format", "tex", "--pivot", "method,budget"]) == 0
    written = (copied / "report-tex" / "pivot.tex").read_text()
    assert written == read_study(copied).table("method", "budget").to_latex()
    assert (copied / "report-csv" / "pivot.csv").is_file()
    capsys.readouterr()
    assert main(["report", str(copied), "--format", "tex", "--pivot", "method"]) == 2
    assert "such as method,budget" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("mean", "half", "text"),
    [
        (1440.5012, 3555.571, "1441 ± 3556"),
        (58.6612, 65.821, "59 ± 66"),
        (0.42156, 0.01161, "0.422 ± 0.012"),
        (2.8612, 7.973, "2.9 ± 8.0"),
    ],
)
def test_a_mean_has_the_decimals_of_two_digits_of_its_interval(mean, half, text):
    assert _cell("{} ± {}", mean, half, "$/h") == text

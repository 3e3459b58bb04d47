from __future__ import annotations

import math
import re

import pandas as pd
import pytest

from gridpriv.cli.output import print_table
from gridpriv.cli.study import print_summary
from gridpriv.core.text import amount
from gridpriv.study.plan import DEFAULT_METHODS


@pytest.mark.parametrize("columns", [80, 120])
def test_numbers_are_not_split_and_gaps_stay_with_them(columns, monkeypatch, capsys) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    rows = [
        [
            "paper: objective perturbation, Gaussian, linearized",
            "per-release:0.1234567,1e-05",
            0.123456,
            123456.7,
            -1.234e-5,
            1.234e12,
            12,
        ],
        ["no noise", "none", None, 2.747, None, 0.2206, 1],
    ]
    print_table("T", ["way", "budget", "total eps", "shed", "95 % +-", "imbalance", "seeds"], rows)
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= columns
    first = next(line for line in printed.splitlines() if "0.1235" in line)
    for number in ("0.1235", "123500", "-1.234e-05", "1.234e+12", "12"):
        assert re.search(rf"(?<!\S){re.escape(number)}(?!\S)", first), (number, printed)
    last = next(line for line in printed.splitlines() if "no noise" in line)
    assert [m.end() for m in re.finditer(r" -(?= )", last)] == [
        first.index("0.1235") + len("0.1235"),
        first.index("-1.234e-05") + len("-1.234e-05"),
    ]


@pytest.mark.parametrize("costs", [True, False])
def test_the_answer_of_a_comparison_splits_no_word_at_80_columns(costs, monkeypatch, capsys):
    """The names of the default ways, and the widest figures of each kind."""
    monkeypatch.setenv("COLUMNS", "80")
    ways = [method.name for method in DEFAULT_METHODS]
    figures = {"cost_of_privacy": 123456.7, "cost_of_privacy_high": 654321.0} if costs else {}
    nothing = dict.fromkeys(("cost_of_privacy", "cost_of_privacy_high"), math.nan)
    row = nothing | {
        "panel": "case118",
        "total_epsilon": 0.5,
        "redispatch_shed_mw": 1e-12,
        "curtailed_mw": 1e-12,
        "balancing_mw": 2.4e-9,
        "ac_feasible": 0.8765,
        "seeds": 5,
        "budget": "total:0.5,1e-5",
        "target_delta": 1e-5,
    }
    print_summary(pd.DataFrame([row | figures | {"series": way} for way in ways]))
    printed = capsys.readouterr().out
    table, _, _ = printed.partition("\nepsilon: total")
    assert table != printed and max(map(len, table.splitlines())) <= 80
    words = set(printed.split())
    assert {word for way in ways for word in way.split()} <= words
    assert {"0.5", "0", "88"} <= words, printed
    assert ({"123457", "530864"} <= words) is costs
    assert ("cost above noise-free: " in " ".join(printed.split())) is costs, "no value, no column"
    note = "balancing power (half of all interchange deviations); costs include its"
    assert note in " ".join(printed.split())


@pytest.mark.parametrize(("mean", "printed"), [(1.478, True), (1e-9, False)])
def test_a_comparison_names_the_method_that_curtails_most(mean, printed, capsys):
    figures = dict.fromkeys(("cost_of_privacy", "cost_of_privacy_high", "target_delta"), math.nan)
    figures |= dict.fromkeys(("redispatch_shed_mw", "balancing_mw", "total_epsilon"), 0.0)
    row = figures | {"panel": "own", "ac_feasible": 1.0, "seeds": 2, "budget": "total:2"}
    methods = [("one-shot", 0.0), ("paper", mean), ("failed", math.nan)]
    rows = [row | {"series": name, "curtailed_mw": mw} for name, mw in methods]
    print_summary(pd.DataFrame(rows))
    text = " ".join(capsys.readouterr().out.split())
    assert ("curtailed generation: up to 1.478 MW (own, paper)" in text) is printed


def test_columns_move_together_before_words_are_broken(monkeypatch, capsys):
    """The columns of ``plan`` on case14: nine heads were broken as in 'relea se'."""
    monkeypatch.setenv("COLUMNS", "80")
    heads = [
        "release",
        "schedule",
        "ok",
        "error MW",
        "extra $/h",
        "least $/h",
        "most $/h",
        "bal. MW",
        "saved $/h",
    ]
    *costs, saved = (amount(cost, "$/h") for cost in (1314.46, 2.5, 3084.21, 1276.61))
    error, drawn = amount(101.9, "MW"), amount(1.342, "MW")
    rows = [["nothing", "central", "10/10", error, *costs, drawn, saved]]
    print_table("T", heads, rows)
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    assert {"release", "schedule", "nothing", "central", "10/10"} <= set(printed.split())

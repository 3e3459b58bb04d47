"""Computed tables of the grid papers, against closed forms."""

from __future__ import annotations

import json
import math

import pytest
from scipy.stats import norm

from gridpriv.cli.main import main
from gridpriv.grid.library import load_case
from gridpriv.study import papers
from gridpriv.study.papers import (
    admittances,
    capacities,
    excess_loss,
    loads,
    restoration,
    steps_epsilon,
)


def test_a_shadow_price_is_that_of_the_triangle() -> None:
    """One more MW on line 1-3 shifts 3 MW from the expensive generator to the cheap one."""
    table = capacities().table.set_index("dearest")
    for dear in (20.0, 50.0, 100.0):
        assert table.loc[dear, "shadow_price"] == pytest.approx(3.0 * (dear - 10.0))


def test_the_price_of_a_load_is_that_of_the_triangle() -> None:
    """One more MW at bus 3: one MW less from the cheap generator, two more from the other."""
    table = loads().table.set_index("dearest")
    for dear in (20.0, 50.0, 100.0):
        assert table.loc[dear, "price"] == pytest.approx(2.0 * dear - 10.0)
    assert steps_epsilon(10, 1.0) == pytest.approx({"as intended": 1.25, "public code": 401.0})


def test_one_line_uses_up_what_its_three_releases_cost() -> None:
    """Every line of case30 in turn: g changes by alpha and b by the same relative change."""
    case, alpha = load_case("case30"), 0.1
    lines = case.r != 0.0
    y, n = 1.0 / (case.r[lines] + 1j * case.x[lines]), case.n_branch
    losses = []
    for g, b in zip(y.real, y.imag, strict=True):
        moved_b = abs(b * (g + alpha) / g - b)
        own, mean = 3.0 * alpha, 3.0 * alpha / n
        losses.append(alpha / own + alpha / n / mean + moved_b / n / mean)
    row = admittances(["case30"]).table.iloc[0]
    assert row["certified_worst_line"] == pytest.approx(max(losses))


def test_equal_deviations_lose_what_the_gaussian_mechanism_loses() -> None:
    """Balle and Wang (2018): delta = Phi(1/2m - m) - e Phi(-1/2m - m) at epsilon 1."""
    for m in (0.8, 1.5):
        exact = norm.cdf(0.5 / m - m) - math.e * norm.cdf(-0.5 / m - m)
        assert excess_loss(m, 0.0, m) == pytest.approx(exact, rel=1e-6)


def test_a_deviation_that_follows_the_load_loses_more() -> None:
    assert excess_loss(0.5, 0.9, 0.45) > 100.0 * excess_loss(0.5, 0.9, 0.5)


def test_restored_loads_are_near_the_true_cost() -> None:
    table = restoration(["case14"], 2).table.set_index("method")
    restored = table.loc["restored, true cost"]
    assert restored["feasible"] == 1.0
    assert restored["cost_error"] <= 1.0
    assert math.isinf(restored["certified"])
    assert table.loc["naive Laplace", "certified"] == 2.0
    assert table.loc["K-norm, projected", "feasible"] == 1.0


def test_the_command_prints_writes_and_refuses(tmp_path, capsys) -> None:
    assert main(["reproduce", "dvorkin-tco", "--out", str(tmp_path / "out"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [claim["outcome"] for claim in document["claims"]] == ["does not hold"]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "dvorkin-tco.json",
        "table.csv",
        "claims.csv",
    }
    assert main(["reproduce", "dvorkin-tco", "--scale", "full"]) == 2
    assert "scale" in capsys.readouterr().err


@pytest.mark.large
def test_a_feeder_s_flows_need_more_noise_than_one() -> None:
    table = papers.feeder().table
    assert table["delta"].iloc[1] > 1e-3
    assert table["certified"].iloc[2] > 1.5

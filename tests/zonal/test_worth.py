"""What stands beside a private run: no noise, nothing released, and what the budget buys."""

from __future__ import annotations

import json

import pytest

from gridpriv.cli.main import main
from gridpriv.zonal.summary import worthless

GRID = ["run", "case14", "--objective", "cost", "--rounds", "5", "--solver", "clarabel", "--json"]
ONCE = ["--mechanism", "knorm", "--refresh", "run", "--beta", "20MW", "--seed", "4"]


def final(capsys, *flags):
    assert main([*GRID, *flags]) == 0
    return json.loads(capsys.readouterr().out)


def test_both_rows_are_those_of_runs_that_ask_for_them(capsys):
    held = final(capsys, *ONCE)["final"]["cost_of_privacy"]
    plain = final(capsys, "--mechanism", "none")["final"]["physical"]
    silent = final(capsys, *ONCE, "--release", "nothing", "--seed", "9")["final"]["physical"]
    assert held["without_noise_cost"] == pytest.approx(plain["cost"], rel=1e-9)
    assert held["nothing_released_cost"] == pytest.approx(silent["cost"], rel=1e-9)
    assert held["nothing_released_shed_mw"] == silent["shed_mw"]


def test_a_budget_that_buys_less_than_nothing_is_said_to_first(capsys):
    noise = ["--perturbation", "objective", "--beta", "20MW", "--seed", "4"]
    flags = [*noise, "--mechanism", "laplace", "--budget", "total:0.1"]
    document = final(capsys, *flags)
    costs = document["final"]["physical"]["cost"], document["final"]["cost_of_privacy"]
    assert costs[0] is None or costs[0] > costs[1]["nothing_released_cost"]
    assert main([*GRID[:-1], *flags]) == 0
    told = capsys.readouterr().out
    assert told.index("worth nothing here") < told.index("Protected:")
    assert "cost, nothing released" in told


def document(found, silent, objective="cost"):
    figures = {"cost": found, "shed_mw": 0.0 if found is None else found}
    held = {"nothing_released_cost": silent, "nothing_released_shed_mw": silent}
    return {
        "final": {"physical": figures, "cost_of_privacy": held},
        "settings": {"objective": objective},
    }


@pytest.mark.parametrize("objective", ["cost", "imbalance"])
def test_a_budget_is_worth_nothing_only_where_its_run_is_worse(objective):
    assert worthless(document(10.0, 12.0, objective)) is None
    assert worthless(document(10.0, 10.0, objective)) is None
    assert worthless(document(12.0, 10.0, objective)) is not None


def test_a_run_without_a_dispatch_is_worse_than_one_with():
    assert "no dispatch" in worthless(document(None, 10.0))


def test_what_is_not_asked_for_is_not_made(capsys):
    assert final(capsys, *ONCE, "--no-reference")["final"]["cost_of_privacy"] is None

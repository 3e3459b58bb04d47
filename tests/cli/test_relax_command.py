"""``gridpriv relax``: its document, its files, its exit codes."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from gridpriv.cli.main import main
from gridpriv.cli.optimum import price_rows

KEYS = {
    "case",
    "objective",
    "bound",
    "unit",
    "relative_error",
    "status",
    "solver",
    "seconds",
    "shed_mw",
    "explanation",
}


def test_the_document_has_the_bound_and_what_binds(capsys):
    assert main(["relax", "case14", "--objective", "cost", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document) == KEYS
    assert document["bound"] == pytest.approx(8075.12, abs=0.05)
    assert document["unit"] == "$/h"
    assert document["explanation"].startswith(
        "the relaxation serves all demand; voltage at its upper"
    )


def test_files_hold_prices_and_limits(tmp_path, capsys):
    out = tmp_path / "relax"
    assert main(["relax", "case14", "--objective", "cost", "--out", str(out)]) == 0
    buses = pd.read_csv(out / "buses.csv")
    assert len(buses) == 14
    assert buses["p_price"].between(36, 42).all()
    assert {"relax.json", "buses.csv", "binding.csv"} == {p.name for p in out.iterdir()}
    dearest = int(buses.loc[buses["p_price"].idxmax(), "bus"])
    assert f"highest price (bus {dearest})" in capsys.readouterr().out


def test_an_infeasible_balance_is_exit_code_3_and_says_why(capsys):
    words = ["relax", "case14", "--objective", "cost", "--load-scale", "2.9", "--json"]
    assert main(words) == 3
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert document["status"] == "Infeasible"
    assert document["bound"] is None
    assert "it would shed" in captured.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--objective", "price"], "--objective price: must be one of imbalance, cost"),
        (["--imbalance-weight", "3"], "--imbalance-weight 3: must be"),
        (["--load-scale", "-1"], "--load-scale -1: must be"),
        (["--solver", "gurobi"], "--solver gurobi: must be"),
        (["--outage", "gen:99"], "gen:99"),
    ],
)
def test_bad_input_is_exit_code_2_and_named(words, message, capsys):
    assert main(["relax", "case14", *words]) == 2
    assert message in capsys.readouterr().err


def test_an_outage_is_named_with_its_ends(capsys):
    words = ["case14", "--outage", "branch:2", "--outage", "gen:3"]
    assert main(["relax", *words]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Out of service: branch:2 (1-5), gen:3 (3).")
    assert "lower bound of the squared imbalance   0, to solver accuracy" in out


def test_the_price_of_curtailed_generation_is_stated_where_prices_include_it(tmp_path, capsys):
    """A bus that feeds in 500 MW, for a load of 259 MW: one more MW of load saves 100 $/h."""
    (tmp_path / "wind.csv").write_text("bus,pd_mw,qd_mvar\n14,-500,0\n", encoding="utf-8")
    assert main(["acopf", "case14", "--demand", str(tmp_path / "wind.csv")]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "highest price (bus 14) -100" in printed or "lowest price (bus 14) -100" in printed
    words = "Curtailed generation has a price of 100 $/MWh, 1 % of --voll. Bus prices include it"
    assert words in printed
    assert main(["acopf", "case14"]) == 0
    assert "Curtailed generation has" not in capsys.readouterr().out


def test_a_price_that_is_a_solver_error_is_printed_as_zero():
    """acopf printed a lowest price of 7.418e-11 $/MWh of a grid with a free generator."""
    rows = price_rows(np.array([7.418e-11, np.nan, 20.25]), np.array([4, 5, 6]))
    assert rows == [
        ["lowest price (bus 4)", 0.0, "$/MWh"],
        ["highest price (bus 6)", 20.25, "$/MWh"],
    ]

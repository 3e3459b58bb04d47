from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from matplotlib.figure import Figure
from sentences import texts

import gridpriv
from gridpriv.cli.main import main
from gridpriv.zonal.messages import messages
from gridpriv.zonal.tables import result_tables

pytestmark = pytest.mark.usefixtures("few_replans")


@pytest.fixture(scope="module")
def result(case14, zones14):
    settings = gridpriv.Settings(rounds=2, solver="clarabel", seed=1)
    return gridpriv.run(case14, zones14, settings)


def test_repr_is_one_line(result) -> None:
    text = repr(result)
    assert re.match(r"RunResult\(case14, 3 zones, \d+ AC rounds, ", text)
    assert "rounds, K-norm noise on demand (drawn once), " in text
    assert "\n" not in text and len(text) < 200
    assert f"{result.as_dict()['final']['physical']['shed_mw']:.4g} MW shed" in text
    assert "total epsilon 5 at delta = 1e-05" in text


def test_rounds_that_converged_early_are_counted_among_those_planned(case14, zones14) -> None:
    settings = gridpriv.Settings(rounds=100, seed=1, planning="soc", acceleration="anderson")
    result = gridpriv.run(case14, zones14, settings)
    finished = len(result.trace.rounds)
    assert 5 < finished < 100
    assert f" {finished} of 100 rounds of exact updates" in repr(result)
    (message,) = (m for m in messages(result.as_dict()) if m.code == "ended-early")
    assert f"after {finished} rounds of 100: " in str(message)
    assert "no entry of the consensus residual is above 0.0001 p.u." in str(message)
    short = gridpriv.run(case14, zones14, gridpriv.Settings(rounds=2, seed=1)).as_dict()
    assert "ended-early" not in {m.code for m in messages(short)}


@pytest.mark.parametrize(
    ("protects", "other", "own"), [("p", "reactive", "active"), ("q", "active", "reactive")]
)
def test_demand_that_is_not_protected_is_reported(
    case14, zones14, result, protects, other, own
) -> None:
    """A bus of constant power factor changes both; fully protected demand needs no message."""
    settings = gridpriv.Settings(rounds=1, solver="clarabel", seed=1, protects=protects)
    document = gridpriv.run(case14, zones14, settings).as_dict()
    text = " ".join(texts(document))
    assert f"any change of one bus's {own} demand by at most 1 MW. " in text.replace("MVAr", "MW")
    assert f"Only {own} demand is protected. Where a bus's {other} demand follows it" in text
    assert "demand is protected. Where" not in " ".join(texts(result.as_dict()))


def test_html_is_well_formed_and_holds_the_figures(result) -> None:
    page = ET.fromstring(f"<div>{result._repr_html_()}</div>")
    text = " ".join(page.itertext())
    assert "AC-feasible" in text and "Privacy (worst zone)" in text
    assert f"seed {result.seed}" in text


def test_html_does_not_run_what_a_case_is_called() -> None:
    from gridpriv.core.text import html_table

    text = html_table(("<script>", ["<b>"], [["</table><script>alert(1)</script>", None, 1.5]]))
    assert "<script" not in text
    assert [cell.text for cell in ET.fromstring(text).iter("td")][1:] == ["-", "1.5"]


def curve(ax) -> tuple[list[float], list[float]]:
    (line,) = ax.lines
    return list(line.get_xdata()), list(line.get_ydata())


@pytest.fixture(scope="module")
def relaxed(case14, zones14):
    return gridpriv.run(case14, zones14, gridpriv.Settings(rounds=3, seed=1, planning="soc"))


def test_rounds_on_the_ac_equations_are_rounds_with_residuals(result) -> None:
    iterations, rounds = result.ac_rounds.iterations, result.rounds
    assert len(iterations) > 3 and list(rounds["round"]) == list(range(1, len(iterations) + 1))
    assert list(rounds["consensus_residual"]) == [item.primal for item in iterations]
    assert list(rounds["dual_residual"]) == [item.dual for item in iterations]
    assert rounds["consensus_residual"].iloc[-1] == result.consensus_residual
    final = result.as_dict()["final"]
    last = [final[name] for name in ("objective", "cost", "plan_shortage_mw")]
    assert list(rounds[["objective", "cost", "plan_shortage_mw"]].iloc[-1]) == last
    assert rounds["cost"].iloc[:-1].isna().all()
    result.plot.convergence(quantity="dual_residual")
    with pytest.raises(gridpriv.InputError, match="quantity = 'cost'"):
        result.plot.convergence(quantity="cost")


@pytest.mark.parametrize(
    "quantity", ["consensus_residual", "cost", "objective", "plan_shortage_mw"]
)
def test_convergence_draws_a_column_of_the_rounds(relaxed, quantity) -> None:
    result = relaxed
    ax = result.plot.convergence(quantity=quantity)
    assert curve(ax) == (list(result.rounds["round"]), list(result.rounds[quantity]))
    assert ax.get_title(loc="left").startswith("case14: ")
    unit = {"consensus_residual": "(p.u.)", "cost": "($/h)", "plan_shortage_mw": "(MW)"}
    assert unit.get(quantity, "(p.u.^2)") in " ".join(ax.get_ylabel().split())
    assert ax._repr_png_().startswith(b"\x89PNG")
    with pytest.raises(gridpriv.InputError, match="did you mean 'consensus_residual'"):
        result.plot.convergence(quantity="consensus_residuals")


def test_figures_of_a_result_draw_its_tables(result) -> None:
    tables = result_tables(result.solution)
    ax = result.plot.voltages()
    shown = np.concatenate([line.get_ydata() for line in ax.lines[: result.zoning.n_zone]])
    assert sorted(shown) == sorted(tables["res_bus"]["vm_pu"])
    by_name = dict(zip([t.get_text() for t in ax.get_xticklabels()], shown, strict=True))
    assert by_name == {str(k): v for k, v in tables["res_bus"]["vm_pu"].items()}
    prices = np.concatenate([line.get_ydata() for line in result.plot.zone_prices().lines])
    assert sorted(prices) == sorted(result.zone_prices["p_price"])
    assert "($/MWh)" in result.plot.zone_prices().get_ylabel()
    lines = tables["res_line"]
    ends = (np.hypot(lines[f"p_{e}_mw"], lines[f"q_{e}_mvar"]) for e in ("from", "to"))
    assert curve(result.plot.loading())[1] == sorted(np.maximum(*ends), reverse=True)
    drawn, rows = result.plot.interchange(), result.physical["interchange"]
    assert [bar.get_width() for bar in drawn.containers[0]] == [row["actual_mw"] for row in rows]
    (marks,) = (line for line in drawn.lines if line.get_label() == "scheduled")
    assert list(marks.get_xdata()) == [row["scheduled_mw"] for row in rows]
    assert "tie line (5)" in [t.get_text() for t in result.plot.network().get_legend().texts]


@pytest.mark.parametrize(
    "name", ["convergence", "zones", "network", "voltages", "zone_prices", "loading", "interchange"]
)
def test_figures_of_a_result_are_drawn_on_given_axes(result, name) -> None:
    figure = Figure()
    ax = figure.subplots()
    assert getattr(result.plot, name)(ax) is ax
    sized = getattr(result.plot, name)(figsize=(5.0, 4.0), legend=False)
    assert sized.figure.get_size_inches().tolist() == [5.0, 4.0] and sized.get_legend() is None


def test_a_study_shows_its_runs(tmp_path) -> None:
    study = gridpriv.compare(
        "case14",
        out=tmp_path / "s",
        mechanism=["none"],
        zonings=["2"],
        jobs=1,
        settings={"rounds": 1},
    )
    assert repr(study).endswith("1 runs)") and str(tmp_path / "s") in repr(study)
    cells = [c.text for c in ET.fromstring(study._repr_html_()).iter("td")]
    assert "noise-free" in cells and "done" in cells


@pytest.mark.parametrize("coordination", ["rounds", "central"])
def test_a_run_that_releases_nothing_costs_nothing(capsys, coordination) -> None:
    """Its totals are 0, not unknown, and it states no distance that it would protect."""
    flags = ["--release", "nothing", "--coordination", coordination, "--rounds", "2", "--seed", "1"]
    assert main(["run", "case14", "--solver", "clarabel", "--no-reference", *flags]) == 0
    text = capsys.readouterr().out
    assert "Privacy: total epsilon 0, as no demand is released." in text
    assert "Protected" not in text and "nothing of demand is released" in text


def test_a_central_schedule_has_no_rounds(case14, zones14) -> None:
    settings = gridpriv.Settings(coordination="central", rounds=1, solver="clarabel", seed=1)
    result = gridpriv.run(case14, zones14, settings)
    text = repr(result) + result._repr_html_()
    assert "one central AC schedule" in text
    assert "1 round" not in text and "0 solves" not in text

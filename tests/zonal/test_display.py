from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

import gridpriv
from gridpriv.cli.main import main
from gridpriv.zonal.summary import sentences


@pytest.fixture(scope="module")
def result(case14, zones14):
    settings = gridpriv.Settings(rounds=2, solver="clarabel", seed=1)
    return gridpriv.run(case14, zones14, settings)


def test_repr_is_one_line(result) -> None:
    told = repr(result)
    assert told.startswith(
        "RunResult(case14, 3 zones, 2 rounds of exact updates, laplace noise on demand"
    )
    assert "\n" not in told and len(told) < 200
    assert f"{result.as_dict()['final']['recourse']['shed_mw']:.4g} MW not served" in told
    assert "total epsilon 5 at delta 1e-05" in told


def test_rounds_that_agreed_early_are_told_of_those_planned(case14, zones14) -> None:
    settings = gridpriv.Settings(rounds=100, seed=1)
    result = gridpriv.run(case14, zones14, settings)
    assert 5 < len(result.trace.rounds) < 100
    assert f" {len(result.trace.rounds)} of 100 rounds of exact updates" in repr(result)
    why = f"Rounds stopped after {len(result.trace.rounds)} rounds of 100: every shared variable"
    told = [one for one in sentences(result.as_dict()) if one.startswith(why)]
    assert told == [f"{why} agrees within 0.0001 p.u. (--tolerance 0 runs all)."]
    assert not any("stopped" in one for one in sentences(_short(case14, zones14)))


def _short(case14, zones14):
    return gridpriv.run(case14, zones14, gridpriv.Settings(rounds=2, seed=1)).as_dict()


@pytest.mark.parametrize(
    ("protects", "other", "own"), [("p", "reactive", "active"), ("q", "active", "reactive")]
)
def test_what_moves_with_what_is_protected_is_said(
    case14, zones14, result, protects, other, own
) -> None:
    """A bus of constant power factor moves both; demand that is protected whole needs no word."""
    settings = gridpriv.Settings(rounds=1, solver="clarabel", seed=1, protects=protects)
    document = gridpriv.run(case14, zones14, settings).as_dict()
    told = " ".join(sentences(document))
    assert f"one bus changes its {own} demand by 1 MW at most. " in told.replace("MVAr", "MW")
    assert f"its {other} demand follows its {own} one" in told.replace("a bus's", "its")
    assert "follows" not in " ".join(sentences(result.as_dict()))


def test_html_is_well_formed_and_holds_the_figures(result) -> None:
    page = ET.fromstring(f"<div>{result._repr_html_()}</div>")
    text = " ".join(page.itertext())
    assert "the grid can carry it" in text and "Privacy (worst zone)" in text
    assert f"seed {result.seed}" in text


def test_html_does_not_run_what_a_case_is_called() -> None:
    from gridpriv.core.display import html_table

    told = html_table(("<script>", ["<b>"], [["</table><script>alert(1)</script>", None, 1.5]]))
    assert "<script" not in told
    assert [cell.text for cell in ET.fromstring(told).iter("td")][1:] == ["-", "1.5"]


def test_pictures_of_a_result(result, tmp_path) -> None:
    shown = result.plot.convergence()._repr_svg_()
    assert [
        word in shown
        for word in ("Consensus residual", "Cost of generation", "Squared imbalance", "Shed")
    ] == [True] * 4
    for picture, name in ((result.plot.zones(), "z.svg"), (result.plot.network(), "n.png"),
                          (result.plot.convergence(), "c.pdf")):  # fmt: skip
        assert ET.fromstring(picture._repr_svg_()).tag.endswith("svg")
        assert picture.save(tmp_path / name).stat().st_size > 1000
    assert (tmp_path / "z.svg").read_text().strip() == result.plot.zones()._repr_svg_()


def test_a_study_shows_its_runs(tmp_path) -> None:
    study = gridpriv.compare(
        "case14", out=tmp_path / "s", mechanism=["none"], zonings=["2"], jobs=1,
        settings={"rounds": 1},
    )  # fmt: skip
    assert repr(study).endswith("1 runs)") and str(tmp_path / "s") in repr(study)
    cells = [c.text for c in ET.fromstring(study._repr_html_()).iter("td")]
    assert "no noise" in cells and "done" in cells


@pytest.mark.parametrize("coordination", ["rounds", "central"])
def test_a_run_that_releases_nothing_costs_nothing(capsys, coordination) -> None:
    """Its totals are 0, not unknown, and it states no distance that it would protect."""
    flags = ["--release", "nothing", "--coordination", coordination, "--rounds", "2", "--seed", "1"]
    assert main(["run", "case14", "--solver", "clarabel", "--no-reference", *flags]) == 0
    told = capsys.readouterr().out
    totals = [line.split() for line in told.splitlines() if line.strip().startswith("total ")]
    assert len(totals) == 2 and all(words[-1] == "0" for words in totals)
    assert "Protected" not in told and "nothing of demand is released" in told


def test_a_central_schedule_has_no_rounds(case14, zones14) -> None:
    settings = gridpriv.Settings(coordination="central", rounds=1, solver="clarabel", seed=1)
    result = gridpriv.run(case14, zones14, settings)
    told = repr(result) + result._repr_html_()
    assert "one central schedule" in told
    assert "1 round" not in told and "0 solves" not in told

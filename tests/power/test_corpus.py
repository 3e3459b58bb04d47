"""The corpus's judge, held to pandapower's admittances and to states that are wrong on purpose."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gridpriv
from gridpriv import load_case

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def modules():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield importlib.import_module("judge"), importlib.import_module("corpus")
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def finished(case14, zones14):
    settings = gridpriv.Settings(mechanism="none", coordination="central")
    return gridpriv.run(case14, zones14, settings)


def pypower_admittance(case):
    from pandapower.pypower.makeYbus import makeYbus

    bus, branch = np.zeros((case.n_bus, 13)), np.zeros((case.n_branch, 26), complex)
    bus[:, 0], bus[:, 4], bus[:, 5] = np.arange(case.n_bus), case.gs, case.bs
    branch[:, 0], branch[:, 1] = case.f_bus, case.t_bus
    branch[:, 2], branch[:, 3], branch[:, 4] = case.r, case.x, case.b
    branch[:, 8], branch[:, 9], branch[:, 10] = case.tap, np.degrees(case.shift), 1
    return makeYbus(1.0, bus, branch)[0]


@pytest.mark.parametrize("name", ["case14", "case118"])
def test_admittances_are_those_of_pypower(modules, name):
    judge, _ = modules
    case = load_case(name)
    turned = replace(case, shift=np.linspace(-0.3, 0.3, case.n_branch))
    apart = judge.bus_admittance(turned) - pypower_admittance(turned)
    assert np.abs(apart).max() < 1e-9


def test_an_optimal_state_is_feasible_and_its_printed_figures_are_right(modules, finished):
    judge, _ = modules
    verdict = judge.Judgement(finished.case, judge.reported_state(finished), 1e4)
    assert verdict.status == "feasible"
    assert verdict.balance_mva < 1e-6
    assert verdict.figures["cost"] == pytest.approx(8081.5, abs=0.1)  # MATPOWER's AC optimum
    assert judge.figure_difference(verdict, finished.physical)[0] < 1e-8


@pytest.mark.parametrize(
    ("field", "place", "change", "kind"),
    [
        ("pg", 0, 5.0, "generator P"),
        ("qg", 1, -1.0, "generator Q"),
        ("vm", 3, 0.2, "voltage"),
        ("p_shed", 6, 0.1, "shed"),  # a bus without demand
        ("curtailment", 6, 0.1, "curtailment"),
    ],
)
def test_a_state_that_is_changed_is_infeasible(modules, finished, field, place, change, kind):
    judge, _ = modules
    state = judge.reported_state(finished)
    values = getattr(state, field).copy()
    values[place] += change
    verdict = judge.Judgement(finished.case, replace(state, **{field: values}), 1e4)
    assert verdict.status == "infeasible"
    assert verdict.balance_mva > 1.0
    assert kind in {limit.kind for limit in verdict.violations}


def test_a_branch_is_rated_at_both_ends(modules, finished):
    judge, _ = modules
    state = judge.reported_state(finished)
    ends = np.abs(judge.Judgement(finished.case, state, 1e4).flows)
    rate = (ends.max(axis=0) + ends.min(axis=0)) / 2  # one end is above, the other below
    verdict = judge.Judgement(replace(finished.case, rate=rate), state, 1e4)
    lossy = np.ptp(ends, axis=0) > 1e-3
    assert lossy.sum() > 10
    assert sum(limit.kind == "line" for limit in verdict.violations) >= lossy.sum()


def said(finished, capsys):
    from gridpriv.cli.run import summarise

    capsys.readouterr()
    summarise(finished.as_dict())
    return capsys.readouterr().out


def test_every_printed_sentence_is_known_and_true(modules, finished, capsys, monkeypatch):
    judge, _ = modules
    monkeypatch.setenv("COLUMNS", "400")
    verdict = judge.Judgement(finished.case, judge.reported_state(finished), 1e4)
    text = said(finished, capsys)
    reading = judge.read_statements(text, judge.Facts(finished, verdict))
    assert (reading.wrong, reading.unknown) == ((), ())
    assert reading.checked >= 11
    assert judge.read_statements("All is well.", judge.Facts(finished, verdict)).unknown
    dearer = text.replace("8081.", "8082.")
    assert judge.read_statements(dearer, judge.Facts(finished, verdict)).wrong


def test_feasible_is_wrong_of_a_state_outside_a_limit(modules, finished, capsys, monkeypatch):
    judge, _ = modules
    monkeypatch.setenv("COLUMNS", "400")
    state = judge.reported_state(finished)
    high = judge.Judgement(finished.case, replace(state, vm=state.vm + 0.1), 1e4)
    wrong = judge.read_statements(said(finished, capsys), judge.Facts(finished, high)).wrong
    assert any("stated feasible, is infeasible" in line for line in wrong)


def test_a_table_that_was_cut_off_goes_on_where_it_ended(modules, tmp_path):
    _, corpus = modules
    path = tmp_path / "table.csv"
    rows = [
        corpus.Row("case5", 5, 2, "spectral", "1", mode, 0, 1.0, gap_percent=0.25)
        for mode in ("central", "rounds")
    ]
    for row in rows:
        corpus.append(path, row)
    assert corpus.stored(path) == rows
    path.write_text(path.read_text()[:-9])
    assert corpus.stored(path) == rows[:1]
    corpus.append(path, rows[1])
    assert corpus.stored(path) == rows


def test_a_run_that_fails_is_a_row_with_its_error(modules):
    _, corpus = modules
    row = corpus.safely(corpus.Instance("no such grid", 1, 2, "spectral", "1", "rounds"), {}, 60)
    assert (row.status, row.grid) == ("error", "no such grid")
    assert "no such grid" in row.error


def test_the_corpus_is_as_large_as_it_says(modules):
    _, corpus = modules
    assert len(corpus.grids()) >= 60
    labels = [one.label for one in corpus.instances(tuple(corpus.MODES), 2)]
    assert len(set(labels)) == len(labels) > 500
    zones = {one.zones for one in corpus.instances(("rounds",), 1)}
    assert (min(zones), max(zones)) == (2, 350)

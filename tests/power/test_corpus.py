"""The check of the corpus, on pandapower's admittances and on deliberately wrong states."""

from __future__ import annotations

import importlib
import re
import sys
from dataclasses import replace
from pathlib import Path
from string import Formatter

import numpy as np
import pytest

import gridpriv
from gridpriv import load_case
from gridpriv.power.ac import grid_redispatch

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
    difference = judge.bus_admittance(turned) - pypower_admittance(turned)
    assert np.abs(difference).max() < 1e-9


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


def printed(finished, capsys):
    from gridpriv.cli.run import summarise

    capsys.readouterr()
    summarise(finished.as_dict())
    return capsys.readouterr().out


def test_every_printed_sentence_is_known_and_true(modules, finished, capsys, monkeypatch):
    judge, _ = modules
    monkeypatch.setenv("COLUMNS", "400")
    verdict = judge.Judgement(finished.case, judge.reported_state(finished), 1e4)
    text = printed(finished, capsys)
    reading = judge.read_statements(text, judge.Facts(finished, verdict))
    assert (reading.wrong, reading.unknown) == ((), ())
    assert reading.checked >= 12
    assert judge.read_statements("All is well.", judge.Facts(finished, verdict)).unknown
    dearer = text.replace("8081.", "8082.")
    assert judge.read_statements(dearer, judge.Facts(finished, verdict)).wrong


def test_every_sentence_of_a_noisy_run_that_sheds_load_is_known_and_true(
    modules, capsys, monkeypatch
):
    """Rows of load shedding by cause, and of rounds on the AC equations."""
    judge, _ = modules
    monkeypatch.setenv("COLUMNS", "400")
    few = {"MOST_REPLANS": 3, "MOST_PASSES": 1}
    few |= {"FIRMNESS_FACTORS": grid_redispatch.FIRMNESS_FACTORS[:1]}
    for name, value in few.items():
        monkeypatch.setattr(grid_redispatch, name, value)
    case = load_case("case9")
    shed = gridpriv.run(case, gridpriv.partition(case, 2), gridpriv.Settings(load_scale=3, seed=1))
    shed = replace(shed, reference=gridpriv.zonal.run.reference(shed, 3.0))
    verdict = judge.Judgement(shed.case, judge.reported_state(shed), 1e4)
    least = gridpriv.acopf(shed.case, "shed").state.shed_mw
    cheapest = gridpriv.acopf(shed.case, "cost").state.shed_mw
    optimum = {"cost": None, "shed_mw": cheapest, "least_shed_mw": least}
    facts = judge.Facts(shed, verdict, optimum)
    reading = judge.read_statements(printed(shed, capsys), facts)
    assert (reading.wrong, reading.unknown) == ((), ())
    assert reading.checked >= 20


VALUES = {
    "infeasible": {
        "limits": "rating of branch 1-2 by 3 MVA, voltage at bus 4 by 0.01 p.u. and 2 more"
    },
    "marginal": {"limits": "reactive output at bus 2 by 0.02 MVAr"},
    "not-converged-newton": {"rounds": "1 round"},
    "ac-state": {"state": "AC-feasible, no load shedding, 12 MW of balancing power"},
    "negative-cost-of-privacy": {
        "gap": " The noise-free baseline is 3.20 $/h above the AC optimum, so noise can lower the "
        "cost."
    },
    "dearer-than-prior-only": {
        "verdict": "The release costs",
        "chance": " They differ by less than 0.25 %, so on the relaxation either may be the "
        "cheaper.",
    },
    "cheaper-within-chance": {
        "chance": "They differ by less than 0.25 %, so on the relaxation either may be the cheaper."
    },
    "more-balancing-than-prior-only": {"saved": "3.3 % lower"},
    "costs-include": {
        "payment": " At 1000 $/MWh (--balancing-price), that power is worth 437.00 $/h "
        "(prior-only: 8742.00 $/h)."
    },
    "noise-free-not-converged": {"so": ", so the cost of privacy is approximate"},
    "cost-not-minimized": {"objective": "losses"},
    "shed-by-exporters": {
        "zones": "Zones 1, 3 shed",
        "exporting": "they export",
        "command": "gridpriv relax case14",
    },
    "noise-source": {"caveat": "simulated noise, for studies only"},
}
"""Values of messages that are words, by code."""
NUMBERS = {"rounds": "12 rounds", "zones": "1, 3", "planned": "200", "least": ""}


def rendered(code):
    """Return a run's message with values of the form that it is printed with."""
    from gridpriv.zonal.messages import TEMPLATES

    _, template = TEMPLATES[code]
    names = {name for _, name, _, _ in Formatter().parse(template) if name}
    values = dict.fromkeys(names, "0.031") | NUMBERS | VALUES.get(code, {})
    return template.format(**values)


def test_every_message_is_judged_or_listed_with_the_reason_why_not(modules):
    from gridpriv.zonal.messages import TEMPLATES

    judge, _ = modules
    assert set(judge.JUDGED) | set(judge.NOT_JUDGED) == set(TEMPLATES)
    assert not set(judge.JUDGED) & set(judge.NOT_JUDGED)
    for code in TEMPLATES:
        text = rendered(code)
        checks = [check for pattern, check in judge.STATEMENTS if re.search(pattern, text)]
        if judge.is_judged(code):
            assert any(checks), code
    with pytest.raises(ValueError, match="neither in JUDGED nor in NOT_JUDGED"):
        judge.is_judged("a-new-message")


def test_no_part_of_a_runs_messages_is_unknown(modules, finished, monkeypatch):
    judge, _ = modules
    verdict = judge.Judgement(finished.case, judge.reported_state(finished), 1e4)
    silent = [(pattern, None) for pattern, _ in judge.STATEMENTS]
    monkeypatch.setattr(judge, "STATEMENTS", tuple(silent))
    for code, reason in (dict.fromkeys(judge.JUDGED, "") | judge.NOT_JUDGED).items():
        if reason != judge.SERIES:
            reading = judge.read_statements(rendered(code), judge.Facts(finished, verdict))
            assert reading.unknown == (), code


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        (
            "At 250 $/MWh (--balancing-price), that power is worth 7.75 $/h.",
            "printed 250",
        ),
        ("balancing power  0.031 MW  deviation, 2.5 % of the gross demand", "printed 0.031"),
        (
            "The grid is short of generating capacity: where load is shed, demand and losses "
            "exceed the capacity by 3 MW.",
            "printed 3, is 0",
        ),
        (
            "The dispatch minimizes losses, not cost, so the cost of privacy does not measure the "
            "effect of the noise.",
            "cost",
        ),
        (
            "Costs of the generators in service are missing or not convex: zones minimize losses, "
            "and no cost is stated.",
            "convex",
        ),
        ("Zones of one bus release that bus's demand: 1.", "zones of one bus"),
        ("Limits violated by at most 0.1 % (marginal), no load shedding.", "stated marginal"),
        (
            "Marginal: every violation is within 0.1 % of its limit: rating of branch 12-15 by "
            "0.0279 MVA, voltage at bus 4 by 0.0009 p.u. and 1 more.",
            "not a violation: voltage at bus 4",
        ),
        (
            "The AC rounds have not converged (9 rounds, primal residual 0.1 p.u.): the schedule "
            "is that of the SOC relaxation.",
            "rounds on the AC equations",
        ),
    ],
)
def test_a_false_sentence_is_wrong_or_unknown(modules, finished, wrong, fault):
    judge, _ = modules
    verdict = judge.Judgement(finished.case, judge.reported_state(finished), 1e4)
    reading = judge.read_statements(wrong, judge.Facts(finished, verdict))
    if fault is None:
        assert reading.unknown
    else:
        assert any(fault in line for line in reading.wrong), reading


@pytest.fixture(scope="module")
def newton(case14, zones14):
    return gridpriv.run(case14, zones14, gridpriv.Settings(mechanism="none", planning="soc"))


@pytest.mark.parametrize(
    ("sentence", "fault"),
    [
        ("{rounds} of 200: the optimality conditions of the relaxation hold to 0.0001 p.u.", None),
        (
            "{rounds} of 200: the optimality conditions of the relaxation hold to 1e-12 p.u.",
            "resid",
        ),
        (
            "1 round of 200: the optimality conditions of the relaxation hold to 0.0001 p.u.",
            "1 rounds",
        ),
    ],
)
def test_newton_rounds_are_compared_with_the_optimum_of_the_whole_grid(
    modules, newton, sentence, fault
):
    judge, _ = modules
    verdict = judge.Judgement(newton.case, judge.reported_state(newton), 1e4)
    text = "Rounds ended after " + sentence.format(rounds=f"{len(newton.trace.rounds)} rounds")
    reading = judge.read_statements(text, judge.Facts(newton, verdict))
    assert reading.unknown == ()
    assert (reading.checked, len(reading.wrong)) == (2, fault is not None)
    assert fault is None or fault in reading.wrong[0]
    last = newton.trace.rounds[-1]
    dear = replace(last, metrics=last.metrics | {"cost": 1.01 * last.metrics["cost"]})
    trace = replace(newton.trace, rounds=(*newton.trace.rounds[:-1], dear))
    facts = judge.Facts(replace(newton, trace=trace), verdict)
    assert (
        any("the rounds end at" in each for each in judge.read_statements(text, facts).wrong)
        or fault
    )


def test_feasible_is_wrong_of_a_state_outside_a_limit(modules, finished, capsys, monkeypatch):
    judge, _ = modules
    monkeypatch.setenv("COLUMNS", "400")
    state = judge.reported_state(finished)
    high = judge.Judgement(finished.case, replace(state, vm=state.vm + 0.1), 1e4)
    wrong = judge.read_statements(printed(finished, capsys), judge.Facts(finished, high)).wrong
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
    row = corpus.safely(corpus.Instance("no such grid", 1, 2, "spectral", "1", "rounds"), {})
    assert (row.status, row.grid) == ("error", "no such grid")
    assert "no such grid" in row.error


def test_the_page_explains_its_modes_and_a_second_optimum_that_sheds_load(modules):
    _, corpus = modules
    row = corpus.Row("case14", 14, 3, "spectral", "1", "rounds", 0, load_scale=1.0)
    row = replace(row, status="feasible", second_optimum_percent=1e-5)
    near = corpus.page([row], "command")
    dear = corpus.page([replace(row, second_optimum_percent=3640.0)], "command")
    assert "*rounds*: noise-free runs" in near and "*central*:" not in near
    assert "local solutions" in dear and "local solutions" not in near
    assert corpus.MODES.keys() == corpus.MEANINGS.keys()


def test_the_corpus_is_as_large_as_it_says(modules):
    _, corpus = modules
    assert len(corpus.grids()) >= 60
    labels = [item.label for item in corpus.instances(tuple(corpus.MODES), 2)]
    assert len(set(labels)) == len(labels) > 500
    zones = {item.zones for item in corpus.instances(("rounds",), 1)}
    assert (min(zones), max(zones)) == (2, 350)

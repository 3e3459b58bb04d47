"""Implausible demand causes a message; demand of published grids causes none."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from gridpriv import InputError
from gridpriv.grid.case import Case
from gridpriv.grid.library import case_files, load_case
from gridpriv.power.prior import demand_questions


@pytest.mark.parametrize(
    ("factors", "patterns"),
    [
        ((1.0, 1.0), []),
        ((3.0, 3.0), []),  # a stressed grid is no mistake: gridpriv relax --load-scale 3
        ((-0.2, 1.0), [r"pd_mw adds up to -51.8 MW, less than 0. Is the sign"]),
        ((0.0, 0.0), [r"demand is 0 MW at every bus. Is that intended\? About 463 MW"]),
        ((1e-3, 1e-3), [r"adds up to 0.259 MW. Is it in MW, not in GW\? About 463 MW"]),
        ((1.0, 1e3), [r"qd_mvar adds up to 81300 MVAr, 105 times .*not in kVAr\?"]),
        ((1e3, 1.0), [r"pd_mw adds up to 259000 MW, 335 times the 772.4 MW .*, not in kW\?"]),
    ],
)
def test_questions_name_the_value_and_what_was_expected(
    case14: Case, factors: tuple[float, float], patterns: list[str]
) -> None:
    case = replace(case14, pd=factors[0] * np.abs(case14.pd), qd=factors[1] * np.abs(case14.qd))
    questions = demand_questions(case, "--demand usual.csv")
    assert len(questions) == len(patterns)
    for question, pattern in zip(questions, patterns, strict=True):
        assert question.startswith("--demand usual.csv: ")
        assert re.search(pattern, question), question


@pytest.mark.parametrize(("factor", "total"), [(-1.0, "-159 MW, less than 0"), (1e3, "159000 MW")])
def test_questions_state_the_sum_of_a_column_with_both_signs(
    case14: Case, factor: float, total: str
) -> None:
    """50 MW of embedded generation count as -50 MW, whatever the sign or unit of the column."""
    pd = np.zeros(case14.n_bus)
    pd[:3] = factor * np.array([-0.5, 1.0, 1.09])
    (question,) = demand_questions(replace(case14, pd=pd), "--demand usual.csv")
    assert f"active demand pd_mw adds up to {total}" in question


def test_a_published_grid_that_exports_is_not_asked_for_its_sign() -> None:
    """case533mt_lo has a few wind parks, and loads at many more buses."""
    case = load_case("case533mt_lo")
    assert case.pd.sum() < 0.0 and demand_questions(case, "case533mt_lo") == []


def test_a_load_scale_is_questioned_itself(case14: Case) -> None:
    (active, reactive) = demand_questions(case14.scale_load(77.0), "--load-scale 77", 77.0)
    assert "Is that load scale intended?" in active
    assert "kW" not in active + reactive


def test_size_is_not_questioned_where_capacity_is_unknown(case14: Case) -> None:
    case = replace(case14, pmax=np.full(case14.n_gen, np.inf)).scale_load(1e3)
    assert demand_questions(case, "--demand usual.csv") == []


@pytest.mark.large
@pytest.mark.filterwarnings("ignore::gridpriv.core.errors.GridprivWarning")  # of the reader
def test_published_grids_raise_no_question() -> None:
    by_case, read = {}, 0
    for name, path in case_files().items():
        if path.stat().st_size > 2**20 or not name.startswith("case"):
            continue
        try:
            case = load_case(name)
        except InputError:
            continue
        read += 1
        by_case |= {name: demand_questions(case, name)} if demand_questions(case, name) else {}
    assert read > 30
    assert by_case == {}

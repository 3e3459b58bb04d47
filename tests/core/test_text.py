from __future__ import annotations

import pytest

from gridpriv.core.text import csv_text


@pytest.mark.parametrize("number", ["-0.2107734", "+3", "-1e-06", "-12"])
def test_a_number_that_is_text_stays_a_number(number: str) -> None:
    assert csv_text(["cost"], [[number]]) == f"cost\n{number}\n"


@pytest.mark.parametrize("formula", ["-1+1", "=1", "@x", "+cmd|x", "-1e", "-\u0661"])
def test_what_a_spreadsheet_would_work_out_is_text(formula: str) -> None:
    assert csv_text(["name"], [[formula]]).splitlines()[1] == f"'{formula}"

from __future__ import annotations

import re

import pytest

from gridpriv.cli.common import print_table


@pytest.mark.parametrize("columns", [80, 120])
def test_numbers_are_not_split_and_gaps_stand_with_them(columns, monkeypatch, capsys) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    rows = [
        ["paper: objective perturbation, Gaussian, linearized", "per-release:0.1234567,1e-05",
         0.123456, 123456.7, -1.234e-5, 1.234e12, 12],
        ["no noise", "none", None, 2.747, None, 0.2206, 1],
    ]  # fmt: skip
    print_table("T", ["way", "budget", "total eps", "shed", "95 % +-", "imbalance", "seeds"], rows)
    told = capsys.readouterr().out
    assert max(map(len, told.splitlines())) <= columns
    first = next(line for line in told.splitlines() if "0.1235" in line)
    for number in ("0.1235", "1.235e+05", "-1.234e-05", "1.234e+12", "12"):
        assert re.search(rf"(?<!\S){re.escape(number)}(?!\S)", first), (number, told)
    last = next(line for line in told.splitlines() if "no noise" in line)
    assert [m.end() for m in re.finditer(r" -(?= )", last)] == [
        first.index("0.1235") + len("0.1235"), first.index("-1.234e-05") + len("-1.234e-05"),
    ]  # fmt: skip

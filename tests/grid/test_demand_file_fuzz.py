"""Damaged demand files: an error with the line, or exactly the values in the file."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gridpriv.core.errors import InputError
from gridpriv.grid.case import Case
from gridpriv.grid.scenarios import override_demand, read_demand_series

CELLS = st.one_of(
    st.sampled_from(
        [
            "1",
            "14",
            "2",
            "0",
            "-3",
            "1e3",
            "nan",
            "inf",
            "",
            " 5 ",
            "1_000",
            "x",
            "9" * 400,
            "1,5",
            '"',
            "\u0661",
            "0x10",
            "1e400",
            "-0.0",
            "+4",
        ]
    ),
    st.floats().map(repr),
    st.integers(-5, 20).map(str),
)


@st.composite
def files(draw: st.DrawFn, header: str) -> str:
    """Return a file of that header, some rows too long or too short, some lines broken."""
    wide = len(header.split(","))
    rows = draw(
        st.lists(
            st.one_of(
                st.lists(CELLS, min_size=wide, max_size=wide).map(",".join),
                st.lists(CELLS, max_size=6).map(",".join),
            ),
            max_size=6,
        )
    )
    end = draw(st.sampled_from(["\n", "\r\n", ""]))
    return header + "\n" + "\n".join(rows) + end


def rows_of(text: str) -> list[dict[str, str]]:
    lines = list(csv.reader(text.splitlines()))
    return [dict(zip(lines[0], map(str.strip, row), strict=True)) for row in lines[1:] if row]


@settings(max_examples=150)
@given(files("bus,pd_mw,qd_mvar"))
def test_overrides_are_refused_or_exact(tmp_path: Path, case14: Case, text: str) -> None:
    (tmp_path / "d.csv").write_bytes(text.encode())
    try:
        case = override_demand(case14, tmp_path / "d.csv")
    except InputError as error:
        assert "d.csv" in str(error)
        return
    pd, qd = case14.pd.copy(), case14.qd.copy()
    for row in rows_of(text):
        for name, values in (("pd_mw", pd), ("qd_mvar", qd)):
            if row[name]:
                values[case14.index_of[int(row["bus"])]] = float(row[name]) / 100
    np.testing.assert_array_equal(case.pd, pd)
    np.testing.assert_array_equal(case.qd, qd)


@settings(max_examples=150)
@given(files("step,load_scale"))
def test_series_are_refused_or_exact(tmp_path: Path, case14: Case, text: str) -> None:
    (tmp_path / "d.csv").write_bytes(text.encode())
    try:
        series = read_demand_series(tmp_path / "d.csv", case14)
    except InputError as error:
        assert "d.csv" in str(error)
        return
    rows = rows_of(text)
    assert list(series.steps) == [row["step"] for row in rows]
    for number, row in enumerate(rows):
        factor = float(row["load_scale"])
        assert math.isfinite(factor)
        np.testing.assert_allclose(series.pd[number], case14.pd * factor)


@settings(max_examples=60)
@given(st.binary(max_size=80))
def test_any_bytes_are_an_error_that_names_the_file(
    tmp_path: Path, case14: Case, content: bytes
) -> None:
    (tmp_path / "d.csv").write_bytes(content)
    for read in (lambda p: override_demand(case14, p), lambda p: read_demand_series(p, case14)):
        try:
            read(tmp_path / "d.csv")
        except InputError as error:
            assert "d.csv" in str(error)

"""A written MATPOWER file reads back as the same case, here and in other readers."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from gridpriv.grid.case import Case
from gridpriv.grid.convert import function_name, matpower_text
from gridpriv.grid.library import load_case
from gridpriv.grid.matpower import parse_matpower
from gridpriv.grid.tables import case_from_tables

ROWS = ("branch_row", "gen_row")  # of the source's table, with rows out of service


def assert_same(given: Case, read: Case) -> None:
    for field in fields(Case):
        one, other = getattr(given, field.name), getattr(read, field.name)
        if isinstance(one, np.ndarray) and field.name not in ROWS:
            np.testing.assert_allclose(other, one, rtol=1e-14, atol=0, err_msg=field.name)
        elif not isinstance(one, np.ndarray):
            assert other == one, field.name


@pytest.mark.parametrize("name", ["case14", "case118", "case39"])
def test_what_is_written_reads_back(name: str) -> None:
    case = load_case(name)
    assert_same(case, case_from_tables(parse_matpower(matpower_text(case), case.name)))


def test_limits_that_are_none_and_names_that_are_no_numbers() -> None:
    case = load_case("case14")
    pmax, angmin = case.pmax.copy(), case.angmin.copy()
    pmax[0], angmin[:] = np.inf, -0.5
    case = replace(case, pmax=pmax, angmin=angmin, groups={"zone": ("west", *["east"] * 13)})
    read = case_from_tables(parse_matpower(matpower_text(case), case.name))
    assert read.groups["zone"] == ("1", *["2"] * 13)
    assert_same(replace(case, groups=read.groups), read)


def test_a_function_has_a_name_that_matlab_allows() -> None:
    assert function_name("118 bus-private") == "case_118_bus_private"
    assert function_name("case14") == "case14"


def test_comments_stay_comments() -> None:
    text = matpower_text(load_case("case14"), ["one\nmpc.baseMVA = 1;"])
    assert parse_matpower(text, "x").base_mva == 100.0


def test_pandapower_reads_the_same_grid(tmp_path) -> None:
    frames = pytest.importorskip("matpowercaseframes")
    path = tmp_path / "written.m"
    case = load_case("case118")
    path.write_text(matpower_text(case))
    tables = frames.CaseFrames(str(path))
    np.testing.assert_allclose(tables.bus["PD"], 100.0 * case.pd)
    np.testing.assert_allclose(tables.branch["BR_X"], case.x)
    np.testing.assert_allclose(
        tables.gencost["COST_0" if "COST_0" in tables.gencost else tables.gencost.columns[4]],
        [c.values[0] for c in case.cost],
    )

"""Damaged MATPOWER files: an InputError, or a case with exactly the content of the file."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gridpriv.core.errors import InputError
from gridpriv.grid.case import Case
from gridpriv.grid.library import load_case, shipped_folder
from gridpriv.grid.matpower import parse_matpower
from gridpriv.grid.tables import MatpowerTables, case_from_tables

TEXT = (shipped_folder("cases") / "case14.m").read_text(encoding="utf-8")
TABLES = parse_matpower(TEXT, "case14")
CASE14 = load_case("case14")

# Where each column of the tables must arrive: field, and factor from the source's unit.
COLUMNS = {
    ("bus", 2): ("pd", 1 / 100),
    ("bus", 3): ("qd", 1 / 100),
    ("bus", 4): ("gs", 1 / 100),
    ("bus", 5): ("bs", 1 / 100),
    ("bus", 7): ("vm", 1),
    ("bus", 8): ("va", np.pi / 180),
    ("bus", 9): ("base_kv", 1),
    ("bus", 11): ("vmax", 1),
    ("bus", 12): ("vmin", 1),
    ("branch", 2): ("r", 1),
    ("branch", 3): ("x", 1),
    ("branch", 4): ("b", 1),
    ("branch", 5): ("rate", 1 / 100),
    ("branch", 9): ("shift", np.pi / 180),
    ("gen", 1): ("pg", 1 / 100),
    ("gen", 3): ("qmax", 1 / 100),
    ("gen", 4): ("qmin", 1 / 100),
    ("gen", 5): ("vg", 1),
    ("gen", 8): ("pmax", 1 / 100),
    ("gen", 9): ("pmin", 1 / 100),
}
NASTY = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([0.0, -0.0, -1.0, 0.5, 1e-320, 1e17, 2.0**53, 1e300, 3.0, 4.0, 15.0]),
)


def attempt(tables: MatpowerTables) -> Case | None:
    try:
        return case_from_tables(tables)
    except InputError as error:
        assert str(error)
        return None


def damaged(table: str, row: int, column: int, value: float) -> MatpowerTables:
    changed = getattr(TABLES, table).copy()
    changed[row, column] = value
    return replace(TABLES, **{table: changed})


@settings(max_examples=300)
@given(st.sampled_from(sorted(COLUMNS)), st.data(), NASTY)
def test_one_number_changed_is_refused_or_arrives_and_nothing_else_changes(
    at: tuple[str, int], data: st.DataObject, value: float
) -> None:
    table, column = at
    row = data.draw(st.integers(0, len(getattr(TABLES, table)) - 1))
    with np.errstate(all="ignore"):
        case = attempt(damaged(table, row, column, value))
        expected = value * COLUMNS[at][1]
    if case is None:
        return
    name, _ = COLUMNS[at]
    np.testing.assert_allclose(getattr(case, name)[row], expected, rtol=1e-12)
    for other in ("bus_id", "f_bus", "t_bus", "gen_bus", "tap", *(f for f, _ in COLUMNS.values())):
        ours, before = getattr(case, other).copy(), getattr(CASE14, other).copy()
        if other == name:
            ours[row] = before[row] = 0
        np.testing.assert_array_equal(ours, before, err_msg=other)


@settings(max_examples=200)
@given(
    st.sampled_from(["bus", "branch", "gen"]),
    st.sampled_from([0, 1, 7, 8, 10, 11, 12]),
    st.integers(0, 4),
    NASTY,
)
def test_numbers_that_change_the_structure(table: str, column: int, row: int, value: float) -> None:
    if column >= getattr(TABLES, table).shape[1]:
        return
    case = attempt(damaged(table, row, column, value))
    if case is None:
        return
    assert case.f_bus.max(initial=0) < case.n_bus
    assert case.gen_bus.max(initial=0) < case.n_bus
    assert len(set(case.bus_id.tolist())) == case.n_bus
    for name in ("pd", "qd", "vmin", "vmax", "r", "x", "b", "rate", "tap", "shift", "vg", "pg"):
        assert np.isfinite(getattr(case, name)).all(), name
    if column == 0 or (table == "branch" and column == 1):
        assert value == int(value), "a bus number is whole"


@settings(max_examples=150)
@given(st.integers(0, len(TEXT)))
def test_a_truncated_file_is_refused_unless_every_table_is_whole(cut: int) -> None:
    try:
        case = case_from_tables(parse_matpower(TEXT[:cut], "case14"))
    except InputError:
        return
    assert replace(case, cost=CASE14.cost).fingerprint == CASE14.fingerprint
    costs = TEXT.index("mpc.gencost")
    assert case.cost == (() if cut <= costs else CASE14.cost)


@settings(max_examples=150)
@given(st.integers(0, len(TEXT) - 1), st.text(max_size=4), st.integers(0, 6))
def test_any_text_put_anywhere_is_read_or_refused(at: int, text: str, removed: int) -> None:
    try:
        case_from_tables(parse_matpower(TEXT[:at] + text + TEXT[at + removed :], "case14"))
    except InputError as error:
        assert str(error)


@settings(max_examples=50)
@given(st.permutations(range(14)), st.permutations(range(20)), st.permutations(range(5)))
def test_reordered_rows_are_the_same_grid(
    bus: list[int], branch: list[int], gen: list[int]
) -> None:
    tables = replace(
        TABLES,
        bus=TABLES.bus[bus],
        branch=TABLES.branch[branch],
        gen=TABLES.gen[gen],
        gencost=tuple(TABLES.gencost[g] for g in gen),
    )
    case = case_from_tables(tables)
    for name in ("pd", "qd", "bs", "vmin", "vmax", "va"):
        np.testing.assert_array_equal(getattr(case, name), getattr(CASE14, name)[bus])
    for name in ("r", "x", "b", "tap", "rate"):
        np.testing.assert_array_equal(getattr(case, name), getattr(CASE14, name)[branch])
    np.testing.assert_array_equal(case.bus_id[case.f_bus], CASE14.bus_id[CASE14.f_bus[branch]])
    np.testing.assert_array_equal(case.bus_id[case.gen_bus], CASE14.bus_id[CASE14.gen_bus[gen]])
    assert case.cost == tuple(CASE14.cost[g] for g in gen)


@settings(max_examples=50)
@given(st.sets(st.integers(1, 14), min_size=1, max_size=14))
def test_isolated_buses_leave_with_everything_on_them(isolated: set[int]) -> None:
    bus = TABLES.bus.copy()
    bus[np.isin(bus[:, 0], list(isolated)), 1] = 4
    case = attempt(replace(TABLES, bus=bus))
    if len(isolated) == 14:
        assert case is None
        return
    assert case is not None
    remaining = set(range(1, 15)) - isolated
    assert set(case.bus_id.tolist()) == remaining
    lines = [row for row in TABLES.branch if {int(row[0]), int(row[1])} <= remaining]
    assert case.n_branch == len(lines)
    assert case.n_gen == sum(int(row[0]) in remaining for row in TABLES.gen)
    load = sum(row[2] for row in TABLES.bus if int(row[0]) in remaining)
    np.testing.assert_allclose(case.pd.sum() * 100, load)


@settings(max_examples=40)
@given(st.sampled_from(["bus", "branch", "gen"]), st.integers(0, 4))
def test_a_repeated_row(table: str, row: int) -> None:
    rows = getattr(TABLES, table)
    case = attempt(replace(TABLES, **{table: np.vstack([rows, rows[row]])}, gencost=()))
    if table == "bus":
        assert case is None, "a bus listed twice is refused"
    else:  # a parallel branch, or a second generator on the bus
        assert case is not None
        n_before = {"branch": CASE14.n_branch, "gen": CASE14.n_gen}[table]
        assert {"branch": case.n_branch, "gen": case.n_gen}[table] == n_before + 1

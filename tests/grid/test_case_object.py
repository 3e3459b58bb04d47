"""The Case object: refused input, scaling, outages and its fingerprint."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridpriv.core.errors import InputError
from gridpriv.grid.case import BRANCH_FIELDS, BUS_FIELDS, GEN_FIELDS, Case
from gridpriv.grid.library import load_case

FLOAT_FIELDS = [
    "pd",
    "qd",
    "gs",
    "bs",
    "vmin",
    "vmax",
    "vm",
    "va",
    "base_kv",
    "r",
    "x",
    "b",
    "tap",
    "shift",
    "rate",
    "pmin",
    "pmax",
    "qmin",
    "qmax",
    "vg",
    "pg",
    "angmin",
    "angmax",
]


def with_value(case: Case, name: str, row: int, value: Any) -> Case:
    values = getattr(case, name).copy()
    values[row] = value
    return replace(case, **{name: values})


@pytest.mark.parametrize("name", FLOAT_FIELDS)
def test_nan_is_refused_wherever_it_stands(case14: Case, name: str) -> None:
    with pytest.raises(InputError, match=r"(bus|branch|generator) 3: \w+ = "):
        with_value(case14, name, 2, np.nan)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("vmin", 1.2, "bus 3: vmin = 1.2: must be at most vmax"),
        ("vmin", -0.1, "bus 3: Vmin = -0.1"),
        ("pmin", 9.0, "generator 3: pmin = 9.0"),
        ("pmin", np.inf, "generator 3: pmin = inf"),
        ("qmax", -np.inf, "generator 3: qmin"),
        ("rate", -1.0, "branch 3: rateA = -1.0"),
        ("tap", 0.0, "branch 3: ratio = 0.0"),
        ("t_bus", 1, "branch 3: from = to bus"),
        ("bus_id", 1, "bus 1 is listed more than once"),
        ("angmin", -2.0, "branch 3: angmin = -2.0"),
        ("angmax", 1.6, "branch 3: angmax = 1.6"),
    ],
)
def test_impossible_values_are_refused(case14: Case, name: str, value: float, message: str) -> None:
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        with_value(case14, name, 2, value)


def test_a_case_without_buses_or_with_a_wrong_base_is_refused(case14: Case) -> None:
    for base in (0.0, -100.0, np.nan, np.inf):
        with pytest.raises(InputError, match=r"baseMVA = .*: must be a positive number"):
            replace(case14, base_mva=base)
    nothing = {n: getattr(case14, n)[:0] for n in (*BUS_FIELDS, *BRANCH_FIELDS, *GEN_FIELDS)}
    with pytest.raises(InputError, match="no bus in service"):
        replace(case14, cost=(), **nothing)
    with pytest.raises(InputError, match="4 cost rows for 5 generators"):
        replace(case14, cost=case14.cost[:4])


def test_arrays_cannot_be_written(case14: Case) -> None:
    with pytest.raises(ValueError, match="read-only"):
        case14.pd[0] = 1.0


@given(st.floats(0, 10))
def test_scaling_touches_demand_only(factor: float) -> None:
    case = load_case("case14")
    scaled = case.scale_load(factor)
    np.testing.assert_allclose(scaled.pd, factor * case.pd)
    np.testing.assert_allclose(scaled.qd, factor * case.qd)
    for name in (*BUS_FIELDS, *BRANCH_FIELDS, *GEN_FIELDS):
        if name not in ("pd", "qd"):
            np.testing.assert_array_equal(getattr(scaled, name), getattr(case, name))


@pytest.mark.parametrize("factor", [-1.0, np.nan, np.inf])
def test_a_wrong_scale_is_refused(case14: Case, factor: float) -> None:
    with pytest.raises(InputError, match="load_scale"):
        case14.scale_load(factor)


def test_outages_name_rows_of_the_source(case14: Case) -> None:
    out = case14.without(("gen:2", "branch:20"))
    assert out.gen_row.tolist() == [1, 3, 4, 5]
    assert out.branch_row.tolist() == list(range(1, 20))
    assert out.cost == (case14.cost[0], *case14.cost[2:])
    again = out.without(("gen:3",))
    assert again.gen_row.tolist() == [1, 4, 5], "rows keep their numbers after an outage"


@pytest.mark.parametrize("outage", ["gen:6", "gen:0", "branch:21", "bus:1", "gen", "gen:-1", ""])
def test_unknown_outages_are_refused(case14: Case, outage: str) -> None:
    with pytest.raises(InputError, match=f"outage = '{outage}': must be"):
        case14.without((outage,))


def test_an_outage_twice_is_refused(case14: Case) -> None:
    with pytest.raises(InputError, match="gen:2"):
        case14.without(("gen:2",)).without(("gen:2",))


@pytest.mark.parametrize("name", [n for n in FLOAT_FIELDS if n not in ("angmin", "angmax")])
def test_the_fingerprint_sees_every_number(case14: Case, name: str) -> None:
    value = getattr(case14, name)[2]
    assert with_value(case14, name, 2, np.nextafter(value, 2.0)).fingerprint != case14.fingerprint


def test_the_fingerprint_sees_costs(case14: Case) -> None:
    dearer = replace(case14.cost[0], values=(9.0, *case14.cost[0].values[1:]))
    assert replace(case14, cost=(dearer, *case14.cost[1:])).fingerprint != case14.fingerprint

"""Requirements on a pandapower net before conversion.

pandapower indexes arrays with bus numbers and would take a missing bus for another one, so
references and numbers are checked here first, each error naming table, row and column.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError
from gridpriv.grid.csvfile import shipped_rows

Net: TypeAlias = Any
"""pandapower's net, which has no static type: tables by name, as entries and as attributes."""
Ppc: TypeAlias = dict[str, Any]
"""PYPOWER's tables as pandapower makes them, with its own beside them."""
COLUMNS = shipped_rows("pandapower_columns.csv")
"""Columns that must name a bus, and those that must be numbers of elements in service."""
LARGEST_INDEX = 5_000_000
SWITCHED = {"b": "bus", "l": "line", "t": "trafo", "t3": "trafo3w"}


def check_net(net: Net) -> None:
    """Refuse a net that cannot be converted faithfully, with table, row and column."""
    if not hasattr(net, "bus") or not isinstance(net.bus, pd.DataFrame):
        raise InputError(f"a pandapower net is needed, not {type(net).__name__}")
    if len(net.bus) == 0:
        raise InputError("net.bus is empty: a grid needs a bus; add buses")
    for name in ("sn_mva", "f_hz"):
        value = net.get(name)
        if not isinstance(value, int | float | np.number) or not 0 < value < np.inf:
            raise InputError(f"net.{name} = {value!r}: must be a positive number")
    _check_index(net, "bus")
    for table, column in _columns("a bus"):
        _check_index(net, table)
        _check_buses(net, table, column)
    _check_switches(net)
    for rule in ("a finite number", "a positive number"):
        for table, column in _columns(rule):
            _check_numbers(net, table, column, rule)
    for table, _ in _columns("out of service"):
        running = int(in_service(net, table).sum())
        if running:
            raise InputError(
                f"net.{table} has {running} rows in service, which the model cannot represent: "
                "replace them by an equivalent, or take them out of service"
            )


def _columns(rule: str) -> Iterator[tuple[str, str]]:
    """Yield every pair of a table and a column that a rule is for."""
    for row in COLUMNS:
        if row["must be"] == rule:
            yield from product(row["tables"].split(), row["columns"].split())


def frame(net: Net, table: str) -> pd.DataFrame:
    """Return a table of the net, empty where it has none."""
    value = net.get(table)
    return value if isinstance(value, pd.DataFrame) else pd.DataFrame()


def in_service(net: Net, table: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return the mask of the rows of a table that are in service."""
    rows = frame(net, table)
    if "in_service" not in rows:
        return np.ones(len(rows), dtype=bool)
    given = rows["in_service"]
    if given.dtype == object:
        for row, value in given.items():
            if not (pd.api.types.is_scalar(value) and (pd.isna(value) or value in (True, False))):
                raise _refuse(table, row, "in_service", repr(value), "true or false")
    return np.asarray(given.fillna(False), dtype=bool)


def _refuse(table: str, row: object, column: str, value: object, allowed: str) -> InputError:
    return InputError(f"net.{table} row {row}: {column} = {value}: must be {allowed}")


def _check_index(net: Net, table: str) -> None:
    index = frame(net, table).index
    if not index.is_unique:
        raise InputError(
            f"net.{table} row {index[index.duplicated()][0]} is listed more than once"
            ": leave one out"
        )
    whole = pd.api.types.is_integer_dtype(index.dtype)
    if len(index) and not (whole and index.min() >= 0 and index.max() <= LARGEST_INDEX):
        raise InputError(
            f"net.{table} index: must be whole numbers, 0 to {LARGEST_INDEX} (pandapower "
            "keeps lists of that length)"
        )


def _check_buses(net: Net, table: str, column: str) -> None:
    rows = frame(net, table)
    if len(rows):
        unknown = ~column_of(rows, table, column).isin(net.bus.index)
        if unknown.any():
            at = rows.index[unknown.to_numpy()][0]
            raise _refuse(table, at, column, rows[column].at[at], "a row of net.bus")


def _check_switches(net: Net) -> None:
    for at, kind, element in _switches(net):
        if not isinstance(kind, str) or kind not in SWITCHED:
            raise _refuse("switch", at, "et", repr(kind), f"one of {', '.join(SWITCHED)}")
        number = isinstance(element, int | float | np.number)  # a cell can also hold a list
        if not number or element not in frame(net, SWITCHED[kind]).index:
            raise _refuse("switch", at, "element", element, f"a row of net.{SWITCHED[kind]}")


def _switches(net: Net) -> Iterator[tuple[Any, Any, Any]]:
    rows = frame(net, "switch")
    if len(rows):
        kinds, elements = column_of(rows, "switch", "et"), column_of(rows, "switch", "element")
        yield from zip(rows.index, kinds, elements, strict=True)


def _check_numbers(net: Net, table: str, column: str, rule: str) -> None:
    rows, running = frame(net, table), in_service(net, table)
    if not running.any():
        return
    values = _floats(column_of(rows, table, column), table)
    wrong = running & ~((values > 0) if rule == "a positive number" else np.isfinite(values))
    if column == "max_i_ka":  # an unknown rating is no limit, a negative one is a mistake
        wrong = running & (values <= 0)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise _refuse(table, rows.index[at], column, values[at], rule)


def column_of(rows: pd.DataFrame, table: str, column: str) -> pd.Series[Any]:
    """Return a column of a table, which must have it."""
    if column not in rows:
        raise InputError(f"net.{table} has no column {column}: add the column")
    return rows[column]


def _floats(values: pd.Series[Any], table: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    try:
        return np.asarray(values.to_numpy(dtype=float, na_value=np.nan))
    except (TypeError, ValueError, OverflowError):
        raise InputError(
            f"net.{table}: {values.name} is not a column of numbers; give numbers"
        ) from None


def optional(rows: pd.DataFrame, column: str, missing: float) -> Floats:
    """Return a column as floats, ``missing`` where the net does not say.

    Raises
    ------
    InputError
        Naming the row, if a value is no number.
    """
    if column not in rows:
        return np.full(len(rows), missing)
    given = rows[column]
    try:
        values = pd.to_numeric(given, errors="coerce").astype(float).to_numpy()
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{column} is not a column of numbers: give numbers") from None
    wrong = np.isnan(values) & given.notna().to_numpy()
    if wrong.any():
        at = int(wrong.argmax())
        raise InputError(f"row {given.index[at]}: {column} = {given.iloc[at]!r}: must be a number")
    return np.where(np.isnan(values), missing, values)

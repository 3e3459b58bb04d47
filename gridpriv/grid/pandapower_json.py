"""Read pandapower's JSON as data, and check a net before its conversion.

The file names a Python module and a class for every object in it; pandapower imports the module and
calls the class. Here nothing is imported or called by name. Every name in the file, also in nested
JSON texts, must be on the lists below. Tables are built from their columns; controllers, graphs and
line types are left out.

pandapower indexes arrays with bus numbers, so a missing bus would be taken for another one.
References and numbers are therefore checked first; each error names table, row and column.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError, not_allowed
from gridpriv.core.files import LARGEST, read_text
from gridpriv.core.text import Json
from gridpriv.grid.tables import naming, shipped_rows

Net: TypeAlias = Any
"""pandapower's net, which has no static type: tables by name, as entries and attributes."""
Ppc: TypeAlias = dict[str, Any]
"""PYPOWER's tables as pandapower makes them, with pandapower's own."""
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
    """Yield every pair of a table and a column of a rule."""
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
    flags = rows["in_service"]
    if flags.dtype == object:
        for row, value in flags.items():
            if not (pd.api.types.is_scalar(value) and (pd.isna(value) or value in (True, False))):
                raise _refuse(table, row, "in_service", repr(value), "true or false")
    return np.asarray(flags.fillna(False), dtype=bool)


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
    rows = frame(net, "switch")
    if not len(rows):
        return
    kinds, elements = column_of(rows, "switch", "et"), column_of(rows, "switch", "element")
    for at, kind, element in zip(rows.index, kinds, elements, strict=True):
        if not isinstance(kind, str) or kind not in SWITCHED:
            raise _refuse("switch", at, "et", repr(kind), f"one of {', '.join(SWITCHED)}")
        number = isinstance(element, int | float | np.number)  # a cell can also hold a list
        if not number or element not in frame(net, SWITCHED[kind]).index:
            raise _refuse("switch", at, "element", element, f"a row of net.{SWITCHED[kind]}")


def _check_numbers(net: Net, table: str, column: str, rule: str) -> None:
    rows, running = frame(net, table), in_service(net, table)
    if not running.any():
        return
    values = numbers(column_of(rows, table, column), table)
    wrong = running & ~((values > 0) if rule == "a positive number" else np.isfinite(values))
    if column == "max_i_ka":  # an unknown rating is no limit, a negative one an error
        wrong = running & (values <= 0)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise _refuse(table, rows.index[at], column, values[at], rule)


def column_of(rows: pd.DataFrame, table: str, column: str) -> pd.Series[Any]:
    """Return a column of a table, which must have it."""
    if column not in rows:
        raise InputError(f"net.{table} has no column {column}: add the column")
    return rows[column]


def numbers(values: pd.Series[Any], table: str) -> Floats:
    """Return a column of a table as floats; NaN where a number is missing."""
    try:
        return np.asarray(values.to_numpy(dtype=float, na_value=np.nan))
    except (TypeError, ValueError, OverflowError):
        raise InputError(
            f"net.{table}: {values.name} is not a column of numbers; give numbers"
        ) from None


def optional(rows: pd.DataFrame, column: str, missing: float) -> Floats:
    """Return a column as floats, ``missing`` where the net has no value.

    Raises
    ------
    InputError
        Naming the row, if a value is not a number.
    """
    if column not in rows:
        return np.full(len(rows), missing)
    cells = rows[column]
    try:
        values = pd.to_numeric(cells, errors="coerce").astype(float).to_numpy()
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{column} is not a column of numbers: give numbers") from None
    wrong = np.isnan(values) & cells.notna().to_numpy()
    if wrong.any():
        at = int(wrong.argmax())
        raise InputError(f"row {cells.index[at]}: {column} = {cells.iloc[at]!r}: must be a number")
    return np.where(np.isnan(values), missing, values)


PARTS = ("columns", "index", "data")
WIDEST = 500
"""Columns of a table; pandapower's own have a few dozen, profiles a few hundred."""
NET = ("pandapower.auxiliary", "pandapowerNet")
TABLES = {("pandas.core.frame", "DataFrame"), ("pandas", "DataFrame")}
NUMBERS = {("numpy", name) for name in ("float64", "float32", "int64", "int32", "uint32")}
IGNORED_TYPES = {
    "builtins": "complex frozenset set tuple",
    "geopandas.geodataframe": "GeoDataFrame",
    "networkx": "DiGraph Graph MultiGraph",
    "numpy": "array bool bool_",
    "pandas": "Index RangeIndex Series",
    "pandas.core.series": "Series",
    "shapely": "LineString Point Polygon",
}
KNOWN = (
    TABLES
    | NUMBERS
    | {(key, name) for key, names in IGNORED_TYPES.items() for name in names.split()}
)
CONTROL = ("pandapower.control.", "pandapower.protection.", "pandapower.timeseries.")
"""Modules of controllers, relays and data sources: all their classes are left out."""
FLOATS = ("float64", (int, float, type(None)), "a number or null")
TYPES = {
    **dict.fromkeys(("float64", "float32", "Float64", "Float32"), FLOATS),
    "bool": ("bool", (bool,), "true or false"),
    "boolean": ("boolean", (bool, type(None)), "true, false or null"),
}
for bits, sign in product((8, 16, 32, 64), ("", "u")):
    TYPES[f"{sign}int{bits}"] = (f"{sign}int{bits}", (int,), "a whole number")
    name = f"{sign.upper()}Int{bits}"
    TYPES[name] = (name, (int, type(None)), "a whole number or null")
"""By the type that a file states for a column: pandas' type, Python's type of cells, its name."""
OLDEST = (3, 0)
"""The oldest format that is read; in earlier ones columns had other meanings."""
_VERSION = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})(\.[0-9]{1,4})?")
_JSON = re.compile(r'\s*[\[{"]')


def open_json(path: Path) -> Net:
    """Return the net of a file written by ``pandapower.to_json``.

    Raises
    ------
    InputError
        If it is not such a file, names an object that is not on the lists, has a format that is too
        old or newer than the installed pandapower's, or has a damaged table.
    """
    text = read_text(path, "case file", LARGEST)
    with naming(path):
        return _net(_entries(text))


def _not_written(fault: str) -> InputError:
    """Return the error for a file that pandapower would not write."""
    return InputError(f"{fault}: write the file with pandapower.to_json")


def _entries(text: str) -> Json:
    """Return the entries of a document's net; every name in the document is checked."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _not_written(f"not JSON ({error})") from error
    if _name(document) != NET or not isinstance(document.get("_object"), dict):
        raise _not_written("not a net that pandapower.to_json wrote")
    for module, name in _names(list(document.values())):
        if (module, name) not in KNOWN and not module.startswith(CONTROL):
            raise InputError(
                f"names the Python object {name[:80]!r} of {module[:80]!r}; nothing is imported "
                "or called for a file, so only what pandapower writes for tables, numbers, graphs "
                "and controllers may be named"
            )
    entries: Json = document["_object"]
    return entries


def _names(waiting: list[Any]) -> Iterator[tuple[str, str]]:
    """Yield every (module, class) in the values, also in nested JSON texts."""
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if "_module" in value or "_class" in value:
                yield _name(value)
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, str) and _JSON.match(value):
            waiting.append(_decoded(value))


def _name(value: Any) -> tuple[str, str]:
    """Return the (module, class) of a value; empty if it is not a named object."""
    if not isinstance(value, dict):
        return "", ""
    return str(value.get("_module", "")), str(value.get("_class", ""))


def _decoded(text: object) -> Any:
    """Return the JSON value of a text, None if it is not JSON."""
    try:
        return json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return None
    except RecursionError:
        raise _not_written("lists or objects are nested too deeply") from None


def _net(entries: Json) -> Net:
    """Return an empty net made by pandapower, filled with the tables of the file."""
    from pandapower.auxiliary import pandapowerNet

    empty = _empty_net()
    _check_format(entries.get("format_version"), str(empty["format_version"]))
    net = pandapowerNet({})
    for key, value in empty.items():
        net[key] = value.copy() if isinstance(value, pd.DataFrame) else value
    net["name"] = entries["name"] if isinstance(entries.get("name"), str) else ""
    for key in ("f_hz", "sn_mva"):
        net[key] = _positive(key, entries.get(key, empty[key]))
    for key, value in entries.items():
        if isinstance(empty.get(key), pd.DataFrame) or _is_further_table(net, key, value):
            table = _table(f"net.{key}", value)
            if len(table):
                net[key] = table
    series = entries.get("profiles")
    net["profiles"] = {
        key: _table(f"net.profiles {key!r}", content)
        for key, content in (series.items() if isinstance(series, dict) else ())
    }
    return net


@cache
def _empty_net() -> Net:
    from pandapower import create_empty_network

    return create_empty_network(add_stdtypes=False)


def _check_format(saved: object, newest: str) -> None:
    version = _VERSION.fullmatch(saved) if isinstance(saved, str) else None
    number = (int(version[1]), int(version[2])) if version else (0, 0)
    if number < OLDEST:
        newer = "3.0 or newer (open the net with a pandapower of today and save it again)"
        raise not_allowed("format_version", saved, newer)
    installed = _VERSION.match(newest)
    if installed and number > (int(installed[1]), int(installed[2])):
        most = f"at most {newest}, that of the installed pandapower"
        raise not_allowed("format_version", saved, most)


def _is_further_table(net: Net, key: str, value: Any) -> bool:
    """Return True for a table unknown to pandapower, which is reported."""
    free = key.isidentifier() and key[0] != "_" and not hasattr(net, key)
    return free and _name(value) in TABLES and value.get("orient") == "split"


def _positive(key: str, value: Any) -> float:
    number = _cell(value)
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < 1e12:
        raise InputError(f"net.{key} = {number!r}: must be a positive number")
    return float(number)


def _table(label: str, value: Any) -> pd.DataFrame:
    """Return a table, with columns of the types stated in the file."""
    content = _decoded(value.get("_object")) if _name(value) in TABLES else None
    parts = [content.get(key) for key in PARTS] if isinstance(content, dict) else []
    lists = [part for part in parts if isinstance(part, list)]
    if len(lists) < len(PARTS):
        raise _not_written(f"{label} is not a table as pandapower writes it")
    columns, index, rows = lists
    if not all(isinstance(row, list) and len(row) == len(columns) for row in rows):
        raise _not_written(f"{label} has rows that do not have {len(columns)} cells, one a column")
    if len(rows) != len(index):
        raise _not_written(f"{label} has {len(rows)} rows and {len(index)} row numbers")
    types = value.get("dtype")
    types = types if isinstance(types, dict) else {}
    return pd.DataFrame(
        {
            name: _column(f"{label}: {name}", [row[at] for row in rows], str(types.get(name)))
            for at, name in enumerate(_column_names(label, columns))
        },
        index=_index(label, index),
    )


def _column_names(label: str, columns: list[Any]) -> list[str]:
    if len(columns) > WIDEST:
        raise InputError(f"{label} has {len(columns)} columns; at most {WIDEST} are read")
    names = [name if isinstance(name, str) else repr(_cell(name))[:80] for name in columns]
    twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if twice is not None:
        raise InputError(f"{label} has the column {twice[:80]!r} more than once: leave one out")
    return names


def _index(label: str, index: list[Any]) -> pd.Index:
    if all(type(number) is int for number in index):
        return pd.Index(_column(f"{label} row numbers", index, "int64"))
    if all(isinstance(name, str) for name in index):
        return pd.Index(index, dtype=object)
    raise InputError(f"{label} row numbers are not allowed: whole numbers, or names")


def _column(label: str, values: list[Any], kind: str) -> Any:
    """Return a column of the stated type; cells of another type are refused."""
    if kind not in TYPES:
        cells = np.empty(len(values), dtype=object)
        cells[:] = [_cell(value) for value in values]
        return cells
    dtype, allowed, expected = TYPES[kind]
    wrong = [value for value in values if type(value) not in allowed]
    if wrong:
        raise InputError(f"{label} = {str(wrong[0])[:80]!r}: must be {expected}")
    try:
        return pd.array(values, dtype=dtype)
    except (OverflowError, TypeError, ValueError):
        raise InputError(f"{label}: a number beyond {kind} is not allowed") from None


def _cell(value: Any) -> Any:
    """Return a value without a stated type: an unwrapped number, None for an object."""
    if isinstance(value, dict):
        content = value.get("_object") if _name(value) in NUMBERS else None
        value = content if isinstance(content, int | float) else None
    if isinstance(value, int) and abs(value) >= 2**63:
        raise InputError("a whole number beyond 64 bits is not allowed: give a smaller one")
    return value

"""Tables of a report: columns with units, cells as numbers until a writer formats them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pandas as pd

from gridpriv.assurance import Attack, Audit
from gridpriv.core.tables import Column, TableSchema
from gridpriv.core.text import figure

FINDINGS = (Audit.table, Attack.table)
"""An attack's error is no solver's dust, however small: it has found the demand."""
POWER = ("MW", "MVAr", "MVA")
GAP = 2
"""Characters that the space between two columns takes."""
SLACK = 20
"""Characters by which a line may be exceeded, so that no part holds one narrow column."""
LONG = 34
"""Characters from which on a text wraps."""
INTERVAL = ("_low", "_high")
"""Ends of the names of a 95 % interval's ends."""
SOLVED = 6  # decimals of a MW that solvers are good for


@dataclass(frozen=True)
class Table:
    """A table of a report.

    Attributes
    ----------
    name : str
        Short and unique; names files and sheets.
    keys : int
        How many of the first columns say what a row is about.
    rows : tuple of tuples
        Numbers stay numbers; None where there is none.
    """

    name: str
    caption: str
    columns: tuple[Column, ...]
    keys: int
    rows: tuple[tuple[Any, ...], ...]

    @cached_property
    def numbers(self) -> tuple[bool, ...]:
        """Per column True if it holds numbers (and gaps), at least one of them."""
        cells = ([v for v in column if v is not None] for column in zip(*self.rows, strict=True))
        return tuple(
            bool(column)
            and all(isinstance(v, int | float) and v is not True and v is not False for v in column)
            for column in cells
        )


def make_table(schema: TableSchema, caption: str, frame: pd.DataFrame) -> Table:
    """Return the table of those columns that the frame has with at least one value."""
    units = {c.name: "" if schema in FINDINGS else c.unit for c in schema.columns}
    kept = [c for c in schema.columns if c.name in frame and frame[c.name].notna().any()]
    cells = [_whole([cell(v, units[c.name]) for v in frame[c.name]]) for c in kept]
    keys = sum(c in schema.keys for c in kept)
    return Table(schema.name, caption, tuple(kept), keys, tuple(zip(*cells, strict=True)))


def _whole(cells: list[Any]) -> list[Any]:
    """Return a column of whole numbers (counts that were averaged) as integers."""
    whole = all(v is None or (isinstance(v, float) and v.is_integer()) for v in cells)
    return [None if v is None else int(v) for v in cells] if whole else cells


def cell(value: Any, unit: str = "") -> Any:
    """Return a cell as Python's own number, text, or None; power that is solver dust is 0."""
    if hasattr(value, "item"):
        value = value.item()
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    dust = unit in POWER and isinstance(value, float) and abs(value) < 10.0**-SOLVED
    return 0.0 if dust else value


def shown(value: object) -> str:
    """Return a cell for people: three digits, '–' where there is none."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return figure(value)
    return "–" if value is None else str(value)


def in_parts(table: Table, line: int) -> list[Table]:
    """Return a table in parts that lines of some characters hold, each with the key columns.

    The ends of an interval stay with their mean.
    """
    widths, parts = widths_of(table), [list(range(table.keys))]
    for group in _inseparable(table):
        rest = sum(widths[group[0] :])
        room = line + SLACK if rest <= SLACK else line
        full = sum(widths[k] for k in parts[-1] + group) > room
        if full and len(parts[-1]) > table.keys:
            parts.append(list(range(table.keys)))
        parts[-1] += group
    return [
        replace(
            table,
            caption=f"{table.caption}, continued" if n else table.caption,
            columns=tuple(table.columns[k] for k in part),
            rows=tuple(tuple(row[k] for k in part) for row in table.rows),
        )
        for n, part in enumerate(parts)
    ]


def _inseparable(table: Table) -> list[list[int]]:
    """Return the figures' positions, a mean's with those of its interval's ends."""
    groups: list[list[int]] = []
    for k in range(table.keys, len(table.columns)):
        if table.columns[k].name.endswith(INTERVAL):
            groups[-1].append(k)
        else:
            groups.append([k])
    return groups


def widths_of(table: Table) -> list[int]:
    """Return the characters that each column needs: headers of numbers and long texts wrap."""
    widths = []
    for k, column in enumerate(table.columns):
        kept = column.header.split() if table.numbers[k] else [column.header]
        cells = [shown(row[k])[:LONG] for row in table.rows]
        widths.append(GAP + max(map(len, [*kept, *cells])))
    return widths

"""Tables of a report and of papers: columns with units, cells as numbers until written.

A paper's table has means over seeds with intervals, as rows by columns (``study.table``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from typing import Any

import pandas as pd

from gridpriv.core.errors import InputError, check_choice
from gridpriv.core.store import Study
from gridpriv.core.tables import Column, TableSchema
from gridpriv.core.text import PRECISION, amount, csv_text, number_text
from gridpriv.report import source
from gridpriv.study.record import RUNS

POWER = ("MW", "MVAr", "MVA")
GAP = 2
"""Characters of the space between two columns."""
SLACK = 20
"""Excess characters of a line that are allowed, to avoid parts of one narrow column."""
LONG = 34
"""Number of characters above which a text wraps."""
INTERVAL = ("_low", "_high")
"""Suffixes of the names of a 95 % interval's ends."""
MW_DECIMALS = 6  # decimals of a MW within the accuracy of solvers


@dataclass(frozen=True)
class Table:
    """A table of a report.

    Attributes
    ----------
    name : str
        Short and unique; names files and sheets.
    keys : int
        Number of leading columns that identify a row.
    rows : tuple of tuples
        Numbers stay numbers; None for missing ones.
    """

    name: str
    caption: str
    columns: tuple[Column, ...]
    keys: int
    rows: tuple[tuple[Any, ...], ...]

    @cached_property
    def numbers(self) -> tuple[bool, ...]:
        """Per column True if it has numbers (and gaps), at least one number."""
        cells = ([v for v in column if v is not None] for column in zip(*self.rows, strict=True))
        return tuple(
            bool(column)
            and all(isinstance(v, int | float) and v is not True and v is not False for v in column)
            for column in cells
        )


def make_table(schema: TableSchema, caption: str, frame: pd.DataFrame) -> Table:
    """Return the table of the frame's columns with at least one value."""
    columns = [c for c in schema.columns if c.name in frame and frame[c.name].notna().any()]
    cells = [_whole([cell(v, c.unit) for v in frame[c.name]]) for c in columns]
    keys = sum(c in schema.keys for c in columns)
    return Table(schema.name, caption, tuple(columns), keys, tuple(zip(*cells, strict=True)))


def _whole(cells: list[Any]) -> list[Any]:
    """Return a column of whole numbers (counts that were averaged) as integers."""
    whole = all(v is None or (isinstance(v, float) and v.is_integer()) for v in cells)
    return [None if v is None else int(v) for v in cells] if whole else cells


def cell(value: Any, unit: str = "") -> Any:
    """Return a cell as Python's own number, text, or None; power within solver accuracy is 0."""
    if hasattr(value, "item"):
        value = value.item()
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    negligible = unit in POWER and isinstance(value, float) and abs(value) < 10.0**-MW_DECIMALS
    return 0.0 if negligible else value


def shown(value: object) -> str:
    """Return a cell for readers: three digits, '–' for a missing value."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return number_text(value)
    return "–" if value is None else str(value)


def in_parts(table: Table, line: int) -> list[Table]:
    """Return a table in parts within a line length, each with the key columns.

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
    """Return the positions of values, with a mean's interval ends grouped with it."""
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
        words = column.header.split() if table.numbers[k] else [column.header]
        cells = [shown(row[k])[:LONG] for row in table.rows]
        widths.append(GAP + max(map(len, [*words, *cells])))
    return widths


def typst_widths(table: Table) -> list[str]:
    """Return the columns' widths: short words keep to one line, the others share the rest."""
    return [
        f"{w}fr" if n or w >= GAP + LONG else "auto"
        for w, n in zip(widths_of(table), table.numbers, strict=True)
    ]


SPECIAL = str.maketrans(
    {character: rf"\{character}" for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--"}
)


def to_csv(table: Table) -> str:
    """Return a table as CSV, numbers in full, units in the header."""
    return csv_text([c.header for c in table.columns], table.rows)


def to_tex(title: str, table: Table) -> str:
    """Return a table as a LaTeX ``table`` (needs the package booktabs)."""
    head = " & ".join(escaped(c.header) for c in table.columns)
    rows = [[escaped(shown(v)) for v in row] for row in table.rows]
    note = f"{title}: {table.caption}; "
    align = "".join("r" if n else "l" for n in table.numbers)
    return booktabs([head], rows, align, table.caption, table.name, note)


def booktabs(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    align: str,
    caption: str,
    label: str,
    note: str = "",
) -> str:
    """Return a LaTeX ``table`` of escaped cells, lines of the head given whole."""
    names = "\n".join(rf"{line} \\" for line in head)
    body = "\n".join(" & ".join(row) + r" \\" for row in rows)
    return (
        f"% {note}needs \\usepackage{{booktabs}}\n\\begin{{table}}\n\\centering\n"
        f"\\caption{{{escaped(caption)}}}\n\\label{{tab:{label}}}\n"
        f"\\begin{{tabular}}{{{align}}}\n\\toprule\n{names}\n\\midrule\n{body}\n"
        "\\bottomrule\n\\end{tabular}\n\\end{table}\n"
    )


def escaped(text: str) -> str:
    """Return text with LaTeX's special characters escaped."""
    return text.translate(SPECIAL)


AXES = ("case", "zoning", "load_scale", "method", "local_updates", "budget")
"""Columns that separate runs: a cell must not mix them."""
MOST_DECIMALS = 6
Names = str | Sequence[str]
ADDED = {
    "cost_of_privacy": ("Cost of privacy", "$/h"),
    "method_cost": ("Cost due to the method", "$/h"),
    "noise_cost": ("Cost due to the noise", "$/h"),
}
"""Title and unit of values that a report computes from the runs."""


@dataclass(frozen=True, eq=False)
class Pivot:
    """A table of means and half widths of 95 % intervals (Student's t) over seeds.

    Attributes
    ----------
    mean, half : DataFrame
        Of equal shape; NaN where there is no mean, or one seed.
    units : dict of str to str
        Of every value by its name.
    caption : str
    """

    mean: pd.DataFrame
    half: pd.DataFrame
    units: dict[str, str]
    caption: str

    @property
    def text(self) -> pd.DataFrame:
        """The cells as text, ``mean ± half``."""
        return self._cells("{} \u00b1 {}")

    def to_latex(self, label: str = "study") -> str:
        r"""Return a LaTeX ``table`` (needs the package booktabs): ``$mean \pm half$``."""
        cells = self._cells(r"${} \pm {}$")
        index = [" ".join(map(str, key)) for key in _tuples(cells.index)]
        levels = list(zip(*_tuples(cells.columns), strict=True))
        shown = levels if len(self.units) > 1 else levels[1:]
        names = [" & ".join(["", *(escaped(str(part)) for part in level)]) for level in shown]
        rows = [
            [escaped(name), *(cell if cell.startswith("$") else escaped(cell) for cell in row)]
            for name, row in zip(index, cells.to_numpy(), strict=True)
        ]
        return booktabs(names, rows, "l" + "r" * len(cells.columns), self.caption, label)

    def __repr__(self) -> str:
        return f"{self.caption}\n{self.text}"

    def _repr_html_(self) -> str:
        return f"<p>{escape(self.caption)}</p>{self.text.to_html()}"

    def _cells(self, form: str) -> pd.DataFrame:
        cells = self.mean.astype(object)
        for column in cells:
            unit = self.units[column[0] if isinstance(column, tuple) else str(column)]
            pairs = zip(self.mean[column], self.half[column], strict=True)
            cells[column] = [_cell(form, mean, half, unit) for mean, half in pairs]
        return cells


@dataclass(frozen=True, eq=False)
class Pivots:
    """Makes the tables of a study: ``study.table(rows, columns, values)``."""

    study: Study

    def __call__(
        self, rows: Names = "method", columns: Names = "budget", values: Names = ()
    ) -> Pivot:
        """Return means over seeds with 95 % intervals, rows by columns.

        Parameters
        ----------
        rows, columns : str or sequence of str
            Columns of :attr:`Study.runs`, such as ``"method"`` or ``["case", "method"]``.
        values : str or sequence of str
            Values: columns of numbers, or ``cost_of_privacy``, ``method_cost``, ``noise_cost``
            ($/h). Default: the study's first cost.

        Raises
        ------
        InputError
            For a column that the runs do not have, or a cell that would mix different runs.
        """
        runs = source.with_cost_of_privacy(self.study.runs)
        runs = runs[runs["status"] == "done"] if len(runs) else runs
        if runs.empty:
            raise InputError("This study has no finished run to tabulate.")
        by_rows, by_columns, figures = _listed(rows), _listed(columns), _listed(values)
        figures = figures or [self._first_cost(runs)]
        for field, names in (("rows", by_rows), ("columns", by_columns)):
            for name in names:
                check_choice(field, name, [c for c in runs if c != "run"])
        numeric = [c for c in runs if pd.api.types.is_numeric_dtype(runs[c])]
        for name in figures:
            check_choice("values", name, [c for c in numeric if c not in AXES])
        if runs[figures].isna().all(axis=None):
            raise InputError(f"No finished run of this study has a value of {', '.join(figures)}.")
        _refuse_mixed(runs, [*by_rows, *by_columns])
        mean, half = _pivoted(runs, by_rows, by_columns, figures)
        named = [_title_and_unit(name) for name in figures]
        units = {name: unit for name, (_, unit) in zip(figures, named, strict=True)}
        text = ", ".join(f"{title} ({unit})" if unit else title for title, unit in named)
        seeds = runs.groupby([*by_rows, *by_columns], dropna=False).size().max()
        caption = f"{text}: mean and 95 % interval over {seeds} seeds"
        return Pivot(mean, half, units, caption)

    def _first_cost(self, runs: pd.DataFrame) -> str:
        metric = source.cost_metric(source.summary(self.study))
        if metric is None:
            raise InputError("This study has no cost to tabulate. Name figures with values=...")
        if "cost_of_privacy" in runs and runs["cost_of_privacy"].isna().all():
            raise InputError(
                "No run of this study has a cost of privacy: that takes an AC-feasible run and a "
                f"finished noise-free baseline. Name other values (--values {metric.key})."
            )
        return metric.key


def _pivoted(
    runs: pd.DataFrame, rows: list[str], columns: list[str], values: list[str]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return means and half widths; labels of rows and columns in the order of the runs.

    Cells are placed by the position of their labels. pandas' ``unstack(sort=False)`` does not keep
    cells under their labels.
    """
    shown = runs.assign(**{name: runs[name].map(_words(name)) for name in (*rows, *columns)})
    row, by_rows = pd.MultiIndex.from_frame(shown[rows]).factorize()
    column, by_columns = pd.MultiIndex.from_frame(shown[columns]).factorize()
    groups = shown[values].groupby([row, column])
    wide = groups.mean().unstack()
    wide = wide.loc[:, wide.notna().any()]
    half = groups.agg(source.half_width).unstack()[wide.columns]
    for frame in (wide, half):
        keys = [(value, *by_columns[n]) for value, n in frame.columns]
        frame.columns = pd.MultiIndex.from_tuples(keys, names=[None, *columns])
        frame.index = by_rows if len(rows) > 1 else by_rows.get_level_values(0)
        frame.index.names = rows
    return wide, half


def _words(name: str) -> object:
    """Return the function that formats the entries of a column."""
    if name == "budget":
        return source.budget_words
    return source.short if name in ("case", "zoning") else lambda value: value


def _refuse_mixed(runs: pd.DataFrame, named: list[str]) -> None:
    """Refuse a table whose cells would be means over different runs."""
    axes = [name for name in AXES if name in runs and name not in named]
    cells = runs.groupby(named, dropna=False)[axes].nunique(dropna=False).max()
    for name in axes:
        if cells[name] > 1:
            raise InputError(
                f"A cell of this table would be a mean over different values of {name}. Add "
                f"{name!r} to rows or columns."
            )


def _cell(form: str, mean: float, half: float, unit: str) -> str:
    if not math.isfinite(mean):
        return "\u2013"
    if not (math.isfinite(half) and half > 0.0):
        return str(amount(mean, unit)) if unit in PRECISION else number_text(mean)
    decimals = min(max(1 - math.floor(math.log10(half)), 0), MOST_DECIMALS)
    return form.format(f"{mean:.{decimals}f}", f"{half:.{decimals}f}")


def _tuples(index: pd.Index) -> list[tuple[object, ...]]:
    return [key if isinstance(key, tuple) else (key,) for key in index]


def _listed(names: Names) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _title_and_unit(name: str) -> tuple[str, str]:
    """Return title and unit of a value; empty for an undeclared one."""
    if name in ADDED:
        return ADDED[name]
    return (RUNS.column(name).title, RUNS.column(name).unit) if name in RUNS.names else ("", "")

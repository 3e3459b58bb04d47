"""Tables for papers: means over seeds with intervals, as rows by columns (``study.table``)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import pandas as pd

from gridpriv.core.errors import InputError, one_of
from gridpriv.core.stored import Study
from gridpriv.core.text import PRECISION, amount, figure
from gridpriv.report.export import booktabs, escaped
from gridpriv.report.summary import (
    budget_words,
    cost_metric,
    half_width,
    short,
    summary,
    with_cost_of_privacy,
)
from gridpriv.study.record import RUNS

AXES = ("case", "zoning", "load_scale", "method", "local_updates", "budget")
"""Columns whose runs are different runs: a cell holds one of each."""
MOST_DECIMALS = 6
ADDED = {
    "cost_of_privacy": ("Cost of privacy", "$/h"),
    "method_cost": ("Method without noise", "$/h"),
    "noise_cost": ("Noise", "$/h"),
}
"""Title and unit of what a report computes from the runs."""


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
        self,
        rows: str | Sequence[str] = "method",
        columns: str | Sequence[str] = "budget",
        values: str | Sequence[str] = (),
    ) -> Pivot:
        """Return means over seeds with 95 % intervals, rows by columns.

        Parameters
        ----------
        rows, columns : str or sequence of str
            Columns of :attr:`Study.runs`, such as ``"method"`` or ``["case", "method"]``.
        values : str or sequence of str
            Figures: columns of numbers, or ``cost_of_privacy``, ``method_cost``, ``noise_cost``
            ($/h). Default: the study's first cost.

        Raises
        ------
        InputError
            For a column that the runs do not have, or a cell that would mix different runs.
        """
        runs = with_cost_of_privacy(self.study.runs)
        runs = runs[runs["status"] == "done"] if len(runs) else runs
        by_rows, by_columns, figures = _listed(rows), _listed(columns), _listed(values)
        figures = figures or [self._first_cost()]
        for field, names in (("rows", by_rows), ("columns", by_columns)):
            for name in names:
                one_of(field, name, [c for c in runs if c != "run"])
        numeric = [c for c in runs if pd.api.types.is_numeric_dtype(runs[c])]
        for name in figures:
            one_of("values", name, [c for c in numeric if c not in AXES])
        _refuse_mixed(runs, [*by_rows, *by_columns])
        hows = ("mean", half_width)
        mean, half = (_pivoted(runs, by_rows, by_columns, figures, how) for how in hows)
        named = [_title_and_unit(name) for name in figures]
        units = {name: unit for name, (_, unit) in zip(figures, named, strict=True)}
        text = ", ".join(f"{title} ({unit})" if unit else title for title, unit in named)
        seeds = runs.groupby([*by_rows, *by_columns], dropna=False).size().max()
        caption = f"{text}: mean and 95 % interval over {seeds} seeds"
        return Pivot(mean, half.reindex_like(mean), units, caption)

    def _first_cost(self) -> str:
        metric = cost_metric(summary(self.study))
        if metric is None:
            raise InputError("This study has no cost to tabulate. Name figures with values=...")
        return metric.key


def _pivoted(
    runs: pd.DataFrame, rows: list[str], columns: list[str], values: list[str], how: object
) -> pd.DataFrame:
    shown = runs.assign(**{name: runs[name].map(_words(name)) for name in (*rows, *columns)})
    groups = shown.groupby([*rows, *columns], sort=False, dropna=False)[values]
    wide = groups.agg(how).unstack(columns, sort=False)
    order = [c for c in wide.columns if wide[c].notna().any() or how != "mean"]
    frame: pd.DataFrame = wide[order]
    return frame


def _words(name: str) -> object:
    """Return the function that formats the entries of a column."""
    if name == "budget":
        return budget_words
    return short if name in ("case", "zoning") else lambda value: value


def _refuse_mixed(runs: pd.DataFrame, named: list[str]) -> None:
    """Refuse a table whose cells would hold means over different runs."""
    others = [name for name in AXES if name in runs and name not in named]
    cells = runs.groupby(named, dropna=False)[others].nunique(dropna=False).max()
    for name in others:
        if cells[name] > 1:
            raise InputError(
                f"A cell of this table would be a mean over different values of {name}. Add "
                f"{name!r} to rows or columns."
            )


def _cell(form: str, mean: float, half: float, unit: str) -> str:
    if not math.isfinite(mean):
        return "\u2013"
    if not (math.isfinite(half) and half > 0.0):
        return str(amount(mean, unit)) if unit in PRECISION else figure(mean)
    decimals = min(max(1 - math.floor(math.log10(half)), 0), MOST_DECIMALS)
    return form.format(f"{mean:.{decimals}f}", f"{half:.{decimals}f}")


def _tuples(index: pd.Index) -> list[tuple[object, ...]]:
    return [key if isinstance(key, tuple) else (key,) for key in index]


def _listed(names: str | Sequence[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _title_and_unit(name: str) -> tuple[str, str]:
    """Return title and unit of a figure; empty for one that no row declares."""
    if name in ADDED:
        return ADDED[name]
    return (RUNS.column(name).title, RUNS.column(name).unit) if name in RUNS.names else ("", "")

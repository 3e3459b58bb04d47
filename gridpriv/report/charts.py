"""The charts of a study: cost against privacy, and what happens round by round."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from gridpriv.core.stored import Study
from gridpriv.core.text import slug
from gridpriv.drawing.chart import Chart, Series, Style, described, stacked, styles
from gridpriv.privacy.budget import NO_NOISE, QUIET, stated_epsilon
from gridpriv.report.metrics import BY_ROUND, BY_STEP, COSTS, ROUND_SHED, Metric
from gridpriv.report.summary import at_budget, budget_words, named_runs

MOST_POINTS, FEW = 120, 12
"""Points of a curve at most, and so few that each has a mark."""


def metric_chart(
    metric: Metric, name: str, title: str, x_label: str, series: Sequence[Series],
    look: dict[str, Style], subject: str = "",
) -> Chart:  # fmt: skip
    """Return a chart of a figure; in words it is about ``subject``, the title if left out."""
    alt = described(subject or title, series, metric.unit)
    told = (slug(name), title, x_label, metric.label, tuple(series), alt)
    return Chart(*told, styles=look)


def drawable(metrics: Iterable[Metric], table: pd.DataFrame) -> list[Metric]:
    """Return the figures that a table has."""
    return [m for m in metrics if m.key in table and table[m.key].notna().any()]


def cost_charts(table: pd.DataFrame, look: dict[str, Style]) -> list[Chart]:
    """Return cost against certified total epsilon, per panel and cost, with 95 % bands."""
    charts = []
    finished = table[table.seeds > 0]
    for panel in dict.fromkeys(finished[~finished.budget.isin(QUIET)].panel):
        for metric in drawable(COSTS[:-1], table):
            series = _cost_series(finished[finished.panel == panel], metric)
            if series:
                drawn = metric_chart(
                    metric, f"cost {panel} {metric.key}", f"{panel}: {metric.title.lower()}",
                    "certified total epsilon (smaller is more private)", series, look,
                )  # fmt: skip
                charts.append(replace(drawn, x_log=True, floor=metric.least))
    return charts


def _cost_series(rows: pd.DataFrame, metric: Metric) -> list[Series]:
    found = []
    for name, curve in rows.groupby("series", sort=False):
        flat = bool(curve.budget.isin(QUIET).all())
        known = curve[curve[metric.key].notna() & (flat | curve.total_epsilon.notna())]
        known = known.sort_values("total_epsilon")
        columns = ("total_epsilon", f"{metric.key}_low", f"{metric.key}_high")
        x, low, high = ((), (), ()) if flat else (_floats(known[c]) for c in columns)
        if len(known):
            found.append(Series(str(name), x, _floats(known[metric.key]), low, high, flat=flat))
    return found


def _floats(column: Iterable[float]) -> tuple[float, ...]:
    return tuple(float(v) for v in column)


def round_charts(
    study: Study, table: pd.DataFrame, look: dict[str, Style]
) -> dict[str, list[Chart]]:
    """Return, per metric, a chart by round for every panel and budget."""
    rounds = study.rounds
    if rounds.empty or table.empty:
        return {}
    runs = named_runs(study)
    found = {
        f"{metric.title} by round ({metric.origin})": [
            chart
            for panel in dict.fromkeys(runs.panel)
            for chart in _panel_rounds(rounds, runs[runs.panel == panel], metric, panel, look)
        ]
        for metric in drawable(BY_ROUND, rounds)
    }
    return {title: charts for title, charts in found.items() if charts}


def step_charts(study: Study, look: dict[str, Style]) -> list[Chart]:
    """Return what a series' table of steps holds, against the steps' numbers."""
    steps = study.tables.get("steps", pd.DataFrame())
    return column_charts(BY_STEP, steps, *_along(steps), look)


def _along(steps: pd.DataFrame) -> tuple[list[float], str]:
    """Return where a series' steps stand on an axis, and its label: their names if numbers."""
    named = pd.to_numeric(steps.get("step", pd.Series(dtype=float)), errors="coerce")
    if named.notna().all() and named.is_monotonic_increasing:
        return [float(name) for name in named], "step"
    return [float(number) for number in range(1, len(steps) + 1)], "step, counted from 1"


def column_charts(
    metrics: Sequence[Metric], table: pd.DataFrame, across: Iterable[float], x_label: str,
    look: dict[str, Style],
) -> list[Chart]:  # fmt: skip
    """Return a chart for every metric that a table has, all of the one series of ``look``."""
    (name,) = look or ("",)
    x, charts = _floats(across), []
    for metric in drawable(metrics, table):
        series = [Series(name, x, _floats(table[metric.key]), marks=len(x) <= FEW)]
        title = f"{metric.title} by {x_label}"
        charts.append(metric_chart(metric, title, title, x_label, series, look))
    return charts


def convergence_picture(rounds: pd.DataFrame, title: str) -> str:
    """Return residual (public), cost, imbalance and shed (local) of a table of rounds, as SVG."""
    metrics = [m for m in (*BY_ROUND, ROUND_SHED) if m.key != "noise_magnitude"]
    return _stacked(metrics, rounds, rounds["round"], "round", title, "log")


def horizon_picture(steps: pd.DataFrame, name: str) -> str:
    """Return residual (public), demand and shed (local) of a table of steps, as SVG."""
    across, label = _along(steps)
    return _stacked(BY_STEP, steps, across, label, f"{name}: {len(steps)} steps", "linear")


def _stacked(
    metrics: Sequence[Metric], table: pd.DataFrame, across: Iterable[float], x_label: str,
    title: str, scale: str,
) -> str:  # fmt: skip
    charts = column_charts(metrics, table, across, x_label, styles([title]))
    origin = {metric.label: metric.origin for metric in metrics}
    told = [replace(c, title=f"{c.title}, {origin[c.y_label]}", width=600) for c in charts]
    return stacked(told, scale, title=title)


def _panel_rounds(
    rounds: pd.DataFrame, runs: pd.DataFrame, metric: Metric, panel: str, look: dict[str, Style]
) -> list[Chart]:
    budgets = [b for b in dict.fromkeys(runs.budget) if b not in QUIET] or [NO_NOISE]
    charts = []
    for budget in sorted(budgets, key=stated_epsilon):
        shown = runs[runs.budget.isin([budget, *QUIET])]
        if metric.key == "noise_magnitude":
            shown = at_budget(runs, budget)
        series = [
            _round_series(str(name), rounds[rounds.run.isin(group.run)], metric)
            for name, group in shown.groupby("series", sort=False)
        ]
        if not any(s.y for s in series):
            continue
        at = "" if budget == NO_NOISE else f", {budget_words(budget)}"
        title, name = f"{panel}{at}", f"{metric.key} {panel} {budget}"
        subject = f"{metric.title}, {title}"
        drawn = metric_chart(metric, name, title, "round", series, look, subject)
        charts.append(replace(drawn, width=360, height=250))
    return charts


def _round_series(name: str, rounds: pd.DataFrame, metric: Metric) -> Series:
    wide = rounds.pivot(index="round", columns="run", values=metric.key)
    wide = wide.ffill()  # a run whose zones agree has stopped where it stays
    kept = np.unique(np.linspace(0, len(wide) - 1, min(len(wide), MOST_POINTS)).round().astype(int))
    wide = wide.iloc[kept]
    banded = wide.shape[1] > 1
    ends = (wide.min(axis=1), wide.max(axis=1)) if banded else ((), ())
    x, mean, low, high = map(_floats, (wide.index, wide.mean(axis=1), *ends))
    return Series(name, x, mean, low, high, marks=len(wide) <= FEW)

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

MOST_POINTS = 120


def cost_charts(table: pd.DataFrame, look: dict[str, Style]) -> list[Chart]:
    """Return cost against certified total epsilon, per panel and cost, with 95 % bands."""
    charts = []
    noisy = table[~table.budget.isin(QUIET) & (table.seeds > 0)]
    for panel in dict.fromkeys(noisy.panel):
        for metric in COSTS[:-1]:
            if metric.key not in table or table[metric.key].isna().all():
                continue
            series = _cost_series(table[(table.panel == panel) & (table.seeds > 0)], metric)
            if series:
                charts.append(_cost_chart(panel, metric, series, look))
    return charts


def _cost_series(rows: pd.DataFrame, metric: Metric) -> list[Series]:
    found = []
    for name, curve in rows.groupby("series", sort=False):
        flat = bool(curve.budget.isin(QUIET).all())
        known = curve[curve[metric.key].notna() & (flat | curve.total_epsilon.notna())]
        if known.empty:
            continue
        known = known.sort_values("total_epsilon")
        found.append(
            Series(
                str(name),
                () if flat else _floats(known["total_epsilon"]),
                _floats(known[metric.key]),
                () if flat else _floats(known[f"{metric.key}_low"]),
                () if flat else _floats(known[f"{metric.key}_high"]),
                flat=flat,
            )
        )
    return found


def _floats(column: Iterable[float]) -> tuple[float, ...]:
    return tuple(float(v) for v in column)


def _cost_chart(
    panel: str, metric: Metric, series: Sequence[Series], look: dict[str, Style]
) -> Chart:
    title = f"{panel}: {metric.title.lower()}"
    return Chart(
        name=slug(f"cost {panel} {metric.key}"),
        title=title,
        x_label="certified total epsilon (smaller is more private)",
        y_label=metric.label,
        series=tuple(series),
        alt=described(title, series, metric.unit),
        x_log=True,
        floor=metric.least,
        styles=look,
    )


def round_charts(
    study: Study, table: pd.DataFrame, look: dict[str, Style]
) -> dict[str, list[Chart]]:
    """Return, per metric, a chart by round for every panel and budget."""
    rounds = study.rounds
    if rounds.empty or table.empty:
        return {}
    runs = named_runs(study)
    found: dict[str, list[Chart]] = {}
    for metric in BY_ROUND:
        if metric.key not in rounds or rounds[metric.key].isna().all():
            continue
        title = f"{metric.title} by round ({metric.origin})"
        found[title] = [
            chart
            for panel in dict.fromkeys(runs.panel)
            for chart in _panel_rounds(rounds, runs[runs.panel == panel], metric, panel, look)
        ]
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
    for metric in metrics:
        if metric.key not in table or table[metric.key].isna().all():
            continue
        series = (Series(name, x, _floats(table[metric.key]), marks=len(x) <= 12),)
        title = f"{metric.title} by {x_label}"
        charts.append(
            Chart(
                name=slug(title), title=title, x_label=x_label, y_label=metric.label,
                series=series, alt=described(title, series, metric.unit), styles=look,
            )
        )  # fmt: skip
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
        title = f"{panel}{at}"
        charts.append(
            Chart(
                name=slug(f"{metric.key} {panel} {budget}"),
                title=title,
                x_label="round",
                y_label=metric.label,
                series=tuple(series),
                alt=described(f"{metric.title}, {title}", series, metric.unit),
                width=360,
                height=250,
                styles=look,
            )
        )
    return charts


def _round_series(name: str, rounds: pd.DataFrame, metric: Metric) -> Series:
    wide = rounds.pivot(index="round", columns="run", values=metric.key)
    kept = np.unique(np.linspace(0, len(wide) - 1, min(len(wide), MOST_POINTS)).round().astype(int))
    wide = wide.iloc[kept]
    mean = wide.mean(axis=1).to_numpy(dtype=float)
    least, most = wide.min(axis=1), wide.max(axis=1)
    banded = wide.shape[1] > 1
    return Series(
        name,
        tuple(float(x) for x in wide.index),
        tuple(mean.tolist()),
        tuple(least.astype(float)) if banded else (),
        tuple(most.astype(float)) if banded else (),
        marks=len(wide) <= 12,
    )

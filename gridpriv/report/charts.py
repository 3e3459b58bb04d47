"""Charts of studies (cost against privacy, by round), audits, attacks and flow-based domains."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gridpriv.core.store import Study
from gridpriv.core.text import Json
from gridpriv.grid.layout import network_tables
from gridpriv.privacy.settings import NO_BUDGET, NO_NOISE, nominal_epsilon
from gridpriv.report import source
from gridpriv.report.curves import Chart, Series
from gridpriv.report.figures import (
    PALETTE,
    Bar,
    Bars,
    Look,
    Looks,
    Plot,
    set_labels,
    set_title,
    stacked,
)
from gridpriv.report.network import GridMap

if TYPE_CHECKING:
    from gridpriv.assurance.attack import AttackResult
    from gridpriv.assurance.audit import AuditResult

MOST_POINTS = 120
"""Largest number of points of a curve."""
MOST_UNITS = 7
"""Number of buses with generation that a chart shows separately."""
WIDE_SIZE = (6.4, 2.6)
COST_SIZE, ROUND_SIZE = (4.8, 3.4), (3.6, 2.6)
"""Inches: three or four in a row at 1280 px, one at 390 px."""


def drawable(metrics: Iterable[source.Metric], table: pd.DataFrame) -> list[source.Metric]:
    """Return the metrics of a table."""
    return [m for m in metrics if m.key in table and table[m.key].notna().any()]


def cost_charts(table: pd.DataFrame, look: Looks) -> list[Chart]:
    """Return cost against certified total epsilon, per panel and cost, with 95 % intervals."""
    finished = table[table.seeds > 0]
    panels = dict.fromkeys(finished[~finished.budget.isin(NO_BUDGET)].panel)
    shown = drawable(source.COSTS[:-2], table) or drawable(source.COSTS[:-1], table)
    charts = []
    for panel in panels:
        rows = finished[finished.panel == panel]
        # a chart of zeros has less information than its column of the table
        drawn = [m for m in shown if rows[m.key].abs().max() >= m.least] or shown[:1]
        charts += [cost_chart(rows, metric, panel, look) for metric in drawn]
    return [chart for chart in charts if chart.series]


def cost_chart(table: pd.DataFrame, metric: source.Metric, panel: str, look: Looks) -> Chart:
    """Return one figure of a panel's methods against certified total epsilon."""
    return _metric_chart(
        metric,
        f"{panel}: {metric.title.lower()}",
        "certified total epsilon (smaller is more private)",
        _cost_series(table[table.panel == panel], metric),
        **{"x_log": True, "bars": True, "size": COST_SIZE, "style": look},
    )


def _metric_chart(
    metric: source.Metric, title: str, x_label: str, series: Iterable[Series], **look: Any
) -> Chart:
    """Return a chart of a metric, in its unit and at its accuracy."""
    given = {"floor": metric.least} | look
    unit = metric.unit if metric.unit in source.UNITS else ""
    return Chart(title, x_label, metric.label, tuple(series), unit, **given)


def _cost_series(rows: pd.DataFrame, metric: source.Metric) -> list[Series]:
    series = []
    for name, curve in rows.groupby("series", sort=False):
        flat = bool(curve.budget.isin(NO_BUDGET).all())
        known = curve[curve[metric.key].notna() & (flat | curve.total_epsilon.notna())]
        known = known.sort_values("total_epsilon")
        columns = ("total_epsilon", f"{metric.key}_low", f"{metric.key}_high")
        x, low, high = ((), (), ()) if flat else (_floats(known[c]) for c in columns)
        if len(known):
            series.append(Series(str(name), x, _floats(known[metric.key]), low, high, flat=flat))
    return series


def _floats(column: Iterable[float]) -> tuple[float, ...]:
    return tuple(float(v) for v in column)


def round_charts(study: Study, table: pd.DataFrame, look: Looks) -> dict[str, list[Chart]]:
    """Return, per metric, a chart by round for every panel and budget."""
    rounds = study.rounds
    if rounds.empty or table.empty:
        return {}
    runs = source.named_runs(study)
    by_title = {
        f"{metric.title} by round ({metric.origin})": [
            chart
            for panel in dict.fromkeys(runs.panel)
            for chart in _panel_rounds(rounds, runs[runs.panel == panel], metric, panel, look)
        ]
        for metric in _by_round(rounds)
    }
    return {title: charts for title, charts in by_title.items() if charts}


def step_charts(study: Study, look: Looks) -> list[Chart]:
    """Return charts of a series by step; its residual only if there is no other."""
    steps = study.tables.get("steps", pd.DataFrame())
    drawn = [m for m in drawable(source.BY_STEP, steps) if steps[m.key].abs().max() > m.least]
    drawn = [m for m in drawn if m is not source.RESIDUAL] or drawn
    return list(column_charts(drawn, steps, *_along(steps), look, COST_SIZE).values())


def generation_chart(study: Study) -> Chart | None:
    """Return the output of every bus's generators and storages against the steps (local)."""
    units = study.tables.get("res_gen", pd.DataFrame())
    if not {"step", "p_mw"} <= set(units):
        return None
    output = units.pivot_table(
        index="step", columns="bus", values="p_mw", aggfunc="sum", sort=False
    )
    largest = output.abs().max().sort_values(ascending=False).index
    x, x_label, names = _along(output.reset_index())
    names_of = {bus: " (storage)" if output[bus].min() < 0.0 else "" for bus in largest}
    series = [
        Series(f"bus {bus}{names_of[bus]}", tuple(x), _floats(output[bus]))
        for bus in largest[:MOST_UNITS]
    ]
    if len(largest) > MOST_UNITS:
        rest = output[largest[MOST_UNITS:]].sum(axis=1)
        series.append(Series("all others", tuple(x), _floats(rest)))
    title = "Output of generators and storages"
    return Chart(title, x_label, "active power (MW)", tuple(series), "MW", x_names=names)


def _along(steps: pd.DataFrame) -> tuple[list[float], str, tuple[str, ...]]:
    """Return the positions of a series' steps on an axis, its label, and names if they are text."""
    named = pd.to_numeric(steps.get("step", pd.Series(dtype=float)), errors="coerce")
    if named.notna().all() and named.is_monotonic_increasing:
        return [float(name) for name in named], "step", ()
    numbers = [float(number) for number in range(1, len(steps) + 1)]
    return numbers, "step", tuple(map(str, steps.get("step", ())))


def column_charts(
    metrics: Sequence[source.Metric],
    table: pd.DataFrame,
    across: Iterable[float],
    x_label: str,
    names: tuple[str, ...],
    look: Looks,
    size: tuple[float, float] = (6.4, 3.2),
) -> dict[str, Chart]:
    """Return a chart by column for the metrics of a table, each of the one series of ``look``."""
    (name,) = look or ("",)
    x = _floats(across)
    return {
        metric.key: _metric_chart(
            metric,
            f"{metric.title} by {x_label}" if look else f"{metric.title}, {metric.origin}",
            x_label,
            [Series(name, x, _floats(table[metric.key]))],
            **{"x_names": names, "size": size, "style": look},
        )
        for metric in drawable(metrics, table)
    }


def convergence_charts(rounds: pd.DataFrame) -> dict[str, Chart]:
    """Return the metrics of a table of rounds by column; titles include their origin."""
    metrics = _by_round(rounds, source.ROUND_SHED)
    return column_charts(metrics, rounds, rounds["round"], "round", (), {}, WIDE_SIZE)


def _by_round(rounds: pd.DataFrame, *more: source.Metric) -> list[source.Metric]:
    """Return the metrics of rounds: of grids without the distance of local models."""
    of_grid = "consensus_residual" in rounds
    rounds = rounds if "run" in rounds else rounds.assign(run=0)
    metrics = drawable((*source.BY_ROUND, *more), rounds)
    if len(rounds) > 1:  # rounds on the AC equations have values of the plan in the last only
        metrics = [m for m in metrics if rounds.groupby("run")[m.key].count().max() > 1]
    metrics = [m for m in metrics if not (of_grid and m.key == "consensus_residual_max")]
    return [_residual(rounds) if m is source.RESIDUAL else m for m in metrics]


def _residual(rounds: pd.DataFrame) -> source.Metric:
    """Return the residual of rounds; those on the AC equations have a penalty in the last only."""
    before = rounds.loc[rounds["run"].duplicated(keep="last"), "penalty_max"].isna()
    if not before.any():
        return source.RESIDUAL
    return source.AC_MISMATCH if before.all() else source.AC_MISMATCH_OR_RESIDUAL


def horizon_charts(steps: pd.DataFrame) -> dict[str, Chart]:
    """Return demand, cost, shed (local) and residual (public) of a table of steps, by column."""
    return column_charts(source.BY_STEP, steps, *_along(steps), {}, WIDE_SIZE)


def horizon_figure(steps: pd.DataFrame, name: str) -> Figure:
    """Return the figure of :func:`horizon_charts`, without the residual if there are others."""
    charts = horizon_charts(steps)
    charts = {key: c for key, c in charts.items() if key != source.RESIDUAL.key} or charts
    return stacked(list(charts.values()), f"{name}: {len(steps)} steps")


def _panel_rounds(
    rounds: pd.DataFrame, runs: pd.DataFrame, metric: source.Metric, panel: str, look: Looks
) -> list[Chart]:
    budgets = [b for b in dict.fromkeys(runs.budget) if b not in NO_BUDGET] or [NO_NOISE]
    charts = []
    wide = rounds.pivot(index="round", columns="run", values=metric.key)
    last = rounds.groupby("run")["round"].max()
    for budget in sorted(budgets, key=nominal_epsilon):
        shown = runs[runs.budget.isin([budget, *NO_BUDGET])]
        series = [
            _round_series(str(name), wide.loc[wide.index <= last[own].max(), own])
            for name, group in shown.groupby("series", sort=False)
            for own in [wide.columns.isin(group.run)]
        ]
        if sum(any(map(math.isfinite, s.y)) for s in series) <= len(series) / 2:
            continue  # most methods have no such value
        at = "" if budget == NO_NOISE else f", budget: {source.budget_words(budget)}"
        title = f"{panel}{at}"
        given: Look = {"subject": f"{metric.title}, {title}", "size": ROUND_SIZE, "style": look}
        charts.append(_metric_chart(metric, title, "round", series, **given))
    return charts


def _round_series(name: str, wide: pd.DataFrame) -> Series:
    if len(wide) > 1 and wide.notna().sum().max() < 2:  # rounds on the AC equations
        return Series(name, (), ())
    wide = wide.ffill()  # a converged run keeps its last value
    rows = np.unique(np.linspace(0, len(wide) - 1, min(len(wide), MOST_POINTS)).round().astype(int))
    wide = wide.iloc[rows]
    banded = wide.shape[1] > 1
    ends = (wide.min(axis=1), wide.max(axis=1)) if banded else ((), ())
    x, mean, low, high = map(_floats, (wide.index, wide.mean(axis=1), *ends))
    return Series(name, x, mean, low, high)


PRIOR = "prior alone"


def audit_bars(result: AuditResult) -> Bars:
    """Return nominal, certified and measured epsilon of every level."""
    bars = [
        Bar(
            level.level,
            (level.measured.epsilon,),
            note=f"{level.verdict}, {2 * level.measured.runs} runs",
            marks=(level.nominal, level.certified),
        )
        for level in result.levels
    ]
    title = (
        f"{result.prepared.case.name}: bus {result.neighbour.bus}, "
        f"{100 * result.plan.confidence:g} % confidence"
    )
    return Bars(title, "epsilon", bars, ("measured (lower bound)",), ("nominal", "certified"))


def errors_bars(result: AttackResult) -> Bars:
    """Return the mean error per bus of every configuration, against the prior's."""
    table = result.summary()
    names = [f"{row.configuration} ({row.adversary})" for row in table.itertuples()]
    colours = ["#999999", *(PALETTE[a != "messages"] for a in table["adversary"][1:])]
    half = table["interval_mw"].astype(float).fillna(0.0)
    bars = [
        Bar(name, (mw,), h, f"{100 * share:.0f} % recovered", colour=colour)
        for name, mw, h, share, colour in zip(
            [PRIOR, *names[1:]], table["mae_mw"], half, table["recovered"], colours, strict=True
        )
    ]
    return Bars(
        f"{result.prepared.case.name}: demand reconstruction",
        "mean absolute error of a bus's active demand (MW); intervals: 95 % over seeds",
        bars,
        line=float(table["mae_mw"].iloc[0]),
        line_name=PRIOR,
    )


def error_map(result: AttackResult, label: str | None = None) -> GridMap:
    """Return a map of each attacked bus's error over the prior's; dark is least protected."""
    case, zoning = result.prepared.case, result.prepared.zoning
    outcomes = [o for o in result.outcomes if o.adversary == "messages" and o.label == label]
    outcome = [*outcomes, result.shown][0]
    gain = result.errors(outcome).mean(axis=0) / np.maximum(result.prior_errors, 0.05)
    shades = dict(zip(case.bus_id[result.attacked].tolist(), gain.tolist(), strict=True))
    return GridMap(
        f"{case.name}: demand read from messages, {outcome.label}",
        *network_tables(case, zoning),
        values=shades,
        limits=(0.0, 1.0),
        value_label="error / error of the prior (0: known, 1: no better than the prior)",
    )


SIZE = (5.2, 4.6)
"""Inches."""


@dataclass(frozen=True)
class DomainFigure(Plot):
    """The domain of an ``exchange --json`` document in the net positions of two zones."""

    document: Json
    size: tuple[float, float] = SIZE

    @property
    def title(self) -> str:
        """Title of the figure."""
        return f"{self.document['case']}: flow-based domain"

    @property
    def alt(self) -> str:
        """Description of the figure."""
        domain = self.document["domain"]
        places = (f"({c['first_mw']:.4g}, {c['second_mw']:.4g})" for c in domain["corners"])
        zones = f"{domain['first_zone']} and {domain['second_zone']}"
        return f"{self.title} of zones {zones}: {', '.join(places)} MW"

    def draw(self, axes: Axes, *, legend: bool) -> None:  # noqa: ARG002
        """Draw the domain and the scheduled net positions on axes; they need no legend."""
        domain = self.document["domain"]
        position = {row["zone"]: row["net_position_mw"] for row in self.document["zones"]}
        corners = [(corner["first_mw"], corner["second_mw"]) for corner in domain["corners"]]
        names = domain["first_zone"], domain["second_zone"]
        scheduled = position[names[0]], position[names[1]]
        if corners:
            axes.fill(*zip(*corners, strict=True), color=PALETTE[0], alpha=0.25)
            axes.plot(*zip(*corners, corners[0], strict=True), color=PALETTE[0], lw=1.2)
        axes.plot(*scheduled, "o", color=PALETTE[1])
        axes.annotate("scheduled", scheduled, (6, 4), textcoords="offset points", fontsize=9)
        axes.axhline(0.0, color="#BBBBBB", lw=0.6, zorder=0)
        axes.axvline(0.0, color="#BBBBBB", lw=0.6, zorder=0)
        set_labels(axes, *(f"net position of zone {name} (MW)" for name in names))
        note = f"zone {domain['balancing_zone']} balances, other zones as scheduled"
        set_title(axes, self.title, note)

"""Means of a study over seeds with confidence intervals, a row for a method at a budget."""

from __future__ import annotations

import math

import pandas as pd

from gridpriv.core.stored import Study
from gridpriv.privacy.settings import NO_NOISE, NOTHING, QUIET, stated_epsilon
from gridpriv.privacy.statement import Certificate
from gridpriv.report.metrics import BY_ROUND, COSTS, Metric
from gridpriv.report.ranking import half_width

SIGNED = ("cost_of_privacy",)
"""Figures that may be negative."""
METRICS = (
    *dict.fromkeys(metric.key for metric in (*COSTS, *BY_ROUND)),
    *("balancing_mw", "interchange_deviation_mw", "shed_mw", "noise_magnitude"),
)
CONSTANT = tuple(c.name for c in Certificate.table.figures if c.dtype == "number")
AVERAGED = ("ac_feasible", "baseline_cost", "method_cost", "noise_cost")
PANEL = ["case", "zoning", "load_scale"]
COMBINATION = [*PANEL, "method", "local_updates", "budget"]


def summary(study: Study) -> pd.DataFrame:
    """Return one row per combination over its seeds, in the plan's order.

    For every metric the mean and the ends of its 95 % interval (``_low``, never below 0, and
    ``_high``, of a percentage never above 100); of privacy figures the largest over seeds;
    ``seeds``, ``failed``, and the share of AC-feasible runs.
    """
    runs = with_cost_of_privacy(study.runs)
    if runs.empty:
        return pd.DataFrame()
    rows = []
    for key, group in runs.groupby(COMBINATION, sort=False, dropna=False):
        done = group[group["status"] == "done"]
        row = dict(zip(COMBINATION, key, strict=True))
        row |= {
            name: group[name].iloc[0] for name in ("mechanism", "noise_schedule") if name in group
        }
        row["seeds"] = len(done)
        row["failed"] = int((group["status"] == "failed").sum())
        row |= {name: float(_known(done, name).max()) for name in CONSTANT}
        for name in METRICS:
            row |= _interval(_known(done, name), name)
        row |= {name: float(_known(done, name).mean()) for name in AVERAGED}
        rows.append(row)
    table = pd.DataFrame(rows)
    table["series"] = series_names(table)
    table["panel"] = panel_names(table)
    return table


def with_cost_of_privacy(runs: pd.DataFrame) -> pd.DataFrame:
    """Return runs with the cost of privacy ($/h) in two parts: method without noise, and noise.

    The baseline is the cheapest AC-feasible noise-free method on the same grid, zones and load
    (``baseline_cost``), the same for all methods: each against its own noise-free run would favour
    the noise of a method that is expensive without any. ``method_cost`` is the noise-free cost of
    a run's own configuration above the baseline, ``noise_cost`` the rest of its
    ``cost_of_privacy``. A run that is not AC-feasible has no cost and is no baseline.
    """
    if runs.empty or "cost" not in runs:
        return runs
    cost = pd.to_numeric(runs["cost"], errors="coerce")
    if "ac_feasible" in runs:
        cost = cost.mask(runs["ac_feasible"] == False)  # noqa: E712
    noise_free = cost.where((runs["budget"] == NO_NOISE) & (runs["status"] == "done"))
    grid = [runs[key] for key in PANEL]
    methods = noise_free.groupby([*grid, runs["method"]], dropna=False).transform("mean")
    base = methods.groupby(grid, dropna=False).transform("min")
    own = pd.Series(math.nan, index=runs.index)
    if "configuration" in runs:
        own = noise_free.groupby([*grid, runs["configuration"]], dropna=False).transform("mean")
    priced = (cost - base).where(runs["budget"] != NO_NOISE)
    return runs.assign(
        cost_of_privacy=priced,
        baseline_cost=base,
        method_cost=(own - base).where(priced.notna()),
        noise_cost=priced - (own - base),
    )


def series_names(table: pd.DataFrame) -> list[str]:
    """Return the name of each row's curve: the method, and its local updates if they vary."""
    noisy = table.loc[table.budget != NO_NOISE, "local_updates"]
    in_a_method = table.groupby("method").local_updates.nunique()
    if noisy.nunique(dropna=False) < 2 or in_a_method.max() < 2:
        return [str(name) for name in table.method]
    return [f"{n}, E = {e}" for n, e in zip(table.method, table.local_updates, strict=True)]


def named_runs(study: Study) -> pd.DataFrame:
    """Return the runs that finished, each with its chart and curve."""
    runs = with_cost_of_privacy(study.runs)
    done = runs[runs["status"] == "done"]
    return done.assign(panel=panel_names(done), series=series_names(done))


def panel_names(table: pd.DataFrame) -> list[str]:
    """Return the chart of each row: the case, and zoning and load scale if they vary."""
    names = table["case"].map(short)
    if table["zoning"].nunique() > 1:
        names = names + table["zoning"].map(lambda z: f", zoning {short(z) or 'default'}")
    if table["load_scale"].nunique() > 1:
        names = names + table["load_scale"].map(lambda s: f", load x {s:g}")
    return list(names)


def reference_budget(table: pd.DataFrame) -> str:
    """Return the budget at which methods are set side by side: the upper middle one."""
    budgets = [b for b in dict.fromkeys(table.budget) if b not in QUIET]
    budgets.sort(key=stated_epsilon)
    return budgets[len(budgets) // 2] if budgets else NO_NOISE


def at_budget(table: pd.DataFrame, budget: str) -> pd.DataFrame:
    """Return the rows at a :func:`reference_budget`: all rows, where none draws noise."""
    return table if budget == NO_NOISE else table[table.budget == budget]


def budget_words(budget: str) -> str:
    """Return a budget's label in words."""
    if budget in QUIET:
        return {NO_NOISE: "noise-free", NOTHING: "epsilon 0"}[budget]
    scope, _, numbers = budget.partition(":")
    return f"{'total' if scope == 'total' else 'per release'} epsilon {numbers.partition(',')[0]}"


def cost_metric(table: pd.DataFrame) -> Metric | None:
    """Return the cost that sentences are about: the first that the study has."""
    return next((m for m in COSTS if m.key in table and table[m.key].notna().any()), None)


def best_series(table: pd.DataFrame, budget: str) -> str | None:
    """Return the series with the lowest cost at a budget."""
    metric = cost_metric(table)
    rows = at_budget(table[table.seeds > 0], budget)
    if metric is None or rows[metric.key].isna().all():
        return None
    return str(rows.sort_values(metric.key).series.iloc[0])


def _interval(values: pd.Series, name: str) -> dict[str, float]:
    """Return a mean and, of two values or more, the ends of its interval."""
    mean, half = float(values.mean()), half_width(values)
    low, high = mean - half, mean + half
    if name not in SIGNED:
        low = max(low, 0.0)
    if name.endswith("_pct"):
        high = min(high, 100.0)
    return {name: mean, f"{name}_low": low, f"{name}_high": high}


def _known(done: pd.DataFrame, name: str) -> pd.Series:
    current = done[name] if name in done else pd.Series(dtype=float)
    return pd.to_numeric(current, errors="coerce").dropna()


def short(label: str) -> str:
    """Return the name of a case or zone map, of a path its last part."""
    return str(label).rsplit("/", 1)[-1].removesuffix(".m").removesuffix(".csv")

"""Read a folder of the store for a report; means of its runs over seeds, and ranks of methods.

The store's checksums detect damage. Tables that were edited and given new checksums are not
checked; if no report can be made of them, the folder is refused.

Messages of a study have codes; those of a run are in :mod:`gridpriv.zonal.messages`.

Means are over seeds, with confidence intervals: a row is a method at a budget. Methods are ranked
by a value only if the difference over paired seeds is significant.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import GridprivError, InputError
from gridpriv.core.settings import shortest
from gridpriv.core.store import Study, read_study
from gridpriv.core.tables import publish
from gridpriv.core.text import (
    Json,
    Message,
    clean,
    make_message,
    number_text,
    read_templates,
)
from gridpriv.privacy import settings as privacy
from gridpriv.privacy.certificate import Certificate
from gridpriv.study.record import publish_study
from gridpriv.study.run_folder import RUN, SERIES, run_document
from gridpriv.zonal.documents import SERIES_FILE, RunDocument, SeriesDocument

TEMPLATES = read_templates(Path(__file__).with_name("messages.txt"))
message = partial(make_message, TEMPLATES)


def read_source(folder: str | Path, *, public: bool = False) -> Study:
    """Return the tables of a folder, each text on one line and without control characters.

    Parameters
    ----------
    public : bool
        Leave out every value computed from true demand or noise.
    """
    study = read_study(folder)
    document = run_document(study.folder) if study.manifest.get("kind") == RUN else None
    if public:
        protected = document is not None and document["settings"]["mechanism"] != "none"
        document = document and publish(document, RunDocument.table, protected=protected)
        study = publish_study(study)
    tables = {name: _clean_table(table) for name, table in study.tables.items()}
    manifest = _clean(study.manifest | {"document": document})
    return Study(study.folder, manifest, tables)


def means_over(study: Study) -> str:
    """Return the word for the sample of a mean: seeds or steps."""
    return "steps" if study.manifest.get("kind") == SERIES else "seeds"


def interruption(study: Study) -> Message | None:
    """Return the message on planned runs that are missing; None if there are none."""
    missing = int(study.manifest.get("planned", len(study.runs))) - len(study.runs)
    return message("interrupted", {"missing": missing}) if missing > 0 else None


def step_rows(study: Study) -> list[Json]:
    """Return the steps of a series, with None for unknown values."""
    steps = study.tables.get("steps", pd.DataFrame())
    rows: list[Json] = steps.replace({np.nan: None}).to_dict("records")
    return rows


def series_document(study: Study) -> Json | None:
    """Return the document of a series from its folder; None without one."""
    path = study.folder / SERIES_FILE
    if not path.is_file():
        return None
    document: Json = _clean(json.loads(path.read_text(encoding="utf-8")))
    if study.public:
        document = publish(document, SeriesDocument.table, protected=study.withheld.empty)
    return document


def _clean_table(table: pd.DataFrame) -> pd.DataFrame:
    texts = [name for name in table if table[name].dtype.kind not in "biuf"]
    return table.assign(**{name: table[name].map(_clean) for name in texts})


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    return value


@contextmanager
def fitting(folder: Path) -> Iterator[None]:
    """Refuse a folder whose tables or documents allow no report."""
    try:
        yield
    except GridprivError:
        raise
    except Exception as error:  # pandas and Matplotlib may raise anything for invalid tables
        reason = " ".join(str(error).split())[:80]
        raise InputError(
            f"{folder} cannot be reported: its tables do not fit together "
            f"({type(error).__name__}: {reason}). If nobody changed them, gridpriv is at fault: "
            "please report it"
        ) from error


UNITS = ("%", "$/h", "MW", "p.u.", "p.u.^2")
"""Units written after a number in sentences; others are words that the name implies."""


SIGNED = ("cost_of_privacy",)
"""Values that may be negative."""


@dataclass(frozen=True)
class Metric:
    """A value: column, title, unit and origin.

    Values below ``least`` are shown as "under" it and count as equal, given the accuracy of
    solvers.
    """

    key: str
    title: str
    unit: str
    origin: str
    least: float = 0.0

    @property
    def label(self) -> str:
        """Title with unit, for an axis."""
        return f"{self.title} ({self.unit})"

    def text(self, value: float) -> str:
        """Return a value with its unit, for a sentence."""
        text = f"under {self.least:g}" if abs(value) < self.least else number_text(value)
        return f"{text} {self.unit}" if self.unit in UNITS else text

    @property
    def noun(self) -> str:
        """Name of the quantity, for a sentence."""
        return self.title.lower()

    @property
    def signed(self) -> bool:
        """True of a difference: it may be negative, and zero means no effect."""
        return self.key in SIGNED


DEMAND, SAMPLES, TEST = "from true demand", "from training samples", "from test samples"
RELEASES = "from messages between zones"
OF_LEARNING = (
    Metric("normalized_error", "Normalized error", "of the centralized solution", SAMPLES),
    Metric("augmented_objective", "Augmented objective", "sum over clients", SAMPLES),
    Metric("test_error_pct", "Test error", "%", TEST),
    Metric("test_mse", "Mean squared test error", "squared units", TEST),
    Metric("mean_objective", "Mean loss", "per sample", SAMPLES),
    Metric("local_error_pct", "Test error of local models", "%", TEST),
    Metric("local_loss", "Loss of local models", "per sample", SAMPLES),
)
RESIDUAL = Metric("consensus_residual", "Consensus residual", "p.u.", RELEASES)
AC_MISMATCH = replace(RESIDUAL, title="Largest AC mismatch")
AC_MISMATCH_OR_RESIDUAL = replace(RESIDUAL, title="Consensus residual or AC mismatch")
COST = Metric("cost", "Cost", "$/h", DEMAND)
PLAN_COST = Metric("cost", "Generation cost of the schedule", "$/h", DEMAND)
REDISPATCH_SHED = Metric("redispatch_shed_mw", "Load shedding", "MW", DEMAND, 1e-3)
# sentences use the first that a study has: of classifiers, then of grids
COSTS = (
    *OF_LEARNING,
    Metric("cost_of_privacy", "Cost of privacy", "$/h", DEMAND, 0.01),
    REDISPATCH_SHED,
    Metric("imbalance_mw", "Imbalance of the SOC relaxation", "MW", DEMAND, 1e-3),
    RESIDUAL,
)
BY_ROUND = (
    *OF_LEARNING,
    Metric("consensus_residual_max", "Distance of local models", "2-norm", RELEASES),
    PLAN_COST,
    Metric("objective", "Squared imbalance", "p.u.^2", DEMAND, 1e-6),
    RESIDUAL,
    Metric("dual_residual", "Dual residual", "unit: see note", RELEASES),
)
ROUND_SHED = Metric("plan_shortage_mw", "Shortage of the SOC relaxation", "MW", DEMAND)
BY_STEP = (Metric("demand_mw", "Demand", "MW", DEMAND), COST, REDISPATCH_SHED, RESIDUAL)
"""Values of a series, the residual last: with others only its table is shown."""

LEVEL = 0.95


def half_width(values: ArrayLike, level: float = LEVEL) -> float:
    """Return the half width of Student's confidence interval of the mean; NaN below two values."""
    from scipy.stats import t

    given = np.asarray(values, dtype=float)
    given = given[np.isfinite(given)]
    if len(given) < 2:
        return math.nan
    spread = float(given.std(ddof=1)) / math.sqrt(len(given))
    return float(t.ppf(0.5 + level / 2.0, len(given) - 1)) * spread


@dataclass(frozen=True)
class Ranking:
    """Methods by a value, in ascending order.

    Attributes
    ----------
    order : tuple of str
    leaders : tuple of str
        The lowest, and those whose difference from it is not significant.
    seeds : int
        Least number of common seeds of two compared methods.
    """

    order: tuple[str, ...]
    leaders: tuple[str, ...]
    seeds: int

    @property
    def decided(self) -> bool:
        """True if one method is significantly the lowest."""
        return len(self.leaders) == 1


def rank(runs: pd.DataFrame, metric: Metric) -> Ranking:
    """Rank the methods (column ``series``) of finished runs by the mean of a value.

    The lowest is compared with every other method over their common seeds. The level is
    Bonferroni's over all pairs, as the lowest is selected by the same values.
    """
    known = runs[runs[metric.key].notna()]
    means = known.groupby("series", sort=False)[metric.key].mean().sort_values(kind="stable")
    order = [str(name) for name in means.index]
    if len(order) < 2:
        return Ranking(tuple(order), tuple(order), len(known))
    groups = known.groupby("series", sort=False)
    drawn = {str(name): _by_seed(rows, metric) for name, rows in groups}
    pairs = len(order) * (len(order) - 1) / 2.0
    differences = {name: _difference(drawn[order[0]], drawn[name]) for name in order[1:]}
    leaders = [order[0]] + [
        name
        for name, difference in differences.items()
        if not _significant(difference, metric, 1.0 - (1.0 - LEVEL) / pairs)
    ]
    noisy = [len(difference) for difference in differences.values()]
    return Ranking(tuple(order), tuple(leaders), min(noisy))


def _by_seed(rows: pd.DataFrame, metric: Metric) -> pd.Series | float:
    """Return a method's value by seed; without noise one value for every seed."""
    values = pd.to_numeric(rows[metric.key])
    if bool(rows["budget"].isin(privacy.NO_BUDGET).all()):
        return float(values.iloc[0])
    seeds = rows["seed"] if "seed" in rows else pd.Series(range(len(rows)), index=rows.index)
    return pd.Series(values.to_numpy(dtype=float), index=seeds.astype(str))


def _difference(lowest: pd.Series | float, other: pd.Series | float) -> Floats:
    """Return the other's value less the lowest one's, by common seed."""
    return np.asarray(pd.Series(other - lowest).dropna(), dtype=float)


def _significant(difference: Floats, metric: Metric, level: float) -> bool:
    mean = float(difference.mean()) if len(difference) else 0.0
    if mean <= metric.least:
        return False
    if np.ptp(difference) <= 1e-9 * abs(mean):  # deterministic, whatever the seed
        return True
    return mean > half_width(difference, level)


METRICS = (
    *dict.fromkeys(metric.key for metric in (*COSTS, *BY_ROUND)),
    *(
        "curtailed_mw",
        "balancing_mw",
        "interchange_deviation_mw",
        "plan_shortage_mw",
        "noise_magnitude",
    ),
)
CONSTANT = tuple(c.name for c in Certificate.table.value_columns if c.dtype == "number")
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
    names = [*CONSTANT, *METRICS, *AVERAGED]
    figures = runs.reindex(columns=names).apply(pd.to_numeric, errors="coerce").astype(float)
    rows = []
    for key, group in runs.groupby(COMBINATION, sort=False, dropna=False):
        done = group[group["status"] == "done"]
        row = dict(zip(COMBINATION, key, strict=True))
        row |= {
            n: group[n].iloc[0] for n in ("mechanism", "noise_schedule", "update") if n in group
        }
        row["seeds"] = len(done)
        row["failed"] = int((group["status"] == "failed").sum())
        columns = figures.loc[done.index].to_numpy().T
        known = {n: c[~np.isnan(c)] for n, c in zip(names, columns, strict=True)}
        row |= {n: float(known[n].max()) if len(known[n]) else math.nan for n in CONSTANT}
        for name in METRICS:
            row |= _interval(known[name], name)
        row |= {name: _mean(known[name]) for name in AVERAGED}
        rows.append(row)
    table = pd.DataFrame(rows)
    table["series"] = series_names(table)
    table["panel"] = panel_names(table)
    return table


def with_cost_of_privacy(runs: pd.DataFrame) -> pd.DataFrame:
    """Return runs with the cost of privacy ($/h) in two parts: method without noise, and noise.

    The baseline is the cheapest AC-feasible noise-free method on the same grid, zones and load
    (``baseline_cost``), the same for all methods: separate noise-free baselines would favour a
    method that is expensive without noise. ``method_cost`` is the noise-free cost of a run's own
    configuration above the baseline (of a noise-free run all of it), ``noise_cost`` the rest of its
    ``cost_of_privacy``. A run that is not AC-feasible has no cost (``cost`` is missing, of a
    marginal run too) and is not a baseline.
    """
    if runs.empty or "cost" not in runs:
        return runs
    cost = pd.to_numeric(runs["cost"], errors="coerce")
    if "ac_feasible" in runs:
        cost = cost.mask(runs["ac_feasible"] == False)  # noqa: E712
    noise_free = cost.where((runs["budget"] == privacy.NO_NOISE) & (runs["status"] == "done"))
    grid = [runs[key] for key in PANEL]
    methods = noise_free.groupby([*grid, runs["method"]], dropna=False).transform("mean")
    base = methods.groupby(grid, dropna=False).transform("min")
    own = pd.Series(math.nan, index=runs.index)
    if "configuration" in runs:
        own = noise_free.groupby([*grid, runs["configuration"]], dropna=False).transform("mean")
    priced = (cost - base).where(runs["budget"] != privacy.NO_NOISE)
    return runs.assign(
        cost=cost,
        cost_of_privacy=priced,
        baseline_cost=base,
        method_cost=(own - base).where(cost.notna()),
        noise_cost=priced - (own - base),
    )


def series_names(table: pd.DataFrame) -> list[str]:
    """Return the name of each row's curve: the method, and its local updates if they vary."""
    noisy = table.loc[table.budget != privacy.NO_NOISE, "local_updates"]
    in_a_method = table.groupby("method").local_updates.nunique()
    if noisy.nunique(dropna=False) < 2 or in_a_method.max() < 2:
        return [str(name) for name in table.method]
    return [f"{n}, E = {e}" for n, e in zip(table.method, table.local_updates, strict=True)]


def named_runs(study: Study) -> pd.DataFrame:
    """Return the runs that finished, each with its chart and curve."""
    done = study.done
    return done.assign(panel=panel_names(done), series=series_names(done))


def panel_names(table: pd.DataFrame) -> list[str]:
    """Return the chart of each row: the case, and zoning and load scale if they vary."""
    names = table["case"].map(short)
    if table["zoning"].nunique() > 1:
        names = names + table["zoning"].map(lambda z: f", zoning {short(z) or 'default'}")
    if table["load_scale"].nunique() > 1:
        names = names + table["load_scale"].map(lambda s: f", load x {s:g}")
    return list(names)


def budgets_of(table: pd.DataFrame) -> list[str]:
    """Return the budgets of the noise of a table, the smallest first."""
    noisy = (budget for budget in dict.fromkeys(table.budget) if budget not in privacy.NO_BUDGET)
    return sorted(noisy, key=privacy.nominal_epsilon)


def reference_budget(table: pd.DataFrame) -> str:
    """Return the budget at which methods are compared: the upper median."""
    budgets = budgets_of(table)
    return budgets[len(budgets) // 2] if budgets else privacy.NO_NOISE


def at_budget(table: pd.DataFrame, budget: str) -> pd.DataFrame:
    """Return the rows at a :func:`reference_budget`; all rows without noise."""
    return table if budget == privacy.NO_NOISE else table[table.budget == budget]


def budget_words(budget: str) -> str:
    """Return a budget's label."""
    if budget in privacy.NO_BUDGET:
        return {privacy.NO_NOISE: "noise-free", privacy.NOTHING: "epsilon 0"}[budget]
    stated = privacy.parse_budget(budget)
    return f"{stated.scope.replace('-', ' ')} epsilon {shortest(stated.epsilon)}"


def cost_metric(table: pd.DataFrame) -> Metric | None:
    """Return the cost for sentences: the first in the study."""
    return next((m for m in COSTS if m.key in table and table[m.key].notna().any()), None)


def best_series(table: pd.DataFrame, budget: str) -> str | None:
    """Return the series with the lowest cost at a budget."""
    metric = cost_metric(table)
    rows = at_budget(table[table.seeds > 0], budget)
    if metric is None or rows[metric.key].isna().all():
        return None
    return str(rows.sort_values(metric.key).series.iloc[0])


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else math.nan


def _interval(values: Floats, name: str) -> dict[str, float]:
    """Return a mean and, of two values or more, the ends of its interval."""
    mean, half = _mean(values), half_width(values)
    low, high = mean - half, mean + half
    if name not in SIGNED:
        low = max(low, 0.0)
    if name.endswith("_pct"):
        high = min(high, 100.0)
    return {name: mean, f"{name}_low": low, f"{name}_high": high}


def short(label: str) -> str:
    """Return the name of a case or zone map, of a path its last part."""
    return str(label).rsplit("/", 1)[-1].removesuffix(".m").removesuffix(".csv")

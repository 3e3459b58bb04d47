"""What a study found: means over seeds with confidence intervals, and the answer in words."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from gridpriv.core.display import figure
from gridpriv.core.stored import Study
from gridpriv.privacy.statement import noise_caveat
from gridpriv.report.source import run_document
from gridpriv.study.total import differing, study_totals
from gridpriv.zonal.summary import AGREED, sentences, series_sentences

METRICS = (
    "cost_of_privacy", "cost", "balancing_mw", "interchange_deviation_mw", "imbalance_mw",
    "shed_mw", "recourse_shed_mw", "objective", "consensus_residual",
    "noise_magnitude", "test_error_pct", "test_mse", "mean_objective", "disagreement",
    "local_error_pct", "local_loss", "normalized_error", "augmented_objective", "accounted",
)  # fmt: skip
CONSTANT = (
    "total_epsilon", "total_pure", "target_delta", "epsilon_claimed", "epsilon_certified",
    "release_delta", "releases_per_zone", "releases_per_client", "paper_total", "ac_slack_mw",
    "ac_vm_violations", "ac_loading_violations",
)  # fmt: skip
PANEL = ["case", "zoning", "load_scale"]
VARIED = (("local_updates", "E = {}"),)
NO_NOISE = "none"


@dataclass(frozen=True)
class Metric:
    """A cost that a report draws: column, title, unit, and where it is computed.

    Below ``least`` values are told as "under" it and count as equal: of a megawatt nobody asks
    for less than a thousandth, and solvers are no more exact than that. ``spoken`` names, for
    sentences, a quantity whose unit is words.
    """

    key: str
    title: str
    unit: str
    origin: str
    least: float = 0.0
    spoken: str = ""

    @property
    def label(self) -> str:
        """Title with unit, for an axis."""
        return f"{self.title} ({self.unit})"

    def told(self, value: float) -> str:
        """Return a value with its unit, for a sentence."""
        unit = "" if self.spoken else f" {self.unit}"
        if abs(value) < self.least:
            return f"under {self.least:g}{unit}"
        return f"{figure(value)}{unit}"

    @property
    def noun(self) -> str:
        """What is measured, for a sentence."""
        return self.spoken or self.title.lower()

    @property
    def spent(self) -> bool:
        """Whether one says that privacy costs so and so much of it."""
        return self.unit in ("MW", "%")


# the first that a study has is what sentences are about: of classifiers, then of grids
COSTS = (
    Metric("accounted", "Total privacy loss", "epsilon", "from formulas",
           spoken="total privacy loss"),
    Metric("normalized_error", "Normalized error", "of the centralized solution",
           "from private samples", spoken="normalized error"),
    Metric("augmented_objective", "Augmented objective", "sum over clients",
           "from private samples", spoken="augmented objective"),
    Metric("test_error_pct", "Test error", "%", "from public test data"),
    Metric("test_mse", "Test error", "mean squared error", "from public test data",
           spoken="mean squared test error"),
    Metric("mean_objective", "Objective", "mean loss", "from private samples",
           spoken="mean loss"),
    Metric("local_error_pct", "Test error of local models", "%", "from public test data"),
    Metric("local_loss", "Loss of local models", "mean loss", "from private samples",
           spoken="loss of local models"),
    Metric("cost_of_privacy", "Cost of privacy", "$/h", "from private demand", 0.01),
    Metric("recourse_shed_mw", "Shed after local recourse", "MW", "from private demand", 1e-3),
    Metric("imbalance_mw", "Imbalance in the last round", "MW", "from private demand", 1e-3),
    Metric("consensus_residual", "Consensus residual", "p.u.", "from releases only"),
)  # fmt: skip


def half_width(values: Any, level: float = 0.95) -> float:
    """Return the half width of Student's confidence interval of the mean; NaN below two values."""
    from scipy.stats import t

    given = np.asarray(values, dtype=float)
    given = given[np.isfinite(given)]
    if len(given) < 2:
        return math.nan
    spread = float(given.std(ddof=1)) / math.sqrt(len(given))
    return float(t.ppf(0.5 + level / 2.0, len(given) - 1)) * spread


def summary(study: Study) -> pd.DataFrame:
    """Return one row per combination over its seeds, in the plan's order.

    For every metric the mean and the ends of its 95 % interval (``_low``, never below 0, and
    ``_high``, of a percentage never above 100); of privacy figures the largest over seeds;
    ``seeds``, ``failed``, and the shares of AC power flows that converged and of runs that the
    grid can carry.
    """
    runs = with_cost_of_privacy(study.runs)
    if runs.empty:
        return pd.DataFrame()
    keys = [*PANEL, "scheme", "local_updates", "budget"]
    rows = []
    for key, group in runs.groupby(keys, sort=False, dropna=False):
        done = group[group["status"] == "done"]
        row = dict(zip(keys, key, strict=True))
        row["mechanism"] = group["mechanism"].iloc[0]
        row["seeds"] = len(done)
        row["failed"] = int((group["status"] == "failed").sum())
        row |= {name: _largest(done, name) for name in CONSTANT}
        for name in METRICS:
            row |= _interval(done, name)
        row["ac_converged"] = _share(done, "ac_converged")
        row["carried"] = _share(done, "carried")
        rows.append(row)
    table = pd.DataFrame(rows)
    table["series"] = series_names(table)
    table["panel"] = panel_names(table)
    return table


def with_cost_of_privacy(runs: pd.DataFrame) -> pd.DataFrame:
    """Return runs with what noisy ones cost beyond the cheapest way without noise.

    Of the same grid, zones and load, and in the mean over its runs; where there is none without
    noise it is NaN. One yardstick for all ways: each beside its own would praise the noise of a
    way that is dear without any.
    """
    if runs.empty or "cost" not in runs or "mechanism" not in runs:
        return runs
    cost = pd.to_numeric(runs["cost"], errors="coerce")
    quiet = (runs["mechanism"] == NO_NOISE) & (runs["status"] == "done")
    grid = [runs[key] for key in PANEL]
    ways = cost.where(quiet).groupby([*grid, runs["scheme"]], dropna=False).transform("mean")
    base = ways.groupby(grid, dropna=False).transform("min")
    return runs.assign(cost_of_privacy=(cost - base).where(runs["mechanism"] != NO_NOISE))


def series_names(table: pd.DataFrame) -> list[str]:
    """Return what each row's curve is called: the scheme, and what varies beside it."""
    suffix = [""] * len(table)
    for column, words in VARIED:
        if len(set(table.loc[table.mechanism != NO_NOISE, column])) > 1 and _varies(table, column):
            values = table[column]
            suffix = [f"{s}, {words.format(v)}" for s, v in zip(suffix, values, strict=True)]
    return [f"{name}{s}" for name, s in zip(table.scheme, suffix, strict=True)]


def panel_names(table: pd.DataFrame) -> list[str]:
    """Return which chart each row belongs to: the case, and zoning and load scale if they vary."""
    names = table["case"].map(_short)
    if table["zoning"].nunique() > 1:
        names = names + table["zoning"].map(lambda z: f", zoning {_short(z) or 'default'}")
    if table["load_scale"].nunique() > 1:
        names = names + table["load_scale"].map(lambda s: f", load x {s:g}")
    return list(names)


def answers(study: Study, table: pd.DataFrame) -> list[str]:
    """Return the answer: a sentence with numbers for every panel."""
    if table.empty or (not (table.seeds > 0).any() and study.withheld.empty):
        return ["No run finished, so there is no answer yet; the reasons are listed below."]
    document = run_document(study)
    if document is not None:
        return [*sentences(document), *_left_out(study)]
    told = [
        _answer(study, str(name), rows[rows.seeds > 0])
        for name, rows in table.groupby("panel", sort=False)
        if (rows.seeds > 0).any()
    ]
    if "steps" in study.tables:
        told = [_steps_answer(study)]
    return [*_claims_answer(study), *told, *_together(study), *_left_out(study), *_caveats(study)]


def _steps_answer(study: Study) -> str:
    steps, planned = study.tables["steps"], int(study.manifest["planned"])
    return " ".join(series_sentences(steps.replace({np.nan: None}).to_dict("records"), planned))


def _together(study: Study) -> list[str]:
    """Return what the runs of every data set cost together, where there are several."""
    told = []
    for total in study_totals(study):
        if total.runs < 2:
            continue
        what = "steps" if "steps" in study.tables else "noisy runs"
        runs = f"The {total.runs} {what} of {_short(total.case)}, published together,"
        if total.epsilon is None:
            noisy = (study.runs["case"] == total.case) & (study.runs["mechanism"] != NO_NOISE)
            names = " and ".join(differing(study, study.runs[noisy]))
            told.append(f"{runs} protect different things (their {names} differ): no one total.")
        elif math.isinf(total.epsilon):
            told.append(f"{runs} certify nothing: of some release nothing is proved.")
        else:
            epsilon = f"at most epsilon {_epsilon(total.epsilon)} (delta {total.delta:g})"
            rest = f", and what {total.unknown} failed runs released" if total.unknown else ""
            told.append(f"{runs} cost {epsilon}{rest}, not what each of them states.")
    return told


def _left_out(study: Study) -> list[str]:
    if not study.public:
        return []
    quiet = " Of runs without noise only settings are told." if len(study.withheld) else ""
    return [f"Figures computed from private data are left out.{quiet}"]


def simulation_caveat(study: Study) -> str:
    """Return what simulated noise means for privacy; nothing where none of a study's noise is."""
    runs = study.runs
    noisy = runs[runs["mechanism"] != NO_NOISE] if len(runs) else runs
    if noisy.empty or ("noise" in noisy and (noisy["noise"] == "secure").all()):
        return ""
    return noise_caveat("laplace", "simulated")


def _caveats(study: Study) -> list[str]:
    caveat = simulation_caveat(study)
    return [f"{caveat[0].upper()}{caveat[1:]}."] if caveat else []


def _claims_answer(study: Study) -> list[str]:
    """Return, of a reproduction, how many of the paper's statements hold."""
    claims = study.tables.get("claims", pd.DataFrame())
    if claims.empty:
        return []
    told = [
        f"{int((rows.outcome == 'holds').sum())} of {len(rows)} hold{words}"
        for kind, words in (("", ""), ("paper", " with the noise that the paper states"),
                            ("sound", " with noise that certifies what it states"))
        if len(rows := claims[claims.calibration == kind])
    ]  # fmt: skip
    text = "Of the orderings that the paper states for this figure, " + ", ".join(told) + "."
    ratios = study.tables["statements"]
    paper = set(study.done.loc[study.done.calibration == "paper", "run"])
    if len(ratios) and paper:
        here = ratios[ratios.run.isin(paper)].ratio
        text += (
            f" The proven sensitivity is {here.min():.3g} to {here.max():.3g} times the one that "
            "the paper's noise is calibrated to; above 1, less privacy is delivered than stated."
        )
    return [text]


def reference_budget(table: pd.DataFrame) -> str:
    """Return the budget at which schemes are set side by side: the upper middle one."""
    budgets = [b for b in dict.fromkeys(table.budget) if b != NO_NOISE]
    budgets.sort(key=epsilon_of)
    return budgets[len(budgets) // 2] if budgets else NO_NOISE


def epsilon_of(budget: str) -> float:
    """Return the number of a budget's label; 0 without noise."""
    return 0.0 if budget == NO_NOISE else float(budget.partition(":")[2].split(",")[0])


def cost_metric(table: pd.DataFrame) -> Metric | None:
    """Return the cost that sentences are about: the first that the study has."""
    return next((m for m in COSTS if m.key in table and table[m.key].notna().any()), None)


def best_series(table: pd.DataFrame, budget: str) -> str | None:
    """Return the series with the lowest cost at a budget."""
    metric = cost_metric(table)
    noisy = table[(table.budget == budget) & (table.seeds > 0)]
    if metric is None or noisy.empty or noisy[metric.key].isna().all():
        return None
    return str(noisy.sort_values(metric.key).series.iloc[0])


def _answer(study: Study, panel: str, rows: pd.DataFrame) -> str:
    metric = cost_metric(rows)
    budget = reference_budget(rows)
    if metric is None:
        return f"{panel}: figures computed from private demand are left out."
    if budget == NO_NOISE:
        least = rows.sort_values(metric.key).iloc[0]
        told = [sentence(f"{panel}: {metric.noun} is {metric.told(least[metric.key])}")]
        return " ".join([*told, *_carried(least), *_not_agreed(rows)])
    quiet = rows[rows.mechanism == NO_NOISE]
    nothing = rows[(rows.budget == NO_NOISE) & (rows.mechanism != NO_NOISE)]
    ranked = rows[rows.budget == budget].dropna(subset=[metric.key]).sort_values(metric.key)
    if ranked.empty:
        return f"{panel}: no run at budget {budget} has a figure to compare."
    where = f"{panel}{_load(study, rows)}: {_at(ranked, budget)}"
    lost = ranked[ranked.carried == 0.0]
    ranked = ranked.drop(lost.index)
    if ranked.empty:
        told = [f"{where}, the grid can carry no run of {_ways(lost)}: what they cost is no price."]
        return " ".join([*told, *_not_agreed(lost)])
    best, worst = ranked.iloc[0], ranked.iloc[-1]
    same = max(metric.least, 1e-9 * abs(best[metric.key]))
    equal = ranked[ranked[metric.key] <= best[metric.key] + same]
    several = len(equal)
    if len(ranked) > 1 and several == len(ranked):
        told = [f"{where}, {metric.noun} does not tell the {len(ranked)} ways apart: "
                f"{metric.told(best[metric.key])} each."]  # fmt: skip
    else:
        said = _least(metric, best, equal=several, ways=len(ranked))
        told = [sentence(f"{where}, {_named(equal.series)} {said}")]
    others = []
    if not quiet.empty and math.isfinite(quiet[metric.key].min()):
        others.append(f"without noise it is {metric.told(quiet[metric.key].min())}")
    silent = nothing[metric.key].min() if len(nothing) else math.nan
    if math.isfinite(silent):
        others.append(f"with nothing released, at epsilon 0, it is {metric.told(silent)}")
    if len(ranked) > several:
        most, has = ("dearest", "costs") if metric.spent else ("worst", "has")
        others.append(
            f'the {most} of the {len(ranked)} ways, "{worst.series}", {has} '
            f"{metric.told(worst[metric.key])}"
        )
    if others:
        text = "; ".join(others)
        told.append(sentence(f"{text[0].upper()}{text[1:]}"))
    told += _carried(best)
    if silent < best[metric.key] - same:
        told.append("That budget is worth nothing here, whichever of these ways it is spent on.")
    if len(lost):
        told.append(f"It can carry no run of {_ways(lost)}.")
    told += _slope(rows, str(best.series), metric)
    return " ".join([*told, *_not_agreed(pd.concat([ranked, lost]))])


def _carried(row: Any) -> list[str]:
    if pd.isna(row.carried):
        return []
    share = {0.0: "none", 1.0: "all"}.get(row.carried, f"{100.0 * row.carried:.3g} %")
    return [f"The grid can carry {share} of its runs."]


def sentence(text: str) -> str:
    """Return a text with one full stop at its end."""
    return f"{text.rstrip('. ')}."


def _named(ways: Iterable[Any]) -> str:
    return " and ".join(f'"{name}"' for name in ways)


def _ways(rows: pd.DataFrame) -> str:
    return _named(rows.series) if len(rows) < 4 else f"{len(rows)} ways"


def _not_agreed(rows: pd.DataFrame) -> list[str]:
    """Return a sentence where zones have not come to agree, else nothing."""
    apart = rows[rows.consensus_residual > AGREED]
    if apart.empty:
        return []
    most = figure(apart.consensus_residual.max())
    return [f"Not converged: zones differ in what they share by up to {most} p.u. in the mean over "
            f"seeds ({_ways(apart)})."]  # fmt: skip


def _at(rows: pd.DataFrame, budget: str) -> str:
    totals = rows.total_epsilon.dropna()
    delta = rows.target_delta.dropna()
    if totals.empty:
        return f"at budget {budget}"
    low, high = totals.min(), totals.max()
    if high <= 1.01 * low:
        return f"at a certified total epsilon of {high:.3g} (delta {delta.iloc[0]:g})"
    return (
        f"at the stated {budget.replace(':', ' epsilon ')}, which certifies totals of "
        f"{_epsilon(low)} to {_epsilon(high)} (delta {delta.iloc[0]:g})"
    )


def _epsilon(value: float) -> str:
    return f"{value:.3g}" if value < 1000.0 else figure(value)


def _least(metric: Metric, best: Any, *, equal: int, ways: int) -> str:
    """Return what the best of several ways costs, or has least of; what the only one does."""
    value, interval = metric.told(best[metric.key]), _interval_of(best, metric)
    several = equal > 1
    if ways == 1:
        said = f"costs {value} {metric.noun}" if metric.spent else f"has {metric.noun} {value}"
        return f"{said}{interval}"
    if metric.spent:
        return f"cost{'' if several else 's'} the least, {value} {metric.noun}{interval}"
    return f"{'have' if several else 'has'} the lowest {metric.noun}, {value}{interval}"


def _interval_of(row: Any, metric: Metric) -> str:
    low, high = row[f"{metric.key}_low"], row[f"{metric.key}_high"]
    if not math.isfinite(low) or high < metric.least:
        return ""
    return f" (95 % interval {figure(low)} to {figure(high)}, {row.seeds} seeds)"


def _slope(rows: pd.DataFrame, series: str, metric: Metric) -> list[str]:
    """Return what the cheapest way costs at the least and at the most total epsilon."""
    curve = rows[(rows.series == series) & (rows.budget != NO_NOISE)].sort_values("total_epsilon")
    curve = curve[curve[metric.key].notna() & curve.total_epsilon.notna()]
    if len(curve) < 2 or curve[metric.key].abs().max() < metric.least:
        return []
    first, last = curve.iloc[0], curve.iloc[-1]
    return [
        f"From total epsilon {_epsilon(first.total_epsilon)} to {_epsilon(last.total_epsilon)}, "
        f'"{series}" goes from {metric.told(first[metric.key])} to '
        f"{metric.told(last[metric.key])}."
    ]


def _load(study: Study, rows: pd.DataFrame) -> str:
    for grid in study.manifest.get("cases", []):
        if grid["case"] == rows.iloc[0]["case"] and grid.get("load_mw") is not None:
            return f" ({figure(grid['load_mw'] * rows.iloc[0].load_scale, 4)} MW of load)"
    return ""


def _interval(done: pd.DataFrame, name: str) -> dict[str, float]:
    values = pd.to_numeric(done[name], errors="coerce").dropna() if name in done else done[:0]
    if len(values) == 0:
        return {name: math.nan, f"{name}_low": math.nan, f"{name}_high": math.nan}
    mean, half = float(np.mean(values)), half_width(values)
    if not math.isfinite(half):
        return {name: mean, f"{name}_low": math.nan, f"{name}_high": math.nan}
    low, high = mean - half, mean + half
    if name != "cost_of_privacy":  # noise may happen to help
        low = max(low, 0.0)
    if name.endswith("_pct"):
        high = min(high, 100.0)
    return {name: mean, f"{name}_low": low, f"{name}_high": high}


def _largest(done: pd.DataFrame, name: str) -> float | None:
    if name not in done:
        return None
    values = pd.to_numeric(done[name], errors="coerce").dropna()
    if len(values) == 0:
        return None
    return float(np.mean(np.abs(values)) if name == "ac_slack_mw" else np.max(values))


def _share(done: pd.DataFrame, name: str) -> float | None:
    values = done[name].dropna() if name in done else done[:0]
    return float(np.mean(values.astype(bool))) if len(values) else None


def _varies(table: pd.DataFrame, column: str) -> bool:
    """Return whether any one scheme is run at several values."""
    return bool((table.groupby("scheme")[column].nunique() > 1).any())


def _short(label: str) -> str:
    return str(label).rsplit("/", 1)[-1].removesuffix(".m").removesuffix(".csv")

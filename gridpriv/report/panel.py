"""Methods of a study on one grid: their card, the messages beside it, and what to do next."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from gridpriv.core.stored import Study
from gridpriv.core.text import Message, amount, counted, figure
from gridpriv.privacy.settings import NO_NOISE, NOTHING, QUIET, stated_epsilon
from gridpriv.report.messages import message
from gridpriv.report.metrics import Metric
from gridpriv.report.protection import epsilon_text, quoted
from gridpriv.report.ranking import Ranking, rank
from gridpriv.report.summary import budget_words, cost_metric, named_runs, reference_budget
from gridpriv.report.verdict import Card, Fact, run_card, series_card, share_of
from gridpriv.zonal.trace import AGREED

EXCHANGED = {"balancing_mw": "Balancing power", "interchange_deviation_mw": "Interchange deviation"}
MOST_NAMED = 3
"""Methods that a fact or a message names; of more it says how many."""


def cards(study: Study, table: pd.DataFrame) -> tuple[Card, ...]:
    """Return the verdict of a run, of a series, or of every panel of a study."""
    document = study.manifest.get("document")
    if document is not None:
        return (run_card(document, study),)
    if "steps" in study.tables and study.withheld.empty:
        return (series_card(study),)
    panels = [] if table.empty else [p for p in Panel.all(study, table) if len(p.rows)]
    return tuple(card for panel in panels if (card := panel.card()).facts)


@dataclass(frozen=True, eq=False)
class Panel:
    """The methods on one grid, at the budget at which they are compared.

    Attributes
    ----------
    rows : DataFrame
        Of :func:`gridpriv.report.summary.summary`, those with finished runs.
    runs : DataFrame
        The finished runs (:func:`gridpriv.report.summary.named_runs`).
    """

    study: Study
    name: str
    rows: pd.DataFrame
    runs: pd.DataFrame

    @classmethod
    def all(cls, study: Study, table: pd.DataFrame) -> Iterator[Panel]:
        """Yield the panels of a study in order."""
        runs = named_runs(study)
        for name, rows in table[table.seeds > 0].groupby("panel", sort=False):
            yield cls(study, str(name), rows, runs[runs.panel == name])

    @property
    def budget(self) -> str:
        """The budget at which methods are compared; of a panel without noise, none."""
        return reference_budget(self.rows)

    @property
    def metric(self) -> Metric | None:
        """The figure by which methods are ranked."""
        return cost_metric(self.rows)

    @property
    def compared(self) -> pd.DataFrame:
        """The rows at the budget."""
        return self.rows[self.rows.budget == self.budget]

    @property
    def ranked(self) -> pd.DataFrame:
        """The rows of methods that may be ranked: all their runs are AC-feasible, in order."""
        if self.metric is None:
            return self.compared.iloc[:0]
        fit = ~(self.compared.ac_feasible < 1.0) & self.compared[self.metric.key].notna()
        return self.compared[fit].sort_values(self.metric.key, kind="stable")

    @property
    def ranking(self) -> Ranking:
        """The methods in order, and which are not distinguishable from the lowest."""
        assert self.metric is not None
        at = self.runs[(self.runs.budget == self.budget)]
        return rank(at[at.series.isin(self.ranked.series)], self.metric)

    def row_of(self, budget: str) -> pd.Series | None:
        """Return the cheapest row of the noise-free or the prior-only baseline that has a cost."""
        if self.metric is None:
            return None
        key = "cost" if budget == NO_NOISE else self.metric.key
        known = self.rows[(self.rows.budget == budget) & self.rows[key].notna()]
        known = known[~(known.ac_feasible < 1.0)]
        return None if known.empty else known.loc[known[key].idxmin()]

    @property
    def title(self) -> str:
        """Grid, load, and the budget."""
        load = ""
        for grid in self.study.manifest.get("cases", []):
            if grid["case"] == self.rows.iloc[0]["case"] and grid.get("load_mw") is not None:
                scale = self.rows.iloc[0].load_scale
                load = f" ({figure(grid['load_mw'] * scale, 4)} MW of load)"
        at = "" if self.budget == NO_NOISE else f", {budget_words(self.budget)}"
        return f"{self.name}{load}{at}"

    def card(self) -> Card:
        """Return the verdict on the methods."""
        ranked, metric = self.ranked, self.metric
        if metric is None:
            return Card(self.title, tuple(self._privacy(self.compared)))
        facts = []
        if len(ranked):
            ranking, first = self.ranking, ranked.iloc[0]
            if len(ranking.order) > 1:
                others = counted(len(ranking.leaders) - 1, "other method")
                text = (
                    "" if ranking.decided else f"lowest mean; {others} not distinguishable from it"
                )
                facts.append(Fact(f"Lowest {metric.noun}", str(first.series), text))
            facts += self._figures(first, metric)
        else:
            facts.append(Fact("AC-feasible", "no method", "", "bad"))
        worst = self.compared if ranked.empty else ranked.iloc[:1]
        return Card(self.title, (*facts, *self._privacy(worst)))

    def _figures(self, row: pd.Series, metric: Metric) -> Iterator[Fact]:
        base, priced = row.baseline_cost, metric.key == "cost_of_privacy"
        priced = priced and math.isfinite(base)
        if math.isfinite(row.ac_feasible):
            feasible = round(row.ac_feasible * row.seeds)
            state = "good" if feasible == row.seeds else "bad"
            note = "runs of this method at this budget"
            yield Fact("AC-feasible", f"{feasible} of {counted(row.seeds, 'run')}", note, state)
        if math.isfinite(row.redispatch_shed_mw) and metric.key != "redispatch_shed_mw":
            shed = amount(row.redispatch_shed_mw, "MW")
            yield Fact("Load shedding", f"{shed} MW", f"mean of {counted(row.seeds, 'run')}")
        value = share_of(row.cost_of_privacy, base) if priced else metric.text(row[metric.key])
        yield Fact(metric.title, value, interval_of(row, metric))
        if priced and math.isfinite(row.noise_cost):
            parts = {"Method without noise": row.method_cost, "Noise": row.noise_cost}
            for label, part in parts.items():
                yield Fact(label, share_of(part, base), "part of the cost of privacy")
        for key, title in EXCHANGED.items():
            if math.isfinite(row[key]):
                yield Fact(title, f"{amount(row[key], 'MW')} MW", "mean")
        prior = self.row_of(NOTHING)
        if prior is not None and row.budget not in QUIET:
            cost = share_of(prior.cost_of_privacy, base) if priced else None
            yield Fact(
                "Prior-only baseline",
                cost or metric.text(prior[metric.key]),
                f"{metric.noun} at epsilon = 0",
            )

    def _privacy(self, rows: pd.DataFrame) -> Iterator[Fact]:
        totals = rows.total_epsilon.dropna()
        if self.budget in QUIET or rows.empty:
            return
        if totals.empty:
            yield Fact("Certified total", "none", "", "bad")
            return
        low, high = totals.min(), totals.max()
        ends = epsilon_text(high) if high <= 1.01 * low else f"{low:.3g} to {epsilon_text(high)}"
        delta = rows.target_delta.dropna().iloc[0]
        yield Fact("Certified total", f"epsilon {ends}", f"of one run, at delta = {delta:g}")
        adjacency = self.runs.get("protection", self.runs.get("adjacency", pd.Series(dtype=str)))
        kinds = adjacency[~self.runs.budget.isin(QUIET)].dropna().unique()
        if len(kinds) == 1:
            yield Fact("Protected", str(kinds[0]), state="wide")


def panel_messages(of: Panel) -> Iterator[Message]:
    """Yield what must be known to read the figures of the panel."""
    if of.metric is None:
        return
    yield from _ranking_messages(of, of.metric)
    yield from _budget_messages(of)
    yield from _feasibility_messages(of)
    yield from _baseline_messages(of, of.metric)
    difference = of.compared[of.compared.consensus_residual > AGREED]
    if len(difference):
        residual = figure(difference.consensus_residual.max())
        values = {"panel": of.name, "methods": named(difference.series), "residual": residual}
        yield message("not-converged", values)


def _ranking_messages(of: Panel, metric: Metric) -> Iterator[Message]:
    ranked = of.ranked
    if len(ranked) < 2:
        return
    ranking, values = of.ranking, {"panel": of.name, "figure": metric.noun}
    if of.budget not in QUIET and ranking.seeds < 2:
        yield message("one-seed", values)
    elif ranking.decided:
        first = ranked.iloc[0]
        given = {"method": quoted(first.series), "value": metric.text(first[metric.key])}
        yield message("lowest-noise-free" if of.budget in QUIET else "lowest", values | given)
    else:
        first, *others = ranking.leaders
        leaders = {"method": quoted(first), "others": named(others)}
        yield message("not-distinguishable", values | leaders)


def _budget_messages(of: Panel) -> Iterator[Message]:
    """Yield which methods certify less than the budget at which all are compared."""
    if not of.budget.startswith("total:"):
        return
    budget = stated_epsilon(of.budget)
    less = of.compared[of.compared.total_epsilon < 0.98 * budget]
    if len(less):
        shares = ", ".join(
            f"{quoted(row.series)} uses {epsilon_text(row.total_epsilon)} of {budget:g}"
            for row in less.itertuples()
        )
        yield message("budget-unused", {"panel": of.name, "shares": shares})


def _feasibility_messages(of: Panel) -> Iterator[Message]:
    rows = of.compared
    none, some = (
        rows[rows.ac_feasible == 0.0],
        rows[rows.ac_feasible.between(0.0, 1.0, "neither")],
    )
    if len(none):
        values = {"panel": of.name, "methods": named(none.series)}
        yield message("infeasible-methods", values)
    if len(some):
        shares = ", ".join(
            f"{quoted(row.series)}: {round((1.0 - row.ac_feasible) * row.seeds)} of {row.seeds}"
            for row in some.itertuples()
        )
        yield message("partly-infeasible", {"panel": of.name, "shares": shares})


def _baseline_messages(of: Panel, metric: Metric) -> Iterator[Message]:
    if of.budget in QUIET:
        return
    plain = of.rows[of.rows.budget == NO_NOISE]
    if len(plain) and (plain.ac_feasible == 0.0).all():
        yield message("noise-free-infeasible", {"panel": of.name})
    base = of.row_of(NO_NOISE)
    if base is not None and base.consensus_residual > AGREED:
        residual = figure(base.consensus_residual)
        values = {"panel": of.name, "method": quoted(base.series), "residual": residual}
        yield message("noise-free-not-converged", values)
    prior = of.rows[of.rows.budget == NOTHING]
    if len(prior) and (prior.ac_feasible == 0.0).all():
        yield message("prior-only-infeasible", {"panel": of.name})
    elif (least := of.row_of(NOTHING)) is not None and len(of.ranked):
        lowest = of.ranked[metric.key].min()
        if lowest > least[metric.key] + metric.least:
            yield message("prior-only-cheaper", {"panel": of.name})


def next_steps(of: Panel) -> Iterator[Message]:
    """Yield what to do next."""
    codes = {m.code for m in panel_messages(of)}
    if codes & {"not-distinguishable", "one-seed"} and of.budget not in QUIET:
        seeds = max(2 * int(of.compared.seeds.max()), 5)
        yield message("next-seeds", {"seeds": seeds})
    if codes & {"not-converged", "noise-free-not-converged"}:
        late = of.compared[of.compared.consensus_residual > AGREED]
        fresh = ~late.budget.isin(QUIET) & (late.get("noise_schedule") != "once")
        if fresh.any():
            yield message("next-once", {})
        if not fresh.all() or "noise-free-not-converged" in codes:
            yield message("next-rounds", {})
    if "prior-only-cheaper" in codes:
        yield message("next-budget", {})
    if codes & {"infeasible-methods", "partly-infeasible"}:
        yield message("next-infeasible", {})


def named(names: object) -> str:
    """Return the names of methods, or how many they are."""
    listed = [str(name) for name in names]  # type: ignore[attr-defined]
    if len(listed) > MOST_NAMED:
        return f"{len(listed)} methods"
    return ", ".join(map(quoted, listed))


def interval_of(row: pd.Series, metric: Metric) -> str:
    """Return the 95 % interval of a mean, and how many seeds it has."""
    low, high = row[f"{metric.key}_low"], row[f"{metric.key}_high"]
    seeds = counted(int(row.seeds), "seed")
    if not math.isfinite(low):
        return "" if row.budget in QUIET else f"{seeds}, no interval"
    zero = ": not distinguishable from zero" if metric.signed and low <= 0.0 <= high else ""
    return f"95 % interval {figure(low)} to {figure(high)}, {seeds}{zero}"

"""The first page of a report: cards of methods, messages, and next steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import pandas as pd

from gridpriv.core.store import Study
from gridpriv.core.text import (
    PRECISION,
    Json,
    Message,
    amount,
    capitalized,
    counted,
    number_text,
    percent_of,
)
from gridpriv.privacy.settings import NO_BUDGET, NO_NOISE, NOTHING, nominal_epsilon, parse_budget
from gridpriv.report import source
from gridpriv.report.contents import epsilon_text, quoted
from gridpriv.report.source import message, step_rows
from gridpriv.study.engine import study_totals
from gridpriv.zonal import summary
from gridpriv.zonal.messages import UNREALIZABLE
from gridpriv.zonal.opening import CONVERGED_RESIDUAL

FRESH_NOISE = (
    "Noise in every round prevents convergence. At a total epsilon, more rounds mean more noise in "
    "each. "
)
STATES = {"feasible": "good", "marginal": "warn", "infeasible": "bad"}


@dataclass(frozen=True)
class Fact:
    """A value of a card: label, value, and qualification.

    ``state`` is its look: good, warn or bad, wide for a sentence, or none.
    """

    label: str
    value: str
    note: str = ""
    state: str = ""

    def __str__(self) -> str:
        return f"{self.label}: {self.value}{f' ({self.note})' if self.note else ''}"


@dataclass(frozen=True)
class Card:
    """The verdict on a run, a series, or the methods of a panel."""

    title: str
    facts: tuple[Fact, ...]


def run_card(document: Json, study: Study | None = None) -> Card:
    """Return the verdict on one run, from its document; of a public one, its certificate.

    The tables of ``study`` add the dispatch.
    """
    physical = document["final"]["physical"]
    facts = []
    if physical["status"] is not None:
        violated = len(physical["violations"] or ())
        note = counted(violated, "violated limit") if violated else "no violated limit"
        if physical["worst_loading_percent"] is None:
            note += "; no branch has a rating"
        failed = "the AC power flow fails" if physical["failure"] else note
        status = physical["status"]
        facts.append(Fact("AC-feasible", summary.FEASIBILITY[status], failed, STATES[status]))
        facts.append(_load_shedding(physical["shed_mw"], physical["load_mw"] or 0.0))
    facts += [
        Fact(_label(str(name)), f"{value} {unit}".rstrip(), f"{note}{guess}")
        for name, value, unit, note in summary.results(document)
        for guess in (_prior(document["settings"]) if name in summary.RELEASE_VALUE else "",)
        if name != "load shedding"
    ]
    if study is not None:
        facts += _dispatch(study.tables.get("res_gen", pd.DataFrame()))
    facts += _deviation(physical)
    title = f"{document['case']}: {summary.noise(document['settings'])}"
    return Card(title, (*facts, *_certificate(document["privacy"], document["settings"])))


def _label(name: str) -> str:
    """Return the label of a value; causes of load shedding, indented in tables, include it."""
    return f"Load shedding {name.strip()}" if name.startswith(" ") else capitalized(name)


def _prior(settings: Json) -> str:
    """Return the public data from which the prior-only baseline estimates demand."""
    source = "--public-demand" if settings.get("public_demand") else "installed capacity"
    return f", which estimates demand from {source}"


def _dispatch(units: pd.DataFrame) -> Iterator[Fact]:
    """Yield the dispatch of a run's AC state, by bus."""
    if "p_mw" not in units or units.empty:  # a public run, or one without an AC state
        return
    dispatch = units.groupby("bus")["p_mw"].sum().sort_values(ascending=False)
    largest = ", ".join(f"bus {bus}: {amount(p, 'MW')}" for bus, p in dispatch[:4].items())
    more_buses = f" and {counted(len(dispatch) - 4, 'other bus')}" if len(dispatch) > 4 else ""
    yield Fact("Dispatch", f"{amount(dispatch.sum(), 'MW')} MW", f"{largest}{more_buses}")


def _load_shedding(shed: float, load: float) -> Fact:
    """Return load shedding (MW) with its share of the gross demand."""
    note = f"{number_text(100.0 * shed / load, 2)} % of the gross demand" if load > 0 < shed else ""
    return Fact("Load shedding", f"{amount(shed, 'MW')} MW", note)


def _deviation(physical: Json) -> Iterator[Fact]:
    """Yield the largest deviation from scheduled interchange."""
    known = [z for z in physical["interchange"] or () if z.get("deviation_mw") is not None]
    if known:
        worst = max(known, key=lambda zone: abs(zone["deviation_mw"]))
        ends = (f"{amount(worst[key], 'MW')}" for key in ("scheduled_mw", "actual_mw"))
        note = "zone {}: scheduled {}, actual {} MW".format(worst["zone"], *ends)
        yield Fact("Interchange deviation", f"{amount(abs(worst['deviation_mw']), 'MW')} MW", note)


OVER = " of the noise-free cost"


def share_of(difference: float, base: float, baseline: str = "") -> str:
    """Return a difference of costs in $/h with its sign, and in percent of the base."""
    percent = percent_of(difference, base)
    printed = str(amount(difference, "$/h"))
    sign = "+" if float(printed) > 0 else ""
    return f"{sign}{printed} $/h{f' ({percent}{baseline})' if percent else ''}"


def _total(epsilon: float, pure: float | None, delta: float, scope: str = "") -> Fact:
    """Return a certified total: pure, if that is as small as the total at a delta."""
    shown = epsilon_text(epsilon)
    is_pure = pure is not None and epsilon_text(pure) == shown
    kind = "pure" if is_pure else f"at delta = {delta:g}"
    return Fact("Certified total", f"epsilon {shown}", f"{kind}{scope}")


def _certificate(privacy: Json, settings: Json) -> Iterator[Fact]:
    """Yield the protected change, and the certified total."""
    if privacy["mechanism"] == NO_NOISE:
        yield Fact("Privacy", "none", "no noise", "bad")
        return
    total = privacy["total"]
    if privacy["releases_per_zone"] == 0:
        yield Fact("Certified total", "epsilon 0", "no demand is released", "good")
    elif total["epsilon"] is None:
        yield Fact("Certified total", "none", "a release has no proven sensitivity", "bad")
    else:
        yield _total(total["epsilon"], privacy["total_pure"], total["delta"])
    scale, before = settings.get("load_scale", 1.0), ""
    if scale != 1.0:
        before = f"{summary.scaled_beta(settings)} of the demand in this run"
    yield Fact("Protected", privacy["adjacency"], before, state="wide")
    if privacy.get("noise") != "secure" and privacy["releases_per_zone"] != 0:
        yield Fact("Noise", "simulated", "no privacy: the seed is known", "warn")


def series_card(study: Study) -> Card:
    """Return the verdict on a series."""
    steps, planned = step_rows(study), study.manifest["planned"]
    facts = [Fact("Steps", f"{len(steps)} of {planned}", "finished")]
    known = [step["status"] for step in steps if step.get("status") is not None]
    if known:
        feasible = sum(status == "feasible" for status in known)
        state = "good" if feasible == len(known) else "bad"
        facts.append(Fact("AC-feasible", f"{feasible} of {len(known)} steps", "", state))
    facts += [
        Fact(capitalized(str(name).strip()), f"{value} {unit}")
        for name, value, unit in summary.series_summary(steps)
        if not str(name).startswith(("demand", " "))
    ]
    facts += _series_certificate(study)
    return Card(str(study.manifest["title"]), tuple(facts))


def _series_certificate(study: Study) -> Iterator[Fact]:
    """Yield the certified total of all steps together, and the protected change."""
    for total in study_totals(study):
        if total.epsilon is not None and math.isfinite(total.epsilon):
            yield _total(total.epsilon, total.pure, total.delta, ", of all steps together")
    yield from _protected(study.runs)


def _protected(runs: pd.DataFrame) -> Iterator[Fact]:
    """Yield the protected change of noisy runs, if it is the same for all."""
    adjacency = runs.get("protection", runs.get("adjacency", pd.Series(dtype=str)))
    kinds = adjacency[~runs.budget.isin(NO_BUDGET)].dropna().unique()
    if len(kinds) == 1:
        yield Fact("Protected", str(kinds[0]), state="wide")


CHEAPER = 0.01
"""$/h: smaller differences of costs are solver errors."""
EXCHANGED = {
    "balancing_mw": "Balancing power",
    "interchange_deviation_mw": "Largest interchange deviation of a zone",
}
MOST_NAMED = 3
"""Number of methods named in a fact or a message; of more their number is given."""


def cards(
    study: Study, table: pd.DataFrame, panels: Sequence[Panel] | None = None
) -> tuple[Card, ...]:
    """Return the verdict of a run, of a series, or of every panel of a study."""
    document = study.manifest.get("document")
    if document is not None:
        return (run_card(document, study),)
    if "steps" in study.tables and study.withheld.empty:
        return (series_card(study),)
    panels = panels_of(study, table) if panels is None else panels
    return tuple(card for panel in panels if (card := panel.card()).facts)


def panels_of(study: Study, table: pd.DataFrame) -> list[Panel]:
    """Return the panels of a study in order; of one run or a series, which have none, no panel."""
    if table.empty or study.manifest.get("document") is not None:
        return []
    if "steps" in study.tables and study.withheld.empty:
        return []
    runs = source.with_cost_of_privacy(source.named_runs(study))
    groups = table[table.seeds > 0].groupby("panel", sort=False)
    return [Panel(study, str(name), rows, runs[runs.panel == name]) for name, rows in groups]


@dataclass(frozen=True, eq=False)
class Panel:
    """The methods on one grid, at the budget at which they are compared.

    Attributes
    ----------
    rows : DataFrame
        Of :func:`gridpriv.report.source.summary`, those with finished runs.
    runs : DataFrame
        The finished runs (:func:`gridpriv.report.source.named_runs`), with their costs.
    """

    study: Study
    name: str
    rows: pd.DataFrame
    runs: pd.DataFrame

    @cached_property
    def budget(self) -> str:
        """The budget at which methods are compared; of a panel without noise, none."""
        return source.reference_budget(self.rows)

    @cached_property
    def metric(self) -> source.Metric | None:
        """The value by which methods are ranked."""
        return source.cost_metric(self.rows)

    @cached_property
    def compared(self) -> pd.DataFrame:
        """The rows at the budget."""
        return self.rows[self.rows.budget == self.budget]

    @cached_property
    def late(self) -> pd.DataFrame:
        """The runs at every budget that have not converged; noise-free ones have own messages."""
        drawn = self.runs.budget.isin(NO_BUDGET) == (self.budget in NO_BUDGET)
        return self.runs[
            drawn & (self.runs.get("consensus_residual", math.nan) > CONVERGED_RESIDUAL)
        ]

    @cached_property
    def fresh(self) -> pd.Series:
        """True for each of the late runs that draws noise in every round or update."""
        late = self.late
        return ~late.budget.isin(NO_BUDGET) & (late.get("noise_schedule") != "once")

    @cached_property
    def ranked(self) -> pd.DataFrame:
        """The rows of methods with all runs finished and AC-feasible, in order."""
        if self.metric is None:
            return self.compared.iloc[:0]
        fit = ~(self.compared.ac_feasible < 1.0) & self.compared[self.metric.key].notna()
        fit &= self.compared.failed == 0
        return self.compared[fit].sort_values(self.metric.key, kind="stable")

    @cached_property
    def ranking(self) -> source.Ranking:
        """The methods in order, and those not distinguishable from the lowest."""
        assert self.metric is not None
        at = self.runs[(self.runs.budget == self.budget)]
        return source.rank(at[at.series.isin(self.ranked.series)], self.metric)

    @property
    def all_least(self) -> bool:
        """True where no ranked method has a value that differs from 0."""
        assert self.metric is not None
        return float(self.ranked[self.metric.key].abs().max()) < self.metric.least

    def message(self, code: str, **values: object) -> Message:
        """Return a message on the panel."""
        return message(code, {"panel": self.name} | values)

    def row_of(self, budget: str) -> pd.Series | None:
        """Return the cheapest row of the noise-free or the prior-only baseline that has a cost."""
        if self.metric is None:
            return None
        key = "cost" if budget == NO_NOISE else self.metric.key
        known = self.rows[(self.rows.budget == budget) & self.rows[key].notna()]
        known = known[~(known.ac_feasible < 1.0)]
        return None if known.empty else known.loc[known[key].idxmin()]

    @property
    def load_mw(self) -> float | None:
        """The load of the grid, if it is known."""
        case, scale = self.rows.iloc[0][["case", "load_scale"]]
        grids = {g["case"]: g.get("load_mw") for g in self.study.manifest.get("cases", [])}
        return None if grids.get(case) is None else grids[case] * scale

    @property
    def title(self) -> str:
        """Grid, load, and the budget."""
        load = f" ({number_text(self.load_mw, 4)} MW of demand)" if self.load_mw is not None else ""
        at = "" if self.budget == NO_NOISE else f", budget: {source.budget_words(self.budget)}"
        return f"{self.name}{load}{at}"

    def card(self) -> Card:
        """Return the verdict on the methods."""
        ranked, metric = self.ranked, self.metric
        if metric is None:
            return Card(self.title, (*self._missing(), *self._privacy(self.compared)))
        facts = [*self._missing(), *self._compared_at()]
        if ranked.empty:
            note = "no method finished every run with an AC-feasible state"
            facts.append(Fact("Ranked", "no method", note, "bad"))
        else:
            first = ranked.iloc[0]
            facts += [*self._lowest(first, metric), *self._figures(first, metric)]
        worst = self.compared if ranked.empty else ranked.iloc[:1]
        return Card(self.title, (*facts, *self._privacy(worst)))

    def _missing(self) -> Iterator[Fact]:
        """Yield the number of runs in an interrupted study."""
        if source.interruption(self.study) is not None:
            runs, planned = len(self.study.runs), self.study.manifest["planned"]
            note = f"{counted(planned - runs, 'planned run')} missing: the study was interrupted"
            yield Fact("Runs", f"{runs} of {planned}", note, "bad")

    def _lowest(self, first: pd.Series, metric: source.Metric) -> Iterator[Fact]:
        """Yield the method of the lowest value, and the significance of its difference."""
        ranking, noise_free = self.ranking, self.budget in NO_BUDGET
        rivals, noun = len(ranking.order) - 1, f"mean {metric.noun}".replace("mean mean", "mean")
        if rivals == 0:
            return
        note = "" if noise_free else "significant against all other ranked methods"
        if not noise_free and ranking.seeds < 2:
            noun, note = metric.noun, "of one seed; methods are not ranked"
        elif not ranking.decided:
            pairs = math.comb(len(ranking.order), 2)
            note = (
                f"not distinguishable from {len(ranking.leaders) - 1} of "
                f"{counted(rivals, 'other method')} (95 %, "
                f"{counted(ranking.seeds, 'paired seed')}, Bonferroni for {counted(pairs, 'pair')})"
            )
        yield Fact(f"Lowest {noun}", str(first.series), note)

    def _compared_at(self) -> Iterator[Fact]:
        """Yield the budget of the card, where the study has several."""
        budgets = source.budgets_of(self.rows)
        if len(budgets) > 1:
            every = ", ".join(f"{nominal_epsilon(budget):g}" for budget in budgets)
            at = f"{_kind(self.compared)}; budgets of the study: {every}".removeprefix("; ")
            yield Fact("Compared at budget", source.budget_words(self.budget), at)

    def _figures(self, row: pd.Series, metric: source.Metric) -> Iterator[Fact]:
        base, priced = row.baseline_cost, metric.key == "cost_of_privacy"
        priced = priced and math.isfinite(base)
        if math.isfinite(row.ac_feasible):
            feasible = round(row.ac_feasible * row.seeds)
            state = "good" if feasible == row.seeds else "bad"
            note = "of this method at this budget"
            yield Fact("AC-feasible", f"{feasible} of {counted(row.seeds, 'run')}", note, state)
        if math.isfinite(row.redispatch_shed_mw) and metric.key != "redispatch_shed_mw":
            shed = amount(row.redispatch_shed_mw, "MW")
            yield Fact("Load shedding", f"{shed} MW", f"mean of {counted(row.seeds, 'run')}")
        value = (
            share_of(row.cost_of_privacy, base, OVER) if priced else metric.text(row[metric.key])
        )
        yield Fact(metric.title, value, interval_of(row, metric))
        if priced and math.isfinite(row.noise_cost):
            parts = {"Due to the method": row.method_cost, "Due to the noise": row.noise_cost}
            for label, part in parts.items():
                yield Fact(label, share_of(part, base))
        mean, last = f"mean of {counted(row.seeds, 'run')}", ""
        for key, title in EXCHANGED.items():  # of two or three zones both are the same
            if math.isfinite(row[key]) and last != (last := f"{amount(row[key], 'MW')} MW"):
                yield Fact(title, last, mean)
        prior = self.row_of(NOTHING)
        if prior is not None and row.budget not in NO_BUDGET:
            cost = share_of(prior.cost_of_privacy, base, OVER) if priced else ""
            text = cost or metric.text(prior[metric.key])
            yield Fact(
                f"{metric.title}, prior-only", text, "baseline without a release, epsilon = 0"
            )

    def _privacy(self, rows: pd.DataFrame) -> Iterator[Fact]:
        totals = rows.total_epsilon.dropna()
        if self.budget in NO_BUDGET or rows.empty:
            return
        if totals.empty:
            yield Fact("Certified total", "none", "", "bad")
            return
        low, high = totals.min(), totals.max()
        ends = epsilon_text(high) if high <= 1.01 * low else f"{low:.3g} to {epsilon_text(high)}"
        yield Fact("Certified total", f"epsilon {ends}", f"of one run, {_kind(rows)}")
        yield from _protected(self.runs)


def _kind(rows: pd.DataFrame) -> str:
    """Return the delta of the totals of methods, and the methods with pure totals, as text."""
    noisy = rows[rows.total_epsilon.notna()]
    pure = noisy.total_pure.map(epsilon_text) == noisy.total_epsilon.map(epsilon_text)
    if noisy.empty or pure.all():
        return "" if noisy.empty else "pure"
    some = f"; for {named(noisy.series[pure])} also at delta = 0 (pure)" if pure.any() else ""
    return f"at delta = {noisy.target_delta.iloc[0]:g}{some}"


def panel_messages(panel: Panel) -> Iterator[Message]:
    """Yield the messages needed to interpret the values of the panel."""
    if panel.metric is None:
        return
    yield from _ranking_messages(panel, panel.metric)
    yield from _budget_messages(panel)
    yield from _feasibility_messages(panel)
    yield from _baseline_messages(panel, panel.metric)
    if len(late := panel.late):
        worst = late.loc[late.consensus_residual.idxmax()]
        same_noise = panel.runs[panel.runs.budget.isin(NO_BUDGET) == (panel.budget in NO_BUDGET)]
        yield panel.message(
            "not-converged",
            late=late.series.nunique(),
            methods=same_noise.series.nunique(),
            kind="noise-free" if panel.budget in NO_BUDGET else "noisy",
            residual=number_text(worst.consensus_residual),
            tolerance=f"{CONVERGED_RESIDUAL:g}",
            cause=FRESH_NOISE if panel.fresh.any() else "",
            worst=quoted(worst.series),
            at=at(worst),
        )


def _ranking_messages(panel: Panel, metric: source.Metric) -> Iterator[Message]:
    ranked = panel.ranked
    if len(ranked) < 2:
        return
    ranking, ranked_by = panel.ranking, partial(panel.message, figure=metric.noun, at=at(panel))
    first = ranked.iloc[0]
    if panel.all_least:
        yield ranked_by("all-least", value=metric.text(0.0))
    elif panel.budget not in NO_BUDGET and ranking.seeds < 2:
        yield ranked_by("one-seed")
    elif ranking.decided:
        code = "lowest-noise-free" if panel.budget in NO_BUDGET else "lowest"
        value = metric.text(first[metric.key])
        yield ranked_by(code, method=quoted(first.series), value=value)
    else:
        lowest, *indistinct = ranking.leaders
        yield ranked_by("not-distinguishable", method=quoted(lowest), others=named(indistinct))


def _budget_messages(panel: Panel) -> Iterator[Message]:
    """Yield the methods that certify less than the budget of the comparison."""
    if not panel.budget.startswith("total:"):
        return
    budget = nominal_epsilon(panel.budget)
    charges = panel.study.tables.get("charges", pd.DataFrame({"run": [], "kind": []}))
    trees = panel.runs.run.isin(charges[charges.kind == "split-laplace"].run)
    causes: dict[str, list[str]] = {}
    for row in panel.compared[panel.compared.total_epsilon < 0.98 * budget].itertuples():
        cause = "budget-unused"
        if not parse_budget(panel.budget).delta:
            cause = "budget-unused-pure"
        elif trees[(panel.runs.series == row.series) & (panel.runs.budget == panel.budget)].any():
            cause = "budget-unused-tree"
        share = f"{quoted(row.series)} ({epsilon_text(row.total_epsilon)} of {budget:g})"
        causes.setdefault(cause, []).append(share)
    for cause, shares in causes.items():
        yield panel.message(cause, shares=", ".join(shares))


def _feasibility_messages(panel: Panel) -> Iterator[Message]:
    rows = panel.compared
    failed = rows[rows.failed > 0]
    none, some = rows[rows.ac_feasible == 0.0], rows[rows.ac_feasible.between(0.0, 1.0, "neither")]
    if len(failed):
        shares = _listed(failed, lambda r: f": {r.failed} of {r.failed + r.seeds}")
        yield panel.message("partly-failed", at=at(panel), shares=shares)
    if len(none):
        yield panel.message("infeasible-methods", methods=named(none.series))
    if len(some):
        shares = _listed(some, lambda r: f": {round((1.0 - r.ac_feasible) * r.seeds)} of {r.seeds}")
        yield panel.message("partly-infeasible", shares=shares)


def _listed(rows: pd.DataFrame, text: Callable[[Any], str]) -> str:
    """Return the names of methods, each with a text on its row."""
    return ", ".join(f"{quoted(row.series)}{text(row)}" for row in rows.itertuples())


def _baseline_messages(panel: Panel, metric: source.Metric) -> Iterator[Message]:
    if panel.budget in NO_BUDGET:
        return
    plain = panel.rows[panel.rows.budget == NO_NOISE]
    if len(plain) and (plain.ac_feasible == 0.0).all():
        yield panel.message("noise-free-infeasible")
    base = panel.row_of(NO_NOISE)
    if base is not None and base.consensus_residual > CONVERGED_RESIDUAL:
        residual = number_text(base.consensus_residual)
        yield panel.message(
            "noise-free-not-converged", method=quoted(base.series), residual=residual
        )
    yield from _noise_free_costs(panel, base)
    yield from _noise_free_imbalance(panel, plain)
    prior = panel.rows[panel.rows.budget == NOTHING]
    if len(prior) and (prior.ac_feasible == 0.0).all():
        yield panel.message("prior-only-infeasible")
    elif (least := panel.row_of(NOTHING)) is not None and len(panel.ranked):
        lowest = panel.ranked[metric.key].min()
        if lowest > least[metric.key] + metric.least:
            yield panel.message("prior-only-cheaper")


def _noise_free_costs(panel: Panel, base: pd.Series | None) -> Iterator[Message]:
    """Yield the cost of other noise-free methods above the cheapest, the baseline."""
    expensive = panel.rows[(panel.rows.budget == NO_NOISE) & (panel.rows.method_cost > CHEAPER)]
    if base is None or expensive.empty:
        return
    expensive = expensive.sort_values("method_cost", ascending=False)[:MOST_NAMED]
    costs = _listed(expensive, lambda row: f" costs {amount(row.method_cost, '$/h')} $/h")
    yield panel.message("noise-free-costs", costs=costs, base=base.series)


def _noise_free_imbalance(panel: Panel, plain: pd.DataFrame) -> Iterator[Message]:
    """Yield the noise-free methods that converged, but miss more demand than the grid sheds."""
    load = panel.load_mw or 0.0
    imbalances = plain.plan_shortage_mw - plain.redispatch_shed_mw.min()
    late = plain.consensus_residual > CONVERGED_RESIDUAL
    missed = plain[(imbalances > UNREALIZABLE * load) & ~late & (load > 0.0)]
    if len(missed):
        parts = [f"{amount(mw, 'MW')} MW" for mw in imbalances[missed.index]]
        imbalance = f"{' and '.join(parts)} of {number_text(load, 4)} MW"
        linearized = "linearized" in set(missed.get("update", ()))
        rounds = " With the linearized update, more rounds (--rounds) leave less." * linearized
        values = {"imbalance": imbalance, "rounds": rounds}
        yield panel.message("noise-free-imbalance", methods=named(missed.series), **values)


def next_steps(panel: Panel, messages: Sequence[Message]) -> Iterator[Message]:
    """Yield the next steps, by the messages on the panel."""
    codes = {m.code for m in messages}
    if not codes:
        return
    if codes & {"not-distinguishable", "one-seed"} and panel.budget not in NO_BUDGET:
        yield message("next-seeds", {"seeds": max(2 * int(panel.compared.seeds.max()), 5)})
    fresh = panel.fresh
    once = ~panel.rows.budget.isin(NO_BUDGET) & (panel.rows.get("noise_schedule") == "once")
    conditions = {
        "next-once": fresh.any() and not once.any(),
        "next-rounds": not fresh.all() or "noise-free-not-converged" in codes,
        "next-budget": "prior-only-cheaper" in codes,
        "next-infeasible": codes & {"infeasible-methods", "partly-infeasible"},
    }
    yield from (message(code, {}) for code, holds in conditions.items() if holds)


def at(run: pd.Series | Panel) -> str:
    """Return the budget of a run or a panel after a name; empty without noise."""
    return "" if run.budget in NO_BUDGET else f" at {source.budget_words(run.budget)}"


def named(names: object) -> str:
    """Return the names of methods, or their number."""
    listed = [str(name) for name in names]  # type: ignore[attr-defined]
    if len(listed) > MOST_NAMED:
        return f"{len(listed)} methods"
    *first, last = map(quoted, listed)
    return f"{', '.join(first)} and {last}" if first else last


def interval_of(row: pd.Series, metric: source.Metric) -> str:
    """Return the 95 % interval of a mean, and its number of seeds."""
    low, high = row[f"{metric.key}_low"], row[f"{metric.key}_high"]
    seeds = counted(int(row.seeds), "seed")
    if not math.isfinite(low):
        return "" if row.budget in NO_BUDGET else f"{seeds}, no interval"
    zero = ": not distinguishable from zero" if metric.signed and low <= 0.0 <= high else ""
    ends = [
        amount(end, metric.unit) if metric.unit in PRECISION else number_text(end)
        for end in (low, high)
    ]
    return f"95 % interval {ends[0]} to {ends[1]}, {seeds}{zero}"

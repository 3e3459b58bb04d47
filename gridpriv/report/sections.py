"""The sections of a report's page: figures, messages, tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import pandas as pd

from gridpriv.core.store import NETWORK_TABLES, Study
from gridpriv.core.text import Message, number_text
from gridpriv.power.ac.state import negligible_mw
from gridpriv.privacy.settings import NO_BUDGET, NO_NOISE
from gridpriv.report import source
from gridpriv.report.charts import cost_charts, generation_chart, round_charts, step_charts
from gridpriv.report.contents import noted
from gridpriv.report.curves import Chart
from gridpriv.report.figures import Bars, Look, Looks, Plot, looks, split_bars
from gridpriv.report.network import GridMap
from gridpriv.report.panel import panels_of
from gridpriv.report.plots import flows_of, loading_map, loading_noun
from gridpriv.report.source import means_over, message
from gridpriv.report.tables import Table

MAP, LARGE_MAP, MANY = 5.2, 7.5, 40
"""Inches of a map on a page, of a map with many buses, and the least number of these."""
VOLTAGES = (0.94, 1.06)
"""Ends of the colours of voltage magnitudes, p.u."""


@dataclass(frozen=True)
class Section:
    """A part of a page: figures with their legend, charts under headings, messages, tables.

    ``look`` is that of the charts' curves by name. An ``appendix`` is folded on a page.
    """

    title: str
    notes: tuple[Message, ...] = ()
    figures: tuple[Plot, ...] = ()
    charts: tuple[tuple[str, tuple[Chart, ...]], ...] = ()
    tables: tuple[Table, ...] = ()
    look: Looks = field(default_factory=dict)
    appendix: bool = False


def sections(study: Study, table: pd.DataFrame, tables: Iterable[Table]) -> Iterator[Section]:
    """Return the sections of a study's page, in order; the first has the page's one chart."""
    subject = Subject(study, table, {t.name: t for t in tables})
    parts = result, cost, claims, convergence, places, privacy, failed, provenance
    return (section for make in parts if (section := make(subject)) is not None)


@dataclass(frozen=True, eq=False)
class Subject:
    """A study, its summary, and its tables by name."""

    study: Study
    table: pd.DataFrame
    tables: Mapping[str, Table]

    @cached_property
    def look(self) -> Looks:
        """The look of every curve, the same in all charts."""
        if self.table.empty:
            return {}
        drawn = self.table[self.table.seeds > 0]
        names = list(dict.fromkeys(drawn.series))
        flat = frozenset(drawn.loc[drawn.budget.isin(NO_BUDGET), "series"])
        return looks(names, levels=flat if len(names) > len(flat) else frozenset())

    def tables_named(self, *names: str) -> tuple[Table, ...]:
        """Return some tables, if the report has them."""
        return tuple(self.tables[name] for name in names if name in self.tables)

    def network(self, case: str, zoning: str) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return buses and branches of one grid, for maps."""
        tables = (self.study.tables.get(name, pd.DataFrame()) for name in NETWORK_TABLES)
        buses, branches = (
            t[(t["case"] == case) & (t["zoning"] == zoning)] if len(t) else t for t in tables
        )
        return buses, branches


def result(subject: Subject) -> Section | None:
    """Return the figures of a run, of a series by step, or the cost of every method."""
    if means_over(subject.study) == "steps":
        charts = (("", tuple(step_charts(subject.study, subject.look))),)
        return Section(
            "Step by step",
            (message("steps", {}),),
            figures=() if (units := generation_chart(subject.study)) is None else (units,),
            charts=charts,
            tables=subject.tables_named("outcome", "steps", "storage", "reserves", "commitment"),
            look=subject.look,
        )
    if subject.study.manifest.get("document") is not None:
        maps, tables = _run_maps(subject), subject.tables_named("interchange", "shed")
        shortfall = subject.tables_named("interchange") and not subject.study.public
        caption = (message("shortfall", {}),) if shortfall else ()
        return Section("AC state", caption, maps, tables=tables) if maps or tables else None
    split = tuple(_splits(subject))
    if not split:
        return None
    notes = [message("cost-of-privacy", {}), message("costs-include", {})]
    noisy = subject.table[~subject.table.budget.isin(NO_BUDGET)]
    if (noisy[["cost_of_privacy", "noise_cost"]] < 0.0).any(axis=None):
        notes.append(message("negative-cost", {}))
    return Section("Cost of privacy", tuple(notes), split)


def _splits(subject: Subject) -> Iterator[Bars]:
    """Yield the cost of privacy of every method at the compared budget, by panel."""
    for panel in panels_of(subject.study, subject.table):
        if panel.budget != NO_NOISE and panel.rows.cost_of_privacy.notna().any():
            budget = source.budget_words(panel.budget).removeprefix("total ")
            words = f"{panel.name}: cost of privacy, budget: {budget}"
            yield split_bars(words, panel.rows, panel.budget)


def _run_maps(subject: Subject) -> tuple[GridMap, ...]:
    """Return the map of loading and shedding of a run, and that of its voltages."""
    study, flows = subject.study, flows_of(subject.study)
    if flows is None or "res_bus" not in study.tables:
        return ()
    case = str(study.runs.iloc[0]["case"])
    network, name = subject.network(case, ""), case
    shed = study.tables["res_shed"].set_index("index")["p_mw"].to_dict()
    voltages = study.tables["res_bus"].set_index("index")["vm_pu"].to_dict()
    values = {int(bus): float(value) for bus, value in voltages.items()}
    span = min(VOLTAGES[0], *values.values()), max(VOLTAGES[1], *values.values())
    title = f"{name}: branch {loading_noun(flows)} and voltage magnitude"
    look: Look = {"value_label": "voltage magnitude (p.u.)", "width": _width(network[0])}
    loading = loading_map(name, network, shed, flows, width=_width(network[0]))
    return loading, GridMap(title, *network, flows=flows, values=values, limits=span, **look)


def cost(subject: Subject) -> Section | None:
    """Return the figures of every method against certified total epsilon, and their means."""
    if means_over(subject.study) == "steps" or "summary" not in subject.tables:
        return None
    charts = tuple(cost_charts(subject.table, subject.look)) if len(subject.table) else ()
    notes = [message("intervals", {})] if charts else []
    if charts and subject.table.seeds.max() == 2:
        notes.append(message("two-seeds", {}))
    return Section(
        "By certified total epsilon" if charts else "Means over seeds",
        tuple(notes),
        charts=(("", charts),) if charts else (),
        tables=subject.tables_named("summary"),
        look=subject.look,
    )


def claims(subject: Subject) -> Section | None:
    """Return the claims of a paper and their outcomes."""
    tables, notes = subject.tables_named("claims"), (message("claims-table", {}),)
    return Section("Claims of the paper", notes, tables=tables) if tables else None


def convergence(subject: Subject) -> Section | None:
    """Return charts by round; a series has none."""
    if means_over(subject.study) == "steps":
        return None
    groups = round_charts(subject.study, subject.table, subject.look)
    if not groups:
        return None
    tables = subject.tables_named("convex")
    codes = {"by-round": len(subject.study.runs) > 1, "convex-model": bool(tables)}
    notes = tuple(message(code, {}) for code, holds in codes.items() if holds)
    charts = tuple((title, tuple(drawn)) for title, drawn in groups.items())
    return Section(
        "Convergence", notes, charts=charts, tables=tables, look=subject.look, appendix=True
    )


def places(subject: Subject) -> Section | None:
    """Return maps of zones and of load shedding."""
    if subject.table.empty or subject.network(*subject.table.iloc[0][["case", "zoning"]])[0].empty:
        return None
    runs = source.named_runs(subject.study)
    maps: list[Plot] = []
    notes = [message("maps", {})]
    if not subject.study.public:
        over = f" (mean over {means_over(subject.study)})" if len(subject.study.runs) > 1 else ""
        notes.append(message("maps-shed", {"over": over}))
    for panel, rows in subject.table.groupby("panel", sort=False):
        here, at = runs[runs.panel == panel], rows.iloc[0]
        notes += _limits(subject.study, str(panel), here)
        buses, branches = subject.network(at["case"], at["zoning"])
        maps.append(GridMap(f"{panel}: zones", buses, branches, width=_width(buses)))
        if subject.study.manifest.get("document") is None:
            maps += _shed_maps(subject.study, rows, here, (buses, branches))
    grids = subject.study.manifest.get("cases") or []
    if bare := dict.fromkeys(
        source.short(g["case"]) for g in grids if g.get("rated_branches") == 0
    ):
        notes.append(message("no-ratings", {"cases": ", ".join(bare)}))
    return Section("Network", tuple(notes), tuple(maps), tables=subject.tables_named("zones"))


def _limits(study: Study, panel: str, runs: pd.DataFrame) -> list[Message]:
    """Return the explanation of the first run that sheds load or is not AC-feasible."""
    if "explanation" not in runs:
        return []
    buses, load = study.tables.get("buses", pd.DataFrame()), pd.Series(0.0, index=runs.index)
    if {"run", "pd_mw"} <= set(buses) and "run" in runs:
        load = runs["run"].map(buses.groupby("run")["pd_mw"].sum()).fillna(0.0)
    sheds = pd.to_numeric(runs["redispatch_shed_mw"]) > load.map(negligible_mw)
    known = runs[runs["explanation"].notna() & (sheds | (runs["ac_feasible"] == False))]  # noqa: E712
    if known.empty:
        return []
    first = known.sort_values("budget", key=lambda b: ~b.isin(NO_BUDGET), kind="stable").iloc[0]
    if "step" in known:
        run = f"step {first.step}"
    else:
        run = str(first.method)
        if first.budget not in NO_BUDGET:
            run += f", {source.budget_words(first.budget)}, seed {first.seed}"
    explanation = str(first.explanation).rstrip(". ")
    return [message("limits", {"panel": panel, "run": run, "explanation": explanation})]


def _shed_maps(
    study: Study, rows: pd.DataFrame, runs: pd.DataFrame, network: tuple[pd.DataFrame, pd.DataFrame]
) -> Iterator[GridMap]:
    """Yield load shedding per bus of the methods that shed least and most, if any sheds."""
    shed, budget = study.tables["buses"], source.reference_budget(rows)
    if shed.empty or "redispatch_shed_mw" not in shed:
        return
    ranked = source.at_budget(rows[rows.seeds > 0], budget).sort_values("redispatch_shed_mw")
    chosen = dict.fromkeys([source.best_series(rows, budget), *ranked.series.iloc[-1:]])
    for series in filter(None, chosen):
        group = source.at_budget(runs[runs.series == series], budget)
        columns = ["redispatch_shed_mw", "pd_mw"]
        means = shed[shed.run.isin(group.run)].groupby("bus")[columns].mean()
        mean = means["redispatch_shed_mw"]
        total = float(mean.clip(lower=0.0).sum())
        if total <= negligible_mw(float(means["pd_mw"].clip(lower=0.0).sum())):
            continue
        at = "" if budget == NO_NOISE else f", {source.budget_words(budget)}"
        values = {int(bus): float(value) for bus, value in mean.fillna(0.0).items()}
        title = f"{rows.panel.iloc[0]}: {series}{at}"
        note = f"load shedding: {number_text(total)} MW"
        yield GridMap(title, *network, shed=values, note=note, width=_width(network[0]))


def _width(buses: pd.DataFrame) -> float:
    """Return the width of a map in inches."""
    return MAP if len(buses) <= MANY else LARGE_MAP


def privacy(subject: Subject) -> Section | None:
    """Return nominal and certified epsilons and the source of the sensitivities."""
    if "privacy" not in subject.tables:
        return None
    noisy = subject.table[~subject.table.budget.isin(NO_BUDGET)]
    notes = [message("certificates", {}), message("sensitivity-ratio", {})]
    if means_over(subject.study) == "steps":
        notes.append(message("certificates-of-steps", {}))
    if noisy.mechanism.eq("gaussian").any():
        deltas = noisy[noisy.mechanism == "gaussian"].release_delta.dropna().unique()
        notes.append(message("gaussian-delta", {"deltas": ", ".join(f"{d:g}" for d in deltas)}))
    return Section("Privacy", tuple(notes), tables=subject.tables_named("privacy"))


def failed(subject: Subject) -> Section | None:
    """Return the missing runs and the reasons."""
    study, notes = subject.study, []
    interrupted = source.interruption(study)
    if noted(study).empty and interrupted is None:
        return None
    if len(study.failed):
        notes.append(message("failed", {"failed": len(study.failed), "runs": len(study.runs)}))
    if interrupted is not None:
        notes.append(interrupted)
    tables = subject.tables_named("not_converged")
    return Section("Runs that did not converge or failed", tuple(notes), tables=tables)


def provenance(subject: Subject) -> Section:
    """Return settings and versions, and the command that repeats the study."""
    run = subject.study.manifest.get("document") is not None
    tables = subject.tables_named(*(("outcome",) if run else ()), "provenance", "cases", "settings")
    return Section("Settings and versions", _repeat(subject.study), tables=tables, appendix=True)


def _repeat(study: Study) -> tuple[Message, ...]:
    """Return the command that repeats a study; a public report has no seeds for it."""
    if study.public:
        return ()
    command = study.manifest.get(
        "repeat",
        "gridpriv compare --study study.toml --out NEW_FOLDER, with study.toml of this folder",
    )
    return (message("repeat", {"command": command}),) if command else ()

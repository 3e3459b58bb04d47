"""A report as a list of sections: words, charts, maps and tables; writers turn it into files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from gridpriv.core.display import shown
from gridpriv.core.stored import Study
from gridpriv.drawing.chart import Chart, Style, styles
from gridpriv.report import findings, schema
from gridpriv.report.charts import budget_words, cost_charts, round_charts, step_charts
from gridpriv.report.maps import Map, shed_map, zone_map
from gridpriv.report.pictures import flows_of
from gridpriv.report.source import run_document
from gridpriv.report.summary import (
    NO_NOISE,
    PANEL,
    answers,
    best_series,
    panel_names,
    reference_budget,
    sentence,
    series_names,
    simulation_caveat,
    summary,
)
from gridpriv.report.tables import Table, make_table
from gridpriv.study.run_folder import SERIES
from gridpriv.study.schema import CLAIMS, GRIDS
from gridpriv.zonal.physical import SHED_TOLERANCE_MW
from gridpriv.zonal.schema import STEPS
from gridpriv.zonal.summary import figures, series_figures

MOST_LISTED = 12


@dataclass(frozen=True)
class Section:
    """A part of a report.

    Attributes
    ----------
    title : str
    text : tuple of str
        Paragraphs.
    charts : tuple of (heading, charts)
    maps : tuple of Map
    tables : tuple of Table
    """

    title: str
    text: tuple[str, ...] = ()
    charts: tuple[tuple[str, tuple[Chart, ...]], ...] = ()
    maps: tuple[Map, ...] = ()
    tables: tuple[Table, ...] = ()


@dataclass(frozen=True)
class Report:
    """A whole report.

    ``caveat`` is what must stand on every page: that certificates are of simulated noise.
    """

    title: str
    question: str
    answer: tuple[str, ...]
    sections: tuple[Section, ...]
    caveat: str = ""
    styles: dict[str, Style] = field(default_factory=dict)
    flat: frozenset[str] = frozenset()

    @property
    def tables(self) -> list[Table]:
        """Every table, in order."""
        return [table for section in self.sections for table in section.tables]


def make_report(study: Study) -> Report:
    """Return the report of a study, or of one run's folder."""
    table = with_words(study, summary(study))
    drawn = table[table.seeds > 0] if len(table) else table
    names = list(dict.fromkeys(drawn.series)) if len(drawn) else []
    look = styles(names)
    flat = frozenset(drawn.loc[drawn.budget == NO_NOISE, "series"]) if len(drawn) else frozenset()
    of_steps, document = _over(study) == "steps", run_document(study)
    if document is not None:
        sections = [_outcome(document)]
    else:
        sections = [_steps(study, look)] if of_steps else [_first(table, look)]
    makers: tuple[Callable[..., Section | None], ...] = (
        _claims, *(() if of_steps else (_convergence,)), _places, _privacy, _audited, _ac, _failed,
        _provenance,
    )  # fmt: skip
    for make in makers:
        section = make(study, table, look)
        if section is not None:
            sections.append(section)
    caveat = simulation_caveat(study)
    if caveat:
        sections = [with_mark(section) for section in sections]
    return Report(
        title=str(study.manifest["title"]),
        question=str(study.manifest["question"]),
        answer=tuple(answers(study, table)),
        caveat=caveat,
        sections=tuple(sections),
        styles=look,
        flat=flat if len(names) > len(flat) else frozenset(),
    )


def with_mark(section: Section) -> Section:
    """Return a section whose certificates say that their noise is simulated."""
    tables = tuple(
        replace(table, columns=tuple(map(schema.marked, table.columns))) for table in section.tables
    )
    return replace(section, tables=tables)


def with_words(study: Study, table: pd.DataFrame) -> pd.DataFrame:
    """Add columns in words and shares to the summary."""
    if table.empty:
        return table
    table = table.copy()
    table["budget_shown"] = table.budget.map(budget_words)
    table["ac_converged_pct"] = table.ac_converged * 100.0
    table["carried_pct"] = table.carried * 100.0
    statements = study.tables["statements"]
    if len(statements) and "ratio" in statements:
        worst = statements.groupby("run").ratio.max()
        runs = study.done.assign(ratio=study.done.run.map(worst))
        keys = [*PANEL, "scheme", "local_updates", "budget"]
        ratios = runs.groupby(keys, dropna=False).ratio.max()
        table["sensitivity_ratio"] = [
            ratios.get(tuple(row)) for row in table[keys].itertuples(index=False)
        ]
    return table


def _outcome(document: dict[str, Any]) -> Section:
    """Return what one run comes to, as the terminal tells it."""
    caption, _, rows = figures(document)
    return Section("What it comes to", tables=(_told_outcome(caption, rows),))


def _told_outcome(caption: str, rows: Sequence[Sequence[object]]) -> Table:
    told = [(name, shown(value), unit) for name, value, unit in rows]
    frame = pd.DataFrame(told, columns=schema.OUTCOME.names)
    return make_table(schema.OUTCOME, caption, frame)


def _first(table: pd.DataFrame, look: dict[str, Style]) -> Section:
    charts = cost_charts(table, look) if len(table) else []
    priced = bool(charts) and bool(table.cost_of_privacy.notna().any())
    text = []
    if charts:
        text = [
            "Each curve is the mean over seeds; its band is the 95 % confidence interval of that "
            "mean (Student's t). Dashed levels are runs without noise, or with "
            "nothing released. What lies below "
            "the axis is drawn on its lower edge; a band that meets an edge goes on beyond it."
        ]
        if table.seeds.max() == 2:
            text[0] += (
                " With two seeds that interval reaches 12.7 standard errors to each side: more "
                "seeds narrow it."
            )
        if table.recourse_shed_mw.notna().any():
            if priced:
                text[0] += (
                    " Cost of privacy is what generation and unserved demand cost beyond the mean "
                    "of runs without noise."
                )
            text[0] += (
                " Shed after local recourse is load that stays unserved when "
                "every zone keeps its agreed boundary and re-plans with its true demand; imbalance "
                "is shed plus surplus of the last round's plan."
            )
    return Section(
        "Cost of privacy" if priced else "Means over seeds",
        tuple(text),
        (("", tuple(charts)),) if charts else (),
        tables=(make_table(schema.SUMMARY, "Means over seeds", table),) if len(table) else (),
    )


def _steps(study: Study, look: dict[str, Style]) -> Section:
    """Return what happens step by step of a series."""
    steps = study.tables.get("steps", pd.DataFrame())
    rows = series_figures(steps.replace({np.nan: None}).to_dict("records"))
    tables = [_told_outcome("Means of the steps", rows)] if rows else []
    tables += [make_table(STEPS, "Steps", steps)] if len(steps) else []
    return Section(
        "Step by step",
        ("Each step is a run of its own under one budget for all. Residuals are computed from "
         "releases only; demand, and what is not served of it, from private demand.",),
        (("", tuple(step_charts(study, look))),),
        tables=tuple(tables),
    )  # fmt: skip


def _claims(study: Study, *_: Any) -> Section | None:
    claims = study.tables.get("claims", pd.DataFrame())
    if claims.empty:
        return None
    return Section(
        "What the paper states, and whether it holds here",
        (
            "Every ordering that the paper states for this figure, compared on means over seeds "
            "and the last ten rounds (noise: all rounds). 'paper' draws the noise that the paper "
            "states; 'sound' draws what its epsilon per release needs under a proven sensitivity.",
        ),
        tables=(make_table(CLAIMS, "Stated orderings", claims),),
    )


def _convergence(study: Study, table: pd.DataFrame, look: dict[str, Style]) -> Section | None:
    groups = round_charts(study, table, look)
    if not groups:
        return None
    several = "" if len(study.runs) == 1 else "Means over seeds; bands span the seeds. "
    return Section(
        "Convergence, residual and noise",
        (f"{several}Each heading says what a figure is computed from; stopping rules may use none "
         "but those from releases only.",),
        tuple((title, tuple(charts)) for title, charts in groups.items()),
    )  # fmt: skip


def _places(study: Study, table: pd.DataFrame, look: dict[str, Style]) -> Section | None:
    del look
    places = study.tables.get("network_buses", pd.DataFrame())
    if places.empty or table.empty:
        return None
    runs = study.done.assign(panel=panel_names(study.done), series=series_names(study.done))
    maps: list[Map] = []
    zones = []
    over = _over(study)
    words = ["Dashed lines are tie lines between zones."]
    if not study.public:
        words[0] += (
            f" Shed per bus is after local recourse, the mean over {over}. Per-zone figures are of "
            "the last round."
        )
    for panel, rows in table.groupby("panel", sort=False):
        words += _bound(str(panel), runs[runs.panel == panel])
        at = rows.iloc[0]
        buses, branches = (
            t[(t.case == at.case) & (t.zoning == at.zoning)]
            for t in (places, study.tables["network_branches"])
        )
        maps.append(zone_map(f"{panel}: zones", buses, branches))
        here = runs[runs.panel == panel]
        maps += _shed_maps(study, rows, here, (buses, branches))
        zones.append(_zone_rows(study, rows, here))
    tables = [t for t in zones if len(t)]
    return Section(
        "Where",
        tuple(words),
        maps=tuple(maps),
        tables=tuple(
            make_table(schema.ZONES, f"Per zone, means over {over}", pd.concat(tables))
            for _ in tables[:1]
        ),
    )  # fmt: skip


def _over(study: Study) -> str:
    """Return what means are taken over."""
    return "steps" if study.manifest.get("kind") == SERIES else "seeds"


def _bound(panel: str, runs: pd.DataFrame) -> list[str]:
    """Return what the grid says of the first run that it does not carry or serve in full."""
    if "explanation" not in runs:
        return []
    unserved = pd.to_numeric(runs["recourse_shed_mw"]) > SHED_TOLERANCE_MW
    told = runs[runs["explanation"].notna() & (unserved | (runs["carried"] == False))]  # noqa: E712
    if told.empty:
        return []
    first = told.sort_values("budget", key=lambda b: b != NO_NOISE, kind="stable").iloc[0]
    if "step" in told:
        way = f"step {first.step}"
    else:
        way = (
            "without noise" if first.mechanism == NO_NOISE else f"{first.scheme}, seed {first.seed}"
        )
    return [sentence(f"{panel}, {way}: {first.explanation}")]


def _shed_maps(
    study: Study,
    rows: pd.DataFrame,
    runs: pd.DataFrame,
    network: tuple[pd.DataFrame, pd.DataFrame],
) -> list[Map]:
    """Return shed per bus of the best way and of the dearest one, at the reference budget."""
    shed = study.tables["buses"]
    flows = flows_of(study)
    column = "recourse_shed_mw" if "recourse_shed_mw" in shed else "shed_mw"
    budget = reference_budget(rows)
    if shed.empty or column not in shed:
        return []
    best = best_series(rows, budget)
    ranked = rows[(rows.budget == budget) & (rows.seeds > 0)].sort_values("recourse_shed_mw")
    chosen = dict.fromkeys([best, str(ranked.series.iloc[-1])] if len(ranked) else [])
    maps = []
    for series in chosen:
        these = runs[(runs.series == series) & (runs.budget == budget)]
        mean = shed[shed.run.isin(these.run)].groupby("bus")[column].mean()
        at = "" if budget == NO_NOISE else f", {budget_words(budget)}"
        title = f"{rows.panel.iloc[0]}: {series}{at}"
        values = dict(zip(map(int, mean.index), map(float, mean.fillna(0.0)), strict=True))
        maps.append(shed_map(title, *network, values, flows))
    return maps


def _zone_rows(study: Study, rows: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    budget = reference_budget(rows)
    chosen = runs[runs.budget.isin([budget, NO_NOISE])]
    zones = study.tables["zones"]
    if zones.empty or chosen.empty:
        return pd.DataFrame()
    joined = zones.merge(chosen[["run", "panel", "series"]], on="run")
    numbers = [c.name for c in schema.ZONES.figures if c.name in joined]
    means = joined.groupby(["panel", "series", "zone"], sort=False)[numbers].mean().reset_index()
    for column in ("buses", "tie_lines", "generators", "variables", "shared"):
        if column in means:
            means[column] = means[column].astype(int)
    return means


def _privacy(study: Study, table: pd.DataFrame, look: dict[str, Style]) -> Section | None:
    del look
    noisy = table[table.budget != NO_NOISE] if len(table) else table
    if len(noisy) == 0:
        return None
    statements = study.tables["statements"]
    which = " in one step" if _over(study) == "steps" else ""
    text = [
        f"Of the worst zone or client{which}. 'Claimed' is the epsilon that the settings state "
        "for one release; 'certified' is what the drawn noise gives under a proven sensitivity. "
        "Totals are certified: pure by basic composition, and at the stated delta from the "
        "privacy loss distribution."
    ]
    if noisy.mechanism.eq("gaussian").any():
        text.append(
            "Of Gaussian noise one release's epsilon holds at that release's own delta, another "
            "reading of the same noise; totals are not sums of it."
        )
    if len(statements) and "provenance" in statements:
        text += [f"Sensitivity: {sentence(p)}" for p in dict.fromkeys(statements.provenance)][:6]
    return Section(
        "Privacy accounting",
        tuple(text),
        tables=(make_table(schema.PRIVACY, "Privacy, claimed and certified", noisy),),
    )


def _audited(study: Study, *_: Any) -> Section | None:
    found = [name for name in findings.SCHEMAS if name in study.tables]
    if not found:
        return None
    return Section(
        "Audit and attack",
        tuple(findings.WORDS[name] for name in found),
        tables=tuple(
            make_table(findings.SCHEMAS[name], findings.CAPTIONS[name], study.tables[name])
            for name in found
        ),
    )


def _ac(study: Study, table: pd.DataFrame, look: dict[str, Style]) -> Section | None:
    del study, look
    if table.empty or table.ac_converged.isna().all():
        return None
    return Section(
        "AC check",
        ("An AC power flow at the dispatch after local recourse: whether it has a solution, what "
         "the reference bus has to add, and which limits it leaves.",),
        tables=(make_table(schema.AC, "AC power flow at the dispatched generation", table),),
    )  # fmt: skip


def _failed(study: Study, *_: Any) -> Section | None:
    noted = study.failed
    if "reason" in study.runs:  # local: of finished runs, too, what a reader should know
        noted = study.runs[study.runs["reason"].fillna("") != ""]
    missing = int(study.manifest.get("planned", len(study.runs))) - len(study.runs)
    if noted.empty and missing <= 0:
        return None
    text = []
    if len(study.failed):
        text.append(
            f"{len(study.failed)} of {len(study.runs)} runs failed; means are over the rest."
        )
    if missing > 0:
        text.append(f"{missing} of the planned runs are not in this folder: it was interrupted. "
                    "Run the same command with --resume.")  # fmt: skip
    return Section(
        "Runs that failed or did not settle",
        tuple(text),
        tables=(make_table(schema.FAILED, "Reasons", _alike(noted)),) if len(noted) else (),
    )


def _alike(noted: pd.DataFrame) -> pd.DataFrame:
    """Return one row per way, budget and status: how many runs, and the first one's reason."""
    named = noted.assign(budget_shown=noted.budget.map(budget_words))
    groups = named.groupby(["case", "scheme", "budget_shown", "status"], sort=False)
    first = groups[[c for c in ("finished_rounds", "reason") if c in named]].first()
    return first.assign(count=groups.size()).reset_index()


def _provenance(study: Study, *_: Any) -> Section:
    manifest = study.manifest
    done, failed, withheld = len(study.done), len(study.failed), len(study.withheld)
    rows = [("runs", f"{done} finished, {failed} failed"
             + (f", {withheld} without noise are withheld" if withheld else "")),
            ("seeds", ", ".join(map(str, manifest.get("seeds", [])))),
            ("created", manifest.get("created", "")),
            ("machine", ", ".join(f"{k} {v}" for k, v in manifest.get("machine", {}).items())),
            ("versions", ", ".join(f"{k} {v}" for k, v in manifest.get("versions", {}).items())),
        ]  # fmt: skip
    settings = pd.DataFrame(_setting_rows(manifest), columns=["where", "setting", "value"])
    return Section(
        "Settings and provenance",
        _repeat(study),
        tables=(
            make_table(schema.PROVENANCE, "This study",
                       pd.DataFrame([r for r in rows if r[1]], columns=["what", "value"])),
            make_table(GRIDS, "Cases", _grids(manifest)),
            make_table(schema.SETTINGS, "Settings", settings),
        ),
    )  # fmt: skip


def _repeat(study: Study) -> tuple[str, ...]:
    """Return how figures can be made again; who reads a public report has no seeds for that."""
    if study.public:
        return ()
    if "repeat" in study.manifest:
        again = study.manifest["repeat"]
        return (f"To repeat: {again}",) if again else ()
    return (
        "To repeat: gridpriv compare --study study.toml --out NEW_FOLDER, with the study.toml of "
        "this folder; noise comes from the seeds, so figures are the same.",
    )


def _grids(manifest: dict[str, Any]) -> pd.DataFrame:
    grids = pd.DataFrame(manifest.get("cases", []))
    if grids.empty:
        return grids
    if "fingerprint" in grids:
        grids["fingerprint"] = grids["fingerprint"].str[:16]
    grids["zoning"] = grids["zoning"].replace("", "default")
    return grids.drop(columns=["name", "map"], errors="ignore")


def _setting_rows(manifest: dict[str, Any]) -> list[tuple[str, str, str]]:
    told = manifest["study"]
    rows = [("all runs", k, _worded(v)) for k, v in told.get("settings", {}).items()]
    rows += [
        ("axis", k, _listed(v))
        for k, v in told.items()
        if isinstance(v, list) and k != "schemes" and v not in ([], [""])
    ]
    for scheme in told.get("schemes") or []:
        rows += [
            (f"way: {scheme['name']}", k, _worded(v)) for k, v in scheme.items() if k != "name"
        ]
    return rows


def _worded(value: Any) -> str:
    if isinstance(value, list):
        return _listed(value) or "none"
    return "none" if value is None else str(value)


def _listed(values: list[Any]) -> str:
    """Return values by commas; of many, the ends and how many there are."""
    if len(values) <= MOST_LISTED:
        return ", ".join(map(str, values))
    return f"{values[0]} to {values[-1]}, {len(values)} in all"

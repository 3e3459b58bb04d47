"""The sections of a report's page: what stands around its tables in words, charts and maps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from gridpriv.core.display import figure
from gridpriv.core.stored import Study
from gridpriv.drawing import Drawing, draw_network
from gridpriv.drawing.chart import Chart, Style
from gridpriv.grid.zoning import map_digest
from gridpriv.privacy.budget import NO_NOISE, QUIET
from gridpriv.report import findings
from gridpriv.report.answers import sentence
from gridpriv.report.charts import cost_charts, round_charts, step_charts
from gridpriv.report.contents import noted
from gridpriv.report.pictures import flows_of
from gridpriv.report.source import means_over, run_document
from gridpriv.report.summary import (
    at_budget,
    best_series,
    budget_words,
    named_runs,
    reference_budget,
)
from gridpriv.report.tables import Table
from gridpriv.zonal.physical import SHED_TOLERANCE_MW, balancing_beside

MAP = 540.0
"""Points: two maps stand side by side, so their text is larger than in a file of its own."""


@dataclass(frozen=True)
class Section:
    """A part of a page: paragraphs, charts under headings, maps of grids, tables."""

    title: str
    text: tuple[str, ...] = ()
    charts: tuple[tuple[str, tuple[Chart, ...]], ...] = ()
    maps: tuple[Drawing, ...] = ()
    tables: tuple[Table, ...] = ()


@dataclass(frozen=True, eq=False)
class Subject:
    """What sections are made of: a study, its summary, its tables by name, and curves' looks."""

    study: Study
    table: pd.DataFrame
    tables: Mapping[str, Table]
    look: dict[str, Style]

    def held(self, *names: str) -> tuple[Table, ...]:
        """Return those tables that the report has."""
        return tuple(self.tables[name] for name in names if name in self.tables)

    def told(self, title: str, name: str, text: str) -> Section | None:
        """Return the section of one table, where the report has it."""
        return Section(title, (text,), tables=self.held(name)) if name in self.tables else None


def first(of: Subject) -> Section:
    """Return what a run comes to, a series step by step, or what ways cost."""
    if means_over(of.study) == "steps":
        return Section(
            "Step by step",
            ("Each step is a run of its own under one budget for all. Residuals are computed from "
             "releases only; demand, and what is not served of it, from private demand.",),
            (("", tuple(step_charts(of.study, of.look))),),
            tables=of.held("outcome", "steps"),
        )  # fmt: skip
    if "outcome" in of.tables:
        return Section("What it comes to", tables=of.held("outcome", "interchange"))
    charts = tuple(cost_charts(of.table, of.look)) if len(of.table) else ()
    priced = bool(charts) and bool(of.table.cost_of_privacy.notna().any())
    return Section(
        "Cost of privacy" if priced else "Means over seeds",
        (_legend(of.table, priced),) if charts else (),
        (("", charts),) if charts else (),
        tables=of.held("summary"),
    )


def _legend(table: pd.DataFrame, priced: bool) -> str:
    """Return how charts of costs are read."""
    told = [
        "Each curve is the mean over seeds; its band is the 95 % confidence interval of that "
        "mean (Student's t). Dashed levels are runs without noise, or with nothing released. "
        "What lies below the axis is drawn on its lower edge; a band that meets an edge goes on "
        "beyond it."
    ]
    if table.seeds.max() == 2:
        told.append("With two seeds that interval reaches 12.7 standard errors to each side: more "
                    "seeds narrow it.")  # fmt: skip
    shed = table.recourse_shed_mw.notna().any()
    if shed and priced:
        told.append("Cost of privacy is what generation and unserved demand cost beyond the "
                    "cheapest way without noise, one yardstick for all: where a way has other "
                    "rounds or another objective, penalty or update than that one, as the paper's "
                    "do, what they cost without noise is part of it.")  # fmt: skip
        if (table.cost_of_privacy[~table.budget.isin(QUIET)] < 0.0).any():
            told.append("A negative one is chance and no gain: rounds without noise stop before "
                        "their optimum too, and noise happened to end nearer.")  # fmt: skip
    if table.cost.notna().any():
        told.append(f"Costs are of generation and unserved demand; {balancing_beside()}.")
    if shed:
        told.append("Shed after local recourse is load that stays unserved when every zone keeps "
                    "its agreed boundary and re-plans with its true demand; imbalance is shed "
                    "plus surplus of the last round's plan.")  # fmt: skip
    return " ".join(told)


def claims(of: Subject) -> Section | None:
    """Return what a paper states."""
    return of.told(
        "What the paper states, and whether it holds here", "claims",
        "Every ordering that the paper states for this figure, compared on means over seeds and "
        "the last ten rounds (noise: all rounds). 'paper' draws the noise that the paper states; "
        "'sound' draws what its epsilon per release needs under a proven sensitivity.",
    )  # fmt: skip


def convergence(of: Subject) -> Section | None:
    """Return charts by round; a series has none."""
    groups = {} if means_over(of.study) == "steps" else round_charts(of.study, of.table, of.look)
    if not groups:
        return None
    several = "" if len(of.study.runs) == 1 else "Means over seeds; bands span the seeds. "
    return Section(
        "Convergence, residual and noise",
        (f"{several}Each heading says what a figure is computed from; stopping rules may use none "
         "but those from releases only.",),
        tuple((title, tuple(charts)) for title, charts in groups.items()),
    )  # fmt: skip


def places(of: Subject) -> Section | None:
    """Return maps of zones and of what is not served."""
    study = of.study
    network = [study.tables.get(f"network_{of}", pd.DataFrame()) for of in ("buses", "branches")]
    if network[0].empty or of.table.empty:
        return None
    runs = named_runs(study)
    maps: list[Drawing] = []
    words = ["Dashed lines are tie lines between zones."]
    if not study.public:
        words[0] += f" Shed per bus is after local recourse, the mean over {means_over(study)}."
    for panel, rows in of.table.groupby("panel", sort=False):
        here, at = runs[runs.panel == panel], rows.iloc[0]
        words += _bound(str(panel), here)
        buses, branches = (t[(t.case == at.case) & (t.zoning == at.zoning)] for t in network)
        maps.append(draw_network(f"{panel}: zones", buses, branches, width=MAP))
        maps += _shed_maps(study, rows, here, (buses, branches))
    return Section("Where", tuple(words), maps=tuple(maps), tables=of.held("zones"))


def _bound(panel: str, runs: pd.DataFrame) -> list[str]:
    """Return what the grid says of the first run that it does not carry or serve in full."""
    if "explanation" not in runs:
        return []
    unserved = pd.to_numeric(runs["recourse_shed_mw"]) > SHED_TOLERANCE_MW
    told = runs[runs["explanation"].notna() & (unserved | (runs["carried"] == False))]  # noqa: E712
    if told.empty:
        return []
    first = told.sort_values("budget", key=lambda b: ~b.isin(QUIET), kind="stable").iloc[0]
    if "step" in told:
        way = f"step {first.step}"
    else:
        way = "without noise" if first.budget == NO_NOISE else f"{first.scheme}, seed {first.seed}"
    return [sentence(f"{panel}, {way}: {first.explanation}")]


def _shed_maps(
    study: Study,
    rows: pd.DataFrame,
    runs: pd.DataFrame,
    network: tuple[pd.DataFrame, pd.DataFrame],
) -> list[Drawing]:
    """Return shed per bus of the best way and of the dearest one, at the reference budget."""
    shed = study.tables["buses"]
    flows = flows_of(study)
    column = "recourse_shed_mw" if "recourse_shed_mw" in shed else "shed_mw"
    budget = reference_budget(rows)
    if shed.empty or column not in shed:
        return []
    best = best_series(rows, budget)
    ranked = at_budget(rows[rows.seeds > 0], budget).sort_values("recourse_shed_mw")
    chosen = dict.fromkeys([best, str(ranked.series.iloc[-1])] if len(ranked) else [])
    maps = []
    for series in chosen:
        these = at_budget(runs[runs.series == series], budget)
        mean = shed[shed.run.isin(these.run)].groupby("bus")[column].mean()
        at = "" if budget == NO_NOISE else f", {budget_words(budget)}"
        title = f"{rows.panel.iloc[0]}: {series}{at}"
        values = dict(zip(map(int, mean.index), map(float, mean.fillna(0.0)), strict=True))
        note = f"{figure(sum(max(value, 0.0) for value in values.values()))} MW not served"
        maps.append(draw_network(title, *network, shed=values, flows=flows, note=note, width=MAP))
    return maps


def privacy(of: Subject) -> Section | None:
    """Return what was stated and what is certified."""
    if "privacy" not in of.tables:
        return None
    noisy = of.table[~of.table.budget.isin(QUIET)]
    statements = of.study.tables["statements"]
    which = ", of all steps together" if means_over(of.study) == "steps" else ""
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
    return Section("Privacy accounting", tuple(text), tables=of.held("privacy"))


def planned(of: Subject) -> Section | None:
    """Return what a plan expected, and what was measured."""
    if "plan" not in of.tables:
        return None
    run, told = run_document(of.study), list[str]()
    if run is not None:
        digest = map_digest(of.study.manifest["cases"][0]["map"])
        told = findings.measured(of.study.tables["plan"], run, digest)
    return Section("Plan", (findings.WORDS["plan"], *told), tables=of.held("plan"))


def audited(of: Subject) -> Section | None:
    """Return what an audit or an attack found."""
    tables = of.held("audit", "attack")
    words = tuple(findings.WORDS[table.name] for table in tables)
    return Section("Audit and attack", words, tables=tables) if tables else None


def ac(of: Subject) -> Section | None:
    """Return whether the dispatch has an AC solution."""
    return of.told(
        "AC check", "ac",
        "An AC power flow at the dispatch after local recourse: whether it has a solution, what "
        "the reference bus has to add, and which limits it leaves.",
    )  # fmt: skip


def failed(of: Subject) -> Section | None:
    """Return what is not there, and why."""
    study, text = of.study, []
    missing = int(study.manifest.get("planned", len(study.runs))) - len(study.runs)
    if noted(study).empty and missing <= 0:
        return None
    if len(study.failed):
        text.append(
            f"{len(study.failed)} of {len(study.runs)} runs failed; means are over the rest."
        )
    if missing > 0:
        text.append(f"{missing} of the planned runs are not in this folder: it was interrupted. "
                    "Run the same command with --resume.")  # fmt: skip
    return Section("Runs that failed or did not settle", tuple(text), tables=of.held("failed"))


def provenance(of: Subject) -> Section:
    """Return with what figures were made, and how they are made again."""
    tables = of.held("provenance", "cases", "settings")
    return Section("Settings and provenance", _repeat(of.study), tables=tables)


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

"""Every table and document that gridpriv stores, prints or exports, in one place."""

from __future__ import annotations

from dataclasses import replace

from gridpriv.assurance import rows as assurance
from gridpriv.core.tables import (
    Column,
    Number,
    Row,
    TableSchema,
    Text,
    key,
    known,
    like,
    private,
    released,
)
from gridpriv.core.text import Json
from gridpriv.grid.conversion_schema import ConversionDocument
from gridpriv.learning.rows import LearnDocument, LearnFigures
from gridpriv.privacy.statement import Bound, Certificate
from gridpriv.study.record import STORED
from gridpriv.study.rows import Ending, Identity, Manifest
from gridpriv.zonal.documents import (
    CertificateDocument,
    ExchangeDocument,
    RunDocument,
    SecurityDocument,
    SeriesDocument,
)
from gridpriv.zonal.rows import OfZone, RunFigures, ZoneRow

CERTIFIED = frozenset({"epsilon_certified", "certified", "total_pure", "total_epsilon", "total"})
"""Columns that state what noise certifies: of simulated noise their headers say so."""

MARK = "simulated noise"


def marked(column: Column) -> Column:
    """Return a column whose header says, of a certificate, that its noise is simulated."""
    if column.name not in CERTIFIED or column.unit:  # times have one
        return column
    return replace(column, title=f"{column.title}, {MARK}")


def with_interval(mean: Column) -> tuple[Column, ...]:
    """Return a mean and the ends of its 95 % interval."""
    ends = (("low", "lower", "95 % from"), ("high", "upper", "95 % to"))
    of = f"end of the 95 % interval (Student's t) of the mean {mean.title.lower()}"
    return mean, *(
        replace(mean, name=f"{mean.name}_{end}", title=title, meaning=f"{which} {of}")
        for end, which, title in ends
    )


class OfMethod(Row):
    """One method at one budget."""

    panel: Text = key("Case: name of the case, with the other axes of the study")
    series: Text = key("Method: name of the method, with the other axes of the study")
    budget_shown: Text = key("Budget: privacy budget of a run")


class MethodMeans(OfMethod, name="summary"):
    """One method at one budget: means over seeds."""

    total_epsilon: Number = like(Certificate, "total_epsilon")
    test_error_pct: Number = like(LearnFigures, "test_error_pct")
    test_mse: Number = like(LearnFigures, "test_mse")
    mean_objective: Number = like(LearnFigures, "mean_objective")
    consensus_residual_max: Number = like(LearnFigures, "consensus_residual_max")
    cost_of_privacy: Number = private(
        "Cost of privacy: cost minus that of the cheapest noise-free method on the grid", "$/h"
    )
    redispatch_shed_mw: Number = like(RunFigures, "redispatch_shed_mw")
    ac_feasible_pct: Number = private("AC-feasible: share of AC-feasible runs", "% of runs")
    interchange_deviation_mw: Number = like(RunFigures, "interchange_deviation_mw")
    cost: Number = like(RunFigures, "cost")
    seeds: Number = released("Seeds: number of finished runs")
    failed: Number = released("Failed: number of failed runs")


WITH_INTERVAL = ("test_error_pct", "test_mse", "cost_of_privacy")
SUMMARY = replace(
    MethodMeans.table,
    figures=tuple(
        each
        for column in MethodMeans.table.figures
        for each in (with_interval(column) if column.name in WITH_INTERVAL else (column,))
    ),
)


class ConvexMeans(OfMethod, name="convex"):
    """One method at one budget: means over seeds of the last round's plan."""

    total_epsilon: Number = like(Certificate, "total_epsilon")
    consensus_residual: Number = like(RunFigures, "consensus_residual")
    imbalance_mw: Number = like(RunFigures, "imbalance_mw")
    shed_mw: Number = like(RunFigures, "shed_mw")
    objective: Number = like(RunFigures, "objective")


class Guarantee(Certificate, OfMethod, name="privacy"):
    """One method at one budget: the worst zone or client, the worst seed."""

    noise_multiplier: Number = released(
        "Noise multiplier: smallest noise scale divided by its sensitivity"
    )
    sensitivity_ratio: Number = like(Bound, "ratio")


class ZoneMeans(Row, name="zones"):
    """One zone."""

    panel: Text = like(OfMethod, "panel")
    zone: Text = like(OfZone, "zone")
    buses: Number = like(ZoneRow, "buses")
    tie_lines: Number = like(ZoneRow, "tie_lines")
    generators: Number = like(ZoneRow, "generators")
    load_mw: Number = like(ZoneRow, "load_mw")


class Failures(Row, name="failed"):
    """Runs that failed or did not settle, alike ones together."""

    case: Text = like(Identity, "case")
    method: Text = like(Identity, "method")
    budget_shown: Text = like(OfMethod, "budget_shown")
    status: Text = like(Ending, "status")

    count: Number = released("Runs: number of runs")
    finished_rounds: Number = like(Ending, "finished_rounds")
    reason: Text = like(Ending, "reason", title="Reason (of the first)")


class RunOutcome(Row, name="outcome"):
    """One figure of a run."""

    result: Text = key("Result: name of the result")
    value: Number = released("Value: value of the result")
    unit: Text = known("Unit: unit of the value")


class PlannedMethod(Row, name="plan"):
    """One method that gridpriv plan tried on sampled demand scenarios."""

    release: Text = key("Release: released statistics of demand")
    mechanism: Text = key("Noise: mechanism of the noise")
    rounds: Text = key("Rounds: number of rounds, or central")
    beta: Text = key("Beta: protected change of one bus's demand")
    budget: Text = key("Budget: budget of all releases")
    interchange_error_mw: Number = known(
        "Expected interchange error: expected interchange error of the worst zone", "MW"
    )
    least: Number = known("Least: smallest optimality gap over all scenarios", "$/h")
    median: Number = known("Median: median optimality gap over the scenarios", "$/h")
    most: Number = known("Most: largest optimality gap over all scenarios", "$/h")


class Provenance(Row, name="provenance"):
    """Versions and machine of a study."""

    what: Text = key("Entry: name of an entry of the manifest")
    value: Text = known("Value: value of the entry")


class SettingValue(Row, name="settings"):
    """One setting."""

    where: Text = key("Where: scope of the setting: all runs, an axis, or one method")
    setting: Text = key("Setting: name of the setting")
    value: Text = known("Value: value of the setting")


ROWS = (
    RunOutcome,
    ConvexMeans,
    Guarantee,
    ZoneMeans,
    Failures,
    PlannedMethod,
    Provenance,
    SettingValue,
)
DERIVED = (SUMMARY, *(row.table for row in ROWS))
DOCUMENTS: dict[str, tuple[str, type[Row]]] = {
    "run --json": ("a run, as run.json in its folder", RunDocument),
    "publish --json": ("a published case, as FILE.certificate.json", CertificateDocument),
    "security --json": ("a contingency analysis", SecurityDocument),
    "exchange --json": ("exchange between the zones of a run", ExchangeDocument),
    "convert --json": ("a conversion of a case file", ConversionDocument),
    "run --series --json": ("a series, as horizon.json in its folder", SeriesDocument),
    "learn run --json": ("a learning run, as run.json in its folder", LearnDocument),
    "manifest.json": ("a study", Manifest),
}


def told() -> dict[str, Json]:
    """Return every table and document by name, with its columns, as JSON can hold them."""
    tables: list[tuple[str, str, TableSchema]] = [(name, t.row, t) for name, t in STORED.items()]
    tables += [(t.name, t.row, t) for t in assurance.TABLES]
    tables += [(f"report: {t.name}", t.row, t) for t in DERIVED]
    tables += [(name, row, document.table) for name, (row, document) in DOCUMENTS.items()]
    return {
        name: {"name": name, "row": row, "columns": [_told(*pair) for pair in table.flat()]}
        for name, row, table in tables
    }


def _told(name: str, column: Column) -> dict[str, str]:
    names = ("title", "unit", "meaning", "origin", "visibility")
    return {"name": name} | {each: getattr(column, each) for each in names}

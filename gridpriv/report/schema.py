"""Schemas of all tables and documents that gridpriv stores, prints or exports.

The JSON schemas (draft 2020-12) of the documents that ``--json`` prints are derived from the typed
rows that declare the values. A value that does not apply is null, so every type allows null. In
addition to JSON Schema's own keywords there are ``unit``, ``visibility`` (public or local) and
``origin`` (settings, releases or private).
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from gridpriv.core.files import make_folder, write_text
from gridpriv.core.tables import (
    Column,
    Number,
    Row,
    TableSchema,
    Text,
    key,
    known,
    like,
    part,
    private,
    released,
)
from gridpriv.core.text import Json
from gridpriv.grid.convert import CasesDocument, ConversionDocument
from gridpriv.learning.result import LearnDocument, LearnValues
from gridpriv.privacy.certificate import Bound, Certificate, PerRelease, TotalEpsilon
from gridpriv.study.engine import Ending, Identity, Manifest
from gridpriv.study.record import STORED
from gridpriv.zonal import documents
from gridpriv.zonal.documents import BusRow, OfBus, OfZone, RunSummary, ZoneOnMap, ZoneRow

CERTIFIED = frozenset({"epsilon_certified", "certified", "total_pure", "total_epsilon", "total"})
"""Columns of certificates: their headers say that the noise was not secure."""

MARK = "if simulated noise were secure"


def marked(column: Column) -> Column:
    """Return a column of a certificate whose header says that the noise was simulated."""
    if column.name not in CERTIFIED or column.unit:  # times have one
        return column
    return replace(column, title=f"{column.title}, {MARK}")


def with_interval(mean: Column) -> tuple[Column, ...]:
    """Return a mean and the ends of its 95 % interval."""
    ends = (("low", "lower", "lower end, 95 %"), ("high", "upper", "upper end, 95 %"))
    meaning = f"end of the 95 % interval (Student's t) of the mean {mean.title.lower()}"
    return mean, *(
        replace(mean, name=f"{mean.name}_{end}", title=title, meaning=f"{which} {meaning}")
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
    test_error_pct: Number = like(LearnValues, "test_error_pct")
    test_mse: Number = like(LearnValues, "test_mse")
    mean_objective: Number = like(LearnValues, "mean_objective")
    consensus_residual_max: Number = like(LearnValues, "consensus_residual_max")
    cost_of_privacy: Number = private(
        "Cost of privacy: cost minus that of the cheapest noise-free method on the grid", "$/h"
    )
    redispatch_shed_mw: Number = like(RunSummary, "redispatch_shed_mw")
    curtailed_mw: Number = like(RunSummary, "curtailed_mw")
    ac_feasible_pct: Number = private("AC-feasible: share of finished runs", "% of finished runs")
    balancing_mw: Number = like(RunSummary, "balancing_mw")
    interchange_deviation_mw: Number = like(RunSummary, "interchange_deviation_mw")
    cost: Number = like(RunSummary, "cost")
    seeds: Number = released("Runs: number of finished runs, AC-feasible or not")
    failed: Number = released("Failed: number of failed runs")


WITH_INTERVAL = ("test_error_pct", "test_mse", "cost_of_privacy")
SUMMARY = replace(
    MethodMeans.table,
    value_columns=tuple(
        each
        for column in MethodMeans.table.value_columns
        for each in (with_interval(column) if column.name in WITH_INTERVAL else (column,))
    ),
)


class ConvexMeans(OfMethod, name="convex"):
    """One method at one budget: means over seeds of the schedule of the last round."""

    total_epsilon: Number = like(Certificate, "total_epsilon")
    consensus_residual: Number = released(
        "Consensus residual: 2-norm of copies minus consensus variables, in the last round", "p.u."
    )
    imbalance_mw: Number = like(RunSummary, "imbalance_mw")
    plan_shortage_mw: Number = like(RunSummary, "plan_shortage_mw")
    objective: Number = like(RunSummary, "objective")


class Guarantee(Certificate, OfMethod, name="privacy"):
    """One method at one budget: largest epsilon of all zones (or clients) and seeds."""

    noise_multiplier: Number = released(
        "Noise multiplier: smallest noise scale divided by its sensitivity"
    )
    sensitivity_ratio: Number = like(Bound, "ratio")


class ShedBus(OfBus, OfZone, name="shed"):
    """One bus that sheds load."""

    pd_mw: Number = like(BusRow, "pd_mw")
    redispatch_shed_mw: Number = like(BusRow, "redispatch_shed_mw")


class ZoneMeans(Row, name="zones"):
    """One zone."""

    panel: Text = like(OfMethod, "panel")
    zone: Text = like(OfZone, "zone")
    buses: Number = like(ZoneRow, "buses")
    tie_lines: Number = like(ZoneRow, "tie_lines")
    generators: Number = like(ZoneRow, "generators")
    load_mw: Number = like(ZoneRow, "load_mw")


class Failures(Row, name="not_converged"):
    """Runs that did not converge or failed, grouped by reason."""

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
    Provenance,
    SettingValue,
)
DERIVED = (SUMMARY, *(row.table for row in ROWS))
DOCUMENTS: dict[str, tuple[str, type[Row]]] = {
    "run --json": ("a run, as run.json in its folder", documents.RunDocument),
    "publish --json": ("a published case, as FILE.certificate.json", documents.CertificateDocument),
    "security --json": ("a contingency analysis", documents.SecurityDocument),
    "exchange --json": ("exchange between the zones of a run", documents.ExchangeDocument),
    "convert --json": ("a conversion of a case file", ConversionDocument),
    "run --series --json": ("a series, as horizon.json in its folder", documents.SeriesDocument),
    "learn run --json": ("a learning run, as run.json in its folder", LearnDocument),
    "manifest.json": ("a study", Manifest),
}


def described_tables() -> dict[str, Json]:
    """Return every table and document by name, with its columns, as JSON values."""
    tables: list[tuple[str, str, TableSchema]] = [(name, t.row, t) for name, t in STORED.items()]
    tables += [(f"report: {t.name}", t.row, t) for t in DERIVED]
    tables += [(name, row, document.table) for name, (row, document) in DOCUMENTS.items()]
    return {
        name: {"name": name, "row": row, "columns": [_described(*pair) for pair in table.flat()]}
        for name, row, table in tables
    }


def _described(name: str, column: Column) -> dict[str, str]:
    names = ("title", "unit", "meaning", "origin", "visibility")
    return {"name": name} | {each: getattr(column, each) for each in names}


DRAFT = "https://json-schema.org/draft/2020-12/schema"
TYPES = {"number": ["number", "null"], "text": ["string", "null"], "flag": ["boolean", "null"]}


class AcOptimumDocument(Row, name="acopf"):
    """The AC optimum of the whole grid."""

    case: Text = key("Case: name or path that was given")
    objective: Text = known("Objective: cost, shed or losses")
    cost: Number = private("Cost: of generation and shed load; null where the case has none", "$/h")
    generation_cost: Number = private("Generation cost: cost of generation", "$/h")
    shed_mw: Number = private("Load shedding: active demand that is not served")
    deenergized_mw: Number = private("De-energized: demand on de-energized islands")
    curtailed_mw: Number = private(
        "Curtailed generation: cut minimum output of generators and cut fixed injections"
    )
    losses_mw: Number = private("Losses: active power losses of branches")
    status: Text = private("Status: of the solver")
    violations: list[documents.Violation] = part(documents.Violation)
    iterations: Number = private("Iterations: of the solver")
    seconds: Number = private("Time: wall clock")


class RelaxationDocument(Row, name="relax"):
    """The centralized relaxation of a grid."""

    case: Text = key("Case: name or path that was given")
    objective: Text = known("Objective: imbalance or cost")
    bound: Number = private("Bound: lower bound of the objective, in ``unit``")
    unit: Text = known("Unit: of the bound")
    relative_error: Number = private(
        "Relative error: estimated error of the bound, relative to it; absolute below 1"
    )
    status: Text = private("Status: of the solver")
    solver: Text = known("Solver: its name")
    seconds: Number = private("Time: wall clock")
    shed_mw: Number = private("Load shedding: active demand that the relaxation sheds")
    explanation: Text = private("Explanation: limits that bind, as a sentence")


class ZoneOfMap(ZoneOnMap, name="zones"):
    """One zone of a map."""

    load_mw: Number = like(ZoneRow, "load_mw")


class ZonesDocument(Row, name="zones"):
    """A zone map."""

    case: Text = key("Case: name or path that was given")
    buses: Number = known("Buses: number of buses")
    source: Text = known("Source: file of the map, or partition method")
    tie_lines: Number = known("Tie lines: branches between zones")
    zones: list[ZoneOfMap] = part(ZoneOfMap)


class AccountDocument(Row, name="account"):
    """The total privacy loss of a number of releases."""

    mechanism: Text = key("Mechanism: laplace, gaussian, knorm or staircase")
    calibration: Text = known("Calibration: analytic or classical, of Gaussian noise")
    releases: Number = known("Releases: number of releases")
    noise_multiplier: Number = known("Noise multiplier: noise scale over the sensitivity")
    per_release: PerRelease = part(PerRelease)
    total_pure: Number = known("Pure total epsilon: by basic composition; null without one")
    total: TotalEpsilon = part(TotalEpsilon)
    published_total: Number = known("The paper's total: Ryu and Kim's theorem 4.6")


PRINTED: dict[str, type[Row]] = {
    "acopf --json": AcOptimumDocument,
    "relax --json": RelaxationDocument,
    "zones --json": ZonesDocument,
    "account --json": AccountDocument,
    "cases --json": CasesDocument,
} | {name: printed for name, (_, printed) in DOCUMENTS.items()}
"""The documents by the command that prints them, without ``gridpriv``."""


def json_schemas() -> dict[str, Json]:
    """Return the schema of every document by its file name, as JSON values."""
    schemas = {}
    for name, row in PRINTED.items():
        stem = name.removesuffix(" --json").removesuffix(".json")
        stem = stem.replace(" --", "-").replace(" ", "-")
        title = {"$schema": DRAFT, "title": f"gridpriv {name}", "description": row.table.row}
        schemas[f"{stem}.schema.json"] = title | _object(row.table)
    return schemas


def write_json_schemas(folder: Path) -> None:
    """Write a JSON schema file per document."""
    make_folder(folder)
    for name, schema in json_schemas().items():
        text = json.dumps(schema, indent=1, ensure_ascii=False)
        write_text(folder / name, f"{text}\n", private=False)


def _object(table: TableSchema) -> Json:
    """Return the schema of one row."""
    properties = {name: _entry(entry) for name, entry in table.entries.items()}
    return {"type": "object", "properties": properties}


def _entry(entry: Column | TableSchema) -> Json:
    """Return the schema of a value, or of a part: a row, a list of rows, or null."""
    if isinstance(entry, TableSchema):
        row = _object(entry)
        return {"anyOf": [row, {"type": "array", "items": row}, {"type": "null"}]}
    schema: dict[str, Any] = {"title": entry.title, "description": entry.meaning}
    schema |= {"type": TYPES[entry.dtype]} if entry.dtype in TYPES else {}
    schema |= {"unit": entry.unit} if entry.unit else {}
    return schema | {"visibility": entry.visibility, "origin": entry.origin}

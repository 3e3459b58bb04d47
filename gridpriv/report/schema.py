"""Every table and document that gridpriv stores, prints or exports, in one place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gridpriv.assurance import schema as assurance
from gridpriv.core.document import Json
from gridpriv.core.tables import Column, Schema, TableSchema
from gridpriv.grid.conversion_schema import CONVERSION
from gridpriv.learning import schema as learning
from gridpriv.privacy.schema import RATIO
from gridpriv.study import schema as study
from gridpriv.study.publish import RUNS, STORED
from gridpriv.zonal import schema as zonal
from gridpriv.zonal.certificate_schema import CERTIFICATE
from gridpriv.zonal.documents import (
    EXCHANGE_DOCUMENT,
    RUN_DOCUMENT,
    SECURITY_DOCUMENT,
    SERIES_DOCUMENT,
)

CERTIFIED = frozenset({"epsilon_certified", "certified", "total_pure", "total_epsilon", "total"})
"""Columns that state what noise certifies: of simulated noise their headers say so."""

MARK = "simulated noise"


def marked(column: Column) -> Column:
    """Return a column whose header says, of a certificate, that its noise is simulated."""
    if column.name not in CERTIFIED or column.unit:  # times have one
        return column
    return replace(column, title=f"{column.title}, {MARK}")


PANEL = Column("panel", "settings", "Case", "and what varies beside it")
SERIES = Column("series", "settings", "Method", "and what varies beside it")
BUDGET = Column("budget_shown", "settings", "Budget", "in words")
WAY = (PANEL, SERIES, BUDGET)


def with_interval(mean: Column) -> tuple[Column, ...]:
    """Return a mean and the ends of its 95 % interval."""
    ends = (("low", "95 % from"), ("high", "95 % to"))
    return mean, *(
        replace(
            mean,
            name=f"{mean.name}_{end}",
            title=title,
            meaning=f"of the mean of {mean.title.lower()} (Student's t)",
        )
        for end, title in ends
    )


SUMMARY = TableSchema(
    "summary",
    "one method at one budget: means over seeds",
    WAY,
    (
        RUNS.column("total_epsilon"),
        *with_interval(learning.TEST_ERROR),
        *with_interval(learning.TEST_MSE),
        learning.MEAN_OBJECTIVE,
        learning.DISAGREEMENT,
        *with_interval(
            Column(
                "cost_of_privacy",
                "private",
                "Cost of privacy",
                "cost less that of the cheapest noise-free method on the grid",
                "$/h",
            )
        ),
        *with_interval(zonal.REDISPATCH_SHED),
        Column(
            "ac_feasible_pct", "private", "AC-feasible", "share of AC-feasible runs", "% of runs"
        ),
        zonal.DEVIATION,
        zonal.BALANCING,
        zonal.FULL_COST,
        zonal.IMBALANCE,
        zonal.SHED,
        zonal.OBJECTIVE,
        zonal.RESIDUAL,
        Column("seeds", "releases", "Seeds", "runs that finished"),
        Column("failed", "releases", "Failed", "runs that did not"),
    ),
)
PRIVACY = TableSchema(
    "privacy",
    "one method at one budget: the worst zone or client, the worst seed",
    WAY,
    (
        *study.CERTIFICATE,
        replace(RATIO, name="sensitivity_ratio"),
    ),
)
AC = TableSchema(
    "ac",
    "one method at one budget",
    WAY,
    (
        replace(zonal.AC_CONVERGED, name="ac_converged_pct", unit="% of runs"),
        replace(zonal.AC_SLACK, title="Mean regulation", meaning="of its size, over seeds"),
        replace(zonal.AC_VOLTAGES, title="Most voltage violations", unit="buses"),
        replace(zonal.AC_LOADINGS, title="Most loading violations", unit="branches"),
    ),
)
ZONES = TableSchema(
    "zones",
    "one zone: means over seeds",
    (PANEL, SERIES, zonal.NAME_OF_ZONE),
    tuple(
        zonal.ZONES.column(name)
        for name in ("buses", "tie_lines", "generators", "load_mw", "variables", "shared")
    ),
)
FAILED = TableSchema(
    "failed",
    "runs that failed or did not settle, alike ones together",
    (study.CASE, RUNS.column("method"), BUDGET, RUNS.column("status")),
    (
        Column("count", "releases", "Runs", "how many"),
        RUNS.column("finished_rounds"),
        replace(RUNS.column("reason"), title="Reason (of the first)"),
    ),
)
OUTCOME = TableSchema(
    "outcome",
    "one figure of a run",
    (Column("result", "settings", "Result", "in words"),),
    (
        Column("value", "releases", "Value", "of one that may be seen"),
        Column("unit", "settings", "Unit", "of the value", dtype="text"),
    ),
)
PLAN = TableSchema(
    "plan",
    "one method that gridpriv plan tried on sampled demand scenarios",
    (
        Column("release", "settings", "Release", "of demand"),
        Column("mechanism", "settings", "Noise", "its mechanism", dtype="text"),
        Column("rounds", "settings", "Rounds", "their number, or central"),
        Column("beta", "settings", "Beta", "change of one bus that is hidden", dtype="text"),
        Column("budget", "settings", "Budget", "of all releases", dtype="text"),
    ),
    (
        Column("error_mw", "settings", "Error", "expected, of a zone's sum", "MW"),
        Column("least", "settings", "Least", "over the AC optimum, of all scenarios", "$/h"),
        Column("median", "settings", "Median", "over the AC optimum, of the scenarios", "$/h"),
        Column("most", "settings", "Most", "over the AC optimum, of all scenarios", "$/h"),
    ),
)
PROVENANCE = TableSchema(
    "provenance",
    "versions and machine of a study",
    (Column("what", "settings", "What", "of the manifest"),),
    (Column("value", "settings", "Value", "in words"),),
)
SETTINGS = TableSchema(
    "settings",
    "one setting",
    (
        Column("where", "settings", "Where", "all runs, an axis, or one method"),
        Column("setting", "settings", "Setting", "by name"),
    ),
    (Column("value", "settings", "Value", "as given"),),
)
DERIVED = (SUMMARY, OUTCOME, PRIVACY, AC, ZONES, FAILED, PLAN, PROVENANCE, SETTINGS)
DOCUMENTS: dict[str, tuple[str, Schema]] = {
    "run --json": ("a run, as run.json in its folder", RUN_DOCUMENT),
    "publish --json": ("a published case, as FILE.certificate.json", CERTIFICATE),
    "security --json": ("a contingency analysis", SECURITY_DOCUMENT),
    "exchange --json": ("exchange between the zones of a run", EXCHANGE_DOCUMENT),
    "convert --json": ("a conversion of a case file", CONVERSION),
    "run --series --json": ("a series, as horizon.json in its folder", SERIES_DOCUMENT),
    "learn run --json": ("a learning run, as run.json in its folder", learning.LEARN_DOCUMENT),
    "manifest.json": ("a study", study.MANIFEST),
}


def told() -> dict[str, Json]:
    """Return every table and document by name, with its columns, as JSON can hold them."""
    tables: list[tuple[str, str, Schema]] = [(name, t.row, t) for name, t in STORED.items()]
    tables += [(t.name, t.row, t) for t in assurance.TABLES]
    tables += [(f"report: {t.name}", t.row, t) for t in DERIVED]
    tables += [(name, row, schema) for name, (row, schema) in DOCUMENTS.items()]
    return {
        name: {"name": name, "row": row, "columns": [_told(*pair) for pair in _columns(schema)]}
        for name, row, schema in tables
    }


def _columns(schema: Schema, place: str = "") -> Iterator[tuple[str, Column]]:
    if isinstance(schema, Column):
        yield place, schema
        return
    parts = {c.name: c for c in schema.columns} if isinstance(schema, TableSchema) else schema
    for name, part in parts.items():
        yield from _columns(part, f"{place}.{name}" if place else name)


def _told(name: str, column: Column) -> dict[str, str]:
    return {
        "name": name,
        "title": column.title,
        "unit": column.unit,
        "meaning": column.meaning,
        "origin": column.origin,
        "visibility": column.visibility,
    }

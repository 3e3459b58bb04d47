"""JSON schemas (draft 2020-12) of the documents that ``--json`` prints.

They follow from the typed rows that declare the figures. A figure that does not apply is null, so
every type allows null. Beside JSON Schema's own keywords stand ``unit``, ``visibility`` (public or
local) and ``origin`` (settings, releases or private).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gridpriv.core.files import make_folder, write_text
from gridpriv.core.tables import Column, Flag, Number, Row, TableSchema, Text, key, known, part
from gridpriv.core.tables import private as local
from gridpriv.core.text import Json
from gridpriv.privacy.statement import TotalEpsilon
from gridpriv.report.schema import DOCUMENTS
from gridpriv.zonal.documents import Violation

DRAFT = "https://json-schema.org/draft/2020-12/schema"
TYPES = {"number": ["number", "null"], "text": ["string", "null"], "flag": ["boolean", "null"]}


class AcOptimumDocument(Row, name="acopf"):
    """The AC optimum of the whole grid."""

    case: Text = key("Case: name or path that was given")
    objective: Text = known("Objective: cost, shed or losses")
    cost: Number = local("Cost: of generation and shed load; null where the case has none", "$/h")
    generation_cost: Number = local("Generation cost: cost of generation", "$/h")
    shed_mw: Number = local("Load shedding: active demand that is not served", "MW")
    deenergized_mw: Number = local("De-energized: demand on islands without generation", "MW")
    curtailed_mw: Number = local("Curtailed generation: generation that cannot be used", "MW")
    losses_mw: Number = local("Losses: active power losses of branches", "MW")
    status: Text = local("Status: of the solver")
    violations: list[Violation] = part(Violation)
    iterations: Number = local("Iterations: of the solver")
    seconds: Number = local("Time: wall clock", "s")


class RelaxationDocument(Row, name="relax"):
    """The centralized relaxation of a grid."""

    case: Text = key("Case: name or path that was given")
    objective: Text = known("Objective: imbalance or cost")
    bound: Number = local("Bound: lower bound of the objective, in ``unit``")
    unit: Text = known("Unit: of the bound")
    relative_error: Number = local("Relative error: of the bound")
    status: Text = local("Status: of the solver")
    solver: Text = known("Solver: its name")
    seconds: Number = local("Time: wall clock", "s")
    shed_mw: Number = local("Load shedding: active demand that the relaxation sheds", "MW")
    explanation: Text = local("Explanation: limits that bind, as a sentence")


class ZoneOfMap(Row, name="zones"):
    """One zone of a map."""

    zone: Text = key("Zone: name of the zone")
    buses: Number = known("Buses: number of buses")
    share_of_mean: Number = known("Share of mean: buses over those of a zone on average")
    tie_lines: Number = known("Tie lines: branches to other zones")
    generators: Number = known("Generators: number of generators")
    load_mw: Number = local("Load: active demand", "MW")
    capacity_mw: Number = known("Capacity: largest active output", "MW")
    connected: Flag = known("Connected: its branches join all of its buses")


class ZonesDocument(Row, name="zones"):
    """A zone map."""

    case: Text = key("Case: name or path that was given")
    buses: Number = known("Buses: number of buses")
    source: Text = known("Source: file of the map, or partition method")
    tie_lines: Number = known("Tie lines: branches between zones")
    zones: list[ZoneOfMap] = part(ZoneOfMap)


class AccountedRelease(Row):
    """Epsilon of one release."""

    nominal: Number = known("Nominal: epsilon by the settings")
    certified: Number = known("Certified: epsilon by the proven sensitivity")
    delta: Number = known("Delta: of both")


class AccountDocument(Row, name="account"):
    """The total privacy loss of a number of releases."""

    mechanism: Text = key("Mechanism: laplace, gaussian, knorm or staircase")
    sensitivity: Text = known("Sensitivity: proven or published")
    releases: Number = known("Releases: number of releases")
    noise_multiplier: Number = known("Noise multiplier: noise scale over the sensitivity")
    per_release: AccountedRelease = part(AccountedRelease)
    total_pure: Number = known("Pure total epsilon: by basic composition; null without one")
    total: TotalEpsilon = part(TotalEpsilon)
    published_total: Number = known("The paper's total: Ryu and Kim's theorem 4.6")


class ReadField(Row, name="fields"):
    """One field of a case file."""

    field: Text = key("Field: table or column of the source")
    status: Text = known("Status: read, ignored or unsupported")
    count: Number = known("Count: number of rows")
    note: Text = known("Note: what becomes of it")
    left_out: Flag = known("Left out: the model lacks part of what the source holds")


class CasesDocument(Row, name="cases"):
    """A case file: its size, and an account of its fields."""

    case: Text = key("Case: name or path that was given")
    buses: Number = known("Buses: in service")
    branches: Number = known("Branches: in service")
    generators: Number = known("Generators: in service")
    load_mw: Number = local("Load: sum of active demand", "MW")
    source: Text = known("Source: file name")
    format: Text = known("Format: of the file")
    fields: list[ReadField] = part(ReadField)


PRINTED: dict[str, type[Row]] = {
    "acopf --json": AcOptimumDocument,
    "relax --json": RelaxationDocument,
    "zones --json": ZonesDocument,
    "account --json": AccountDocument,
    "cases --json": CasesDocument,
} | {name: row for name, (_, row) in DOCUMENTS.items()}
"""The documents by the command that prints them, without ``gridpriv``."""


def json_schemas() -> dict[str, Json]:
    """Return the schema of every document by its file name, as JSON can hold it."""
    entries = {}
    for name, row in PRINTED.items():
        stem = name.removesuffix(" --json").removesuffix(".json")
        stem = stem.replace(" --", "-").replace(" ", "-")
        title = {"$schema": DRAFT, "title": f"gridpriv {name}", "description": row.table.row}
        entries[f"{stem}.schema.json"] = title | _object(row.table)
    return entries


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
    """Return the schema of a figure, or of a part: a row, a list of rows, or null."""
    if isinstance(entry, TableSchema):
        row = _object(entry)
        return {"anyOf": [row, {"type": "array", "items": row}, {"type": "null"}]}
    entries: dict[str, Any] = {"title": entry.title, "description": entry.meaning}
    entries |= {"type": TYPES[entry.dtype]} if entry.dtype in TYPES else {}
    entries |= {"unit": entry.unit} if entry.unit else {}
    return entries | {"visibility": entry.visibility, "origin": entry.origin}

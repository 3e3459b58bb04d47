"""Read a folder of the store for a report, and refuse tables that do not fit together.

The store's checksums find damage. Who writes tables of his own and makes the checksums anew can
put texts in the place of numbers, or name a bus that is not there: tables are data, so that is bad
input, and said to be. What a report cannot be made of for another reason is a defect.

A report also holds results of a plan, an audit or an attack of the same grid. Each command writes a
document (``plan.json``, ``audit.json``, ``attack.json``); a report takes it from its own folder or
from one of its name in it (``plan/``).

Messages of a study have codes; those of a run are in :mod:`gridpriv.zonal.messages`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gridpriv.assurance import Attack, Audit
from gridpriv.core.errors import InputError
from gridpriv.core.files import read_sealed
from gridpriv.core.settings import names
from gridpriv.core.store import Study, read_study
from gridpriv.core.tables import Dtype, TableSchema, publish
from gridpriv.core.text import Json, Message, amount, clean, make_message, read_templates
from gridpriv.privacy.settings import NOTHING, Privacy
from gridpriv.report.schema import PlannedMethod
from gridpriv.study.record import STORED, WITHHELD, publish_study
from gridpriv.study.rows import Manifest
from gridpriv.study.run_folder import RUN, SERIES, run_document
from gridpriv.zonal.documents import RunDocument
from gridpriv.zonal.settings import Adjacency

SCHEMAS = {"plan": PlannedMethod.table, "audit": Audit.table, "attack": Attack.table}
CAPTIONS = {
    "plan": "Expected, on sampled demand scenarios",
    "audit": "Epsilon, stated and measured",
    "attack": "Demand read from messages",
}
CENTRAL = "central"
ENDS = ("least", "median", "most")
NOISE = {*names(Privacy), *names(Adjacency), "noise_schedule"} - {"perturbation"}
"""Settings that a run reads for its noise only."""
IN_OTHER_WORDS = {"seed", "workers", "zoning", "coordination"}
"""Settings that change no expectation, or that a plan states by its zone map and rounds."""
NOWHERE = dict.fromkeys(ENDS, math.nan)
"""Of a case without costs."""


def read_findings(folder: Path) -> dict[str, pd.DataFrame]:
    """Return the tables (:data:`SCHEMAS`) of what a folder holds of such results.

    Raises
    ------
    InputError
        For a file that no such command wrote, or that was changed since.
    """
    rows_of = {"plan": _plan_rows, "audit": _audit_rows, "attack": _attack_rows}
    entries = {}
    for name, rows in rows_of.items():
        for place in (folder / f"{name}.json", folder / name / f"{name}.json"):
            if place.is_file():
                try:
                    entries[name] = table = rows(read_sealed(place))
                    if any(pd.api.types.is_list_like(cell) for cell in table.to_numpy().flat):
                        raise ValueError("a cell that holds a list")
                except (ValueError, KeyError, TypeError) as error:
                    raise InputError(
                        f"{place} is no result of 'gridpriv {name}'"
                        ": give the folder that the command wrote"
                    ) from error
                break
    return entries


def measured(plan: pd.DataFrame, run: Json, digest: str) -> list[Message]:
    """Return the optimality gap of a run beside the plan's expectation of its method.

    ``digest`` is that of the run's zone map.
    """
    over = (run["final"].get("cost_of_privacy") or {}).get("optimality_gap")
    if over is None:
        return []
    gap = {"gap": amount(over, "$/h")}
    method = _method_of(run) | {"map_sha256": digest}
    alike = plan[[all(row.get(k) == v for k, v in method.items()) for _, row in plan.iterrows()]]
    if alike.empty or alike["median"].isna().all():
        return [message("plan-measured-other", gap)]
    ends = {end: amount(alike[end].iloc[0], "$/h") for end in ENDS}
    return [message("plan-measured", gap | ends)]


def _method_of(run: Json) -> Json:
    """Return a run's method in a plan's words; of one that releases nothing without its noise."""
    settings = run["settings"]
    difference = IN_OTHER_WORDS | (NOISE if settings["release"] == NOTHING else set())
    central = settings["coordination"] == CENTRAL
    rounds = {"rounds": CENTRAL if central else str(settings["rounds"])}
    stated = {name: str(value) for name, value in settings.items() if name not in difference}
    return {"case": run["case"]} | stated | rounds


def _plan_rows(document: Json) -> pd.DataFrame:
    grid = {"case": str(document["case"]), "map_sha256": str(document.get("map_sha256"))}
    grid |= {name: str(value) for name, value in document.get("settings", {}).items()}
    return pd.DataFrame(
        [
            grid
            | {name: str(method[name]) for name in ("release", "mechanism", "rounds")}
            | {"interchange_error_mw": float(method["interchange_error_mw"])}
            | {end: float((method["over_optimum"] or NOWHERE)[end]) for end in ENDS}
            for method in document["methods"]
        ]
    )


def _audit_rows(document: Json) -> pd.DataFrame:
    shown = ("perturbation", "mechanism", "update")
    return pd.DataFrame(
        [
            row | {"configuration": " ".join(str(item["settings"][n]) for n in shown)}
            for item in document.get("audits", [document])
            for row in item["statistical"]
        ]
    )


def _attack_rows(document: Json) -> pd.DataFrame:
    table = pd.DataFrame(document["summary"])
    table["recovered_pct"] = 100.0 * table["recovered"]
    table["of_prior_pct"] = 100.0 * table["of_prior"]
    return table


TEMPLATES = read_templates(Path(__file__).with_name("messages.txt"))
message = partial(make_message, TEMPLATES)

DOCUMENTS = (RunDocument.table, Manifest.table)
LARGEST = 1e100
"""No finite figure of a grid, a budget or a clock is larger."""
STATUSES = ("done", "failed", WITHHELD)
LISTED = {"case": "case", "zone": "zone"} | dict.fromkeys(
    ("bus", "from", "to", "from_bus", "to_bus"), "bus"
)
"""Columns whose entries a column of the network's buses lists."""


def read_source(folder: str | Path, *, public: bool = False) -> Study:
    """Return the tables of a folder, each text on one line and without control characters.

    Parameters
    ----------
    public : bool
        Leave out every figure that is computed from private demand or noise.
    """
    study = read_study(folder)
    check_tables(study)
    document = run_document(study.folder) if study.manifest.get("kind") == RUN else None
    if public:
        protected = document is not None and document["settings"]["mechanism"] != "none"
        document = document and publish(document, RunDocument.table, protected=protected)
        study = publish_study(study)
    else:
        findings = read_findings(Path(folder))
        study = Study(study.folder, study.manifest, study.tables | findings)
    tables = {name: table.map(_clean) for name, table in study.tables.items()}
    manifest = _clean(study.manifest | {"document": document})
    return Study(study.folder, manifest, tables)


def means_over(study: Study) -> str:
    """Return the word for the sample of a mean: seeds or steps."""
    return "steps" if study.manifest.get("kind") == SERIES else "seeds"


def step_rows(study: Study) -> list[Json]:
    """Return the steps of a series; None for what is not known of one."""
    steps = study.tables.get("steps", pd.DataFrame())
    rows: list[Json] = steps.replace({np.nan: None}).to_dict("records")
    return rows


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    return value


def check_tables(study: Study) -> None:
    """Refuse tables that gridpriv does not write.

    Raises
    ------
    InputError
        Naming the table and the column.
    """
    for name, table in study.tables.items():
        schema = STORED.get(name)
        if schema is not None and len(table):
            _check_columns(name, table, schema)
    _check_references(study.tables)


@contextmanager
def fitting(folder: Path) -> Iterator[None]:
    """Refuse a folder of which no report can be made, for what its tables or documents hold.

    A key that no table, document or manifest declares is missing by our own fault: a defect.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, KeyError) and not _declared(str(error)):
            raise
        said = " ".join(str(error).split())[:80]
        raise InputError(
            f"{folder} cannot be reported: its tables do not fit together "
            f"({type(error).__name__}: {said}). If nobody changed them, gridpriv is at fault: "
            "please report it"
        ) from error


def _declared(said: str) -> bool:
    """Return True if a name quoted in a text is declared of a table, document or manifest."""
    schemas = (*STORED.values(), *SCHEMAS.values(), *DOCUMENTS)
    declared = {"run", "step"}.union(*map(_names, schemas))
    return not declared.isdisjoint(re.findall(r"'(\w+)'", said))


def _names(schema: TableSchema) -> set[str]:
    """Return the names of a table's or a document's entries, of nested ones too."""
    return set(schema.entries).union(*map(_names, schema.nested.values()))


def _check_columns(name: str, table: pd.DataFrame, schema: TableSchema) -> None:
    keys = {column.name for column in schema.keys} | {"run", "status", "step"}
    declared = {column.name: column.dtype for column in schema.columns}
    for column in table:
        cells = table[column].dropna()
        if column in keys - {"seed"} and len(cells) < len(table):
            raise _misfit(name, column, "a row has none")
        kind = "text" if column in ("run", "step") else declared.get(column, "any")
        if len(cells) and not FITS[kind](cells):
            raise _misfit(name, column, f"not {WORDS[kind]}")


def _flags(cells: pd.Series) -> bool:
    return bool(cells.map(lambda cell: isinstance(cell, bool | np.bool_)).all())


def _numbers(cells: pd.Series) -> bool:
    numeric = pd.api.types.is_numeric_dtype(cells) and not _flags(cells)
    return numeric and not cells[np.isfinite(cells)].abs().gt(LARGEST).any()


FITS: dict[Dtype, Callable[[pd.Series], bool]] = {
    "text": lambda cells: bool(cells.map(lambda cell: isinstance(cell, str)).all()),
    "flag": _flags,
    "number": _numbers,
    "any": lambda _: True,
}
WORDS = {"text": "texts", "flag": "true or false", "number": f"numbers up to {LARGEST:g}"}


def _check_references(tables: dict[str, pd.DataFrame]) -> None:
    """Refuse a run, zone or bus that one table names and the one that lists them does not."""
    runs, places = tables["runs"], tables["network_buses"]
    if not ({"run", "status"} <= set(runs) and runs["run"].is_unique):
        raise _misfit("runs", "run", "a run without an identity of its own, or without status")
    if not runs["status"].isin(STATUSES).all():
        raise _misfit("runs", "status", f"not one of {', '.join(STATUSES)}")
    for name, table in tables.items():
        for column in set(LISTED) & set(table) if len(places) else ():
            if not table[column].isin(places.get(LISTED[column], ())).all():
                raise _misfit(name, column, f"not in network_buses.{LISTED[column]}")


def _misfit(table: str, column: str, what: str) -> InputError:
    return InputError(
        f"the folder cannot be reported: its tables do not fit together ({table}.{column}: {what})"
        "; use an undamaged copy of the folder"
    )

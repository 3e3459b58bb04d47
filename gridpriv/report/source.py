"""Read a folder of the store for a report, and refuse tables that do not fit together.

The store's checksums find damage. Who writes tables of his own and makes the checksums anew can
put texts in the place of numbers, or name a bus that is not there: tables are data, so that is bad
input, and said to be. What a report cannot be made of for another reason is a defect.

Messages of a study have codes; those of a run are in :mod:`gridpriv.zonal.messages`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gridpriv.core.errors import InputError
from gridpriv.core.store import Study, read_study
from gridpriv.core.tables import Dtype, TableSchema, publish
from gridpriv.core.text import Json, clean, make_message, read_templates
from gridpriv.study.record import STORED, WITHHELD, publish_study
from gridpriv.study.rows import Manifest
from gridpriv.study.run_folder import RUN, SERIES, run_document
from gridpriv.zonal.documents import RunDocument

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
    schemas = (*STORED.values(), *DOCUMENTS)
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

"""Read a folder of the store (:mod:`gridpriv.core.store` writes it)."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gridpriv.core.errors import InputError
from gridpriv.core.files import is_left, names_in, read_bytes, read_parquet
from gridpriv.core.lazy import Above
from gridpriv.core.sealed import DamagedError, read_json, read_sealed
from gridpriv.core.text import Json, html_table

if TYPE_CHECKING:
    import pandas as pd

FORMAT = 5
MANIFEST = "manifest.json"
PARTS, COMMON = "parts", "common"
TABLES = ("runs", "rounds", "zones", "buses", "statements", "charges", "timing")
NETWORK_TABLES = ("network_buses", "network_branches")
SHOWN = (
    "case",
    "method",
    "budget",
    "seed",
    "total_epsilon",
    "redispatch_shed_mw",
    "test_error_pct",
    "status",
    "reason",
)
ROWS_SHOWN = 20
TABLE_NAME = re.compile(r"[a-z][a-z0-9_]{0,60}")

Rows = dict[str, list[Json]]


@dataclass(frozen=True, eq=False, repr=False)
class Study:
    """The tables and the manifest of a folder.

    Attributes
    ----------
    folder : Path
    manifest : dict
    tables : dict of str to DataFrame
        ``runs``, ``rounds``, ``zones``, ``buses``, ``statements``, ``timing`` and, for drawing,
        ``network_buses`` and ``network_branches``; ``claims`` in a reproduction.
    """

    folder: Path
    manifest: Json
    tables: dict[str, pd.DataFrame]

    plot = Above("gridpriv.report.plots", "StudyPlots")
    table = Above("gridpriv.report.tables", "Pivots")

    def __repr__(self) -> str:
        failed = f", {len(self.failed)} failed" if len(self.failed) else ""
        title = self.manifest.get("title", "untitled")
        return f"Study({str(self.folder)!r}: {title}, {len(self.runs)} runs{failed})"

    def _repr_html_(self) -> str:
        columns = [name for name in SHOWN if name in self.runs]
        rows = self.runs[columns].head(ROWS_SHOWN).values.tolist()
        return html_table((repr(self)[len("Study(") : -1], columns, rows))

    @property
    def runs(self) -> pd.DataFrame:
        """One row per run: identity, settings, finals, privacy, status."""
        return self.tables["runs"]

    @property
    def rounds(self) -> pd.DataFrame:
        """One row per run and round."""
        return self.tables["rounds"]

    @cached_property
    def done(self) -> pd.DataFrame:
        """Rows of the runs that finished."""
        return self.runs[self.runs["status"] == "done"]

    @cached_property
    def failed(self) -> pd.DataFrame:
        """Rows of the runs that did not."""
        return self.runs[self.runs["status"] == "failed"]

    @cached_property
    def withheld(self) -> pd.DataFrame:
        """Rows of published runs without noise: settings only."""
        return self.runs[self.runs["status"] == "withheld"]

    @property
    def public(self) -> bool:
        """True if figures computed from private demand were left out."""
        return bool(self.manifest.get("public", False))


@dataclass(frozen=True)
class StoredRun:
    """One stored run, before the tables are made: identity, place in the tables, rows."""

    run: str
    number: int
    rows: Rows


def read_study(folder: str | Path) -> Study:
    """Return the study in a folder, also an unfinished one.

    Parameters
    ----------
    folder : path
        Of a study.

    Returns
    -------
    Study

    Raises
    ------
    InputError
        If it holds no study, one of another format, or one that is damaged.
    """
    place = Path(folder)
    manifest = read_manifest(place)
    entries: Json = {}
    if not manifest["finished"]:
        entries = unfinished_tables(place)
        manifest = read_manifest(place)  # it may have been finished while the parts were read
    if manifest["finished"]:
        entries = tables_in(place, manifest)
    return study_of(place, manifest, entries)


def study_of(folder: Path, manifest: Json, result: Json) -> Study:
    """Return the study of a manifest and Arrow tables."""
    import pandas as pd

    no_run = {column: pd.Series(dtype=str) for column in ("run", "status")}
    tables = {name: pd.DataFrame(no_run) for name in TABLES}
    tables |= {name: pd.DataFrame() for name in (*NETWORK_TABLES, "claims")}
    return Study(folder, manifest, tables | {k: table.to_pandas() for k, table in result.items()})


def read_manifest(folder: Path) -> Json:
    """Return the manifest of a folder.

    Raises
    ------
    InputError
        If there is none, if it is damaged, or of another format.
    """
    path = folder / MANIFEST
    try:
        written = read_json(path).get("format")
        if written == FORMAT:
            return read_sealed(path)
    except FileNotFoundError:
        raise InputError(
            f"{folder} holds no results: there is no {path}"
            "; give the folder of gridpriv compare or run --out"
        ) from None
    if isinstance(written, int):
        raise InputError(
            f"{folder} was written in format {written}; this version reads {FORMAT}"
            ": run the study again, or use that version"
        )
    raise InputError(
        f"{path} is not the manifest of a study: give the folder of gridpriv compare or run --out"
    )


def part_files(folder: Path) -> list[Path]:
    """Return the files of an unfinished folder's parts."""
    return [path for path in names_in(folder / PARTS) if not is_left(path)]


def parts_in(folder: Path) -> list[StoredRun]:
    """Return the parts of an unfinished folder; refuse a damaged one."""
    matches = []
    for path in part_files(folder):
        try:
            matches.append(read_part(path))
        except FileNotFoundError:  # the study was finished meanwhile
            continue
        except DamagedError as error:
            raise InputError(
                f"{error}. The command that began the study, with --resume, makes it again"
            ) from error
    return matches


def rows_in(folder: Path) -> Rows:
    """Return the rows of every table of an unfinished folder, in the order of its runs."""
    rows: Rows = {}
    for part in sorted(parts_in(folder), key=lambda part: part.number):
        for name, more in part.rows.items():
            rows.setdefault(name, []).extend(more)
    return rows


def unfinished_tables(folder: Path) -> Json:
    """Return the Arrow tables that the parts of an unfinished folder make."""
    return {name: as_table(rows) for name, rows in rows_in(folder).items() if rows}


def read_part(path: Path) -> StoredRun:
    """Return a part; raises :class:`DamagedError` for what is none."""
    sealed = read_sealed(path)
    run, number, rows = (sealed.get(key) for key in ("run", "number", "rows"))
    if not (isinstance(run, str) and isinstance(number, int) and isinstance(rows, dict)):
        raise DamagedError(f"{path} is damaged: it is no part of a store")
    if not re.fullmatch(rf"{re.escape(run)}(-[0-9]+)?", path.stem):
        raise DamagedError(f"{path} is damaged: it is the part of {run}")
    return StoredRun(run, number, rows)


def tables_in(folder: Path, manifest: Json) -> Json:
    """Return the Arrow tables of a finished folder."""
    entries = {}
    for name, digest in _table_digests(folder, manifest).items():
        path = folder / f"{name}.parquet"
        try:
            content = read_bytes(path)
        except FileNotFoundError:
            raise InputError(f"{path} is missing: the study was finished with it") from None
        if hashlib.sha256(content).hexdigest() != digest:
            raise InputError(
                f"{path} is damaged or was edited: it is not what the study was finished with"
                "; use an undamaged copy, or --resume in a new folder"
            )
        entries[name] = read_parquet(path, content)
    return entries


def _table_digests(folder: Path, manifest: Json) -> dict[str, str]:
    """Return the SHA-256 of every table's file; refuse names that are no table's."""
    tables = manifest.get("tables")
    digests = {}
    for name, entry in tables.items() if isinstance(tables, dict) else [("tables", tables)]:
        digest = entry.get("sha256") if isinstance(entry, dict) else None
        if not TABLE_NAME.fullmatch(name) or not isinstance(digest, str):
            raise InputError(
                f"{folder / MANIFEST} is damaged or was edited: its entry of table {name[:100]!r} "
                "is not a name of small letters with a sha256"
            )
        digests[name] = digest
    return digests


def as_table(rows: list[Json]) -> Any:
    """Return rows as an Arrow table: every column that any of them has; gaps are null."""
    import pyarrow as pa

    columns = dict.fromkeys(name for row in rows for name in row)
    return pa.table({name: _column([row.get(name) for row in rows]) for name in columns})


def _column(values: list[Any]) -> Any:
    import pyarrow as pa

    try:
        return pa.array(values)
    except (OverflowError, pa.ArrowTypeError):  # numbers beyond 64 bits, some of them text already
        return pa.array([None if value is None else str(value) for value in values])

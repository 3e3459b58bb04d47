"""A study's folder: Parquet tables, a manifest, and one part per run until they are merged.

While a study runs, each finished run is one file in ``parts/``, written beside and renamed. At
the end (or when it is interrupted) the parts are merged into one Parquet file per table and
removed. ``runs.parquet`` is replaced last: a run counts as merged once it stands there, and
rows of other tables that belong to no such run are ignored, so a crash at any point loses and
doubles nothing.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gridpriv.core.errors import GridprivError, InputError
from gridpriv.study.record import TABLES, Rows

FORMAT = 1
MANIFEST = "manifest.json"
NETWORK_TABLES = ("network_buses", "network_branches")


class StorageError(GridprivError):
    """A folder that cannot be written to; what was stored before stays."""

    exit_code = 3


@dataclass(frozen=True, eq=False)
class Study:
    """The tables of a study (or of one run), as stored.

    Attributes
    ----------
    folder : Path
    manifest : dict
    tables : dict of str to DataFrame
        ``runs``, ``rounds``, ``zones``, ``buses``, ``statements``, ``timing`` and, for drawing,
        ``network_buses`` and ``network_branches``; ``claims`` in a reproduction.
    """

    folder: Path
    manifest: dict[str, Any]
    tables: dict[str, pd.DataFrame]

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
        """Rows of runs of which only settings are told: published, and without noise."""
        return self.runs[self.runs["status"] == "withheld"]

    @property
    def public(self) -> bool:
        """Whether figures computed from private demand were left out."""
        return bool(self.manifest.get("public", False))


class Store:
    """Writes a study's folder.

    Parameters
    ----------
    folder : Path
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parts = folder / "parts"

    def exists(self) -> bool:
        """Return whether the folder holds a study."""
        return (self.folder / MANIFEST).is_file()

    def refuse_other(self, manifest: dict[str, Any], resume: bool) -> None:
        """Raise :class:`InputError` if writing here would mix two studies.

        A manifest is the same study if plan, cases, zone maps and version are.
        """
        if not self.exists():
            strangers = [p.name for p in _entries(self.folder) if p.name != "parts"]
            if strangers:
                raise InputError(
                    f"out = {str(self.folder)!r} is not allowed: it holds other files "
                    f"({', '.join(sorted(strangers)[:3])}); name an empty or a new folder"
                )
            return
        held = read_manifest(self.folder)
        for key in ("study", "cases", "version"):
            if held.get(key) != manifest[key]:
                raise InputError(
                    f"out = {str(self.folder)!r} is not allowed: it holds another study "
                    f"({held.get('title', 'untitled')!r}; {_difference(key, held, manifest)}); "
                    "name another folder"
                )
        if not resume:
            stored = len(self.stored())
            raise InputError(
                f"out = {str(self.folder)!r} already holds {stored} of the {held['planned']} runs "
                "of this study: add --resume to run the rest, or name another folder"
            )

    def begin(self, manifest: dict[str, Any], network: dict[str, pd.DataFrame]) -> None:
        """Write the manifest and what figures need of the grids."""
        self.parts.mkdir(parents=True, exist_ok=True)
        if self.exists():
            return
        for name, table in network.items():
            self._table(name, table)
        self._text(self.folder / MANIFEST, json.dumps(manifest, indent=2) + "\n")

    def text(self, name: str, text: str) -> None:
        """Write a file of the folder whole or not at all."""
        self._text(self.folder / name, text)

    def add(self, rows: Rows) -> None:
        """Store one run's rows; safe for several processes at once."""
        run = rows["runs"][0]["run"]
        self._text(self.parts / f"{run}.json", json.dumps(rows, default=_scalar))

    def table(self, name: str, table: pd.DataFrame) -> None:
        """Write a table of the folder whole or not at all."""
        self._table(name, table)

    def forget(self, runs: set[str]) -> None:
        """Drop runs, so that they are run again."""
        tables = self.tables()
        for name in TABLES:
            table = tables[name]
            tables[name] = table[~table["run"].isin(runs)] if len(table) else table
        self._write(tables)

    def stored(self) -> dict[str, str]:
        """Return the status of every stored run by its identity."""
        runs = self.tables(("runs",))["runs"]
        return dict(zip(runs["run"], runs["status"], strict=True)) if len(runs) else {}

    def merge(self) -> None:
        """Move all parts into the Parquet tables."""
        self._write(self.tables())

    def tables(self, names: tuple[str, ...] = TABLES) -> dict[str, pd.DataFrame]:
        """Return the tables, merged and in the plan's order."""
        merged = _read_table(self.folder, "runs")
        known = set(merged["run"]) if len(merged) else set()
        parts = [rows for rows in self._read_parts() if rows["runs"][0]["run"] not in known]
        order = merged[["run", "number"]].values.tolist() if len(merged) else []
        order += [[rows["runs"][0]["run"], rows["runs"][0]["number"]] for rows in parts]
        rank = dict(order)
        return {name: self._joined(name, known, parts, rank) for name in names}

    def _joined(
        self, name: str, known: set[str], parts: list[Rows], rank: dict[str, int]
    ) -> pd.DataFrame:
        old = _read_table(self.folder, name)
        if len(old):
            old = old[old["run"].isin(known)]
        new = pd.DataFrame([row for rows in parts for row in rows[name]])
        pieces = [table for table in (old, new) if len(table)]
        if not pieces:
            return pd.DataFrame({"run": pd.Series(dtype=str)})
        columns = list(dict.fromkeys(c for table in pieces for c in table.columns))
        joined = pd.concat([_plain(table, columns) for table in pieces], ignore_index=True)
        ranks = joined["run"].map(rank)
        return _typed(joined.iloc[np.argsort(ranks.to_numpy(), kind="stable")])

    def _read_parts(self) -> list[Rows]:
        files = sorted(self.parts.glob("*.json"))
        return [json.loads(file.read_text(encoding="utf-8")) for file in files]

    def _write(self, tables: dict[str, pd.DataFrame]) -> None:
        merged = set(tables["runs"]["run"])
        for name in (*(n for n in TABLES if n != "runs"), "runs"):
            self._table(name, tables[name])
        for part in self.parts.glob("*"):
            if part.stem in merged or part.suffix != ".json":
                part.unlink(missing_ok=True)

    def _table(self, name: str, table: pd.DataFrame) -> None:
        self._beside(
            self.folder / f"{name}.parquet", lambda part: table.to_parquet(part, index=False)
        )

    def _text(self, path: Path, text: str) -> None:
        self._beside(path, lambda part: part.write_text(text, encoding="utf-8"))

    def _beside(self, path: Path, write: Callable[[Path], Any]) -> None:
        part = path.with_name(f"{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}.part")
        try:
            write(part)
            part.replace(path)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise StorageError(
                f"cannot write {path}: {error.strerror or error}. What was stored before is kept: "
                "make room, then run the same command with --resume"
            ) from error


def read_study(folder: str | Path) -> Study:
    """Read a study's folder, also of one that is still running or was killed.

    Raises
    ------
    InputError
        If the folder holds no study, or one of a newer format.
    """
    place = Path(folder)
    manifest = read_manifest(place)
    if manifest.get("format", 0) > FORMAT:
        raise InputError(
            f"{place} was written in format {manifest['format']}; this version reads {FORMAT}"
        )
    tables = Store(place).tables()
    for name in (*NETWORK_TABLES, "claims"):
        tables[name] = _read_table(place, name)
    return Study(place, manifest, tables)


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a study's folder."""
    path = folder / MANIFEST
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{folder} holds no study: {path}: {error.strerror}") from error
    except json.JSONDecodeError as error:
        raise InputError(f"{path} is not a manifest: {error}") from error
    return manifest


def _read_table(folder: Path, name: str) -> pd.DataFrame:
    path = folder / f"{name}.parquet"
    if not path.is_file():
        return pd.DataFrame()
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def _plain(table: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """Return the table with all columns as objects and gaps as None."""
    wide = table.reindex(columns=columns).astype(object)
    return wide.where(wide.notna(), None)


def _typed(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with numbers as numbers, whatever mix of gaps a column has."""
    table = table.reset_index(drop=True)
    for column in table.columns:
        kinds = {type(v) for v in table[column] if v is not None}
        if kinds and kinds <= {int, float, np.int64, np.float64}:
            whole = kinds <= {int, np.int64} and table[column].notna().all()
            table[column] = table[column].astype("int64" if whole else "float64")
        elif kinds == {bool} and table[column].notna().all():
            table[column] = table[column].astype(bool)
    return table


def _scalar(value: Any) -> Any:
    """Return numpy scalars as Python's, for JSON."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be stored")


def _entries(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _difference(key: str, held: dict[str, Any], manifest: dict[str, Any]) -> str:
    """Return in words what differs between the study held and the one asked for."""
    if key != "study":
        return {"cases": "other cases or zone maps", "version": "another version"}[key]
    keys = [k for k in manifest[key] if held.get(key, {}).get(k) != manifest[key][k]]
    return f"other {', '.join(keys)}"

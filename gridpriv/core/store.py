"""The one store: a folder with a manifest and Parquet tables, whatever made them.

A study, a series, a run, a comparison of learning algorithms: each is a number of *runs*, and each
run is rows of tables that carry its identity in the column ``run``. A manifest says what the
folder is. It is the first file that is written and the last: until every run is there it says
``finished: false``, and each run is one file in ``parts/``; then the parts become one Parquet
file per table, the manifest is replaced by one that says ``finished: true`` with every table's
checksum, and the parts are removed. Since every file is written whole or not at all, at any
moment exactly one of the two, parts or tables, is what the folder holds, and the manifest says
which. Other files in the folder (reports, CSV copies) are for people and are never read.

One process writes to a folder at a time (:mod:`gridpriv.core.files`); the processes that it
starts add parts.
"""

from __future__ import annotations

import hashlib
import io
import json
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gridpriv.core import files, stored
from gridpriv.core.errors import BudgetError, GridprivWarning, InputError, SolverError, WorkerError
from gridpriv.core.files import held
from gridpriv.core.sealed import DamagedError, sealed
from gridpriv.core.stored import Rows, StoredRun, Study
from gridpriv.core.text import Json

TEXTS = ("study.toml",)  # files for people that are written before the first run
SAME = ("kind", "public", "study", "cases", "version")  # what makes two folders the same study
DIFFERS = {
    "public": "one of the two is published, the other is not",
    "cases": "other cases or zone maps",
    "version": "another version of gridpriv",
}


class Store:
    """A folder that this process holds, or that a worker adds runs to.

    Parameters
    ----------
    public : bool
        Whether its files are for everybody to read.
    """

    def __init__(self, folder: Path, *, public: bool) -> None:
        self.folder, self.public = folder, public
        self._parts = folder / stored.PARTS

    def add(self, rows: Rows) -> None:
        """Store one run's rows; the first of ``runs`` has its ``run`` and ``number``."""
        self._add(rows["runs"][0]["run"], rows["runs"][0]["number"], rows)

    def note(self, name: str, rows: Rows) -> None:
        """Store rows that are no run, under a name with a hyphen; in the place of earlier ones.

        Nothing makes a note again, so a damaged one stops whoever would go on with the folder.
        """
        self._add(name, -1, rows)

    def set_aside(self, name: str) -> None:
        """Keep what is noted under a name as it is, and free the name."""
        path = self._parts / f"{name}.json"
        if path.exists():
            earlier = sum(
                part.name.startswith(f"{name}-") for part in stored.part_files(self.folder)
            )
            with files.storing(f"rename {path}"):
                path.rename(self._parts / f"{name}-{earlier + 1}.json")

    @property
    def begun(self) -> bool:
        """True if anything of a run is stored."""
        return self.manifest["finished"] or any(
            path.stem != stored.COMMON for path in stored.part_files(self.folder)
        )

    def text(self, name: str, text: str) -> None:
        """Write a file for people."""
        files.write_text(self.folder / name, text, private=not self.public)

    def stored(self) -> dict[str, str]:
        """Return the status of every stored run by its identity."""
        if self.manifest["finished"]:
            runs = stored.tables_in(self.folder, self.manifest)["runs"].to_pylist()
        else:
            runs = [row for part in self._whole_parts() for row in part.rows.get("runs", ())]
        return {row["run"]: row.get("status", "done") for row in runs}

    def forget(self, runs: Iterable[str]) -> None:
        """Drop runs, so that they are run again."""
        gone = set(runs)
        if not gone:
            return
        if self.manifest["finished"]:
            self._take_apart()
        for run in gone:
            files.remove(self._parts / f"{run}.json")

    def finish(self, details: Callable[[Study], Json] = lambda _: {}) -> None:
        """Turn the parts into tables; ``details`` returns further entries of the manifest."""
        if self.manifest["finished"]:
            return
        unfinished = stored.unfinished_tables(self.folder)
        tables = {name: self._table(name, table) for name, table in unfinished.items()}
        study = stored.study_of(self.folder, self.manifest, unfinished)
        extra = details(study) | {"finished": True, "tables": tables}
        self._write_manifest(self.manifest | extra)
        files.remove(self._parts)

    def put(self, name: str, rows: list[Json]) -> None:
        """Put a table of no run into a finished folder, in the place of the one there was."""
        tables = {k: v for k, v in self.manifest["tables"].items() if k != name}
        self._write_manifest(self.manifest | {"tables": tables})
        entry = self._table(name, stored.as_table(rows))
        self._write_manifest(self.manifest | {"tables": tables | {name: entry}})

    def leave_nothing(self) -> None:
        """Remove what was begun, where no run is stored: input that no run can have."""
        if self.unfinished and {path.stem for path in stored.part_files(self.folder)} <= {
            stored.COMMON
        }:
            for name in (stored.PARTS, *TEXTS, stored.MANIFEST):
                files.remove(self.folder / name)

    @property
    def unfinished(self) -> bool:
        """True for the folder of an unfinished study."""
        return (self.folder / stored.MANIFEST).exists() and not self.manifest["finished"]

    @property
    def manifest(self) -> Json:
        """Manifest of the folder."""
        return stored.read_manifest(self.folder)

    def begin(self, manifest: Json, common: Callable[[], Rows], resume: bool) -> None:
        """Make the folder that of a study, or see that it is; for who holds it."""
        files.sweep(self.folder)
        if not (self.folder / stored.MANIFEST).exists():
            files.refuse_used(self.folder, allowed=files.LOCK)
            if resume:  # its name may be mistyped
                warnings.warn(
                    f"there was nothing to resume in {self.folder}: it is begun",
                    GridprivWarning,
                    stacklevel=4,
                )
            self._write_manifest(
                manifest | {"format": stored.FORMAT, "finished": False, "tables": {}}
            )
        else:
            self._refuse_other(json.loads(json.dumps(manifest)), resume)
        if self.manifest["finished"]:
            files.remove(self._parts)
            return
        files.make_folder(self._parts)
        files.sweep(self._parts)
        if stored.COMMON not in {part.run for part in self._whole_parts()}:
            self.note(stored.COMMON, common())

    def _refuse_other(self, manifest: Json, resume: bool) -> None:
        was = self.manifest
        for key in SAME:
            if was.get(key) != manifest.get(key):
                raise InputError(
                    f"out = {str(self.folder)!r}: must be another folder; it holds another "
                    f"{was['kind']} "
                    f"({was.get('title', 'untitled')!r}; {_difference(key, was, manifest)}); "
                    f"name another folder{_again(was, manifest)}"
                )
        if not resume:
            content = f"{len(self.stored())} of the {was['planned']} runs of this {was['kind']}"
            rest = "report on them again" if was["finished"] else "run the rest"
            rest = f"add --resume to {rest}, or name another folder"
            if was["planned"] == 1:
                content = f"this {was['kind']}"
                rest = "name another folder" if was["finished"] else rest
            raise InputError(f"out = {str(self.folder)!r} already holds {content}: {rest}")

    def _whole_parts(self) -> list[StoredRun]:
        """Return the parts; remove those that are damaged, which are then made again."""
        parts = []
        for path in stored.part_files(self.folder):
            try:
                parts.append(stored.read_part(path))
            except DamagedError as error:
                if "-" in path.stem:
                    raise InputError(
                        f"{error}. What it said of releases cannot be made again: put back a copy "
                        "of it, or name another folder"
                    ) from error
                files.remove(path)
                warnings.warn(f"{error}; it is made again", GridprivWarning, stacklevel=4)
        return parts

    def _take_apart(self) -> None:
        """Turn the tables of a finished folder back into parts."""
        by_run: dict[str, Rows] = {stored.COMMON: {}}
        for name, table in stored.tables_in(self.folder, self.manifest).items():
            for row in table.to_pylist():
                by_run.setdefault(row.get("run", stored.COMMON), {}).setdefault(name, []).append(
                    row
                )
        files.make_folder(self._parts)
        self.note(stored.COMMON, by_run.pop(stored.COMMON))
        for rows in by_run.values():
            self.add(rows)
        self._write_manifest(self.manifest | {"finished": False, "tables": {}})

    def _add(self, run: str, number: int, rows: Rows) -> None:
        part = {"run": run, "number": number, "rows": rows}
        path = self._parts / f"{run}.json"
        files.write_text(path, sealed(part, default=_scalar), private=not self.public)

    def _table(self, name: str, table: Any) -> Json:
        """Write an Arrow table; return what the manifest says of it."""
        import pyarrow.parquet as pq

        buffer = io.BytesIO()
        pq.write_table(table, buffer)
        content = buffer.getvalue()
        files.write_bytes(self.folder / f"{name}.parquet", content, private=not self.public)
        return {"rows": table.num_rows, "sha256": hashlib.sha256(content).hexdigest()}

    def _write_manifest(self, manifest: Json) -> None:
        self.text(stored.MANIFEST, sealed(manifest, indent=2))


@contextmanager
def open_store(
    folder: Path, manifest: Json, *, resume: bool, common: Callable[[], Rows] = dict
) -> Iterator[Store]:
    """Hold a folder for a study; begin it, or go on with it.

    Parameters
    ----------
    folder : Path
        New or empty, or this study's.
    manifest : dict
        What JSON can hold: ``kind``, ``title``, ``planned`` (number of runs) and whatever else
        says what the study is; ``kind``, ``study``, ``cases``, ``version`` and ``public`` are
        what makes two the same.
    resume : bool
        Whether a folder that holds this study already may be gone on with.
    common : callable
        Returns the rows of tables that belong to no run.

    Raises
    ------
    InputError
        If another process writes to the folder, if it holds something else or is damaged, or if
        it holds this study and ``resume`` is false.
    StorageError
        If it cannot be written to.
    """
    with held(folder):
        store = Store(folder, public=bool(manifest.get("public", False)))
        new = not (folder / stored.MANIFEST).exists()
        try:
            store.begin(manifest, common, resume)
            yield store
        except InputError:
            if new:
                store.leave_nothing()
            raise
        except (
            BudgetError,
            SolverError,
            files.StorageError,
            WorkerError,
            KeyboardInterrupt,
        ) as error:
            if store.unfinished:
                error.add_note(_hint(folder, manifest["planned"]))
            raise


@contextmanager
def reopen_store(folder: Path) -> Iterator[Store]:
    """Hold the folder of a study that is there, to put tables into it."""
    with held(folder):
        yield Store(folder, public=bool(stored.read_manifest(folder).get("public", False)))


def _hint(folder: Path, planned: int) -> str:
    rows = [row for part in stored.parts_in(folder) for row in part.rows.get("runs", ())]
    failed = sum(row.get("status") == "failed" for row in rows)
    ended = f" and {failed} ended early" if failed else ""
    return (
        f"{len(rows) - failed} of {planned} runs are stored{ended}; the same command with --resume "
        "goes on from there"
    )


def _difference(key: str, was: Json, manifest: Json) -> str:
    """Return the difference between the stored study and the requested one, in words."""
    if key != "study":
        return DIFFERS.get(key, f"another {key}")
    stored_plan, asked = was.get(key, {}), manifest[key]
    keys = _differing(stored_plan, asked)
    names = (
        _differing(stored_plan.get("settings", {}), asked["settings"]) if "settings" in keys else []
    )
    changed = ", ".join(key.removesuffix("_sha256") for key in keys)
    return f"other {changed}" + (f" ({', '.join(names)})" if names else "")


def _again(was: Json, manifest: Json) -> str:
    """Return the command that repeats the stored study, or nothing where it may no longer do so.

    A setting that it leaves out was a default then, which may be another now.
    """
    stored_settings, asked = (
        document.get("study", {}).get("settings", {}) for document in (was, manifest)
    )
    differ = {
        f"--{name.replace('_', '-')}"
        for name in _differing(stored_settings, asked)
        if name in stored_settings
    }
    repeat = str(was.get("repeat") or "")
    command = f"; what it holds is made again by: {repeat}"
    return command if repeat and differ <= set(repeat.split()) else ""


def _differing(stored_plan: Json, asked: Json) -> list[str]:
    return [key for key in asked if stored_plan.get(key) != asked[key]]


def _scalar(value: Any) -> Any:
    """Return numpy scalars as Python's, for JSON."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be stored")

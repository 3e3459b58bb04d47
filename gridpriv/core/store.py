"""Store of results: a folder with a manifest and Parquet tables.

A study, a series, a run, a comparison of learning algorithms: each consists of *runs*, and each run
of rows of tables with its identity in the column ``run``. The manifest describes the folder and is
written first and last. Until every run is finished it has ``finished: false``, and each run is one
file in ``parts/``. Then the parts become one Parquet file per table, the manifest is replaced by
one with ``finished: true`` and every table's checksum, and the parts are removed. Every file is
written completely or not at all, so the folder always has either parts or tables, according to the
manifest. Other files in the folder (reports, CSV copies) are for readers and are never read.

One process writes to a folder at a time (:mod:`gridpriv.core.files`); its worker processes add
parts.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from gridpriv.core import files
from gridpriv.core.errors import BudgetError, InputError, RunError, warn
from gridpriv.core.files import DamagedError, read_json, read_sealed, sealed
from gridpriv.core.lazy import LazyAttribute
from gridpriv.core.text import Json, html_table

if TYPE_CHECKING:
    import pandas as pd

FORMAT = 6
MANIFEST = "manifest.json"
PARTS, COMMON = "parts", "common"
TABLES = ("runs", "rounds", "zones", "buses", "certificates", "charges", "timing")
NETWORK_TABLES = ("network_buses", "network_branches")
SHOWN = (
    *("case", "method", "budget", "seed", "total_epsilon", "redispatch_shed_mw"),
    *("test_error_pct", "status", "reason"),
)
ROWS_SHOWN = 20
TABLE_NAME = re.compile(r"[a-z][a-z0-9_]{0,60}")

Columns = dict[str, list[Any]]
"""A table: the cells of every column by its name; a gap is None."""
Tables: TypeAlias = "Mapping[str, list[Json] | pd.DataFrame]"
"""Tables by name, each as rows or as a data frame."""


@dataclass(frozen=True, eq=False, repr=False)
class Study:
    """The tables and the manifest of a folder.

    Attributes
    ----------
    folder : Path
    manifest : dict
    tables : dict of str to DataFrame
        ``runs``, ``rounds``, ``zones``, ``buses``, ``certificates``, ``timing`` and, for drawing,
        ``network_buses`` and ``network_branches``; ``claims`` in a reproduction.
    """

    folder: Path
    manifest: Json
    tables: dict[str, pd.DataFrame]

    plot = LazyAttribute("gridpriv.report.plots", "StudyPlots")
    table = LazyAttribute("gridpriv.report.tables", "Pivots")

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
        """Rows of finished runs."""
        return self.runs[self.runs["status"] == "done"]

    @cached_property
    def failed(self) -> pd.DataFrame:
        """Rows of failed runs."""
        return self.runs[self.runs["status"] == "failed"]

    @cached_property
    def withheld(self) -> pd.DataFrame:
        """Rows of published runs without noise: settings only."""
        return self.runs[self.runs["status"] == "withheld"]

    @property
    def public(self) -> bool:
        """True if values computed from true demand were left out."""
        return bool(self.manifest.get("public", False))


@dataclass(frozen=True)
class StoredRun:
    """One stored run, before the tables are made: identity, position in the tables, cells."""

    run: str
    number: int
    tables: dict[str, Columns]


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
        If it has no study, one of another format, or a damaged one.
    """
    path = Path(folder)
    manifest = read_manifest(path)
    entries: Json = {}
    if not manifest["finished"]:
        entries = _joined(parts_in(path))
        manifest = read_manifest(path)  # it may have been finished during reading
    if manifest["finished"]:
        entries = tables_in(path, manifest)
    return study_of(path, manifest, entries)


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
        If it is missing, damaged, or of another format.
    """
    path = folder / MANIFEST
    try:
        written = read_json(path).get("format")
        if written == FORMAT:
            return read_sealed(path)
    except FileNotFoundError:
        raise InputError(
            f"{folder} holds no results: there is no {path}"
            "; give the folder of run, compare, reproduce, learn run or learn compare"
        ) from None
    if isinstance(written, int):
        raise InputError(
            f"{folder} was written in format {written}; this version reads {FORMAT}"
            ": run the study again, or use that version"
        )
    raise InputError(
        f"{path} is not the manifest of a study: give the folder of run, compare, reproduce, "
        "learn run or learn compare"
    )


def part_files(folder: Path) -> list[Path]:
    """Return the files of an unfinished folder's parts."""
    return [path for path in files.names_in(folder / PARTS) if not files.is_temporary(path)]


def times_noted(folder: Path, name: str) -> int:
    """Return the number of times that tables were stored under a name and set aside, or not."""
    return sum(f"{part.stem}-".startswith(f"{name}-") for part in part_files(folder))


def parts_in(folder: Path) -> list[StoredRun]:
    """Return the parts of an unfinished folder; refuse a damaged one."""
    runs = []
    for path in part_files(folder):
        try:
            runs.append(read_part(path))
        except FileNotFoundError:  # the study was finished meanwhile
            continue
        except DamagedError as error:
            raise InputError(
                f"{error}. The command that began the study, with --resume, makes it again"
            ) from error
    return runs


def _joined(parts: list[StoredRun]) -> Json:
    """Return the Arrow tables of an unfinished folder's parts, runs in their order."""
    columns_of: dict[str, list[Columns]] = {}
    for part in sorted(parts, key=lambda part: part.number):
        for name, columns in part.tables.items():
            columns_of.setdefault(name, []).append(columns)
    return {name: as_table(*columns) for name, columns in columns_of.items()}


def read_part(path: Path) -> StoredRun:
    """Return a part; raise :class:`DamagedError` for any other file."""
    sealed = read_sealed(path)
    run, number, tables = (sealed.get(key) for key in ("run", "number", "tables"))
    if not (isinstance(run, str) and isinstance(number, int) and isinstance(tables, dict)):
        raise DamagedError(f"{path} is damaged: it is no part of a store")
    if not re.fullmatch(rf"{re.escape(run)}(-[0-9]+)?", path.stem):
        raise DamagedError(f"{path} is damaged: it is the part of {run}")
    return StoredRun(run, number, tables)


def tables_in(folder: Path, manifest: Json) -> Json:
    """Return the Arrow tables of a finished folder."""
    entries = {}
    for name, digest in _table_digests(folder, manifest).items():
        path = folder / f"{name}.parquet"
        try:
            content = files.read_bytes(path)
        except FileNotFoundError:
            raise InputError(f"{path} is missing: the study was finished with it") from None
        if hashlib.sha256(content).hexdigest() != digest:
            raise InputError(
                f"{path} is damaged or was edited: it is not what the study was finished with"
                "; use an undamaged copy, or --resume in a new folder"
            )
        entries[name] = files.read_parquet(path, content)
    return entries


def _table_digests(folder: Path, manifest: Json) -> dict[str, str]:
    """Return the SHA-256 of every table's file; refuse names that are not tables."""
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


def as_columns(table: list[Json] | pd.DataFrame) -> Columns:
    """Return a table by columns: all columns of its rows."""
    if isinstance(table, list):
        names = dict.fromkeys(name for row in table for name in row)
        return {name: [row.get(name) for row in table] for name in names}
    return dict(table.to_dict("list"))


def as_table(*parts: Columns) -> Any:
    """Return concatenated pieces of a table as an Arrow table; gaps are null."""
    import pyarrow as pa

    columns: Columns = {name: [] for part in parts for name in part}
    for part in parts:
        gap = [None] * len(next(iter(part.values()), ()))
        for name in columns:
            columns[name] += part.get(name, gap)
    return pa.table({name: _column(cells) for name, cells in columns.items()})


def _column(values: list[Any]) -> Any:
    import pyarrow as pa

    try:
        return pa.array(values)
    except (OverflowError, pa.ArrowTypeError):  # numbers beyond 64 bits, some of them text already
        return pa.array([None if value is None else str(value) for value in values])


TEXTS = ("study.toml",)  # files for readers, written before the first run
SAME = ("kind", "public", "study", "cases", "version")  # entries that identify a study
DIFFERS = {
    "public": "one of the two is published, the other is not",
    "cases": "other cases or zone maps",
    "version": "another version of gridpriv",
}


def _ledger_remedy(was: str, now: str) -> str:
    """Return the ledger with which a study was begun, and the remedy, from identities."""
    if not was:
        return "without --ledger: leave it out"
    return f"with {'another ' * bool(now)}--ledger: give the path of that ledger to --ledger"


class Store:
    """A folder locked by this process, or to which a worker adds runs.

    Parameters
    ----------
    public : bool
        True if everybody may read its files.
    """

    def __init__(self, folder: Path, *, public: bool) -> None:
        self.folder, self.public = folder, public
        self._parts = folder / PARTS

    def add(self, tables: Tables, **common: str) -> None:
        """Store one run's tables; the first row of ``runs`` has its ``run`` and ``number``.

        All of them get the column ``run``, first, and those of ``common``, each of one text.
        """
        runs = as_columns(tables["runs"])
        run = runs["run"][0]
        self._add(run, runs["number"][0], tables, {"run": run} | common)

    def note(self, name: str, tables: Tables, **common: str) -> None:
        """Store tables that are not of a run, under a name with a hyphen; replace earlier ones.

        They cannot be computed again, so a damaged file prevents resuming the folder.
        """
        self._add(name, -1, tables, common)

    def set_aside(self, name: str) -> None:
        """Keep the tables under a name, and free the name."""
        path = self._parts / f"{name}.json"
        if path.exists():
            with files.storing(f"rename {path}"):
                path.rename(self._parts / f"{name}-{times_noted(self.folder, name)}.json")

    @property
    def has_runs(self) -> bool:
        """True if anything of a run is stored."""
        return self.manifest["finished"] or any(
            path.stem != COMMON for path in part_files(self.folder)
        )

    def text(self, name: str, text: str) -> None:
        """Write a file for readers."""
        files.write_text(self.folder / name, text, private=not self.public)

    def stored(self) -> dict[str, str]:
        """Return the status of every stored run by its identity."""
        if self.manifest["finished"]:
            runs = tables_in(self.folder, self.manifest)["runs"]
        else:
            parts = (part.tables for part in self._undamaged_parts())
            runs = as_table(*(tables["runs"] for tables in parts if "runs" in tables))
        return {row["run"]: row.get("status", "done") for row in runs.to_pylist()}

    def forget(self, runs: Iterable[str]) -> None:
        """Remove runs, so that they are run again."""
        removed = set(runs)
        if not removed:
            return
        if self.manifest["finished"]:
            self._split_tables()
        for run in removed:
            files.remove(self._parts / f"{run}.json")

    def finish(self, details: Callable[[Study], Json] = lambda _: {}) -> Study:
        """Turn the parts into tables; ``details`` returns further entries of the manifest."""
        if self.manifest["finished"]:
            return read_study(self.folder)
        unfinished = _joined(parts_in(self.folder))
        tables = {name: self._table(name, table) for name, table in unfinished.items()}
        study = study_of(self.folder, self.manifest, unfinished)
        extra = details(study) | {"finished": True, "tables": tables}
        self._write_manifest(self.manifest | extra)
        files.remove(self._parts)
        return replace(study, manifest=self.manifest)

    def set_table(self, name: str, rows: pd.DataFrame) -> None:
        """Add or replace a table that is not of a run in a finished folder."""
        tables = {k: v for k, v in self.manifest["tables"].items() if k != name}
        self._write_manifest(self.manifest | {"tables": tables})
        entry = self._table(name, as_table(as_columns(rows)))
        self._write_manifest(self.manifest | {"tables": tables | {name: entry}})

    def leave_nothing(self) -> None:
        """Remove a started folder without runs, after invalid input."""
        if self.unfinished and {path.stem for path in part_files(self.folder)} <= {COMMON}:
            for name in (PARTS, *TEXTS, MANIFEST):
                files.remove(self.folder / name)

    @property
    def unfinished(self) -> bool:
        """True for the folder of an unfinished study."""
        return (self.folder / MANIFEST).exists() and not self.manifest["finished"]

    @property
    def manifest(self) -> Json:
        """Manifest of the folder."""
        return read_manifest(self.folder)

    def start(self, manifest: Json, common: Callable[[], Tables], resume: bool) -> None:
        """Write the manifest of a study, or check it; the folder must be locked."""
        files.sweep(self.folder)
        if not (self.folder / MANIFEST).exists():
            files.refuse_used(self.folder, allowed=files.LOCK)
            if resume:  # its name may be mistyped
                warn(f"there was nothing to resume in {self.folder}: it is begun", 4)
            self._write_manifest(manifest | {"format": FORMAT, "finished": False, "tables": {}})
        else:
            self._refuse_other(json.loads(json.dumps(manifest)), resume)
        if self.manifest["finished"]:
            files.remove(self._parts)
            return
        files.make_folder(self._parts)
        files.sweep(self._parts)
        if COMMON not in {part.run for part in self._undamaged_parts()}:
            self.note(COMMON, common())

    def _refuse_other(self, manifest: Json, resume: bool) -> None:
        before = self.manifest
        for key in SAME:
            was, now = (_compared(entry.get(key, {})) for entry in (before, manifest))
            if key == "study" and _differing(was, now) == ["ledger"]:
                raise InputError(
                    f"out = {str(self.folder)!r} holds a {before['kind']} that was begun "
                    f"{_ledger_remedy(was['ledger'], now['ledger'])}, or name another folder"
                )
            if was != now:
                raise InputError(
                    f"out = {str(self.folder)!r}: must be another folder; it holds another "
                    f"{before['kind']} "
                    f"({before.get('title', 'untitled')!r}; {_difference(key, before, manifest)}); "
                    f"name another folder{_again(before, manifest)}"
                )
        if not resume:
            done, failed = _counts(self)
            content = f"{done} of the {before['planned']} runs of this {before['kind']}"
            content += f" and {failed} that ended early" if failed else ""
            rest = "run it again" if before["planned"] == 1 else "run the rest"
            advice = "report on them again" if before["finished"] else rest
            advice = f"add --resume to {advice}, or name another folder"
            if before["planned"] == 1:
                content = f"this {before['kind']}"
                advice = "name another folder" if before["finished"] else advice
            raise InputError(f"out = {str(self.folder)!r} already holds {content}: {advice}")

    def _undamaged_parts(self) -> list[StoredRun]:
        """Return the parts; remove damaged ones, which are then computed again."""
        parts = []
        for path in part_files(self.folder):
            try:
                parts.append(read_part(path))
            except DamagedError as error:
                if "-" in path.stem:
                    raise InputError(
                        f"{error}. What it said of releases cannot be made again: put back a copy "
                        "of it, or name another folder"
                    ) from error
                files.remove(path)
                warn(f"{error}; it is made again", 4)
        return parts

    def _split_tables(self) -> None:
        """Turn the tables of a finished folder back into parts."""
        by_run: dict[str, dict[str, list[Json]]] = {COMMON: {}}
        for name, table in tables_in(self.folder, self.manifest).items():
            for row in table.to_pylist():
                by_run.setdefault(row.get("run", COMMON), {}).setdefault(name, []).append(row)
        files.make_folder(self._parts)
        self.note(COMMON, by_run.pop(COMMON))
        for tables in by_run.values():
            self.add(tables)
        self._write_manifest(self.manifest | {"finished": False, "tables": {}})

    def _add(self, run: str, number: int, tables: Tables, common: Mapping[str, str]) -> None:
        columns: dict[str, Columns] = {}
        for name, table in tables.items():
            if len(table):
                texts = {column: [text] * len(table) for column, text in common.items()}
                cells = as_columns(table)
                first = {"run": texts["run"]} if texts and "run" not in cells else {}
                columns[name] = first | cells | texts
        part = {"run": run, "number": number, "tables": columns}
        path = self._parts / f"{run}.json"
        files.write_text(path, sealed(part, default=_scalar), private=not self.public)

    def _table(self, name: str, table: Any) -> Json:
        """Write an Arrow table; return its entry in the manifest."""
        import pyarrow.parquet as pq

        buffer = io.BytesIO()
        pq.write_table(table, buffer)
        content = buffer.getvalue()
        files.write_bytes(self.folder / f"{name}.parquet", content, private=not self.public)
        return {"rows": table.num_rows, "sha256": hashlib.sha256(content).hexdigest()}

    def _write_manifest(self, manifest: Json) -> None:
        self.text(MANIFEST, sealed(manifest, indent=2))


@contextmanager
def open_store(
    folder: Path,
    manifest: Json,
    *,
    resume: bool,
    common: Callable[[], Tables] = dict,
    resumes: Callable[[Store], str] = lambda _: "goes on from there",
) -> Iterator[Store]:
    """Lock a folder for a study; start it, or continue it.

    Parameters
    ----------
    folder : Path
        New or empty, or this study's.
    manifest : dict
        JSON values: ``kind``, ``title``, ``planned`` (number of runs) and further descriptions;
        ``kind``, ``study``, ``cases``, ``version`` and ``public`` identify a study.
    resume : bool
        True if an existing folder of this study may be continued.
    common : callable
        Returns the tables that are not of a run.
    resumes : callable
        Returns what the same command does with ``--resume`` after an interruption.

    Raises
    ------
    InputError
        If another process writes to the folder, if it has other content or is damaged, or if it has
        this study and ``resume`` is false.
    StorageError
        If it cannot be written to.
    """
    with files.locked_folder(folder):
        store = Store(folder, public=bool(manifest.get("public", False)))
        new = not (folder / MANIFEST).exists()
        try:
            store.start(manifest, common, resume)
            yield store
        except (InputError, BudgetError, RunError, KeyboardInterrupt) as error:
            if new and isinstance(error, InputError | BudgetError):
                store.leave_nothing()
            if store.unfinished and not isinstance(error, InputError):
                refused = isinstance(error, BudgetError)  # and would be again: no grant grows
                advice = "" if refused else resumes(store)
                error.add_note(_hint(store, manifest["planned"], advice))
            raise


@contextmanager
def reopen_store(folder: Path) -> Iterator[Store]:
    """Lock the folder of an existing study, to add tables to it."""
    with files.locked_folder(folder):
        yield Store(folder, public=bool(read_manifest(folder).get("public", False)))


def _hint(store: Store, planned: int, resumes: str) -> str:
    done, failed = _counts(store)
    ended = f" and {failed} ended early" if failed else ""
    advice = f"; the same command with --resume {resumes}" if resumes else ""
    return f"{done} of {planned} runs are stored{ended}{advice}"


def _counts(store: Store) -> tuple[int, int]:
    """Return the number of stored runs that finished, and of those that ended early."""
    statuses = list(store.stored().values())
    failed = statuses.count("failed")
    return len(statuses) - failed, failed


def _difference(key: str, was: Json, manifest: Json) -> str:
    """Return the difference between the stored study and the requested one, as text."""
    if key != "study":
        return DIFFERS.get(key, f"another {key}")
    stored_plan, requested_plan = _compared(was.get(key, {})), _compared(manifest[key])
    keys = _differing(stored_plan, requested_plan)
    names = []
    if "settings" in keys:
        names = _differing(stored_plan.get("settings", {}), requested_plan["settings"])
    commands = [str(document.get("repeat") or "") for document in (was, manifest)]
    flags = {f"--{name.replace('_', '-')}" for name in names}
    if keys == ["settings"] and all(commands) and flags.isdisjoint(" ".join(commands).split()):
        return f"written by an earlier development version, with another {' and '.join(names)}"
    changed = ", ".join(key.removesuffix("_sha256") for key in keys)
    return f"other {changed}" + (f" ({', '.join(names)})" if names else "")


def _again(was: Json, manifest: Json) -> str:
    """Return the command that repeats the stored study, or an empty text if defaults may differ.

    A setting that it leaves out was a default, which may have changed.
    """
    stored_settings, requested_settings = (
        document.get("study", {}).get("settings", {}) for document in (was, manifest)
    )
    differ = {
        f"--{name.replace('_', '-')}"
        for name in _differing(stored_settings, requested_settings)
        if name in stored_settings
    }
    repeat = str(was.get("repeat") or "")
    command = f"; what it holds is made again by: {repeat}"
    return command if repeat and differ <= set(repeat.split()) else ""


def _compared(entry: Any) -> Any:
    """Return an entry for comparison: a setting that names a file has the file's digest."""
    if not isinstance(entry, dict) or "settings" not in entry:
        return entry
    others, settings = entry | {"ledger": entry.get("ledger") or ""}, dict(entry["settings"])
    for name, value in settings.items():
        settings[name] = others.pop(f"{name}_sha256", value)
    return others | {"settings": settings}


def _differing(stored: Json, requested: Json) -> list[str]:
    return [key for key in requested if stored.get(key) != requested[key]]


def _scalar(value: Any) -> Any:
    """Return numpy scalars as Python's, for JSON."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be stored")

"""The ledger's SQLite file: its schema, how it is opened, and what its failures mean.

Every connection runs in WAL mode with ``synchronous=FULL``: a commit returns when its frames
are on disk, and a killed process leaves whole transactions only. The file must lie on a local
disk (WAL shares memory between processes). Grants and charges are append-only.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from gridpriv.core.errors import GridprivError, InputError

APPLICATION_ID = 0x67706C31  # "gpl1"
SCHEMA = """
CREATE TABLE secret (key BLOB NOT NULL CHECK (length(key) = 32));
CREATE TABLE grants (
  owner TEXT PRIMARY KEY,
  dataset TEXT NOT NULL,
  adjacency TEXT NOT NULL,
  epsilon REAL NOT NULL CHECK (epsilon > 0),
  delta REAL NOT NULL CHECK (delta >= 0 AND delta < 1),
  granted_at TEXT NOT NULL
);
CREATE TABLE rules (
  owner TEXT PRIMARY KEY REFERENCES grants,
  name TEXT NOT NULL CHECK (name IN ('renyi', 'planned')),
  renyi_order REAL CHECK (renyi_order > 1),
  capacity REAL CHECK (capacity > 0)
);
CREATE TABLE plans (
  owner TEXT NOT NULL REFERENCES rules,
  kind TEXT NOT NULL,
  parameter REAL NOT NULL CHECK (parameter > 0),
  count INTEGER NOT NULL CHECK (count > 0)
);
CREATE TABLE charges (
  id INTEGER PRIMARY KEY,
  owner TEXT NOT NULL REFERENCES grants,
  run TEXT NOT NULL,
  charged_at TEXT NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('laplace', 'gaussian', 'pure', 'zcdp')),
  parameter REAL NOT NULL CHECK (parameter > 0),
  count INTEGER NOT NULL CHECK (typeof(count) = 'integer' AND count > 0)
);
CREATE INDEX spent ON charges (owner, kind, parameter, count);
"""
APPEND_ONLY = """
CREATE TRIGGER {table}_{verb} BEFORE {verb} ON {table}
BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END
"""


def now() -> str:
    """Return the time in UTC to the millisecond, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@contextmanager
def refusing(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into refusals; what is under way has not been committed."""
    try:
        yield
    except sqlite3.Error as error:
        raise _refusal(path, error) from error


def _refusal(path: Path, error: sqlite3.Error) -> GridprivError:
    name = getattr(error, "sqlite_errorname", "") or ""
    told = {
        "SQLITE_BUSY": "is locked by another process; try again when that is done",
        "SQLITE_READONLY": "is read-only, so nothing can be charged",
        "SQLITE_CORRUPT": "is corrupt; restore it from a copy that holds every charge",
        "SQLITE_NOTADB": "is not a gridpriv ledger (not an SQLite database)",
        "SQLITE_CANTOPEN": "cannot be opened for writing: the file or its folder is read-only",
        "SQLITE_FULL": "cannot be written: the disk is full",
        "SQLITE_IOERR": "cannot be read or written",
    }
    for code, text in told.items():
        if name.startswith(code):
            return InputError(f"ledger {path} {text}; nothing charged, nothing released ({error})")
    return InputError(f"ledger {path}: {error}; nothing charged, nothing released")


def connect(path: Path, timeout: float, *, create: bool = False) -> sqlite3.Connection:
    """Return a connection that may write.

    Parameters
    ----------
    path : Path
    timeout : float
        Seconds to wait for another process's transaction.
    create : bool
        Make the ledger if there is no file.
    """
    _check_place(path, create)
    with refusing(path):
        db = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={'rwc' if create else 'rw'}",
            uri=True,
            timeout=timeout,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            if create:
                _create(db, path)
            _check(db, path)
            _make_durable(db, path)
        except BaseException:
            db.close()
            raise
    return db


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Yield a connection that cannot write, of a ledger that may lie on a read-only disk."""
    _check_place(path, create=False)
    with refusing(path):
        db = _open_to_read(path)
        try:
            db.execute("BEGIN")
            yield db
        finally:
            db.close()


def _open_to_read(path: Path) -> sqlite3.Connection:
    for mode in ("mode=ro", "mode=ro&immutable=1"):
        db = sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, isolation_level=None)
        try:
            _check(db, path)
        except sqlite3.OperationalError:
            # WAL on a read-only folder: readable as it stands if no log is left beside it
            db.close()
            if "immutable" in mode or Path(f"{path}-wal").exists():
                raise
        except BaseException:
            db.close()
            raise
        else:
            return db
    raise AssertionError("unreachable")


def _check_place(path: Path, create: bool) -> None:
    if path.is_dir():
        raise InputError(f"ledger {path} is a folder; name a file")
    if create and not path.parent.is_dir():
        raise InputError(f"ledger {path}: there is no folder {path.parent}")
    if not create and not path.exists():
        raise InputError(
            f"there is no ledger {path}; 'gridpriv ledger grant {path} --case CASE --epsilon E' "
            "makes one"
        )


def _create(db: sqlite3.Connection, path: Path) -> None:
    """Write the schema in one transaction, unless there is one."""
    with immediate(db):
        if _is_empty(db):
            for statement in SCHEMA.split(";\n"):
                if statement.strip():
                    db.execute(statement)
            for table in ("grants", "charges", "secret"):
                for verb in ("UPDATE", "DELETE"):
                    db.execute(APPEND_ONLY.format(table=table, verb=verb))
            db.execute("INSERT INTO secret VALUES (?)", (secrets.token_bytes(32),))
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make a new file's name survive a power failure, where folders can be synced."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _is_empty(db: sqlite3.Connection) -> bool:
    return bool(db.execute("SELECT count(*) = 0 FROM sqlite_master").fetchone()[0])


def _check(db: sqlite3.Connection, path: Path) -> None:
    """Refuse what is not a whole ledger."""
    if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise InputError(
            f"ledger {path} is not a gridpriv ledger (another SQLite database, or empty); "
            "nothing charged, nothing released"
        )
    found = db.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise InputError(
            f"ledger {path} is corrupt ({found}); restore it from a copy that holds every charge; "
            "nothing charged, nothing released"
        )


def _make_durable(db: sqlite3.Connection, path: Path) -> None:
    mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise InputError(
            f"ledger {path}: no write-ahead log is possible there (journal mode {mode}); "
            "put it on a local disk"
        )
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA foreign_keys = ON")


@contextmanager
def immediate(db: sqlite3.Connection) -> Iterator[None]:
    """One write transaction: committed whole, or not at all."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise

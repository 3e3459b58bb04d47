"""Files: written completely or not at all, and read within a stated size and memory.

A file is written in its folder under an unpredictable name (so no link can be prepared there),
flushed to disk and renamed to its path (a link there is replaced, not followed), and its folder is
flushed. After a crash at any point the path has the old content or the new one, never a part. A
killed process leaves at most the temporary file, ``.<32 hex digits>.part``, of which the first 16
are a digest of the file's name. The process that locks the folder, or the file, removes it
(:func:`sweep`).

Only regular files are read. A pipe or a device may never end or answer, so it is refused before
reading. The open handle is checked again, so the file cannot be replaced in between.

A Parquet file of a few bytes can describe a column of a billion equal numbers, or a million rows of
the same text of a megabyte. So the size of a table is computed before it is made: of numbers from
the file's metadata, of texts from their dictionary.

JSON documents and files of records have a checksum, so that damage is detected on reading. A
document contains the checksum of its content. Records follow each other in a file, each flushed to
disk when it is added::

    size, u64 | its complement, u64 | SHA-256 of the content | content

The first record, and a record that replaces all others, are written completely or not at all. A
process killed while it adds another leaves an incomplete record at the end, which the next record
overwrites. Any other difference is refused. docs/decisions/0060-network.md has times.
"""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import io
import json
import os
import re
import secrets
import socket
import stat
import struct
import tomllib
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from gridpriv.core.errors import InputError, RunError
from gridpriv.core.text import Json

PRIVATE_MODE, PUBLIC_MODE = 0o600, 0o666  # the latter reduced by the process's umask
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
TEMPORARY_NAME = re.compile(r"\.[0-9a-f]{32}\.part")


class StorageError(RunError):
    """A file or folder that cannot be written; earlier content is kept."""


@contextmanager
def storing(action: str, outcome: str = "") -> Iterator[None]:
    """Convert errors of the operating system: ``cannot ACTION: reason`` and the outcome."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot {action}: {error.strerror or error}{outcome}") from error


@contextmanager
def atomic_file(path: Path, *, private: bool) -> Iterator[BinaryIO]:
    """Yield a temporary file in the folder of ``path``; it replaces ``path`` when done.

    Parameters
    ----------
    private : bool
        True if only its owner may read it (mode 0600); else as the umask allows.

    Raises
    ------
    StorageError
        If it cannot be written; ``path`` is unchanged. A device, a pipe or a folder at ``path`` is
        kept, not replaced.
    """
    with storing(f"write {path}"):
        special = path.exists() and not path.is_file()
    if special:
        raise StorageError(f"cannot write {path}: it is there already, and no regular file")
    part = path.with_name(f".{_name_digest(path)}{secrets.token_hex(8)}.part")
    try:
        with storing(f"write {path}"):
            handle = os.open(part, NEW, PRIVATE_MODE if private else PUBLIC_MODE)
            with os.fdopen(handle, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
            flush_path(path.parent)
    finally:
        with suppress(OSError):
            part.unlink()


def _name_digest(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16]


def write_bytes(path: Path, content: bytes, *, private: bool) -> None:
    """Write a file completely or not at all; see :func:`atomic_file`."""
    with atomic_file(path, private=private) as file:
        file.write(content)


def write_text(path: Path, text: str, *, private: bool) -> None:
    """Write a UTF-8 text completely or not at all; see :func:`atomic_file`."""
    write_bytes(path, text.encode("utf-8"), private=private)


def write_texts(files: Mapping[Path, str], obsolete: Collection[Path] = ()) -> None:
    """Write several public UTF-8 texts of one folder: all are on disk before the first is renamed.

    Earlier texts are removed before: obsolete files, then those at the same paths except the first,
    which is replaced. So files of two calls are never next to each other. The last text, which may
    list the others, is removed last and renamed last.

    Parameters
    ----------
    files : mapping of Path to str
        In the order in which they are renamed.
    obsolete : collection of Path
        Further files of an earlier call, to be removed.

    Raises
    ------
    StorageError
        If one cannot be written. If that is before the first is renamed, none is.
    """
    with ExitStack() as stack:
        for path, text in reversed(list(files.items())):  # renamed in the order of files
            file = stack.enter_context(atomic_file(path, private=False))
            with storing(f"write {path}"):
                file.write(text.encode("utf-8"))
                file.flush()
                os.fsync(file.fileno())
        first, *others = files
        for path in (*obsolete, *others):
            remove(path)
        with storing(f"write {first}"):
            flush_path(first.parent)


def make_folder(path: Path) -> None:
    """Make a folder and its parents, if missing.

    Raises
    ------
    StorageError
        If it cannot be made.
    """
    with storing(f"make {path}"):
        path.mkdir(parents=True, exist_ok=True)


def remove(path: Path) -> None:
    """Remove a file, or a folder with its files, if it exists.

    Raises
    ------
    StorageError
        If it cannot be removed.
    """
    with storing(f"remove {path}"), suppress(FileNotFoundError):
        if path.is_dir() and not path.is_symlink():
            for file in path.iterdir():
                file.unlink()
            path.rmdir()
        else:
            path.unlink()


def flush_path(path: Path) -> None:
    """Flush a file, or a folder's entries, to disk."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def is_temporary(path: Path) -> bool:
    """Return True for a temporary file of a killed writer."""
    return TEMPORARY_NAME.fullmatch(path.name) is not None


def sweep(folder: Path, of: Collection[Path] | None = None) -> None:
    """Remove temporary files of killed writers, of some files or all; these must be locked."""
    digests = ("",) if of is None else tuple(map(_name_digest, of))
    for path in names_in(folder):
        if is_temporary(path) and path.name[1:].startswith(digests):
            remove(path)


def names_in(folder: Path) -> list[Path]:
    """Return the sorted names in a folder; none if it does not exist."""
    with storing(f"read {folder}"), suppress(FileNotFoundError):
        return sorted(folder.iterdir())
    return []


def refuse_used(folder: Path, allowed: str = "") -> None:
    """Raise :class:`InputError` for a folder that holds anything but the file allowed."""
    unexpected = [path.name for path in names_in(folder) if path.name != allowed]
    if unexpected:
        raise InputError(
            f"out = {str(folder)!r}: must be a new or empty folder; it holds other files "
            f"({', '.join(unexpected[:3])}{', ...' if len(unexpected) > 3 else ''}); "
            "choose another folder with --out"
        )


LOCK = ".lock"
LONGEST_HOLDER = 300  # characters of a lock file's text


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Lock a folder against other writers; make it if it is missing.

    A folder that was made here and is still empty is removed at the end.

    Processes started by the locking process write under its lock.

    Raises
    ------
    InputError
        If the folder is locked by another process (or already by this one).
    StorageError
        If the lock cannot be written.
    """
    is_new = not folder.exists()
    make_folder(folder)
    try:
        with _lock(folder / LOCK, folder, "folder"):
            yield
    finally:
        if is_new:
            with suppress(OSError):
                folder.rmdir()


@contextmanager
def locked_files(path: Path, *others: Path) -> Iterator[None]:
    """Lock a file, and others of its folder that are written with it; remove temporary files.

    Raises
    ------
    InputError, StorageError
        As :func:`locked_folder`.
    """
    with _lock(path.with_name(f".{path.name}{LOCK}"), path, "file"):
        sweep(path.parent, (path, *others))
        yield


@contextmanager
def _lock(path: Path, target: Path, kind: str) -> Iterator[None]:
    """Hold the lock file at ``path``, of a target of some kind."""
    with storing(f"lock {target}"):
        handle = _acquire(path, target, kind)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()
        os.close(handle)


def _acquire(path: Path, target: Path, kind: str) -> int:
    """Return the handle of the lock file at ``path``, locked and with this process's name in it."""
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    while True:
        handle = os.open(path, flags, PRIVATE_MODE)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(handle, LONGEST_HOLDER).decode("utf-8", "replace").strip()
            os.close(handle)
            raise InputError(
                f"{target} is being written to by {holder or 'another process'}: "
                f"wait for it to end, or name another {kind}"
            ) from None
        except OSError:
            os.close(handle)
            raise
        # the previous owner of the lock may have removed this file after it was opened
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), path.lstat()):
                os.ftruncate(handle, 0)
                os.write(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
                return handle
        os.close(handle)


Parsed = TypeVar("Parsed")

MIB = 2**20
LARGEST = 256 * MIB
"""Bytes of a case, a zone map or a demand file: the largest public grids need a tenth of it."""
MOST_PACKED = 50
"""Bytes of an unpacked file for each of the packed one; handwritten digits have five."""
LARGEST_OWN = 1024 * MIB
"""Bytes of a file written by gridpriv."""
KINDS = {"d": "a folder", "p": "a pipe", "c": "a device", "b": "a device", "s": "a socket"}
"""Files that are not regular ones, by the first letter of their mode in ``ls -l``."""
UNBLOCKED = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)


class MissingFileError(InputError, FileNotFoundError):
    """A file is missing."""


def read_bytes(path: Path, kind: str = "file", most: int = LARGEST_OWN) -> bytes:
    """Return the bytes of a file.

    Parameters
    ----------
    kind : str
        Name of the kind of file, for errors: ``case file``.
    most : int
        Largest size in bytes.

    Raises
    ------
    MissingFileError
        If it is missing.
    InputError
        If it cannot be read, is not a regular file, or is larger.
    """
    try:
        _regular(path.stat().st_mode, path, kind)
        with open(os.open(path, UNBLOCKED), "rb") as file:  # noqa: PTH123
            status = os.fstat(file.fileno())
            _regular(status.st_mode, path, kind)
            content = file.read(most + 1) if status.st_size <= most else None
    except FileNotFoundError as error:
        raise MissingFileError(f"{kind} {path} does not exist") from error
    except (OSError, ValueError) as error:  # ValueError: a path that no system allows
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{kind} {path}: {reason}") from error
    if content is None or len(content) > most:
        raise InputError(f"{kind} {path}: must be at most {most / MIB:g} MiB")
    return content


def read_secret(path: Path, kind: str) -> bytes:
    """Return the bytes of a key, which only its owner may read or change.

    Raises
    ------
    InputError
        As :func:`read_bytes`, and if its mode gives others any access.
    """
    content = read_bytes(path, kind, MIB)
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise InputError(
            f"{kind} {path} can be read or changed by other users (mode {mode:04o}): make it its "
            "owner's alone (chmod 600)"
        )
    return content


def read_packed(path: Path, kind: str, most: int) -> bytes:
    """Return the bytes of a file, unpacked if its name ends in ``.gz``.

    Raises
    ------
    InputError
        As :func:`read_bytes`, and for a file that is not gzip or has too large an unpacked size.
    """
    content = read_bytes(path, kind, most)
    if path.suffix != ".gz":
        return content
    bound = unpacked_bound(len(content))
    try:
        with gzip.open(io.BytesIO(content)) as file:
            read = file.read(bound + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(
            f"{kind} {path} is no gzip file: {error}; give a file made by gzip"
        ) from error
    if len(read) > bound:
        raise InputError(f"{kind} {path}: must be a file that unpacks to at most {bound} bytes")
    return read


def unpacked_bound(packed: int) -> int:
    """Return the limit on unpacked bytes for a packed size."""
    return MIB + MOST_PACKED * packed


def read_text(path: Path, kind: str = "file", most: int = LARGEST_OWN) -> str:
    """Return the text of a UTF-8 file (with or without a byte order mark).

    Raises
    ------
    InputError
        As :func:`read_bytes`, and if the bytes are not UTF-8.
    """
    content = read_bytes(path, kind, most)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        if b"\0" in content:
            raise InputError(
                f"{kind} {path}, line {line}: not UTF-8 text: not a text file; give a text file"
            ) from error
        raise InputError(
            f"{kind} {path}, line {line}: not UTF-8 text ({error.reason}); save the file as UTF-8"
        ) from error


def read_table(path: Path, kind: str) -> Json:
    """Return the table of a TOML file, or of a JSON file if its name ends in ``.json``.

    Raises
    ------
    InputError
        If it cannot be read, with the line, or is not a table.
    """
    try:
        text = read_text(path, kind, MIB)
        document = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        at = re.search(r"at line (\d+)", str(error))
        shown = f": {text.splitlines()[int(at[1]) - 1].strip()[:80]!r}" if at else ""
        raise InputError(
            f"{kind} {path}: {error}{shown}: give valid TOML, with every key once"
        ) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{kind} {path}: {error}") from error
    if not isinstance(document, dict):
        raise InputError(f"{kind} {path}: a table of keys is expected")
    return document


def read_document(
    path: Path, kind: str, form: str, keys: Collection[str], make: Callable[[Json], Parsed]
) -> Parsed:
    """Read a JSON object with a format number and exactly these keys.

    Raises
    ------
    InputError
        If it cannot be read, is not of the format, or is invalid.
    """
    where = f"{kind} {path}"
    try:
        document = json.loads(read_text(path, kind, LARGEST))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is no JSON: {error}; correct the file") from error
    if not isinstance(document, dict) or document.get("format") != form:
        raise InputError(f"{where} is not of the format {form!r}: give a file of that format")
    if odd := sorted(set(document) ^ set(keys)):
        raise InputError(
            f"{where}: the keys are not those of {form!r}: {', '.join(odd[:3])}; correct the file"
        )
    try:
        return make(document)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{where}: {error}") from error


def _regular(mode: int, path: Path, kind: str) -> None:
    if not stat.S_ISREG(mode):
        special = KINDS.get(stat.filemode(mode)[0], "a special file")
        raise InputError(f"{kind} {path} is {special}: must be a regular file")


LEAST_UNPACKED = 64 * MIB
"""Bytes that any file may unpack to: tables of few different values pack a thousand to one."""


def read_parquet(path: Path, content: bytes) -> Any:
    """Return the Arrow table of a Parquet file.

    Parameters
    ----------
    path : Path
        The file, for the errors.

    Raises
    ------
    InputError
        If a column has lists, or if it unpacks to more than 64 MiB and to more than fifty times
        its own bytes.
    ValueError, OSError
        If it is not a Parquet file.
    """
    from pyarrow import BufferReader
    from pyarrow.parquet import ParquetFile

    most = max(LEAST_UNPACKED, unpacked_bound(len(content)))
    file = ParquetFile(BufferReader(content))
    for column in file.schema_arrow:
        if column.type.num_fields:
            raise InputError(f"{path}: must be a table without lists (column {column.name})")
    groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
    parts = [group.column(number) for group in groups for number in range(group.num_columns)]
    numbers = sum(max(part.total_uncompressed_size, 8 * part.num_values) for part in parts)
    texts = [field.name for field in file.schema_arrow if _is_text(field.type)]
    if numbers > most or _text_bytes(content, texts) > most:
        raise InputError(f"{path}: must be a file that unpacks to at most {most} bytes")
    return file.read()


def _is_text(kind: Any) -> bool:
    import pyarrow.types as of

    kind = kind.value_type if of.is_dictionary(kind) else kind
    return any(test(kind) for test in (of.is_string, of.is_large_string, of.is_binary))


def _text_bytes(content: bytes, columns: list[str]) -> int:
    """Return the unpacked size of the text columns of a table, bytes."""
    import pyarrow.compute as pc
    from pyarrow import BufferReader
    from pyarrow.parquet import ParquetFile

    if not columns:
        return 0
    table = ParquetFile(BufferReader(content), read_dictionary=columns).read(columns)
    return sum(
        pc.sum(pc.take(pc.binary_length(part.dictionary), part.indices)).as_py() or 0
        for column in table.columns
        for part in column.chunks
    )


CHECKSUM = "checksum"


class DamagedError(InputError):
    """A file is damaged: its content differs from what was written."""


def sealed(
    document: Json, *, default: Callable[[Any], Any] | None = None, indent: int | None = None
) -> str:
    """Return a document as JSON text with its checksum; options as of ``json.dumps``."""
    plain = json.loads(json.dumps(document, default=default))
    return json.dumps(plain | {CHECKSUM: _checksum(plain)}, indent=indent) + "\n"


def read_json(path: Path) -> Json:
    """Return the JSON object of a file.

    Raises
    ------
    MissingFileError
        If there is no such file.
    DamagedError
        If it is not a JSON object.
    InputError
        If it cannot be read.
    """
    content = read_bytes(path)
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path} is damaged: it is no JSON: {error}") from error
    if not isinstance(document, dict):
        raise DamagedError(f"{path} is damaged: it is not one JSON object")
    return document


def read_sealed(path: Path) -> Json:
    """Read a document written by :func:`sealed`; raise if its checksum is wrong.

    Raises
    ------
    MissingFileError
        If there is no such file.
    DamagedError
        If its checksum is wrong.
    InputError
        If it cannot be read.
    """
    document = read_json(path)
    if document.pop(CHECKSUM, None) != _checksum(document):
        raise DamagedError(
            f"{path} is damaged or was edited: its content is not what its checksum was made of"
        )
    return document


def _checksum(plain: Json) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


HEAD = struct.Struct("<QQ32s")
ONES = (1 << 64) - 1
flush = getattr(os, "fdatasync", os.fsync)  # of content and size; no other mark matters


class Records:
    """A file of records; its writer must lock the folder (:func:`locked_folder`).

    Parameters
    ----------
    private : bool
        True if only its owner may read it.

    Attributes
    ----------
    size : int
        Bytes of the records that were read and added.
    """

    def __init__(self, path: Path, *, private: bool) -> None:
        self.path, self._private = path, private
        self.size = 0

    def read(self) -> list[bytes]:
        """Return all records; none without a file.

        Raises
        ------
        DamagedError
            If a checksum is wrong.
        """
        try:
            content = read_bytes(self.path)
        except FileNotFoundError:
            return []
        records: list[bytes] = []
        self.size = 0
        while len(content) - self.size >= HEAD.size:
            size, complement, digest = HEAD.unpack_from(content, self.size)
            if size ^ complement != ONES:
                raise self._damaged()
            start = self.size + HEAD.size
            if start + size > len(content):
                break
            if _digest(content[start : start + size]) != digest:
                raise self._damaged()
            records.append(content[start : start + size])
            self.size = start + size
        if not records:
            raise self._damaged()
        return records

    def add(self, content: bytes, *, flushed: bool = True) -> None:
        """Add a record after those that were read and added.

        Parameters
        ----------
        flushed : bool
            True to flush it to disk; otherwise a power failure may remove it and later records.
        """
        if not self.size:
            self.renew(content)
            return
        record = _record(content)
        with storing(f"write {self.path}"):
            handle = os.open(self.path, os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0))
            with os.fdopen(handle, "wb") as file:
                file.truncate(self.size)
                file.seek(self.size)
                file.write(record)
                file.flush()
                if flushed:
                    flush(file.fileno())
        self.size += len(record)

    def renew(self, content: bytes) -> None:
        """Write a record that replaces all others."""
        record = _record(content)
        write_bytes(self.path, record, private=self._private)
        self.size = len(record)

    def _damaged(self) -> DamagedError:
        return DamagedError(f"{self.path} is damaged: it is not what was written")


def _record(content: bytes) -> bytes:
    return HEAD.pack(len(content), len(content) ^ ONES, _digest(content)) + content


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()

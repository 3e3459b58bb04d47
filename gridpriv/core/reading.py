"""Files, read within a stated size, and Parquet tables within a stated memory.

Only regular files are read. A pipe or a device has no end and may never answer, so it is refused
before a byte of it is waited for: what is opened is looked at again through its handle, so that
nothing can take the file's place in between.

A Parquet file of a few bytes can say a column of a billion equal numbers, or a million rows that
all name one text of a megabyte. What a table would take is therefore known before it is made:
numbers from the file's own account, texts from their dictionary, in which each stands once.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import stat
import tomllib
import zlib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, TypeVar

from gridpriv.core.errors import InputError
from gridpriv.core.text import Json

Made = TypeVar("Made")

MIB = 2**20
LARGEST = 256 * MIB
"""Bytes of a case, a zone map or a demand file: the largest public grids need a tenth of it."""
MOST_PACKED = 50
"""Bytes of an unpacked file for each of the packed one; handwritten digits have five."""
LARGEST_OWN = 1024 * MIB
"""Bytes of a file that gridpriv itself wrote."""
LONGEST_SHOWN = 100
KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)
UNBLOCKED = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)


class MissingFileError(InputError, FileNotFoundError):
    """A file that is not there."""


def read_bytes(path: Path, what: str = "file", most: int = LARGEST_OWN) -> bytes:
    """Return the bytes of a file.

    Parameters
    ----------
    what : str
        What the file is to the user, for the errors: ``case file``.
    most : int
        Bytes that it may have.

    Raises
    ------
    MissingFileError
        If there is none.
    InputError
        If it cannot be read, is no regular file, or is larger.
    """
    try:
        _regular(path.stat().st_mode, path, what)
        with open(os.open(path, UNBLOCKED), "rb") as file:  # noqa: PTH123
            status = os.fstat(file.fileno())
            _regular(status.st_mode, path, what)
            content = file.read(most + 1) if status.st_size <= most else None
    except FileNotFoundError as error:
        raise MissingFileError(f"{what} {path} does not exist") from error
    except (OSError, ValueError) as error:  # ValueError: a path that no system allows
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{what} {path}: {reason}") from error
    if content is None or len(content) > most:
        raise InputError(f"{what} {path}: must be at most {most / MIB:g} MiB")
    return content


def read_secret(path: Path, what: str) -> bytes:
    """Return the bytes of a key, which nobody but its owner may read or change.

    Raises
    ------
    InputError
        As :func:`read_bytes`, and where its mode allows others anything.
    """
    content = read_bytes(path, what, MIB)
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise InputError(
            f"{what} {path} can be read or changed by other users (mode {mode:04o}): make it its "
            "owner's alone (chmod 600)"
        )
    return content


def read_packed(path: Path, what: str, most: int) -> bytes:
    """Return the bytes of a file, unpacked if its name ends in ``.gz``.

    Raises
    ------
    InputError
        As :func:`read_bytes`, and for what is no gzip file or unpacks to far more than it has.
    """
    content = read_bytes(path, what, most)
    if path.suffix != ".gz":
        return content
    bound = unpacked_bound(len(content))
    try:
        with gzip.open(io.BytesIO(content)) as file:
            read = file.read(bound + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(
            f"{what} {path} is no gzip file: {error}; give a file made by gzip"
        ) from error
    if len(read) > bound:
        raise InputError(f"{what} {path}: must be a file that unpacks to at most {bound} bytes")
    return read


def unpacked_bound(packed: int) -> int:
    """Return the limit on unpacked bytes for a packed size."""
    return MIB + MOST_PACKED * packed


def read_text(path: Path, what: str = "file", most: int = LARGEST_OWN) -> str:
    """Return the text of a UTF-8 file (with or without a byte order mark).

    Raises
    ------
    InputError
        As :func:`read_bytes`, and if the bytes are no UTF-8.
    """
    content = read_bytes(path, what, most)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        if b"\0" in content:
            raise InputError(
                f"{what} {path}, line {line}: not UTF-8 text: not a text file; give a text file"
            ) from error
        raise InputError(
            f"{what} {path}, line {line}: not UTF-8 text ({error.reason}); save the file as UTF-8"
        ) from error


def read_table(path: Path, what: str) -> Json:
    """Return the table that a TOML file holds, or a JSON file, if its name ends in ``.json``.

    Raises
    ------
    InputError
        If it cannot be read, with the line, or holds no table.
    """
    try:
        text = read_text(path, what, MIB)
        document = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{what} {path}: {error}") from error
    if not isinstance(document, dict):
        raise InputError(f"{what} {path}: a table of keys is expected")
    return document


def read_document(
    path: Path, what: str, form: str, keys: Collection[str], make: Callable[[Json], Made]
) -> Made:
    """Read a JSON object with a format number and exactly these keys.

    Raises
    ------
    InputError
        If it cannot be read, is not of the format, or nothing can be made of it.
    """
    where = f"{what} {path}"
    try:
        document = json.loads(read_text(path, what, LARGEST))
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


def shown(text: str) -> str:
    """Return a text of a file as an error shows it: quoted, and not longer than a line."""
    return repr(text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + "...")


def _regular(mode: int, path: Path, what: str) -> None:
    if not stat.S_ISREG(mode):
        kind = next((name for test, name in KINDS if test(mode)), "a special file")
        raise InputError(f"{what} {path} is {kind}: must be a regular file")


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
        If a column holds lists, or if it unpacks to more than 64 MiB and to more than fifty times
        its own bytes.
    ValueError, OSError
        If it is no Parquet file.
    """
    import pyarrow.parquet as pq

    most = max(LEAST_UNPACKED, unpacked_bound(len(content)))
    file = pq.ParquetFile(io.BytesIO(content))
    for column in file.schema_arrow:
        if column.type.num_fields:
            raise InputError(f"{path}: must be a table without lists (column {column.name})")
    groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
    parts = [group.column(number) for group in groups for number in range(group.num_columns)]
    numbers = sum(max(part.total_uncompressed_size, 8 * part.num_values) for part in parts)
    texts = [field.name for field in file.schema_arrow if _is_text(field.type)]
    if numbers > most or _text_bytes(content, texts) > most:
        raise InputError(f"{path}: must be a file that unpacks to at most {most} bytes")
    return pq.read_table(io.BytesIO(content))


def _is_text(kind: Any) -> bool:
    import pyarrow.types as of

    kind = kind.value_type if of.is_dictionary(kind) else kind
    return any(test(kind) for test in (of.is_string, of.is_large_string, of.is_binary))


def _text_bytes(content: bytes, columns: list[str]) -> int:
    """Return the unpacked size of the text columns of a table, bytes."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    if not columns:
        return 0
    table = pq.read_table(io.BytesIO(content), columns=columns, read_dictionary=columns)
    return sum(
        pc.sum(pc.take(pc.binary_length(part.dictionary), part.indices)).as_py() or 0
        for column in table.columns
        for part in column.chunks
    )

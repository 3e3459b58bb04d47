"""Content with a checksum: JSON documents and files of records, whose damage is found when read.

A document holds the checksum of its own content. Records follow each other in one file, each on
disk, by one flush, when it was added::

    size, u64 | its complement, u64 | SHA-256 of the content | content

The first record is written whole or not at all (:mod:`gridpriv.core.files`), so are those that
take the place of all others. What a process leaves that is killed while it adds another is the
beginning of a record at the end: nobody has read it, and the next one overwrites it.
Anything else that is not what was written is refused. docs/decisions/0060-network.md has times.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gridpriv.core.errors import InputError
from gridpriv.core.files import read_bytes, storing, write_bytes
from gridpriv.core.text import Json

CHECKSUM = "checksum"


class DamagedError(InputError):
    """A file whose content is not what was written."""


def sealed(
    document: Json, *, default: Callable[[Any], Any] | None = None, indent: int | None = None
) -> str:
    """Return a document as JSON text that holds its checksum; options as of ``json.dumps``."""
    plain = json.loads(json.dumps(document, default=default))
    return json.dumps(plain | {CHECKSUM: _checksum(plain)}, indent=indent) + "\n"


def read_json(path: Path) -> Json:
    """Return the JSON object that a file holds.

    Raises
    ------
    MissingFileError
        If there is no such file.
    DamagedError
        If it is no JSON object.
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
        If it is not what was written.
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
    """A file of records; whoever writes it holds its folder (:mod:`gridpriv.core.files`).

    Parameters
    ----------
    private : bool
        Whether only its owner may read it.

    Attributes
    ----------
    size : int
        Bytes of the records that were read and added.
    """

    def __init__(self, path: Path, *, private: bool) -> None:
        self.path, self._private = path, private
        self.size = 0

    def read(self) -> list[bytes]:
        """Return all records; none where there is no file.

        Raises
        ------
        DamagedError
            If they are not what was written.
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
            Whether it is on disk on return; else a power failure may take it, and those after it.
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
        """Write a record in the place of all others."""
        record = _record(content)
        write_bytes(self.path, record, private=self._private)
        self.size = len(record)

    def _damaged(self) -> DamagedError:
        return DamagedError(f"{self.path} is damaged: it is not what was written")


def _record(content: bytes) -> bytes:
    return HEAD.pack(len(content), len(content) ^ ONES, _digest(content)) + content


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()

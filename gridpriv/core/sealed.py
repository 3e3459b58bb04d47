"""JSON documents with a checksum of their own content: damage is found when they are read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gridpriv.core.document import Json
from gridpriv.core.errors import InputError
from gridpriv.core.reading import read_bytes

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

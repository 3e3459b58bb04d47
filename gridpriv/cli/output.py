"""The folder of ``--out``, and what commands without a store write into it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from gridpriv.core.document import Json
from gridpriv.core.errors import InputError
from gridpriv.core.files import make_folder, write_text
from gridpriv.core.sealed import sealed
from gridpriv.core.text import frame_csv

if TYPE_CHECKING:
    import pandas as pd


def output_folder(text: str | None) -> Path | None:
    """Return the folder of ``--out``, refusing early what cannot be written to.

    It is not left behind: whoever writes makes it, so that a command that fails
    leaves nothing.
    """
    if text is None:
        return None
    folder = Path(text)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"out = {text!r} is not allowed: a folder, not a file")
    missing = [part for part in (folder, *folder.parents) if not part.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for part in missing:
            part.rmdir()
        if not missing and not os.access(folder, os.W_OK | os.X_OK):
            raise InputError(f"cannot write to {folder}: permission denied")
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror}") from error
    return folder


def write_results(folder: Path, name: str, document: Json, **tables: pd.DataFrame) -> None:
    """Write tables as CSV and a JSON document with a checksum of its own, for their owner."""
    make_folder(folder)
    for title, table in tables.items():
        write_text(folder / f"{title}.csv", frame_csv(table), private=True)
    write_text(folder / f"{name}.json", sealed(document, indent=2), private=True)

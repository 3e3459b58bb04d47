"""Files that are written whole or not at all, and folders that one process writes at a time.

A file is written beside its place under a name that nobody can predict (so no link can lie in
wait there), flushed to disk, renamed, and its folder is flushed: after a crash at any point the
place holds the old content or the new one, never a part. What is left beside it by a process
that was killed is called ``.<name>.<16 hex digits>.part``; :func:`sweep` removes it.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gridpriv.core.errors import GridprivError

PRIVATE_MODE, PUBLIC_MODE = 0o600, 0o666  # the latter less the process's umask
LEFT_BESIDE = re.compile(r"\..+\.[0-9a-f]{16}\.part")


class StorageError(GridprivError):
    """A file or folder that cannot be written to; what was stored before stays."""

    exit_code = 3


@contextmanager
def beside(path: Path, *, private: bool) -> Iterator[Path]:
    """Yield a new empty file beside ``path`` to write to; it takes the place when done.

    Parameters
    ----------
    path : Path
    private : bool
        Whether only its owner may read it (mode 0600), or whom the umask allows.

    Raises
    ------
    StorageError
        If it cannot be written; ``path`` is as it was.
    """
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    try:
        os.close(_create(part, private))
        yield part
        flush(part)
        part.replace(path)
        flush(path.parent)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            part.unlink()


def write_bytes(path: Path, content: bytes, *, private: bool) -> None:
    """Write a file whole or not at all; see :func:`beside`."""
    with beside(path, private=private) as part, part.open("wb") as file:
        file.write(content)


def write_text(path: Path, text: str, *, private: bool) -> None:
    """Write a UTF-8 text whole or not at all; see :func:`beside`."""
    write_bytes(path, text.encode("utf-8"), private=private)


def flush(path: Path) -> None:
    """Bring a file, or a folder's list of names, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sweep(folder: Path) -> None:
    """Remove what killed writers left beside their files; only for who holds the folder."""
    if folder.is_dir():
        for path in folder.iterdir():
            if LEFT_BESIDE.fullmatch(path.name):
                path.unlink(missing_ok=True)


def _create(path: Path, private: bool) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    return os.open(path, flags, PRIVATE_MODE if private else PUBLIC_MODE)

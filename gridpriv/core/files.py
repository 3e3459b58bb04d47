"""Files that are written whole or not at all.

A file is written beside its place under a name that nobody can predict (so no link can lie in
wait there), flushed to disk, renamed over the place (a link there is replaced, not followed), and
its folder is flushed: after a crash at any point the place holds the old content or the new one,
never a part. A process that is killed leaves at most the file beside, ``.<16 hex digits>.part``;
who holds the folder (:mod:`gridpriv.core.files`) removes it with :func:`sweep`.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from gridpriv.core.errors import GridprivError, InputError

PRIVATE_MODE, PUBLIC_MODE = 0o600, 0o666  # the latter less the process's umask
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
LEFT_BESIDE = re.compile(r"\.[0-9a-f]{16}\.part")


class StorageError(GridprivError):
    """A file or folder that cannot be written to; what was stored before stays."""

    exit_code = 3


@contextmanager
def storing(what: str, outcome: str = "") -> Iterator[None]:
    """Turn the operating system's errors into a sentence: ``cannot WHAT: why`` and the outcome."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot {what}: {error.strerror or error}{outcome}") from error


@contextmanager
def beside(path: Path, *, private: bool) -> Iterator[BinaryIO]:
    """Yield a new file beside ``path`` to write to; it takes the place when done.

    Parameters
    ----------
    private : bool
        Whether only its owner may read it (mode 0600), or whom the umask allows.

    Raises
    ------
    StorageError
        If it cannot be written; ``path`` is as it was. A device, a pipe or a folder in its place
        is left there: a new name for a file would take the device's away.
    """
    with storing(f"write {path}"):
        special = path.exists() and not path.is_file()
    if special:
        raise StorageError(f"cannot write {path}: it is there already, and no regular file")
    part = path.with_name(f".{secrets.token_hex(8)}.part")
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


def write_bytes(path: Path, content: bytes, *, private: bool) -> None:
    """Write a file whole or not at all; see :func:`beside`."""
    with beside(path, private=private) as file:
        file.write(content)


def write_text(path: Path, text: str, *, private: bool) -> None:
    """Write a UTF-8 text whole or not at all; see :func:`beside`."""
    write_bytes(path, text.encode("utf-8"), private=private)


def write_texts(files: Mapping[Path, str]) -> None:
    """Write several public UTF-8 texts: all are on disk before the first takes its place.

    Raises
    ------
    StorageError
        If one cannot be written; none is then at its place.
    """
    with ExitStack() as stack:
        for path, text in reversed(list(files.items())):  # places are taken in the order of files
            file = stack.enter_context(beside(path, private=False))
            with storing(f"write {path}"):
                file.write(text.encode("utf-8"))
                file.flush()


def make_folder(path: Path) -> None:
    """Make a folder, with those above it, where there is none.

    Raises
    ------
    StorageError
        If it cannot be made.
    """
    with storing(f"make {path}"):
        path.mkdir(parents=True, exist_ok=True)


def remove(path: Path) -> None:
    """Remove a file, or a folder with the files in it, if it is there.

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
    """Bring a file, or a folder's list of names, to the disk."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def is_left(path: Path) -> bool:
    """Test for a temporary file that a killed writer left."""
    return LEFT_BESIDE.fullmatch(path.name) is not None


def sweep(folder: Path) -> None:
    """Remove what killed writers left beside their files; only for who holds the folder."""
    for path in names_in(folder):
        if is_left(path):
            remove(path)


def names_in(folder: Path) -> list[Path]:
    """Return the sorted names in a folder; none if it does not exist."""
    with storing(f"read {folder}"), suppress(FileNotFoundError):
        return sorted(folder.iterdir())
    return []


def refuse_used(folder: Path, allowed: str = "") -> None:
    """Raise :class:`InputError` for a folder that holds anything but the file allowed."""
    others = [path.name for path in names_in(folder) if path.name != allowed]
    if others:
        raise InputError(
            f"out = {str(folder)!r}: must be a new or empty folder; it holds other files "
            f"({', '.join(others[:3])}{', ...' if len(others) > 3 else ''}); "
            "choose another folder with --out"
        )


LOCK = ".lock"
LONGEST_HOLDER = 300  # characters of what a lock file says


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold a folder, made where there is none, against other writers.

    One that was made here and is left empty is removed again.

    Processes that the holder starts write under its lock and take none themselves.

    Raises
    ------
    InputError
        If another process holds it (or this one does already).
    StorageError
        If the lock cannot be written.
    """
    made = not folder.exists()
    make_folder(folder)
    path = folder / LOCK
    with storing(f"lock {folder}"):
        handle = _acquire(path)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()
        os.close(handle)
        if made:
            with suppress(OSError):
                folder.rmdir()


def _acquire(path: Path) -> int:
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
                f"{path.parent} is being written to by {holder or 'another process'}: "
                "wait for it to end, or name another folder"
            ) from None
        except OSError:
            os.close(handle)
            raise
        # the holder before us may have removed this file after we opened it
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), path.lstat()):
                os.ftruncate(handle, 0)
                os.write(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
                return handle
        os.close(handle)

"""One writer per folder.

The lock is the operating system's (``flock``) on a file in the folder: whatever ends its holder
frees it, so none is ever stale. The file names the holder for people and is removed with the
lock; one that a killed process left is taken over.
"""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gridpriv.core.errors import InputError
from gridpriv.core.files import PRIVATE_MODE, make_folder, storing

LOCK = ".lock"
LONGEST = 300  # characters of what a lock file says


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
            holder = os.read(handle, LONGEST).decode("utf-8", "replace").strip()
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

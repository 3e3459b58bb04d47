"""End a process, or fail its storage, at a chosen file operation.

The action runs in a fork of this process. An operation is every change
in the watched folder (create, write, flush, rename, remove, make or remove a folder, lock) and,
where operations fail instead of ending the process, every opening for reading, too.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gridpriv.core import files

How = Literal["kill", "full", "error"]
KILLED, DEFECT = 137, 70
CHANGES = {
    "os.rename",
    "os.remove",
    "os.mkdir",
    "os.rmdir",
    "os.truncate",
    "os.chmod",
    "fcntl.flock",
    "os.link",
    "os.symlink",
}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


@dataclass(frozen=True)
class Outcome:
    """Outcome of the action: exit status, output, and number of operations."""

    status: int
    said: str
    operations: int


def run(action: Callable[[], int | None], folder: Path, at: int = 0, how: How = "kill") -> Outcome:
    """Run ``action`` in a fork with a fault at its ``at``-th operation (0: none).

    ``kill`` ends the process there as SIGKILL would; ``full`` fails that and every later
    operation that needs room on the disk; ``error`` fails that one operation.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    note = folder.parent / f"{folder.name}.said"
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        with note.open("w", buffering=1, encoding="utf-8") as said:
            sys.stdout = sys.stderr = said
            warnings.simplefilter("always")
            faults = Faults(str(folder), at, how, write)
            try:
                status = action() or 0
            except BaseException:
                traceback.print_exc()
                status = DEFECT
            faults.tell()
            said.flush()
            os._exit(status)
    os.close(write)
    _, ended = os.waitpid(child, 0)
    with os.fdopen(read, "rb") as pipe:
        counted = int.from_bytes(pipe.read(8), "big")
    text = note.read_text(encoding="utf-8", errors="replace")
    note.unlink()
    return Outcome(os.waitstatus_to_exitcode(ended), text, counted)


class Faults:
    """Counts operations below a folder and makes one of them go wrong."""

    def __init__(self, folder: str, at: int, how: How, report: int) -> None:
        self.folder, self.at, self.how, self.report = folder, at, how, report
        self.unfinished = str(Path(folder).with_name(f".{Path(folder).name}.unfinished"))
        self.count = 0
        sys.addaudithook(self.audit)
        self._fdopen, self._fsync = os.fdopen, os.fsync
        os.fdopen, os.fsync = self.fdopen, self.fsync  # type: ignore[assignment]
        files.flush = self.fsync  # which was os.fdatasync

    def tell(self) -> None:
        os.write(self.report, self.count.to_bytes(8, "big"))

    def audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = args
            writes = bool(flags & WRITES)
            if self._watched(path) and (writes or self.how == "error"):
                self.operation(needs_room=writes)
        elif event in CHANGES and self._watched(args[0]):
            self.operation(needs_room=event in {"os.mkdir"})

    def fdopen(self, handle: int, *rest: Any, **more: Any) -> Any:
        file = self._fdopen(handle, *rest, **more)
        watched = self._watched(handle) and file.writable()
        return Watched(file, self) if watched else file

    def fsync(self, handle: int) -> None:
        if self._watched(handle):
            self.operation(needs_room=True)
        self._fsync(handle)

    def operation(self, *, needs_room: bool) -> None:
        self.count += 1
        if not self.at:
            return
        if self.how == "kill" and self.count == self.at:
            self.tell()
            os._exit(KILLED)
        if self.how == "full" and self.count >= self.at and needs_room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self.how == "error" and self.count == self.at:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def _watched(self, place: Any) -> bool:
        if isinstance(place, int):
            try:
                place = str(Path(f"/proc/self/fd/{place}").readlink())
            except OSError:
                return False
        path = os.fsdecode(place) if isinstance(place, bytes | str | os.PathLike) else ""
        return path.startswith((self.folder + os.sep, self.unfinished)) or path == self.folder


class Watched(io.BufferedIOBase):
    """A file whose every write is an operation; the last one may stop half way."""

    def __init__(self, file: Any, faults: Faults) -> None:
        self._file, self._faults = file, faults

    def write(self, content: Any) -> int:
        if self._faults.how == "kill" and self._faults.count + 1 == self._faults.at:
            self._file.write(memoryview(content)[: len(content) // 2])
            self._file.flush()
        self._faults.operation(needs_room=True)
        return int(self._file.write(content))

    def truncate(self, size: int | None = None) -> int:
        self._faults.operation(needs_room=False)
        return int(self._file.truncate(size))

    def seek(self, place: int, whence: int = 0) -> int:
        return int(self._file.seek(place, whence))

    def writable(self) -> bool:
        return True

    def flush(self) -> None:
        if not self._file.closed:
            self._file.flush()

    def fileno(self) -> int:
        return int(self._file.fileno())

    def close(self) -> None:
        self._file.close()
        super().close()


def content(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder by its name in it."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }

"""The ledger's file, authenticated with a key, and the register of all ledgers of a user.

**File.** A head of fixed width is followed by one line for each row::

    gridpriv ledger 2 000000000017 <seal>
    <mac 1> <row 1, JSON>
    ...
    <mac 17> <row 17, JSON>

    mac_n = HMAC-SHA256(key, "row" | n | mac_{n-1} | row n),  mac_0 = 0
    seal  = HMAC-SHA256(key, "head" | n | mac_n)

Every byte is authenticated: a row by its own MAC and all later ones, the head by its seal, which
includes the number of rows. Without the key no row can be changed, moved, removed or added, and the
file cannot be truncated. An older copy of the whole file is not detected; for that, keep a head
elsewhere (:func:`gridpriv.privacy.ledger.verify`).

A row is appended and flushed to disk; then the head is overwritten in place, within one sector,
which a disk writes atomically. A process that is killed in between leaves one of:

- the end of a row without its newline: the next writer removes it;
- complete rows that the head does not count yet: they are valid, and the next writer updates the
  head.

The head reaches the disk with the next row or when the ledger is closed. Writers take the file's
exclusive lock (``flock``) and readers a shared one, so the file system must support such locks.
docs/decisions/0015-ledger-file.md compares this with an SQLite database.

**Register.** It records which ledger has the grant of a physical unit, and the last head of each
ledger. All ledgers made on a machine are entered, and the processes of one user share it:

- a unit with a grant in any ledger is granted nothing by a second ledger, whatever the zones, the
  scale of demand or the base of the case, or the clients of the training samples;
- a ledger older than its last recorded head (a restored copy) is not charged.

A bus is entered by a digest of its number and of the numbers of all buses of the grid. Training
samples and clients are entered by a digest of their data set: of its name, or of the training data
of own files. The latter digest has no key, so the register is for the data owner only. It cannot
protect against another user, another machine, or its own deletion.

It is the folder ``$GRIDPRIV_STATE``, by default ``$XDG_STATE_HOME/gridpriv`` or
``~/.local/state/gridpriv``. Ledgers in the folder of temporary files are for trials and have a
register in the same folder.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from gridpriv.core.errors import InputError, warn
from gridpriv.core.files import (
    PRIVATE_MODE,
    StorageError,
    flush_path,
    read_secret,
    storing,
    write_text,
)

UNDONE, UNRELEASED = "nothing charged", "; nothing was released"
MAGIC = b"gridpriv ledger 2 "
COUNT_DIGITS, MAC_BYTES = 12, 32
KEY = re.compile(rb"[0-9a-f]{64}\n")
NO_MAC = bytes(MAC_BYTES)


@dataclass(frozen=True)
class Head:
    """Head of a chain of rows: their number and the MAC of the last one (public)."""

    count: int = 0
    mac: bytes = NO_MAC

    def __str__(self) -> str:
        return f"{self.count}:{self.mac.hex()}"


def parse_head(text: str) -> Head:
    """Return the head that ``str(head)`` was."""
    fields = re.fullmatch(r"([0-9]{1,12}):([0-9a-f]{64})", text)
    if not fields:
        raise InputError(
            f"head = {text!r}: must be a number of rows, a colon and 64 hexadecimal "
            "digits, as 'gridpriv ledger verify' prints it"
        )
    return Head(int(fields[1]), bytes.fromhex(fields[2]))


@dataclass(frozen=True)
class Key:
    """An owner's secret key, for the MACs of a ledger's rows and the marks of its data."""

    secret: bytes

    def __repr__(self) -> str:
        return "Key(...)"

    def digest(self, purpose: str, content: bytes) -> bytes:
        """Return HMAC-SHA256 of the content, separated by purpose."""
        return hmac.digest(
            self.secret, f"gridpriv ledger 2 {purpose}\0".encode() + content, hashlib.sha256
        )

    def follow(self, head: Head, row: bytes) -> Head:
        """Return the head of a chain with a further row."""
        number = head.count + 1
        return Head(number, self.digest("row", number.to_bytes(8) + head.mac + row))

    def seal(self, head: Head) -> bytes:
        """Return a head as it is in the file."""
        seal = self.digest("head", head.count.to_bytes(8) + head.mac)
        return b"%s%0*d %s\n" % (MAGIC, COUNT_DIGITS, head.count, seal.hex().encode())


def key_path(path: Path, key: Path | None) -> Path:
    """Return the path of a ledger's key: as given by its owner, or in the ledger's folder."""
    return Path(f"{path}.key") if key is None else key


def read_key(path: Path) -> Key:
    """Return a key from its file, which only its owner may read.

    Raises
    ------
    InputError
        If the file is missing, readable by others, or not a key.
    """
    try:
        content = read_secret(path, "key")
    except FileNotFoundError:
        raise InputError(
            f"there is no key {path}, without which its ledger cannot be read; {UNDONE}"
        ) from None
    except InputError as error:
        raise InputError(f"{error}; {UNDONE}") from None
    if not KEY.fullmatch(content):
        raise InputError(f"key {path} is not a key: one line of 64 hexadecimal digits; {UNDONE}")
    return Key(bytes.fromhex(content.decode()))


def make_key(path: Path) -> None:
    """Make a key where the file is missing, or empty after a killed process."""
    with storing(f"write {path}", UNRELEASED):
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, PRIVATE_MODE)
        try:
            if os.fstat(handle).st_size == 0:
                write_at(handle, secrets.token_hex(32).encode() + b"\n", 0)
                os.fsync(handle)
        finally:
            os.close(handle)
        flush_path(path.parent)


def write_at(handle: int, content: bytes, offset: int) -> None:
    """Write all of the content at a place of an open file."""
    while content:
        written = os.pwrite(handle, content, offset)
        content, offset = content[written:], offset + written


MAC_DIGITS = 2 * MAC_BYTES
HEAD_BYTES = len(MAGIC) + COUNT_DIGITS + 1 + MAC_DIGITS + 1
HEAD = re.compile(rb"%s(\d{%d}) ([0-9a-f]{%d})\n" % (MAGIC, COUNT_DIGITS, MAC_DIGITS))
PAUSE = 0.002  # seconds between two tries to lock


@dataclass(frozen=True)
class ChainedRow:
    """A row and the head of the chain that ends with it."""

    head: Head
    body: bytes


class LockedFile:
    """A file at a path, opened and locked for each use; a replaced file is refused.

    Parameters
    ----------
    timeout : float
        Seconds to wait for other processes.
    """

    def __init__(self, path: Path, timeout: float) -> None:
        self.path = path
        self._timeout = timeout
        self._handle: int | None = None
        self._place: tuple[int, int] | None = None

    @contextmanager
    def _locked(self, flags: int, kind: int) -> Iterator[int]:
        handle = self._open(flags)
        try:
            _lock(handle, kind, self._timeout, self.path)
            self._check_place(handle)
            self._handle = handle
            yield handle
        finally:
            self._handle = None
            os.close(handle)

    def _open(self, flags: int) -> int:
        try:
            # without O_NONBLOCK, opening a pipe without a writer blocks
            handle = _opened(self.path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            raise self._missing(flags) from None
        except (OSError, ValueError) as error:  # ValueError: a name with a null character
            reason = getattr(error, "strerror", None) or error
            act = "read" if flags == os.O_RDONLY else "written"
            raise InputError(f"ledger {self.path} cannot be {act}: {reason}; {UNDONE}") from error
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise InputError(f"ledger {self.path} is not a regular file; {UNDONE}")
        return handle

    def _missing(self, flags: int) -> InputError:
        if flags & os.O_CREAT and self.path.is_symlink():
            return InputError(
                f"ledger {self.path} is a link to a file that does not exist: name the file "
                "itself, or remove the link"
            )
        if flags & os.O_CREAT:
            return InputError(
                f"ledger {self.path}: there is no folder {self.path.parent}"
                "; make it, or name another"
            )
        return InputError(
            f"there is no ledger {self.path}; 'gridpriv ledger grant {self.path} --case CASE "
            "--total E' makes one"
        )

    def _check_place(self, handle: int) -> None:
        """Refuse a file that is not, or no longer, at the ledger's path."""
        status = os.fstat(handle)
        place = status.st_dev, status.st_ino
        try:
            same = os.path.samestat(status, self.path.stat())
        except OSError:
            same = False
        if not same or (self._place or place) != place:
            raise InputError(
                f"ledger {self.path} was moved or replaced while it was in use; {UNDONE}"
            )
        self._place = place


class LedgerFile(LockedFile):
    """A ledger's file, and the rows that this object has read and checked.

    No file stays open between two uses, so the object may cross a fork. New rows of a file that
    grew are read; any other change is refused.

    Parameters
    ----------
    timeout : float
        Seconds to wait for other processes.
    """

    def __init__(self, path: Path, key: Path, timeout: float) -> None:
        super().__init__(path, timeout)
        self.head = Head()
        self.unfinished = 0
        self._key_path = key
        self._key: Key | None = None
        self._offset = HEAD_BYTES
        self._last = b""

    @property
    def key(self) -> Key:
        """The owner's key; its file is read once."""
        if self._key is None:
            self._key = read_key(self._key_path)
        return self._key

    @contextmanager
    def reading(self) -> Iterator[list[ChainedRow]]:
        """Yield the new rows under a shared lock."""
        with self._locked(os.O_RDONLY, fcntl.LOCK_SH):
            yield self._new_rows()

    @contextmanager
    def writing(self) -> Iterator[list[ChainedRow]]:
        """Yield the new rows under an exclusive lock; :meth:`append` may be called."""
        with self._locked(os.O_RDWR, fcntl.LOCK_EX):
            yield self._continued()

    @contextmanager
    def making(self) -> Iterator[list[ChainedRow]]:
        """As :meth:`writing`; the file and its key are made where they are missing."""
        own_key = self._key_path == key_path(self.path, None)
        if not own_key or _has_content(self._key_path):
            self._key = read_key(self._key_path)
        with self._locked(os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX) as handle:
            if os.fstat(handle).st_size == 0:
                if own_key:
                    make_key(self._key_path)
                first = self.key.seal(Head())
                with storing(f"write {self.path}", UNRELEASED):
                    write_at(handle, first, 0)
                    os.fsync(handle)
                    flush_path(self.path.parent)
            yield self._continued()

    def append(self, body: bytes) -> None:
        """Add a row within :meth:`writing`; return when it is on disk.

        Raises
        ------
        StorageError
            If it cannot be written. The row may count nevertheless.
        """
        assert self._handle is not None
        head = self.key.follow(self.head, body)
        line = head.mac.hex().encode() + b" " + body + b"\n"
        with storing(f"write {self.path}", UNRELEASED):
            write_at(self._handle, line, self._offset)
            os.fsync(self._handle)
            write_at(self._handle, self.key.seal(head), 0)
        self._advance(head, line)

    def close(self) -> None:
        """Flush the head to disk."""
        if self._place is not None:
            with suppress(OSError):
                flush_path(self.path)

    def _continued(self) -> list[ChainedRow]:
        """Return the new rows; repair the file after a killed writer."""
        assert self._handle is not None
        rows = self._new_rows()
        with storing(f"write {self.path}", UNRELEASED):
            if self.unfinished:
                os.ftruncate(self._handle, self._offset)
                self.unfinished = 0
            seal = self.key.seal(self.head)
            if os.pread(self._handle, HEAD_BYTES, 0) != seal:
                write_at(self._handle, seal, 0)
        return rows

    def _new_rows(self) -> list[ChainedRow]:
        """Read and check the new rows."""
        assert self._handle is not None
        try:
            size = os.fstat(self._handle).st_size
            first_line = os.pread(self._handle, HEAD_BYTES, 0)
            self._check_kind(first_line)
            start = self._offset - len(self._last)
            with open(self._handle, "rb", closefd=False) as file:
                file.seek(start)
                new = file.read(max(size - start, 0))
        except OSError as error:
            reason = error.strerror or error
            raise InputError(f"ledger {self.path} cannot be read: {reason}; {UNDONE}") from error
        if new[: len(self._last)] != self._last:
            raise self._damaged(f"row {self.head.count} is not the one that was read before")
        *lines, incomplete = new[len(self._last) :].split(b"\n")
        rows, head = [], self.head
        for line in lines:
            head = self._checked(head, line)
            rows.append(ChainedRow(head, line[MAC_DIGITS + 1 :]))
        self._check_head(first_line, [self.head, *(row.head for row in rows)])
        for row, line in zip(rows, lines, strict=True):
            self._advance(row.head, line + b"\n")
        self.unfinished = len(incomplete)
        return rows

    def _check_kind(self, first_line: bytes) -> None:
        """Refuse a file that is not a ledger of this format."""
        if not HEAD.fullmatch(first_line):
            raise InputError(
                f"ledger {self.path} is not a gridpriv ledger, or its first line was changed; "
                + UNDONE
            )

    def _checked(self, before: Head, line: bytes) -> Head:
        """Return the head after a row, if its MAC is correct."""
        mac, space, body = line[:MAC_DIGITS], line[MAC_DIGITS : MAC_DIGITS + 1], line[65:]
        head = self.key.follow(before, body)
        if space != b" " or not hmac.compare_digest(mac, head.mac.hex().encode()):
            raise self._damaged(f"row {head.count} is not what was written")
        return head

    def _check_head(self, first_line: bytes, heads: list[Head]) -> None:
        """Refuse a head that is not the seal of one of the rows just read."""
        fields = HEAD.fullmatch(first_line)
        assert fields is not None
        place = int(fields[1]) - heads[0].count
        if place >= len(heads):
            raise self._damaged(f"it has {heads[-1].count} whole rows of {int(fields[1])}")
        if place < 0:
            raise self._damaged("its first line counts fewer rows than were read before")
        if not hmac.compare_digest(first_line, self.key.seal(heads[place])):
            raise self._damaged("its first line is not what was written")

    def _damaged(self, fault: str) -> InputError:
        return InputError(
            f"ledger {self.path} was changed or damaged, or {self._key_path} is another ledger's "
            f"key: {fault}; put back a copy that holds every charge; {UNDONE}"
        )

    def _advance(self, head: Head, line: bytes) -> None:
        self.head, self._last = head, line
        self._offset += len(line)


def _opened(path: Path, flags: int) -> int:
    """Open a ledger; do not create one through a link."""
    if flags & os.O_CREAT:
        with suppress(FileExistsError):
            return os.open(path, flags | os.O_EXCL | os.O_NOFOLLOW, PRIVATE_MODE)
    return os.open(path, flags & ~os.O_CREAT)


def _has_content(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except (OSError, ValueError) as error:
        if getattr(error, "errno", None) == errno.ENAMETOOLONG:
            reason = f"key {path}: must be a path with a shorter name; {UNDONE}"
            raise InputError(reason) from error
        return False


def _lock(handle: int, kind: int, timeout: float, path: Path) -> None:
    deadline = time.monotonic() + timeout
    while True:
        try:
            return fcntl.flock(handle, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise InputError(
                    f"ledger {path} is locked by another process; try again when that is done; "
                    + UNDONE
                ) from None
            time.sleep(PAUSE)
        except OSError as error:
            reason = error.strerror or error
            raise InputError(f"ledger {path} cannot be locked: {reason}; {UNDONE}") from error


ACCOUNTS, LOCK = "accounts.json", "lock"
TRIAL = ".gridpriv-register"


class Register:
    """The register of the ledger at a path.

    The MAC of its first row identifies a ledger, so a copy at another path is the same ledger.
    """

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger.absolute()
        self._folder = register_folder(self._ledger)

    @contextmanager
    def granting(
        self, units: Iterable[str], plural: str, identity: Callable[[], str]
    ) -> Iterator[None]:
        """Refuse units of another ledger; enter them for this ledger when the grant is written.

        Parameters
        ----------
        units : iterable of str
            Their digests.
        plural : str
            Name of the units, for the message.
        identity : callable
            Returns the MAC of the ledger's first row, or an empty text before there is one.

        Raises
        ------
        InputError
            For a unit of another ledger; nothing is entered then.
        """
        accounts = list(units)
        if not accounts or not self._make_folder():
            yield
            return
        with (self._folder / LOCK).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            entered, own = self._accounts(), identity()
            conflicting = [entered[u] for u in accounts if u in entered and entered[u][0] != own]
            if conflicting:
                where = ", ".join(sorted({path for _, path in conflicting}))
                raise InputError(
                    f"ledger {self._ledger}: {len(conflicting)} of {len(accounts)} {plural} have "
                    f"a grant on this machine already, in ledger {where}; a second grant for the "
                    f"same {plural} would refill their budget. Charge that ledger, or put back a "
                    "copy made after its last charge; nothing was granted"
                )
            try:
                yield
            except BaseException:
                if not entered:  # no earlier entry
                    with suppress(OSError):
                        (self._folder / LOCK).unlink()
                        self._folder.rmdir()
                raise
            entered |= dict.fromkeys(accounts, (identity(), str(self._ledger)))
            write_text(self._folder / ACCOUNTS, json.dumps(entered, indent=0), private=True)

    def check(self, identity: str, heads: Iterable[Head]) -> None:
        """Refuse a ledger without the last head that was recorded of it.

        Raises
        ------
        InputError
            For an older copy.
        """
        try:
            last = self._head_file(identity).read_text()
        except OSError:
            return
        if last not in {str(head) for head in heads}:
            raise InputError(
                f"ledger {self._ledger} is older than the last time that it was charged on this "
                f"machine (head {last}): put back the copy that goes on from there; {UNDONE}"
            )

    def note(self, identity: str, head: Head) -> None:
        """Record the last head of a ledger."""
        if self._make_folder():
            with suppress(StorageError):
                write_text(self._head_file(identity), str(head), private=True)

    def _head_file(self, identity: str) -> Path:
        return self._folder / f"{identity[:32]}.head"

    def _accounts(self) -> dict[str, tuple[str, str]]:
        """Return the identity and the path of the ledger that has each unit's grant."""
        path = self._folder / ACCOUNTS
        try:
            return {unit: (mac, at) for unit, (mac, at) in json.loads(path.read_text()).items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise InputError(f"register {path} cannot be read: {error}; {UNDONE}") from error

    def _make_folder(self) -> bool:
        """Make the folder; warn where the system does not allow it."""
        if not self._ledger.parent.is_dir():
            return False
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            warn(
                f"the register of grants {self._folder} cannot be made ({error.strerror}): a "
                "second ledger for the same data would not be noticed. Set GRIDPRIV_STATE to a "
                "folder that can be written",
                3,
            )
            return False
        return True


def register_folder(ledger: Path) -> Path:
    """Return the folder of the register for a ledger at an absolute path."""
    folder = os.environ.get("GRIDPRIV_STATE")
    if folder:
        return Path(folder)
    place = Path(os.path.realpath(ledger.parent))
    trials = Path(os.path.realpath(tempfile.gettempdir()))
    if trials in (place, *place.parents):
        return ledger.parent / TRIAL
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "gridpriv"

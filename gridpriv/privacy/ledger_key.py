"""The key that a ledger's rows are chained under, and the heads of that chain.

:mod:`gridpriv.privacy.ledger_file` has the formulas.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gridpriv.core.errors import InputError
from gridpriv.core.files import PRIVATE_MODE, StorageError, flush_folder
from gridpriv.core.reading import read_secret

UNDONE = "nothing charged, prior-only"
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
    found = re.fullmatch(r"([0-9]{1,12}):([0-9a-f]{64})", text)
    if not found:
        raise InputError(
            f"head = {text!r}: must be a number of rows, a colon and 64 hexadecimal "
            "digits, as 'gridpriv ledger verify' prints it"
        )
    return Head(int(found[1]), bytes.fromhex(found[2]))


@dataclass(frozen=True)
class Key:
    """An owner's secret: what a ledger's rows are chained and its data are marked under."""

    secret: bytes

    def __repr__(self) -> str:
        return "Key(...)"

    def digest(self, purpose: str, content: bytes) -> bytes:
        """Return HMAC-SHA256 of the content, apart for each purpose."""
        return hmac.digest(
            self.secret, f"gridpriv ledger 2 {purpose}\0".encode() + content, hashlib.sha256
        )

    def follow(self, head: Head, row: bytes) -> Head:
        """Return the head of a chain with one row more."""
        number = head.count + 1
        return Head(number, self.digest("row", number.to_bytes(8) + head.mac + row))

    def seal(self, head: Head) -> bytes:
        """Return a head as it stands in the file."""
        seal = self.digest("head", head.count.to_bytes(8) + head.mac)
        return b"%s%0*d %s\n" % (MAGIC, COUNT_DIGITS, head.count, seal.hex().encode())


def key_path(path: Path, key: Path | None) -> Path:
    """Return where a ledger's key is: where its owner says, or beside it."""
    return Path(f"{path}.key") if key is None else key


def read_key(path: Path) -> Key:
    """Return a key from its file, which nobody but its owner may read.

    Raises
    ------
    InputError
        If there is none, or others may read it, or it is no key.
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
    """Make a key where there is none, or an empty file that a killed process left."""
    with ledger_storing(path):
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, PRIVATE_MODE)
        try:
            if os.fstat(handle).st_size == 0:
                write_at(handle, secrets.token_hex(32).encode() + b"\n", 0)
                os.fsync(handle)
        finally:
            os.close(handle)
        flush_folder(path.parent)


@contextmanager
def ledger_storing(path: Path) -> Iterator[None]:
    """Turn the operating system's errors into a sentence that says what became of the releases."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise StorageError(f"cannot write {path}: {reason}; nothing was released") from error


def write_at(handle: int, content: bytes, offset: int) -> None:
    """Write all of the content at a place of an open file."""
    while content:
        written = os.pwrite(handle, content, offset)
        content, offset = content[written:], offset + written

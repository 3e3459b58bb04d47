"""What a coordinator keeps of a run: every turn's answers, a record a turn; all of it is public.

A coordinator is a function of its terms and of the answers it was given, so one that was stopped
goes on by going through them again: same orders, same penalties, to the last bit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from gridpriv.consensus.messages import Reply
from gridpriv.consensus.wire import COUNT, Answer, MessageError, Place, decode, encode
from gridpriv.core.errors import InputError
from gridpriv.core.records import Records

TURNS = "turns"
DIGEST = hashlib.sha256().digest_size


class Journal:
    """The turns of one run, in the order they were played.

    Parameters
    ----------
    folder : Path
        Whoever writes it holds it.

    Raises
    ------
    DamagedError
        If its file is not what was written.
    """

    def __init__(self, folder: Path, run: str, zones: Sequence[str]) -> None:
        self._run, self._zones = run, zones
        self._file = Records(folder / TURNS, private=False)
        self._found = self._file.read()
        self._turns = 0

    def next(self, place: Place, orders: Sequence[bytes]) -> list[Reply | None] | None:
        """Return the replies of the next turn if it was played before; None for a zone without.

        Raises
        ------
        InputError
            If another turn, or other orders, were played then.
        """
        self._turns += 1
        if self._turns > len(self._found):
            return None
        content = self._found[self._turns - 1]
        given, parts = content[:DIGEST], content[DIGEST:]
        if given != _digest(orders):
            raise InputError(
                f"{self._file.path} is of another run: its orders of {place} were others; name "
                "another run in the terms, or another state folder"
            )
        return self._replies(parts)

    def write(self, orders: Sequence[bytes], place: Place, replies: Sequence[Reply | None]) -> None:
        """Write the turn that :meth:`next` did not find."""
        parts = [_digest(orders)]
        for zone, reply in zip(self._zones, replies, strict=True):
            told = b"" if reply is None else encode(Answer(self._run, zone, place, reply))
            parts += [COUNT.pack(len(told)), told]
        self._file.add(b"".join(parts))

    def _replies(self, parts: bytes) -> list[Reply | None]:
        replies: list[Reply | None] = []
        at = 0
        while at < len(parts):
            (size,) = COUNT.unpack_from(parts, at)
            at += COUNT.size
            told = decode(parts[at : at + size]) if size else None
            if told is not None and not isinstance(told, Answer):
                raise MessageError(f"{self._file.path} holds what is no answer")
            replies.append(None if told is None else told.reply)
            at += size
        return replies


def _digest(parts: Sequence[bytes]) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()

"""The coordinator's journal of a run: every turn's answers, one record a turn; all public.

A coordinator is a function of its agreement and of the answers it received. One that was stopped
goes on by going through them again: same orders, same penalties, to the last bit. The answers are
kept as they came, signed, so the journal is the coordinator's transcript too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from gridpriv.consensus.messages import Reply
from gridpriv.consensus.wire import Answer, MessageError, TurnId, decode, packed, unpacked
from gridpriv.core.errors import InputError
from gridpriv.core.records import Records
from gridpriv.core.sealed import DamagedError

TURNS = "turns"
ANSWERS = tuple[bytes, ...]
DIGEST = hashlib.sha256().digest_size


class Journal:
    """The turns of one run, in order.

    Parameters
    ----------
    folder : Path
        Whoever writes the journal holds it.

    Raises
    ------
    DamagedError
        If its file is not what was written.
    """

    def __init__(self, folder: Path) -> None:
        self._file = Records(folder / TURNS, private=False)
        self._recorded = self._file.read()
        self._turns = 0

    def next(self, turn: TurnId, requests: Sequence[bytes]) -> list[Reply | None] | None:
        """Return the replies of the next turn if it is recorded; None for a zone without.

        Parameters
        ----------
        requests : sequence of bytes
            Without signatures.

        Raises
        ------
        InputError
            If the recorded turn had other requests.
        """
        self._turns += 1
        if self._turns > len(self._recorded):
            return None
        content = self._recorded[self._turns - 1]
        if content[:DIGEST] != _digest(requests):
            raise InputError(
                f"{self._file.path} is of another run: its orders of {turn} were others; name "
                "another run in the agreement, or another state folder"
            )
        return [reply_of(answer) for answer in answers_of(content, self._file.path)]

    def write(self, requests: Sequence[bytes], answers: Sequence[bytes]) -> None:
        """Write the turn that :meth:`next` did not have; empty for a zone without an answer."""
        self._file.add(_digest(requests) + packed(tuple(answers), ANSWERS))


def read_journal(folder: Path) -> list[tuple[bytes, ...]]:
    """Return the answers of every turn, as they came; nothing where there is no journal."""
    path = folder / TURNS
    return [answers_of(content, path) for content in Records(path, private=False).read()]


def answers_of(content: bytes, path: Path) -> tuple[bytes, ...]:
    """Return the answers of one record."""
    try:
        answers: tuple[bytes, ...] = unpacked(content[DIGEST:], ANSWERS)
    except MessageError as error:
        raise DamagedError(f"{path} is damaged: {error}") from error
    return answers


def reply_of(answer: bytes) -> Reply | None:
    """Return the reply of a recorded answer; None for a zone without."""
    message = decode(answer) if answer else None
    return message.reply if isinstance(message, Answer) else None


def _digest(parts: Sequence[bytes]) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()

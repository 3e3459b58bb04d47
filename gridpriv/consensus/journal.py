"""What a coordinator keeps of a run: every turn's answers, a record a turn; all of it is public.

A coordinator is a function of its terms and of the answers it was given, so one that was stopped
goes on by going through them again: same orders, same penalties, to the last bit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from gridpriv.consensus.messages import Reply
from gridpriv.consensus.wire import Place, packed, unpacked
from gridpriv.core.errors import InputError
from gridpriv.core.records import Records

TURNS = "turns"
REPLIES = tuple[Reply | None, ...]
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

    def __init__(self, folder: Path) -> None:
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
        return list(unpacked(parts, REPLIES))

    def write(self, orders: Sequence[bytes], replies: Sequence[Reply | None]) -> None:
        """Write the turn that :meth:`next` did not find."""
        self._file.add(_digest(orders) + packed(tuple(replies), REPLIES))


def _digest(parts: Sequence[bytes]) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()

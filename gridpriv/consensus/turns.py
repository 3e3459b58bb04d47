"""The turns of a run over a network: the exchange with all zones, and its journal."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from gridpriv.consensus.messages import Exchange, Order, Phase, Reply, Stale
from gridpriv.consensus.sessions import DivergedError, LateError, Sessions, ZoneError
from gridpriv.consensus.wire import (
    LARGEST,
    Answer,
    Request,
    TurnId,
    decode,
    encode,
    packed,
    unpacked_record,
)
from gridpriv.core.arrays import Floats
from gridpriv.core.errors import GridprivError, InputError
from gridpriv.core.sealed import Records

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
    answers: tuple[bytes, ...] = unpacked_record(content[DIGEST:], ANSWERS, path)
    return answers


def reply_of(answer: bytes) -> Reply | None:
    """Return the reply of a recorded answer; None for a zone without."""
    message = decode(answer) if answer else None
    return message.reply if isinstance(message, Answer) else None


def _digest(parts: Sequence[bytes]) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


Late = Literal["wait", "last", "stop"]


class Turns:
    """Plays the turns of a run over the zones' sessions, and journals them.

    Parameters
    ----------
    start : sequence of array
        What stands for each zone's last release before its first one; public.
    timeout : float
        Seconds that a turn's answers are waited for.
    late : {'wait', 'last', 'stop'}
        What becomes of a round that a zone is late in: wait and then stop, go on with what it
        sent last, or stop as soon as a zone is lost.
    """

    def __init__(
        self,
        sessions: Sessions,
        journal: Journal,
        start: Sequence[Floats],
        timeout: float,
        late: Late,
    ) -> None:
        self._sessions, self._journal, self._sent = sessions, journal, list(start)
        self._timeout, self._late = timeout, late

    def carry(self, phase: Phase) -> Exchange:
        """Return the exchange that carries orders of a phase to the zones."""
        return partial(self._play, phase)

    def _play(self, phase: Phase, orders: Sequence[Order]) -> list[Reply]:
        turn, sessions = TurnId(phase, orders[0].number), self._sessions
        requests = []
        for zone, order in zip(sessions.zones, orders, strict=True):
            if not all(np.all(np.abs(part) <= LARGEST) for part in (order.w, order.penalty)):
                raise DivergedError(
                    f"{turn}: the rounds diverge: the order of zone {zone} is beyond {LARGEST:g}"
                )
            requests.append(encode(Request(sessions.public.run, zone, phase, order)))
        replies = self._journal.next(turn, requests)
        known = replies is not None
        if replies is None:
            replies = self._asked(turn, orders, requests)
        else:
            sessions.miss(orders, replies)
        sessions.note("debug", "turn", turn=str(turn), known=known)
        given = [
            Stale(sent, {}) if reply is None else reply
            for reply, sent in zip(replies, self._sent, strict=True)
        ]
        if phase in ("warm_start", "round"):
            self._sent = [reply.sent for reply in given]
        return given

    def _asked(
        self, turn: TurnId, orders: Sequence[Order], requests: Sequence[bytes]
    ) -> list[Reply | None]:
        """Send a turn's requests; journal and return the replies, None for a zone without."""
        sessions = self._sessions
        with sessions.changed:
            sessions.ask(turn, requests)
            sessions.changed.wait_for(lambda: self._is_settled(turn), self._timeout)
            if sessions.error is not None:
                raise sessions.error
            absent = [zone for zone, s in sessions.zones.items() if s.reply is None]
            if absent and not self._may_go_on(turn):
                raise self._stopped_by(turn, absent)
            for zone in absent:
                sessions.note("warning", "late", zone=zone, turn=str(turn))
            sessions.end_turn()
            replies = [session.reply for session in sessions.zones.values()]
            answers = [session.answer for session in sessions.zones.values()]
            sessions.miss(orders, replies)
        self._journal.write(requests, answers)
        return replies

    def _is_settled(self, turn: TurnId) -> bool:
        """Return True once no zone is waited for any more."""
        sessions = self._sessions.zones.values()
        if self._sessions.error is not None or all(s.reply or s.excluded for s in sessions):
            return True
        if any(s.excluded for s in sessions) and not self._may_go_on(turn):
            return True
        return self._late == "stop" and any(s.lost for s in sessions)

    def _may_go_on(self, turn: TurnId) -> bool:
        """Return True for a turn that may go on without some of its answers."""
        return self._late == "last" and turn.phase in ("round", "agreed")

    def _stopped_by(self, turn: TurnId, absent: Sequence[str]) -> GridprivError:
        """Return the error that names the zones without an answer."""
        for zone in absent:
            if reason := self._sessions.zones[zone].excluded:
                return ZoneError(f"{turn}: zone {zone} is excluded: {reason}")
        lost = [zone for zone in absent if self._sessions.zones[zone].lost]
        at_once = self._late == "stop" and bool(lost)
        absent = lost if at_once else absent
        each = ", ".join(
            f"{zone} ({'no answer' if self._sessions.zones[zone].connected else 'not connected'})"
            for zone in absent
        )
        word = "zone" if len(absent) == 1 else "zones"
        why = "stopped for" if at_once else f"waited {self._timeout:g} s for"
        return LateError(f"{turn}: the coordinator {why} {word} {each}")

"""The coordinator's side of a run over a network: one session a zone, turn by turn.

Nothing here knows a network. Whoever carries messages (:mod:`gridpriv.consensus.server`)
brings a zone's first message to :meth:`Sessions.admit`, sends the zone what
:meth:`Sessions.messages` yields and brings each answer to :meth:`Sessions.take`.

An answer beyond the agreement's limits excludes its sender: it is no part of a turn, is not
journalled, and the zone is not admitted again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Condition, RLock
from typing import Any, Literal

import numpy as np

from gridpriv.consensus.credentials import Signer, digest, not_signed
from gridpriv.consensus.limits import AnswerLimits, LimitError
from gridpriv.consensus.messages import Exchange, Order, Phase, Reply, Stale
from gridpriv.consensus.wire import (
    BEFORE,
    LARGEST,
    Answer,
    Failure,
    Hello,
    MessageError,
    Request,
    Shutdown,
    TurnId,
    Welcome,
    decode,
    encode,
    packed,
    unpacked,
)
from gridpriv.core.arrays import Floats
from gridpriv.core.errors import BudgetError, GridprivError, InputError
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


Late = Literal["wait", "last", "stop"]
Note = Callable[..., None]
Verify = Callable[[bytes, bytes], None]
"""Takes a message's bytes and its signature; raises :class:`MessageError` for a wrong one."""

NO_FLOATS = np.zeros(0)
LOOK = 0.1  # seconds between two looks whether a zone that waits is still connected
CLOSING = 5.0  # seconds in which zones are told that a run is over


class LateError(GridprivError):
    """A zone that was waited for in vain."""

    exit_code = 3


class ZoneError(GridprivError):
    """A zone that could not answer, or was excluded."""

    exit_code = 3


class DivergedError(GridprivError):
    """Rounds whose own orders are beyond what a message may hold."""

    exit_code = 3


class LostStateError(GridprivError):
    """A coordinator whose journal ends before the turn that a zone has answered."""

    exit_code = 3


class RefusedError(GridprivError):
    """A caller who may not take part, with the reason."""


class TakenError(RefusedError):
    """A caller who may not take part while another does so for the same zone."""


@dataclass(frozen=True, eq=False)
class PublicAgreement:
    """The part of an agreement that both sides compare before the first release.

    Attributes
    ----------
    version : str
        Of gridpriv.
    topology : str
        A digest of the network, without demand, and of what zones share.
    zones : mapping of str to AnswerLimits
        Every zone's limits, in the zones' order.
    """

    version: str
    run: str
    topology: str
    settings: Mapping[str, Any]
    zones: Mapping[str, AnswerLimits]

    def check(self, hello: Hello) -> None:
        """Raise :class:`RefusedError` for a zone whose agreement differs from this one."""
        difference = self._difference(hello, read_settings(hello.settings))
        if difference is not None:
            raise RefusedError(f"zone {hello.zone!r} is refused: {difference}")

    def shutdown(self, error: GridprivError | None) -> Shutdown:
        """Return the last message of a run, finished or stopped by an error."""
        return Shutdown(self.run, error is None, "" if error is None else str(error))

    def _difference(self, hello: Hello, settings: Mapping[str, Any]) -> str | None:
        """Return the first difference of a zone's agreement from this one; None without any."""
        if hello.version != self.version:
            return f"its gridpriv is {hello.version}, the coordinator's {self.version}"
        if hello.run != self.run:
            return f"its run is {hello.run!r}, the coordinator's {self.run!r}"
        names = dict.fromkeys([*self.settings, *settings])
        other = [n for n in names if self.settings.get(n) != settings.get(n)]
        if other:
            name = other[0]
            theirs, ours = settings.get(name), self.settings.get(name)
            return f"its setting {name} is {theirs!r}, the coordinator's {ours!r}"
        if hello.topology != self.topology:
            return "its topology is not the coordinator's: networks or zone maps differ"
        return None


@dataclass(frozen=True)
class _Due:
    """A request that a zone is to answer: its turn, its bytes, and the digest of what they say."""

    turn: TurnId
    content: bytes
    digest: bytes


@dataclass(eq=False)
class Session:
    """One zone's part of a run.

    Attributes
    ----------
    connected, known : bool
        Whether the zone is connected now; and whether it ever was.
    closed : bool
        Whether the zone was sent that the run is over.
    excluded : str
        Why the zone is excluded; empty where it is not.
    last : TurnId
        The last turn that the zone stated to have answered.
    missed : list
        Rounds that went on without the zone and that it has not yet heard of.
    reply, answer : Reply, bytes or None
        To the present turn, and the bytes that it came in.
    """

    position: int
    connected: bool = False
    known: bool = False
    closed: bool = False
    excluded: str = ""
    last: TurnId = BEFORE
    missed: list[_Due] = field(default_factory=list)
    reply: Reply | None = None
    answer: bytes = b""
    verify: Verify | None = None


class Sessions:
    """The coordinator's side of a run over a network.

    Parameters
    ----------
    timeout : float
        Seconds that a turn's answers are waited for.
    late : {'wait', 'last', 'stop'}
        What becomes of a round that a zone is late in: wait and then stop, go on with what it
        sent last, or stop as soon as a zone is lost.
    note : callable
        Is given events, by name and public figures.
    sign : callable
        Signs a message's bytes.
    changed : Condition, optional
        What is waited on; a test's own makes the waiting deterministic.
    """

    def __init__(
        self,
        public: PublicAgreement,
        journal: Journal,
        timeout: float,
        late: Late,
        note: Note,
        sign: Signer = not_signed,
        changed: Condition | None = None,
    ) -> None:
        self._public, self._journal = public, journal
        self._timeout, self._late, self.note = timeout, late, note
        self._sign = sign
        lock = RLock()
        self._changed = changed or Condition(lock)  # what the coordinator waits on
        self._orders = changed or Condition(lock)  # what zones wait on
        self._sessions = {zone: Session(n) for n, zone in enumerate(public.zones)}
        self._sent = [NO_FLOATS] * len(self._sessions)
        self._turn = BEFORE
        self._requests: list[_Due] = []
        self._error: GridprivError | None = None
        self._shutdown: bytes | None = None

    # ---- the coordinator's side

    def carry(self, phase: Phase) -> Exchange:
        """Return the exchange that carries orders of a phase to the zones."""

        def exchange(orders: Sequence[Order]) -> list[Reply]:
            return self._play(phase, orders)

        return exchange

    def close(self, error: GridprivError | None) -> None:
        """Tell the zones that the run is over, and why; those that are not connected, too, if soon.

        A finished run's zones are connected; a stopped one's may be about to connect again.
        """
        with self._changed:
            self._shutdown = self._sign(encode(self._public.shutdown(error)))
            self._orders.notify_all()
            sessions = self._sessions.values()
            if error is not None:
                self._changed.wait_for(lambda: all(s.closed for s in sessions), 0.4 * CLOSING)
            self._changed.wait_for(lambda: not any(s.connected for s in sessions), CLOSING)

    def start_from(self, sent: Sequence[Floats]) -> None:
        """Set what stands for a zone's last release before its first one; public."""
        self._sent = list(sent)

    def _play(self, phase: Phase, orders: Sequence[Order]) -> list[Reply]:
        turn = TurnId(phase, orders[0].number)
        for zone, order in zip(self._sessions, orders, strict=True):
            if not all(np.all(np.abs(part) <= LARGEST) for part in (order.w, order.penalty)):
                raise DivergedError(
                    f"{turn}: the rounds diverge: the order of zone {zone} is beyond {LARGEST:g}"
                )
        run, zones = self._public.run, self._sessions
        requests = [
            encode(Request(run, zone, phase, order))
            for zone, order in zip(zones, orders, strict=True)
        ]
        replies = self._journal.next(turn, requests)
        known = replies is not None
        if replies is None:
            replies = self._asked(turn, orders, requests)
        else:
            with self._changed:
                self._miss(orders, replies)
        self.note("debug", "turn", turn=str(turn), known=known)
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
        due = [_Due(turn, self._sign(body), digest(body, b"")) for body in requests]
        sessions = self._sessions.values()
        with self._changed:
            self._turn, self._requests = turn, due
            for session in sessions:
                session.reply, session.answer = None, b""
            self._check_own_state()
            self._orders.notify_all()
            self._changed.wait_for(lambda: self._is_settled(turn), self._timeout)
            if self._error is not None:
                raise self._error
            absent = [zone for zone, s in self._sessions.items() if s.reply is None]
            if absent and not self._may_go_on(turn):
                raise self._stopped_by(turn, absent)
            for zone in absent:
                self.note("warning", "late", zone=zone, turn=str(turn))
            self._requests = []
            replies = [session.reply for session in sessions]
            self._miss(orders, replies)
        self._journal.write(requests, [session.answer for session in sessions])
        return replies

    def _miss(self, orders: Sequence[Order], replies: Sequence[Reply | None]) -> None:
        """Keep for every zone the rounds that went on without it since its last answer."""
        for (zone, session), reply, order in zip(
            self._sessions.items(), replies, orders, strict=True
        ):
            if reply is None:
                body = encode(Request(self._public.run, zone, "missed", order))
                turn = TurnId("missed", order.number)
                session.missed.append(_Due(turn, self._sign(body), digest(body, b"")))
            else:
                session.missed.clear()

    def _is_settled(self, turn: TurnId) -> bool:
        """Return True once no zone is waited for any more."""
        sessions = self._sessions.values()
        if self._error is not None or all(s.reply or s.excluded for s in sessions):
            return True
        if any(s.excluded for s in sessions) and not self._may_go_on(turn):
            return True
        return self._late == "stop" and any(_lost(session) for session in sessions)

    def _may_go_on(self, turn: TurnId) -> bool:
        """Return True for a turn that may go on without some of its answers."""
        return self._late == "last" and turn.phase in ("round", "agreed")

    def _stopped_by(self, turn: TurnId, absent: Sequence[str]) -> GridprivError:
        """Return the error that names the zones without an answer."""
        for zone in absent:
            if reason := self._sessions[zone].excluded:
                return ZoneError(f"{turn}: zone {zone} is excluded: {reason}")
        lost = [zone for zone in absent if _lost(self._sessions[zone])]
        at_once = self._late == "stop" and bool(lost)
        absent = lost if at_once else absent
        each = ", ".join(
            f"{zone} ({'no answer' if self._sessions[zone].connected else 'not connected'})"
            for zone in absent
        )
        word = "zone" if len(absent) == 1 else "zones"
        why = "stopped for" if at_once else f"waited {self._timeout:g} s for"
        return LateError(f"{turn}: the coordinator {why} {word} {each}")

    def _check_own_state(self) -> None:
        """Stop the run where a zone has answered a turn that this journal does not have."""
        for zone, session in self._sessions.items():
            if self._requests and session.last.rank > self._turn.rank:
                self._error = LostStateError(
                    f"{self._turn}: zone {zone} has answered {session.last}, which the "
                    "coordinator's journal does not hold: its state was lost or is an older copy. "
                    "Put the state back, or start a new run under another name"
                )
                self.note("error", "lost state", zone=zone, turn=str(session.last))

    # ---- the zones' side

    def admit(self, content: bytes, certified: str | None, verify: Verify | None = None) -> str:
        """Return the name of the zone that a caller may take part for from now on.

        Parameters
        ----------
        content : bytes
            The caller's first message.
        certified : str or None
            The name in the caller's certificate; None where there are no certificates.
        verify : callable, optional
            Checks signatures under the caller's certificate.

        Raises
        ------
        MessageError
            For a message that is no first one.
        RefusedError
            With the reason.
        """
        hello = decode(content)
        if not isinstance(hello, Hello):
            raise MessageError("a message before the first")
        if certified is not None and certified != hello.zone:
            raise RefusedError(
                f"a certificate of {certified!r} does not speak for zone {hello.zone!r}"
            )
        session = self._sessions.get(hello.zone)
        if session is None:
            raise RefusedError(f"the agreement has no zone {hello.zone!r}")
        self._public.check(hello)
        with self._changed:
            if session.excluded:
                raise RefusedError(f"zone {hello.zone!r} is excluded: {session.excluded}")
            if self._shutdown is None and session.connected:
                raise TakenError(f"another process takes part for zone {hello.zone!r} already")
            session.connected = session.known = True
            session.last, session.verify = hello.last, verify
            session.missed = [
                due for due in session.missed if due.turn.number > _last_known_round(hello.last)
            ]
            self._check_own_state()
            self.note("info", "seated", zone=hello.zone, last=str(hello.last))
            self._changed.notify_all()
        return hello.zone

    def welcome(self, certificate: bytes = b"") -> bytes:
        """Return the first message to a zone that is admitted."""
        return encode(Welcome(self._public.run, certificate))

    def messages(self, zone: str, here: Callable[[], bool]) -> Iterator[bytes]:
        """Yield the messages to a zone, each after its last answer, while it is connected."""
        session = self._sessions[zone]
        while True:
            with self._changed:
                while not self._orders.wait_for(
                    lambda: self._shutdown is not None or bool(self._due(session)), LOOK
                ):
                    if not here():
                        return
                over, due = self._shutdown, self._due(session)
                session.closed = session.closed or over is not None
                self._changed.notify_all()
            if over is not None:
                yield over
                return
            if due is not None:
                yield due.content

    def take(self, zone: str, content: bytes) -> None:
        """Take a zone's answer to the last message that it was sent.

        Raises
        ------
        MessageError
            For any other message; nothing is taken then.
        LimitError
            For an answer beyond the agreement's limits; the zone is excluded.
        """
        answer = decode(content)
        session = self._sessions[zone]
        if not isinstance(answer, Answer | Failure):
            raise MessageError("a message that is no answer")
        if answer.run != self._public.run or answer.zone != zone:
            raise MessageError("an answer for another zone or run")
        if session.verify is not None:
            session.verify(content, answer.signature)
        with self._changed:
            due = self._due(session)
            if isinstance(answer, Failure):
                if due is None or answer.turn != due.turn:
                    raise MessageError(f"a failure in {answer.turn}, which is not due")
                self._fail(answer)
            elif due is not None and answer.turn == due.turn:
                self._accept(session, answer, content, due)
            elif any(answer.turn == TurnId("round", m.turn.number) for m in session.missed):
                # its releases were drawn: the zone's last answer states them with all others
                self.note("warning", "too late", zone=zone, turn=str(answer.turn))
            else:
                raise MessageError(f"an answer to {answer.turn}, which is not due")
            self._changed.notify_all()

    def leave(self, zone: str) -> None:
        """End a zone's connection; the zone may come again."""
        with self._changed:
            self._sessions[zone].connected = False
            self.note("info", "left", zone=zone)
            self._changed.notify_all()

    def _due(self, session: Session) -> _Due | None:
        """Return the request that a zone is to answer next, if there is one."""
        if session.missed:
            return session.missed[0]
        if not self._requests or session.reply is not None or session.excluded:
            return None
        return self._requests[session.position]

    def _accept(self, session: Session, answer: Answer, content: bytes, due: _Due) -> None:
        if answer.request != due.digest:
            raise MessageError(f"an answer to another order of {answer.turn}")
        try:
            self._public.zones[answer.zone].check(answer)
        except LimitError as error:
            session.excluded = str(error)
            self.note("error", "excluded", zone=answer.zone, reason=str(error))
            self._changed.notify_all()
            raise
        session.last = answer.turn
        if answer.turn.phase == "missed":
            session.missed.pop(0)
        else:
            session.reply, session.answer = answer.reply, content

    def _fail(self, failure: Failure) -> None:
        sentence = f"{failure.turn}: zone {failure.zone!r} cannot answer: {failure.reason}"
        kind = BudgetError if failure.reason == "budget" else ZoneError
        self._error = kind(sentence)
        self.note(
            "error", "failed", zone=failure.zone, turn=str(failure.turn), reason=failure.reason
        )


def _lost(session: Session) -> bool:
    """Return True for a zone that was connected, left, and is still to answer."""
    return session.known and not session.connected and session.reply is None


def _last_known_round(last: TurnId) -> int:
    """Return the last round whose end a zone knows."""
    return {"missed": last.number, "round": last.number - 1}.get(last.phase, 0)


def read_settings(text: str) -> Mapping[str, Any]:
    """Return the settings of a first message."""
    try:
        settings = json.loads(text)
    except (ValueError, RecursionError):
        raise MessageError("settings that are no JSON") from None
    if not isinstance(settings, dict):
        raise MessageError("settings that are no JSON object")
    return settings

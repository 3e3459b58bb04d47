"""The agreement of a run over a network, and its zones' sessions with the coordinator.

A coordinator chooses w, step and penalty; turns follow from the agreement and earlier requests, and
a zone checks them before it computes anything. So a zone makes at most the agreed number of
releases, whatever a coordinator sends, and each is charged at its cost.

This module does not use the network. :mod:`gridpriv.consensus.server` runs the rounds: it passes a
zone's first message to :meth:`Sessions.admit`, sends the zone the messages of
:meth:`Sessions.messages` and passes each answer to :meth:`Sessions.take`.

"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Condition, RLock
from typing import Any

from gridpriv.consensus.credentials import Signer, digest, not_signed
from gridpriv.consensus.messages import (
    BEFORE,
    Answer,
    Failure,
    Hello,
    MessageError,
    Order,
    Reply,
    Request,
    Shutdown,
    TurnId,
    decode,
    encode,
)
from gridpriv.core.errors import BudgetError, GridprivError, RunError

Note = Callable[..., None]
Verify = Callable[[bytes, bytes], None]
"""Function of a message's bytes that raises :class:`MessageError` for a wrong signature."""

LOOK = 0.1  # seconds between two checks whether a waiting zone is still connected
CLOSING = 5.0  # seconds for sending zones the end of a run


class LateError(RunError):
    """A zone did not answer in time."""


class ZoneError(RunError):
    """A zone could not answer."""


class DivergedError(RunError):
    """Orders have values that no message may have."""


class LostStateError(RunError):
    """The coordinator's journal ends before a turn that a zone has answered."""


class RefusedError(GridprivError):
    """Refusal of a client, with the reason."""


class TakenError(RefusedError):
    """Refusal of a client while another client is connected for the same zone."""


@dataclass(frozen=True)
class RequestLimits:
    """The requests of one zone that an agreement allows.

    Attributes
    ----------
    warm_starts, rounds : int
        Their numbers; rounds may stop early.
    trial : bool
        True if a trial round comes before the first round.
    size : int
        Number of the zone's coupling variables.
    """

    warm_starts: int
    trial: bool
    rounds: int
    size: int

    def check(self, request: Request, last: TurnId) -> None:
        """Refuse a request that is not due after the last answered turn.

        Raises
        ------
        MessageError
            With the reason.
        """
        turn, order = request.turn, request.order
        if len(order.w) != self.size:
            raise MessageError(f"an order for {len(order.w)} variables, not {self.size}")
        if turn.phase in ("round", "missed") and turn.number > self.rounds:
            raise MessageError(f"an order for {turn} of {self.rounds}")
        if not self._is_due(turn, last):
            raise MessageError(f"an order for {turn} after {last}")

    def _is_due(self, turn: TurnId, last: TurnId) -> bool:
        """Return True for a turn that may follow the last one."""
        began = last.phase in ("round", "missed")
        done = last.number if began else 0
        opened = TurnId("warm_start", self.warm_starts) if self.warm_starts else BEFORE
        ready = TurnId("ready", 1) if self.trial else opened
        match turn.phase:
            case "warm_start":
                before = BEFORE if turn.number == 1 else TurnId("warm_start", turn.number - 1)
                return last == before and turn.number <= self.warm_starts
            case "ready":
                return self.trial and turn.number == 1 and last == opened
            case "round" | "missed":
                late = turn.phase == "missed" and last == TurnId("round", turn.number)
                return late or (turn.number == done + 1 and (began or last == ready))
            case "agreed":
                return began and turn.number == done
        return False


@dataclass(frozen=True)
class AnswerLimits:
    """The answers of one zone that an agreement allows.

    Attributes
    ----------
    size : int
        Number of the zone's coupling variables.
    of_round, of_run : int
        Releases of one round, and of the run, at most.
    """

    size: int
    of_round: int = 0
    of_run: int = 0

    def check(self, answer: Answer) -> None:
        """Raise :class:`MessageError` for an answer of another size, or of too many releases."""
        turn, sent = answer.turn, answer.reply.sent
        due = self.size if turn.phase in ("warm_start", "round") else 0
        if len(sent) != due:
            raise MessageError(f"an answer of {len(sent)} numbers, not {due}")
        most = {"round": self.of_round, "agreed": self.of_run}.get(turn.phase, 0)
        stated = sum(answer.reply.releases.values())
        if stated > most:
            raise MessageError(f"{stated} releases in {turn}; at most {most}")


@dataclass(frozen=True, eq=False)
class PublicAgreement:
    """The part of an agreement that both sides compare before the first release.

    Attributes
    ----------
    version : str
        Of gridpriv.
    topology : str
        A digest of the network, without demand, and of the coupling variables.
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
            zone_value, own_value = settings.get(name), self.settings.get(name)
            return f"its setting {name} is {zone_value!r}, the coordinator's {own_value!r}"
        if hello.topology != self.topology:
            return "its topology is not the coordinator's: networks or zone maps differ"
        return None


@dataclass(frozen=True)
class _OpenRequest:
    """An open request to a zone: its turn, its bytes, and the digest of their content."""

    turn: TurnId
    content: bytes
    digest: bytes


@dataclass(eq=False)
class Session:
    """One zone's part of a run.

    Attributes
    ----------
    connected, known : bool
        True if the zone is connected now; and if it ever was.
    closed : bool
        True if the zone was sent the end of the run.
    last : TurnId
        The last answered turn according to the zone.
    missed : list
        Rounds that went on without the zone, not yet sent to it.
    reply, answer : Reply, bytes or None
        Reply to the present turn, and its bytes.
    """

    position: int
    connected: bool = False
    joined: bool = False
    closed: bool = False
    last: TurnId = BEFORE
    missed: list[_OpenRequest] = field(default_factory=list)
    reply: Reply | None = None
    answer: bytes = b""
    verify: Verify | None = None

    @property
    def lost(self) -> bool:
        """True if the zone was connected and is lost before its answer."""
        return self.joined and not self.connected and self.reply is None


class Sessions:
    """The zones' sessions in one run.

    Parameters
    ----------
    note : callable
        Is given events, by name and public figures.
    sign : callable
        Signs a message's bytes.
    changed : Condition, optional
        Condition for waiting; tests supply a deterministic one.

    Attributes
    ----------
    zones : dict of str to Session
        In the agreement's order.
    changed : Condition
        Condition of the coordinator; it is locked while a session is read or changed.
    error : GridprivError or None
        Reason why the run cannot continue.
    """

    def __init__(
        self,
        public: PublicAgreement,
        note: Note,
        sign: Signer = not_signed,
        changed: Condition | None = None,
    ) -> None:
        self.public, self.note, self._sign = public, note, sign
        lock = RLock()
        self.changed = changed or Condition(lock)
        self._orders = changed or Condition(lock)  # what zones wait on
        self.zones = {zone: Session(n) for n, zone in enumerate(public.zones)}
        self.error: GridprivError | None = None
        self._turn = BEFORE
        self._requests: list[_OpenRequest] = []
        self._shutdown: bytes | None = None

    # ---- the coordinator's side

    def set_requests(self, turn: TurnId, requests: Sequence[bytes]) -> None:
        """Set the requests of a turn for the zones; called with ``changed`` locked."""
        self._turn = turn
        self._requests = [self._due_of(turn, body) for body in requests]
        for session in self.zones.values():
            session.reply, session.answer = None, b""
        self._check_own_state()
        self._orders.notify_all()

    def end_turn(self) -> None:
        """Stop waiting for answers to the present turn."""
        self._requests = []

    def miss(self, orders: Sequence[Order], replies: Sequence[Reply | None]) -> None:
        """Record for every zone the rounds that went on without it since its last answer."""
        with self.changed:
            for (zone, session), reply, order in zip(
                self.zones.items(), replies, orders, strict=True
            ):
                if reply is None:
                    body = encode(Request(self.public.run, zone, "missed", order))
                    session.missed.append(self._due_of(TurnId("missed", order.number), body))
                else:
                    session.missed.clear()

    def close(self, error: GridprivError | None) -> None:
        """Send the zones the end of the run and its reason, also to zones that reconnect soon.

        A finished run's zones are connected; a stopped one's may be about to connect again.
        """
        with self.changed:
            self._shutdown = self._sign(encode(self.public.shutdown(error)))
            self._orders.notify_all()
            sessions = self.zones.values()
            if error is not None:
                self.changed.wait_for(lambda: all(s.closed for s in sessions), 0.4 * CLOSING)
            self.changed.wait_for(lambda: not any(s.connected for s in sessions), CLOSING)

    def _due_of(self, turn: TurnId, body: bytes) -> _OpenRequest:
        return _OpenRequest(turn, self._sign(body), digest(body, b""))

    def _check_own_state(self) -> None:
        """Stop the run where a zone has answered a turn that this journal does not have."""
        for zone, session in self.zones.items():
            if self._requests and session.last.rank > self._turn.rank:
                self.error = LostStateError(
                    f"{self._turn}: zone {zone} has answered {session.last}, which the "
                    "coordinator's journal does not hold: its state was lost or is an older copy. "
                    "Put the state back, or start a new run under another name"
                )
                self.note("error", "lost state", zone=zone, turn=str(session.last))

    # ---- the zones' side

    def admit(self, content: bytes, certified: str | None, verify: Verify | None = None) -> str:
        """Admit a client; return the name of its zone.

        Parameters
        ----------
        content : bytes
            The client's first message.
        certified : str or None
            The name in the client's certificate; None without certificates.
        verify : callable, optional
            Checks signatures under the client's certificate.

        Raises
        ------
        MessageError
            For a message that is not a first message.
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
        session = self.zones.get(hello.zone)
        if session is None:
            raise RefusedError(f"the agreement has no zone {hello.zone!r}")
        self.public.check(hello)
        with self.changed:
            if self._shutdown is None and session.connected:
                raise TakenError(f"another process takes part for zone {hello.zone!r} already")
            session.connected = session.joined = True
            session.last, session.verify = hello.last, verify
            number = hello.last.number  # of the last round whose end was sent to the zone
            ended = {"missed": number, "round": number - 1}.get(hello.last.phase, 0)
            session.missed = [due for due in session.missed if due.turn.number > ended]
            self._check_own_state()
            self.note("info", "seated", zone=hello.zone, last=str(hello.last))
            self.changed.notify_all()
        return hello.zone

    def messages(self, zone: str, here: Callable[[], bool]) -> Iterator[bytes]:
        """Yield the messages to a zone, each after its last answer, while it is connected."""
        session = self.zones[zone]
        while True:
            with self.changed:
                while not self._orders.wait_for(
                    lambda: self._shutdown is not None or bool(self._due(session)), LOOK
                ):
                    if not here():
                        return
                over, due = self._shutdown, self._due(session)
                if over is not None:
                    session.closed = True
                    self.changed.notify_all()
            if over is not None:
                yield over
                return
            if due is not None:
                yield due.content

    def take(self, zone: str, content: bytes) -> None:
        """Accept a zone's answer to the last message sent to it.

        Raises
        ------
        MessageError
            For any other message, or one beyond the agreement's limits; it has no effect.
        """
        answer = decode(content)
        session = self.zones[zone]
        if not isinstance(answer, Answer | Failure):
            raise MessageError("a message that is no answer")
        if answer.run != self.public.run or answer.zone != zone:
            raise MessageError("an answer for another zone or run")
        if session.verify is not None:
            session.verify(content, answer.signature)
        with self.changed:
            due = self._due(session)
            if isinstance(answer, Failure):
                if due is None or answer.turn != due.turn:
                    raise MessageError(f"a failure in {answer.turn}, which is not due")
                kind = BudgetError if answer.reason == "budget" else ZoneError
                self.error = kind(
                    f"{answer.turn}: zone {answer.zone!r} cannot answer: {answer.reason}"
                )
                about = {"zone": zone, "turn": str(answer.turn), "reason": answer.reason}
                self.note("error", "failed", **about)
            elif due is not None and answer.turn == due.turn:
                self._accept(session, answer, content, due)
            elif any(answer.turn == TurnId("round", m.turn.number) for m in session.missed):
                # its releases were drawn: the zone's last answer states them with all others
                self.note("warning", "too late", zone=zone, turn=str(answer.turn))
            else:
                raise MessageError(f"an answer to {answer.turn}, which is not due")
            self.changed.notify_all()

    def leave(self, zone: str) -> None:
        """End a zone's connection; the zone may reconnect."""
        with self.changed:
            self.zones[zone].connected = False
            self.note("info", "left", zone=zone)
            self.changed.notify_all()

    def _due(self, session: Session) -> _OpenRequest | None:
        """Return the next request to a zone, if there is one."""
        if session.missed:
            return session.missed[0]
        if not self._requests or session.reply is not None:
            return None
        return self._requests[session.position]

    def _accept(self, session: Session, answer: Answer, content: bytes, due: _OpenRequest) -> None:
        if answer.request != due.digest:
            raise MessageError(f"an answer to another order of {answer.turn}")
        self.public.zones[answer.zone].check(answer)
        session.last = answer.turn
        if answer.turn.phase == "missed":
            session.missed.pop(0)
        else:
            session.reply, session.answer = answer.reply, content


def read_settings(text: str) -> Mapping[str, Any]:
    """Return the settings of a first message."""
    try:
        settings = json.loads(text)
    except (ValueError, RecursionError):
        raise MessageError("settings that are no JSON") from None
    if not isinstance(settings, dict):
        raise MessageError("settings that are no JSON object")
    return settings

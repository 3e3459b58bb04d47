"""A zone's client in a run over a network: every request is answered once.

Before an answer is sent, it is on disk with the state of its agent. A repeated request (a lost
answer, or a restart of either side) gets the same bytes: nothing is drawn, solved or charged twice.
A different order for an answered turn is refused, and so is every order outside the agreement
(:class:`gridpriv.consensus.sessions.RequestLimits`).
"""

from __future__ import annotations

import json
import math
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from gridpriv.consensus.agent import Agent, AgentState, Iterate
from gridpriv.consensus.credentials import (
    NAME,
    Channel,
    Credentials,
    Signer,
    Verifier,
    check_certificate,
    digest,
    not_signed,
    refuse_beyond_loopback,
    split_address,
    tls,
    unsigned,
)
from gridpriv.consensus.messages import (
    BEFORE,
    Answer,
    Failure,
    MessageError,
    Reason,
    Refusal,
    Reply,
    Request,
    Shutdown,
    TurnId,
    Welcome,
    decode,
    encode,
    packed,
    unpacked_record,
)
from gridpriv.consensus.sessions import LateError, Note, RequestLimits, TakenError
from gridpriv.core.arrays import Floats
from gridpriv.core.errors import BudgetError, GridprivError, InputError, SolverError
from gridpriv.core.files import DamagedError, Records, StorageError

EMPTY = np.zeros(0)
NOTED, EXCHANGED = b"\0", b"\1"  # first byte of a transcript's records
PAIR = tuple[bytes, bytes]
MOST_BYTES = 1 << 24  # of states in the file before it is rewritten with the last


@dataclass(frozen=True, eq=False)
class ClientState:
    """A zone's state after a turn; for its owner only.

    Attributes
    ----------
    last : TurnId
        The last answered turn.
    request, answer : bytes
        Its request and its answer.
    first : bytes
        The first request.
    before : Iterate
        The agent's iterate before the last turn.
    memory : AgentState
        The agent's state now.
    metrics : mapping of str to array
        The answered rounds, and the zone's own values in each of them.
    """

    last: TurnId
    request: bytes
    answer: bytes
    first: bytes
    before: Iterate
    memory: AgentState
    metrics: Mapping[str, Floats] = field(default_factory=dict)


class ZoneClient:
    """Answers requests for one zone.

    Parameters
    ----------
    agent : Agent
        At its start.
    limits : RequestLimits
        Requests that the agreement allows.
    path : Path
        Path of its state, for its owner only.
    sign : callable
        Signs a message's bytes.
    transcript : Transcript, optional
        Gets every request and its answer.
    note_stored : callable, optional
        Called with the number of stored releases, after they are on disk and before an answer.

    Attributes
    ----------
    final_values : array or None
        The final values of the zone's coupling variables, after the last round.
    failed : GridprivError or None
        Reason why the zone could not answer.
    verify : callable or None
        Checks signatures under the coordinator's certificate, after its receipt.
    """

    def __init__(
        self,
        zone: str,
        run: str,
        agent: Agent,
        limits: RequestLimits,
        path: Path,
        sign: Signer = not_signed,
        transcript: Transcript | None = None,
        note_stored: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.zone, self.run = zone, run
        self.final_values: Floats | None = None
        self.failed: Exception | None = None
        self.verify: Callable[[bytes, bytes], None] | None = None
        self._agent, self._limits, self._sign = agent, limits, sign
        self._transcript, self._note_stored = transcript, note_stored
        self._previous: Request | None = None
        now = agent.state()
        self._state = ClientState(BEFORE, b"", b"", b"", now.at, now)
        self._file = Records(path, private=True)
        if records := self._file.read():
            self._resume(_state_of(records[-1], path))
            if transcript is not None:
                transcript.complete([_state_of(content, path) for content in records])

    @property
    def last(self) -> TurnId:
        """The last answered turn."""
        return self._state.last

    @property
    def size(self) -> int:
        """Number of the zone's coupling variables."""
        return self._limits.size

    def note_certificate(self, certificate: bytes) -> None:
        """Write the coordinator's certificate (PEM) to the transcript."""
        if self._transcript is not None:
            self._transcript.note({"coordinator": certificate.decode()})

    @property
    def metrics(self) -> tuple[Mapping[str, float], ...]:
        """The zone's own values of each round, for its owner only."""
        metrics = self._state.metrics
        rows = zip(*(values.tolist() for values in metrics.values()), strict=True)
        return tuple(dict(zip(metrics, row, strict=True)) | {"round": int(row[0])} for row in rows)

    def drawn(self) -> Mapping[Any, int]:
        """Return every release of the run so far."""
        return self._agent.drawn()

    def answer(self, content: bytes) -> bytes:
        """Return the answer to a request.

        Raises
        ------
        MessageError
            For a message that is not a request of this run, not due, or outside the agreement; it
            has no effect.
        StorageError
            If the answer cannot be stored; it must not be sent then.
        """
        request, state = self._request(content), self._state
        if request.turn == state.last:
            previous = self._previous
            if previous is None or unsigned(content, request.signature) != unsigned(
                state.request, previous.signature
            ):
                raise MessageError(f"another order for {request.turn}, which was answered already")
            return state.answer
        self._limits.check(request, state.last)
        before = self._agent.state()
        try:
            reply = self._execute(request)
        except Exception as error:
            self._fail(error)
            return self._sign(encode(Failure(self.run, self.zone, request.turn, _public(error))))
        received = digest(content, request.signature)
        answer = self._sign(encode(Answer(self.run, self.zone, request.turn, reply, received)))
        now = before.at, self._agent.state(), self._metrics_after(request)
        self._store(ClientState(request.turn, content, answer, state.first or content, *now))
        self._previous = request
        if self._transcript is not None:
            self._transcript.add(content, answer)
        return answer

    def _request(self, content: bytes) -> Request:
        request = decode(content)
        if not isinstance(request, Request):
            raise MessageError("a message that is no order")
        if request.run != self.run or request.zone != self.zone:
            raise MessageError("an order of another run or zone")
        if self.verify is not None and content != self._state.request:
            self.verify(content, request.signature)
        return request

    def _execute(self, request: Request) -> Reply:
        agent, order = self._agent, request.order
        match request.phase:
            case "ready":
                return agent.ready(order)
            case "warm_start":
                return agent.warm_start(order)
            case "round":
                return agent.round(order)
            case "missed":
                self._miss(request)
            case "agreed":
                self.final_values = order.w
                return Reply(EMPTY, agent.drawn())
        return Reply(EMPTY, {})

    def _miss(self, request: Request) -> None:
        """Note a round that went on without this zone, answered later or not."""
        if self.last == TurnId("round", request.order.number):
            self._agent.resume(replace(self._agent.state(), at=self._state.before))
        self._agent.miss(request.order)

    def _metrics_after(self, request: Request) -> Mapping[str, Floats]:
        metrics = self._state.metrics
        if request.phase != "round":
            return metrics
        own = self._agent.metrics()
        row = {"round": request.order.number, "noise_magnitude": own.noise_magnitude} | own.values
        return {name: np.append(metrics.get(name, EMPTY), value) for name, value in row.items()}

    def _fail(self, error: Exception) -> None:
        """Store the draws before the failure, which count."""
        self.failed = error
        self._store(replace(self._state, memory=self._agent.state()))

    def _store(self, state: ClientState) -> None:
        write = self._file.add if self._file.size < MOST_BYTES else self._file.renew
        write(packed(state, ClientState))
        self._note_stored(sum(state.memory.drawn.values()))
        self._state = state

    def _resume(self, state: ClientState) -> None:
        """Continue from the state of an earlier process."""
        if state.first:
            # some solvers keep the scaling of their first problem: solve the same public problem
            # first
            self._execute(self._request(state.first))
        self._agent.resume(state.memory)
        self._note_stored(sum(state.memory.drawn.values()))
        self._state = state
        self._previous = self._request(state.request) if state.request else None
        if self._previous is not None and self.last.phase == "agreed":
            self.final_values = self._previous.order.w


class Transcript:
    """A zone's signed transcript: every request that it received and every answer that it sent.

    Records are JSON objects of names and certificates, and pairs of a request and its answer. They
    are written without a separate flush, which saves a disk access per round; records that a power
    failure removes are in the zone's state and are added again.

    Parameters
    ----------
    about : mapping
        The zone's name and its certificate; the first record.
    """

    def __init__(self, path: Path, about: Mapping[str, str]) -> None:
        self._file = Records(path, private=False)
        try:
            recorded = self._file.read()
        except DamagedError:  # by a power failure: the zone's state has the last turns
            path.replace(path.with_name(f"{path.name}.damaged"))
            recorded = []
        self._noted = [content for content in recorded if content[:1] == NOTED]
        pairs = [content for content in recorded if content[:1] == EXCHANGED]
        self._last = pairs[-1] if pairs else b""
        self.note(about)

    def note(self, about: Mapping[str, str]) -> None:
        """Add names and certificates, once."""
        content = NOTED + json.dumps(dict(about)).encode()
        if content not in self._noted:
            self._noted.append(content)
            self._file.add(content)

    def add(self, request: bytes, answer: bytes) -> None:
        """Add a request and its answer."""
        self._last = EXCHANGED + packed((request, answer), PAIR)
        self._file.add(self._last, flushed=False)

    def complete(self, states: list[ClientState]) -> None:
        """Add the turns of a zone's states that are missing here."""
        pairs = dict.fromkeys((s.request, s.answer) for s in states if s.request)
        whole = [EXCHANGED + packed(pair, PAIR) for pair in pairs]
        if self._last and self._last not in whole:
            return
        for content in whole[whole.index(self._last) + 1 if self._last else 0 :]:
            self._file.add(content)
            self._last = content


def read_transcript(path: Path) -> tuple[list[dict[str, str]], list[tuple[bytes, bytes]]]:
    """Return a transcript's names and certificates, and its requests with their answers.

    Raises
    ------
    DamagedError
        If it is damaged.
    """
    notes: list[dict[str, str]] = []
    exchanges: list[tuple[bytes, bytes]] = []
    for content in Records(path, private=False).read():
        if content[:1] == NOTED:
            try:
                notes.append(json.loads(content[1:]))
            except ValueError as error:
                raise DamagedError(f"{path} is damaged: {error}") from error
        else:
            exchanges.append(unpacked_record(content[1:], PAIR, path))
    return notes, exchanges


def _public(error: Exception) -> Reason:
    """Return the public reason of a failure, whose message may have true demand."""
    kinds: dict[type[GridprivError], Reason] = {
        SolverError: "solver",
        BudgetError: "budget",
        StorageError: "storage",
    }
    reasons = (reason for kind, reason in kinds.items() if isinstance(error, kind))
    return next(reasons, "defect")


def read_state(path: Path) -> ClientState | None:
    """Return the last stored state; None if there is none.

    Raises
    ------
    DamagedError
        If it is incomplete.
    """
    records = Records(path, private=True).read()
    return _state_of(records[-1], path) if records else None


def _state_of(content: bytes, path: Path) -> ClientState:
    state: ClientState = unpacked_record(content, ClientState, path, math.inf)
    return state


GRACE = 20.0  # seconds until a lost connection is detected, and its session freed
PAUSES = (0.05, 0.1, 0.2, 0.5, 1.0)  # seconds between two attempts to connect


def take_part(
    client: ZoneClient,
    hello: Callable[[], bytes],
    address: str,
    credentials: Credentials | None,
    timeout: float,
    beat: float,
    note: Note,
) -> Shutdown | None:
    """Answer the coordinator's requests until the run is over.

    Parameters
    ----------
    hello : callable
        Returns the first message of a connection.
    address : str
        Address of the coordinator.
    timeout : float
        Largest time without a new turn, in seconds, whether the coordinator cannot be reached, is
        silent, or sends other messages.
    beat : float
        Answers are sent at multiples of so many seconds after their request; 0 is at once.
    note : callable
        Called with events, by name and public values.

    Returns
    -------
    Shutdown or None
        The coordinator's last message; None if it left after the last request was answered.

    Raises
    ------
    InputError
        If the coordinator refuses, with the reason.
    LateError
        If the coordinator is late.
    GridprivError
        Failure of the zone's answer.
    """
    if credentials is None:
        refuse_beyond_loopback("coordinator", address)
    connection = _Connection(address, credentials, client)
    deadline, taken_since, attempts = time.monotonic() + timeout, None, 0
    while True:
        try:
            for message in connection.messages(hello(), deadline):
                if isinstance(message, Shutdown):
                    return message
                if isinstance(message, Welcome):
                    note("info", "welcome", run=message.run)
                elif connection.answer(message, beat, note):
                    attempts, deadline = 0, time.monotonic() + timeout
                    connection.deadline = deadline
            why = "the coordinator closed the connection"
        except MessageError as error:
            why = f"the coordinator sent {error}"
        except TakenError as error:
            why = str(error)
            taken_since = taken_since or time.monotonic()
            if time.monotonic() - taken_since > min(GRACE, timeout):
                raise InputError(why) from None
        except _LostError as error:
            why = str(error)
        finally:
            connection.hang_up()
        note("warning", "lost", reason=why)
        if client.last.phase == "agreed" and attempts:
            return None
        if time.monotonic() > deadline:
            waited = f"zone {client.zone!r} waited {timeout:g} s for the coordinator at {address}"
            raise LateError(f"{waited}: {why}")
        time.sleep(PAUSES[min(attempts, len(PAUSES) - 1)])
        attempts += 1


class _LostError(GridprivError):
    """A connection that ended, or was never made."""


class _Connection:
    """A zone's client in a connection."""

    def __init__(self, address: str, credentials: Credentials | None, client: ZoneClient) -> None:
        self._address, self._credentials, self._client = address, credentials, client
        self._context = None if credentials is None else tls(credentials, server=False)
        self._channel: Channel | None = None
        self._repeats = 0
        self.deadline = 0.0

    def messages(self, hello: bytes, deadline: float) -> Iterator[bytes | Welcome | Shutdown]:
        """Yield requests, and other messages decoded, starting with the welcome."""
        self.deadline, self._repeats = deadline, 0
        try:
            channel = self._opened()
            channel.send(hello)
            welcomed = False
            while True:
                channel.deadline = max(self.deadline, time.monotonic() + 0.01)
                if (content := channel.read()) is None:
                    return
                message = decode(content)
                if isinstance(message, Refusal):
                    raise _refused(message)
                if isinstance(message, Welcome) == welcomed:
                    raise MessageError(
                        "a second welcome" if welcomed else "a message before a welcome"
                    )
                if isinstance(message, Welcome):
                    self._check_welcome(message)
                    welcomed = True
                elif isinstance(message, Shutdown) and self._client.verify is not None:
                    self._client.verify(content, message.signature)
                yield message if isinstance(message, Welcome | Shutdown) else content
        except TimeoutError:
            raise _LostError("it sent no new turn") from None
        except ssl.SSLError as error:
            raise _LostError(f"TLS handshake: {error.reason or error}") from None
        except OSError as error:
            raise _LostError(error.strerror or str(error)) from None

    def answer(self, request: bytes, beat: float, note: Note) -> bool:
        """Answer a request; return True if it was of a new turn.

        Raises
        ------
        MessageError
            For a turn that comes again more than once on one connection.
        GridprivError
            Failure of the zone's answer.
        """
        client, since, before = self._client, time.monotonic(), self._client.last
        answer = client.answer(request)
        if client.failed is None and beat > 0.0:
            time.sleep(beat - (time.monotonic() - since) % beat)  # to its next multiple
        self.send(answer)
        note("debug", "answered", turn=str(client.last))
        if client.failed is not None:
            self.finish()
            raise client.failed
        if client.last != before:
            return True
        self._repeats += 1
        if self._repeats > 1:
            raise MessageError("an order again that was answered")
        return False

    def send(self, answer: bytes) -> None:
        """Send an answer."""
        assert self._channel is not None
        self._channel.deadline = time.monotonic() + GRACE
        try:
            self._channel.send(answer)
        except OSError as error:
            raise _LostError(error.strerror or str(error)) from None

    def finish(self) -> None:
        """Wait until the coordinator closes the connection after the last answer."""
        if self._channel is not None:
            self._channel.deadline = time.monotonic() + GRACE
            with suppress(OSError, MessageError):
                self._channel.read()

    def hang_up(self) -> None:
        """End the connection."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def _opened(self) -> Channel:
        remaining = max(0.01, min(GRACE, self.deadline - time.monotonic()))
        host, port = split_address("coordinator", self._address)
        plain = socket.create_connection((host.strip("[]"), port), timeout=remaining)
        self._channel = channel = Channel(plain, self._client.size)
        channel.deadline = time.monotonic() + remaining
        if self._context is not None:
            channel.secure(self._context, NAME)
        return channel

    def _check_welcome(self, welcome: Welcome) -> None:
        """Check and store the coordinator's certificate, for the verification of its messages."""
        if self._credentials is None:
            return
        try:
            check_certificate(welcome.certificate, self._credentials.authority, NAME, "server")
            self._client.verify = Verifier(welcome.certificate)
        except InputError as error:
            raise MessageError(
                f"a welcome with a certificate that is not its own: {error}"
            ) from None
        self._client.note_certificate(welcome.certificate)


def _refused(refusal: Refusal) -> GridprivError:
    if refusal.taken:
        return TakenError(refusal.reason)
    return InputError(
        f"the coordinator refuses: {refusal.reason}; correct this in the zone's configuration"
    )

"""The coordinator's server, its exchange with all zones over the network, and its journal.

Zones open the connections, so only the coordinator needs a port. A zone has one connection: it
sends a first message, and the server then sends requests that it answers. With credentials both
sides show a certificate of the consortium's authority, and the certificate's name is the one zone
that its client may act for. docs/decisions/0060-network.md compares the alternatives.

Until a zone is admitted its connection is *pending*, and cannot delay an admitted zone:

- a pending connection without a message is closed after SILENT seconds, any other after PENDING
  seconds;
- at most ``most`` connections are pending. A further connection closes the oldest, those without a
  message first. So a member is admitted unless ``most`` other clients send a first message between
  its connection and its own first message.
"""

from __future__ import annotations

import hashlib
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock, Thread
from typing import Literal

import numpy as np

from gridpriv.consensus.credentials import (
    Channel,
    Credentials,
    Verifier,
    certificate_name,
    refuse_beyond_loopback,
    split_address,
    tls,
)
from gridpriv.consensus.messages import (
    LARGEST,
    Answer,
    Exchange,
    MessageError,
    Order,
    Phase,
    Refusal,
    Reply,
    Request,
    Stale,
    TurnId,
    Welcome,
    decode,
    encode,
    packed,
    unpacked_record,
)
from gridpriv.consensus.sessions import DivergedError, LateError, RefusedError, Sessions, TakenError
from gridpriv.core.arrays import Floats
from gridpriv.core.errors import GridprivError, InputError, not_allowed
from gridpriv.core.files import Records

SILENT, PENDING = 3.0, 10.0  # seconds
LOOK = 0.25  # seconds between two checks whether the server stops
LEAVING = 1.0  # seconds for connections to end when the server stops


@dataclass(eq=False)
class ClientConnection:
    """A connection of a client; ``has_sent`` is True after its first message."""

    channel: Channel
    has_sent: bool = False


class Server:
    """A coordinator's sessions, served over TCP.

    Parameters
    ----------
    address : str
        HOST:PORT to listen at; port 0 is any.
    credentials : Credentials or None
        None for a loopback address without certificates.
    variables : int
        Largest number of coupling variables of a zone.
    admitted : callable
        Called with the name and the certificate (PEM) of every admitted zone.

    Raises
    ------
    InputError
        If the address cannot be used.
    """

    def __init__(
        self,
        sessions: Sessions,
        address: str,
        credentials: Credentials | None,
        zones: int,
        variables: int,
        admitted: Callable[[str, bytes], None] = lambda *_: None,
    ) -> None:
        host, port = split_address("listen", address)
        if credentials is None:
            refuse_beyond_loopback("listen", address)
        self._sessions, self._credentials = sessions, credentials
        self._context = None if credentials is None else tls(credentials, server=True)
        self._variables, self._admitted = variables, admitted
        self.most = 8 * zones + 64
        self._pending: dict[ClientConnection, None] = {}
        self._connections: set[ClientConnection] = set()
        self._lock = Lock()
        self._listener = _listener(address, host.strip("[]"), port)
        self.address = f"{host}:{self._listener.getsockname()[1]}"
        self._open = True
        self._thread = Thread(target=self._listen, daemon=True)
        self._thread.start()

    def close(self, error: GridprivError | None) -> None:
        """Send all zones the end of the run, and close the port."""
        self._sessions.close(error)
        self.stop(LEAVING)

    def stop(self, grace: float | None) -> None:
        """Close the port; connections have ``grace`` seconds to end."""
        self._open = False
        self._thread.join()
        self._listener.close()
        until = time.monotonic() + (grace or 0.0)
        while self._connections and time.monotonic() < until:
            time.sleep(0.01)
        with self._lock:
            for connection in self._connections:
                connection.channel.end()

    def _listen(self) -> None:
        """Accept connections; end the oldest pending ones if there are too many."""
        self._listener.settimeout(LOOK)
        while self._open:
            with suppress(OSError):  # a timeout, or a client that has left already
                plain, _ = self._listener.accept()
                self._arrived(plain)

    def _arrived(self, plain: socket.socket) -> None:
        connection = ClientConnection(Channel(plain, self._variables))
        with self._lock:
            self._connections.add(connection)
            if len(self._pending) == self.most:  # in the order of arrival
                oldest = min(self._pending, key=lambda other: other.has_sent)
                del self._pending[oldest]
                oldest.channel.end()
            self._pending[connection] = None
        Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: ClientConnection) -> None:
        """Serve a connection until it is refused or closed, or the run is over."""
        try:
            self._take_part(connection)
        except (MessageError, RefusedError) as error:
            self._sessions.note("warning", "refused", reason=str(error))
            taken = isinstance(error, TakenError)
            with suppress(OSError):
                connection.channel.send(encode(Refusal(str(error)[:1000], taken)))
        except OSError:  # lost, or ended; TLS's refusals are of this kind
            pass
        finally:
            with self._lock:
                self._pending.pop(connection, None)
                self._connections.discard(connection)
            connection.channel.close()

    def _take_part(self, connection: ClientConnection) -> None:
        channel, sessions = connection.channel, self._sessions
        name, shown, verify = self._identity(connection)
        if (hello := channel.read()) is None:
            return
        zone = sessions.admit(hello, name, verify)
        try:
            with self._lock:
                self._pending.pop(connection, None)
            channel.deadline = float("inf")
            if shown:
                self._admitted(zone, shown)
            own = self._credentials.certificate if self._credentials else b""
            channel.send(encode(Welcome(sessions.public.run, own)))
            for message in sessions.messages(zone, lambda: not channel.has_input()):
                channel.send(message)
                if (answer := channel.read()) is None:
                    return
                sessions.take(zone, answer)
        finally:
            sessions.leave(zone)

    def _identity(self, connection: ClientConnection) -> tuple[str | None, bytes, Verifier | None]:
        """Return a client's name, its certificate and its verifier; None without certificates.

        Raises
        ------
        RefusedError
            For a certificate that is not a zone's.
        """
        accepted_at = time.monotonic()
        connection.channel.deadline = accepted_at + SILENT
        connection.channel.wait()
        connection.channel.deadline = accepted_at + PENDING
        connection.has_sent = True
        if self._context is None:
            return None, b"", None
        shown = connection.channel.secure(self._context)
        try:
            return certificate_name(shown, "client"), shown, Verifier(shown)
        except InputError as error:
            raise RefusedError(str(error)) from None


def _listener(address: str, host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=512)
    except (OSError, OverflowError):
        raise not_allowed("listen", address, "an address that is free on this machine") from None


TURNS = "turns"
ANSWERS = tuple[bytes, ...]
DIGEST = hashlib.sha256().digest_size


class Journal:
    """Journal of the turns of a run, in order.

    Parameters
    ----------
    folder : Path
        Folder of the journal, locked by its writer.

    Raises
    ------
    DamagedError
        If its file is damaged.
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
        answers = map(answer_of, answers_of(content, self._file.path))
        return [None if answer is None else answer.reply for answer in answers]

    def write(self, requests: Sequence[bytes], answers: Sequence[bytes]) -> None:
        """Write the turn that :meth:`next` did not have; empty for a zone without an answer."""
        self._file.add(_digest(requests) + packed(tuple(answers), ANSWERS))


def read_journal(folder: Path) -> list[tuple[bytes, ...]]:
    """Return the answers of every turn, as received; nothing without a journal."""
    path = folder / TURNS
    return [answers_of(content, path) for content in Records(path, private=False).read()]


def answers_of(content: bytes, path: Path) -> tuple[bytes, ...]:
    """Return the answers of one record."""
    answers: tuple[bytes, ...] = unpacked_record(content[DIGEST:], ANSWERS, path)
    return answers


def answer_of(content: bytes) -> Answer | None:
    """Return a recorded answer; None for a zone without."""
    message = decode(content) if content else None
    return message if isinstance(message, Answer) else None


def _digest(parts: Sequence[bytes]) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


Late = Literal["wait", "last", "stop"]


class Turns:
    """Runs the turns of a run over the zones' sessions, and records them in the journal.

    Parameters
    ----------
    start : sequence of array
        Values in place of each zone's last release before its first one; public.
    timeout : float
        Time limit of a turn's answers, in seconds.
    late : {'wait', 'last', 'stop'}
        Rule for a round in which a zone is late: wait and then stop, continue with its last
        message, or stop as soon as a zone is lost.
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

    def exchange_of(self, phase: Phase) -> Exchange:
        """Return the exchange that sends orders of a phase to the zones."""
        return partial(self._exchange, phase)

    def _exchange(self, phase: Phase, orders: Sequence[Order]) -> list[Reply]:
        turn, sessions = TurnId(phase, orders[0].number), self._sessions
        requests = []
        for zone, order in zip(sessions.zones, orders, strict=True):
            if not all(np.all(np.abs(part) <= LARGEST) for part in (order.w, order.penalty)):
                raise DivergedError(f"{turn}: the rounds diverge: an order is beyond {LARGEST:g}")
            requests.append(encode(Request(sessions.public.run, zone, phase, order)))
        replies = self._journal.next(turn, requests)
        known = replies is not None
        if replies is None:
            replies = self._request_replies(turn, orders, requests)
        else:
            sessions.miss(orders, replies)
        sessions.note("debug", "turn", turn=str(turn), known=known)
        complete = [
            Stale(sent, {}) if reply is None else reply
            for reply, sent in zip(replies, self._sent, strict=True)
        ]
        if phase in ("warm_start", "round"):
            self._sent = [reply.sent for reply in complete]
        return complete

    def _request_replies(
        self, turn: TurnId, orders: Sequence[Order], requests: Sequence[bytes]
    ) -> list[Reply | None]:
        """Send a turn's requests; journal and return the replies, None for a zone without."""
        sessions = self._sessions
        with sessions.changed:
            sessions.set_requests(turn, requests)
            sessions.changed.wait_for(self._is_complete, self._timeout)
            if sessions.error is not None:
                raise sessions.error
            absent = [zone for zone, s in sessions.zones.items() if s.reply is None]
            if absent and not (self._late == "last" and turn.phase in ("round", "agreed")):
                raise self._stopped_by(turn, absent)
            for zone in absent:
                sessions.note("warning", "late", zone=zone, turn=str(turn))
            sessions.end_turn()
            replies = [session.reply for session in sessions.zones.values()]
            answers = [session.answer for session in sessions.zones.values()]
            sessions.miss(orders, replies)
        self._journal.write(requests, answers)
        return replies

    def _is_complete(self) -> bool:
        """Return True when no answer is expected any more."""
        sessions = self._sessions.zones.values()
        if self._sessions.error is not None or all(s.reply for s in sessions):
            return True
        return self._late == "stop" and any(s.lost for s in sessions)

    def _stopped_by(self, turn: TurnId, absent: Sequence[str]) -> GridprivError:
        """Return the error that names the zones without an answer."""
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

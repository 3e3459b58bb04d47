"""A zone's connection to its coordinator."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from gridpriv.consensus.credentials import (
    NAME,
    Channel,
    Credentials,
    Verifier,
    check_certificate,
    refuse_beyond_loopback,
    split_address,
    tls,
)
from gridpriv.consensus.sessions import LateError, Note, TakenError
from gridpriv.consensus.wire import MessageError, Refusal, Shutdown, Welcome, decode
from gridpriv.consensus.zone_client import ZoneClient
from gridpriv.core.errors import GridprivError, InputError

GRACE = 20.0  # seconds in which a lost connection is noticed, and its session freed
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
        The coordinator's.
    timeout : float
        Seconds that the run may go without progress, whether the coordinator cannot be reached,
        says nothing, or sends messages that are no new turn.
    beat : float
        Answers leave at multiples of so many seconds after their request came; 0 is at once.
    note : callable
        Is given events, by name and public figures.

    Returns
    -------
    Shutdown or None
        The coordinator's last message; None if it left after the last request was answered.

    Raises
    ------
    InputError
        If the coordinator refuses; with the reason.
    LateError
        If it is waited for in vain.
    GridprivError
        What kept the zone from answering.
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
    """A zone's side of a connection."""

    def __init__(self, address: str, credentials: Credentials | None, client: ZoneClient) -> None:
        self._address, self._credentials, self._client = address, credentials, client
        self._context = None if credentials is None else tls(credentials, server=False)
        self._channel: Channel | None = None
        self._repeats = 0
        self.deadline = 0.0

    def messages(self, hello: bytes, deadline: float) -> Iterator[bytes | Welcome | Shutdown]:
        """Yield requests as they come, and other messages decoded, from the welcome on."""
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
                    self._believe(message)
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
            What kept the zone from answering.
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
        """Wait until the last answer has arrived: the coordinator ends the connection then."""
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
        left = max(0.01, min(GRACE, self.deadline - time.monotonic()))
        host, port = split_address("coordinator", self._address)
        plain = socket.create_connection((host.strip("[]"), port), timeout=left)
        self._channel = channel = Channel(plain, self._client.size)
        channel.deadline = time.monotonic() + left
        if self._context is not None:
            channel.secure(self._context, NAME)
        return channel

    def _believe(self, welcome: Welcome) -> None:
        """Take the coordinator's certificate, if it is one; its messages are checked with it."""
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

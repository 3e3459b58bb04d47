"""The coordinator's server: zones call it, so that only the coordinator has a port.

A zone holds one connection: its first message, then an answer to every request. With credentials
both sides show a certificate of the consortium's authority; the name in a zone's is the one zone
that it may take part for. docs/decisions/0060-network.md compares the ways.

Until a zone is admitted its connection is *pending*, and never in a member's way:

- a pending connection that says nothing ends after SILENT seconds, any after PENDING seconds, by
  deadlines of its own;
- an address has at most ``most_of_address`` of them, all together are at most ``most``: one more
  ends the oldest, those that said nothing first. So a member who connects is let in, whoever
  else is waiting; it is ended only if ``most_of_address`` others at its own address begin to
  speak between its connection and its first message;
- an identity has at most UNADMITTED of them.
"""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock, Thread

from gridpriv.consensus.channel import Channel, tls
from gridpriv.consensus.credentials import (
    Credentials,
    Verifier,
    certificate_name,
    refuse_beyond_loopback,
    split_address,
)
from gridpriv.consensus.sessions import RefusedError, Sessions, TakenError
from gridpriv.consensus.wire import MessageError, Refusal, encode
from gridpriv.core.errors import GridprivError, InputError, not_allowed

SILENT, PENDING = 3.0, 10.0  # seconds
LOOK = 0.25  # seconds between two looks whether the server stops
UNADMITTED = 2  # connections of one identity at a time that are not admitted
LEAVING = 1.0  # seconds in which connections end by themselves when the server stops


@dataclass(eq=False)
class Guest:
    """A connection from outside.

    Attributes
    ----------
    address : str
        IPv6 addresses of one /64 are one address.
    """

    channel: Channel
    address: str
    speaks: bool = False


class Server:
    """A coordinator's sessions, served over TCP.

    Parameters
    ----------
    address : str
        HOST:PORT to listen at; port 0 is any.
    credentials : Credentials or None
        None for a loopback address without certificates.
    variables : int
        The most shared variables that one zone has.
    admitted : callable
        Is given the name and the certificate (PEM) of every zone that is admitted.

    Raises
    ------
    InputError
        If the address cannot be had.
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
        self.most_of_address = 2 * zones + 16
        self.most = 4 * self.most_of_address
        self._pending: dict[Guest, None] = {}
        self._guests: set[Guest] = set()
        self._unadmitted: Counter[str] = Counter()
        self._lock = Lock()
        self._listener = _listener(address, host.strip("[]"), port)
        self.address = f"{host}:{self._listener.getsockname()[1]}"
        self._open = True
        self._thread = Thread(target=self._listen, daemon=True)
        self._thread.start()

    def close(self, error: GridprivError | None) -> None:
        """Tell all zones that the run is over, and close the port."""
        self._sessions.close(error)
        self.stop(LEAVING)

    def stop(self, grace: float | None) -> None:
        """Close the port; connections have ``grace`` seconds to end."""
        self._open = False
        self._thread.join()
        self._listener.close()
        until = time.monotonic() + (grace or 0.0)
        while self._guests and time.monotonic() < until:
            time.sleep(0.01)
        with self._lock:
            for guest in self._guests:
                guest.channel.end()

    def _listen(self) -> None:
        """Take connections; end pending ones that are too many."""
        self._listener.settimeout(LOOK)
        while self._open:
            with suppress(OSError):  # a timeout, or a caller who has left already
                plain, peer = self._listener.accept()
                self._arrived(plain, str(peer[0]))

    def _arrived(self, plain: socket.socket, host: str) -> None:
        address = ":".join(host.split(":")[:4]) if ":" in host else host
        guest = Guest(Channel(plain, self._variables), address)
        with self._lock:
            self._guests.add(guest)
            self._pending[guest] = None
            here = [other for other in self._pending if other.address == address]
            for group, most in ((here, self.most_of_address), ([*self._pending], self.most)):
                if len(group) > most:  # in the order in which they came
                    oldest = min(group[:-1], key=lambda other: other.speaks)
                    del self._pending[oldest]
                    oldest.channel.end()
        Thread(target=self._serve, args=(guest,), daemon=True).start()

    def _serve(self, guest: Guest) -> None:
        """Serve a connection until it is refused, leaves, or the run is over."""
        try:
            self._take_part(guest)
        except (MessageError, RefusedError) as error:
            self._sessions.note("warning", "refused", reason=str(error))
            taken = isinstance(error, TakenError)
            with suppress(OSError):
                guest.channel.send(encode(Refusal(str(error)[:1000], taken)))
        except OSError:  # lost, or ended; TLS's refusals are of this kind
            pass
        finally:
            with self._lock:
                self._pending.pop(guest, None)
                self._guests.discard(guest)
            guest.channel.close()

    def _take_part(self, guest: Guest) -> None:
        channel, sessions = guest.channel, self._sessions
        name, shown, verify = self._identity(guest)
        try:
            if (hello := channel.read()) is None:
                return
            zone = sessions.admit(hello, name, verify)
        finally:
            if name is not None:
                with self._lock:
                    self._unadmitted[name] -= 1
        try:
            with self._lock:
                self._pending.pop(guest, None)
            channel.deadline = float("inf")
            if shown:
                self._admitted(zone, shown)
            channel.send(
                sessions.welcome(self._credentials.certificate if self._credentials else b"")
            )
            for message in sessions.messages(zone, lambda: not channel.has_spoken()):
                channel.send(message)
                if (answer := channel.read()) is None:
                    return
                sessions.take(zone, answer)
        finally:
            sessions.leave(zone)

    def _identity(self, guest: Guest) -> tuple[str | None, bytes, Verifier | None]:
        """Return a caller's name, its certificate and its verifier; None without certificates.

        Raises
        ------
        RefusedError
            For a certificate that is no zone's, and for too many connections of one identity.
        """
        came = time.monotonic()
        guest.channel.deadline = came + SILENT
        guest.channel.wait()
        guest.channel.deadline = came + PENDING
        guest.speaks = True
        if self._context is None:
            return None, b"", None
        shown = guest.channel.secure(self._context)
        try:
            name, verify = certificate_name(shown, "client"), Verifier(shown)
        except InputError as error:
            raise RefusedError(str(error)) from None
        with self._lock:
            if self._unadmitted[name] >= UNADMITTED:
                raise TakenError(f"{name!r} has {UNADMITTED} connections already")
            self._unadmitted[name] += 1
        return name, shown, verify


def _listener(address: str, host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=512)
    except (OSError, OverflowError):
        raise not_allowed("listen", address, "an address that is free on this machine") from None

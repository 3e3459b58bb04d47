"""A connection between a zone and its coordinator: messages over TCP, with mutual TLS.

::

    length, u32 | message

A message has at most 128 KiB and 32 bytes a shared variable more. TLS is 1.3, by Python's ``ssl``
(OpenSSL). docs/decisions/0060-network.md compares it with gRPC, which came before.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
import tempfile
import time
from contextlib import suppress

from gridpriv.consensus.credentials import Credentials
from gridpriv.consensus.wire import MessageError

LENGTH = struct.Struct("<I")
SMALLEST_LIMIT = 1 << 17  # bytes of a message
VANISHED = 15_000  # ms without an acknowledgement after which the other side counts as gone
PROBES = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 2, "TCP_USER_TIMEOUT": VANISHED}


class Channel:
    """One side of a connection.

    Parameters
    ----------
    plain : socket
        Connected.
    variables : int
        Number of shared variables that a message may be about.

    Attributes
    ----------
    deadline : float
        When reading and writing end with :class:`TimeoutError` (monotonic clock).
    """

    def __init__(self, plain: socket.socket, variables: int) -> None:
        self._socket = plain
        self._most = SMALLEST_LIMIT + 32 * variables
        self.deadline = float("inf")
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in PROBES.items():
            if hasattr(socket, name):
                plain.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def secure(self, context: ssl.SSLContext, server: str | None = None) -> bytes:
        """Shake hands; return the other side's certificate (PEM)."""
        self._hurry()
        secured = context.wrap_socket(
            self._socket,
            server_side=server is None,
            server_hostname=server,
            do_handshake_on_connect=False,
        )
        self._socket = secured  # so that others can end it meanwhile
        secured.do_handshake()
        shown = secured.getpeercert(binary_form=True)
        return ssl.DER_cert_to_PEM_cert(shown or b"").encode()

    def send(self, message: bytes) -> None:
        """Send a message."""
        self._hurry()
        self._socket.sendall(LENGTH.pack(len(message)) + message)

    def read(self) -> bytes | None:
        """Return the next message; None where the other side has ended the connection.

        Raises
        ------
        MessageError
            For one that is too long.
        OSError
            For a connection that is lost; a TimeoutError after the deadline.
        """
        head = self._exactly(LENGTH.size)
        if head is None:
            return None
        (length,) = LENGTH.unpack(head)
        if length > self._most:
            raise MessageError(f"a message of {length} bytes; at most {self._most} are allowed")
        return self._exactly(length)

    def wait(self) -> None:
        """Wait until the other side speaks, or ends the connection."""
        self._hurry()
        self._socket.recv(1, socket.MSG_PEEK)

    def has_spoken(self) -> bool:
        """Return True if the other side sent something, or ended the connection."""
        pending = isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0
        return pending or bool(select.select([self._socket], [], [], 0.0)[0])

    def end(self) -> None:
        """End the connection, whoever waits for it."""
        with suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """End the connection and give the socket back."""
        self.end()
        self._socket.close()

    def _exactly(self, size: int) -> bytes | None:
        parts = bytearray()
        while len(parts) < size:
            self._hurry()
            part = self._socket.recv(size - len(parts))
            if not part:
                return None
            parts += part
        return bytes(parts)

    def _hurry(self) -> None:
        left = self.deadline - time.monotonic()
        if left <= 0.0:
            raise TimeoutError("the time is over")
        self._socket.settimeout(None if left == float("inf") else left)


def tls(given: Credentials, *, server: bool) -> ssl.SSLContext:
    """Return the context of one side: both show a certificate of the consortium's authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    if server:
        context.num_tickets = 0  # who comes again shows a certificate that holds then
    context.load_verify_locations(cadata=given.authority.decode())
    with tempfile.NamedTemporaryFile(prefix="gridpriv-") as file:  # mode 0600; ssl reads files only
        file.write(given.key + b"\n" + given.certificate)
        file.flush()
        context.load_cert_chain(file.name)
    return context

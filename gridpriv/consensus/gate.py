"""The door of a coordinator: connections of strangers are few, short, and never in a member's way.

gRPC takes every connection and waits two minutes for a TLS handshake. The gate takes connections
in its place and passes their bytes on to gRPC, which listens at a socket in a folder of its own
that no other user can reach. Until a zone is admitted its connection is *pending*:

- a pending connection that says nothing is closed after SILENT seconds, any after PENDING seconds;
- an address has at most ``most_of_address`` of them, all together are at most ``most``: one more
  ends the oldest, those that said nothing first. So a member who connects is let in, whoever
  else is waiting; it is ended only if ``most_of_address`` others at its own address begin to
  speak between its connection and its first message.

An admitted connection is not counted and not ended. A connection takes no thread here.
"""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

SILENT, PENDING = 3.0, 10.0  # seconds
SWEEP = 0.25  # seconds between two looks at the pending connections
BUFFER = 1 << 18  # bytes of one connection that wait to be passed on


class Gate:
    """Takes connections at an address and passes them on to a socket in a private folder.

    Parameters
    ----------
    host, port
        To listen at; port 0 is any.
    members : int
        Number of zones.

    Attributes
    ----------
    path : Path
        Of the socket that gRPC must listen at before :meth:`open`.
    port : int

    Raises
    ------
    OSError
        If the address cannot be had.
    """

    def __init__(self, host: str, port: int, members: int) -> None:
        self.most_of_address = 2 * members + 16
        self.most = 4 * self.most_of_address
        self._folder = tempfile.TemporaryDirectory(prefix="gridpriv-")  # mode 0700
        self.path = Path(self._folder.name) / "server"
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        self._listener = socket.create_server((host, port), family=family, backlog=512)
        self.port = int(self._listener.getsockname()[1])
        self._pending: dict[int, _Guest] = {}
        self._number = 0
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda _, __: None)  # a connection's end is no event
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._open = threading.Event()

    def open(self) -> None:
        """Begin to take connections."""
        self._thread.start()
        self._open.wait()

    def admit(self, peer: str) -> None:
        """Count a connection no longer as pending; ``peer`` is as gRPC names it."""
        number = peer.rpartition("-")[2]
        if number.isdecimal():
            self._loop.call_soon_threadsafe(self._pending.pop, int(number), None)

    def close(self) -> None:
        """End all connections."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._listener.close()
        self._folder.cleanup()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        make = self._loop.create_server(lambda: _Guest(self), sock=self._listener)
        server = self._loop.run_until_complete(make)
        sweeping = self._loop.create_task(self._sweep())
        self._loop.call_soon(self._open.set)
        self._loop.run_forever()
        sweeping.cancel()
        server.close()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP)
            now = time.monotonic()
            for guest in list(self._pending.values()):
                if now - guest.since > (PENDING if guest.speaks else SILENT):
                    guest.end()

    def arrived(self, guest: _Guest) -> int:
        """Return a new connection's number; end the oldest pending one where there are too many."""
        self._number += 1
        self._pending[self._number] = guest
        here = [other for other in self._pending.values() if other.address == guest.address]
        for group, most in ((here, self.most_of_address), ([*self._pending.values()], self.most)):
            if len(group) > most:
                min(group[:-1], key=lambda other: (other.speaks, other.since)).end()
        return self._number

    def left(self, number: int) -> None:
        """Forget a connection."""
        self._pending.pop(number, None)

    def connection(self, number: int) -> socket.socket:
        """Return a socket to gRPC's, whose own name tells the connection's number."""
        inner = socket.socket(socket.AF_UNIX)
        inner.setblocking(False)
        inner.bind(f"{self._folder.name}/guest-{number}")
        return inner


class _Side(asyncio.Protocol):
    """One side of a connection: what it gets goes to the other."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.other: _Side | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.set_write_buffer_limits(high=BUFFER)

    def data_received(self, data: bytes) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


class _Guest(_Side):
    """A connection from outside."""

    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self._gate = gate
        self.since = time.monotonic()
        self.speaks = False
        self.address = ""
        self._number = 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        address = str((transport.get_extra_info("peername") or ("",))[0])
        self.address = ":".join(address.split(":")[:4]) if ":" in address else address  # IPv6: /64
        self._number = self._gate.arrived(self)

    def data_received(self, data: bytes) -> None:
        if self.speaks:
            super().data_received(data)
            return
        self.speaks = True
        self.transport.pause_reading()
        self._connecting = asyncio.get_running_loop().create_task(self._connect(data))

    async def _connect(self, first: bytes) -> None:
        """Connect to gRPC's socket, and pass on what has come."""
        loop = asyncio.get_running_loop()
        inner = self._gate.connection(self._number)
        try:
            await loop.sock_connect(inner, str(self._gate.path))
            side = _Side()
            side.other = self
            await loop.create_connection(lambda: side, sock=inner)
        except OSError:
            inner.close()
            self.end()
            return
        finally:
            with suppress(OSError):
                os.unlink(f"{self._gate.path.parent}/guest-{self._number}")  # noqa: PTH108
        self.other = side
        side.transport.write(first)
        if self.transport.is_closing():
            side.transport.close()
        else:
            self.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._gate.left(self._number)
        super().connection_lost(exc)

    def end(self) -> None:
        """End the connection at once."""
        self._gate.left(self._number)
        self.transport.abort()

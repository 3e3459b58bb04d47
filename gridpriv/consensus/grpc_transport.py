"""Zones and their coordinator over gRPC: zones call, so that only the coordinator has a port.

A zone holds one stream: its first message, then an answer to every order. With credentials both
sides show a certificate of the consortium's authority; the name in a zone's is the one zone that
it may speak for. docs/decisions/0060-network.md compares the ways.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Timer
from typing import TYPE_CHECKING, Any

from gridpriv.consensus.speaker import Speaker
from gridpriv.consensus.table import LateError, Note, RefusedError, Table, TakenError
from gridpriv.consensus.wire import Farewell, MessageError, Welcome, decode
from gridpriv.core.errors import GridprivError, InputError, missing_extra, not_allowed

if TYPE_CHECKING:
    from typing import TypeAlias

    Grpc: TypeAlias = Any  # grpcio has no types of its own

SERVICE, METHOD = "gridpriv.Consensus", "Attend"
NAME = "coordinator"  # in the coordinator's certificate
FIRST_WITHIN = 10.0  # seconds between a connection and its first message
BESIDE = 16  # connections besides one a zone: to be refused with a reason
GRACE = 20.0  # seconds in which a lost connection is noticed, and its seat freed
PAUSES = (0.05, 0.1, 0.2, 0.5, 1.0)  # seconds between two attempts to connect
KEPT_ALIVE = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
)
SMALLEST_LIMIT = 1 << 17  # bytes of a message


@dataclass(frozen=True)
class Credentials:
    """What a party shows and what it believes, as PEM: certificate, key, and the authority's."""

    certificate: bytes
    key: bytes
    authority: bytes

    def __repr__(self) -> str:
        return "Credentials(...)"


class Hall:
    """A table that zones come to over gRPC.

    Parameters
    ----------
    address : str
        HOST:PORT to listen at; port 0 is any.
    credentials : Credentials or None
        None for a loopback address without certificates.
    zones, variables : int
        Number of zones, and the most shared variables that one has.

    Raises
    ------
    InputError
        If the address cannot be had.
    """

    def __init__(
        self, table: Table, address: str, credentials: Credentials | None, zones: int,
        variables: int,
    ) -> None:  # fmt: skip
        grpc = load()
        host, _ = split_address("listen", address)
        if credentials is None:
            refuse_beyond_loopback("listen", address)
        self._table = table
        self._certified = credentials is not None
        self._server = grpc.server(
            ThreadPoolExecutor(zones + BESIDE),
            maximum_concurrent_rpcs=zones + BESIDE,
            options=[*_options(variables), ("grpc.so_reuseport", 0)],
        )
        handler = grpc.stream_stream_rpc_method_handler(self._attend)
        self._server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler})]
        )
        try:
            if credentials is None:
                port = self._server.add_insecure_port(address)
            else:
                pair = [(credentials.key, credentials.certificate)]
                proved = grpc.ssl_server_credentials(pair, credentials.authority, True)
                port = self._server.add_secure_port(address, proved)
        except RuntimeError:
            raise not_allowed(
                "listen", address, "an address that is free on this machine"
            ) from None
        self.address = f"{host}:{port}"
        self._server.start()

    def close(self, error: GridprivError | None) -> None:
        """Tell all zones that the run is over, and close the door."""
        self._table.close(error)
        self._server.stop(grace=1.0).wait()

    def _attend(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        """Serve one stream: somebody's, until they are refused, leave, or the run is over."""
        table, grpc = self._table, load()
        hurry = Timer(FIRST_WITHIN, context.cancel)
        hurry.daemon = True
        hurry.start()
        try:
            zone = table.admit(next(requests), self._name(context))
        except StopIteration:
            return
        except TakenError as error:
            context.abort(grpc.StatusCode.ALREADY_EXISTS, str(error))
        except (RefusedError, MessageError) as error:
            table.note("warning", "refused", reason=str(error))
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        finally:
            hurry.cancel()
        if not context.add_callback(lambda: table.leave(zone)):
            table.leave(zone)
            return
        yield table.welcome()
        for message in table.messages(zone, context.is_active):
            yield message
            try:
                table.take(zone, next(requests))
            except StopIteration:
                return
            except MessageError as error:
                table.note("warning", "refused", zone=zone, reason=str(error))
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))

    def _name(self, context: Any) -> str | None:
        """Return the name in a caller's certificate; None where there are none."""
        if not self._certified:
            return None
        names = context.auth_context().get("x509_common_name", [])
        return names[0].decode("utf-8", "replace") if len(names) == 1 else ""


def attend(
    speaker: Speaker,
    hello: Callable[[], bytes],
    address: str,
    credentials: Credentials | None,
    variables: int,
    patience: float,
    beat: float,
    note: Note,
) -> Farewell | None:
    """Speak for a zone until the run is over.

    Parameters
    ----------
    hello : callable
        Returns the first message of a connection.
    address : str
        The coordinator's.
    variables : int
        That the zone shares.
    patience : float
        Seconds that the coordinator is waited for, whether it cannot be reached or says nothing.
    beat : float
        Answers leave at multiples of so many seconds after their order came; 0 is at once.
    note : callable
        Told of events, by name and public figures.

    Returns
    -------
    Farewell or None
        What the coordinator said last; None if it left after the last order was answered.

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
    line = _Line(address, credentials, variables, patience)
    since, taken_since, attempts = time.monotonic(), None, 0
    while True:
        try:
            for message in line.messages(hello()):
                since, attempts = time.monotonic(), 0
                told = decode(message)
                if isinstance(told, Farewell):
                    return told
                if isinstance(told, Welcome):
                    note("info", "welcome", run=told.run)
                    continue
                answer = speaker.answer(message)
                if speaker.failed is None and beat > 0.0:
                    time.sleep(_until_beat(since, beat))
                line.send(answer)
                note("debug", "answered", turn=str(speaker.last))
                if speaker.failed is not None:
                    line.finish()
                    raise speaker.failed
            why = "the coordinator closed the connection"
        except MessageError as error:
            why = f"the coordinator sent {error}"
        except TakenError as error:
            why = str(error)
            taken_since = taken_since or time.monotonic()
            if time.monotonic() - taken_since > min(GRACE, patience):
                raise InputError(why) from None
        except _LostError as error:
            why = str(error)
        finally:
            line.hang_up()
        note("warning", "lost", reason=why)
        if speaker.last.phase == "agreed" and attempts:
            return None
        if time.monotonic() - since > patience:
            waited = f"zone {speaker.zone!r} waited {patience:g} s for the coordinator at {address}"
            raise LateError(f"{waited}: {why}")
        time.sleep(PAUSES[min(attempts, len(PAUSES) - 1)])
        attempts += 1


class _LostError(GridprivError):
    """A connection that ended, or was never made."""


class _Line:
    """A zone's side of a stream."""

    def __init__(
        self, address: str, credentials: Credentials | None, variables: int, patience: float
    ) -> None:
        self._grpc = load()
        self._address, self._patience = address, patience
        self._options = _options(variables)
        self._proved = credentials and self._grpc.ssl_channel_credentials(
            credentials.authority, credentials.key, credentials.certificate
        )
        self._channel: Any = None
        self._call: Any = None

    def messages(self, hello: bytes) -> Iterator[bytes]:
        """Yield what the coordinator sends, from its welcome on."""
        self._outgoing: SimpleQueue[bytes | None] = SimpleQueue()
        self._channel = self._open()
        self._outgoing.put(hello)
        dial = self._channel.stream_stream(f"/{SERVICE}/{METHOD}")
        self._call = dial(iter(self._outgoing.get, None))
        while True:
            slow = Timer(self._patience, self._call.cancel)
            slow.daemon = True
            slow.start()
            try:
                message = next(self._call)
            except StopIteration:
                return
            except self._grpc.RpcError as error:
                raise self._reason(error) from None
            finally:
                slow.cancel()
            yield message

    def send(self, answer: bytes) -> None:
        """Send an answer."""
        self._outgoing.put(answer)

    def finish(self) -> None:
        """Wait until what was sent has arrived: the coordinator answers the last message."""
        try:
            next(self._call, None)
        except self._grpc.RpcError:
            return

    def hang_up(self) -> None:
        """End the connection."""
        if self._call is not None:
            self._outgoing.put(None)
            self._call.cancel()
            self._call = None
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _open(self) -> Any:
        if self._proved is None:
            return self._grpc.insecure_channel(self._address, self._options)
        named = [("grpc.ssl_target_name_override", NAME)]
        return self._grpc.secure_channel(self._address, self._proved, self._options + named)

    def _reason(self, error: Any) -> GridprivError:
        code, details = error.code(), error.details() or ""
        status = self._grpc.StatusCode
        if code is status.ALREADY_EXISTS:
            return TakenError(details)
        if code in (status.FAILED_PRECONDITION, status.INVALID_ARGUMENT):
            return InputError(f"the coordinator refuses: {details}")
        if code is status.CANCELLED:
            return _LostError(f"it said nothing for {self._patience:g} s")
        return _LostError(details)


def load() -> Grpc:
    """Return grpcio's module.

    Raises
    ------
    InputError
        Where the ``network`` extra is not installed.
    """
    try:
        import grpc
    except ImportError:
        raise missing_extra("grpcio", "network", "a run over a network") from None
    return grpc


def split_address(field: str, address: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise not_allowed(field, address, "HOST:PORT, such as 127.0.0.1:50051")
    return host, int(port)


def refuse_beyond_loopback(field: str, address: str) -> None:
    """Refuse an address that other machines can reach."""
    host, _ = split_address(field, address)
    try:
        near = host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        near = False
    if not near:
        raise not_allowed(
            field, address, "a loopback address (127.0.0.1, ::1, localhost) without certificates"
        )


def _options(variables: int) -> list[tuple[str, Any]]:
    most = SMALLEST_LIMIT + 32 * variables
    return [
        *KEPT_ALIVE,
        ("grpc.max_receive_message_length", most),
        ("grpc.max_send_message_length", most),
        ("grpc.enable_retries", 0),
    ]


def _until_beat(since: float, beat: float) -> float:
    """Return the seconds to the next multiple of a beat after the order came."""
    passed = time.monotonic() - since
    return float(beat - passed % beat)

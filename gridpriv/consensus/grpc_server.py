"""The coordinator's server: zones call it over gRPC, so that only the coordinator has a port.

A zone holds one stream: its first message, then an answer to every request. With credentials both
sides show a certificate of the consortium's authority; the name in a zone's is the one zone that
it may take part for. docs/decisions/0060-network.md compares the ways.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Lock, Timer
from typing import TYPE_CHECKING, Any

from gridpriv.consensus.credentials import (
    Credentials,
    certificate_name,
    refuse_beyond_loopback,
    split_address,
)
from gridpriv.consensus.gate import Gate
from gridpriv.consensus.sessions import RefusedError, Sessions, TakenError
from gridpriv.consensus.signatures import Verifier
from gridpriv.consensus.wire import MessageError
from gridpriv.core.errors import GridprivError, InputError, missing_extra, not_allowed

if TYPE_CHECKING:
    from typing import TypeAlias

    Grpc: TypeAlias = Any  # grpcio has no types of its own

SERVICE, METHOD = "gridpriv.Consensus", "Attend"
FIRST_WITHIN = 10.0  # seconds between a stream's begin and its first message
STREAMS = 2  # of one identity at a time: one that takes part, and one that is refused
BESIDES = 16  # threads besides those of the zones: for callers that are refused with a reason
KEPT_ALIVE = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
)
SMALLEST_LIMIT = 1 << 17  # bytes of a message


class Server:
    """A coordinator's sessions, served over gRPC.

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
        grpc = load()
        host, port = split_address("listen", address)
        if credentials is None:
            refuse_beyond_loopback("listen", address)
        self._sessions, self._credentials = sessions, credentials
        self._admitted = admitted
        self._streams: Counter[str] = Counter()
        self._lock = Lock()
        threads = STREAMS * zones + BESIDES
        self._server = grpc.server(
            ThreadPoolExecutor(threads),
            maximum_concurrent_rpcs=threads,
            options=[*options(variables), ("grpc.max_concurrent_streams", 2 * STREAMS)],
        )
        handler = grpc.stream_stream_rpc_method_handler(self._serve)
        self._server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler})]
        )
        try:
            self._gate = Gate(host.strip("[]"), port, zones)
        except (OSError, OverflowError):
            raise not_allowed(
                "listen", address, "an address that is free on this machine"
            ) from None
        inner = f"unix:{self._gate.path}"
        if credentials is None:
            self._server.add_insecure_port(inner)
        else:
            pair = [(credentials.key, credentials.certificate)]
            self._server.add_secure_port(
                inner, grpc.ssl_server_credentials(pair, credentials.authority, True)
            )
        self.address = f"{host}:{self._gate.port}"
        self._server.start()
        self._gate.open()

    def close(self, error: GridprivError | None) -> None:
        """Tell all zones that the run is over, and close the port."""
        self._sessions.close(error)
        self.stop(grace=1.0)

    def stop(self, grace: float | None) -> None:
        """Close the port; streams have ``grace`` seconds to end."""
        self._server.stop(grace).wait()
        self._gate.close()

    def _serve(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        """Serve one stream, until it is refused, leaves, or the run is over."""
        sessions, grpc = self._sessions, load()
        hurry = Timer(FIRST_WITHIN, context.cancel)
        hurry.daemon = True
        hurry.start()
        try:
            name, shown, verify = self._identity(context)
            zone = sessions.admit(next(requests), name, verify)
        except StopIteration:
            return
        except TakenError as error:
            context.abort(grpc.StatusCode.ALREADY_EXISTS, str(error))
        except (RefusedError, MessageError) as error:
            sessions.note("warning", "refused", reason=str(error))
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        finally:
            hurry.cancel()
        if not context.add_callback(lambda: sessions.leave(zone)):
            sessions.leave(zone)
            return
        self._gate.admit(context.peer())
        if shown:
            self._admitted(zone, shown)
        yield sessions.welcome(self._credentials.certificate if self._credentials else b"")
        for message in sessions.messages(zone, context.is_active):
            yield message
            try:
                sessions.take(zone, next(requests))
            except StopIteration:
                return
            except MessageError as error:
                sessions.note("warning", "refused", zone=zone, reason=str(error))
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))

    def _identity(self, context: Any) -> tuple[str | None, bytes, Verifier | None]:
        """Return a caller's name, its certificate and its verifier; None without certificates.

        Raises
        ------
        RefusedError
            For a certificate that is no zone's, and for too many streams of one identity.
        """
        if self._credentials is None:
            return None, b"", None
        shown = context.auth_context().get("x509_pem_cert", [b""])[0]
        try:
            name = certificate_name(shown, "client")
            verify = Verifier(shown)
        except InputError as error:
            raise RefusedError(str(error)) from None
        with self._lock:
            if self._streams[name] >= STREAMS:
                raise TakenError(f"{name!r} has {STREAMS} connections already")
            if context.add_callback(lambda: self._end_stream(name)):
                self._streams[name] += 1
        return name, shown, verify

    def _end_stream(self, name: str) -> None:
        with self._lock:
            self._streams[name] -= 1


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


def options(variables: int) -> list[tuple[str, Any]]:
    """Return the options of both sides: messages in proportion to what a zone shares."""
    most = SMALLEST_LIMIT + 32 * variables
    return [
        *KEPT_ALIVE,
        ("grpc.max_receive_message_length", most),
        ("grpc.max_send_message_length", most),
        ("grpc.enable_retries", 0),
    ]

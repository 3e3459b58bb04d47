"""Certificates, message signatures, and the TLS connection between a zone and the coordinator.

A zone's certificate has the zone's name as its only common name and the usage *client*; that of the
coordinator has the name ``coordinator`` and the usage *server*. Both are signed by the consortium's
authority.

The last field of a message is a signature of all bytes before it, with the key of the sender's
certificate: ECDSA or RSA (PKCS 1 v1.5) with SHA-256, or Ed25519. Without certificates it is empty.

A connection transports messages over TCP, with mutual TLS 1.3 by Python's ``ssl`` (OpenSSL)::

    length, u32 | message

A message has at most 128 KiB plus 32 bytes per coupling variable. docs/decisions/0060-network.md
compares this with gRPC, which was used before.
"""

from __future__ import annotations

import hashlib
import ipaddress
import select
import socket
import ssl
import struct
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from gridpriv.consensus.messages import COUNT, LONGEST_SIGNATURE, MessageError
from gridpriv.core.errors import InputError, missing_extra, not_allowed

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

NAME = "coordinator"  # in the coordinator's certificate
Usage = Literal["client", "server"]


@dataclass(frozen=True)
class Credentials:
    """A party's certificate and key, and the authority's certificate, as PEM."""

    certificate: bytes
    key: bytes
    authority: bytes

    def __repr__(self) -> str:
        return "Credentials(...)"


def certificate_name(pem: bytes, usage: Usage) -> str:
    """Return the party of a certificate.

    Raises
    ------
    InputError
        If it is not a certificate, has another usage, is an authority's, or has not exactly one
        common name; with the reason.
    """
    x509 = x509_module()
    own = read_certificate(pem)
    names = [
        str(part.value) for part in own.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    ]
    if len(names) != 1:
        raise InputError(f"a certificate of {len(names)} common names; exactly one is allowed")
    try:
        usages = own.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        authority = own.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        usages, authority = (), False
    purpose = x509.oid.ExtendedKeyUsageOID
    needed = purpose.CLIENT_AUTH if usage == "client" else purpose.SERVER_AUTH
    if authority or needed not in usages:
        raise InputError(
            f"the certificate of {names[0]!r} has not the extended key usage {usage}; a zone's "
            "needs client, the coordinator's server"
        )
    return names[0]


def check_certificate(
    pem: bytes, authority: bytes, name: str, usage: Usage, *, timed: bool = True
) -> None:
    """Refuse a certificate of another party, of another authority, or out of date.

    Parameters
    ----------
    timed : bool
        True if it must be valid now; a transcript is read later.

    Raises
    ------
    InputError
        With the reason.
    """
    from cryptography.exceptions import InvalidSignature

    def refused(why: str) -> InputError:
        return InputError(f"the certificate of {name!r} {why}")

    own = read_certificate(pem)
    try:
        own.verify_directly_issued_by(read_certificate(authority))
    except InvalidSignature:
        why = "is not signed by its authority: use the authority that made it"
        raise refused(why) from None
    except (ValueError, TypeError) as error:
        raise refused(f"is not usable: {error}; make a new one (gridpriv keys)") from None
    now, first, last = datetime.now(UTC), own.not_valid_before_utc, own.not_valid_after_utc
    if timed and now > last:
        raise refused(f"expired on {last:%F %T} UTC: make a new one (gridpriv keys)")
    if timed and now < first:
        remedy = "check the clock, or make a new one (gridpriv keys)"
        raise refused(f"holds from {first:%F %T} UTC: {remedy}")
    if (shown := certificate_name(pem, usage)) != name:
        raise InputError(
            f"a certificate of {shown!r} does not speak for {name!r}"
            ": use the certificate of that zone"
        )


def read_certificate(pem: bytes) -> Certificate:
    """Return a certificate.

    Raises
    ------
    InputError
        For other bytes.
    """
    try:
        return x509_module().load_pem_x509_certificate(pem)
    except ValueError as error:
        raise InputError(
            f"a certificate that is not usable: {error}; make a new one (gridpriv keys)"
        ) from None


def read_key(pem: bytes) -> Any:
    """Return a private key; raise :class:`InputError` for other bytes."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        return load_pem_private_key(pem, None)
    except (ValueError, TypeError) as error:
        raise InputError(
            f"a key that is not usable: {error}; make a new one (gridpriv keys)"
        ) from None


def x509_module() -> Any:
    """Return ``cryptography.x509``; raise an error with its installation if it is missing."""
    try:
        from cryptography import x509
    except ImportError:
        raise missing_extra("cryptography", "network", "a certificate") from None
    return x509


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
        is_loopback = host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise not_allowed(
            field, address, "a loopback address (127.0.0.1, ::1, localhost) without certificates"
        )


PURPOSE = b"gridpriv message\0"
EMPTY = COUNT.pack(0)


Signer = Callable[[bytes], bytes]
"""Function that replaces a message's empty signature by its sender's signature."""


def not_signed(content: bytes) -> bytes:
    """Return a message unchanged: without certificates there are no signatures."""
    return content


class KeySigner:
    """Signs under a private key (PEM)."""

    def __init__(self, key: bytes) -> None:
        self._key = read_key(key)
        self._arguments = _signature_arguments(self._key)

    def __call__(self, content: bytes) -> bytes:
        """Return a message's bytes with their signature in place of the empty one."""
        body = content.removesuffix(EMPTY)
        signature: bytes = self._key.sign(PURPOSE + body, *self._arguments)
        return body + COUNT.pack(len(signature)) + signature


def signer(credentials: Credentials | None) -> Signer:
    """Return the signer of a party; without credentials nothing is signed."""
    return not_signed if credentials is None else KeySigner(credentials.key)


class Verifier:
    """Checks signatures under the public key of a certificate (PEM)."""

    def __init__(self, certificate: bytes) -> None:
        self._key: Any = read_certificate(certificate).public_key()
        self._arguments = _signature_arguments(self._key)

    def __call__(self, content: bytes, signature: bytes) -> None:
        """Raise :class:`MessageError` unless a message's bytes end with a signature of them."""
        from cryptography.exceptions import InvalidSignature

        if len(signature) > LONGEST_SIGNATURE:
            raise MessageError("a signature that is too long")
        try:
            self._key.verify(signature, PURPOSE + unsigned(content, signature), *self._arguments)
        except InvalidSignature:
            raise MessageError("a message that its sender has not signed") from None


def unsigned(content: bytes, signature: bytes) -> bytes:
    """Return a message's bytes before its signature."""
    return content[: len(content) - len(signature) - COUNT.size]


def digest(content: bytes, signature: bytes) -> bytes:
    """Return the SHA-256 of a message's bytes before its signature."""
    return hashlib.sha256(unsigned(content, signature)).digest()


def _signature_arguments(key: Any) -> tuple[Any, ...]:
    """Return the algorithm's other arguments, by the kind of key."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa

    if isinstance(key, ec.EllipticCurvePrivateKey | ec.EllipticCurvePublicKey):
        return (ec.ECDSA(hashes.SHA256()),)
    if isinstance(key, rsa.RSAPrivateKey | rsa.RSAPublicKey):
        return (padding.PKCS1v15(), hashes.SHA256())
    if isinstance(key, ed25519.Ed25519PrivateKey | ed25519.Ed25519PublicKey):
        return ()
    raise InputError(f"a key of kind {type(key).__name__}; EC, RSA and Ed25519 are allowed")


LENGTH = struct.Struct("<I")
SMALLEST_LIMIT = 1 << 17  # bytes of a message
VANISHED = 15_000  # ms without an acknowledgement until the other side counts as lost
PROBES = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 2, "TCP_USER_TIMEOUT": VANISHED}


class Channel:
    """One side of a connection.

    Parameters
    ----------
    plain : socket
        Connected.
    variables : int
        Largest number of coupling variables in a message.

    Attributes
    ----------
    deadline : float
        Time at which reading and writing end with :class:`TimeoutError` (monotonic clock).
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
        self._set_timeout()
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
        self._set_timeout()
        self._socket.sendall(LENGTH.pack(len(message)) + message)

    def read(self) -> bytes | None:
        """Return the next message; None where the other side has ended the connection.

        Raises
        ------
        MessageError
            For a message that is too long.
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
        """Wait until the other side sends something, or ends the connection."""
        self._set_timeout()
        self._socket.recv(1, socket.MSG_PEEK)

    def has_input(self) -> bool:
        """Return True if the other side sent something, or ended the connection."""
        pending = isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0
        return pending or bool(select.select([self._socket], [], [], 0.0)[0])

    def end(self) -> None:
        """End the connection, also for threads that wait for it."""
        with suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """End the connection and close the socket."""
        self.end()
        self._socket.close()

    def _exactly(self, size: int) -> bytes | None:
        parts = bytearray()
        while len(parts) < size:
            self._set_timeout()
            part = self._socket.recv(size - len(parts))
            if not part:
                return None
            parts += part
        return bytes(parts)

    def _set_timeout(self) -> None:
        remaining = self.deadline - time.monotonic()
        if remaining <= 0.0:
            raise TimeoutError("the time is over")
        self._socket.settimeout(None if remaining == float("inf") else remaining)


def tls(credentials: Credentials, *, server: bool) -> ssl.SSLContext:
    """Return the TLS context of a side; both show a certificate of the consortium's authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    if server:
        context.num_tickets = 0  # a new connection needs a certificate that is valid then
    context.load_verify_locations(cadata=credentials.authority.decode())
    with tempfile.NamedTemporaryFile(prefix="gridpriv-") as file:  # mode 0600; ssl reads files only
        file.write(credentials.key + b"\n" + credentials.certificate)
        file.flush()
        context.load_cert_chain(file.name)
    return context

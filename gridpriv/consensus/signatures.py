"""Signatures of messages: who sent them can be shown to others afterwards.

A message's last field is a signature of all bytes before it, under the key of its sender's
certificate: ECDSA or RSA (PKCS 1 v1.5) with SHA-256, or Ed25519. Without certificates it is empty.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from gridpriv.consensus.credentials import read_certificate
from gridpriv.consensus.wire import COUNT, LONGEST_SIGNATURE, MessageError
from gridpriv.core.errors import InputError

PURPOSE = b"gridpriv message\0"
EMPTY = COUNT.pack(0)


Signer = Callable[[bytes], bytes]
"""From a message's bytes, their signature empty, to the same with its sender's signature."""


def not_signed(content: bytes) -> bytes:
    """Return a message as it is: where there are no certificates, there are no signatures."""
    return content


class KeySigner:
    """Signs under a private key (PEM)."""

    def __init__(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            self._key: Any = load_pem_private_key(key, None)
        except (ValueError, TypeError) as error:
            raise InputError(f"a key that is not usable: {error}") from None
        self._how = _how(self._key)

    def __call__(self, content: bytes) -> bytes:
        """Return a message's bytes with their signature in place of the empty one."""
        body = content.removesuffix(EMPTY)
        signature: bytes = self._key.sign(PURPOSE + body, *self._how)
        return body + COUNT.pack(len(signature)) + signature


class Verifier:
    """Checks signatures under the public key of a certificate (PEM)."""

    def __init__(self, certificate: bytes) -> None:
        self._key: Any = read_certificate(certificate).public_key()
        self._how = _how(self._key)

    def __call__(self, content: bytes, signature: bytes) -> None:
        """Raise :class:`MessageError` unless a message's bytes end with a signature of them."""
        from cryptography.exceptions import InvalidSignature

        if len(signature) > LONGEST_SIGNATURE:
            raise MessageError("a signature that is too long")
        try:
            self._key.verify(signature, PURPOSE + unsigned(content, signature), *self._how)
        except InvalidSignature:
            raise MessageError("a message that its sender has not signed") from None


def unsigned(content: bytes, signature: bytes) -> bytes:
    """Return a message's bytes before its signature: what it says, whoever signs it again."""
    return content[: len(content) - len(signature) - COUNT.size]


def digest(content: bytes, signature: bytes) -> bytes:
    """Return the SHA-256 of a message's bytes before its signature."""
    return hashlib.sha256(unsigned(content, signature)).digest()


def _how(key: Any) -> tuple[Any, ...]:
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

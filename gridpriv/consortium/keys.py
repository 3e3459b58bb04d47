"""A consortium's certificates: an authority, and one for each party with the name it speaks for.

Made here for trials. A real consortium makes each key where it is used and has its authority sign
a request; what :func:`check_pair` checks is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gridpriv.consensus.credentials import (
    NAME,
    Credentials,
    Usage,
    check_certificate,
    read_certificate,
)
from gridpriv.core.errors import InputError, missing_extra, not_allowed, whole
from gridpriv.core.files import make_folder, write_bytes

if TYPE_CHECKING:
    from cryptography.x509 import Certificate, CertificateBuilder

LONGEST_NAME = 64  # characters of a certificate's common name
AUTHORITY = "gridpriv consortium"
EARLY = timedelta(minutes=5)  # clocks differ


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "KeyPair(...)"


def make_keys(
    zones: Sequence[str], days: int = 30, begin: datetime | None = None
) -> tuple[KeyPair, dict[str, KeyPair]]:
    """Return an authority, and what it gives the coordinator and every zone.

    Parameters
    ----------
    zones : sequence of str
        A certificate speaks for the zone that it names, and for no other.
    days : int
        How long they hold.
    begin : datetime, optional
        From when; now, by default.
    """
    x509, hashes, ec = _cryptography()
    whole("days", days)
    for zone in zones:
        check_name(zone)
    if len(set(zones)) < len(zones):
        raise InputError("a zone is named twice: give every zone once")
    start = (begin or datetime.now(UTC)) - EARLY
    until = start + timedelta(days=days) + EARLY
    own = ec.generate_private_key(ec.SECP256R1())

    def named(name: str) -> Any:
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])

    def signed(name: str, key: Any, extensions: Sequence[tuple[Any, bool]]) -> Certificate:
        builder: CertificateBuilder = x509.CertificateBuilder(
            issuer_name=named(AUTHORITY),
            subject_name=named(name),
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=start,
            not_valid_after=until,
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(own, hashes.SHA256())

    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    top = [(x509.BasicConstraints(ca=True, path_length=0), True), (usage, True)]
    authority = signed(AUTHORITY, own, top)
    parties = {}
    for name in (NAME, *zones):
        key = ec.generate_private_key(ec.SECP256R1())
        purpose = x509.oid.ExtendedKeyUsageOID
        role = purpose.SERVER_AUTH if name == NAME else purpose.CLIENT_AUTH
        extensions = [
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (x509.ExtendedKeyUsage([role]), False),
        ]
        if name == NAME:
            extensions.append((x509.SubjectAlternativeName([x509.DNSName(NAME)]), False))
        parties[name] = _pair(signed(name, key, extensions), key)
    return _pair(authority, own), parties


def write_keys(folder: Path, authority: KeyPair, parties: dict[str, KeyPair]) -> None:
    """Write a consortium's certificates and keys, a folder a party; keys for their owner only."""
    for name, pair in {"authority": authority, **parties}.items():
        write_pair(folder / name, pair, authority.certificate)


def write_pair(place: Path, pair: KeyPair, authority: bytes) -> None:
    """Write one party's certificate and key, and the authority's certificate."""
    make_folder(place)
    write_bytes(place / "key.pem", pair.key, private=True)
    write_bytes(place / "certificate.pem", pair.certificate, private=False)
    write_bytes(place / "authority.pem", authority, private=False)


def check_name(zone: str) -> None:
    """Refuse a zone's name that no certificate, or no folder, can have."""
    plain = zone.isprintable() and "/" not in zone and zone not in (".", "..")
    if not (plain and 0 < len(zone) <= LONGEST_NAME and zone not in (NAME, "authority")):
        raise not_allowed(
            "zone",
            zone,
            f"1 to {LONGEST_NAME} printable characters without '/', and neither '{NAME}' nor "
            "'authority'",
        )


def check_pair(given: Credentials, name: str) -> None:
    """Refuse credentials that the other side would refuse, with the reason.

    Raises
    ------
    InputError
        If the certificate has expired, is another's, has another usage, or its key or authority
        does not fit.
    """
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    usage: Usage = "server" if name == NAME else "client"
    own = read_certificate(given.certificate)
    try:
        key: Any = load_pem_private_key(given.key, None)
    except (ValueError, TypeError) as error:
        raise InputError(
            f"the key of {name!r} is not usable: {error}; make a new one (gridpriv keys)"
        ) from None
    check_certificate(given.certificate, given.authority, name, usage)
    if own.public_key() != key.public_key():
        raise InputError(
            f"the key of {name!r} is not its certificate's: use the two files of one folder"
        )


def _cryptography() -> tuple[Any, Any, Any]:
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise missing_extra("cryptography", "network", "a certificate") from None
    return x509, hashes, ec


def _pair(certificate: Certificate, key: Any) -> KeyPair:
    """Return a certificate and its key, unencrypted."""
    from cryptography.hazmat.primitives import serialization as form

    plain = form.PrivateFormat.PKCS8, form.NoEncryption()
    pem = form.Encoding.PEM
    return KeyPair(certificate.public_bytes(pem), key.private_bytes(pem, *plain))

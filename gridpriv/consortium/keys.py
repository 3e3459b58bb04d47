"""A consortium's certificates: an authority, and one for each party with the name it speaks for.

Made here for trials. A real consortium makes each key where it is used and has its authority sign
a request; what :func:`check_pair` checks is the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from gridpriv.consensus.credentials import (
    NAME,
    Credentials,
    Usage,
    check_certificate,
    read_certificate,
    read_key,
    x509_module,
)
from gridpriv.core.errors import InputError, not_allowed, whole
from gridpriv.core.files import make_folder, write_bytes

LONGEST_NAME = 64  # characters of a certificate's common name
AUTHORITY = "authority"  # its folder
EARLY = timedelta(minutes=5)  # clocks differ


def make_keys(
    zones: Sequence[str], days: int = 30, begin: datetime | None = None
) -> dict[str, Credentials]:
    """Return the credentials of an authority, the coordinator and every zone, by name.

    Parameters
    ----------
    zones : sequence of str
        A certificate speaks for the zone that it names, and for no other.
    days : int
        How long they hold.
    begin : datetime, optional
        From when; now, by default.
    """
    x509 = x509_module()
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric import ec

    whole("days", days)
    for zone in zones:
        check_name(zone)
    if len(set(zones)) < len(zones):
        raise InputError("a zone is named twice: give every zone once")
    start = (begin or datetime.now(UTC)) - EARLY
    until = start + timedelta(days=days) + EARLY
    signer = ec.generate_private_key(ec.SECP256R1())
    issuer = _named(x509, "gridpriv consortium")

    def pair(subject: Any, key: Any, *extensions: Any) -> tuple[bytes, bytes]:
        """Return a certificate and its key, unencrypted, as PEM."""
        serial = x509.random_serial_number()
        builder = x509.CertificateBuilder(issuer, subject, key.public_key(), serial, start, until)
        for extension in extensions:
            critical = not isinstance(extension, x509.ExtendedKeyUsage)
            builder = builder.add_extension(extension, critical)
        plain = form.PrivateFormat.PKCS8, form.NoEncryption()
        certificate = builder.sign(signer, hashes.SHA256()).public_bytes(form.Encoding.PEM)
        return certificate, key.private_bytes(form.Encoding.PEM, *plain)

    signs = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    root = pair(issuer, signer, x509.BasicConstraints(ca=True, path_length=0), signs)
    made = {AUTHORITY: Credentials(*root, root[0])}
    usages = x509.oid.ExtendedKeyUsageOID
    for name in (NAME, *zones):
        usage = usages.SERVER_AUTH if name == NAME else usages.CLIENT_AUTH
        extensions = [
            x509.BasicConstraints(ca=False, path_length=None),
            x509.ExtendedKeyUsage([usage]),
        ]
        if name == NAME:
            extensions.append(x509.SubjectAlternativeName([x509.DNSName(NAME)]))
        own = pair(_named(x509, name), ec.generate_private_key(ec.SECP256R1()), *extensions)
        made[name] = Credentials(*own, root[0])
    return made


def write_keys(folder: Path, made: Mapping[str, Credentials]) -> None:
    """Write certificates and keys, a folder a party, and the authority's certificate in each.

    Keys are for their owner only.
    """
    for name, own in made.items():
        make_folder(folder / name)
        write_bytes(folder / name / "key.pem", own.key, private=True)
        write_bytes(folder / name / "certificate.pem", own.certificate, private=False)
        write_bytes(folder / name / "authority.pem", own.authority, private=False)


def check_name(zone: str) -> None:
    """Refuse a zone's name that no certificate, or no folder, can have."""
    plain = zone.isprintable() and "/" not in zone and zone not in (".", "..")
    if not (plain and 0 < len(zone) <= LONGEST_NAME and zone not in (NAME, AUTHORITY)):
        raise not_allowed(
            "zone",
            zone,
            f"1 to {LONGEST_NAME} printable characters without '/', and neither '{NAME}' nor "
            f"'{AUTHORITY}'",
        )


def check_pair(given: Credentials, name: str) -> None:
    """Refuse credentials that the other side would refuse, with the reason.

    Raises
    ------
    InputError
        If the certificate has expired, is another's, has another usage, or its key or authority
        does not fit.
    """
    usage: Usage = "server" if name == NAME else "client"
    key = read_key(given.key)
    check_certificate(given.certificate, given.authority, name, usage)
    if read_certificate(given.certificate).public_key() != key.public_key():
        raise InputError(
            f"the key of {name!r} is not its certificate's: use the two files of one folder"
        )


def _named(x509: Any, name: str) -> Any:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])

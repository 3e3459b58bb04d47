"""A party's configuration: certificates and keys, the TOML file, and one folder per party.

An authority signs one certificate per party, with the party's name. They are made here for trials.
A real consortium makes each key where it is used and has its authority sign a request;
:func:`check_pair` checks both in the same way.

Paths in the file are relative to it. Folders are made from a case; none has data of another party:

::

    DIR/coordinator/   coordinator.toml, agreement.json, its certificate and key
    DIR/ZONE/          zone.toml, agreement.json, network.json, zones.csv, demand.csv, the same
    DIR/authority/     the signing key and certificate; not needed during a run

A zone's demand is in its own folder only.
"""

from __future__ import annotations

import json
import logging
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar, get_args

from gridpriv.consensus.credentials import (
    NAME,
    Credentials,
    Usage,
    check_certificate,
    read_certificate,
    read_key,
    split_address,
    x509_module,
)
from gridpriv.consensus.server import Late
from gridpriv.consensus.sessions import Note
from gridpriv.consortium.agreement import Agreement, SharedVariables, check_run, write_agreement
from gridpriv.core import errors, files
from gridpriv.core.settings import (
    Part,
    choice,
    count,
    defaults,
    documented,
    number,
    settings_of,
    words,
)
from gridpriv.core.text import Json, csv_text
from gridpriv.grid.case import Case, network_digest, network_text, public_network
from gridpriv.grid.zoning import Zoning, write_zoning
from gridpriv.zonal.prepared import Prepared, nominal_epsilon, prepare
from gridpriv.zonal.settings import Settings

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
        A certificate is for the zone that it names.
    days : int
        Days of validity.
    begin : datetime, optional
        Start of validity; now, by default.
    """
    x509 = x509_module()
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric import ec

    errors.whole("days", days)
    for zone in zones:
        check_name(zone)
    if len(set(zones)) < len(zones):
        raise errors.InputError("a zone is named twice: give every zone once")
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

    signs_certificates = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    root = pair(issuer, signer, x509.BasicConstraints(ca=True, path_length=0), signs_certificates)
    credentials_by_name = {AUTHORITY: Credentials(*root, root[0])}
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
        credentials_by_name[name] = Credentials(*own, root[0])
    return credentials_by_name


def write_keys(folder: Path, credentials_by_name: Mapping[str, Credentials]) -> None:
    """Write certificates and keys, one folder per party, and the authority's certificate in each.

    Keys are readable by their owner only.
    """
    for name, own in credentials_by_name.items():
        files.make_folder(folder / name)
        files.write_bytes(folder / name / "key.pem", own.key, private=True)
        files.write_bytes(folder / name / "certificate.pem", own.certificate, private=False)
        files.write_bytes(folder / name / "authority.pem", own.authority, private=False)


def check_name(zone: str) -> None:
    """Refuse a zone's name that a certificate or a folder cannot have."""
    plain = zone.isprintable() and "/" not in zone and zone not in (".", "..")
    if not (plain and 0 < len(zone) <= LONGEST_NAME and zone not in (NAME, AUTHORITY)):
        raise errors.not_allowed(
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
        If the certificate has expired, is another party's, has another usage, or its key or
        authority does not match.
    """
    usage: Usage = "server" if name == NAME else "client"
    key = read_key(given.key)
    check_certificate(given.certificate, given.authority, name, usage)
    if read_certificate(given.certificate).public_key() != key.public_key():
        raise errors.InputError(
            f"the key of {name!r} is not its certificate's: use the two files of one folder"
        )


def _named(x509: Any, name: str) -> Any:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


NEEDED = "none; required"


@dataclass(frozen=True, kw_only=True)
class Party(Part):
    """The configuration common to all parties."""

    agreement: str = words("agreement.json", "the agreement of all parties", "FILE")
    state: str = words("state", "folder of the party's state and transcript", "FOLDER")
    certificate: str | None = words(None, "certificate of the party (PEM)", "FILE", unset="none")
    key: str | None = words(None, "private key of the certificate (PEM)", "FILE", unset="none")
    authority: str | None = words(
        None, "certificate of the consortium's authority (PEM)", "FILE", unset="none"
    )
    timeout: float = number(300.0, "longest wait for another party", errors.positive, unit="s")


@documented
@dataclass(frozen=True, kw_only=True)
class CoordinatorParty(Party):
    """The coordinator's configuration."""

    listen: str = words("127.0.0.1:50051", "address that zones connect to", "HOST:PORT")
    late: Late = choice(
        "wait",
        get_args(Late),
        "treatment of a late zone: wait, continue with its last values, or stop",
    )
    report: str = words("report", "folder of the public report", "FOLDER")

    def agree(self) -> None:
        """Refuse an invalid address."""
        super().agree()
        split_address("listen", self.listen)


@documented
@dataclass(frozen=True, kw_only=True)
class ZoneParty(Party):
    """A zone's configuration."""

    zone: str | None = words(None, "name of the zone in the agreement", "NAME", unset=NEEDED)
    network: str = words("network.json", "the grid without demand", "FILE")
    zoning: str = words("zones.csv", "the zone map", "FILE")
    demand: str = words("demand.csv", "true demand of the zone (bus,pd_mw,qd_mvar)", "FILE")
    coordinator: str = words("127.0.0.1:50051", "address of the coordinator", "HOST:PORT")
    timeout: float = number(
        600.0, "longest time without progress of the run", errors.positive, unit="s"
    )
    beat: float = number(
        0.0,
        "interval of answers: sent at its multiples after an order; 0: at once",
        errors.not_negative,
        unit="s",
    )
    ledger: str | None = words(None, "ledger charged before every draw", "FILE", unset="none")
    ledger_key: str | None = words(None, "key of the ledger", "FILE", unset="its name and .key")
    seed: int | None = count(
        None, "seed of simulated noise", least=0, unset="drawn, and kept in the state"
    )

    def agree(self) -> None:
        """Refuse a configuration without a zone, or with an invalid address."""
        super().agree()
        if self.zone is None:
            raise errors.not_allowed("zone", self.zone, "the zone's name in the agreement")
        split_address("coordinator", self.coordinator)


PartyKind = TypeVar("PartyKind", CoordinatorParty, ZoneParty)


def read_party(path: Path, kind: type[PartyKind]) -> PartyKind:
    """Return a party's configuration.

    Raises
    ------
    InputError
        If the file cannot be read, or has invalid entries.
    """
    document = files.read_table(path, "configuration")
    try:
        return kind(**document)
    except errors.InputError as error:
        raise errors.InputError(f"configuration {path}: {error}") from error


def party_text(party: Part) -> str:
    """Return the file of a configuration, with a comment on every line."""
    current, standard = settings_of(type(party)), defaults(type(party))
    lines = []
    for name in current:
        value = getattr(party, name)
        text = json.dumps(value, ensure_ascii=False)
        line = f"# {name} =" if value is None else f"{name} = {text}"
        lines.append(f"{line}  # {current[name].described(standard[name])}")
    return "\n".join(lines) + "\n"


def credentials(party: Party, folder: Path, name: str, *, insecure: bool) -> Credentials | None:
    """Return a party's credentials, or None for a loopback run without them.

    Parameters
    ----------
    folder : Path
        Of its configuration.
    name : str
        Name that its certificate must have.
    insecure : bool
        True if a run without credentials was requested.

    Raises
    ------
    InputError
        If something is missing, or others would refuse it; with the reason.
    """
    paths = {key: getattr(party, key) for key in ("certificate", "key", "authority")}
    if insecure:
        return None
    for key, path in paths.items():
        if path is None:
            raise errors.not_allowed(
                key,
                path,
                "a PEM file; without certificates only --insecure-loopback runs, on one machine",
            )
    given = Credentials(
        files.read_bytes(folder / paths["certificate"], "certificate", files.MIB),
        files.read_secret(folder / paths["key"], "key"),
        files.read_bytes(folder / paths["authority"], "authority", files.MIB),
    )
    check_pair(given, name)
    return given


LEVELS = ("debug", "info", "warning", "error")


def notes(party: str, level: str) -> Note:
    """Return a function that writes a party's events from a level on to standard error.

    An event has a name, and names of zones, turns, runs, or reasons of the network.
    """
    errors.check_choice("log", level, LEVELS)
    logger = logging.getLogger(f"gridpriv.consortium.{party}")
    logger.setLevel(level.upper())
    logger.propagate = False
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger.handlers = [handler]

    def note(kind: str, event: str, **about: Any) -> None:
        number = getattr(logging, kind.upper())
        if logger.isEnabledFor(number):
            at = datetime.now(UTC).isoformat(timespec="milliseconds")
            line = {"at": at, "level": kind, "party": party, "event": event} | about
            logger.log(number, json.dumps(line))

    return note


CERTIFIED: Json = {name: f"{name}.pem" for name in ("certificate", "key", "authority")}


def write_folders(
    case: Case, zoning: Zoning, settings: Settings, run: str, address: str, folder: Path
) -> None:
    """Make the folders of a consortium for a case.

    Parameters
    ----------
    settings : Settings
        A seed in them is given to every zone.
    address : str
        Address of the coordinator, HOST:PORT.
    folder : Path
        New or empty.
    """
    keys = make_keys(list(zoning.names))
    network = public_network(case)
    agreement = make_agreement(network, prepare(network, zoning, settings), run)
    parties: dict[str, Party] = {NAME: CoordinatorParty(listen=address, **CERTIFIED)}
    for name in zoning.names:
        parties[name] = ZoneParty(zone=name, coordinator=address, seed=settings.seed, **CERTIFIED)
    files.make_folder(folder)
    files.refuse_used(folder)
    write_keys(folder, keys)
    for name, party in parties.items():
        own_folder = folder / name
        write_agreement(agreement, own_folder / "agreement.json")
        kind = "coordinator" if name == NAME else "zone"
        files.write_text(own_folder / f"{kind}.toml", party_text(party), private=True)
    for name, own in zip(zoning.names, zoning.members, strict=True):
        files.write_text(folder / name / "network.json", network_text(network), private=False)
        write_zoning(zoning, network, folder / name / "zones.csv")
        rows = [
            (int(case.bus_id[i]), *(in_mw(float(d[i]), case.base_mva) for d in (case.pd, case.qd)))
            for i in own
        ]
        text = csv_text(("bus", "pd_mw", "qd_mvar"), rows)
        files.write_text(folder / name / "demand.csv", text, private=True)


def make_agreement(network: Case, prepared: Prepared, run: str) -> Agreement:
    """Return the agreement of a run that was prepared on a public network."""
    settings = prepared.settings
    if settings.public_demand is not None:
        raise errors.not_allowed(
            "public_demand", settings.public_demand, "left out: an agreement carries no file"
        )
    if settings.coordination != "rounds":
        raise errors.not_allowed("coordination", settings.coordination, "'rounds' over a network")
    if settings.planning == "ac":
        raise errors.not_allowed("planning", "ac", "'soc' over a network, where rounds are ADMM")
    if settings.acceleration == "newton":
        allowed = "'anderson' or 'none' over a network, where rounds are ADMM"
        raise errors.not_allowed("acceleration", "newton", allowed)
    perturbation = settings.effective_perturbation()
    if perturbation.target == "demand":  # explicit, as defaults may change
        settings = replace(settings, noise_schedule=perturbation.noise_schedule)
    smooth = settings.step == "smooth" and settings.update == "linearized"
    smoothness = max(problem.smoothness for problem in prepared.problems) if smooth else None
    epsilon = nominal_epsilon(settings, prepared.rules)
    return Agreement(
        run=check_run(run),
        case=prepared.case.name,
        network=network_digest(network),
        settings=settings,
        smoothness=smoothness,
        epsilon=epsilon,
        zones={
            zone.name: SharedVariables.of(prepared, position)
            for position, zone in enumerate(prepared.zones)
        },
    )


def in_mw(value: float, base_mva: float) -> float:
    """Return a per-unit value in MW that reads back to the same per-unit value."""
    product = value * base_mva
    tries = (product, math.nextafter(product, math.inf), math.nextafter(product, -math.inf))
    return next((mw for mw in tries if mw / base_mva == value), product)

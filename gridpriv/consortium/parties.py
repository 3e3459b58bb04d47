"""A party's configuration file (TOML); paths are relative to the file."""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar, get_args

from gridpriv.consensus.credentials import Credentials, split_address
from gridpriv.consensus.sessions import Note
from gridpriv.consensus.turns import Late
from gridpriv.consortium.keys import check_pair
from gridpriv.core.errors import InputError, not_allowed, not_negative, one_of, positive
from gridpriv.core.reading import MIB, read_bytes, read_secret, read_table
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

NEEDED = "needed"


@dataclass(frozen=True, kw_only=True)
class Party(Part):
    """The configuration that every party has."""

    agreement: str = words("agreement.json", "the agreement of all parties", "FILE")
    state: str = words("state", "its state between turns, and its transcript", "FOLDER")
    certificate: str | None = words(None, "its certificate (PEM)", "FILE", unset="none")
    key: str | None = words(None, "the certificate's key (PEM)", "FILE", unset="none")
    authority: str | None = words(
        None, "certificate of the consortium's authority (PEM)", "FILE", unset="none"
    )
    timeout: float = number(300.0, "how long others are waited for", positive, unit="s")


@documented
@dataclass(frozen=True, kw_only=True)
class CoordinatorParty(Party):
    """The coordinator's configuration."""

    listen: str = words("127.0.0.1:50051", "where zones reach it", "HOST:PORT")
    late: Late = choice(
        "wait",
        get_args(Late),
        "response to a late zone: wait for it, continue with its last release, or stop",
    )
    report: str = words("report", "its public report", "FOLDER")

    def agree(self) -> None:
        """Refuse what is no address."""
        super().agree()
        split_address("listen", self.listen)


@documented
@dataclass(frozen=True, kw_only=True)
class ZoneParty(Party):
    """A zone's configuration."""

    zone: str | None = words(None, "its name in the agreement", "NAME", unset=NEEDED)
    network: str = words("network.json", "the grid without demand", "FILE")
    zoning: str = words("zones.csv", "the zone map", "FILE")
    demand: str = words("demand.csv", "its own demand (bus,pd_mw,qd_mvar); private", "FILE")
    coordinator: str = words("127.0.0.1:50051", "where the coordinator is", "HOST:PORT")
    timeout: float = number(600.0, "how long a run may go without progress", positive, unit="s")
    beat: float = number(
        0.0,
        "answers leave at multiples of this after their order came; 0 is at once",
        not_negative,
        unit="s",
    )
    ledger: str | None = words(None, "its ledger, charged before every draw", "FILE", unset="none")
    ledger_key: str | None = words(None, "the ledger's key", "FILE", unset="LEDGER.key")
    seed: int | None = count(
        None, "seed of its simulated noise", least=0, unset="drawn, and kept in its state"
    )

    def agree(self) -> None:
        """Refuse a configuration without a zone, and what is no address."""
        super().agree()
        if self.zone is None:
            raise not_allowed("zone", self.zone, "the zone's name in the agreement")
        split_address("coordinator", self.coordinator)


Kind = TypeVar("Kind", CoordinatorParty, ZoneParty)


def read_party(path: Path, kind: type[Kind]) -> Kind:
    """Return a party's configuration.

    Raises
    ------
    InputError
        If the file cannot be read, or says what no configuration says.
    """
    document = read_table(path, "configuration")
    try:
        return kind(**document)
    except InputError as error:
        raise InputError(f"configuration {path}: {error}") from error


def party_text(party: Part, comments: bool = True) -> str:
    """Return the file of a configuration, with what every line is."""
    current, standard = settings_of(type(party)), defaults(type(party))
    lines = []
    for name in current:
        value = getattr(party, name)
        text = json.dumps(value, ensure_ascii=False)
        line = f"# {name} =" if value is None else f"{name} = {text}"
        lines.append(f"{line}  # {current[name].described(standard[name])}" if comments else line)
    return "\n".join(lines) + "\n"


def credentials(party: Party, folder: Path, name: str, *, insecure: bool) -> Credentials | None:
    """Return a party's credentials, or None for a loopback run without them.

    Parameters
    ----------
    folder : Path
        Of its configuration.
    name : str
        That its certificate must have.
    insecure : bool
        Whether it was said that there are none.

    Raises
    ------
    InputError
        If something is missing, or is not what the others would accept; with the reason.
    """
    files = {key: getattr(party, key) for key in ("certificate", "key", "authority")}
    if insecure:
        return None
    for key, file in files.items():
        if file is None:
            raise not_allowed(
                key,
                file,
                "a PEM file; without certificates only --insecure-loopback runs, on one machine",
            )
    given = Credentials(
        read_bytes(folder / files["certificate"], "certificate", MIB),
        read_secret(folder / files["key"], "key"),
        read_bytes(folder / files["authority"], "authority", MIB),
    )
    check_pair(given, name)
    return given


LEVELS = ("debug", "info", "warning", "error")


def notes(party: str, level: str) -> Note:
    """Return a function that writes a party's events of a level and above to standard error.

    An event has a name, and names of zones, turns, runs, or reasons of the network.
    """
    one_of("log", level, LEVELS)
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

"""The coordinator of a consortium's run: the same rounds as in one process, over a network."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np

from gridpriv.consensus.coordinator import Turn, rounds
from gridpriv.consensus.credentials import Credentials, signer
from gridpriv.consensus.messages import Order, Reply
from gridpriv.consensus.server import Journal, Server, Turns
from gridpriv.consensus.sessions import Note, Sessions
from gridpriv.consortium.agreement import Agreement
from gridpriv.consortium.parties import CoordinatorParty
from gridpriv.core.errors import GridprivError
from gridpriv.core.files import held, make_folder, write_text
from gridpriv.core.text import Json, csv_text, json_ready
from gridpriv.privacy.release import Release
from gridpriv.privacy.statement import noise_caveat, zone_statement
from gridpriv.zonal.opening import Carrying, initial_rounds

COLUMNS = ("round", "consensus_residual", "consensus_residual_max", "penalty_min", "penalty_max")
CERTIFICATE, CERTIFICATES = "certificate.pem", "certificates"


@dataclass(frozen=True, eq=False)
class CoordinatedRun:
    """A run as its coordinator knows it; public, as far as messages carry noise.

    Attributes
    ----------
    releases : mapping of str to mapping
        Per zone, as it stated them after the last round; of a zone that did not, those of its
        replies.
    """

    turns: tuple[Turn, ...]
    releases: Mapping[str, Mapping[Release, int]]


def play(agreement: Agreement, carry: Carrying, note: Note) -> CoordinatedRun:
    """Run the rounds over an exchange, and tell all zones the agreed values."""
    ground, names = agreement.ground, list(agreement.zones)
    state, plan = initial_rounds(ground, carry)
    releases: dict[str, Counter[Release]] = {name: Counter() for name in names}

    def counted(orders: Sequence[Order]) -> list[Reply]:
        replies = list(carry("round")(orders))
        for name, reply in zip(names, replies, strict=True):
            releases[name].update(reply.releases)
        return replies

    turns = []
    for turn in rounds(counted, ground.consensus, state, plan):
        turns.append(turn)
        note("info", "round", number=turn.number, residual=turn.residual)
    last = turns[-1]
    consensus = ground.consensus
    mean = consensus.spread(consensus.average(last.state.sent))
    rho = consensus.spread(last.penalty)
    parts = zip(consensus.split(mean), consensus.split(rho), strict=True)
    orders = [Order(last.number, w, penalty, 1.0) for w, penalty in parts]
    for name, reply in zip(names, carry("agreed")(orders), strict=True):
        releases[name] |= Counter(reply.releases)  # with those of answers that came too late
    return CoordinatedRun(tuple(turns), releases)


def coordinate(
    agreement: Agreement,
    party: CoordinatorParty,
    folder: Path,
    credentials: Credentials | None,
    note: Note,
    listening: Callable[[str], None] = lambda _: None,
) -> CoordinatedRun:
    """Coordinate a run over a network, from its start or from where it was stopped.

    Parameters
    ----------
    folder : Path
        Of its configuration.
    listening : callable
        Is given the address once zones can come.

    Raises
    ------
    LateError
        If a zone is waited for in vain; it names the zone.
    ZoneError, BudgetError
        If a zone cannot answer.
    LostStateError
        If a zone has answered a turn that the journal does not hold.
    InputError
        If the state is another run's, or the address is taken.
    """
    state = folder / party.state
    make_folder(state)
    with held(state):
        public, sign = agreement.public, signer(credentials)
        if credentials is not None:
            write_text(state / CERTIFICATE, credentials.certificate.decode(), private=False)
        sessions = Sessions(public, note, sign)
        turns = Turns(sessions, Journal(state), agreement.ground.start, party.timeout, party.late)
        zones, most = len(agreement.zones), max(zone.size for zone in public.zones.values())
        keep = partial(_keep_certificate, state / CERTIFICATES)
        server = Server(sessions, party.listen, credentials, zones, most, keep)
        note("info", "listening", address=server.address, run=agreement.run, zones=zones)
        listening(server.address)
        try:
            outcome = play(agreement, turns.carry, note)
        except GridprivError as error:
            note("error", "stopped", reason=str(error))
            server.close(error)
            raise
        except BaseException:
            server.close(GridprivError("the coordinator was stopped"))
            raise
        try:
            write_report(agreement, outcome, folder / party.report)
        finally:
            server.close(None)
        note("info", "finished", rounds=len(outcome.turns))
    return outcome


def _keep_certificate(folder: Path, zone: str, certificate: bytes) -> None:
    """Keep a zone's certificate beside the journal, to check its signatures with."""
    path = folder / f"{zone}.pem"
    if not path.exists() or path.read_bytes() != certificate:
        make_folder(folder)
        write_text(path, certificate.decode(), private=False)


def report(agreement: Agreement, outcome: CoordinatedRun) -> Json:
    """Return the public report of a run: without noise, its settings only."""
    settings = agreement.settings
    protected = settings.mechanism != "none"
    statements = [
        asdict(
            zone_statement(
                zone,
                drawn,
                agreement.epsilon,
                settings.release_delta,
                settings.target_delta,
            )
        )
        for zone, drawn in outcome.releases.items()
        if drawn
    ]
    return {
        "run": agreement.run,
        "case": agreement.case,
        "settings": agreement.agreed_settings,
        "zones": [
            {"zone": zone, "shared": limits.size} for zone, limits in agreement.public.zones.items()
        ],
        "noise": noise_caveat(settings.drawn, settings.noise, settings.effective_mechanism()),
        "rounds": [dict(zip(COLUMNS, row, strict=True)) for row in _rows(outcome)]
        if protected
        else None,
        "privacy": json_ready(statements) if protected else None,
    }


def write_report(agreement: Agreement, outcome: CoordinatedRun, folder: Path) -> None:
    """Write the public report: run.json, and rounds.csv where messages carry noise."""
    make_folder(folder)
    document = report(agreement, outcome)
    write_text(folder / "run.json", json.dumps(document, indent=2) + "\n", private=False)
    if document["rounds"] is not None:
        write_text(folder / "rounds.csv", csv_text(COLUMNS, _rows(outcome)), private=False)


def _rows(outcome: CoordinatedRun) -> list[tuple[int, float, float, float, float]]:
    return [
        (t.number, t.residual, t.farthest, float(np.min(t.penalty)), float(np.max(t.penalty)))
        for t in outcome.turns
    ]

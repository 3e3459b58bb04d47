"""The coordinator of a consortium's run: the same rounds as in one process, over a network."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from gridpriv.consensus.coordinator import Turn, rounds
from gridpriv.consensus.grpc_transport import Credentials, Hall
from gridpriv.consensus.journal import Journal
from gridpriv.consensus.messages import Order, Reply
from gridpriv.consensus.table import Note, Table
from gridpriv.consortium.parties import CoordinatorParty
from gridpriv.consortium.terms import Terms
from gridpriv.core.document import Json
from gridpriv.core.errors import GridprivError
from gridpriv.core.files import make_folder, write_text
from gridpriv.core.lock import held
from gridpriv.core.text import csv_text, json_ready
from gridpriv.privacy.release import Release
from gridpriv.privacy.statement import noise_caveat, zone_statement
from gridpriv.zonal.opening import Carrying, opened

COLUMNS = ("round", "consensus_residual", "disagreement", "penalty_min", "penalty_max")


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a coordinator knows after a run; public, as far as messages carry noise.

    Attributes
    ----------
    releases : mapping of str to mapping
        Per zone, as each told them after the last round; of one that did not, those of its
        replies.
    """

    turns: tuple[Turn, ...]
    releases: Mapping[str, Mapping[Release, int]]


def play(terms: Terms, carry: Carrying, note: Note) -> Outcome:
    """Play a run's rounds with whoever carries messages, and tell all what they agreed on."""
    ground, names = terms.ground, list(terms.zones)
    state, plan = opened(ground, carry)
    told: dict[str, Counter[Release]] = {name: Counter() for name in names}

    def counted(orders: Sequence[Order]) -> list[Reply]:
        replies = list(carry("round")(orders))
        for name, reply in zip(names, replies, strict=True):
            told[name].update(reply.releases)
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
        told[name] |= Counter(reply.releases)  # with those of answers that came too late
    return Outcome(tuple(turns), told)


def coordinate(
    terms: Terms,
    party: CoordinatorParty,
    folder: Path,
    credentials: Credentials | None,
    note: Note,
    listening: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Coordinate a run over gRPC, from its start or from where it was stopped.

    Parameters
    ----------
    folder : Path
        Of its configuration.
    listening : callable
        Told the address once zones can come.

    Raises
    ------
    LateError
        If a zone is waited for in vain; it says for whom.
    ZoneError, BudgetError
        If a zone cannot answer.
    InputError
        If the state is another run's, or the address is taken.
    """
    state = folder / party.state
    make_folder(state)
    with held(state):
        journal = Journal(state)
        table = Table(terms.public, journal, party.timeout, party.late, note)
        table.start_from(terms.ground.start)
        most = max(terms.public.sizes.values())
        hall = Hall(table, party.listen, credentials, len(terms.zones), most)
        note("info", "listening", address=hall.address, run=terms.run, zones=len(terms.zones))
        listening(hall.address)
        try:
            outcome = play(terms, table.carry, note)
        except GridprivError as error:
            note("error", "stopped", reason=str(error))
            hall.close(error)
            raise
        except BaseException:
            hall.close(GridprivError("the coordinator was stopped"))
            raise
        write_report(terms, outcome, folder / party.report)
        hall.close(None)
        note("info", "finished", rounds=len(outcome.turns))
    return outcome


def report(terms: Terms, outcome: Outcome) -> Json:
    """Return what is public of a run: without noise, its settings only."""
    settings = terms.settings
    protected = settings.mechanism != "none"
    statements = [
        asdict(zone_statement(zone, drawn, terms.epsilon, settings.release_delta,
                              settings.target_delta))
        for zone, drawn in outcome.releases.items() if drawn
    ]  # fmt: skip
    return {
        "run": terms.run,
        "case": terms.case,
        "settings": terms.agreed_settings,
        "zones": [{"zone": zone, "shared": n} for zone, n in terms.public.sizes.items()],
        "noise": noise_caveat(settings.drawn, settings.noise),
        "rounds": [dict(zip(COLUMNS, row, strict=True)) for row in _rows(outcome)]
        if protected
        else None,
        "privacy": json_ready(statements) if protected else None,
    }


def write_report(terms: Terms, outcome: Outcome, folder: Path) -> None:
    """Write the public report: run.json, and rounds.csv where messages carry noise."""
    make_folder(folder)
    document = report(terms, outcome)
    write_text(folder / "run.json", json.dumps(document, indent=2) + "\n", private=False)
    if document["rounds"] is not None:
        write_text(folder / "rounds.csv", csv_text(COLUMNS, _rows(outcome)), private=False)


def _rows(outcome: Outcome) -> list[tuple[int, float, float, float, float]]:
    return [
        (t.number, t.residual, t.farthest, float(np.min(t.penalty)), float(np.max(t.penalty)))
        for t in outcome.turns
    ]

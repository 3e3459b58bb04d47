"""Replays the transcripts of a run and names the parties that deviated from the agreement.

The coordinator's journal has every answer that it used, and each zone's transcript has every order
that it received and every answer that it sent. All are signed by their senders, and an answer
includes the digest of its order. A coordinator is a function of the agreement and of the answers.
So its orders are computed again and compared with those that it signed.

A deviation needs a signature: without certificates only the consistency of the files is checked.
The messages do not show whether a zone's noise was drawn as agreed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from gridpriv.consensus import credentials
from gridpriv.consensus.client import read_transcript
from gridpriv.consensus.messages import (
    BEFORE,
    Answer,
    Exchange,
    MessageError,
    Order,
    Phase,
    Reply,
    Request,
    Stale,
    TurnId,
    decode,
    encode,
)
from gridpriv.consensus.server import answer_of, read_journal
from gridpriv.consortium.agreement import Agreement, read_agreement
from gridpriv.consortium.parties import CoordinatorParty, ZoneParty, read_party
from gridpriv.consortium.take_part import CERTIFICATE, CERTIFICATES, TRANSCRIPT, play
from gridpriv.core.errors import InputError
from gridpriv.core.files import MIB, read_bytes
from gridpriv.core.text import Json
from gridpriv.privacy.release import Release

Key = tuple[str, TurnId]
"""A zone and a turn."""
Signed = TypeVar("Signed", Request, Answer)


class _EndError(Exception):
    """The transcripts have no answer to a turn: it did not take place, or folders are missing."""


@dataclass
class TranscriptEvidence:
    """The messages of a run, from all folders, and the deviations in them.

    Attributes
    ----------
    requests, answers : dict
        By zone and turn, the different messages, each by its bytes before the signature.
    late : set
        Turns of a zone that the coordinator's journal or the zone's transcript has as missed.
    """

    agreement: Agreement
    requests: dict[Key, dict[bytes, Request]] = field(default_factory=dict)
    answers: dict[Key, dict[bytes, Answer]] = field(default_factory=dict)
    late: set[Key] = field(default_factory=set)
    certificates: dict[str, bytes] = field(default_factory=dict)
    deviations: list[Json] = field(default_factory=list)
    parties: list[str] = field(default_factory=list)

    def deviates(self, party: str, turn: TurnId | None, reason: str) -> None:
        """Record a deviation of a party, once."""
        row = {"party": party, "turn": None if turn is None else str(turn), "reason": reason}
        if row not in self.deviations:
            self.deviations.append(row)


def verify(folders: Sequence[Path]) -> Json:
    """Return the deviations in the transcripts of some parties of one run.

    Parameters
    ----------
    folders : sequence of Path
        Configuration folders of the coordinator and of zones; more folders allow more checks.

    Returns
    -------
    dict
        ``run``, ``parties`` whose folders were read, ``signed``, ``turns`` that were replayed,
        whether the run is ``complete``, and ``deviations``: party, turn and reason of each.

    Raises
    ------
    InputError
        If a folder is not a party's, or is of another run.
    """
    if not folders:
        raise InputError(
            "consortium verify needs folders: of the coordinator, of zones, or of both"
            "; give one or more"
        )
    agreements = [read_agreement(folder / _party(folder).agreement) for folder in folders]
    runs = {agreement.run for agreement in agreements}
    if len(runs) > 1:
        raise InputError(f"folders of different runs: {', '.join(sorted(runs))}; give those of one")
    evidence = TranscriptEvidence(agreements[0])
    for folder, agreement in zip(folders, agreements, strict=True):
        _read(folder, evidence)
        if agreement.public.topology != agreements[0].public.topology or (
            agreement.agreed_settings != agreements[0].agreed_settings
        ):
            raise InputError(
                f"{folder} has another agreement than {folders[0]}: its party took part in no run "
                "with the others; give folders of one agreement"
            )
    _check_signatures(evidence)
    _check_twice(evidence)
    _check_limits(evidence)
    turns, complete = _replay(evidence)
    return {
        "run": evidence.agreement.run,
        "parties": evidence.parties,
        "signed": bool(evidence.certificates),
        "turns": turns,
        "complete": complete,
        "deviations": evidence.deviations,
    }


def _party(folder: Path) -> CoordinatorParty | ZoneParty:
    if (folder / "coordinator.toml").is_file():
        return read_party(folder / "coordinator.toml", CoordinatorParty)
    if (folder / "zone.toml").is_file():
        return read_party(folder / "zone.toml", ZoneParty)
    raise InputError(
        f"{folder} is no party's folder: it has no coordinator.toml and no zone.toml"
        "; give folders of parties"
    )


def _read(folder: Path, evidence: TranscriptEvidence) -> None:
    party = _party(folder)
    state = folder / party.state
    authority = None
    if party.authority is not None and (folder / party.authority).exists():
        authority = read_bytes(folder / party.authority, "authority", MIB)
    if isinstance(party, CoordinatorParty):
        evidence.parties.append(credentials.NAME)
        _read_coordinator(state, evidence)
    else:
        evidence.parties.append(str(party.zone))
        _read_zone(state / TRANSCRIPT, str(party.zone), evidence)
    for name, certificate in evidence.certificates.items():
        if authority is not None:
            usage: credentials.Usage = "server" if name == credentials.NAME else "client"
            try:
                credentials.check_certificate(certificate, authority, name, usage, timed=False)
            except InputError as error:
                evidence.deviates(evidence.parties[-1], None, f"holds a certificate: {error}")


def _read_coordinator(state: Path, evidence: TranscriptEvidence) -> None:
    names = list(evidence.agreement.zones)
    places = {credentials.NAME: state / CERTIFICATE}
    places |= {name: state / CERTIFICATES / f"{name}.pem" for name in names}
    for name, path in places.items():
        if path.exists():
            evidence.certificates.setdefault(name, read_bytes(path, "certificate", MIB))
    for answers in read_journal(state):
        turn = next((a.turn for a in map(answer_of, answers) if a is not None), None)
        for name, content in zip(names, answers, strict=True):
            if (answer := answer_of(content)) is not None:
                _add(evidence.answers, (name, answer.turn), content, answer)
            elif turn is not None:
                evidence.late.add((name, turn))


def _read_zone(path: Path, zone: str, evidence: TranscriptEvidence) -> None:
    notes, exchanges = read_transcript(path)
    for note in notes:
        if "certificate" in note:
            evidence.certificates.setdefault(zone, note["certificate"].encode())
        if "coordinator" in note:
            evidence.certificates.setdefault(credentials.NAME, note["coordinator"].encode())
    for sent, received in exchanges:
        request, answer = decode(sent), answer_of(received)
        if not isinstance(request, Request) or answer is None:
            raise InputError(
                f"{path} is damaged: a record that is no order and its answer"
                "; use an undamaged copy"
            )
        _add(evidence.requests, (zone, request.turn), sent, request)
        if request.phase == "missed":
            evidence.late.add((zone, TurnId("round", request.turn.number)))
        _add(evidence.answers, (zone, answer.turn), received, answer)


def _add(
    messages: dict[Key, dict[bytes, Signed]], key: Key, content: bytes, message: Signed
) -> None:
    messages.setdefault(key, {})[credentials.unsigned(content, message.signature)] = message


def _check_signatures(evidence: TranscriptEvidence) -> None:
    """Remove messages without their senders' signatures, which prove nothing."""
    verifiers = {name: credentials.Verifier(pem) for name, pem in evidence.certificates.items()}
    orders: list[tuple[str, Key, dict[bytes, Any]]] = [
        (credentials.NAME, *item) for item in evidence.requests.items()
    ]
    answers = [(key[0], key, messages) for key, messages in evidence.answers.items()]
    for sender, (zone, turn), messages in [*orders, *answers]:
        verify = verifiers.get(sender)
        holder = zone if sender == credentials.NAME else "a folder's owner"
        for body, message in list(messages.items()):
            try:
                if verify is not None:
                    verify(encode(message), message.signature)
            except MessageError:
                del messages[body]
                evidence.deviates(holder, turn, f"holds a message that {sender} has not signed")


def _check_twice(evidence: TranscriptEvidence) -> None:
    """Record parties that signed different messages of one turn."""
    for (zone, turn), orders in evidence.requests.items():
        if len(orders) > 1:
            evidence.deviates(
                credentials.NAME, turn, f"sent {len(orders)} different orders to zone {zone}"
            )
    for (zone, turn), different in evidence.answers.items():
        if len(different) > 1:
            evidence.deviates(zone, turn, f"sent {len(different)} different answers")


def _check_limits(evidence: TranscriptEvidence) -> None:
    """Record orders and answers beyond the agreement."""
    agreement = evidence.agreement
    for (zone, turn), different in evidence.answers.items():
        for answer in different.values():
            try:
                agreement.public.zones[zone].check(answer)
            except MessageError as error:
                evidence.deviates(zone, turn, f"answered {error}")
    for zone in agreement.zones:
        limits, last = agreement.request_limits(zone), BEFORE
        for (name, turn), requests in evidence.requests.items():
            if name != zone:
                continue
            if not requests:  # removed: later messages do not prove a deviation then
                break
            request = next(iter(requests.values()))
            try:
                limits.check(request, last)
            except MessageError as error:
                evidence.deviates(credentials.NAME, turn, f"sent {error} to zone {zone}")
            last = turn


def _replay(evidence: TranscriptEvidence) -> tuple[int, bool]:
    """Compute the coordinator's orders again; return the replayed turns, and True if all were."""
    agreement, turns = evidence.agreement, 0
    names, sent = list(agreement.zones), [zone.start for zone in agreement.zones.values()]
    stated: dict[str, Counter[Release]] = {name: Counter() for name in names}

    def carry(phase: Phase) -> Exchange:
        def exchange(orders: Sequence[Order]) -> list[Reply]:
            nonlocal turns, sent
            turn = TurnId(phase, orders[0].number)
            replies: list[Reply] = []
            if not any(evidence.answers.get((name, turn)) for name in names):
                raise _EndError
            for name, order, before in zip(names, orders, sent, strict=True):
                reply = _reply(evidence, Request(agreement.run, name, phase, order))
                replies.append(Stale(before, {}) if reply is None else reply)
                if phase == "round":
                    stated[name].update(replies[-1].releases)
                elif reply is not None and stated[name] - Counter(reply.releases):
                    reason = "states fewer releases than its answers hold"
                    evidence.deviates(name, turn, reason)
            if phase in ("warm_start", "round"):
                sent = [reply.sent for reply in replies]
            turns += 1
            return replies

        return exchange

    try:
        play(agreement, carry, lambda *_, **__: None)
    except _EndError:
        return turns, False
    return turns, True


def _reply(evidence: TranscriptEvidence, request: Request) -> Reply | None:
    """Return the correct reply to an order; record parties that differ from it."""
    key, body = (request.zone, request.turn), encode(request)
    due = credentials.unsigned(body, b"")
    for given in evidence.requests.get(key, {}):
        if given != due:
            evidence.deviates(
                credentials.NAME,
                request.turn,
                f"sent zone {request.zone} an order that the rounds do not give",
            )
    answers = evidence.answers.get(key, {})
    if key in evidence.late:
        return None
    if not answers:
        raise _EndError
    answer = next(iter(answers.values()))
    if answer.request != credentials.digest(body, b"") and not evidence.requests.get(key):
        evidence.deviates(
            f"{credentials.NAME} or {request.zone}",
            request.turn,
            "the order that was answered is not the one that the rounds give",
        )
    return answer.reply


def summary_line(document: Json) -> str:
    """Return the result of a verification as a sentence."""
    number = len(document["deviations"])
    deviations = f"{number} deviation{'s' * (number != 1)}" if number else "no deviation"
    whole = "the whole run" if document["complete"] else "a run without its end"
    signed = "" if document["signed"] else "; not signed, so no party is bound by it"
    return f"Run {document['run']}: {document['turns']} turns of {whole}, {deviations}{signed}."

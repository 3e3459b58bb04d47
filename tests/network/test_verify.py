"""Signed transcripts: a run replayed from its parties' folders, and the party that deviated."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from parties import Consortium

from gridpriv.cli.main import main
from gridpriv.consensus.client import EXCHANGED, PAIR, read_transcript
from gridpriv.consensus.credentials import NAME, KeySigner
from gridpriv.consensus.messages import Answer, Reply, Request, TurnId, decode, encode, packed
from gridpriv.consensus.server import Turns
from gridpriv.consortium.verify import verify
from gridpriv.core.errors import InputError
from gridpriv.core.files import Records

ZONES = ("1", "2", "3")


def played(folder, **more):
    parties = Consortium(folder, **more).coordinator()
    results = parties.zones(*ZONES, timeout=30.0).results()
    assert not any(isinstance(result, Exception) for result in results.values()), results
    return [folder / name for name in (NAME, *ZONES)]


@pytest.fixture
def whole(folder):
    return played(folder)


def test_an_honest_run_has_no_deviation(whole, capsys):
    document = verify(whole)
    assert document["deviations"] == []
    assert document["complete"]
    assert document["signed"]
    assert document["turns"] == 20 + 3 + 1
    assert document["parties"] == [NAME, *ZONES]
    assert main(["consortium", "verify", *map(str, whole)]) == 0
    assert "24 turns of the whole run, no deviation." in capsys.readouterr().out
    for some in ([whole[0]], whole[1:]):  # the coordinator's alone, and all zones without it
        part = verify(some)
        assert part["deviations"] == []
        assert part["complete"]
    alone = verify([whole[1]])
    assert alone["deviations"] == []
    assert not alone["complete"]


def test_a_run_without_certificates_binds_nobody(folder):
    document = verify(played(folder, secure=False))
    assert document["deviations"] == []
    assert not document["signed"]


def test_a_coordinator_that_sends_other_orders_than_the_rounds_give_is_named(
    folder, monkeypatch, capsys
):
    honest = Turns._request_replies

    def equivocate(self, turn, orders, requests):
        if turn == TurnId("round", 2):
            first = decode(requests[0])
            other = replace(first, order=replace(first.order, w=first.order.w + 0.01))
            requests = [encode(other), *requests[1:]]
        return honest(self, turn, orders, requests)

    monkeypatch.setattr(Turns, "_request_replies", equivocate)
    folders = played(folder)
    monkeypatch.undo()
    for some in (folders, folders[1:]):
        rows = verify(some)["deviations"]
        assert {row["party"] for row in rows} == {NAME}
        assert {row["turn"] for row in rows} == {"round 2"}
    capsys.readouterr()
    assert main(["consortium", "verify", *map(str, folders), "--json"]) == 1, (
        "a finding, as of audit; 3 is a solver or storage that failed"
    )
    assert json.loads(capsys.readouterr().out)["deviations"][0]["party"] == NAME
    # its journal alone cannot say which of the two it was
    rows = verify(folders[:1])["deviations"]
    assert {row["party"] for row in rows} == {f"{NAME} or 1"}


def change(path, turn, other):
    """Write a transcript again, with one exchange replaced or followed by another."""
    content = Records(path, private=False).read()
    notes, exchanges = read_transcript(path)
    path.unlink()
    file = Records(path, private=False)
    for record in content[: len(notes)]:
        file.add(record)
    for request, answer in exchanges:
        here = decode(request).turn == turn
        for pair in other(request, answer) if here else [(request, answer)]:
            file.add(EXCHANGED + packed(pair, PAIR))


def test_a_zone_that_signed_two_answers_is_named(whole, folder):
    sign = KeySigner((folder / "2" / "key.pem").read_bytes())

    def twice(request, answer):
        message = decode(answer)
        assert isinstance(message, Answer)
        changed = Reply(message.reply.sent + 1e-3, message.reply.releases)
        other = replace(message, reply=changed, signature=b"")
        return [(request, answer), (request, sign(encode(other)))]

    change(folder / "2" / "state" / "transcript", TurnId("round", 1), twice)
    rows = verify(whole)["deviations"]
    assert rows == [{"party": "2", "turn": "round 1", "reason": "sent 2 different answers"}]


def test_a_zone_that_forges_an_order_is_named(whole, folder):
    sign = KeySigner((folder / "2" / "key.pem").read_bytes())

    def forged(request, answer):
        message = decode(request)
        assert isinstance(message, Request)
        other = replace(
            message, order=replace(message.order, w=message.order.w + 1.0), signature=b""
        )
        return [(sign(encode(other)), answer)]

    change(folder / "2" / "state" / "transcript", TurnId("round", 2), forged)
    rows = verify(whole)["deviations"]
    assert [(row["party"], row["turn"]) for row in rows] == [("2", "round 2")]
    assert "has not signed" in rows[0]["reason"]


@pytest.mark.usefixtures("whole")
def test_a_zone_that_states_too_many_releases_is_named(folder):
    sign = KeySigner((folder / "3" / "key.pem").read_bytes())

    def twice(request, answer):
        message = decode(answer)
        stated = {release: 2 * count for release, count in message.reply.releases.items()}
        other = replace(message, reply=Reply(message.reply.sent, stated), signature=b"")
        return [(request, sign(encode(other)))]

    change(folder / "3" / "state" / "transcript", TurnId("round", 3), twice)
    rows = verify([folder / name for name in ZONES])["deviations"]
    assert ("3", "round 3") in [(row["party"], row["turn"]) for row in rows]


@pytest.mark.usefixtures("whole")
def test_a_zone_that_states_too_few_releases_at_the_end_is_named(folder):
    sign = KeySigner((folder / "3" / "key.pem").read_bytes())

    def fewer(request, answer):
        message = decode(answer)
        stated = {release: count - 1 for release, count in message.reply.releases.items()}
        other = replace(message, reply=Reply(message.reply.sent, stated), signature=b"")
        return [(request, sign(encode(other)))]

    change(folder / "3" / "state" / "transcript", TurnId("agreed", 3), fewer)
    (row,) = verify([folder / name for name in ZONES])["deviations"]
    reason = "states fewer releases than its answers hold"
    assert row == {"party": "3", "turn": "agreed 3", "reason": reason}


def test_a_late_zone_is_no_deviation(folder, monkeypatch):
    from test_faults import silent_from

    silent_from(monkeypatch, "round 2", 3.0)
    folders = played(folder, timeout=2.0, late="last")
    document = verify(folders)
    assert document["deviations"] == []
    assert document["complete"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "needs folders"),
        (["/nowhere"], "is no party's folder"),
    ],
)
def test_what_is_no_folder_of_a_party_is_refused(words, reason, capsys):
    assert main(["consortium", "verify", *words]) == 2
    assert reason in capsys.readouterr().err
    assert main(["consortium", "case14", "elsewhere", "--out", "x"]) == 2
    assert "follows the case" in capsys.readouterr().err


def test_folders_of_other_runs_and_damaged_ones_are_refused(whole, folder):
    path = folder / "1" / "agreement.json"
    text = path.read_text()
    path.write_text(text.replace('"run": "trial"', '"run": "other"'))
    with pytest.raises(InputError, match="folders of different runs"):
        verify(whole)
    path.write_text(text.replace('"rounds": 3', '"rounds": 4'))
    with pytest.raises(InputError, match="has another agreement"):
        verify(whole)
    path.write_text(text)
    transcript = folder / "1" / "state" / "transcript"
    content = bytearray(transcript.read_bytes())
    content[200] ^= 1
    transcript.write_bytes(content)
    with pytest.raises(InputError, match="is damaged"):
        verify(whole)

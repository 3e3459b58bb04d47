"""A zone's state, transcript and ledger under an error of storage at every operation; mutations."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from bench import (
    EXPECTED,
    LIMITS,
    RUN,
    ZONES,
    Coordination,
    Script,
    agent_of,
)

from gridpriv.consensus.client import Transcript, ZoneClient, read_state, read_transcript
from gridpriv.consensus.messages import Answer, Hello, MessageError, Order, Request, decode, encode
from gridpriv.consensus.sessions import RefusedError
from gridpriv.consortium.take_part import charged_once
from gridpriv.core.errors import GridprivError, InputError
from gridpriv.core.files import make_folder
from gridpriv.privacy.ledger import Ledger, grant, read_book

sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("faults", "privacy")]
from harness import How, content, run  # noqa: E402
from ledgers import dataset  # noqa: E402

TURNS = [
    ("warm_start", 1),
    ("warm_start", 2),
    ("round", 1),
    ("round", 2),
    ("round", 3),
    ("agreed", 3),
]
DATA = dataset("tank 1", [7])


def order(phase, number):
    step = 1.0 if phase == "agreed" else EXPECTED(number)
    given = Order(number, np.array([0.1 * number]), np.ones(1), step)
    return encode(Request(RUN, ZONES[0], phase, given))


def take_part(folder, left, turns=TURNS):
    """Answer every turn; write each answer that leaves to a file outside the folder."""
    try:
        with Ledger(folder / "ledger", [DATA]) as ledger:
            make_folder(folder / "state")
            state = read_state(folder / "state" / "zone")
            drawn = {} if state is None else state.memory.drawn
            pay = charged_once(ledger, None, RUN, "tank 1", drawn)
            transcript = Transcript(folder / "state" / "transcript", {"zone": ZONES[0]})
            client = ZoneClient(
                ZONES[0],
                RUN,
                agent_of(ZONES[0], pay),
                LIMITS,
                folder / "state" / "zone",
                transcript=transcript,
                note_stored=pay.note_stored,
            )
            for turn in turns:
                place = decode(order(*turn)).turn
                if place.rank < client.last.rank:
                    continue
                answer = client.answer(order(*turn))
                if client.failed is not None:
                    raise client.failed
                with left.open("ab") as file:
                    file.write(len(answer).to_bytes(4, "big") + answer)
    except GridprivError as error:
        print(error)
        return error.exit_code
    return 0


def answers(left):
    data, result, at = left.read_bytes() if left.exists() else b"", {}, 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        text = data[at + 4 : at + 4 + size]
        result.setdefault(decode(text).turn, set()).add(text)
        at += 4 + size
    return result


def begin(folder):
    folder.mkdir(parents=True)
    grant(folder / "ledger", [DATA], 1e6)
    return folder


def survives(tmp_path, how: How, every: int):
    count = run(
        lambda: take_part(tmp_path / "n" / "zone", tmp_path / "n" / "left"),
        begin(tmp_path / "n" / "zone"),
        10**9,
        how,
    ).operations
    whole = answers(tmp_path / "n" / "left")
    assert len(whole) == len(TURNS)
    for at in range(1, count + 1, every):
        folder, left = tmp_path / str(at) / "zone", tmp_path / str(at) / "left"
        begin(folder)
        for attempt in range(4):
            ended = run(lambda: take_part(folder, left), folder, at if not attempt else 0, how)  # noqa: B023
            assert "Traceback" not in ended.said, (at, ended.said)
            if ended.status == 0:
                break
        assert ended.status == 0, (how, at, ended.said)
        text = answers(left)
        assert text.keys() == whole.keys(), (how, at)
        assert all(len(each) == 1 for each in text.values()), (how, at)
        charges = [
            count for _, row in read_book(folder / "ledger").charged for _, count in row.charges
        ]
        # an operation that fails within a charge or its draw may cost one release more, never less
        assert 3 <= sum(charges) <= 4 + (how == "full"), (how, at, charges)
        _, exchanges = read_transcript(folder / "state" / "transcript")
        turns = [decode(answer).turn for _, answer in exchanges]
        assert sorted(set(turns), key=lambda turn: turn.rank) == list(whole), (how, at)
    assert content(tmp_path / "n" / "zone")
    return count


def test_an_error_of_storage_now_and_then(tmp_path):
    assert survives(tmp_path, "error", 17) > 30


@pytest.mark.parametrize("turn", [3, 4, 5], ids=lambda turn: f"round {turn - 2}")
def test_a_state_without_a_round_that_was_answered_is_refused(tmp_path, turn, capsys):
    folder, left = begin(tmp_path / "zone"), tmp_path / "left"
    assert take_part(folder, left, TURNS[: turn - 1]) == 0
    shutil.copytree(folder / "state", tmp_path / "older")
    assert take_part(folder, left, TURNS[:turn]) == 0
    before, ledger = answers(left), (folder / "ledger").read_bytes()
    shutil.rmtree(folder / "state")
    shutil.copytree(tmp_path / "older", folder / "state")
    assert take_part(folder, left) == 2
    sent, stored = turn - 2, turn - 3
    assert f"{sent} may have been sent; the zone's state has {stored}" in capsys.readouterr().out
    assert answers(left) == before
    assert (folder / "ledger").read_bytes() == ledger


def test_a_round_that_was_stored_before_a_crash_is_noted_before_its_answer_leaves(
    tmp_path, monkeypatch, capsys
):
    folder, left = begin(tmp_path / "zone"), tmp_path / "left"
    assert take_part(folder, left, TURNS[:2]) == 0
    shutil.copytree(folder / "state", tmp_path / "older")

    note_stored = Ledger.note_stored

    def crash(ledger, owner, run_id, releases):
        if releases:
            raise InputError("crash")
        note_stored(ledger, owner, run_id, releases)

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "note_stored", crash)
        assert take_part(folder, left, TURNS[:3]) == 2
    assert len(answers(left)) == 2
    assert take_part(folder, left, TURNS[:3]) == 0
    assert len(answers(left)) == 3
    shutil.rmtree(folder / "state")
    shutil.copytree(tmp_path / "older", folder / "state")
    assert take_part(folder, left) == 2
    assert "1 may have been sent; the zone's state has 0" in capsys.readouterr().out


@pytest.mark.parametrize("lost", [False, True], ids=["own state", "no state"])
def test_charges_without_a_note_of_stored_releases_count_as_sent(
    tmp_path, monkeypatch, capsys, lost
):
    """A ledger of a version that noted no number: its charges pay no further release."""
    folder, left = begin(tmp_path / "zone"), tmp_path / "left"
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "note_stored", lambda *_: None)
        assert take_part(folder, left, TURNS[:4]) == 0
    before, ledger = answers(left), (folder / "ledger").read_bytes()
    if not lost:
        assert take_part(folder, left) == 0
        assert len(answers(left)) == len(TURNS)
        assert len(read_book(folder / "ledger").charged) == 3
        return
    shutil.rmtree(folder / "state")
    assert take_part(folder, left) == 2
    assert "2 may have been sent; the zone's state has 0" in capsys.readouterr().out
    assert answers(left) == before
    assert (folder / "ledger").read_bytes() == ledger


def test_a_charge_without_a_stored_release_is_not_repeated(tmp_path, monkeypatch):
    """Nothing was drawn after it: the next process draws the release without a second charge."""
    folder, left, charge = begin(tmp_path / "zone"), tmp_path / "left", Ledger.charge

    def crash(*given):
        charge(*given)
        raise KeyboardInterrupt  # a client stores nothing

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Ledger, "charge", crash)
        take_part(folder, left)
    assert len(read_book(folder / "ledger").charged) == 1
    assert take_part(folder, left) == 0
    assert len(answers(left)) == len(TURNS)
    assert len(read_book(folder / "ledger").charged) == 3


@pytest.mark.slow
@pytest.mark.parametrize("how", ["error", "kill", "full"])
def test_an_error_at_every_operation(tmp_path, how):
    print(how, survives(tmp_path, how, 1))


# ---- mutated messages


def mutated(content, chance):
    """Return a message with bytes changed, cut, doubled, moved or added."""
    data, kind = bytearray(content), int(chance.integers(6))
    at, other = (int(k) for k in chance.integers(len(data), size=2))
    if kind == 0:
        for place in chance.integers(len(data), size=chance.integers(1, 5)):
            data[place] = chance.integers(256)
    elif kind == 1:
        del data[at:]
    elif kind == 2:
        data[at:at] = data[min(at, other) : max(at, other)]
    elif kind == 3:
        data[at] ^= 1 << int(chance.integers(8))
    elif kind == 4:
        data += chance.bytes(int(chance.integers(1, 60)))
    else:
        data[at : at + 8] = np.array(
            chance.choice([np.nan, np.inf, -np.inf, 1e13, -0.0, 1e-320]), "<f8"
        ).tobytes()
    return bytes(data)


def orders_another_turn(bad, message):
    """Return True if a mutation is a valid order: a coordinator may send that of the next turn."""
    try:
        return decode(bad).turn != decode(message).turn
    except MessageError:
        return False


def shoot(count, seed):
    """Send mutated messages to a coordinator and to a zone at every turn of an honest run."""
    chance, sent = np.random.default_rng(seed), [0]
    run = Coordination(Script())
    each = count // (2 * len(TURNS) * 3)

    def strike(zone, request, answer):
        hello = encode(Hello(zone.name, "1", RUN, "topology", '{"rounds": 3}'))
        for _ in range(each):
            for target, message in (("take", answer), ("order", request), ("hello", hello)):
                bad = mutated(message, chance)
                sent[0] += 1
                if bad == message or (target == "order" and orders_another_turn(bad, message)):
                    continue
                try:
                    if target == "order":
                        last = zone.client.last
                        given = zone.client.answer(bad)
                        assert zone.client.last == last
                        assert isinstance(decode(given), Answer)
                    elif target == "hello":
                        run.sessions.admit(bad, None)
                    else:
                        decode(bad)
                except (MessageError, RefusedError):
                    continue

    honest = Coordination.take

    def take(self, name, answer, due):
        zone = self.honest if name == ZONES[0] else self.liar
        strike(zone, due.content, answer)
        for _ in range(each):
            bad = mutated(answer, chance)
            sent[0] += 1
            reply = self.sessions.zones[name].reply
            try:
                decode(bad)
            except MessageError:
                try:
                    self.sessions.take(name, bad)
                except MessageError:
                    assert self.sessions.zones[name].reply is reply
                else:
                    raise AssertionError("a broken message was taken")
        honest(self, name, answer, due)

    Coordination.take = take
    try:
        outcome = run.run()
    finally:
        Coordination.take = honest
    assert not isinstance(outcome, Exception), outcome
    return sent[0]


def test_mutated_messages_change_nothing():
    assert shoot(1000, 1) > 800


@pytest.mark.slow
def test_twenty_thousand_mutated_messages():
    total = sum(shoot(4000, seed) for seed in range(2, 8))
    print(total)
    assert total >= 20_000

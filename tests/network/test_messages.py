"""Messages as bytes, and who answers them: a zone's speaker beside an agent of the same problem."""

from __future__ import annotations

import struct
from collections import Counter

import numpy as np
import pytest
from tanks import Waterworks, rules

from gridpriv.consensus.messages import Order, Reply
from gridpriv.consensus.speaker import Speaker, read_standing
from gridpriv.consensus.wire import (
    BEFORE,
    Answer,
    Asked,
    Failure,
    Farewell,
    Hello,
    MessageError,
    Place,
    Welcome,
    decode,
    encode,
)
from gridpriv.core.errors import BudgetError, SolverError
from gridpriv.core.sealed import DamagedError
from gridpriv.privacy.mechanism import KNorm, Laplace, SecureGaussian
from gridpriv.privacy.release import Release
from gridpriv.privacy.sensitivity import Sensitivity

RUN = "a run"
RELEASES = {
    Release(Laplace(0.25), Sensitivity(0.5, 1, "2 beta"), 0.5): 3,
    Release(KNorm(1e-3), Sensitivity(0.1, "box", "beta"), 0.2): 1,
    Release(SecureGaussian(3.0), Sensitivity(0.1, 2, "beta"), 0.1): 2**31,
}
EVERY = [
    Hello("zone ä", "1.0", RUN, "ab" * 32, '{"rounds": 3}', Place("round", 7)),
    Welcome(RUN),
    Asked(RUN, "round", Order(3, np.array([1.5, -2.0]), np.array([3.0, 1e-3]), 0.1)),
    Answer(RUN, "zone ä", Place("round", 3), Reply(np.array([0.1, -1e-300]), RELEASES)),
    Failure(RUN, "zone ä", Place("rehearse", 2), "budget"),
    Farewell(RUN, False, "waited 3 s"),
]
NAMES = [type(message).__name__ for message in EVERY]


@pytest.mark.parametrize("message", EVERY, ids=NAMES)
def test_a_message_survives_its_bytes(message):
    again = decode(encode(message))
    assert type(again) is type(message)
    assert encode(again) == encode(message)
    if isinstance(message, Answer):
        assert again.reply.releases == RELEASES
        assert again.reply.sent.tobytes() == message.reply.sent.tobytes()


def test_an_order_is_laid_out_as_the_format_says():
    """By hand, field by field."""
    text = lambda t: struct.pack("<I", len(t)) + t  # noqa: E731
    by_hand = (
        b"gridpriv" + struct.pack("<HB", 2, 2) + text(b"a run") + struct.pack("<BI", 3, 3)
        + struct.pack("<I2d", 2, 1.5, -2.0) + struct.pack("<I2d", 2, 3.0, 1e-3)
        + struct.pack("<d", 0.1)
    )  # fmt: skip
    assert encode(EVERY[2]) == by_hand


@pytest.mark.parametrize("message", EVERY, ids=NAMES)
def test_whatever_is_cut_or_added_is_refused(message):
    content = encode(message)
    for size in range(len(content)):
        with pytest.raises(MessageError):
            decode(content[:size])
    with pytest.raises(MessageError, match="more in it"):
        decode(content + b"\0")


@pytest.mark.parametrize("message", EVERY, ids=NAMES)
def test_damaged_bytes_are_refused_or_are_another_whole_message(message):
    """Nothing but a MessageError comes out, and what is read can be written again."""
    rng = np.random.default_rng(5)
    content = encode(message)
    for _ in range(300):
        damaged = bytearray(content)
        for place in rng.integers(len(content), size=rng.integers(1, 4)):
            damaged[place] = rng.integers(256)
        try:
            found = decode(bytes(damaged))
        except MessageError:
            continue
        assert len(encode(found)) == len(content)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e13])
def test_numbers_beyond_the_range_are_refused(bad):
    for order in (
        Order(1, np.array([bad]), np.ones(1), 1.0),
        Order(1, np.ones(1), np.array([bad]), 1.0),
        Order(1, np.ones(1), np.ones(1), bad),
        Order(1, np.ones(1), np.zeros(1), 1.0),
        Order(1, np.ones(1), np.ones(2), 1.0),
        Order(1, np.ones(1), np.ones(1), -1.0),
    ):
        with pytest.raises(MessageError):
            decode(encode(Asked(RUN, "round", order)))
    with pytest.raises(MessageError):
        decode(encode(Answer(RUN, "a", Place("round", 1), Reply(np.array([bad]), {}))))


def test_a_message_of_another_version_says_which():
    content = bytearray(encode(Welcome(RUN)))
    content[8] = 9
    with pytest.raises(MessageError, match="version 9; this is version 2"):
        decode(bytes(content))


# ---- a speaker


NOISY = {"demands": (3.0, 4.0), "capacities": (2.0, 1.5)}


class Purse:
    """Counts what is charged, and refuses after so many."""

    def __init__(self, most=100):
        self.charged, self.most = Counter(), most

    def __call__(self, owner, releases):
        if self.charged.total() >= self.most:
            raise BudgetError(f"{owner} has no more than {self.most}: demand 3.0")
        self.charged.update(releases)


def agent(target="demand", refresh="round", purse=None, **given):
    one = Waterworks(**NOISY, rules=rules("linearized", target, 2, refresh), **given).agent(1)
    one._charge = purse
    return one


def asked(phase, number, w=0.5, rho=1.0):
    return encode(Asked(RUN, phase, Order(number, np.array([w]), np.array([rho]), 1.0)))


SCRIPT = [
    asked("rehearse", 1), asked("rehearse", 2, 0.3), asked("round", 1, 0.7), asked("round", 2, 0.1),
    asked("missed", 3, -0.4), asked("round", 4, 0.2), asked("agreed", 4, 0.6),
]  # fmt: skip


def test_a_speaker_answers_as_its_agent_would(tmp_path):
    speaker, own = Speaker("tank 1", RUN, agent(), 4, tmp_path / "s"), agent()
    for content in SCRIPT[:4]:
        told, order = decode(speaker.answer(content)), decode(content).order
        verb = {"rehearse": own.rehearse, "round": own.round}[decode(content).phase]
        expected = verb(order)
        assert told.reply.sent.tobytes() == expected.sent.tobytes()
        assert told.reply.releases == expected.releases
    assert decode(speaker.answer(SCRIPT[4])).reply.sent.size == 0


@pytest.mark.parametrize("refresh", ["update", "round", "run"])
@pytest.mark.parametrize("target", ["demand", "objective"])
def test_a_speaker_that_is_restarted_after_any_turn_answers_the_same(tmp_path, target, refresh):
    if target == "objective" and refresh != "update":
        pytest.skip("has no refresh")
    purse = Purse()
    whole = Speaker("tank 1", RUN, agent(target, refresh, purse), 4, tmp_path / "whole")
    expected = [whole.answer(content) for content in SCRIPT]
    again = Purse()
    for content, answer in zip(SCRIPT, expected, strict=True):
        cut = Speaker("tank 1", RUN, agent(target, refresh, again), 4, tmp_path / "cut")
        assert cut.answer(content) == answer
        # its answer was lost: it is asked again, by the same process and by the next one
        assert cut.answer(content) == answer
        after = Speaker("tank 1", RUN, agent(target, refresh, again), 4, tmp_path / "cut")
        assert after.answer(content) == answer
    assert again.charged == purse.charged
    assert after.agreed == pytest.approx([0.6])
    assert after.figures == whole.figures
    assert decode(answer).reply.releases == dict(purse.charged)


def test_a_round_that_was_missed_counts_as_what_was_sent_before(tmp_path):
    """The dual follows the value that the coordinator used, whether the zone answered or not."""
    late, never = (
        Speaker("tank 1", RUN, agent("none"), 9, tmp_path / name) for name in ("late", "never")
    )
    for content in SCRIPT[:3]:
        late.answer(content)
        never.answer(content)
    late.answer(asked("round", 2, 0.1))  # too late
    assert late.answer(asked("missed", 2, 0.1)) == never.answer(asked("missed", 2, 0.1))
    one, other = (speaker.answer(asked("round", 3, 0.2)) for speaker in (late, never))
    assert one == other
    sent = decode(late.answer(asked("round", 3, 0.2))).reply.sent
    assert sent != decode(never.answer(asked("round", 4, 0.2))).reply.sent


BAD_ORDERS = {
    "is no order": encode(Welcome(RUN)),
    "of another run": encode(Asked("b", "round", Order(1, np.ones(1), np.ones(1), 1.0))),
    "for 2 variables": encode(Asked(RUN, "round", Order(1, np.ones(2), np.ones(2), 1.0))),
    "after rehearsal": asked("round", 2),
    "round 5 of 4": asked("round", 5),
    "another order for": asked("rehearse", 1, 0.6),
    "cut short": b"gridpriv",
    "no message": b"x" * 400,
}


@pytest.mark.parametrize("reason", BAD_ORDERS)
def test_orders_that_are_not_due_change_nothing(tmp_path, reason):
    purse = Purse()
    speaker = Speaker("tank 1", RUN, agent(purse=purse), 4, tmp_path / "s")
    first = speaker.answer(SCRIPT[0])
    kept = (tmp_path / "s").read_bytes()
    with pytest.raises(MessageError, match=reason):
        speaker.answer(BAD_ORDERS[reason])
    assert (tmp_path / "s").read_bytes() == kept
    assert not purse.charged
    assert speaker.answer(SCRIPT[0]) == first
    assert isinstance(decode(speaker.answer(SCRIPT[1])), Answer)


def test_a_failure_is_one_public_word_and_counts_what_was_drawn(tmp_path):
    broken = agent("objective", "update", breaks=(1, 4), purse=(purse := Purse()))
    speaker = Speaker("tank 1", RUN, broken, 4, tmp_path / "s")
    speaker.answer(asked("ready", 1))
    told = decode(speaker.answer(asked("round", 1)))
    assert told == Failure(RUN, "tank 1", Place("round", 1), "solver")
    assert isinstance(speaker.failed, SolverError)
    standing = read_standing(tmp_path / "s")
    assert standing.last == Place("ready", 1)
    assert standing.memory.drawn == dict(purse.charged) != {}


def test_a_refused_budget_is_told_without_its_figures(tmp_path):
    speaker = Speaker("tank 1", RUN, agent(purse=Purse(1)), 4, tmp_path / "s")
    for content in SCRIPT[:3]:
        speaker.answer(content)
    told = speaker.answer(SCRIPT[3])
    assert decode(told).reason == "budget"
    assert b"demand" not in told


def test_a_damaged_standing_is_refused(tmp_path):
    path = tmp_path / "s"
    Speaker("tank 1", RUN, agent(), 4, path).answer(SCRIPT[0])
    assert path.stat().st_mode & 0o777 == 0o600
    content = path.read_bytes()
    flipped = [bytearray(content) for _ in range(50)]
    for one, place in zip(flipped, np.linspace(0, len(content) - 1, 50).astype(int), strict=True):
        one[place] ^= 1
    for damaged in (content[: len(content) // 2], b"", *flipped):
        path.write_bytes(damaged)
        with pytest.raises(DamagedError):
            read_standing(path)
    path.unlink()
    assert Speaker("tank 1", RUN, agent(), 4, path).last == BEFORE

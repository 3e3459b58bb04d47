"""Messages as bytes, and their answers: a zone's client and an agent of the same problem."""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from tanks import Waterworks, rules

from gridpriv.consensus.client import ZoneClient, read_state
from gridpriv.consensus.messages import (
    BEFORE,
    Answer,
    Failure,
    Hello,
    MessageError,
    Order,
    Refusal,
    Reply,
    Request,
    Shutdown,
    TurnId,
    Welcome,
    decode,
    encode,
)
from gridpriv.consensus.schedules import nonsmooth_step
from gridpriv.consensus.sessions import RequestLimits
from gridpriv.core.errors import BudgetError, SolverError
from gridpriv.core.files import DamagedError
from gridpriv.privacy.mechanism import KNorm, Laplace, SecureGaussian, Staircase
from gridpriv.privacy.release import Release
from gridpriv.privacy.sensitivity import Sensitivity

RUN = "a run"
RELEASES = {
    Release(Laplace(0.25), Sensitivity(0.5, 1, "2 beta"), 0.5): 3,
    Release(Staircase(0.05, 0.1), Sensitivity(0.1, "pair", "beta"), 0.1): 2,
    Release(KNorm(1e-3), Sensitivity(0.1, "box", "beta"), 0.2): 1,
    Release(SecureGaussian(3.0), Sensitivity(0.1, 2, "beta"), 0.1): 2**31,
}
EVERY = [
    Hello("zone ä", "1.0", RUN, "ab" * 32, '{"rounds": 3}', TurnId("round", 7)),
    Welcome(RUN),
    Request(RUN, "zone ä", "round", Order(3, np.array([1.5, -2.0]), np.array([3.0, 1e-3]), 0.1)),
    Answer(RUN, "zone ä", TurnId("round", 3), Reply(np.array([0.1, -1e-300]), RELEASES), bytes(32)),
    Failure(RUN, "zone ä", TurnId("warm_start", 2), "budget"),
    Shutdown(RUN, False, "waited 3 s"),
    Refusal("its run is another", True),
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
        b"gridpriv"
        + struct.pack("<HB", 5, 2)
        + text(b"a run")
        + text("zone ä".encode())
        + struct.pack("<BI", 3, 3)
        + struct.pack("<I2d", 2, 1.5, -2.0)
        + struct.pack("<I2d", 2, 3.0, 1e-3)
        + struct.pack("<d", 0.1)
        + text(b"")
    )
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
    """The result is a MessageError, or a message that can be written again."""
    rng = np.random.default_rng(5)
    content = encode(message)
    for _ in range(300):
        damaged = bytearray(content)
        for place in rng.integers(len(content), size=rng.integers(1, 4)):
            damaged[place] = rng.integers(256)
        try:
            decoded = decode(bytes(damaged))
        except MessageError:
            continue
        assert len(encode(decoded)) == len(content)


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
            decode(encode(Request(RUN, "a", "round", order)))
    with pytest.raises(MessageError):
        decode(encode(Answer(RUN, "a", TurnId("round", 1), Reply(np.array([bad]), {}))))


def test_a_message_of_another_version_says_which():
    content = bytearray(encode(Welcome(RUN)))
    content[8] = 9
    with pytest.raises(MessageError, match="version 9; this is version 5"):
        decode(bytes(content))


# ---- a zone's client


NOISY = {"demands": (3.0, 4.0), "capacities": (2.0, 1.5)}


class Purse:
    """Ledger that counts charges, and refuses after a number of them."""

    def __init__(self, most=100):
        self.charged, self.most = Counter(), most

    def __call__(self, owner, releases):
        if self.charged.total() >= self.most:
            raise BudgetError(f"{owner} has no more than {self.most}: demand 3.0")
        self.charged.update(releases)


def agent(target="demand", noise_schedule="round", purse=None, **given):
    works = Waterworks(**NOISY, rules=rules("linearized", target, 2, noise_schedule), **given)
    first = works.agent(1)
    first.releases.charge = purse
    return first


def request(phase, number, w=0.5, rho=1.0):
    step = 1.0 if phase == "agreed" else nonsmooth_step()(number)
    return encode(
        Request(RUN, "tank 1", phase, Order(number, np.array([w]), np.array([rho]), step))
    )


LIMITS = RequestLimits(warm_starts=2, trial=False, rounds=4, size=1)


def client(agent, path, **changes):
    return ZoneClient("tank 1", RUN, agent, replace(LIMITS, **changes), path)


SCRIPT = [
    request("warm_start", 1),
    request("warm_start", 2, 0.3),
    request("round", 1, 0.7),
    request("round", 2, 0.1),
    request("missed", 3, -0.4),
    request("round", 4, 0.2),
    request("agreed", 4, 0.6),
]


def test_a_client_answers_as_its_agent_would(tmp_path):
    zone, own = client(agent(), tmp_path / "s"), agent()
    for content in SCRIPT[:4]:
        message, order = decode(zone.answer(content)), decode(content).order
        verb = {"warm_start": own.warm_start, "round": own.round}[decode(content).phase]
        expected = verb(order)
        assert message.reply.sent.tobytes() == expected.sent.tobytes()
        assert message.reply.releases == expected.releases
    assert decode(zone.answer(SCRIPT[4])).reply.sent.size == 0


@pytest.mark.parametrize("noise_schedule", ["update", "round", "once"])
@pytest.mark.parametrize("target", ["demand", "objective"])
def test_a_client_that_is_restarted_answers_the_same(tmp_path, target, noise_schedule):
    if target == "objective" and noise_schedule != "update":
        pytest.skip("has no noise_schedule")
    purse = Purse()
    whole = client(agent(target, noise_schedule, purse), tmp_path / "whole")
    expected = [whole.answer(content) for content in SCRIPT]
    again = Purse()
    for content, answer in zip(SCRIPT, expected, strict=True):
        cut = client(agent(target, noise_schedule, again), tmp_path / "cut")
        assert cut.answer(content) == answer
        # its answer was lost: it is asked again, by the same process and by the next one
        assert cut.answer(content) == answer
        after = client(agent(target, noise_schedule, again), tmp_path / "cut")
        assert after.answer(content) == answer
    assert again.charged == purse.charged
    assert after.final_values == pytest.approx([0.6])
    assert after.metrics == whole.metrics
    assert decode(answer).reply.releases == dict(purse.charged)


def test_a_round_that_was_missed_counts_as_what_was_sent_before(tmp_path):
    """The dual follows the value that the coordinator used, whether the zone answered or not."""
    late, never = (client(agent("none"), tmp_path / name, rounds=9) for name in ("late", "never"))
    for content in SCRIPT[:3]:
        late.answer(content)
        never.answer(content)
    late.answer(request("round", 2, 0.1))  # too late
    assert late.answer(request("missed", 2, 0.1)) == never.answer(request("missed", 2, 0.1))
    item, other = (own.answer(request("round", 3, 0.2)) for own in (late, never))
    assert item == other
    sent = decode(late.answer(request("round", 3, 0.2))).reply.sent
    assert sent != decode(never.answer(request("round", 4, 0.2))).reply.sent


ONE = Order(1, np.ones(1), np.ones(1), 1.0)
TWO = Order(2, np.ones(2), np.ones(2), 1.0)
BAD_ORDERS = {
    "is no order": encode(Welcome(RUN)),
    "of another run": encode(Request("b", "tank 1", "round", ONE)),
    "run or zone": encode(Request(RUN, "tank 2", "round", ONE)),
    "for 2 variables": encode(Request(RUN, "tank 1", "warm_start", TWO)),
    "after warm-start round 1": request("warm_start", 3),
    "after warm-start": request("round", 2),
    "round 5 of 4": request("round", 5),
    "another order for": request("warm_start", 1, 0.6),
    "cut short": b"gridpriv",
    "no message": b"x" * 400,
    "after warm-start round 1|another order for none": encode(
        Request(RUN, "tank 1", "none", Order(0, np.ones(1), np.ones(1), 1.0))
    ),
}


@pytest.mark.parametrize("reason", BAD_ORDERS)
def test_orders_that_are_not_due_change_nothing(tmp_path, reason):
    purse = Purse()
    own = client(agent(purse=purse), tmp_path / "s")
    first = own.answer(SCRIPT[0])
    stored = (tmp_path / "s").read_bytes()
    with pytest.raises(MessageError, match=reason):
        own.answer(BAD_ORDERS[reason])
    assert (tmp_path / "s").read_bytes() == stored
    assert not purse.charged
    assert own.answer(SCRIPT[0]) == first
    assert isinstance(decode(own.answer(SCRIPT[1])), Answer)


def test_a_first_order_that_is_for_no_turn_is_refused(tmp_path):
    """The bench found it: it is for the turn that a zone has answered before the first."""
    own = client(agent(), tmp_path / "s")
    with pytest.raises(MessageError, match="another order for none 0"):
        own.answer(encode(Request(RUN, "tank 1", "none", Order(0, np.ones(1), np.ones(1), 1.0))))


def test_a_failure_is_one_public_word_and_counts_what_was_drawn(tmp_path):
    broken = agent("objective", "update", breaks=(1, 4), purse=(purse := Purse()))
    own = client(broken, tmp_path / "s", warm_starts=0, trial=True)
    own.answer(request("ready", 1))
    message = decode(own.answer(request("round", 1)))
    assert message == Failure(RUN, "tank 1", TurnId("round", 1), "solver")
    assert isinstance(own.failed, SolverError)
    state = read_state(tmp_path / "s")
    assert state.last == TurnId("ready", 1)
    assert state.memory.drawn == dict(purse.charged) != {}


def test_a_refused_budget_is_reported_without_its_values(tmp_path):
    own = client(agent(purse=Purse(1)), tmp_path / "s")
    for content in SCRIPT[:3]:
        own.answer(content)
    text = own.answer(SCRIPT[3])
    assert decode(text).reason == "budget"
    assert b"demand" not in text


def test_a_damaged_state_is_refused(tmp_path):
    path = tmp_path / "s"
    client(agent(), path).answer(SCRIPT[0])
    assert path.stat().st_mode & 0o777 == 0o600
    content = path.read_bytes()
    flipped = [bytearray(content) for _ in range(50)]
    for item, place in zip(flipped, np.linspace(0, len(content) - 1, 50).astype(int), strict=True):
        item[place] ^= 1
    for damaged in (content[: len(content) // 2], b"", *flipped):
        path.write_bytes(damaged)
        with pytest.raises(DamagedError):
            read_state(path)
    path.unlink()
    assert client(agent(), path).last == BEFORE

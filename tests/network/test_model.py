"""The model of the protocol, every state of it; the implementation's traces; ten seeded defects."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bench import ROUNDS as BENCH_ROUNDS
from bench import ZONES, Coordination, Script, ViolationError
from model import TURNS, BrokenError, accepts, explore
from test_byzantine import coordinator_runs, zone_runs

from gridpriv.consensus.client import ZoneClient
from gridpriv.consensus.messages import Request, TurnId, decode, encode
from gridpriv.consensus.server import Journal
from gridpriv.consensus.sessions import AnswerLimits, RequestLimits, Sessions
from gridpriv.consortium import take_part
from gridpriv.consortium.take_part import ChargedOnce

NAMES = [
    "warm-start round 1",
    "warm-start round 2",
    *(f"round {t}" for t in range(1, 4)),
    "agreed 3",
]


@pytest.mark.parametrize(
    ("crashes", "least"),
    [
        (0, 100),
        (1, 1000),
        pytest.param(2, 6000, marks=pytest.mark.slow),
        pytest.param(3, 20000, marks=pytest.mark.slow),
    ],
)
def test_every_state_of_the_model_holds(crashes, least):
    assert explore(crashes) > least


MODEL_BUGS = ["draw again", "charge again", "charge never", "answer before state", "lost journal"]


@pytest.mark.parametrize("bug", MODEL_BUGS)
def test_the_model_finds_a_defect_of_its_own(bug):
    with pytest.raises(BrokenError):
        explore(1, frozenset({bug}))


def trace_of(script):
    run = Coordination(script)
    outcome = run.run()
    assert not isinstance(outcome, Exception), outcome
    events = []
    for event in run.trace:
        kind, party, *turn = event
        z = ZONES.index(party) if party in ZONES else -1
        number = NAMES.index(turn[0]) + 1 if turn else 0
        events.append((kind, z, number) if turn else (kind, z))
        if kind == "take" and len(events) > 1:
            taken = [e for e in events if e[0] == "take" and e[2] == number]
            if {e[1] for e in taken[-2:]} == {0, 1}:
                events.append(("journal", -1, number))
    return events


def test_the_model_plays_the_turns_of_the_bench():
    assert TURNS == ("warm_start",) * 2 + ("round",) * BENCH_ROUNDS + ("agreed",)


@pytest.mark.parametrize("number", range(0, 40, 2))
def test_traces_of_the_implementation_are_runs_of_the_model(number):
    """Also where a zone or the coordinator ends in between."""
    point = ("order", "before charge", "charge", "draw", "keep", "send")[number % 6]
    crashes = [(point, 1 + number // 6)] if number else []
    ends = [1 + number % 7] if number % 3 == 1 else []
    events = trace_of(Script(crashes=crashes, coordinator=ends))
    assert len(events) > 6 * len(TURNS)
    assert accepts(events, 4) is None
    broken = [event for event in events if event[0] != "charge"]
    assert accepts(broken, 4) is not None


# ---- ten defects, each in another place of the protocol


def any_turn(patch):
    patch(RequestLimits, "_is_due", lambda *_: True)


def answers_again(patch):
    """An order that comes again is played again."""
    honest = ZoneClient.answer

    def answer(self, content):
        request = decode(content)
        if isinstance(request, Request) and request.turn == self.last != TurnId("none", 0):
            turn = self.last
            first = TurnId("warm_start", 2)
            before = TurnId(turn.phase, turn.number - 1) if turn.number > 1 else first
            self._state = replace(self._state, last=before)
        return honest(self, content)

    patch(ZoneClient, "answer", answer)


def keeps_nothing(patch):
    """The state is not on disk when the answer leaves."""

    def keep(self, state):
        self._state = state

    patch(ZoneClient, "_store", keep)


def charges_again(patch):
    def charge(self, owner, releases):
        self.charge.ledger.charge(owner, self.charge.run_id, self.charge.cost(owner, releases))

    patch(ChargedOnce, "__call__", charge)


def charges_nothing_after_a_restart(patch):
    honest = ChargedOnce.__call__

    def charge(self, owner, releases):
        if not self.paid.total():
            honest(self, owner, releases)

    patch(ChargedOnce, "__call__", charge)


def takes_any_answer(patch):
    patch(AnswerLimits, "check", lambda *_: None)


def takes_any_turn(patch):
    honest = Sessions.take

    def take(self, zone, content):
        answer = decode(content)
        due = self._due(self.zones[zone])
        if due is not None and hasattr(answer, "reply"):
            content = encode(replace(answer, turn=due.turn, request=due.digest))
        honest(self, zone, content)

    patch(Sessions, "take", take)


def forgets_turns(patch):
    patch(Journal, "write", lambda *_: None)


def seats_anybody(patch):
    honest = Sessions.admit

    def admit(self, content, _, verify=None):
        for session in self.zones.values():
            session.connected = False
        return honest(self, content, None, verify)

    patch(Sessions, "admit", admit)


def ends_early(patch):
    patch(take_part, "_check_end", lambda *_: None)


DEFECTS = [
    any_turn,
    answers_again,
    keeps_nothing,
    charges_again,
    charges_nothing_after_a_restart,
    takes_any_answer,
    takes_any_turn,
    forgets_turns,
    seats_anybody,
    ends_early,
]


def bench_replies(number):
    try:
        coordinator_runs(number, 250)
        zone_runs(number, 250)
    except BaseExceptionGroup:
        return True
    except (ViolationError, AssertionError, ValueError, TypeError, KeyError, IndexError):
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.__name__)
def test_a_seeded_defect_is_found(defect, monkeypatch):
    defect(monkeypatch.setattr)  # a name that is gone is an error, and no defect
    assert any(bench_replies(number) for number in range(4))

"""A consortium of two water tanks in one thread, whose parties may be dishonest or end.

The coordinator waits on a :class:`Pump` instead of a condition. The bench causes the awaited events
one after the other, so a run is a function of its script. Files are in :class:`Disk`; a party that
crashes loses its memory. Signatures are left out: they are another layer, with separate tests.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from tanks import Waterworks, rules

from gridpriv.consensus import client, server
from gridpriv.consensus.client import ZoneClient
from gridpriv.consensus.coordinator import Plan, State, make_consensus, rounds
from gridpriv.consensus.messages import (
    BEFORE,
    Answer,
    Failure,
    Hello,
    MessageError,
    Order,
    Reply,
    Request,
    Shutdown,
    TurnId,
    decode,
    encode,
)
from gridpriv.consensus.schedules import ConstantPenalty, nonsmooth_step
from gridpriv.consensus.server import Journal, Turns
from gridpriv.consensus.sessions import (
    AnswerLimits,
    LateError,
    PublicAgreement,
    RefusedError,
    RequestLimits,
    Sessions,
)
from gridpriv.consortium import take_part
from gridpriv.core.errors import GridprivError
from gridpriv.privacy.certificate import charges_of
from gridpriv.privacy.release import Release

RUN, ROUNDS, REHEARSALS = "bench", 3, 2
ZONES = ("tank 1", "tank 2")
WORKS = {"demands": (3.0, 4.0), "capacities": (2.0, 1.5)}
STEPS = 400  # events of a run, at most: more is no end
EXPECTED = nonsmooth_step()


class Crash(BaseException):
    """A process that ends where it stands."""


class ViolationError(AssertionError):
    """Something that no run may do."""


class Disk(dict):
    """Files of records by path."""


def records(disk):
    class Records:
        def __init__(self, path, *, private):
            self.path, self.private, self.size = path, private, 0

        def read(self):
            return list(disk.get(self.path, ()))

        def add(self, content, *, flushed=True):
            del flushed
            disk.setdefault(self.path, []).append(content)

        def renew(self, content):
            disk[self.path] = [content]

    return Records


class Book:
    """A zone's ledger: a charge is on disk before the call returns."""

    path = "ledger"

    def __init__(self, event):
        self.charges, self.stored, self._event = Counter(), Counter(), event

    def factor(self, _):
        return 1.0

    def charge(self, owner, run, charges):
        del owner, run
        self._event("before charge")
        self.charges.update(charges)
        self._event("charge")

    def note_stored(self, owner, run, releases):
        self.stored[owner, run] = max(releases, self.stored[owner, run])

    @property
    def charged(self):
        return [(1, SimpleNamespace(run=RUN, owner="z", charges=tuple(self.charges.items())))]


def agent_of(zone, charge=None, seed=7):
    works = Waterworks(**WORKS, rules=rules("linearized", "demand", 1, "round"), seed=seed)
    agent = works.agent(ZONES.index(zone) + 1)
    agent.releases.charge = charge
    return agent


RELEASE = agent_of(ZONES[0]).release(np.ones(1), 1.0)
LIMITS = RequestLimits(REHEARSALS, False, ROUNDS, 1)


def agreement():
    limits = AnswerLimits(1, 1, ROUNDS)
    return PublicAgreement("1", RUN, "topology", {"rounds": ROUNDS}, dict.fromkeys(ZONES, limits))


class Zone:
    """An honest zone: its client, its ledger, its disk, and everything that left it."""

    def __init__(self, name, trace):
        self.name, self.disk, self.trace = name, Disk(), trace
        self.book, self.left, self.crash_at, self.seed = Book(self.event), {}, "", 7
        self.crashes, self.answered_turns = 0, set()
        self.start()

    def event(self, kind):
        if kind in ("charge", "draw", "keep"):
            self.trace.append((kind, self.name))
        if kind == self.crash_at:
            self.crash_at = ""
            raise Crash

    def start(self):
        """Start the zone's process, with the content of its disk and ledger."""
        with self.patched():
            state = client.read_state(Path("zone"))
            drawn = {} if state is None else state.memory.drawn
            pay = take_part.charged_once(self.book, None, RUN, "z", drawn)
            # secure noise has no seed: a draw that is made again is another one
            self.seed += 1
            charge = lambda _, releases: pay("z", releases)  # noqa: E731
            agent = agent_of(self.name, charge, self.seed)
            self.client = ZoneClient(
                self.name, RUN, agent, LIMITS, Path("zone"), note_stored=pay.note_stored
            )

    @contextmanager
    def patched(self):
        """The client's disk, ledger and draws are this zone's."""
        originals = client.Records, take_part.read_book, Release.apply
        honest = Release.apply

        def apply(release, value, stream):
            noisy = honest(release, value, stream)
            self.event("draw")
            return noisy

        client.Records = records(self.disk)
        take_part.read_book = lambda *_: self.book
        Release.apply = apply
        try:
            yield
        finally:
            client.Records, take_part.read_book, Release.apply = originals

    def answer(self, content):
        """Return the answer that is sent, or None; check the invariants."""
        before = self.client.last
        try:
            with self.patched():
                self.event("order")
                answer = self.client.answer(content)
                if self.client.last != before:
                    self.answered_turns.add(self.client.last)
                    self.event("keep")
                self.event("send")
        except MessageError:
            return None
        except Crash:
            self.crashes += 1
            self.trace.append(("crash", self.name))
            self.start()
            return None
        self.check(content, answer)
        return answer

    def check(self, content, answer):
        request, message = decode(content), decode(answer)
        if self.client.failed is not None:
            raise ViolationError(f"an order made the zone fail: {self.client.failed!r}")
        if request.run != RUN or request.zone != self.name:
            raise ViolationError("an order of another run or zone was answered")
        turn = request.turn
        if turn.phase in ("warm_start", "round", "missed"):
            most = REHEARSALS if turn.phase == "warm_start" else ROUNDS
            if turn.number > most:
                raise ViolationError(f"{turn} of {most} was answered")
        if self.left.setdefault(message.turn, answer) != answer:
            raise ViolationError(f"{message.turn}: two different answers left")
        self.audit()

    def audit(self, ended=False):
        """Compare the ledger, the sent releases, and the certificate."""
        answered = sum(turn.phase == "round" for turn in self.answered_turns | set(self.left))
        total = self.book.charges.total()
        if not answered <= total <= answered + 1:
            raise ViolationError(f"{answered} releases were kept, {total} were charged")
        if total > ROUNDS:
            raise ViolationError(f"{total} releases were charged; the agreement has {ROUNDS}")
        if set(self.book.charges) - set(charges_of({RELEASE: 1})):
            raise ViolationError("another release than the agreement's was charged")
        stated = Counter(self.client.drawn()).total()
        if ended and stated < answered:
            raise ViolationError(f"{answered} releases left, the certificate states {stated}")


class Pump:
    """Replacement of a condition: waiting runs the bench until no event is left."""

    def __init__(self, step):
        self._step = step

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def notify_all(self):
        return None

    def wait_for(self, predicate, timeout=None):
        del timeout
        while not predicate():
            if not self._step():
                return predicate()
        return True


@dataclass
class Lie:
    """Action of the dishonest zone at its n-th answer."""

    kind: str
    at: int
    number: float = 0.0


@dataclass
class Script:
    """A run: who lies how, who ends where, and in which order messages arrive."""

    lies: list = field(default_factory=list)
    crashes: list = field(default_factory=list)  # (point, n-th order) of the honest zone
    coordinator: list = field(default_factory=list)  # turns before which the coordinator ends
    order: list = field(default_factory=list)  # choices between zones
    late: str = "wait"


class Coordination:
    """An honest coordinator, an honest zone and one that may lie."""

    def __init__(self, script):
        self.script, self.trace, self.disk = script, [], Disk()
        self.honest, self.liar = Zone(ZONES[0], self.trace), Zone(ZONES[1], self.trace)
        self.orders = Counter()
        self.steps = 0
        self.ends = list(script.coordinator)
        self.old = []
        self.connected = set()
        self.silent = False
        self.admitted = Counter()

    def run(self):
        """Play the run; return the outcome's w, or the error that a party's user is given."""
        while True:
            self.start()
            try:
                outcome = self.play()
            except Crash:
                self.trace.append(("crash", "coordinator"))
                continue
            except GridprivError as error:
                outcome = error
            self.audit(outcome)
            return outcome

    def start(self):
        with self.patched():
            self.sessions = Sessions(agreement(), lambda *_, **__: None, changed=Pump(self.step))
            journal, start = Journal(Path("x")), [np.zeros(1)] * 2
            self.turns = Turns(self.sessions, journal, start, 1.0, self.script.late)
        self.connected.clear()

    @contextmanager
    def patched(self):
        original = server.Records
        server.Records = records(self.disk)
        try:
            yield
        finally:
            server.Records = original

    def play(self):
        consensus = make_consensus([np.array([0]), np.array([0])])
        state = State(np.zeros(2), np.zeros(2), np.ones(1))
        carry = self.turns.exchange_of
        warm_start = Plan(REHEARSALS, nonsmooth_step(), ConstantPenalty(1.0))
        plan = Plan(ROUNDS, nonsmooth_step(), ConstantPenalty(1.0))
        for turn in rounds(carry("warm_start"), consensus, state, warm_start):
            state = turn.state
        for turn in rounds(carry("round"), consensus, state, plan):
            state = turn.state
        mean = consensus.average(state.sent)
        self.turns.exchange_of("agreed")([Order(ROUNDS, mean, np.ones(1), 1.0)] * 2)
        return mean

    def step(self):
        """Let one thing happen; return whether anything did."""
        self.steps += 1
        if self.steps > STEPS:
            raise ViolationError("a run without an end")
        names = [z for z in ZONES if not (z == ZONES[1] and self.silent)]
        choice = self.script.order[self.steps % len(self.script.order)] if self.script.order else 0
        for name in (*names[choice % len(names) :], *names[: choice % len(names)]):
            if name not in self.connected:
                if self.connect(name):
                    return True
                continue
            due = self.sessions._due(self.sessions.zones[name])
            if due is not None:
                self.exchange(name, due)
                return True
        return False

    def connect(self, name):
        zone = self.honest if name == ZONES[0] else self.liar
        hello = Hello(name, "1", RUN, "topology", json.dumps({"rounds": ROUNDS}), zone.client.last)
        if name == ZONES[1] and (lie := self.lie("hello")):
            hello = replace(
                hello,
                **{
                    0: {"version": "2"},
                    1: {"run": "x"},
                    2: {"zone": ZONES[0]},
                    3: {"settings": "{"},
                }[int(lie.number) % 4],
            )
        certified = name
        try:
            self.admitted[self.sessions.admit(encode(hello), certified)] += 1
        except (RefusedError, MessageError):
            self.silent = self.silent or name == ZONES[1]
            return False
        self.connected.add(name)
        return True

    def exchange(self, name, due):
        self.orders[name] += 1
        if self.ends and name == ZONES[0] and self.orders[name] >= self.ends[0]:
            self.ends.pop(0)
            raise Crash
        self.trace.append(("order", name, str(due.turn)))
        zone = self.honest if name == ZONES[0] else self.liar
        if name == ZONES[0]:
            for point, at in self.script.crashes:
                if at == self.orders[name]:
                    zone.crash_at = point
        answer = zone.answer(due.content)
        zone.crash_at = ""
        if name == ZONES[1] and (lie := self.lie("answer")):
            answer = self.lied(lie, answer)
        if answer is None:
            self.leave(name)
            return
        self.trace.append(("send", name, str(decode_turn(answer, due.turn))))
        self.old.append(answer)
        self.take(name, answer, due)

    def take(self, name, answer, due):
        try:
            self.sessions.take(name, answer)
            self.trace.append(("take", name, str(due.turn)))
        except MessageError:
            if name == ZONES[0]:
                raise ViolationError("an honest answer was refused") from None
            self.leave(name)
            return
        used = self.sessions._due(self.sessions.zones[name]) is not due
        message = decode(answer)
        if (
            used
            and isinstance(message, Answer)
            and (message.turn, message.request) != (due.turn, due.digest)
        ):
            raise ViolationError(f"an answer to {message.turn} was used for {due.turn}")

    def leave(self, name):
        self.sessions.leave(name)
        self.connected.discard(name)

    def lie(self, where):
        known = {"hello"} if where == "hello" else set(ANSWER_LIES)
        for lie in self.script.lies:
            if lie.kind in known and lie.at == self.orders[ZONES[1]]:
                self.script.lies.remove(lie)
                return lie
        return None

    def lied(self, lie, answer):
        """Return the message of the dishonest zone instead of its answer."""
        message = decode(answer) if answer is not None else None
        if not isinstance(message, Answer):
            return answer
        reply = message.reply
        half = replace(RELEASE, mechanism=type(RELEASE.mechanism)(RELEASE.mechanism.scale / 2.0))
        odd = {replace(half, assumed=0.01 + 1e-6 * k): 1 for k in range(50)}
        match lie.kind:
            case "silent":
                self.silent = True
                return None
            case "value":
                message = replace(message, reply=Reply(np.full_like(reply.sent, lie.number), {}))
            case "size":
                message = replace(
                    message, reply=Reply(np.ones(int(lie.number) % 7), reply.releases)
                )
            case "releases":
                stated = [{half: 1}, odd, {RELEASE: 2**31}, {RELEASE: 2}][int(lie.number) % 4]
                message = replace(message, reply=Reply(reply.sent, stated))
            case "turn":
                message = replace(
                    message,
                    turn=TurnId(
                        ["round", "warm_start", "agreed", "missed"][int(lie.number) % 4],
                        int(lie.number) % 5,
                    ),
                )
            case "zone":
                message = replace(message, zone=ZONES[0])
            case "digest":
                message = replace(message, request=bytes(32))
            case "failure":
                return encode(Failure(RUN, message.zone, message.turn, "solver"))
            case "replay":
                return self.old[int(lie.number) % len(self.old)] if self.old else answer
            case "second":
                hello = Hello(ZONES[0], "1", RUN, "topology", '{"rounds": 3}', BEFORE)
                for certified in (ZONES[1], ZONES[0]):
                    connected = self.sessions.zones[ZONES[0]].connected
                    if certified == ZONES[0] and not connected:
                        continue  # another process of the honest zone itself
                    try:
                        self.sessions.admit(encode(hello), certified)
                    except RefusedError:
                        continue
                    if connected or certified == ZONES[1]:
                        raise ViolationError("a second caller was admitted for a zone")
                return answer
            case "cut":
                return encode(message)[: int(lie.number) % 60]
            case "bytes":
                return bytes([int(lie.number) % 256]) * (int(lie.number) % 400)
        return encode(message)

    def audit(self, outcome):
        """Check the invariants after every run, whatever party is dishonest."""
        self.honest.audit(ended=True)
        self.liar.audit()
        # with late = stop a run may end for the honest zone too, where its process has ended
        stopped = isinstance(outcome, LateError) and self.honest.crashes
        if isinstance(outcome, GridprivError) and ZONES[0] in str(outcome) and not stopped:
            raise ViolationError(f"the honest zone is blamed: {outcome}")
        if isinstance(outcome, GridprivError) and "journal" in str(outcome):
            raise ViolationError(f"the journal lost a turn: {outcome}")
        if not isinstance(outcome, Exception) and self.honest.client.final_values is None:
            raise ViolationError("a run ended without the agreed values at a zone")
        if not isinstance(outcome, Exception) and self.honest.book.charges.total() != ROUNDS:
            raise ViolationError("a finished run did not charge every round once")


ANSWER_LIES = (
    "silent",
    "value",
    "size",
    "releases",
    "turn",
    "zone",
    "digest",
    "failure",
    "replay",
    "second",
    "cut",
    "bytes",
)


def decode_turn(content, other):
    try:
        return decode(content).turn
    except (MessageError, AttributeError):
        return other


@dataclass
class CoordinatorLie:
    """One message of a lying coordinator, relative to the honest one that would be due."""

    kind: str
    number: float = 0.0
    crash: str = ""


class LyingCoordinator:
    """An honest zone and a coordinator that sends the messages of its script."""

    def __init__(self, script):
        self.zone, self.script = Zone(ZONES[0], []), script
        self.sent = []

    def due(self):
        """The honest message that is due, with a w that the coordinator is free to choose."""
        last = self.zone.client.last
        n = last.number
        if last.phase in ("none", "warm_start") and n < REHEARSALS:
            return TurnId("warm_start", n + 1)
        if last.phase == "agreed":
            return TurnId("agreed", n)
        n = n if last.phase in ("round", "missed") else 0
        return TurnId("round", n + 1) if n < ROUNDS else TurnId("agreed", n)

    def message(self, lie):
        turn = self.due()
        number = lie.number
        w, penalty, step, run, zone = number % 3.0, 1.0, EXPECTED(turn.number), RUN, ZONES[0]
        if turn.phase == "agreed":
            step = 1.0
        match lie.kind:
            case "w":
                w = number
            case "penalty":
                penalty = abs(number) or 1e-6
            case "step":
                step = abs(number) or 1e12
            case "phase":
                phases = ("warm_start", "round", "ready", "missed", "agreed", "none")
                turn = TurnId(phases[int(abs(number)) % 6], int(abs(number)) % 7)
            case "number":
                turn = TurnId(turn.phase, int(abs(number)) % 9)
            case "run":
                run = "another"
            case "zone":
                zone = ZONES[1]
            case "again" if self.sent:
                return self.sent[int(abs(number)) % len(self.sent)]
            case "missed":
                turn = TurnId("missed", turn.number)
        size = 1 + (lie.kind == "size")
        order = Order(turn.number, np.full(size, w), np.full(size, penalty), step)
        content = encode(Request(run, zone, turn.phase, order))
        if lie.kind == "cut":
            return content[: int(abs(number)) % len(content)]
        if lie.kind == "flip":
            place = int(abs(number)) % len(content)
            return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
        if lie.kind == "hello":
            return encode(Hello(ZONES[0], "1", RUN, "t", "{}"))
        return content

    def run(self):
        for lie in self.script:
            content = self.message(lie)
            self.zone.crash_at = lie.crash
            answer = self.zone.answer(content)
            self.zone.crash_at = ""
            if answer is not None:
                self.sent.append(content)
            self.zone.audit()
        try:
            take_part._check_end(Shutdown(RUN, True, ""), self.zone.client)
            if self.zone.client.final_values is None:
                raise ViolationError("a run counts as finished before values were agreed")
        except GridprivError:
            if self.zone.client.final_values is not None:
                raise ViolationError("a finished run counts as stopped") from None
        self.zone.audit(ended=True)


KINDS = (
    "w",
    "penalty",
    "step",
    "phase",
    "number",
    "run",
    "zone",
    "again",
    "missed",
    "size",
    "cut",
    "flip",
    "hello",
    "due",
    "due",
    "due",
)
POINTS = ("", "", "", "order", "before charge", "charge", "draw", "keep", "send")

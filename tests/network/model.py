"""A model of the protocol's core, explored state by state.

Events: order, charge, draw, keep (the state), send (the answer), take, journal, crash.
Two zones and a coordinator run a list of turns. A party may end at any point, as often as
``crashes`` allows; its memory and the messages on their way to it are then lost. A zone's
ledger and state and the coordinator's journal are on disk. ``explore`` visits every reachable state
and raises :class:`BrokenError` where

- two different draws of one turn have left a zone,
- a round's release is charged twice, or a finished run has a round that was not charged once,
- no final state can be reached from a state.

``bugs`` are defects that a test inserts into the protocol; each has its place in ``steps``.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

TURNS = ("warm_start", "warm_start", "round", "round", "round", "agreed")  # those of the bench
ZONES = (0, 1)


class BrokenError(AssertionError):
    """A property that does not hold, with the events that lead there."""


@dataclass(frozen=True)
class Zone:
    """One zone; turns are numbered from 1."""

    answered: int = 0  # on disk: the turn that was answered last
    answered_draw: int = 0  # and the draw that its answer holds
    charged: tuple = (0,) * (len(TURNS) + 1)  # on disk, by turn
    draws: int = 0  # made so far; each is another one
    stage: str = ""  # in memory: "", charged, drawn
    draw: int = 0
    left: tuple = (0,) * (len(TURNS) + 1)  # the draw that left in each turn; -1: two different ones
    order: int = 0  # under way to the zone
    answer: int = 0  # under way to the coordinator


@dataclass(frozen=True)
class State:
    """All parties."""

    zones: tuple = (Zone(), Zone())
    journal: int = 0
    taken: frozenset = frozenset()
    crashes: int = 0


def steps(state, crashes, bugs):
    """Yield every event that may come next, and the state after it."""
    turn = state.journal + 1
    for z in ZONES:
        zone = state.zones[z]
        for event, after in _zone_steps(zone, bugs):
            yield (event, z, zone.order), _with(state, z, after)
        if turn <= len(TURNS) and z not in state.taken and not zone.order and not zone.answer:
            yield ("order", z, turn), _with(state, z, replace(zone, order=turn))
        if zone.answer:
            taken = state.taken | {z} if zone.answer == turn else state.taken
            after = _with(state, z, replace(zone, answer=0))
            yield ("take", z, zone.answer), replace(after, taken=taken)
        if state.crashes < crashes:
            lost = replace(zone, stage="", draw=0, order=0, answer=0)
            yield ("crash", z, 0), replace(_with(state, z, lost), crashes=state.crashes + 1)
    if len(state.taken) == len(ZONES) and turn <= len(TURNS):
        yield ("journal", -1, turn), replace(state, journal=turn, taken=frozenset())
    if state.crashes < crashes:
        zones = tuple(replace(zone, order=0, answer=0) for zone in state.zones)
        journal = 0 if "lost journal" in bugs else state.journal
        yield (
            ("crash", -1, 0),
            replace(
                state, zones=zones, taken=frozenset(), journal=journal, crashes=state.crashes + 1
            ),
        )


def _zone_steps(zone, bugs):
    turn = zone.order
    if not turn:
        return
    if turn <= zone.answered and "draw again" not in bugs:  # answered before: the same bytes
        if turn == zone.answered:
            yield "send", _sent(zone, turn, zone.answered_draw)
        else:
            yield "refuse", replace(zone, order=0)
        return
    private = TURNS[turn - 1] == "round"
    if zone.stage == "":
        paid = zone.charged[turn] > 0 and "charge again" not in bugs
        charged = zone.charged
        if private and not paid and "charge never" not in bugs:
            charged = (*charged[:turn], charged[turn] + 1, *charged[turn + 1 :])
        yield (
            ("charge" if private and not paid else "pay"),
            replace(zone, charged=charged, stage="charged"),
        )
    elif zone.stage == "charged":
        draws = zone.draws + private
        yield (
            ("draw" if private else "solve"),
            replace(zone, draws=draws, draw=draws if private else 0, stage="drawn"),
        )
    elif zone.stage == "drawn":
        if "answer before state" in bugs:
            yield "send", replace(_sent(zone, turn, zone.draw), stage="drawn", order=turn)
        yield "keep", replace(zone, answered=turn, answered_draw=zone.draw, stage="", draw=0)


def _sent(zone, turn, draw):
    left = zone.left
    if TURNS[turn - 1] == "round":
        observed = draw if left[turn] in (0, draw) else -1
        left = (*left[:turn], observed, *left[turn + 1 :])
    return replace(zone, left=left, order=0, answer=turn)


def _with(state, z, zone):
    zones = tuple(zone if k == z else other for k, other in enumerate(state.zones))
    return replace(state, zones=zones)


def check(state):
    """Raise :class:`BrokenError` for a state that may not be."""
    for z, zone in enumerate(state.zones):
        if -1 in zone.left:
            raise BrokenError(f"zone {z}: two draws of turn {zone.left.index(-1)} have left")
        if max(zone.charged) > 1:
            raise BrokenError(
                f"zone {z}: turn {zone.charged.index(max(zone.charged))} charged twice"
            )
        rounds = [t for t in range(1, len(TURNS) + 1) if TURNS[t - 1] == "round"]
        if any(zone.left[t] and not zone.charged[t] for t in rounds):
            raise BrokenError(f"zone {z}: a release left that was not charged")
        if state.journal == len(TURNS) and any(zone.charged[t] != 1 for t in rounds):
            raise BrokenError(f"zone {z}: the run is over, its charges are {zone.charged}")


def explore(crashes=2, bugs=frozenset()):
    """Visit every state; return how many there are."""
    start = State()
    before = {start: None}
    queue, after, ends = deque([start]), {}, []
    while queue:
        state = queue.popleft()
        try:
            check(state)
        except BrokenError as error:
            raise BrokenError(f"{error} after {_path(before, state)}") from None
        if state.journal == len(TURNS):
            ends.append(state)
        after[state] = []
        for event, following in steps(state, crashes, bugs):
            after[state].append(following)
            if following not in before:
                before[following] = (state, event)
                queue.append(following)
    backwards = {}
    for state, following in after.items():
        for other in following:
            backwards.setdefault(other, []).append(state)
    alive, queue = set(ends), deque(ends)
    while queue:
        for state in backwards.get(queue.popleft(), ()):
            if state not in alive:
                alive.add(state)
                queue.append(state)
    for state in before:
        if state not in alive:
            raise BrokenError(f"no way to an end after {_path(before, state)}")
    return len(before)


def accepts(trace, crashes):
    """Return the first event of a trace that no run of the model has; None where there is none.

    ``pay``, ``solve`` and ``refuse`` are events of the model that an implementation does not show.
    """
    states = _closed({State()}, crashes)
    for number, event in enumerate(trace):
        states = _closed(
            {
                after
                for state in states
                for name, after in steps(state, crashes, frozenset())
                if _matches(name, event)
            },
            crashes,
        )
        if not states:
            return number, event
    return None


def _matches(name, event):
    if event[0] in ("charge", "draw", "keep", "crash"):
        return name[:2] == event[:2]
    return name == event


def _closed(states, crashes):
    """Return the states that are reached without an event that shows."""
    whole, queue = set(states), deque(states)
    while queue:
        for name, after in steps(queue.popleft(), crashes, frozenset()):
            if name[0] in ("pay", "solve", "refuse") and after not in whole:
                whole.add(after)
                queue.append(after)
    return whole


def _path(before, state):
    events = []
    while before[state] is not None:
        state, event = before[state]
        events.append(event)
    return events[::-1]

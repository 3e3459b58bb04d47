"""Where a coordinator meets those who speak for zones: seats, turns, and who is waited for.

A table knows no network. Whoever carries messages (:mod:`gridpriv.consensus.grpc_transport`)
brings a zone's first message to :meth:`Table.admit`, sends it what :meth:`Table.messages` yields
and brings each answer to :meth:`Table.take`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Condition
from typing import Any, Literal

import numpy as np

from gridpriv.consensus.journal import Journal
from gridpriv.consensus.messages import Exchange, Order, Phase, Reply, Stale
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
from gridpriv.core.errors import BudgetError, GridprivError

Late = Literal["wait", "last", "stop"]
Note = Callable[..., None]
NO_FLOATS = np.zeros(0)


class LateError(GridprivError):
    """A zone that was waited for in vain."""

    exit_code = 3


class ZoneError(GridprivError):
    """A zone that could not answer."""

    exit_code = 3


class RefusedError(GridprivError):
    """Somebody who may not take part, and why."""


class TakenError(RefusedError):
    """Somebody who may not take part while another speaks for the same zone."""


@dataclass(frozen=True, eq=False)
class Public:
    """What both sides of a run must agree on before its first release.

    Attributes
    ----------
    version : str
        Of gridpriv.
    topology : str
        A digest of the network, without demand, and of what zones share.
    sizes : mapping of str to int
        Every zone's number of shared variables, in the zones' order.
    """

    version: str
    run: str
    topology: str
    settings: Mapping[str, Any]
    sizes: Mapping[str, int]

    def check(self, hello: Hello) -> None:
        """Raise :class:`RefusedError` for somebody whose terms differ from these."""
        differs = self._difference(hello, read_settings(hello.settings))
        if differs is not None:
            raise RefusedError(f"zone {hello.zone!r} is refused: {differs}")

    def farewell(self, error: GridprivError | None) -> bytes:
        """Return what zones are told when the run is over."""
        told = Farewell(self.run, error is None, "" if error is None else str(error))
        return encode(told)

    def _difference(self, hello: Hello, settings: Mapping[str, Any]) -> str | None:
        """Return in what somebody's terms differ from these; None where they are the same."""
        if hello.version != self.version:
            return f"its gridpriv is {hello.version}, the coordinator's {self.version}"
        if hello.run != self.run:
            return f"its run is {hello.run!r}, the coordinator's {self.run!r}"
        if hello.topology != self.topology:
            return "its topology is not the coordinator's: networks or zone maps differ"
        names = dict.fromkeys([*self.settings, *settings])
        other = [n for n in names if self.settings.get(n) != settings.get(n)]
        if other:
            name = other[0]
            theirs, ours = settings.get(name), self.settings.get(name)
            return f"its setting {name} is {theirs!r}, the coordinator's {ours!r}"
        return None

    def check_size(self, told: Answer) -> None:
        """Raise :class:`MessageError` for an answer of another length than its zone's."""
        due = self.sizes[told.zone] if told.place.phase in ("rehearse", "round") else 0
        if len(told.reply.sent) != due:
            raise MessageError(f"an answer of {len(told.reply.sent)} numbers, not {due}")


@dataclass(eq=False)
class Seat:
    """A zone's place at the table.

    Attributes
    ----------
    taken, known : bool
        Whether somebody speaks for the zone now; and whether anybody did.
    missed : list
        Rounds that went on without the zone and that it has not been told of.
    reply : Reply or None
        To the turn that is being played.
    """

    position: int
    taken: bool = False
    known: bool = False
    missed: list[tuple[Place, bytes]] = field(default_factory=list)
    reply: Reply | None = None


class Table:
    """The coordinator's side of a run over a network.

    Parameters
    ----------
    patience : float
        Seconds that a turn's answers are waited for.
    late : {'wait', 'last', 'stop'}
        What becomes of a round that a zone is late in: wait and then stop, go on with what it
        sent last, or stop as soon as a zone is lost.
    note : callable
        Told of events, by name and public figures.
    """

    def __init__(
        self, public: Public, journal: Journal, patience: float, late: Late, note: Note
    ) -> None:
        self._public, self._journal = public, journal
        self._patience, self._late, self.note = patience, late, note
        self._changed = Condition()
        self._seats = {zone: Seat(n) for n, zone in enumerate(public.sizes)}
        self._sent = [NO_FLOATS] * len(self._seats)
        self._place = BEFORE
        self._orders: list[bytes] = []
        self._error: GridprivError | None = None
        self._farewell: bytes | None = None

    # ---- the coordinator's side

    def carry(self, phase: Phase) -> Exchange:
        """Return what carries orders of a kind to the zones and their replies back."""

        def exchange(orders: Sequence[Order]) -> list[Reply]:
            return self._play(phase, orders)

        return exchange

    def close(self, error: GridprivError | None) -> None:
        """Tell whoever is here that the run is over, and why."""
        with self._changed:
            self._farewell = self._public.farewell(error)
            self._changed.notify_all()
            # whoever has just answered is let go of before the network is
            self._changed.wait_for(lambda: not any(s.taken for s in self._seats.values()), 5.0)

    def start_from(self, sent: Sequence[np.ndarray[Any, Any]]) -> None:
        """Set what stands for a zone's last release before its first one; public."""
        self._sent = list(sent)

    def _play(self, phase: Phase, orders: Sequence[Order]) -> list[Reply]:
        place = Place(phase, orders[0].number)
        told = [encode(Asked(self._public.run, phase, order)) for order in orders]
        replies = self._journal.next(place, told)
        known = replies is not None
        if replies is None:
            replies = self._asked(place, told, orders)
            self._journal.write(told, replies)
        else:
            with self._changed:
                self._miss(orders, replies)
        self.note("debug", "turn", turn=str(place), known=known)
        found = [
            Stale(sent, {}) if reply is None else reply
            for reply, sent in zip(replies, self._sent, strict=True)
        ]
        if phase in ("rehearse", "round"):
            self._sent = [reply.sent for reply in found]
        return found

    def _asked(
        self, place: Place, told: list[bytes], orders: Sequence[Order]
    ) -> list[Reply | None]:
        """Give out a turn's orders; return the replies, None for a zone that goes without."""
        with self._changed:
            self._place, self._orders = place, told
            for seat in self._seats.values():
                seat.reply = None
            self._changed.notify_all()
            self._changed.wait_for(self._settled, self._patience)
            if self._error is not None:
                raise self._error
            absent = [zone for zone, seat in self._seats.items() if seat.reply is None]
            if absent and not (self._late == "last" and place.phase in ("round", "agreed")):
                raise LateError(f"{place}: the coordinator {self._vain(absent)}")
            for zone in absent:
                self.note("warning", "late", zone=zone, turn=str(place))
            self._orders = []
            replies = [seat.reply for seat in self._seats.values()]
            self._miss(orders, replies)
            return replies

    def _miss(self, orders: Sequence[Order], replies: Sequence[Reply | None]) -> None:
        """Remember for every zone the rounds that went on without it since its last answer."""
        for seat, reply, order in zip(self._seats.values(), replies, orders, strict=True):
            if reply is None:
                missed = Asked(self._public.run, "missed", order)
                seat.missed.append((Place("missed", order.number), encode(missed)))
            else:
                seat.missed.clear()

    def _settled(self) -> bool:
        """Return whether nobody is waited for any more."""
        seats = self._seats.values()
        if self._error is not None or all(seat.reply is not None for seat in seats):
            return True
        return self._late == "stop" and any(_lost(seat) for seat in seats)

    def _vain(self, absent: Sequence[str]) -> str:
        """Return who was waited for in vain."""
        lost = [zone for zone in absent if _lost(self._seats[zone])]
        at_once = self._late == "stop" and bool(lost)
        absent = lost if at_once else absent
        each = ", ".join(
            f"{zone} ({'no answer' if self._seats[zone].taken else 'not connected'})"
            for zone in absent
        )
        word = "zone" if len(absent) == 1 else "zones"
        if at_once:
            return f"stopped for {word} {each}"
        return f"waited {self._patience:g} s for {word} {each}"

    # ---- the zones' side

    def admit(self, content: bytes, certified: str | None) -> str:
        """Return the name of the zone that somebody may speak for from now on.

        Parameters
        ----------
        content : bytes
            What they sent first.
        certified : str or None
            The name in their certificate; None where there are no certificates.

        Raises
        ------
        MessageError
            For what is no message to begin with.
        Refused
            With the reason.
        """
        hello = decode(content)
        if not isinstance(hello, Hello):
            raise MessageError("a message before the first")
        if certified is not None and certified != hello.zone:
            raise RefusedError(
                f"a certificate of {certified!r} does not speak for zone {hello.zone!r}"
            )
        seat = self._seats.get(hello.zone)
        if seat is None:
            raise RefusedError(f"the terms have no zone {hello.zone!r}")
        self._public.check(hello)
        with self._changed:
            if self._farewell is None and seat.taken:
                raise TakenError(f"somebody speaks for zone {hello.zone!r} already")
            seat.taken = seat.known = True
            seat.missed = [
                (place, order) for place, order in seat.missed if place.number > _told(hello.last)
            ]
            self.note("info", "seated", zone=hello.zone, last=str(hello.last))
            self._changed.notify_all()
        return hello.zone

    def welcome(self) -> bytes:
        """Return what somebody who is admitted is told first."""
        return encode(Welcome(self._public.run))

    def messages(self, zone: str, here: Callable[[], bool]) -> Iterator[bytes]:
        """Yield what is to be sent to a zone, each after its last answer, while it is here."""
        seat = self._seats[zone]
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: not here() or self._farewell is not None or self._due(seat) is not None
                )
                over, due = self._farewell, self._due(seat)
            if not here():
                return
            if over is not None:
                yield over
                return
            if due is not None:
                yield due[1]

    def take(self, zone: str, content: bytes) -> None:
        """Take a zone's answer to what it was sent last.

        Raises
        ------
        MessageError
            For what is no answer, or not the zone's, or not to that; nothing is taken then.
        """
        told = decode(content)
        seat = self._seats[zone]
        if not isinstance(told, Answer | Failure):
            raise MessageError("a message that is no answer")
        if told.run != self._public.run or told.zone != zone:
            raise MessageError("an answer for another zone or run")
        with self._changed:
            due = self._due(seat)
            if isinstance(told, Failure):
                if due is None or told.place != due[0]:
                    raise MessageError(f"a failure in {told.place}, which is not due")
                self._fail(told)
            elif due is not None and told.place == due[0]:
                self._accept(seat, told)
            elif any(told.place == Place("round", missed.number) for missed, _ in seat.missed):
                # its releases were drawn: it tells them in its last answer, with all others
                self.note("warning", "too late", zone=zone, turn=str(told.place))
            else:
                raise MessageError(f"an answer to {told.place}, which is not due")
            self._changed.notify_all()

    def leave(self, zone: str) -> None:
        """Free a zone's seat."""
        with self._changed:
            self._seats[zone].taken = False
            self.note("info", "left", zone=zone)
            self._changed.notify_all()

    def _due(self, seat: Seat) -> tuple[Place, bytes] | None:
        """Return the turn and the order that a zone is to answer next, if there is one."""
        if seat.missed:
            return seat.missed[0]
        if not self._orders or seat.reply is not None:
            return None
        return self._place, self._orders[seat.position]

    def _accept(self, seat: Seat, told: Answer) -> None:
        self._public.check_size(told)
        if told.place.phase == "missed":
            seat.missed.pop(0)
        else:
            seat.reply = told.reply

    def _fail(self, told: Failure) -> None:
        sentence = f"{told.place}: zone {told.zone!r} cannot answer: {told.reason}"
        kind = BudgetError if told.reason == "budget" else ZoneError
        self._error = kind(sentence)
        self.note("error", "failed", zone=told.zone, turn=str(told.place), reason=told.reason)


def _lost(seat: Seat) -> bool:
    """Return whether somebody spoke for a zone, left, and is still to answer."""
    return seat.known and not seat.taken and seat.reply is None


def _told(last: Place) -> int:
    """Return the last round of which a zone knows how it ended."""
    return {"missed": last.number, "round": last.number - 1}.get(last.phase, 0)


def read_settings(text: str) -> Mapping[str, Any]:
    """Return the settings of a first message."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise MessageError("settings that are no JSON") from None
    if not isinstance(found, dict):
        raise MessageError("settings that are no JSON object")
    return found

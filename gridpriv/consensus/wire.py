"""Messages as bytes: what crosses a network between a coordinator and those who speak for zones.

::

    "gridpriv" | version, u16 | kind, u8 | body

Integers are little-endian; a text is its length (u32) and UTF-8; an array its length (u32) and
little-endian float64. Nothing is pickled, and nothing is evaluated: a message is read field by
field, every length is checked before it is believed, and what is left over is refused. So are
numbers that are not finite, beyond :data:`LARGEST`, or not positive where they must be.

A zone sends a :class:`Hello`, :class:`Answer` and :class:`Failure`, a coordinator a
:class:`Welcome`, :class:`Asked` and :class:`Farewell`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from gridpriv.consensus.messages import Order, Phase, Reply
from gridpriv.core.arrays import Floats
from gridpriv.core.errors import GridprivError
from gridpriv.privacy.mechanism import MECHANISMS
from gridpriv.privacy.release import Release
from gridpriv.privacy.sensitivity import Norm, Sensitivity

VERSION = 1
MAGIC = b"gridpriv"
HEAD = struct.Struct("<8sHB")
COUNT, REAL = struct.Struct("<I"), struct.Struct("<d")
LARGEST = 1e12  # of any number, in its unit
LONGEST_TEXT = 1 << 16  # bytes
MOST_RELEASES = 1 << 16  # of different kinds in one message
MOST_COUNT = (1 << 32) - 1

PHASES: tuple[Phase, ...] = get_args(Phase)
Reason = Literal["solver", "budget", "storage", "order", "defect"]
REASONS: tuple[Reason, ...] = get_args(Reason)
NORMS: tuple[Norm, ...] = (1, 2, "box")
NOISES = tuple(MECHANISMS)


class MessageError(GridprivError):
    """Bytes that are no message, or not the one that is due."""


@dataclass(frozen=True, order=True)
class Place:
    """A turn of a run: what it asks for, and which of its kind it is, from 1; public."""

    phase: Phase
    number: int

    def __str__(self) -> str:
        named = {"rehearse": "rehearsal round", "ready": "trial round", "missed": "missed round"}
        return f"{named.get(self.phase, self.phase)} {self.number}"


BEFORE = Place("none", 0)


@dataclass(frozen=True)
class Hello:
    """Who speaks for a zone, on which public terms, and which turn it answered last."""

    zone: str
    version: str
    run: str
    topology: str
    settings: str
    last: Place = BEFORE


@dataclass(frozen=True)
class Welcome:
    """That a zone may take part in a run."""

    run: str


@dataclass(frozen=True, eq=False)
class Asked:
    """An order, and the turn it is for; ``order.number`` is the turn's."""

    run: str
    phase: Phase
    order: Order

    @property
    def place(self) -> Place:
        """The turn that it is for."""
        return Place(self.phase, self.order.number)


@dataclass(frozen=True, eq=False)
class Answer:
    """A zone's reply to the order of a turn."""

    run: str
    zone: str
    place: Place
    reply: Reply


@dataclass(frozen=True)
class Failure:
    """That a zone cannot answer; why is one of a few public words, never a sentence."""

    run: str
    zone: str
    place: Place
    reason: Reason


@dataclass(frozen=True)
class Farewell:
    """That the run is over: finished, or stopped for a public reason."""

    run: str
    finished: bool
    reason: str


Message = Hello | Welcome | Asked | Answer | Failure | Farewell
KINDS: tuple[type[Message], ...] = (Hello, Welcome, Asked, Answer, Failure, Farewell)


def encode(message: Message) -> bytes:
    """Return a message as bytes."""
    return HEAD.pack(MAGIC, VERSION, KINDS.index(type(message))) + _body(message)


def decode(content: bytes) -> Message:
    """Return the message that some bytes are.

    Raises
    ------
    MessageError
        If they are none, or of another version, or hold what no message may.
    """
    if len(content) < HEAD.size:
        raise MessageError("a message that is cut short")
    magic, version, kind = HEAD.unpack_from(content)
    if magic != MAGIC or kind >= len(KINDS):
        raise MessageError("no message of gridpriv")
    if version != VERSION:
        raise MessageError(f"a message of version {version}; this is version {VERSION}")
    body = _Reader(content, HEAD.size)
    message = READ[kind](body)
    body.end()
    return message


def encode_releases(releases: Mapping[Release, int]) -> bytes:
    """Return what was drawn, and how often, as bytes."""
    kinds = {kind: number for number, kind in enumerate(MECHANISMS.values())}
    parts = [COUNT.pack(len(releases))]
    for release, count in releases.items():
        distance = release.sensitivity
        parts += [
            bytes([kinds[type(release.mechanism)], NORMS.index(distance.norm)]),
            REAL.pack(release.mechanism.scale), REAL.pack(distance.value),
            REAL.pack(release.assumed), _text(distance.provenance), COUNT.pack(count),
        ]  # fmt: skip
    return b"".join(parts)


def decode_releases(content: bytes) -> dict[Release, int]:
    """Return what :func:`encode_releases` was given."""
    body = _Reader(content, 0)
    found = body.releases()
    body.end()
    return found


def _body(message: Message) -> bytes:
    match message:
        case Hello(zone, version, run, topology, settings, last):
            return b"".join(map(_text, (zone, version, run, topology, settings))) + _place(last)
        case Welcome(run):
            return _text(run)
        case Asked(run, _, order):
            return (
                _text(run) + _place(message.place) + REAL.pack(order.step)
                + _floats(order.w) + _floats(order.penalty)
            )  # fmt: skip
        case Answer(run, zone, place, reply):
            told = _floats(reply.sent) + encode_releases(reply.releases)
            return _text(run) + _text(zone) + _place(place) + told
        case Failure(run, zone, place, reason):
            return _text(run) + _text(zone) + _place(place) + bytes([REASONS.index(reason)])
        case Farewell(run, finished, reason):
            return _text(run) + bytes([finished]) + _text(reason)


def _text(text: str) -> bytes:
    content = text.encode("utf-8")
    return COUNT.pack(len(content)) + content


def _floats(values: Floats) -> bytes:
    return COUNT.pack(values.size) + np.ascontiguousarray(values, dtype="<f8").tobytes()


def _place(place: Place) -> bytes:
    return bytes([PHASES.index(place.phase)]) + COUNT.pack(place.number)


class _Reader:
    """Fields of a message, one after the other."""

    def __init__(self, content: bytes, at: int) -> None:
        self._content, self._at = content, at

    def take(self, size: int) -> bytes:
        """Return the next bytes."""
        self._at += size
        if self._at > len(self._content):
            raise MessageError("a message that is cut short")
        return self._content[self._at - size : self._at]

    def end(self) -> None:
        """Refuse what is left over."""
        if self._at != len(self._content):
            raise MessageError("a message with more in it than its fields")

    def count(self, most: int = MOST_COUNT) -> int:
        """Return a whole number."""
        (value,) = COUNT.unpack(self.take(COUNT.size))
        if value > most:
            raise MessageError(f"a number of {value}, more than {most}")
        return int(value)

    def one_of(self, choices: int) -> int:
        """Return a position among some choices."""
        (value,) = self.take(1)
        if value >= choices:
            raise MessageError("a choice that nobody has")
        return value

    def text(self) -> str:
        """Return a printable text."""
        content = self.take(self.count(LONGEST_TEXT))
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError:
            raise MessageError("a text that is no UTF-8") from None
        if not text.isprintable():
            raise MessageError("a text that cannot be printed")
        return text

    def real(self) -> float:
        """Return a finite number."""
        (value,) = REAL.unpack(self.take(REAL.size))
        if not abs(value) <= LARGEST:  # NaN too
            raise MessageError("a number that is not finite, or too large")
        return float(value)

    def positive(self) -> float:
        """Return a positive number."""
        value = self.real()
        if value <= 0.0:
            raise MessageError("a number that must be positive and is not")
        return value

    def floats(self) -> Floats:
        """Return an array of finite numbers."""
        values = np.frombuffer(self.take(8 * self.count()), dtype="<f8").astype(float)
        if not (np.abs(values) <= LARGEST).all():
            raise MessageError("an array with a number that is not finite, or too large")
        return values

    def place(self) -> Place:
        """Return a turn."""
        return Place(PHASES[self.one_of(len(PHASES))], self.count())

    def releases(self) -> dict[Release, int]:
        """Return releases and how often each was drawn."""
        found: dict[Release, int] = {}
        for _ in range(self.count(MOST_RELEASES)):
            kind, norm = NOISES[self.one_of(len(NOISES))], NORMS[self.one_of(len(NORMS))]
            scale, distance, assumed = self.positive(), self.positive(), self.positive()
            provenance, count = self.text(), self.count()
            mechanism = MECHANISMS[kind](scale)
            if mechanism.norm != norm or not count:
                raise MessageError("a release that no mechanism makes")
            release = Release(mechanism, Sensitivity(distance, norm, provenance), assumed)
            if release in found:
                raise MessageError("a release that is told twice")
            found[release] = count
        return found


def _hello(body: _Reader) -> Hello:
    zone, version, run, topology, settings = (body.text() for _ in range(5))
    return Hello(zone, version, run, topology, settings, body.place())


def _welcome(body: _Reader) -> Welcome:
    return Welcome(body.text())


def _asked(body: _Reader) -> Asked:
    run, place, step = body.text(), body.place(), body.positive()
    w, penalty = body.floats(), body.floats()
    if len(w) != len(penalty) or not (penalty > 0.0).all():
        raise MessageError("an order whose penalties are not positive, one a variable")
    return Asked(run, place.phase, Order(place.number, w, penalty, step))


def _answer(body: _Reader) -> Answer:
    run, zone, place = body.text(), body.text(), body.place()
    return Answer(run, zone, place, Reply(body.floats(), body.releases()))


def _failure(body: _Reader) -> Failure:
    run, zone, place = body.text(), body.text(), body.place()
    return Failure(run, zone, place, REASONS[body.one_of(len(REASONS))])


def _farewell(body: _Reader) -> Farewell:
    return Farewell(body.text(), bool(body.one_of(2)), body.text())


READ = (_hello, _welcome, _asked, _answer, _failure, _farewell)

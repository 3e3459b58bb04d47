"""Messages between a coordinator and zones, as bytes.

::

    "gridpriv" | version, u16 | kind, u8 | fields

A field is laid out as its type is declared, one of a dataclass after the other. Integers are
little-endian; a text is its length (u32) and UTF-8; an array its length (u32) and little-endian
float64; a choice its place among those declared (u8). Nothing is pickled, and nothing is
evaluated: every length is checked before it is believed, and what is left over is refused. So are
numbers that are not finite, beyond :data:`LARGEST`, or not positive where they must be.

A zone sends a :class:`Hello`, :class:`Answer` and :class:`Failure`, a coordinator a
:class:`Welcome`, :class:`Request`, :class:`Shutdown` and :class:`Refusal`. The last field of
Request, Answer, Failure and Shutdown is its sender's signature of everything before it
(:mod:`gridpriv.consensus.signatures`).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np

from gridpriv.consensus.messages import Order, Phase, Reply
from gridpriv.core.errors import GridprivError
from gridpriv.privacy.mechanism import MECHANISMS, Mechanism, Staircase, make_mechanism
from gridpriv.privacy.release import Release

VERSION = 5
MAGIC = b"gridpriv"
HEAD = struct.Struct("<8sHB")
COUNT, REAL = struct.Struct("<I"), struct.Struct("<d")
LARGEST = 1e12  # of any number, in its unit
LONGEST_TEXT = 1 << 16  # bytes
LONGEST_SIGNATURE = 1 << 10  # bytes; an RSA key of 4096 bits makes 512
MOST_RELEASES = 1 << 16  # of different kinds in one message
MOST_COUNT = (1 << 32) - 1

Reason = Literal["solver", "budget", "storage", "order", "defect"]
NOISES = tuple(MECHANISMS.values())


class MessageError(GridprivError):
    """Bytes that are no message, or not the one that is due."""


@dataclass(frozen=True, order=True)
class TurnId:
    """A turn of a run: its phase, and its number among those of that phase, from 1; public."""

    phase: Phase
    number: int

    def __str__(self) -> str:
        named = {"warm_start": "warm-start round", "ready": "trial round", "missed": "missed round"}
        return f"{named.get(self.phase, self.phase)} {self.number}"

    @property
    def rank(self) -> tuple[int, int]:
        """Where the turn is in a run: a later turn has a larger rank; a missed round is a round."""
        return RANKS[self.phase], self.number


RANKS: dict[Phase, int] = {
    "none": 0,
    "warm_start": 1,
    "ready": 2,
    "round": 3,
    "missed": 3,
    "agreed": 4,
}
BEFORE = TurnId("none", 0)


@dataclass(frozen=True)
class Hello:
    """A zone's first message: its name, its agreement, and the last turn that it answered."""

    zone: str
    version: str
    run: str
    topology: str
    settings: str
    last: TurnId = BEFORE


@dataclass(frozen=True)
class Welcome:
    """The coordinator's answer to a zone that may take part; its certificate is PEM, or empty."""

    run: str
    certificate: bytes = b""


@dataclass(frozen=True, eq=False)
class Request:
    """An order for one zone, and its turn; ``order.number`` is the turn's."""

    run: str
    zone: str
    phase: Phase
    order: Order
    signature: bytes = b""

    @property
    def turn(self) -> TurnId:
        """The turn that the order is for."""
        return TurnId(self.phase, self.order.number)


@dataclass(frozen=True, eq=False)
class Answer:
    """A zone's reply to a request, and the SHA-256 of that request (without its signature)."""

    run: str
    zone: str
    turn: TurnId
    reply: Reply
    request: bytes = b""
    signature: bytes = b""


@dataclass(frozen=True)
class Failure:
    """The statement of a zone that it cannot answer; the reason is one of a few public words."""

    run: str
    zone: str
    turn: TurnId
    reason: Reason
    signature: bytes = b""


@dataclass(frozen=True)
class Shutdown:
    """The end of a run: finished, or stopped for a public reason."""

    run: str
    finished: bool
    reason: str
    signature: bytes = b""


@dataclass(frozen=True)
class Refusal:
    """The coordinator's refusal of a caller; ``taken`` where another process has its place."""

    reason: str
    taken: bool


Message = Hello | Welcome | Request | Answer | Failure | Shutdown | Refusal
KINDS: tuple[type[Message], ...] = (Hello, Welcome, Request, Answer, Failure, Shutdown, Refusal)


def encode(message: Message) -> bytes:
    """Return a message as bytes."""
    kind = KINDS.index(type(message))
    return HEAD.pack(MAGIC, VERSION, kind) + packed(message, KINDS[kind])


def decode(content: bytes) -> Message:
    """Return the message that some bytes hold.

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
    found: Message = unpacked(content[HEAD.size :], KINDS[kind])
    return found


def packed(value: Any, kind: Any) -> bytes:
    """Return a value of a declared type as bytes."""
    origin, parts = get_origin(kind), get_args(kind)
    if kind is Mechanism:
        step = REAL.pack(value.step) if isinstance(value, Staircase) else b""
        return bytes([NOISES.index(type(value))]) + REAL.pack(value.scale) + step
    if hasattr(kind, "__dataclass_fields__"):
        return b"".join(packed(getattr(value, name), of) for name, of in _fields(kind))
    if origin is Literal:
        return bytes([parts.index(value)])
    if origin is np.ndarray:
        return COUNT.pack(value.size) + np.ascontiguousarray(value, dtype="<f8").tobytes()
    if origin is UnionType:
        return b"\0" if value is None else b"\1" + packed(value, parts[0])
    if origin is tuple and parts[-1] is not Ellipsis:
        return b"".join(packed(one, of) for one, of in zip(value, parts, strict=True))
    if origin is tuple:
        return COUNT.pack(len(value)) + b"".join(packed(one, parts[0]) for one in value)
    if origin is Mapping:
        pairs = tuple(value.items())
        return packed(pairs, tuple[tuple[parts], ...])  # type: ignore[valid-type]
    if kind in (str, bytes):
        content: bytes = value.encode("utf-8") if kind is str else value
        return COUNT.pack(len(content)) + content
    if kind is bool:
        return bytes([value])
    number: struct.Struct = COUNT if kind is int else REAL
    return number.pack(value)


def unpacked(content: bytes, kind: Any, most: float = LARGEST) -> Any:
    """Return the value that :func:`packed` was given; numbers are at most ``most``, or anything."""
    body = _WireReader(content, most)
    found = body.read(kind)
    body.end()
    return found


@cache
def _fields(kind: Any) -> tuple[tuple[str, Any], ...]:
    return tuple(get_type_hints(kind).items())


class _WireReader:
    """Values one after the other.

    Parameters
    ----------
    most : float
        Magnitude of the largest number; infinite where any float may stand, NaN too.
    """

    def __init__(self, content: bytes, most: float) -> None:
        self._content, self._at, self._most = content, 0, most

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

    def read(self, kind: Any) -> Any:
        """Return a value of a declared type."""
        origin, parts = get_origin(kind), get_args(kind)
        if kind is Mechanism:
            noise = NOISES[self.one_of(len(NOISES))]
            scale = _positive(self.read(float))
            step = _positive(self.read(float)) if issubclass(noise, Staircase) else scale
            return make_mechanism(noise, scale, step)
        if hasattr(kind, "__dataclass_fields__"):
            return self.whole(kind, [self.read(of) for _, of in _fields(kind)])
        if origin is Literal:
            return parts[self.one_of(len(parts))]
        if origin is np.ndarray:
            return self.within(np.frombuffer(self.take(8 * self.count()), "<f8").astype(float))
        if origin is UnionType:
            return self.read(parts[0]) if self.one_of(2) else None
        if origin is tuple and parts[-1] is not Ellipsis:
            return tuple(self.read(of) for of in parts)
        if origin is tuple:
            return tuple(self.read(parts[0]) for _ in range(self.count()))
        if origin is Mapping:
            pairs = [
                (self.read(parts[0]), self.read(parts[1])) for _ in range(self.count(MOST_RELEASES))
            ]
            if len(dict(pairs)) < len(pairs):
                raise MessageError("a release that is listed twice")
            return dict(pairs)
        if kind is float:
            return self.within(REAL.unpack(self.take(REAL.size))[0])
        if kind is bool:
            return bool(self.one_of(2))
        if kind is bytes:
            return self.take(self.count())
        return self.text() if kind is str else self.count()

    def whole(self, kind: Any, fields: list[Any]) -> Any:
        """Return a dataclass of its fields, if they go together."""
        try:
            found = kind(*fields)
        except ValueError as error:
            raise MessageError(str(error)) from None
        match found:
            case Order(_, w, penalty, step):
                if len(w) != len(penalty) or not (penalty > 0.0).all():
                    raise MessageError("an order whose penalties are not positive, one a variable")
                _positive(step)
            case Release(mechanism, sensitivity, assumed):
                _positive(min(sensitivity.value, assumed))
                if mechanism.norm != sensitivity.norm:
                    raise MessageError("a release that no mechanism makes")
            case Reply(_, releases) if not all(releases.values()):
                raise MessageError("a release that was never drawn")
        return found

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

    def within(self, values: Any) -> Any:
        """Return numbers of the range that is allowed."""
        if math.isfinite(self._most) and not np.all(np.abs(values) <= self._most):  # NaN too
            raise MessageError("a number that is not finite, or too large")
        return values


def _positive(value: float) -> float:
    if value <= 0.0:
        raise MessageError("a number that must be positive and is not")
    return value

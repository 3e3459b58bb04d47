"""Messages between a coordinator and its agents, as data and as bytes.

::

    "gridpriv" | version, u16 | kind, u8 | fields

Fields are in the order of their declaration, in the layout of their types. Integers are
little-endian; a text is its length (u32) and UTF-8; an array its length (u32) and little-endian
float64; a choice its position among those declared (u8). Nothing is pickled or evaluated. Every
length is checked before use. Extra bytes are refused, and so are numbers that are not finite,
beyond :data:`LARGEST`, or not positive where they must be.

A zone sends a :class:`Hello`, :class:`Answer` and :class:`Failure`, a coordinator a
:class:`Welcome`, :class:`Request`, :class:`Shutdown` and :class:`Refusal`. The last field of
Request, Answer, Failure and Shutdown is its sender's signature of everything before it
(:mod:`gridpriv.consensus.credentials`).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Protocol, get_args, get_origin, get_type_hints

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import GridprivError
from gridpriv.core.files import DamagedError
from gridpriv.privacy.mechanism import MECHANISMS, Mechanism, Staircase, make_mechanism
from gridpriv.privacy.release import Release


@dataclass(frozen=True, eq=False)
class Order:
    """A coordinator's order to one agent for one round; all of it is public.

    Attributes
    ----------
    number : int
        t, from 1.
    w, penalty : (shared,)
        Global variables of the agent's coupling coordinates, and rho of each.
    step : float
        eta^t.
    """

    number: int
    w: Floats
    penalty: Floats
    step: float


@dataclass(frozen=True, eq=False)
class Reply:
    """An agent's reply: only released values and their releases.

    Attributes
    ----------
    sent : (shared,)
        Coupling variables in the average of the round's iterates.
    releases : mapping of Release to int
        Noise drawn in this round, for the accountant.
    """

    sent: Floats
    releases: Mapping[Release, int]


@dataclass(frozen=True, eq=False)
class Stale(Reply):
    """The last values of an agent without an answer in this round."""


Phase = Literal["none", "ready", "warm_start", "round", "missed", "agreed"]
"""Task of an order: a trial round or a warm-start round on public data, a round, a note of a round
without the zone, or the final values after the last round."""


class Exchange(Protocol):
    """Carries a round's orders to the agents and their replies back, in the agents' order.

    A coordinator has no other access to agents, so it cannot request their values before noise.
    """

    def __call__(self, orders: Sequence[Order]) -> Sequence[Reply]:
        """Return every agent's reply."""


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
    """Bytes that are not a message, or not the expected one."""


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
        """Rank of the turn in a run, increasing; a missed round counts as a round."""
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
    """A zone's first message: its name, its agreement, and its last answered turn."""

    zone: str
    version: str
    run: str
    topology: str
    settings: str
    last: TurnId = BEFORE


@dataclass(frozen=True)
class Welcome:
    """The coordinator's answer to an admitted zone; its certificate is PEM, or empty."""

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
        """Turn of the order."""
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
    """The coordinator's refusal of a client; ``taken`` if another process acts for its zone."""

    reason: str
    taken: bool


Message = Hello | Welcome | Request | Answer | Failure | Shutdown | Refusal
KINDS: tuple[type[Message], ...] = (Hello, Welcome, Request, Answer, Failure, Shutdown, Refusal)


def encode(message: Message) -> bytes:
    """Return a message as bytes."""
    kind = KINDS.index(type(message))
    return HEAD.pack(MAGIC, VERSION, kind) + packed(message, KINDS[kind])


def decode(content: bytes) -> Message:
    """Return the message of some bytes.

    Raises
    ------
    MessageError
        If they are not a message, of another version, or have values that no message may have.
    """
    if len(content) < HEAD.size:
        raise MessageError("a message that is cut short")
    magic, version, kind = HEAD.unpack_from(content)
    if magic != MAGIC or kind >= len(KINDS):
        raise MessageError("no message of gridpriv")
    if version != VERSION:
        raise MessageError(f"a message of version {version}; this is version {VERSION}")
    result: Message = unpacked(content[HEAD.size :], KINDS[kind])
    return result


def packed(value: Any, kind: Any) -> bytes:
    """Return a value of a declared type as bytes."""
    return _layout(kind)[0](value)


def unpacked(content: bytes, kind: Any, most: float = LARGEST) -> Any:
    """Return the value of bytes of :func:`packed`; numbers are at most ``most``."""
    body = _WireReader(content, most)
    value = _layout(kind)[1](body)
    body.end()
    return value


Write = Callable[[Any], bytes]
Read = Callable[["_WireReader"], Any]


def unpacked_record(content: bytes, kind: Any, path: Path, most: float = LARGEST) -> Any:
    """Return the value of a record of a file; raise :class:`DamagedError` if it is invalid."""
    try:
        return unpacked(content, kind, most)
    except MessageError as error:
        raise DamagedError(f"{path} is damaged: {error}") from error


@cache
def _layout(kind: Any) -> tuple[Write, Read]:
    """Return the functions that write and read values of a declared type."""
    origin, parts = get_origin(kind), get_args(kind)
    if hasattr(kind, "__dataclass_fields__"):
        return _laid_out(kind)
    if origin is Literal:
        return lambda value: bytes([parts.index(value)]), lambda body: body.choice(parts)
    if origin is UnionType:
        write, read = _layout(parts[0])
        return (
            lambda value: b"\0" if value is None else b"\1" + write(value),
            lambda body: read(body) if body.choice((False, True)) else None,
        )
    if origin is tuple and parts[-1] is Ellipsis:
        write, read = _layout(parts[0])
        return (
            lambda value: COUNT.pack(len(value)) + b"".join(map(write, value)),
            lambda body: tuple([read(body) for _ in range(body.count())]),
        )
    if origin is tuple:
        each = [_layout(of) for of in parts]
        return (
            lambda value: b"".join(
                [write(element) for (write, _), element in zip(each, value, strict=True)]
            ),
            lambda body: tuple([read(body) for _, read in each]),
        )
    if origin is Mapping:
        write, _ = _layout(tuple[tuple[parts], ...])  # type: ignore[valid-type]
        _, read = _layout(tuple[parts])  # type: ignore[valid-type]
        return lambda value: write(tuple(value.items())), lambda body: body.mapping(read)
    return PLAIN[origin or kind]


def _laid_out(kind: Any) -> tuple[Write, Read]:
    """Return the functions of a dataclass: its fields in order."""
    fields = [(attrgetter(name), *_layout(of)) for name, of in get_type_hints(kind).items()]
    return (
        lambda value: b"".join([write(get(value)) for get, write, _ in fields]),
        lambda body: body.whole(kind, [read(body) for *_, read in fields]),
    )


def _counted(content: bytes) -> bytes:
    return COUNT.pack(len(content)) + content


def _numbers(values: Floats) -> bytes:
    return COUNT.pack(values.size) + np.ascontiguousarray(values, dtype="<f8").tobytes()


def _noise(mechanism: Mechanism) -> bytes:
    step = REAL.pack(mechanism.step) if isinstance(mechanism, Staircase) else b""
    return bytes([NOISES.index(type(mechanism))]) + REAL.pack(mechanism.scale) + step


class _WireReader:
    """Reader of consecutive values.

    Parameters
    ----------
    most : float
        Magnitude of the largest number; infinite if any float is allowed, also NaN.
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
        """Refuse extra bytes."""
        if self._at != len(self._content):
            raise MessageError("a message with more in it than its fields")

    def number(self) -> float:
        """Return a number of the allowed range."""
        value: float = REAL.unpack(self.take(REAL.size))[0]
        if math.isfinite(self._most) and not abs(value) <= self._most:  # NaN too
            raise MessageError("a number that is not finite, or too large")
        return value

    def array(self) -> Floats:
        """Return numbers of the allowed range."""
        values = np.frombuffer(self.take(8 * self.count()), "<f8").astype(float)
        if math.isfinite(self._most) and not np.all(np.abs(values) <= self._most):  # NaN too
            raise MessageError("a number that is not finite, or too large")
        return values

    def mechanism(self) -> Mechanism:
        """Return noise of a positive scale."""
        noise = self.choice(NOISES)
        scale = _positive(self.number())
        step = _positive(self.number()) if issubclass(noise, Staircase) else scale
        return make_mechanism(noise, scale, step)

    def mapping(self, item: Read) -> dict[Any, Any]:
        """Return a mapping of pairs with different keys."""
        pairs = [item(self) for _ in range(self.count(MOST_RELEASES))]
        if len(dict(pairs)) < len(pairs):
            raise MessageError("a release that is listed twice")
        return dict(pairs)

    def whole(self, kind: Any, fields: list[Any]) -> Any:
        """Return a dataclass of its fields; refuse an invalid combination."""
        try:
            result = kind(*fields)
        except ValueError as error:
            raise MessageError(str(error)) from None
        match result:
            case Order(_, w, penalty, step):
                if len(w) != len(penalty) or not (penalty > 0.0).all():
                    raise MessageError("an order whose penalties are not positive, one a variable")
                if step < 1.0 / LARGEST:  # its inverse is a curvature
                    raise MessageError(f"an order whose step is below {1.0 / LARGEST:g}")
            case Release(mechanism, sensitivity, assumed):
                _positive(min(sensitivity.value, assumed))
                if mechanism.norm != sensitivity.norm:
                    raise MessageError("a release that no mechanism makes")
            case Reply(_, releases) if not all(releases.values()):
                raise MessageError("a release that was never drawn")
        return result

    def count(self, most: int = MOST_COUNT) -> int:
        """Return a whole number."""
        (value,) = COUNT.unpack(self.take(COUNT.size))
        if value > most:
            raise MessageError(f"a number of {value}, more than {most}")
        return int(value)

    def choice(self, choices: Sequence[Any]) -> Any:
        """Return a choice, by its position."""
        (place,) = self.take(1)
        if place >= len(choices):
            raise MessageError("an unknown choice")
        return choices[place]

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


def _positive(value: float) -> float:
    if value <= 0.0:
        raise MessageError("a number that must be positive and is not")
    return value


PLAIN: dict[Any, tuple[Write, Read]] = {
    Mechanism: (_noise, _WireReader.mechanism),
    np.ndarray: (_numbers, _WireReader.array),
    str: (lambda value: _counted(value.encode("utf-8")), _WireReader.text),
    bytes: (_counted, lambda body: body.take(body.count())),
    bool: (lambda value: bytes([value]), lambda body: body.choice((False, True))),
    int: (COUNT.pack, _WireReader.count),
    float: (REAL.pack, _WireReader.number),
}

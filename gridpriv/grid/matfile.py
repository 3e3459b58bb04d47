"""Variables of a MATLAB 5 file (``save -v6`` or ``-v7``), read without trusting any of its bytes.

scipy's reader is compiled code that a damaged file can crash together with the interpreter; here
every length is checked against what is there (format: MathWorks, MAT-File Level 5 File Format).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

HEADER = 128
UNPACKED_FLOOR, UNPACKED_RATE = 4 * 2**20, 32
"""Bytes that compressed variables may unpack to: a floor, and so many per byte of the file."""
NUMBERS_FLOOR, NUMBERS_RATE = 100_000, 2
"""Numbers that a file may hold. MATPOWER's cases, compressed, have up to 1.9 per byte."""
MOST_FIELDS, MOST_DIMENSIONS = 500, 32
MATRIX, COMPRESSED = 14, 15
STRUCT, CHAR = 2, 4
NUMERIC = range(6, 16)
NUMBERS = {
    1: "i1",
    2: "u1",
    3: "i2",
    4: "u2",
    5: "i4",
    6: "u4",
    7: "f4",
    9: "f8",
    12: "i8",
    13: "u8",
}
TEXTS = {1: "latin-1", 2: "latin-1", 4: "utf-16", 16: "utf-8", 17: "utf-16", 18: "utf-32"}


class MatFileError(ValueError):
    """Bytes that are no MATLAB 5 file, or unpack to more than a file of their size may."""


@dataclass(frozen=True)
class Unread:
    """A value that no case needs (cells, structs in structs, tables of text): its rows alone."""

    rows: int


def read_variables(content: bytes) -> dict[str, Any]:
    """Return the variables of a file by name.

    Numbers are arrays of the shape that MATLAB shows, a line of text is a str, a struct of size 1
    a dict of these, anything else :class:`Unread`.

    Raises
    ------
    MatFileError
        If the bytes are no such file, or it unpacks to more than its size allows.
    """
    if len(content) < HEADER:
        raise MatFileError(f"{len(content)} bytes; the header alone has {HEADER}")
    order = {b"IM": "<", b"MI": ">"}.get(content[126:128])
    if order is None or content[124:126] not in (b"\x00\x01", b"\x01\x00"):
        raise MatFileError("its header is not that of a MATLAB 5 file")
    variables: dict[str, Any] = {}
    unpacked, numbers = 0, 0
    for element in _elements(memoryview(content)[HEADER:], order):
        kind, data = element
        if kind == COMPRESSED:
            most = UNPACKED_FLOOR + UNPACKED_RATE * len(content)
            whole = _unpacked(data, most - unpacked, most)
            unpacked += len(whole)
            kind, data = next(_elements(memoryview(whole), order), (0, memoryview(b"")))
        if kind != MATRIX:
            raise MatFileError(f"an element of type {kind} where a variable should stand")
        name, value = _matrix(data, order, nested=False)
        numbers += _count(value)
        if numbers > NUMBERS_FLOOR + NUMBERS_RATE * len(content):
            raise MatFileError(
                f"it unpacks to {numbers} numbers, more than {NUMBERS_RATE} per byte of the file"
            )
        variables[name] = value
    return variables


def _unpacked(data: memoryview, room: int, most: int) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        whole = unpacker.decompress(data, room + 1)
    except zlib.error as error:
        raise MatFileError(f"a compressed variable is damaged: {error}") from error
    if len(whole) > room:
        raise MatFileError(f"it unpacks to more than {most} bytes")
    if not unpacker.eof:
        raise MatFileError("a compressed variable ends too early")
    return whole


def _elements(data: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """Yield (type, bytes) of the data elements one after the other."""
    at = 0
    while at < len(data):
        if len(data) - at < 8:
            raise MatFileError("it ends within a data element")
        kind, length = struct.unpack_from(order + "II", data, at)
        if kind >> 16:  # small format: type and length share four bytes, the data are the next
            kind, length, start, step = kind & 0xFFFF, kind >> 16, at + 4, 8
            if length > 4:
                raise MatFileError(f"a small data element of {length} bytes")
        else:
            start = at + 8
            step = 8 + (length if kind == COMPRESSED else -(-length // 8) * 8)
        if start + length > len(data):
            raise MatFileError("it ends within a data element")
        yield kind, data[start : start + length]
        at += step


@dataclass
class _Parts:
    """The data elements of a matrix, taken one by one."""

    parts: Iterator[tuple[int, memoryview]]
    order: str

    def take(self) -> tuple[int, memoryview]:
        element = next(self.parts, None)
        if element is None:
            raise MatFileError("a matrix lacks some of its parts")
        return element

    def numbers(self) -> np.ndarray[Any, Any]:
        kind, data = self.take()
        if kind not in NUMBERS:
            raise MatFileError(f"numbers of type {kind}")
        dtype = np.dtype(self.order + NUMBERS[kind])
        if len(data) % dtype.itemsize:
            raise MatFileError(f"{len(data)} bytes of numbers of {dtype.itemsize} bytes each")
        return np.frombuffer(data, dtype)

    def text(self) -> str:
        kind, data = self.take()
        if kind not in TEXTS:
            raise MatFileError(f"text of type {kind}")
        wide = TEXTS[kind]
        if wide in ("utf-16", "utf-32"):
            wide += "-le" if self.order == "<" else "-be"
        return bytes(data).decode(wide, errors="replace")


def _matrix(data: memoryview, order: str, nested: bool) -> tuple[str, Any]:
    """Return name and value of a matrix."""
    if not data:  # an empty field
        return "", np.zeros((0, 0))
    parts = _Parts(_elements(data, order), order)
    flags = parts.numbers()
    shape = [int(n) for n in parts.numbers()[: MOST_DIMENSIONS + 1]]
    name = parts.text()
    if len(flags) < 1 or not 2 <= len(shape) <= MOST_DIMENSIONS or min(shape) < 0:
        raise MatFileError(f"variable {name[:80]!r} has no class or dimensions")
    kind, is_complex = int(flags[0]) & 0xFF, bool(int(flags[0]) & 0x800)
    count = prod(shape)
    if count > len(data):
        raise MatFileError(f"variable {name[:80]!r}: {len(data)} bytes hold no {count} entries")
    if kind in NUMERIC:
        return name, _numbers(parts, shape, is_complex, name)
    if kind == CHAR and shape[0] <= 1:
        return name, parts.text()
    if kind == STRUCT and count == 1 and not nested:
        return name, _struct(parts)
    return name, Unread(shape[0])


def _count(value: Any) -> int:
    if isinstance(value, dict):
        return sum(_count(part) for part in value.values())
    return value.size if isinstance(value, np.ndarray) else 0


def _numbers(parts: _Parts, shape: list[int], is_complex: bool, name: str) -> Any:
    values = parts.numbers()
    if is_complex:
        imaginary = parts.numbers()
        if len(imaginary) != len(values):
            raise MatFileError(f"variable {name[:80]!r}: real and imaginary parts differ in length")
        values = values + 1j * imaginary
    if len(values) != prod(shape):
        raise MatFileError(
            f"variable {name[:80]!r}: {len(values)} numbers for {prod(shape)} entries"
        )
    return values.astype(values.dtype.newbyteorder("=")).reshape(shape, order="F")


def _struct(parts: _Parts) -> dict[str, Any]:
    length = parts.numbers()
    _, data = parts.take()
    wide = int(length[0]) if len(length) == 1 else 0
    if wide < 1 or len(data) % wide or len(data) // wide > MOST_FIELDS:
        raise MatFileError(f"a struct without field names, or with more than {MOST_FIELDS}")
    names = [
        bytes(data[at : at + wide]).split(b"\0")[0].decode("latin-1")
        for at in range(0, len(data), wide)
    ]
    return {name: _field(parts) for name in names}


def _field(parts: _Parts) -> Any:
    kind, data = parts.take()
    if kind != MATRIX:
        raise MatFileError(f"an element of type {kind} where a matrix should stand")
    return _matrix(data, parts.order, nested=True)[1]

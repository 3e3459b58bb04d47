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
LARGEST = 2**30
"""Bytes that a compressed variable may unpack to."""
DEEPEST = 12
MATRIX, COMPRESSED = 14, 15
CELL, STRUCT, CHAR = 1, 2, 4
NUMERIC = range(6, 16)
NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8",
           13: "u8"}  # fmt: skip
TEXTS = {1: "latin-1", 2: "latin-1", 4: "utf-16", 16: "utf-8", 17: "utf-16", 18: "utf-32"}


class MatFileError(ValueError):
    """Bytes that are no MATLAB 5 file."""


def read_variables(content: bytes) -> dict[str, Any]:
    """Return the variables of a file by name.

    Numbers are arrays of the shape that MATLAB shows, a text is a str, a struct of size 1 a dict,
    larger structs and cells are lists; what is none of these (objects, functions, sparse
    matrices) is None.

    Raises
    ------
    MatFileError
        If the bytes are no such file.
    """
    if len(content) < HEADER:
        raise MatFileError(f"{len(content)} bytes; the header alone has {HEADER}")
    order = {b"IM": "<", b"MI": ">"}.get(content[126:128])
    if order is None or content[124:126] not in (b"\x00\x01", b"\x01\x00"):
        raise MatFileError("its header is not that of a MATLAB 5 file")
    found: dict[str, Any] = {}
    for element in _elements(content[HEADER:], order):
        packed = element[0] == COMPRESSED
        kind, data = next(_elements(_unpacked(element[1]), order), (0, b"")) if packed else element
        if kind != MATRIX:
            raise MatFileError(f"an element of type {kind} where a variable should stand")
        name, value = _matrix(data, order, 0)
        found[name] = value
    return found


def _unpacked(data: bytes) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        whole = unpacker.decompress(data, LARGEST)
    except zlib.error as error:
        raise MatFileError(f"a compressed variable is damaged: {error}") from error
    if not unpacker.eof:
        raise MatFileError("a compressed variable ends too early, or is larger than 1 GiB")
    return whole


def _elements(data: bytes, order: str) -> Iterator[tuple[int, bytes]]:
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

    parts: Iterator[tuple[int, bytes]]
    order: str

    def take(self) -> tuple[int, bytes]:
        found = next(self.parts, None)
        if found is None:
            raise MatFileError("a matrix lacks some of its parts")
        return found

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
        return data.decode(wide, errors="replace")


def _matrix(data: bytes, order: str, depth: int) -> tuple[str, Any]:
    """Return name and value of a matrix."""
    if depth > DEEPEST:
        raise MatFileError(f"structs or cells nested more than {DEEPEST} deep")
    if not data:  # an empty field
        return "", np.zeros((0, 0))
    parts = _Parts(_elements(data, order), order)
    flags = parts.numbers()
    shape = [int(n) for n in parts.numbers()]
    name = parts.text()
    if len(flags) < 1 or len(shape) < 2 or min(shape) < 0:
        raise MatFileError(f"variable {name!r} has no class or dimensions {shape}")
    kind, is_complex = int(flags[0]) & 0xFF, bool(int(flags[0]) & 0x800)
    count = prod(shape)
    if count > len(data):
        raise MatFileError(f"variable {name!r} has dimensions {shape} but {len(data)} bytes")
    if kind in NUMERIC:
        return name, _numbers(parts, shape, is_complex, name)
    if kind == CHAR:
        return name, _characters(parts.text(), shape)
    if kind == CELL:
        return name, [_nested(parts, depth) for _ in range(count)]
    if kind == STRUCT:
        rows = _structs(parts, count, depth)
        return name, rows[0] if count == 1 else rows
    return name, None


def _numbers(parts: _Parts, shape: list[int], is_complex: bool, name: str) -> Any:
    values = parts.numbers()
    if is_complex:
        imaginary = parts.numbers()
        if len(imaginary) != len(values):
            raise MatFileError(f"variable {name!r}: real and imaginary parts differ in length")
        values = values + 1j * imaginary
    if len(values) != prod(shape):
        raise MatFileError(f"variable {name!r}: {len(values)} numbers for dimensions {shape}")
    return values.astype(values.dtype.newbyteorder("=")).reshape(shape, order="F")


def _characters(text: str, shape: list[int]) -> Any:
    rows = shape[0]
    return text if rows <= 1 else [text[row::rows].rstrip() for row in range(rows)]


def _nested(parts: _Parts, depth: int) -> Any:
    kind, data = parts.take()
    if kind != MATRIX:
        raise MatFileError(f"an element of type {kind} where a matrix should stand")
    return _matrix(data, parts.order, depth + 1)[1]


def _structs(parts: _Parts, count: int, depth: int) -> list[dict[str, Any]]:
    length = parts.numbers()
    _, data = parts.take()
    wide = int(length[0]) if len(length) == 1 else 0
    if wide < 1 or len(data) % wide:
        raise MatFileError("a struct's field names have no length")
    names = [data[at : at + wide].split(b"\0")[0].decode("latin-1")
             for at in range(0, len(data), wide)]  # fmt: skip
    return [{name: _nested(parts, depth) for name in names} for _ in range(count)]

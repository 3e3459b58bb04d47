"""Read PYPOWER dictionaries, and MATPOWER cases saved as ``.mat`` (MATLAB 5).

Both have MATPOWER's tables, whose units :mod:`gridpriv.grid.tables` converts. A PYPOWER case file
is a Python program and is never run here. Import it and pass the dictionary to
:func:`case_from_pypower`.

Variables of a MATLAB 5 file (``save -v6`` or ``-v7``) are read without trusting its bytes. scipy's
reader is compiled code that a damaged file can crash together with the interpreter. Here every
length is checked against the available data (format: MathWorks, MAT-File Level 5 File Format).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError, excerpt
from gridpriv.core.files import LARGEST, read_bytes
from gridpriv.grid.case import Case
from gridpriv.grid.library import ReadReport, report_tables
from gridpriv.grid.tables import READ_FIELDS, MatpowerTables, case_from_tables, naming

HEADER = 128
UNPACKED_FLOOR, UNPACKED_RATE = 4 * 2**20, 32
"""Largest unpacked size of compressed variables in bytes: a minimum, and a factor on the file
size."""
NUMBERS_FLOOR, NUMBERS_RATE = 100_000, 2
"""Largest count of numbers in a file. MATPOWER's cases, compressed, have up to 1.9 per byte."""
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
    """Bytes that are not a MATLAB 5 file, or unpack to more than a file of their size may."""


@dataclass(frozen=True)
class Unread:
    """A value that no case needs (cells, nested structs, text tables): its number of rows."""

    rows: int


def read_variables(content: bytes) -> dict[str, Any]:
    """Return the variables of a file by name.

    Numbers are arrays of their MATLAB shape, a line of text is a str, a struct of size 1 a dict of
    these, anything else :class:`Unread`.

    Raises
    ------
    MatFileError
        If the bytes are not such a file, or it unpacks to more than its size allows.
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
            variable = _unpacked(data, most - unpacked, most)
            unpacked += len(variable)
            kind, data = next(_elements(memoryview(variable), order), (0, memoryview(b"")))
        if kind != MATRIX:
            raise MatFileError(f"an element of type {kind} where a variable should be")
        name, value = _mat_matrix(data, order, nested=False)
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
        unpacked = unpacker.decompress(data, room + 1)
    except zlib.error as error:
        raise MatFileError(f"a compressed variable is damaged: {error}") from error
    if len(unpacked) > room:
        raise MatFileError(f"it unpacks to more than {most} bytes")
    if not unpacker.eof:
        raise MatFileError("a compressed variable ends too early")
    return unpacked


def _elements(data: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """Yield (type, bytes) of the data elements in order."""
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


def _mat_matrix(data: memoryview, order: str, nested: bool) -> tuple[str, Any]:
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
        return name, _mat_numbers(parts, shape, is_complex, name)
    if kind == CHAR and shape[0] <= 1:
        return name, parts.text()
    if kind == STRUCT and count == 1 and not nested:
        return name, _mat_struct(parts)
    return name, Unread(shape[0])


def _count(value: Any) -> int:
    if isinstance(value, dict):
        return sum(_count(part) for part in value.values())
    return value.size if isinstance(value, np.ndarray) else 0


def _mat_numbers(parts: _Parts, shape: list[int], is_complex: bool, name: str) -> Any:
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


def _mat_struct(parts: _Parts) -> dict[str, Any]:
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
        raise MatFileError(f"an element of type {kind} where a matrix should be")
    return _mat_matrix(data, parts.order, nested=True)[1]


HDF5 = b"\x89HDF"


def case_from_pypower(ppc: Mapping[str, object], name: str = "pypower") -> Case:
    """Return the case of a PYPOWER dictionary.

    Parameters
    ----------
    ppc : mapping
        Format version 2, in MW, MVAr and p.u. (:func:`read_pypower`, which also reports).
    name : str
        Of the case.

    Raises
    ------
    InputError
        Naming table, row and column.
    """
    return read_pypower(ppc, name)[0]


def read_pypower(ppc: Mapping[str, object], name: str = "pypower") -> tuple[Case, ReadReport]:
    """Read a PYPOWER case dictionary (format version 2).

    Parameters
    ----------
    ppc : mapping
        With ``baseMVA``, ``bus``, ``gen``, ``branch`` and, where there are costs, ``gencost``.
        Bus numbers may count from 0.
    name : str
        Of the case.

    Raises
    ------
    InputError
        Naming the table and the row.

    Examples
    --------
    >>> from gridpriv.grid.library import load_case
    >>> ppc = {"version": "2", "baseMVA": 100.0, "branch": [[1, 2, 0, 0.1, 0, 0, 0, 0, 0, 0, 1]],
    ...        "bus": [[1, 3, 0, 0, 0, 0, 1, 1, 0, 110, 1, 1.1, 0.9],
    ...                [2, 1, 50, 10, 0, 0, 1, 1, 0, 110, 1, 1.1, 0.9]],
    ...        "gen": [[1, 50, 0, 90, -90, 1, 100, 1, 200, 0]]}
    >>> case, report = read_pypower(ppc)
    >>> case.n_bus, float(case.pd.sum()), report.unsupported
    (2, 0.5, ())
    """
    if not isinstance(ppc, Mapping):
        raise InputError(f"{name}: a PYPOWER case is a dict, not {type(ppc).__name__}; give a dict")
    tables = _tables(ppc, name)
    case = case_from_tables(tables)
    return case, report_tables(tables, case, name, "PYPOWER dict")


def load_mat(path: Path) -> tuple[Case, ReadReport]:
    """Read a MATPOWER case saved as ``.mat`` (a struct ``mpc``, as MATPOWER's savecase writes).

    Raises
    ------
    InputError
        For a file that is not such a case, naming the table and the row if one is invalid.
    """
    tables = mat_tables(path)
    with naming(path):
        case = case_from_tables(tables)
    return case, report_tables(tables, case, path.name, "MATPOWER .mat")


def mat_tables(path: Path) -> MatpowerTables:
    """Return the tables of a MATPOWER ``.mat`` file."""
    fields = _struct(path)
    with naming(path):
        return _tables(fields, path.stem)


def _tables(fields: Mapping[str, object], name: str) -> MatpowerTables:
    for needed in ("baseMVA", "bus", "gen", "branch"):
        if needed not in fields:
            raise InputError(f"{name}: {needed} is missing; is this a MATPOWER version 2 case?")
    version = fields.get("version")
    if version is not None and _text(version) != "2":
        raise InputError(f"{name}: version = {excerpt(_text(version))}: must be '2'")
    return MatpowerTables(
        name=name,
        base_mva=_scalar(fields["baseMVA"]),
        bus=_matrix(fields["bus"], "bus"),
        gen=_matrix(fields["gen"], "gen"),
        branch=_matrix(fields["branch"], "branch"),
        gencost=_rows(fields.get("gencost")),
        dcline=_matrix(fields.get("dcline", []), "dcline"),
        other_fields=tuple(
            (key, _length(value)) for key, value in fields.items() if key not in READ_FIELDS
        ),
        first_bus=0,
    )


def _struct(path: Path) -> dict[str, object]:
    """Return the fields of the file's ``mpc`` struct."""
    content = read_bytes(path, "case file", LARGEST)
    if HDF5 in content[:1024]:
        raise InputError(f"{path}: a v7.3 .mat file; save it with '-v7' and read that")
    try:
        variables = read_variables(content)
    except MatFileError as error:
        raise InputError(
            f"{path}: not a readable .mat file ({error}); save it again from MATLAB or Octave"
        ) from error
    mpc = variables.get("mpc")
    if mpc is None and {"baseMVA", "bus", "gen", "branch"} <= set(variables):
        return variables
    if not isinstance(mpc, dict):
        names = ", ".join(repr(name[:30]) for name in list(variables)[:10] if name) or "nothing"
        raise InputError(f"{path}: no struct mpc; the file holds {names}; save the case as mpc")
    return mpc


def _numbers(value: object, field: str) -> Floats:
    try:
        array = np.asarray(value)
        if array.dtype.kind == "c":
            if np.any(array.imag):
                raise InputError(f"mpc.{field} has complex entries; real numbers are needed")
            array = array.real
        return np.asarray(array, dtype=float)
    except (TypeError, ValueError):  # text, or rows of different lengths
        raise InputError(
            f"mpc.{field}: must be a table of numbers with rows of one length"
        ) from None


def _matrix(value: object, field: str) -> Floats:
    table = _numbers(value, field)
    if table.size and table.ndim != 2:
        raise InputError(f"mpc.{field} has {table.ndim} dimensions; a table has 2: give a matrix")
    return table if table.size else np.zeros((0, 0))


def _rows(value: object) -> tuple[tuple[float, ...], ...]:
    if value is None:
        return ()
    return tuple(tuple(map(float, row)) for row in _matrix(value, "gencost"))


def _scalar(value: object) -> float:
    numbers = _numbers(value, "baseMVA").reshape(-1)
    if len(numbers) != 1:
        raise InputError(f"mpc.baseMVA has {len(numbers)} entries; one number is needed")
    return float(numbers[0])


def _text(value: object) -> str:
    flat = np.asarray(value).reshape(-1)
    text = str(flat[0]) if len(flat) else ""
    return text.removesuffix(".0")


def _length(value: object) -> int:
    if isinstance(value, Unread):
        return value.rows
    array = np.asarray(value, dtype=object)
    return len(array) if array.ndim else 1

"""Read MATPOWER case files (``.m``, format version 2) without MATLAB.

Tables are literal. Arithmetic in MATPOWER's own files (``case33bw`` converts ohm and kW) is
executed by :mod:`gridpriv.grid.matlab`; anything outside its grammar is refused with the line.
docs/decisions/0002-matpower-reader.md gives the reasons for not using a library.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError, excerpt
from gridpriv.core.files import LARGEST, read_bytes
from gridpriv.grid.case import Case
from gridpriv.grid.library import ReadReport, report_tables
from gridpriv.grid.matlab import Arithmetic, WrongError, constant
from gridpriv.grid.tables import READ_FIELDS, MatpowerTables, case_from_tables, naming

_ASSIGN = re.compile(r"^\s*mpc\.(\w+)\s*=\s*(.*)$")
_OPENING = {"[": "]", "{": "}"}
_HEADER = re.compile(r"function (?:\w+|\[ ?\w+ ?\]) ?= ?\w+ ?(?:\( ?\))? ?;?")  # of single blanks
_IF = re.compile(r"if (\w+) ?;?")
_BLOCK = re.compile(r"(?:if|for|while|switch|try|parfor|unwind_protect)\b")
_END = re.compile(r"^\s*(return|end|endfunction)\s*;?\s*$")
CHANGED = ("baseMVA", "bus", "gen", "branch")
MOST_STATEMENTS, MOST_LINES = 100, 10
_NUMBER = re.compile(r"[-+]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|Inf|inf|NaN|nan)")
_DIGITS = re.compile(r"[-+.0-9eE]+")
"""Texts of these characters that float reads are the same numbers in MATLAB."""


@dataclass(frozen=True)
class _Line:
    number: int
    text: str


@dataclass(frozen=True)
class _Assignment:
    field: str
    line: int
    body: tuple[_Line, ...]


@dataclass(frozen=True)
class _Unless:
    """A block that is executed unless a name is 0."""

    name: str
    line: int


def load_matpower(path: Path) -> tuple[Case, ReadReport]:
    """Read a MATPOWER ``.m`` case.

    Returns
    -------
    Case
        In per unit.
    ReadReport
        Read, ignored and unsupported fields.

    Raises
    ------
    InputError
        With the line number, where the file is malformed, runs code after its tables, or has values
        that a grid cannot have.
    """
    text = _text(path)
    with naming(path):
        tables = parse_matpower(text, path.stem)
        case = case_from_tables(tables)
    return case, report_tables(tables, case, path.name, "MATPOWER .m")


def matpower_tables(path: Path) -> MatpowerTables:
    """Return the tables of a MATPOWER ``.m`` file."""
    return parse_matpower(_text(path), path.stem)


def _text(path: Path) -> str:
    """Return the text of a MATPOWER ``.m`` file; errors name the file."""
    text = read_bytes(path, "case file", LARGEST).decode("utf-8-sig", errors="replace")
    if "\0" in text:
        raise InputError(
            f"{path}: not a text file: {text.count(chr(0))} null characters; give a MATPOWER case"
        )
    return text


def parse_matpower(text: str, name: str) -> MatpowerTables:
    """Return the tables of a MATPOWER case given as text."""
    assignments: dict[str, _Assignment] = {}
    code: list[_Line | _Unless] = []
    for part in _parts(_code_lines(text)):
        if not isinstance(part, _Assignment):
            code.append(part)
        elif part.field in assignments:
            raise InputError(
                f"line {part.line}: mpc.{part.field[:80]} is assigned twice; keep one of the two"
            )
        else:
            assignments[part.field] = part
    for needed in ("baseMVA", "bus", "gen", "branch"):
        if needed not in assignments:
            raise InputError(f"mpc.{needed} is missing; is this a MATPOWER version 2 case?")
    version = assignments.get("version")
    if version and version.body[0].text.strip("'\" ") != "2":
        raise InputError(f"line {version.line}: only MATPOWER case format version 2 is read")
    base_mva = _scalar(assignments["baseMVA"])
    tables = {f"mpc.{field}": _matrix(assignments[field]) for field in ("bus", "gen", "branch")}
    _carry_out(code, Arithmetic(base_mva, tables), max(assignments[f].line for f in CHANGED))
    return MatpowerTables(
        name=name,
        base_mva=base_mva,
        bus=tables["mpc.bus"],
        gen=tables["mpc.gen"],
        branch=tables["mpc.branch"],
        gencost=_ragged(assignments["gencost"]) if "gencost" in assignments else (),
        dcline=_matrix(assignments["dcline"]) if "dcline" in assignments else np.zeros((0, 0)),
        other_fields=tuple(
            (name, _entries(a)) for name, a in assignments.items() if name not in READ_FIELDS
        ),
    )


def _code_lines(text: str) -> Iterator[_Line]:
    """Yield the lines without comments; ``%{`` and ``%}`` alone on a line enclose a block."""
    depth = 0
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        mark = raw.strip()
        if mark in ("%{", "#{"):
            depth += 1
        elif depth == 0:
            yield _Line(number, _without_comment(raw))
        elif mark in ("%}", "#}"):
            depth -= 1


def _without_comment(line: str) -> str:
    """Remove a ``%`` comment outside quoted strings."""
    at = _unquoted(line, "%")
    return line if at < 0 else line[:at]


def _parts(lines: Iterator[_Line]) -> Iterator[_Assignment | _Line | _Unless]:
    """Yield the file's assignments of literals, and its other statements."""
    header = ended = False
    for line in lines:
        match = None if ended else _ASSIGN.match(line.text)
        statement = " ".join(line.text.split())
        if match:
            field, value = match.groups()
            header = True  # a second function would follow the tables
            yield _Assignment(field, line.number, _collect(_Line(line.number, value), lines, field))
        elif not header and _HEADER.fullmatch(statement):
            header = True
        elif _END.match(line.text):
            ended = True
        elif statement and ended:
            raise _not_read(line.number, statement)
        elif condition := _IF.fullmatch(statement):
            _pass_block(line, lines)
            yield _Unless(condition[1], line.number)
        elif statement:
            yield _continued(_Line(line.number, statement), lines)


def _not_read(number: int, text: str, reason: str = "") -> InputError:
    because = f" ({reason})" if reason else ""
    return InputError(
        f"line {number}: {excerpt(text)} is MATLAB code that may change the tables or their "
        f"units{because}; save the case from MATPOWER (savecase) and read that"
    )


def _pass_block(opening: _Line, lines: Iterator[_Line]) -> None:
    """Skip the lines up to the ``end`` of a block; a nested block is refused."""
    for line in lines:
        if _END.match(line.text):
            return
        if _BLOCK.match(line.text.strip()):
            break
    raise _not_read(opening.number, opening.text.strip())


def _continued(first: _Line, lines: Iterator[_Line]) -> _Line:
    """Return a statement with its continuation lines, without its semicolon."""
    parts = [first.text]
    while parts[-1].endswith("...") and len(parts) < MOST_LINES:
        following = next(lines, None)
        parts[-1] = parts[-1].removesuffix("...")
        parts.append(" ".join(following.text.split()) if following else "")
    return _Line(first.number, " ".join(parts).removesuffix(";").rstrip())


def _carry_out(code: list[_Line | _Unless], state: Arithmetic, tables_line: int) -> None:
    """Execute the statements of a file, in its order."""
    if len(code) > MOST_STATEMENTS:
        raise InputError(
            f"more than {MOST_STATEMENTS} statements outside the tables are not read"
            ": keep the tables only"
        )
    for part in code:
        if isinstance(part, _Unless):
            if state.values.get(part.name) != 0:
                raise _not_read(part.line, f"if {part.name}", f"{part.name} is not 0")
            continue
        if "mpc." in part.text and part.number < tables_line:
            raise _not_read(part.number, part.text, "it is above the tables")
        try:
            state.carry_out(part.text)
        except WrongError as error:
            raise _not_read(part.number, part.text, str(error)) from None


def _collect(first: _Line, lines: Iterator[_Line], field: str) -> tuple[_Line, ...]:
    """Return the lines of a value up to its closing bracket, without the brackets."""
    opening = first.text.strip()[:1]
    if opening not in _OPENING:
        value = first.text.strip().rstrip(";").rstrip()
        if _unquoted(value, ";") >= 0 or not value:
            raise InputError(
                f"line {first.number}: {excerpt(value)}: must be one value for mpc.{field}"
            )
        return (_Line(first.number, value),)
    close = _OPENING[opening]
    body = []
    line = _Line(first.number, first.text.strip()[1:])
    while True:
        at = _unquoted(line.text, close)
        if at >= 0:
            rest = line.text[at + 1 :].strip().rstrip(";").strip()
            if rest:
                raise InputError(
                    f"line {line.number}: {excerpt(rest)} after the end of mpc.{field}; remove it"
                )
            body.append(_Line(line.number, line.text[:at]))
            return tuple(body)
        if _ASSIGN.match(line.text):
            raise InputError(
                f"line {line.number}: mpc.{field} (line {first.number}) is not closed with {close}"
                "; close the table"
            )
        body.append(line)
        following = next(lines, None)
        if following is None:
            raise InputError(
                f"line {first.number}: mpc.{field} is not closed with {close} before the file ends"
                "; close the table"
            )
        line = following


def _unquoted(text: str, char: str) -> int:
    if "'" not in text:
        return text.find(char)
    quoted = False
    for at, here in enumerate(text):
        if here == "'":
            quoted = not quoted
        elif here == char and not quoted:
            return at
    return -1


def _entries(assignment: _Assignment) -> int:
    """Return the number of rows of a field that is not read."""
    return sum(bool(line.text.strip()) for line in assignment.body)


def _scalar(assignment: _Assignment) -> float:
    return _numbers([assignment.body[0].text.strip()], assignment.line, assignment.field)[0]


def _rows(assignment: _Assignment) -> Iterator[tuple[int, list[float]]]:
    for line in assignment.body:
        if "..." in line.text:
            raise InputError(
                f"line {line.number}: rows continued with '...' are not read"
                "; write each row on one line"
            )
        for row in line.text.replace(",", " ").split(";"):
            tokens = row.split()
            if tokens:
                yield line.number, _numbers(tokens, line.number, assignment.field)


def _numbers(tokens: list[str], number: int, field: str) -> list[float]:
    """Return the numbers of a row, as MATLAB reads them (``1_0`` is a number to Python only)."""
    if _DIGITS.fullmatch("".join(tokens)):
        with suppress(ValueError):  # 1-0 is an expression
            return list(map(float, tokens))
    values = [float(token) if _NUMBER.fullmatch(token) else constant(token) for token in tokens]
    if None in values:
        wrong = excerpt(tokens[values.index(None)])
        raise InputError(f"line {number}: mpc.{field}: {wrong}: must be a number")
    return values  # type: ignore[return-value]


def _matrix(assignment: _Assignment) -> Floats:
    rows = list(_rows(assignment))
    if not rows:
        return np.zeros((0, 0))
    width = Counter(len(row) for _, row in rows).most_common(1)[0][0]
    for number, row in rows:
        if len(row) != width:
            raise InputError(
                f"line {number}: mpc.{assignment.field} row has {len(row)} columns; "
                f"most rows have {width}; give every row the same columns"
            )
    return np.array([row for _, row in rows], dtype=float)


def _ragged(assignment: _Assignment) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for _, row in _rows(assignment))

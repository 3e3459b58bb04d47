"""Rows of the CSV files that a user writes, each with its line for the errors."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from gridpriv.core.errors import InputError
from gridpriv.core.reading import LARGEST, read_text

LONGEST_NAME = 100


def read_rows(path: Path, what: str) -> Iterator[tuple[int, list[str]]]:
    """Yield (line, cells) of a UTF-8 CSV file, blanks around cells cut, empty lines left out.

    Raises
    ------
    InputError
        If it cannot be read (:func:`~gridpriv.core.reading.read_text`), or a cell has more than
        131,072 characters.
    """
    rows = csv.reader(read_text(path, what, LARGEST).splitlines())
    try:
        for row in rows:
            if row:
                yield rows.line_num, [cell.strip() for cell in row]
    except csv.Error as error:
        raise InputError(f"{what} {path}, line {rows.line_num}: {error}") from error


def is_name(text: str) -> bool:
    """Return whether a text can name a zone or a step: printable, and not long."""
    return 0 < len(text) <= LONGEST_NAME and text.isprintable()


def bus_number(text: str) -> int:
    """Return a bus number, -1 where the text is none."""
    return int(text) if len(text) <= 16 and text.isascii() and text.isdecimal() else -1

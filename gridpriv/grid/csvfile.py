"""The CSV files that a user writes, row by row, with errors that name the line."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from pathlib import Path

from gridpriv.core.errors import InputError
from gridpriv.core.reading import LARGEST, read_text, shown
from gridpriv.grid.case import MOST_DEMAND_MW, Case

LONGEST_NAME = 100


def shipped_rows(name: str) -> list[dict[str, str]]:
    """Return the rows of a table that stands beside the code."""
    with Path(__file__).with_name(name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


class CsvRows:
    """The rows of a UTF-8 CSV file as dictionaries, blanks around cells cut, empty lines left out.

    Parameters
    ----------
    what : str
        What the file is to the user, for the errors.
    shapes
        Each the columns that a file must have, and others of which it must have one at least.

    Raises
    ------
    InputError
        With the line: if the file cannot be read (:func:`~gridpriv.core.reading.read_text`), has
        another header, a row of another length, or a cell of more than 131,072 characters.
    """

    def __init__(
        self, path: Path, what: str, *shapes: tuple[tuple[str, ...], tuple[str, ...]]
    ) -> None:
        self.label = f"{what} {path}"
        self._lines = self._read(read_text(path, what, LARGEST))
        line, cells = next(self._lines, (1, []))
        self.header = [cell.lower() for cell in cells]
        given = set(self.header)
        if len(given) < len(self.header) or not any(
            set(needed) <= given <= {*needed, *others} and (not others or given & {*others})
            for needed, others in shapes
        ):
            known = " or ".join(",".join((*needed, *others)) for needed, others in shapes)
            given_text = shown(",".join(self.header))
            raise InputError(f"{self.label}: line {line} is {given_text}; it must be {known}")

    def _read(self, text: str) -> Iterator[tuple[int, list[str]]]:
        rows = csv.reader(text.splitlines())
        try:
            for row in rows:
                if row:
                    yield rows.line_num, [cell.strip() for cell in row]
        except csv.Error as error:
            raise InputError(f"{self.label}, line {rows.line_num}: {error}") from error

    def __iter__(self) -> Iterator[tuple[int, dict[str, str]]]:
        for line, cells in self._lines:
            if len(cells) != len(self.header):
                given_text = shown(",".join(cells))
                raise InputError(
                    f"{self.label}, line {line}: {given_text}; it must be {','.join(self.header)}"
                )
            yield line, dict(zip(self.header, cells, strict=True))

    def error(self, line: int, column: str, value: str, allowed: str) -> InputError:
        """Return the error of a cell."""
        return InputError(
            f"{self.label}, line {line}: {column} = {shown(value)}: must be {allowed}"
        )

    def number(self, row: dict[str, str], column: str, line: int) -> float:
        """Return a number that a demand may be, or a factor."""
        text = row[column]
        try:
            value = float(text) if text.isascii() and "_" not in text else math.nan
        except ValueError:
            value = math.nan
        if not abs(value) <= MOST_DEMAND_MW:  # also for NaN
            allowed = f"a finite number within +-{MOST_DEMAND_MW:g}"
            raise self.error(line, column, row[column], allowed)
        return value

    def bus(self, row: dict[str, str], line: int, case: Case) -> tuple[int, int]:
        """Return (index, number) of the row's bus."""
        text = row["bus"]
        plain = len(text) <= 16 and text.isascii() and text.isdecimal()
        number = int(text) if plain else -1
        if number not in case.index_of:
            raise self.error(line, "bus", text, f"a bus in service of {case.name}")
        return case.index_of[number], number

    def name(self, row: dict[str, str], column: str, line: int) -> str:
        """Return the name of a zone or a step."""
        if not is_name(row[column]):
            raise self.error(line, column, row[column], f"1 to {LONGEST_NAME} printable characters")
        return row[column]

    def once(self, seen: dict[str, int], key: str, line: int, what: str) -> None:
        """Refuse a second row for the same bus or step."""
        if key in seen:
            raise InputError(
                f"{self.label}, line {line}: {what} {key} is repeated (first on line {seen[key]})"
                "; leave one of the lines out"
            )
        seen[key] = line


def is_name(text: str) -> bool:
    """Test for a name of a zone or a step: printable, at most 100 characters."""
    return 0 < len(text) <= LONGEST_NAME and text.isprintable()

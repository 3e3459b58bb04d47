"""Figures for people, and tables that a notebook shows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

Table = tuple[str, Sequence[str], Sequence[Sequence[object]]]
"""Title, names of the columns, rows."""


LONG = 1e7
"""Number from which on an exponent is shorter."""
PRECISION = {"MW": (4, 3), "$/h": (6, 2)}
"""By unit, the most digits and decimals that noise and solvers leave a meaning."""


@dataclass(frozen=True)
class Amount:
    """A figure of a table in one of the units of :data:`PRECISION`."""

    value: float
    unit: str

    def __str__(self) -> str:
        digits, decimals = PRECISION[self.unit]
        if 0.0 < abs(self.value) < 10.0**-decimals:
            return f"under {10.0**-decimals:g}"
        rounded = float(f"{self.value:.{digits}g}")
        before = math.floor(math.log10(abs(rounded))) + 1 if rounded else digits
        places = min(decimals, max(digits - before, 0))
        return f"{self.value if places else rounded:.{places}f}"


def amount(value: float | None, unit: str) -> Amount | None:
    """Return a figure in its unit, None where there is none."""
    return None if value is None or not math.isfinite(value) else Amount(value, unit)


def shown(value: object) -> str:
    """Return a figure for people: four digits, '-' where there is none."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        text = f"{value:.4g}"
        return f"{float(text):.0f}" if 1e4 <= abs(value) < LONG else text
    return str(value)


def counted(number: int | None, noun: str) -> str:
    """Return a number with its noun: 1 zone, 2 buses, 3 branches."""
    ending = "" if number == 1 else "es" if noun.endswith(("s", "ch")) else "s"
    return f"{shown(number)} {noun}{ending}"


def figure(value: float, digits: int = 3) -> str:
    """Return a number in words' company: digits that mean something, no exponent where short."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    size = math.floor(math.log10(abs(float(f"{value:.{digits - 1}e}"))))
    if size < -4 or size > 6:
        mantissa, _, power = f"{value:.{digits - 1}e}".partition("e")
        return f"{mantissa.removesuffix('.' + '0' * (digits - 1))}e{power}"
    return f"{value:.{max(0, digits - 1 - size)}f}"


def html_page(tables: Sequence[Table], sentences: Sequence[str]) -> str:
    """Return tables, and what is said beside them, as HTML."""
    said = "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)
    return "".join(map(html_table, tables)) + said


def html_table(table: Table) -> str:
    """Return a table as HTML; whatever its cells hold is text."""
    title, columns, rows = table
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(shown(cell))}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"<table><caption>{escape(title)}</caption><tr>{head}</tr>{body}</table>"

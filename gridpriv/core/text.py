"""Documents, values and messages as text, for readers, spreadsheets and JSON.

Texts from files are made safe: on one line, and never a spreadsheet's formula.
:mod:`gridpriv.core.tables` declares the entries of stored and exported documents.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

if TYPE_CHECKING:
    from pandas import DataFrame

Json = dict[str, Any]
Value = TypeVar("Value")
# ASCII, and the full-width forms that spreadsheets treat alike
FORMULA = tuple("=+-@\uff1d\uff0b\uff0d\uff20")
NUMBER = re.compile(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?", re.ASCII)
CONTROL = dict.fromkeys((*range(32), *range(127, 160), 0x2028, 0x2029), " ")


def clean(text: str) -> str:
    """Return a text on one line without control characters and characters that no file allows."""
    return " ".join(text.encode("utf-8", "replace").decode().translate(CONTROL).split())


def inert(value: Any) -> Any:
    """Return a cell that a spreadsheet shows and never executes; other than texts are unchanged."""
    if not isinstance(value, str) or NUMBER.fullmatch(value):
        return value
    return f"'{value}" if value.lstrip().startswith(FORMULA) else value


def sections(path: Path) -> dict[str, str]:
    """Return the sections of a text file by their headings, the lines that begin with ``== ``."""
    parts = path.read_text(encoding="utf-8").split("== ")[1:]
    return {head: text.strip("\n") for head, _, text in (part.partition("\n") for part in parts)}


def slug(text: str) -> str:
    """Return a text as an identifier for an element or a file."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def json_ready(value: Value) -> Value:
    """Replace numbers that JSON does not allow by null, and numpy scalars by Python's."""
    ready: Any = value.item() if hasattr(value, "item") else value
    if isinstance(ready, dict):
        ready = {k: json_ready(v) for k, v in ready.items()}
    elif isinstance(ready, list | tuple):
        ready = [json_ready(v) for v in ready]
    elif isinstance(ready, float) and not math.isfinite(ready):
        ready = None
    return cast(Value, ready)


def csv_text(header: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """Return rows as CSV: numbers in full, gaps empty, texts on one line and never formulas."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([_cell(name) for name in header])
    writer.writerows([_cell(value) for value in row] for row in rows)
    return out.getvalue()


def frame_csv(frame: DataFrame) -> str:
    """Return a data frame as CSV, without its index; see :func:`csv_text`."""
    return csv_text(map(str, frame.columns), frame.itertuples(index=False))


def frame_records(frame: DataFrame) -> list[Json]:
    """Return the rows of a data frame; None where a cell has no value."""
    cells = frame.astype(object)
    rows: list[Json] = cells.where(cells.notna(), None).to_dict("records")
    return rows


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return inert(clean(value))
    gap = value is None or (isinstance(value, float) and math.isnan(value))
    return "" if gap else value


Table = tuple[str, Sequence[str], Sequence[Sequence[object]]]
"""Title, names of the columns, rows."""


LONG = 1e7
"""Number from which on an exponent is shorter."""
PRECISION = {"MW": (4, 3), "MVAr": (4, 3), "$/h": (6, 2)}
"""By unit, the largest numbers of significant digits and decimals, given noise and solvers."""
LEAST_MW = 1e-5
"""MW: least value above rounding. Below a hundredth a value has two significant digits, so that
kilowatts of a small grid can be read."""
SAME = 1e-6
"""Relative: values that differ by less are equal."""


@dataclass(frozen=True)
class Amount:
    """A value of a table in one of the units of :data:`PRECISION`."""

    value: float
    unit: str

    def __str__(self) -> str:
        digits, decimals = PRECISION[self.unit]
        value = self.value + 0.0  # zero has no sign
        if self.unit != "$/h" and LEAST_MW <= abs(value) < 0.01:
            rounded = float(f"{value:.1e}")
            return f"{rounded:.{1 - math.floor(math.log10(abs(rounded)))}f}"
        if 0.0 < abs(value) < 10.0**-decimals:
            return f"{round(value, decimals) + 0.0:.{decimals}f}"
        rounded = float(f"{value:.{digits}g}")
        integer_digits = math.floor(math.log10(abs(rounded))) + 1 if rounded else digits
        places = min(decimals, max(digits - integer_digits, 0))
        return f"{value if places else rounded:.{places}f}"


def capitalized(text: str) -> str:
    """Return a text with its first letter in upper case; other letters are kept (AC)."""
    return f"{text[:1].upper()}{text[1:]}"


def amount(value: float | None, unit: str) -> Amount | None:
    """Return a value in its unit, None if it is missing."""
    return None if value is None or not math.isfinite(value) else Amount(value, unit)


def differs(difference: float, base: float, unit: str = "$/h") -> bool:
    """Return True where a difference from a base exceeds solver errors and rounding."""
    return abs(difference) > max(0.5 * 10.0 ** -PRECISION[unit][1], SAME * abs(base))


def percent_of(difference: float, base: float) -> str:
    """Return a difference of costs in percent of the base, with its sign; '' below rounding."""
    significant = base > 0 and differs(difference, base)
    return f"{number_text(100.0 * difference / base, 2)} %" if significant else ""


def shown(value: object) -> str:
    """Return a value for readers: four digits, '-' if it is missing."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        text = f"{value:.4g}"
        return f"{float(text):.0f}" if 1e4 <= abs(value) < LONG else text
    return str(value)


UTC_OFFSETS = "give every step its UTC offset (2026-10-25T02:00+01:00)"
"""Advice for times in a year in which clocks change."""


def counted(number: int | None, noun: str) -> str:
    """Return a number with its noun: 1 zone, 2 buses, 3 branches."""
    ending = "" if number == 1 else "es" if noun.endswith(("s", "ch")) else "s"
    return f"{shown(number)} {noun}{ending}"


def number_text(value: float, digits: int = 3) -> str:
    """Return a number for a sentence: significant digits, without an exponent where short."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    size = math.floor(math.log10(abs(float(f"{value:.{digits - 1}e}"))))
    if size < -4 or size > 6:
        mantissa, _, power = f"{value:.{digits - 1}e}".partition("e")
        return f"{mantissa.removesuffix('.' + '0' * (digits - 1))}e{power}"
    return f"{value:.{max(0, digits - 1 - size)}f}"


def html_page(tables: Sequence[Table], sentences: Sequence[str]) -> str:
    """Return tables and their notes as HTML."""
    from html import escape

    paragraphs = "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)
    return "".join(map(html_table, tables)) + paragraphs


def html_table(table: Table) -> str:
    """Return a table as HTML; all cells are escaped text."""
    from html import escape  # not at the top: slow to import

    title, columns, rows = table
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(shown(cell))}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"<table><caption>{escape(title)}</caption><tr>{head}</tr>{body}</table>"


Severity = Literal["warning", "info", "next"]
"""Severities: a value must be read differently; explanation; next step."""
SEVERITIES: Mapping[str, Severity] = {"warning": "warning", "info": "info", "next": "next"}
"""By name, in the order in which messages are shown."""
Templates = Mapping[str, tuple[Severity, str]]


@dataclass(frozen=True)
class Message:
    """A message by code.

    Attributes
    ----------
    code : str
    severity : {'warning', 'info', 'next'}
    template : str
        One or two sentences with places for the values.
    values : mapping
    """

    code: str
    severity: Severity
    template: str
    values: Mapping[str, object]

    def __str__(self) -> str:
        return self.template.format(**self.values)

    def as_dict(self) -> Json:
        """Return the message as a JSON value."""
        return {"code": self.code, "severity": self.severity, "text": str(self)}


def read_templates(path: Path) -> Templates:
    """Return the templates of a catalog by code: the line ``== CODE: SEVERITY``, then the text."""
    entries = ((head.partition(": "), text) for head, text in sections(path).items())
    return {
        code: (SEVERITIES[severity], " ".join(text.split()))
        for (code, _, severity), text in entries
    }


def make_message(templates: Templates, code: str, values: Mapping[str, object]) -> Message:
    """Return the message of a code with its values."""
    return Message(code, *templates[code], values)


def by_severity(messages: list[Message]) -> list[Message]:
    """Return messages with warnings first and next steps last."""
    order = list(SEVERITIES)
    return sorted(messages, key=lambda message: order.index(message.severity))

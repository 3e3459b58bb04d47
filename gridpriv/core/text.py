"""Text that somebody else wrote, made harmless: on one line, and never a spreadsheet's formula."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandas import DataFrame

# ASCII, and the full-width forms that spreadsheets take for them
FORMULA = tuple("=+-@\uff1d\uff0b\uff0d\uff20")
NUMBER = re.compile(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?", re.ASCII)
CONTROL = dict.fromkeys((*range(32), *range(127, 160), 0x2028, 0x2029), " ")


def clean(text: str) -> str:
    """Return a text on one line without control characters and what no file can hold."""
    return " ".join(text.encode("utf-8", "replace").decode().translate(CONTROL).split())


def inert(value: Any) -> Any:
    """Return a cell that a spreadsheet shows and never runs; what is no text stays as it is."""
    if not isinstance(value, str) or NUMBER.fullmatch(value):
        return value
    return f"'{value}" if value.lstrip().startswith(FORMULA) else value


def sections(path: Path) -> dict[str, str]:
    """Return the sections of a text file by their heads, the lines that begin with ``== ``."""
    parts = path.read_text(encoding="utf-8").split("== ")[1:]
    return {head: text.strip("\n") for head, _, text in (part.partition("\n") for part in parts)}


def slug(text: str) -> str:
    """Return a text as an identifier for an element or a file."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def json_ready(value: Any) -> Any:
    """Replace numbers that JSON cannot hold by null, and numpy scalars by Python's."""
    if isinstance(value, dict):
        return {k: json_ready(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [json_ready(v) for v in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


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


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return inert(clean(value))
    gap = value is None or (isinstance(value, float) and math.isnan(value))
    return "" if gap else value

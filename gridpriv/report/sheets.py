"""The report as a workbook: numbers as numbers, units in headers."""

from __future__ import annotations

import io
from typing import Any

import pandas as pd

from gridpriv.core.errors import missing_extra
from gridpriv.report.document import Report
from gridpriv.report.tables import cell
from gridpriv.study.store import Study

MOST_ROWS = 1_048_575
UNITS = {
    "_mw": "MW", "_mvar": "MVAr", "_pu": "p.u.", "objective": "p.u. squared",
    "consensus_residual": "p.u.", "load": "s", "build": "s", "solve": "s", "total": "s",
}  # fmt: skip
RAW = ("runs", "rounds", "zones", "buses", "statements", "timing")


def to_xlsx(report: Report, study: Study) -> bytes:
    """Return the workbook: the answer, the report's tables, and the study's own tables.

    Raises
    ------
    InputError
        Where the extra ``report`` is not installed.
    """
    try:
        from openpyxl import Workbook
    except ImportError:
        raise missing_extra("openpyxl", "report", "--format xlsx") from None
    book = Workbook()
    first = book.active
    first.title = "answer"
    for line in (report.title, report.question, *report.answer):
        first.append([_safe(line)])
    first.column_dimensions["A"].width = 120
    for table in report.tables:
        if table.rows:
            _sheet(book, table.name, [c.header for c in table.columns], table.rows)
    taken = set(book.sheetnames)
    for name in RAW:
        frame = study.tables.get(name, pd.DataFrame())
        if len(frame.columns) > 1 and len(frame):
            title = f"all {name}" if name in taken else name
            headers = [with_unit(c, timing=name == "timing") for c in frame.columns]
            rows = [[cell(v) for v in row] for row in frame.head(MOST_ROWS).itertuples(index=False)]
            _sheet(book, title, headers, rows)
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def with_unit(column: str, *, timing: bool = False) -> str:
    """Return a raw column's header with its unit: ``shed_mw`` is ``shed (MW)``."""
    for ending, unit in UNITS.items():
        if ending.startswith("_") and (column.endswith(ending) or f"{ending}_" in column):
            return f"{column.replace(ending, '')} ({unit})"
    seconds = column in ("load", "build", "solve", "total")
    if column in UNITS and seconds == timing:
        return f"{column} ({UNITS[column]})"
    return column


def _sheet(book: Any, name: str, headers: list[str], rows: Any) -> None:
    from openpyxl.styles import Font
    from openpyxl.utils import get_column_letter

    sheet = book.create_sheet(name[:31])
    sheet.append(headers)
    for row in rows:
        sheet.append([_safe(v) for v in row])
    for k, header in enumerate(headers, start=1):
        sheet.cell(1, k).font = Font(bold=True)
        sheet.column_dimensions[get_column_letter(k)].width = min(max(len(header) + 2, 10), 44)
    sheet.freeze_panes = "A2"
    sheet.auto_filter.ref = sheet.dimensions


def _safe(value: Any) -> Any:
    """Return a value that a spreadsheet shows and never runs as a formula."""
    if isinstance(value, str) and value[:1] in "=+-@":
        return f"'{value}"
    return value

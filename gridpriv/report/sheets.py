"""The report as a workbook: numbers as numbers, units in headers."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Sequence
from typing import Any

import pandas as pd

from gridpriv.core.stored import Study
from gridpriv.core.tables import Column
from gridpriv.core.text import inert
from gridpriv.report.document import Report
from gridpriv.report.schema import marked
from gridpriv.report.tables import cell
from gridpriv.study.record import STORED
from gridpriv.study.rows import Identity

MOST_ROWS = 1_048_575
MEASURED = 1000
"""Rows whose texts a column's width is made for."""
RAW = ("runs", "rounds", "zones", "buses", "statements", "charges", "timing")


def to_xlsx(report: Report, study: Study) -> bytes:
    """Return the workbook: the verdict, the report's tables, and the study's own tables.

    The package that it needs was asked for (:mod:`gridpriv.report.formats`).
    """
    from openpyxl import Workbook

    book = Workbook()
    first = book.active
    first.title = "verdict"
    for line in (report.title, report.question, *report.lines):
        first.append([inert(line)])
    first.column_dimensions["A"].width = 120
    for table in report.tables:
        _sheet(book, table.name, [c.header for c in table.columns], table.rows)
    taken = set(book.sheetnames)
    for name in RAW:
        frame = study.tables.get(name, pd.DataFrame())
        if len(frame.columns) > 1 and len(frame):
            title = f"all {name}" if name in taken else name
            columns = _declared(frame, name)
            units = [column.unit for column in columns]
            rows = [
                [cell(v, unit) for v, unit in zip(row, units, strict=True)]
                for row in frame.head(MOST_ROWS).itertuples(index=False)
            ]
            mark = marked if report.caveat else lambda column: column
            _sheet(book, title, [mark(column).header for column in columns], rows)
    out = io.BytesIO()
    book.save(out)
    return _undated(out.getvalue())


def _undated(book: bytes) -> bytes:
    """Return a workbook that does not tell when it was written: equal figures, equal bytes."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(book)) as old, zipfile.ZipFile(out, "w") as new:
        for entry in old.infolist():
            content = old.read(entry)
            if entry.filename == "docProps/core.xml":  # openpyxl writes the present as it saves
                content = re.sub(rb"\d{4}-\d\d-\d\dT[\d:]+Z", b"1980-01-01T00:00:00Z", content)
            new.writestr(zipfile.ZipInfo(entry.filename), content, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def _declared(frame: pd.DataFrame, name: str) -> list[Column]:
    """Return the declared columns of a stored table; one that nobody declared has its name."""
    known = {
        column.name: column for column in (Identity.table.column("run"), *STORED[name].columns)
    }
    return [known.get(key, Column(key, "private", str(key), "")) for key in frame]


def _sheet(book: Any, name: str, headers: list[str], rows: Sequence[Sequence[object]]) -> None:
    from openpyxl.styles import Font
    from openpyxl.utils import get_column_letter

    sheet = book.create_sheet(name[:31])
    sheet.append(headers)
    for row in rows:
        sheet.append([inert(v) for v in row])
    for k, header in enumerate(headers, start=1):
        sheet.cell(1, k).font = Font(bold=True)
        texts = [str(cells[k - 1]) for cells in rows[:MEASURED] if isinstance(cells[k - 1], str)]
        longest = max(map(len, [header, *texts]))
        sheet.column_dimensions[get_column_letter(k)].width = min(max(longest + 2, 10), 44)
    sheet.freeze_panes = "A2"
    sheet.auto_filter.ref = sheet.dimensions

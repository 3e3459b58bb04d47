"""Write a report in one or several formats into its folder."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable
from pathlib import Path

from gridpriv.core.errors import one_of
from gridpriv.report.document import make_report
from gridpriv.report.source import read_source
from gridpriv.study.store import StorageError

FORMATS = ("html", "pdf", "xlsx", "csv", "tex")


def export(
    folder: str | Path, formats: Iterable[str] = ("html",), *, public: bool = False
) -> list[Path]:
    """Write the report of a study's or run's folder; return the files.

    Parameters
    ----------
    folder : path
    formats : iterable of {'html', 'pdf', 'xlsx', 'csv', 'tex'}
    public : bool
        Leave out whatever is computed from private demand; files are named ``report-public``.
    """
    wanted = list(formats)
    for name in wanted:
        one_of("format", name, FORMATS)
    place = Path(folder)
    study = read_source(place, public=public)
    report = make_report(study)
    stem = "report-public" if public else "report"
    written = []
    for kind in dict.fromkeys(wanted):
        files: dict[Path, bytes]
        if kind == "html":
            from gridpriv.report.html import to_html

            files = {place / f"{stem}.html": to_html(report).encode()}
        elif kind == "pdf":
            from gridpriv.report.pdf import to_pdf

            files = {place / f"{stem}.pdf": to_pdf(report)}
        elif kind == "xlsx":
            from gridpriv.report.sheets import to_xlsx

            files = {place / f"{stem}.xlsx": to_xlsx(report, study)}
        else:
            from gridpriv.report.text import to_csv, to_tex

            files = {
                place / f"{stem}-{kind}" / f"{t.name}.{kind}": (
                    to_csv(t) if kind == "csv" else to_tex(report, t)
                ).encode()
                for t in report.tables
                if t.rows
            }
        for path, content in files.items():
            written.append(write_bytes(path, content))
    return written


def write_bytes(path: Path, content: bytes) -> Path:
    """Write a file whole or not at all."""
    part = path.with_name(f"{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(content)
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from error
    return path

"""The report as PDF, typeset by Typst (the ``typst`` wheel; no other program)."""

from __future__ import annotations

import tempfile
from pathlib import Path

from gridpriv.report.document import Report
from gridpriv.report.figures import Look, Plot, fonts, swatch, to_svg
from gridpriv.report.tables import GAP, LONG, Table, widths_of
from gridpriv.report.templates import template

LINE = 145
"""Characters of a table's text that a page is wide enough for."""


def to_pdf(report: Report) -> bytes:
    """Return the PDF."""
    import typst

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)

        def written(svg: str) -> str:
            path = place / f"{sum(1 for _ in place.iterdir())}.svg"
            path.write_text(svg, encoding="utf-8")
            return path.name

        def svg(plot: Plot, legend: bool) -> str:
            return written(to_svg(plot, "figure", legend=legend))

        def sample(look: Look) -> str:
            return written(swatch(look))

        page = template(
            "report.typ", quoted=quoted, text=text, widths=widths, svg=svg, swatch=sample
        )
        source = place / "report.typ"
        source.write_text(page.render(report=report, line=LINE), encoding="utf-8")
        return bytes(typst.compile(str(source), font_paths=[fonts()]))


def widths(table: Table) -> list[str]:
    """Return the columns' widths: short words keep to one line, the others share what is left."""
    return [
        f"{w}fr" if n or w >= GAP + LONG else "auto"
        for w, n in zip(widths_of(table), table.numbers, strict=True)
    ]


def text(words: str) -> str:
    """Return text as a Typst string in markup, so that nothing in it is read as a command."""
    return f"#{quoted(words)}"


def quoted(words: str) -> str:
    """Return a text as Typst's source quotes it."""
    return '"' + words.replace("\\", "\\\\").replace('"', '\\"') + '"'

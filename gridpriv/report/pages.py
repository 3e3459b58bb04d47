"""Pages of a report from Jinja2 templates: HTML, and PDF by Typst (the ``typst`` wheel).

The HTML page is one file: no network, readable without its script, in print and by ear.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from gridpriv.core.text import slug
from gridpriv.report.document import Report
from gridpriv.report.figures import Look, Plot, fonts, swatch, to_svg
from gridpriv.report.tables import GAP, LONG, Table, in_parts, shown, widths_of

ASSETS = Path(__file__).parent / "assets"
HTML_LINE, PDF_LINE = 134, 145
"""Characters of a table's text that a page of 1280 pixels, and one of A4, is wide enough for."""


def template(name: str, **functions: Callable[..., object]) -> Template:
    """Return a template of the package's; of HTML ones every text is escaped.

    Parameters
    ----------
    **functions : callable
        Names that the template may call or use as filters.
    """
    pages = Environment(
        loader=FileSystemLoader(ASSETS),
        autoescape=name.endswith(".html"),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    common = {"slug": slug, "shown": shown, "in_parts": in_parts, "repr": repr, "str": str}
    pages.filters.update(common | functions)
    pages.globals.update(common | functions)
    return pages.get_template(name)


def to_html(report: Report) -> str:
    """Return the page."""

    def asset(name: str) -> Markup:
        return Markup((ASSETS / name).read_text(encoding="utf-8"))

    def svg(plot: Any, kind: str, name: str = "", *, legend: bool = True) -> Markup:
        return Markup(to_svg(plot, kind, slug(name), legend=legend))

    def sample(look: Any, name: str) -> Markup:
        return Markup(swatch(look, name))

    page = template("report.html", asset=asset, svg=svg, swatch=sample)
    return page.render(report=report, line=HTML_LINE)


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
        source.write_text(page.render(report=report, line=PDF_LINE), encoding="utf-8")
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

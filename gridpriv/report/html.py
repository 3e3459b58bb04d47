"""The report as one HTML file: no network, readable without its script, in print and by ear."""

from __future__ import annotations

from typing import Any

from gridpriv.core.text import slug
from gridpriv.report.document import Report
from gridpriv.report.figures import swatch, to_svg
from gridpriv.report.templates import ASSETS, template

LINE = 134
"""Characters of a table's text that a page of 1280 pixels is wide enough for."""


def to_html(report: Report) -> str:
    """Return the page."""
    from markupsafe import Markup

    def asset(name: str) -> Markup:
        return Markup((ASSETS / name).read_text(encoding="utf-8"))

    def svg(plot: Any, kind: str, name: str = "", *, legend: bool = True) -> Markup:
        return Markup(to_svg(plot, kind, slug(name), legend=legend))

    def sample(look: Any, name: str) -> Markup:
        return Markup(swatch(look, name))

    page = template("report.html", asset=asset, svg=svg, swatch=sample)
    return page.render(report=report, line=LINE)

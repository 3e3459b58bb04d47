"""Templates of pages: Jinja2 with what every page needs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from gridpriv.core.text import slug
from gridpriv.report.tables import in_parts, shown

ASSETS = Path(__file__).parent / "assets"


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

"""Reports from results: file formats and the packages that they need, checked early."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from gridpriv.core.errors import check_choice, missing_extra

NEEDS = {"html": "", "pdf": "", "xlsx": "openpyxl", "csv": "", "tex": ""}
FORMATS = tuple(NEEDS)
PICTURES = ("png", "svg", "pdf")


def check_formats(names: Iterable[str]) -> None:
    """Raise ``InputError`` for an unknown format, or one whose package is not installed."""
    for name in names:
        check_choice("format", name, FORMATS)
        if NEEDS[name] and find_spec(NEEDS[name]) is None:
            raise missing_extra(NEEDS[name], "report", f"--format {name}")


def picture_format(path: str | Path) -> str:
    """Return the format of a file's ending; ``InputError`` for any except :data:`PICTURES`."""
    kind = Path(path).suffix.lstrip(".").lower()
    check_choice("ending of the picture", kind, PICTURES)
    return kind

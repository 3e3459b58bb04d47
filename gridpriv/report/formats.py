"""The formats of a report and the packages that they need, asked for before anything runs."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

from gridpriv.core.errors import missing_extra, one_of

NEEDS = {"html": "", "pdf": "", "xlsx": "openpyxl", "csv": "", "tex": ""}
FORMATS = tuple(NEEDS)


def check_formats(names: Iterable[str]) -> None:
    """Raise ``InputError`` for a name that is none, or one whose package is not installed."""
    for name in names:
        one_of("format", name, FORMATS)
        if NEEDS[name] and find_spec(NEEDS[name]) is None:
            raise missing_extra(NEEDS[name], "report", f"--format {name}")

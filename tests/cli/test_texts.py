"""The catalog of texts matches the commands that print them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import gridpriv.cli
from gridpriv.cli.output import texts

SOURCES = [ast.parse(p.read_text()) for p in Path(gridpriv.cli.__file__).parent.glob("*.py")]


def calls() -> Iterator[tuple[str, set[str | None]]]:
    """Yield the code and the names of the values of every call of ``worded`` or ``warn``."""
    for node in (node for source in SOURCES for node in ast.walk(source)):
        if isinstance(node, ast.Call) and node.args:
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in ("worded", "warn") and isinstance(node.args[0], ast.Constant):
                yield str(node.args[0].value), {keyword.arg for keyword in node.keywords}


def test_a_text_gets_the_values_that_it_has_places_for() -> None:
    for code, given in calls():
        places = {place for _, place, _, _ in Formatter().parse(texts()[code]) if place}
        assert places >= given - {None} and (None in given or places <= given), code


def test_every_text_is_printed_by_a_command() -> None:
    constants = {
        node.value
        for source in SOURCES
        for node in ast.walk(source)
        if isinstance(node, ast.Constant)
    }
    assert set(texts()) <= constants


def test_no_text_ends_with_a_mark_of_the_catalog() -> None:
    """A separating line of the catalog was printed after a warning."""
    ends = {code: text.rstrip()[-1] for code, text in texts().items()}
    assert not {code: end for code, end in ends.items() if not (end.isalnum() or end in ".:)}'?")}

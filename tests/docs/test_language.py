"""The program speaks the field's language: no word of an earlier private dialect, plain docstrings.

The terms are those of docs/glossary.md. Texts are read from the sources: strings that
contain a space, docstrings, and the pages of the documentation.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES += sorted((ROOT / "gridpriv").rglob("*.txt"))
SOURCES = sorted((ROOT / "gridpriv").rglob("*.py"))
DIALECT = re.compile(
    r"can carry|nothing released|held against|yardstick|stand-ins?\b|rehears|worth nothing"
    r"|\blean(s|ing)? on|\bclaimed\b|\bprovenance\b|\bmended\b|\bevened\b|outsider|eavesdrop"
    r"|\bspills?\b|unserved|demand not served|repeat one map|\bis told\b|\btold\b"
)
QUESTION = re.compile(r"(What|Whether|How|Whose|Which)\b|Return (what|whether|how|whose|which)\b")


class Package(NamedTuple):
    """Strings with a space, docstrings and class names of the package, each with its place."""

    texts: list[tuple[str, str]]
    docstrings: list[tuple[str, str]]
    classes: list[tuple[str, str]]


@cache
def package() -> Package:
    found = Package([], [], [])
    for path in SOURCES:
        place = str(path.relative_to(ROOT))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                found.texts.append((f"{place}:{node.lineno}", node.value))
            elif isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                if text := ast.get_docstring(node):
                    found.docstrings.append((place, text))
                if isinstance(node, ast.ClassDef):
                    found.classes.append((place, node.name))
    return found


def test_no_text_of_the_package_uses_the_dialect() -> None:
    matches = [
        f"{place}: {match.group()}"
        for place, text in package().texts
        if (match := DIALECT.search(text))
    ]
    assert matches == []


def test_no_page_uses_the_dialect() -> None:
    matches = [
        f"{path.relative_to(ROOT)}:{number}: {match.group()}"
        for path in PAGES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if (match := DIALECT.search(line))
    ]
    assert matches == []


def test_docstrings_say_what_is_returned_or_done() -> None:
    matches = [
        f"{place}: {text.splitlines()[0]}"
        for place, text in package().docstrings
        if QUESTION.match(text)
    ]
    assert matches == []


def test_one_class_name_has_one_meaning() -> None:
    places: dict[str, set[str]] = {}
    for place, name in package().classes:
        places.setdefault(name, set()).add(place)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}

"""The program speaks the field's language: no word of an earlier private dialect, plain docstrings.

The terms are those of docs/glossary.md. Texts are read from the sources: strings that
contain a space, docstrings, and the pages of the documentation.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

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


def documented(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield node, text


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value


def test_no_text_of_the_package_uses_the_dialect() -> None:
    matches = [
        f"{path.relative_to(ROOT)}:{line}: {match.group()}"
        for path in SOURCES
        for line, text in texts(ast.parse(path.read_text(encoding="utf-8")))
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
        f"{path.relative_to(ROOT)}: {text.splitlines()[0]}"
        for path in SOURCES
        for _, text in documented(ast.parse(path.read_text(encoding="utf-8")))
        if QUESTION.match(text)
    ]
    assert matches == []


def test_one_class_name_has_one_meaning() -> None:
    places: dict[str, set[str]] = {}
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, set()).add(str(path.relative_to(ROOT)))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}

"""Errors follow rule 6 of the style: the given value, the allowed values or the remedy.

Every ``InputError`` of the package is read from the sources, with ``{}`` in place of its values.
Those of :func:`gridpriv.core.errors.not_allowed` have both parts by construction.
"""

from __future__ import annotations

import ast
import re

from test_language import ROOT, SOURCES

GIVEN = re.compile(r"\{\}|--[a-z]")
REMEDY = re.compile(
    r"\b(must|at most|at least|or more|needs?|needed|only|allowed|use|add|name|give|leave|put"
    r"|choose|run|remove|install|repeat|move|write|set|take|drop|did you mean|check|keep|make"
    r"|save|raise|lower|try|grant|change|correct|convert|is missing|are read|close|restore"
    r"|report|draw|start|expected|state|lists? them|exclude each other|split|download"
    r"|clip|new one)\b|--[a-z]",
    re.IGNORECASE,
)
WRAPPED = re.compile(r"[:;] \{\}$|^(case file|the certificate of) \{\} \{\}$")
"""The last value is another message, which is checked where it is made."""
WITHOUT_VALUE = 28
"""Errors whose subject is a missing thing or a state of the settings, with no value to show."""


def template(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(v.value if isinstance(v, ast.Constant) else "{}" for v in node.values)
    return None


def test_every_error_states_the_given_value_and_the_remedy() -> None:
    templates = {
        (f"{path.relative_to(ROOT)}:{node.lineno}", text)
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", "") == "InputError"
        and node.args
        and (text := template(node.args[0])) is not None
    }
    assert len(templates) > 300
    own = {(place, text) for place, text in templates if not WRAPPED.search(text)}
    assert sorted(f"{p}: {text}" for p, text in own if not REMEDY.search(text)) == []
    bare = sorted(f"{p}: {text}" for p, text in own if not GIVEN.search(text))
    assert len(bare) <= WITHOUT_VALUE, "\n".join(bare)

"""Imports go down only, without cycles, those inside functions included; lengths have limits."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import networkx as nx

import gridpriv

ROOT = Path(gridpriv.__file__).parent
PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"

# Bottom to top; packages of one row do not import each other.
ORDER = (
    ("core",),
    ("privacy",),
    ("consensus", "grid"),
    ("power",),
    ("zonal", "learning"),
    ("assurance", "study", "consortium"),
    ("report",),
    ("cli",),
)
RANK = {package: rank for rank, row in enumerate(ORDER) for package in row}

# What a room above adds to a class below, by name only (gridpriv.core.lazy.LazyAttribute).
ADDED = {
    ("zonal/result.py", "report"),
    ("zonal/horizon.py", "report"),
    ("core/store.py", "report"),
}


def sources():
    """Return every module's name and file."""
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


MODULES = dict(sources())


@cache
def nodes(path):
    """Return the nodes of a file's syntax tree."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def imports(path):
    """Return the imports of gridpriv in a file: at its top, under a condition or in a function."""
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            names = {f"{node.module}.{name.name}" for name in node.names}
            # a module of a package: nothing of the package's own file is asked for
            found |= names if names <= set(MODULES) else names | {node.module}
        elif isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
    return {name for name in found if name.startswith("gridpriv.")}


def named(path):
    """Return the modules that a file names for later: ``LazyAttribute("gridpriv.report", ...)``."""
    strings = {node.value for node in nodes(path) if isinstance(node, ast.Constant)}
    return {s for s in strings if isinstance(s, str) and re.fullmatch(r"gridpriv(\.\w+)+", s)}


def edges(of):
    """Yield (file, its package, a package that it mentions) for files inside packages."""
    for path in MODULES.values():
        inside = path.relative_to(ROOT)
        if len(inside.parts) > 1:
            for name in of(path):
                yield inside.as_posix(), inside.parts[0], name.split(".")[1]


def test_every_package_has_a_place():
    there = {p.name for p in ROOT.iterdir() if p.is_dir() and list(p.glob("*.py"))}
    assert there == set(RANK)


def test_imports_go_down():
    climbs = {
        (file, there)
        for file, here, there in edges(imports)
        if here != there and there in RANK and RANK[there] >= RANK[here]
    }
    assert not climbs


def test_what_a_room_above_adds_is_named_here():
    added = {
        (file, there)
        for file, here, there in edges(named)
        if there in RANK and RANK[there] > RANK[here]
    }
    assert added == ADDED


def test_no_module_imports_itself_through_others():
    graph = nx.DiGraph()
    for module, path in MODULES.items():
        graph.add_edges_from((module, name) for name in imports(path) & set(MODULES) - {module})
    circles = [circle for circle in nx.strongly_connected_components(graph) if len(circle) > 1]
    rooms = {frozenset(module.split(".")[1] for module in circle) for circle in circles}
    assert not rooms, [sorted(circle) for circle in circles]


def test_the_page_draws_the_same_order():
    line = next(line for line in PAGE.read_text(encoding="utf-8").splitlines() if " < " in line)
    assert [row.strip().split(", ") for row in line.split("<")] == [list(row) for row in ORDER]


def test_the_reader_of_imports_sees_every_kind(tmp_path):
    """Compared with a file whose imports are known."""
    path = tmp_path / "sample.py"
    path.write_text(
        "from __future__ import annotations\n"
        "from typing import TYPE_CHECKING\n"
        "import gridpriv.core.errors\n"
        "from gridpriv.privacy import noise\n"
        "if TYPE_CHECKING:\n    from gridpriv.report.html import x\n"
        "def late():\n    from gridpriv.cli import main\n    import gridpriv.study.plan as p\n"
        "y = 'gridpriv.report.network'\n",
        encoding="utf-8",
    )
    assert {name.split(".")[1] for name in imports(path)} == {
        "core",
        "privacy",
        "report",
        "cli",
        "study",
    }
    assert named(path) == {"gridpriv.report.network"}


LONGEST = {ast.FunctionDef: 50, ast.ClassDef: 150}


def test_no_function_has_more_than_50_lines_of_code_and_no_class_more_than_150():
    """Docstrings, comments and blank lines do not count."""
    too_long = []
    for name, path in MODULES.items():
        lines = path.read_text(encoding="utf-8").splitlines()
        texts = [node for node in nodes(path) if isinstance(node, ast.Expr)]
        texts = [node for node in texts if isinstance(node.value, ast.Constant)]
        said = {line for node in texts for line in range(node.lineno, node.end_lineno + 1)}
        code = [
            number not in said and bool(line.strip()) and not line.strip().startswith("#")
            for number, line in enumerate(lines, 1)
        ]
        for node in nodes(path):
            most = LONGEST.get(type(node))
            if most and (length := sum(code[node.lineno - 1 : node.end_lineno])) > most:
                too_long.append(f"{name}.{node.name}: {length}")
    assert not too_long

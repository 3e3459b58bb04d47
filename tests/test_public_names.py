from __future__ import annotations

import ast
import dataclasses
import doctest
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gridpriv
from gridpriv.cli.main import COMMANDS

# of each command, the functions that do its work from Python
FUNCTIONS = {
    "run": ["run", "run_series", "prepare"],
    "compare": ["compare", "make_plan", "read_plan"],
    "report": ["export"],
    "audit": ["audit"],
    "attack": ["attack"],
    "relax": ["relax"],
    "acopf": ["acopf"],
    "security": ["contingencies", "security"],
    "zones": ["partition", "read_zoning", "write_zoning", "zone_report"],
    "cases": ["case_files", "load_case", "read_report"],
    "convert": ["convert"],
    "exchange": ["exchange"],
    "learn": ["learn", "load_dataset", "make_learn_settings"],
    "ledger": ["Ledger", "grant", "read_book"],
    "account": ["total_epsilon"],
}


def test_dir_lists_the_public_names_and_each_is_there() -> None:
    assert dir(gridpriv) == sorted(gridpriv.__all__)
    for name in dir(gridpriv):
        value = getattr(gridpriv, name)
        assert value.__doc__, name
        assert not inspect.ismodule(value), name


@pytest.mark.parametrize("name", dir(gridpriv))
def test_docstrings_tell_of_every_parameter_and_field(name: str) -> None:
    value = getattr(gridpriv, name)
    if inspect.isclass(value):
        told = (
            [f.name for f in dataclasses.fields(value)] if dataclasses.is_dataclass(value) else []
        )
    else:
        told = list(inspect.signature(value).parameters)
        assert told == [] or "Parameters\n" in inspect.getdoc(value)
    unsaid = [one for one in told if not re.search(rf"\b{one}\b", inspect.getdoc(value))]
    assert [one for one in unsaid if not one.startswith("_")] == []


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(gridpriv.__file__).read_text())
    seen = {
        alias.asname  # of a name that is imported as itself: it is public
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    } - {None}
    assert seen == set(gridpriv.__all__)


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_its_functions_by_name(command: str) -> None:
    if command not in FUNCTIONS:
        pytest.skip("made of several parts; documented with the command")
    for name in FUNCTIONS[command]:
        assert callable(getattr(gridpriv, name)), name


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(gridpriv.__file__).parent / "py.typed").is_file()


def test_importing_the_package_imports_nothing_slow() -> None:
    code = "import sys, gridpriv; print(sorted({'numpy', 'pandas', 'pyomo'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


EXAMPLE = re.compile(r"^ *>>> ", re.MULTILINE)
SOURCE = Path(__file__).parents[1] / "gridpriv"


def with_examples() -> list[str]:
    """Return every module that has an example in a docstring."""
    found = [p for p in sorted(SOURCE.rglob("*.py")) if EXAMPLE.search(p.read_text("utf-8"))]
    parts = [path.relative_to(SOURCE.parent).with_suffix("").parts for path in found]
    return [".".join(part for part in names if part != "__init__") for names in parts]


@pytest.mark.parametrize("name", with_examples())
def test_examples_in_docstrings_run(name: str) -> None:
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted > 0
    assert found.failed == 0

from __future__ import annotations

import ast
import importlib
import inspect
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
    "zones": ["partition", "read_zoning", "write_zoning", "zone_report"],
    "cases": ["case_files", "load_case", "read_report"],
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


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(gridpriv.__file__).read_text())
    seen = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module != "__future__"
        for alias in node.names
    } - {"TYPE_CHECKING", "lazily"}
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


def test_examples_in_docstrings_run() -> None:
    import doctest

    ran = 0
    for name in (
        "gridpriv", "gridpriv.learning", "gridpriv.zonal.settings", "gridpriv.privacy.budget",
        "gridpriv.privacy.adjacency",
    ):  # fmt: skip
        found = doctest.testmod(importlib.import_module(name))
        assert found.failed == 0, name
        ran += found.attempted
    assert ran >= 15

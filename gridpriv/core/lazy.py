"""Names that are imported on first use: of packages, and of what a room above adds."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def lazily(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package.

    Parameters
    ----------
    package : str
        Its name.
    file : str
        Its source. The names are those that it imports for type checkers, in a block of its own.
    """
    home = {
        alias.name: str(node.module)
        for block in ast.parse(Path(file).read_text(encoding="utf-8")).body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    def get(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted(home)


class Above:
    """An attribute that a class of a room above makes of its owner, imported on first use.

    So a result offers its pictures although nothing below imports what draws.
    """

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def __get__(self, owner: object, kind: type) -> Any:
        """Return what is made of the owner; the attribute itself from the class."""
        if owner is None:
            return self
        return getattr(import_module(self.module), self.name)(owner)

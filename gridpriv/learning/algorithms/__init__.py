"""One file an algorithm: a function of its name, of a task and a callback per round."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gridpriv.learning.algorithms.base import Algorithm, Releases, Task

_HOME = {"cdp-admm": "graph_admm", "ddp-admm": "graph_admm"}  # others have a file of their name


def find_algorithm(name: str) -> Algorithm:
    """Return the algorithm of a name."""
    file = _module(name)
    algorithm: Algorithm = getattr(file, file.__name__.rpartition(".")[2])
    return algorithm


def find_releases(name: str) -> Callable[[Task], Releases]:
    """Return the function that states an algorithm's releases in advance; non-private have none."""
    found: Callable[[Task], Releases] = _module(name).releases
    return found


def _module(name: str) -> Any:
    file = _HOME.get(name, name.replace("-", "_"))
    return import_module(f"gridpriv.learning.algorithms.{file}")

"""Algorithms: functions of a task and a callback per round, imported when one runs."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gridpriv.learning.algorithms.base import Algorithm, Releases, Task

# file, algorithm and its releases; others have a file and a function of their name
_HOME = {
    "admm": ("star_admm", "admm", ""),
    "dp-admm": ("star_admm", "dp_admm", "dp_admm_releases"),
    "pvp": ("star_admm", "pvp", "pvp_releases"),
    "cdp-admm": ("graph_admm", "graph_admm", "releases"),
    "ddp-admm": ("graph_admm", "graph_admm", "releases"),
}


def find_algorithm(name: str) -> Algorithm:
    """Return the algorithm of a name."""
    algorithm: Algorithm = _part(name, 1)
    return algorithm


def find_releases(name: str) -> Callable[[Task], Releases]:
    """Return the function that states an algorithm's releases in advance; non-private have none."""
    part: Callable[[Task], Releases] = _part(name, 2)
    return part


def _part(name: str, which: int) -> Any:
    plain = name.replace("-", "_")
    home = _HOME.get(name, (plain, plain, "releases"))
    return getattr(import_module(f"gridpriv.learning.algorithms.{home[0]}"), home[which])

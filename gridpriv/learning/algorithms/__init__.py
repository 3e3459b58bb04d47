"""One file an algorithm; each is a function of a task and a callback per round."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gridpriv.learning.algorithms.base import Algorithm, Releases, Task

_HOME = {
    "ryu-kim": "ryu_kim",
    "admm": "admm",
    "pvp": "pvp",
    "dvp": "dvp",
    "dp-admm": "dp_admm",
    "dpsgd": "dpsgd",
    "dp-fedavg": "dp_fedavg",
    "fedspd-dp": "fedspd_dp",
    "cdp-admm": "graph_admm",
    "ddp-admm": "graph_admm",
    "centralized": "centralized",
}


def find_algorithm(name: str) -> Algorithm:
    """Return the algorithm of a name."""
    algorithm: Algorithm = getattr(_module(name), name.replace("-", "_"))
    return algorithm


def find_releases(name: str) -> Callable[[Task], Releases]:
    """Return what tells an algorithm's releases before it runs; all but the non-private have it."""
    found: Callable[[Task], Releases] = _module(name).releases
    return found


def _module(name: str) -> Any:
    return import_module(f"gridpriv.learning.algorithms.{_HOME[name]}")

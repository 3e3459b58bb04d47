"""One file an algorithm; each is a function of a task and a callback per round."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gridpriv.learning.algorithms.base import Algorithm

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
    module = import_module(f"gridpriv.learning.algorithms.{_HOME[name]}")
    algorithm: Algorithm = getattr(module, name.replace("-", "_"))
    return algorithm

"""Networks that pandapower ships, built once per process: each use has a copy of its own.

Building one takes 0.6 s, copying it 0.01 s.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import cache, wraps
from typing import Any

import pandapower
from pandapower import networks

SHIPPED = ("case", "create_cigre", "create_kerber", "mv_", "iceland", "GB", "example_")


def copied(build: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that builds a network once per arguments, and returns copies of it."""
    built = cache(build)

    @wraps(build)
    def copy(*given: Any, **named: Any) -> Any:
        return deepcopy(built(*given, **named))

    return copy


def keep_networks() -> None:
    """Have pandapower's functions of networks return copies."""
    for name, build in vars(networks).copy().items():
        if name.startswith(SHIPPED) and callable(build) and not hasattr(build, "__wrapped__"):
            setattr(networks, name, copied(build))
    if not hasattr(pandapower.create_empty_network, "__wrapped__"):
        pandapower.create_empty_network = copied(pandapower.create_empty_network)

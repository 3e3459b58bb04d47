"""Units in which pypowsybl's quantities are read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

PowsyblNetwork: TypeAlias = Any
"""pypowsybl's network, which has no static type: the package is optional."""
BASE_MVA = 100.0
UNSET = 1e300
"""PowSyBl states a limit that is not there as the largest double."""


@contextmanager
def in_per_unit(network: PowsyblNetwork) -> Iterator[None]:
    """Let a network state its quantities per unit of :data:`BASE_MVA` for a while."""
    before = network.per_unit, network.nominal_apparent_power
    network.per_unit, network.nominal_apparent_power = True, BASE_MVA
    try:
        yield
    finally:
        network.per_unit, network.nominal_apparent_power = before

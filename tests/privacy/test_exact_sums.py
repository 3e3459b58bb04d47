"""Statistics under secure noise change by at most the declared sensitivity, rounding included."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from gridpriv.privacy.adjacency import DemandAdjacency
from gridpriv.privacy.linear import (
    GRID,
    Disclosure,
    exact_statistics,
    on_grid,
    total,
    tree,
)
from gridpriv.privacy.sensitivity import length

UNITS = 2000


def strategy(name: str) -> Any:
    if name == "total":
        return total(UNITS)
    return tree((np.zeros(UNITS, dtype=np.int64), np.arange(UNITS)), (0.3, 0.7))


@pytest.mark.parametrize("name", ["total", "tree"])
@pytest.mark.parametrize("beta", [1e-9, 1e-2])
def test_no_neighbour_moves_statistics_by_more_than_declared(name: str, beta: float) -> None:
    """2,000 buses, 299 p.u. of demand: plain sums exceed a beta of 1e-9 p.u. by 4.6e-5 of it."""
    generator = np.random.default_rng(4)
    demand = generator.uniform(0.0, 2.0 * 299.0 / UNITS, 2 * UNITS)
    disclosure = Disclosure(strategy(name), None, 0.0, exact=True)  # type: ignore[arg-type]
    declared = disclosure.sensitivity(DemandAdjacency(beta), "box").value
    here, largest = disclosure.measure(demand), 0.0
    for bus in range(0, UNITS, 211):
        for sign in (1.0, -1.0):
            changed = demand.copy()
            changed[bus] += sign * beta
            changed[bus + UNITS] += beta
            largest = max(largest, length(disclosure.measure(changed) - here, "box"))
    assert 0.9 * beta < largest <= declared
    assert declared <= (1.0 + 8.0 * GRID / beta) * beta * (1.0 + 1e-15)


def test_sums_on_the_grid_are_exact_in_any_order() -> None:
    generator = np.random.default_rng(5)
    demand = on_grid(generator.normal(0.0, 20.0, UNITS))
    exact = sum(map(Fraction, demand.tolist()))
    assert Fraction(float(exact_statistics(np.ones((1, UNITS)), demand)[0])) == exact
    assert Fraction(float(demand[generator.permutation(UNITS)].sum())) == exact


def test_demand_beyond_the_range_is_clipped() -> None:
    assert np.abs(on_grid(np.array([1e9, -1e9]))).max() == 2.0**16

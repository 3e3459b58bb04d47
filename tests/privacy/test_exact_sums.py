"""Statistics under secure noise change by at most the declared sensitivity, rounding included."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from gridpriv.grid.library import load_case, shipped_zoning
from gridpriv.grid.scenarios import DemandSeries
from gridpriv.power.ac.optimum import acopf
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
from gridpriv.privacy.temporal import TemporalBasis, TemporalDisclosure
from gridpriv.zonal.horizon import make_horizon
from gridpriv.zonal.prepared import prepare
from gridpriv.zonal.protected_case import prepare_publication, price_query
from gridpriv.zonal.settings import make_settings

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


@pytest.mark.parametrize("name", ["total", "tree"])
def test_statistics_of_a_series_sum_buses_exactly_before_they_average_steps(name: str) -> None:
    """A mean over three steps is off the grid; sums of such means depend on their order."""
    generator = np.random.default_rng(8)
    days = generator.uniform(0.0, 2.0, (3, 2, UNITS))
    for _ in range(5):
        order = generator.permutation(UNITS)
        totals = [
            TemporalDisclosure(
                Disclosure(strategy(name), None, 0.0, exact=True),  # type: ignore[arg-type]
                TemporalBasis(3),
            ).measure(demand.reshape(3, -1))
            for demand in (days, days[:, :, order])
        ]
        assert sums(totals[0]) == sums(totals[1])


def test_no_neighbour_moves_a_series_by_more_than_declared() -> None:
    """A change of 68.7 steps of the grid in every hour is rounded to 69."""
    steps, beta = 4, 1e-9
    disclosure = TemporalDisclosure(
        Disclosure(total(1), None, 0.0, exact=True),  # type: ignore[arg-type]
        TemporalBasis(steps, (1.0,)),
    )
    largest = 0.0
    for signs in product((-1.0, 1.0), repeat=2 * steps):
        change = np.reshape(signs, (steps, 2))  # of p and of q
        demand = change * 0.31 * GRID
        moved = disclosure.measure(demand + beta * change) - disclosure.measure(demand)
        largest = max(largest, length(moved, "box"))
    declared = disclosure.sensitivity(DemandAdjacency(beta), "box").value
    plain = replace(disclosure, level=replace(disclosure.level, exact=False))
    assert plain.sensitivity(DemandAdjacency(beta), "box").value < largest <= declared


def sums(statistics: Any) -> list[float]:
    """Return the statistics of the sums of p and of q, which come first."""
    return [float(half[0]) for half in np.split(statistics, 2)]


def test_demand_beyond_the_range_is_clipped() -> None:
    assert np.abs(on_grid(np.array([1e9, -1e9]))).max() == 2.0**16


@pytest.mark.parametrize("noise", ["secure", "simulated"])
def test_everything_that_gets_secure_noise_is_summed_without_rounding(noise: str) -> None:
    case, exact = load_case("case14"), noise == "secure"
    zoning, curve = shipped_zoning(case), np.linspace(0.8, 1.2, 24)[:, None]
    assert zoning is not None
    series = DemandSeries(
        case, tuple(map(str, range(24))), curve * case.pd, curve * case.qd, "made"
    )
    levels = [*prepare(case, zoning, make_settings(noise=noise)).disclosures]
    for given in ({}, {"temporal_basis": "2"}, {"stream": "24h"}):
        horizon = make_horizon(series, zoning, make_settings(noise=noise, **given))
        levels += [item.level for item in horizon.disclosures]
    for release in ("bus", "total", "tree", "auto"):
        levels.append(
            prepare_publication(case, make_settings(noise=noise, release=release)).disclosure
        )
    assert [level.exact for level in levels] == [exact] * len(levels)
    query = price_query(acopf(case), DemandAdjacency(0.1), 1.0, noise)
    assert query.exact == exact
    assert ("with rounding" in query.release.sensitivity.bound_source) == exact


@pytest.mark.parametrize("scale", [0.5, 2.0])
@pytest.mark.parametrize("noise", ["secure", "simulated"])
def test_scaled_demand_changes_statistics_as_the_owners_does(noise: str, scale: float) -> None:
    """A bus of the run moves by scale * beta; the release is of the owner's demand."""
    case = load_case("case14")
    ready = prepare(case, shipped_zoning(case), make_settings(noise=noise, load_scale=scale))
    assert ready.rules.noise is not None
    beta, norm = ready.run_adjacency.beta, ready.rules.noise.norm
    assert beta == pytest.approx(scale * ready.rules.adjacency.beta)
    for zone, disclosure in zip(ready.zones, ready.disclosures, strict=True):
        changed = zone.demand.copy()
        changed[[0, len(zone.own)]] += beta
        change = length(disclosure.measure(changed) - disclosure.measure(zone.demand), norm)
        declared = disclosure.sensitivity(ready.rules.adjacency, norm).value
        assert declared * (1.0 - 1e-6) < change < declared * (1.0 + 1e-12)

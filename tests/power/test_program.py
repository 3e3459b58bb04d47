"""The compiled matrices compared with Pyomo's model of the zones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from pyomo_program import read_model
from scipy import sparse

from gridpriv import load_case, partition
from gridpriv.grid.case import PIECEWISE, GenCost
from gridpriv.power.objective import IMBALANCE, cost_objective, losses_objective
from gridpriv.power.program import compile_zone
from gridpriv.power.zone import make_network, make_zones


def grids():
    """Grids that have every family of constraints between them."""
    case14 = load_case("case14")  # a shunt, a transformer of its own tap, and no thermal limits
    yield case14
    rated = replace(case14, name="rated", rate=np.linspace(0.3, 2.0, case14.n_branch))
    yield rated
    case118 = load_case("case118")  # parallel branches of opposite orientation
    yield case118
    rng = np.random.default_rng(5)
    low, high = rng.uniform(-0.6, 0.1, case118.n_branch), rng.uniform(0.2, 0.9, case118.n_branch)
    low[::5], high[::7] = -np.inf, np.inf
    yield replace(case118, name="angles", angmin=low, angmax=high)
    kinked = GenCost(PIECEWISE, (0.0, 3.0, 40.0, 500.0, 80.0, 1700.0))
    yield replace(rated, name="piecewise", cost=(kinked, kinked, *rated.cost[2:]))
    yield replace(rated, name="piecewise everywhere", cost=(kinked,) * rated.n_gen)
    endless = np.full(case14.n_branch, np.inf)
    yield replace(case14, name="one-sided", angmin=np.full(case14.n_branch, -0.4), angmax=endless)
    yield replace(case14, name="capacitive", x=np.where(case14.x > 0.5, -case14.x, case14.x))


@pytest.mark.parametrize("case", list(grids()), ids=lambda case: case.name)
def test_every_matrix_is_what_pyomo_makes_of_the_model(case):
    objectives = (IMBALANCE, cost_objective(case), losses_objective(case))
    for network in (make_network(case, objective) for objective in objectives):
        zonings = [partition(case, 3)] + [partition(case, case.n_bus)] * (case.name == "case14")
        for zone in (zone for zoning in zonings for zone in make_zones(network, zoning)):
            program, expected = compile_zone(zone), read_model(zone)
            for name, value in expected.items():
                result = getattr(program, name)
                if sparse.issparse(value):
                    assert result.nnz == value.nnz, name
                np.testing.assert_allclose(
                    dense(result), dense(value), rtol=1e-14, atol=0.0, err_msg=name
                )


def dense(value):
    return value.toarray() if sparse.issparse(value) else value

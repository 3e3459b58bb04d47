"""A few buses' part of an inverse, found without the rest of it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from gridpriv import load_case
from gridpriv.grid.admittance import Factors, laplacian


@pytest.mark.parametrize(
    "name", ["case14", "case118", pytest.param("case300", marks=pytest.mark.large)]
)
@pytest.mark.parametrize("seed", range(3))
def test_rows_of_the_inverse_are_those_of_the_dense_one(name: str, seed: int) -> None:
    case, rng = load_case(name), np.random.default_rng(seed)
    weight = rng.uniform(0.1, 10.0, case.n_branch)
    matrix = laplacian(case.f_bus, case.t_bus, weight, case.n_bus) + sparse.eye_array(case.n_bus)
    factors = Factors.of(matrix.tocsc())
    buses = rng.permutation(case.n_bus)[:7]
    right = rng.normal(size=(7, 3))
    inverse = np.linalg.inv(matrix.toarray())
    found = factors.solve_at(buses, right)
    np.testing.assert_allclose(found, inverse[np.ix_(buses, buses)] @ right, atol=1e-12)
    every = rng.normal(size=case.n_bus)
    np.testing.assert_allclose(factors.solve(every), inverse @ every, atol=1e-11)


def test_buses_without_a_branch_have_their_own_pivots() -> None:
    factors = Factors.of(sparse.csc_array(np.diag([2.0, 4.0, 5.0])))
    found = factors.solve_at(np.array([2, 0]), np.eye(2))
    np.testing.assert_allclose(found, np.diag([0.2, 0.5]))


@pytest.mark.parametrize("matrix", [[[0.0, 1.0], [1.0, 0.0]], [[1.0, 1.0], [1.0, 1.0]]])
def test_a_pivot_of_nothing_is_refused(matrix: list[list[float]]) -> None:
    with pytest.raises(RuntimeError):
        Factors.of(sparse.csc_array(np.array(matrix)))

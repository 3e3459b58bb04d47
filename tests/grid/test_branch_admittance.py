"""Branch admittances compared with a two-port, another code, and a published solution.

Entries of an inverse for a few buses, computed without the others.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from gridpriv.grid.case import BRANCH_FIELDS, Case
from gridpriv.grid.library import load_case
from gridpriv.grid.network import Factors, branch_admittance, laplacian


def one_branch(**values: float) -> Case:
    case = load_case("case14")
    rows = {n: getattr(case, n)[:1] for n in BRANCH_FIELDS}
    rows |= {name: np.array([value]) for name, value in values.items()}
    return replace(case, **rows)


@given(
    st.floats(0.001, 0.2),
    st.floats(0.01, 0.5),
    st.floats(0, 0.5),
    st.floats(0.8, 1.2),
    st.floats(-0.6, 0.6),
    st.complex_numbers(min_magnitude=0.9, max_magnitude=1.1),
    st.complex_numbers(min_magnitude=0.9, max_magnitude=1.1),
)
def test_two_port_is_an_ideal_transformer_then_a_pi(
    r: float, x: float, b: float, tap: float, shift: float, v_f: complex, v_t: complex
) -> None:
    y = branch_admittance(one_branch(r=r, x=x, b=b, tap=tap, shift=shift))
    ratio = tap * np.exp(1j * shift)
    inner = v_f / ratio  # voltage behind the transformer
    through = (inner - v_t) / (r + 1j * x)
    i_inner = through + 0.5j * b * inner
    i_t = -through + 0.5j * b * v_t
    i_f = i_inner / np.conj(ratio)  # an ideal transformer keeps power
    np.testing.assert_allclose(y.ff[0] * v_f + y.ft[0] * v_t, i_f, atol=1e-9)
    np.testing.assert_allclose(y.tf[0] * v_f + y.tt[0] * v_t, i_t, atol=1e-9)


@pytest.mark.parametrize("name", ["case14", "case118"])
def test_agrees_with_the_pypower_of_pandapower(name: str) -> None:
    make_ybus = pytest.importorskip("pandapower.pypower.makeYbus")
    case = load_case(name)
    bus, branch = np.zeros((case.n_bus, 15)), np.zeros((case.n_branch, 26))
    bus[:, 0], bus[:, 4], bus[:, 5] = np.arange(case.n_bus), 100 * case.gs, 100 * case.bs
    branch[:, 0], branch[:, 1], branch[:, 10] = case.f_bus, case.t_bus, 1
    branch[:, 2], branch[:, 3], branch[:, 4] = case.r, case.x, case.b
    branch[:, 8], branch[:, 9] = case.tap, np.rad2deg(case.shift)
    _, from_end, to_end = make_ybus.makeYbus(100.0, bus, branch)
    y, rows = branch_admittance(case), np.arange(case.n_branch)
    for ours, reference, at in [
        (y.ff, from_end, case.f_bus),
        (y.ft, from_end, case.t_bus),
        (y.tf, to_end, case.f_bus),
        (y.tt, to_end, case.t_bus),
    ]:
        np.testing.assert_allclose(ours, np.asarray(reference[rows, at]).ravel(), atol=1e-10)


def test_the_published_voltages_of_case14_balance(case14: Case) -> None:
    """The archive prints voltages to 3 and angles to 2 decimals: balance holds to about 1 MW."""
    y = branch_admittance(case14)
    v = case14.vm * np.exp(1j * case14.va)
    f, t = case14.f_bus, case14.t_bus
    flow_f = v[f] * np.conj(y.ff * v[f] + y.ft * v[t])
    flow_t = v[t] * np.conj(y.tf * v[f] + y.tt * v[t])
    shunt = np.abs(v) ** 2 * (case14.gs - 1j * case14.bs)
    leaving = np.bincount(f, flow_f.real, 14) + np.bincount(t, flow_t.real, 14) + shunt.real
    given_in = np.bincount(case14.gen_bus, case14.pg, 14) - case14.pd
    np.testing.assert_allclose(leaving, given_in, atol=0.012)
    losses = 100 * (flow_f + flow_t).real.sum()
    assert losses == pytest.approx(13.39, abs=0.1)  # the archive's slack gives 232.4 - 219 served


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
    actual = factors.solve_at(buses, right)
    np.testing.assert_allclose(actual, inverse[np.ix_(buses, buses)] @ right, atol=1e-12)
    every = rng.normal(size=case.n_bus)
    np.testing.assert_allclose(factors.solve(every), inverse @ every, atol=1e-11)


def test_buses_without_a_branch_have_their_own_pivots() -> None:
    factors = Factors.of(sparse.csc_array(np.diag([2.0, 4.0, 5.0])))
    computed = factors.solve_at(np.array([2, 0]), np.eye(2))
    np.testing.assert_allclose(computed, np.diag([0.2, 0.5]))


@pytest.mark.parametrize("matrix", [[[0.0, 1.0], [1.0, 0.0]], [[1.0, 1.0], [1.0, 1.0]]])
def test_a_pivot_of_nothing_is_refused(matrix: list[list[float]]) -> None:
    with pytest.raises(RuntimeError):
        Factors.of(sparse.csc_array(np.array(matrix)))

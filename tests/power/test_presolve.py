"""The reduced program is equivalent to the program."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from gridpriv import load_case, shipped_zoning
from gridpriv.grid.partition import partition
from gridpriv.power.presolve import presolve
from gridpriv.power.problem import make_solver
from gridpriv.power.program import compile_zone
from gridpriv.power.zone import make_network, make_zones


@pytest.fixture(scope="module")
def reduced():
    case = load_case("case14")
    zones = make_zones(make_network(case), shipped_zoning(case))
    return [presolve(compile_zone(zone)) for zone in zones]


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_any_reduced_point_satisfies_the_equalities(reduced, seed):
    rng = np.random.default_rng(seed)
    for program in reduced:
        z = program.restore(rng.normal(size=program.size))
        assert abs(program.program.a_eq @ z - program.program.b_eq).max() < 1e-9


@given(seed=st.integers(0, 2**32 - 1), exact=st.booleans())
@settings(max_examples=25, deadline=None)
def test_the_objective_of_x_is_the_objective_of_z(reduced, seed, exact):
    rng = np.random.default_rng(seed)
    for program in reduced:
        linear = rng.normal(size=program.program.size)
        metric = rng.uniform(0.0, 10.0, program.program.size)
        upper = sparse.csc_array(
            (program.quadratic(metric, exact=exact), program.p_indices, program.p_indptr),
            shape=(program.size, program.size),
        )
        full = upper + sparse.triu(upper, 1).T
        q = program.linear(linear, metric, exact=exact)
        x, y = rng.normal(size=(2, program.size))

        def on_z(point, program=program, linear=linear, metric=metric):
            z = program.restore(point)
            curved = np.sum((program.program.imbalance @ z) ** 2) if exact else 0.0
            return curved + linear @ z + 0.5 * z @ (metric * z)

        assert program.curved(upper.data, x) == pytest.approx(full @ x)
        reduced_gap = 0.5 * x @ (full @ x) + q @ x - 0.5 * y @ (full @ y) - q @ y
        assert reduced_gap == pytest.approx(on_z(x) - on_z(y), rel=1e-9, abs=1e-6)


def test_bounds_are_dropped_only_where_a_cone_implies_them(reduced):
    """The rest has the bounds of w and of generation; those of wr and wi follow from the cones."""
    for program in reduced:
        zone = program.program.zone
        free = zone.gens[zone.network.case.pmin[zone.gens] < zone.network.case.pmax[zone.gens]]
        fixed = len(zone.gens) - len(free)
        assert np.isfinite(program.upper).sum() == len(zone.buses) + 2 * len(zone.gens) - fixed
        assert program.size == len(zone.buses) + 2 * len(zone.pairs) + 2 * len(zone.gens) - fixed


@pytest.fixture(scope="module")
def star(tmp_path_factory):
    """A bus with 30 lines, one zone."""
    path = tmp_path_factory.mktemp("star") / "star.m"
    leaves = range(2, 32)
    path.write_text(
        "function mpc = star\nmpc.baseMVA = 100;\nmpc.bus = [\n1 3 0 0 0 0 1 1 0 230 1 1.1 0.9;\n"
        + "".join(f"{k} 1 9 3 0 0 1 1 0 230 1 1.1 0.9;\n" for k in leaves)
        + "];\nmpc.gen = [1 300 0 300 -300 1 100 1 600 0];\nmpc.branch = [\n"
        + "".join(f"1 {k} 0.01 0.1 0.02 50 0 0 0 0 1 -360 360;\n" for k in leaves)
        + "];\nmpc.gencost = [2 0 0 3 0.01 20 0];\n"
    )
    case = load_case(path)
    (zone,) = make_zones(make_network(case), partition(case, 1))
    return presolve(compile_zone(zone))


def test_matched_solves_come_to_the_minimiser_of_exact_ones(star):
    program, rng = star.program, np.random.default_rng(6)
    exact, matched = (
        make_solver(
            "clarabel", program, lambda: star, exact=True, solver_tolerance=solver_tolerance
        )
        for solver_tolerance in ("tight", "matched")
    )
    for linear in program.cost_linear + rng.normal(0.0, 3.0, (5, program.size)):
        metric = rng.uniform(1.0, 100.0, program.size)
        want, result = (p.solve(linear, metric, near=p is matched).z for p in (exact, matched))
        assert result == pytest.approx(want, abs=1e-3)
        assert abs(program.a_eq @ result - program.b_eq).max() < 1e-9

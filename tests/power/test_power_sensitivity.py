"""Declared sensitivities against closed forms and against solved problems."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gridpriv import load_case, shipped_zoning
from gridpriv.power.problem import ZoneProblem
from gridpriv.power.program import compile_zone
from gridpriv.power.zone import make_network, make_zones
from gridpriv.privacy.adjacency import DemandAdjacency, parse_beta

BETA = 0.01


def problems(name):
    case = load_case(name)
    zones = make_zones(make_network(case), shipped_zoning(case))
    return [ZoneProblem(compile_zone(zone), "clarabel") for zone in zones]


@pytest.fixture(scope="module")
def case14():
    return problems("case14")


def test_the_largest_bus_of_case118_has_norm_13():
    """Bus 49: twelve branch ends and one generator; RK's 2 beta is 13 times too small."""
    result = [p.gradient_sensitivity(DemandAdjacency(BETA, "p"), 1) for p in problems("case118")]
    assert max(s.value for s in result) == pytest.approx(2 * BETA * 13)
    assert "bus 49" in max(result, key=lambda s: s.value).bound_source


@pytest.mark.parametrize("norm", [1, 2])
def test_the_gradient_bound_is_reached_by_a_worst_neighbour(case14, norm):
    """Brute force over buses and signs: the declared value is the largest, not just a bound."""
    for problem in case14:
        own = len(problem.program.zone.own)
        z, d = problem.start(), problem.program.zone.demand
        base = problem.gradient(z, d)
        worst = 0.0
        for bus in range(own):
            for p in (-BETA, BETA):
                for q in (-BETA, BETA):
                    other = d.copy()
                    other[bus] += p
                    other[own + bus] += q
                    worst = max(worst, np.linalg.norm(problem.gradient(z, other) - base, norm))
        declared = problem.gradient_sensitivity(DemandAdjacency(BETA), norm).value
        assert worst == pytest.approx(declared, rel=1e-9)


@given(
    bus=st.integers(0, 3),
    p=st.floats(-1, 1),
    q=st.floats(-1, 1),
    seed=st.integers(0, 99),
    update=st.sampled_from(["linearized", "exact"]),
    rho=st.sampled_from([0.5, 3.0, 100.0]),
)
@settings(max_examples=40, deadline=None)
def test_the_minimiser_stays_within_its_declared_sensitivity(case14, bus, p, q, seed, update, rho):
    problem = case14[seed % 3]
    own = len(problem.program.zone.own)
    rng = np.random.default_rng(seed)
    d = problem.program.zone.demand * rng.uniform(0.5, 1.5)
    other = d.copy()
    other[bus % own] += BETA * p
    other[own + bus % own] += BETA * q
    shared = rng.uniform(size=problem.program.size) < 0.4
    metric = np.where(shared, rho, 0.0) + (2.0 if update == "linearized" else 0.0)
    pull = rng.normal(size=problem.program.size) * np.where(shared, rho, 0.0)
    at = problem.start() if update == "linearized" else np.zeros(problem.program.size)
    solve = problem.minimise if update == "linearized" else problem.minimise_exact
    z, y = (solve(problem.gradient(at, x) - pull, metric).z for x in (d, other))
    difference = (z - y) if update == "linearized" else (z - y)[shared]
    if not shared.any():
        return
    for norm in (1, 2):
        declared = problem.output_sensitivity(DemandAdjacency(BETA), norm, update, metric).value
        assert np.linalg.norm(difference, norm) <= declared * (1 + 1e-6) + 2e-5  # solver tolerance


def test_the_proven_l1_bound_is_about_half_of_root_n_times_l2(case14):
    for problem in case14:
        metric = np.full(problem.program.size, 101.0)
        first = problem.output_sensitivity(DemandAdjacency(BETA), 1, "linearized", metric).value
        two = problem.output_sensitivity(DemandAdjacency(BETA), 2, "linearized", metric).value
        root = np.sqrt(problem.program.size)
        assert 0.5 * root * two < first < 0.8 * root * two


def test_the_output_sensitivity_falls_with_the_round(case14):
    values = [
        case14[0]
        .output_sensitivity(DemandAdjacency(BETA), 2, "linearized", np.full(74, 100.0 + np.sqrt(t)))
        .value
        for t in (1, 10, 100)
    ]
    assert values[0] > values[1] > values[2]


def test_beta_is_read_with_units():
    assert parse_beta("1MW").per_unit(100.0) == pytest.approx(0.01)
    assert parse_beta("500kW").per_unit(100.0) == pytest.approx(0.005)
    assert parse_beta("0.02").per_unit(100.0) == 0.02
    assert parse_beta("1e-3").per_unit(100.0) == 1e-3

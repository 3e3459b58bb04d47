"""Minimisers with a proven error, on problems whose minimiser is known in closed form."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from gridpriv.core.errors import SolverError
from gridpriv.grid.library import load_case, shipped_zoning
from gridpriv.power.presolve import presolve
from gridpriv.power.program import Columns, compile_zone
from gridpriv.power.solvers.clarabel import Certified
from gridpriv.power.zone import FLOWS, make_network, make_zones


@pytest.fixture(scope="module")
def zones():
    case = load_case("case14")
    return [compile_zone(z) for z in make_zones(make_network(case), shipped_zoning(case))]


def known(program, rng, metric):
    """A feasible z, and the linear term that makes it the minimiser.

    Voltages are flat and generators stand at a bound or inside. What draws a generator points out
    of the bound it stands at, and is zero inside: the optimality conditions, written by hand.
    """
    at, z, outward = Columns(program.zone), program.start.copy(), np.zeros(program.size)
    for family in ("pg", "qg"):
        for k in at.all(family):
            low, high = program.lower[k], program.upper[k]
            place = rng.integers(3)
            z[k] = (low, 0.5 * (low + high), high)[place]
            outward[k] = (-1.0, 0.0, 1.0)[place] * rng.uniform(0.0, 5.0)
    flows = np.concatenate([at.all(family) for family in FLOWS])
    z[flows] = 0.0
    z[flows] = program.b_eq - program.a_eq @ z  # each row of Ohm's law is a flow less what it is
    assert abs(program.a_eq @ z - program.b_eq).max() < 1e-12
    return z, -metric * z - outward


@pytest.mark.parametrize("size", [1.0, 100.0, 1e4])
def test_what_is_proven_holds_and_what_cannot_be_is_refused(zones, size):
    rng = np.random.default_rng(3)
    proven = refused = 0
    for program in zones:
        solver = Certified(presolve(program), exact=False)
        metric = size * rng.uniform(0.5, 2.0, program.size)
        best, linear = known(program, rng, metric)
        for within in np.sqrt(size) * np.geomspace(1e-1, 1e-9, 5):
            try:
                z = solver.solve(linear, metric, within).z
            except SolverError as error:
                assert f"noise covers an error of {within:.3g}" in str(error)
                refused += 1
                continue
            proven += 1
            assert np.sqrt(metric @ (z - best) ** 2) <= within
    assert proven >= 3
    assert refused >= 3


def test_where_no_attempt_comes_to_a_point_no_error_is_named(zones, monkeypatch):
    reduced = presolve(zones[0])
    lost = SimpleNamespace(x=np.full(reduced.size, np.nan), z=np.array([np.nan]), iterations=1)
    monkeypatch.setattr(Certified, "_attempt", lambda *_: lost)
    size = zones[0].size
    with pytest.raises(SolverError, match=r"error of 0\.1, and none is proven"):
        Certified(reduced, exact=False).solve(np.zeros(size), np.ones(size), 0.1)

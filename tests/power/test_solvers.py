"""Independent solvers on every zone.

Minimizers with a proven error, on problems whose minimizer is known in closed form.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from gridpriv.core.errors import SolverError
from gridpriv.grid.library import load_case, shipped_zoning
from gridpriv.power.presolve import presolve
from gridpriv.power.problem import check_solver, make_solver
from gridpriv.power.program import Columns, compile_zone
from gridpriv.power.solvers.clarabel import Certified
from gridpriv.power.zone import FLOWS, make_network, make_zones

RHO = 100.0


def zone_programs(name):
    case = load_case(name)
    return [(compile_zone(z), z) for z in make_zones(make_network(case), shipped_zoning(case))]


def first_update(program, zone, *, exact):
    """Return (linear, metric) of the first local update from the flat start."""
    z = program.start
    s = zone.demand + (0.0 if exact else 1.0) * (program.imbalance @ z)
    gradient = 2.0 * (program.imbalance.T @ s)
    metric = np.full(program.size, RHO + (0.0 if exact else 1.0))
    return gradient - metric * z, metric


def objective(program, z, linear, metric, *, exact):
    curved = np.sum((program.imbalance @ z) ** 2) if exact else 0.0
    return curved + linear @ z + 0.5 * z @ (metric * z)


@pytest.mark.parametrize(
    ("name", "exact"),
    [
        ("case14", False),
        ("case118", True),
        pytest.param("case14", True, marks=pytest.mark.slow),
        pytest.param("case118", False, marks=pytest.mark.slow),
    ],
)
def test_ipopt_clarabel_and_pyomo_agree_on_every_zone(name, exact):
    for program, zone in zone_programs(name):
        linear, metric = first_update(program, zone, exact=exact)
        values = {}
        for solver in ("clarabel", "ipopt", "pyomo:ipopt"):
            result = make_solver(
                solver, program, lambda program=program: presolve(program), exact=exact
            ).solve(linear, metric)
            values[solver] = objective(program, result.z, linear, metric, exact=exact)
            assert abs(program.a_eq @ result.z - program.b_eq).max() < 1e-6
            assert (result.z >= program.lower - 1e-6).all()
            assert (result.z <= program.upper + 1e-6).all()
        assert values["ipopt"] == pytest.approx(values["clarabel"], rel=1e-6, abs=1e-6)
        assert values["pyomo:ipopt"] == pytest.approx(values["clarabel"], rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("solver", ["clarabel", "ipopt"])
def test_a_cached_solver_returns_what_a_fresh_one_does(solver):
    program, zone = zone_programs("case14")[0]
    cached = make_solver(solver, program, lambda: presolve(program), exact=True)
    rng = np.random.default_rng(3)
    for _ in range(5):
        linear = rng.normal(size=program.size)
        metric = rng.uniform(0.5, 5.0, program.size)
        fresh = make_solver(solver, program, lambda: presolve(program), exact=True)
        a, b = cached.solve(linear, metric).z, fresh.solve(linear, metric).z
        first = objective(program, a, linear, metric, exact=True)
        other = objective(program, b, linear, metric, exact=True)
        assert first == pytest.approx(other, rel=1e-7, abs=1e-7)
    assert zone.name == "1"


@pytest.mark.parametrize("solver", ["clarabel", "ipopt"])
def test_a_problem_without_solution_is_an_error_with_the_solvers_status(solver):
    from dataclasses import replace

    program, _ = zone_programs("case14")[1]
    w = program.coordinates < 14
    impossible = replace(
        program,  # w held far below what its lower voltage bound and the cones allow
        lower=np.where(w, 1.0, program.lower),
        upper=np.where(w, 1.0, program.upper),
        cone_offset=program.cone_offset - 5.0,
    )
    with pytest.raises(SolverError, match=solver):
        make_solver(solver, impossible, lambda: presolve(impossible), exact=False).solve(
            np.zeros(program.size), np.ones(program.size)
        )


def test_unknown_solvers_are_refused_with_the_choices(capfd):
    from gridpriv import InputError

    with pytest.raises(InputError, match="ipopt, clarabel, pyomo:NAME"):
        check_solver("gurobi")
    with pytest.raises(InputError, match="pyomo:nosuchsolver"):
        check_solver("pyomo:nosuchsolver")
    assert capfd.readouterr() == ("", "")


def test_a_point_near_the_minimiser_is_returned_on_request_only(monkeypatch):
    """Clarabel's tolerance is below floating-point accuracy."""
    (program, zone), *_ = zone_programs("case14")
    linear, metric = first_update(program, zone, exact=True)
    ipopt, clarabel = (
        make_solver(name, program, lambda: presolve(program), exact=True)
        for name in ("ipopt", "clarabel")
    )
    exact = objective(program, ipopt.solve(linear, metric).z, linear, metric, exact=True)
    beyond = {"tol_feas": 1e-30, "tol_gap_abs": 1e-30, "tol_gap_rel": 1e-30}
    monkeypatch.setattr("gridpriv.power.solvers.clarabel.FAST", beyond)
    monkeypatch.setattr("gridpriv.power.solvers.clarabel.SAFER", ())
    with pytest.raises(SolverError, match="AlmostSolved"):
        clarabel.solve(linear, metric)
    z = clarabel.solve(linear, metric, near=True).z
    assert objective(program, z, linear, metric, exact=True) == pytest.approx(exact, rel=1e-4)
    assert abs(program.a_eq @ z - program.b_eq).max() < 1e-4


@pytest.mark.parametrize("solver_tolerance", ["matched", "tight"])
@pytest.mark.parametrize("solver", ["ipopt", "clarabel"])
def test_a_solver_has_no_memory(solver, solver_tolerance):
    """Earlier solves do not change a bit of later ones: runs share solvers."""
    program, _ = zone_programs("case14")[0]
    reduced, rng = presolve(program), np.random.default_rng(3)

    def made():
        return make_solver(
            solver, program, lambda: reduced, exact=True, solver_tolerance=solver_tolerance
        )

    reused, metrics = made(), rng.uniform(0.01, 1e3, (2, program.size))
    for which, near in [(0, 0), (1, 1), (1, 0), (0, 0), (0, 1), (0, 1), (1, 1), (0, 1), (0, 0)]:
        linear, metric = program.cost_linear + rng.laplace(0.0, 30.0, program.size), metrics[which]
        fresh = made().solve(linear, metric, near=bool(near))
        again = reused.solve(linear, metric, near=bool(near))
        assert again.z.tobytes() == fresh.z.tobytes()
        assert again.iterations == fresh.iterations


@pytest.fixture(scope="module")
def zones():
    case = load_case("case14")
    return [compile_zone(z) for z in make_zones(make_network(case), shipped_zoning(case))]


def known(program, rng, metric):
    """A feasible z, and the linear term that makes it the minimiser.

    Voltages are flat and generators are at a bound or inside. The gradient of a generator points
    out of its active bound, and is zero inside: the optimality conditions.
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
                assert f"solver error of at most {within:.3g}" in str(error)
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
    with pytest.raises(SolverError, match=r"error of at most 0\.1, but none is proven"):
        Certified(reduced, exact=False).solve(np.zeros(size), np.ones(size), 0.1)

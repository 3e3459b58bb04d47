"""The model against AC power flows that pandapower computed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gridpriv import load_case, shipped_zoning
from gridpriv.core.errors import SolverError
from gridpriv.grid.network import branch_admittance
from gridpriv.grid.pandapower_writer import write_net
from gridpriv.power.centralized import SolvedRelaxation, relax
from gridpriv.power.program import compile_zone
from gridpriv.power.zone import make_network, make_zones


def power_flow(case):
    """Return complex voltages of pandapower's AC power flow at the case's own set points."""
    import pandapower as pp

    net, _ = write_net(case)
    pp.runpp(net, tolerance_mva=1e-9, trafo_model="pi", calculate_voltage_angles=True, numba=False)
    result = net.res_bus.loc[case.bus_id]
    return result.vm_pu.to_numpy() * np.exp(1j * np.deg2rad(result.va_degree.to_numpy()))


def lifted(network, v):
    """Return the grid's variables at complex voltages, generation matched to the flows."""
    case = network.case
    y = branch_admittance(case)
    vf, vt = v[case.f_bus], v[case.t_bus]
    s_from = vf * np.conj(y.ff * vf + y.ft * vt)
    s_to = vt * np.conj(y.tf * vf + y.tt * vt)
    product = v[network.pair_i] * np.conj(v[network.pair_j])
    out = np.zeros(case.n_bus, complex)
    np.add.at(out, case.f_bus, s_from)
    np.add.at(out, case.t_bus, s_to)
    out += (case.gs - 1j * case.bs) * abs(v) ** 2 + case.pd + 1j * case.qd
    at = np.bincount(case.gen_bus, minlength=case.n_bus)
    each = out[case.gen_bus] / at[case.gen_bus]
    return np.concatenate(
        [
            abs(v) ** 2,
            product.real,
            product.imag,
            s_from.real,
            s_from.imag,
            s_to.real,
            s_to.imag,
            each.real,
            each.imag,
        ]
    )


@pytest.mark.parametrize("name", ["case14", "case118"])
def test_an_ac_power_flow_satisfies_the_equalities_and_the_cones_with_equality(name):
    case = load_case(name)
    network = make_network(case)
    grid = lifted(network, power_flow(case))
    for zone in make_zones(network, shipped_zoning(case)):
        program = compile_zone(zone)
        z = grid[zone.coordinates]
        assert abs(program.a_eq @ z - program.b_eq).max() < 1e-8
        rows = program.cone @ z + program.cone_offset
        at = 0
        for size in program.cone_sizes:
            assert abs(rows[at] - np.linalg.norm(rows[at + 1 : at + size])) < 1e-8
            at += size
        imbalance = program.imbalance @ z + zone.demand
        with_gen = np.isin(zone.own, case.gen_bus)
        assert abs(imbalance[np.tile(with_gen, 2)]).max() < 1e-10
        assert abs(imbalance).max() < 1e-8


def test_the_sign_printed_in_the_paper_is_refuted_by_a_power_flow():
    """(D.2f) prints w_ji + w_ij where Ohm's law has the difference: the sum misses by far."""
    case = load_case("case14")
    network = make_network(case)
    v = power_flow(case)
    y = branch_admittance(case)
    vf, vt = v[case.f_bus], v[case.t_bus]
    p_from = (vf * np.conj(y.ff * vf + y.ft * vt)).real
    wr, w = (vf * np.conj(vt)).real, abs(vf) ** 2
    difference = vt.real * vf.imag - vf.real * vt.imag
    total = vt.real * vf.imag + vf.real * vt.imag
    right = y.ff.real * w + y.ft.real * wr + y.ft.imag * difference
    wrong = y.ff.real * w + y.ft.real * wr + y.ft.imag * total
    assert abs(p_from - right).max() < 1e-10
    assert abs(p_from - wrong).max() > 0.1
    assert network.case is case


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("case14", {"1": 74, "2": 51, "3": 58}), ("case118", {"1": 381, "2": 483, "3": 526})],
)
def test_zones_have_the_published_number_of_variables(name, sizes):
    case = load_case(name)
    zones = make_zones(make_network(case), shipped_zoning(case))
    assert {zone.name: compile_zone(zone).size for zone in zones} == sizes


def test_the_feasible_set_does_not_depend_on_demand():
    case = load_case("case14")
    zoning = shipped_zoning(case)
    for scaled in (case.scale_load(0.0), case.scale_load(3.0)):
        pair = zip(
            make_zones(make_network(case), zoning),
            make_zones(make_network(scaled), zoning),
            strict=True,
        )
        for one, other in pair:
            a, b = compile_zone(one), compile_zone(other)
            for field in ("a_eq", "cone", "imbalance"):
                assert abs(getattr(a, field) - getattr(b, field)).max() == 0
            for field in ("lower", "upper", "b_eq", "cone_offset", "start"):
                assert np.array_equal(getattr(a, field), getattr(b, field))


def test_parallel_branches_of_opposite_orientation_share_a_pair():
    case = load_case("case118")
    network = make_network(case)
    order = np.argsort(network.pair_of, kind="stable")
    same = network.pair_of[order][1:] == network.pair_of[order][:-1]
    assert same.sum() == 7  # 186 branches on 179 bus pairs
    assert len(network.pair_i) == 179
    assert (network.pair_i < network.pair_j).all()


ORDINARY = (0.01, 0.05, 0.02, 0, 0, 0)
"""r, x, b, rate, tap, shift."""


def short_branches(x: float) -> dict[str, list[tuple[float, ...]]]:
    """Return branches (from, to, r, x, b, rate, tap, shift) of six-bus grids with couplers of x."""
    line, rest = (0, x, 0, 0, 0, 0), [(4, 5, *ORDINARY), (6, 1, *ORDINARY)]
    ring = [(2, 3, *ORDINARY), *rest]
    return {
        "alternating": [(1, 2, *line), (3, 4, *line), (5, 6, *line), *ring],
        "chain": [(1, 2, *line), (2, 3, *line), (5, 6, *line), (3, 4, *ORDINARY), *rest],
        "loop": [
            (1, 2, *line),
            (2, 3, 0, 2 * x, 0, 0, 0, 0),
            (3, 1, 0, 3 * x, 0, 0, 0, 0),
            (3, 4, *ORDINARY),
            (5, 6, *ORDINARY),
            *rest,
        ],
        "parallel": [(1, 2, *line), (2, 1, *ORDINARY), (3, 4, *line), (5, 6, *ORDINARY), *ring],
        "rated": [(1, 2, 0, x, 0, 60, 0, 0), (3, 4, 0, x, 0, 30, 0, 0), (5, 6, *line), *ring],
        "transformers": [
            (1, 2, 0, x, 0, 0, 0.95, 20),
            (4, 3, 0, x, 0, 0, 1.03, -10),
            (6, 5, x, x, 0.02, 0, 0, 5),
            *ring,
        ],
        "negative": [(1, 2, 0, -x, 0, 0, 0, 0), (3, 4, *line), (5, 6, *line), *ring],
    }


def six_buses(branches: list[tuple[float, ...]]) -> str:
    """Return a MATPOWER file of 270 MW on six buses with generators at 1, 2 and 4."""
    demand = [(20, 5), (50, 10), (60, 20), (40, 10), (70, 20), (30, 10)]
    kinds = {1: 3, 2: 2, 4: 2}
    bus = [
        f"{n} {kinds.get(n, 1)} {p} {q} 0 0 1 1 0 135 1 1.1 0.9;"
        for n, (p, q) in enumerate(demand, 1)
    ]
    gen = [
        "1 0 0 100 -100 1 100 1 200 0;",
        "2 0 0 60 -60 1 100 1 100 0;",
        "4 0 0 80 -80 1 100 1 150 20;",
    ]
    rows = [
        f"{f:g} {t:g} {r!r} {x!r} {b:g} {rate:g} 0 0 {tap:g} {shift:g} 1 -360 360;"
        for f, t, r, x, b, rate, tap, shift in branches
    ]
    cost = ["2 0 0 3 0.02 20 0;", "2 0 0 3 0.03 35 0;", "2 0 0 3 0.01 50 0;"]
    fields = {"bus": bus, "gen": gen, "branch": rows, "gencost": cost}
    tables = [f"mpc.{name} = [\n" + "\n".join(rows) + "\n];" for name, rows in fields.items()]
    return "\n".join(["function mpc = six", "mpc.version = '2';", "mpc.baseMVA = 100;", *tables])


@pytest.mark.parametrize("grid", list(short_branches(1.0)))
def test_branches_of_negligible_impedance_do_not_move_the_bound(grid, tmp_path):
    """As x goes to 0 the bound has a limit, which Ipopt finds at x = 1e-4."""

    def solved(x: float, solver: str = "clarabel") -> SolvedRelaxation:
        path = tmp_path / "six.m"
        path.write_text(six_buses(short_branches(x)[grid]))
        return relax(load_case(path), "cost", solver)

    expected = solved(1e-4, "ipopt").bound
    for x in (1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-10):
        result = solved(x)
        assert result.bound == pytest.approx(expected, rel=1e-4)
        assert result.error < 1e-4
        case, y, z = result.case, result.network.admittance, result.z
        start = result.network.offsets
        w, wr = z[: case.n_bus], z[start["wr"] :][result.network.pair_of]
        wi = np.where(result.network.forward, 1, -1) * z[start["wi"] :][result.network.pair_of]
        flow = w[case.f_bus] * np.conj(y.ff) + (wr + 1j * wi) * np.conj(y.ft)
        stated = z[start["p_from"] :][: case.n_branch]
        assert np.abs(flow.real - stated).max() < 2e-4


def test_no_bound_is_stated_where_the_solution_misses_the_power_balance(tmp_path):
    """A negative resistance of 1e-8 p.u. asks for more than a solver resolves."""
    source = (0, 0, 0, 0)
    branches = [(1, 2, -1e-8, 1e-8, *source), (2, 3, *ORDINARY), (3, 4, *ORDINARY)]
    branches += [(4, 5, *ORDINARY), (5, 6, -1e-8, 1e-8, *source), (6, 1, *ORDINARY)]
    path = tmp_path / "six.m"
    path.write_text(six_buses(branches))
    with pytest.raises(SolverError, match=r"misses .* p.u., for 0.0001 allowed"):
        relax(load_case(path), "cost")


def test_a_tiny_base_is_named_where_the_solver_fails():
    """On a base of 1 kVA case30 has admittances of 1e6 p.u."""
    case = load_case("case30")
    ratio = case.base_mva / 0.001
    changes = {name: ratio * getattr(case, name) for name in ["pd", "qd", "gs", "bs", "rate", "b"]}
    changes |= {
        f"{p}{end}": ratio * getattr(case, f"{p}{end}") for p in "pq" for end in ("min", "max")
    }
    changes |= {name: getattr(case, name) / ratio for name in "rx"}
    with pytest.raises(SolverError, match=r"state a larger baseMVA than 0.001"):
        relax(replace(case, base_mva=0.001, **changes), "cost")

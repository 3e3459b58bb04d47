"""Cost, bounds, prices and binding limits, against published values and finite differences."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gridpriv import acopf, load_case, partition, run, shipped_zoning
from gridpriv.core.errors import InputError
from gridpriv.grid.case import PIECEWISE, POLYNOMIAL, GenCost
from gridpriv.power.centralized import relax
from gridpriv.power.objective import cost_at, cost_objective, generation_cost, has_convex_costs
from gridpriv.power.problem import ZoneProblem
from gridpriv.power.program import compile_zone
from gridpriv.power.zone import make_network, make_zones
from gridpriv.privacy.adjacency import DemandAdjacency
from gridpriv.zonal.settings import make_settings

pytestmark = pytest.mark.usefixtures("few_replans")

PGLIB = Path(__file__).parent.parent / "data" / "pglib"


def pglib(name):
    return load_case(str(PGLIB / f"pglib_opf_{name}.m"))


@pytest.mark.parametrize(
    ("name", "ac", "gap"),
    [
        ("case14_ieee", 2.1781e3, 0.11),
        ("case30_ieee", 8.2085e3, 18.84),
        ("case118_ieee", 9.7214e4, 0.91),
        ("case118_ieee__api", 2.4961e5, 26.17),
    ],
)
def test_the_bound_has_the_published_gap(name, ac, gap):
    """BASELINE.md of PGLib-OPF v23.07: 100 (AC - SOC)/AC, by PowerModels and Ipopt."""
    relaxation = relax(pglib(name), "cost")
    assert relaxation.status == "Solved"
    assert 100.0 * (ac - relaxation.bound) / ac == pytest.approx(gap, abs=0.02)


def test_the_pyomo_model_itself_has_the_same_bound():
    case = pglib("case30_ieee")
    assert relax(case, "cost", "ipopt").bound == pytest.approx(relax(case, "cost").bound, rel=1e-6)


@pytest.mark.parametrize("rate", [0.0, 99.0, 1e4, 1e6, 1e8])
def test_a_rate_that_no_flow_comes_near_moves_no_bound(rate):
    """p.u.; files write anything for "no limit", and the bound of 1e10 MVA was 7e-7 $/h."""
    case = load_case("case14")
    relaxation = relax(replace(case, rate=np.full(case.n_branch, rate)), "cost")
    assert relaxation.status == "Solved"
    assert relaxation.bound == pytest.approx(8075.122, abs=2e-3)  # by Ipopt, on Pyomo's model


def on_base(case, base_mva):
    """Return the case with every per-unit figure on another base."""
    scale = case.base_mva / base_mva
    powers = ("pd", "qd", "gs", "bs", "pmin", "pmax", "qmin", "qmax", "pg", "rate", "b")
    changed = {field: scale * getattr(case, field) for field in powers}
    return replace(case, base_mva=base_mva, r=case.r / scale, x=case.x / scale, **changed)


def test_the_bound_does_not_depend_on_the_base(case14):
    small = on_base(case14, 1.0)
    assert relax(small, "cost").bound == pytest.approx(relax(case14, "cost").bound, rel=1e-5)


@pytest.mark.parametrize(
    "objective",
    [
        pytest.param(
            "imbalance",
            marks=[
                pytest.mark.slow,
                pytest.mark.xfail(
                    reason="replans end in other local optima: "
                    "258 MW shed on 1 MVA, 392 MW on 100 MVA"
                ),
            ],
        ),
        "cost",
    ],
)
def test_rounds_do_not_depend_on_the_base(case14, zones14, objective):
    """On 1 MVA the imbalance is 10^4 times as large in per unit; in MW nothing differs."""
    settings = make_settings(
        objective=objective,
        mechanism="none",
        rounds=6,
        start="flat",
        load_scale=3.0,
        solver="clarabel",
    )
    runs = [run(case, zones14, settings) for case in (case14, on_base(case14, 1.0))]
    shed = [r.rounds["plan_shortage_mw"].dropna().to_numpy() for r in runs]  # on the relaxation
    # the flat start has no generation to speak of and flows of 0 on both bases
    np.testing.assert_allclose(shed[1], shed[0], rtol=2e-3, atol=0.02)
    dispatched = [r.physical["shed_mw"] for r in runs]
    assert dispatched[1] == pytest.approx(dispatched[0], rel=2e-3)


@pytest.mark.slow
@pytest.mark.usefixtures("all_replans")
def test_all_replans_do_not_depend_on_the_base(case14, zones14):
    test_rounds_do_not_depend_on_the_base(case14, zones14, "cost")


def test_a_bus_price_is_the_derivative_of_the_bound(case14):
    relaxation, step = relax(case14, "cost"), 1e-3
    for bus in (2, 8, 13):
        costs = []
        for sign in (1.0, -1.0):
            pd = case14.pd.copy()
            pd[bus] += sign * step
            costs.append(relax(replace(case14, pd=pd), "cost").bound)
        slope = (costs[0] - costs[1]) / (2 * step * case14.base_mva)
        assert relaxation.p_price[bus] == pytest.approx(slope, rel=1e-3)
        assert relaxation.p_price[bus] > 0


def test_the_penalty_approaches_the_hard_balance_from_below(case14):
    """At price pi a bus is short by pi/(2M): the cost is lower by about pi^2/(4M) a bus."""
    hard = relax(case14, "cost").bound
    short = [hard - relax(case14, "cost", imbalance_weight=w).bound for w in (1e3, 1e4)]
    assert 0 < short[1] < short[0]
    assert short[0] / short[1] == pytest.approx(10.0, rel=0.02)
    assert short[1] / hard < 2e-4


def test_piecewise_costs_equal_the_lines_they_are_made_of(case14):
    """One segment is a linear cost; a kink at the optimum's output changes nothing below it."""
    linear = tuple(GenCost(POLYNOMIAL, (c.values[-2], c.values[-1])) for c in case14.cost)
    top = 2 * case14.base_mva * case14.pmax
    first = tuple(
        GenCost(PIECEWISE, (0.0, v.values[1], p, v.values[0] * p + v.values[1]))
        for v, p in zip(linear, top.tolist(), strict=True)
    )
    expected = relax(replace(case14, cost=linear), "cost")
    relaxation = relax(replace(case14, cost=first), "cost")
    assert relaxation.bound == pytest.approx(expected.bound, rel=1e-6)
    half = 0.4 * case14.base_mva * case14.pmax
    two = tuple(
        GenCost(PIECEWISE, (0.0, 0.0, h, 20.0 * h, t, 20.0 * h + 60.0 * (t - h)))
        for h, t in zip(half.tolist(), top.tolist(), strict=True)
    )
    kinked = replace(case14, cost=two)
    solved = relax(kinked, "cost")
    start = solved.network.offsets
    pg = solved.z[start["pg"] : start["qg"]]
    # 20 $/MWh carry the load and its losses as long as no generator passes its kink
    assert (case14.base_mva * pg <= half + 1e-3).all()
    assert solved.bound == pytest.approx(20.0 * case14.base_mva * pg.sum(), rel=1e-6)
    assert solved.bound == pytest.approx(generation_cost(kinked, pg), rel=1e-6)


@pytest.mark.parametrize(
    ("cost", "words"),
    [
        (GenCost(PIECEWISE, (0.0, 0.0, 10.0, 100.0, 20.0, 110.0)), "slopes must not fall"),
        (GenCost(PIECEWISE, (0.0, 0.0, 0.0, 100.0)), "breakpoints must increase"),
        (GenCost(POLYNOMIAL, (1.0, 0.0, 1.0, 0.0)), "degree 2 at most"),
        (GenCost(POLYNOMIAL, (-1.0, 1.0, 0.0)), "must not be negative"),
    ],
)
def test_a_cost_that_is_not_convex_is_refused_by_row(case14, cost, words):
    case = replace(case14, cost=(*case14.cost[:2], cost, *case14.cost[3:]))
    with pytest.raises(InputError, match=rf"gen row 3.*{words}"):
        cost_objective(case)


def test_a_case_without_costs_is_refused(case14):
    with pytest.raises(InputError, match="or left out: case case14 states no generation costs"):
        relax(replace(case14, cost=()), "cost")


def test_a_weight_without_cost_is_refused():
    with pytest.raises(InputError, match="imbalance_weight"):
        make_settings(objective="imbalance", imbalance_weight=10.0)


@pytest.mark.parametrize(
    ("name", "zones", "most"),
    [
        ("case14", 2, 12),
        ("case118", 3, 40),
        pytest.param("case30", 3, 12, marks=pytest.mark.large),
        pytest.param("case300", 4, 40, marks=pytest.mark.large),
    ],
)
def test_zones_reach_the_centralized_bound(name, zones, most):
    """PowerModelsADA's criterion (residual 1e-2, bound within 1 %) in its number of rounds."""
    case = load_case(name)
    zoning = shipped_zoning(case, zones) or partition(case, zones)
    settings = make_settings(
        objective="cost", mechanism="none", rounds=most, planning="soc", solver="clarabel"
    )
    result = run(case, zoning, settings)
    last = result.trace.rounds[-1]
    assert last.consensus_residual < 1e-2
    assert last.metrics["cost"] == pytest.approx(relax(case, "cost").bound, rel=0.01)


@pytest.fixture(scope="module")
def finished(case14):
    # prices move on by half a per cent where all variables agree within 1e-4 p.u.
    settings = make_settings(
        mechanism="none", rounds=80, planning="soc", acceleration="anderson", tolerance=0.0
    )
    return run(case14, shipped_zoning(case14, 2), settings)


def test_the_document_states_the_weight_in_force(finished):
    assert finished.as_dict()["settings"]["imbalance_weight"] == 1e4


def test_local_prices_are_the_centralized_ones(case14, finished):
    optimum, central = finished.zone_prices, acopf(case14)
    np.testing.assert_allclose(optimum["p_price"], central.p_price, rtol=1e-2)
    assert set(optimum["p_unit"]) == {"$/MWh"}


def test_the_payment_of_one_zone_for_a_tie_is_the_revenue_of_the_other(finished):
    table = finished.tie_prices
    total = table.groupby(["branch_row", "flow"])["price"].sum()
    assert len(total) == 4 * 3  # four flows on each of the three ties
    assert abs(total).max() < 1e-3 * abs(table["price"]).max()


@pytest.mark.usefixtures("no_replans")
def test_zonal_shed_of_a_stressed_case_is_the_centralized_shed(case14, zones14):
    settings = make_settings(
        objective="imbalance", mechanism="none", rounds=25, load_scale=3.0, solver="clarabel"
    )
    result = run(case14, zones14, settings)
    central = relax(case14.scale_load(3.0))
    short = central.buses["imbalance_mw"].clip(lower=0).sum()
    assert short == pytest.approx(86.7, abs=0.1)
    assert result.trace.rounds[-1].metrics["plan_shortage_mw"] == pytest.approx(short, rel=0.01)


def test_what_binds_is_named(case14):
    """Four of five generators are at their maximum; the slack's 332 MW do not reach all buses."""
    relaxation = relax(case14.scale_load(3.0))
    at_limit = relaxation.binding.query("kind == 'generator P' and limit == 'upper'")
    assert (at_limit["value"] - at_limit["bound"]).abs().max() < 0.5
    assert set(at_limit["unit"]) == {"MW"}


def test_an_infeasible_balance_names_the_limits_that_prevent_it(case14):
    tight = replace(case14, pmax=0.5 * case14.pmax * case14.pd.sum() / case14.pmax.sum())
    relaxation = relax(tight, "cost")
    assert relaxation.status == "Infeasible"
    assert relaxation.bound is None
    missing = 259.0 - 129.5
    assert relaxation.least_shed_mw > missing
    assert "Without the limit on active output" in relaxation.explanation()


def test_lifted_cuts_hold_at_every_voltage_within_bounds():
    case = pglib("case14_ieee")
    narrow = replace(case, angmin=np.full(case.n_branch, -0.1), angmax=np.full(case.n_branch, 0.2))
    network = make_network(narrow)
    program = compile_zone(make_zones(network, partition(narrow, 1))[0])
    rng = np.random.default_rng(3)
    w = np.zeros(network.offsets["end"])
    size = case.n_bus + 2 * len(network.pair_i)
    rows = program.a_in[:, :size]
    assert rows.shape[0] == 4 * len(network.pair_i)  # two angle rows and two cuts a pair
    low, high = network.angle_limits
    tightest = np.inf
    for _ in range(200):
        ends = rng.integers(0, 2, case.n_bus) if rng.uniform() < 0.5 else rng.uniform(size=14)
        v = case.vmin + ends * (case.vmax - case.vmin)
        angle = low + rng.uniform(size=len(low)) * (high - low)
        product = v[network.pair_i] * v[network.pair_j] * np.exp(1j * angle)
        w = np.concatenate([v**2, product.real, product.imag])
        slack = program.b_in - rows @ w
        tightest = min(tightest, float(slack.min()))
        assert slack.min() > -1e-9
    assert tightest < 0.05  # the cuts are not far away


def test_sensitivities_grow_with_the_weight(case14):
    """The gradient by M; the exact minimiser's bound by sqrt(M), never passed by solved pairs."""
    zoning, beta = shipped_zoning(case14, 2), 0.01
    plain = make_zones(make_network(case14), zoning)[0]
    priced = make_zones(make_network(case14, cost_objective(case14, 100.0)), zoning)[0]
    item, other = (ZoneProblem(compile_zone(z), "clarabel") for z in (plain, priced))
    adjacency = DemandAdjacency(beta)
    assert other.gradient_sensitivity(adjacency, 1).value == pytest.approx(
        100.0 * item.gradient_sensitivity(adjacency, 1).value
    )
    shared = np.zeros(other.program.size, dtype=bool)
    shared[::3] = True
    metric = np.where(shared, 0.5, 0.0)
    bound = other.output_sensitivity(adjacency, 2, "exact", metric).value
    plainly = item.output_sensitivity(adjacency, 2, "exact", metric).value
    assert bound == pytest.approx(10.0 * plainly)
    demand, zero = priced.demand, np.zeros(other.program.size)
    base = other.minimise_exact(other.gradient(zero, demand), metric).z
    own, largest = len(priced.own), 0.0
    for bus in range(own):
        adjacent = demand.copy()
        adjacent[[bus, own + bus]] += beta
        z = other.minimise_exact(other.gradient(zero, adjacent), metric).z
        largest = max(largest, float(np.linalg.norm((z - base)[shared])))
    assert 0.0 < largest <= bound


@pytest.mark.parametrize(("fall", "convex"), [(1.5e-5, True), (3e-5, False)])
def test_slopes_may_fall_by_the_rounding_of_their_breakpoints(case14, fall, convex):
    # 20 $/MWh, then 20 (1 - fall): RTS-GMLC's breakpoints of five digits fall by 8.4e-6
    points = (0.0, 0.0, 50.0, 1000.0, 100.0, 2000.0 - 1000.0 * fall)
    costs = tuple(replace(c, model=1, values=points) for c in case14.cost)
    case = replace(case14, cost=costs)
    assert has_convex_costs(case) is convex
    if convex:
        assert cost_at(costs[0], 100.0, 0.75) == pytest.approx(1500.0, rel=fall)

"""The commitment against every pattern of running generators, priced by merit order.

Branches have no limits here; tests/zonal/test_committed_days.py has grids with limits.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog

from gridpriv import load_case
from gridpriv.core.errors import InputError
from gridpriv.grid.case import POLYNOMIAL, GenCost
from gridpriv.grid.chronology import Chronology
from gridpriv.grid.network import DcPowerFlow, islands
from gridpriv.power.ac.day import LinearGrid, commitment
from gridpriv.power.ac.optimum import acopf
from gridpriv.power.ac.state import Dispatch

NEED = np.array([1.2, 2.4, 0.9, 1.3])
SLOPES, FIXED = (20.0, 35.0, 30.0, 60.0, 80.0), (0.0, 250.0, 100.0, 50.0, 0.0)
PMIN = (0.5, 0.4, 0.3, 0.0, 0.0)
HEADER = "gen,start_cost,min_up_hours,min_down_hours\n"


def grid():
    costs = tuple(GenCost(POLYNOMIAL, pair) for pair in zip(SLOPES, FIXED, strict=True))
    return replace(load_case("case14"), pmin=np.array(PMIN), cost=costs)


def unlimited_grid(case, need):
    """Return a grid without limits whose need (T,) or (T, islands) is at a bus of every island."""
    at = np.unique(islands(case), return_index=True)[1]
    by_bus = np.zeros((len(need), case.n_bus))
    by_bus[:, at] = np.reshape(need, (len(need), -1))
    flows = np.full((len(need), case.n_branch), np.inf)
    return LinearGrid(DcPowerFlow.of(case), by_bus, -flows, flows)


def chronology(case, folder, text):
    path = folder / "commitment.csv"
    path.write_text(HEADER + text)
    return Chronology.of(case, steps=len(NEED), switches=path)


def merit_order(case, need, running):
    """Return the cost in $/h of one step, inf if the running generators do not meet the demand."""
    on = np.flatnonzero(running)
    output = case.pmin[on].copy()
    left = need - output.sum()
    for k in np.argsort([SLOPES[g] for g in on]):
        more = min(max(left, 0.0), case.pmax[on[k]] - output[k])
        output[k] += more
        left -= more
    if abs(left) > 1e-9:
        return np.inf
    return sum(FIXED[g] + SLOPES[g] * case.base_mva * p for g, p in zip(on, output, strict=True))


def least(case, switches):
    """Return the cost of the best of all patterns, and the pattern."""
    gens = [s.gen for s in switches]
    best, pattern = np.inf, None
    for bits in product([0, 1], repeat=len(gens) * len(NEED)):
        on = np.ones((len(NEED), case.n_gen), bool)
        on[:, gens] = np.reshape(bits, (len(NEED), len(gens)))
        if not all(lasting(on[:, s.gen], s) for s in switches):
            continue
        total = sum(merit_order(case, n, o) for n, o in zip(NEED, on, strict=True))
        total += sum(s.start_cost * (np.diff(on[:, s.gen].astype(int)) > 0).sum() for s in switches)
        if total < best:
            best, pattern = total, on
    return best, pattern


def lasting(on, switch):
    """Return whether a start lasts min_up and a stop min_down steps, to the end of the series."""
    for t in range(1, len(on)):
        if on[t] != on[t - 1]:
            length = int(switch.min_up if on[t] else switch.min_down)
            if (on[t : t + length] != on[t]).any():
                return False
    return True


@pytest.mark.parametrize(
    "text",
    ["2,0,0,0\n3,0,0,0\n", "2,900,0,0\n3,400,0,0\n", "2,100,3,0\n3,50,0,2\n", "2,0,0,3\n"],
)
def test_what_runs_costs_least_of_all_patterns(tmp_path, text):
    case = grid()
    given = chronology(case, tmp_path, text)
    running = commitment(case, given, unlimited_grid(case, NEED))
    best, _ = least(case, given.switches)
    cost = sum(merit_order(case, n, on) for n, on in zip(NEED, running, strict=True))
    for s in given.switches:
        assert lasting(running[:, s.gen], s)
        cost += s.start_cost * (np.diff(running[:, s.gen].astype(int)) > 0).sum()
    assert cost == pytest.approx(best, rel=2e-4)
    assert not running.all()


def test_all_generators_run_where_they_do_not_hold_the_reserves(tmp_path):
    case = grid()
    given = chronology(case, tmp_path, "2,0,0,0\n3,0,0,0\n")
    required = replace(
        given,
        reserve_required=np.array([[0.0, 50.0, 0.0, 0.0], [0.0] * 4]),
        reserve_most=np.full((2, case.n_gen), 9.0),
    )
    running = commitment(case, required, unlimited_grid(case, NEED))
    assert running[1].all()
    assert not running[2].all()


def test_all_generators_run_where_they_do_not_meet_the_need(tmp_path):
    """The AC plan sheds the rest, at the same price."""
    case = grid()
    need = np.where(np.arange(4) == 1, 100.0, NEED)
    given = chronology(case, tmp_path, "2,0,0,0\n3,0,0,0\n")
    running = commitment(case, given, unlimited_grid(case, need))
    assert running[1].all()
    assert not running[2].all()


def priced(gens, need, ramps, on, voll=1e4):
    """Return the least cost of a schedule in $, a linear program on a fine grid of lines.

    ``gens`` are (island, pmin, pmax, c2, c1, c0) in MW; ``need`` is (T, islands) in MW.
    """
    steps, count, lines = len(need), len(gens), 120
    size = steps * count
    shed = np.full(need.size, voll)
    cost = np.r_[np.zeros(size), np.ones(size), shed, shed / 100]
    rows, right, even, balance = [], [], [], []
    bounds = []
    for t in range(steps):
        for g, (_, low, high, *_) in enumerate(gens):
            bounds.append((low, high) if on[t, g] else (0, 0))
    bounds += [(None, None)] * size + [(0, None)] * (2 * need.size)
    for t in range(steps):
        for g, (_, low, high, c2, c1, c0) in enumerate(gens):
            at = t * count + g
            for p in np.linspace(low, min(high, need.max()), lines) if on[t, g] else [0.0]:
                slope = 2 * c2 * p + c1
                row = np.zeros(len(cost))
                row[at], row[size + at] = slope, -1.0
                rows.append(row)
                right.append(-(c2 * p**2 + c1 * p + c0 - slope * p) * on[t, g])
            if t and on[t, g] and on[t - 1, g]:
                for sign in (1.0, -1.0):
                    row = np.zeros(len(cost))
                    row[at], row[at - count] = sign, -sign
                    rows.append(row)
                    right.append(ramps[g])
        for k in range(need.shape[1]):
            row = np.zeros(len(cost))
            row[[t * count + g for g, gen in enumerate(gens) if gen[0] == k]] = 1.0
            shed = 2 * size + t * need.shape[1] + k
            row[shed], row[shed + need.size] = 1.0, -1.0  # curtailed generation
            even.append(row)
            balance.append(need[t, k])
    solved = linprog(
        cost, np.array(rows), np.array(right), np.array(even), np.array(balance), bounds
    )
    return solved.fun if solved.status == 0 else np.inf


def random_grid(rng, unlimited, two_islands):
    """Return a grid of three generators, all of them as rows (island, pmin, pmax, c2, c1, c0)."""
    base = load_case("case9")
    place = np.array([0, 0, 1 if two_islands else 0])
    gens = [
        (
            place[g],
            0.0 if g == 0 else rng.uniform(20, 40),
            np.inf if g == 0 and unlimited else rng.uniform(80, 150),
            rng.uniform(0.01, 0.1),
            rng.uniform(10, 20),
            rng.uniform(0, 400),
        )
        for g in range(3)
    ]
    case = replace(
        base,
        pmin=np.array([g[1] for g in gens]) / 100,
        pmax=np.array([g[2] for g in gens]) / 100,
        cost=tuple(GenCost(POLYNOMIAL, g[3:]) for g in gens),
    )
    if two_islands:
        off = tuple(f"branch:{row}" for row in base.branch_row if cuts(base, row))
        case = case.without(off)
    return case, gens


def cuts(case, row):
    """Return whether a branch ties generator 3's two buses (3 and 6) to the others."""
    ends = {int(case.bus_id[b[row - 1]]) for b in (case.f_bus, case.t_bus)}
    return len(ends & {3, 6}) == 1


@pytest.mark.parametrize("two_islands", [False, True])
@pytest.mark.parametrize("unlimited", [False, True])
def test_random_grids_run_what_enumeration_runs(tmp_path, unlimited, two_islands):
    for seed in range(2):
        rng = np.random.default_rng(seed)
        case, gens = random_grid(rng, unlimited, two_islands)
        need = rng.uniform(60, 180, (3, 1))
        if two_islands:
            need = np.hstack([need, rng.uniform(10, 140, (3, 1))])
        starts = rng.uniform(0, 500, 2)
        rows = "".join(f"{g + 2},{s},0,0\n" for g, s in enumerate(starts.tolist()))
        given = chronology(case, tmp_path, rows)
        limits = np.array([np.inf, 15.0, 15.0])
        given = replace(
            given, ramp_up=limits / 100, ramp_down=limits / 100, reserve_required=np.zeros((2, 3))
        )
        limits = np.where(np.isfinite(limits), limits, 1e6)

        def total(on, gens=gens, need=need, limits=limits, starts=starts):
            began = (np.diff(on[:, 1:].astype(int), axis=0) > 0).sum(axis=0)
            return priced(gens, need, limits, on) + began @ starts

        every = [np.ones((3, 3), bool) for _ in range(64)]
        for on, bits in zip(every, product([False, True], repeat=6), strict=True):
            on[:, 1:] = np.reshape(bits, (3, 2))
        best = min(map(total, every))
        running = commitment(case, given, unlimited_grid(case, need / 100))
        assert total(running) <= best * (1 + 3e-4)


def three_units():
    """Return case9 with linear costs: unit 1 always runs, units 2 and 3 have no-load costs."""
    costs = ((20.0, 0.0), (30.0, 300.0), (45.0, 150.0))
    return replace(
        load_case("case9"),
        pmin=np.array([0.0, 0.2, 0.1]),
        pmax=np.array([2.5, 1.0, 1.0]),
        cost=tuple(GenCost(POLYNOMIAL, pair) for pair in costs),
    )


@pytest.mark.parametrize(
    ("need", "up", "down", "third"),
    [
        ((0.5, 0.5, 1.0, 1.0), 0.1, 9.0, [0, 0, 1, 1]),
        ((1.0, 1.0, 0.5, 0.5), 9.0, 0.1, [1, 1, 0, 0]),
        ((0.5, 0.5, 1.0, 1.0), 9.0, 0.1, [0, 0, 0, 0]),
        ((1.0, 1.0, 0.5, 0.5), 0.1, 9.0, [0, 0, 0, 0]),
    ],
)
def test_a_unit_runs_where_another_cannot_follow_the_need_upwards_or_downwards(
    tmp_path, need, up, down, third
):
    """Unit 1 covers 50 MW and 100 MW, but reaches only 60 MW within an hour of 50 MW."""
    case = three_units().without(("gen:2",))
    ramps = {"ramp_up": np.array([up, 9.0]), "ramp_down": np.array([down, 9.0])}
    given = replace(chronology(case, tmp_path, "3,0,0,0\n"), **ramps)
    running = commitment(case, given, unlimited_grid(case, need))
    assert running[:, 1].astype(int).tolist() == third


def dc_dispatch(case, need, low, high, on, voll=1e4):
    """Return the least cost in $/h of one step by a DC optimal power flow in angles, in MW."""
    n, g, m = case.n_bus, case.n_gen, case.n_branch
    ends = np.zeros((m, n))
    ends[np.arange(m), case.f_bus], ends[np.arange(m), case.t_bus] = 1.0, -1.0
    flows = 100 * ends / case.x[:, None]
    at = np.zeros((n, g))
    at[case.gen_bus, np.arange(g)] = 1.0
    balance = np.hstack([at, np.eye(n), -np.eye(n), -ends.T @ flows])
    limits = np.hstack([np.zeros((m, g + 2 * n)), flows])
    costs = [cost.values for cost in case.cost]
    price = np.r_[[c[0] for c in costs], np.full(n, voll), np.full(n, voll / 100), np.zeros(n)]
    bounds = [(100 * a * r, 100 * b * r) for a, b, r in zip(case.pmin, case.pmax, on, strict=True)]
    bounds += [(0, p) for p in need.tolist()] + [(0, None)] * n + [(None, None)] * n
    right = np.r_[high, -low]
    solved = linprog(price, np.vstack([limits, -limits]), right, balance, need, bounds)
    assert solved.status == 0
    return solved.fun + sum(c[1] for c, r in zip(costs, on, strict=True) if r)


@pytest.mark.parametrize("seed", range(6))
def test_units_run_as_the_best_dc_dispatch_within_limits_of_flows(tmp_path, seed):
    """Limits differ by direction, and unit 1 alone would exceed them with most of the demands."""
    rng, case = np.random.default_rng(seed), three_units()
    need = np.zeros((4, case.n_bus))
    need[:, 3:] = 100 * rng.uniform(0.05, 0.45, (4, 6))
    high, low = 100 * rng.uniform(0.5, 1.1, (2, case.n_branch)) * [[1.0], [-1.0]]
    starts = rng.uniform(0, 300, 2)
    text = "".join(f"{g + 2},{cost},0,0\n" for g, cost in enumerate(starts.tolist()))
    limits = (np.tile(side / 100, (4, 1)) for side in (low, high))
    grid = LinearGrid(DcPowerFlow.of(case), need / 100, *limits)
    running = commitment(case, chronology(case, tmp_path, text), grid)
    choices = [(1, *pair) for pair in product((0, 1), repeat=2)]
    step = {(t, on): dc_dispatch(case, need[t], low, high, on) for t in range(4) for on in choices}

    def total(schedule):
        began = (np.diff(np.array(schedule)[:, 1:], axis=0) > 0).sum(axis=0)
        return sum(step[t, on] for t, on in enumerate(schedule)) + began @ starts

    ours = total([tuple(on) for on in running.astype(int).tolist()])
    assert ours <= min(map(total, product(choices, repeat=4))) * (1 + 2e-4)
    assert any(step[t, (1, 0, 0)] > step[t, (1, 1, 1)] for t in range(4)), "limits require a unit"


@pytest.mark.parametrize(
    ("name", "outages"),
    [("case30", ()), ("case9", ("branch:1", "branch:4")), ("case39", ("branch:3", "gen:2"))],
)
def test_the_linear_grid_has_the_flows_and_the_losses_of_its_plan(name, outages):
    """Transformers have taps in case39; one of case9's islands has a phase shift and no load."""
    case = load_case(name).without(outages)
    case = replace(case, shift=np.where(np.arange(case.n_branch) == 3, 0.05, case.shift))
    state = acopf(case).state
    plan = [state.p_shed, state.q_shed, state.curtailment]
    grid = LinearGrid.of(case, [Dispatch(state.pg, state.vm, state.va, *plan)])
    generation = np.bincount(case.gen_bus, state.pg, case.n_bus) - state.curtailment
    surplus = generation + state.p_shed - grid.need[0]
    flow = grid.dc.flows(surplus[:, None])[:, 0]
    middle = (state.s_from - state.s_to).real / 2
    losses = (state.s_from + state.s_to).real.sum()
    shunts = case.gs @ state.vm**2
    assert grid.need.sum() == pytest.approx(case.pd.sum() + losses + shunts, abs=1e-5)
    for number in range(islands(case).max() + 1):
        assert surplus[islands(case) == number].sum() == pytest.approx(0.0, abs=1e-5)
    rated = (case.rate > 0) & np.isinf(case.angmax)
    assert rated.any()
    room = grid.high[0] - flow, flow - grid.low[0]
    for side, used in zip(room, (middle, -middle), strict=True):
        expected = np.maximum(1.05 * case.rate - used, 0.0)
        np.testing.assert_allclose(side[rated], expected[rated], atol=1e-5)
    assert np.isinf(grid.high[0][case.rate == 0]).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [("9,0,0,0\n", "gen = '9'"), ("2,-1,0,0\n", "0 or more"), ("", "names no generator")],
)
def test_files_that_are_refused(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        chronology(grid(), tmp_path, text)

"""Days with a commitment against every schedule, each step priced by the AC optimum without the
generators that are off."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest

from gridpriv import load_case, make_settings
from gridpriv.cli.main import main
from gridpriv.grid.chronology import Chronology
from gridpriv.grid.library import shipped_zoning
from gridpriv.grid.scenarios import read_demand_series
from gridpriv.grid.zoning import Zoning
from gridpriv.power.ac.optimum import acopf
from gridpriv.report.export import make_report
from gridpriv.report.source import read_source
from gridpriv.zonal.horizon import run_series

TWO_BUSES = """function mpc = two
mpc.version = '2';
mpc.baseMVA = 100;
mpc.bus = [
1 3 0 0 0 0 1 1 0 110 1 1.1 0.9;
2 1 100 10 0 0 1 1 0 110 1 1.1 0.9;
];
mpc.gen = [
1 0 0 300 -300 1 100 1 {most} {least};
2 0 0 300 -300 1 100 1 {second};
];
mpc.branch = [
1 2 0.0001 0.01 0 0 0 0 0 0 1 -360 360;
];
mpc.gencost = [
{costs}
];
"""
TWO_ISLANDS = """function mpc = islands
mpc.version = '2';
mpc.baseMVA = 100;
mpc.bus = [
1 3 10 3 0 0 1 1 0 110 1 1.1 0.9;
2 1 50 10 0 0 1 1 0 110 1 1.1 0.9;
3 3 5 1 0 0 1 1 0 110 1 1.1 0.9;
4 1 20 5 0 0 1 1 0 110 1 1.1 0.9;
];
mpc.gen = [
1 0 0 300 -300 1 100 1 200 0;
3 0 0 300 -300 1 100 1 100 0;
];
mpc.branch = [
1 2 0.01 0.1 0 0 0 0 0 0 1 -360 360;
3 4 0.01 0.1 0 40 40 40 0 0 1 -360 360;
];
mpc.gencost = [
2 0 0 3 0.01 20 5;
2 0 0 3 0.02 25 0;
];
"""
CONGESTED = """function mpc = congested
mpc.version = '2';
mpc.baseMVA = 100;
mpc.bus = [
1 3 20 5 0 0 1 1 0 110 1 1.1 0.9;
2 1 {d2} {q2} 0 0 1 1 0 110 1 1.1 0.9;
3 2 {d3} {q3} 0 0 1 1 0 110 1 1.1 0.9;
4 1 {d4} {q4} 0 0 1 1 0 110 1 1.1 0.9;
];
mpc.gen = [
1 0 0 150 -150 1 100 1 250 0;
3 0 0 100 -100 1 100 1 90 {low};
4 0 0 100 -100 1 100 1 80 10;
];
mpc.branch = [
1 2 0.01 0.08 0.02 {r} 0 0 0 0 1 -360 360;
1 3 0.01 0.10 0.02 {s} 0 0 0 0 1 -360 360;
2 3 0.01 0.12 0.02 40 0 0 0 0 1 -360 360;
3 4 0.005 0.06 0 {t} 0 0 0.98 {shift} 1 -360 360;
2 4 0.02 0.15 0.02 {u} 0 0 0 0 1 -360 360;
];
mpc.gencost = [
2 0 0 3 0.01 15 0;
2 0 0 3 0.02 35 {f3};
2 0 0 3 0.03 45 {f4};
];
"""
LINEAR = "2 0 0 2 20 0;\n2 0 0 2 25 {no_load};"
FREE_TO_RUN = LINEAR.format(no_load=0)
QUADRATIC = "2 0 0 3 0.2 10 0;\n2 0 0 3 0 20 100;"


def two_buses(most="200", least="60", second="50 30", costs=FREE_TO_RUN):
    return TWO_BUSES.format(most=most, least=least, second=second, costs=costs)


def committed(folder, text, scales, starts, ramps=None, hours=1.0, reserves=None):
    """Return the series, its chronology and the result of a day with a commitment."""
    (folder / "grid.m").write_text(text)
    (folder / "day.csv").write_text(
        "step,load_scale\n" + "".join(f"{t},{x}\n" for t, x in enumerate(scales))
    )
    (folder / "commitment.csv").write_text(
        "gen,start_cost,min_up_hours,min_down_hours\n"
        + "".join(f"{g},{cost},1,1\n" for g, cost in starts.items())
    )
    given = {"switches": folder / "commitment.csv"}
    if ramps is not None:
        (folder / "ramps.csv").write_text(f"gen,up_mw_per_hour,down_mw_per_hour\n{ramps}\n")
        given["ramps"] = folder / "ramps.csv"
    if reserves is not None:
        header = "gen,up_mw,down_mw,up_price,down_price\n"
        (folder / "reserves.csv").write_text(header + reserves)
        given["reserves"] = folder / "reserves.csv"
    case = load_case(folder / "grid.m")
    series = read_demand_series(folder / "day.csv", case)
    chronology = Chronology.of(case, steps=len(scales), hours=hours, **given)
    settings = make_settings(objective="cost", mechanism="none", seed=1)
    whole = Zoning(("all",), np.zeros(case.n_bus, np.int64), "one zone")
    return run_series(series, whole, settings, chronology=chronology)


def enumerated(series, starts):
    """Return the least cost of all schedules in $: steps, and starts."""
    price = {}
    subsets = [
        off for k in range(len(starts) + 1) for off in product(starts, repeat=k) if len({*off}) == k
    ]
    for t in range(len(series)):
        for off in {tuple(sorted(each)) for each in subsets}:
            if len(off) == series.case.n_gen:
                price[t, off] = np.inf
                continue
            optimum = acopf(series.at(t).without(tuple(f"gen:{g}" for g in off)))
            price[t, off] = optimum.cost + 100.0 * optimum.state.curtailed_mw  # as in a plan
    off_sets = sorted({off for _, off in price})
    best = (np.inf, 0.0)
    for schedule in product(off_sets, repeat=len(series)):
        steps = sum(price[t, off] for t, off in enumerate(schedule))
        begun = sum(
            cost * (g in before and g not in after)
            for before, after in pairwise(schedule)
            for g, cost in starts.items()
        )
        best = min(best, (steps + begun, begun))
    return best


DAYS = {
    "pmin of all above the load": (two_buses(), (1.2, 0.4, 0.4, 1.0), {1: 10, 2: 10}),
    "no-load cost": (two_buses(costs=LINEAR.format(no_load=500)), (1, 1, 1, 2.2), {2: 100}),
    "no limits, dear unit": (
        two_buses("Inf", "-Inf", "100 20", QUADRATIC.replace("0 20 100", "0 200 100")),
        (1.35, 1.5, 1.65),
        {2: 100},
    ),
    "no limits, cheap unit": (
        two_buses("Inf", "0", "100 20", QUADRATIC),
        (1.35, 1.5, 1.65),
        {2: 100},
    ),
    "two islands": (TWO_ISLANDS, (1, 1), {2: 10}),
    "off and without limits": (
        two_buses("Inf", "-Inf", "200 20", LINEAR.replace("20 0;", "20 5000;").format(no_load=0)),
        (1, 0.5),
        {1: 100},
    ),
}


@pytest.mark.parametrize("name", DAYS)
def test_a_committed_day_costs_what_the_best_schedule_does(tmp_path, name):
    text, scales, starts = DAYS[name]
    result = committed(tmp_path, text, scales, starts)
    best, begun = enumerated(result.series, starts)
    states = [step.physical for step in result.results]
    assert [state["status"] for state in states] == ["feasible"] * len(scales)
    assert sum(state["cost"] for state in states) + begun == pytest.approx(best, rel=2e-4)


def congested(rng):
    """Return a grid whose lines are loaded fully, some by a phase shift; its factors and starts."""
    load, rate = rng.uniform(20, 70, 3), {}
    low = rng.uniform(10, 40)
    for name, least, most in (("r", 40, 90), ("s", 40, 90), ("t", 25, 60), ("u", 25, 60)):
        rate[name] = rng.uniform(least, most)
    shift, no_load = rng.choice([0, 5, -5]), rng.uniform(0, 800, 2)
    active = {f"d{k + 2}": p for k, p in enumerate(load)}
    reactive = {f"q{k + 2}": 0.2 * p for k, p in enumerate(load)}
    fixed = {"f3": no_load[0], "f4": no_load[1]}
    text = CONGESTED.format(low=low, shift=shift, **active, **reactive, **rate, **fixed)
    return text, rng.uniform(0.5, 1.4, 3), dict(zip((2, 3), rng.uniform(0, 500, 2), strict=True))


SLOW = (pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 4, 25))


@pytest.mark.parametrize("seed", [5, 9, 35, *SLOW])
def test_a_congested_day_costs_what_the_best_schedule_does(tmp_path, seed):
    """Seeds 5, 9 and 35 shed load at first, as voltages limit flows: another unit must run."""
    text, scales, starts = congested(np.random.default_rng(seed))
    result = committed(tmp_path, text, scales, starts)
    best, _ = enumerated(result.series, starts)
    began = (np.diff(result.plan.running.astype(int), axis=0) > 0).sum(axis=0)
    begun = sum(cost * began[g - 1] for g, cost in starts.items())
    states = [step.physical for step in result.results]
    assert [state["status"] for state in states] == ["feasible"] * 3
    assert sum(state["cost"] for state in states) + begun == pytest.approx(best, rel=2e-4)


@pytest.mark.parametrize(
    ("reactive", "scales", "start", "hours", "second"),
    [
        (80, (1, 1), 10, 1.0, [1, 1]),  # losses rise by more than off saves
        (80, (1, 0.5), 10, 1.0, [1, 0]),  # in the first step alone
        (80, (0.5, 1, 0.5), 10, 1.0, [0, 1, 0]),
        (50, (1.1, 0.95, 1.1), 30, 1.0, [1, 1, 1]),  # off in the second step saves 15 $
        (50, (1.1, 0.95, 1.1), 25, 2.0, [1, 0, 1]),  # 29 $
        (0, (1.1, 0.95, 1.1), 60, 2.0, [1, 0, 1]),  # 70 $
    ],
)
def test_starts_and_the_losses_of_the_committed_units_are_weighed(
    tmp_path, reactive, scales, start, hours, second
):
    """Without the second unit the first one supplies all reactive power, at higher losses."""
    text = two_buses("200" if len(scales) == 2 else "110", "0", "50 10")
    text = text.replace("1 100 10 0", f"1 100 {reactive} 0").replace("0.0001 0.01", "0.04 0.05")
    result = committed(tmp_path, text, scales, {2: start}, hours=hours)
    best, _ = enumerated(result.series, {2: start / hours})
    assert result.plan.running[:, 1].astype(int).tolist() == second
    begun = start / hours * (np.diff(second) > 0).sum()
    states = [step.physical for step in result.results]
    assert [state["status"] for state in states] == ["feasible"] * len(scales)
    assert sum(state["cost"] for state in states) + begun == pytest.approx(best, rel=1e-5)


@pytest.mark.parametrize(("price", "second"), [(4, [1, 1]), (1, [0, 0])])
def test_the_price_of_reserves_of_the_other_unit_is_weighed(tmp_path, price, second):
    """Off, the second unit saves 11 $/h, but its 5 MW of reserve were free."""
    text = two_buses("200", "0", "50 10").replace("0.0001 0.01", "0.04 0.08")
    text = text.replace("1 100 10 0", "1 100 50 0")
    reserves = f"required,5,0,0,0\n1,5,0,{price},0\n2,5,0,0,0\n"
    result = committed(tmp_path, text, (1, 1), {2: 0}, reserves=reserves)
    assert result.plan.running[:, 1].astype(int).tolist() == second


def test_a_commitment_sheds_no_load_that_all_units_serve(tmp_path):
    """IEEE 30, where units that are off are needed for voltage and behind congested lines."""
    case = load_case("case30")
    size = 600 * case.pmax / case.pmax.max()
    cost = [replace(c, values=(*c.values[:-1], f)) for c, f in zip(case.cost, size, strict=True)]
    case = replace(case, pmin=0.3 * case.pmax, cost=tuple(cost))
    (tmp_path / "day.csv").write_text("step,load_scale\na,0.6\nb,0.75\nc,0.9\n")
    units = "".join(f"{g},200,1,1\n" for g in case.gen_row[1:])
    (tmp_path / "units.csv").write_text(f"gen,start_cost,min_up_hours,min_down_hours\n{units}")
    series = read_demand_series(tmp_path / "day.csv", case)
    chronology = Chronology.of(case, steps=3, switches=tmp_path / "units.csv")
    settings = make_settings(objective="cost", mechanism="none", seed=1)
    result = run_series(series, shipped_zoning(case), settings, chronology=chronology)
    everyone = [acopf(series.at(t)) for t in range(3)]
    assert not result.plan.running.all()
    for step, optimum in zip(result.results, everyone, strict=True):
        assert optimum.state.shed_mw < 1e-3
        assert step.physical["shed_mw"] < 1e-2
        assert step.physical["cost"] <= optimum.cost * (1 + 1e-4)


def test_starts_and_stops_are_free_of_ramps(tmp_path):
    """The second generator supplies 100 MW for two steps; its ramp is 10 MW per hour."""
    text = two_buses("110", "0", "120 5", LINEAR.format(no_load=500))
    result = committed(tmp_path, text, (1, 1, 2.1, 2.1, 1), {2: 0}, "2,10,10")
    best, _ = enumerated(result.series, {2: 0})
    states = [step.physical for step in result.results]
    assert [state["status"] for state in states] == ["feasible"] * 5
    assert sum(state["cost"] for state in states) == pytest.approx(best, rel=1e-4)


def test_the_commitment_keeps_ramps_between_steps_that_run(tmp_path):
    """From the night's 20 MW the cheap generator would reach 30 MW, so it starts afterwards."""
    text = two_buses("110", "0", "120 5", LINEAR.format(no_load=0).replace(" 25 ", " 15 "))
    result = committed(tmp_path, text, (0.2, 2.1, 2.1), {2: 10}, "2,10,10")
    assert result.plan.running[:, 1].tolist() == [False, True, True]
    best, begun = enumerated(result.series, {2: 10})
    states = [step.physical for step in result.results]
    # the best of all schedules without ramps runs it in every step, at 15 instead of 20 $/MWh
    assert sum(state["cost"] for state in states) == pytest.approx(best - begun + 100, rel=1e-4)


def test_losses_of_the_committed_units_alone_shed_no_load(tmp_path):
    """With both units on losses are 0.3 MW less than the first unit has left by itself."""
    text = two_buses("110", "0", "120 20").replace("0.0001 0.01", "0.01 0.05")
    result = committed(tmp_path, text, (0.7, 1.093), {2: 100})
    best, begun = enumerated(result.series, {2: 100})
    states = [step.physical for step in result.results]
    assert sum(state["shed_mw"] for state in states) < 1e-3
    assert sum(state["cost"] for state in states) + begun == pytest.approx(best, rel=2e-4)


def test_a_unit_that_runs_in_the_first_step_has_no_start_cost(tmp_path):
    """It may have run before: 220 MW in the first step, then 100 MW of the first unit alone."""
    units = committed(tmp_path, two_buses(costs=LINEAR.format(no_load=500)), (2.2, 1, 1), {2: 100})
    rows = units.plan.commitment_rows(units.series.case, units.series.steps)
    assert [(row["running"], row["start_cost"]) for row in rows] == [
        (True, 0.0),
        (False, 0.0),
        (False, 0.0),
    ]


def test_the_command_states_units_and_their_start_costs(tmp_path, capsys):
    """Four steps of one hour: 60 to 100 MW at 20 $/MWh, then 220 MW with a start at 100 $."""
    text = two_buses(costs=LINEAR.format(no_load=500))
    (tmp_path / "grid.m").write_text(text)
    (tmp_path / "day.csv").write_text("step,load_scale\na,1\nb,1\nc,1\nd,2.2\n")
    (tmp_path / "units.csv").write_text("gen,start_cost,min_up_hours,min_down_hours\n2,100,1,1\n")
    words = ["run", str(tmp_path / "grid.m"), "--series", str(tmp_path / "day.csv")]
    words += ["--commitment", str(tmp_path / "units.csv"), "--objective", "cost", "--zones", "1"]
    words += ["--mechanism", "none", "--no-reference", "--out", str(tmp_path / "out")]
    assert main(words) == 0
    assert "Cost of all steps: 11151" in (printed := capsys.readouterr().out)
    assert "with 100.00 $ of start costs" in printed
    document = json.loads((tmp_path / "out" / "horizon.json").read_text())
    rows = document["commitment"]
    assert [(r["step"], r["running"], r["start_cost"]) for r in rows] == [
        ("a", False, 0.0),
        ("b", False, 0.0),
        ("c", False, 0.0),
        ("d", True, 100.0),
    ]
    assert {(r["gen"], r["bus"]) for r in rows} == {(2, 2)}
    costs = [step["cost"] for step in document["steps"]]
    assert costs == pytest.approx([2000, 2000, 2000, 5050], rel=1e-3)
    shown = make_report(read_source(tmp_path / "out"))
    assert "commitment" in {table.name for table in shown.tables}

"""A day planned jointly: compared with a central optimum, and its limits."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "power"))
from day_reference import day_cost
from sentences import series_sentences

from gridpriv import load_case, make_settings, partition, shipped_zoning
from gridpriv.cli.main import main
from gridpriv.core.errors import GridprivWarning, InputError
from gridpriv.grid.chronology import Chronology, with_storage
from gridpriv.grid.scenarios import DemandSeries, read_demand_series
from gridpriv.report.export import make_report
from gridpriv.report.source import read_source
from gridpriv.zonal.horizon import make_horizon, run_series
from gridpriv.zonal.summary import series_notes

STORAGE = (
    "name,bus,p_mw,energy_mwh,efficiency_charge,efficiency_discharge\n"
    "big,9,30,90,0.95,0.95\nsmall,4,20,60,0.9,0.95\n"
)
RAMPS = "gen,up_mw_per_hour,down_mw_per_hour\n1,4,4\n2,1,1\n3,6,6\n"
RESERVES = "gen,up_mw,down_mw,up_price,down_price\nrequired,15,8,0,0\n" + "".join(
    f"{g},13,13,{1 + g % 3},{1 + g % 2}\n" for g in range(1, 6)
)


def scales(steps):
    hour = 24 * np.arange(steps) / steps
    return 0.78 - 0.22 * np.cos(2 * np.pi * (hour - 4) / 24)


def day(folder, steps, storage=STORAGE, ramps=RAMPS, reserves=RESERVES):
    """Return a series of case14 and its chronology."""
    for name, text in (("storage", storage), ("ramps", ramps), ("reserves", reserves)):
        (folder / f"{name}.csv").write_text(text)
    case, storages = with_storage(load_case("case14"), folder / "storage.csv")
    factors = scales(steps)
    pd, qd = (factors[:, None] * demand for demand in (case.pd, case.qd))
    series = DemandSeries(
        case, tuple(map(str, range(steps))), pd, qd, "day", tuple(factors.tolist())
    )
    chronology = Chronology.of(
        case,
        storages,
        steps=steps,
        hours=24 / steps,
        ramps=folder / "ramps.csv",
        reserves=folder / "reserves.csv",
    )
    return series, chronology


def outputs(result):
    return np.array([step.redispatch.state.pg for step in result.results])


def never_passed(result, chronology):
    """State of charge, ramps and reserves of the actual states, not of the plan."""
    pg, hours, case = outputs(result), chronology.hours, result.series.case
    change = np.diff(pg, axis=0) / hours
    assert (change - chronology.ramp_up).max() < 1e-6
    assert (-change - chronology.ramp_down).max() < 1e-6
    for s in chronology.storages:
        energy = s.start
        for p in pg[:, s.gen]:
            gained = s.charge_efficiency * max(-p, 0) - max(p, 0) / s.discharge_efficiency
            energy = (1 - s.loss) ** hours * energy + hours * gained
            assert -1e-6 < energy < s.energy + 1e-6
        assert energy > s.end - 1e-6
    room = np.minimum(np.maximum(case.pmax - pg, 0), chronology.reserve_most[0]).sum(axis=1)
    assert (room - chronology.reserve_required[0]).min() > -1e-6
    room = np.minimum(np.maximum(pg - case.pmin, 0), chronology.reserve_most[1]).sum(axis=1)
    assert (room - chronology.reserve_required[1]).min() > -1e-6
    up, down = result.plan.reserve  # of each generator
    assert (case.pmax - pg - up)[up > 1e-6].min() > -1e-6
    assert (pg - case.pmin - down)[down > 1e-6].min() > -1e-6


def cost(result, chronology):
    """Cost of the day in $, with reserves."""
    generated = chronology.hours * sum(step.physical["cost"] for step in result.results)
    reserve_cost = (result.plan.reserve * chronology.reserve_price[:, None, :]).sum()
    return generated + chronology.hours * result.series.case.base_mva * reserve_cost


@pytest.mark.parametrize("zones", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_a_day_costs_what_a_central_optimum_of_all_its_steps_does(tmp_path, zones):
    series, chronology = day(tmp_path, 4)
    case = series.case
    zoning = shipped_zoning(case) if zones == 3 else partition(case, 1)
    settings = make_settings(objective="cost", mechanism="none", seed=1)
    result = run_series(series, zoning, settings, chronology=chronology)
    best = day_cost(case, series.pd, series.qd, chronology)
    assert cost(result, chronology) == pytest.approx(best, rel=1e-5)
    never_passed(result, chronology)
    difference = run_series(series, zoning, settings)
    alone = np.diff(outputs(difference), axis=0) / chronology.hours
    assert (np.abs(alone) - chronology.ramp_up).max() > 0.01  # else the ramps would not bind
    assert np.ptp(result.plan.energy[:, 0]) > 0.1  # else the storage would not be used


@pytest.mark.slow
@pytest.mark.parametrize("steps", [24, 96])
def test_the_same_over_a_whole_day(tmp_path, steps):
    series, chronology = day(tmp_path, steps)
    settings = make_settings(objective="cost", mechanism="none", seed=1)
    result = run_series(series, shipped_zoning(series.case), settings, chronology=chronology)
    best = day_cost(series.case, series.pd, series.qd, chronology)
    assert cost(result, chronology) == pytest.approx(best, rel=1e-4)
    never_passed(result, chronology)


@pytest.mark.parametrize(
    ("budget", "beta", "seed"), [("total:5", "1 MW", 2), ("total:1", "10 MW", 3)]
)
def test_noise_passes_no_limit_over_time_and_the_day_has_one_release(tmp_path, budget, beta, seed):
    series, chronology = day(tmp_path, 4)
    settings = make_settings(
        objective="cost", mechanism="knorm", budget=budget, beta=beta, seed=seed
    )
    zoning = shipped_zoning(series.case)
    result = run_series(series, zoning, settings, chronology=chronology)
    never_passed(result, chronology)
    assert {sum(counts.values()) for counts in result.releases.values()} == {1}


def test_the_plan_is_a_function_of_the_release(tmp_path):
    """With a fixed release, other private demand changes no byte of the plan."""
    series, chronology = day(tmp_path, 3)
    settings = make_settings(
        objective="cost", mechanism="knorm", budget="total:5", beta="1 MW", seed=2
    )
    zoning = shipped_zoning(series.case)
    horizon = make_horizon(series, zoning, settings, chronology)
    known = horizon.draw()
    rng = np.random.default_rng(7)
    other = series.case.pd * rng.uniform(0.2, 1.8, series.case.n_bus)

    case = replace(series.case, pd=other)
    factors = np.array(series.scales)[:, None]
    changed = replace(series, case=case, pd=factors * other)
    scrambled = make_horizon(changed, zoning, settings, chronology)
    a, b = horizon.plan(known), scrambled.plan(known)
    for name in ("output", "low", "high", "reserve", "energy"):
        assert getattr(a, name).tobytes() == getattr(b, name).tobytes(), name
    for item, two in zip(a.schedules, b.schedules, strict=True):
        assert item.schedule.voltage.tobytes() == two.schedule.voltage.tobytes()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"storage": "name,bus,p_mw,energy_mwh\nb,99,1,1\n"}, "bus = '99'"),
        ({"storage": "name,bus,p_mw,energy_mwh\nb,9,-1,1\n"}, "0 or more"),
        ({"storage": "name,bus,p_mw,energy_mwh\nb,9,1,1\nb,9,1,1\n"}, "line 3"),
        ({"storage": "name,bus,p_mw,energy_mwh\n"}, "lists no storage"),
        (
            {"storage": "name,bus,p_mw,energy_mwh,soc_percent,end_soc_percent\nb,9,1,99,10,90\n"},
            "cannot be met",
        ),
        ({"ramps": "gen,up_mw_per_hour,down_mw_per_hour\n77,1,1\n"}, "gen = '77'"),
        ({"ramps": "gen,up_mw_per_hour,down_mw_per_hour\n1,-1,1\n"}, "0 or more"),
        ({"reserves": "gen,up_mw,down_mw\n1,5,5\n"}, "no row of gen required"),
        ({"reserves": "gen,up_mw,down_mw\nrequired,5,\n"}, "line 2"),
        (
            {"reserves": "gen,up_mw,down_mw\nrequired,50,2\n1,8,8\n2,9,8\n"},
            "up_mw = 50: must be at most 17",
        ),
        ({"ramps": "gen,up_mw_per_hour,down_mw_per_hour\n1,4,4\n01,9,9\n"}, "gen 1 is repeated"),
        ({"ramps": f"gen,up_mw_per_hour,down_mw_per_hour\n{'1' * 5000},1,1\n"}, "gen = '111"),
    ],
)
def test_files_that_are_refused(tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        day(tmp_path, 4, **changes)


def test_steps_of_demands_that_are_released_one_by_one_are_not_planned_together(tmp_path):
    series, chronology = day(tmp_path, 4)
    settings = make_settings(
        mechanism="knorm", noise_schedule="round", budget="total:5", beta="1 MW"
    )
    with pytest.raises(InputError, match="released once"):
        make_horizon(series, shipped_zoning(series.case), settings, chronology)


def test_the_command_writes_what_storages_do(tmp_path, capsys):
    (tmp_path / "day.csv").write_text("step,load_scale\nnight,0.6\nday,1\n")
    (tmp_path / "storage.csv").write_text(STORAGE)
    required = "gen,up_mw,down_mw\nrequired,5,0\n1,8,8\n2,8,8\n"
    (tmp_path / "reserves.csv").write_text(required)
    words = [
        "run",
        "case14",
        "--series",
        str(tmp_path / "day.csv"),
        "--objective",
        "cost",
        "--mechanism",
        "none",
        "--storage",
        str(tmp_path / "storage.csv"),
        "--reserves",
        str(tmp_path / "reserves.csv"),
        "--no-reference",
        "--json",
        "--out",
        str(tmp_path / "out"),
    ]
    assert main(words) == 0
    document = json.loads(capsys.readouterr().out)
    rows, reserves = document["storage"], document["reserves"]
    reserve_by_step = {
        name: sum(r["up_mw"] for r in reserves if r["step"] == name) for name in ("night", "day")
    }
    assert min(reserve_by_step.values()) > 5 - 1e-3 and {r["gen"] for r in reserves} == {1, 2}
    assert document["step_hours"] == 1 and (tmp_path / "out" / "reserves.csv").is_file()
    assert [(row["step"], row["storage"]) for row in rows] == [
        ("night", "big"),
        ("night", "small"),
        ("day", "big"),
        ("day", "small"),
    ]
    assert rows[0]["p_mw"] < -1 and rows[2]["p_mw"] > 1
    assert (tmp_path / "out" / "storage.csv").is_file()
    # rounds and mismatch of the joint plan, not of the exchange that hands it on
    assert document["coupled"] == ["storage", "reserves"]
    assert all(row["rounds"] > 1 and row["consensus_residual"] > 0 for row in document["steps"])
    text = {note.code for note in make_report(read_source(tmp_path / "out")).messages}
    assert {"coupled-plan", "steps-total", "reserves-unpriced", "storage-after"} <= text


def test_names_are_as_given_in_the_rows_of_a_plan(tmp_path, capsys):
    steps, storages = ["NA", "null", "=day", "01"], ["nan", "01", "1"]
    lines = "".join(
        f"{name},{scale}\n" for name, scale in zip(steps, (1, 0.8, 0.9, 1), strict=True)
    )
    (tmp_path / "day.csv").write_text(f"step,load_scale\n{lines}")
    lines = "".join(f"{name},9,5,20\n" for name in storages)
    (tmp_path / "storage.csv").write_text(f"name,bus,p_mw,energy_mwh\n{lines}")
    (tmp_path / "reserves.csv").write_text("gen,up_mw,down_mw\nrequired,5,0\n1,8,8\n")
    (tmp_path / "units.csv").write_text("gen,start_cost,min_up_hours,min_down_hours\n2,9,1,1\n")
    words = ["run", "case14", "--series", str(tmp_path / "day.csv"), "--objective", "cost"]
    words += ["--storage", str(tmp_path / "storage.csv"), "--mechanism", "none", "--zones", "1"]
    words += ["--reserves", str(tmp_path / "reserves.csv"), "--json", "--no-reference"]
    words += ["--commitment", str(tmp_path / "units.csv"), "--out", str(tmp_path / "out")]
    assert main(words) == 0
    document = json.loads(capsys.readouterr().out)
    pairs = [(row["step"], row["storage"]) for row in document["storage"]]
    assert pairs == [(step, name) for step in steps for name in storages]
    for rows in (document["reserves"], document["commitment"], document["steps"]):
        assert [row["step"] for row in rows] == steps
    tables = {table.name: table for table in make_report(read_source(tmp_path / "out")).tables}
    assert [row[0] for row in tables["reserves"].rows] == steps


def test_a_reserve_that_no_plan_holds_is_stated(tmp_path, capsys):
    """Generator 2 has 140 MW: of 300 MW it can hold 140 at most. It was short without a word."""
    # names that a spreadsheet or pandas would read as something else
    (tmp_path / "day.csv").write_text("step,load_scale\nNA,0.6\n=day,1\n")
    (tmp_path / "reserves.csv").write_text("gen,up_mw,down_mw\nrequired,300,0\n2,300,0\n")
    words = ["run", "case14", "--series", str(tmp_path / "day.csv"), "--objective", "cost"]
    words += ["--mechanism", "none", "--reserves", str(tmp_path / "reserves.csv"), "--json"]
    assert main(words) == 0
    document = json.loads(capsys.readouterr().out)
    held = [row["up_mw"] for row in document["reserves"]]
    assert max(held) < 140.001
    assert document["reserve_shortage_mw"] == pytest.approx(300.0 - min(held))
    (short,) = (note for note in series_notes(document) if note.code == "reserve-shortage")
    assert short.severity == "warning" and "160.0 MW less reserve" in str(short)


def test_steps_of_a_stream_without_numbers_count_as_consecutive_hours(tmp_path):
    (tmp_path / "day.csv").write_text("step,load_scale\nnight,0.6\nmorning,1\n")
    case = load_case("case14")
    series = read_demand_series(tmp_path / "day.csv", case)
    settings = make_settings(budget="total:5", stream="2h", seed=3)
    with pytest.warns(GridprivWarning, match="consecutive hours"):
        stream = make_horizon(series, shipped_zoning(case), settings)
    assert stream.hours == (0, 1)


def test_the_summary_of_a_day_names_the_limit_of_an_infeasible_step():
    row = {"step": "night", "status": "infeasible", "violated": "generator P at 9 by 0.326 MW"}
    row |= {"consensus_residual": 0.0}
    sentences = series_sentences([row], 1, {"voll": 1e4, "objective": "cost"})
    assert any("night" in text and "generator P at 9 by 0.326 MW" in text for text in sentences)
    assert not any(
        "not AC-feasible" in text
        for text in series_sentences(
            [row | {"status": "feasible", "violated": None}],
            1,
            {"voll": 1e4, "objective": "cost"},
        )
    )


def test_storages_of_the_command_keep_to_the_plan_under_noise(tmp_path, capsys):
    """The zones of the first step are tried before the plan: they must not keep the old limits."""
    day = tmp_path / "day.csv"
    day.write_text("step,load_scale\nnight,0.6\nmorning,1.0\nevening,0.9\n")
    battery = "name,bus,p_mw,energy_mwh,efficiency_charge,efficiency_discharge\n"
    (tmp_path / "storage.csv").write_text(battery + "battery,9,20,60,0.95,0.95\n")
    words = ["run", "case14", "--series", str(day), "--objective", "cost", "--seed", "1"]
    words += ["--storage", str(tmp_path / "storage.csv"), "--step-hours", "8", "--no-reference"]
    assert main([*words, "--json", "--out", str(tmp_path / "out")]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["status"] for row in document["steps"]] == ["feasible"] * 3
    given = pd.read_csv(tmp_path / "out" / "res_gen.csv").query("bus == 9")
    planned = pd.read_csv(tmp_path / "out" / "storage.csv")
    assert given.p_mw.to_numpy() == pytest.approx(planned.p_mw.to_numpy(), abs=1e-6)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--ramps", "ramps.csv"], "--ramps needs steps"),
        (["--series", "day.csv", "--storage", "none.csv"], "none.csv"),
        (["--series", "day.csv", "--step-hours", "-1"], "--step-hours"),
    ],
)
def test_flags_that_are_refused(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("day.csv").write_text("step,load_scale\nnight,0.6\nday,1\n")
    assert main(["run", "case14", "--mechanism", "none", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_generator_that_stands_still_gives_nothing(tmp_path):
    series, chronology = day(tmp_path, 3)
    (tmp_path / "commitment.csv").write_text(
        "gen,start_cost,min_up_hours,min_down_hours\n2,1e6,0,0\n"
    )

    switches = Chronology.of(
        series.case, steps=3, hours=8, switches=tmp_path / "commitment.csv"
    ).switches
    case = replace(series.case, pmin=np.where(np.arange(7) == 1, 0.9, series.case.pmin))
    settings = make_settings(objective="cost", mechanism="none", seed=1)
    result = run_series(
        replace(series, case=case),
        shipped_zoning(case),
        settings,
        chronology=replace(
            chronology,
            switches=switches,
            reserve_required=np.zeros((2, 3)),
            reserve_most=np.zeros((2, 7)),
        ),
    )
    assert not result.plan.running[:, 1].any()
    assert np.abs(outputs(result)[:, 1]).max() < 1e-6


def streamed(folder, changed=None):
    """Return a day with hourly releases, its plan, and its estimates."""
    series, chronology = day(folder, 3)
    chronology = replace(chronology, hours=1.0)
    if changed is not None:
        for demand in (series.pd, series.qd):
            demand[changed:] *= 1.1
    settings = make_settings(
        objective="cost", mechanism="knorm", budget="total:5", beta="1 MW", stream="2h", seed=3
    )
    horizon = make_horizon(series, shipped_zoning(series.case), settings, chronology)
    known = horizon.draw()
    return horizon, horizon.plan(known), known


@pytest.fixture(scope="module")
def receding(tmp_path_factory):
    return streamed(tmp_path_factory.mktemp("receding"))


def test_a_receding_plan_rests_on_the_releases_until_its_step(receding, tmp_path):
    (horizon, here, _), (_, there, _) = receding, streamed(tmp_path, changed=2)
    first = 2 - 2 % horizon.block
    assert first > 0
    assert here.output[:first].tobytes() == there.output[:first].tobytes()
    assert np.abs(here.output[2:] - there.output[2:]).max() > 1e-3


def test_a_receding_day_passes_no_limit_over_time(receding):
    horizon, plan, known = receding
    steps = [horizon.run_step(number, estimates=known, plan=plan) for number in range(3)]
    result = type("Day", (), {"results": steps, "series": horizon.series, "plan": plan})
    never_passed(result, horizon.chronology)
    best = day_cost(horizon.series.case, horizon.series.pd, horizon.series.qd, horizon.chronology)
    assert best < cost(result, horizon.chronology) < 1.1 * best  # it does not know the day ahead


@pytest.mark.parametrize(
    ("steps", "hours", "message"),
    [
        (
            ("2026-03-01T00:00", "2026-03-01T00:15", "2026-03-01T00:30"),
            1.0,
            "00:15 is 0.25 h after",
        ),
        (("2026-03-01T00:00", "2026-03-01T01:00", "2026-03-01T03:00"), 1.0, "03:00 is 2 h after"),
        (("2026-03-01T00:00", "2026-03-01T00:15", "2026-03-01T00:30"), 0.25, ""),
        (("20260301", "20260302", "20260303"), 1.0, ""),
        (("night", "2026-03-01", "2026-03-02"), 1.0, ""),
    ],
)
def test_names_of_steps_that_contradict_their_length_cause_a_warning(
    tmp_path, recwarn, steps, hours, message
):
    series, chronology = day(tmp_path, 3)
    named, given = replace(series, steps=steps), replace(chronology, hours=hours)
    settings = make_settings(mechanism="none", objective="cost")
    make_horizon(named, shipped_zoning(series.case), settings, given)
    warned = [str(warning.message) for warning in recwarn]
    assert [message in text for text in warned] == ([True] if message else [])


def test_a_step_of_a_stream_is_an_hour(tmp_path):
    """Four hours of half-hourly releases would cost twice the total that is stated of a window."""
    series, chronology = day(tmp_path, 4)
    settings = make_settings(mechanism="knorm", budget="total:5", stream="2h")
    halves = replace(chronology, hours=0.5)
    with pytest.raises(InputError, match="must be 1 with --stream"):
        make_horizon(series, shipped_zoning(series.case), settings, halves)


def test_a_commitment_of_a_stream_is_refused(tmp_path):
    series = day(tmp_path, 4)[0]
    (tmp_path / "units.csv").write_text("gen,start_cost,min_up_hours,min_down_hours\n1,10,1,1\n")
    switched = Chronology.of(series.case, steps=4, switches=tmp_path / "units.csv")
    settings = make_settings(mechanism="knorm", budget="total:5", stream="4h", seed=3)
    with pytest.raises(InputError, match="--commitment: must be left out"):
        make_horizon(series, shipped_zoning(series.case), settings, switched)

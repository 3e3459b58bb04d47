"""What protection is expected to cost: by public data, and by nothing else."""

from __future__ import annotations

import json

import pytest

from gridpriv.cli.main import main
from gridpriv.zonal.forecast import Expected, recommended

TINY = """function mpc = tiny
mpc.baseMVA = 100;
mpc.bus = [
1 3 {0} {4}  0 0 1 1 0 230 1 1.1 0.9;
2 1 {1} {5} 0 0 1 1 0 230 1 1.1 0.9;
3 2 {2} {6} 0 0 1 1 0 230 1 1.1 0.9;
4 1 {3} {7}  0 0 1 1 0 230 1 1.1 0.9;
];
mpc.gen = [
1 60 0 50 -50 1 100 1 120 0;
3 60 0 50 -50 1 100 1 120 0;
];
mpc.branch = [
1 2 0.01 0.1 0 200 0 0 0 0 1 -360 360;
2 3 0.01 0.1 0 200 0 0 0 0 1 -360 360;
3 4 0.01 0.1 0 200 0 0 0 0 1 -360 360;
4 1 0.01 0.1 0 200 0 0 0 0 1 -360 360;
];
mpc.gencost = [2 0 0 3 0.01 20 0; 2 0 0 3 0.02 10 0];
"""
FEW = ["--zones", "2", "--draws", "1", "--rounds", "central,2", "--releases", "nothing,total"]


def planned(folder, capsys, demand, *flags):
    path = folder / "tiny.m"
    path.write_text(TINY.format(*demand))
    assert main(["plan", str(path), *FEW, *flags]) == 0
    return capsys.readouterr().out


def test_other_private_demand_changes_no_byte(tmp_path, capsys):
    for flags in ((), ("--json",)):
        here = planned(tmp_path, capsys, (20, 40, 30, 0, 5, 9, 8, 0), *flags)
        there = planned(tmp_path, capsys, (3, 77, 1, 88, -4, 0, 21, 13), *flags)
        assert here == there


def test_the_noise_of_a_sum_is_that_of_its_mechanism(tmp_path, capsys):
    """K-norm noise of beta 10 MW at epsilon 1 has a deviation of 2 x 10 MW (Hardt and Talwar)."""
    told = json.loads(planned(tmp_path, capsys, (9,) * 8, "--json"))
    total = [way for way in told["ways"] if way["release"] == "total"]
    assert {way["rounds"] for way in total} == {"central", "2"}
    assert all(way["noise_mw"] == pytest.approx(20.0) for way in total)
    assert all(way["over_optimum"] >= -0.1 for way in total)


def test_noise_larger_than_the_grid_is_said(tmp_path, capsys):
    told = planned(tmp_path, capsys, (9,) * 8, "--total", "0.001")
    assert "exceeds all that the grid can generate (240 MW) with total" in " ".join(told.split())


def test_bad_input_is_named(tmp_path, capsys):
    for flags, named in (
        (["--total", "0"], "epsilon"), (["--protect", "0MW"], "beta"),
        (["--rounds", "x"], "rounds"), (["--releases", "sum"], "releases"),
        (["--draws", "0"], "draws"), (["--mechanisms", "gaussian"], "mechanisms"),
    ):  # fmt: skip
        path = tmp_path / "tiny.m"
        path.write_text(TINY.format(*[9] * 8))
        assert main(["plan", str(path), "--zones", "2", *flags]) == 2
        assert named in capsys.readouterr().err


def way(release, cost, error=1.0, failed=0):
    return Expected(release, "knorm", "10", 1.0, error, cost, 0.0, 0.0, 0.0, failed)


def test_the_recommendation_is_the_cheapest_and_nothing_where_nothing_is_as_good():
    assert recommended([way("nothing", 120.0), way("bus", 110.0)]).release == "bus"
    assert recommended([way("nothing", 110.05), way("bus", 110.0)]).release == "nothing"
    assert recommended([way("bus", 99.0, failed=1), way("total", 110.0)]).release == "total"
    assert recommended([way("bus", 100.0, 5.0), way("tree", 100.05, 2.0)]).release == "tree"

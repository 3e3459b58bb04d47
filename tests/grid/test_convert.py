"""Conversions between formats: data kept to the last bit, and reported losses.

A written MATPOWER file reads back as the same case, here and in other readers.
"""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from powsybl_files import answer_here, samples

from gridpriv.cli.main import main
from gridpriv.core.errors import InputError
from gridpriv.grid.case import Case, GenCost
from gridpriv.grid.convert import (
    Converted,
    convert,
    differences,
    function_name,
    matpower_text,
    write_case,
)
from gridpriv.grid.library import load_case, read_case
from gridpriv.grid.matpower import parse_matpower
from gridpriv.grid.powsybl import case_from_powsybl
from gridpriv.grid.tables import case_from_tables

ROWS = ("branch_row", "gen_row")  # of the source's table, with rows out of service


def assert_same(given: Case, read: Case) -> None:
    for field in fields(Case):
        item, other = getattr(given, field.name), getattr(read, field.name)
        if isinstance(item, np.ndarray) and field.name not in ROWS:
            np.testing.assert_allclose(other, item, rtol=1e-14, atol=0, err_msg=field.name)
        elif not isinstance(item, np.ndarray):
            assert other == item, field.name


@pytest.mark.parametrize("name", ["case14", "case118", "case39"])
def test_what_is_written_reads_back(name: str) -> None:
    case = load_case(name)
    assert_same(case, case_from_tables(parse_matpower(matpower_text(case), case.name)))


def test_limits_that_are_none_and_names_that_are_no_numbers() -> None:
    case = load_case("case14")
    pmax, angmin = case.pmax.copy(), case.angmin.copy()
    pmax[0], angmin[:] = np.inf, -0.5
    case = replace(case, pmax=pmax, angmin=angmin, groups={"zone": ("west", *["east"] * 13)})
    read = case_from_tables(parse_matpower(matpower_text(case), case.name))
    assert read.groups["zone"] == ("1", *["2"] * 13)
    assert_same(replace(case, groups=read.groups), read)


def test_a_function_has_a_name_that_matlab_allows() -> None:
    assert function_name("118 bus-private") == "case_118_bus_private"
    assert function_name("case14") == "case14"


def test_comments_stay_comments() -> None:
    text = matpower_text(load_case("case14"), ["one\nmpc.baseMVA = 1;"])
    assert parse_matpower(text, "x").base_mva == 100.0


def test_pandapower_reads_the_same_grid(tmp_path) -> None:
    frames = pytest.importorskip("matpowercaseframes")
    path = tmp_path / "written.m"
    case = load_case("case118")
    path.write_text(matpower_text(case))
    tables = frames.CaseFrames(str(path))
    np.testing.assert_allclose(tables.bus["PD"], 100.0 * case.pd)
    np.testing.assert_allclose(tables.branch["BR_X"], case.x)
    np.testing.assert_allclose(
        tables.gencost["COST_0" if "COST_0" in tables.gencost else tables.gencost.columns[4]],
        [c.values[0] for c in case.cost],
    )


def outcomes(converted: Converted) -> dict[str, str]:
    return {row.field: row.status for row in converted.differences if row.status != "kept"}


@pytest.mark.parametrize("suffix", [".m", ".mat"])
def test_matpower_files_are_read_back_as_they_were(tmp_path: Path, suffix: str) -> None:
    for name in ("case14", "case118"):
        case = load_case(name)
        limits = np.full(case.n_gen, np.inf)
        case = replace(
            case,
            rate=np.arange(case.n_branch) / 7,
            rate_b=np.arange(case.n_branch) / 3,
            angmin=np.where(np.arange(case.n_branch) % 2, -0.3, -np.inf),
            qmax=limits,
            shift=np.arange(case.n_branch) / 50,
            cost=(GenCost(1, (0.0, 0.0, 10.0, 1 / 3)), *case.cost[1:]),
        )
        path = tmp_path / f"{name}{suffix}"
        write_case(case, path)
        again = load_case(path)
        for field in ("bus_id", "f_bus", "t_bus", "r", "x", "b", "tap", "vm", "vg", "reference"):
            assert np.array_equal(getattr(case, field), getattr(again, field)), field
        assert not [row for row in differences(case, again) if row.status != "kept"]
        assert again.cost[0] == case.cost[0]


def test_an_odd_name_and_a_large_number_make_a_valid_file() -> None:
    case = replace(load_case("case14"), name="2 grids; rm")
    text = matpower_text(case, comments=["one\nline"])
    assert text.splitlines()[:2] == ["function mpc = case_2_grids__rm", "% one line"]


def test_a_pandapower_net_keeps_names_and_loses_emergency_ratings(tmp_path: Path) -> None:
    case = replace(load_case("case14"), rate=np.ones(20), rate_b=np.full(20, 2.0))
    write_case(case, tmp_path / "own.m")
    converted = convert(tmp_path / "own.m", tmp_path / "own.json")
    lost = outcomes(converted)
    assert lost.pop("ratings, temporary (B)") == "lost"
    assert set(lost) == {"active set points", "nominal voltage"}, "of the slack; of 0 kV"


def test_the_account_finds_every_change(case14: Case) -> None:
    for change, field in (
        ({"pd": case14.pd * (1 + 1e-6)}, "demand, active"),
        ({"x": case14.x * (1 + 1e-6)}, "admittances (impedance, charging, taps, phase shifts)"),
        ({"rate": np.ones(20)}, "ratings, permanent (A)"),
        ({"pmax": case14.pmax + 1e-6}, "active limits, upper"),
        ({"cost": ()}, "generator costs"),
    ):
        actual = {
            r.field for r in differences(case14, replace(case14, **change)) if r.status != "kept"
        }
        assert actual == {field}
    fewer = list(differences(case14, case14.without(("branch:1", "gen:2"))))
    assert {row.field: row.count for row in fewer if row.status == "lost"} == {
        "branches in service": 1,
        "generators in service": 1,
        "generator costs": 1,
    } or {"branches in service", "generators in service"} <= {
        row.field for row in fewer if row.status == "lost"
    }


def test_values_of_files_on_different_bases_are_compared_in_mw(
    case14: Case, tmp_path: Path
) -> None:
    """pandapower's default base of 1 MVA is read as 100 MVA, which changes no MW."""
    case = replace(
        case14,
        base_mva=1.0,
        rate=np.full(case14.n_branch, 90.0),
        r=case14.r / 100.0,
        x=case14.x / 100.0,
        **{
            name: getattr(case14, name) * 100.0
            for name in ("pd", "qd", "gs", "bs", "b", "pg", "pmin", "pmax", "qmin", "qmax")
        },
    )
    (tmp_path / "own.m").write_text(matpower_text(case))
    result = convert(tmp_path / "own.m", tmp_path / "own.json")
    assert (result.before.base_mva, result.after.base_mva) == (1.0, 100.0)
    rows = {row.field: row for row in result.differences}
    for field in (
        "demand, active",
        "ratings, permanent (A)",
        "active limits, upper",
        "admittances (impedance, charging, taps, phase shifts)",
    ):
        assert rows[field].status == "kept", rows[field]


def test_changed_costs_are_counted_by_generator(case14: Case, tmp_path: Path) -> None:
    piecewise, linear = GenCost(1, (0.0, 50.0, 100.0, 2050.0)), GenCost(2, (30.0, 0.0))
    costs = (piecewise, linear, *case14.cost[2:])  # a net has no place for 50 $/h at no load
    (tmp_path / "own.m").write_text(matpower_text(replace(case14, cost=costs)))
    result = convert(tmp_path / "own.m", tmp_path / "own.json")
    row = next(row for row in result.differences if row.field == "generator costs")
    assert (row.status, row.count) == ("changed", 1)


def test_formats_and_places_that_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ending of the file to write = '\.csv': must be"):
        convert("case14", tmp_path / "a.csv")
    with pytest.raises(InputError, match="its folder does not exist"):
        convert("case14", tmp_path / "none" / "a.m")
    write_case(load_case("case14"), tmp_path / "own.m")
    with pytest.raises(InputError, match="is the source itself"):
        convert(tmp_path / "own.m", tmp_path / "own.m")
    (tmp_path / "own.m").unlink()
    with pytest.raises(InputError, match="is not known"):
        convert("case15", tmp_path / "a.m")
    assert not list(tmp_path.iterdir())


def test_the_command_prints_what_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "a.m")
    assert main(["convert", "case14", out, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["load_mw"] == pytest.approx(259.0)
    assert {row["status"] for row in document["differences"]} == {"kept"}
    assert main(["convert", "case14", out]) == 0
    assert "figures kept" in capsys.readouterr().out
    assert main(["convert", "case14", str(tmp_path / "a.docx")]) == 2


def test_powsybl_formats_keep_the_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """XIIDM keeps a case except its costs; a PSS/E file keeps the data that PowSyBl keeps."""
    networks = pytest.importorskip("pypowsybl").network
    answer_here(monkeypatch)
    converted = convert("case118", tmp_path / "a.xiidm")
    assert outcomes(converted) == {"generator costs": "lost"}
    path = tmp_path / "b.raw"
    path.write_bytes(samples()[".raw"])
    again = convert(path, tmp_path / "b.xiidm").after
    case = read_case(path)[0]
    assert sorted(case.bus_id.tolist()) == sorted(again.bus_id.tolist())
    network = networks.load(tmp_path / "b.xiidm")
    assert sorted(case_from_powsybl(network).pd) == sorted(case.pd)
    with pytest.raises(InputError, match="has no place in the format UCTE"):
        convert("case14", tmp_path / "c.uct")
    assert not (tmp_path / "c.uct").exists()


@pytest.mark.parametrize("suffix", [".m", ".mat"])
def test_buses_that_count_from_0_are_numbered_from_1_in_matpower_files(case14, tmp_path, suffix):
    zero = replace(case14, bus_id=case14.bus_id - 1)
    write_case(zero, tmp_path / f"zero{suffix}")
    again = load_case(tmp_path / f"zero{suffix}")
    assert again.bus_id.tolist() == case14.bus_id.tolist()
    (numbers,) = (d for d in differences(zero, again) if d.field == "bus numbers")
    assert numbers.status == "changed"
    assert numbers.count == case14.n_bus

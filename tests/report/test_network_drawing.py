"""Pictures of grids: what stands in them can be counted, and they are the same every time."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gridpriv.core.errors import InputError
from gridpriv.drawing import Drawing, draw_network, to_svg, write_drawing
from gridpriv.drawing.parts import LIMIT_LINE, SHED_FILL, Label, Mark, Stroke
from gridpriv.drawing.scene import _apart, place_grid
from gridpriv.grid.case import Case
from gridpriv.grid.layout import bus_positions, network_tables
from gridpriv.grid.library import load_case, shipped_zoning
from gridpriv.grid.zoning import Zoning, zoning_from_groups
from gridpriv.report.pictures import flows_of, zones_picture


def grid(name: str) -> tuple[Case, Zoning]:
    case = load_case(name)
    zoning = shipped_zoning(case)
    assert zoning is not None
    return case, zoning


def loaded(case: Case, zoning: Zoning, **drawn: Any) -> Drawing:
    return draw_network("t", *network_tables(case, zoning), **drawn)


def of(drawing: Drawing, kind: type) -> list[Any]:
    return [part for part in drawing.parts if isinstance(part, kind)]


@pytest.mark.parametrize("name", ["case14", "case118"])
def test_every_bus_branch_and_tie_line_is_drawn_once(name: str) -> None:
    case, zoning = grid(name)
    drawing = zones_picture(case, zoning)
    buses = [m for m in of(drawing, Mark) if m.tip]
    branches = [s for s in of(drawing, Stroke) if s.tip]
    assert len(buses) == case.n_bus
    assert len(branches) == case.n_branch
    assert sum(s.dashed for s in branches) == {"case14": 5, "case118": 8}[name]
    assert sum(m.square for m in buses) == len(set(case.gen_bus.tolist()))
    words = [label.text for label in of(drawing, Label)]
    assert all(str(bus) in words for bus in case.bus_id)
    assert {"zone 1", "zone 2", "zone 3"} <= set(words)


@pytest.mark.parametrize("name", ["case14", "case118"])
def test_no_bus_covers_another_and_all_stand_on_the_page(name: str) -> None:
    case, zoning = grid(name)
    scene, bottom = place_grid(*network_tables(case, zoning), 720.0)
    gap = np.linalg.norm(scene.place[:, None] - scene.place[None], axis=2)
    np.fill_diagonal(gap, np.inf)
    assert gap.min() > 2.0 * scene.radius
    assert scene.place.min() > 0
    assert scene.place[:, 0].max() < 720
    assert scene.place[:, 1].max() < bottom


@pytest.mark.parametrize("count", [200, 20_000])
def test_buses_are_moved_apart_only_where_the_page_has_room_for_all(count: int) -> None:
    xy = np.random.default_rng(0).uniform(size=(count, 2))
    buses = pd.DataFrame({"bus": range(count), "zone": "1", "x": xy[:, 0], "y": -xy[:, 1]})
    branches = pd.DataFrame({"from": [0], "to": [1], "tie": [False]})
    scene, _ = place_grid(buses, branches, 720.0)
    place = (scene.place - scene.place.min(axis=0)) / np.ptp(scene.place, axis=0)
    given = (xy - xy.min(axis=0)) / np.ptp(xy, axis=0)
    assert np.allclose(place, given, rtol=0, atol=1e-9) == (count > 200)


def test_neighbours_stand_nearer_than_strangers() -> None:
    case, zoning = grid("case118")
    place = np.asarray(bus_positions(case, zoning))
    all_pairs = np.linalg.norm(place[:, None] - place[None], axis=2)
    joined = all_pairs[case.f_bus, case.t_bus]
    assert np.median(joined) < 0.2 * np.median(all_pairs)


def test_another_process_lays_out_the_same_picture() -> None:
    case, zoning = grid("case118")
    script = (
        "import sys; from gridpriv.grid.library import load_case, shipped_zoning;"
        "from gridpriv.grid.layout import bus_positions;"
        "c = load_case('case118'); sys.stdout.buffer.write("
        "bus_positions(c, shipped_zoning(c)).tobytes())"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout
    np.testing.assert_array_equal(
        np.frombuffer(told).reshape(-1, 2), np.asarray(bus_positions(case, zoning))
    )


def test_a_layout_does_not_hang_on_the_last_digit() -> None:
    """A machine whose arithmetic rounds otherwise draws the same picture."""
    from gridpriv.grid import layout

    case, zoning = grid("case118")
    island = np.arange(case.n_bus)
    lengths = layout._lengths(case, zoning, island)
    distances = layout.dijkstra(lengths, directed=False)
    pairs = (island, distances, lengths.tocoo())
    start = layout._classical_scaling(distances)
    rng = np.random.default_rng(1)
    ours = layout._least_stress(start, *pairs)
    theirs = layout._least_stress(start * (1 + 1e-12 * rng.standard_normal(start.shape)), *pairs)
    np.testing.assert_allclose(theirs, ours, atol=1e-3)


def test_given_coordinates_are_used_and_latitude_shortens_longitude() -> None:
    case, zoning = grid("case14")
    xy = np.random.default_rng(0).uniform([8.0, 47.0], [9.0, 49.0], (14, 2))
    place = np.asarray(bus_positions(replace(case, xy=xy), zoning))
    np.testing.assert_allclose(place[:, 1], xy[:, 1])
    middle = np.deg2rad((xy[:, 1].min() + xy[:, 1].max()) / 2)
    np.testing.assert_allclose(np.ptp(place[:, 0]), np.ptp(xy[:, 0]) * np.cos(middle))


def test_a_grid_with_nothing_out_of_service_is_laid_out_once() -> None:
    case, zoning = grid("case14")
    place = bus_positions(case, zoning)
    assert bus_positions(case.without(()), zoning) is place
    assert bus_positions(case.without(("branch:1",)), zoning) is not place


def test_islands_and_lone_buses_do_not_overlap() -> None:
    case = load_case("case14").without(("branch:14",))  # bus 8 is alone then
    zoning = zoning_from_groups(case, [range(14)], "one zone")
    place = np.asarray(bus_positions(case, zoning))
    others = np.delete(place, case.index_of[8], axis=0)
    assert np.linalg.norm(others - place[case.index_of[8]], axis=1).min() > 0.9


@pytest.mark.parametrize("zones", [40, 41])
def test_of_very_many_zones_none_is_named_and_the_legend_says_so(zones: int) -> None:
    case = load_case("case118")
    groups = np.array_split(np.arange(case.n_bus), zones)
    drawing = zones_picture(case, zoning_from_groups(case, groups, "many"))
    words = [label.text for label in of(drawing, Label)]
    assert sum(word.startswith("zone ") for word in words) == (zones if zones == 40 else 0)
    told = "named on the map" if zones == 40 else "too many to name here"
    assert f"{zones} zones, {told}" in words


def test_loading_and_shed_are_told_with_units() -> None:
    case, zoning = grid("case14")
    loading = np.full(20, 40.0)
    loading[3], loading[4] = 100.0, np.nan
    flows = pd.DataFrame({"mva": 12.0, "loading_percent": loading})
    drawing = loaded(case, zoning, flows=flows, shed={3: 80.0, 14: 20.0, 5: -1.0})
    assert sum(s.colour == LIMIT_LINE and bool(s.tip) for s in of(drawing, Stroke)) == 1
    rings = [m for m in of(drawing, Mark) if m.fill == SHED_FILL]
    hole = next(m for m in of(drawing, Mark) if m.tip).radius / 0.9  # bus 1 is a square
    on_map = [m for m in rings if any(np.hypot(m.at[0] - b.at[0], m.at[1] - b.at[1]) < 1e-9
                                      for b in of(drawing, Mark) if b.tip)]  # fmt: skip
    assert len(on_map) == 2
    areas = sorted(m.radius**2 - hole**2 for m in on_map)
    assert areas[1] / areas[0] == pytest.approx(4.0)
    words = " ".join(label.text for label in of(drawing, Label))
    assert "Branch loading, % of limit (1 without a limit: thinnest)" in words
    assert "Not served, MW" in words
    assert "80.0 MW" in words
    assert "100 MW are not served, most at bus 3" in drawing.alt
    assert "At their limit: 1 branch." in drawing.alt


def test_without_limits_flow_is_shown_in_mva() -> None:
    case, zoning = grid("case14")
    flows = pd.DataFrame({"mva": np.arange(20.0), "loading_percent": np.nan})
    words = " ".join(label.text for label in of(loaded(case, zoning, flows=flows), Label))
    assert "Branch flow, MVA" in words


def test_files_of_every_format(tmp_path: Path) -> None:
    drawing = zones_picture(*grid("case14"))
    starts = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<svg"}
    for kind, start in starts.items():
        file = write_drawing(drawing, tmp_path / f"zones.{kind}", private=False)
        assert file.read_bytes().startswith(start)
    first = (tmp_path / "zones.pdf").read_bytes()
    write_drawing(drawing, tmp_path / "zones.pdf", private=False)
    assert (tmp_path / "zones.pdf").read_bytes() == first
    assert len(list(tmp_path.iterdir())) == 3
    with pytest.raises(InputError, match="'gif' is not allowed: one of png, svg, pdf"):
        write_drawing(drawing, tmp_path / "zones.gif", private=False)


def test_svg_is_well_formed_and_escapes_names() -> None:
    case, zoning = grid("case14")
    odd = replace(zoning, names=("<1>", "a&b", '"c"'))
    root = ET.fromstring(to_svg(zones_picture(case, odd)))
    tips = [g.get("data-tip", "") for g in root.iter("{http://www.w3.org/2000/svg}g")]
    assert sum(tip.startswith("bus ") for tip in tips) == 14
    assert any("zone a&b" in tip for tip in tips)


def test_a_runs_report_shows_its_loading_and_a_public_one_does_not(tmp_path: Path) -> None:
    from gridpriv.cli.main import main
    from gridpriv.report.source import read_source

    words = ["run", "case14", "--rounds", "2", "--solver", "clarabel", "--quiet", "--load-scale"]
    assert main([*words, "3", "--out", str(tmp_path / "run")]) == 0
    assert main(["report", str(tmp_path / "run")]) == 0
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Branch flow, MVA" in page
    flows = flows_of(read_source(tmp_path / "run"))
    assert flows is not None
    lines = pd.read_csv(tmp_path / "run" / "res_line.csv")
    assert (flows.mva >= lines.p_from_mw.abs() - 1e-9).all()
    assert main(["report", str(tmp_path / "run"), "--public"]) == 0
    public = (tmp_path / "run" / "public" / "report-public.html").read_text()
    assert not re.search(r"MVA\b", public.replace("Base (MVA)", ""))
    assert "MW not served" not in public


def test_marks_are_pushed_apart_by_as_much_to_either_side():
    place = np.array([[0.0, 0.0], [3.0, 4.0], [500.0, 500.0]])
    moved = _apart(place, 10.0)
    assert moved.mean(axis=0) == pytest.approx(place.mean(axis=0), abs=0.05)
    assert moved[2] == pytest.approx(place[2], abs=0.05)
    assert 8.0 < np.linalg.norm(moved[1] - moved[0]) <= 10.1

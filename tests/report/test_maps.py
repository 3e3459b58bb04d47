"""Pictures of grids: their elements are counted, and they are equal in every run."""

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
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text

from gridpriv.grid.case import Case
from gridpriv.grid.layout import bus_positions, network_tables
from gridpriv.grid.library import load_case, shipped_zoning
from gridpriv.grid.zoning import Zoning, zoning_from_groups
from gridpriv.report.figures import to_svg
from gridpriv.report.network import GridMap, separated
from gridpriv.report.plots import flows_of, zones_map


def grid(name: str) -> tuple[Case, Zoning]:
    case = load_case(name)
    zoning = shipped_zoning(case)
    assert zoning is not None
    return case, zoning


def words(ax: Axes) -> list[str]:
    """Return every text of a map, its legend and its colour bars."""
    return [text.get_text() for text in ax.figure.findobj(Text) if text.get_text()]


def part(ax: Axes, gid: str) -> Any:
    (drawn,) = (each for each in ax.collections if each.get_gid() == gid)
    return drawn


def marks(ax: Axes) -> np.ndarray:
    return np.vstack([part(ax, f"buses {kind}").get_offsets() for kind in "os"])


@pytest.mark.parametrize(("name", "ties"), [("case14", 5), ("case118", 8)])
def test_every_bus_branch_and_tie_line_is_drawn_once(name: str, ties: int) -> None:
    case, zoning = grid(name)
    ax = zones_map(case, zoning).plot()
    assert len(part(ax, "ties").get_segments()) == ties
    assert len(part(ax, "branches").get_segments()) == case.n_branch - ties
    generators = len(set(case.gen_bus.tolist()))
    assert len(part(ax, "buses s").get_offsets()) == generators
    assert len(part(ax, "buses o").get_offsets()) == case.n_bus - generators
    shown = words(ax)
    assert all(shown.count(str(bus)) == 1 for bus in case.bus_id)
    assert {"zone 1", "zone 2", "zone 3", f"tie line ({ties})"} <= set(shown)


def test_a_branch_ends_at_its_buses() -> None:
    case, zoning = grid("case14")
    ax = zones_map(case, zoning).plot()
    at = {text.get_text(): text.get_position() for text in ax.texts}
    lines = np.array([*part(ax, "branches").get_segments(), *part(ax, "ties").get_segments()])
    for f, t in zip(case.bus_id[case.f_bus], case.bus_id[case.t_bus], strict=True):
        ends = np.array([at[str(f)], at[str(t)]])
        assert np.abs(lines - ends).max(axis=(1, 2)).min() < 1e-6


def test_branches_between_the_same_buses_lie_side_by_side() -> None:
    case, zoning = grid("case118")
    ax = zones_map(case, zoning).plot()
    lines = np.array(part(ax, "branches").get_segments()).reshape(-1, 4)
    assert len(np.unique(np.round(lines, 6), axis=0)) == len(lines)


@pytest.mark.parametrize("name", ["case14", "case118"])
@pytest.mark.parametrize("size", [None, (5.0, 4.0)])
def test_no_bus_covers_another_and_all_are_on_the_page(name: str, size: Any) -> None:
    ax = zones_map(*grid(name)).plot(figsize=size)
    ax.figure.draw_without_rendering()
    place = ax.transData.transform(marks(ax)) / ax.figure.dpi * 72.0
    gap = np.linalg.norm(place[:, None] - place[None], axis=2)
    np.fill_diagonal(gap, np.inf)
    assert gap.min() > 0.99 * np.sqrt(part(ax, "buses o").get_sizes()[0])
    page = np.array(ax.figure.get_size_inches()) * 72.0
    assert place.min() > 0 and (place < page).all()


@pytest.mark.parametrize("count", [200, 20_000])
def test_buses_are_separated_only_where_the_page_has_room_for_all(count: int) -> None:
    xy = np.random.default_rng(0).uniform(size=(count, 2))
    buses = pd.DataFrame({"bus": range(count), "zone": "1", "x": xy[:, 0], "y": xy[:, 1]})
    branches = pd.DataFrame({"from": [0], "to": [1], "tie": [False]})
    place = part(GridMap("t", buses, branches).plot(), "buses o").get_offsets()
    place = (place - place.min(axis=0)) / np.ptp(place, axis=0)
    given = (xy - xy.min(axis=0)) / np.ptp(xy, axis=0)
    assert np.allclose(place, given, rtol=0, atol=1e-9) == (count > 200)


def test_axes_that_are_given_are_used() -> None:
    figure = Figure(layout="constrained")
    _, ax = figure.subplots(1, 2)
    assert zones_map(*grid("case14")).plot(ax) is ax
    assert len(figure.axes) == 2
    assert zones_map(*grid("case14")).plot(legend=False).get_legend() is None


def test_neighbours_are_nearer_than_strangers() -> None:
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
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout
    np.testing.assert_array_equal(
        np.frombuffer(printed).reshape(-1, 2), np.asarray(bus_positions(case, zoning))
    )


def test_a_layout_does_not_hang_on_the_last_digit() -> None:
    """A machine with different rounding draws the same picture."""
    from gridpriv.grid import layout

    case, zoning = grid("case118")
    island = np.arange(case.n_bus)
    lengths = layout._lengths(case, zoning, island)
    distances = layout.dijkstra(lengths, directed=False)
    pairs = (island, distances, lengths.tocoo())
    start = layout._classical_scaling(distances)
    rng = np.random.default_rng(1)
    ours = layout._least_stress(start, *pairs)
    perturbed = layout._least_stress(start * (1 + 1e-12 * rng.standard_normal(start.shape)), *pairs)
    np.testing.assert_allclose(perturbed, ours, atol=1e-3)


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
    other_places = np.delete(place, case.index_of[8], axis=0)
    assert np.linalg.norm(other_places - place[case.index_of[8]], axis=1).min() > 0.9


@pytest.mark.parametrize("zones", [40, 41])
def test_of_very_many_zones_none_is_named_and_the_legend_says_so(zones: int) -> None:
    case = load_case("case118")
    groups = np.array_split(np.arange(case.n_bus), zones)
    shown = words(zones_map(case, zoning_from_groups(case, groups, "many")).plot())
    assert sum(word.startswith("zone ") for word in shown) == (zones if zones == 40 else 0)
    entry = "named on the map" if zones == 40 else "too many to name here"
    assert f"{zones} zones, {entry}" in shown


def test_loading_and_shed_are_drawn_and_described_with_units() -> None:
    case, zoning = grid("case14")
    loading = np.full(20, 40.0)
    loading[3], loading[4] = 100.0, np.nan
    flows = pd.DataFrame({"mva": 12.0, "loading_percent": loading})
    shed = {3: 80.0, 14: 20.0, 5: -1.0}
    drawing = GridMap("t", *network_tables(case, zoning), shed=shed, flows=flows)
    ax = drawing.plot()
    colours = [to_hex(c) for k in ("branches", "ties") for c in part(ax, k).get_colors()]
    assert colours.count("#d55e00") == 1
    assert colours.count("#c4c4c4") == 1
    rings = part(ax, "shed")
    hole = part(ax, "buses o").get_sizes()[0]
    assert sorted(rings.get_sizes() - hole) == pytest.approx(
        [max(rings.get_sizes() - hole) / 4.0, max(rings.get_sizes() - hole)]
    )
    at = {text.get_text(): text.get_position() for text in ax.texts}
    np.testing.assert_allclose(rings.get_offsets(), [at["3"], at["14"]])
    assert {
        "Branch loading (% of limit)",
        "without a limit (1)",
        "80.0 MW",
        "load shedding, area by MW (most: 80.0)",
    } <= set(words(ax))
    assert "Load shedding: 100 MW, most at bus 3, 80.0 MW." in drawing.alt
    assert "At their limit: 1 branch." in drawing.alt


def test_without_limits_flow_is_shown_in_mva() -> None:
    flows = pd.DataFrame({"mva": np.arange(20.0), "loading_percent": np.nan})
    ax = GridMap("t", *network_tables(*grid("case14")), flows=flows).plot()
    assert "Branch flow (MVA; no limits given)" in words(ax)
    dark = [sum(c[:3]) for k in ("branches", "ties") for c in part(ax, k).get_colors()]
    tie = network_tables(*grid("case14"))[1].tie.to_numpy()
    order = np.argsort(-np.array(dark))
    assert [*np.flatnonzero(~tie), *np.flatnonzero(tie)][order[-1]] == 19


def test_values_of_buses_are_shown_as_shades_that_grow_brighter() -> None:
    case, zoning = grid("case14")
    values = {int(bus): k / 13.0 for k, bus in enumerate(case.bus_id) if bus != 7}
    ax = GridMap(
        "t",
        *network_tables(case, zoning),
        values=values,
        limits=(0.0, 1.0),
        value_label="error / error of the prior",
    ).plot()
    assert "error / error of the prior" in words(ax)
    names = {tuple(np.round(t.get_position(), 6)): t.get_text() for t in ax.texts}
    face = {
        names[tuple(np.round(at, 6))]: sum(colour[:3])
        for kind in "os"
        for at, colour in zip(
            part(ax, f"buses {kind}").get_offsets(),
            part(ax, f"buses {kind}").get_facecolors(),
            strict=True,
        )
    }
    bright = [face[str(bus)] for bus in case.bus_id if bus != 7]
    assert bright == sorted(bright) and len(set(bright)) == 13
    assert face["7"] == 3.0


def test_a_map_of_thousands_of_buses_is_pixels_in_a_vector_file() -> None:
    xy = np.random.default_rng(0).uniform(size=(1600, 2))
    buses = pd.DataFrame({"bus": range(1600), "zone": "1", "x": xy[:, 0], "y": xy[:, 1]})
    branches = pd.DataFrame({"from": range(1599), "to": range(1, 1600), "tie": False})
    svg = to_svg(GridMap("t", buses, branches), "map")
    assert svg.count("<path") < 500 and "data:image/png;base64" in svg


def test_svg_is_well_formed_and_escapes_names() -> None:
    case, zoning = grid("case14")
    odd = replace(zoning, names=("<1>", "a&b", '"$c$"'))
    root = ET.fromstring(to_svg(zones_map(case, odd), "map"))
    shown = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"zone <1>", "zone a&b", 'zone "$c$"', "14"} <= set(shown)


def test_a_runs_report_shows_its_loading_and_a_public_one_does_not(
    tmp_path: Path, paint: Any
) -> None:
    from gridpriv.cli.main import main
    from gridpriv.report.source import read_source

    words = ["run", "case14", "--rounds", "1", "--planning", "soc", "--no-reference", "--quiet"]
    assert main([*words, "--out", str(tmp_path / "run")]) == 0
    with paint():
        assert main(["report", str(tmp_path / "run"), "--format", "html"]) == 0
        assert main(["report", str(tmp_path / "run"), "--format", "html", "--public"]) == 0
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Branch flow (MVA; no limits given)" in page
    flows = flows_of(read_source(tmp_path / "run"))
    assert flows is not None
    lines = pd.read_csv(tmp_path / "run" / "res_line.csv")
    assert (flows.mva >= lines.p_from_mw.abs() - 1e-9).all()
    public = (tmp_path / "run" / "public" / "report-public.html").read_text()
    assert not re.search(r"MVA\b", public.replace("Base (MVA)", ""))
    assert "load shedding" not in public


def test_marks_are_separated_by_as_much_to_either_side():
    place = np.array([[0.0, 0.0], [3.0, 4.0], [500.0, 500.0]])
    result = separated(place, 10.0)
    assert result.mean(axis=0) == pytest.approx(place.mean(axis=0), abs=0.05)
    assert result[2] == pytest.approx(place[2], abs=0.05)
    assert 8.0 < np.linalg.norm(result[1] - result[0]) <= 10.1

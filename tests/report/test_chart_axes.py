"""Axes follow the data: neither zero, nor a decade, nor a wide band presses the curves together."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gridpriv.core.stored import Study
from gridpriv.drawing.chart import BOTTOM, TOP, Chart, Series, described, render, styles
from gridpriv.report.charts import round_charts, step_charts
from gridpriv.report.summary import named_runs

X = (0.5, 1.0)


def drawn(*series: Series, **more) -> Chart:
    return Chart(
        "c", "t", "x", "y (%)", series, described("t", series, "%"), x_log=True,
        styles=styles([s.name for s in series]), **more,
    )  # fmt: skip


def layer(chart: Chart, scale: str) -> str:
    return render(chart, scale)


def heights(svg: str) -> list[float]:
    """Return the vertical pixels of every point of every curve."""
    points = re.findall(r'class="line" data-k="[^"]*" points="([^"]*)"', svg)
    return [float(p.split(",")[1]) for line in points for p in line.split()]


def y_ticks(svg: str) -> list[float]:
    return [float(t) for t in re.findall(r'text-anchor="end" fill="#444">([^<]*)<', svg)]


def share_of_height(chart: Chart, scale: str) -> float:
    return float(np.ptp(heights(layer(chart, scale)))) / (chart.height - TOP - BOTTOM)


ERRORS = (
    Series("a", X, (26.0, 18.0), (0.0, 0.0), (100.0, 100.0)),
    Series("b", X, (24.6, 24.5), (24.0, 24.0), (25.0, 25.0)),
)
LOSSES = (Series("a", X, (0.6, 0.4), (0.0, 0.1), (3.0, 5.0)),)


@pytest.mark.parametrize("scale", ["log", "linear"])
@pytest.mark.parametrize("series", [ERRORS, LOSSES])
def test_curves_fill_a_third_of_the_chart_however_wide_their_bands(series, scale) -> None:
    assert share_of_height(drawn(*series), scale) > 0.3


@pytest.mark.parametrize("scale", ["log", "linear"])
def test_ticks_are_near_the_data(scale) -> None:
    ticks = y_ticks(layer(drawn(*ERRORS), scale))
    assert len(ticks) >= 3 and min(ticks) >= 10.0 and max(ticks) <= 40.0


def test_ticks_of_a_log_axis_reach_its_small_values() -> None:
    """Over two and a half decades there are 3s between the powers of ten, not even steps."""
    values = Series("a", X, (3.0, 0.02))
    ticks = y_ticks(layer(drawn(values), "log"))
    assert {0.1, 0.3, 1.0} <= set(ticks)


def test_a_short_log_axis_has_ticks() -> None:
    values = Series("a", X, (0.665, 0.441))
    assert len(y_ticks(layer(drawn(values), "log"))) >= 3


def test_a_band_is_cut_where_the_chart_ends() -> None:
    svg = layer(drawn(*ERRORS), "linear")
    assert svg.count('clip-path="url(#c-clip)"') == 2
    (rect,) = re.findall(r'<clipPath id="c-clip"><rect x="\d+" y="(\d+)" [^>]*height="(\d+)"', svg)
    top, height = map(float, rect)
    (first, _) = re.findall(r'<polygon points="([^"]*)"', svg)
    band = [float(p.split(",")[1]) for p in first.split()]
    assert min(band) < top and max(band) > top + height


def test_bands_of_level_curves_are_shown_whole() -> None:
    level = Series("a", X, (1.12, 1.12), (0.6, 0.6), (1.7, 1.7))
    svg = layer(drawn(level), "log")
    (points,) = re.findall(r'<polygon points="([^"]*)"', svg)
    band = [float(p.split(",")[1]) for p in points.split()]
    assert min(band) >= TOP and max(band) <= 300 - BOTTOM


def test_bars_over_one_budget_stand_side_by_side() -> None:
    one = Series("a", (1.0,), (0.58,), (0.1,), (2.5,))
    other = Series("b", (0.9999,), (0.55,), (0.1,), (2.7,))
    svg = layer(drawn(one, other), "linear")
    bar = r'<line x1="([^"]*)" x2="[^"]*" y1="([^"]*)" y2="([^"]*)" stroke="[^"]*" stroke-opacity'
    bars = re.findall(bar, svg)
    assert len(bars) == 2
    assert float(bars[1][0]) - float(bars[0][0]) > 6.0
    assert all(TOP <= float(y) <= 300 - BOTTOM for bar in bars for y in bar[1:])


def test_zero_is_shown_where_the_data_come_near_it() -> None:
    assert y_ticks(layer(drawn(Series("a", X, (10.0, 1.0))), "linear"))[0] == 0.0


def test_levels_far_below_stay_on_the_edge() -> None:
    quiet = Series("quiet", (), (1e-9,), flat=True)
    chart = drawn(Series("a", X, (10.0, 2.0)), quiet)
    assert share_of_height(chart, "log") > 0.3
    assert y_ticks(layer(chart, "log"))[0] > 1e-3


def test_values_below_the_floor_have_an_axis() -> None:
    chart = drawn(Series("a", X, (1e-6, 1e-7)), floor=1e-3)
    assert y_ticks(layer(chart, "log"))[0] == 1e-3


def test_ticks_keep_their_digits() -> None:
    ticks = y_ticks(layer(drawn(Series("a", X, (1.4e-4, 2.6e-4))), "log"))
    assert len(set(ticks)) == len(ticks) >= 3


def test_nothing_has_no_place_on_a_logarithmic_axis() -> None:
    """A series of 0, 0, 499, 0 MW was drawn as a level: every point on the lower edge."""
    chart = drawn(Series("a", (1.0, 2.0, 3.0, 4.0), (0.0, 0.0, 499.0, 0.0)))
    page = render(chart)
    assert 'class="layer linear"' in page and 'class="layer log"' not in page
    assert share_of_height(chart, "linear") > 0.5


@pytest.mark.parametrize("width", [360, 470])
@pytest.mark.parametrize("words", [1, 12, 30])
def test_a_title_is_shown_whole_inside_its_chart(words: int, width: int) -> None:
    """An average letter of DejaVu Sans Bold is 0.58 to 0.65 of its size wide, 12 px here."""
    title = " ".join(f"word{n}" for n in range(words))
    chart = replace(drawn(Series("a", X, (1.0, 2.0))), title=title, width=width)
    svg = render(chart)
    lines = re.findall(r'<text x="62" y="(-?\d+)" [^>]*font-weight="bold"[^>]*>([^<]*)<', svg)
    assert " ".join(text for _, text in lines) == title
    assert max(len(text) for _, text in lines) * 0.65 * 12 <= width - 62
    top, height = map(int, re.search(r'viewBox="0 (-?\d+) \d+ (\d+)"', svg).groups())
    assert top + height == chart.height
    assert [int(y) - 10 >= top for y, _ in lines] == [True] * len(lines)
    assert int(lines[-1][0]) == 14, "above the frame, wherever the title begins"


def test_a_single_value_stands_inside_its_axis() -> None:
    ticks = y_ticks(layer(drawn(Series("a", (1.0,), (128.0,))), "log"))
    assert ticks[0] < 128.0 < ticks[-1]


def test_curves_on_one_another_are_all_seen() -> None:
    """Each is wider than all that are drawn on it; one that is apart at an end is thin."""
    across = (1.0, 2.0, 3.0)
    same = [Series(f"same {k}", across, (0.5, 0.4, 0.3)) for k in range(4)]
    ends_apart = Series("apart", across, (0.5, 0.4, 0.9))
    svg = layer(drawn(*same[:2], ends_apart, *same[2:]), "linear")
    widths = [float(w) for w in re.findall(r'class="line".*?stroke-width="([0-9.]+)"', svg)]
    hiding, apart = widths[:2] + widths[3:], widths[2]
    assert apart == widths[-1] == 1.8
    # two pixels of a curve are left on the sides of the next
    assert all(below - above >= 2.0 for below, above in pairwise(hiding))


@pytest.mark.parametrize(("names", "across", "label"), [
    (["0", "900", "1800"], (0.0, 900.0, 1800.0), "step"),
    (["0.5", "7", "1e3"], (0.5, 7.0, 1000.0), "step"),
    (["2", "2", "3"], (2.0, 2.0, 3.0), "step"),
    (["00:00", "06:00", "12:00"], (1.0, 2.0, 3.0), "step, counted from 1"),
    (["1", "noon", "3"], (1.0, 2.0, 3.0), "step, counted from 1"),
    (["10", "9", "11"], (1.0, 2.0, 3.0), "step, counted from 1"),  # an axis would fold
    (["1", "", "3"], (1.0, 2.0, 3.0), "step, counted from 1"),
])  # fmt: skip
def test_a_series_stands_at_its_steps_names_where_they_are_rising_numbers(
    names: list[str], across: tuple[float, ...], label: str, tmp_path: Path
) -> None:
    steps = pd.DataFrame({"step": names, "demand_mw": [1.0, 2.0, 4.0], "shed_mw": [0.0, 0.0, 1.0]})
    study = Study(tmp_path, {}, {"steps": steps})
    charts = step_charts(study, styles(["case14"]))
    assert charts
    for chart in charts:
        assert chart.x_label == label
        assert chart.title.endswith(f" by {label}")
        assert [series.x for series in chart.series] == [across]
    # the second point stands as far along the drawn curve as its step lies between the others
    points = re.findall(r'data-k="0,1,2" points="([^"]*)"', render(charts[0], "linear"))
    first, second, third = (float(p.split(",")[0]) for p in points[0].split())
    share = (across[1] - across[0]) / (across[2] - across[0])
    assert (second - first) / (third - first) == pytest.approx(share, abs=1e-3)


def test_levels_of_a_study_with_many_ways_can_be_told_apart() -> None:
    """The ninth series has the colour of the first again: as levels they had one look."""
    names = [f"way {k}" for k in range(20)]
    looks = {name: (style.colour, style.level) for name, style in styles(names).items()}
    assert len(set(looks.values())) == len(names)


def test_a_run_that_stopped_early_stays_in_its_curve_where_it_is(study: Study) -> None:
    """Without it the mean of the last rounds would be that of those that agree last."""
    runs = named_runs(study)
    seeds = runs.run[(runs.scheme == "demand, once") & (runs.budget == runs.budget.iloc[-1])]
    early, rounds = seeds.iloc[0], study.rounds
    kept = rounds[(rounds.run != early) | (rounds["round"] <= 2)]
    short = replace(study, tables=dict(study.tables) | {"rounds": kept})
    at = {(run, t): v for run, t, v in kept[["run", "round", "consensus_residual"]].to_numpy()}
    mean = np.mean([at[run, 2 if run == early else 5] for run in seeds])
    found = round_charts(short, runs, styles(runs.series))
    charts = [c for held in found.values() for c in held]
    ends = [s.y[-1] for c in charts for s in c.series if s.y]
    assert any(end == pytest.approx(mean, rel=1e-12) for end in ends)

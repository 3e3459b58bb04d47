"""Charts: plotted values are the data's, axes follow them, and no text covers another."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gridpriv.core.errors import InputError
from gridpriv.core.store import Study
from gridpriv.report.charts import cost_charts, round_charts, step_charts
from gridpriv.report.curves import Chart, Series
from gridpriv.report.figures import Bar, Bars, figure_bytes, looks, swatch, to_svg, write_figure
from gridpriv.report.source import cost_metric, named_runs, summary

X = (0.5, 1.0)
ERRORS = (
    Series("a", X, (26.0, 18.0), (0.0, 0.0), (100.0, 100.0)),
    Series("b", X, (24.6, 24.5), (24.0, 24.0), (25.0, 25.0)),
)
LOSSES = (Series("a", X, (0.6, 0.4), (0.0, 0.1), (3.0, 5.0)),)


def chart(*series: Series, **more) -> Chart:
    return Chart("t", "x", "y (%)", series, "%", x_log=True, **more)


def drawn(ax: Axes) -> Axes:
    ax.figure.draw_without_rendering()
    return ax


def ticks(ax: Axes) -> list[float]:
    low, high = ax.get_ylim()
    return [v for v in ax.get_yticks() if low <= v <= high]


def texts(ax: Axes) -> list:
    """Return every text of the axes that is shown."""
    labels = [
        t.label1
        for axis in (ax.xaxis, ax.yaxis)
        for t in axis.get_major_ticks()
        if sorted(axis.get_view_interval())[0] <= t.get_loc() <= sorted(axis.get_view_interval())[1]
    ]
    labels += [ax.xaxis.label, ax.yaxis.label, ax.title, ax._left_title, *ax.texts]
    if ax.get_legend():
        labels += ax.get_legend().get_texts()
    return [text for text in labels if text.get_text()]


def assert_readable(ax: Axes) -> None:
    """Assert that every text lies on its page and that no two cover one another."""
    boxes = {t: t.get_window_extent() for t in texts(drawn(ax))}
    width, height = ax.figure.get_size_inches() * ax.figure.dpi
    for text, box in boxes.items():
        assert box.x0 >= -1 and box.y0 >= -1, text
        assert box.x1 <= width + 1 and box.y1 <= height + 1, text
    for (name, a), (other, b) in combinations(boxes.items(), 2):
        wide = min(a.x1, b.x1) - max(a.x0, b.x0)
        tall = min(a.y1, b.y1) - max(a.y0, b.y0)
        assert wide <= 1 or tall <= 1, (name, other)


def share_of_height(ax: Axes) -> float:
    heights = [ax.transData.transform((1.0, v))[1] for line in ax.lines for v in line.get_ydata()]
    return float(np.ptp(heights)) / ax.bbox.height


@pytest.mark.parametrize("bars", [True, False])
def test_plotted_values_are_those_of_the_series(bars: bool) -> None:
    ax = chart(*ERRORS, bars=bars).plot()
    curves = {line.get_label() or k: line for k, line in enumerate(ax.lines)}
    by_name = curves if not bars else {c.get_label(): c.lines[0] for c in ax.containers}
    for s in ERRORS:
        assert tuple(by_name[s.name].get_xdata()) == s.x
        assert tuple(by_name[s.name].get_ydata()) == s.y
    if bars:
        (segment, _) = ax.containers[0].lines[2][0].get_segments()
        assert segment[:, 1].tolist() == [0.0, 100.0]
    else:
        ends = ax.collections[0].get_paths()[0].vertices
        assert (ends[:, 1].min(), ends[:, 1].max()) == (0.0, 100.0)
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title(loc="left")) == ("x", "y (%)", "t")


def test_axes_that_are_given_are_used_and_nothing_is_left_behind() -> None:
    before, figure = dict(mpl.rcParams), Figure()
    ax = figure.subplots()
    for plot in (Bars("t", "epsilon", [Bar("a", (1.0,))]), chart(*ERRORS)):
        assert plot.plot(ax) is ax
        assert plot.plot().figure is not figure
        assert plot.plot(figsize=(3.5, 2.5)).figure.get_size_inches().tolist() == [3.5, 2.5]
    assert figure.axes == [ax]
    assert dict(mpl.rcParams) == before
    assert chart(*ERRORS).plot(legend=False).get_legend() is None


@pytest.mark.usefixtures("painted")
def test_drawing_writes_the_same_file_without_pyplot_and_a_backend(tmp_path: Path) -> None:
    series = Series("a", (1.0, 2.0), (3.0, 4.0), (2.0, 3.0), (4.0, 5.0))
    for kind in ("svg", "png", "pdf"):
        write_figure(Chart("t", "x", "y", (series,), ""), tmp_path / f"0.{kind}", private=True)
    code = (
        "import sys, matplotlib as mpl\n"
        "from gridpriv.report.curves import Chart, Series\n"
        "from gridpriv.report.figures import write_figure\n"
        "s = Series('a', (1., 2.), (3., 4.), (2., 3.), (4., 5.))\n"
        "for kind in ('svg', 'png', 'pdf'):\n"
        "    write_figure(Chart('t', 'x', 'y', (s,), ''), f'{sys.argv[1]}.{kind}', private=True)\n"
        "assert Chart('t', 'x', 'y', (s,), '').plot()._repr_png_().startswith(b'\\x89PNG')\n"
        "print('matplotlib.pyplot' in sys.modules, dict.__getitem__(mpl.rcParams, 'backend'))"
    )
    when = {"PYTHONHASHSEED": "1", "SOURCE_DATE_EPOCH": str(10**9), "PATH": ""}
    completed = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "1")],
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path)} | when,
    )
    assert completed.stdout.startswith("False <object")
    for kind, start in {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}.items():
        here, there = (tmp_path / f"{k}.{kind}" for k in range(2))
        assert here.read_bytes() == there.read_bytes()
        assert here.stat().st_mode & 0o077 == 0
        assert here.read_bytes().startswith(start)


@pytest.mark.parametrize("series", [ERRORS, LOSSES])
def test_curves_fill_a_third_of_the_chart_however_wide_their_bands(series) -> None:
    assert share_of_height(chart(*series).plot()) > 0.3


def test_ticks_are_near_the_data() -> None:
    values = ticks(chart(*ERRORS).plot())
    assert len(values) >= 3 and min(values) >= 10.0 and max(values) <= 40.0


@pytest.mark.parametrize(
    ("values", "log"),
    [
        ((3.0, 0.02), True),
        ((0.665, 0.441), False),
        ((1.4e-4, 2.6e-4), False),
        ((128.0,), False),
        ((1.0, 1e9), True),
        ((0.0, 499.0), False),
        ((-3.0, 400.0), False),
        ((0.0, 0.0), False),
    ],
)
def test_an_axis_has_ticks_with_digits_of_their_own(values, log: bool) -> None:
    """A value of 0 has no place on a logarithmic axis."""
    ax = drawn(chart(Series("a", X[: len(values)], values)).plot())
    assert (ax.get_yscale() == "log") == log
    words = [ax.yaxis.get_major_formatter()(v) for v in ticks(ax)]
    assert len(set(words)) == len(words) >= 3
    assert all(ax.get_ylim()[0] <= v <= ax.get_ylim()[1] for v in values)


def test_ticks_of_a_log_axis_reach_its_small_values() -> None:
    ax = drawn(chart(Series("a", X, (3.0, 0.02))).plot())
    assert {0.1, 0.3, 1.0} <= {float(f"{v:.6g}") for v in ticks(ax)}


@pytest.mark.parametrize(("size", "shown"), [(1e-7, True), (0.5, False)])
def test_a_curve_that_is_level_but_for_solver_dust_is_drawn_level(size, shown) -> None:
    ax = chart(Series("a", X, (3.2e-3, 3.2e-3 * (1 + size)))).plot()
    assert (share_of_height(ax) < 0.01) == shown


def test_bands_of_level_curves_are_shown_whole() -> None:
    low, high = chart(Series("a", X, (1.12, 1.12), (0.6, 0.6), (1.7, 1.7))).plot().get_ylim()
    assert low <= 0.6 and high >= 1.7


def test_a_triangle_says_where_an_interval_goes_on_beyond_the_axis() -> None:
    ax = chart(*ERRORS, bars=True).plot()
    low, high = ax.get_ylim()
    marks = {m.get_marker(): m for m in ax.lines if m.get_marker() in "v^" and m.get_ydata().size}
    assert tuple(marks["v"].get_xdata()) == tuple(marks["^"].get_xdata()) == X
    assert set(marks["v"].get_ydata()) == {low} and set(marks["^"].get_ydata()) == {high}


def test_ticks_are_at_the_epsilons_themselves() -> None:
    ax = drawn(chart(Series("a", (0.5, 1.0, 4.99999), (3.0, 2.0, 1.0))).plot())
    assert list(ax.get_xticks()) == [0.5, 1.0, 5.0]


def test_error_bars_of_one_budget_are_side_by_side() -> None:
    series = [Series(n, (1.0,), (0.5,), (0.1,), (2.5,)) for n in "abc"]
    ax = drawn(chart(*series, bars=True).plot())
    at = [c.lines[0].get_transform().transform((1.0, 0.5))[0] for c in ax.containers]
    assert np.diff(at).min() > 4.0
    assert [c.lines[0].get_xdata()[0] for c in ax.containers] == [1.0] * 3


def test_zero_is_shown_where_the_data_come_near_it() -> None:
    assert chart(Series("a", X, (10.0, 1.0))).plot().get_ylim()[0] == 0.0


def test_levels_far_below_stay_on_the_edge() -> None:
    ax = chart(Series("a", X, (10.0, 2.0)), Series("quiet", (), (1e-9,), flat=True)).plot()
    assert ax.get_ylim()[0] > 1e-3
    level = next(line for line in ax.lines if line.get_label() == "quiet")
    assert level.get_ydata()[0] == ax.get_ylim()[0]


def test_values_below_the_floor_are_on_the_edge_of_a_readable_axis() -> None:
    ax = chart(Series("a", X, (30.0, 1e-7)), floor=1e-3).plot()
    low = ax.get_ylim()[0]
    assert 1e-4 < low <= 1e-3
    assert ax.lines[0].get_ydata().tolist() == [30.0, low]


@pytest.mark.parametrize("size", [(3.6, 2.6), (4.8, 3.4), (6.4, 3.2)])
@pytest.mark.parametrize("words", [1, 12, 30])
def test_every_text_is_on_the_page_and_covers_no_other(words: int, size) -> None:
    title = " ".join(f"word{n}" for n in range(words))
    series = [
        Series(f"series {k}", (0.5, 1.0, 5.0, 10.0), (10.0**k, 5.0, 2.0, 1.0)) for k in range(2)
    ]
    shown = Chart(
        title,
        "certified total epsilon",
        "Squared imbalance (p.u.^2)",
        tuple(series),
        "",
        x_log=True,
        size=size,
    )
    ax = shown.plot(legend=False)
    assert_readable(ax)
    assert ax.get_title(loc="left").split() == title.split()
    if size[0] > 5:
        assert_readable(shown.plot())


def test_a_curve_of_one_point_is_seen_also_in_the_look_of_a_level() -> None:
    style = looks(["noise-free"], levels=frozenset({"noise-free"}))
    ax = chart(Series("noise-free", (1.0,), (2.0,)), style=style).plot()
    (line,) = ax.lines
    assert line.get_marker() == "x"


def test_series_of_a_study_with_many_methods_can_be_distinguished() -> None:
    names = [f"way {k}" for k in range(12)]
    for levels in (frozenset(), frozenset(names)):
        seen = [tuple(map(str, look.values())) for look in looks(names, levels=levels).values()]
        assert len(set(seen)) == len(names)


def test_dollars_and_markup_in_names_stay_what_they_are() -> None:
    odd = 'cost $x_{$ <b> & "c"'
    shown = replace(chart(Series(odd, X, (1.0, 2.0)), Series("b", X, (2.0, 3.0))), title=odd)
    for svg in (to_svg(shown, "chart"), figure_bytes(shown.plot().figure, "svg").decode()):
        assert "cost $x_{$ &lt;b&gt; &amp;" in svg
    assert "<b>" not in to_svg(shown, "chart")


def test_a_page_holds_several_charts_without_a_repeated_id() -> None:
    shown = chart(*ERRORS)
    page = "".join(to_svg(shown, "chart", name) for name in ("one", "two")) + swatch(
        looks("a")["a"]
    )
    assert "<style" not in page, "it would hold for the whole page"
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]*)', page))
    assert used and used <= set(ids)
    assert set(re.findall(r'data-s="(\d+)"', page)) == {"0", "1"}
    assert "0.001" in to_svg(chart(Series("a", X, (0.001, 1.0))), "chart"), "digits are kept"


def test_what_an_image_says_to_those_who_cannot_see_it() -> None:
    alt = chart(*ERRORS, Series("quiet", (), (3.0,), flat=True)).alt
    assert alt == (
        "t. a: 26.0 % at x 0.5 to 18.0 % at x 1; b: 24.6 % at x 0.5 to 24.5 % at x 1; "
        "quiet: 3.00 %."
    )
    bars = Bars("t", "epsilon", [Bar("a", (0.5,)), Bar("b", (2.0,), note="violation")])
    assert bars.alt == "t. epsilon: a: 0.500; b: 2.00 (violation)."


def test_bars_intervals_marks_and_levels_are_at_their_values() -> None:
    bars = [
        Bar("message", (0.5,), half=0.1, marks=(1.0, np.inf)),
        Bar("values", (2.0,), note="violation", marks=(np.nan, 1.5)),
        Bar("nothing", (0.0,), marks=(np.nan, np.nan)),
    ]
    ax = Bars("t", "epsilon", bars, ("measured",), ("nominal", "certified"), line=1.0).plot()
    assert [bar.get_width() for bar in ax.containers[0]] == [0.5, 2.0, 0.0]
    by_label = {line.get_label(): line for line in ax.lines}
    np.testing.assert_array_equal(by_label["nominal"].get_xdata(), [1.0, np.nan, np.nan])
    np.testing.assert_array_equal(by_label["certified"].get_xdata(), [np.nan, 1.5, np.nan])
    assert any(line.get_xdata() == [1.0, 1.0] for line in ax.lines if len(line.get_xdata()) == 2)
    (segment, *_) = ax.containers[1].lines[2][0].get_segments()
    assert segment[:, 0].tolist() == [0.4, 0.6]
    assert {"message", "values", "nothing", "violation"} <= {t.get_text() for t in ax.texts}
    assert_readable(ax)


def test_a_part_that_lowers_a_cost_is_hatched_and_starts_where_the_first_ends() -> None:
    ax = Bars(
        "t", "$/h", [Bar("a", (300.0, -20.0)), Bar("b", (0.0, 5.0))], ("method", "noise")
    ).plot()
    method, noise = ax.containers[:2]
    assert [bar.get_width() for bar in method] == [300.0, 0.0]
    assert [(bar.get_x(), bar.get_width()) for bar in noise] == [(300.0, -20.0), (0.0, 5.0)]
    assert [bool(bar.get_hatch()) for bar in noise] == [True, False]


def test_a_wide_interval_ends_in_triangles_and_the_legend_is_whole() -> None:
    bars = [Bar("a", (0.0, 1.0)), Bar("b", (300.0, 500.0), half=1800.0)]
    words = "due to the method", "due to the noise (hatched where negative)"
    ax = Bars("t", "$/h", bars, words, line=2400.0, line_name="prior-only (epsilon = 0)").plot()
    edges = [line for line in ax.lines if line.get_marker() in "<>" and len(line.get_xdata())]
    assert [line.get_marker() for line in edges] == ["<", ">"]
    left, right = (line.get_xdata()[0] for line in edges)
    assert ax.get_xlim()[0] < left < right < ax.get_xlim()[1]
    ax.figure.canvas.draw()
    legend = ax.get_legend().get_window_extent()
    assert legend.x0 >= 0.0
    assert legend.x1 <= ax.figure.bbox.x1


def test_an_ending_that_is_no_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'gif': must be one of png, svg, pdf"):
        write_figure(chart(*LOSSES), tmp_path / "a.gif", private=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("names", "across", "label"),
    [
        (["0", "900", "1800"], (0.0, 900.0, 1800.0), "step"),
        (["0.5", "7", "1e3"], (0.5, 7.0, 1000.0), "step"),
        (["2", "2", "3"], (2.0, 2.0, 3.0), "step"),
        (["00:00", "06:00", "12:00"], (1.0, 2.0, 3.0), "step"),
        (["1", "noon", "3"], (1.0, 2.0, 3.0), "step"),
        (["10", "9", "11"], (1.0, 2.0, 3.0), "step"),  # an axis would fold
        (["1", "", "3"], (1.0, 2.0, 3.0), "step"),
    ],
)
def test_a_series_is_at_its_steps_names_where_they_are_rising_numbers(
    names: list[str], across: tuple[float, ...], label: str, tmp_path: Path
) -> None:
    steps = pd.DataFrame({"step": names, "demand_mw": [1.0, 2.0, 4.0], "shed_mw": [0.0, 0.0, 1.0]})
    study = Study(tmp_path, {}, {"steps": steps})
    charts = step_charts(study, looks(["case14"]))
    assert charts
    for chart in charts:
        assert chart.x_label == label
        assert chart.title.endswith(f" by {label}")
        assert [series.x for series in chart.series] == [across]
    axes = charts[0].plot()
    line = axes.lines[0]
    if across == (1.0, 2.0, 3.0):
        assert [tick.get_text() for tick in axes.get_xticklabels()] == names
    assert tuple(line.get_xdata()) == across
    assert tuple(line.get_ydata()) == (1.0, 2.0, 4.0)


def test_a_run_that_stopped_early_stays_in_its_curve_where_it_is(study: Study) -> None:
    """Without it the mean of the last rounds would be that of those that agree last."""
    runs = named_runs(study)
    seeds = runs.run[(runs.method == "demand, one-shot") & (runs.budget == runs.budget.iloc[-1])]
    early, rounds = seeds.iloc[0], study.rounds
    shortened = rounds[(rounds.run != early) | (rounds["round"] <= 2)]
    short = replace(study, tables=dict(study.tables) | {"rounds": shortened})
    at = {(run, t): v for run, t, v in shortened[["run", "round", "consensus_residual"]].to_numpy()}
    mean = np.mean([at[run, 2 if run == early else 5] for run in seeds])
    by_metric = round_charts(short, runs, {})
    charts = [c for of_metric in by_metric.values() for c in of_metric]
    ends = [s.y[-1] for c in charts for s in c.series if s.y]
    assert any(end == pytest.approx(mean, rel=1e-12) for end in ends)


def test_figures_of_a_study_draw_its_summary(study: Study) -> None:
    table = summary(study)
    noisy = table[table.series == "demand, one-shot"].sort_values("total_epsilon")
    ax = study.plot.shedding()
    bars = {c.get_label(): c for c in ax.containers}["demand, one-shot"]
    assert list(bars.lines[0].get_xdata()) == list(noisy.total_epsilon)
    ends = [s[:, 1] for s in bars.lines[2][0].get_segments()]
    np.testing.assert_allclose(ends, noisy[["redispatch_shed_mw_low", "redispatch_shed_mw_high"]])
    assert ax.get_ylabel().endswith("(MW)")
    metric = cost_metric(table)
    assert metric is not None
    cells = study.plot.heatmap().images[0].get_array()
    wide = table[table.total_epsilon > 0].pivot(index="series", columns="budget", values=metric.key)
    assert sorted(np.ravel(cells)) == pytest.approx(sorted(np.ravel(wide)))
    assert_readable(study.plot.cost())
    figure = Figure()
    given = figure.subplots()
    assert study.plot.cost(given) is given
    with pytest.raises(InputError, match="did you mean 'case14'"):
        study.plot.cost(panel="case41")


@pytest.mark.parametrize(("mw", "shown"), [(0.5e-3, False), (1.0, True)])
def test_a_panel_of_zeros_is_left_to_the_table(study: Study, mw: float, shown: bool) -> None:
    table = summary(study).assign(redispatch_shed_mw=mw)
    titles = [each.title for each in cost_charts(table, {})]
    assert titles
    assert any("load shedding" in title for title in titles) == shown

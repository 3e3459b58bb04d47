"""Charts as SVG text: the same drawing in HTML and PDF.

Colours are Okabe and Ito's; every series also has its own marker and dash, so that a chart
reads in grey. A chart holds two layers, one per scale of the vertical axis; the page's script
shows one of them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from html import escape
from textwrap import wrap

from gridpriv.core.display import figure
from gridpriv.drawing.axis import Axis

# Okabe and Ito's colour-blind safe palette
PALETTE = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999",
)  # fmt: skip
LEFT, RIGHT, TOP, BOTTOM = 62, 12, 26, 42
MARKERS = ("circle", "square", "diamond", "triangle", "cross", "plus", "circle", "square")
DASHES = ("", "6 3", "2 3", "8 3 2 3")
LEVEL_DASHES = ("3 4", "10 4", "10 4 3 4", "1 2")
HIDES = 1.5
"""Pixels: a curve that stays closer to one drawn before it would hide that one."""
RIM = 2.2
"""Pixels by which a curve is then wider than the one on it."""
FONTS = "DejaVu Sans, Arial, sans-serif"
LETTER, LINE = 7.8, 15
"""Pixels that a letter of a title takes across at most, in the mean of a line, and a line down."""
LEVEL = 0.02
"""Means that differ by less, relatively, are drawn as if they did not."""


@dataclass(frozen=True)
class Style:
    """Look of a series, the same in every chart of a report."""

    colour: str
    marker: str
    dash: str
    level: str


def styles(names: Sequence[str]) -> dict[str, Style]:
    """Return a style per series name, stable in their order."""
    return {
        name: Style(
            PALETTE[k % len(PALETTE)] if PALETTE[k % len(PALETTE)] != "#F0E442" else "#000000",
            MARKERS[(k + k // len(PALETTE)) % len(MARKERS)],
            DASHES[(k // len(PALETTE)) % len(DASHES)],
            LEVEL_DASHES[(k // len(PALETTE)) % len(LEVEL_DASHES)],
        )
        for k, name in enumerate(dict.fromkeys(names))
    }


@dataclass(frozen=True)
class Series:
    """A curve with an optional band; ``flat`` draws one value as a level across the chart."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    flat: bool = False
    marks: bool = True


@dataclass(frozen=True)
class Chart:
    """A chart: series, axes and words for those who cannot see it.

    ``floor`` is the least value that a logarithmic vertical axis shows; what lies below, lies on
    its edge.
    """

    name: str
    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    alt: str
    x_log: bool = False
    floor: float = 0.0
    width: int = 470
    height: int = 300
    styles: dict[str, Style] = field(default_factory=dict)

    @property
    def heading(self) -> list[str]:
        """The title in lines that end inside the chart; all but the last stand above it."""
        return wrap(self.title, int((self.width - LEFT) / LETTER)) or [""]

    @property
    def headroom(self) -> int:
        """Pixels above the chart that its title takes."""
        return LINE * (len(self.heading) - 1)


def render(chart: Chart, scale: str = "both") -> str:
    """Return a chart as SVG; ``scale`` is 'log', 'linear', or 'both' for the page's script."""
    drawn = [v for s in chart.series for v in s.y if math.isfinite(v)]
    # a value of 0 has a place on a logarithmic axis only where the chart says what counts as none
    can_log = any(v > 0 for v in drawn) and (chart.floor > 0 or min(drawn) > 0)
    kinds = [k for k in ("log", "linear") if scale in (k, "both") and (k == "linear" or can_log)]
    hidden = ' style="display:none"'
    layers = [
        f'<g class="layer {kind}"{hidden if n else ""}>{_layer(chart, kind == "log")}</g>'
        for n, kind in enumerate(kinds or ["linear"])
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" id="{chart.name}" role="img" '
        f'aria-labelledby="{chart.name}-t {chart.name}-d" '
        f'viewBox="0 {-chart.headroom} {chart.width} {chart.height + chart.headroom}" '
        f'font-family="{FONTS}" font-size="11">'
        f'<title id="{chart.name}-t">{escape(chart.title)}</title>'
        f'<desc id="{chart.name}-d">{escape(chart.alt)}</desc>'
        f'<clipPath id="{chart.name}-clip"><rect x="{LEFT}" y="{TOP}" '
        f'width="{chart.width - LEFT - RIGHT}" height="{chart.height - TOP - BOTTOM}"/></clipPath>'
        + "".join(
            f'<text x="{LEFT}" y="{14 - chart.headroom + LINE * n}" font-size="12" '
            f'font-weight="bold" fill="#222">{escape(line)}</text>'
            for n, line in enumerate(chart.heading)
        )
        + "".join(layers)
        + "</svg>"
    )


def stacked(
    charts: Sequence[Chart], scale: str, flat: Collection[str] = (), title: str = ""
) -> str:
    """Return charts one under the other, and what their series are, as one SVG."""
    parts = [f'<text x="8" y="15" font-size="12">{escape(title)}</text>'] if title else []
    y = 22 if title else 0
    for chart in charts:
        height = chart.height + chart.headroom
        parts.append(
            f'<svg y="{y}" width="{chart.width}" height="{height}">{render(chart, scale)}</svg>'
        )
        y += height
    names = dict.fromkeys(s.name for chart in charts for s in chart.series)
    for name in names if len(names) > 1 else ():
        sample = swatch(charts[0].styles[name], flat=name in flat)
        parts.append(
            f'<svg x="{LEFT}" y="{y}" width="30" height="14">{sample}</svg>'
            f'<text x="{LEFT + 36}" y="{y + 11}" font-size="11">{escape(name)}</text>'
        )
        y += 17
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{charts[0].width}" height="{y + 4}" '
        f'viewBox="0 0 {charts[0].width} {y + 4}" font-family="{FONTS}">'
        f"{''.join(parts)}</svg>"
    )


def _layer(chart: Chart, log: bool) -> str:
    x, y = _x_axis(chart), _y_axis(chart, log)
    return _frame(chart, x, y) + "".join(_series(chart, n, x, y) for n in range(len(chart.series)))


def _x_axis(chart: Chart) -> Axis:
    values = [v for s in chart.series if not s.flat for v in s.x if not chart.x_log or v > 0]
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if chart.x_log:
        low, high = (low / 1.15, high * 1.15) if values else (0.1, 1.0)
    elif low == high:
        low, high = low - 0.5, high + 0.5
    return Axis(low, high, LEFT, chart.width - RIGHT, chart.x_log)


def _y_axis(chart: Chart, log: bool) -> Axis:
    """Return the axis over the means, and over bands as far as means stay apart.

    A band stretches the axis by no more than the means' own range (a quarter of the largest, if
    that is more; one decade at most on a log axis), so that a wide band cannot press the curves
    together. Where no curve rises or falls, bands are shown whole, on a log axis one decade.
    """
    low, high = _log_range(chart) if log else _linear_range(chart)
    return Axis(low, high, chart.height - BOTTOM, TOP, log)


def _linear_range(chart: Chart) -> tuple[float, float]:
    means = [v for s in chart.series for v in s.y if math.isfinite(v)] or [0.0]
    least, most = min(means), max(means)
    size = max(abs(least), abs(most))
    level = _at_one_place(chart) or most - least <= LEVEL * size
    reach = math.inf if level else max(most - least, 0.25 * size)
    low = max(min(_ends(chart, "low"), default=least), least - reach)
    high = min(max(_ends(chart, "high"), default=most), most + reach)
    low, high = min(low, least), max(high, most)
    if 0.0 <= least < 0.5 * most:
        low = 0.0
    margin = 0.05 * (high - low) or 0.1 * abs(high) or 1.0
    return (max(low - margin, 0.0) if low >= 0.0 else low - margin), high + margin


def _log_range(chart: Chart) -> tuple[float, float]:
    means = [v for s in chart.series for v in s.y if v > 0 and math.isfinite(v)]
    noisy = [v for s in chart.series if not s.flat for v in s.y if v > 0 and math.isfinite(v)]
    # levels without noise may lie many decades lower: they are then drawn on the edge
    least = max(min(means), min(noisy or means) / 10.0)
    most = max(means)
    level = _at_one_place(chart) or most <= (1.0 + LEVEL) * least
    reach = 10.0 if level else min(max(most / least, 1.25), 10.0)
    low = max(min(_ends(chart, "low"), default=least), least / reach)
    high = min(max(_ends(chart, "high"), default=most), most * reach)
    low, high = max(min(low, least), chart.floor), max(high, most)
    if high < low:  # everything lies below the floor
        return low, 10.0 * low
    if high == low:
        return low / 3.0, 3.0 * low
    margin = max((high / low) ** 0.05, 1.02)
    return low / margin, high * margin


def _ends(chart: Chart, side: str) -> list[float]:
    """Return the bands' ends on one side."""
    return [v for s in chart.series for v in getattr(s, side) if math.isfinite(v)]


def _frame(chart: Chart, x: Axis, y: Axis) -> str:
    parts = []
    for tick in y.ticks(fewest=3):
        at = y.at(tick)
        parts.append(
            f'<line x1="{x.start}" x2="{x.end}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>'
            f'<text x="{x.start - 6}" y="{at + 4:.1f}" text-anchor="end" fill="#444">'
            f"{_tick(tick)}</text>"
        )
    for tick in x.ticks():
        at = x.at(tick)
        parts.append(
            f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{y.start}" y2="{y.start + 4}" stroke="#444"/>'
            f'<text x="{at:.1f}" y="{y.start + 16}" text-anchor="middle" fill="#444">'
            f"{_tick(tick)}</text>"
        )
    middle = (y.start + y.end) / 2
    parts.append(
        f'<line x1="{x.start}" x2="{x.end}" y1="{y.start}" y2="{y.start}" stroke="#444"/>'
        f'<text x="{(x.start + x.end) / 2}" y="{chart.height - 8}" text-anchor="middle" '
        f'fill="#222">{escape(chart.x_label)}</text>'
        f'<text transform="translate(13 {middle}) rotate(-90)" text-anchor="middle" '
        f'fill="#222">{escape(chart.y_label)}</text>'
    )
    return "".join(parts)


def _series(chart: Chart, number: int, x: Axis, y: Axis) -> str:
    series = chart.series[number]
    style = chart.styles[series.name]
    kept = [
        k for k, v in enumerate(series.y)
        if math.isfinite(v) and (series.flat or not x.log or series.x[k] > 0)
    ]  # fmt: skip
    if not kept:
        return ""
    if series.flat:
        at = y.at(series.y[kept[0]])
        return (
            f'<g class="series" data-s="{number}"><polyline class="line" '
            f'points="{x.start},{at:.1f} '
            f'{x.end},{at:.1f}" fill="none" stroke="{style.colour}" stroke-width="1.5" '
            f'stroke-dasharray="{style.level}"/></g>'
        )
    across = {k: x.at(series.x[k]) + _aside(chart, number) for k in kept}
    points = [(across[k], y.at(series.y[k])) for k in kept]
    dash = f' stroke-dasharray="{style.dash}"' if style.dash else ""
    rim = RIM * _hiding(chart, number, y)
    line = (
        f'<polyline class="line" data-k="{",".join(map(str, kept))}" points="{_points(points)}" '
        f'fill="none" stroke="{style.colour}" stroke-width="{1.8 + rim:.1f}"{dash}/>'
    )
    marks = (
        "".join(mark(style, px, py, 3.6 + rim / 2.0) for px, py in points) if series.marks else ""
    )
    band = _band(series, style, across, y)
    if band:
        band = f'<g clip-path="url(#{chart.name}-clip)">{band}</g>'
    return f'<g class="series" data-s="{number}">{band}{line}{marks}</g>'


def _hiding(chart: Chart, number: int, y: Axis) -> int:
    """Return how many of the curves drawn after this one lie on it from end to end."""
    curve = chart.series[number]
    return sum(
        other.x == curve.x
        and all(
            (math.isnan(a) and math.isnan(b)) or abs(y.at(a) - y.at(b)) < HIDES
            for a, b in zip(curve.y, other.y, strict=True)
        )
        for other in chart.series[number + 1 :]
        if not other.flat
    )


def _aside(chart: Chart, number: int) -> float:
    """Return how far a series is moved aside: bars over one and the same place would hide."""
    if not _at_one_place(chart):
        return 0.0
    curves = [k for k, s in enumerate(chart.series) if not s.flat]
    return 12.0 * (curves.index(number) - (len(curves) - 1) / 2.0)


def _at_one_place(chart: Chart) -> bool:
    """Return whether every series is one point, all at (almost) the same x."""
    at = [v for s in chart.series if not s.flat for v in s.x]
    single = all(len(s.x) < 2 for s in chart.series if not s.flat)
    return single and bool(at) and max(at) - min(at) <= 0.01 * abs(max(at))


def _band(series: Series, style: Style, across: dict[int, float], y: Axis) -> str:
    inside = [
        k for k in across
        if series.low and math.isfinite(series.low[k]) and math.isfinite(series.high[k])
    ]  # fmt: skip
    if not inside:
        return ""
    over = [(across[k], y.beyond(series.high[k])) for k in inside]
    under = [(across[k], y.beyond(series.low[k])) for k in reversed(inside)]
    if len(inside) == 1:
        (px, top), (_, bottom) = over[0], under[0]
        return (
            f'<line x1="{px:.1f}" x2="{px:.1f}" y1="{top:.1f}" y2="{bottom:.1f}" '
            f'stroke="{style.colour}" stroke-opacity="0.5" stroke-width="3"/>'
        )
    return f'<polygon points="{_points(over + under)}" fill="{style.colour}" fill-opacity="0.15"/>'


def mark(style: Style, x: float, y: float, r: float = 3.6) -> str:
    """Return a marker; shapes tell series apart without colour."""
    wide, tall = 1.2 * r, 1.3 * r
    shapes = {
        "square": f"M{x - r:.1f} {y - r:.1f}h{2 * r}v{2 * r}h{-2 * r}z",
        "diamond": f"M{x:.1f} {y - tall:.1f}l{wide} {tall}l{-wide} {tall}l{-wide} {-tall}z",
        "triangle": f"M{x:.1f} {y - 1.2 * r:.1f}l{1.2 * r} {2.2 * r}h{-2.4 * r}z",
        "cross": f"M{x - r:.1f} {y - r:.1f}l{2 * r} {2 * r}m0 {-2 * r}l{-2 * r} {2 * r}",
        "plus": f"M{x - r:.1f} {y:.1f}h{2 * r}m{-r} {-r}v{2 * r}",
    }
    if style.marker in shapes:
        fill = "none" if style.marker in ("cross", "plus") else style.colour
        look = f'fill="{fill}" stroke="{style.colour}" stroke-width="1.5"'
        return f'<path d="{shapes[style.marker]}" {look}/>'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r}" fill="{style.colour}"/>'


def swatch(style: Style, *, flat: bool = False) -> str:
    """Return a legend's sample of a series."""
    dash = style.level if flat else style.dash
    line = (
        f'<line x1="1" x2="29" y1="7" y2="7" stroke="{style.colour}" stroke-width="2" '
        f'stroke-dasharray="{dash}"/>'
    )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" class="swatch" width="30" height="14" '
        f'viewBox="0 0 30 14" aria-hidden="true">{line}{"" if flat else mark(style, 15, 7)}</svg>'
    )


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{px:.1f},{py:.1f}" for px, py in points)


def _tick(value: float) -> str:
    if value != 0 and (abs(value) >= 1e5 or abs(value) < 1e-3):
        mantissa, _, power = f"{value:.4e}".partition("e")
        return f"{float(mantissa):g}e{int(power)}"
    return f"{value:g}"


def described(chart_title: str, series: Sequence[Series], unit: str) -> str:
    """Return a chart in words: each series' first and last value."""
    told = []
    for s in series:
        values = [(x, y) for x, y in zip(s.x or (0.0,), s.y, strict=False) if math.isfinite(y)]
        if not values:
            continue
        (x0, y0), (x1, y1) = values[0], values[-1]
        if s.flat or len(values) == 1:
            told.append(f"{s.name}: {figure(y0)} {unit}")
        else:
            told.append(
                f"{s.name}: {figure(y0)} {unit} at {figure(x0)} to {figure(y1)} {unit} "
                f"at {figure(x1)}"
            )
    return f"{chart_title}. " + "; ".join(told) + "."

"""Charts of curves: means with intervals, and levels to compare them with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator
from matplotlib.transforms import ScaledTranslation

from gridpriv.core.arrays import Bools, Floats
from gridpriv.core.text import number_text
from gridpriv.report.figures import Look, Looks, Plot, figure_of, looks, set_labels, set_title

LOG_FROM = 30.0
MOST_NAMES = 7
"""Number of names that fit along an axis."""
MOST_SHORT, SHORT = 30, 3
"""The same of names of three letters, such as bus numbers."""
LEVEL = 0.02
"""Relative range of means below which no curve rises or falls."""


@dataclass(frozen=True)
class Series:
    """A curve with optional interval ends; ``flat`` is one value as a line across the axes."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    flat: bool = False


@dataclass(frozen=True)
class Chart(Plot):
    """A chart of curves.

    Attributes
    ----------
    title, x_label, y_label : str
        Labels name the unit in parentheses.
    series : tuple of Series
    unit : str
        Of the values, for the description.
    subject : str
        Subject of the description; by default the title.
    x_names : tuple of str
        Names of the positions 1, 2, ...; without them their numbers are written.
    x_log : bool
    floor : float
        Least value of a logarithmic vertical axis; lower values are drawn on its edge.
    bars : bool
        Draw intervals as error bars at the points, not as a band between them.
    log_from : float
        Ratio of largest to smallest value above which the vertical axis is logarithmic.
    size : (float, float)
        Inches.
    style : dict of str to dict
        Look of every series by name; default :func:`gridpriv.report.figures.looks`.
    """

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    unit: str
    subject: str = ""
    x_names: tuple[str, ...] = ()
    x_log: bool = False
    floor: float = 0.0
    bars: bool = False
    log_from: float = LOG_FROM
    size: tuple[float, float] = (6.4, 3.2)
    style: Looks = field(default_factory=dict)

    @property
    def alt(self) -> str:
        """Description of the chart: first and last value of every series."""
        lines = []
        for s in self.series:
            values = [(x, y) for x, y in zip(s.x or (0.0,), s.y, strict=False) if math.isfinite(y)]
            if not values:
                continue
            (x0, y0), (x1, y1) = values[0], values[-1]
            shown = [f"{number_text(y)} {self.unit}".rstrip() for y in (y0, y1)]
            text = f"{s.name}: {shown[0]}"
            if len(values) > 1:
                text += f" at {self._place(x0)} to {shown[1]} at {self._place(x1)}"
            lines.append(text)
        return f"{self.subject or self.title}. {'; '.join(lines)}."

    def _place(self, x: float) -> str:
        """Return a position as text: its quantity, and its name or number."""
        quantity, _, unit = self.x_label.partition(" (")
        unit = "" if " " in unit else unit  # a remark, not a unit
        named = self.x_names[round(x) - 1] if self.x_names else f"{x:.4g}"
        return f"{quantity} {named} {unit.rstrip(')')}".rstrip()

    @property
    def log(self) -> bool:
        """True for a logarithmic vertical axis."""
        y = self.means()
        if self.floor > 0:
            y = np.maximum(y, self.floor)
        return bool(len(y)) and y.min() > 0 and y.max() >= self.log_from * y.min()

    def means(self, *, flat: bool = True) -> Floats:
        """Return all finite values, including those of levels if ``flat``."""
        y = np.array([v for s in self.series for v in s.y if flat or not s.flat], dtype=float)
        return np.asarray(y[np.isfinite(y)])

    def draw(self, axes: Axes, *, legend: bool) -> None:
        """Draw on axes, which are styled."""
        names = [s.name for s in self.series]
        style = self.style or looks(names, levels=frozenset(s.name for s in self.series if s.flat))
        _set_places(axes, self)
        axes.yaxis.set_major_formatter(FuncFormatter(tick))
        low, high = self.limits
        if self.log:
            axes.set_yscale("log")
            _log_ticks(axes, "y", low, high)
        for k, s in enumerate(self.series):
            self._draw(axes, k, style[s.name], list(style).index(s.name))
        axes.set_ylim(low, high)
        axes.grid(visible=True, axis="y")
        set_title(axes, self.title)
        set_labels(axes, self.x_label, self.y_label)
        if legend and len(names) > 1:
            # outside the axes: inside it would cover intervals
            axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))

    def _draw(self, ax: Axes, k: int, look: Look, number: int) -> None:
        s, gid = self.series[k], f"series {number}"
        if s.flat:
            value = max(s.y[0], self.limits[0])
            plain = look | {"marker": ""}
            ax.axhline(value, **plain, label=s.name, gid=gid)
            return
        x, y = np.array(s.x), np.array(s.y)
        shown: Bools = np.isfinite(y) & (x > 0 if self.x_log else True)
        if not shown.any():
            return
        # values below the axis are drawn on its edge
        edge = np.maximum(y, self.limits[0])
        few = len(x) <= FEW or not look["linestyle"]
        if self.bars and s.low:
            curves = [n for n, other in enumerate(self.series) if not other.flat]
            aside = 4.0 * (curves.index(k) - (len(curves) - 1) / 2.0) / 72.0
            shifted = ax.transData + ScaledTranslation(aside, 0.0, figure_of(ax).dpi_scale_trans)
            self._mark_cut(ax, s, {"color": look["color"], "transform": shifted, "gid": gid})
            ends = np.nan_to_num([y - np.array(s.low), np.array(s.high) - y])
            drawn = ax.errorbar(
                x[shown],
                edge[shown],
                yerr=np.maximum(ends[:, shown], 0.0),
                capsize=2.5,
                elinewidth=1.0,
                label=s.name,
                transform=shifted,
                **look,
            )
            for part in drawn.get_children():
                part.set_gid(gid)
            return
        plain = look if few else look | {"marker": ""}
        if shown.sum() == 1 and not plain["marker"]:
            plain = plain | {"marker": "x"}  # a line of one point is not visible
        ax.plot(x[shown], edge[shown], label=s.name, gid=gid, **plain)
        if s.low:
            low, high = np.array(s.low)[shown], np.array(s.high)[shown]
            ax.fill_between(
                x[shown], low, high, color=look["color"], alpha=0.15, linewidth=0, gid=gid
            )

    def _mark_cut(self, ax: Axes, s: Series, look: Look) -> None:
        """Draw a triangle at the edge of the axis where an interval extends beyond it."""
        x, (bottom, top) = np.array(s.x), self.limits
        for cut, edge, marker in (
            (np.array(s.low) < bottom, bottom, "v"),
            (np.array(s.high) > top, top, "^"),
        ):
            ax.plot(x[cut], np.full(cut.sum(), edge), marker, ms=4, clip_on=False, **look)

    @cached_property
    def limits(self) -> tuple[float, float]:
        """The ends of the vertical axis (:func:`vertical_limits`)."""
        return vertical_limits(self)


FEW_PLACES = 7
"""Places across that are the ticks themselves."""
FEW = 12
"""Largest number of points with markers."""


def vertical_limits(chart: Chart) -> tuple[float, float]:
    """Return the ends of the vertical axis: of the means, and of intervals near them.

    An interval stretches the axis by no more than the means' own range (a quarter of the largest,
    if that is more; one decade at most on a log axis), so that a wide interval does not compress
    the curves. Where all curves are flat, intervals are shown completely. Levels more than a decade
    below all curves are drawn on the lower edge of a log axis.
    """
    log = chart.log

    def scaled(values: Sequence[float] | Floats) -> Floats:
        given = np.array(values, dtype=float)
        given = given[np.isfinite(given) & ((given > 0) | (not log))]
        return np.asarray(np.log10(given) if log else given)

    means = scaled(np.maximum(chart.means(), chart.floor) if log else chart.means())
    if not len(means):
        return (0.1, 1.0) if log else (0.0, 1.0)
    least, most = float(means.min()), float(means.max())
    if log and len(curves := scaled(chart.means(flat=False))):
        least = max(least, float(curves.min()) - 1.0)
        if chart.floor:
            least = max(least, math.log10(chart.floor))
        most = max(most, least)
    size, span = max(abs(least), abs(most)), most - least
    if span <= (math.log10(1 + LEVEL) if log else LEVEL * size):
        reach = 1.0 if log else math.inf
    else:
        reach = min(max(span, 0.1), 1.0) if log else max(span, 0.25 * size)
    lows = scaled([v for s in chart.series for v in s.low])
    highs = scaled([v for s in chart.series for v in s.high])
    low = min(max(min(lows, default=least), least - reach), least)
    high = max(min(max(highs, default=most), most + reach), most)
    if log and chart.floor:
        low = max(low, math.log10(chart.floor))
    if not log and 0.0 <= least < 0.5 * most:
        low = 0.0
    if not log and high - low < LEVEL * size:
        low, high = low - LEVEL * size, high + LEVEL * size
    margin = 0.05 * (high - low) or (0.5 if log else 1.0)
    if log:
        return 10.0 ** (low - margin), 10.0 ** (high + margin)
    return (max(low - margin, 0.0) if low >= 0.0 else low - margin), high + margin


def _set_places(axes: Axes, chart: Chart) -> None:
    """Set scale and ticks of the horizontal axis."""
    if chart.x_log:
        axes.set_xscale("log")
        across = [v for s in chart.series for v in s.x if v > 0] or [1.0]
        axes.set_xlim(min(across) / 1.35, max(across) * 1.35)
        _log_ticks(axes, "x")
        places = sorted({float(f"{v:.2g}") for v in across})  # names of nearer ones overlap
        if len(places) <= FEW_PLACES:
            axes.set_xticks(places)
    else:
        whole = all(float(v).is_integer() for s in chart.series for v in s.x)
        axes.xaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 5, 10], integer=whole))
    if chart.x_names:
        short = max(map(len, chart.x_names)) <= SHORT
        every = math.ceil(len(chart.x_names) / (MOST_SHORT if short else MOST_NAMES))
        shown = range(1, len(chart.x_names) + 1, every)
        axes.set_xticks(list(shown), [chart.x_names[k - 1] for k in shown])


def _log_ticks(ax: Axes, which: str, low: float = 1.0, high: float = 10.0) -> None:
    """Set ticks at powers of ten, with 2 and 5 (or 3) between them where there are few."""
    axis = ax.xaxis if which == "x" else ax.yaxis
    decades = math.log10(high / low)
    subs = (1.0, 2.0, 5.0) if decades <= 2.1 else (1.0, 3.0) if decades <= 4.0 else (1.0,)
    axis.set_major_locator(LogLocator(subs=subs, numticks=9))
    axis.set_major_formatter(FuncFormatter(tick))
    axis.minorticks_off()


def tick(value: float, _position: int | None = None) -> str:
    """Return a tick's label: plain, or with an exponent where that is shorter."""
    if value != 0 and (abs(value) >= 1e5 or abs(value) < 1e-3):
        mantissa, _, power = f"{value:.4e}".partition("e")
        return f"{float(mantissa):g}e{int(power)}"
    return f"{value:g}"

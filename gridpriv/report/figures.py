"""Matplotlib figures: their style, axes and files.

Nothing here imports pyplot or changes a global setting: every figure is drawn and saved within
the package's style (``figure.mplstyle``), and no backend is selected. Values by name are
horizontal bars: costs of methods, results of audits and attacks.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
from matplotlib import get_data_path, rc_params_from_file, style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gridpriv.core.arrays import Floats
from gridpriv.core.files import write_bytes
from gridpriv.core.text import amount, number_text, slug
from gridpriv.privacy.settings import NOTHING
from gridpriv.report import picture_format

STYLE = cast(
    dict[str, Any],
    rc_params_from_file(Path(__file__).with_name("figure.mplstyle"), use_default_template=False),
)
PALETTE: tuple[str, ...] = tuple(STYLE["axes.prop_cycle"].by_key()["color"])
GREYS = ("#222222", "#777777", "#AAAAAA")
"""Of levels, so that colours are those of curves."""
MARKERS = ("o", "s", "D", "^", "X", "P", "v", "p")
DASHES = ("-", (0, (6, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))
LEVEL_DASHES = ((0, (2.5, 2.5)), (0, (9, 3)), (0, (9, 3, 2.5, 3)), (0, (1, 1.2)))
UNDATED: dict[str, dict[str, None]] = {
    "svg": dict.fromkeys(("Date", "Creator", "Format", "Type")),
    "pdf": dict.fromkeys(("CreationDate", "Creator", "Producer")),
    "png": {"Software": None},
}

Look = dict[str, Any]
"""Keywords of a line: colour, marker and dash."""
Looks = dict[str, Look]
Size = tuple[float, float]
"""Width and height in inches."""


class Plot(ABC):
    """Data of a figure, drawn on given or new axes.

    Attributes
    ----------
    title : str
    size : (float, float)
        Width and height in inches.
    alt : str
        Description of the figure.
    """

    if TYPE_CHECKING:  # fields or properties of the subclasses

        @property
        def title(self) -> str: ...  # noqa: D102

        @property
        def size(self) -> Size: ...  # noqa: D102

        @property
        def alt(self) -> str: ...  # noqa: D102

    @abstractmethod
    def draw(self, axes: Axes, *, legend: bool) -> None:
        """Draw on axes, which are styled."""

    def plot(
        self, ax: Axes | None = None, *, figsize: Size | None = None, legend: bool = True
    ) -> Axes:
        """Draw on ``ax``, or on the axes of a new figure of ``figsize`` inches; return the axes."""
        with styled_axes(ax, figsize or self.size) as axes:
            self.draw(axes, legend=legend)
        return axes


class ShownAxes(Axes):
    """Axes that a notebook shows as their figure."""

    def _repr_png_(self) -> bytes:
        return figure_bytes(figure_of(self), "png")


@contextmanager
def styled_axes(ax: Axes | None, size: Size) -> Iterator[Axes]:
    """Provide ``ax``, or the axes of a new figure in the package's style."""
    if ax is not None:
        with style.context({"text.parse_math": False}):
            yield ax
        return
    with style.context(STYLE):
        new = Figure(figsize=size).add_subplot(axes_class=ShownAxes)
        # ticks are made when the figure is drawn, possibly outside the style
        new.tick_params(labelsize=STYLE["xtick.labelsize"], colors=STYLE["xtick.color"])
        yield new


def set_title(ax: Axes, title: str, note: str = "") -> None:
    """Set the title of axes and a note under it, in as many lines as their width needs."""
    wide = page_size(ax)[0] * ax.get_position().width
    note = lines(note, wide, 9.0) if note else ""
    room = "\n" * (note.count("\n") + bool(note))
    ax.set_title(lines(title, wide, 10.0) + room, parse_math=False)
    ax.annotate(
        note,
        (0, 1),
        (0, 5),
        xycoords="axes fraction",
        textcoords="offset points",
        fontsize=9,
        color="#555555",
        linespacing=1.3,
        parse_math=False,
    )


def set_labels(ax: Axes, x_label: str, y_label: str) -> None:
    """Set the labels of the axes, the vertical one in as many lines as their height needs."""
    ax.set_xlabel(x_label, parse_math=False)
    tall = page_size(ax)[1] * ax.get_position().height
    ax.set_ylabel(lines(y_label, tall, 9.0), parse_math=False)


def lines(text: str, points: float, size: float) -> str:
    """Return a text in lines that are no longer than some points at a size of letters."""
    return "\n".join(wrap(text, max(int(points / (0.62 * size)), 12)))


def figure_of(ax: Axes) -> Figure:
    """Return the whole figure that axes are on."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    return figure


def page_size(ax: Axes) -> Size:
    """Return width and height of the figure of axes in points."""
    figure = figure_of(ax)
    return 72.0 * figure.get_figwidth(), 72.0 * figure.get_figheight()


def looks(names: Sequence[str], *, levels: frozenset[str] = frozenset()) -> Looks:
    """Return the look of every series, stable in their order, also without colour.

    Parameters
    ----------
    levels : set of str
        Series that are one value, drawn as a dashed line across the axes.
    """
    drawn: Looks = {}
    for name in dict.fromkeys(names):
        k = sum((other in levels) == (name in levels) for other in drawn)
        drawn[name] = {
            "color": GREYS[k % len(GREYS)] if name in levels else PALETTE[k % len(PALETTE)],
            "marker": "" if name in levels else MARKERS[(k + k // len(PALETTE)) % len(MARKERS)],
            "linestyle": LEVEL_DASHES[k % 4] if name in levels else DASHES[k // len(PALETTE) % 4],
        }
    return drawn


def swatch(look: Look, name: str = "") -> str:
    """Return a legend's sample of a series as SVG, its ids unique by ``name``."""
    return _sample(tuple(look.items())).replace(SAMPLE, slug(name))


SAMPLE = "@"
"""Start of the ids of a sample, which is drawn once for all names."""


@cache
def _sample(look: tuple[tuple[str, Any], ...]) -> str:
    with style.context(STYLE):
        figure = Figure(figsize=(0.4, 0.16), frameon=False)
        figure.set_layout_engine("none")
        figure.add_artist(Line2D([0.05, 0.5, 0.95], [0.5] * 3, markevery=[1], **dict(look)))
    return _element(figure, SAMPLE, 'class="swatch" aria-hidden="true"')


def stacked(plots: Sequence[Plot], title: str) -> Figure:
    """Return a figure of several plots, one under the other."""
    wide, tall = plots[0].size
    with style.context(STYLE):
        figure = Figure(figsize=(wide, tall * len(plots) + 0.3))
        figure.suptitle(title, fontweight="bold", fontsize=11, x=0.01, ha="left")
        for ax, plot in zip(figure.subplots(len(plots), squeeze=False)[:, 0], plots, strict=True):
            plot.plot(ax)
        figure.align_ylabels()
    return figure


def write_figure(drawn: Plot | Figure, path: str | Path, *, private: bool) -> Path:
    """Write a figure completely or not at all; the file's ending (.png, .svg, .pdf) is its format.

    Parameters
    ----------
    private : bool
        Only the file's owner may read it.

    Raises
    ------
    InputError
        For another ending.
    StorageError
        If the file cannot be written.
    """
    kind = picture_format(path)
    figure = drawn if isinstance(drawn, Figure) else figure_of(drawn.plot())
    write_bytes(Path(path), figure_bytes(figure, kind), private=private)
    return Path(path)


def figure_bytes(figure: Figure, kind: str, salt: str = "gridpriv") -> bytes:
    """Return a figure as a file's bytes: the same bytes for the same figure, on any day.

    ``salt`` separates the ids in two SVGs of one page.
    """
    out = io.BytesIO()
    with style.context([STYLE, {"svg.hashsalt": salt}]), warnings.catch_warnings():
        # text stays text in SVG: the reader's fonts have letters that DejaVu Sans lacks
        warnings.filterwarnings("ignore", message=".*[Gg]lyph", category=UserWarning)
        figure.savefig(out, format=kind, metadata=UNDATED[kind])
    return _numbered(out.getvalue(), salt) if kind == "svg" else out.getvalue()


def _numbered(svg: bytes, salt: str) -> bytes:
    """Return an SVG with numbers in place of ids that are digests of drawn data.

    Matplotlib hashes coordinates in more digits than it draws.
    """
    digests = dict.fromkeys(re.findall(rb'id="(\w*[0-9a-f]{10})"', svg))
    numbers = {old: f"{salt}-{n}".encode() for n, old in enumerate(digests)}
    used = re.compile(rb'(id="|"#|url\(#)(\w*[0-9a-f]{10})(?=[")])')
    return used.sub(lambda id_: id_[1] + numbers.get(id_[2], id_[2]), svg)


def to_svg(plot: Plot, kind: str, name: str = "", *, legend: bool = True) -> str:
    """Return a plot as SVG for a page: with title and description, ids unique by ``name``."""
    name = name or slug(plot.title)
    figure = figure_of(plot.plot(legend=legend))
    head = f'class="{kind}" id="{name}" role="img" aria-labelledby="{name}-t {name}-d"'
    words = (
        f'<title id="{name}-t">{escape(plot.title)}</title>'
        f'<desc id="{name}-d">{escape(plot.alt)}</desc>'
    )
    return _element(figure, name, head, words)


def fonts() -> str:
    """Return the folder of the fonts that figures are measured with."""
    return str(Path(get_data_path()) / "fonts" / "ttf")


def _element(figure: Figure, salt: str, attributes: str, words: str = "") -> str:
    """Return a figure as an SVG element, without parts that a page does not need.

    Groups lose matplotlib's ids, which repeat from figure to figure; those of a series
    (``gid="series 3"``) are marked for the page's script. A style sheet in one element would apply
    to the whole page.
    """
    svg = figure_bytes(figure, "svg", salt).decode()
    box = re.search(r'viewBox="[^"]*"', svg)
    assert box is not None
    svg = svg[svg.index(">", box.end()) + 1 :]
    svg = re.sub(r"<(metadata|style)\b.*?</\1>", "", svg, flags=re.S)
    svg = re.sub(r'<g id="series (\d+)"', r'<g class="series" data-s="\1"', svg)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = svg.replace("'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif")
    svg = svg.replace("xlink:href", "href")
    svg = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\d\.\d\d)\d+", r"\1", tag[0]), svg)
    svg = re.sub(r"\s*\n\s*", "\n", svg).strip()
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {attributes} {box[0]}'
    return f'{head} stroke-linejoin="round">{words}{svg}'


TEXT: dict[str, Any] = {
    "textcoords": "offset points",
    "fontsize": 8,
    "parse_math": False,
    "bbox": {"facecolor": "white", "edgecolor": "none", "boxstyle": "square,pad=0.1"},
}
"""Look of the text of a bar."""
MARKS: tuple[dict[str, Any], ...] = (
    {"marker": "o", "color": PALETTE[1], "markeredgecolor": "black", "zorder": 3},
    {"marker": "|", "color": "black", "markersize": 14, "markeredgewidth": 2.5, "zorder": 3},
)


@dataclass(frozen=True)
class Bar:
    """A bar of one or more parts, half of the interval of their sum, marks, and a note."""

    name: str
    parts: tuple[float, ...]
    half: float = 0.0
    note: str = ""
    marks: tuple[float, ...] = ()
    colour: str = ""


@dataclass(frozen=True)
class Bars(Plot):
    """Bars over one axis, from 0; a last part below 0 is hatched.

    ``parts`` and ``marks`` are the legend's words for them; ``line`` is a reference value, drawn if
    it is near the bars, and ``line_name`` its name.
    """

    title: str
    x_label: str
    bars: Sequence[Bar]
    parts: tuple[str, ...] = ("",)
    marks: tuple[str, ...] = ()
    line: float = math.nan
    line_name: str = ""

    @property
    def size(self) -> Size:
        """Width and height in inches."""
        return 4.8, 1.4 + 0.44 * len(self.bars)

    @property
    def alt(self) -> str:
        """Description of the bars."""
        notes = [f" ({bar.note})" if bar.note else "" for bar in self.bars]
        values = [f"{bar.name}: {number_text(sum(bar.parts))}" for bar in self.bars]
        each = "; ".join(map(str.__add__, values, notes))
        return f"{self.title}. {self.x_label}: {each}."

    def draw(self, axes: Axes, *, legend: bool) -> None:
        """Draw on axes, which are styled."""
        total, half = self._draw_bars(axes), np.array([bar.half for bar in self.bars])
        marks = np.array([bar.marks for bar in self.bars], dtype=float).T
        for values, look, label in zip(marks, MARKS, self.marks, strict=False):
            at = np.where(np.isfinite(values), values, math.nan)
            axes.plot(at, np.arange(len(at)), linestyle="", label=label, **look)
        low, high = _ends(total, half, marks)
        span = max(high - low, 1e-9)
        _draw_intervals(axes, total, half, low, high)
        if low <= self.line <= high + 0.5 * span:
            high = max(high, self.line)
            axes.axvline(self.line, color="black", lw=1.0, ls="--", label=self.line_name)
        elif math.isfinite(self.line):
            beyond = f"{self.line_name}: {number_text(self.line)}, beyond the axis"
            axes.plot([], [], color="black", lw=1.0, ls="--", label=beyond)
        for k, bar in enumerate(self.bars):
            end = min(max(*bar.parts, total[k], 0.0) + bar.half, high)
            axes.annotate(bar.note, (end, k), (5, 0), va="center", **TEXT)
            axes.annotate(bar.name, (low, k), (0, 9.5), **TEXT)
        axes.axvline(0.0, color="black", linewidth=0.8)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.set_ylim(len(self.bars) - 0.5, -0.85)
        axes.set_xlim(low - 0.03 * span, high + 0.55 * span)
        axes.grid(visible=True, axis="x")
        axes.set_xlabel(self.x_label, parse_math=False)
        set_title(axes, self.title)
        if legend and any((*self.parts, *self.marks)):
            axes.legend(loc="upper left", bbox_to_anchor=(-0.02, -0.22), ncols=1)

    def _draw_bars(self, ax: Axes) -> Floats:
        """Draw the parts; return the bars' sums."""
        y, left = np.arange(len(self.bars)), np.zeros(len(self.bars))
        greys = ["#999999"] * (len(self.parts) - 1)
        for n, (label, colour) in enumerate(zip(self.parts, [*greys, PALETTE[0]], strict=True)):
            value = np.nan_to_num([bar.parts[n] for bar in self.bars])
            faces = [bar.colour or colour for bar in self.bars]
            if left.any() or n:
                faces = ["white" if v < 0.0 else face for v, face in zip(value, faces, strict=True)]
            hatch = ["////" if face == "white" else "" for face in faces]
            ax.barh(
                y, value, 0.4, left=left, color=faces, edgecolor=colour, hatch=hatch, label=label
            )
            left = left + value
        return left


def _draw_intervals(axes: Axes, total: Floats, half: Floats, low: float, high: float) -> None:
    """Draw intervals within the ends of an axis, with a triangle where one extends beyond."""
    y = np.flatnonzero(half > 0)
    bottom, top = total[y] - half[y], total[y] + half[y]
    ends = np.array([total[y] - np.maximum(bottom, low), np.minimum(top, high) - total[y]])
    axes.errorbar(total[y], y, xerr=ends, ls="", color="black", capsize=3, elinewidth=1.0)
    for beyond, edge, marker in ((bottom < low, low, "<"), (top > high, high, ">")):
        axes.plot(np.full(beyond.sum(), edge), y[beyond], marker, color="black", markersize=5)


def _ends(total: Floats, half: Floats, marks: Floats) -> tuple[float, float]:
    """Return the ends of the axis: intervals stretch it by the bars' own range at most."""
    known = np.append(marks[np.isfinite(marks)], [*total, 0.0])
    low, high = float(known.min()), float(known.max())
    reach = max(high - low, 1e-9)
    return (
        max(min(low, float((total - half).min())), low - reach),
        min(max(high, float((total + half).max())), high + reach),
    )


def split_bars(title: str, rows: pd.DataFrame, budget: str) -> Bars:
    """Return the cost of privacy of a panel's methods at a budget, the lowest first.

    A method without an AC-feasible run has a note instead of a bar.
    """
    bars = []
    shown = rows[rows.budget == budget].sort_values("cost_of_privacy", na_position="last")
    for row in shown.itertuples():
        value, half = row.cost_of_privacy, row.cost_of_privacy_high - row.cost_of_privacy
        half = half if math.isfinite(half) else 0.0
        note = "not AC-feasible" if row.ac_feasible == 0.0 else "no cost"
        parts = (0.0, 0.0)
        if math.isfinite(value):
            split = math.isfinite(row.method_cost)
            parts = (row.method_cost, row.noise_cost) if split else (0.0, value)
            interval = f" \u00b1 {amount(half, '$/h')}" if half else ""
            note = f"{amount(value, '$/h')}{interval} $/h"
        bars.append(Bar(str(row.series), parts, half, note))
    prior = rows[(rows.budget == NOTHING) & (rows.ac_feasible != 0.0)].cost_of_privacy
    words = "due to the method", "due to the noise (hatched where negative)"
    line = float(prior.min()) if len(prior) else math.nan
    return Bars(
        title, "cost of privacy ($/h)", bars, words, line=line, line_name="prior-only (epsilon = 0)"
    )

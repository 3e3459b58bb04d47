"""Values by name as horizontal bars: costs of methods, results of audits and attacks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from gridpriv.core.arrays import Floats
from gridpriv.core.text import amount, figure
from gridpriv.privacy.settings import NOTHING
from gridpriv.report.figures import PALETTE, set_title, styled_axes

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
class Bars:
    """Bars over one axis, from 0; a last part below 0 is hatched.

    ``parts`` and ``marks`` are the legend's words for them; ``line`` is a reference value, drawn
    where it is within reach of the bars, and ``line_name`` its name.
    """

    title: str
    x_label: str
    bars: Sequence[Bar]
    parts: tuple[str, ...] = ("",)
    marks: tuple[str, ...] = ()
    line: float = math.nan
    line_name: str = ""

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches."""
        return 4.8, 1.3 + 0.44 * len(self.bars)

    @property
    def alt(self) -> str:
        """The bars in words."""
        each = "; ".join(f"{b.name}: {figure(sum(b.parts))} {b.note}".rstrip() for b in self.bars)
        return f"{self.title}. {self.x_label}: {each}."

    def plot(
        self,
        ax: Axes | None = None,
        *,
        figsize: tuple[float, float] | None = None,
        legend: bool = True,
    ) -> Axes:
        """Draw on ``ax``, or on the axes of a new figure of ``figsize`` inches; return the axes."""
        with styled_axes(ax, figsize or self.size) as axes:
            total, half = self._draw_bars(axes), np.array([bar.half for bar in self.bars])
            marks = np.array([bar.marks for bar in self.bars], dtype=float).T
            for values, look, label in zip(marks, MARKS, self.marks, strict=False):
                at = np.where(np.isfinite(values), values, math.nan)
                axes.plot(at, np.arange(len(at)), linestyle="", label=label, **look)
            low, high = _ends(total, half, marks)
            span = max(high - low, 1e-9)
            if low <= self.line <= high + 0.5 * span:
                high = max(high, self.line)
                axes.axvline(self.line, color="black", lw=1.0, ls="--", label=self.line_name)
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
                axes.legend(loc="upper left", bbox_to_anchor=(-0.02, -0.22), ncols=2)
        return axes

    def _draw_bars(self, ax: Axes) -> Floats:
        """Draw parts and intervals; return the bars' sums."""
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
        half = np.array([bar.half for bar in self.bars])
        if (known := half > 0).any():
            ends = left[known], y[known]
            ax.errorbar(*ends, xerr=half[known], ls="", color="black", capsize=3, elinewidth=1.0)
        return left


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

    A method of which no run is AC-feasible has no bar, and says so.
    """
    bars = []
    shown = rows[rows.budget == budget].sort_values("cost_of_privacy", na_position="last")
    for row in shown.itertuples():
        value, half = row.cost_of_privacy, row.cost_of_privacy_high - row.cost_of_privacy
        half = half if math.isfinite(half) else 0.0
        note = "not AC-feasible" if row.ac_feasible == 0.0 else "no cost"
        parts = (0.0, 0.0)
        if math.isfinite(value):
            parts = (
                (row.method_cost, row.noise_cost)
                if math.isfinite(row.method_cost)
                else (0.0, value)
            )
            interval = f" \u00b1 {amount(half, '$/h')}" if half else ""
            note = f"{amount(value, '$/h')}{interval} $/h"
        bars.append(Bar(str(row.series), parts, half, note))
    prior = rows[(rows.budget == NOTHING) & (rows.ac_feasible != 0.0)].cost_of_privacy
    words = "method without noise", "noise (hatched: lowers the cost)"
    line = float(prior.min()) if len(prior) else math.nan
    return Bars(
        title, "cost of privacy ($/h)", bars, words, line=line, line_name="prior-only (epsilon = 0)"
    )

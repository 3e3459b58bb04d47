"""Values by name as horizontal bars: costs of methods, results of audits and attacks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from gridpriv.core.arrays import Floats
from gridpriv.core.display import amount, figure
from gridpriv.privacy.budget import NOTHING
from gridpriv.report.figures import PALETTE, set_title, styled_axes


@dataclass(frozen=True)
class Bar:
    """A bar with half of its interval, a point and a level on the same axis, and a note."""

    name: str
    value: float
    half: float = 0.0
    point: float = math.nan
    level: float = math.nan
    note: str = ""
    colour: str = PALETTE[0]


@dataclass(frozen=True)
class Bars:
    """Bars over one axis from 0.

    ``keys`` are the legend's words for bar, point and level; ``line`` is a reference value.
    """

    title: str
    x_label: str
    bars: Sequence[Bar]
    keys: tuple[str, str, str] | None = None
    line: float = math.nan

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches."""
        return 7.0, 1.2 + 0.48 * len(self.bars) + 0.3 * (self.keys is not None)

    @property
    def alt(self) -> str:
        """The bars in words."""
        text = "; ".join(f"{b.name}: {figure(b.value)} {b.note}".rstrip() for b in self.bars)
        return f"{self.title}. {self.x_label}: {text}."

    def plot(
        self,
        ax: Axes | None = None,
        *,
        figsize: tuple[float, float] | None = None,
        legend: bool = True,
    ) -> Axes:
        """Draw on ``ax``, or on the axes of a new figure of ``figsize`` inches; return the axes."""
        y = np.arange(len(self.bars))
        bar, point, level = self.keys or (None, None, None)
        with styled_axes(ax, figsize or self.size) as axes:
            value, half = ([getattr(b, name) for b in self.bars] for name in ("value", "half"))
            axes.barh(y, value, 0.45, color=[b.colour for b in self.bars], label=bar)
            if any(half):
                axes.errorbar(
                    value, y, xerr=half, linestyle="", color="black", capsize=3, elinewidth=1.0
                )
            marks = {"point": ("o", PALETTE[1], 6, point), "level": ("|", "black", 14, level)}
            for name, (marker, colour, size, label) in marks.items():
                at = np.array([getattr(b, name) for b in self.bars], dtype=float)
                if np.isfinite(at).any():
                    at = np.where(np.isfinite(at), at, math.nan)
                    axes.plot(
                        at,
                        y,
                        linestyle="",
                        marker=marker,
                        color=colour,
                        markersize=size,
                        markeredgewidth=2.5 if name == "level" else 0.8,
                        markeredgecolor="black",
                        label=label,
                        zorder=3,
                    )
            if math.isfinite(self.line):
                axes.axvline(self.line, color="black", linewidth=1.0, linestyle="--")
            for k, b in enumerate(self.bars):
                axes.annotate(
                    b.note,
                    (0, k),
                    (3, 12.0),
                    textcoords="offset points",
                    fontsize=7.5,
                    va="center",
                    parse_math=False,
                )
            axes.set_yticks(y, [b.name for b in self.bars], parse_math=False)
            axes.tick_params(axis="y", length=0)
            axes.set_ylim(len(self.bars) - 0.45, -0.65)
            axes.set_xlim(left=0.0)
            axes.grid(visible=True, axis="x")
            axes.set_xlabel(self.x_label, parse_math=False)
            set_title(axes, self.title)
            if self.keys and legend:
                axes.legend(loc="upper left", bbox_to_anchor=(0.0, -0.28), ncols=3)
        return axes


PATCH = {"facecolor": "white", "alpha": 1.0, "edgecolor": "none", "boxstyle": "square,pad=0.1"}
"""Behind the text of a bar."""
GAIN = {"facecolor": "white", "edgecolor": PALETTE[0], "hatch": "////", "linewidth": 0.8}
"""Look of noise that happens to lower the cost of its method."""


@dataclass(frozen=True)
class SplitBar:
    """The cost of a method in two parts, the half of its interval, and its value in words."""

    name: str
    method: float
    noise: float
    half: float
    note: str


@dataclass(frozen=True)
class SplitBars:
    """Costs of privacy in two parts: the method without noise, and the noise; $/h.

    ``line`` is the cost of the prior-only baseline, drawn where it is within reach of the bars.
    """

    title: str
    bars: Sequence[SplitBar]
    line: float = math.nan

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches."""
        return 4.8, 1.3 + 0.44 * len(self.bars)

    @property
    def alt(self) -> str:
        """The bars in words."""
        text = "; ".join(f"{bar.name}: {bar.note}" for bar in self.bars)
        return f"{self.title}. {text}."

    def plot(
        self,
        ax: Axes | None = None,
        *,
        figsize: tuple[float, float] | None = None,
        legend: bool = True,
    ) -> Axes:
        """Draw on ``ax``, or on the axes of a new figure of ``figsize`` inches; return the axes."""
        with styled_axes(ax, figsize or self.size) as axes:
            y = np.arange(len(self.bars))
            method, noise, half = (
                np.nan_to_num([getattr(bar, part) for bar in self.bars])
                for part in ("method", "noise", "half")
            )
            axes.barh(y, method, 0.4, color="#999999", label="method without noise")
            for gain, look in ((False, {"color": PALETTE[0]}), (True, GAIN)):
                if (here := (noise < 0.0) == gain).any():
                    axes.barh(
                        y[here],
                        noise[here],
                        0.4,
                        left=method[here],
                        **look,
                        label="noise (lowers the cost)" if gain else "noise",
                    )
            least, most = _ends(method, noise, half)
            total, drawn = method + noise, half > 0
            ends = np.maximum(
                [total - np.maximum(total - half, least), np.minimum(total + half, most) - total],
                0.0,
            )
            axes.errorbar(
                total[drawn],
                y[drawn],
                xerr=ends[:, drawn],
                linestyle="",
                color="black",
                capsize=3,
                elinewidth=1.0,
            )
            span = max(most - least, 1e-9)
            if least <= self.line <= most + 0.5 * span:
                most = max(most, self.line)
                axes.axvline(
                    self.line,
                    color="black",
                    linewidth=1.0,
                    linestyle="--",
                    label="prior-only (epsilon = 0)",
                )
            for k, bar in enumerate(self.bars):
                end = max(method[k], method[k] + noise[k], 0.0) + half[k]
                axes.annotate(
                    bar.note,
                    (min(end, most), k),
                    (5, 0),
                    textcoords="offset points",
                    fontsize=8,
                    va="center",
                    parse_math=False,
                    bbox=PATCH,
                )
                axes.annotate(
                    bar.name,
                    (least, k),
                    (0, 9.5),
                    textcoords="offset points",
                    fontsize=8,
                    parse_math=False,
                    bbox=PATCH,
                )
            axes.axvline(0.0, color="black", linewidth=0.8)
            axes.set_yticks([])
            axes.spines["left"].set_visible(False)
            axes.set_ylim(len(self.bars) - 0.5, -0.85)
            axes.set_xlim(least - 0.03 * span, most + 0.55 * span)
            axes.grid(visible=True, axis="x")
            axes.set_xlabel("cost of privacy ($/h)", parse_math=False)
            set_title(axes, self.title)
            if legend:
                handles, labels = axes.get_legend_handles_labels()
                axes.legend(
                    handles, labels, loc="upper left", bbox_to_anchor=(-0.02, -0.22), ncols=2
                )
        return axes


def _ends(method: Floats, noise: Floats, half: Floats) -> tuple[float, float]:
    """Return the ends of the axis: of bars with intervals, which stretch it by their range."""
    total = method + noise
    low, high = min(total.min(), method.min(), 0.0), max(total.max(), method.max(), 0.0)
    reach = max(high - low, 1e-9)
    return (
        max(min(low, float((total - half).min())), low - reach),
        min(max(high, float((total + half).max())), high + reach),
    )


def split_bars(title: str, rows: pd.DataFrame, budget: str) -> SplitBars:
    """Return the cost of privacy of a panel's methods at a budget, the lowest first.

    A method of which no run is AC-feasible has no bar, and says so.
    """
    shown = rows[rows.budget == budget].sort_values("cost_of_privacy", na_position="last")
    bars = []
    for row in shown.itertuples():
        known = math.isfinite(row.cost_of_privacy)
        split = known and math.isfinite(row.method_cost)
        half = row.cost_of_privacy_high - row.cost_of_privacy
        interval = f" \u00b1 {amount(half, '$/h')}" if known and math.isfinite(half) else ""
        value = f"{amount(row.cost_of_privacy, '$/h')}{interval} $/h"
        bars.append(
            SplitBar(
                str(row.series),
                row.method_cost if split else 0.0,
                row.noise_cost if split else row.cost_of_privacy if known else 0.0,
                half if known and math.isfinite(half) else 0.0,
                value if known else "not AC-feasible" if row.ac_feasible == 0.0 else "no cost",
            )
        )
    prior = rows[(rows.budget == NOTHING) & (rows.ac_feasible != 0.0)].cost_of_privacy
    return SplitBars(title, tuple(bars), float(prior.min()) if len(prior) else math.nan)

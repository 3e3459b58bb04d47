"""Maps of a grid: zones, tie lines, branch loading, load shedding, or a value at every bus."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.lines import Line2D

from gridpriv.core.arrays import Floats, Ints
from gridpriv.core.text import counted, figure
from gridpriv.report.drawing import (
    MOST_NAMED,
    PALE,
    PLAIN,
    SHED,
    SMALLEST_MW,
    ZONES,
    Colours,
    MapDrawing,
)
from gridpriv.report.figures import Look, page_size, set_title, styled_axes

LOADING = LinearSegmentedColormap.from_list("loading", [PALE, "#1E1E1E"]).with_extremes(
    over="#D55E00", bad=PALE
)
AT_LIMIT = 99.5
"""Percent of its limit from which on a branch is drawn as being at it."""
MOST_LISTED = 14
"""Zones from which on a legend of them would be longer than the map."""


@dataclass(frozen=True, eq=False)
class GridMap:
    """A map of a grid.

    Attributes
    ----------
    title : str
    buses : DataFrame
        ``bus``, ``zone``, ``x``, ``y`` (y up) and optionally ``generator``.
    branches : DataFrame
        ``from``, ``to`` (bus numbers) and ``tie``.
    shed : mapping of int to float, optional
        Load shedding in MW by bus number.
    flows : DataFrame, optional
        Row by row as ``branches``: ``mva`` and ``loading_percent`` (NaN: no limit).
    values : mapping of int to float, optional
        A value by bus number, shown as colour instead of the zone.
    value_label : str
        Of the colour bar, with the unit.
    limits : (float, float), optional
        Values at the ends of the colour bar.
    note : str
        A second line of the title.
    width : float
        Inches.
    """

    title: str
    buses: pd.DataFrame
    branches: pd.DataFrame
    shed: Mapping[int, float] | None = None
    flows: pd.DataFrame | None = None
    values: Mapping[int, float] | None = None
    value_label: str = ""
    limits: tuple[float, float] | None = None
    note: str = ""
    width: float = 8.0

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches, after the shape of the grid."""
        x, y = (max(float(np.ptp(self.buses[name])), 1e-9) for name in "xy")
        return self.width, self.width * min(max(y / x, 0.25), 0.75) + (1.5 if self.note else 1.3)

    @cached_property
    def zones(self) -> list[str]:
        """Names of the zones, numbers in their order."""
        return sorted(set(self.buses.zone.astype(str)), key=lambda z: (len(z), z))

    @property
    def alt(self) -> str:
        """The map in words."""
        text = (
            f"{self.title}: {counted(len(self.buses), 'bus')} in "
            f"{counted(len(self.zones), 'zone')}, {counted(len(self.branches), 'branch')}, "
            f"{int(self.branches.tie.sum())} of them tie lines (dashed)."
        )
        if self.shed:
            text += f" Load shedding: {figure(sum(max(v, 0.0) for v in self.shed.values()))} MW"
            worst = max(self.shed, key=lambda bus: (self.shed or {})[bus])
            most = self.shed[worst]
            text += f", most at bus {worst}, {figure(most)} MW." if most > 0 else "."
        if self.flows is not None and self.flows.loading_percent.notna().any():
            full = int((self.flows.loading_percent >= AT_LIMIT).sum())
            text += f" At their limit: {counted(full, 'branch')}."
        return text

    def plot(
        self,
        ax: Axes | None = None,
        *,
        figsize: tuple[float, float] | None = None,
        legend: bool = True,
    ) -> Axes:
        """Draw on ``ax``, or on the axes of a new figure of ``figsize`` inches; return the axes."""
        with styled_axes(ax, figsize or self.size) as axes:
            axes.set_axis_off()
            axes.set_aspect("equal", adjustable="datalim")
            wide = page_size(axes)[0] * axes.get_position().width
            set_title(axes, self.title, self.note)
            branches, buses = self._loading(), self._values()
            figure = axes.get_figure()
            assert figure is not None
            for colours in filter(None, (branches, buses)):
                bar = figure.colorbar(
                    colours.shades, ax=axes, shrink=0.7, aspect=30, pad=0.01, extend=colours.extend
                )
                bar.set_label(colours.label, parse_math=False)
            if legend:
                axes.legend(
                    handles=_legend(self),
                    loc="upper left",
                    bbox_to_anchor=(0.0, 0.0),
                    ncols=max(int(wide / 140.0), 1),
                    columnspacing=1.2,
                    handlelength=2.2,
                )
            axes.get_figure(root=True).draw_without_rendering()  # type: ignore[union-attr]
            # what stands around the map says how large it is
            MapDrawing(axes, self).draw(branches, buses)
        return axes

    @cached_property
    def zone_of(self) -> Ints:
        """The zone of every bus, as its place in :attr:`zones`."""
        return np.array([self.zones.index(z) for z in self.buses.zone.astype(str)])

    @cached_property
    def ends(self) -> Ints:
        """The rows of both buses of every branch."""
        row = pd.Series(np.arange(len(self.buses)), index=self.buses.bus.astype(int))
        return np.column_stack([row[self.branches[end].astype(int)] for end in ("from", "to")])

    @cached_property
    def shed_mw(self) -> Floats:
        """Load shedding of every bus, MW."""
        return np.array([max((self.shed or {}).get(int(b), 0.0), 0.0) for b in self.buses.bus])

    def _loading(self) -> Colours | None:
        """Return the colours of branches: loading, or flow where no branch has a limit."""
        if self.flows is None or self.flows.empty:
            return None
        value = self.flows.loading_percent.to_numpy(dtype=float)
        if np.isfinite(value).any():
            shades = ScalarMappable(Normalize(0.0, AT_LIMIT), LOADING)
            return Colours(value, shades, "Branch loading (% of limit)", "max")
        value = self.flows.mva.to_numpy(dtype=float)
        shades = ScalarMappable(Normalize(0.0, float(np.nanmax(value, initial=1e-9))), LOADING)
        return Colours(value, shades, "Branch flow (MVA; no limits given)")

    def _values(self) -> Colours | None:
        """Return the colours of buses where these show a value."""
        if not self.values:
            return None
        value = np.array([self.values.get(int(bus), math.nan) for bus in self.buses.bus])
        low, high = self.limits or (float(np.nanmin(value)), float(np.nanmax(value)))
        cividis = colormaps["cividis"].with_extremes(bad="white")
        return Colours(value, ScalarMappable(Normalize(low, high), cividis), self.value_label)


def _legend(grid: GridMap) -> list[Line2D]:
    """Return the entries of the legend."""
    tie, few = int(grid.branches.tie.sum()), len(grid.zones) <= MOST_LISTED
    entries = [_line(f"tie line ({tie})", "black", dashes=(3, 1.8), linewidth=1.6)]
    if grid.values is None and few:
        sizes = np.bincount(grid.zone_of, minlength=len(grid.zones))
        entries = [
            _dot(f"zone {name}: {counted(int(size), 'bus')}", ZONES[z % len(ZONES)])
            for z, (name, size) in enumerate(zip(grid.zones, sizes, strict=True))
        ] + entries
    elif grid.values is None:
        named = len(grid.zones) <= MOST_NAMED
        where = "named on the map" if named else "too many to name here"
        entries.insert(0, _line(f"{len(grid.zones)} zones, {where}", "none"))
    if grid.flows is None or grid.flows.empty:
        entries.append(_line("branch within a zone", PLAIN, linewidth=1.0))
    elif missing := int(grid.flows.loading_percent.isna().sum()) % len(grid.flows):
        entries.append(_line(f"without a limit ({missing})", PALE, linewidth=0.9))
    if "generator" in grid.buses:
        entries += [_dot("with generator", "white", marker="s"), _dot("without", "white")]
    if (most := float(grid.shed_mw.max(initial=0.0))) >= SMALLEST_MW:
        text = f"load shedding, area by MW (most: {figure(most)})"
        entries.append(_dot(text, SHED, alpha=0.45, markersize=12.0))
    return entries


def _dot(label: str, colour: str, **look: Any) -> Line2D:
    plain: Look = {"linestyle": "", "marker": "o", "markersize": 7.0, "markeredgewidth": 0.7}
    edge: Look = {"color": colour, "markeredgecolor": "#111111"}
    return Line2D([], [], label=label, **plain | edge | look)


def _line(label: str, colour: str, **look: Any) -> Line2D:
    return Line2D([], [], color=colour, label=label, **look)

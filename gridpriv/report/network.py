"""Maps of a grid: zones, tie lines, branch loading, load shedding, or a value at every bus.

Drawn are positions of buses, halos of zones, branches, rings of load shedding, names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap, Normalize, to_rgb, to_rgba
from matplotlib.lines import Line2D
from scipy.spatial import KDTree

from gridpriv.core.arrays import Floats, Ints
from gridpriv.core.text import counted, number_text
from gridpriv.power.ac.state import AT_LIMIT
from gridpriv.report.figures import Look, Plot, figure_of, page_size, set_title

ZONES = ("#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#0072B2", "#999999")
PLAIN, PALE = "#8C8C8C", "#C4C4C4"
SHED, DARK = "#CC3311", "#7A1F0A"
SMALLEST_MW = 1e-3
MOST_NAMED = 40
"""Number of zones above which their names would overlap."""
MOST_LABELS = 8
"""Number of buses with their load shedding written on the map."""
LABEL_SIDES = [
    reach * np.array([math.sin(turn), math.cos(turn)])
    for reach in (1.0, 1.7, 2.5, 3.5)
    for turn in np.pi * np.array([0.0, 1.0, 0.5, 1.5, 0.25, 0.75, 1.25, 1.75])
]
"""Places of a label around its bus, in distances that clear its ring."""
PATCH = {"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "boxstyle": "round,pad=0.1"}
"""Behind a label; a path effect would turn its text into outlines."""
NUMBER: Look = {"ha": "center", "va": "center_baseline", "zorder": 3.0}
LABEL: Look = {"ha": "center", "va": "center", "weight": "bold", "zorder": 4.0, "bbox": PATCH}
VECTOR = 1500
"""Number of buses above which lines and markers are pixels in a vector file."""


@dataclass(frozen=True, eq=False)
class Colours:
    """Values shown as colours, and their colour bar."""

    value: Floats
    shades: ScalarMappable
    label: str
    extend: Literal["neither", "max"] = "neither"
    ticks: tuple[float, ...] = ()


class MapDrawing:
    """Draws a map on axes, in points of the page.

    Attributes
    ----------
    place : (n, 2) array
        Of every bus.
    radius : float
        Of a bus's marker.
    look : dict
        Style of pixels in a vector file, for many buses.
    """

    def __init__(self, axes: Axes, grid: GridMap) -> None:
        self.axes, self.grid = axes, grid
        self.pos, self.radius = _page_pos(axes, grid.buses[["x", "y"]].to_numpy(dtype=float))
        self.look: Look = {"rasterized": len(grid.buses) > VECTOR}

    def draw(self, branches: Colours | None, buses: Colours | None) -> None:
        """Draw all parts, and set the limits of the axes."""
        if self.grid.values is None:
            self._draw_halos()
        labelled = self._draw_shed()
        self._draw_branches(branches)
        self._draw_buses(buses)
        if 1 < len(self.grid.zones) <= MOST_NAMED:
            self._draw_zone_names(labelled)
        edge = self.radius + 7.0
        self.axes.update_datalim([self.pos.min(axis=0) - edge, self.pos.max(axis=0) + edge])
        self.axes.margins(0.0)
        self.axes.autoscale_view()

    def _draw_halos(self) -> None:
        """Draw each zone's buses and branches, wide and pale."""
        ends, zone, wide = self.grid.ends, self.grid.zone_of, 2.0 * (self.radius + 5.0)
        inside = zone[ends[:, 0]] == zone[ends[:, 1]]
        look: Look = self.look | {"zorder": 0.5}
        for z in range(len(self.grid.zones)):
            pale = tuple(1.0 - 0.26 * (1.0 - part) for part in to_rgb(ZONES[z % len(ZONES)]))
            lines = list(self.pos[ends[inside & (zone[ends[:, 0]] == z)]])
            self.axes.add_collection(
                LineCollection(lines, colors=[pale], linewidths=wide, capstyle="round", **look)
            )
            self.axes.scatter(
                self.pos[zone == z, 0],
                self.pos[zone == z, 1],
                s=wide**2,
                color=[pale],
                linewidths=0,
                **look,
            )

    def _draw_branches(self, colours: Colours | None) -> None:
        """Draw the branches, parallel ones side by side, tie lines dashed."""
        lines = _side_by_side(self.pos[self.grid.ends], self.grid.ends, self.radius)
        tie = self.grid.branches.tie.to_numpy(bool)
        width = np.where(tie, 1.6, 1.0)
        if colours is not None:
            share = np.nan_to_num(colours.shades.norm(colours.value))
            width = 0.9 + 2.1 * np.clip(share, 0.0, 1.0) + 0.6 * (share > 1.0)
        width = width * min(1.0, 0.4 + self.radius / 8.0)
        for which, name, dashes in ((~tie, "branches", "solid"), (tie, "ties", (0, (3, 1.8)))):
            look: Look = self.look | {
                "linewidths": width[which],
                "linestyles": [dashes],
                "gid": name,
            }
            drawn = LineCollection(list(lines[which]), zorder=1.0, **look | self.look)
            if colours is None:
                drawn.set_color("black" if name == "ties" else PLAIN)
            else:
                drawn.set_color(list(colours.shades.to_rgba(colours.value[which])))
            self.axes.add_collection(drawn)

    def _draw_buses(self, colours: Colours | None) -> None:
        """Draw the buses, squares where a generator is, with their numbers where they fit."""
        buses, zone = self.grid.buses, self.grid.zone_of
        none = pd.Series(False, index=buses.index)
        square = buses.get("generator", none).to_numpy(bool)
        faces = np.array([to_rgba(colour) for colour in ZONES])[zone % len(ZONES)]
        if colours is not None:
            faces = colours.shades.to_rgba(colours.value)
        look: Look = {"edgecolors": "#111111", "linewidths": 0.6 if self.radius > 3 else 0.2}
        look |= self.look
        for which, marker, area in ((~square, "o", 4.0), (square, "s", 3.2)):
            self.axes.scatter(
                self.pos[which, 0],
                self.pos[which, 1],
                marker=marker,
                color=faces[which],
                s=area * self.radius**2,
                gid=f"buses {marker}",
                **look,
            )
        names = [str(bus) for bus in buses.bus.astype(int)]
        size = min(9.0, 2.9 * self.radius / (max(map(len, names)) + 0.6))
        for at, name, face in zip(self.pos, names, faces, strict=True) if size >= 3.2 else ():
            ink = "white" if np.dot(face[:3], (0.3, 0.6, 0.1)) < 0.45 else "black"
            self.axes.text(at[0], at[1], name, size=size, color=ink, **NUMBER)

    def _draw_shed(self) -> list[Floats]:
        """Draw rings of area proportional to load shedding (MW); return their labels' positions."""
        value, radius = self.grid.shed_mw, self.radius
        most, labelled = float(value.max(initial=0.0)), list[Floats]()
        if most < SMALLEST_MW:
            return labelled
        # many rings together cover a twelfth of the map at most
        wide, tall = np.ptp(self.pos, axis=0)
        area = (wide + 4 * radius) * (tall + 4 * radius) / 12.0 * most / value.sum()
        most_area = max((0.04 * wide) ** 2 * math.pi, 16.0 * radius**2)
        area = min(max(area, 5.0 * radius**2), most_area)
        size = (2.0 * radius) ** 2 + 4.0 / math.pi * area * value / most  # squares of diameters
        rings = value >= SMALLEST_MW
        look: Look = {"color": SHED, "alpha": 0.45, "edgecolors": DARK, "linewidths": 1.0}
        x, y = self.pos[rings].T
        self.axes.scatter(x, y, s=size[rings], zorder=0.8, gid="shed", **look)
        for k in np.argsort(-value, kind="stable")[:MOST_LABELS]:
            text, out = f"{number_text(value[k], 3)} MW", math.sqrt(size[k]) / 2.0 + 7.0
            half = np.array([2.7 * len(text), 5.0])
            for side in LABEL_SIDES:  # the nearest first
                at = self.pos[k] + side * (out + half * [1.0, 0.0])
                covers = (np.abs(self.pos - at) < half + radius * np.array([1, 1])).all(axis=1)
                other = np.abs(np.reshape(labelled, (-1, 2)) - at) < 2.0 * half
                if value[k] > 0.02 * most and not (covers.any() or other.all(axis=1).any()):
                    labelled.append(at)
                    self.axes.text(at[0], at[1], text, size=9, color=DARK, **LABEL)
                    pointer = LineCollection([[self.pos[k], at]], colors=[DARK], linewidths=0.6)
                    self.axes.add_collection(pointer, autolim=False)
                    break
        return labelled

    def _draw_zone_names(self, labelled: list[Floats]) -> None:
        """Write each zone's name near its buses where there is room."""
        pos, ends, zone = self.pos, self.grid.ends, self.grid.zone_of
        size = 12.0 if len(self.grid.zones) <= 12 else 9.0
        spots, clear = _spots(pos, ends)
        nearest = KDTree(pos).query(spots)[0]
        for z, name in enumerate(self.grid.zones):
            zone_pos = pos[zone == z]
            distance = KDTree(zone_pos).query(spots)[0]
            score = np.minimum(clear, 20.0) - 3.0 * (distance > nearest + 1.0)
            score -= 0.3 * np.maximum(distance - 30.0, 0.0)
            score -= 0.04 * np.linalg.norm(spots - zone_pos.mean(axis=0), axis=1)
            for at in labelled:
                score -= 100.0 * (np.linalg.norm(spots - at, axis=1) < 4 * size)
            x, y = spots[int(np.argmax(np.round(score, 3)))]
            labelled.append(np.array([x, y]))
            self.axes.text(x, y, f"zone {name}", size=size, color="#333333", **LABEL)


def _page_pos(ax: Axes, xy: Floats) -> tuple[Floats, float]:
    """Return the buses' positions and their markers' radius in points of the page."""
    pos = xy - xy.min(axis=0)
    room = np.array(ax.get_position().size) * np.array(page_size(ax)) * 0.95
    pos = pos * float(np.min(room / np.maximum(np.ptp(pos, axis=0), 1e-9)))
    most, least = max(0.0135 * room[0], 7.5), 0.0028 * room[0]
    if len(pos) < 2:
        return pos, most
    nearest = KDTree(pos).query(pos, k=2)[0][:, 1]
    radius = float(np.clip(0.45 * np.quantile(nearest, 0.25), least, most))
    if len(pos) * radius**2 < 0.1 * room[0] * room[1]:  # all fit
        pos = separated(pos, 2.3 * radius)
    return pos, radius


def _spots(pos: Floats, ends: Ints) -> tuple[Floats, Floats]:
    """Return positions for names, and their distances from buses and branches."""
    sides = [np.linspace(*v, 40) for v in zip(pos.min(axis=0), pos.max(axis=0), strict=True)]
    spots = np.stack(np.meshgrid(*sides), axis=-1).reshape(-1, 2)
    along = np.linspace(0.0, 1.0, 12)[:, None, None]
    lines = pos[ends[:, 0]] * (1 - along) + pos[ends[:, 1]] * along
    flat = np.array([0.45, 1.0])  # a name is wider than tall
    clear = KDTree(np.vstack([pos, lines.reshape(-1, 2)]) * flat).query(spots * flat)[0]
    return spots, np.asarray(clear)


def separated(pos: Floats, least: float) -> Floats:
    """Return positions with those nearer than ``least`` separated equally."""
    # two buses at the same place are separated in a fixed direction
    turn = 2.4 * np.arange(len(pos))
    result = pos + 0.01 * np.stack([np.cos(turn), np.sin(turn)], axis=1)
    for _ in range(60):
        pairs = KDTree(result).query_pairs(least * 0.999, output_type="ndarray")
        if len(pairs) == 0:
            break
        gap = result[pairs[:, 0]] - result[pairs[:, 1]]
        long = np.maximum(np.linalg.norm(gap, axis=1), 1e-9)
        push = (0.3 * (least - long) / long)[:, None] * gap
        for sign, end in ((1.0, pairs[:, 0]), (-1.0, pairs[:, 1])):
            np.add.at(result, end, sign * push)
    return result


def _side_by_side(lines: Floats, ends: Ints, radius: float) -> Floats:
    """Return lines (m, 2, 2), with parallel ones separated."""
    pairs = pd.DataFrame(np.sort(ends, axis=1)).groupby([0, 1])
    number = pairs.cumcount().to_numpy()
    count = pairs[0].transform("size").to_numpy()
    flip = np.where(ends[:, 0] < ends[:, 1], 1.0, -1.0)
    along = lines[:, 1] - lines[:, 0]
    across = np.column_stack([-along[:, 1], along[:, 0]])
    across /= np.maximum(np.linalg.norm(along, axis=1), 1e-9)[:, None]
    gap = np.minimum(3.4, np.maximum(2.4 * radius / count, 1.8))
    return np.asarray(
        lines + (flip * gap * (number - (count - 1) / 2.0))[:, None, None] * across[:, None]
    )


LOADING = LinearSegmentedColormap.from_list("loading", [PALE, "#1E1E1E"]).with_extremes(
    over="#D55E00", bad=PALE
)
FULL = 100.0 * (1.0 - AT_LIMIT)
"""Percent of its limit above which a branch is drawn as being at it."""
LOADINGS = (0.0, 20.0, 40.0, 60.0, 80.0, FULL)
"""Ticks of the colour bar of branch loading."""
MOST_LISTED = 14
"""Number of zones above which their legend would be longer than the map."""


@dataclass(frozen=True, eq=False)
class GridMap(Plot):
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
        In the rows of ``branches``: ``mva`` and ``loading_percent`` (NaN: no limit).
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
        """Width and height in inches, by the shape of the grid."""
        x, y = (max(float(np.ptp(self.buses[name])), 1e-9) for name in "xy")
        return self.width, self.width * min(max(y / x, 0.25), 0.75) + (1.5 if self.note else 1.3)

    @cached_property
    def zones(self) -> list[str]:
        """Names of the zones, numbers in their order."""
        return sorted(set(self.buses.zone.astype(str)), key=lambda z: (len(z), z))

    @property
    def alt(self) -> str:
        """Description of the map."""
        text = (
            f"{self.title}: {counted(len(self.buses), 'bus')} in "
            f"{counted(len(self.zones), 'zone')}, {counted(len(self.branches), 'branch')}, "
            f"{int(self.branches.tie.sum())} of them tie lines (dashed)."
        )
        if self.shed:
            text += (
                f" Load shedding: {number_text(sum(max(v, 0.0) for v in self.shed.values()))} MW"
            )
            worst = max(self.shed, key=lambda bus: (self.shed or {})[bus])
            most = self.shed[worst]
            text += f", most at bus {worst}, {number_text(most)} MW." if most > 0 else "."
        if self.flows is not None and self.flows.loading_percent.notna().any():
            full = int((self.flows.loading_percent >= FULL).sum())
            text += f" At their limit: {counted(full, 'branch')}."
        return text

    def draw(self, axes: Axes, *, legend: bool) -> None:
        """Draw on axes, which are styled."""
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
            if colours.ticks:
                bar.set_ticks(colours.ticks, labels=[f"{tick:.0f}" for tick in colours.ticks])
        if legend:
            axes.legend(
                handles=_legend(self),
                loc="upper left",
                bbox_to_anchor=(0.0, 0.0),
                ncols=max(int(wide / 140.0), 1),
                columnspacing=1.2,
                handlelength=2.2,
            )
        figure_of(axes).draw_without_rendering()
        # the elements around the map determine its size
        MapDrawing(axes, self).draw(branches, buses)

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
            shades = ScalarMappable(Normalize(0.0, FULL), LOADING)
            return Colours(value, shades, "Branch loading (% of limit)", "max", LOADINGS)
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
    if grid.flows is not None and (grid.flows.loading_percent >= FULL).any():
        entries.append(_line("at its limit", "#D55E00", linewidth=3.0))
    if "generator" in grid.buses:
        entries += [_dot("with generator", "white", marker="s"), _dot("without", "white")]
    if (most := float(grid.shed_mw.max(initial=0.0))) >= SMALLEST_MW:
        text = f"load shedding, area by MW (most: {number_text(most)})"
        entries.append(_dot(text, SHED, alpha=0.45, markersize=12.0))
    return entries


def _dot(label: str, colour: str, **look: Any) -> Line2D:
    plain: Look = {"linestyle": "", "marker": "o", "markersize": 7.0, "markeredgewidth": 0.7}
    edge: Look = {"color": colour, "markeredgecolor": "#111111"}
    return Line2D([], [], label=label, **plain | edge | look)


def _line(label: str, colour: str, **look: Any) -> Line2D:
    return Line2D([], [], color=colour, label=label, **look)

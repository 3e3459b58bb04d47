"""Drawing of a map: places of buses, halos of zones, branches, rings of load shedding, names."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb, to_rgba
from scipy.spatial import KDTree

from gridpriv.core.arrays import Floats, Ints
from gridpriv.core.text import figure
from gridpriv.report.figures import Look, page_size

ZONES = ("#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#0072B2", "#999999")
PLAIN, PALE = "#8C8C8C", "#C4C4C4"
SHED, DARK = "#CC3311", "#7A1F0A"
SMALLEST_MW = 1e-3
MOST_NAMED = 40
"""Zones from which on their names would cover one another."""
MOST_LABELS = 8
"""Buses whose load shedding is written on the map."""
PATCH = {"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "boxstyle": "round,pad=0.1"}
"""Behind a label; a path effect would turn its text into outlines."""
NUMBER: Look = {"ha": "center", "va": "center_baseline", "zorder": 3.0}
LABEL: Look = {
    "ha": "center",
    "va": "center",
    "weight": "bold",
    "zorder": 4.0,
    "bbox": PATCH,
}
VECTOR = 1500
"""Buses from which on lines and markers are pixels in a vector file."""


@dataclass(frozen=True, eq=False)
class Colours:
    """Values shown as colours, and their colour bar."""

    value: Floats
    shades: ScalarMappable
    label: str
    extend: Literal["neither", "max"] = "neither"


class MappedGrid(Protocol):
    """Data of a map (:class:`gridpriv.report.network.GridMap`)."""

    @property
    def buses(self) -> pd.DataFrame: ...  # noqa: D102

    @property
    def branches(self) -> pd.DataFrame: ...  # noqa: D102

    @property
    def zones(self) -> list[str]: ...  # noqa: D102

    @property
    def zone_of(self) -> Ints: ...  # noqa: D102

    @property
    def ends(self) -> Ints: ...  # noqa: D102

    @property
    def shed_mw(self) -> Floats: ...  # noqa: D102

    @property
    def values(self) -> Mapping[int, float] | None: ...  # noqa: D102


class MapDrawing:
    """Draws a map on axes, in points of the page.

    Attributes
    ----------
    place : (n, 2) array
        Of every bus.
    radius : float
        Of a bus's marker.
    look : dict
        Of what is pixels in a vector file where there are many buses.
    """

    def __init__(self, axes: Axes, grid: MappedGrid) -> None:
        self.axes, self.grid = axes, grid
        self.place, self.radius = _places(axes, grid.buses[["x", "y"]].to_numpy(dtype=float))
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
        self.axes.update_datalim([self.place.min(axis=0) - edge, self.place.max(axis=0) + edge])
        self.axes.margins(0.0)
        self.axes.autoscale_view()

    def _draw_halos(self) -> None:
        """Draw each zone's buses and branches, wide and pale."""
        ends, zone, wide = self.grid.ends, self.grid.zone_of, 2.0 * (self.radius + 5.0)
        inside = zone[ends[:, 0]] == zone[ends[:, 1]]
        look: Look = self.look | {"zorder": 0.5}
        for z in range(len(self.grid.zones)):
            pale = tuple(1.0 - 0.26 * (1.0 - part) for part in to_rgb(ZONES[z % len(ZONES)]))
            lines = list(self.place[ends[inside & (zone[ends[:, 0]] == z)]])
            self.axes.add_collection(
                LineCollection(lines, colors=[pale], linewidths=wide, capstyle="round", **look)
            )
            self.axes.scatter(
                self.place[zone == z, 0],
                self.place[zone == z, 1],
                s=wide**2,
                color=[pale],
                linewidths=0,
                **look,
            )

    def _draw_branches(self, colours: Colours | None) -> None:
        """Draw the branches, parallel ones side by side, tie lines dashed."""
        lines = _side_by_side(self.place[self.grid.ends], self.grid.ends, self.radius)
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
        look: Look = {
            "edgecolors": "#111111",
            "linewidths": 0.6 if self.radius > 3 else 0.2,
        } | self.look
        for which, marker, area in ((~square, "o", 4.0), (square, "s", 3.2)):
            self.axes.scatter(
                self.place[which, 0],
                self.place[which, 1],
                marker=marker,
                color=faces[which],
                s=area * self.radius**2,
                gid=f"buses {marker}",
                **look,
            )
        names = [str(bus) for bus in buses.bus.astype(int)]
        size = min(9.0, 2.9 * self.radius / (max(map(len, names)) + 0.6))
        for at, name, face in zip(self.place, names, faces, strict=True) if size >= 3.2 else ():
            ink = "white" if np.dot(face[:3], (0.3, 0.6, 0.1)) < 0.45 else "black"
            self.axes.text(at[0], at[1], name, size=size, color=ink, **NUMBER)

    def _draw_shed(self) -> list[Floats]:
        """Draw rings of area proportional to load shedding (MW); return their labels' places."""
        value, radius = self.grid.shed_mw, self.radius
        most, labelled = float(value.max(initial=0.0)), list[Floats]()
        if most < SMALLEST_MW:
            return labelled
        # many rings together cover a twelfth of the map at most
        wide, tall = np.ptp(self.place, axis=0)
        area = (wide + 4 * radius) * (tall + 4 * radius) / 12.0 * most / value.sum()
        most_area = max((0.04 * wide) ** 2 * math.pi, 16.0 * radius**2)
        area = min(max(area, 5.0 * radius**2), most_area)
        size = (2.0 * radius) ** 2 + 4.0 / math.pi * area * value / most  # squares of diameters
        rings = value >= SMALLEST_MW
        look: Look = {"color": SHED, "alpha": 0.45, "edgecolors": DARK, "linewidths": 1.0}
        x, y = self.place[rings].T
        self.axes.scatter(x, y, s=size[rings], zorder=0.8, gid="shed", **look)
        for k in np.argsort(-value, kind="stable")[:MOST_LABELS]:
            text, out = f"{figure(value[k], 3)} MW", math.sqrt(size[k]) / 2.0 + 7.0
            half = np.array([2.7 * len(text), 5.0])
            for side in ((0, out), (0, -out), (out + half[0], 0), (-out - half[0], 0)):
                at = self.place[k] + side
                covers = (np.abs(self.place - at) < half + radius * np.array([1, 1])).all(axis=1)
                other = np.abs(np.reshape(labelled, (-1, 2)) - at) < 2.0 * half
                if value[k] > 0.02 * most and not (covers.any() or other.all(axis=1).any()):
                    labelled.append(at)
                    self.axes.text(at[0], at[1], text, size=9, color=DARK, **LABEL)
                    break
        return labelled

    def _draw_zone_names(self, labelled: list[Floats]) -> None:
        """Write each zone's name near its buses where there is room."""
        place, ends, zone = self.place, self.grid.ends, self.grid.zone_of
        size = 12.0 if len(self.grid.zones) <= 12 else 9.0
        spots, clear = _spots(place, ends)
        nearest = KDTree(place).query(spots)[0]
        for z, name in enumerate(self.grid.zones):
            mine = place[zone == z]
            own = KDTree(mine).query(spots)[0]
            score = np.minimum(clear, 20.0) - 3.0 * (own > nearest + 1.0)
            score -= 0.3 * np.maximum(own - 30.0, 0.0)
            score -= 0.04 * np.linalg.norm(spots - mine.mean(axis=0), axis=1)
            for at in labelled:
                score -= 100.0 * (np.linalg.norm(spots - at, axis=1) < 4 * size)
            x, y = spots[int(np.argmax(np.round(score, 3)))]
            labelled.append(np.array([x, y]))
            self.axes.text(x, y, f"zone {name}", size=size, color="#333333", **LABEL)


def _places(ax: Axes, xy: Floats) -> tuple[Floats, float]:
    """Return the buses' places and their markers' radius in points of the page."""
    place = xy - xy.min(axis=0)
    room = np.array(ax.get_position().size) * np.array(page_size(ax)) * 0.95
    place = place * float(np.min(room / np.maximum(np.ptp(place, axis=0), 1e-9)))
    most, least = max(0.0135 * room[0], 7.5), 0.0028 * room[0]
    if len(place) < 2:
        return place, most
    nearest = KDTree(place).query(place, k=2)[0][:, 1]
    radius = float(np.clip(0.45 * np.quantile(nearest, 0.25), least, most))
    if len(place) * radius**2 < 0.1 * room[0] * room[1]:  # there is room for all
        place = apart(place, 2.3 * radius)
    return place, radius


def _spots(place: Floats, ends: Ints) -> tuple[Floats, Floats]:
    """Return places for names, and how far each is from buses and branches."""
    sides = [np.linspace(*v, 40) for v in zip(place.min(axis=0), place.max(axis=0), strict=True)]
    spots = np.stack(np.meshgrid(*sides), axis=-1).reshape(-1, 2)
    along = np.linspace(0.0, 1.0, 12)[:, None, None]
    lines = place[ends[:, 0]] * (1 - along) + place[ends[:, 1]] * along
    flat = np.array([0.45, 1.0])  # a name is wider than tall
    clear = KDTree(np.vstack([place, lines.reshape(-1, 2)]) * flat).query(spots * flat)[0]
    return spots, np.asarray(clear)


def apart(place: Floats, least: float) -> Floats:
    """Return places with those nearer than ``least`` pushed apart, each by as much."""
    turn = 2.4 * np.arange(len(place))  # two buses of one place part in a direction of their own
    moved = place + 0.01 * np.stack([np.cos(turn), np.sin(turn)], axis=1)
    for _ in range(60):
        pairs = KDTree(moved).query_pairs(least * 0.999, output_type="ndarray")
        if len(pairs) == 0:
            break
        gap = moved[pairs[:, 0]] - moved[pairs[:, 1]]
        long = np.maximum(np.linalg.norm(gap, axis=1), 1e-9)
        push = (0.3 * (least - long) / long)[:, None] * gap
        for sign, end in ((1.0, pairs[:, 0]), (-1.0, pairs[:, 1])):
            np.add.at(moved, end, sign * push)
    return moved


def _side_by_side(lines: Floats, ends: Ints, radius: float) -> Floats:
    """Return lines (m, 2, 2), those between the same two buses moved apart."""
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

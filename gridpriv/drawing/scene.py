"""A grid placed on the page: buses clear of one another, zones named where there is room."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.spatial import KDTree

from gridpriv.core.arrays import Bools, Floats, Ints
from gridpriv.drawing.parts import ZONE_COLOURS, Label

EDGE, HEADER = 26.0, 40.0
ROOM = 0.1
"""Share of the page that squares of all marks' radii may take; more cannot all stand apart."""
MOST_NAMED = 40
"""Zones from which on names would stand on one another, far from what they name."""


@dataclass(frozen=True, eq=False)
class Scene:
    """A grid placed on the page.

    Attributes
    ----------
    buses : DataFrame
        ``bus``, ``zone`` and, where known, ``generator``.
    place : (n, 2) float
        In points.
    zone : (n,) int
        Index into ``zones``.
    ends : (m, 2) int
        Branch ends as rows of ``buses``.
    tie : (m,) bool
    radius : float
        Of a bus's mark.
    """

    buses: pd.DataFrame
    place: Floats
    zones: list[str]
    zone: Ints
    ends: Ints
    tie: Bools
    radius: float

    def at(self, bus: int) -> tuple[float, float]:
        """Return where a bus stands."""
        return float(self.place[bus, 0]), float(self.place[bus, 1])

    def colour(self, zone: int) -> str:
        """Return a zone's colour; they repeat after seven."""
        return ZONE_COLOURS[zone % len(ZONE_COLOURS)]


def place_grid(buses: pd.DataFrame, branches: pd.DataFrame, width: float) -> tuple[Scene, float]:
    """Return the grid on a page of ``width`` points, and how far down it reaches."""
    xy = buses[["x", "y"]].to_numpy(dtype=float) * np.array([1.0, -1.0])
    span = np.maximum(np.ptp(xy, axis=0), 1e-9)
    inner = width - 2 * EDGE
    scale = min(inner / span[0], 0.68 * inner / span[1])
    tall = max(scale * span[1], 0.2 * inner)
    middle = np.array([width / 2.0, HEADER + EDGE + tall / 2.0])
    place = (xy - xy.min(axis=0) - span / 2.0) * scale + middle
    zones = sorted(set(buses.zone.astype(str)), key=lambda z: (len(z), z))
    radius = _radius(place, width)
    if len(place) * radius**2 < ROOM * inner * tall:
        place = _apart(place, 2.3 * radius)
    number = {zone: z for z, zone in enumerate(zones)}
    row = {int(b): k for k, b in enumerate(buses.bus)}
    ends = np.array(
        [[row[int(f)], row[int(t)]] for f, t in zip(branches["from"], branches["to"], strict=True)],
        dtype=np.int64,
    ).reshape(-1, 2)
    return Scene(
        buses=buses, place=place, zones=zones,
        zone=np.array([number[str(z)] for z in buses.zone], dtype=np.int64),
        ends=ends, tie=branches["tie"].to_numpy(dtype=bool), radius=radius,
    ), HEADER + 2 * EDGE + tall  # fmt: skip


def _radius(place: Floats, width: float) -> float:
    """Return the marks' radius: as large as leaves most buses clear of the next."""
    most, least = 0.0125 * width, 0.0028 * width
    if len(place) < 2:
        return most
    nearest = KDTree(place).query(place, k=2)[0][:, 1]
    return float(np.clip(0.45 * np.quantile(nearest, 0.25), least, most))


def _apart(place: Floats, least: float) -> Floats:
    """Return the places with buses nearer than ``least`` pushed apart, each by little."""
    turn = 2.4 * np.arange(len(place))  # two buses of one place part in a direction of their own
    moved = place + 0.01 * np.stack([np.cos(turn), np.sin(turn)], axis=1)
    for _ in range(60):
        pairs = KDTree(moved).query_pairs(least * 0.999, output_type="ndarray")
        if len(pairs) == 0:
            break
        gap = moved[pairs[:, 0]] - moved[pairs[:, 1]]
        long = np.maximum(np.linalg.norm(gap, axis=1), 1e-9)
        push = (0.3 * (least - long) / long)[:, None] * gap
        for k in range(2):
            pushed = (np.bincount(end, push[:, k], len(moved)) for end in pairs.T)
            moved[:, k] += next(pushed) - next(pushed)
    return moved


def zone_names(scene: Scene, width: float, others: list[Label]) -> list[Label]:
    """Return each zone's name where there is room near its buses and beside other labels.

    Of very many zones none has a name.
    """
    if not 1 < len(scene.zones) <= MOST_NAMED:
        return []
    size = 13.0 if len(scene.zones) <= 12 else 10.0
    spots = _free_spots(scene, width)
    parts: list[Label] = []
    taken: list[Floats] = [np.array(label.at) for label in others]
    for z, name in enumerate(scene.zones):
        mine = scene.place[scene.zone == z]
        from_own = np.linalg.norm(spots[:, None, :2] - mine[None], axis=2).min(axis=1)
        centre = np.linalg.norm(spots[:, :2] - mine.mean(axis=0), axis=1)
        score = np.minimum(spots[:, 2], 22.0) - 0.04 * centre - 3.0 * (from_own > spots[:, 3] + 1)
        score -= 0.3 * np.maximum(from_own - 30.0, 0.0)
        for other in taken:
            score -= 100.0 * (np.linalg.norm(spots[:, :2] - other, axis=1) < 4 * size)
        best = spots[int(np.argmax(np.round(score, 3))), :2]
        taken.append(best)
        at = (float(best[0]), float(best[1]) + 0.35 * size)
        parts.append(Label(at, f"zone {name}", size, "#333333", bold=True, halo=True))
    return parts


def _free_spots(scene: Scene, width: float) -> Floats:
    """Return points of the map with their distance to the next thing and to the next bus."""
    low, high = scene.place.min(axis=0), scene.place.max(axis=0)
    low = np.array([max(low[0], 36.0), low[1]])
    high = np.array([min(high[0], width - 36.0), high[1]])
    grid = np.stack(
        np.meshgrid(*(np.linspace(a, b, 40) for a, b in zip(low, high, strict=True))), axis=-1
    ).reshape(-1, 2)
    along = np.linspace(0.0, 1.0, 12)[:, None, None]
    lines = scene.place[scene.ends[:, 0]] * (1 - along) + scene.place[scene.ends[:, 1]] * along
    things = np.concatenate([scene.place, lines.reshape(-1, 2)])
    # a name is wider than tall: sideways distance counts half
    flat = np.array([0.5, 1.0])
    clear = KDTree(things * flat).query(grid * flat)[0]
    return np.column_stack([grid, clear, KDTree(scene.place).query(grid)[0]])

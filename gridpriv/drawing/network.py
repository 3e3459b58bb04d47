"""A grid in one picture: zones, tie lines, what is not served, and how loaded each branch is."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pandas as pd

from gridpriv.core.display import counted, figure
from gridpriv.drawing.legend import AT_LIMIT, Classes, branch_classes, make_legend
from gridpriv.drawing.parts import (
    PLAIN_LINE,
    TIE_LINE,
    Drawing,
    Label,
    Mark,
    Part,
    Stroke,
    shade,
    tint,
)
from gridpriv.drawing.scene import Scene, place_grid, zone_names
from gridpriv.drawing.shed import shed_labels, shed_marks, shed_scale


def draw_network(
    title: str,
    buses: pd.DataFrame,
    branches: pd.DataFrame,
    *,
    shed: dict[int, float] | None = None,
    flows: pd.DataFrame | None = None,
    shades: dict[int, float] | None = None,
    note: str = "",
    width: float = 720.0,
) -> Drawing:
    """Return the picture of a grid.

    Parameters
    ----------
    buses : DataFrame
        ``bus``, ``zone``, ``x``, ``y`` (y up) and optionally ``generator``.
    branches : DataFrame
        ``from``, ``to`` (bus numbers) and ``tie``.
    shed : dict of int to float, optional
        MW that are not served, by bus number.
    flows : DataFrame, optional
        Row by row as ``branches``: ``mva`` and ``loading_percent`` (NaN: no limit).
    shades : dict of int to float, optional
        Share of the prior's error by bus number, shown in place of zones' colours.
    note : str
        A second line under the title.
    width : float
        Points.
    """
    scene, bottom = place_grid(buses, branches, width)
    classes = branch_classes(flows)
    scale = shed_scale(shed, scene.radius, width)
    legend, height = make_legend(scene, classes, scale, bottom, width, shaded=shades is not None)
    figures = shed_labels(scene, shed, scale) if shed and scale else []
    size = min(12.5, (width - 16.0) / (0.66 * max(len(title), 1)))  # a title ends on the page
    parts = [
        *_halos(scene),
        *(shed_marks(scene, shed, scale) if shed and scale else []),
        *_branches(scene, flows, classes),
        *_bus_marks(scene, shed, shades),
        *zone_names(scene, width, figures),
        *figures,
        Label((8.0, 16.0), title, size, anchor="start", bold=True),
        Label((8.0, 31.0), note, 9.0, "#555555", anchor="start"),
        *legend,
    ]
    return Drawing(title, _described(title, scene, shed, flows), width, height, tuple(parts))


def _halos(scene: Scene) -> list[Part]:
    """Return each zone's ground: its branches and buses, wide and pale."""
    parts: list[Part] = []
    inside = scene.zone[scene.ends[:, 0]] == scene.zone[scene.ends[:, 1]]
    wide = scene.radius + 5.0
    for z in range(len(scene.zones)):
        pale = tint(scene.colour(z), 0.74)
        mine = scene.ends[inside & (scene.zone[scene.ends[:, 0]] == z)]
        parts += [Stroke(scene.at(i), scene.at(j), pale, 2 * wide) for i, j in mine.tolist()]
        parts += [
            Mark(scene.at(i), wide, pale, edge_width=0.0)
            for i in np.flatnonzero(scene.zone == z).tolist()
        ]
    return parts


def _branches(scene: Scene, flows: pd.DataFrame | None, classes: Classes | None) -> list[Part]:
    """Return the branches, parallel ones side by side, tie lines dashed, the loaded ones last."""
    drawn: list[tuple[float, Stroke]] = []
    for branch, (start, end) in enumerate(_side_by_side(scene)):
        tie = bool(scene.tie[branch])
        width, colour = (1.8, TIE_LINE) if tie else (1.1, PLAIN_LINE)
        if classes is not None:
            width, colour = classes.look(branch)
            width = max(width, 1.4) if tie else width
        tip = _branch_tip(scene, branch, flows)
        drawn.append((width + tie, Stroke(start, end, colour, width, tie, tip)))
    return [stroke for _, stroke in sorted(drawn, key=lambda pair: pair[0])]


def _side_by_side(scene: Scene) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """Return the ends of every branch on the page; parallel ones stand apart."""
    pairs = [tuple(sorted(pair)) for pair in scene.ends.tolist()]
    count = Counter(pairs)
    seen: dict[tuple[int, ...], int] = {}
    found = []
    for pair in pairs:
        a, b = scene.place[pair[0]], scene.place[pair[1]]
        along = b - a
        across = np.array([-along[1], along[0]]) / max(float(np.hypot(*along)), 1e-9)
        gap = min(3.4, max(2.4 * scene.radius / count[pair], 1.8))
        shift = gap * (seen.get(pair, 0) - (count[pair] - 1) / 2.0) * across
        seen[pair] = seen.get(pair, 0) + 1
        a, b = a + shift, b + shift
        found.append(((float(a[0]), float(a[1])), (float(b[0]), float(b[1]))))
    return found


def _branch_tip(scene: Scene, branch: int, flows: pd.DataFrame | None) -> str:
    names = scene.buses.bus.to_numpy()
    f, t = scene.ends[branch]
    text = f"{'tie line' if scene.tie[branch] else 'branch'} {names[f]} to {names[t]}"
    if flows is None:
        return text
    row = flows.iloc[branch]
    text += f": {figure(float(row.mva))} MVA"
    limited = np.isfinite(row.loading_percent)
    return f"{text}, {figure(float(row.loading_percent), 3)} % of its limit" if limited else text


def _bus_marks(
    scene: Scene, shed: dict[int, float] | None, shades: dict[int, float] | None
) -> list[Part]:
    """Return the buses, squares where a generator stands, with their numbers where they fit."""
    parts: list[Part] = []
    generator = scene.buses.get("generator", pd.Series(False, index=scene.buses.index))
    digits = max(len(str(bus)) for bus in scene.buses.bus)
    size = min(9.0, 2.9 * scene.radius / (digits + 0.6))
    for k, (bus, square) in enumerate(zip(scene.buses.bus, generator, strict=True)):
        tip = f"bus {bus}, zone {scene.zones[scene.zone[k]]}"
        if shed is not None:
            tip += f": {figure(shed.get(int(bus), 0.0))} MW not served"
        fill, at = scene.colour(int(scene.zone[k])), scene.at(k)
        if shades is not None:
            share = shades.get(int(bus), math.nan)
            fill, tip = shade(share), f"{tip}: {figure(share)} of the prior's error"
        radius = scene.radius * (0.9 if square else 1.0)
        edge = 1.1 if square else 0.6
        parts.append(Mark(at, radius, fill, "#111111", edge, bool(square), tip=tip))
        if size >= 3.6:
            dark = fill == "#0072B2" or sum(int(fill[c : c + 2], 16) for c in (1, 3, 5)) < 330
            ink = "#FFFFFF" if dark else "#000000"
            parts.append(Label((at[0], at[1] + 0.36 * size), str(bus), size, ink))
    return parts


def _described(
    title: str, scene: Scene, shed: dict[int, float] | None, flows: pd.DataFrame | None
) -> str:
    """Return the picture in words."""
    text = (
        f"{title}: {counted(len(scene.buses), 'bus')} in {counted(len(scene.zones), 'zone')}, "
        f"{counted(len(scene.ends), 'branch')}, {int(np.sum(scene.tie))} of them tie lines "
        "(dashed)."
    )
    if shed:
        text += f" {figure(sum(max(v, 0.0) for v in shed.values()))} MW are not served"
        worst = max(shed, key=lambda bus: shed[bus])
        text += f", most at bus {worst}, {figure(shed[worst])} MW." if shed[worst] > 0 else "."
    if flows is not None:
        loading = flows["loading_percent"].to_numpy(dtype=float)
        if np.isfinite(loading).any():
            text += f" At their limit: {counted(int((loading >= AT_LIMIT).sum()), 'branch')}."
    return text

"""Maps of a grid as SVG: buses coloured by zone, or sized and shaded by what they shed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape

import numpy as np
import pandas as pd

from gridpriv.report.charts import slug
from gridpriv.report.figures import PALETTE
from gridpriv.report.tables import figure

SIZE, EDGE, HEADER = 460, 22, 30
# single-hue scale from the palette's vermilion, light to dark: reads in grey
SHADES = ("#FBEDE4", "#F6C9AE", "#EC9F73", "#D55E00", "#8A3D00")


@dataclass(frozen=True)
class Map:
    """A drawn map."""

    name: str
    title: str
    svg: str
    legend: tuple[tuple[str, str], ...]


def zone_map(title: str, buses: pd.DataFrame, branches: pd.DataFrame) -> Map:
    """Return the map of a grid's zones: colour and number of the zone on every bus."""
    place = _places(buses)
    zones = list(dict.fromkeys(sorted(buses.zone, key=lambda z: (len(str(z)), str(z)))))
    colour = {zone: PALETTE[k % len(PALETTE)] for k, zone in enumerate(zones)}
    r = _radius(len(buses))
    dots = []
    for bus, zone in zip(buses.bus, buses.zone, strict=True):
        x, y = place[int(bus)]
        dots.append(
            f'<g class="bus" data-tip="bus {bus}, zone {escape(str(zone))}"><circle cx="{x:.1f}" '
            f'cy="{y:.1f}" r="{r:.1f}" fill="{colour[zone]}" stroke="#222" stroke-width="0.6"/>'
            f"{_label(zone, x, y, r)}</g>"
        )
    ties = int(branches.tie.sum())
    alt = f"{title}: {len(buses)} buses in {len(zones)} zones, {ties} tie lines (dashed)."
    counts = buses.zone.value_counts()
    legend = tuple((colour[z], f"zone {z}: {counts[z]} buses") for z in zones[:12])
    return Map(
        slug(title), title, _svg(title, alt, _lines(branches, place) + "".join(dots)), legend
    )


def shed_map(
    title: str, buses: pd.DataFrame, branches: pd.DataFrame, shed: dict[int, float]
) -> Map:
    """Return the map of shed per bus (MW): darker and larger is more."""
    place = _places(buses)
    most = max([*shed.values(), 0.0])
    edges = [most * share for share in (0.02, 0.1, 0.3, 0.6)]
    base = _radius(len(buses))
    dots = []
    for bus, zone in zip(buses.bus, buses.zone, strict=True):
        x, y = place[int(bus)]
        value = max(shed.get(int(bus), 0.0), 0.0)
        level = int(np.searchsorted(edges, value)) if most > 0 else 0
        dots.append(
            f'<g class="bus" data-tip="bus {bus}, zone {escape(str(zone))}: {figure(value)} MW">'
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{base * (0.6 + 0.25 * level):.1f}" '
            f'fill="{SHADES[level]}" stroke="#222" stroke-width="0.6"/></g>'
        )
    worst = max(shed, key=lambda b: shed[b]) if shed and most > 0 else None
    alt = f"{title}. In all {figure(sum(max(v, 0.0) for v in shed.values()))} MW"
    alt += f"; most at bus {worst}, {figure(most)} MW." if worst is not None else "."
    bounds = [0.0, *edges, most]
    legend = tuple(
        (SHADES[k], f"{figure(bounds[k], 2)} to {figure(bounds[k + 1], 2)} MW") for k in range(5)
    ) if most > 0 else ((SHADES[0], "0 MW"),)  # fmt: skip
    return Map(
        slug(title), title, _svg(title, alt, _lines(branches, place) + "".join(dots)), legend
    )


def _places(buses: pd.DataFrame) -> dict[int, tuple[float, float]]:
    """Return a pixel position per bus, the layout stretched over the map."""
    spots = buses[["x", "y"]].to_numpy(dtype=float)
    low, span = spots.min(axis=0), np.maximum(np.ptp(spots, axis=0), 1e-9)
    inner = (spots - low) / span * (SIZE - 2 * EDGE) + EDGE
    return {
        int(b): (float(x), float(y) * 0.8 + HEADER)
        for b, (x, y) in zip(buses.bus, inner, strict=True)
    }


def _lines(branches: pd.DataFrame, place: dict[int, tuple[float, float]]) -> str:
    drawn = []
    ordered = branches.sort_values("tie")  # ties last, above the others
    for f, t, tie in zip(ordered["from"], ordered["to"], ordered["tie"], strict=True):
        (x1, y1), (x2, y2) = place[int(f)], place[int(t)]
        look = 'stroke="#000" stroke-width="1.6" stroke-dasharray="5 3"' if tie else 'stroke="#aaa"'
        drawn.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {look}/>')
    return "".join(drawn)


def _label(zone: object, x: float, y: float, r: float) -> str:
    if r < 5:
        return ""
    return (
        f'<text x="{x:.1f}" y="{y + 3:.1f}" text-anchor="middle" font-size="8" '
        f'fill="#000">{escape(str(zone)[:3])}</text>'
    )


def _radius(n: int) -> float:
    return max(2.0, min(9.0, 75.0 / math.sqrt(n)))


def _svg(title: str, alt: str, inside: str) -> str:
    name = slug(title)
    height = int((SIZE - 2 * EDGE) * 0.8 + 2 * EDGE + HEADER)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="map" id="{name}" role="img" '
        f'aria-labelledby="{name}-t {name}-d" viewBox="0 0 {SIZE} {height}" '
        f'font-family="DejaVu Sans, Arial, sans-serif" font-size="11">'
        f'<title id="{name}-t">{escape(title)}</title><desc id="{name}-d">{escape(alt)}</desc>'
        f'<text x="8" y="14" font-size="12" font-weight="bold" fill="#222">{escape(title)}</text>'
        f"{inside}</svg>"
    )

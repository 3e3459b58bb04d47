"""What a drawing is made of: strokes, marks and labels in points, x to the right and y down.

Colours are Okabe and Ito's; loading is told by grey and width, shed by area, so that every figure
also reads without colour.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

ZONE_COLOURS = (
    "#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#0072B2", "#999999",
)  # fmt: skip
PLAIN_LINE, TIE_LINE, LIMIT_LINE = "#8C8C8C", "#000000", "#D55E00"
CIVIDIS = ("#00224E", "#434E6C", "#7D7C78", "#BCAF6F", "#FEE838")
SHED_FILL, SHED_EDGE = "#CC3311", "#7A1F0A"


@dataclass(frozen=True)
class Stroke:
    """A straight line; a blunt one ends where its ends are."""

    start: tuple[float, float]
    end: tuple[float, float]
    colour: str
    width: float
    dashed: bool = False
    tip: str = ""
    blunt: bool = False


@dataclass(frozen=True)
class Mark:
    """A circle or square; ``tip`` is what a reader of the page sees when pointing at it."""

    at: tuple[float, float]
    radius: float
    fill: str
    edge: str = "#222222"
    edge_width: float = 0.6
    square: bool = False
    opacity: float = 1.0
    tip: str = ""


@dataclass(frozen=True)
class Label:
    """A text, upright, its baseline at ``at``; ``halo`` sets it off from what lies below."""

    at: tuple[float, float]
    text: str
    size: float
    colour: str = "#222222"
    anchor: str = "middle"
    bold: bool = False
    halo: bool = False


Part = Stroke | Mark | Label


@dataclass(frozen=True)
class Drawing:
    """A picture, ``width`` by ``height`` points, and what it shows in words (``alt``)."""

    title: str
    alt: str
    width: float
    height: float
    parts: tuple[Part, ...]


def text_width(text: str, size: float) -> float:
    """Return about how wide a text is, in points."""
    return 0.56 * size * len(text)


def shade(share: float) -> str:
    """Return a colour from dark (0) to bright (1) that also reads in grey; white for NaN."""
    if math.isnan(share):
        return "#FFFFFF"
    at = min(max(share, 0.0), 1.0) * (len(CIVIDIS) - 1)
    low = min(int(at), len(CIVIDIS) - 2)
    ends = [[int(CIVIDIS[low + k][c : c + 2], 16) for c in (1, 3, 5)] for k in (0, 1)]
    mixed = (round(a + (b - a) * (at - low)) for a, b in zip(*ends, strict=True))
    return "#" + "".join(f"{part:02X}" for part in mixed)


def tint(colour: str, white: float) -> str:
    """Return a colour mixed with a share of white."""
    parts = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
    return "#" + "".join(f"{round(part + (255 - part) * white):02X}" for part in parts)

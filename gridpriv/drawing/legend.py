"""The legend below a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gridpriv.core.display import counted
from gridpriv.drawing.classes import Classes
from gridpriv.drawing.parts import (
    PLAIN_LINE,
    TIE_LINE,
    Label,
    Mark,
    Part,
    Stroke,
    shade,
    text_width,
)
from gridpriv.drawing.scene import Scene
from gridpriv.drawing.shed import ShedScale


@dataclass(frozen=True)
class Item:
    """An entry of the legend: a sample, drawn around the origin, and its words."""

    sample: tuple[Part, ...]
    text: str
    wide: float = 26.0


def make_legend(
    scene: Scene,
    classes: Classes | None,
    scale: ShedScale | None,
    top: float,
    width: float,
    *,
    shaded: bool = False,
) -> tuple[list[Part], float]:
    """Return the legend below the map, and the height of the whole drawing."""
    rows: list[tuple[str, list[Item]]] = []
    if shaded:
        samples = (0.0, 0.25, 0.5, 0.75, 1.0)
        marks = [Item((Mark((0, 0), 6.0, shade(v)),), f"{v:g}", 18.0) for v in samples]
        rows.append(("Error over the prior's", marks))
    elif len(scene.zones) <= 14:
        count = np.bincount(scene.zone, minlength=len(scene.zones))
        sizes = [f"zone {z}: {counted(n, 'bus')}" for z, n in zip(scene.zones, count, strict=True)]
        rows.append(("Zones", [
            Item((Mark((0, 0), 6.0, scene.colour(z)),), size, 18.0) for z, size in enumerate(sizes)
        ]))  # fmt: skip
    else:
        rows.append((f"{len(scene.zones)} zones, named on the map", []))
    ties = int(np.sum(scene.tie))
    lines = [Item((Stroke((-12, 0), (12, 0), TIE_LINE, 1.8, True),), f"tie line ({ties})")]
    if classes is None:
        lines.append(Item((Stroke((-12, 0), (12, 0), PLAIN_LINE, 1.1),), "branch within a zone"))
    if "generator" in scene.buses:
        lines += [
            Item((Mark((0, 0), 5.0, "#FFFFFF", "#111111", 1.1, True),), "with generator", 18.0),
            Item((Mark((0, 0), 5.5, "#FFFFFF"),), "without", 18.0),
        ]
    rows.append(("", lines))
    if classes is not None:
        rows.append((classes.heading, [
            Item((Stroke((-12, 0), (12, 0), colour, wide),), text)
            for wide, colour, text in classes.legend()
        ]))  # fmt: skip
    if scale is not None:
        rows.append(("Not served, MW", [
            Item(scale.sample(value), f"{value:g}", 2 * scale.radius(value) + 6)
            for value in scale.samples()
        ]))  # fmt: skip
    return set_rows(rows, top, width)


def set_rows(
    rows: Sequence[tuple[str, list[Item]]], top: float, width: float
) -> tuple[list[Part], float]:
    """Return the rows' parts, each from left to right and wrapped, and where they end."""
    parts: list[Part] = []
    y = top + 6.0
    for heading, items in rows:
        tall = max([15.0, *(2 * p.radius + 4 for i in items for p in i.sample
                            if isinstance(p, Mark))])  # fmt: skip
        y += tall / 2.0
        x = 12.0
        if heading:
            parts.append(Label((x, y + 3.2), heading, 9.0, anchor="start", bold=True))
            x += text_width(heading, 9.5) + 12.0
        indent = min(x, 60.0)
        for item in items:
            need = item.wide + text_width(item.text, 9.0) + 20.0
            if x + need > width and x > indent:
                x, y = indent, y + tall
            parts += [_shifted(part, x + item.wide / 2.0, y) for part in item.sample]
            parts.append(Label((x + item.wide + 3.0, y + 3.2), item.text, 9.0, anchor="start"))
            x += need
        y += tall / 2.0 + 2.0
    return parts, y + 6.0


def _shifted(part: Part, dx: float, dy: float) -> Part:
    if isinstance(part, Stroke):
        (x1, y1), (x2, y2) = part.start, part.end
        return replace(part, start=(x1 + dx, y1 + dy), end=(x2 + dx, y2 + dy))
    return replace(part, at=(part.at[0] + dx, part.at[1] + dy))

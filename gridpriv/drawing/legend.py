"""How branches are told apart by what they carry, and the legend below a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from gridpriv.core.arrays import Floats
from gridpriv.core.display import counted
from gridpriv.drawing.parts import (
    LIMIT_LINE,
    PLAIN_LINE,
    TIE_LINE,
    Label,
    Mark,
    Part,
    Stroke,
    shade,
    text_width,
)
from gridpriv.drawing.scene import MOST_NAMED, Scene
from gridpriv.drawing.shed import ShedScale

LOADED = ((0.9, "#B8B8B8"), (1.5, "#909090"), (2.2, "#5E5E5E"), (3.0, "#1E1E1E"))
AT_LIMIT = 99.5
"""Percent from which on a branch is drawn as being at its limit."""


@dataclass(frozen=True)
class Classes:
    """How branches are told apart: by upper bounds of a figure, drawn ever darker and wider."""

    heading: str
    figures: Floats
    bounds: tuple[float, ...]
    limited: bool

    def look(self, branch: int) -> tuple[float, str]:
        """Return width and colour of a branch."""
        value = self.figures[branch]
        if not np.isfinite(value):
            return LOADED[0][0], LOADED[0][1]
        if self.limited and value >= AT_LIMIT:
            return 3.6, LIMIT_LINE
        return LOADED[int(np.searchsorted(self.bounds, value, side="left"))]

    def legend(self) -> list[tuple[float, str, str]]:
        """Return width, colour and words of every class."""
        edges = [0.0, *self.bounds]
        told = [(*LOADED[k], f"{edges[k]:g} to {edges[k + 1]:g}") for k in range(3)]
        if not self.limited:
            return [*told, (*LOADED[3], f"above {edges[3]:g}")]
        told += [(*LOADED[3], f"75 to {AT_LIMIT:g}"), (3.6, LIMIT_LINE, "at the limit")]
        return told


def branch_classes(flows: pd.DataFrame | None) -> Classes | None:
    """Return classes of loading, or of MVA where no branch has a limit."""
    if flows is None or flows.empty:
        return None
    loading = flows["loading_percent"].to_numpy(dtype=float)
    if np.isfinite(loading).any():
        missing = int((~np.isfinite(loading)).sum())
        heading = "Branch loading, % of limit"
        if missing:
            heading += f" ({missing} without a limit: thinnest)"
        return Classes(heading, loading, (25.0, 50.0, 75.0), limited=True)
    mva = flows["mva"].to_numpy(dtype=float)
    most = max(float(np.nanmax(mva)), 1e-9) if np.isfinite(mva).any() else 1.0
    bounds = tuple(float(f"{most * share:.2g}") for share in (0.15, 0.35, 0.65))
    return Classes("Branch flow, MVA (no limits given)", mva, bounds, limited=False)


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
        marks = [_dot(Mark((0, 0), 6.0, shade(v)), f"{v:g}") for v in samples]
        rows.append(("Error over the prior's", marks))
    elif len(scene.zones) <= 14:
        count = np.bincount(scene.zone, minlength=len(scene.zones))
        sizes = [f"zone {z}: {counted(n, 'bus')}" for z, n in zip(scene.zones, count, strict=True)]
        marks = [_dot(Mark((0, 0), 6.0, scene.colour(z)), size) for z, size in enumerate(sizes)]
        rows.append(("Zones", marks))
    else:
        named = "named on the map" if len(scene.zones) <= MOST_NAMED else "too many to name here"
        rows.append((f"{len(scene.zones)} zones, {named}", []))
    ties = int(np.sum(scene.tie))
    lines = [_line(1.8, TIE_LINE, f"tie line ({ties})", dashed=True)]
    if classes is None:
        lines.append(_line(1.1, PLAIN_LINE, "branch within a zone"))
    if "generator" in scene.buses:
        square = Mark((0, 0), 5.0, "#FFFFFF", "#111111", 1.1, True)
        lines += [_dot(square, "with generator"), _dot(Mark((0, 0), 5.5, "#FFFFFF"), "without")]
    rows.append(("", lines))
    if classes is not None:
        rows.append((classes.heading, [_line(*look) for look in classes.legend()]))
    if scale is not None:
        rows.append(("Not served, MW", [
            Item(scale.sample(value), f"{value:g}", 2 * scale.radius(value) + 6)
            for value in scale.samples()
        ]))  # fmt: skip
    return set_rows(rows, top, width)


def _dot(mark: Mark, text: str) -> Item:
    return Item((mark,), text, 18.0)


def _line(width: float, colour: str, text: str, *, dashed: bool = False) -> Item:
    return Item((Stroke((-12, 0), (12, 0), colour, width, dashed),), text)


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

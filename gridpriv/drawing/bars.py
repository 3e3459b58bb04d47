"""Figures by name, as bars one under the other: what audits and attacks found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gridpriv.core.display import figure
from gridpriv.drawing.axis import Axis
from gridpriv.drawing.chart import PALETTE
from gridpriv.drawing.legend import Item, set_rows
from gridpriv.drawing.parts import Drawing, Label, Mark, Part, Stroke, text_width

WIDTH, TOP, ROW = 600.0, 34.0, 30.0
INK = "#111111"


@dataclass(frozen=True)
class Bar:
    """A bar with its interval's half width, a point and a level on its axis, and a note."""

    name: str
    value: float
    half: float = 0.0
    point: float = math.nan
    level: float = math.nan
    note: str = ""
    colour: str = PALETTE[0]


def key(words: str, *, bar: bool = False, point: bool = False, level: bool = False) -> Item:
    """Return the legend's entry of a bar, a point or a level."""
    sample: list[Part] = [Stroke((-10, 0), (10, 0), PALETTE[0], 7.0, blunt=True)] if bar else []
    sample += [Mark((0, 0), 4.5, PALETTE[1])] if point else []
    sample += [Stroke((0, -7), (0, 7), INK, 3.0, blunt=True)] if level else []
    return Item(tuple(sample), words)


def draw_bars(
    title: str, x_label: str, bars: Sequence[Bar], keys: Sequence[Item] = (), line: float = math.nan
) -> Drawing:
    """Return bars over one axis from 0, with a dashed line where all are to be held against."""
    left = 18.0 + max(text_width(bar.name, 9.0) for bar in bars)
    ends = [v for bar in bars for v in (bar.value + bar.half, bar.point, bar.level)]
    most = max((v for v in ends if math.isfinite(v)), default=0.0) or 1.0
    axis = Axis(0.0, 1.05 * most, left, WIDTH - 14.0, log=False)
    bottom = TOP + ROW * len(bars)
    parts: list[Part] = [Label((8.0, 16.0), title, 12.0, anchor="start", bold=True)]
    for tick in axis.ticks(fewest=3):
        parts.append(Stroke((axis.at(tick), TOP), (axis.at(tick), bottom), "#DDDDDD", 0.8))
        parts.append(Label((axis.at(tick), bottom + 12.0), f"{tick:g}", 9.0))
    for k, bar in enumerate(bars):
        parts += _bar(bar, axis, TOP + ROW * (k + 0.62))
    if math.isfinite(line):
        parts.append(Stroke((axis.at(line), TOP), (axis.at(line), bottom), INK, 1.0, dashed=True))
    parts.append(Label(((left + WIDTH) / 2.0, bottom + 27.0), x_label, 9.0))
    below, height = set_rows([("", list(keys))] if keys else [], bottom + 30.0, WIDTH)
    told = "; ".join(f"{bar.name}: {figure(bar.value)} {bar.note}".rstrip() for bar in bars)
    return Drawing(title, f"{title}. {x_label}: {told}.", WIDTH, height, (*parts, *below))


def _bar(bar: Bar, axis: Axis, y: float) -> list[Part]:
    left, end = axis.start, axis.at(bar.value)
    parts: list[Part] = [Label((left - 6.0, y + 3.0), bar.name, 9.0, anchor="end")]
    if end > left:
        parts.append(Stroke((left, y), (end, y), bar.colour, 9.0, blunt=True))
    if bar.half > 0:
        low, high = (axis.at(bar.value + sign * bar.half) for sign in (-1, 1))
        parts += [Stroke(*ends, INK, 1.0, blunt=True) for ends in (
            ((low, y), (high, y)), ((low, y - 3), (low, y + 3)), ((high, y - 3), (high, y + 3))
        )]  # fmt: skip
    if math.isfinite(bar.point):
        parts.append(Mark((axis.at(bar.point), y), 4.5, PALETTE[1]))
    if math.isfinite(bar.level):
        at = axis.at(bar.level)
        parts.append(Stroke((at, y - 8.0), (at, y + 8.0), INK, 3.0, blunt=True))
    if bar.note:
        parts.append(Label((left + 3.0, y - 7.0), bar.note, 7.5, anchor="start"))
    return parts

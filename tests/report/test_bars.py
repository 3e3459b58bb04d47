"""Bars of audits and attacks: lengths, intervals and marks stand at their values."""

from __future__ import annotations

import math

import pytest

from gridpriv.drawing.bars import Bar, draw_bars
from gridpriv.drawing.parts import Mark, Stroke, shade

BARS = (
    Bar("message", 0.5, half=0.1, point=1.0, level=math.inf),
    Bar("values", 2.0, level=1.5, note="violation"),
    Bar("nothing", 0.0),
)


def test_a_bar_is_as_long_as_its_value() -> None:
    drawing = draw_bars("t", "epsilon", BARS, line=1.0)
    strokes = [part for part in drawing.parts if isinstance(part, Stroke)]
    bars = [part for part in strokes if part.width == 9.0]
    start = bars[0].start[0]
    unit = (bars[1].end[0] - start) / 2.0
    assert [(b.end[0] - b.start[0]) / unit for b in bars] == pytest.approx([0.5, 2.0])
    (line,) = (part for part in strokes if part.dashed)
    assert (line.start[0] - start) / unit == pytest.approx(1.0)
    (level,) = (part for part in strokes if part.width == 3.0)  # an infinite one has no place
    assert (level.start[0] - start) / unit == pytest.approx(1.5)
    (point,) = (part for part in drawing.parts if isinstance(part, Mark))
    assert (point.at[0] - start) / unit == pytest.approx(1.0)
    across = [s for s in strokes if s.width == 1.0 and s.start[1] == s.end[1]]
    ends = [(x - start) / unit for s in across for x in (s.start[0], s.end[0])]
    assert ends == pytest.approx([0.4, 0.6])
    assert drawing.alt == "t. epsilon: message: 0.500; values: 2.00 violation; nothing: 0."


def test_shades_grow_brighter_and_what_is_unknown_is_white() -> None:
    def light(colour: str) -> int:
        return sum(int(colour[k : k + 2], 16) for k in (1, 3, 5))

    shades = [light(shade(k / 20.0)) for k in range(21)]
    assert shades == sorted(shades)
    assert (shade(-1.0), shade(2.0)) == (shade(0.0), shade(1.0))
    assert shade(math.nan) == "#FFFFFF"

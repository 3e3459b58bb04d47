"""What is not served, as discs of area proportional to MW."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gridpriv.report.drawing.parts import SHED_EDGE, SHED_FILL, Label, Mark, text_width
from gridpriv.report.drawing.scene import Scene
from gridpriv.report.tables import figure

SMALLEST_MW = 1e-3
LABELLED = 6


@dataclass(frozen=True)
class ShedScale:
    """Radius (points) of the disc of the largest shed (MW)."""

    most: float
    largest: float

    def radius(self, value: float) -> float:
        """Return the radius of a disc."""
        return float(self.largest * np.sqrt(max(value, 0.0) / self.most))

    def disc(self, value: float, at: tuple[float, float] = (0.0, 0.0)) -> Mark:
        """Return a bus's disc."""
        return Mark(at, self.radius(value), SHED_FILL, SHED_EDGE, 1.2, opacity=0.45)

    def samples(self) -> list[float]:
        """Return round values for a legend."""
        shares = (float(f"{self.most * share:.1g}") for share in (1.0, 0.4, 0.1))
        return list(dict.fromkeys(shares))


def shed_scale(shed: Mapping[int, float] | None, radius: float, width: float) -> ShedScale | None:
    """Return the scale of what is shed by bus (MW), or None where nothing is."""
    most = max([*(shed or {}).values(), 0.0])
    return ShedScale(most, max(2.2 * radius, 0.033 * width)) if most >= SMALLEST_MW else None


def shed_marks(scene: Scene, shed: Mapping[int, float], scale: ShedScale) -> list[Mark]:
    """Return a disc at every bus that sheds."""
    return [
        scale.disc(value, scene.at(k))
        for k, bus in enumerate(scene.buses.bus)
        if (value := shed.get(int(bus), 0.0)) >= SMALLEST_MW
    ]


def shed_labels(scene: Scene, shed: Mapping[int, float], scale: ShedScale) -> list[Label]:
    """Return the figures of the buses that shed most, as far as they do not cover one another."""
    row = {int(b): k for k, b in enumerate(scene.buses.bus)}
    worst = sorted((b for b in shed if b in row and shed[b] > 0.02 * scale.most),
                   key=lambda b: -shed[b])  # fmt: skip
    labels: list[Label] = []
    for bus in worst[:LABELLED]:
        x, y = scene.at(row[bus])
        up = max(scale.radius(shed[bus]), scene.radius) + 4.0
        text = f"{figure(shed[bus], 3)} MW"
        wide = text_width(text, 9.0)
        near = [o for o in labels if abs(o.at[0] - x) < wide and abs(o.at[1] - (y - up)) < 11.0]
        if not near:
            labels.append(Label((x, y - up), text, 9.0, SHED_EDGE, bold=True, halo=True))
    return labels

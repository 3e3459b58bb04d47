"""What is not served, as rings around buses, of area proportional to MW."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gridpriv.core.display import figure
from gridpriv.drawing.parts import SHED_EDGE, SHED_FILL, Label, Mark, text_width
from gridpriv.drawing.scene import Scene

SMALLEST_MW = 1e-3
LABELLED = 8


@dataclass(frozen=True)
class ShedScale:
    """Outer radius (points) of the ring of the largest shed (MW); a bus's mark is its hole."""

    most: float
    hole: float
    largest: float

    def radius(self, value: float) -> float:
        """Return the outer radius of a ring."""
        share = min(max(value, 0.0) / self.most, 1.5)
        return float(np.sqrt(self.hole**2 + (self.largest**2 - self.hole**2) * share))

    def ring(self, value: float, at: tuple[float, float] = (0.0, 0.0)) -> Mark:
        """Return a bus's ring: a disc, on which its mark will lie."""
        return Mark(at, self.radius(value), SHED_FILL, SHED_EDGE, 1.0, opacity=0.45)

    def sample(self, value: float) -> tuple[Mark, ...]:
        """Return a ring as a legend shows it."""
        return self.ring(value), Mark((0.0, 0.0), self.hole, "#FFFFFF")

    def samples(self) -> list[float]:
        """Return round values for a legend."""
        shares = (float(f"{self.most * share:.1g}") for share in (1.0, 0.4, 0.1))
        return list(dict.fromkeys(shares))


def shed_scale(shed: Mapping[int, float] | None, radius: float, width: float) -> ShedScale | None:
    """Return the scale of what is shed by bus (MW), or None where nothing is."""
    values = np.maximum(list((shed or {0: 0.0}).values()), 0.0)
    most = float(values.max())
    if most < SMALLEST_MW:
        return None
    # many rings together may cover a twelfth of the map
    crowded = np.sqrt(radius**2 + 0.5 * width**2 / 12.0 / np.pi * most / float(values.sum()))
    largest = min(max(2.2 * radius, 0.033 * width), max(float(crowded), 1.5 * radius))
    return ShedScale(most, radius, largest)


def shed_marks(scene: Scene, shed: Mapping[int, float], scale: ShedScale) -> list[Mark]:
    """Return a ring at every bus that sheds."""
    return [
        scale.ring(value, scene.at(k))
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
        text = f"{figure(shed[bus], 3)} MW"
        out, wide = scale.radius(shed[bus]) + 4.0, text_width(text, 9.0)
        beside = out + wide / 2.0
        for at in ((x, y - out), (x, y + out + 6.0), (x + beside, y + 3.0), (x - beside, y + 3.0)):
            if _clear(at, wide, scene, labels):
                labels.append(Label(at, text, 9.0, SHED_EDGE, bold=True, halo=True))
                break
    return labels


def _clear(at: tuple[float, float], wide: float, scene: Scene, labels: list[Label]) -> bool:
    """Return whether a label there, ``wide`` points, covers no bus and no other label."""
    gap = np.abs(scene.place - np.array([at[0], at[1] - 3.0]))
    covers = (gap[:, 0] < wide / 2.0 + scene.radius) & (gap[:, 1] < 4.0 + scene.radius)
    clash = (abs(o.at[0] - at[0]) < wide and abs(o.at[1] - at[1]) < 11.0 for o in labels)
    return not covers.any() and not any(clash)

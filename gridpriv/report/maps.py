"""Maps of a grid for a report: its zones, and what its buses shed."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from gridpriv.core.display import figure
from gridpriv.core.text import slug
from gridpriv.drawing import draw_network, to_svg

WIDTH = 540.0
"""Points: two maps stand side by side, so their text is larger than in a file of its own."""


@dataclass(frozen=True)
class Map:
    """A drawn map."""

    name: str
    svg: str


def zone_map(title: str, buses: pd.DataFrame, branches: pd.DataFrame) -> Map:
    """Return the map of a grid's zones."""
    return Map(slug(title), to_svg(draw_network(title, buses, branches, width=WIDTH)))


def shed_map(
    title: str,
    buses: pd.DataFrame,
    branches: pd.DataFrame,
    shed: dict[int, float],
    flows: pd.DataFrame | None = None,
) -> Map:
    """Return the map of shed per bus (MW) and, where given, of branch loading."""
    total = sum(max(value, 0.0) for value in shed.values())
    drawing = draw_network(
        title, buses, branches, shed=shed, flows=flows, note=f"{figure(total)} MW not served",
        width=WIDTH,
    )  # fmt: skip
    return Map(slug(title), to_svg(drawing))

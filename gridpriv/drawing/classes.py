"""How branches are told apart by what they carry."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from gridpriv.core.arrays import Floats
from gridpriv.drawing.parts import LIMIT_LINE

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

"""``result.plot``: a run's own pictures, by the engine that draws its folder and its report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gridpriv.drawing import Drawing, to_svg, write_drawing
from gridpriv.report.figures import convergence_figure
from gridpriv.report.pictures import run_picture, zones_picture
from gridpriv.zonal.summary import noise

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gridpriv.zonal.result import RunResult


@dataclass(frozen=True, eq=False)
class Picture:
    """A map that a notebook shows; ``save`` writes it as .png, .svg or .pdf."""

    drawing: Drawing

    def _repr_svg_(self) -> str:
        return to_svg(self.drawing)

    def __repr__(self) -> str:
        return f"Picture({self.drawing.title!r})"

    def save(self, path: str | Path) -> Path:
        """Write the picture for its owner to read; the ending of ``path`` says the format."""
        return write_drawing(self.drawing, path, private=True)


@dataclass(frozen=True, eq=False)
class RunPlots:
    """Pictures of a run; only that of the zones is public."""

    result: RunResult

    def convergence(self) -> Figure:
        """Return residual, objective and shed against rounds."""
        settings = self.result.settings
        title = f"{self.result.case.name}: {settings.update}, {noise(settings.as_dict())}"
        return convergence_figure(self.result.rounds, title)

    def zones(self) -> Picture:
        """Return the zones and their tie lines (public)."""
        return Picture(zones_picture(self.result.case, self.result.zoning))

    def network(self) -> Picture:
        """Return loading of branches and demand not served."""
        return Picture(run_picture(self.result))

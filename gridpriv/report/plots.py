"""``result.plot``: a run's own pictures, by the engine that draws its folder and its report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gridpriv.drawing import Drawing, to_svg, write_picture
from gridpriv.report.charts import convergence_picture
from gridpriv.report.pictures import run_picture, zones_picture
from gridpriv.zonal.summary import noise

if TYPE_CHECKING:
    from gridpriv.zonal.result import RunResult


@dataclass(frozen=True, eq=False)
class Picture:
    """A picture that a notebook shows; ``save`` writes it as .png, .svg or .pdf."""

    title: str
    svg: str

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"Picture({self.title!r})"

    def save(self, path: str | Path) -> Path:
        """Write the picture for its owner to read; the ending of ``path`` says the format."""
        return write_picture(self.svg, path, private=True, title=self.title)


@dataclass(frozen=True, eq=False)
class RunPlots:
    """Pictures of a run; only that of the zones is public."""

    result: RunResult

    def convergence(self) -> Picture:
        """Return residual, cost, imbalance and shed against rounds."""
        settings = self.result.settings
        title = f"{self.result.case.name}: {settings.update}, {noise(settings.as_dict())}"
        return Picture(title, convergence_picture(self.result.rounds, title))

    def zones(self) -> Picture:
        """Return the zones and their tie lines (public)."""
        return _picture(zones_picture(self.result.case, self.result.zoning))

    def network(self) -> Picture:
        """Return loading of branches and demand not served."""
        return _picture(run_picture(self.result))


def _picture(drawing: Drawing) -> Picture:
    return Picture(drawing.title, to_svg(drawing))

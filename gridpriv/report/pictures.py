"""Pictures of a case's zones and of a run's result; ``result.plot`` is made of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from gridpriv.core.display import counted, figure
from gridpriv.core.stored import Study
from gridpriv.drawing import Drawing, draw_network, to_svg, write_picture
from gridpriv.grid.case import Case
from gridpriv.grid.layout import network_tables
from gridpriv.grid.zoning import Zoning
from gridpriv.report.charts import convergence_picture
from gridpriv.zonal.summary import noise
from gridpriv.zonal.tables import result_tables

if TYPE_CHECKING:
    from gridpriv.zonal.result import RunResult


def zones_picture(case: Case, zoning: Zoning) -> Drawing:
    """Return the picture of a case's zones and tie lines (public)."""
    sizes = {"bus": case.n_bus, "branch": case.n_branch, "generator": case.n_gen}
    note = ", ".join(counted(number, noun) for noun, number in sizes.items())
    note += "; the source's coordinates" if case.xy is not None else "; laid out by distance"
    title = f"{case.name}: zones ({zoning.source})"
    return draw_network(title, *network_tables(case, zoning), note=note)


def run_picture(result: RunResult) -> Drawing:
    """Return the picture of what a run's zones would dispatch: shed and loading (local)."""
    tables = result_tables(result.solution)
    flows = loading_of(tables["res_line"])
    shed = tables["res_shed"]["p_mw"].to_dict()
    network = network_tables(result.case, result.zoning)
    return loading_picture(result.case.name, network, shed, flows)


def loading_picture(
    name: str,
    network: tuple[pd.DataFrame, ...],
    shed: dict[int, float],
    flows: pd.DataFrame | None,
) -> Drawing:
    """Return the picture of shed per bus (MW) and loading per branch (local)."""
    missing = sum(max(value, 0.0) for value in shed.values())
    note = f"{figure(missing)} MW not served. Computed from private demand: not for publication"
    buses, branches = network
    title = f"{name}: loading and load not served"
    return draw_network(title, buses, branches, shed=shed, flows=flows, note=note)


def flows_of(study: Study) -> pd.DataFrame | None:
    """Return MVA and loading of every branch of a single run, where its folder has them."""
    lines = study.tables.get("res_line", pd.DataFrame())
    return None if lines.empty or "step" in lines else loading_of(lines)


def loading_of(lines: pd.DataFrame) -> pd.DataFrame:
    """Return per branch the larger end's ``mva``, and ``loading_percent`` (NaN: no limit)."""
    ends = [np.hypot(lines[f"p_{end}_mw"], lines[f"q_{end}_mvar"]) for end in ("from", "to")]
    mva = np.maximum(*ends).to_numpy()
    percent = lines["loading_percent"].to_numpy(dtype=float)
    return pd.DataFrame({"mva": mva, "loading_percent": percent})


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

"""Pictures of a case's zones and of a run's result."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from gridpriv.core.display import figure
from gridpriv.drawing import Drawing, draw_network
from gridpriv.grid.case import Case
from gridpriv.grid.layout import network_tables
from gridpriv.grid.zoning import Zoning

if TYPE_CHECKING:
    from gridpriv.zonal.result import RunResult
    from gridpriv.zonal.solution import GridSolution


def zones_picture(case: Case, zoning: Zoning) -> Drawing:
    """Return the picture of a case's zones and tie lines (public)."""
    note = f"{case.n_bus} buses, {case.n_branch} branches, {case.n_gen} generators"
    note += "; the source's coordinates" if case.xy is not None else "; laid out by distance"
    title = f"{case.name}: zones ({zoning.source})"
    return draw_network(title, *network_tables(case, zoning), note=note)


def run_picture(result: RunResult) -> Drawing:
    """Return the picture of what a run's zones would dispatch: shed and loading (local)."""
    solution = result.solution
    shed = shed_by_bus(solution)
    asked = solution.case.base_mva * float(solution.case.pd.sum())
    missing = sum(max(value, 0.0) for value in shed.values())
    note = (
        f"{solution.source}: {figure(missing)} of {figure(asked)} MW not served. Computed from "
        "private demand: not for publication"
    )
    return draw_network(
        f"{result.case.name}: loading and load not served",
        *network_tables(result.case, result.zoning),
        shed=shed,
        flows=branch_loading(solution),
        note=note,
    )


def shed_by_bus(solution: GridSolution) -> dict[int, float]:
    """Return what every bus lacks in MW (negative: surplus)."""
    values = solution.case.base_mva * solution.p_shed
    return dict(zip(solution.case.bus_id.tolist(), values.tolist(), strict=True))


def branch_loading(solution: GridSolution) -> pd.DataFrame:
    """Return per branch the larger end's ``mva``, and ``loading_percent`` (NaN: no limit)."""
    case = solution.case
    mva = case.base_mva * np.maximum(np.abs(solution.s_from), np.abs(solution.s_to))
    limit = np.where(case.rate > 0, case.base_mva * case.rate, np.nan)
    return pd.DataFrame({"mva": mva, "loading_percent": 100.0 * mva / limit})

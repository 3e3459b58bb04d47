"""The grids of a study: cases and zone maps, loaded once, and what figures need of them."""

from __future__ import annotations

from typing import NamedTuple

from gridpriv.core.document import Json
from gridpriv.core.stored import NETWORK_TABLES, Rows
from gridpriv.grid.case import Case
from gridpriv.grid.library import load_case
from gridpriv.grid.zoning import Zoning, tie_lines, zone_map
from gridpriv.study.plan import StudyPlan
from gridpriv.zonal.given import zoning_for


class ZonedCase(NamedTuple):
    """A case under one zone map."""

    case: Case
    zoning: Zoning


Grids = dict[tuple[str, str], ZonedCase]
"""By the plan's labels of case and zoning."""


def load_grids(plan: StudyPlan) -> Grids:
    """Return the grid of every case and zoning of a plan; raises before anything runs."""
    cases = {label: load_case(label) for label in plan.cases}
    return {
        (label, zoning): ZonedCase(case, zoning_for(case, zoning or None))
        for label, case in cases.items()
        for zoning in plan.zonings
    }


def describe(grids: Grids) -> list[Json]:
    """Return identity, size and zone map of each grid for the manifest."""
    return [
        {
            "case": case,
            "zoning": zoning,
            "name": grid.case.name,
            "fingerprint": grid.case.fingerprint,
            "buses": grid.case.n_bus,
            "branches": grid.case.n_branch,
            "load_mw": grid.case.base_mva * float(grid.case.pd.sum()),
            "zones": grid.zoning.n_zone,
            "tie_lines": int(tie_lines(grid.case, grid.zoning).sum()),
            "rated_branches": int((grid.case.rate > 0.0).sum()),
            "base_mva": grid.case.base_mva,
            "source": grid.zoning.source,
            "map": zone_map(grid.case, grid.zoning),
        }
        for (case, zoning), grid in grids.items()
    ]


def network_rows(grids: Grids) -> Rows:
    """Return positions of buses, and branches, of every grid (public)."""
    from gridpriv.grid.layout import network_tables  # imports networkx: slow

    entries: Rows = {}
    for (case, zoning), grid in grids.items():
        tables = network_tables(grid.case, grid.zoning)
        for name, table in zip(NETWORK_TABLES, tables, strict=True):
            rows = table.assign(case=case, zoning=zoning).to_dict("records")
            entries.setdefault(name, []).extend(rows)
    return entries

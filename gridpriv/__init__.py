"""Differentially private distributed control of power grids.

>>> import gridpriv
>>> case = gridpriv.load_case("case14")
>>> zones = gridpriv.partition(case, 2, "louvain")
>>> settings = gridpriv.Settings(mechanism="none", solver="clarabel", rounds=15)
>>> result = gridpriv.run(case, zones, settings)
>>> bool(result.rounds.consensus_residual.iloc[-1] < 1e-2)
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridpriv.core.lazy import lazily

if TYPE_CHECKING:
    from gridpriv.core.errors import BudgetError, GridprivError, InputError, SolverError
    from gridpriv.grid.case import Case
    from gridpriv.grid.library import load_case, read_report, shipped_zoning
    from gridpriv.grid.overrides import override_demand, read_demand_series
    from gridpriv.grid.pandapower import case_from_pandapower
    from gridpriv.grid.partition import partition
    from gridpriv.grid.pypower import case_from_pypower
    from gridpriv.grid.zoning import Zoning, read_zoning, write_zoning, zone_report
    from gridpriv.power.ac.optimum import acopf
    from gridpriv.study import Study, compare
    from gridpriv.zonal.horizon import run_series
    from gridpriv.zonal.result import RunResult
    from gridpriv.zonal.run import run
    from gridpriv.zonal.settings import Settings, make_settings

_HOME = {
    "BudgetError": "core.errors",
    "GridprivError": "core.errors",
    "InputError": "core.errors",
    "SolverError": "core.errors",
    "Case": "grid.case",
    "load_case": "grid.library",
    "shipped_zoning": "grid.library",
    "partition": "grid.partition",
    "Zoning": "grid.zoning",
    "read_zoning": "grid.zoning",
    "write_zoning": "grid.zoning",
    "zone_report": "grid.zoning",
    "RunResult": "zonal.result",
    "acopf": "power.ac.optimum",
    "run": "zonal.run",
    "run_series": "zonal.horizon",
    "case_from_pandapower": "grid.pandapower",
    "case_from_pypower": "grid.pypower",
    "read_report": "grid.library",
    "override_demand": "grid.overrides",
    "read_demand_series": "grid.overrides",
    "compare": "study",
    "Study": "study",
    "Settings": "zonal.settings",
    "make_settings": "zonal.settings",
}

__all__ = [
    "BudgetError",
    "Case",
    "GridprivError",
    "InputError",
    "RunResult",
    "Settings",
    "SolverError",
    "Study",
    "Zoning",
    "acopf",
    "case_from_pandapower",
    "case_from_pypower",
    "compare",
    "load_case",
    "make_settings",
    "override_demand",
    "partition",
    "read_demand_series",
    "read_report",
    "read_zoning",
    "run",
    "run_series",
    "shipped_zoning",
    "write_zoning",
    "zone_report",
]


__getattr__, __dir__ = lazily(__name__, _HOME)

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

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gridpriv.errors import BudgetError, GridprivError, InputError, SolverError
    from gridpriv.grid.case import Case
    from gridpriv.grid.library import load_case, shipped_zoning
    from gridpriv.grid.partition import partition
    from gridpriv.grid.zoning import Zoning, read_zoning, write_zoning, zone_report
    from gridpriv.result import RunResult
    from gridpriv.run import run
    from gridpriv.settings import Settings, make_settings

_HOME = {
    "BudgetError": "errors",
    "GridprivError": "errors",
    "InputError": "errors",
    "SolverError": "errors",
    "Case": "grid.case",
    "load_case": "grid.library",
    "shipped_zoning": "grid.library",
    "partition": "grid.partition",
    "Zoning": "grid.zoning",
    "read_zoning": "grid.zoning",
    "write_zoning": "grid.zoning",
    "zone_report": "grid.zoning",
    "RunResult": "result",
    "run": "run",
    "Settings": "settings",
    "make_settings": "settings",
}

__all__ = [
    "BudgetError",
    "Case",
    "GridprivError",
    "InputError",
    "RunResult",
    "Settings",
    "SolverError",
    "Zoning",
    "load_case",
    "make_settings",
    "partition",
    "read_zoning",
    "run",
    "shipped_zoning",
    "write_zoning",
    "zone_report",
]


def __getattr__(name: str) -> Any:
    """Import public names on first use, so that ``import gridpriv`` is fast."""
    if name not in _HOME:
        raise AttributeError(f"module 'gridpriv' has no attribute {name!r}")
    value = getattr(import_module(f"gridpriv.{_HOME[name]}"), name)
    globals()[name] = value
    return value

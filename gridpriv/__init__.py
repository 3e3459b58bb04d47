"""Differentially private distributed control of power grids.

>>> import gridpriv
>>> case = gridpriv.load_case("case14")
>>> zones = gridpriv.partition(case, 2, "louvain")
>>> settings = gridpriv.Settings(mechanism="none", solver="clarabel", rounds=15)
>>> result = gridpriv.run(case, zones, settings)
>>> result.consensus_residual < 1e-2
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridpriv.core.lazy import lazily

if TYPE_CHECKING:
    from gridpriv.assurance.attack import attack
    from gridpriv.assurance.audit import AuditPlan, audit
    from gridpriv.assurance.findings import AttackPlan
    from gridpriv.consensus.agent import LocalProblem
    from gridpriv.consensus.transport import Transport
    from gridpriv.core.errors import BudgetError, GridprivError, InputError, SolverError
    from gridpriv.grid.case import Case
    from gridpriv.grid.contingencies import Contingency, contingencies
    from gridpriv.grid.convert import convert
    from gridpriv.grid.library import case_files, load_case, read_report, shipped_zoning
    from gridpriv.grid.overrides import override_demand, read_demand_series
    from gridpriv.grid.pandapower import case_from_pandapower
    from gridpriv.grid.partition import partition
    from gridpriv.grid.powsybl import case_from_powsybl
    from gridpriv.grid.pypower import case_from_pypower
    from gridpriv.grid.zoning import Zoning, read_zoning, write_zoning, zone_report
    from gridpriv.learning import learn, load_dataset, make_learn_settings
    from gridpriv.power.ac.optimum import acopf
    from gridpriv.power.centralized import relax
    from gridpriv.privacy.accounting import total_epsilon
    from gridpriv.privacy.ledger import Ledger, grant, read_book
    from gridpriv.privacy.linear import Strategy
    from gridpriv.privacy.mechanism import Mechanism
    from gridpriv.privacy.release import Release
    from gridpriv.privacy.settings import register_mechanism
    from gridpriv.report.export import export
    from gridpriv.study import Study, compare, make_plan, read_plan, read_study
    from gridpriv.zonal.exchange import exchange
    from gridpriv.zonal.horizon import run_series
    from gridpriv.zonal.prepared import prepare
    from gridpriv.zonal.result import RunResult
    from gridpriv.zonal.run import run
    from gridpriv.zonal.security import security
    from gridpriv.zonal.settings import Settings, make_settings

__all__ = [
    "AttackPlan",
    "AuditPlan",
    "BudgetError",
    "Case",
    "Contingency",
    "GridprivError",
    "InputError",
    "Ledger",
    "LocalProblem",
    "Mechanism",
    "Release",
    "RunResult",
    "Settings",
    "SolverError",
    "Strategy",
    "Study",
    "Transport",
    "Zoning",
    "acopf",
    "attack",
    "audit",
    "case_files",
    "case_from_pandapower",
    "case_from_powsybl",
    "case_from_pypower",
    "compare",
    "contingencies",
    "convert",
    "exchange",
    "export",
    "grant",
    "learn",
    "load_case",
    "load_dataset",
    "make_learn_settings",
    "make_plan",
    "make_settings",
    "override_demand",
    "partition",
    "prepare",
    "read_book",
    "read_demand_series",
    "read_plan",
    "read_report",
    "read_study",
    "read_zoning",
    "register_mechanism",
    "relax",
    "run",
    "run_series",
    "security",
    "shipped_zoning",
    "total_epsilon",
    "write_zoning",
    "zone_report",
]

__getattr__, __dir__ = lazily(__name__)

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
    from gridpriv.assurance.attack import AttackPlan as AttackPlan
    from gridpriv.assurance.attack import attack as attack
    from gridpriv.assurance.audit import AuditPlan as AuditPlan
    from gridpriv.assurance.audit import audit as audit
    from gridpriv.consensus.agent import LocalProblem as LocalProblem
    from gridpriv.consensus.transport import Transport as Transport
    from gridpriv.core.errors import BudgetError as BudgetError
    from gridpriv.core.errors import GridprivError as GridprivError
    from gridpriv.core.errors import InputError as InputError
    from gridpriv.core.errors import SolverError as SolverError
    from gridpriv.grid.case import Case as Case
    from gridpriv.grid.convert import convert as convert
    from gridpriv.grid.library import case_files as case_files
    from gridpriv.grid.library import load_case as load_case
    from gridpriv.grid.library import read_report as read_report
    from gridpriv.grid.library import shipped_zoning as shipped_zoning
    from gridpriv.grid.pandapower import case_from_pandapower as case_from_pandapower
    from gridpriv.grid.partition import partition as partition
    from gridpriv.grid.powsybl import case_from_powsybl as case_from_powsybl
    from gridpriv.grid.pypower import case_from_pypower as case_from_pypower
    from gridpriv.grid.scenarios import Contingency as Contingency
    from gridpriv.grid.scenarios import contingencies as contingencies
    from gridpriv.grid.scenarios import override_demand as override_demand
    from gridpriv.grid.scenarios import read_demand_series as read_demand_series
    from gridpriv.grid.zoning import Zoning as Zoning
    from gridpriv.grid.zoning import read_zoning as read_zoning
    from gridpriv.grid.zoning import write_zoning as write_zoning
    from gridpriv.grid.zoning import zone_report as zone_report
    from gridpriv.learning import learn as learn
    from gridpriv.learning import load_dataset as load_dataset
    from gridpriv.learning import make_learn_settings as make_learn_settings
    from gridpriv.power.ac.optimum import acopf as acopf
    from gridpriv.power.centralized import relax as relax
    from gridpriv.privacy.accounting import total_epsilon as total_epsilon
    from gridpriv.privacy.ledger import Ledger as Ledger
    from gridpriv.privacy.ledger import grant as grant
    from gridpriv.privacy.ledger import read_book as read_book
    from gridpriv.privacy.linear import Strategy as Strategy
    from gridpriv.privacy.mechanism import Mechanism as Mechanism
    from gridpriv.privacy.release import Release as Release
    from gridpriv.privacy.settings import register_mechanism as register_mechanism
    from gridpriv.report.export import export as export
    from gridpriv.study import Study as Study
    from gridpriv.study import compare as compare
    from gridpriv.study import make_plan as make_plan
    from gridpriv.study import read_plan as read_plan
    from gridpriv.study import read_study as read_study
    from gridpriv.zonal.exchange import exchange as exchange
    from gridpriv.zonal.horizon import run_series as run_series
    from gridpriv.zonal.prepared import prepare as prepare
    from gridpriv.zonal.result import RunResult as RunResult
    from gridpriv.zonal.run import run as run
    from gridpriv.zonal.security import security as security
    from gridpriv.zonal.settings import Settings as Settings
    from gridpriv.zonal.settings import make_settings as make_settings

__getattr__, __dir__ = lazily(__name__)

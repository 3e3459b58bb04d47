"""Contingency analysis of a run, on the demand of a view.

The shared view uses the released demand of every zone, on the network without its owner's solved
state. It is a function of releases and public data, so it may be published and costs no epsilon.
The other views use true demand and are local.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gridpriv.core.errors import InputError, SolverError
from gridpriv.core.text import Json
from gridpriv.grid.case import Case, public_network
from gridpriv.grid.scenarios import Contingency, Rating, branch_rating, contingencies
from gridpriv.power.ac.grid_redispatch import joint_dispatch
from gridpriv.power.ac.newton import PowerFlowError
from gridpriv.power.ac.optimum import AcOptimum
from gridpriv.power.ac.state import AcState, Dispatch, Limit
from gridpriv.power.ac.zone_redispatch import operating_unit
from gridpriv.power.corrective import Correction, correct
from gridpriv.power.objective import AcObjective, generation_cost, has_convex_costs
from gridpriv.power.schedule import estimated_optimum
from gridpriv.power.secure import SecureProblem, secure_plan
from gridpriv.power.security import (
    PostContingency,
    PreContingency,
    pre_contingency,
    security_analysis,
    worst_loading,
)
from gridpriv.power.zone import with_demand
from gridpriv.zonal.documents import AfterOutage, CorrectionRow, Prevention, SecurityDocument
from gridpriv.zonal.result import RunAnalysis, RunResult
from gridpriv.zonal.settings import LOCAL, SHARED, ZONE, Security, check_view_of

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class SecurityResult(RunAnalysis):
    """The contingencies of a grid, in descending order of severity.

    Attributes
    ----------
    settings : Security
    before : PreContingency
        The grid before an outage.
    contingencies : tuple of PostContingency
    prevention : Prevention, optional
        The preventive plan of the analysis.
    corrections : mapping, optional
        Corrective redispatch by contingency, for those that are not secure.
    """

    schema = SecurityDocument.table
    settings: Security
    before: PreContingency
    contingencies: tuple[PostContingency, ...]
    prevention: Prevention | None = None
    corrections: Mapping[str, Correction] | None = None

    @property
    def secure(self) -> bool | None:
        """True if no contingency violates a limit or sheds load.

        None if unknown: some contingencies were screened, so their AC state is not known, and no
        other one violates a limit or sheds load.
        """
        state = self.before.state
        sound = not state.violations and state.shed_mw <= state.negligible_mw
        answers = {sound, *(contingency.secure for contingency in self.contingencies)}
        if False in answers:
            return False
        return None if None in answers else True

    @property
    def corrected(self) -> bool | None:
        """True if redispatch leaves no violated limit; None if it was not requested."""
        if self.corrections is None:
            return None
        return all(correction.status == "corrected" for correction in self.corrections.values())

    @property
    def table(self) -> pd.DataFrame:
        """One row per contingency."""
        import pandas as pd

        rows = [
            row
            | {name: " ".join(row[name]) for name in ("outages", "at")}
            | _worst_columns(row["violations"])
            | {"violations": len(row["violations"])}
            | corrective_columns(row["corrective"])
            for row in self._rows()
        ]
        return pd.DataFrame(rows)

    def content(self) -> tuple[Case, Json]:
        """Return the analysed case, and its description."""
        return self.before.case, {
            "rating": self.settings.rating,
            "secure": self.secure,
            "corrected": self.corrected,
            "base": _before(self.before.state),
            "prevention": (self.prevention or NOT_PREVENTIVE).as_dict(),
            "contingencies": self._rows(),
        }

    def _rows(self) -> list[Json]:
        corrections, case = self.corrections or {}, self.before.case
        return [
            {
                "name": item.contingency.name,
                "kind": item.contingency.kind,
                "outages": list(item.contingency.outages),
                "at": list(item.contingency.places(case)),
                **AfterOutage.of(item, violations=_limits(item)).as_dict(),
                "corrective": _correction(corrections.get(item.contingency.name)),
            }
            for item in self.contingencies
        ]


def _limits(state: AcState | PostContingency) -> list[Json]:
    """Return the limits that a state violates."""
    return [limit._asdict() for limit in state.violations]


def worst_limit(violations: list[Json]) -> Limit:
    """Return the violation to name: not marginal, of lines, then of voltages, then the largest."""
    first = ("line", "voltage")
    return min(
        (Limit(**violation) for violation in violations),
        key=lambda v: (v.marginal, first.index(v.kind) if v.kind in first else 2, -v.amount),
    )


def _worst_columns(violations: list[Json]) -> Json:
    """Return element, value and limit of the violation to name."""
    worst = worst_limit(violations)._asdict() if violations else {}
    names = {"kind": "kind", "at": "at", "value": "value", "bound": "limit", "unit": "unit"}
    return {f"worst_{name}": worst.get(key) for key, name in names.items()}


def corrective_columns(corrective: Json | None) -> Json:
    """Return the status of a corrective redispatch, with redispatch and shedding in MW."""
    if corrective is None:
        return {"corrective": ""} | dict.fromkeys(("up_mw", "down_mw", "corrective_shed_mw"))
    redispatched = {
        key: sum(zone[key] for zone in corrective["zones"]) for key in ("up_mw", "down_mw")
    }
    shed = {"corrective_shed_mw": corrective["shed_mw"]}
    return {"corrective": corrective["status"]} | redispatched | shed


NOT_PREVENTIVE = Prevention(
    violations_before=0, outages_before=0, cuts=0, plans=0, rounds=0, not_prevented=()
)


def _correction(result: Correction | None) -> Json | None:
    """Return a corrective redispatch (:class:`gridpriv.zonal.documents.CorrectionRow`)."""
    if result is None:
        return None
    zones = [asdict(zone) for zone in result.zones]
    shown = CorrectionRow.of(result, violations=len(result.violations), zones=zones)
    return shown.as_dict()


def _before(state: AcState) -> Json:
    loading, branch = worst_loading(state.case, state.limited_quantities.flow)
    return {
        "status": "converged",
        "worst_loading_percent": loading,
        "worst_branch": branch,
        "violations": _limits(state),
        "islanded_mw": 0.0,
        "shed_mw": state.shed_mw if state.shed_mw > state.negligible_mw else 0.0,
    }


def security(
    result: RunResult,
    listed: str | Path | Sequence[Contingency] = "all",
    *,
    view: str = SHARED,
    rating: Rating = "C",
    screen: float = 0.0,
    secure: bool = False,
    corrective: bool = False,
    watch: Callable[[PostContingency], object] = lambda _: None,
) -> SecurityResult:
    """Return the contingency analysis of a run.

    Parameters
    ----------
    result : RunResult
    listed : str, path or sequence of Contingency
        ``branches``, ``generators``, ``all``, a CSV file (columns ``name,outage``), or
        contingencies (:func:`gridpriv.contingencies`).
    view : str
        ``shared``: the released demand of all zones, under its AC optimum; public.
        ``local``: the true demand, under the dispatch after AC redispatch.
        ``zone:NAME``: the true demand of one zone and the released demand of the others, under
        the AC optimum of this mixed demand; for that zone only.
    rating : {'A', 'B', 'C'}
        Normal, short-term or emergency rating after an outage.
    screen : float
        Percent of the rating: a contingency whose DC-estimated loading is below it gets no AC
        power flow. Its voltages are not checked, so it is not known to be secure.
    secure : bool
        Use a preventive plan (:mod:`gridpriv.power.secure`) in place of the AC optimum. On released
        demand only. Violations that it cannot prevent are corrected.
    corrective : bool
        Find zones' redispatch after every contingency that is not secure
        (:mod:`gridpriv.power.corrective`).
    watch : callable
        Called after every contingency.

    Raises
    ------
    InputError
        For a view that the run does not have, a wrong contingency, ``secure`` with another view
        or with a screening, or a screening without a rated branch.
    SolverError
        If the demand has no AC optimum, or its dispatch no AC power flow.
    """
    named = str(listed) if isinstance(listed, str | Path) else f"{len(listed)} contingencies"
    settings = Security(contingencies=named, view=view, rating=rating, screen=screen)
    outages = (
        contingencies(result.case, listed) if isinstance(listed, str | Path) else tuple(listed)
    )
    check_screen(settings, result.case)
    began = time.perf_counter()
    prevention = None
    if secure:
        check_secure(settings)
        before, analysed, prevention = _prevented(result, outages, rating, watch)
    else:
        case, dispatch = _redispatched(result) if view == LOCAL else _scheduled(result, view)
        try:
            before = pre_contingency(case, dispatch, rating)
        except PowerFlowError as error:
            raise SolverError(f"before any outage, {error}") from error
        analysed = security_analysis(before, outages, screen, watch)
    corrections = _corrections(result, before, analysed) if corrective or secure else None
    own, seconds = (before, analysed, prevention, corrections), time.perf_counter() - began
    return SecurityResult(settings, *own, result=result, seconds=seconds)


def _corrections(
    result: RunResult, before: PreContingency, analysed: Sequence[PostContingency]
) -> dict[str, Correction]:
    """Return zones' redispatch after every contingency that is not secure."""
    owners = [(zone.name, zone.own) for zone in result.zone_models]
    return {
        item.contingency.name: correct(before, item.contingency, owners, result.settings.voll)
        for item in analysed
        if item.secure is False
    }


def check_screen(settings: Security, case: Case) -> None:
    """Refuse a screening by loading where no branch has a rating to compare with."""
    if settings.screen > 0 and not (branch_rating(case, settings.rating) > 0).any():
        raise InputError(
            f"--screen {settings.screen:g} compares DC loadings with ratings, but no branch of "
            f"{case.name} has one, so no outage could be flagged. Drop --screen or give ratings "
            "(rateA in the case file)."
        )


def check_secure(settings: Security) -> None:
    """Refuse a preventive plan without a common demand to plan on, or without all AC states."""
    if settings.view != SHARED:
        raise InputError(
            f"--secure plans zones on released demand, but --view is {settings.view}. Choose "
            f"--view {SHARED} or drop --secure."
        )
    if settings.screen > 0:
        raise InputError(
            "--secure needs the AC state after every outage, but --screen is "
            f"{settings.screen:g} %. Drop one of them."
        )


def _prevented(
    result: RunResult,
    outages: Sequence[Contingency],
    rating: Rating,
    watch: Callable[[PostContingency], object],
) -> tuple[PreContingency, tuple[PostContingency, ...], Prevention]:
    """Return the preventive plan of the released demand, and the grid after every contingency."""
    case, voll = viewed_case(result), result.settings.voll
    problem = SecureProblem(case, result.zone_models, outages, rating, voll, operating_unit(case))
    first, plan = secure_plan(problem, watch)
    cost_before, cost = (_cost(p.before.state, voll) for p in (first, plan))
    loadings = [item.worst_loading_percent for item in first.contingencies]
    prevention = Prevention.of(
        plan,
        cost_before=cost_before,
        cost=cost,
        violations_before=sum(len(item.violations) for item in first.contingencies),
        outages_before=sum(not item.secure for item in first.contingencies),
        loading_before=max((percent for percent in loadings if percent is not None), default=None),
        not_prevented=tuple(i.contingency.name for i in plan.contingencies if not i.secure),
    )
    return plan.before, plan.contingencies, prevention


def _cost(state: AcState, voll: float) -> float | None:
    """Return the cost of generation and load shedding in $/h; None where the case has no costs."""
    generated = generation_cost(state.case, state.pg)
    return None if generated is None else generated + voll * state.shed_mw


def _redispatched(result: RunResult) -> tuple[Case, Dispatch]:
    """Return the true demand, and the dispatch after AC redispatch; local."""
    redispatch = result.redispatch
    if redispatch is None or redispatch.state is None:
        reason = result.early if redispatch is None else redispatch.failure
        raise SolverError(f"the run has no AC state after redispatch: {reason}")
    planned = joint_dispatch(result.case, result.zone_models, redispatch.plans)
    return result.case, replace(planned, pg=redispatch.state.pg, va=redispatch.state.va)


def viewed_optimum(result: RunResult, case: Case) -> AcOptimum:
    """Return the AC optimum of a view's demand, by the objective of a run.

    Raises
    ------
    SolverError
        If the demand has no AC optimum.
    """
    kind = result.network.objective.kind
    objective: AcObjective = "cost" if has_convex_costs(case) else "losses"
    optimum = estimated_optimum(
        case, objective if kind == "imbalance" else kind, result.settings.voll
    )
    if optimum is None:
        raise SolverError("the demand of this view has no AC optimum, so nothing is scheduled")
    return optimum


def _scheduled(result: RunResult, view: str) -> tuple[Case, Dispatch]:
    """Return a view's demand on the public network, and its AC optimum."""
    case = viewed_case(result, view)
    state = viewed_optimum(result, case).state
    vm = np.where(state.vm > 0, state.vm, 1.0)
    return case, Dispatch(state.pg, vm, state.va, state.p_shed, state.q_shed, state.curtailment)


def viewed_case(result: RunResult, view: str = SHARED) -> Case:
    """Return the public network with the demand of a view.

    Raises
    ------
    InputError
        If the view is of no zone, or a zone has released no demand.
    """
    check_view_of(view, result.zoning.names, result.rules.perturbation.target)
    demands = []
    for zone, outcome in zip(result.zone_models, result.outcomes, strict=True):
        demand = zone.demand if view == f"{ZONE}{zone.name}" else outcome.released
        if demand is None:
            raise InputError(
                f"zone {zone.name} has released no demand: {result.early}"
                "; use a run that releases demand"
            )
        demands.append(demand)
    return with_demand(public_network(result.case), result.zone_models, demands)

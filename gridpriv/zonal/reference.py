"""What a run is held against: the same zones without noise, and the AC optimum of the whole grid.

It looks at all demand at once, so it is for whoever holds all of it: a study, a simulation.
Every figure is local.
"""

from __future__ import annotations

from dataclasses import replace

from gridpriv.core.errors import SolverError
from gridpriv.power.ac.optimum import acopf
from gridpriv.power.objective import has_convex_costs
from gridpriv.power.shortage import SHED_TOLERANCE_MW
from gridpriv.zonal.physical import Reference
from gridpriv.zonal.result import RunResult
from gridpriv.zonal.run import run


def reference(result: RunResult) -> Reference:
    """Return what a run is held against: one more run where it has noise, and AC optima."""
    plain = result if result.settings.mechanism == "none" else _without_noise(result)
    shed = result.physical["shed_mw"] or 0.0
    return Reference(
        without_noise_cost=plain.physical["cost"],
        without_noise_shed_mw=plain.physical["shed_mw"],
        optimum_cost=_optimum_cost(result),
        least_shed_mw=_least_shed_mw(result) if shed > SHED_TOLERANCE_MW else 0.0,
    )


def _without_noise(result: RunResult) -> RunResult:
    """Run the same zones on the same grid without noise."""
    # the result's case has its load scale and outages already
    settings = replace(result.settings, mechanism="none", load_scale=1.0, outage=())
    return run(result.case, result.zoning, settings)


def _optimum_cost(result: RunResult) -> float | None:
    if not has_convex_costs(result.case):
        return None
    try:
        return acopf(result.case, "cost", result.settings.voll).cost
    except SolverError:
        return None


def _least_shed_mw(result: RunResult) -> float | None:
    try:
        return acopf(result.case, "shed").state.shed_mw
    except SolverError:
        return None

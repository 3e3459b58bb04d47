"""What a run is held against: other runs of the same zones, and the AC optimum of the whole grid.

Two runs stand beside every private one: *no noise*, and *nothing released*, where everybody goes
by what is public and epsilon is 0. A budget whose run is worse than the latter is worth nothing.

It looks at all demand at once, so it is for whoever holds all of it: a study, a simulation.
Every figure is local. The run has drawn by then, so whatever has no answer costs a figure and never
the run.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import partial

from gridpriv.consensus.transport import Carry
from gridpriv.core.document import Json
from gridpriv.core.errors import GridprivError, GridprivWarning
from gridpriv.power.ac.optimum import acopf
from gridpriv.power.objective import has_convex_costs
from gridpriv.power.shortage import SHED_TOLERANCE_MW
from gridpriv.zonal.physical import NOTHING, Reference
from gridpriv.zonal.prepared import prepare
from gridpriv.zonal.result import RunResult
from gridpriv.zonal.run import run_prepared
from gridpriv.zonal.settings import NOTHING_RELEASED

NO_NOISE: Json = {"mechanism": "none"}
SILENT: Json = NOTHING_RELEASED | {"noise": "simulated", "seed": 0}


def reference(result: RunResult, scale: float, zones: Carry | None = None) -> Reference:
    """Return what a run is held against: two more runs where it has noise, and AC optima.

    ``scale`` is by how much its demand is a multiple of the owner's, which is public. ``zones``
    carries the run's own zones, kept (:class:`gridpriv.consensus.kept.Kept`); else they are
    compiled anew.
    """
    noisy = result.settings.mechanism != "none"
    settled = partial(_settled, result, scale, zones)
    plain = settled(NO_NOISE) if noisy else result.physical
    silent: Json = settled(SILENT) if noisy else NOTHING
    silent_carried = silent["carried"]
    if result.physical["carried"] and not silent_carried:
        silent = NOTHING  # what the grid cannot carry is no yardstick for what it can
    shed = result.physical["shed_mw"] or 0.0
    return Reference(
        without_noise_cost=plain["cost"],
        without_noise_shed_mw=plain["shed_mw"],
        optimum_cost=_optimum_cost(result),
        least_shed_mw=_least_shed_mw(result) if shed > SHED_TOLERANCE_MW else 0.0,
        nothing_released_cost=silent["cost"],
        nothing_released_shed_mw=silent["shed_mw"],
        without_noise_carried=plain["carried"],
        nothing_released_carried=silent_carried,
    )


def _settled(result: RunResult, scale: float, zones: Carry | None, given: Json) -> Json:
    """Return what the same zones' run on the same grid comes to with other noise settings."""
    # the result's case has its load scale and outages already
    kind = result.network.objective.kind  # a default may depend on the noise
    settings = replace(result.settings, objective=kind, load_scale=1.0, outage=(), **given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GridprivWarning)  # the run has said it
        try:
            prepared = prepare(result.case, result.zoning, settings, scale)
            physical = run_prepared(prepared, transport=zones).physical
        except GridprivError:
            return dict(NOTHING)
    # zones' plans without a power flow say nothing of what is served
    return dict(NOTHING) | {"carried": False} if physical["failure"] else physical


def _optimum_cost(result: RunResult) -> float | None:
    if not has_convex_costs(result.case):
        return None
    try:
        return acopf(result.case, "cost", result.settings.voll).cost
    except GridprivError:
        return None


def _least_shed_mw(result: RunResult) -> float | None:
    try:
        return acopf(result.case, "shed").state.shed_mw
    except GridprivError:
        return None

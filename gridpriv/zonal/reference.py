"""What a run is held against: other runs of the same zones, and the AC optimum of the whole grid.

Two runs stand beside every private one: *no noise*, and *nothing released*, where everybody goes
by what is public and epsilon is 0. A budget whose run is worse than the latter is worth nothing.

It looks at all demand at once, so it is for whoever holds all of it: a study, a simulation.
Every figure is local. The run has drawn by then, so whatever has no answer costs a figure and never
the run.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import partial

from gridpriv.consensus.transport import Carry
from gridpriv.core.document import Json
from gridpriv.core.errors import GridprivError, GridprivWarning
from gridpriv.power.ac.optimum import acopf
from gridpriv.power.objective import has_convex_costs
from gridpriv.power.shortage import SHED_TOLERANCE_MW
from gridpriv.zonal.physical import Reference
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
    noisy, own = result.settings.mechanism != "none", result.physical
    settled = partial(_settled, result, scale, zones)
    plain = settled(NO_NOISE) if noisy else _Beside(own["cost"], own["shed_mw"])
    silent = settled(SILENT) if noisy else _Beside()
    # what the grid cannot carry is no yardstick for what it can
    yardstick = silent if silent.carried or not own["carried"] else _Beside()
    shed = own["shed_mw"] or 0.0
    return Reference(
        without_noise_cost=plain.cost,
        without_noise_shed_mw=plain.shed_mw,
        optimum_cost=_optimum_cost(result),
        least_shed_mw=_least_shed_mw(result) if shed > SHED_TOLERANCE_MW else 0.0,
        nothing_released_cost=yardstick.cost,
        nothing_released_shed_mw=yardstick.shed_mw,
        without_noise_carried=plain.carried,
        nothing_released_carried=silent.carried,
        without_noise_residual=plain.residual,
    )


@dataclass(frozen=True)
class _Beside:
    """What another run of the same zones comes to; None for what it has not."""

    cost: float | None = None
    shed_mw: float | None = None
    carried: bool | None = None
    residual: float | None = None


def _settled(result: RunResult, scale: float, zones: Carry | None, given: Json) -> _Beside:
    """Return what the same zones' run on the same grid comes to with other noise settings."""
    # the result's case has its load scale and outages already
    kind = result.network.objective.kind  # a default may depend on the noise
    settings = replace(result.settings, objective=kind, load_scale=1.0, outage=(), **given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GridprivWarning)  # the run has said it
        try:
            prepared = prepare(result.case, result.zoning, settings, scale)
            found = run_prepared(prepared, transport=zones)
        except GridprivError:
            return _Beside()
    physical, last = found.physical, found.trace.rounds[-1]
    # zones' plans without a power flow say nothing of what is served
    shed_mw = None if physical["failure"] else physical["shed_mw"]
    return _Beside(physical["cost"], shed_mw, physical["carried"], last.consensus_residual)


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

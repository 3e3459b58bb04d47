"""Baselines of a run: other runs of the same zones, and the AC optimum of the whole grid.

Every private run has two baselines: *noise-free*, and *prior-only*, which releases nothing and
plans on the public prior (epsilon = 0). A budget whose run costs more than the latter buys nothing.

It looks at all demand at once, so it is for whoever holds all of it: a study, a simulation.
Every figure is local. The run has drawn by then, so whatever has no answer costs a figure and never
the run.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import partial

from gridpriv.consensus.transport import Connect
from gridpriv.core.errors import GridprivError, GridprivWarning
from gridpriv.core.text import Json
from gridpriv.power.ac.optimum import acopf
from gridpriv.power.objective import has_convex_costs
from gridpriv.zonal.physical import Reference, negligible_mw
from gridpriv.zonal.prepared import prepare
from gridpriv.zonal.result import RunResult
from gridpriv.zonal.run import run_prepared
from gridpriv.zonal.settings import PRIOR_ONLY

NO_NOISE: Json = {"mechanism": "none"}
SILENT: Json = PRIOR_ONLY | {"noise": "simulated", "seed": 0}


def reference(result: RunResult, scale: float, zones: Connect | None = None) -> Reference:
    """Return the baselines of a run: two more runs where it has noise, and AC optima.

    ``scale`` is by how much its demand is a multiple of the owner's, which is public. ``zones``
    holds the run's own zones, compiled (:class:`gridpriv.consensus.transport.ReusedAgents`);
    else they are compiled anew.
    """
    noisy, own = result.settings.mechanism != "none", result.physical
    settled = partial(_settled, result, scale, zones)
    plain = settled(NO_NOISE) if noisy else _Beside(own["cost"], own["shed_mw"])
    silent = settled(SILENT) if noisy else _Beside()
    # an infeasible run is no baseline of a feasible one
    usable = silent.status != "infeasible" or own["status"] == "infeasible"
    yardstick = silent if usable else _Beside()
    sheds = (own["shed_mw"] or 0.0) > negligible_mw(own["load_mw"] or 0.0)
    return Reference(
        noise_free_cost=plain.cost,
        noise_free_shed_mw=plain.shed_mw,
        optimum_cost=_optimum_cost(result),
        least_shed_mw=_least_shed_mw(result) if sheds or own["status"] == "infeasible" else 0.0,
        prior_only_cost=yardstick.cost,
        prior_only_shed_mw=yardstick.shed_mw,
        noise_free_status=plain.status,
        prior_only_status=silent.status,
        noise_free_residual=plain.residual,
    )


@dataclass(frozen=True)
class _Beside:
    """Figures of another run of the same zones; None for those that it has not."""

    cost: float | None = None
    shed_mw: float | None = None
    status: str | None = None
    residual: float | None = None


def _settled(result: RunResult, scale: float, zones: Connect | None, given: Json) -> _Beside:
    """Return the figures of the same zones' run with other noise settings."""
    # the result's case has its load scale and outages already
    kind = result.network.objective.kind  # a default may depend on the noise
    settings = replace(result.settings, objective=kind, load_scale=1.0, outage=(), **given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GridprivWarning)  # the run has said it
        try:
            prepared = prepare(result.case, result.zoning, settings, scale)
            matches = run_prepared(prepared, transport=zones)
        except GridprivError:
            return _Beside()
    physical = matches.physical
    # zones' plans without a power flow say nothing of what is served
    shed_mw = None if physical["failure"] else physical["shed_mw"]
    return _Beside(physical["cost"], shed_mw, physical["status"], matches.consensus_residual)


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

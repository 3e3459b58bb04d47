"""What a run is held against: the same zones without noise, and the AC optimum of the whole grid.

It looks at all demand at once, so it is for whoever holds all of it: a study, a simulation.
Every figure is local.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gridpriv.core.errors import SolverError
from gridpriv.power.ac.optimum import acopf
from gridpriv.power.objective import has_convex_costs
from gridpriv.power.shortage import SHED_TOLERANCE_MW
from gridpriv.zonal.result import RunResult
from gridpriv.zonal.run import run
from gridpriv.zonal.settings import make_settings


@dataclass(frozen=True)
class Reference:
    """What a run could have cost.

    Attributes
    ----------
    without_noise_cost, without_noise_shed_mw : float or None
        Of the same zones' run without noise, in $/h and MW.
    optimum_cost : float or None
        Of the AC optimum in $/h; None without costs, or where none was found.
    least_shed_mw : float or None
        What an AC plan of the whole grid sheds that sheds least; None where none was found.
    """

    without_noise_cost: float | None
    without_noise_shed_mw: float | None
    optimum_cost: float | None
    least_shed_mw: float | None


def reference(result: RunResult) -> Reference:
    """Return what a run is held against: one more run where it has noise, and two AC optima."""
    plain = result if result.settings.mechanism == "none" else _without_noise(result)
    case, voll = result.case, result.settings.voll
    shed = result.physical["shed_mw"] or 0.0
    try:
        optimum = acopf(case, "cost", voll).cost if has_convex_costs(case) else None
    except SolverError:
        optimum = None
    try:
        least = acopf(case, "shed").state.shed_mw if shed > SHED_TOLERANCE_MW else 0.0
    except SolverError:
        least = None
    return Reference(plain.physical["cost"], plain.physical["shed_mw"], optimum, least)


def _without_noise(result: RunResult) -> RunResult:
    """Run the same zones on the same grid without noise."""
    settings = result.settings
    kept = {
        name: value
        for name, value in settings.as_given().items()
        if name not in NOISE_ONLY and name not in CASE_CHANGES
    }
    return run(result.case, result.zoning, make_settings(None, **kept, mechanism="none"))


NOISE_ONLY = ("mechanism", "refresh", "perturbation", "calibration", "noise", "seed")
CASE_CHANGES = ("load_scale", "outage")  # the result's case has them already


def cost_of_privacy(result: RunResult, held: Reference) -> dict[str, Any]:
    """Return what noise cost: beyond the same run without it, and beyond the AC optimum."""
    physical = result.physical
    return {
        "cost": _beyond(physical["cost"], held.without_noise_cost),
        "shed_mw": _beyond(physical["shed_mw"], held.without_noise_shed_mw),
        "cost_over_optimum": _beyond(physical["cost"], held.optimum_cost),
    }


def _beyond(value: float | None, base: float | None) -> float | None:
    return None if value is None or base is None else value - base


def shed_causes(result: RunResult, held: Reference) -> dict[str, float | None]:
    """Return shed demand by cause, in MW; the causes add up to it.

    What lies on islands in which nothing generates; what no dispatch of the rest could serve; what
    the same zones shed without noise beyond that (rounds that are not finished); noise.
    """
    shed, dead = result.physical["shed_mw"], result.physical["dead_mw"]
    least, plain = held.least_shed_mw, held.without_noise_shed_mw
    if shed is None or dead is None or least is None or plain is None:
        return dict.fromkeys(("island_mw", "unservable_mw", "unfinished_mw", "noise_mw"))
    least = min(max(least, dead), shed)
    plain = min(max(plain, least), shed)
    return {
        "island_mw": dead,
        "unservable_mw": least - dead,
        "unfinished_mw": plain - least,
        "noise_mw": shed - plain,
    }

"""What a settled grid means to an operator: figures in MW and $/h; local."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gridpriv.core.display import amount
from gridpriv.core.document import Json
from gridpriv.grid.case import Case
from gridpriv.power.ac.service import Service
from gridpriv.power.ac.settle import Settlement
from gridpriv.power.objective import generation_cost
from gridpriv.power.zone import Zone
from gridpriv.zonal.schema import BESIDE

SHED_TOLERANCE_MW = 0.01

NOTHING: dict[str, None] = dict.fromkeys(
    (
        "carried", "failure", "cost", "generation_cost", "shed_mw", "dead_mw", "spill_mw",
        "balancing_mw", "balancing_cost", "interchange_deviation_mw", "losses_mw",
        "regulation_mw", "violations", "interchange", "fallback_zones", "replans",
    )
)  # fmt: skip
"""Figures of a run that ended before it settled."""
MOST_NAMED = 3  # of the limits that are passed, in a sentence
OF_A_VIOLATION = ("kind", "element", "at", "limit", "amount", "unit")


def physical_figures(
    case: Case, zones: tuple[Zone, ...], settled: Settlement, service: Service
) -> Json:
    """Return what the settled grid says (:data:`gridpriv.zonal.documents.PHYSICAL`).

    Where the dispatch has no AC power flow, what depends on the grid's state is None; what zones
    shed and spill by their own plans is not.
    """
    base, state = case.base_mva, settled.state
    interchange = interchange_rows(zones, settled, service, base)
    figures: Json = dict(NOTHING)
    figures |= {
        "carried": settled.carried,
        "failure": settled.failure,
        "shed_mw": base * float(sum(plan.p_shed.sum() for plan in settled.plans)),
        "spill_mw": base * float(sum(plan.spill.sum() for plan in settled.plans)),
        "violations": [
            {key: getattr(limit, key) for key in OF_A_VIOLATION} for limit in settled.violations
        ],
        "interchange": interchange,
        "fallback_zones": [
            zone.name for zone, plan in zip(zones, settled.plans, strict=True) if not plan.solved
        ],
        "replans": settled.replans,
    }
    if state is None:
        return figures
    generated = generation_cost(case, state.pg)
    return figures | {
        "cost": None if generated is None else generated + service.voll * state.shed_mw,
        "generation_cost": generated,
        "dead_mw": state.dead_mw,
        "spill_mw": state.spill_mw,
        "balancing_mw": sum(row["balancing_mw"] for row in interchange),
        "balancing_cost": sum(row["balancing_cost"] for row in interchange),
        "interchange_deviation_mw": max(abs(row["deviation_mw"]) for row in interchange),
        "losses_mw": state.losses_mw,
        "regulation_mw": base * float(state.regulation.sum()),
    }


def interchange_rows(
    zones: tuple[Zone, ...], settled: Settlement, service: Service, base_mva: float
) -> list[Json]:
    """Return each zone's interchange, scheduled and actual, its balancing and shed power."""
    scheduled, state = base_mva * settled.scheduled, settled.state
    missing = np.full(len(zones), np.nan)
    actual = missing if state is None else base_mva * state.interchange
    leaned = np.maximum(scheduled - actual, 0.0)
    return [
        {
            "zone": zone.name,
            "scheduled_mw": float(scheduled[z]),
            "actual_mw": float(actual[z]),
            "deviation_mw": float(actual[z] - scheduled[z]),
            "balancing_mw": float(leaned[z]),
            "balancing_cost": float(service.balancing_price * leaned[z]),
            "shed_mw": base_mva * float(settled.plans[z].p_shed.sum()),
        }
        for z, zone in enumerate(zones)
    ]


def verdict(figures: Json) -> str:
    """Return in a sentence whether the grid can carry what was dispatched, and what it costs."""
    if figures["failure"]:
        return f"the grid cannot carry this dispatch: {figures['failure']}"
    outside = sorted(figures["violations"], key=lambda row: -row["amount"])
    named = [
        f"{row['kind']} at {row['at']} by {row['amount']:.3g} {row['unit']}"
        for row in outside[:MOST_NAMED]
    ]
    others = f" and {left} others" if (left := len(outside) - MOST_NAMED) > 0 else ""
    if outside:
        parts = [f"the grid cannot carry this dispatch: outside {', '.join(named)}{others}"]
    else:
        parts = ["the grid can carry this dispatch"]
    shed, dead = figures["shed_mw"], figures["dead_mw"]
    if shed <= SHED_TOLERANCE_MW:
        parts.append("all demand is served")
    else:
        island = f", {dead:.4g} of it on islands without generation" if dead > 0 else ""
        parts.append(f"{shed:.4g} MW of demand is not served{island}")
    if figures["balancing_mw"] > SHED_TOLERANCE_MW:
        parts.append(f"zones lean on others' reserves for {figures['balancing_mw']:.4g} MW")
    if figures["fallback_zones"]:
        parts.append(f"no AC plan for zone {', '.join(figures['fallback_zones'])}")
    return "; ".join(parts)


def costs_hold(settings: Json, balancing_cost: float | None = None) -> str:
    """Return what every cost is of, and what is paid beside it, in $/h."""
    beside = balancing_beside(balancing_cost)
    return (
        f"Costs are of generation and of demand not served at {settings['voll']:g} $/MWh. "
        f"{beside[0].upper()}{beside[1:]}."
    )


def balancing_beside(balancing_cost: float | None = None) -> str:
    """Return that no cost has what zones pay each other, and how much that is, in $/h."""
    here = "" if balancing_cost is None else f", {amount(balancing_cost, '$/h')} $/h here,"
    return f"what zones pay each other for balancing power{here} is in none of them"


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
    nothing_released_cost, nothing_released_shed_mw : float or None
        Of the same zones' run on the public prior alone, at epsilon 0; None for a run without
        noise.
    without_noise_carried, nothing_released_carried : bool or None
        Whether the grid carries those runs; None where they have no dispatch, and for a run
        without noise.
    without_noise_residual : float or None
        Consensus residual of the former's last round, p.u.; None likewise.
    """

    without_noise_cost: float | None
    without_noise_shed_mw: float | None
    optimum_cost: float | None
    least_shed_mw: float | None
    nothing_released_cost: float | None = None
    nothing_released_shed_mw: float | None = None
    without_noise_carried: bool | None = None
    nothing_released_carried: bool | None = None
    without_noise_residual: float | None = None


def cost_of_privacy(figures: Json, held: Reference) -> dict[str, float | None]:
    """Return what a run cost beyond what it is held against, and its shed demand by cause."""
    return {
        "cost": _beyond(figures["cost"], held.without_noise_cost),
        "shed_mw": _beyond(figures["shed_mw"], held.without_noise_shed_mw),
        "cost_over_optimum": _beyond(figures["cost"], held.optimum_cost),
        **{name: getattr(held, name) for name in BESIDE},
        **shed_causes(figures, held),
    }


def _beyond(value: float | None, base: float | None) -> float | None:
    return None if value is None or base is None else value - base


def shed_causes(figures: Json, held: Reference) -> dict[str, float | None]:
    """Return shed demand by cause, in MW; the causes add up to it.

    What lies on islands in which nothing generates; what no dispatch of the rest serves; what the
    same zones shed without noise beyond that, so for rounds that are not finished; noise.
    """
    shed, dead = figures["shed_mw"], figures["dead_mw"]
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

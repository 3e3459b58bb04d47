"""State of the whole grid: as planned by zones, and as an AC state after redispatch, in MW and $/h.

Local: computed from true demand.
"""

from __future__ import annotations

import numpy as np

from gridpriv.core.arrays import Floats, last_of_each
from gridpriv.core.tables import Number, like, private
from gridpriv.core.text import Json, amount
from gridpriv.grid.case import Case
from gridpriv.grid.network import islands
from gridpriv.power.ac.grid_redispatch import GridRedispatch
from gridpriv.power.ac.state import GridState, negligible_mw
from gridpriv.power.objective import Service, generation_cost
from gridpriv.power.security import worst_loading
from gridpriv.power.zone import Network, Zone
from gridpriv.zonal.documents import Baselines, CostOfPrivacy, Physical, Violation


def solution_of_variables(network: Network, z: Floats) -> GridState:
    """Return the state of the grid's variables, numbered as in :mod:`gridpriv.power.zone`.

    Angles are those nearest to wi/wr, with the source's at a reference bus of every island; they
    are consistent on every branch only where the relaxation is tight. Negative load shedding is a
    surplus.
    """
    case, part = network.case, network.families(z)
    s_from = part["p_from"] + 1j * part["q_from"]
    s_to = part["p_to"] + 1j * part["q_to"]
    w = np.maximum(part["w"], 0.0)
    angles, island = network.angles(z), islands(case)
    reference = last_of_each(island, island.max() + 1, case.reference)
    angles = angles + (case.va - angles)[reference][island]
    # imbalance of every bus: demand + shunts + flows out - generation
    imbalance = case.pd + 1j * case.qd + w * (case.gs - 1j * case.bs)
    np.add.at(imbalance, case.f_bus, s_from)
    np.add.at(imbalance, case.t_bus, s_to)
    np.subtract.at(imbalance, case.gen_bus, part["pg"] + 1j * part["qg"])
    pg, qg = part["pg"], part["qg"]
    return GridState(case, np.sqrt(w), angles, s_from, s_to, pg, qg, imbalance.real, imbalance.imag)


def ac_state_summary(
    case: Case, zones: tuple[Zone, ...], redispatch: GridRedispatch, service: Service
) -> Json:
    """Return the values of an AC state (:class:`gridpriv.zonal.documents.Physical`).

    Where the dispatch has no AC power flow, values of the AC state are None; shedding and
    curtailment of zones' own plans are not.
    """
    base, state = case.base_mva, redispatch.state
    interchange = interchange_rows(zones, redispatch, service, base)
    summary: Json = Physical().as_dict()
    summary |= {
        "status": redispatch.status,
        "ac_feasible": redispatch.status == "feasible",
        "load_mw": base * float(np.maximum(case.pd, 0.0).sum()),
        "failure": redispatch.failure,
        "shed_mw": base * float(sum(plan.p_shed.sum() for plan in redispatch.plans)),
        "curtailed_mw": base * float(sum(plan.curtailment.sum() for plan in redispatch.plans)),
        "violations": [Violation.of(limit).as_dict() for limit in redispatch.violations],
        "interchange": interchange,
        "fallback_zones": [
            zone.name for zone, plan in zip(zones, redispatch.plans, strict=True) if not plan.solved
        ],
        "replans": redispatch.replans,
    }
    if state is None:
        return summary
    generated = None if redispatch.status == "infeasible" else generation_cost(case, state.pg)
    return summary | {
        "cost": None if generated is None else generated + service.voll * state.shed_mw,
        "generation_cost": generated,
        "deenergized_mw": state.deenergized_mw,
        "curtailed_mw": state.curtailed_mw,
        "balancing_mw": sum(row["balancing_mw"] for row in interchange),
        "balancing_cost": sum(row["balancing_cost"] for row in interchange),
        "interchange_deviation_mw": max(abs(row["deviation_mw"]) for row in interchange),
        "losses_mw": state.losses_mw,
        "regulation_mw": base * float(state.regulation.sum()),
        "unused_capacity_mw": state.unused_mw,
        **extremes(case, state.vm, state.limited_quantities.flow),
    }


def extremes(case: Case, vm: Floats, flow: Floats) -> Json:
    """Return the largest branch loading, the lowest and the highest voltage, and their places.

    None: a loading without ratings, a voltage without an energized bus.

    Parameters
    ----------
    vm : (n,)
        Voltages, p.u.; 0 at de-energized buses.
    flow : (m,)
        Apparent power of the more loaded end of a branch, p.u.
    """
    loading, branch = worst_loading(case, flow)
    values: Json = {"worst_loading_percent": loading, "worst_branch": branch or None}
    energized = np.flatnonzero(vm > 0.0)
    for name, place in (("lowest", np.argmin), ("highest", np.argmax)):
        at = energized[int(place(vm[energized]))] if len(energized) else None
        values[f"{name}_vm_pu"] = None if at is None else float(vm[at])
        values[f"{name}_vm_bus"] = None if at is None else int(case.bus_id[at])
    return values


def interchange_rows(
    zones: tuple[Zone, ...], redispatch: GridRedispatch, service: Service, base_mva: float
) -> list[Json]:
    """Return each zone's interchange, scheduled and actual, its balancing and shed power."""
    scheduled, state = base_mva * redispatch.scheduled, redispatch.state
    missing = np.full(len(zones), np.nan)
    actual = missing if state is None else base_mva * state.interchange
    balancing = np.maximum(scheduled - actual, 0.0)
    return [
        {
            "zone": zone.name,
            "scheduled_mw": float(scheduled[z]),
            "actual_mw": float(actual[z]),
            "deviation_mw": float(actual[z] - scheduled[z]),
            "balancing_mw": float(balancing[z]),
            "balancing_cost": float(service.balancing_price * balancing[z]),
            "shed_mw": base_mva * float(redispatch.plans[z].p_shed.sum()),
        }
        for z, zone in enumerate(zones)
    ]


def verdict(summary: Json) -> str:
    """Return the feasibility of a state and its load shedding, without a full stop."""
    words = {"feasible": "AC-feasible", "infeasible": "not AC-feasible"}
    words["marginal"] = "limits violated by at most 0.1 % (marginal)"
    parts, rounding = [words[summary["status"]]], negligible_mw(summary["load_mw"])
    shed, difference = summary["shed_mw"], summary["deenergized_mw"] or 0.0
    if summary["lowest_vm_pu"] is not None and summary["worst_loading_percent"] is None:
        parts[0] += " (no branch has a rating)"
    if summary["failure"]:
        parts[0] += ": the AC power flow fails"
    elif shed <= rounding:
        parts.append("no load shedding")
    else:
        parts.append(f"{amount(shed, 'MW')} MW of load shedding")
        if difference > 0:
            parts.append(f"{amount(difference, 'MW')} MW of it on de-energized islands")
    if (summary["balancing_mw"] or 0.0) > rounding:
        parts.append(f"{amount(summary['balancing_mw'], 'MW')} MW of balancing power")
    return ", ".join(parts)


class Reference(Baselines):
    """Baselines of a run's cost and load shedding.

    None: no AC state, an infeasible run, or a failed solver.
    """

    optimum_cost: Number = private("Optimal cost: cost of the AC optimum of the whole grid", "$/h")
    optimum_shed_mw: Number = like(CostOfPrivacy, "optimum_shed_mw")
    least_shed_mw: Number = like(CostOfPrivacy, "least_shed_mw")


def cost_of_privacy(summary: Json, current: Reference) -> Json:
    """Return a run's cost over its baselines, and its load shedding by cause."""
    return {
        "cost": _beyond(summary["cost"], current.noise_free_cost),
        "shed_mw": _beyond(summary["shed_mw"], current.noise_free_shed_mw),
        "optimality_gap": _beyond(summary["cost"], current.optimum_cost),
        "optimum_shed_mw": current.optimum_shed_mw,
        "least_shed_mw": current.least_shed_mw,
        **Baselines.of(current).as_dict(),
        **shed_causes(summary, current),
    }


def _beyond(value: float | None, base: float | None) -> float | None:
    return None if value is None or base is None else value - base


def shed_causes(summary: Json, current: Reference) -> dict[str, float | None]:
    """Return shed demand by cause, in MW; the causes add up to it.

    De-energized islands; further shedding of the AC optimum, of the noise-free run, and of the run
    (by noise, or by the error of the prior). An optimum that sheds more than the run is the only
    cause.
    """
    causes = ("island_mw", "unavoidable_mw", "coordination_mw", "noise_mw")
    shed, deenergized = summary["shed_mw"], summary["deenergized_mw"]
    optimum, plain = current.optimum_shed_mw, current.noise_free_shed_mw
    if shed is None or deenergized is None or optimum is None or plain is None:
        return dict.fromkeys(causes)
    optimum = min(max(optimum, deenergized), shed)
    plain = min(max(plain, optimum), shed)
    parts = (deenergized, optimum - deenergized, plain - optimum, shed - plain)
    return dict(zip(causes, parts, strict=True))

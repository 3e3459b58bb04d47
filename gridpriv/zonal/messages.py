"""Messages on the interpretation of a run's values, by code.

A message has a template and values; terminal, notebook, report and JSON show the same list.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from gridpriv.consensus.coordinator import DUAL_TOLERANCE
from gridpriv.core.text import (
    Json,
    Message,
    amount,
    by_severity,
    capitalized,
    counted,
    differs,
    make_message,
    percent_of,
    read_templates,
    shown,
)
from gridpriv.grid.case import Case
from gridpriv.power.ac.state import negligible_mw
from gridpriv.privacy.settings import NOTHING
from gridpriv.zonal.meter import hold_messages, meter_messages
from gridpriv.zonal.opening import CONVERGED_RESIDUAL
from gridpriv.zonal.settings import DEFAULT_TOLERANCE, Settings

TEMPLATES = read_templates(Path(__file__).with_suffix(".txt"))
MOST_NAMED = 3
"""Limits named in a message."""
CHANCE = 2.5e-3
"""Relative: costs that differ by less may differ by the number of rounds (docs/limits.md)."""
CHANCE_TEXT = "They differ by less than 0.25 %, so on the relaxation either may be the cheaper."
BEFORE_FACTORS = "of the demand before the public factors"
"""Protected demand of a series whose steps are public factors on one demand."""
FULL = 1e-3
"""Unused capacity as a share of the load below which all capacity is in use."""
ATTAINABLE = (1e-6, 1e-5, DEFAULT_TOLERANCE)
"""Residuals, p.u., at which Newton rounds that end by rounding errors may be optimal: up to STILL,
at which rounds end by default."""
UNREALIZABLE = 0.01
"""Share of the load in balancing power above which a noise-free schedule is not realizable."""


message = partial(make_message, TEMPLATES)


def protected_change(settings: Settings, case: Case, condition: str = "") -> str:
    """Return the protected change of one bus, with a condition and the load scale if there is one.

    It is a change of the owner's demand, which the load scale and public factors multiply.
    """
    change = str(settings.protected(case).protection(case.base_mva))
    parts = [change, *filter(None, [condition])]
    if settings.load_scale != 1.0:
        scaled = f"--load-scale {settings.load_scale:g}"
        if condition == BEFORE_FACTORS:
            parts[-1] += f" and {scaled}"
        else:
            parts.append(f"of the demand before {scaled}")
    return ", ".join(parts)


def messages(document: Json) -> list[Message]:
    """Return the messages of a run, from its document; warnings come first.

    Parameters
    ----------
    document : dict
        As of :meth:`gridpriv.RunResult.as_dict`; of a public document there are few, as
        values for the data owner only are missing.
    """
    families = (_feasibility, _convergence, _baselines, _service, interrupted_attempts, _meter)
    return by_severity([message(*each) for family in families for each in family(document)])


def _feasibility(document: Json) -> Iterator[tuple[str, Json]]:
    physical = document["final"]["physical"]
    if physical["failure"]:
        yield "no-power-flow", {"failure": capitalized(physical["failure"])}
    elif physical["status"] in ("infeasible", "marginal"):
        least = (document["final"]["cost_of_privacy"] or {}).get("least_shed_mw") or 0.0
        sheds = f" The AC optimum sheds at least {amount(least, 'MW')} MW." if least > 0 else ""
        yield physical["status"], {"limits": limits_named(physical["violations"]), "least": sheds}
    if physical["fallback_zones"]:
        yield "fallback-zones", {"zones": ", ".join(physical["fallback_zones"])}


def interrupted_attempts(document: Json) -> Iterator[tuple[str, Json]]:
    """Yield the releases of interrupted attempts at the same run."""
    if earlier := document["privacy"]["interrupted_releases_per_zone"]:
        yield "interrupted-attempts", {"releases": counted(earlier, "release")}


def _meter(document: Json) -> Iterator[tuple[str, Json]]:
    """Yield the zones whose tie-line meters disclose more than their messages."""
    if document["settings"]["mechanism"] != "none":
        rows, hold = document["final"].get("meter"), document["settings"]["hold"]
        yield from meter_messages(rows, holding_interchange=hold == "interchange")
    yield from hold_messages(document["final"].get("hold"))


LIMITED = {
    "line": "rating of branch",
    "angle": "angle difference of branch",
    "voltage": "voltage at bus",
    "generator P": "active output at bus",
    "generator Q": "reactive output at bus",
}
"""Limited quantities in words, by kind."""


def limits_named(violations: list[Json]) -> str:
    """Return the largest violations as a sentence."""
    largest = sorted(violations, key=lambda row: -row["amount"])
    named = [
        f"{LIMITED[row['kind']]} {row['at']} by {row['amount']:.3g} {row['unit']}"
        for row in largest[:MOST_NAMED]
    ]
    unnamed = len(largest) - MOST_NAMED
    return ", ".join(named) + (f" and {unnamed} more" if unnamed > 0 else "")


def _convergence(document: Json) -> Iterator[tuple[str, Json]]:
    final, settings = document["final"], document["settings"]
    on_ac, residual = final["ac_rounds"], final["consensus_residual"]
    finished = len(document["rounds"] or ())
    values = {"residual": shown(residual), "rounds": counted(finished, "round")}
    early = ended_at_tolerance(document)
    newton, planned = settings["acceleration"] == "newton", settings["rounds"]
    if on_ac is not None:
        if not on_ac["converged"]:
            rounds, mismatch = counted(on_ac["rounds"], "round"), shown(on_ac["primal_residual"])
            yield "ac-rounds-not-converged", {"rounds": rounds, "residual": mismatch}
    elif newton and residual is not None and finished < planned:
        levels = sorted(max(settings["tolerance"], level) for level in ATTAINABLE)
        within = next((level for level in levels if _optimal(document, level)), None)
        if within is not None:
            yield "ended-early-newton", values | {"planned": planned, "tolerance": shown(within)}
        else:
            yield "newton-stalled", values | {"dual": shown(final["dual_residual"])}
    elif residual is not None and residual > CONVERGED_RESIDUAL:
        fresh = fresh_noise(settings)
        plain = "-newton" if newton else ""
        kind = "-at-tolerance" if early else "-fresh-noise" if fresh else plain
        yield f"not-converged{kind}", values
    elif early:
        values |= {"planned": planned, "tolerance": shown(settings["tolerance"])}
        yield "ended-early", values


def _optimal(document: Json, within: float) -> bool:
    """Return True where Newton rounds satisfy the optimality conditions, as far as known."""
    final = document["final"]
    dual = final["dual_residual"]  # None in a public export
    dual_converged = dual is None or bool(dual < DUAL_TOLERANCE * within)
    return dual_converged and bool(final["consensus_residual_max"] < within)


def ended_at_tolerance(document: Json) -> bool:
    """Return True where SOC rounds ended early by convergence."""
    final, settings = document["final"], document["settings"]
    fewer = 0 < len(document["rounds"] or ()) < settings["rounds"]
    residual = final["consensus_residual_max"]  # None in a public export
    return fewer and residual is not None and bool(residual < settings["tolerance"])


def on_relaxation(document: Json) -> bool:
    """Return True where the schedule depends on the number of rounds on the relaxation."""
    on_ac = document["final"]["ac_rounds"]
    return document["settings"]["coordination"] == "rounds" and not (on_ac and on_ac["converged"])


def fresh_noise(settings: Json) -> bool:
    """Return True where noise is drawn in every round."""
    noisy = settings["mechanism"] != "none" and not releases_nothing(settings)
    return noisy and settings["noise_schedule"] != "once"


def releases_nothing(settings: Json) -> bool:
    """Return True where no demand is released; other perturbations still draw noise."""
    return bool(settings["release"] == NOTHING and settings["perturbation"] == "demand")


def _baselines(document: Json) -> Iterator[tuple[str, Json]]:
    final, settings = document["final"], document["settings"]
    physical, costs = final["physical"], final["cost_of_privacy"]
    if costs is None:
        return
    noisy = settings["mechanism"] != "none"
    residual = costs["noise_free_residual"]
    if noisy and residual is not None and residual > CONVERGED_RESIDUAL:
        priced = costs["cost"] is not None and settings["objective"] == "cost"
        so = ", so the cost of privacy is approximate" if priced else ""
        yield "noise-free-not-converged", {"residual": shown(residual), "so": so}
    if noisy and costs["noise_free_status"] == "infeasible":
        yield "noise-free-infeasible", {}
    elif noisy and physical["status"] == "infeasible" and costs["noise_free_status"]:
        yield "noise-free-feasible", {}
    yield from _against_prior_only(document)
    cost, price = physical["cost"], costs["cost"]
    over = costs["optimality_gap"]
    below = None not in (over, cost) and over < 0.0 and differs(over, cost)
    if below:
        yield "below-optimum", {}
    negative = None not in (price, cost) and price < 0.0 and differs(price, cost)
    if negative and not below and not releases_nothing(settings):
        excess = None if over is None else over - price
        gap = " That is chance."
        if excess is not None and excess > 0.0 and differs(excess, cost):
            above = f"{amount(excess, '$/h')} $/h above the AC optimum"
            gap = f" The noise-free baseline is {above}, so noise can lower the cost."
        yield "negative-cost-of-privacy", {"gap": gap}
    if price is not None and settings["objective"] != "cost":
        yield "cost-not-minimized", {"objective": settings["objective"]}


def _against_prior_only(document: Json) -> Iterator[tuple[str, Json]]:
    physical, costs = document["final"]["physical"], document["final"]["cost_of_privacy"]
    settings = document["settings"]
    if costs["prior_only_shed_mw"] is None or releases_nothing(settings):
        return
    priced = costs["prior_only_cost"] is not None
    unit = "$/h" if priced else "MW"
    kind = "cost" if priced else "shed_mw"
    value, prior = physical[kind], costs[f"prior_only_{kind}"]
    rounding = negligible_mw(physical["load_mw"] or 0.0)
    if value is None:
        yield "worse-than-prior-only", {}
    elif value > prior and differs(value - prior, prior, unit) and (priced or value > rounding):
        texts = {"cost": amount(value, unit), "prior": amount(prior, unit)}
        near = on_relaxation(document) and value <= prior + CHANCE * abs(prior)
        verdict = f"The release {'costs' if near else 'does not pay in this run: it costs'}"
        chance = f" {CHANCE_TEXT}" if near else ""
        code = "dearer-than-prior-only" if priced else "sheds-more-than-prior-only"
        yield code, texts | {"verdict": verdict, "chance": chance}
    elif priced:
        saving = prior - value
        near = saving > 0.0 and differs(saving, prior) and saving <= CHANCE * abs(prior)
        if near and on_relaxation(document):
            costs_of = {"cost": amount(value, unit), "prior": amount(prior, unit)}
            yield "cheaper-within-chance", costs_of | {"chance": CHANCE_TEXT}
        drawn, prior_only = physical["balancing_mw"] or 0.0, costs["prior_only_balancing_mw"] or 0.0
        if drawn - prior_only > rounding:
            values = {"balancing": amount(drawn, "MW"), "prior": amount(prior_only, "MW")}
            percent = percent_of(prior - value, prior)
            saved = f"{percent} lower" if percent else "the same"
            yield "more-balancing-than-prior-only", values | {"saved": saved}


def _service(document: Json) -> Iterator[tuple[str, Json]]:
    physical, settings = document["final"]["physical"], document["settings"]
    balancing, load = physical["balancing_mw"], physical["load_mw"] or 0.0
    noise_free = settings["mechanism"] == "none" and balancing is not None
    if noise_free and load > 0 and balancing > UNREALIZABLE * load:
        percent = f"{100.0 * balancing / load:.2g}"
        values = {"balancing": amount(balancing, "MW"), "percent": percent}
        yield "balancing-without-noise", values
    yield from _capacity(document)
    if physical["cost"] is not None:
        yield "costs-include", {"voll": f"{settings['voll']:g}", "payment": _payment(document)}
    elif settings["objective"] == "losses" and physical["losses_mw"] is not None:
        yield "no-costs", {}


def _payment(document: Json) -> str:
    """Return the value of balancing power, as a sentence."""
    physical, costs = document["final"]["physical"], document["final"]["cost_of_privacy"] or {}
    price, power = document["settings"]["balancing_price"], physical["balancing_mw"] or 0.0
    if power <= negligible_mw(physical["load_mw"] or 0.0):
        return ""

    def value(power: float) -> str:
        return f"{amount(price * power, '$/h')} $/h"

    prior = None if releases_nothing(document["settings"]) else costs.get("prior_only_balancing_mw")
    instead = "" if prior is None else f" (prior-only: {value(prior)})"
    return f" At {price:g} $/MWh (--balancing-price), that power is worth {value(power)}{instead}."


def _capacity(document: Json) -> Iterator[tuple[str, Json]]:
    """Yield messages on load and losses above all capacity, and on exporters that shed load.

    On the energized islands that shed load, load and losses are used generation and load shedding.
    So they exceed the capacity by load shedding minus unused capacity, whatever limits bind, unless
    a generator is above its own.
    """
    physical, settings = document["final"]["physical"], document["settings"]
    load, unused = physical["load_mw"] or 0.0, physical.get("unused_capacity_mw")
    if unused is None:
        return
    deenergized = physical["deenergized_mw"] or 0.0  # zones are not known here
    lacking = physical["shed_mw"] - deenergized - unused
    if lacking > negligible_mw(load) and physical["status"] != "infeasible":
        yield "short-of-capacity", {"short": amount(lacking, "MW")}
    exporters = [
        row
        for row in physical["interchange"] or ()
        if min((row.get("shed_mw") or 0.0) - deenergized, row["actual_mw"] or 0.0)
        > negligible_mw(load)
    ]
    if exporters and unused > FULL * load:
        options = [f"--load-scale {settings['load_scale']:g}"] * (settings["load_scale"] != 1.0)
        options += [f"--outage {row}" for row in settings["outage"]]
        names, several = ", ".join(row["zone"] for row in exporters), len(exporters) > 1
        values = {
            "shed": amount(sum(row["shed_mw"] for row in exporters), "MW"),
            "zones": f"Zones {names} shed" if several else f"Zone {names} sheds",
            "exporting": "they export" if several else "it exports",
            "unused": amount(unused, "MW"),
            "command": " ".join(["gridpriv relax", document["case"], *options]),
        }
        yield "shed-by-exporters", values

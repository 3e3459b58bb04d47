"""Messages of a run: what changes how its figures are read, by code.

A message has a template and values; terminal, notebook, report and JSON show the same list.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from gridpriv.core.display import amount, counted, figure, shown
from gridpriv.core.document import Json
from gridpriv.core.message import Message, Severity, by_severity, make_message
from gridpriv.privacy.budget import NOTHING
from gridpriv.zonal.hold import hold_messages
from gridpriv.zonal.meter import meter_messages
from gridpriv.zonal.physical import negligible_mw
from gridpriv.zonal.trace import AGREED

TEMPLATES: dict[str, tuple[Severity, str]] = {
    "no-power-flow": ("warning", "Not AC-feasible: the AC power flow fails. {failure}."),
    "infeasible": ("warning", "Not AC-feasible: {limits}.{least}"),
    "marginal": (
        "warning",
        "Marginal: every violation is within 0.1 % of its limit: {limits}.",
    ),
    "ac-rounds-not-converged": (
        "warning",
        "The AC rounds have not converged ({rounds}, primal residual {residual} p.u.): the "
        "schedule is that of the SOC relaxation.",
    ),
    "not-converged": (
        "warning",
        "The run has not converged: consensus residual {residual} p.u. after {rounds}. Add rounds "
        "(--rounds) or a larger --penalty.",
    ),
    "not-converged-at-tolerance": (
        "warning",
        "The run ended at --tolerance with a consensus residual of {residual} p.u. after {rounds}. "
        "A smaller tolerance lowers it.",
    ),
    "not-converged-fresh-noise": (
        "warning",
        "The run has not converged: consensus residual {residual} p.u. after {rounds}. Noise drawn "
        "in every round keeps it up: --perturbation demand --noise-schedule once draws it once.",
    ),
    "ended-early": (
        "info",
        "Rounds ended after {rounds} of {planned}: every coupling variable agrees within "
        "{tolerance} p.u. (--tolerance 0 runs all).",
    ),
    "meter": (
        "warning",
        "Meters on the tie lines of zone {zone} show its total load more precisely than its "
        "release (noise {noise}): 1 MW of load changes its interchange by up to {moves} MW.",
    ),
    "hold": (
        "info",
        "Zones keep their scheduled interchange themselves. Zone {zone} is the likeliest to leave "
        "it: where its total demand is off its estimate by more than {band} MW, delta = {delta}.",
    ),
    "hold-short": (
        "warning",
        "Zone {zone} has too little generation to keep its scheduled interchange: its total demand "
        "is off its estimate by more than {band} MW with probability {delta}, and then it deviates "
        "from its schedule.",
    ),
    "hold-empty": (
        "warning",
        "Zones that set no generation aside, because they have none or release nothing: {zones}. "
        "Where their demand differs from its estimate they draw balancing power, and their "
        "neighbours' meters show it.",
    ),
    "balancing-without-noise": (
        "warning",
        "The agreed interchange is not physically realizable: without any noise, zones draw "
        "{balancing} MW of balancing power, {percent} % of the load.",
    ),
    "noise-free-not-converged": (
        "warning",
        "The noise-free baseline has not converged (consensus residual {residual} p.u.){so}.",
    ),
    "noise-free-infeasible": (
        "warning",
        "The noise-free baseline is not AC-feasible: there is no cost of privacy.",
    ),
    "noise-free-feasible": ("info", "The noise-free baseline is AC-feasible."),
    "dearer-than-prior-only": (
        "warning",
        "This budget buys nothing here: the run costs {cost} $/h, the prior-only baseline "
        "(epsilon = 0) {prior} $/h.{chance}",
    ),
    "sheds-more-than-prior-only": (
        "warning",
        "This budget buys nothing here: the run sheds {cost} MW, the prior-only baseline "
        "(epsilon = 0) {prior} MW.",
    ),
    "worse-than-prior-only": (
        "warning",
        "This budget buys nothing here: the run is not AC-feasible, the prior-only baseline "
        "(epsilon = 0) is.",
    ),
    "negative-cost-of-privacy": (
        "info",
        "The cost of privacy is negative: the noise happened to lead to a cheaper dispatch. That "
        "is chance.{gap}",
    ),
    "cost-not-minimized": (
        "warning",
        "The objective is {objective}, not cost: the cost of privacy is no price of the noise. Use "
        "--objective cost.",
    ),
    "fallback-zones": (
        "warning",
        "Zones without an AC plan: {zones}. They act as in the last round.",
    ),
    "shed-by-exporters": (
        "info",
        "Zones that export shed {shed} MW of load ({zones}): limits inside these zones bind. "
        "gridpriv relax lists them.",
    ),
    "costs-include": (
        "info",
        "Costs are generation plus load shedding at {voll} $/MWh. No cost includes what zones pay "
        "each other for balancing power{here}.",
    ),
    "no-costs": (
        "info",
        "The case has no convex generation costs: zones minimise losses, and no cost is stated.",
    ),
    "ac-state": ("info", "{state}."),
    "released-statistics": (
        "info",
        "Released statistics, with the expected interchange error from public data: {statistics}.",
    ),
    "released-once": (
        "info",
        "Released once for all steps (expected interchange error in a step of factor 1, MW, from "
        "public data): {statistics}.",
    ),
    "single-bus-zones": ("info", "Zones of one bus release that bus's demand: {zones}."),
    "protected": ("info", "Protected: {adjacency}."),
    "protected-one-kind": (
        "warning",
        "Where a bus's {other} demand follows its {own} demand (a known power factor), both "
        "change, and no figure here covers that: use --protects p+q.",
    ),
    "protected-power-factors": (
        "info",
        "The certificate covers changes at power factors {factors}. A change at another power "
        "factor is covered as far as it is within these bounds.",
    ),
    "published-sensitivity": (
        "warning",
        "The noise follows the published sensitivity, {published}; zone {zone} has {proven} "
        "({source}). The certified epsilon of a release is {ratio} times the nominal one.",
    ),
    "protected-scaled": (
        "info",
        "The protected change is in the demand before --load-scale {scale}: {scale} times as much "
        "in this run.",
    ),
    "noise-source": ("info", "This run: {caveat}."),
    "steps-run": ("info", "{finished} of {planned} completed."),
    "steps-feasible": ("info", "AC-feasible steps{of}: {feasible} of {known}."),
    "step-infeasible": (
        "warning",
        "Step {step} is not AC-feasible: {violated}. Raise --budget or --voll, or lower the demand "
        "of the step; gridpriv run on that step alone says how much the AC optimum sheds.",
    ),
    "steps-shed": ("info", "Mean load shedding: {mean} MW; at most {most} MW at step {step}."),
    "steps-no-shed": ("info", "Mean load shedding: {mean} MW."),
    "steps-not-converged": (
        "warning",
        "In {steps} the consensus residual is up to {residual} p.u.: they have not converged. "
        "{advice}",
    ),
    "steps-noise-free-not-converged": (
        "warning",
        "In {steps} the noise-free baseline has not converged (consensus residual up to "
        "{residual} p.u.){so}.",
    ),
}
MOST_NAMED = 3
"""Limits named in a message."""
WORSE = 1e-6
"""Relative: figures that differ by less are the same."""
CHANCE = 2.5e-3
"""Relative: costs that differ by less may differ by the number of rounds (docs/limits.md)."""
UNREALIZABLE = 0.01
"""Share of the load in balancing power above which a noise-free schedule is not realizable."""


message = partial(make_message, TEMPLATES)


def messages(document: Json) -> list[Message]:
    """Return the messages of a run, from its document; warnings come first.

    Parameters
    ----------
    document : dict
        As of :meth:`gridpriv.RunResult.as_dict`; of a public one, without private figures, few.
    """
    families = (_feasibility, _convergence, _baselines, _service, _meter)
    return by_severity([message(*each) for family in families for each in family(document)])


def _feasibility(document: Json) -> Iterator[tuple[str, Json]]:
    physical = document["final"]["physical"]
    if physical["failure"]:
        yield "no-power-flow", {"failure": physical["failure"]}
    elif physical["status"] in ("infeasible", "marginal"):
        least = (document["final"]["cost_of_privacy"] or {}).get("least_shed_mw") or 0.0
        sheds = f" The AC optimum sheds at least {amount(least, 'MW')} MW." if least > 0 else ""
        yield physical["status"], {"limits": limits_named(physical["violations"]), "least": sheds}
    if physical["fallback_zones"]:
        yield "fallback-zones", {"zones": ", ".join(physical["fallback_zones"])}


def _meter(document: Json) -> Iterator[tuple[str, Json]]:
    """Yield the zones whose neighbours learn more from their meters than from messages."""
    if document["settings"]["mechanism"] != "none":
        for values in meter_messages(document["final"].get("meter")):
            yield "meter", values
    yield from hold_messages(document["final"].get("hold"))


def limits_named(violations: list[Json]) -> str:
    """Return the largest violations in words."""
    largest = sorted(violations, key=lambda row: -row["amount"])
    named = [
        f"{row['kind']} at {row['at']} by {row['amount']:.3g} {row['unit']}"
        for row in largest[:MOST_NAMED]
    ]
    others = len(largest) - MOST_NAMED
    return ", ".join(named) + (f" and {others} more" if others > 0 else "")


def _convergence(document: Json) -> Iterator[tuple[str, Json]]:
    final, settings = document["final"], document["settings"]
    on_ac, residual = final["ac_rounds"], final["consensus_residual"]
    finished = len(document["rounds"] or ())
    values = {"residual": shown(residual), "rounds": counted(finished, "round")}
    early = ended_at_tolerance(document)
    if on_ac is not None:
        if not on_ac["converged"]:
            yield (
                "ac-rounds-not-converged",
                {
                    "rounds": counted(on_ac["rounds"], "round"),
                    "residual": shown(on_ac["primal_residual"]),
                },
            )
    elif residual is not None and residual > AGREED:
        fresh = fresh_noise(settings)
        kind = "-at-tolerance" if early else "-fresh-noise" if fresh else ""
        yield f"not-converged{kind}", values
    elif early:
        planned, tolerance = settings["rounds"], shown(settings["tolerance"])
        yield "ended-early", values | {"planned": planned, "tolerance": tolerance}


def ended_at_tolerance(document: Json) -> bool:
    """Return True where SOC rounds ended early because all coupling variables agreed."""
    final, settings = document["final"], document["settings"]
    fewer = 0 < len(document["rounds"] or ()) < settings["rounds"]
    residual = final["consensus_residual_max"]  # None: private, in a public export
    return fewer and residual is not None and bool(residual < settings["tolerance"])


def fresh_noise(settings: Json) -> bool:
    """Return True where noise is drawn anew in rounds."""
    noisy = settings["mechanism"] != "none" and not releases_nothing(settings)
    return noisy and settings["noise_schedule"] != "once"


def releases_nothing(settings: Json) -> bool:
    """Return True where no demand is released; other perturbations draw noise all the same."""
    return bool(settings["release"] == NOTHING and settings["perturbation"] == "demand")


def _baselines(document: Json) -> Iterator[tuple[str, Json]]:
    final, settings = document["final"], document["settings"]
    physical, costs = final["physical"], final["cost_of_privacy"]
    if costs is None:
        return
    noisy = settings["mechanism"] != "none"
    residual = costs["noise_free_residual"]
    if noisy and residual is not None and residual > AGREED:
        priced = costs["cost"] is not None and settings["objective"] == "cost"
        so = ", so the cost of privacy is approximate" if priced else ""
        yield "noise-free-not-converged", {"residual": shown(residual), "so": so}
    if noisy and costs["noise_free_status"] == "infeasible":
        yield "noise-free-infeasible", {}
    elif noisy and physical["status"] == "infeasible" and costs["noise_free_status"]:
        yield "noise-free-feasible", {}
    yield from _against_prior_only(document)
    cost, price = physical["cost"], costs["cost"]
    both = None not in (price, cost)
    if both and price < -WORSE * abs(cost) and not releases_nothing(settings):
        over = costs["optimality_gap"]
        beyond = None if over is None else over - price
        gap = (
            f" The noise-free baseline is {amount(beyond, '$/h')} $/h above the AC optimum."
            if beyond is not None and beyond > WORSE * abs(cost)
            else ""
        )
        yield "negative-cost-of-privacy", {"gap": gap}
    if price is not None and settings["objective"] != "cost":
        yield "cost-not-minimized", {"objective": settings["objective"]}


def _against_prior_only(document: Json) -> Iterator[tuple[str, Json]]:
    physical, costs = document["final"]["physical"], document["final"]["cost_of_privacy"]
    settings = document["settings"]
    if costs["prior_only_shed_mw"] is None or releases_nothing(settings):
        return
    priced = costs["prior_only_cost"] is not None
    kind = "cost" if priced else "shed_mw"
    value, prior = physical[kind], costs[f"prior_only_{kind}"]
    if value is None:
        yield "worse-than-prior-only", {}
    elif value > prior + WORSE * abs(prior) + WORSE:
        digits = 7 if figure(value, 4) == figure(prior, 4) else 4
        near = settings["coordination"] == "rounds" and value <= prior + CHANCE * abs(prior)
        chance = " Less than 0.25 % apart, either may be the cheaper." if near else ""
        yield (
            "dearer-than-prior-only" if priced else "sheds-more-than-prior-only",
            {"cost": figure(value, digits), "prior": figure(prior, digits), "chance": chance},
        )


def _service(document: Json) -> Iterator[tuple[str, Json]]:
    physical, settings = document["final"]["physical"], document["settings"]
    balancing, load = physical["balancing_mw"], physical["load_mw"] or 0.0
    noise_free = settings["mechanism"] == "none" and balancing is not None
    if noise_free and load > 0 and balancing > UNREALIZABLE * load:
        percent = f"{100.0 * balancing / load:.2g}" if load > 0 else "-"
        values = {"balancing": amount(balancing, "MW"), "percent": percent}
        yield "balancing-without-noise", values
    exporters = [
        row
        for row in physical["interchange"] or ()
        if min(row.get("shed_mw") or 0.0, row["actual_mw"] or 0.0) > negligible_mw(load)
    ]
    if exporters:
        shed = amount(sum(row["shed_mw"] for row in exporters), "MW")
        yield (
            "shed-by-exporters",
            {"shed": shed, "zones": ", ".join(row["zone"] for row in exporters)},
        )
    if physical["cost"] is not None:
        paid = physical["balancing_cost"]
        here = "" if paid is None else f" ({amount(paid, '$/h')} $/h here)"
        yield "costs-include", {"voll": f"{settings['voll']:g}", "here": here}
    elif settings["objective"] == "losses" and physical["losses_mw"] is not None:
        yield "no-costs", {}

"""A run on one page: what a terminal and a notebook show of its document."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from gridpriv.core.display import Table, amount, counted, shown
from gridpriv.core.document import Json
from gridpriv.zonal.physical import SHED_TOLERANCE_MW, costs_hold
from gridpriv.zonal.reference_summary import (
    CAUSES,
    HELD_AGAINST,
    beside,
    carried_without_noise,
    nothing_released_carried,
    releases_nothing,
)
from gridpriv.zonal.trace import AGREED

MORE_ROUNDS = "More rounds (--rounds) or a larger --penalty may bring zones closer."
SMALLER = "Rounds ended at --tolerance: a smaller one may bring zones closer."
FRESH = (
    "Noise that is drawn anew in every round keeps zones apart, however many rounds: "
    "--perturbation demand --refresh run draws it once."
)
SETTLED = (
    "The settled grid's figures hold all the same: they are what comes of every zone's acting on "
    "what was agreed last."
)
BOUGHT = "Evened penalties hold zones to what they agree on, which may cost more than it has to."
PLANNED = "shed by zones' plans, which have no power flow"
MOST_ZONES_NAMED = 12


def _length(rows: list[Any] | None) -> int | None:
    return None if rows is None else len(rows)


def interchange(document: Json) -> Table:
    """Return what zones agreed to exchange and do, and what each does not serve."""
    rows = {row["zone"]: row for row in document["final"]["physical"]["interchange"] or []}
    columns = ("scheduled", "actual", "balancing")
    keys = [*(f"{column}_mw" for column in columns), "shed_mw"]
    return (
        "Interchange (MW, exports positive, metered in the middle of tie lines)",
        ["zone", *columns, "not served"],
        [
            [zone["zone"], *(amount(rows[zone["zone"]].get(key), "MW") for key in keys)]
            for zone in document["zones"]
            if zone["zone"] in rows
        ],
    )


def figures(document: Json) -> Table:
    """Return what came out, from a run's document; without what it leaves out."""
    final, solver = document["final"], document["solver"]
    physical, held = final["physical"], final["cost_of_privacy"] or {}
    lost, outside = bool(physical["failure"]), _length(physical["violations"])
    power: list[tuple[str, float | None]] = [
        (PLANNED if lost else "demand not served", physical["shed_mw"]),
        *((name, held[key]) for key, name in CAUSES.items() if held.get(key)),
        ("generation that cannot be used", physical["spill_mw"]),
        ("balancing power between zones", physical["balancing_mw"]),
        ("largest interchange deviation", physical["interchange_deviation_mw"]),
        ("losses", physical["losses_mw"]),
    ]
    solves = f", {counted(solver['solves'], 'solve')}" if solver["solves"] else ""
    rows: list[list[object]] = [["the grid can carry it", physical["carried"], ""]]
    rows += [[name, amount(value, "MW"), "MW"] for name, value in power]
    rows.append(["cost, unserved demand included", amount(physical["cost"], "$/h"), "$/h"])
    rows += [[name, amount(held.get(key), u), u] for key, (name, u) in HELD_AGAINST.items()]
    rows += [
        ["the grid can carry it, nothing released", nothing_released_carried(document), ""],
        ["limits violated", None if lost else outside, ""],
        ["consensus residual", final["consensus_residual"], "p.u."],
        ["largest disagreement of one variable", final["disagreement"], "p.u."],
        ["solver", f"{solver['name']}{solves}", ""],
        ["seconds", document["timing"]["total"], "s"],
    ]
    title = (
        f"{document['case']}: {counted(document['buses'], 'bus')}, "
        f"{counted(len(document['zones']), 'zone')}, {_rounds(document)}, "
        f"{noise(document['settings'])}"
    )
    return title, ["result", "value", "unit"], [row for row in rows if row[1] is not None]


def _rounds(document: Json) -> str:
    settings = document["settings"]
    if settings["coordination"] == "central":
        return "one central schedule"
    rounds = counted(_length(document["rounds"]), "round")
    if _agreed_early(document):
        rounds = f"{len(document['rounds'])} of {counted(settings['rounds'], 'round')}"
    return f"{rounds} of {settings['update']} updates"


def _agreed_early(document: Json) -> bool:
    """Return whether rounds stopped before the last because all shared variables agreed."""
    final, settings = document["final"], document["settings"]
    fewer = 0 < len(document["rounds"] or ()) < settings["rounds"]
    return fewer and bool(final["disagreement"] < settings["tolerance"])


def fresh_noise(settings: Json) -> bool:
    """Return whether noise is drawn again and again."""
    noisy = settings["mechanism"] != "none" and not releases_nothing(settings)
    return noisy and settings["refresh"] != "run"


def not_converged(differ: str, fresh: Collection[bool]) -> str:
    """Return that zones have not come to agree, and what may help runs of fresh noise and not."""
    advice = [text for kind, text in ((True, FRESH), (False, MORE_ROUNDS)) if kind in fresh]
    return " ".join([f"Not converged: {differ}.", *advice])


def noise(settings: Json) -> str:
    """Return the noise of effective settings in words."""
    if settings["mechanism"] == "none":
        return "no noise"
    if releases_nothing(settings):
        return "nothing of demand released"
    drawn = f" (drawn per {settings['refresh']})" if settings["refresh"] else ""
    return f"{settings['mechanism']} noise on {settings['perturbation']}{drawn}"


def privacy_figures(privacy: Json) -> Table:
    """Return what was claimed and what is certified, from a document's privacy."""
    release, total = privacy["per_release"], privacy["total"]
    return (
        "Privacy (worst zone)",
        ["figure", "claimed", "certified"],
        [
            ["epsilon of one release", release["claimed"], release["certified"]],
            [
                f"total pure epsilon, {counted(privacy['releases_per_zone'], 'release')}",
                None,
                privacy["total_pure"],
            ],
            [f"total at delta {total['delta']:g}", privacy["paper_total"], total["epsilon"]],
        ],
    )


def sentences(document: Json) -> list[str]:
    """Return what must be said beside the figures."""
    final, privacy = document["final"], document["privacy"]
    ended = apart(document) or stopped(document)
    told = [*([ended] if ended else []), *beside(document)]
    physical = final["physical"]
    if apart(document) and physical["carried"] is not None and not physical["failure"]:
        told.insert(1, SETTLED)
    if final["explanation"]:
        told.append(f"{final['explanation'][0].upper()}{final['explanation'][1:]}.")
    beside_it = carried_without_noise(document)
    if beside_it:
        told.append(beside_it)
    if final["physical"]["cost"] is not None:
        told.append(costs_hold(document["settings"], final["physical"]["balancing_cost"]))
    exported = shed_by_exporters(document)
    if exported:
        told.append(exported)
    told += released(document)
    if privacy["mechanism"] != "none":
        told += protected(document)
        worst = max(privacy["sensitivity"], key=lambda row: row["ratio"], default=None)
        if worst and worst["ratio"] > 1.0 + 1e-9:
            told.append(
                f"The noise is calibrated to sensitivity {shown(worst['assumed'])} (the paper's), "
                f"but zone {worst['zone']} has {shown(worst['sensitivity'])}: "
                f"{worst['provenance']}. What is delivered is {shown(worst['ratio'])} times the "
                "claimed epsilon per release."
            )
    seed = document["seed"]
    told.append("; ".join([privacy["caveat"], *([f"seed {seed}"] if seed is not None else [])]))
    return told


def released(document: Json) -> list[str]:
    """Return what ``release`` comes to in each zone, where it is not the buses; public."""
    rows = document.get("released") or []
    if not rows or document["settings"]["release"] in ("bus", "nothing"):
        return []
    told = [
        "What zones release, and its expected error in what neighbours use, MW, by public "
        f"figures: {', '.join(_chosen(rows))}."
    ]
    single = {zone["zone"] for zone in document["zones"] if zone["buses"] == 1}
    alone = [row["zone"] for row in rows if row["zone"] in single]
    if alone:
        told.append(f"Zones of one bus, whose total is that bus's demand: {', '.join(alone)}.")
    return told


def _chosen(rows: list[Json]) -> list[str]:
    """Return what each zone releases; of many zones, how many release the same."""
    if len(rows) <= MOST_ZONES_NAMED:
        return [f"{r['zone']} {r['statistics']} ({r['expected_error_mw']:.3g})" for r in rows]
    errors: dict[str, list[float]] = {}
    for row in rows:
        errors.setdefault(row["statistics"], []).append(row["expected_error_mw"])
    return [
        f"{name} in {counted(len(each), 'zone')} ({_from_to(each)})"
        for name, each in errors.items()
    ]


def _from_to(values: list[float]) -> str:
    """Return the least and the most of some values, once where they are shown alike."""
    return " to ".join(dict.fromkeys(f"{value:.3g}" for value in (min(values), max(values))))


def protected(document: Json) -> list[str]:
    """Return what a certificate is about, of a document of a run or a series with releases."""
    if document["privacy"]["releases_per_zone"] == 0:
        return []
    settings, adjacency = document["settings"], document["privacy"]["adjacency"]
    told = protection_told(adjacency, settings["protects"], settings.get("power_factor"))
    return [f"Protected: {told}"]


def protection_told(adjacency: str, protects: str, power_factor: str | None) -> str:
    """Return what is protected, and what that does not cover."""
    told = f"{adjacency}."
    kinds = {"p": ("active", "reactive"), "q": ("reactive", "active")}
    if protects in kinds:
        own, other = kinds[protects]
        told += (
            f" Where a bus's {other} demand follows its {own} one (a known power factor), both "
            "move, and no figure here covers that: protects p+q does."
        )
    if power_factor is not None:
        factors = " to ".join(power_factor.split(".."))
        told += (
            f" That covers changes at power factors {factors}; one at another is "
            "covered as far as it is within these bounds, and no further."
        )
    return told


def apart(document: Json) -> str | None:
    """Return a sentence where zones have not come to agree, else None."""
    final, settings = document["final"], document["settings"]
    residual, rounds = final["consensus_residual"], len(document["rounds"] or ())
    if residual is None or residual <= AGREED:
        return None
    differ = (
        f"after {counted(rounds, 'round')} zones differ by {shown(residual)} p.u. in what they "
        "share"
    )
    if _agreed_early(document):
        return " ".join([not_converged(differ, ()), SMALLER])
    return not_converged(differ, {fresh_noise(settings)})


def stopped(document: Json) -> str | None:
    """Return a sentence where rounds stopped because all shared variables agreed, else None."""
    if not _agreed_early(document):
        return None
    settings, rounds = document["settings"], counted(len(document["rounds"]), "round")
    told = (
        f"Rounds stopped after {rounds} of {settings['rounds']}: every shared variable agrees "
        f"within {shown(settings['tolerance'])} p.u. (--tolerance 0 runs all)."
    )
    return f"{told} {BOUGHT}" if settings["acceleration"] == "evened" else told


def shed_by_exporters(document: Json) -> str | None:
    """Return a sentence where zones do not serve demand and yet export, else None."""
    rows = document["final"]["physical"]["interchange"] or []
    both = [
        row for row in rows
        if (row.get("shed_mw") or 0.0) > SHED_TOLERANCE_MW
        and (row["actual_mw"] or 0.0) > SHED_TOLERANCE_MW
    ]  # fmt: skip
    if not both:
        return None
    return (
        f"Of the demand not served, {amount(sum(row['shed_mw'] for row in both), 'MW')} MW is in "
        f"zones that export ({', '.join(row['zone'] for row in both)}): not for lack of power "
        "there, but because voltage, reactive power, a line or an island within keeps it from "
        "customers, or what was agreed at tie lines."
    )


def price(document: Json) -> str:
    """Return in one sentence what a run costs and certifies; of a public one, the latter."""
    final, privacy = document["final"], document["privacy"]
    told, total = [], privacy["total"]
    if final["physical"]["cost"] is not None:
        held = (final["cost_of_privacy"] or {}).get("cost")
        beyond = f" ({amount(held, '$/h')} $/h beyond the same without noise)" if held else ""
        told.append(f"costs {amount(final['physical']['cost'], '$/h')} $/h, unserved demand "
                    f"included{beyond}")  # fmt: skip
    if privacy["mechanism"] == "none":
        told.append("has no privacy, as it has no noise")
    elif privacy["releases_per_zone"] == 0:
        told.append("releases nothing of demand, at epsilon 0")
    elif total["epsilon"] is None:
        told.append("certifies no total epsilon")
    else:
        told.append(f"certifies a total epsilon of {shown(total['epsilon'])} at delta "
                    f"{total['delta']:g}")  # fmt: skip
    return f"This run {', and '.join(told)}."


def line(document: Json) -> str:
    """Return a run in one line."""
    physical, total = document["final"]["physical"], document["privacy"]["total"]
    parts = [
        f"{document['case']}, {counted(len(document['zones']), 'zone')}",
        _rounds(document),
        noise(document["settings"]),
        f"{shown(amount(physical['shed_mw'], 'MW'))} MW "
        f"{'shed by plans without a power flow' if physical['failure'] else 'not served'}",
    ]
    if total["epsilon"] is not None:
        parts.append(f"total epsilon {shown(total['epsilon'])} at delta {total['delta']:g}")
    return ", ".join(parts)

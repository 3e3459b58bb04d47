"""What is told of a run beside what it is held against: figures and sentences of its document."""

from __future__ import annotations

from gridpriv.core.display import amount, figure, shown
from gridpriv.core.document import Json
from gridpriv.privacy.budget import NOTHING
from gridpriv.zonal.trace import AGREED

CAUSES = {
    "island_mw": "  on islands without generation",
    "unservable_mw": "  that the AC optimum does not serve either",
    "unfinished_mw": "  for rounds that are not finished",
    "noise_mw": "  for noise",
}
HELD_AGAINST = {
    "cost": ("cost of privacy", "$/h"),
    "cost_over_optimum": ("cost beyond the AC optimum", "$/h"),
    "without_noise_cost": ("cost, no noise", "$/h"),
    "without_noise_shed_mw": ("demand not served, no noise", "MW"),
    "nothing_released_cost": ("cost, nothing released", "$/h"),
    "nothing_released_shed_mw": ("demand not served, nothing released", "MW"),
}
WORSE = 1e-6  # relative: figures that differ by less are the same
CHANCE = 2.5e-3
"""Relative: costs that differ by less may differ by the number of rounds, and by how often zones
planned again (docs/limits.md)."""


def nothing_released_carried(document: Json) -> bool | str | None:
    """Return whether the grid carries the run of nothing released; None where it carries all."""
    held, carried = document["final"]["cost_of_privacy"], document["final"]["physical"]["carried"]
    noisy = document["settings"]["mechanism"] != "none"
    if not noisy or carried is None or "nothing_released_carried" not in (held or {}):
        return None
    silent: bool | None = held["nothing_released_carried"]
    if silent is None:
        return "no dispatch"
    return None if carried and silent else silent


def releases_nothing(settings: Json) -> bool:
    """Return whether nothing is released; noise on other things is drawn whatever is of demand."""
    return bool(settings["release"] == NOTHING and settings["perturbation"] == "demand")


def beside(document: Json) -> list[str]:
    """Return what must be said first of a run beside no noise, nothing released and an optimum."""
    told = (
        without_noise_apart(document), worthless(document), lucky(document), unpriced(document),
    )  # fmt: skip
    return [one for one in told if one]


def without_noise_apart(document: Json) -> str | None:
    """Return a sentence where zones have not come to agree without noise either, else None."""
    held = document["final"]["cost_of_privacy"] or {}
    residual = held.get("without_noise_residual")
    if residual is None or residual <= AGREED:
        return None
    return (
        f"The run without noise has not converged: its zones differ by {shown(residual)} p.u. in "
        f"what they share{difference_to_it(document['settings'], held['cost'])}."
    )


def difference_to_it(settings: Json, cost: float | None) -> str:
    """Return that the cost of privacy is beside a run that has not converged, where it is one."""
    priced = cost is not None and settings["objective"] == "cost"
    return ", and what privacy costs is the difference to it" if priced else ""


def carried_without_noise(document: Json) -> str | None:
    """Return whether the grid carries a run without its noise, where it does not carry both."""
    held, carried = document["final"]["cost_of_privacy"], document["final"]["physical"]["carried"]
    plain = (held or {}).get("without_noise_carried")
    if None in (carried, plain) or (carried and plain):
        return None
    could = "could" if plain else "could not"
    either = "" if carried or plain else " either"
    price = "" if held["cost"] is None else ": the cost of privacy is no price"
    return f"The grid {could} carry the same zones' run without noise{either}{price}."


def unpriced(document: Json) -> str | None:
    """Return a sentence where costs are compared that no zone has minimised, else None."""
    held, objective = document["final"]["cost_of_privacy"], document["settings"]["objective"]
    if held is None or held["cost"] is None or objective == "cost":
        return None
    return (
        f"The rounds minimised {objective}, which is indifferent to cost: what this run costs "
        "beyond another is no price of privacy. --objective cost makes it one."
    )


def worthless(document: Json) -> str | None:
    """Return a sentence where the run is worse than one that releases nothing, else None.

    By cost, demand that is not served included, where the case has costs; else by that demand.
    """
    held, physical = document["final"]["cost_of_privacy"], document["final"]["physical"]
    settings = document["settings"]
    if held is None or held["nothing_released_shed_mw"] is None or releases_nothing(settings):
        return None
    costs = held["nothing_released_cost"] is not None
    kind, unit = ("cost", "$/h") if costs else ("shed_mw", "MW of demand not served")
    found, least = physical[kind], held[f"nothing_released_{kind}"]
    if found is not None and found <= least + WORSE * abs(least) + WORSE:
        return None
    alike = found is not None and figure(found, 4) == figure(least, 4)
    digits = 7 if alike else 4
    came = "has no dispatch" if found is None else f"comes to {figure(found, digits)} {unit}"
    told = (
        f"This budget is worth nothing here: the run {came}; with nothing released at all, at "
        f"epsilon 0, it is {figure(least, digits)}."
    )
    rounds = settings["coordination"] == "rounds"
    if not (costs and rounds) or found is None or found > least + CHANCE * abs(least):
        return told
    return f"{told} Less than {CHANCE:.2%} apart, either may be the cheaper with other rounds."


def lucky(document: Json) -> str | None:
    """Return a sentence where a run comes cheaper than without its noise, else None."""
    held, cost = document["final"]["cost_of_privacy"], document["final"]["physical"]["cost"]
    if held is None or held["cost"] is None or held["cost"] >= -WORSE * abs(cost):
        return None
    if releases_nothing(document["settings"]):
        return None
    told = "The cost of privacy is negative: noise happened to end at a cheaper dispatch"
    over = held.get("cost_over_optimum")
    if over is None or over - held["cost"] <= WORSE * abs(cost):
        return f"{told}, which is chance and no gain."
    beyond = amount(over - held["cost"], "$/h")
    return (
        f"{told}, which is chance and no gain. Without noise the same run ends {beyond} $/h beyond "
        "the AC optimum itself."
    )

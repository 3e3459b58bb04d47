"""A run on one page: what a terminal and a notebook show of its document."""

from __future__ import annotations

from typing import Any

from gridpriv.core.display import Table, shown


def figures(document: dict[str, Any]) -> Table:
    """Return what came out, from a run's document."""
    settings, final = document["settings"], document["final"]
    rows: list[list[object]] = [
        ["objective (squared imbalance)", final["objective"], "p.u.^2"],
        ["consensus residual", final["consensus_residual"], "p.u."],
        ["shed (last round)", final["shed_mw"], "MW"],
        ["surplus (last round)", final["surplus_mw"], "MW"],
        ["shed after local recourse", final["recourse"]["shed_mw"], "MW"],
    ]
    if settings["objective"] == "cost" and final["recourse"]["cost"] is not None:
        rows.append(["cost after local recourse", f"{final['recourse']['cost']:.7g}", "$/h"])
    rows += [
        ["AC power flow converged", final["ac"]["converged"], ""],
        ["AC slack deviation", final["ac"]["slack_mw"], "MW"],
        ["AC voltage violations", final["ac"]["vm_violations"], "buses"],
        ["solver", f"{document['solver']['name']}, {document['solver']['solves']} solves", ""],
        ["seconds", document["timing"]["total"], "s"],
    ]
    title = (
        f"{document['case']}: {document['buses']} buses, {len(document['zones'])} zones, "
        f"{len(document['rounds'])} rounds of {settings['update']} updates, {noise(settings)}"
    )
    return title, ["result", "value", "unit"], rows


def noise(settings: dict[str, Any]) -> str:
    """Return the noise of effective settings in words."""
    if settings["mechanism"] == "none":
        return "no noise"
    drawn = f" (drawn per {settings['refresh']})" if settings["refresh"] else ""
    return f"{settings['mechanism']} noise on {settings['perturbation']}{drawn}"


def privacy_figures(privacy: dict[str, Any]) -> Table:
    """Return what was claimed and what is certified, from a document's privacy."""
    release, total = privacy["per_release"], privacy["total"]
    return (
        "Privacy (worst zone)",
        ["figure", "claimed", "certified"],
        [
            ["epsilon of one release", release["claimed"], release["certified"]],
            [
                f"total pure epsilon, {privacy['releases_per_zone']} releases",
                None,
                privacy["total_pure"],
            ],
            [f"total at delta {total['delta']:g}", privacy["paper_total"], total["epsilon"]],
        ],
    )


def sentences(document: dict[str, Any]) -> list[str]:
    """Return what must be said beside the figures."""
    final, privacy = document["final"], document["privacy"]
    told = []
    if final["explanation"] and (final["recourse"]["shed_mw"] or 0.0) > 1.0:
        told.append(f"{final['explanation']}.")
    if privacy["mechanism"] != "none":
        told.append(f"Protected: {privacy['adjacency']}.")
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


def line(document: dict[str, Any]) -> str:
    """Return a run in one line."""
    final, total = document["final"], document["privacy"]["total"]
    parts = [
        f"{document['case']}, {len(document['zones'])} zones",
        f"{len(document['rounds'])} rounds",
        noise(document["settings"]),
        f"{shown(final['recourse']['shed_mw'])} MW shed after local recourse",
    ]
    if total["epsilon"] is not None:
        parts.append(f"total epsilon {shown(total['epsilon'])} at delta {total['delta']:g}")
    return ", ".join(parts)

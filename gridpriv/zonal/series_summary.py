"""What is told of a series: figures and sentences, of its document or of its steps."""

from __future__ import annotations

from gridpriv.core.display import amount, counted, shown
from gridpriv.core.document import Json
from gridpriv.zonal.physical import costs_hold
from gridpriv.zonal.reference_summary import difference_to_it
from gridpriv.zonal.summary import fresh_noise, not_converged
from gridpriv.zonal.trace import AGREED

BESIDE_CARRIED = (
    ("carried", "", " dispatches"),
    ("without_noise_carried", "without noise, ", ""),
    ("nothing_released_carried", "with nothing released, ", ""),
)


def series_figures(steps: list[Json]) -> list[list[object]]:
    """Return rows of what a series comes to: figure, value, unit; of a public one, few.

    Means are over the steps of which a figure is known, differences over those that know both,
    and say so where it is not all steps; steps have no length, so they are powers and no energies.
    """

    def known(key: str, less: str = "") -> list[float]:
        pairs = [(step.get(key), step.get(less) if less else 0.0) for step in steps]
        return [value - base for value, base in pairs if value is not None and base is not None]

    told = [
        ("demand", known("demand_mw"), "MW"),
        ("demand not served", known("recourse_shed_mw"), "MW"),
        ("  no noise", known("without_noise_shed_mw"), "MW"),
        ("  nothing released", known("nothing_released_shed_mw"), "MW"),
        ("balancing power between zones", known("balancing_mw"), "MW"),
        ("cost, unserved demand included", known("cost"), "$/h"),
        ("cost of privacy", known("cost", less="without_noise_cost"), "$/h"),
        ("cost, nothing released", known("nothing_released_cost"), "$/h"),
    ]
    return [
        [f"{name}, {_mean_of(values, steps)}", amount(sum(values) / len(values), unit), unit]
        for name, values, unit in told
        if values
    ]


def _mean_of(known: list[float], steps: list[Json]) -> str:
    all_known = len(known) == len(steps)
    return "mean" if all_known else f"mean of {len(known)} of {len(steps)} steps"


def series_sentences(steps: list[Json], planned: int, settings: Json) -> list[str]:
    """Return what must be said of a series; of a public one, without what is private."""
    told = [f"{len(steps)} of {counted(planned, 'step')} {'is' if planned == 1 else 'are'} run."]
    carried = [
        f"{words}{sum(map(bool, known))} of {len(known)}{ending}"
        for key, words, ending in BESIDE_CARRIED
        if (known := [step[key] for step in steps if step.get(key) is not None])
    ]
    shed = [(step["recourse_shed_mw"], step["step"]) for step in steps
            if step.get("recourse_shed_mw") is not None]  # fmt: skip
    if carried:
        told.append(f"The grid can carry {'; '.join(carried)}.")
    if shed:
        most, at = max(shed, key=lambda pair: pair[0])
        mean = amount(sum(mw for mw, _ in shed) / len(shed), "MW")
        worst = f", at most {amount(most, 'MW')} MW at step {at}" if most > 0.01 else ""
        told.append(f"{mean} MW of demand are not served in the mean{worst}.")
    if any(step.get("cost") is not None for step in steps):
        told.append(costs_hold(settings))
    apart = [step["consensus_residual"] for step in steps if step["consensus_residual"] > AGREED]
    if apart:
        differ = (
            f"in {counted(len(apart), 'step')} zones differ in what they share, by "
            f"{shown(max(apart))} p.u. at most"
        )
        told.append(not_converged(differ, {fresh_noise(settings)}))
    plain = [step.get("without_noise_residual") or 0.0 for step in steps]
    if max(plain, default=0.0) > AGREED:
        costs = (step.get("without_noise_cost") for step in steps)
        priced = next((cost for cost in costs if cost is not None), None)
        many = counted(sum(residual > AGREED for residual in plain), "step")
        told.append(
            f"In {many} the run without noise has not converged: zones differ in what they share, "
            f"by {shown(max(plain))} p.u. at most{difference_to_it(settings, priced)}."
        )
    return told


def released_once(document: Json) -> list[str]:
    """Return what zones release of all steps of a series at once; public."""
    rows = document["released_once"]
    if not rows or document["settings"]["release"] == "nothing":
        return []
    chosen = ", ".join(
        f"zone {row['zone']}: {row['statistics']}"
        + (f" and {counted(row['cosines'], 'cosine')}" if row["cosines"] else "")
        + f" ({row['expected_error_mw']:.3g})"
        for row in rows
    )
    return [
        "What zones release once for all steps, and its expected error in what neighbours use "
        f"in a step (of factor 1, where steps are factors), MW, by public figures: {chosen}."
    ]

"""A series on one page: figures and sentences, from its steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gridpriv.core.text import Json, Message, amount, counted, shown
from gridpriv.zonal.messages import fresh_noise, message
from gridpriv.zonal.physical import MOST_NEGLIGIBLE_MW
from gridpriv.zonal.summary import in_words
from gridpriv.zonal.trace import AGREED

STATUSES = (
    ("status", ""),
    ("noise_free_status", " of the noise-free baseline"),
    ("prior_only_status", " of the prior-only baseline"),
)
ADVICE = {
    True: "Noise drawn in every round keeps it up: --perturbation demand --noise-schedule once "
    "draws it once.",
    False: "Add rounds (--rounds) or a larger --penalty.",
}
"""By whether noise is drawn in every round."""


def series_figures(steps: list[Json]) -> list[list[object]]:
    """Return the figures of a series: name, value, unit; of a public one, few.

    Means are over the steps of which a figure is known, differences over those that know both,
    and say so where it is not all steps; steps have no length, so they are powers and no energies.
    """

    def known(key: str, less: str = "") -> list[float]:
        pairs = [(step.get(key), step.get(less) if less else 0.0) for step in steps]
        return [value - base for value, base in pairs if value is not None and base is not None]

    lines = [
        ("demand", known("demand_mw"), "MW"),
        ("load shedding", known("redispatch_shed_mw"), "MW"),
        ("  noise-free", known("noise_free_shed_mw"), "MW"),
        ("  prior-only (epsilon = 0)", known("prior_only_shed_mw"), "MW"),
        ("balancing power between zones", known("balancing_mw"), "MW"),
        ("cost", known("cost"), "$/h"),
        ("cost of privacy", known("cost", less="noise_free_cost"), "$/h"),
        ("cost, prior-only (epsilon = 0)", known("prior_only_cost"), "$/h"),
    ]
    return [
        [f"{name}, {_mean_of(values, steps)}", amount(sum(values) / len(values), unit), unit]
        for name, values, unit in lines
        if values
    ]


def _mean_of(known: list[float], steps: list[Json]) -> str:
    all_known = len(known) == len(steps)
    return "mean" if all_known else f"mean of {len(known)} of {len(steps)} steps"


def series_sentences(steps: list[Json], planned: int, settings: Json) -> list[str]:
    """Return :func:`series_messages` as text."""
    return [str(series_message) for series_message in series_messages(steps, planned, settings)]


def series_messages(steps: list[Json], planned: int, settings: Json) -> list[Message]:
    """Return the messages of a series; of a public one, without private figures."""
    return [message(*each) for each in _of_series(steps, planned, settings)]


def _of_series(steps: list[Json], planned: int, settings: Json) -> Iterator[tuple[str, Json]]:
    yield "steps-run", {"finished": len(steps), "planned": counted(planned, "step")}
    for key, of in STATUSES:
        if known := [step[key] for step in steps if step.get(key) is not None]:
            feasible = sum(status == "feasible" for status in known)
            yield "steps-feasible", {"of": of, "feasible": feasible, "known": len(known)}
    for step in steps:
        if step.get("status") == "infeasible" and step.get("violated"):
            yield "step-infeasible", {"step": step["step"], "violated": step["violated"]}
    shed = [
        (step["redispatch_shed_mw"], step["step"])
        for step in steps
        if step.get("redispatch_shed_mw") is not None
    ]
    if shed:
        most, at = max(shed, key=lambda pair: pair[0])
        mean = {"mean": amount(sum(mw for mw, _ in shed) / len(shed), "MW")}
        code = "steps-shed" if most > MOST_NEGLIGIBLE_MW else "steps-no-shed"
        yield code, mean | {"most": amount(most, "MW"), "step": at}
    if any(step.get("cost") is not None for step in steps):
        yield "costs-include", {"voll": f"{settings['voll']:g}", "here": ""}
    large = [r for r in (step["consensus_residual"] for step in steps) if r > AGREED]
    if large:
        values = {"steps": counted(len(large), "step"), "residual": shown(max(large))}
        yield "steps-not-converged", values | {"advice": ADVICE[fresh_noise(settings)]}
    plain = [r for r in (step.get("noise_free_residual") or 0.0 for step in steps) if r > AGREED]
    if plain:
        costs = (step.get("noise_free_cost") for step in steps)
        priced = settings["objective"] == "cost" and any(cost is not None for cost in costs)
        so = ", so the cost of privacy is approximate" if priced else ""
        values = {"steps": counted(len(plain), "step"), "residual": shown(max(plain)), "so": so}
        yield "steps-noise-free-not-converged", values


def coupling_sentences(document: Json, coupled: Sequence[str]) -> Iterator[str]:
    """Yield the storages after the last step, the cost of all steps, and what couples them.

    Parameters
    ----------
    coupled : sequence of str
        Of storage, ramps, reserves and commitment: those that were given.
    """
    last = {row["storage"]: row for row in document.get("storage") or []}
    for name, row in last.items():
        yield (
            f"Storage {name} after step {row['step']}: {shown(amount(row['energy_mwh'], 'MW'))} "
            f"MWh ({row['soc_percent']:.3g} %)."
        )
    if coupled:
        costs = [step["cost"] for step in document["steps"] if step.get("cost") is not None]
        if costs and len(costs) == document["planned"]:
            hours = document["step_hours"]
            yield f"Cost of all steps: {amount(hours * sum(costs), '$/h')} $ ({hours:g} h each)."
        priced = " Their price is not in any cost above." if "reserves" in coupled else ""
        yield f"Zones redispatch within the limits of the plan: {', '.join(coupled)}.{priced}"


def released_once(document: Json) -> list[Message]:
    """Return the statistics that zones release once for all steps; public."""
    rows = document["released_once"]
    if not rows or document["settings"]["release"] == "nothing":
        return []
    chosen = ", ".join(
        f"zone {row['zone']}: {in_words(row['statistics'])}"
        + (f" and {counted(row['cosines'], 'cosine')}" if row["cosines"] else "")
        + f" ({row['expected_error_mw']:.3g})"
        for row in rows
    )
    return [message("released-once", {"statistics": chosen})]


def stream_sentences(stream: Json | None) -> list[str]:
    """Return the protection of a stream, and the cost of longer periods; public."""
    if stream is None:
        return []
    hours, block = stream["window_hours"], stream["block_hours"]
    text = [
        f"Stream: each zone releases the mean of its total every {counted(block, 'hour')}. A bus "
        f"that differs in any {counted(hours, 'consecutive hour')} is protected at total epsilon "
        f"{stream['total_per_window']:g} (w-event privacy)."
    ]
    longer = [
        f"{stream[key]:.4g} in every hour of a {name}"
        for name in ("day", "month", "year")
        if stream.get(key := f"total_per_{name}") is not None
    ]
    if longer:
        text.append(f"A bus that differs in more hours is protected at {', '.join(longer)}.")
    return text

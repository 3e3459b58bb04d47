"""A series on one page: figures and messages of its steps, its joint plan and its releases."""

from __future__ import annotations

from collections.abc import Iterator

from gridpriv.core.text import Json, Message, amount, counted, shown
from gridpriv.privacy.temporal import HOURS
from gridpriv.zonal.messages import BEFORE_FACTORS, fresh_noise, message
from gridpriv.zonal.opening import AGREED
from gridpriv.zonal.physical import MOST_NEGLIGIBLE_MW
from gridpriv.zonal.summary import in_words

STATUSES = (
    ("status", ""),
    ("noise_free_status", " of the noise-free baseline"),
    ("prior_only_status", " of the prior-only baseline"),
)


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
        ("  prior-only (epsilon = 0)", known("prior_only_balancing_mw"), "MW"),
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
        yield "costs-include", {"voll": f"{settings['voll']:g}"}
    if large := _not_converged(steps, "consensus_residual"):
        yield f"steps-not-converged{'-fresh-noise' if fresh_noise(settings) else ''}", large
    if plain := _not_converged(steps, "noise_free_residual"):
        costs = (step.get("noise_free_cost") for step in steps)
        priced = settings["objective"] == "cost" and any(cost is not None for cost in costs)
        so = ", so the cost of privacy is approximate" if priced else ""
        yield "steps-noise-free-not-converged", plain | {"so": so}


def _not_converged(steps: list[Json], key: str) -> Json:
    """Return the number of steps whose residual is large, and the largest; empty without any."""
    large = [r for r in (step.get(key) or 0.0 for step in steps) if r > AGREED]
    return {"steps": counted(len(large), "step"), "residual": shown(max(large))} if large else {}


def series_notes(document: Json) -> list[Message]:
    """Return the messages of a series, from its document: plan, steps, releases."""
    steps, planned = document["steps"], document["planned"]
    of_plan = [message(*each) for each in _coupled(document)]
    return [
        *of_plan,
        *series_messages(steps, planned, document["settings"]),
        *_released_in_series(document),
    ]


def _coupled(document: Json) -> Iterator[tuple[str, Json]]:
    """Yield the plan of coupled steps, the storages after the last one and the total cost."""
    steps, coupled = document["steps"], document.get("coupled") or []
    last = {row["storage"]: row for row in document.get("storage") or []}
    for name, row in last.items():
        percent = row["soc_percent"]
        yield (
            "storage-after",
            {
                "storage": name,
                "step": row["step"],
                "energy": shown(amount(row["energy_mwh"], "MW")),
                "percent": "" if percent is None else f" ({percent:.3g} %)",
            },
        )
    if not coupled:
        return
    efforts = [(s["rounds"], s["consensus_residual"]) for s in steps if s.get("rounds") is not None]
    if efforts:
        ahead = document["settings"].get("stream") is not None
        least, most = (choose(rounds for rounds, _ in efforts) for choose in (min, max))
        yield (
            "coupled-plan-ahead" if ahead else "coupled-plan",
            {
                "coupled": ", ".join(coupled),
                "rounds": ("" if least == most else f"{least} to ") + counted(most, "round"),
                "mismatch": shown(max(residual for _, residual in efforts)),
            },
        )
    costs = [step["cost"] for step in steps if step.get("cost") is not None]
    if costs and len(costs) == document["planned"]:
        hours = document["step_hours"]
        yield "steps-total", {"cost": amount(hours * sum(costs), "$/h"), "hours": f"{hours:g}"}
    if costs and "reserves" in coupled:
        yield "reserves-unpriced", {}


def _released_in_series(document: Json) -> list[Message]:
    """Return the statistics that zones release for all steps, and a stream's budget; public."""
    rows, stream = document["released_once"], document["privacy"].get("stream")
    if not rows or document["settings"]["release"] == "nothing":
        return []
    if stream is not None:
        errors = (f"zone {row['zone']}: {row['expected_error_mw']:.3g} MW" for row in rows)
        block = counted(stream["block_hours"], "hour")
        releases = counted(document["privacy"]["releases_per_zone"], "release")
        values = {"block": block, "releases": releases, "statistics": "; ".join(errors)}
        return [message("released-in-blocks", values), *_stream(stream)]
    chosen = "; ".join(
        f"zone {row['zone']}: {in_words(row['statistics'])}"
        + (f" and {counted(row['cosines'], 'cosine coefficient')}" if row["cosines"] else "")
        + f", error {row['expected_error_mw']:.3g} MW"
        for row in rows
    )
    factor = " of factor 1" if BEFORE_FACTORS in document["privacy"]["adjacency"] else ""
    return [message("released-once", {"factor": factor, "statistics": chosen})]


def _stream(stream: Json) -> Iterator[Message]:
    """Yield the protection of a stream, and the cost of periods longer than its window; public."""
    window = stream["window_hours"]
    values = {
        "block": counted(stream["block_hours"], "hour"),
        "window": counted(window, "consecutive hour"),
        "total": f"{stream['total_per_window']:g}",
    }
    yield message("stream", values)
    longer = [
        f"{total:.4g} in every hour of a {name}"
        for name, hours in HOURS.items()
        if hours > window and (total := stream.get(f"total_per_{name}")) is not None
    ]
    if longer:
        yield message("stream-longer", {"longer": ", ".join(longer)})

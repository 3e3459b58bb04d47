"""A run or a series on one page, for a terminal and a notebook, from its document."""

from __future__ import annotations

from collections.abc import Iterator

from gridpriv.core.text import (
    LEAST_MW,
    Json,
    Message,
    Table,
    amount,
    capitalized,
    counted,
    number_text,
    percent_of,
    shown,
)
from gridpriv.power.ac.state import negligible_mw
from gridpriv.privacy.adjacency import parse_beta
from gridpriv.privacy.certificate import certified_for
from gridpriv.privacy.temporal import HOURS
from gridpriv.zonal.messages import (
    ended_at_tolerance,
    fresh_noise,
    interrupted_attempts,
    message,
    messages,
    releases_nothing,
)
from gridpriv.zonal.meter import named_zones
from gridpriv.zonal.opening import CONVERGED_RESIDUAL

INTERIOR_POINT = "interior-point method"
CAUSES = {
    "island_mw": ("  on de-energized islands", ""),
    "unavoidable_mw": ("  in the AC optimum", "beyond islands"),
    "coordination_mw": ("  due to coordination", "noise-free too, beyond that of the AC optimum"),
    "noise_mw": ("  due to the noise", "beyond the larger of AC optimum and noise-free run"),
}
PRIOR_ERROR = ("  due to error of the prior", CAUSES["noise_mw"][1])
"""The cause in place of noise where nothing is released."""
BASELINES = {
    "noise_free_cost": "cost, noise-free",
    "prior_only_cost": "cost, prior-only (epsilon = 0)",
}
RELEASE_VALUE = ("cost saved by the release", "extra cost of the release")
"""Names of the difference to the prior-only baseline, by its sign."""
STATISTICS = {"bus": "bus values", "total": "zone total", "tree": "bus values and zone total"}
MECHANISM_NAMES = {"knorm": "K-norm", "laplace": "Laplace", "gaussian": "Gaussian"}
FEASIBILITY = {"feasible": "yes", "marginal": "marginal", "infeasible": "no"}


def interchange(document: Json) -> Table:
    """Return every zone's interchange, scheduled and actual, their difference, load shedding."""
    columns = ("scheduled", "actual", "deviation")
    keys = [*(f"{column}_mw" for column in columns), "shed_mw"]
    title = "Interchange (MW, exports positive; each zone bears half of a tie line's losses)"
    rows = [
        [row["zone"], *(amount(row.get(key), "MW") for key in keys)]
        for row in zone_interchange(document)
    ]
    return title, ["zone", *columns, "load shedding"], rows


def zone_interchange(document: Json) -> list[Json]:
    """Return the interchange of every zone that has one, in the order of the document's zones."""
    rows = {row["zone"]: row for row in document["final"]["physical"]["interchange"] or []}
    return [rows[zone["zone"]] for zone in document["zones"] if zone["zone"] in rows]


def summary_table(document: Json) -> Table:
    """Return :func:`results` as a table, with the costs of the baselines, rounds and time."""
    final, solver = document["final"], document["solver"]
    costs = final["cost_of_privacy"] or {}
    central = _is_central(document)
    solves = f", {counted(solver['solves'], 'solve')}" if solver["solves"] else ""
    rows: list[list[object]] = [
        ["AC-feasible", FEASIBILITY.get(final["physical"]["status"]), ""],
        *(row[:3] for row in results(document)),
        [_residual(document), None if central else final["consensus_residual"], "p.u."],
        ["solver", _solver(document) or f"{solver['name']}{solves}", ""],
        ["time", document["timing"]["total"], "s"],
    ]
    rows[-3:-3] = [[name, amount(costs.get(key), "$/h"), "$/h"] for key, name in BASELINES.items()]
    header = f"{title(document)}, {_rounds(document)}"
    return header, ["result", "value", "unit"], [row for row in rows if row[1] is not None]


def title(document: Json) -> str:
    """Return the case, its size and the noise of a run."""
    return (
        f"{document['case']}: {counted(document['buses'], 'bus')}, "
        f"{counted(len(document['zones']), 'zone')}, {noise(document['settings'])}"
    )


def verdict(document: Json) -> str:
    """Return the verdict on the AC state, with its load shedding and balancing power."""
    explanation = document["final"]["explanation"]
    return f"{capitalized(explanation)}." if explanation else ""


def results(document: Json) -> list[list[object]]:
    """Return the values for operators: name, value, unit and baseline; cost first.

    Values that a document leaves out have no row, nor load shedding and curtailment of zero, which
    the verdict states.
    """
    physical, costs = document["final"]["physical"], document["final"]["cost_of_privacy"] or {}
    cost, prior, settings = physical["cost"], costs.get("prior_only_cost"), document["settings"]
    alike = releases_nothing(settings) or None in (cost, prior)
    price = costs.get("cost") if settings["mechanism"] != "none" else None
    gap, saved = costs.get("optimality_gap"), 0.0 if alike else prior - cost
    money = [
        ("cost", cost, None, ""),
        ("cost of privacy", price, costs.get("noise_free_cost"), "over noise-free"),
        (
            RELEASE_VALUE[saved < 0.0],
            None if alike else abs(saved),
            prior,
            "of prior-only (epsilon = 0)",
        ),
        ("optimality gap", gap, None if None in (cost, gap) else cost - gap, "over the AC optimum"),
    ]
    rows: list[list[object]] = [
        [name, amount(value, "$/h"), "$/h", _relative(value, base, baseline)]
        for name, value, base, baseline in money
    ]
    drawn = amount(physical["balancing_mw"], "MW")
    rows.insert(2, ["balancing power", drawn, "MW", _share(physical)])
    if not releases_nothing(settings):
        prior_only_power = amount(costs.get("prior_only_balancing_mw"), "MW")
        rows.insert(4, ["balancing power, prior-only", prior_only_power, "MW", ""])
    rows += [*_power(physical, costs, document["settings"]), *_extremes(physical)]
    zeros = [[name, "0"] for name in ("load shedding", "curtailed generation")]
    return [row for row in rows if row[1] is not None and [row[0], str(row[1])] not in zeros]


def _share(physical: Json) -> str:
    """Return the meaning of balancing power, and its share of the gross demand."""
    power, load = physical["balancing_mw"] or 0.0, physical["load_mw"] or 0.0
    if power <= negligible_mw(load) or load <= 0:
        return "deviation of interchange"
    if power > load:
        return f"deviation, {number_text(power / load, 2)} times the gross demand"
    return f"deviation, {number_text(100.0 * power / load, 2)} % of the gross demand"


def _power(physical: Json, costs: Json, settings: Json) -> list[list[object]]:
    """Return the rows of power and AC feasibility, of the baselines too."""
    failed = bool(physical["failure"])
    shedding = "load shedding of zones' plans" if failed else "load shedding"
    rounding = negligible_mw(physical["load_mw"] or 0.0)
    shed = physical["shed_mw"] if (physical["shed_mw"] or 0.0) > rounding else None
    prior = {"noise_mw": PRIOR_ERROR} if releases_nothing(settings) else {}
    optimum = 0.0 if failed else costs.get("optimum_shed_mw") or 0.0
    optimal = optimum <= (shed or 0.0) + rounding  # a local optimum can shed more than the run
    causes = {
        key: (name, note if costs.get("island_mw") or key != "unavoidable_mw" else "")
        for key, (name, note) in {**CAUSES, **prior}.items()
        if shed and (costs.get(key) or 0.0) > rounding and (optimal or key != "unavoidable_mw")
    }
    unsolved = ", ".join(physical["fallback_zones"]) if failed else ""
    power = [
        (shedding, shed, f"without zones that have no solution: {unsolved}" if unsolved else ""),
        *((name, costs[key], note) for key, (name, note) in causes.items()),
        ("load shedding, AC optimum", None if optimal else optimum, "the run sheds less"),
        ("curtailed generation", physical["curtailed_mw"], ""),
        ("losses", physical["losses_mw"], ""),
    ]
    rows: list[list[object]] = [
        [name, amount(value, "MW"), "MW", note] for name, value, note in power
    ]
    for baseline in ("noise_free", "prior_only"):
        name, other = baseline.replace("_", "-"), costs.get(f"{baseline}_shed_mw") or 0.0
        if other > rounding:
            rows.append([f"load shedding, {name}", amount(other, "MW"), "MW", ""])
        status = costs.get(f"{baseline}_status")
        if status not in (None, "feasible"):
            rows.append([f"AC-feasible, {name}", FEASIBILITY[status], "", ""])
    if physical["violations"]:
        rows.append(["violated limits", len(physical["violations"]), "", ""])
    return rows


def _extremes(physical: Json) -> Iterator[list[object]]:
    """Yield the largest branch loading and the lowest and highest voltage, each with its place."""
    if physical.get("lowest_vm_pu") is None:
        return
    loading, branch = physical["worst_loading_percent"], physical["worst_branch"]
    if loading is None:
        yield ["largest loading", "n/a", "", "no branch has a rating"]
    else:
        percent = number_text(loading)
        percent = number_text(loading, 5) if percent == "100" else percent  # the side of the rating
        yield [f"largest loading ({branch})", percent, "%", "of the rating of this branch"]
    for end in ("lowest", "highest"):
        at, value = physical[f"{end}_vm_bus"], physical[f"{end}_vm_pu"]
        yield [f"{end} voltage (bus {at:.0f})", f"{value:.3f}", "p.u.", ""]


def _relative(value: float | None, base: float | None, baseline: str) -> str:
    """Return a difference in percent of the baseline's value, with the baseline's name.

    A negative difference *over* a baseline is shown as a positive one *below* it.
    """
    percent = "" if None in (value, base) else percent_of(value or 0.0, base or 0.0)
    if percent.startswith("-") and baseline.startswith("over "):
        percent, baseline = percent[1:], baseline.replace("over", "below", 1)
    return f"{percent} {baseline}".lstrip()


def privacy_line(privacy: Json) -> str:
    """Return the certified and the nominal epsilon of the worst zone, and their condition."""
    release, total = privacy["per_release"], privacy["total"]
    if privacy["releases_per_zone"] == 0:
        return f"Privacy: total epsilon {shown(privacy['total_pure'])}, as no demand is released."
    releases = counted(privacy["releases_per_zone"], "release")
    pure, at_delta = shown(privacy["total_pure"]), shown(total["epsilon"])
    totals = [] if privacy["total_pure"] is None else [f"{pure} (pure DP, delta = 0)"]
    if at_delta != pure:
        totals.append(f"{at_delta} at delta = {total['delta']:g}")
    holds = certified_for(privacy["noise"], privacy["mechanism"])
    line = f"Certificate{holds}: total epsilon {', '.join(totals)}; {releases} per zone."
    if shown(release["nominal"]) == shown(release["certified"]):
        return line
    return (
        f"{line} One release: nominal epsilon {shown(release['nominal'])}, certified "
        f"{shown(release['certified'])}."
    )


def rounds_line(document: Json) -> str:
    """Return the rounds of a run, its residual, solver and time."""
    final, solver, seconds = document["final"], document["solver"], document["timing"]["total"]
    parts = [f"converged in {_rounds(document)}" if _on_ac(document) else _rounds(document)]
    if final["consensus_residual"] is not None and not _is_central(document):
        parts.append(f"{_residual(document)} {shown(final['consensus_residual'])} p.u.")
    solves = f"{counted(solver['solves'], 'solve')} by " if solver["solves"] else ""
    parts.append(_solver(document) or f"{solves}{solver['name']}")
    if seconds is not None:
        parts.append(f"time without baselines {number_text(seconds, 2)} s")
    return f"{capitalized('; '.join(parts))}."


def _on_ac(document: Json) -> bool:
    """Return True where the schedule is of rounds on the AC equations."""
    return bool((document["final"]["ac_rounds"] or {}).get("converged"))


def _is_central(document: Json) -> bool:
    return document["settings"]["coordination"] == "central" and not _on_ac(document)


def _plans_on_ac(document: Json) -> bool:
    """Return True where the schedule is planned on the AC equations; no AC state is balanced."""
    settings = document["settings"]
    return bool(settings.get("planning") == "ac" and settings["objective"] != "imbalance")


def _solver(document: Json) -> str:
    """Return the solver of a schedule on the AC equations; '' for that of the settings."""
    if _is_central(document):
        return "Ipopt" if _plans_on_ac(document) else ""
    return INTERIOR_POINT if _on_ac(document) else ""


def _residual(document: Json) -> str:
    """Return the name of the residual of the last round."""
    return "largest AC mismatch" if _on_ac(document) else "consensus residual"


def _rounds(document: Json) -> str:
    settings, on_ac = document["settings"], document["final"]["ac_rounds"]
    if _is_central(document):
        return f"one central {'AC' if _plans_on_ac(document) else 'SOC'} schedule"
    listed = document["rounds"]  # None in a public export
    rounds = counted(None if listed is None else len(listed), "round")
    if on_ac is not None:
        on_equations = counted(on_ac["rounds"], "AC round")
        return on_equations if on_ac["converged"] else f"{on_equations}, {rounds} on the relaxation"
    if ended_at_tolerance(document):
        rounds = f"{len(document['rounds'])} of {counted(settings['rounds'], 'round')}"
    return f"{rounds} of {settings['update']} updates"


def noise(settings: Json) -> str:
    """Return the noise of effective settings, for a title."""
    if settings["mechanism"] == "none":
        return "no noise"
    if releases_nothing(settings):
        return "no demand released"
    drawn = {
        "once": " (drawn once)",
        "round": " (drawn every round)",
        "update": " (drawn every update)",
    }.get(settings["noise_schedule"], "")
    mechanism = MECHANISM_NAMES.get(settings["mechanism"], settings["mechanism"])
    return f"{mechanism} noise on {settings['perturbation']}{drawn}"


def privacy_table(privacy: Json) -> Table:
    """Return nominal and certified epsilons, from a document's privacy."""
    release, total = privacy["per_release"], privacy["total"]
    drawn = counted(privacy["releases_per_zone"], "release")
    rows = [
        ["of one release", release["nominal"], release["certified"]],
        [f"total (pure DP), {drawn}", None, privacy["total_pure"]],
        [f"total at delta = {total['delta']:g}", privacy["published_total"], total["epsilon"]],
    ]
    return "Privacy (worst zone)", ["epsilon", "nominal", "certified"], rows


def notes(document: Json) -> list[Message]:
    """Return the messages of a run, and the coverage of its certificate."""
    privacy, state = document["privacy"], verdict(document)
    lines = [message("ac-state", {"state": state.removesuffix(".")})] if state else []
    noisy = privacy["mechanism"] != "none" and not releases_nothing(document["settings"])
    if noisy and document["final"]["physical"]["status"] is not None:
        lines.append(message("one-draw", {}))
    lines += [*messages(document), *released(document)]
    if privacy["mechanism"] != "none":
        lines += protected(document)
        worst = max(privacy["sensitivity"], key=lambda row: row["ratio"], default=None)
        if worst and worst["ratio"] > 1.0 + 1e-9:
            values = {
                "published": shown(worst["assumed"]),
                "zone": worst["zone"],
                "proven": shown(worst["sensitivity"]),
                "source": bound_in_words(worst["bound_source"]),
                "ratio": shown(worst["ratio"]),
            }
            lines.append(message("published-sensitivity", values))
    scale = document["settings"].get("load_scale", 1.0)
    if privacy["mechanism"] != "none" and privacy["releases_per_zone"] and scale != 1.0:
        values = {"scale": f"{scale:g}", "scaled": scaled_beta(document["settings"])}
        lines.append(message("protected-scaled", values))
    if privacy["mechanism"] != "none":
        unseeded = document["seed"] is None or releases_nothing(document["settings"])
        seed = "" if unseeded else f"; seed {document['seed']}"
        lines.append(message("noise-source", {"caveat": f"{privacy['caveat']}{seed}"}))
    return lines


def bound_in_words(bound: str) -> str:
    """Return the source of a bound; of a norm of rows, its value and bus."""
    norm, _, value = bound.rpartition(" = ")
    if "||" in norm:
        size, _, bus = value.replace("beta ", "beta x ").rpartition(" at bus ")
        return f"{size} (the {norm[-1]}-norm of the rows of bus {bus} in the balance equations)"
    for name, words in STATISTICS.items():
        bound = bound.replace(f"({name})", f"({words})")
    return bound


def released(document: Json) -> list[Message]:
    """Return the released statistics of each zone, if they are not its buses; public."""
    order = [zone["zone"] for zone in document["zones"]]
    rows = sorted(document.get("released") or [], key=lambda row: order.index(row["zone"]))
    if not rows or document["settings"]["release"] in ("bus", "nothing"):
        return []
    chosen = [(f" (--release {row['statistics']})", in_words(row["statistics"])) for row in rows]
    lines = [message("released-statistics", {"statistics": _by_zones(rows, chosen)})]
    single = {zone["zone"] for zone in document["zones"] if zone["buses"] == 1}
    if alone := [row["zone"] for row in rows if row["zone"] in single]:
        lines.append(message("single-bus-zones", {"zones": ", ".join(alone)}))
    return lines


def _by_zones(rows: list[Json], chosen: list[tuple[str, str]]) -> str:
    """Return the releases of zones as text, grouped by zones that release the same.

    ``chosen`` has the flag and the words of each row.
    """
    zones: dict[tuple[str, str], list[str]] = {}
    for row, key in zip(rows, chosen, strict=True):
        zones.setdefault(key, []).append(row["zone"])
    return "; ".join(
        f"{words} by {named_zones(names)}{flag}" for (flag, words), names in zones.items()
    )


def scaled_beta(settings: Json) -> str:
    """Return the protected change in the demand of a run with a load scale, with its unit."""
    beta = parse_beta(settings["beta"])
    return f"{settings['load_scale'] * beta.value:.4g} {beta.unit or 'p.u.'}"


def in_words(statistics: str) -> str:
    """Return the released statistics of a zone as text."""
    return STATISTICS.get(statistics, statistics)


def protected(document: Json) -> list[Message]:
    """Return the adjacency of a certificate, of a document of a run or a series."""
    if document["privacy"]["releases_per_zone"] == 0:
        return []
    settings, adjacency = document["settings"], document["privacy"]["adjacency"]
    return protection(adjacency, settings["protects"], settings.get("power_factor"))


def protection(adjacency: str, protects: str, power_factor: str | None) -> list[Message]:
    """Return the protected change as messages, with its limits."""
    lines = [message("protected", {"adjacency": adjacency})]
    kinds = {"p": ("active", "reactive"), "q": ("reactive", "active")}
    if protects in kinds:
        own, other = kinds[protects]
        lines.append(message("protected-one-kind", {"own": own, "other": other}))
    if power_factor is not None:
        factors = " to ".join(power_factor.split(".."))
        lines.append(message("protected-power-factors", {"factors": factors}))
    return lines


def line(document: Json) -> str:
    """Return a run in one line."""
    physical, total = document["final"]["physical"], document["privacy"]["total"]
    parts = [
        f"{document['case']}, {counted(len(document['zones']), 'zone')}",
        _rounds(document),
        noise(document["settings"]),
        f"{shown(amount(physical['shed_mw'], 'MW'))} MW shed"
        f"{' by plans without an AC power flow' if physical['failure'] else ''}",
    ]
    if total["epsilon"] is not None:
        parts.append(f"total epsilon {shown(total['epsilon'])} at delta = {total['delta']:g}")
    return ", ".join(parts)


STATUSES = (
    ("status", ""),
    ("noise_free_status", " of the noise-free baseline"),
    ("prior_only_status", " of the prior-only baseline"),
)


def series_summary(steps: list[Json]) -> list[list[object]]:
    """Return the values of a series: name, value, unit; few for a public document.

    Means are over the steps with a value, differences over those with both; a note is added if
    these are not all steps. Steps have no length, so means are powers, not energies.
    """

    def values_of(key: str, less: str = "") -> list[float]:
        pairs = [(step.get(key), step.get(less) if less else 0.0) for step in steps]
        return [value - base for value, base in pairs if value is not None and base is not None]

    lines = [
        ("demand", values_of("demand_mw"), "MW"),
        ("load shedding", values_of("redispatch_shed_mw"), "MW"),
        ("  noise-free", values_of("noise_free_shed_mw"), "MW"),
        ("  prior-only (epsilon = 0)", values_of("prior_only_shed_mw"), "MW"),
        ("balancing power between zones", values_of("balancing_mw"), "MW"),
        ("  prior-only (epsilon = 0)", values_of("prior_only_balancing_mw"), "MW"),
        ("cost", values_of("cost"), "$/h"),
        ("cost of privacy", values_of("cost", less="noise_free_cost"), "$/h"),
        ("cost, prior-only (epsilon = 0)", values_of("prior_only_cost"), "$/h"),
    ]
    return [
        [f"{name}, {_mean_of(values, steps)}", amount(sum(values) / len(values), unit), unit]
        for name, values, unit in lines
        if values
    ]


def _mean_of(values: list[float], steps: list[Json]) -> str:
    all_known = len(values) == len(steps)
    return "mean" if all_known else f"mean of {len(values)} of {len(steps)} steps"


def series_messages(steps: list[Json], planned: int, settings: Json) -> list[Message]:
    """Return the messages of a series; fewer for a public document."""
    return [message(*each) for each in _of_series(steps, planned, settings)]


def _of_series(steps: list[Json], planned: int, settings: Json) -> Iterator[tuple[str, Json]]:
    yield "steps-run", {"finished": len(steps), "planned": counted(planned, "step")}
    for key, of in STATUSES:
        if feasibility := [step[key] for step in steps if step.get(key) is not None]:
            feasible = sum(status == "feasible" for status in feasibility)
            yield "steps-feasible", {"of": of, "feasible": feasible, "known": len(feasibility)}
    for step in steps:
        if step.get("status") == "infeasible" and step.get("violated"):
            yield "step-infeasible", {"step": step["step"], "violated": step["violated"]}
    for key, above, below in (
        ("redispatch_shed_mw", "steps-shed", "steps-no-shed"),
        ("curtailed_mw", "steps-curtailed", None),
    ):
        power = [
            (step[key], step["step"], step.get("demand_mw") or 0.0)
            for step in steps
            if step.get(key) is not None
        ]
        most, at, load = max(power, key=lambda step: step[0], default=(0.0, None, 0.0))
        if code := power and (above if most > negligible_mw(load) else below):
            mean = amount(sum(mw for mw, *_ in power) / len(power), "MW")
            yield code, {"mean": mean, "most": amount(most, "MW"), "step": at}
    if any(step.get("cost") is not None for step in steps):
        yield "costs-include", {"voll": f"{settings['voll']:g}", "payment": ""}
    if large := _not_converged(steps, "consensus_residual"):
        yield f"steps-not-converged{'-fresh-noise' if fresh_noise(settings) else ''}", large
    if plain := _not_converged(steps, "noise_free_residual"):
        costs = (step.get("noise_free_cost") for step in steps)
        priced = settings["objective"] == "cost" and any(cost is not None for cost in costs)
        so = ", so the cost of privacy is approximate" if priced else ""
        yield "steps-noise-free-not-converged", plain | {"so": so}


def _not_converged(steps: list[Json], key: str) -> Json:
    """Return the number of steps whose residual is large, and the largest; empty without any."""
    large = [r for r in (step.get(key) or 0.0 for step in steps) if r > CONVERGED_RESIDUAL]
    return {"steps": counted(len(large), "step"), "residual": shown(max(large))} if large else {}


def series_notes(document: Json) -> list[Message]:
    """Return the messages of a series, from its document: plan, steps, releases."""
    steps, planned = document["steps"], document["planned"]
    of_plan = [message(*each) for each in _coupled(document)]
    return [
        *of_plan,
        *series_messages(steps, planned, document["settings"]),
        *(message(*each) for each in interrupted_attempts(document)),
        *_released_in_series(document),
    ]


def _coupled(document: Json) -> Iterator[tuple[str, Json]]:
    """Yield the plan of coupled steps, the storages after the last one and the total cost."""
    steps, coupled = document["steps"], document.get("coupled") or []
    last = {row["storage"]: row for row in document.get("storage") or []}
    for name, row in last.items():
        energy, percent = shown(amount(row["energy_mwh"], "MW")), row["soc_percent"]
        share = "" if percent is None else f" ({percent:.3g} %)"
        values = {"storage": name, "step": row["step"], "energy": energy, "percent": share}
        yield "storage-after", values
    curtailed = [(s.get("curtailed_mw") or 0.0, s.get("demand_mw") or 0.0) for s in steps]
    if last and any(power > negligible_mw(demand) for power, demand in curtailed):
        yield "storage-as-planned", {}
    if not coupled:
        return
    efforts = [(s["rounds"], s["consensus_residual"]) for s in steps if s.get("rounds") is not None]
    if efforts:
        ahead = document["settings"].get("stream") is not None
        least, most = (choose(rounds for rounds, _ in efforts) for choose in (min, max))
        rounds = ("" if least == most else f"{least} to ") + counted(most, "AC round")
        mismatch = shown(max(residual for _, residual in efforts))
        values = {"coupled": ", ".join(coupled), "rounds": rounds, "mismatch": mismatch}
        yield "coupled-plan-ahead" if ahead else "coupled-plan", values
    costs = [step["cost"] for step in steps if step.get("cost") is not None]
    if costs and len(costs) == document["planned"]:
        hours = document["step_hours"]
        starts = sum(row["start_cost"] for row in document.get("commitment") or [])
        cost = amount(hours * sum(costs) + starts, "$/h")
        of_starts = f", with {amount(starts, '$/h')} $ of start costs" if starts else ""
        yield "steps-total", {"cost": cost, "hours": f"{hours:g}", "starts": of_starts}
    if costs and "reserves" in coupled:
        yield "reserves-unpriced", {}
    if (document.get("reserve_shortage_mw") or 0.0) >= LEAST_MW:
        yield "reserve-shortage", {"short": shown(amount(document["reserve_shortage_mw"], "MW"))}


def _released_in_series(document: Json) -> list[Message]:
    """Return the released statistics of zones for all steps, and a stream's budget; public."""
    rows, stream = document["released_once"], document["privacy"].get("stream")
    if not rows or document["settings"]["release"] == "nothing":
        return []
    if stream is not None:
        errors = (f"zone {row['zone']}: {row['expected_error_mw']:.3g} MW" for row in rows)
        block = counted(stream["block_hours"], "hour")
        releases = counted(document["privacy"]["releases_per_zone"], "release")
        values = {"block": block, "releases": releases, "statistics": "; ".join(errors)}
        return [message("released-in-blocks", values), *_stream(stream)]
    added = (counted(row["cosines"], "cosine coefficient") for row in rows)
    chosen = [
        ("", in_words(row["statistics"]) + (f" and {coefficients}" if row["cosines"] else ""))
        for row, coefficients in zip(rows, added, strict=True)
    ]
    return [message("released-once", {"statistics": _by_zones(rows, chosen)})]


def _stream(stream: Json) -> Iterator[Message]:
    """Yield the protection of a stream, and the cost of periods longer than its window; public."""
    window = stream["window_hours"]
    values = {
        "block": counted(stream["block_hours"], "hour"),
        "window": counted(window, "consecutive hour"),
        "total": f"{stream['total_per_window']:g}",
        "delta": f" at delta {delta:g}" if (delta := stream.get("delta_per_window")) else "",
    }
    yield message("stream", values)
    longer = [
        f"{total:.4g} in every hour of a {name}"
        for name, hours in HOURS.items()
        if hours > window and (total := stream.get(f"total_per_{name}")) is not None
    ]
    if longer:
        yield message("stream-longer", {"longer": ", ".join(longer)})

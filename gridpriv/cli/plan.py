"""``gridpriv plan``: the cost of protection, estimated from public data, and a recommendation."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from gridpriv.cli import flags, output
from gridpriv.core.errors import check_choice, not_allowed, positive
from gridpriv.core.settings import Part, changed, count, number, shortest
from gridpriv.core.text import LEAST_MW, Json, amount, counted
from gridpriv.grid.case import Case
from gridpriv.privacy.adjacency import Beta
from gridpriv.zonal.settings import (
    Adjacency,
    Grid,
    Release,
    ReleaseSchedule,
    Settings,
    make_settings,
)

if TYPE_CHECKING:
    from gridpriv.zonal.forecast import Expected

WIDE = 39
"""Demand scenarios whose range contains a further one with probability 95 %."""


@dataclass(frozen=True, kw_only=True)
class Scenarios(Part):
    """Protected change, budget and scenarios (defaults differ from those of gridpriv run)."""

    beta: Beta = changed(Adjacency, "beta", Beta(10.0, "MW"))
    total: float = number(1.0, "total epsilon (pure DP)", positive)
    public_demand: str | None = changed(ReleaseSchedule, "public_demand", None)
    scenarios: int = count(
        10,
        "number of demand scenarios sampled from public data; a further scenario is within the "
        "printed range with probability (N - 1)/(N + 1)",
        most=1000,
    )
    solver: str = changed(
        Grid, "solver", Grid.solver, help="solver of zones in ADMM: clarabel, ipopt or pyomo:NAME"
    )


AXES = {"releases": "nothing,bus,auto,total", "mechanisms": "knorm", "rounds": "central,20"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    flags.flag(parser, "case", "CASE")
    flags.add_zone_arguments(parser)
    flags.refer(parser, "zones")
    for name, default in AXES.items():
        flags.flag(parser, f"--{name}", "A,B,...", default=default)
    flags.add_flags(parser, Scenarios)
    flags.flag(parser, "--protect", "BETA", help=argparse.SUPPRESS, dest="beta")  # its older name
    flags.add_output(parser, "DIR")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Run every method on demand scenarios; print ranges of cost and a recommendation."""
    from gridpriv.privacy.temporal import costs_over_time
    from gridpriv.zonal.forecast import forecast, methods, recommended

    output.output_folder(args.out)
    case = flags.given_case(args)
    zoning = flags.chosen_zoning(case, args)
    chosen = Scenarios(**flags.given_settings(args, Scenarios))
    chosen.beta.distance(case.base_mva)
    given = {name: getattr(chosen, name) for name in ("beta", "solver", "public_demand")}
    given |= {"mechanism": "knorm", "noise_schedule": "once", "seed": 0}
    settings = make_settings(budget=f"total:{chosen.total}", **given)
    protected = settings.adjacency(case)  # warns of a distance outside this grid's range
    options = list(methods(*_axes(args)))

    with output.progress(args, case.name, len(options) * chosen.scenarios) as advance:
        result, left_out = forecast(case, zoning, settings, options, chosen.scenarios, advance)
    best = recommended(result)
    varied = ("release", "mechanism", "rounds", "coordination", "seed")
    common = {k: v for k, v in settings.effective_values(case).items() if k not in varied}
    document = {
        "case": case.name,
        "zones": zoning.n_zone,
        "beta": str(chosen.beta),
        "protected_mw": case.base_mva * protected.beta,
        "total": chosen.total,
        "settings": common,
        "scenarios": chosen.scenarios,
        "left_out": left_out,
        "methods": [item.as_dict() for item in result],
        "over_time": costs_over_time(chosen.total),
        "recommended": best.as_dict(),
        "sentences": [
            f"Protected: {protected.protection(case.base_mva)}.",
            *sentences(case, result, best, left_out, chosen, _command(best, chosen, args)),
        ],
    }
    return output.finish(args, document, lambda: _summarise(document))


def _axes(args: argparse.Namespace) -> tuple[list[str], list[str], list[str]]:
    from gridpriv.zonal.forecast import CENTRAL

    axes = {name: flags.listed(getattr(args, name)) for name in AXES}
    for name, values in axes.items():
        if not values:
            raise not_allowed(name, "", "at least one value")
    releases, mechanisms, rounds = axes.values()
    for release in releases:
        check_choice("releases", release, get_args(Release))
    for mechanism in mechanisms:
        check_choice("mechanisms", mechanism, ("knorm", "laplace"))
    for turns in rounds:
        if turns != CENTRAL and not (turns.isdecimal() and int(turns) > 0):
            raise not_allowed("rounds", turns, "whole numbers above 0, or central")
    return releases, mechanisms, rounds


def sentences(
    case: Case,
    methods: list[Expected],
    best: Expected,
    left_out: int,
    chosen: Scenarios,
    command: str,
) -> list[str]:
    """Return the recommendation, its basis, and the note on budgets."""
    from gridpriv.power.prior import capacity, public_demand
    from gridpriv.zonal.forecast import LEVEL, RESERVE, RULE

    lines = []
    grid_mw = case.base_mva * capacity(case)
    too_noisy = sorted({method.release for method in methods if method.noise_mw > grid_mw > 0.0})
    if too_noisy:
        named = ", ".join(too_noisy)
        lines.append(output.worded("plan-drowned", capacity=grid_mw, releases=named))
    lines.append(f"Recommended: {command}")
    lines += _worst_case(methods, best)
    lines.append(f"{RULE} Prior-only is recommended where no release is better on most scenarios.")
    if best.better is not None:
        counts = {"better": best.better, "worse": best.worse, "scenarios": best.scenarios}
        lines.append(output.worded("plan-against-prior", level=LEVEL, **counts))
    spread = public_demand(case, chosen.public_demand).spread
    more = "" if chosen.scenarios >= WIDE else f" (95 % with --scenarios {WIDE})"
    ranges = output.worded(
        "plan-ranges",
        scenarios=chosen.scenarios,
        share=100 * coverage(chosen.scenarios),
        more=more,
        spread=100 * spread,
        left_out=left_out,
        sampled=left_out + chosen.scenarios,
        reserve=RESERVE,
    )
    return [*lines, ranges]


def _worst_case(methods: list[Expected], best: Expected) -> list[str]:
    """Return the largest extra cost of the recommended release, and the least such one."""
    from gridpriv.zonal.forecast import LEVEL, SAME_COST

    gap, cost = best.over_optimum, best.cost
    if best.release == "nothing" or gap is None or cost is None:
        return []
    most = amount(gap.most, "$/h")
    text = f"Largest extra cost in a scenario: {most} $/h with --release {best.release}"
    small = SAME_COST * cost.median
    same = [m for m in methods if m.rounds == best.rounds and m.release != "nothing"]
    known = [(m.over_optimum, m) for m in same if m.over_optimum]
    other, method = min(known, key=lambda pair: pair[0].most)
    if method.release == best.release or gap.most - other.most <= small:
        return [f"{text}."]
    equal_medians = abs(gap.median - other.median) <= small
    medians = f"; the medians differ by less than {LEVEL} of the cost" if equal_medians else ""
    least = amount(other.most, "$/h")
    return [f"{text}, {least} $/h with --release {method.release}{medians}."]


def _command(best: Expected, chosen: Scenarios, args: argparse.Namespace) -> str:
    """Return the recommended command, or the advice to release nothing."""
    from gridpriv.zonal.forecast import LEVEL

    if best.release == "nothing":
        return output.worded("plan-nothing", level=LEVEL)
    words = ["gridpriv", "run", args.case]
    words += flags.given_words(args, *flags.ZONE_FLAGS, "public_demand")
    words += ["--release", best.release, "--mechanism", best.mechanism]
    if best.rounds == "central":
        words += ["--coordination", "central"]
    else:
        words += ["--noise-schedule", "once"]
        words += ["--rounds", best.rounds] if best.rounds != str(Settings.rounds) else []
    words += ["--budget", f"total:{shortest(chosen.total)}", "--beta", str(chosen.beta)]
    words += ["--solver", chosen.solver] if chosen.solver != Settings.solver else []
    return shlex.join(words)


def coverage(draws: int) -> float:
    """Return the probability that a further scenario is in the range of these."""
    return (draws - 1) / (draws + 1)


def over_time(rows: list[Json]) -> str:
    """Return the cost of hourly releases over a day, a month and a year."""
    fresh = ", ".join(f"{row['fresh']:g} per {row['period']}" for row in rows)
    stream = ", ".join(f"{row['stream_24h']:g} per {row['period']}" for row in rows)
    return output.worded("plan-over-time", fresh=fresh, stream=stream)


MEASURED = {
    "over_optimum": ("extra", "$/h", "cost over the AC optimum of the same scenario"),
    "shed_mw": ("shed", "MW", "load shedding"),
    "balancing_mw": ("balancing", "MW", "balancing power"),
}
"""Ranges over scenarios: column, unit and meaning."""


def _summarise(document: Json) -> None:
    rows = document["methods"]
    priced = any(row["over_optimum"] is not None for row in rows)
    noises = sorted({row["mechanism"] for row in rows})
    named = " and ".join(NOISES[noise] for noise in noises)
    columns = ["release", "schedule", "ok", "error MW"]
    title = (
        f"{document['case']}: {counted(document['zones'], 'zone')}, total epsilon "
        f"{document['total']:g} (pure, {named} noise)"
    )
    meanings = [
        "ok: number of AC-feasible scenarios / number of scenarios",
        "error: expected error of the release in the worst zone, a score to compare releases "
        "(docs/glossary.md)",
    ]
    shown = ["over_optimum"] if priced else ["shed_mw", "balancing_mw"]
    if priced and any(row["shed_mw"] and row["shed_mw"]["most"] >= LEAST_MW for row in rows):
        shown.append("shed_mw")
    for name in shown:
        head_, unit, meaning = MEASURED[name]
        columns += [f"{head} {unit}" for head in (head_, "least", "most")]
        meanings.append(f"{head_}, least, most: {meaning} (median, smallest and largest)")
    if priced:
        columns += ["bal. MW", "saved $/h"]
        meanings.append("bal.: balancing power, for which costs include no payment (median)")
        meanings.append(
            "saved: cost below prior-only in the same scenario (median of these differences)"
        )
    if any(row["rounds"] == "central" for row in rows):
        meanings.append("central: one optimization of the released demand")
    figures = {row["release"]: {name: row[name] for name in FIGURES} for row in rows}
    auto = figures.pop("auto", None)
    if chosen := [release for release, own in figures.items() if own == auto]:
        meanings.append(f"auto: {chosen[0]} on this grid")
    if len({row["rounds"] for row in rows} - {"central"}) > 1:
        meanings.append("N rounds: limit of rounds on the relaxation, not of AC rounds")
    output.print_table(title, columns, list(_cells(rows, shown, priced=priced)))
    output.say(*meanings)
    failed = sum(row["without_dispatch"] for row in rows)
    if failed:
        output.say(f"{counted(failed, 'run')} ended without a dispatch: not AC-feasible.")
    for sentence in [*document["sentences"], over_time(document["over_time"])]:
        label, _, rest = sentence.partition(" ")
        if rest.startswith("gridpriv run"):
            output.say_command(label, rest)
        else:
            output.say(sentence)


def _cells(rows: list[Json], shown: list[str], *, priced: bool) -> Iterator[list[object]]:
    """Yield the cells of every compared method."""
    noises = {row["mechanism"] for row in rows}
    numbers = {row["rounds"] for row in rows} - {"central"}
    for row in rows:
        drawn, saved = (
            row[key]["median"] if row[key] else None for key in ("balancing_mw", "over_prior_only")
        )
        expected = amount(row["expected_error_mw"], "MW")
        cells = [f"{row['ac_feasible']}/{row['scenarios']}", expected]
        cells += [
            amount(row[name][end], MEASURED[name][1]) if row[name] else None
            for name in shown
            for end in ENDS
        ]
        name = f"{row['release']} {row['mechanism']}" if len(noises) > 1 else row["release"]
        several = f"{row['rounds']} rounds" if len(numbers) > 1 else "rounds"
        coordination = "central" if row["rounds"] == "central" else several
        gained = None if saved is None else amount(-saved, "$/h")
        cells += [amount(drawn, "MW"), gained] if priced else []
        yield [name, coordination, *cells]


FIGURES = ("expected_error_mw", "over_optimum", "shed_mw", "balancing_mw")
ENDS = ("median", "least", "most")
NOISES = {"knorm": "K-norm", "laplace": "Laplace"}

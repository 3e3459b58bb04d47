"""``gridpriv plan``: what protection will cost, from public data only, and which way to take."""

from __future__ import annotations

import argparse
import math
import shlex
from typing import TYPE_CHECKING, get_args

from gridpriv.cli.flags import (
    CASE,
    REAL,
    WHOLE,
    ZONE_FLAGS,
    add_output,
    add_zone_arguments,
    chosen_zoning,
    given_words,
    listed,
)
from gridpriv.cli.output import output_folder, print_table, tell, write_results
from gridpriv.cli.progress import progress
from gridpriv.core.display import amount, counted, figure
from gridpriv.core.document import Json
from gridpriv.core.errors import not_allowed, one_of
from gridpriv.core.settings import shortest
from gridpriv.grid.case import Case
from gridpriv.privacy.adjacency import parse_beta
from gridpriv.zonal.settings import Release, Settings, make_settings

if TYPE_CHECKING:
    from gridpriv.zonal.forecast import Expected

MOST_DRAWS = 1000
RELEASES, MECHANISMS, ROUNDS = "nothing,bus,auto,total", "knorm", "central,20"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("case", metavar="CASE", help=CASE)
    add_zone_arguments(parser)
    parser.add_argument("--protect", default="10MW", metavar="BETA",
                        help="change of one bus's demand that is hidden, such as 10MW; without "
                        "a unit it is per unit of the case's base")  # fmt: skip
    parser.add_argument("--total", type=REAL, default=1.0, metavar="E", help="pure total epsilon")
    parser.add_argument("--public-demand", metavar="FILE",
                        help="expected demand of every bus, bus,pd_mw,qd_mvar "
                        "(default: guessed from capacity)")  # fmt: skip
    parser.add_argument("--releases", default=RELEASES, metavar="A,B,...",
                        help="what zones release: nothing | bus | total | tree | auto")  # fmt: skip
    parser.add_argument("--mechanisms", default=MECHANISMS, metavar="A,B,...",
                        help="noise: knorm | laplace")  # fmt: skip
    parser.add_argument("--rounds", default=ROUNDS, metavar="A,B,...",
                        help="numbers of rounds, or central")  # fmt: skip
    parser.add_argument("--draws", type=WHOLE, default=10, metavar="N",
                        help="stand-ins for demand, drawn from what is public")  # fmt: skip
    parser.add_argument("--solver", default=Settings.solver, metavar="NAME",
                        help="clarabel, ipopt or pyomo:NAME")  # fmt: skip
    add_output(parser, "write plan.json")


def execute(args: argparse.Namespace) -> int:
    """Try every way on stand-ins, print what each is expected to cost, and a recommendation."""
    from gridpriv.grid.library import load_case
    from gridpriv.grid.zoning import map_digest, zone_map
    from gridpriv.zonal.forecast import forecast, recommended, ways

    folder = output_folder(args.out)
    case = load_case(args.case)
    zoning = chosen_zoning(case, args)
    if not (args.total > 0.0 and math.isfinite(args.total)):
        raise not_allowed("total", args.total, "a positive number")
    beta = parse_beta(args.protect, "protect")
    beta.distance(case.base_mva, "protect")
    settings = make_settings(
        mechanism="knorm", refresh="run",
        budget=f"total:{args.total}", beta=beta,
        solver=args.solver, public_demand=args.public_demand, seed=0,
    )  # fmt: skip
    protected = settings.adjacency(case)  # warns of a distance that is none of this grid's
    options = list(ways(*_axes(args)))
    if not 1 <= args.draws <= MOST_DRAWS:
        raise not_allowed("draws", args.draws, f"1 to {MOST_DRAWS}")
    with progress(args, case.name, len(options) * args.draws) as advance:
        found = forecast(case, zoning, settings, options, args.draws, advance)
    best = recommended(found)
    varied = ("release", "mechanism", "rounds", "coordination", "seed")
    common = {name: value for name, value in settings.told_of(case).items() if name not in varied}
    document = {
        "case": case.name, "zones": zoning.n_zone, "beta": args.protect,
        "protected_mw": case.base_mva * protected.beta, "total": args.total,
        "map_sha256": map_digest(zone_map(case, zoning)), "settings": common,
        "draws": args.draws, "ways": [one.as_dict() for one in found],
        "recommended": best.as_dict(), "sentences": sentences(case, found, best, args),
    }  # fmt: skip
    if folder is not None:
        write_results(folder, "plan", document)
    tell(args, document, lambda: _summarise(document), folder)
    return 0


def _axes(args: argparse.Namespace) -> tuple[list[str], list[str], list[str]]:
    from gridpriv.zonal.forecast import CENTRAL

    axes = {name: listed(getattr(args, name)) for name in ("releases", "mechanisms", "rounds")}
    for name, values in axes.items():
        if not values:
            raise not_allowed(name, "", "at least one value")
    releases, mechanisms, rounds = axes.values()
    for release in releases:
        one_of("releases", release, get_args(Release))
    for mechanism in mechanisms:
        one_of("mechanisms", mechanism, ("knorm", "laplace"))
    for number in rounds:
        if number != CENTRAL and not (number.isdecimal() and int(number) > 0):
            raise not_allowed("rounds", number, "whole numbers above 0, or central")
    return releases, mechanisms, rounds


def sentences(
    case: Case, found: list[Expected], best: Expected, args: argparse.Namespace
) -> list[str]:
    """Return the recommendation, what it rests on, and what must be said of budgets."""
    from gridpriv.power.prior import capacity, public_demand
    from gridpriv.zonal.forecast import RESERVE, WORTH

    told = []
    grid_mw = case.base_mva * capacity(case)
    drowned = sorted({one.release for one in found if one.noise_mw > grid_mw})
    if drowned:
        told.append(
            f"The noise on a zone's sum exceeds all that the grid can generate ({grid_mw:.4g} MW) "
            f"with {', '.join(drowned)}: what is released says next to nothing."
        )
    if best.release == "nothing":
        told.append(
            "Recommended: release nothing, which costs no privacy. No way that was tried does "
            f"better by more than {WORTH:.1%} on more than half of the stand-ins."
        )
    else:
        coordination = (
            ["--coordination", "central"] if best.rounds == "central"
            else ["--refresh", "run", "--rounds", best.rounds]
        )  # fmt: skip
        words = [
            "gridpriv", "run", args.case, *given_words(args, *ZONE_FLAGS, "public_demand"),
            "--release", best.release, "--mechanism", best.mechanism, *coordination,
            "--budget", f"total:{shortest(args.total)}", "--beta", args.protect,
            "--solver", args.solver,
        ]  # fmt: skip
        told.append(f"Recommended: {shlex.join(words)}")
    if best.better is not None:
        told.append(
            f"It does better than nothing released by more than {WORTH:.1%} on {best.better} of "
            f"{best.stand_ins} stand-ins, and worse on {best.worse}."
        )
    spread = public_demand(case, args.public_demand).spread
    told.append(
        f"Ranges are over {args.draws} stand-ins for demand. Drawn from what is public, a zone's "
        f"sum spreads by {spread:.0%} around what is expected (standard deviation); kept are draws "
        f"of which the grid serves {RESERVE:g} times as much, and those are lighter and spread "
        "less. They are no bounds: the true demand was not read. "
        "What a budget costs and buys on that, gridpriv run says after its run."
    )
    return told


def _summarise(document: Json) -> None:
    ways = document["ways"]
    columns = {
        "over_optimum": "$/h over optimum",
        "over_nothing": "$/h over nothing",
        "shed_mw": "shed MW",
        "balancing_mw": "balanced MW",
    }
    costs = any(way["over_optimum"] is not None for way in ways)
    measured = ["over_optimum", "over_nothing", "shed_mw"] if costs else ["shed_mw", "balancing_mw"]
    noises = sorted({way["mechanism"] for way in ways})
    named = ["release", *(["mechanism"] if len(noises) > 1 else []), "rounds"]
    print_table(
        f"{document['case']}: {counted(document['zones'], 'zone')} at total {document['total']:g} "
        f"({', '.join(noises)}), {document['protected_mw']:.6g} MW protected; "
        "median (least to most)",
        [*named, "sum's error MW", *(columns[name] for name in measured)],
        [
            [*(way[name] for name in named), amount(way["error_mw"], "MW"),
             *(_range(way[name]) for name in measured)]
            for way in ways
        ],
    )  # fmt: skip
    failed = sum(way["without_dispatch"] for way in ways)
    if failed:
        print(f"{failed} of the runs on stand-ins ended without a dispatch.")
    for sentence in document["sentences"]:
        print(sentence)


def _range(found: dict[str, float] | None) -> str | None:
    if found is None:
        return None
    least, median, most = (figure(found[name]) for name in ("least", "median", "most"))
    return median if least == most else f"{median} ({least} to {most})"

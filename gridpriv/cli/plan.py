"""``gridpriv plan``: what protection will cost, from public data only, and which way to take."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, get_args

from gridpriv.cli.common import (
    REAL,
    WHOLE,
    add_output,
    add_zone_arguments,
    chosen_zoning,
    output_folder,
    print_table,
    progress,
    ready,
    tell,
    write_json,
)
from gridpriv.core.display import amount
from gridpriv.core.errors import not_allowed, one_of

if TYPE_CHECKING:
    from gridpriv.grid.case import Case
    from gridpriv.zonal.forecast import Expected

RELEASES, MECHANISMS, ROUNDS = "nothing,bus,tree,total", "knorm", "central,10,30"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("case", metavar="CASE", help="a case by name, or a path")
    add_zone_arguments(parser)
    parser.add_argument("--protect", default="10MW", metavar="BETA",
                        help="change of one bus's demand that is hidden, such as 10MW")  # fmt: skip
    parser.add_argument("--total", type=REAL, default=1.0, metavar="E", help="pure total epsilon")
    parser.add_argument("--public-demand", metavar="FILE",
                        help="expected demand of every bus, bus,pd_mw,qd_mvar "
                        "(default: guessed from capacity)")  # fmt: skip
    parser.add_argument("--releases", default=RELEASES, metavar="A,B,...", help="strategies")
    parser.add_argument("--mechanisms", default=MECHANISMS, metavar="A,B,...", help="noise")
    parser.add_argument("--rounds", default=ROUNDS, metavar="A,B,...",
                        help="numbers of rounds, or central")  # fmt: skip
    parser.add_argument("--draws", type=WHOLE, default=3, metavar="N",
                        help="stand-ins for demand, drawn from what is public")  # fmt: skip
    parser.add_argument("--solver", default="clarabel", metavar="NAME",
                        help="clarabel, ipopt or pyomo:NAME")  # fmt: skip
    add_output(parser, "write plan.json")


def execute(args: argparse.Namespace) -> int:
    """Try every way on stand-ins, print what each is expected to cost, and a recommendation."""
    from gridpriv.grid.library import load_case
    from gridpriv.zonal.forecast import forecast, recommended, ways
    from gridpriv.zonal.settings import make_settings

    folder = output_folder(args.out)
    case = load_case(args.case)
    zoning = chosen_zoning(case, args)
    settings = make_settings(
        mechanism="knorm", refresh="run", budget=f"total:{args.total}", beta=args.protect,
        solver=args.solver, public_demand=args.public_demand, seed=0,
    )  # fmt: skip
    options = list(ways(*_axes(args)))
    if args.draws < 1:
        raise not_allowed("draws", args.draws, "1 or more")
    with progress(case.name, len(options) * args.draws, quiet=args.quiet or args.json) as advance:
        found = forecast(case, zoning, settings, options, args.draws, advance)
    best = recommended(found)
    document = {
        "case": case.name, "zones": zoning.n_zone, "beta": args.protect, "total": args.total,
        "draws": args.draws, "ways": [one.as_dict() for one in found],
        "recommended": best.as_dict(), "sentences": sentences(case, found, best, args),
    }  # fmt: skip
    if folder is not None:
        write_json(document, ready(folder) / "plan.json")
    tell(args, document, lambda: _summarise(document), folder)
    return 0


def _axes(args: argparse.Namespace) -> tuple[list[str], list[str], list[str]]:
    from gridpriv.zonal.forecast import CENTRAL
    from gridpriv.zonal.settings import Release

    releases, mechanisms, rounds = (
        [part.strip() for part in getattr(args, name).split(",") if part.strip()]
        for name in ("releases", "mechanisms", "rounds")
    )
    for name, values in (("releases", releases), ("mechanisms", mechanisms), ("rounds", rounds)):
        if not values:
            raise not_allowed(name, "", "at least one value")
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
    """Return the recommendation, and what must be said of budgets that are worth nothing."""
    from gridpriv.power.prior import capacity
    from gridpriv.zonal.forecast import WORTH

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
            "Recommended: release nothing. No way that was tried is expected to do better by more "
            f"than {WORTH:.1%}, and it costs no privacy."
        )
        return told
    coordination = (
        "--coordination central" if best.rounds == "central"
        else f"--refresh run --rounds {best.rounds}"
    )  # fmt: skip
    told.append(
        f"Recommended: gridpriv run {args.case} --release {best.release} "
        f"--mechanism {best.mechanism} {coordination} --budget total:{args.total:g} "
        f"--beta {args.protect}"
    )
    return told


def _summarise(document: dict[str, Any]) -> None:
    costs = document["ways"][0]["cost"] is not None
    measured = ["over_optimum", "shed_mw"] if costs else ["shed_mw", "balancing_mw"]
    words = {
        "over_optimum": "$/h over optimum",
        "shed_mw": "shed MW",
        "balancing_mw": "balanced MW",
    }
    print_table(
        f"{document['case']}: expected of {document['zones']} zones at total "
        f"{document['total']:g}, {document['beta']} protected; public data only",
        ["release", "noise", "rounds", "sum's error MW", *(words[name] for name in measured)],
        [
            [way["release"], way["mechanism"], way["rounds"], amount(way["error_mw"], "MW"),
             *(amount(way[name], "$/h" if name == "over_optimum" else "MW") for name in measured)]
            for way in document["ways"]
        ],
    )  # fmt: skip
    failed = sum(way["without_dispatch"] for way in document["ways"])
    print(f"Means over {document['draws']} stand-ins for demand, drawn from what is public.")
    if failed:
        print(f"{failed} of the runs on them ended without a dispatch.")
    for sentence in document["sentences"]:
        print(sentence)

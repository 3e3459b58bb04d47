"""``gridpriv attack``: what somebody who hears every message learns about a bus's demand."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gridpriv.cli.flags import REAL, WHOLE, hide_what_runs_only, number, studied_run
from gridpriv.cli.output import output_folder, print_table, tell, write_results
from gridpriv.cli.progress import progress
from gridpriv.cli.run import add_arguments as add_run_arguments
from gridpriv.core.display import counted

if TYPE_CHECKING:
    import pandas as pd

    from gridpriv.assurance.findings import AttackResult

EPSILONS = number(lambda text: tuple(map(float, text.split(","))), "numbers, such as 0.5,1,5")
AVERAGED = (1, 2, 5, 10, 20, 40)
KNOWN_BETTER = 0.01
"""Share of the prior's error by which an attack must beat it: less is the solver's last digits."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``run`` and the attack's own."""
    add_run_arguments(parser)
    hide_what_runs_only(parser)
    parser.add_argument(
        "--seeds", type=WHOLE, default=5, metavar="N", help="number of noisy runs to attack"
    )
    parser.add_argument(
        "--epsilons",
        type=EPSILONS,
        default=(),
        metavar="E,E",
        help="total epsilons of further attacked runs, comma-separated",
    )
    parser.add_argument(
        "--attack-rounds",
        type=WHOLE,
        default=10,
        metavar="R",
        help="largest number of rounds that the adversary observes",
    )
    parser.add_argument(
        "--prior",
        default="grid",
        metavar="WHOSE",
        help=(
            "public prior: equal shares of the total demand of the grid or of the zone: grid | zone"
        ),
    )
    parser.add_argument(
        "--prior-spread",
        type=REAL,
        default=1.0,
        metavar="S",
        help="standard deviation of the public prior divided by its mean",
    )
    parser.add_argument(
        "--bus", type=WHOLE, metavar="BUS", help="attack this bus's zone only (default: every zone)"
    )
    parser.add_argument(
        "--averaging",
        action="store_true",
        help="also report the error by number of rounds, for noise drawn every round and once",
    )


def execute(args: argparse.Namespace) -> int:
    """Attack; print or write what was learned."""
    from gridpriv.assurance.adversary import AttackPlan
    from gridpriv.assurance.attack import attack
    from gridpriv.assurance.averaging import averaging
    from gridpriv.zonal.prepared import prepare

    case, zoning, settings = studied_run(args)
    plan = AttackPlan(
        args.seeds, args.epsilons, args.attack_rounds, args.prior, args.prior_spread, args.bus
    )
    folder = output_folder(args.out)
    prepared = prepare(case, zoning, settings)
    noisy = settings.mechanism != "none"
    zones = zoning.n_zone if args.bus is None else 1
    steps = zones * (1 + noisy * plan.seeds * (1 + len(plan.epsilons)))
    steps += args.averaging * 2 * plan.seeds * len(AVERAGED)
    with progress(args, case.name, steps) as advance:
        result = attack(prepared, plan, advance)
        curve = None
        if args.averaging and noisy:
            curve = averaging(prepared, plan, AVERAGED, advance)
    document = result.as_dict()
    document["averaging"] = None if curve is None else curve.to_dict("records")
    if folder is not None:
        tables = {"buses": result.buses(), "by_distance": result.by_distance()}
        write_results(folder, "attack", document, **tables)
        _draw(result, curve, folder)
    tell(args, document, lambda: _print(result), folder)
    return 0


def _draw(result: AttackResult, curve: pd.DataFrame | None, folder: Path) -> None:
    from gridpriv.report.assurance import averaging_chart, epsilon_chart, error_map, errors_bars
    from gridpriv.report.figures import Plot, write_figure

    figures: dict[str, Plot] = {
        "attack": errors_bars(result),
        "map": error_map(result),
        "map_no_noise": error_map(result, "no noise"),
    }
    if result.plan.epsilons:
        figures["epsilon"] = epsilon_chart(result)
    if curve is not None:
        title = f"{result.prepared.case.name}: the same demand noise, drawn each round or once"
        figures["averaging"] = averaging_chart(curve, float(result.prior_errors.mean()), title)
    for name, figure in figures.items():
        write_figure(figure, folder / f"{name}.png", private=True)


def _print(result: AttackResult) -> None:
    from gridpriv.assurance.identifiability import VERDICTS

    prepared = result.prepared
    print_table(
        f"{prepared.case.name}: error of active demand, {counted(len(result.attacked), 'bus')}, "
        f"{counted(result.plan.seeds, 'seed')}",
        ["run", "reads", "MW", "+-95%", "median %", "in 5%", "of prior"],
        [
            [
                r["configuration"],
                r["adversary"],
                *map(
                    _three,
                    (
                        r["mae_mw"],
                        r["interval_mw"],
                        r["error_percent"],
                        r["recovered"],
                        r["of_prior"],
                    ),
                ),
            ]
            for r in result.as_dict()["summary"]
        ],
    )
    print_table(
        "What noise-free messages hold (buses)",
        ["zone", "demands", "rank", *VERDICTS],
        [
            [str(r["zone"]), r["demands"], r["rank"], *(r[v] for v in VERDICTS)]
            for r in result.as_dict()["zones"]
        ],
    )
    table = result.by_distance()
    rows = table[table["adversary"] == "messages"]
    print_table(
        "Share recovered by lines to the nearest tie bus",
        ["run", "lines", "buses", "identifiable", "in 5%", "in 1 MW"],
        [
            [
                r.configuration,
                int(r.lines_to_tie),
                int(r.buses),
                _three(r.identifiable),
                _three(r.recovered),
                _three(r.within_1mw),
            ]
            for r in rows.itertuples()
        ],
    )
    errors = result.errors(result.shown).mean(axis=0)
    closer = int((errors < (1.0 - KNOWN_BETTER) * result.prior_errors).sum())
    print(
        f"Of {len(result.attacked)} buses, {closer} are known better than by the prior, an "
        f"equal share of the {result.plan.prior}'s total, by {KNOWN_BETTER:.0%} of its error or "
        f"more ({result.shown.label}, {result.shown.adversary})."
    )
    print(f"Worst protected buses: {', '.join(map(str, result.worst()))}.")


def _three(value: float | None) -> str:
    """Return a figure with three digits, or a dash."""
    return "-" if value is None else f"{value:.3g}"

"""``gridpriv acopf``: the AC optimum of a whole grid."""

from __future__ import annotations

import argparse
import warnings
from typing import TYPE_CHECKING

from gridpriv.cli.common import REAL, output_folder, print_table, ready, write_json, write_text
from gridpriv.cli.relax import add_case_arguments, changed_case
from gridpriv.core.errors import GridprivWarning

if TYPE_CHECKING:
    from gridpriv.power.ac.optimum import AcOptimum
    from gridpriv.power.centralized import Relaxation

PRICE_DIFFERENCE = 0.01
"""Share of the highest price by which the relaxation's prices may differ in silence."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_case_arguments(parser)
    parser.add_argument(
        "--objective", default="cost",
        help="cost | shed | losses: of generation and unserved demand (default: cost)",
    )  # fmt: skip
    parser.add_argument(
        "--voll", type=REAL, default=None, metavar="X", help="value of lost load, $/MWh (10000)"
    )
    parser.add_argument(
        "--bound", action="store_true",
        help="with cost: solve the relaxation too; print its bound, compare its prices",
    )  # fmt: skip
    parser.add_argument(
        "--out", metavar="DIR", help="write acopf.json, buses.csv, generators.csv, binding.csv"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def execute(args: argparse.Namespace) -> int:
    """Solve, print cost, shed, losses and prices, and what is outside a limit."""
    case = changed_case(args)
    folder = output_folder(args.out)

    from gridpriv.power.ac.limits import limit_table
    from gridpriv.power.ac.optimum import acopf
    from gridpriv.power.ac.service import VOLL
    from gridpriv.power.centralized import relax

    found = acopf(case, args.objective, VOLL if args.voll is None else args.voll)
    bound = relax(case, "cost") if args.bound else None
    document = found.as_dict()
    if bound is not None and found.cost is not None:
        document["bound"] = bound.bound
        document["gap"] = None if bound.bound is None else 1.0 - bound.bound / found.cost
        warn_of_prices(found, bound)
    if folder is not None:
        write_json(document, ready(folder) / "acopf.json")
        write_text(folder / "buses.csv", found.buses.to_csv(index=False))
        write_text(folder / "generators.csv", found.generators.to_csv(index=False))
        write_text(folder / "binding.csv", limit_table(found.binding).to_csv(index=False))
    if args.json:
        write_json(document)
    else:
        _summarise(found, document)
    return 0


def warn_of_prices(found: AcOptimum, bound: Relaxation) -> None:
    """Warn where the relaxation's prices are not those of the AC optimum (congestion)."""
    import numpy as np

    apart = np.abs(bound.p_price - found.p_price)
    highest = float(np.nanmax(np.abs(found.p_price)))
    differs = apart > PRICE_DIFFERENCE * highest
    if not differs.any():
        return
    worst = int(np.nanargmax(apart))
    warnings.warn(
        f"the relaxation's prices differ from the AC optimum's at {int(differs.sum())} buses by "
        f"more than {100 * PRICE_DIFFERENCE:g} % of the highest: most at bus "
        f"{found.state.case.bus_id[worst]}, {bound.p_price[worst]:.4g} for "
        f"{found.p_price[worst]:.4g} $/MWh",
        GridprivWarning,
        stacklevel=2,
    )


def _summarise(found: AcOptimum, document: dict[str, object]) -> None:
    import numpy as np

    rows: list[list[object]] = [
        ["cost, unserved demand included", document["cost"], "$/h"],
        ["cost of generation", document["generation_cost"], "$/h"],
        ["unserved demand", document["shed_mw"], "MW"],
        ["of it on islands without generation", document["dead_mw"], "MW"],
        ["spilt generation", document["spill_mw"], "MW"],
        ["losses", document["losses_mw"], "MW"],
        ["limits violated", len(found.violations), ""],
        ["seconds", document["seconds"], "s"],
    ]
    if "bound" in document:
        rows[1:1] = [["bound of the relaxation", document["bound"], "$/h"],
                     ["gap to the bound", document["gap"], ""]]  # fmt: skip
    if found.objective == "cost":
        rows[-2:-2] = [
            ["lowest price of a bus", float(np.nanmin(found.p_price)), "$/MWh"],
            ["highest price of a bus", float(np.nanmax(found.p_price)), "$/MWh"],
        ]
    shown = [[name, f"{v:.7g}" if isinstance(v, float) else v, unit] for name, v, unit in rows]
    print_table(f"{document['case']}: AC optimum, {found.objective}",
                ["result", "value", "unit"], shown)  # fmt: skip

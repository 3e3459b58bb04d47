"""``gridpriv acopf``: the AC optimum of a whole grid."""

from __future__ import annotations

import argparse
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gridpriv.cli.flags import add_case_arguments, add_flags, add_output, given_settings
from gridpriv.cli.output import output_folder, print_table, tell, write_results
from gridpriv.cli.relax import changed_case, price_rows
from gridpriv.core.display import PRECISION, amount
from gridpriv.core.document import Json
from gridpriv.core.errors import GridprivWarning
from gridpriv.core.settings import changed, choice
from gridpriv.power.ac.service import Service
from gridpriv.power.objective import AC_OBJECTIVES, AcObjective
from gridpriv.zonal.settings import Scenario

if TYPE_CHECKING:
    from gridpriv.power.ac.optimum import AcOptimum
    from gridpriv.power.centralized import SolvedRelaxation

PRICE_DIFFERENCE = 0.01
"""Share of the highest price by which the relaxation's prices may differ in silence."""


@dataclass(frozen=True, kw_only=True)
class Optimum(Scenario):
    """Objective and prices."""

    objective: AcObjective = choice(
        "cost",
        AC_OBJECTIVES,
        "objective: generation cost with load shedding, load shedding, or losses",
    )
    voll: float = changed(Service, "voll", Service.voll)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_case_arguments(parser)
    add_flags(parser, Optimum)
    parser.add_argument(
        "--bound",
        action="store_true",
        help="with --objective cost, also solve the SOC relaxation: lower bound and prices",
    )
    add_output(parser, "write acopf.json, buses.csv, generators.csv, binding.csv")


def execute(args: argparse.Namespace) -> int:
    """Solve, print cost, shed, losses and prices, and what is outside a limit."""
    case = changed_case(args)
    folder = output_folder(args.out)

    from gridpriv.power.ac.limits import limit_table
    from gridpriv.power.ac.optimum import acopf
    from gridpriv.power.centralized import relax

    chosen = Optimum(**given_settings(args, Optimum))
    found = acopf(case, chosen.objective, chosen.voll)
    bound = relax(case, "cost") if args.bound else None
    document = found.as_dict()
    if bound is not None and found.cost is not None:
        document["bound"] = bound.bound
        document["gap"] = None if bound.bound is None else 1.0 - bound.bound / found.cost
        warn_of_prices(found, bound)
    if folder is not None:
        write_results(
            folder,
            "acopf",
            document,
            buses=found.buses,
            generators=found.generators,
            binding=limit_table(found.state.binding),
        )
    tell(args, document, lambda: _summarise(found, document), folder)
    return 0


def warn_of_prices(found: AcOptimum, bound: SolvedRelaxation) -> None:
    """Warn where the relaxation's prices are not those of the AC optimum (congestion)."""
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


def _summarise(found: AcOptimum, document: Json) -> None:
    from gridpriv.power.ac.limits import limit_sentence
    from gridpriv.power.shortage import SHED_TOLERANCE_MW

    rows: list[list[Any]] = [
        ["cost with load shedding", document["cost"], "$/h"],
        ["cost of generation", document["generation_cost"], "$/h"],
        ["load shedding", document["shed_mw"], "MW"],
        ["of it on islands without generation", document["deenergized_mw"], "MW"],
        ["spilt generation", document["curtailed_mw"], "MW"],
        ["losses", document["losses_mw"], "MW"],
        ["limits violated", len(found.violations), ""],
        ["seconds", document["seconds"], "s"],
    ]
    if "bound" in document:
        gap = document["gap"]
        rows[1:1] = [
            ["bound of the relaxation", document["bound"], "$/h"],
            ["gap to the bound", 100.0 * gap if isinstance(gap, float) else None, "%"],
        ]
    if found.objective == "cost":
        rows[-2:-2] = price_rows(found.p_price)
    shown = [[name, amount(v, u) if u in PRECISION else v, u] for name, v, u in rows]
    print_table(
        f"{document['case']}: AC optimum, {found.objective}", ["result", "value", "unit"], shown
    )
    if document["shed_mw"] - document["deenergized_mw"] > SHED_TOLERANCE_MW:
        told = limit_sentence(found.state.binding)
        print(
            f"Binding limits where load is shed: {told}. gridpriv relax lists the "
            "limits that cause load shedding."
        )

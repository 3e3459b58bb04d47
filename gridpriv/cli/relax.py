"""``gridpriv relax``: the centralized SOC relaxation of a case and its bound."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np

from gridpriv.cli.flags import (
    add_case_arguments,
    add_flags,
    add_output,
    given_case,
    given_settings,
    question_demand,
)
from gridpriv.cli.output import output_folder, print_table, tell, write_results
from gridpriv.core.arrays import Floats
from gridpriv.core.display import amount
from gridpriv.core.document import Json
from gridpriv.core.errors import SolverError
from gridpriv.core.settings import changed
from gridpriv.grid.case import Case
from gridpriv.power.objective import RELAXED_OBJECTIVES, ObjectiveKind
from gridpriv.zonal.settings import Grid, Scenario


@dataclass(frozen=True, kw_only=True)
class Relaxation(Scenario):
    """Objective and solver of the relaxation."""

    objective: ObjectiveKind = changed(
        Grid,
        "objective",
        "imbalance",
        help="objective to minimize",
        choices=RELAXED_OBJECTIVES,
        unset="",
    )
    imbalance_weight: float | None = changed(
        Grid, "imbalance_weight", None, unset="none: with cost, the balance is hard"
    )
    solver: str = changed(Grid, "solver", Grid.solver)


def changed_case(args: argparse.Namespace) -> Case:
    """Return the case with the demand, load scale and outages that the arguments ask for."""
    scenario = Scenario(**given_settings(args, Scenario))
    case = given_case(args).scale_load(scenario.load_scale)
    question_demand(args, case, scenario.load_scale)
    return case.without(scenario.outage)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_case_arguments(parser)
    add_flags(parser, Relaxation)
    add_output(parser, "write relax.json, buses.csv, binding.csv")


def execute(args: argparse.Namespace) -> int:
    """Solve and print the bound, what binds, and the prices' range."""
    case = changed_case(args)
    folder = output_folder(args.out)

    from gridpriv.power.centralized import relax
    from gridpriv.power.solvers import check_solver

    chosen = Relaxation(**given_settings(args, Relaxation))
    check_solver(chosen.solver)
    found = relax(case, chosen.objective, chosen.solver, chosen.imbalance_weight)
    document = found.as_dict()
    if folder is not None:
        write_results(folder, "relax", document, buses=found.buses, binding=found.binding)
    solved = document["bound"] is not None
    tell(args, document, lambda: _summarise(document, found.p_price) if solved else None, folder)
    if not solved:
        raise SolverError(f"case {case.name}: {document['explanation']}")
    return 0


def price_rows(prices: Floats) -> list[list[object]]:
    """Return the ends of the buses' prices, as rows of a table."""
    ends = {"lowest": np.nanmin(prices), "highest": np.nanmax(prices)}
    return [[f"{end} price of a bus", float(price), "$/MWh"] for end, price in ends.items()]


def _summarise(document: Json, prices: Floats) -> None:
    rows: list[list[object]] = [
        ["bound", f"{document['bound']:.7g}", document["unit"]],
        ["demand that cannot be served, at least", amount(document["shed_mw"], "MW"), "MW"],
        ["estimated relative error", document["relative_error"], ""],
        ["status", document["status"], ""],
        ["solver", document["solver"], ""],
        ["seconds", document["seconds"], "s"],
    ]
    if document["objective"] == "cost" and np.isfinite(prices).all():
        rows[2:2] = price_rows(prices)
    print_table(
        f"{document['case']}: SOC relaxation, {document['objective']}",
        ["result", "value", "unit"],
        rows,
    )
    sentence = str(document["explanation"])
    print(f"{sentence[0].upper()}{sentence[1:]}.")

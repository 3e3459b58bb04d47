"""``gridpriv relax`` and ``gridpriv acopf``: a whole grid's relaxation, and its AC optimum."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import gridpriv
from gridpriv.cli import flags, output
from gridpriv.core.arrays import Floats, Ints
from gridpriv.core.errors import SolverError
from gridpriv.core.settings import changed, choice
from gridpriv.core.text import PRECISION, Json, amount, capitalized
from gridpriv.grid.case import Case
from gridpriv.grid.scenarios import out_of_service
from gridpriv.power import objective as objectives
from gridpriv.zonal.settings import Grid, Scenario

if TYPE_CHECKING:
    from gridpriv.power.ac.optimum import AcOptimum
    from gridpriv.power.centralized import SolvedRelaxation

PRICE_DIFFERENCE = 0.01
"""Share of the highest price up to which differences of prices give no warning."""
PRICE_DIGITS = 6
"""Digits of a price after the point: smaller ones are a solver's error."""
HEAD = ["result", "value", "unit"]
BOUNDED = {"cost": "the cost", "imbalance": "the squared imbalance"}


@dataclass(frozen=True, kw_only=True)
class Relaxation(Scenario):
    """Objective and solver of the relaxation."""

    objective: objectives.ObjectiveKind = changed(
        Grid,
        "objective",
        "imbalance",
        help="minimized quantity: squared power mismatches of buses (imbalance, p.u.^2), or cost "
        "(bound in $/h, prices)",
        choices=objectives.RELAXED_OBJECTIVES,
        unset="",
    )
    imbalance_weight: float | None = changed(
        Grid,
        "imbalance_weight",
        None,
        help="weight of the squared imbalance in objective cost, as of gridpriv run",
        unset="none: the balance is a hard constraint",
    )
    solver: str = changed(
        Grid,
        "solver",
        Grid.solver,
        help="solver of the relaxation: clarabel, ipopt or pyomo:NAME",
    )


@dataclass(frozen=True, kw_only=True)
class Optimum(Scenario):
    """Objective and prices."""

    objective: objectives.AcObjective = choice(
        "cost",
        objectives.AC_OBJECTIVES,
        "minimized quantity: operating cost (shed load at --voll), shed load, or losses",
    )
    voll: float = changed(objectives.Service, "voll", objectives.Service.voll)


def changed_case(args: argparse.Namespace) -> Case:
    """Return the case with the demand, load scale and outages of the arguments."""
    scenario = Scenario(**flags.given_settings(args, Scenario))
    case = flags.given_case(args, scenario.load_scale).scale_load(scenario.load_scale)
    in_service = case.without(scenario.outage)
    if scenario.outage and not (args.json or args.quiet):
        output.say(out_of_service(case, scenario.outage))
    return in_service


def price_rows(prices: Floats, buses: Ints) -> list[list[object]]:
    """Return the lowest and the highest price of a bus, as rows of a table; none without prices."""
    if np.isnan(prices).all():
        return []
    ends = {"lowest": int(np.nanargmin(prices)), "highest": int(np.nanargmax(prices))}
    return [
        [f"{end} price (bus {buses[i]})", round(float(prices[i]), PRICE_DIGITS), "$/MWh"]
        for end, i in ends.items()
    ]


def add_relax(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``relax``."""
    flags.add_case_arguments(parser)
    flags.add_flags(parser, Relaxation)
    flags.add_output(parser, "DIR")
    parser.set_defaults(execute=execute_relax)


def execute_relax(args: argparse.Namespace) -> int:
    """Solve and print the bound, binding limits, and the range of prices."""
    case = changed_case(args)
    output.output_folder(args.out)

    from gridpriv.power.problem import check_solver

    chosen = Relaxation(**flags.given_settings(args, Relaxation))
    check_solver(chosen.solver)
    relaxation = gridpriv.relax(case, chosen.objective, chosen.solver, chosen.imbalance_weight)
    document = relaxation.as_dict()
    output.finish(
        args,
        document,
        lambda: _print_bound(document, relaxation.p_price, case.bus_id),
        lambda: {"buses": relaxation.buses, "binding": relaxation.binding},
    )
    if document["bound"] is None:
        raise SolverError(f"case {case.name}: {document['explanation']}")
    return 0


def _print_bound(document: Json, prices: Floats, buses: Ints) -> None:
    """Print the bound, if there is one."""
    if document["bound"] is None:
        return
    error = (document["relative_error"] or 0.0) * max(abs(document["bound"]), 1.0)
    rows: list[list[object]] = [
        ["load shedding, lower bound", amount(document["shed_mw"], "MW"), "MW"],
        [
            f"lower bound of {BOUNDED[document['objective']]}",
            f"{document['bound']:.7g}"
            if abs(document["bound"]) > error
            else "0, to solver accuracy",
            document["unit"],
        ],
        ["error of the lower bound (estimated)", error, document["unit"]],
        ["status", document["status"], ""],
        ["solver", document["solver"], ""],
        ["run time", document["seconds"], "s"],
    ]
    if document["objective"] == "cost" and np.isfinite(prices).all():
        rows[2:2] = price_rows(prices, buses)
    output.print_table(f"{document['case']}: SOC relaxation of the whole grid", HEAD, rows)
    sentence = str(document["explanation"])
    output.say(f"{capitalized(sentence)}.")


def add_acopf(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``acopf``."""
    flags.add_case_arguments(parser)
    flags.add_flags(parser, Optimum)
    flags.switch(parser, "--bound")
    flags.add_output(parser, "DIR")
    parser.set_defaults(execute=execute_acopf)


def execute_acopf(args: argparse.Namespace) -> int:
    """Solve; print cost, load shedding, losses, prices and violated limits."""
    case = changed_case(args)
    output.output_folder(args.out)

    from gridpriv.power.ac.state import limit_table
    from gridpriv.power.centralized import searched_again

    chosen = Optimum(**flags.given_settings(args, Optimum))
    optimum = gridpriv.acopf(case, chosen.objective, chosen.voll)
    bound = None
    if args.bound or chosen.objective == "cost":
        relaxation = gridpriv.relax(case, "cost")
        bound = relaxation if args.bound else None
    if chosen.objective == "cost":
        optimum = searched_again(optimum, relaxation)
    document = optimum.as_dict()
    if bound is not None and optimum.cost is not None:
        document["bound"] = bound.bound
        document["gap"] = None if bound.bound is None else 1.0 - bound.bound / optimum.cost
        if bound.bound is None:
            least = amount(bound.as_dict()["shed_mw"], "MW")
            output.warn("acopf-no-bound", least=least)
        else:
            _warn_of_prices(optimum, bound)

    def files() -> Json:
        binding = limit_table(optimum.state.binding)
        return {"buses": optimum.buses, "generators": optimum.generators, "binding": binding}

    return output.finish(args, document, lambda: _print_optimum(optimum, document), files)


def _warn_of_prices(optimum: AcOptimum, bound: SolvedRelaxation) -> None:
    """Warn where the relaxation's prices are not those of the AC optimum (congestion)."""
    difference = np.abs(bound.p_price - optimum.p_price)
    differs = difference > PRICE_DIFFERENCE * float(np.nanmax(np.abs(optimum.p_price)))
    if not differs.any():
        return
    worst = int(np.nanargmax(difference))
    output.warn(
        "acopf-prices",
        buses=int(differs.sum()),
        share=100 * PRICE_DIFFERENCE,
        bus=optimum.state.case.bus_id[worst],
        price=bound.p_price[worst],
        instead=optimum.p_price[worst],
    )


def _print_optimum(optimum: AcOptimum, document: Json) -> None:
    from gridpriv.power.ac.model import CURTAILMENT_WEIGHT
    from gridpriv.power.ac.state import limit_sentence

    rows: list[list[Any]] = [
        ["cost, including load shedding", document["cost"], "$/h"],
        ["cost of generation", document["generation_cost"], "$/h"],
        ["load shedding", document["shed_mw"], "MW"],
        ["  of which on de-energized islands", document["deenergized_mw"], "MW"],
        ["curtailed generation", document["curtailed_mw"], "MW"],
        ["losses", document["losses_mw"], "MW"],
        ["limits violated", len(optimum.violations), ""],
        ["run time", document["seconds"], "s"],
    ]
    if "bound" in document:
        gap = document["gap"]
        rows[1:1] = [
            ["bound of the relaxation", document["bound"], "$/h"],
            ["gap to the bound", 100.0 * gap if isinstance(gap, float) else None, "%"],
        ]
    if optimum.objective == "cost":
        rows[-2:-2] = price_rows(optimum.p_price, optimum.state.case.bus_id)
    shown = [[name, amount(v, u) if u in PRECISION else v, u] for name, v, u in rows]
    output.print_table(f"{document['case']}: AC optimum, {optimum.objective}", HEAD, shown)
    if optimum.objective == "cost" and document["curtailed_mw"] > optimum.state.negligible_mw:
        price = CURTAILMENT_WEIGHT * optimum.voll
        output.say(output.worded("acopf-curtailed", price=f"{price:g}"))
    if document["shed_mw"] - document["deenergized_mw"] > optimum.state.negligible_mw:
        output.say(output.worded("acopf-binding", limits=limit_sentence(optimum.state.binding)))

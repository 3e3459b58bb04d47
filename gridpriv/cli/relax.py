"""``gridpriv relax``: the centralized SOC relaxation of a case and its bound."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from gridpriv.cli.common import REAL, output_folder, print_table, ready, write_json, write_text
from gridpriv.core.errors import SolverError, not_allowed
from gridpriv.grid.library import load_case

if TYPE_CHECKING:
    from gridpriv.grid.case import Case


def add_case_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the case and what is changed of it."""
    parser.add_argument("case", metavar="CASE", help="a case by name, or a path")
    parser.add_argument("--load-scale", type=REAL, default=1.0, metavar="X")
    parser.add_argument(
        "--outage", action="append", metavar="gen:N|branch:N", help="take a row out of service"
    )
    parser.add_argument("--demand", metavar="FILE.csv", help="demand of the buses it names")


def changed_case(args: argparse.Namespace) -> Case:
    """Return the case with the demand, load scale and outages that the arguments ask for."""
    case = load_case(args.case)
    if args.demand is not None:
        from gridpriv.grid.overrides import override_demand

        case = override_demand(case, args.demand)
    if not (args.load_scale >= 0 and args.load_scale < float("inf")):
        raise not_allowed("load-scale", args.load_scale, "a finite number, 0 or more")
    return case.scale_load(args.load_scale).without(tuple(args.outage or ()))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_case_arguments(parser)
    parser.add_argument("--objective", default="imbalance", help="imbalance | cost")
    parser.add_argument(
        "--imbalance-weight", type=REAL, metavar="M",
        help="with cost: penalise the squared imbalance; without it the balance is hard",
    )  # fmt: skip
    parser.add_argument("--solver", default="clarabel", help="clarabel | ipopt | pyomo:NAME")
    parser.add_argument("--out", metavar="DIR", help="write relax.json, buses.csv, binding.csv")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def execute(args: argparse.Namespace) -> int:
    """Solve and print the bound, what binds, and the prices' range."""
    case = changed_case(args)
    folder = output_folder(args.out)

    from gridpriv.power.centralized import relax
    from gridpriv.power.solvers import check_solver

    check_solver(args.solver)
    found = relax(case, args.objective, args.solver, args.imbalance_weight)
    document = found.as_dict()
    if folder is not None:
        write_json(document, ready(folder) / "relax.json")
        write_text(folder / "buses.csv", found.buses.to_csv(index=False))
        write_text(folder / "binding.csv", found.binding.to_csv(index=False))
    if args.json:
        write_json(document)
    elif document["bound"] is not None:
        _summarise(document, found.buses["p_price"].to_numpy())
    if document["bound"] is None:
        raise SolverError(f"case {case.name}: {document['explanation']}")
    return 0


def _summarise(document: dict[str, object], price: object) -> None:
    import numpy as np

    rows: list[list[object]] = [
        ["bound", f"{document['bound']:.7g}", document["unit"]],
        ["unserved demand", document["shed_mw"], "MW"],
        ["estimated relative error", document["relative_error"], ""],
        ["status", document["status"], ""],
        ["solver", document["solver"], ""],
        ["seconds", document["seconds"], "s"],
    ]
    prices = np.asarray(price, dtype=float)
    if document["objective"] == "cost" and np.isfinite(prices).all():
        rows[2:2] = [
            ["lowest price of a bus", float(prices.min()), "$/MWh"],
            ["highest price of a bus", float(prices.max()), "$/MWh"],
        ]
    print_table(f"{document['case']}: SOC relaxation, {document['objective']}",
                ["result", "value", "unit"], rows)  # fmt: skip
    sentence = str(document["explanation"])
    print(f"{sentence[0].upper()}{sentence[1:]}.")

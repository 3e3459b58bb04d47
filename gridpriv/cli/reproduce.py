"""``gridpriv reproduce``: a figure or table of a paper, from a bundled study."""

from __future__ import annotations

import argparse
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gridpriv.cli.common import add_scale, print_table, tell, tell_names, wanted_formats
from gridpriv.core.errors import InputError, not_allowed, one_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    from gridpriv.cli.compare import add_running

    parser.add_argument("name", metavar="NAME", nargs="?", help="such as rk-fig3; none: list them")
    parser.add_argument("--data", metavar="DIR", help="folder of data sets (learning papers)")
    add_scale(parser)
    add_running(parser)


def execute(args: argparse.Namespace) -> int:
    """Reproduce, check what the paper states, print and write the outcome."""
    from gridpriv.study.papers import REPRODUCTIONS

    learning = _learning()
    if args.name is None:
        tell_names(
            args, REPRODUCTIONS | {k: str(getattr(v, "title", v)) for k, v in learning.items()}
        )
        return 0
    one_of("name", args.name, (*REPRODUCTIONS, *learning))
    if args.name in learning:
        _refuse(args, ("jobs", "cluster", "retry_failed", "time_limit", "format"))
        from gridpriv.cli.learn import reproduce

        return reproduce(learning[args.name], args)
    _refuse(args, ("data", "scale"))
    if args.name == "rk-table1":
        return _table1(args)
    return _figure(args)


def _refuse(args: argparse.Namespace, names: tuple[str, ...]) -> None:
    """Refuse arguments that this reproduction does not read."""
    for name in names:
        value = getattr(args, name)
        if value != args.parser.get_default(name):
            raise not_allowed(name, value, f"left out with {args.name}, which does not read it")


def _learning() -> dict[str, Any]:
    """Return the learning papers' reproductions, where that module is present."""
    if find_spec("gridpriv.learning") is None or find_spec("gridpriv.learning.papers") is None:
        return {}
    found: dict[str, Any] = import_module("gridpriv.learning.papers").REPRODUCTIONS
    return found


def _figure(args: argparse.Namespace) -> int:
    from gridpriv.cli.compare import finish, run_plan
    from gridpriv.study.papers import figure_plan, with_claims

    formats = wanted_formats(args)
    args.out = args.out or f"study-{args.name}"
    run_plan(figure_plan(args.name), args)
    study = with_claims(Path(args.out))
    claims = study.tables["claims"]
    if not (args.quiet or args.json):
        print_claims(claims)
    return finish(study, args, formats)


def _table1(args: argparse.Namespace) -> int:
    from gridpriv.study.papers import table1, table1_claims

    if args.cluster or args.resume:
        raise InputError("rk-table1 runs no study: leave out --cluster and --resume")
    table = table1()
    claims = table1_claims(table)
    if args.out:
        from gridpriv.report.table1 import write_table1

        write_table1(table, claims, Path(args.out))

    def summarise() -> None:
        print_table(
            "Variance of the noise on one coordinate (p.u. squared)",
            ["algorithm", "epsilon", "paper prints", "drawn", "sound, case14", "sound, case118"],
            table.values.tolist(),
        )
        print_claims(claims)

    document = {"table": table.to_dict("records"), "claims": claims.to_dict("records")}
    tell(args, document, summarise, args.out)
    return 0


def print_claims(claims: Any) -> None:
    """Print what the paper states and whether it holds."""
    print_table(
        "What the paper states, and whether it holds here",
        ["statement", "calibration", "outcome", "comparisons"],
        [
            [row.claim, row.calibration, row.outcome, f"{row.holding} of {row.comparisons}"]
            for row in claims.itertuples()
        ],
    )

"""``gridpriv reproduce``: reproduce a figure or table of a paper and check its claims."""

from __future__ import annotations

import argparse
import textwrap
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gridpriv.cli.compare import add_running, finish
from gridpriv.cli.flags import wanted_formats
from gridpriv.cli.learn import finish_learning
from gridpriv.cli.output import console, output_folder, print_table, tell
from gridpriv.cli.progress import progress
from gridpriv.core.errors import not_allowed, one_of

if TYPE_CHECKING:
    import pandas as pd

SCALE = "size of the study: quick, or full as in the paper (default: %(default)s)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "name",
        metavar="NAME",
        nargs="?",
        help=("figure or table, such as rk-fig3; without it, all are listed"),
    )
    parser.add_argument(
        "--data", metavar="DIR", help="folder of data sets (default: $GRIDPRIV_DATA)"
    )
    parser.add_argument("--scale", default="quick", metavar="NAME", help=SCALE)
    add_running(parser)


def execute(args: argparse.Namespace) -> int:
    """Reproduce, check what the paper states, print and write the outcome."""
    from gridpriv.study.grid_papers import GRID_TABLES
    from gridpriv.study.papers import learns, reads_scale, reproduce, reproductions

    known = reproductions()
    if args.name is None:
        rows = [{"name": name, "what": title} for name, title in known.items()]
        tell(
            args,
            {"reproductions": rows},
            lambda: print_table("Reproductions", ["name", "what"], list(known.items())),
        )
        return 0
    one_of("name", args.name, known)
    if args.name == "rk-table1" or args.name in GRID_TABLES:
        _refuse(args, ("data", "scale", "cluster", "resume"))
        return _table1(args) if args.name == "rk-table1" else _grid_table(args)
    learning = learns(args.name)
    _refuse(args, ("cluster", "time_limit") if learning else ("data",))
    if not reads_scale(args.name):
        _refuse(args, ("scale",))
    formats = wanted_formats(args)
    args.out = args.out or f"study-{args.name}"
    output_folder(args.out)
    running = {} if learning else {"cluster": args.cluster, "time_limit": args.time_limit}
    study = reproduce(
        args.name,
        Path(args.out),
        scale=args.scale,
        data=args.data,
        jobs=args.jobs,
        resume=args.resume,
        retry_failed=args.retry_failed,
        progress=partial(progress, args, args.name),
        **running,
    )
    if not (args.quiet or args.json):
        print_claims(study.tables["claims"])
    return (finish_learning if learning else finish)(study, args, formats)


def _refuse(args: argparse.Namespace, names: tuple[str, ...]) -> None:
    """Refuse arguments that this reproduction does not read."""
    for name in names:
        value = getattr(args, name)
        if value != args.parser.get_default(name):
            raise not_allowed(name, value, f"left out with {args.name}, which does not read it")


def _table1(args: argparse.Namespace) -> int:
    from gridpriv.study.papers import table1, table1_claims

    table = table1()
    claims = table1_claims(table)
    if args.out:
        from gridpriv.report.table1 import write_table1

        write_table1(table, claims, Path(args.out))

    def summarise() -> None:
        print_table(
            "Variance of the noise on one coordinate (p.u. squared)",
            ["algorithm", "epsilon", "paper prints", "drawn", "proven, case14", "proven, case118"],
            table.values.tolist(),
        )
        print_claims(claims)

    document = {"table": table.to_dict("records"), "claims": claims.to_dict("records")}
    tell(args, document, summarise, args.out)
    return 0


def _grid_table(args: argparse.Namespace) -> int:
    from gridpriv.cli.output import write_results
    from gridpriv.core.text import json_ready
    from gridpriv.study.grid_papers import GRID_TABLES

    title, compute = GRID_TABLES[args.name]
    folder = output_folder(args.out)
    computed = compute()
    tables = {"table": computed.table, "claims": computed.claims}
    document = {name: json_ready(table.to_dict("records")) for name, table in tables.items()}
    if folder is not None:
        write_results(folder, args.name, document, **tables)

    def summarise() -> None:
        columns = [name.replace("_", " ") for name in computed.table]
        print_table(title, columns, computed.table.values.tolist())
        print_claims(computed.claims, "Statements, and whether they hold here")

    tell(args, document, summarise, folder)
    return 0


def print_claims(
    claims: pd.DataFrame, header: str = "What the paper states, and whether it holds here"
) -> None:
    """Print statements and whether they hold: a paragraph each."""
    out = console()
    out.print(f"{header}\n")
    for row in claims.to_dict("records"):
        noise = f" ({row['sensitivity']} noise)" if row["sensitivity"] else ""
        _paragraph(
            f"{row['outcome']} ({row['holding']} of {row['comparisons']}): ",
            f"{row['claim']}{noise}",
        )
        _paragraph("    ", str(row.get("detail") or ""))
        if row.get("settled"):
            cause = f", because of {row['cause']}: {row['why']}" if row["cause"] else ""
            agrees = (
                "as settled" if row["settled"] == row["outcome"] else f"settled: {row['settled']}"
            )
            _paragraph("    ", f"{agrees}{cause}")
    out.print()


def _paragraph(head: str, text: str) -> None:
    if text:
        console().print(textwrap.fill(head + text, 80, subsequent_indent="    "))

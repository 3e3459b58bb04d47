"""``gridpriv run``: one private run of a case."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from gridpriv.cli.charging import add_ledger_arguments, charging
from gridpriv.cli.common import (
    add_output,
    add_settings,
    add_zone_arguments,
    chosen_zoning,
    command_again,
    given_settings,
    output_folder,
    print_table,
    progress,
    ready,
    tell,
)
from gridpriv.cli.series import add_arguments as add_series_arguments
from gridpriv.cli.series import refuse_without_series, run_horizon
from gridpriv.core.errors import GridprivError, InputError, one_of
from gridpriv.zonal.settings import PRESETS, Settings

if TYPE_CHECKING:
    from gridpriv.consensus.transport import Carry
    from gridpriv.zonal.result import RunResult


MOST_ZONES_SHOWN = 12


def add_arguments(
    parser: argparse.ArgumentParser, otherwise: Mapping[str, Any] | None = None
) -> None:
    """Add the command's arguments; unset ones keep the defaults or the preset's.

    ``otherwise`` are the defaults that a command has in place of a run's.
    """
    parser.add_argument("case", metavar="CASE", help="a case by name, or a path")
    add_zone_arguments(parser)
    add_settings(parser, Settings, PRESETS, otherwise=otherwise)
    parser.add_argument("--demand", metavar="FILE.csv", help="demand of the buses it names")
    add_series_arguments(parser)
    add_ledger_arguments(parser)
    parser.add_argument("--cluster", metavar="ADDRESS", help="zones work on a Dask cluster")
    parser.add_argument(
        "--tables", default="csv", metavar="FORMAT", help="of res_bus, ...: csv | parquet | json"
    )
    parser.add_argument(
        "--reference", action=argparse.BooleanOptionalAction, default=None,
        help="run the same zones without noise, and with nothing released, and find the AC "
        "optimum: what privacy costs, and buys (default: with noise, unless --public)",
    )  # fmt: skip
    parser.add_argument("--public", action="store_true", help="export releases only")
    add_output(parser, "write settings, tables and figures")


def execute(args: argparse.Namespace) -> int:
    """Run, print the summary or the JSON document, write the folder."""
    refuse_without_series(args)
    if args.tables != "csv":
        from gridpriv.zonal.tables import FORMATS

        one_of("tables", args.tables, FORMATS)
    given = given_settings(args, Settings)
    from gridpriv.core.files import refuse_used
    from gridpriv.grid.library import load_case
    from gridpriv.privacy.statement import refuse_unprotected
    from gridpriv.zonal.settings import make_settings

    settings = make_settings(args.preset, **given)
    began = time.perf_counter()
    case = load_case(args.case)
    if args.demand is not None:
        from gridpriv.grid.overrides import override_demand

        case = override_demand(case, args.demand)
    zoning = chosen_zoning(case, args)
    load_seconds = time.perf_counter() - began
    folder = output_folder(args.out)
    if args.public:
        refuse_unprotected(settings.mechanism)
        if folder is not None and not args.resume:
            refuse_used(folder)
    transport = _transport(args, settings)
    if args.series is not None:
        return run_horizon(args, case, zoning, settings, folder, transport)

    from gridpriv.zonal.run import prepare, run_prepared

    prepared = prepare(case, zoning, settings)

    def keep(result: RunResult) -> None:
        if folder is not None:
            from gridpriv.report.folder import write_run

            try:
                again = (
                    replace(settings, seed=result.seed) if settings.noise != "secure" else settings
                )
                write_run(
                    result, ready(folder), public=args.public, tables=args.tables,
                    repeat=command_again(args, again),
                )  # fmt: skip
            except (GridprivError, OSError) as error:
                error.add_note(f"not stored; {result.trace.drawn()}")
                raise
        document = result.as_dict(public=args.public)
        tell(args, document, lambda: None if result.early else summarise(document), folder)

    with ExitStack() as stack:
        charge, admit = stack.enter_context(charging(args, case, [prepared]))
        advance = stack.enter_context(
            progress(case.name, settings.rounds, quiet=args.quiet or args.json)
        )
        result = run_prepared(
            prepared,
            watch=lambda r: advance(f"residual {r.consensus_residual:.2e}"),
            load_seconds=load_seconds,
            charge=charge,
            admit=admit,
            leave=keep,
            transport=transport,
        )
    keep(_compared(result) if _wants_reference(args, settings) else result)
    return 0


def _wants_reference(args: argparse.Namespace, settings: Settings) -> bool:
    if args.reference is not None:
        return bool(args.reference)
    return settings.mechanism != "none" and not args.public


def _compared(result: RunResult) -> RunResult:
    """Return the result with what it is held against; an interrupt there costs the run nothing."""
    from gridpriv.zonal.reference import reference

    try:
        return replace(result, reference=reference(result))
    except KeyboardInterrupt:
        return result


def _transport(args: argparse.Namespace, settings: Settings) -> Carry | None:
    """Return where zones work, if not in this machine's own processes."""
    if args.cluster is None:
        return None
    if args.ledger is not None:
        raise InputError(
            "--ledger and --cluster exclude each other: zones are charged where they work, and a "
            "ledger is a file of one machine"
        )
    if settings.workers > 1:
        raise InputError("--workers and --cluster exclude each other: the cluster has its own")
    from gridpriv.consensus.cluster import Cluster

    return partial(Cluster, address=args.cluster)


def summarise(document: dict[str, Any]) -> None:
    """Print the run's summary: result, privacy, and what must be said beside them."""
    from gridpriv.zonal.summary import figures, interchange, privacy_figures, sentences

    print_table(*figures(document))
    if document["privacy"]["mechanism"] != "none":
        print_table(*privacy_figures(document["privacy"]))
    settled = document["final"]["physical"]["balancing_mw"] is not None
    if settled and 1 < len(document["zones"]) <= MOST_ZONES_SHOWN:
        print_table(*interchange(document))
    for sentence in sentences(document):
        print(sentence)

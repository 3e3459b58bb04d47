"""``gridpriv run``: one private run of a case."""

from __future__ import annotations

import argparse
import time
import warnings
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gridpriv.cli.charging import add_ledger_arguments, charging
from gridpriv.cli.flags import (
    add_case_arguments,
    add_output,
    add_settings,
    add_zone_arguments,
    chosen_zoning,
    given_case,
    given_settings,
    question_demand,
)
from gridpriv.cli.output import output_folder, print_rows, print_table, tell, tell_finished
from gridpriv.cli.progress import progress
from gridpriv.cli.series import add_arguments as add_series_arguments
from gridpriv.cli.series import held_runs, in_turn, refuse_without_series, run_horizon
from gridpriv.core.document import Json
from gridpriv.core.errors import GridprivError, GridprivWarning, InputError, one_of
from gridpriv.grid.case import Case
from gridpriv.zonal.settings import PRESETS, Settings, make_settings

if TYPE_CHECKING:
    from gridpriv.consensus.transport import Connect
    from gridpriv.study.run_folder import RunFolder
    from gridpriv.zonal.prepared import Prepared
    from gridpriv.zonal.result import RunResult


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments; unset ones keep the defaults or the preset's."""
    add_case_arguments(parser)
    add_zone_arguments(parser)
    add_settings(parser, Settings, PRESETS)
    add_series_arguments(parser)
    add_ledger_arguments(parser)
    parser.add_argument("--cluster", metavar="ADDRESS", help="solve zones on this Dask cluster")
    parser.add_argument(
        "--tables",
        default="csv",
        metavar="FORMAT",
        help="format of res_bus and other tables: csv | parquet | json",
    )
    parser.add_argument(
        "--reference",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="also compute the baselines: noise-free, prior-only and AC optimum (default: "
        "unless --public or --series)",
    )
    dry = "check case, zones and settings, print the estimated time, run nothing"
    parser.add_argument("--dry-run", action="store_true", help=dry)
    parser.add_argument(
        "--public", action="store_true", help="write public figures only (releases and public data)"
    )
    parser.add_argument(
        "--write",
        metavar="FILE",
        help=(
            "write the set points into a copy of the case: .m .mat .json .xiidm .zip .uct "
            ".raw; for the demand's owner only"
        ),
    )
    add_output(parser, "folder for settings, tables and figures")


def execute(args: argparse.Namespace) -> int:
    """Run, print the summary or the JSON document, write the folder."""
    if args.tables != "csv":
        from gridpriv.zonal.tables import FORMATS

        one_of("tables", args.tables, FORMATS)
    given = given_settings(args, Settings)
    from gridpriv.privacy.statement import refuse_unprotected

    settings = make_settings(args.preset, **given)
    if settings.mechanism == "none" and "budget" in given:
        warnings.warn(
            f"budget = {str(settings.budget)!r} has no effect: mechanism 'none' draws no noise",
            GridprivWarning,
            stacklevel=2,
        )
    _check_writing(args)
    refuse_without_series(args)
    folder = output_folder(args.out)
    settings = _resumed(args, folder, settings)
    began = time.perf_counter()
    case = given_case(args)
    zoning = chosen_zoning(case, args)
    load_seconds = time.perf_counter() - began
    if args.public:
        refuse_unprotected(settings.effective_mechanism())
    transport = _transport(args, settings)
    if args.dry_run:
        return _dry_run(args, case, settings)
    if args.series is not None:
        return run_horizon(args, case, zoning, settings, folder, transport)
    question_demand(args, case.scale_load(settings.load_scale), settings.load_scale)

    from gridpriv.zonal.prepared import prepare

    return _run(args, case, prepare(case, zoning, settings), folder, transport, load_seconds)


def _dry_run(args: argparse.Namespace, case: Case, settings: Settings) -> int:
    """Print the time of a run; what it needs has been read and checked."""
    from gridpriv.study.estimate import estimate

    found = estimate([(case, settings)])
    tell(args, vars(found), lambda: print(found))
    return 0


def _run(
    args: argparse.Namespace,
    case: Case,
    prepared: Prepared,
    folder: Path | None,
    transport: Connect | None,
    load_seconds: float,
) -> int:
    from gridpriv.consensus.transport import ReusedAgents
    from gridpriv.zonal.run import own_transport, run_prepared

    def told(document: Json, *, early: bool = False) -> None:
        tell(args, document, lambda: None if early else summarise(document), folder)

    with ExitStack() as stack:
        kept = None
        if folder is not None:
            told_of = (case, prepared.zoning, prepared.settings, prepared.seed)
            kept = stack.enter_context(held_runs(args, folder, *told_of))
        if kept is not None and not kept.left():
            tell_finished(args)
            document = finished(args, kept)
            if document is not None:
                told(document)
            return 0

        def keep(result: RunResult) -> None:
            if kept is not None:
                try:
                    kept.add(0, result)
                    finished(args, kept)
                except (GridprivError, OSError) as error:
                    error.add_note(f"not stored; {result.trace.drawn()}")
                    raise
            told(result.as_dict(public=args.public), early=result.early is not None)

        own = own_transport(prepared.settings.workers)
        zones = stack.enter_context(closing(ReusedAgents(transport or own)))
        with ExitStack() as running:
            charge, admit = running.enter_context(charging(args, case, prepared))
            advance = running.enter_context(progress(args, case.name, prepared.settings.rounds))
            result = run_prepared(
                prepared,
                watch=lambda r: advance(f"residual {r.consensus_residual:.2e}"),
                load_seconds=load_seconds,
                charge=charge,
                admit=admit if kept is None else in_turn(admit, partial(kept.begin, 0)),
                leave=keep,
                transport=zones,
            )
        try:
            if args.reference or (args.reference is None and not args.public):
                result = _compared(result, zones)
            if args.write is not None:
                from gridpriv.zonal.export import write_set_points

                write_set_points(result.solution, args.case, Path(args.write))
        finally:  # whatever becomes of the comparison, the run is charged
            keep(result)
    return 0


def _check_writing(args: argparse.Namespace) -> None:
    """Refuse early a file of ``--write`` that is of no format, or of no one state."""
    if args.write is None:
        return
    from gridpriv.grid.convert import check_target

    check_target(Path(args.write), args.case)
    if args.public or args.series is not None:
        other = "--public" if args.public else "--series"
        raise InputError(
            f"--write stores the set points of one run, which follow from private demand. Drop "
            f"{other} or --write."
        )


def _compared(result: RunResult, zones: Connect) -> RunResult:
    """Return the result with its baselines; an interrupt there keeps the run."""
    from gridpriv.zonal.reference import reference

    try:
        return replace(result, reference=reference(result, result.settings.load_scale, zones))
    except KeyboardInterrupt as error:
        # notes are of the run that was cut off, which draws nothing
        interrupt = KeyboardInterrupt(*error.args)
        interrupt.add_note("the run is done; its baselines take a new run")
        raise interrupt from None


def _resumed(args: argparse.Namespace, folder: Path | None, settings: Settings) -> Settings:
    """Return the settings with the seed of the folder that is gone on with."""
    if not args.resume:
        return settings
    if folder is None:
        raise InputError("--resume needs the --out that the run or series went to")
    from gridpriv.study.run_folder import recorded_seed

    return settings if settings.seed is not None else replace(settings, seed=recorded_seed(folder))


def finished(args: argparse.Namespace, kept: RunFolder) -> Json | None:
    """Make the tables of a run and their copies; return its document."""
    from gridpriv.report.copies import write_run_copies

    kept.finish()
    return write_run_copies(kept, args.tables)


def _transport(args: argparse.Namespace, settings: Settings) -> Connect | None:
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
    from gridpriv.consensus.transport import Cluster

    return partial(Cluster, address=args.cluster)


def summarise(document: Json) -> None:
    """Print the first page of a run: verdict, figures with their baselines, privacy, messages."""
    from gridpriv.zonal.summary import (
        MOST_ZONES_NAMED,
        interchange,
        notes,
        privacy_line,
        results,
        rounds_line,
        title,
        verdict,
    )

    print(title(document))
    if state := verdict(document):
        print(state)
    print_rows(results(document))
    messages = notes(document)
    if document["privacy"]["mechanism"] != "none":
        print(privacy_line(document))
        print(*(note for note in messages if note.code == "noise-source"), sep="\n")
    print(rounds_line(document))
    settled = document["final"]["physical"]["balancing_mw"] is not None
    if settled and 1 < len(document["zones"]) <= MOST_ZONES_NAMED:
        print_table(*interchange(document))
    for note in messages:
        if note.code not in ("ac-state", "noise-source"):
            print(note)

"""``gridpriv run``: one noisy run of a case, or of every step of a series under one budget."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import gridpriv
from gridpriv.cli import flags, output
from gridpriv.core.errors import BudgetError, InputError, SolverError, warn
from gridpriv.core.text import Json, counted, shown
from gridpriv.grid.case import Case
from gridpriv.zonal.settings import PRESETS, Settings

if TYPE_CHECKING:
    from gridpriv.consensus.transport import Connect
    from gridpriv.grid.zoning import Zoning
    from gridpriv.study.context import RunContext
    from gridpriv.study.run_folder import RunFolder
    from gridpriv.zonal.horizon import Horizon
    from gridpriv.zonal.result import RunResult


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments; unset ones keep the defaults or the preset's."""
    flags.add_case_arguments(parser)
    flags.add_zone_arguments(parser)
    flags.add_settings(parser, Settings, PRESETS)
    flags.flag(parser, "--series", "FILE.csv")
    for name in flags.COUPLING:
        flags.flag(parser, f"--{name}", "FILE.csv")
    flags.flag(parser, "--step-hours", "H", float, 1.0)
    flags.switch(parser, "--resume")
    flags.add_ledger_arguments(parser)
    flags.flag(parser, "--cluster", "ADDRESS")
    flags.switch(parser, "--reference", argparse.BooleanOptionalAction, default=None)
    flags.switch(parser, "--dry-run")
    flags.switch(parser, "--public")
    flags.flag(parser, "--write", "FILE")
    flags.add_output(parser, "DIR")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Run, print the summary or the JSON document, write the folder."""
    from gridpriv.grid.scenarios import out_of_service
    from gridpriv.privacy.certificate import refuse_unprotected
    from gridpriv.study.context import run_case

    settings = flags.run_settings(args)
    if settings.mechanism == "none" and (args.budget is not None or args.epsilon is not None):
        output.warn("run-no-noise", budget=str(settings.budget))
    _check_writing(args)
    given = [f"--{name}" for name in flags.COUPLING if getattr(args, name) is not None]
    given += ["--step-hours"] if args.step_hours != 1.0 else []
    if given and args.series is None:
        raise InputError(
            f"{given[0]} needs steps, but there is no --series. Give --series FILE.csv."
        )
    folder = output.output_folder(args.out)
    settings = _resumed(args, folder, settings)
    context = _context(args, folder, settings)
    case = flags.given_case(args, settings.load_scale)
    zoning = flags.chosen_zoning(case, args)
    if args.public:
        refuse_unprotected(settings.effective_mechanism())

    if args.series is not None:
        horizon = _horizon(args, case, zoning, settings)
        if args.dry_run:
            return _print_estimate(args, [(case, settings)] * len(horizon.series.steps))
        return _run_series(args, context, horizon)
    _question(case, zoning, dry=args.dry_run)
    prepared = gridpriv.prepare(case, zoning, settings)
    if args.dry_run:
        return _print_estimate(args, [(case, settings)])

    outages = out_of_service(case, settings.outage)

    def show(document: Json, early: bool = False) -> None:
        output.print_result(
            args, document, lambda: None if early else summarise(document, outages), folder
        )

    def write(result: RunResult) -> None:
        if args.write is not None:
            from gridpriv.zonal.tables import write_set_points

            write_set_points(result.solution, args.case, Path(args.write))
            if not (args.json or args.quiet):
                output.say(f"Set points written to {args.write}")

    run_case(context, case, prepared, show, write)
    return 0


def _question(case: Case, zoning: Zoning, *, dry: bool) -> None:
    """Warn of zones without a tie line; of a check, also of a case without costs (public)."""
    from gridpriv.grid.zoning import tie_lines
    from gridpriv.power.objective import has_convex_costs

    if zoning.n_zone > 1 and not tie_lines(case, zoning).any():
        output.warn("run-no-tie-line", case=case.name)
    if dry and not has_convex_costs(case):
        output.warn("run-no-costs", case=case.name)


def _print_estimate(args: argparse.Namespace, runs: list[tuple[Case, Settings]]) -> int:
    """Print the estimated time of the runs."""
    from gridpriv.study.comparison import estimate

    work = estimate(runs, jobs=1)
    return output.print_result(args, vars(work), lambda: print(f"{work} on idle cores"))


def _write_copies(run_folder: RunFolder) -> Json | None:
    """Write the tables and figures of a run; plotting is imported only then."""
    from gridpriv.report.plots import write_run_copies

    return write_run_copies(run_folder)


def _context(args: argparse.Namespace, folder: Path | None, settings: Settings) -> RunContext:
    """Return the context of the run: ledger, folder, baselines, progress."""
    from gridpriv.study.context import RunContext

    usual = not args.public and args.series is None
    return RunContext(
        out=folder,
        public=args.public,
        resume=args.resume,
        ledger=args.ledger,
        ledger_key=args.ledger_key,
        reference=usual if args.reference is None else args.reference,
        transport=_transport(args, settings),
        repeat=partial(flags.command_again, args),
        progress=partial(output.progress, args),
        copies=_write_copies,
    )


def _check_writing(args: argparse.Namespace) -> None:
    """Refuse early a file of ``--write`` of unknown format, or for a series."""
    if args.write is None:
        return
    from gridpriv.grid.convert import check_target

    check_target(Path(args.write), args.case)
    if args.public or args.series is not None:
        other = "--public" if args.public else "--series"
        raise InputError(
            f"--write stores the set points of one run, which follow from true demand. Drop "
            f"{other} or --write."
        )


def _resumed(args: argparse.Namespace, folder: Path | None, settings: Settings) -> Settings:
    """Return the settings with the seed of the resumed folder."""
    if not args.resume:
        return settings
    if folder is None:
        raise InputError("--resume needs the --out that the run or series went to")
    from gridpriv.study.run_folder import recorded_seed

    return settings if settings.seed is not None else replace(settings, seed=recorded_seed(folder))


def _transport(args: argparse.Namespace, settings: Settings) -> Connect | None:
    """Return the transport of zones, if not processes of this machine."""
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


def summarise(document: Json, outages: str = "") -> None:
    """Print the summary of a run: verdict, values with baselines, privacy, messages."""
    from gridpriv.zonal import summary
    from gridpriv.zonal.meter import MOST_ZONES_NAMED

    output.say(summary.title(document), *filter(None, [outages]))
    if state := summary.verdict(document):
        output.say(state)
    if rows := summary.results(document):
        output.print_rows(rows)
    else:
        output.say("Figures for the data owner only are left out.")
    messages = summary.notes(document)
    for note in messages:
        if note.severity == "warning" or note.code == "one-draw":  # next to the results
            output.say(note)
    if document["privacy"]["mechanism"] != "none":
        output.say(summary.privacy_line(document["privacy"]))
        for note in messages:
            if note.code == "noise-source":
                output.say(note)
    output.say(summary.rounds_line(document))
    redispatched = document["final"]["physical"]["balancing_mw"] is not None
    if redispatched and 1 < len(document["zones"]) <= MOST_ZONES_NAMED:
        output.print_table(*summary.interchange(document))
    for note in messages:
        if note.severity != "warning" and note.code not in ("ac-state", "noise-source", "one-draw"):
            output.say(note)


def _horizon(args: argparse.Namespace, case: Case, zoning: Zoning, settings: Settings) -> Horizon:
    """Return the steps of a series, with their coupling."""
    from gridpriv.grid.chronology import Chronology, Storage, with_storage
    from gridpriv.power.prior import capacity, size_questions
    from gridpriv.zonal.horizon import make_horizon

    storages: tuple[Storage, ...] = ()
    if args.storage:
        most = case.base_mva * capacity(case)
        case, storages = with_storage(case, args.storage)
        power = case.base_mva * sum(storage.discharge for storage in storages)
        for question in size_questions(
            power, most, f"--storage {args.storage}: p_mw", "MW", "grid"
        ):
            warn(question)
    series = flags.read_series(args, case, settings.load_scale)
    chronology = Chronology.of(
        case,
        storages,
        steps=len(series),
        hours=args.step_hours,
        ramps=args.ramps,
        reserves=args.reserves,
        switches=args.commitment,
    )
    return make_horizon(series, zoning, settings, chronology)


def _run_series(args: argparse.Namespace, context: RunContext, horizon: Horizon) -> int:
    """Run every remaining step; print the summary or the document."""
    import tempfile

    from gridpriv.report.plots import write_series_copies
    from gridpriv.study.context import run_steps
    from gridpriv.study.run_folder import Runs

    series = horizon.series
    with ExitStack() as stack:
        folder = context.out or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        runs = Runs(series.case, horizon.zoning, horizon.settings, horizon.seed, series)
        run_folder = stack.enter_context(context.open_folder(folder, runs))
        try:
            run_steps(context, horizon, run_folder)
            run_folder.finish()
        except (BudgetError, SolverError):
            if run_folder.store.has_runs:
                write_series_copies(run_folder, horizon)
            raise
        document = write_series_copies(run_folder, horizon)
    return output.print_result(args, document, lambda: _summarise_series(document), context.out)


def _summarise_series(document: Json) -> None:
    """Print the values of a series and its messages."""
    from gridpriv.zonal.messages import message
    from gridpriv.zonal.summary import protected, series_notes, series_summary

    steps, privacy = document["steps"], document["privacy"]
    noisy, total = privacy["mechanism"] != "none", privacy["total"]
    rows: list[list[object]] = [["steps", document["finished"], ""]]
    rows += series_summary(steps)
    if steps and "seconds" in steps[0]:
        rows.append(["run time", sum(step["seconds"] for step in steps), "s"])
    if noisy:
        rows += [
            ["releases per zone", privacy["releases_per_zone"], ""],
            [f"total epsilon{_of_hours(privacy)} (pure DP, worst zone)", privacy["total_pure"], ""],
        ]
        if shown(total["epsilon"]) != shown(privacy["total_pure"]):
            rows.append([f"total epsilon at delta {total['delta']:g}", total["epsilon"], ""])
    planned = counted(document["planned"], "step")
    title = f"{document['case']}: {document['series']}, one budget for {planned}"
    output.print_table(title, ["result", "value", "unit"], rows)
    output.say(*series_notes(document), *(protected(document) if noisy else ()))
    output.say(message("noise-source", {"caveat": privacy["caveat"]}))


def _of_hours(privacy: Json) -> str:
    """Return the hours of releases in a stream's total; None for another series."""
    stream = privacy.get("stream")
    if stream is None:
        return ""
    releases = privacy["releases_per_zone"] - privacy["interrupted_releases_per_zone"]
    return f" of {counted(stream['block_hours'] * releases, 'hour')}"

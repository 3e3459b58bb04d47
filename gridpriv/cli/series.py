"""``gridpriv run --series``: one run per step of a series of demand, one budget for all."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gridpriv.cli.charging import charging
from gridpriv.cli.flags import command_again, question_demand
from gridpriv.cli.output import print_table, tell, tell_finished
from gridpriv.cli.progress import progress
from gridpriv.core.display import counted
from gridpriv.core.document import Json
from gridpriv.core.errors import BudgetError, InputError, SolverError
from gridpriv.core.interrupts import uninterrupted

if TYPE_CHECKING:
    from gridpriv.consensus.transport import Connect
    from gridpriv.grid.case import Case
    from gridpriv.grid.overrides import DemandSeries
    from gridpriv.grid.zoning import Zoning
    from gridpriv.privacy.release import Charging, Release
    from gridpriv.study.run_folder import RunFolder
    from gridpriv.zonal.day import DayPlan
    from gridpriv.zonal.horizon import Horizon, Known
    from gridpriv.zonal.run import Admit, Planned
    from gridpriv.zonal.settings import Settings


COUPLING = {
    "storage": (
        "storage units, scheduled over all steps: name,bus,p_mw,energy_mwh and more "
        "(docs/howto/day.md)"
    ),
    "ramps": "ramp limits of generators: gen,up_mw_per_hour,down_mw_per_hour",
    "reserves": (
        "reserve capacity of generators, shared by the zones: "
        "gen,up_mw,down_mw[,up_price,down_price]; the row 'required' holds the requirement of "
        "the system"
    ),
    "commitment": "generators that may be switched off: gen,start_cost,min_up_hours,min_down_hours",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--series`` and ``--resume``."""
    parser.add_argument(
        "--series",
        metavar="FILE.csv",
        help="one run per step under one budget: step,load_scale or step,bus,pd_mw,qd_mvar; "
        "or profiles[:FIRST,STEPS] of a simbench net",
    )
    for name, text in COUPLING.items():
        parser.add_argument(f"--{name}", metavar="FILE.csv", help=text)
    parser.add_argument(
        "--step-hours", type=float, default=1.0, metavar="H", help="length of a step (default: 1)"
    )
    parser.add_argument(
        "--resume", action="store_true", help="run the steps that are missing in --out"
    )


def refuse_without_series(args: argparse.Namespace) -> None:
    """Refuse files that couple steps where there are no steps."""
    given = [f"--{name}" for name in COUPLING if getattr(args, name) is not None]
    if given and args.series is None:
        raise InputError(
            f"{given[0]} needs steps, but there is no --series. Give --series FILE.csv."
        )


def run_horizon(
    args: argparse.Namespace,
    case: Case,
    zoning: Zoning,
    settings: Settings,
    folder: Path | None,
    transport: Connect | None = None,
) -> int:
    """Run every step that is still to do, print the summary or the document."""
    import tempfile

    from gridpriv.grid.chronology import Chronology, with_storage
    from gridpriv.report.copies import write_series_copies
    from gridpriv.zonal.stream import make_stream

    case, storages = with_storage(case, args.storage) if args.storage else (case, ())
    series = read_series(args, case)
    chronology = Chronology.of(
        case,
        storages,
        steps=len(series),
        hours=args.step_hours,
        ramps=args.ramps,
        reserves=args.reserves,
        switches=args.commitment,
    )
    sizes = np.abs(series.pd).sum(axis=1)
    for step in dict.fromkeys((int(sizes.argmax()), int(sizes.argmin()))):
        scaled = series.at(step).scale_load(settings.load_scale)
        question_demand(args, scaled, settings.load_scale, series.steps[step])
    horizon = make_stream(series, zoning, settings, chronology)
    with ExitStack() as stack:
        place = folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        told = (case, zoning, settings, horizon.seed, series)
        kept = stack.enter_context(held_runs(args, place, *told))
        try:
            _run_steps(args, horizon, kept, transport)
            kept.finish()
        except (BudgetError, SolverError):
            write_series_copies(kept, horizon, args.tables)
            raise
        document = write_series_copies(kept, horizon, args.tables)
    tell(args, document, lambda: _summarise(document), folder)
    return 0


def read_series(args: argparse.Namespace, case: Case) -> DemandSeries:
    """Return the series that ``--series`` names."""
    from gridpriv.grid.overrides import read_demand_series
    from gridpriv.grid.simbench import is_profiles, profile_series

    if is_profiles(args.series):
        return profile_series(args.series, args.case, case)
    return read_demand_series(args.series, case)


def _run_steps(
    args: argparse.Namespace, horizon: Horizon, kept: RunFolder, transport: Connect | None
) -> None:
    from gridpriv.consensus.transport import ReusedAgents
    from gridpriv.zonal.reference import reference
    from gridpriv.zonal.run import own_transport

    left, once = kept.left(), horizon.released_once
    if not left:
        tell_finished(args)
        return
    case = horizon.series.case
    first = horizon.owned if once else horizon.prepared(left[0])
    known = kept.known(horizon) if once else None
    draws = int(known is None) if once else len(left)
    plan = _planned(horizon, kept, known) if known is not None or not once else None
    with ExitStack() as stack:
        charge, admit = stack.enter_context(charging(args, case, first, draws))
        advance = stack.enter_context(progress(args, case.name, len(left)))
        for number in left:
            with closing(
                ReusedAgents(transport or own_transport(horizon.settings.workers))
            ) as zones:
                if once and known is None:
                    horizon.tried(number, zones)
                    known = _drawn(horizon, kept, charge, admit)
                    admit = None
                    plan = _planned(horizon, kept, known)
                result = horizon.run_step(
                    number,
                    charge,
                    admit=in_turn(admit, partial(kept.begin, number)),
                    leave=partial(kept.add, number),
                    transport=zones,
                    known=known,
                    plan=plan,
                )
                admit = None  # the first step has spoken for all
                try:
                    if args.reference:
                        scale = horizon.settings.load_scale * horizon.series.scale(number)
                        result = replace(result, reference=reference(result, scale, zones))
                finally:  # what has been drawn is stored, whatever happens beside it
                    kept.add(number, result)
            advance(f"step {horizon.series.steps[number]}")


def _planned(horizon: Horizon, kept: RunFolder, known: Known | None) -> DayPlan | None:
    """Plan all steps together where something couples them; store what storages do (public)."""
    from pandas import DataFrame

    from gridpriv.core.text import frame_csv
    from gridpriv.zonal.documents import STORAGE_FILE, StorageStep

    plan = horizon.plan(known)
    if plan is not None:
        rows = plan.rows(horizon.series.case, horizon.series.steps)
        kept.store.text(
            STORAGE_FILE, frame_csv(DataFrame(rows, columns=list(StorageStep.table.names)))
        )
    return plan


def _drawn(
    horizon: Horizon, kept: RunFolder, charge: Charging | None, admit: Admit | None
) -> Known:
    """Draw once what serves all steps, stored before it is used."""
    if admit is not None:
        admit(horizon.planned)
    kept.begin_once(horizon.planned)
    drawn: dict[str, Counter[Release]] = {}

    def pay(owner: str, releases: Mapping[Release, int]) -> None:
        with uninterrupted():
            if charge is not None:
                charge(owner, releases)
            drawn.setdefault(owner, Counter()).update(releases)

    try:
        known = horizon.draw(pay)
    except BaseException:
        kept.add_once(horizon, drawn)
        raise
    kept.add_once(horizon, drawn, known)
    return known


def held_runs(
    args: argparse.Namespace,
    folder: Path,
    case: Case,
    zoning: Zoning,
    settings: Settings,
    seed: int,
    series: DemandSeries | None = None,
) -> AbstractContextManager[RunFolder]:
    """Return the folder that a run, or a series, is kept in; held until its context ends."""
    from gridpriv.study.run_folder import Runs, open_runs

    again = settings if settings.noise == "secure" else replace(settings, seed=seed)
    runs = Runs(case, zoning, settings, seed, series, command_again(args, again))
    charged = args.ledger is not None
    return open_runs(folder, runs, public=args.public, resume=args.resume, charged=charged)


def in_turn(admit: Admit | None, begin: Admit) -> Admit:
    """Return a callback that asks the ledger and then stores the planned releases."""

    def both(planned: Planned) -> None:
        if admit is not None:
            admit(planned)
        begin(planned)

    return both


def _summarise(document: Json) -> None:
    from gridpriv.zonal.series_summary import (
        released_once,
        series_figures,
        series_messages,
        stream_sentences,
    )
    from gridpriv.zonal.summary import protected

    steps, privacy = document["steps"], document["privacy"]
    rows: list[list[object]] = [["steps", document["finished"], ""]]
    rows += series_figures(steps)
    if steps and "seconds" in steps[0]:
        rows.append(["seconds", sum(step["seconds"] for step in steps), "s"])
    if privacy["mechanism"] != "none":
        total = privacy["total"]
        rows += [
            ["releases per zone", privacy["releases_per_zone"], ""],
            ["total pure epsilon (worst zone)", privacy["total_pure"], ""],
            [f"total epsilon at delta {total['delta']:g}", total["epsilon"], ""],
        ]
    steps_planned = counted(document["planned"], "step")
    title = f"{document['case']}: {document['series']}, one budget for {steps_planned}"
    print_table(title, ["result", "value", "unit"], rows)
    told = series_messages(steps, document["planned"], document["settings"])
    told += released_once(document)
    if privacy["mechanism"] != "none":
        told += protected(document)
    for sentence in [*told, *stream_sentences(privacy.get("stream")), privacy["caveat"]]:
        print(sentence)

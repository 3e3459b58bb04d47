"""Execution of a run with its ledger, folder, resume, baselines and progress.

A :class:`RunContext` runs a case or a series, from Python and from the command line. Every release
is charged and stored before its draw; draws are stored however the run ends.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gridpriv.consensus.transport import Connect, ReusedAgents
from gridpriv.core.errors import GridprivError, InputError
from gridpriv.core.files import sealed
from gridpriv.core.text import Json
from gridpriv.core.threads import uninterrupted
from gridpriv.grid.case import Case
from gridpriv.privacy.release import Charging, Release
from gridpriv.zonal.documents import PLAN_FILE
from gridpriv.zonal.opening import RoundRecord
from gridpriv.zonal.prepared import Prepared, zone_datasets
from gridpriv.zonal.result import RunResult
from gridpriv.zonal.run import Admit, Leave, Planned, default_transport, reference, run_prepared
from gridpriv.zonal.settings import Settings

if TYPE_CHECKING:
    from gridpriv.privacy.ledger import ReleaseCharge
    from gridpriv.privacy.ledger_rows import LedgerDataset
    from gridpriv.study.run_folder import RunFolder, Runs
    from gridpriv.zonal.day import DayPlan
    from gridpriv.zonal.horizon import DemandEstimates, Horizon

Progress = Callable[[str, int | None], AbstractContextManager[Callable[..., None]]]
"""From a label and a number of steps (None: unknown) to a display with ``advance(note)``."""


@contextmanager
def no_progress(_label: str, _total: int | None) -> Iterator[Callable[..., None]]:
    """Show no progress."""
    yield lambda *_: None


def _round_note(record: RoundRecord) -> str:
    """Return the note after a round; the exchange of a ready schedule has no residual."""
    residual = record.consensus_residual
    return f"consensus residual {residual:.2e}" if residual else "AC redispatch"


@contextmanager
def open_charge(
    ledger: str | Path | None,
    key: str | Path | None,
    owners: Callable[[], Sequence[LedgerDataset]],
    *,
    noisy: bool,
    run_id: str = "",
) -> Iterator[ReleaseCharge | None]:
    """Open a ledger and yield the function that charges releases to it; None without a ledger.

    ``owners`` returns the charged datasets; it is called if there is a ledger. The charges have a
    random ``run_id``, or this one.
    """
    if ledger is None:
        if key is not None:
            raise InputError("--ledger-key is the key of a ledger: give --ledger")
        yield None
        return
    if not noisy:
        raise InputError("--ledger charges releases; this run has none (mechanism none)")
    from gridpriv.privacy.ledger import Ledger, ReleaseCharge

    with Ledger(ledger, owners(), None if key is None else Path(key)) as opened:
        yield ReleaseCharge(opened, run_id or uuid.uuid4().hex)


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """Ledger, folder, baselines and progress of a run.

    Attributes
    ----------
    out : Path or None
        Folder of the run.
    public : bool
        Store public values only.
    resume : bool
        Continue the run in the folder.
    ledger, ledger_key : path or None
        Ledger of the charges, and its key (default: FILE.key).
    reference : bool
        Compute baselines too.
    transport : callable or None
        Transport of the zones, if not processes of this machine.
    repeat : callable
        From settings to the command that repeats the run.
    progress : callable
        See :data:`Progress`.
    copies : callable
        Writes readable copies of a finished folder and returns its document.
    began : float
        Clock time at the start of reading, s.
    """

    out: Path | None = None
    public: bool = False
    resume: bool = False
    ledger: str | Path | None = None
    ledger_key: str | Path | None = None
    reference: bool = False
    transport: Connect | None = None
    repeat: Callable[[Settings], str] = lambda _: ""
    progress: Progress = no_progress
    copies: Callable[[RunFolder], Json | None] = lambda _: None
    began: float = field(default_factory=time.perf_counter)

    @contextmanager
    def charging(
        self,
        case: Case,
        first: Prepared,
        runs: int = 1,
        *,
        run_id: str = "",
        stored: Mapping[str, int] = {},
    ) -> Iterator[tuple[ReleaseCharge | None, Admit | None]]:
        """Open the ledger; yield functions that charge releases and refuse runs beyond grants.

        ``first`` is the first of ``runs`` equal runs, which are admitted together. The
        numbers of releases that zones have ``stored`` must be charged to ``run_id`` already;
        nothing is admitted then.
        """

        def owners() -> Sequence[LedgerDataset]:
            return zone_datasets(case, first.zoning, first.settings.protected(case))

        noisy = first.rules.noise is not None
        with open_charge(
            self.ledger, self.ledger_key, owners, noisy=noisy, run_id=run_id
        ) as charge:
            if charge is None:
                yield None, None
                return
            charge.ledger.check_charged(run_id, stored)
            yield charge, None if stored else partial(charge.admit, runs=runs)

    @contextmanager
    def charged(
        self, case: Case, prepared: Prepared, more: int = 0
    ) -> Iterator[tuple[RunResult, Callable[..., None]]]:
        """Yield a run with charges and progress, and the progress of ``more`` further steps."""
        with (
            self.charging(case, prepared) as (charge, admit),
            self.progress(case.name, prepared.settings.rounds + more) as advance,
        ):
            result = run_prepared(prepared, lambda _: advance("round"), charge=charge, admit=admit)
            yield result, advance

    def zones(self, workers: int) -> ReusedAgents:
        """Return the processes of the zones, reused in further runs."""
        return ReusedAgents(self.transport or default_transport(workers))

    def open_folder(self, folder: Path, runs: Runs) -> AbstractContextManager[RunFolder]:
        """Return the folder of a run, or a series; it is locked until its context ends."""
        from gridpriv.privacy.ledger import ledger_identity
        from gridpriv.study.run_folder import open_runs  # imports pandas

        secure = runs.settings.noise == "secure"
        repeated = runs.settings if secure else replace(runs.settings, seed=runs.seed)
        return open_runs(
            folder,
            replace(runs, repeat=self.repeat(repeated)),
            public=self.public,
            resume=self.resume,
            ledger=ledger_identity(self.ledger, self.ledger_key),
            stores=self.transport is None,
        )

    def finish(self, run_folder: RunFolder) -> Json | None:
        """Finish the folder and write the readable copies; return the document, if any."""
        run_folder.finish()
        return self.copies(run_folder)


def run_case(
    context: RunContext,
    case: Case,
    prepared: Prepared,
    show: Callable[[Json, bool], object] = lambda *_: None,
    after: Callable[[RunResult], object] = lambda _: None,
) -> RunResult | None:
    """Run a prepared case with its baselines; None where the folder has it already.

    Parameters
    ----------
    show : callable
        Called with the run's document, and True if the run ended early.
    after : callable
        Called with the result before it is stored.
    """
    with ExitStack() as stack:
        run_folder = None
        if context.out is not None:
            from gridpriv.study.run_folder import Runs  # imports pandas

            runs = Runs(case, prepared.zoning, prepared.settings, prepared.seed)
            run_folder = stack.enter_context(context.open_folder(context.out, runs))
            if not run_folder.remaining():
                with context.progress(case.name, 0):
                    if (document := context.finish(run_folder)) is not None:
                        show(document, False)
                return None
        load = time.perf_counter() - context.began
        store = partial(_store_run, context, run_folder, load, show)
        zones = stack.enter_context(closing(context.zones(prepared.settings.workers)))
        result = _run_rounds(context, case, prepared, run_folder, store, zones)
        try:
            if context.reference:
                result = _compared(result, zones)
            after(result)
        finally:  # the run is charged even if the comparison fails
            store(result)
    return result


def _run_rounds(
    context: RunContext,
    case: Case,
    prepared: Prepared,
    run_folder: RunFolder | None,
    leave: Leave,
    zones: Connect,
) -> RunResult:
    """Run a prepared case with charges and progress, from a stored release if any."""
    kept = None if run_folder is None else run_folder.kept(prepared)
    identity = "" if kept is None else kept.run_id
    stored = dict.fromkeys(prepared.zoning.names if kept is not None and kept.reuses else (), 1)
    with ExitStack() as stack:
        charging = context.charging(case, prepared, run_id=identity, stored=stored)
        charge, admit = stack.enter_context(charging)
        max_rounds = None if prepared.in_ac_rounds else prepared.settings.rounds
        advance = stack.enter_context(context.progress(case.name, max_rounds))
        planned = None if run_folder is None else partial(run_folder.begin, 0)
        return run_prepared(
            prepared,
            watch=lambda r: advance(_round_note(r)),
            watch_ac=lambda r: advance(f"largest AC mismatch {r.primal:.2e}"),
            charge=charge,
            admit=admit if planned is None else in_turn(admit, planned),
            leave=leave,
            transport=zones,
            kept=kept,
        )


def _store_run(
    context: RunContext,
    run_folder: RunFolder | None,
    load: float,
    show: Callable[[Json, bool], object],
    result: RunResult,
) -> str | None:
    """Store and show a result that took ``load`` s to read; state draws at an early end."""
    timing = replace(result.timing, load=load, total=load + result.timing.total)
    result = replace(result, timing=timing)
    if run_folder is not None:
        result = _stored(run_folder, result)
        context.finish(run_folder)
    show(result.as_dict(public=context.public), result.early is not None)
    return run_folder.drawn() if run_folder is not None and result.early else None


def run_steps(context: RunContext, horizon: Horizon, run_folder: RunFolder) -> None:
    """Run every step of a series that its folder does not have, under one budget."""
    remaining, once = run_folder.remaining(), horizon.released_once
    case = horizon.series.case
    if not remaining:
        with context.progress(case.name, 0):
            return
    first = horizon.owned if once else horizon.prepared(remaining[0])
    known = run_folder.known(horizon) if once else None
    identity = run_folder.attempt(None, stored=known is not None) if once else ""
    stored = {} if known is None else {z: sum(own.values()) for z, own in horizon.planned.items()}
    with ExitStack() as stack:
        stack.enter_context(_stating_draws(run_folder))
        runs = 1 if once else len(remaining)
        charging = context.charging(case, first, runs, run_id=identity, stored=stored)
        charge, admit = stack.enter_context(charging)
        plan = _planned(horizon, run_folder, known) if known is not None or not once else None
        advance = stack.enter_context(context.progress(case.name, len(remaining)))
        for number in remaining:
            with closing(context.zones(horizon.settings.workers)) as zones:
                if once and known is None:
                    horizon.run_trial(number, zones)
                    known = _drawn(horizon, run_folder, charge, admit)
                    admit = None
                    plan = _planned(horizon, run_folder, known)
                store = partial(_stored_step, run_folder, number, plan)
                begin = in_turn(admit, partial(run_folder.begin, number))
                result = horizon.run_step(
                    number, charge, begin, store, transport=zones, estimates=known, plan=plan
                )
                admit = None  # the first step has been checked for all
                try:
                    if context.reference:
                        scale = horizon.settings.load_scale * horizon.series.scale(number)
                        result = replace(result, reference=reference(result, scale, zones))
                finally:  # draws are stored even after an exception
                    store(result)
            advance(f"step {horizon.series.steps[number]}")


def _stored(run_folder: RunFolder, result: RunResult) -> RunResult:
    """Store a run and return it with its earlier attempts; an error states what was drawn."""
    try:
        return run_folder.add(0, result)
    except (GridprivError, OSError) as error:
        error.add_note(f"not stored; {result.trace.drawn()}")
        raise


def _stored_step(
    run_folder: RunFolder, number: int, plan: DayPlan | None, result: RunResult
) -> str | None:
    """Store a step after its earlier attempts, with its plan; state draws at an early end."""
    run_folder.add(number, result, plan)
    return run_folder.drawn() if result.early else None


@contextmanager
def _stating_draws(run_folder: RunFolder) -> Iterator[None]:
    """Add to an exception the number of releases of all steps."""
    try:
        yield
    except BaseException as error:
        note = run_folder.drawn()
        if note and note not in getattr(error, "__notes__", ()):
            error.add_note(note)
        raise


def in_turn(admit: Admit | None, begin: Admit) -> Admit:
    """Return a callback that checks the ledger and then stores the planned releases."""

    def both(planned: Planned) -> None:
        if admit is not None:
            admit(planned)
        begin(planned)

    return both


def _compared(result: RunResult, zones: Connect) -> RunResult:
    """Return the result with its baselines; an interrupt keeps the run."""
    try:
        return replace(result, reference=reference(result, result.settings.load_scale, zones))
    except KeyboardInterrupt as error:
        # notes are those of the interrupted baseline, which does not draw
        interrupt = KeyboardInterrupt(*error.args)
        interrupt.add_note("the run is done; its baselines take a new run")
        raise interrupt from None


def _planned(
    horizon: Horizon, run_folder: RunFolder, known: DemandEstimates | None
) -> DayPlan | None:
    """Plan coupled steps together; store storages, reserves and commitment."""
    plan = horizon.plan(known)
    if plan is not None:
        tables = plan.tables(horizon.series.case, horizon.series.steps)
        run_folder.store.text(PLAN_FILE, sealed(tables))
    return plan


def _drawn(
    horizon: Horizon, run_folder: RunFolder, charge: Charging | None, admit: Admit | None
) -> DemandEstimates:
    """Draw the release of all steps; store it before it is used."""
    in_turn(admit, partial(run_folder.begin, None))(horizon.planned)
    drawn: dict[str, Counter[Release]] = {}

    def pay(owner: str, releases: Mapping[Release, int]) -> None:
        with uninterrupted():
            if charge is not None:
                charge(owner, releases)
            drawn.setdefault(owner, Counter()).update(releases)

    try:
        known = horizon.draw(pay)
    except BaseException:
        run_folder.add_once(horizon, drawn)
        raise
    run_folder.add_once(horizon, drawn, known)
    return known

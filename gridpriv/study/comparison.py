"""A study of grids: its cases and zone maps, the estimated time of its runs, and their execution.

Runs are executed in this process, in several, or on a Dask cluster.

Tasks that differ in their seed only go to one worker together: they have the calibration of the
noise and the accounting of the total in common, which take longer than a small case's rounds. A
local worker stores each run at once. Machines of a cluster need not have a common disk, so their
runs are returned and stored here.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, product
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from gridpriv.consensus.transport import ReusedAgents, connect
from gridpriv.core.errors import GridprivError, GridprivWarning, InputError, not_allowed, warn
from gridpriv.core.processes import unordered
from gridpriv.core.store import MANIFEST, NETWORK_TABLES, Store, Study, Tables
from gridpriv.core.text import Json, counted
from gridpriv.grid.case import Case
from gridpriv.grid.library import load_case, zoning_of
from gridpriv.grid.zoning import Zoning, tie_lines, zone_map
from gridpriv.power.prior import warn_of_demand
from gridpriv.privacy.settings import NO_BUDGET
from gridpriv.study import engine
from gridpriv.study.plan import StudyPlan, StudyTask, make_plan, to_toml
from gridpriv.study.record import FINALS, identity, run_tables
from gridpriv.zonal.prepared import check_single, prepare, zoning_for
from gridpriv.zonal.result import RunResult
from gridpriv.zonal.settings import Settings


class ZonedCase(NamedTuple):
    """A case under one zone map."""

    case: Case
    zoning: Zoning


Grids = dict[tuple[str, str], ZonedCase]
"""By the plan's labels of case and zoning."""


def load_grids(plan: StudyPlan) -> Grids:
    """Return the grid of every case and zoning of a plan; raises before anything runs."""
    cases = {label: load_case(label) for label in plan.cases}
    for (label, case), scale in product(cases.items(), plan.load_scales):
        scaled = f", load scale {scale:g}" if scale != 1.0 else ""
        warn_of_demand(case.scale_load(scale), f"case {label}{scaled}", scale)
    return {(label, zoning): _zoned(cases[label], label, zoning) for label, zoning in plan.grids}


def _zoned(case: Case, label: str, zoning: str) -> ZonedCase:
    """Return a case under a map; an error names the case, and the way to give it a map."""
    if not zoning and zoning_of(case, None, None) is None:
        maps = "MAP: K, PARTITION:K or FILE.csv"
        raise InputError(
            f"case {label} has no shipped zone map: give it one by --zonings {label}=MAP ({maps})"
        )
    try:
        return ZonedCase(case, zoning_for(case, zoning or None))
    except InputError as error:
        advice = f"--zonings {label}=MAP gives this case a map of its own"
        raise InputError(f"case {label}: {error}; {advice}") from None


def describe(grids: Grids) -> list[Json]:
    """Return identity, size and zone map of each grid for the manifest."""
    return [
        {
            "case": case,
            "zoning": zoning,
            "name": grid.case.name,
            "fingerprint": grid.case.fingerprint,
            "buses": grid.case.n_bus,
            "branches": grid.case.n_branch,
            "load_mw": grid.case.base_mva * float(grid.case.pd.sum()),
            "zones": grid.zoning.n_zone,
            "tie_lines": int(tie_lines(grid.case, grid.zoning).sum()),
            "rated_branches": int((grid.case.rate > 0.0).sum()),
            "base_mva": grid.case.base_mva,
            "source": grid.zoning.source,
            "map": zone_map(grid.case, grid.zoning),
        }
        for (case, zoning), grid in grids.items()
    ]


def network_rows(grids: Grids) -> Tables:
    """Return positions of buses, and branches, of every grid (public)."""
    from gridpriv.grid.layout import network_tables  # imports networkx: slow

    rows_by_table: dict[str, list[Json]] = {}
    for (case, zoning), grid in grids.items():
        tables = network_tables(grid.case, grid.zoning)
        for name, table in zip(NETWORK_TABLES, tables, strict=True):
            rows = table.assign(case=case, zoning=zoning).to_dict("records")
            rows_by_table.setdefault(name, []).extend(rows)
    return rows_by_table


FIXED, OF_UPDATE, OF_BUS_UPDATE, OF_BUS = 0.15, 3e-3, 2e-5, 6e-3
"""Processor seconds of a run: fixed, per local update, per bus and local update, and per bus for
the rest (AC rounds, power flow, redispatch); on one core, within a factor of two."""
START = 2.0
"""Seconds until a process has imported its modules and read its cases."""


@dataclass(frozen=True)
class WorkEstimate:
    """Numbers of runs and processes, seconds on idle cores, and number of runs without noise."""

    runs: int
    jobs: int
    seconds: float
    baselines: int = 0

    def __str__(self) -> str:
        time = f"{self.seconds:.2g} s" if self.seconds < 90.0 else f"{self.seconds / 60.0:.2g} min"
        runs, noisy = counted(self.runs, "run"), self.runs - self.baselines
        if self.baselines and noisy:
            runs = f"{noisy} noisy and {counted(self.baselines, 'baseline run')}"
        return f"{runs} in {counted(self.jobs, 'process')}, about {time}"


def estimate(runs: Iterable[tuple[Case, Settings]], jobs: int | None = None) -> WorkEstimate:
    """Return the estimate of several runs; by default in one process per core."""
    count, seconds, baselines = 0, 0.0, 0
    for case, settings in runs:
        updates = 0 if settings.coordination == "central" else settings.rounds
        each = settings.local_updates * (OF_UPDATE + case.n_bus * OF_BUS_UPDATE)
        seconds += FIXED + case.n_bus * OF_BUS + updates * each
        count += 1
        baselines += settings.noise_budget in NO_BUDGET
    jobs = max(1, min(jobs or os.cpu_count() or 1, count))
    return WorkEstimate(count, jobs, START + seconds / jobs, baselines)


def estimate_plan(plan: StudyPlan, jobs: int | None = None) -> WorkEstimate:
    """Return the estimate of all runs of a study."""
    grids = load_grids(plan)
    runs = ((grids[task.case, task.zoning].case, task.settings) for task in plan.tasks())
    return estimate(runs, jobs)


# the tables of every run of a batch (None: stored already), a note on each, and warnings
Finished: TypeAlias = "tuple[list[tuple[Tables | None, str]], list[str]]"


def compare(
    cases: StudyPlan | Sequence[str] | str,
    *,
    out: str | Path,
    jobs: int | None = None,
    cluster: str | None = None,
    resume: bool | None = None,
    retry_failed: bool = False,
    progress: engine.Progress = engine.no_progress,
    **axes: Any,
) -> Study:
    """Run a study and return it.

    Parameters
    ----------
    cases : StudyPlan, or case names
        With names, ``axes`` are those of :func:`gridpriv.study.make_plan`.
    out : path
        Folder of the study; new or empty unless ``resume``.
    jobs : int, optional
        Processes; as many as there are processors by default.
    cluster : str, optional
        Address of a Dask scheduler, instead of local processes.
    resume : bool, optional
        Run what the folder does not have yet. By default if it is not empty, so a cell of a
        notebook can be run again; the folder of another study is refused.
    retry_failed : bool
        In a resumed study also run failed runs again.
    progress : callable
        Given the number of runs, returns a context that yields ``advance(note)``.

    Returns
    -------
    Study

    Raises
    ------
    InputError
        For a plan that cannot run, or a folder with other content.
    """
    names = [cases] if isinstance(cases, str) else cases
    plan = names if isinstance(names, StudyPlan) else make_plan(names, **axes)
    if jobs is not None and jobs < 1:
        raise not_allowed("jobs", jobs, "1 or more")
    if resume is None:
        resume = (Path(out) / MANIFEST).exists()
    grids, tasks = load_grids(plan), plan.tasks()
    for task in tasks:
        grid = grids[task.case, task.zoning]
        check_single(task.settings, grid.zoning)
        task.settings.protected(grid.case)  # refuses a distance outside the range of grids
    manifest = engine.header("study", plan.title, plan.question, plan.as_dict(), len(tasks))

    processes = jobs or os.cpu_count() or 1

    def work(remaining: list[StudyTask], store: Store, advance: engine.Advance) -> None:
        store.text("study.toml", to_toml(plan))
        run_tasks(remaining, grids, store, processes, cluster, advance)

    return engine.run_study(
        Path(out),
        manifest | {"cases": describe(grids)},
        tasks,
        work,
        resume=resume,
        retry_failed=retry_failed,
        common=partial(network_rows, grids),
        progress=progress,
    )


@dataclass(frozen=True, eq=False)
class Batch:
    """Tasks for one worker, with their grid."""

    tasks: tuple[StudyTask, ...]
    grid: ZonedCase

    @property
    def effort(self) -> float:
        """Rough cost, to start the longest first."""
        settings = self.tasks[0].settings
        solves = settings.rounds * settings.local_updates * len(self.tasks)
        return float(self.grid.case.n_bus * solves)


def run_tasks(
    tasks: Sequence[StudyTask],
    grids: Grids,
    store: Store,
    jobs: int,
    cluster: str | None,
    advance: engine.Advance,
) -> None:
    """Run tasks and store each as soon as it is finished.

    Raises
    ------
    StorageError
        If the folder cannot be written to; stored runs stay.
    InputError
        If the cluster cannot be reached.
    """
    workers = jobs if cluster is None else 8
    batches = make_batches(tasks, grids, workers)
    runs = partial(run_batch, folder=store.folder if cluster is None else None)
    results = unordered(runs, batches, jobs) if cluster is None else _dask(runs, batches, cluster)
    with closing(results):
        for finished, warned in results:
            for message in warned:
                warn(message)
            for tables, words in finished:
                if tables is not None:
                    store.add(tables)
                advance(words)


def run_batch(batch: Batch, folder: Path | None) -> Finished:
    """Run a batch, possibly in a worker; store its runs in ``folder``, or return their tables.

    Warnings are returned too, to be shown in the main process.
    """
    finished: list[tuple[Tables | None, str]] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", GridprivWarning)
        for tables in executed(batch):
            if folder is not None:
                Store(folder, public=False).add(tables)
            finished.append((None if folder is not None else tables, engine.note(tables)))
    return finished, list(dict.fromkeys(str(w.message) for w in caught))


def executed(batch: Batch) -> Iterator[Tables]:
    """Yield the tables of each of a batch's runs, failed ones with their reason.

    The noise is calibrated, and the zones are compiled and warm-started, once for all of them.
    Solvers have no memory between runs, so a resumed study has the same tables.
    """
    from gridpriv.zonal.run import default_transport, run_prepared

    first = batch.tasks[0].settings
    try:
        prepared = prepare(batch.grid.case, batch.grid.zoning, first)
    except GridprivError as error:
        yield from (_failed(task, engine.reason_of(error)) for task in batch.tasks)
        return
    with closing(ReusedAgents(default_transport(first.workers))) as zones:
        for task in batch.tasks:
            changed = replace(prepared, settings=task.settings, seed=task.settings.seed or 0)
            yield attempted(task, partial(run_prepared, changed, transport=zones))


def attempted(task: StudyTask, run: Callable[..., RunResult]) -> Tables:
    """Return a run's tables; a failed run has a row with the reason and its results so far."""
    early: list[RunResult] = []

    def failed(reason: str) -> Tables:
        return run_tables(identity(task), early[0], reason) if early else _failed(task, reason)

    return engine.attempted(lambda: run_tables(identity(task), run(leave=early.append)), failed)


def _failed(task: StudyTask, reason: str) -> Tables:
    """Return the tables of a run without results."""
    return engine.failed_tables(identity(task) | dict.fromkeys(FINALS), reason)


def make_batches(tasks: Sequence[StudyTask], grids: Grids, workers: int) -> list[Batch]:
    """Return batches of tasks that differ in their seed only, the longest first.

    They are split so that every worker has several, as otherwise workers would wait for the last.
    """
    most = max(1, len(tasks) // (8 * workers))
    batches = []
    for _, repetitions in groupby(tasks, key=_unseeded):
        group = tuple(repetitions)
        batches += [
            Batch(group[k : k + most], grids[group[0].case, group[0].zoning])
            for k in range(0, len(group), most)
        ]
    return sorted(batches, key=lambda b: -b.effort)


def _unseeded(task: StudyTask) -> StudyTask:
    """Return a task without its seed and number."""
    return replace(task, number=0, settings=replace(task.settings, seed=None))


def _dask(
    run: Callable[[Batch], Finished], batches: Sequence[Batch], address: str
) -> Generator[Finished, None, None]:
    """Yield what a Dask cluster's workers return, as they finish."""
    with connect(address) as client:
        from distributed import as_completed

        futures = [client.submit(run, client.scatter(b, hash=False), pure=False) for b in batches]
        for future in as_completed(futures):
            yield future.result()

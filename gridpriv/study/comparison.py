"""Run a study into a folder, or the rest of one."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from gridpriv.core.errors import not_allowed
from gridpriv.core.store import open_store
from gridpriv.core.stored import Study, read_study
from gridpriv.study.files import to_toml
from gridpriv.study.grids import load_grids, network_rows
from gridpriv.study.manifest import make_manifest
from gridpriv.study.plan import StudyPlan, make_plan
from gridpriv.study.runner import run_tasks
from gridpriv.study.total import told_totals

Progress = Callable[[int], AbstractContextManager[Callable[[str], None]]]


def compare(
    cases: StudyPlan | Sequence[str] | str,
    *,
    out: str | Path,
    jobs: int | None = None,
    cluster: str | None = None,
    resume: bool = False,
    retry_failed: bool = False,
    time_limit: float | None = None,
    progress: Progress = lambda _: nullcontext(lambda _: None),
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
    resume : bool
        Run what the folder does not hold yet.
    retry_failed : bool
        With ``resume``: also what failed.
    time_limit : float, optional
        Seconds after which a run is stopped and recorded as failed.
    progress : callable
        Given the number of runs, returns a context that yields ``advance(note)``.

    Returns
    -------
    Study

    Raises
    ------
    InputError
        For a plan that cannot run, or a folder that holds something else.
    """
    plan = cases if isinstance(cases, StudyPlan) else make_plan(_names(cases), **axes)
    if jobs is not None and jobs < 1:
        raise not_allowed("jobs", jobs, "1 or more")
    if time_limit is not None and not time_limit > 0:
        raise not_allowed("time-limit", time_limit, "a positive number of seconds")
    grids, tasks = load_grids(plan), plan.tasks()
    manifest = make_manifest(plan, grids, len(tasks))
    common = partial(network_rows, grids)
    with open_store(Path(out), manifest, resume=resume, common=common) as store:
        store.text("study.toml", to_toml(plan))
        if retry_failed:
            store.forget(run for run, status in store.stored().items() if status == "failed")
        stored = store.stored()
        left = [task for task in tasks if task.id not in stored]
        with progress(len(left)) as advance:
            run_tasks(
                left,
                grids,
                store,
                jobs=jobs or os.cpu_count() or 1,
                cluster=cluster,
                time_limit=time_limit,
                advance=advance,
            )
        store.finish(told_totals)
    return read_study(out)


def _names(cases: Sequence[str] | str) -> list[str]:
    return [cases] if isinstance(cases, str) else list(cases)

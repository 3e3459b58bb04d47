"""Estimates of time, from the number of buses and updates: a first idea, no promise."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from gridpriv.core.display import counted
from gridpriv.grid.case import Case
from gridpriv.privacy.budget import QUIET
from gridpriv.study.grids import load_grids
from gridpriv.study.plan import StudyPlan
from gridpriv.zonal.settings import Settings

FIXED, OF_UPDATE, OF_BUS_UPDATE, OF_BUS = 0.15, 3e-3, 2e-5, 6e-3
"""Processor seconds of a run: fixed, per local update, per bus and local update, and per bus for
the rest (AC rounds, power flow, redispatch); on one core, give or take a factor of two."""
START = 2.0
"""Seconds until a process has its modules and cases."""


@dataclass(frozen=True)
class WorkEstimate:
    """Runs, processes, seconds on idle cores, and how many of the runs draw no noise."""

    runs: int
    jobs: int
    seconds: float
    baselines: int = 0

    def __str__(self) -> str:
        time = f"{self.seconds:.2g} s" if self.seconds < 90.0 else f"{self.seconds / 60.0:.2g} min"
        runs, private = counted(self.runs, "run"), self.runs - self.baselines
        if self.baselines and private:
            runs = f"{private} private and {counted(self.baselines, 'baseline run')}"
        return f"{runs} in {counted(self.jobs, 'job')}, about {time}"


def estimate(runs: Iterable[tuple[Case, Settings]], jobs: int | None = None) -> WorkEstimate:
    """Return the estimate of several runs; by default in one process per core."""
    count, seconds, baselines = 0, 0.0, 0
    for case, settings in runs:
        updates = 0 if settings.coordination == "central" else settings.rounds
        each = settings.local_updates * (OF_UPDATE + case.n_bus * OF_BUS_UPDATE)
        seconds += FIXED + case.n_bus * OF_BUS + updates * each
        count += 1
        baselines += settings.drawn in QUIET
    jobs = max(1, min(jobs or os.cpu_count() or 1, count))
    return WorkEstimate(count, jobs, START + seconds / jobs, baselines)


def estimate_plan(plan: StudyPlan, jobs: int | None = None) -> WorkEstimate:
    """Return the estimate of all runs of a study."""
    grids = load_grids(plan)
    runs = ((grids[task.case, task.zoning].case, task.settings) for task in plan.tasks())
    return estimate(runs, jobs)

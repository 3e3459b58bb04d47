"""Estimate of a study's time, from the number of buses and updates: a first idea, no promise."""

from __future__ import annotations

import os
from dataclasses import dataclass

from gridpriv.core.display import counted
from gridpriv.study.grids import load_grids
from gridpriv.study.plan import StudyPlan

FIXED, OF_UPDATE, OF_BUS_UPDATE, OF_BUS = 0.1, 2e-3, 2e-5, 4e-3
"""Processor seconds of a run: fixed, per local update, per bus and local update, and per bus for
the rest (AC rounds, power flow, redispatch); on one core, give or take a factor of two."""


@dataclass(frozen=True)
class WorkEstimate:
    """Runs of a study, processes, and seconds on idle cores."""

    runs: int
    jobs: int
    seconds: float

    def __str__(self) -> str:
        time = f"{self.seconds:.2g} s" if self.seconds < 90.0 else f"{self.seconds / 60.0:.2g} min"
        return f"{counted(self.runs, 'run')} in {counted(self.jobs, 'job')}, about {time}"


def estimate(plan: StudyPlan, jobs: int | None = None) -> WorkEstimate:
    """Return the estimate of a plan; by default in one process per core."""
    grids, tasks = load_grids(plan), plan.tasks()
    seconds = 0.0
    for task in tasks:
        settings, buses = task.settings, grids[task.case, task.zoning].case.n_bus
        rounds = 0 if settings.coordination == "central" else settings.rounds
        each = OF_UPDATE + buses * OF_BUS_UPDATE
        seconds += FIXED + buses * OF_BUS + rounds * settings.local_updates * each
    jobs = max(1, min(jobs or os.cpu_count() or 1, len(tasks)))
    return WorkEstimate(len(tasks), jobs, seconds / jobs)

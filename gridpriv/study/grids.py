"""The grids of a study: cases and zone maps, what figures need of them, and the time of runs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from gridpriv.core.store import NETWORK_TABLES, Rows
from gridpriv.core.text import Json, counted
from gridpriv.grid.case import Case
from gridpriv.grid.library import load_case
from gridpriv.grid.zoning import Zoning, tie_lines, zone_map
from gridpriv.privacy.settings import QUIET
from gridpriv.study.plan import StudyPlan
from gridpriv.zonal.prepared import zoning_for
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
    return {
        (label, zoning): ZonedCase(case, zoning_for(case, zoning or None))
        for label, case in cases.items()
        for zoning in plan.zonings
    }


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


def network_rows(grids: Grids) -> Rows:
    """Return positions of buses, and branches, of every grid (public)."""
    from gridpriv.grid.layout import network_tables  # imports networkx: slow

    entries: Rows = {}
    for (case, zoning), grid in grids.items():
        tables = network_tables(grid.case, grid.zoning)
        for name, table in zip(NETWORK_TABLES, tables, strict=True):
            rows = table.assign(case=case, zoning=zoning).to_dict("records")
            entries.setdefault(name, []).extend(rows)
    return entries


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

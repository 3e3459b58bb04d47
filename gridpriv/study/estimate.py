"""Estimates of time, from the number of buses and solves: for a first idea, not a promise."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gridpriv.grid.case import Case
from gridpriv.zonal.settings import Settings

FIXED, OF_UPDATE, OF_BUS_UPDATE, OF_BUS = 0.1, 2e-3, 2e-5, 4e-3
"""Processor seconds of a run: fixed, per local update, per bus and local update, and per bus for
the rest (AC rounds, power flow, redispatch). Measured on one core: case14 0.2 s (100 rounds of the
paper 0.5 s), case118 0.5 s (0.8 s), case300 1.8 s."""


@dataclass(frozen=True)
class WorkEstimate:
    """Runs, local updates of all zones, and seconds on idle cores."""

    runs: int
    rounds: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.runs} {'run' if self.runs == 1 else 'runs'}, about {duration(self.seconds)}"


def run_seconds(case: Case, settings: Settings) -> float:
    """Return the processor seconds of a run, give or take a factor of two."""
    updates = 0 if settings.coordination == "central" else settings.rounds * settings.local_updates
    return FIXED + updates * (OF_UPDATE + case.n_bus * OF_BUS_UPDATE) + case.n_bus * OF_BUS


def estimate(runs: Iterable[tuple[Case, Settings]], jobs: int = 1) -> WorkEstimate:
    """Return the estimate of several runs in some processes."""
    listed = list(runs)
    seconds = sum(run_seconds(case, settings) for case, settings in listed)
    rounds = sum(settings.rounds for _, settings in listed)
    return WorkEstimate(len(listed), rounds, seconds / max(1, min(jobs, len(listed) or 1)))


def duration(seconds: float) -> str:
    """Return a time in the unit that reads best, two digits."""
    if seconds < 90.0:
        return f"{max(seconds, 1.0):.2g} s"
    return f"{seconds / 60.0:.2g} min" if seconds < 5400.0 else f"{seconds / 3600.0:.2g} h"

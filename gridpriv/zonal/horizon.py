"""A series of demand, one run per step, and one privacy budget for all of them.

Neighbouring data are two series that differ at one bus of one zone, by at most beta in every
step: so a zone's loss over the horizon is that of all its releases in all steps together.
``total`` budgets are therefore spread over planned releases times steps; ``per-release`` ones
stay what they are, and the total is stated. Every step draws its own noise: were a draw
repeated, the difference of two steps' messages would be free of it.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pandas import DataFrame

from gridpriv.consensus.transport import Carry
from gridpriv.core.errors import GridprivError
from gridpriv.grid.overrides import DemandSeries
from gridpriv.grid.zoning import Zoning
from gridpriv.privacy.budget import noise_multiplier
from gridpriv.privacy.release import Charging, Release
from gridpriv.privacy.statement import ZoneStatement
from gridpriv.zonal.checks import zone_statements
from gridpriv.zonal.result import RunResult
from gridpriv.zonal.run import Admit, Leave, Prepared, prepare, run_prepared
from gridpriv.zonal.settings import Settings


@dataclass(frozen=True, eq=False)
class Horizon:
    """A series of runs that is ready to start; any step can be run, in any order.

    Attributes
    ----------
    series : DemandSeries
    zoning : Zoning
    settings : Settings
        ``budget`` is that of the horizon where it is a total.
    seed : int
        Every step's seed follows from it.
    multiplier : float or None
        Noise scale over sensitivity of one release.
    """

    series: DemandSeries
    zoning: Zoning
    settings: Settings
    seed: int
    multiplier: float | None

    def prepared(self, number: int) -> Prepared:
        """Return the run of a step, counted from 0."""
        ready = prepare(self.series.at(number), self.zoning, self.settings)
        rules = ready.rules
        if rules.noise is not None and self.multiplier is not None:
            rules = replace(rules, noise=replace(rules.noise, multiplier=self.multiplier))
        scale = ready.scale * self.series.scale(number)
        return replace(ready, rules=rules, seed=step_seed(self.seed, number), scale=scale)

    def run_step(
        self,
        number: int,
        charge: Charging | None = None,
        *,
        admit: Admit | None = None,
        leave: Leave = lambda _: None,
        transport: Carry | None = None,
    ) -> RunResult:
        """Run a step; see :func:`gridpriv.zonal.run.run_prepared`.

        Raises
        ------
        GridprivError
            As :func:`gridpriv.zonal.run.run`, with the step in a note.
        """
        try:
            return run_prepared(
                self.prepared(number), charge=charge, admit=admit, leave=leave, transport=transport
            )
        except GridprivError as error:
            error.add_note(f"step {self.series.steps[number]} of {self.series.source}")
            raise


def make_horizon(series: DemandSeries, zoning: Zoning, settings: Settings) -> Horizon:
    """Return the horizon of a series; without a seed in the settings one is drawn."""
    seed = secrets.randbits(64) if settings.seed is None else settings.seed
    return Horizon(series, zoning, settings, seed, horizon_multiplier(settings, len(series)))


@dataclass(frozen=True, eq=False)
class HorizonResult:
    """The runs of a series.

    Attributes
    ----------
    series : DemandSeries
    settings : Settings
    results : tuple of RunResult
        One per step.
    seed : int or None
        Of the whole horizon; every step's seed follows from it. None with secure noise.
    """

    series: DemandSeries
    settings: Settings
    results: tuple[RunResult, ...]
    seed: int | None

    def table(self) -> DataFrame:
        """Return one row per step: residual (public), objective and shed in MW (local)."""
        pairs = zip(self.series.steps, self.results, strict=True)
        return DataFrame([step_row(name, result) for name, result in pairs])

    @property
    def releases(self) -> Mapping[str, Mapping[Release, int]]:
        """Each zone's releases over all steps."""
        return total_releases(result.trace.releases for result in self.results)

    @property
    def statements(self) -> tuple[ZoneStatement, ...]:
        """Each zone's privacy loss over the horizon; empty without noise."""
        return zone_statements(self.releases, self.settings, self.results[0].rules)


def run_series(
    series: DemandSeries,
    zoning: Zoning,
    settings: Settings,
    watch: Callable[[int, RunResult], None] = lambda *_: None,
    charge: Charging | None = None,
) -> HorizonResult:
    """Run every step of a series under one budget.

    Parameters
    ----------
    series : DemandSeries
    zoning : Zoning
    settings : Settings
        ``budget`` is that of the horizon where it is a total.
    watch : callable
        Called after every step with its number and result.
    charge : Charging, optional
        As of :func:`gridpriv.zonal.run.run`.

    Raises
    ------
    GridprivError
        As :func:`gridpriv.zonal.run.run`, with the step in a note.
    """
    horizon = make_horizon(series, zoning, settings)

    def each() -> Iterator[RunResult]:
        for number in range(len(series)):
            result = horizon.run_step(number, charge)
            watch(number, result)
            yield result

    results = tuple(each())
    seed = None if settings.noise == "secure" else horizon.seed
    return HorizonResult(series, settings, results, seed)


def step_row(name: str, result: RunResult) -> dict[str, Any]:
    """Return a step's figures (:data:`gridpriv.zonal.schema.STEPS`)."""
    last, base, physical = result.rounds.iloc[-1], result.case.base_mva, result.physical
    return {
        "step": name,
        "rounds": len(result.rounds),
        "consensus_residual": float(last["consensus_residual"]),
        "demand_mw": base * float(result.case.pd.sum()),
        "objective": float(last["objective"]),
        "shed_mw": float(last["shed_mw"]),
        "surplus_mw": float(last["surplus_mw"]),
        "recourse_shed_mw": physical["shed_mw"],
        "cost": physical["cost"],
        "balancing_mw": physical["balancing_mw"],
        "carried": physical["carried"],
        "seconds": result.timing.total,
    }


def total_releases(
    steps: Iterable[Mapping[str, Mapping[Release, int]]],
) -> dict[str, Counter[Release]]:
    """Return each zone's releases over several steps."""
    total: dict[str, Counter[Release]] = {}
    for step in steps:
        for zone, releases in step.items():
            total.setdefault(zone, Counter()).update(releases)
    return total


def horizon_multiplier(settings: Settings, steps: int) -> float | None:
    """Return noise scale over sensitivity of one release, or None without a mechanism."""
    if settings.mechanism == "none":
        return None
    return noise_multiplier(
        settings.budget,
        settings.mechanism,
        settings.calibration,
        settings.planned_releases() * steps,
        settings.delta,
        settings.noise,
    )


def step_seed(seed: int, step: int) -> int:
    """Return the seed of one step: different for every step of a seed."""
    return int(np.random.SeedSequence([seed, step]).generate_state(1, np.uint64)[0])

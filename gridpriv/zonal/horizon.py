"""A series of demand, one run per step, and one privacy budget for all of them.

Neighbouring data are two series that differ at one bus of one zone, by at most beta in every
step, or, where the steps are one demand times public factors, in that demand: so a zone's loss
over the horizon is that of all its releases in all steps together.
``total`` budgets are therefore spread over planned releases times steps; ``per-release`` ones
stay what they are, and the total is stated. Every step draws its own noise: were a draw
repeated, the difference of two steps' messages would be free of it.

Where the steps are one demand times public factors, a release of it, drawn once, serves all of
them (:attr:`Horizon.released_once`): between neighbours of that demand the first step's statistics
are all that is released, so the horizon costs what one step does, at the noise of one step.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from pandas import DataFrame

from gridpriv.consensus.transport import Carry
from gridpriv.core.arrays import Floats
from gridpriv.core.document import Json
from gridpriv.core.errors import GridprivError
from gridpriv.grid.overrides import DemandSeries
from gridpriv.grid.zoning import Zoning
from gridpriv.privacy.budget import noise_multiplier
from gridpriv.privacy.release import Charging, Release
from gridpriv.privacy.statement import ZoneStatement
from gridpriv.zonal.checks import zone_statements
from gridpriv.zonal.prepared import Prepared, prepare
from gridpriv.zonal.result import RunResult
from gridpriv.zonal.run import Admit, Leave, run_prepared
from gridpriv.zonal.schema import BESIDE
from gridpriv.zonal.settings import Settings

Known: TypeAlias = tuple[Floats | None, ...]
"""Per zone, what a release leaves likely of its demand."""


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

    @property
    def released_once(self) -> bool:
        """Whether one release of demand serves every step."""
        perturbation = self.settings.effective_perturbation()
        once = perturbation.target == "demand" and perturbation.refresh == "run"
        return once and bool(self.series.scales)

    @property
    def adjacency(self) -> str:
        """What is protected over the horizon, in words."""
        case = self.series.case
        protection = self.settings.adjacency(case).protection(case.base_mva)
        steps = "of the demand that the steps scale" if self.series.scales else "in every step"
        return f"{protection}, {steps}"

    def order(self, numbers: Sequence[int]) -> list[int]:
        """Return steps in the order to run them: the one that draws first has demand."""
        if not self.released_once:
            return list(numbers)
        return sorted(numbers, key=lambda number: (self.series.scale(number) == 0.0, number))

    def learned(self, number: int, result: RunResult) -> Known | None:
        """Return what a step's release leaves likely of the demand that all steps scale."""
        scale = self.settings.load_scale * self.series.scale(number)
        if not (self.released_once and scale):
            return None
        return tuple(None if one is None else one / scale for one in result.disclosed)

    def prepared(self, number: int, known: Known | None = None) -> Prepared:
        """Return the run of a step, counted from 0.

        ``known`` is what :meth:`learned` returned of an earlier one.
        """
        scale = self.series.scale(number)
        ready = prepare(self.series.at(number), self.zoning, self.settings, scale)
        rules = ready.rules
        if rules.noise is not None and self.multiplier is not None:
            rules = replace(rules, noise=replace(rules.noise, multiplier=self.multiplier))
        if known is not None:
            known = tuple(None if one is None else ready.scale * one for one in known)
        seed = step_seed(self.seed, 0 if self.released_once else number)
        return replace(ready, rules=rules, seed=seed, known=known)

    def run_step(
        self,
        number: int,
        charge: Charging | None = None,
        *,
        admit: Admit | None = None,
        leave: Leave = lambda _: None,
        transport: Carry | None = None,
        known: Known | None = None,
    ) -> RunResult:
        """Run a step; see :func:`gridpriv.zonal.run.run_prepared`.

        Raises
        ------
        GridprivError
            As :func:`gridpriv.zonal.run.run`, with the step in a note.
        """
        try:
            return run_prepared(
                self.prepared(number, known),
                charge=charge,
                admit=admit,
                leave=leave,
                transport=transport,
            )
        except GridprivError as error:
            error.add_note(f"step {self.series.steps[number]} of {self.series.source}")
            raise


def make_horizon(series: DemandSeries, zoning: Zoning, settings: Settings) -> Horizon:
    """Return the horizon of a series; without a seed in the settings one is drawn."""
    seed = secrets.randbits(64) if settings.seed is None else settings.seed
    horizon = Horizon(series, zoning, settings, seed, None)
    times = 1 if horizon.released_once else len(series)
    return replace(horizon, multiplier=horizon_multiplier(settings, times))


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

    Returns
    -------
    HorizonResult

    Raises
    ------
    GridprivError
        As :func:`gridpriv.zonal.run.run`, with the step in a note.
    """
    horizon = make_horizon(series, zoning, settings)

    results: dict[int, RunResult] = {}
    known = None
    for number in horizon.order(range(len(series))):
        results[number] = horizon.run_step(number, charge, known=known)
        known = known or horizon.learned(number, results[number])
        watch(number, results[number])
    seed = None if settings.noise == "secure" else horizon.seed
    return HorizonResult(series, settings, tuple(results[n] for n in sorted(results)), seed)


def step_row(name: str, result: RunResult) -> Json:
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
        **{name: getattr(result.reference, name, None) for name in BESIDE},
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

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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from pandas import DataFrame

from gridpriv.checks import zone_statements
from gridpriv.errors import GridprivError
from gridpriv.grid.overrides import DemandSeries
from gridpriv.grid.zoning import Zoning
from gridpriv.privacy.budget import noise_multiplier
from gridpriv.privacy.release import Release
from gridpriv.privacy.statement import ZoneStatement
from gridpriv.result import RunResult
from gridpriv.settings import Settings
from gridpriv.zonal import prepare, run_prepared


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
        rows = []
        for name, result in zip(self.series.steps, self.results, strict=True):
            last = result.rounds.iloc[-1]
            after = result.recourse
            base = result.case.base_mva
            rows.append(
                {
                    "step": name,
                    "demand_mw": base * float(result.case.pd.sum()),
                    "consensus_residual": float(last["consensus_residual"]),
                    "objective": float(last["objective"]),
                    "shed_mw": float(last["shed_mw"]),
                    "recourse_shed_mw": after.as_dict(base)["shed_mw"] if after else np.nan,
                    "seconds": result.timing.total,
                }
            )
        return DataFrame(rows)

    @property
    def releases(self) -> Mapping[str, Mapping[Release, int]]:
        """Each zone's releases over all steps."""
        total: dict[str, Counter[Release]] = {}
        for result in self.results:
            for zone, releases in result.trace.releases.items():
                total.setdefault(zone, Counter()).update(releases)
        return total

    @property
    def statements(self) -> tuple[ZoneStatement, ...]:
        """Each zone's privacy loss over the horizon; empty without noise."""
        return zone_statements(self.releases, self.settings, self.results[0].rules)


def run_series(
    series: DemandSeries,
    zoning: Zoning,
    settings: Settings,
    watch: Callable[[int, RunResult], None] = lambda *_: None,
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

    Raises
    ------
    GridprivError
        As :func:`gridpriv.zonal.run`, with the step in a note.
    """
    multiplier = horizon_multiplier(settings, len(series))
    seed = secrets.randbits(64) if settings.seed is None else settings.seed
    results = []
    for number, case in enumerate(series):
        prepared = prepare(case, zoning, settings)
        rules = prepared.rules
        if rules.noise is not None and multiplier is not None:
            rules = replace(rules, noise=replace(rules.noise, multiplier=multiplier))
        try:
            result = run_prepared(replace(prepared, rules=rules, seed=step_seed(seed, number)))
        except GridprivError as error:
            error.add_note(f"step {series.steps[number]} of {series.source}")
            raise
        results.append(result)
        watch(number, result)
    return HorizonResult(
        series, settings, tuple(results), None if settings.noise == "secure" else seed
    )


def horizon_multiplier(settings: Settings, steps: int) -> float | None:
    """Return noise scale over sensitivity of one release, or None without a mechanism."""
    if settings.mechanism == "none":
        return None
    return noise_multiplier(
        settings.privacy_budget,
        settings.mechanism,
        settings.calibration,
        settings.planned_releases() * steps,
        settings.delta,
    )


def step_seed(seed: int, step: int) -> int:
    """Return the seed of one step: different for every step of a seed."""
    return int(np.random.SeedSequence([seed, step]).generate_state(1, np.uint64)[0])

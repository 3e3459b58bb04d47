"""A series of demand, one run per step, and one privacy budget for all of them.

Neighbouring data are two series that differ at one bus of one zone, by at most beta in every
step, or, where the steps are one demand times public factors, in that demand.

Where demand is perturbed once, one release serves the horizon and the steps' runs draw nothing
(:attr:`Horizon.released_once`): of the demand that the steps scale, or of the course of a demand
that has its own in every step (:mod:`gridpriv.privacy.strategies.course`). So the horizon costs
what that release does.

Else a zone's loss is that of all its releases in all steps together: ``total`` budgets are spread
over planned releases times steps; ``per-release`` ones stay what they are, and the total is
stated. Every step draws its own noise: were a draw repeated, the difference of two steps' messages
would be free of it.
"""

from __future__ import annotations

import secrets
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TypeAlias

import numpy as np
from pandas import DataFrame

from gridpriv.consensus.memory import AgentRules
from gridpriv.consensus.transport import Carry
from gridpriv.core.arrays import Floats
from gridpriv.core.display import counted
from gridpriv.core.document import Json
from gridpriv.core.errors import GridprivError, GridprivWarning, not_allowed
from gridpriv.grid.overrides import DemandSeries
from gridpriv.grid.zoning import Zoning
from gridpriv.power.disclosure import disclose_course
from gridpriv.power.prior import zone_prior
from gridpriv.power.zone import Zone
from gridpriv.privacy.budget import noise_multiplier
from gridpriv.privacy.noise import NoiseStreams
from gridpriv.privacy.perturbation import Perturbation
from gridpriv.privacy.release import Charging, Release
from gridpriv.privacy.statement import ZoneStatement
from gridpriv.privacy.strategies.course import Cosines, Course, CourseDisclosure, cosines
from gridpriv.zonal.checks import zone_statements
from gridpriv.zonal.prepared import Earlier, Prepared, prepare
from gridpriv.zonal.result import RunResult
from gridpriv.zonal.run import Admit, Leave, crew, open_rounds, own_transport, run_prepared
from gridpriv.zonal.schema import BESIDE
from gridpriv.zonal.settings import ANEW, AUTO, Settings

Known: TypeAlias = tuple[Course, ...]
"""Per zone, what a release leaves likely of its demand over the steps."""
ONCE = Perturbation("demand", "run")
Releases: TypeAlias = dict[str, Counter[Release]]


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
        return self.settings.effective_perturbation() == ONCE and self.settings.course != ANEW

    @cached_property
    def owned(self) -> Prepared:
        """The run of the demand that one release serves all steps of, as its owner has it."""
        ready = prepare(self.series.case, self.zoning, replace(self._alone, load_scale=1.0))
        return replace(ready, rules=self._rules(ready))

    @cached_property
    def disclosures(self) -> tuple[CourseDisclosure, ...]:
        """What every zone releases once, of all steps (public)."""
        owned, series = self.owned, self.series
        assert owned.expected is not None and owned.rules.noise is not None
        options = [Cosines(1)] if series.scales else cosines(len(series), self.settings.course)
        return tuple(
            disclose_course(
                zone, self.settings.release, options, zone_prior(zone, owned.expected),
                owned.rules.noise, owned.rules.adjacency, owned.direct_current,
            )
            for zone in owned.zones
        )  # fmt: skip

    @property
    def planned(self) -> Releases:
        """What every zone releases once (public)."""
        rules = self.owned.rules
        assert rules.noise is not None
        found: Releases = {}
        for zone, one in zip(self.owned.zones, self.disclosures, strict=True):
            sensitivity = one.sensitivity(rules.adjacency, rules.noise.norm)
            if sensitivity.value:
                found[zone.name] = Counter([rules.noise.release(sensitivity)])
        return found

    def released_rows(self) -> list[Json]:
        """Return what zones release once (:data:`gridpriv.zonal.schema.RELEASED_ONCE`)."""
        if not self.released_once:
            return []
        base = self.settings.load_scale * self.series.case.base_mva
        return [
            {"zone": zone.name, "statistics": one.level.strategy.name,
             "cosines": len(one.over.weights), "weight": max(one.over.weights, default=None),
             "expected_error_mw": base * one.level.expected}
            for zone, one in zip(self.owned.zones, self.disclosures, strict=True)
        ]  # fmt: skip

    def draw(self, charge: Charging = lambda *_: None) -> Known:
        """Charge and draw what serves all steps; return what it leaves likely."""
        streams, planned = NoiseStreams(step_seed(self.seed, 0)), self.planned
        found = []
        for zone, one in zip(self.owned.zones, self.disclosures, strict=True):
            value, release = one.measure(self._data(zone)), None
            for release in planned.get(zone.name, ()):
                charge(zone.name, {release: 1})
                value = release.apply(value, partial(streams.stream, zone.key, 1, 1))
            found.append(one.estimate(value, release))
        return tuple(found)

    def expected(self) -> Known:
        """Return what the public expects where nothing has been drawn."""
        return tuple(
            Course(one.level.prior.mean, np.zeros((2, len(one.over.weights))))
            for one in self.disclosures
        )

    def _data(self, zone: Zone) -> Floats:
        """Return the private demand of a zone that one release serves, (steps, 2n)."""
        if self.series.scales:
            return zone.demand[None]
        return np.hstack([self.series.pd[:, zone.own], self.series.qd[:, zone.own]])

    @property
    def adjacency(self) -> str:
        """What is protected over the horizon, in words."""
        case = self.series.case
        protection = self.settings.adjacency(case).protection(case.base_mva)
        steps = "of the demand that the steps scale" if self.series.scales else "in every step"
        return f"{protection}, {steps}"

    def prepared(self, number: int, known: Known | None = None) -> Prepared:
        """Return the run of a step, counted from 0; it draws nothing where a demand is ``known``.

        Parameters
        ----------
        number : int
        known : Known, optional
            As of :meth:`draw`.
        """
        scale = self.series.scale(number)
        ready = prepare(self.series.at(number), self.zoning, self._alone, scale)
        ready = replace(ready, rules=self._rules(ready), seed=step_seed(self.seed, number))
        if known is None:
            return ready
        step = 0 if self.series.scales else number
        likely = zip(self.disclosures, known, strict=True)
        return replace(
            ready,
            known=tuple(
                Earlier(replace(one.level, scale=ready.scale), ready.scale * one.at(step, course))
                for one, course in likely
            ),
        )

    @property
    def _alone(self) -> Settings:
        """Return the settings of a step, which has no course."""
        return replace(self.settings, course=AUTO)

    def _rules(self, ready: Prepared) -> AgentRules:
        noise = ready.rules.noise
        if noise is None or self.multiplier is None:
            return ready.rules
        return replace(ready.rules, noise=replace(noise, multiplier=self.multiplier))

    def tried(self, number: int, transport: Carry) -> None:
        """Try every zone of a step on public data: what cannot work fails before it costs."""
        ready = self.prepared(number, self.expected())
        with closing(transport(crew(ready))) as zones:
            open_rounds(ready, zones)

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
    if settings.course != AUTO:
        _check_course(series, settings)
    seed = secrets.randbits(64) if settings.seed is None else settings.seed
    horizon = Horizon(series, zoning, settings, seed, None)
    times = 1 if horizon.released_once else len(series)
    return replace(horizon, multiplier=horizon_multiplier(settings, times))


def _check_course(series: DemandSeries, settings: Settings) -> None:
    """Refuse a course where none is released; warn of more cosines than there are."""
    course = settings.course
    if series.scales:
        raise not_allowed(
            "course", course,
            "the steps of this series are factors on one demand, and one release of that demand "
            "serves them all: leave the course out",
        )  # fmt: skip
    if settings.effective_perturbation() != ONCE:
        raise not_allowed(
            "course", course,
            "a course is released of demand whose noise is drawn once, and here it is not: leave "
            "the course out, or set perturbation to demand and refresh to run",
        )  # fmt: skip
    most = len(series) - 1
    if course != ANEW and int(course) > most:
        warnings.warn(
            f"course = {course}: a series of {counted(len(series), 'step')} has no more than "
            f"{counted(most, 'cosine')}, so {most} are released",
            GridprivWarning,
            stacklevel=3,
        )


@dataclass(frozen=True, eq=False)
class HorizonResult:
    """The runs of a series.

    Attributes
    ----------
    series : DemandSeries
    settings : Settings
    results : tuple of RunResult
        One per step.
    released : mapping
        What every zone released once, for all steps.
    seed : int or None
        Of the whole horizon; every step's seed follows from it. None with secure noise.
    """

    series: DemandSeries
    settings: Settings
    results: tuple[RunResult, ...]
    released: Mapping[str, Mapping[Release, int]]
    seed: int | None

    def table(self) -> DataFrame:
        """Return one row per step: residual (public), objective and shed in MW (local)."""
        pairs = zip(self.series.steps, self.results, strict=True)
        return DataFrame([step_row(name, result) for name, result in pairs])

    @property
    def releases(self) -> Mapping[str, Mapping[Release, int]]:
        """Each zone's releases, those of all steps included."""
        steps = [result.trace.releases for result in self.results]
        return total_releases([self.released, *steps])

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
    known = None
    if horizon.released_once:
        horizon.tried(0, own_transport(settings.workers))
        known = horizon.draw(charge or (lambda *_: None))
    results = []
    for number in range(len(series)):
        results.append(horizon.run_step(number, charge, known=known))
        watch(number, results[-1])
    released = horizon.planned if horizon.released_once else {}
    seed = None if settings.noise == "secure" else horizon.seed
    return HorizonResult(series, settings, tuple(results), released, seed)


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

"""A series of demand, one run per step, and one privacy budget for all of them.

Neighbouring data are two series that differ at one bus of one zone, by at most beta in every
step, or, where the steps are one demand times public factors, in that demand.

Where demand is perturbed once, one release serves the horizon and the steps' runs draw nothing
(:attr:`Horizon.released_once`): of the demand that the steps scale, or of the basis of a demand
that has its own in every step (:mod:`gridpriv.privacy.temporal`). So the horizon
costs what that release does.

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

from gridpriv.consensus.agent import AgentRules
from gridpriv.consensus.transport import Connect
from gridpriv.core.arrays import Floats
from gridpriv.core.errors import GridprivError, GridprivWarning, InputError, not_allowed
from gridpriv.core.lazy import Above
from gridpriv.core.text import Json, counted
from gridpriv.grid.chronology import Chronology
from gridpriv.grid.scenarios import DemandSeries
from gridpriv.grid.zoning import Zoning
from gridpriv.power.prior import disclose_over_time, zone_prior
from gridpriv.power.zone import Zone
from gridpriv.privacy.linear import Disclosure
from gridpriv.privacy.noise import NoiseStreams
from gridpriv.privacy.perturbation import Perturbation
from gridpriv.privacy.release import Charging, Release
from gridpriv.privacy.statement import ZoneCertificate, all_planned
from gridpriv.privacy.temporal import (
    Cosines,
    TemporalBasis,
    TemporalDisclosure,
    cosines,
)
from gridpriv.zonal.day import DayPlan, plan_day
from gridpriv.zonal.messages import BEFORE_FACTORS, limits_named
from gridpriv.zonal.prepared import (
    Earlier,
    Prepared,
    horizon_multiplier,
    prepare,
    zone_certificates,
)
from gridpriv.zonal.result import RunResult
from gridpriv.zonal.rows import Baselines
from gridpriv.zonal.run import (
    Admit,
    Leave,
    default_transport,
    open_rounds,
    run_prepared,
    zone_agents,
)
from gridpriv.zonal.settings import AUTO, PER_STEP, Settings

Known: TypeAlias = tuple[TemporalBasis, ...]
"""Per zone, what a release leaves likely of its demand over the steps."""
ONCE = Perturbation("demand", "once")
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
    chronology : Chronology, optional
        What couples the steps: then they are planned together (:meth:`plan`).
    """

    series: DemandSeries
    zoning: Zoning
    settings: Settings
    seed: int
    multiplier: float | None
    chronology: Chronology | None = None

    @property
    def released_once(self) -> bool:
        """True where one release of demand serves every step."""
        return (
            self.settings.effective_perturbation() == ONCE
            and self.settings.temporal_basis != PER_STEP
        )

    @cached_property
    def owned(self) -> Prepared:
        """The run of the demand that one release serves all steps of, as its owner has it."""
        ready = prepare(self.series.case, self.zoning, replace(self._alone, load_scale=1.0))
        return replace(ready, rules=self._rules(ready))

    @cached_property
    def disclosures(self) -> tuple[TemporalDisclosure, ...]:
        """Release of every zone over all steps (public)."""
        owned, series = self.owned, self.series
        assert owned.expected is not None and owned.rules.noise is not None
        basis = self.settings.temporal_basis
        options = [Cosines(1)] if series.scales else cosines(len(series), basis)
        return tuple(
            disclose_over_time(
                zone,
                self.settings.release,
                options,
                zone_prior(zone, owned.expected),
                owned.rules.noise,
                owned.rules.adjacency,
                owned.direct_current,
            )
            for zone in owned.zones
        )

    @property
    def planned(self) -> Releases:
        """Releases of every zone over the whole series (public)."""
        rules = self.owned.rules
        assert rules.noise is not None
        entries: Releases = {}
        for zone, item in zip(self.owned.zones, self.disclosures, strict=True):
            sensitivity = item.sensitivity(rules.adjacency, rules.noise.norm)
            if sensitivity.value and self.draws:
                entries[zone.name] = Counter({rules.noise.release(sensitivity): self.draws})
        return entries

    @property
    def draws(self) -> int:
        """Number of releases of a zone over the whole series."""
        return 1

    def planned_of(
        self, releases: Mapping[str, Mapping[Release, int]]
    ) -> dict[str, dict[Release, int]]:
        """Return all planned releases of zones that drew some in the steps that are done."""
        each_step = self.settings.planned_releases() * len(self.series)
        most = self.draws if self.released_once else each_step
        return {zone: all_planned(drawn, most) for zone, drawn in releases.items()}

    def released_rows(self) -> list[Json]:
        """Return zones' single release (:class:`gridpriv.zonal.documents.ReleasedOnce`)."""
        if not self.released_once:
            return []
        base = self.settings.load_scale * self.series.case.base_mva
        return [
            {
                "zone": zone.name,
                "statistics": self.statistics(item.level),
                "cosines": len(item.weights),
                "weight": max(item.weights, default=None),
                "expected_error_mw": base * item.level.expected,
            }
            for zone, item in zip(self.owned.zones, self.disclosures, strict=True)
        ]

    def statistics(self, level: Disclosure) -> str:
        """Return the name of the statistics that a zone releases."""
        return level.strategy.name

    def draw(self, charge: Charging = lambda *_: None) -> Known:
        """Charge and draw what serves all steps; return what it leaves likely."""
        streams, planned = NoiseStreams(step_seed(self.seed, 0)), self.planned
        matches = []
        for zone, item in zip(self.owned.zones, self.disclosures, strict=True):
            value, release = item.measure(self._data(zone)), None
            for release in planned.get(zone.name, ()):
                charge(zone.name, {release: 1})
                value = release.apply(value, partial(streams.stream, zone.key, 1, 1))
            matches.append(item.estimate(value, release))
        return tuple(matches)

    def expected(self) -> Known:
        """Return the public prior of demand, used where nothing has been drawn."""
        return tuple(
            TemporalBasis(disclosure.level.prior.mean, np.zeros((2, len(disclosure.weights))))
            for disclosure in self.disclosures
        )

    def _data(self, zone: Zone) -> Floats:
        """Return the private demand of a zone that one release serves, (steps, 2n)."""
        if self.series.scales:
            return zone.demand[None]
        return np.hstack([self.series.pd[:, zone.own], self.series.qd[:, zone.own]])

    @property
    def adjacency(self) -> str:
        """Adjacency over the horizon, as a sentence."""
        case = self.series.case
        protection = self.settings.adjacency(case).protection(case.base_mva)
        steps = BEFORE_FACTORS if self.series.scales else "in every step"
        return f"{protection}, {steps}"

    def plan(self, known: Known | None) -> DayPlan | None:
        """Return the joint plan of all steps; None where nothing couples them."""
        if self.coupling is None:
            return None
        steps = [self.prepared(number, known) for number in range(len(self.series))]
        return plan_day(steps, self.coupling)

    @property
    def coupling(self) -> Chronology | None:
        """The chronology, where it couples the steps."""
        return None if self.chronology is None or self.chronology.empty else self.chronology

    def prepared(
        self, number: int, known: Known | None = None, plan: DayPlan | None = None
    ) -> Prepared:
        """Return the run of a step, counted from 0; it draws nothing where a demand is ``known``.

        Parameters
        ----------
        number : int
        known : Known, optional
            As of :meth:`draw`.
        plan : DayPlan, optional
            As of :meth:`plan`.
        """
        scale, case = self.series.scale(number), self.series.at(number)
        case = case if plan is None else plan.step(case, number)
        ready = prepare(case, self.zoning, self._alone, scale)
        ready = replace(ready, rules=self._rules(ready), seed=step_seed(self.seed, number))
        if plan is not None:
            ready = replace(ready, scheduled=plan.schedules[number])
        if known is None:
            return ready
        step = 0 if self.series.scales else number
        likely = zip(self.disclosures, known, strict=True)
        return replace(
            ready,
            known=tuple(
                Earlier(replace(item.level, scale=ready.scale), ready.scale * item.at(step, basis))
                for item, basis in likely
            ),
        )

    @property
    def _alone(self) -> Settings:
        """Return the settings of a step, which has no basis."""
        return replace(self.settings, temporal_basis=AUTO, stream=None)

    def _rules(self, ready: Prepared) -> AgentRules:
        noise = ready.rules.noise
        if noise is None or self.multiplier is None:
            return ready.rules
        return replace(ready.rules, noise=replace(noise, multiplier=self.multiplier))

    def tried(self, number: int, transport: Connect) -> None:
        """Try every zone of a step on public data: what cannot work fails before it costs."""
        ready = self.prepared(number, self.expected())
        with closing(transport(zone_agents(ready))) as zones:
            open_rounds(ready, zones)

    def run_step(
        self,
        number: int,
        charge: Charging | None = None,
        *,
        admit: Admit | None = None,
        leave: Leave = lambda _: None,
        transport: Connect | None = None,
        known: Known | None = None,
        plan: DayPlan | None = None,
    ) -> RunResult:
        """Run a step; see :func:`gridpriv.zonal.run.run_prepared`.

        Raises
        ------
        GridprivError
            As :func:`gridpriv.zonal.run.run`, with the step in a note.
        """
        try:
            ready = self.prepared(number, known, plan)
            return run_prepared(ready, charge=charge, admit=admit, leave=leave, transport=transport)
        except GridprivError as error:
            error.add_note(f"step {self.series.steps[number]} of {self.series.source}")
            raise


def make_horizon(
    series: DemandSeries,
    zoning: Zoning,
    settings: Settings,
    chronology: Chronology | None = None,
) -> Horizon:
    """Return the horizon of a series; without a seed in the settings one is drawn.

    Raises
    ------
    InputError
        Where storage, ramps or reserves couple the steps, but demand is not released once for all
        of them, or outages change the list of generators.
    """
    if settings.stream is not None:
        here = "left out here: gridpriv.zonal.stream.make_stream has it"
        raise not_allowed("stream", settings.stream, here)
    if settings.temporal_basis != AUTO:
        _check_temporal_basis(series, settings)
    seed = secrets.randbits(64) if settings.seed is None else settings.seed
    horizon = Horizon(series, zoning, settings, seed, None, chronology)
    if horizon.coupling is not None:
        _check_coupled(horizon)
    times = 1 if horizon.released_once else len(series)
    return replace(horizon, multiplier=horizon_multiplier(settings, times))


def _check_coupled(horizon: Horizon) -> None:
    """Refuse to plan steps together where their demands are not known together."""
    settings = horizon.settings
    if settings.mechanism != "none" and not horizon.released_once:
        raise InputError(
            "storage, ramps and reserves couple the steps, so demand is to be released once for "
            f"all of them; given: perturbation {settings.perturbation}, temporal basis "
            f"{settings.temporal_basis}. Use perturbation demand and leave the temporal basis out."
        )
    if settings.outage:
        raise InputError(
            f"--outage {settings.outage} with storage, ramps or reserves: must be left out. Take "
            "the element out of the case file."
        )


def _check_temporal_basis(series: DemandSeries, settings: Settings) -> None:
    """Refuse a basis where none is released; warn of more cosines than there are."""
    basis = settings.temporal_basis
    if series.scales:
        factors = "the steps of this series are factors on one demand, and one release of that "
        raise not_allowed("temporal_basis", basis, f"left out: {factors}demand serves them all")
    if settings.effective_perturbation() != ONCE:
        once = "with perturbation demand and noise_schedule once: a basis is released once"
        raise not_allowed("temporal_basis", basis, f"left out, or {once}")
    most = len(series) - 1
    if basis != PER_STEP and int(basis) > most:
        warnings.warn(
            f"temporal_basis = {basis}: {counted(len(series), 'step')} have "
            f"{counted(most, 'cosine')} at most; {most} are released",
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
    plan : DayPlan or None
        Of all steps together; None where nothing couples them.
    """

    series: DemandSeries
    settings: Settings
    results: tuple[RunResult, ...]
    released: Mapping[str, Mapping[Release, int]]
    seed: int | None
    plan: DayPlan | None = None

    plot = Above("gridpriv.report.plots", "HorizonPlots")

    def table(self) -> DataFrame:
        """Return one row per step: residual (public), objective and shed in MW (local)."""
        rows = enumerate(zip(self.series.steps, self.results, strict=True))
        return DataFrame([step_row(name, of, number, self.plan) for number, (name, of) in rows])

    @property
    def releases(self) -> Mapping[str, Mapping[Release, int]]:
        """Each zone's releases, those of all steps included."""
        steps = [result.trace.releases for result in self.results]
        return total_releases([self.released, *steps])

    @property
    def certificates(self) -> tuple[ZoneCertificate, ...]:
        """Each zone's privacy loss over the horizon; empty without noise."""
        return zone_certificates(self.releases, self.settings, self.results[0].rules)


def run_series(
    series: DemandSeries,
    zoning: Zoning,
    settings: Settings,
    watch: Callable[[int, RunResult], None] = lambda *_: None,
    charge: Charging | None = None,
    chronology: Chronology | None = None,
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
    chronology : Chronology, optional
        Storage, ramps and reserves: then all steps are planned together before the first.

    Returns
    -------
    HorizonResult

    Raises
    ------
    GridprivError
        As :func:`gridpriv.zonal.run.run`, with the step in a note.
    """
    horizon = make_horizon(series, zoning, settings, chronology)
    known = None
    if horizon.released_once:
        horizon.tried(0, default_transport(settings.workers))
        known = horizon.draw(charge or (lambda *_: None))
    plan = horizon.plan(known)
    results = []
    for number in range(len(series)):
        results.append(horizon.run_step(number, charge, known=known, plan=plan))
        watch(number, results[-1])
    released = horizon.planned if horizon.released_once else {}
    seed = None if settings.noise == "secure" else horizon.seed
    return HorizonResult(series, settings, tuple(results), released, seed, plan)


def step_row(name: str, result: RunResult, number: int = 0, plan: DayPlan | None = None) -> Json:
    """Return a step's figures (:class:`gridpriv.zonal.rows.StepRow`).

    Rounds and residual are those of the ``plan`` where the step, counted from 0, is of one.
    """
    last, base, physical = result.rounds.iloc[-1], result.case.base_mva, result.physical
    own = len(result.rounds), float(result.consensus_residual or 0.0)
    rounds, residual = own if plan is None else plan.efforts[number]
    return {
        "step": name,
        "rounds": rounds,
        "consensus_residual": residual,
        "demand_mw": base * float(result.case.pd.sum()),
        "objective": float(last["objective"]),
        "plan_shortage_mw": float(last["plan_shortage_mw"]),
        "plan_surplus_mw": float(last["plan_surplus_mw"]),
        "redispatch_shed_mw": physical["shed_mw"],
        **{name: physical[name] for name in ("cost", "balancing_mw", "status", "ac_feasible")},
        "violated": physical["failure"] or limits_named(physical["violations"]) or None,
        **Baselines.of(result.reference).as_dict(),
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


def step_seed(seed: int, step: int) -> int:
    """Return the seed of one step: different for every step of a seed."""
    return int(np.random.SeedSequence([seed, step]).generate_state(1, np.uint64)[0])

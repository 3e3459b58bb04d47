"""A series of demand: one run per step, and one privacy budget for all steps.

Adjacent data are two series that differ at one bus of one zone, by at most beta in every step, or,
where the steps are one demand times public factors, in that demand.

Where demand is perturbed once, one release serves the horizon and the runs of steps draw no noise
(:attr:`Horizon.released_once`): of the demand that the steps scale, or of the temporal basis of a
demand that differs in every step (:mod:`gridpriv.privacy.temporal`). So the horizon costs as much
as that release.

Otherwise a zone's loss is that of all its releases in all steps together: ``total`` budgets are
distributed over planned releases times steps; ``per-release`` budgets do not change, and the total
is stated. Every step draws its own noise: with repeated draws the difference of two steps' messages
would have no noise.

Where a window is given, every zone's total is released in blocks of hours, under one window's
budget. The mechanism, its protection and the estimate of every hour are in
:mod:`gridpriv.privacy.temporal`. The estimates of all hours are computed before the first run; each
depends on the releases until its hour. A missing hour's demand is replaced by its public
prediction, and its block is released, and charged, like the others.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, partial
from itertools import pairwise
from typing import ClassVar, TypeAlias

import numpy as np
from pandas import DataFrame

from gridpriv.consensus.agent import AgentRules
from gridpriv.consensus.transport import Connect
from gridpriv.core.arrays import Floats
from gridpriv.core.errors import GridprivError, InputError, not_allowed, warn
from gridpriv.core.lazy import LazyAttribute
from gridpriv.core.text import Json, counted
from gridpriv.grid.chronology import Chronology
from gridpriv.grid.scenarios import DemandSeries
from gridpriv.grid.zoning import Zoning
from gridpriv.power.prior import disclose, zone_prior
from gridpriv.power.zone import Zone
from gridpriv.privacy.adjacency import DemandAdjacency
from gridpriv.privacy.certificate import ZoneCertificate, all_planned
from gridpriv.privacy.linear import Disclosure, Sums, on_grid, total, with_rounding
from gridpriv.privacy.noise import NoiseStreams
from gridpriv.privacy.perturbation import Perturbation
from gridpriv.privacy.release import Charging, Release
from gridpriv.privacy.sensitivity import Norm, Sensitivity
from gridpriv.privacy.settings import NO_NOISE
from gridpriv.privacy.temporal import (
    HOURS,
    TemporalBasis,
    TemporalDisclosure,
    TemporalEstimate,
    TotalFilter,
    basis_candidates,
    blocks_of,
    expected_error,
    parse_window,
    releases_in,
)
from gridpriv.zonal.day import DayPlan, look_ahead, plan_day, plan_receding
from gridpriv.zonal.documents import Baselines
from gridpriv.zonal.messages import BEFORE_FACTORS, limits_named, protected_change
from gridpriv.zonal.prepared import (
    Prepared,
    ReleasedPosterior,
    horizon_multiplier,
    prepare,
    zone_certificates,
)
from gridpriv.zonal.result import RunResult
from gridpriv.zonal.run import (
    Admit,
    Leave,
    default_transport,
    open_rounds,
    run_prepared,
    zone_agents,
)
from gridpriv.zonal.settings import AUTO, PER_STEP, Settings

DemandEstimates: TypeAlias = tuple[TemporalEstimate, ...]
"""Per zone, the estimate of its demand over the steps from a release."""
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
        Seed of the steps' seeds.
    multiplier : float or None
        Noise scale over sensitivity of one release.
    chronology : Chronology, optional
        Storage, ramps and reserves that couple the steps: they are then planned together
        (:meth:`plan`).
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
        settings = self.settings
        return settings.effective_perturbation() == ONCE and settings.temporal_basis != PER_STEP

    @cached_property
    def owned(self) -> Prepared:
        """The run with the owner's demand whose single release serves all steps."""
        ready = prepare(self.series.case, self.zoning, replace(self._step_settings, load_scale=1.0))
        return replace(ready, rules=self._rules(ready))

    @cached_property
    def disclosures(self) -> tuple[TemporalDisclosure, ...]:
        """Release of every zone over all steps (public)."""
        owned, series = self.owned, self.series
        assert owned.expected is not None and owned.rules.noise is not None
        basis = self.settings.temporal_basis
        options = [TemporalBasis(1)] if series.scales else basis_candidates(len(series), basis)
        inputs = owned.rules.noise, owned.rules.adjacency, owned.direct_current
        priors = [zone_prior(zone, owned.expected) for zone in owned.zones]
        return tuple(
            disclose(zone, self.settings.release, prior, *inputs, options)
            for zone, prior in zip(owned.zones, priors, strict=True)
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
        """Return all planned releases of zones that drew some in the finished steps."""
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

    def draw(self, charge: Charging = lambda *_: None) -> DemandEstimates:
        """Charge and draw the release of all steps; return the estimate from it."""
        streams, planned = NoiseStreams(step_seed(self.seed, 0)), self.planned
        estimates = []
        for zone, item in zip(self.owned.zones, self.disclosures, strict=True):
            value, release = item.measure(self._data(zone)), None
            for release in planned.get(zone.name, ()):
                charge(zone.name, {release: 1})
                value = release.apply(value, partial(streams.stream, zone.key, 1, 1))
            estimates.append(item.estimate(value, release))
        return tuple(estimates)

    def expected(self) -> DemandEstimates:
        """Return the public prior of demand, used before a release."""
        return tuple(
            TemporalEstimate(disclosure.level.prior.mean, np.zeros((2, len(disclosure.weights))))
            for disclosure in self.disclosures
        )

    def _data(self, zone: Zone) -> Floats:
        """Return the true demand of a zone for a single release, (steps, 2n)."""
        if self.series.scales:
            return zone.demand[None]
        return np.hstack([self.series.pd[:, zone.own], self.series.qd[:, zone.own]])

    @property
    def adjacency(self) -> str:
        """Adjacency over the horizon, as a sentence."""
        return series_protection(self.series, self.settings)

    def plan(self, estimates: DemandEstimates | None) -> DayPlan | None:
        """Return the joint plan of all steps; None where nothing couples them."""
        if self.coupling is None:
            return None
        steps = [self.prepared(number, estimates) for number in range(len(self.series))]
        return plan_day(steps, self.coupling)

    @property
    def coupling(self) -> Chronology | None:
        """The chronology, where it couples the steps."""
        return None if self.chronology is None or self.chronology.empty else self.chronology

    def prepared(
        self, number: int, estimates: DemandEstimates | None = None, plan: DayPlan | None = None
    ) -> Prepared:
        """Return the run of a step, counted from 0; without noise on given ``estimates``.

        Parameters
        ----------
        number : int
        estimates : DemandEstimates, optional
            As of :meth:`draw`.
        plan : DayPlan, optional
            As of :meth:`plan`.
        """
        scale, case = self.series.scale(number), self.series.at(number)
        case = case if plan is None else plan.step(case, number)
        ready = prepare(case, self.zoning, self._step_settings, scale)
        ready = replace(ready, rules=self._rules(ready), seed=step_seed(self.seed, number))
        if plan is not None:
            ready = replace(ready, scheduled=plan.schedules[number])
        if estimates is None:
            return ready
        step, factor = 0 if self.series.scales else number, ready.scale
        posteriors = tuple(
            ReleasedPosterior(replace(item.level, scale=factor), factor * item.at(step, basis))
            for item, basis in zip(self.disclosures, estimates, strict=True)
        )
        return replace(ready, posteriors=posteriors)

    @property
    def _step_settings(self) -> Settings:
        """Return the settings of a step, which has no basis."""
        return replace(self.settings, temporal_basis=AUTO, stream=None)

    def _rules(self, ready: Prepared) -> AgentRules:
        noise = ready.rules.noise
        if noise is None or self.multiplier is None:
            return ready.rules
        return replace(ready.rules, noise=replace(noise, multiplier=self.multiplier))

    def run_trial(self, number: int, transport: Connect) -> None:
        """Run a trial round of every zone on public data, so that failures come before charges."""
        ready = self.prepared(number, self.expected())
        with closing(transport(zone_agents(ready))) as zones:
            open_rounds(ready, zones)

    def run_step(
        self,
        number: int,
        charge: Charging | None = None,
        admit: Admit | None = None,
        leave: Leave = lambda _: None,
        *,
        transport: Connect | None = None,
        estimates: DemandEstimates | None = None,
        plan: DayPlan | None = None,
    ) -> RunResult:
        """Run a step; see :func:`gridpriv.zonal.run.run_prepared`.

        Raises
        ------
        GridprivError
            As :func:`gridpriv.zonal.run.run`, with the step in a note.
        """
        try:
            ready = self.prepared(number, estimates, plan)
            return run_prepared(ready, charge=charge, admit=admit, leave=leave, transport=transport)
        except GridprivError as error:
            error.add_note(f"step {self.series.steps[number]} of {self.series.source}")
            raise


@dataclass(frozen=True, eq=False)
class StreamDisclosure:
    """The released totals of one zone, and the estimate of every hour.

    Attributes
    ----------
    level : Disclosure
        Of the total.
    block : int
        Hours of a block.
    hours : (steps,) int
        Of every step of the series, counted from its first step.
    ahead : int
        Number of steps predicted in every step, including itself.
    """

    level: Disclosure
    block: int
    hours: tuple[int, ...]
    ahead: int = 1
    weights: ClassVar[tuple[float, ...]] = ()  # no temporal coefficients

    def sensitivity(self, adjacency: DemandAdjacency, norm: Norm) -> Sensitivity:
        """Return the sensitivity of the mean of one block."""
        whole = self.level.sensitivity(adjacency, norm)
        if self.level.exact:
            whole = with_rounding(whole, adjacency.beta, self.block)
        source = f"{whole.bound_source}, mean of {self.block} hours"
        return replace(whole, bound_source=source)

    @property
    def sums(self) -> tuple[Sums, Sums]:
        """Public priors of the totals of p and of q."""
        prior = self.level.prior
        return prior.active, prior.reactive(prior.active.mean)

    def filters(self) -> list[TotalFilter]:
        """Return the filters of p and of q before the first hour."""
        return [TotalFilter(float(sums.mean.sum()), sums.spread) for sums in self.sums]

    def at(self, step: int, basis: TemporalEstimate, later: int = 0) -> Floats:
        """Return the demand (2n,) of a step, counted from 0; its totals in their public range.

        Parameters
        ----------
        later : int
            With it, the demand so many steps later, from the releases until ``step``.
        """
        result, deviations = [], basis.temporal_coefficients[:, step * self.ahead + later]
        for mean, deviation, sums in zip(
            basis.mean.reshape(2, -1), deviations, self.sums, strict=True
        ):
            expected = float(mean.sum())
            change = float(np.clip(expected + deviation, sums.lower, sums.upper)) - expected
            size = np.abs(mean)
            shares = size / size.sum() if size.sum() > 0 else sums.shares
            result.append(mean + change * shares)
        return np.concatenate(result)


@dataclass(frozen=True, eq=False)
class Stream(Horizon):
    """A series of hours whose demand is released in blocks, as a stream.

    Attributes
    ----------
    block : int
        Hours of a block.
    """

    block: int = 1

    @property
    def window(self) -> int:
        """Hours within which adjacent data differ."""
        return parse_window(self.settings.stream or "")

    @property
    def released_once(self) -> bool:
        """True: the runs of steps draw no noise."""
        return True

    @property
    def ahead(self) -> int:
        """Number of steps predicted in every step: 1 for steps without coupling."""
        reach = 1 if self.coupling is None else look_ahead(self.coupling.hours)
        return min(reach, len(self.series))

    def plan(self, estimates: DemandEstimates | None) -> DayPlan | None:
        """Return the receding plan; None for steps without coupling."""
        if self.coupling is None:
            return None
        count = len(self.series)
        steps = [self.prepared(number, estimates) for number in range(count)]

        def predicted(number: int) -> list[list[Floats]]:
            if estimates is None:
                reached = steps[number : number + self.ahead]
                return [[zone.demand for zone in step.zones] for step in reached]
            disclosed = list(zip(self.disclosures, estimates, strict=True))
            scale, reach = steps[number].scale, min(self.ahead, count - number)
            return [
                [scale * item.at(number, basis, later) for item, basis in disclosed]
                for later in range(reach)
            ]

        return plan_receding(steps, predicted, self.coupling)

    @cached_property
    def hours(self) -> tuple[int, ...]:
        """Hour of every step, counted from the first; consecutive where steps have no numbers."""
        named = _numbers(self.series.steps)
        if named is None:
            return tuple(range(len(self.series)))
        if any(b <= a for a, b in pairwise(named)):
            raise InputError(
                f"{self.series.source}: the steps of a stream must be hours in ascending order"
            )
        return tuple(hour - named[0] for hour in named)

    @cached_property
    def disclosures(self) -> tuple[StreamDisclosure, ...]:  # type: ignore[override]
        """Releases of every zone in every block (public)."""
        owned = self.owned
        assert owned.expected is not None and owned.rules.noise is not None
        disclosures, exact = [], owned.rules.noise.source == "secure"
        for zone in owned.zones:
            prior = zone_prior(zone, owned.expected)
            level = Disclosure(total(len(zone.own)), prior, 0.0, exact=exact)
            stream_disclosure = StreamDisclosure(level, self.block, self.hours, self.ahead)
            error = self.error(stream_disclosure, owned.rules.noise.multiplier)
            disclosures.append(replace(stream_disclosure, level=replace(level, expected=error)))
        return tuple(disclosures)

    def error(self, item: StreamDisclosure, multiplier: float) -> float:
        """Return the expected error of an hour's total of p (public)."""
        rules = self.owned.rules
        assert rules.noise is not None
        rule = replace(rules.noise, multiplier=multiplier)
        release = rule.release(item.sensitivity(rules.adjacency, rule.norm))
        (active, _) = item.filters()
        variance = release.mechanism.variance
        return expected_error(active.level, active.spread, item.block, variance)

    @property
    def draws(self) -> int:
        """Number of releases of a zone over the whole series."""
        return (self.hours[-1] + 1) // self.block

    def statistics(self, level: Disclosure) -> str:  # noqa: ARG002
        """Return the name of the statistics that a zone releases."""
        return f"total of every {self.block} h"

    def draw(self, charge: Charging = lambda *_: None) -> DemandEstimates:
        """Charge and draw every block of the series; return the estimate of every step."""
        streams, planned = NoiseStreams(step_seed(self.seed, 0)), self.planned
        estimates = []
        for zone, item in zip(self.owned.zones, self.disclosures, strict=True):
            release = next(iter(planned.get(zone.name, ())), None)

            def drawn(
                block: int, mean: Floats, zone: Zone = zone, release: Release | None = release
            ) -> Floats:
                assert release is not None
                charge(zone.name, {release: 1})
                return release.apply(mean, partial(streams.stream, zone.key, block + 1, 1))

            variance = 0.0 if release is None else release.mechanism.variance
            estimates.append(stream_estimates(item, self._data(zone), drawn, variance))
        return tuple(estimates)

    def expected(self) -> DemandEstimates:
        """Return the public prior, used before a release."""
        shape = 2, self.ahead * len(self.series)
        priors = (item.level.prior.mean for item in self.disclosures)
        return tuple(TemporalEstimate(mean, np.zeros(shape)) for mean in priors)

    @property
    def costs(self) -> Json:
        """Total epsilon of a window, and of a unit that differs in longer periods."""
        return stream_costs(self.settings, self.window, self.block)


def stream_costs(settings: Settings, window: int, block: int) -> Json:
    """Return the cost of a stream in pure epsilon; null if its noise has none.

    Parameters
    ----------
    settings : Settings
        With the budget of a window.
    """
    budget = settings.budget
    pure = budget.scope == "total" and not budget.delta
    each = budget.epsilon * block / window if pure else None
    periods = {
        name: None if each is None else each * releases_in(hours, block)
        for name, hours in HOURS.items()
        if hours >= 24
    }
    return {
        "window_hours": window,
        "block_hours": block,
        "releases_per_window": window // block,
        "total_per_window": budget.epsilon,
        "delta_per_window": budget.delta or 0.0,
        **{f"total_per_{k}": v for k, v in periods.items()},
    }


def stream_estimates(
    item: StreamDisclosure, demand: Floats, drawn: Callable[[int, Floats], Floats], variance: float
) -> TemporalEstimate:
    """Release every block; return the estimate of every step from the releases until then.

    Parameters
    ----------
    demand : (steps, 2n)
        Private.
    drawn : callable
        Returns the mean (p, q) of a block, by its number, with noise.
    variance : float
        Of the noise on each.
    """
    halves = demand.reshape(len(demand), 2, -1)
    totals = (on_grid(halves) if item.level.exact else halves).sum(axis=2)
    step_of = {hour: step for step, hour in enumerate(item.hours)}
    filters = item.filters()
    coefficients, block = np.zeros((2, len(demand), item.ahead)), np.zeros(2)
    level = item.level.prior.mean.reshape(2, -1).sum(axis=1)
    for hour in range(item.hours[-1] + 1):
        for filter_ in filters:
            filter_.advance(hour)
        step = step_of.get(hour)
        predicted = np.array([filter_.expected for filter_ in filters])
        block += predicted if step is None else totals[step]
        if (hour + 1) % item.block == 0:
            released = drawn(hour // item.block, block / item.block)
            for filter_, mean in zip(filters, released, strict=True):
                filter_.observe(float(mean), item.block, variance)
            block = np.zeros(2)
        if step is not None:
            later = item.hours[step : step + item.ahead]
            for k, filter_ in enumerate(filters):
                coefficients[k, step, : len(later)] = filter_.predicted(later) - level[k]
    return TemporalEstimate(item.level.prior.mean, coefficients.reshape(2, -1))


def make_horizon(
    series: DemandSeries, zoning: Zoning, settings: Settings, chronology: Chronology | None = None
) -> Horizon:
    """Return the horizon of a series: a stream where the settings name a window.

    Without a seed in the settings a seed is drawn.

    Raises
    ------
    InputError
        Where storage, ramps or reserves couple the steps, but demand is not released once for all
        of them, or outages change the list of generators; for a window no block divides, or
        settings whose noise a stream cannot have.
    """
    if settings.stream is not None:
        _check_stream(series, settings, chronology)
    if settings.temporal_basis != AUTO:
        _check_temporal_basis(series, settings)
    seed = secrets.randbits(64) if settings.seed is None else settings.seed
    horizon = Horizon(series, zoning, settings, seed, None, chronology)
    if horizon.coupling is not None:
        _check_coupled(horizon)
        _check_step_hours(series, horizon.coupling.hours)
    if settings.stream is not None:
        return _stream(horizon, parse_window(settings.stream))
    times = 1 if horizon.released_once else len(series)
    return replace(horizon, multiplier=horizon_multiplier(settings, times))


def _check_step_hours(series: DemandSeries, hours: float) -> None:
    """Warn of steps whose names are times that are not ``hours`` apart."""
    try:
        times = [datetime.fromisoformat(step) for step in series.steps if not step.isdigit()]
        gaps = [(after - before).total_seconds() / 3600 for before, after in pairwise(times)]
    except (ValueError, TypeError):  # other names; times with and without UTC offset
        return
    wrong = [at for at, gap in enumerate(gaps) if abs(gap - hours) > 1e-6]
    if wrong and len(times) == len(series):
        before, after = series.steps[wrong[0] : wrong[0] + 2]
        warn(
            f"{series.source}: step {after} is {gaps[wrong[0]]:g} h after step {before}, but every "
            f"step counts as {hours:g} h for storage, ramps, reserves and starts. Give "
            "--step-hours, or fill the gap",
            3,
        )


def _stream(plain: Horizon, window: int) -> Stream:
    """Return the stream whose number of hours in a block has the least expected error (public)."""
    series, settings = replace(plain.series, scales=()), plain.settings  # beta is of each hour
    inputs, options = (series, plain.zoning, settings, plain.seed), []
    for block in blocks_of(window):
        multiplier = horizon_multiplier(settings, window // block)
        stream = Stream(*inputs, multiplier, plain.chronology, block=block)
        error = sum(disclosure.level.expected**2 for disclosure in stream.disclosures)
        options.append((error, block, stream))
    return min(options, key=lambda option: option[:2])[2]


def _check_stream(series: DemandSeries, settings: Settings, chronology: Chronology | None) -> None:
    """Refuse settings that a stream cannot have; warn of steps that are not hours."""
    for name, allowed in stream_refusals(settings):
        raise not_allowed(name, str(getattr(settings, name)), allowed)
    if chronology is not None and chronology.switches:
        raise InputError(
            f"--stream {settings.stream} with --commitment: must be left out. A commitment is "
            "made for all steps before the first; a stream releases them one by one."
        )
    if chronology is not None and chronology.hours != 1.0:
        raise not_allowed("step_hours", chronology.hours, "1 with --stream: a step is an hour")
    if _numbers(series.steps) is None:
        warn(
            f"The steps of {series.source} count as consecutive hours, because their names are not "
            "whole numbers. Number them by hour (0, 1, 2, ...), so that a missing hour is noticed",
            3,
        )


def _numbers(steps: Sequence[str]) -> list[int] | None:
    """Return the steps as whole numbers; None for other names."""
    try:
        return [int(step) for step in steps]
    except ValueError:
        return None


def stream_refusals(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield settings that a stream cannot have, with what is allowed."""
    if settings.mechanism == NO_NOISE:
        yield "mechanism", "knorm, laplace or gaussian with --stream"
    if settings.effective_perturbation() != ONCE:
        yield "perturbation", "demand, with noise drawn once a block, with --stream"
    if settings.effective_mechanism() == "staircase":
        yield (
            "mechanism",
            "knorm, laplace or gaussian with --stream: part of a block's move would cost a "
            "whole epsilon under staircase noise",
        )
    if settings.release not in ("auto", "total"):
        yield "release", "total or auto with --stream: zones release their totals"
    for name, default in (("power_factor", None), ("temporal_basis", AUTO)):
        if getattr(settings, name) != default:
            yield name, "left out with --stream"
    if settings.budget.scope != "total":
        yield "budget", "total:E[,D] with --stream, of one window"


def _check_coupled(horizon: Horizon) -> None:
    """Refuse a joint plan where demand is not released for all steps at once."""
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
    """Refuse a basis that is not released; warn of more coefficients than steps."""
    basis = settings.temporal_basis
    if series.scales:
        factors = "the steps of this series are factors on one demand, and one release of that "
        raise not_allowed("temporal_basis", basis, f"left out: {factors}demand serves them all")
    if settings.effective_perturbation() != ONCE:
        once = "with perturbation demand and noise_schedule once: a basis is released once"
        raise not_allowed("temporal_basis", basis, f"left out, or {once}")
    most = len(series) - 1
    if basis != PER_STEP and int(basis) > most:
        warn(
            f"temporal_basis = {basis}: {counted(len(series), 'step')} have "
            f"{counted(most, 'cosine coefficient')} at most; {most} are released",
            3,
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
        Release of every zone for all steps.
    seed : int or None
        Of the whole horizon; seeds of steps are derived from it. None with secure noise.
    plan : DayPlan or None
        Joint plan of all steps; None without coupling.
    """

    series: DemandSeries
    settings: Settings
    results: tuple[RunResult, ...]
    released: Mapping[str, Mapping[Release, int]]
    seed: int | None
    plan: DayPlan | None = None

    plot = LazyAttribute("gridpriv.report.plots", "HorizonPlots")

    def table(self) -> DataFrame:
        """Return one row per step: residual (public), objective and shed in MW (local)."""
        rows = enumerate(zip(self.series.steps, self.results, strict=True))
        return DataFrame([step_row(name, of, number, self.plan) for number, (name, of) in rows])

    @property
    def releases(self) -> Mapping[str, Mapping[Release, int]]:
        """Each zone's releases, including those for all steps."""
        steps = [result.trace.releases for result in self.results]
        return total_releases([self.released, *steps])

    @property
    def certificates(self) -> tuple[ZoneCertificate, ...]:
        """Each zone's privacy loss over the horizon; empty without noise."""
        steps = [result.trace.counted for result in self.results]
        planned = total_releases([self.released, *steps])
        return zone_certificates(self.releases, self.settings, self.results[0].rules, planned)


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
    estimates = None
    if horizon.released_once:
        horizon.run_trial(0, default_transport(settings.workers))
        estimates = horizon.draw(charge or (lambda *_: None))
    plan = horizon.plan(estimates)
    results = []
    for number in range(len(series)):
        results.append(horizon.run_step(number, charge, estimates=estimates, plan=plan))
        watch(number, results[-1])
    released = horizon.planned if horizon.released_once else {}
    seed = None if settings.noise == "secure" else horizon.seed
    return HorizonResult(series, settings, tuple(results), released, seed, plan)


def step_row(name: str, result: RunResult, number: int = 0, plan: DayPlan | None = None) -> Json:
    """Return a step's values (:class:`gridpriv.zonal.documents.StepRow`).

    Rounds and residual are those of the ``plan``, if the step (counted from 0) belongs to one.
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
        "curtailed_mw": physical["curtailed_mw"],
        **{name: physical[name] for name in ("cost", "balancing_mw", "status", "ac_feasible")},
        "violated": physical["failure"] or limits_named(physical["violations"]) or None,
        **Baselines.of(result.reference).as_dict(),
        "seconds": result.timing.total,
    }


def series_protection(series: DemandSeries, settings: Settings) -> str:
    """Return the protected change of a series, as a sentence."""
    if settings.stream is not None:
        condition = "in every hour of the series"
    else:
        condition = BEFORE_FACTORS if series.scales else "in every step"
    return protected_change(settings, series.case, condition)


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

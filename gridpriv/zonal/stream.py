"""A stream of demand: every zone's total is released in blocks of hours, under one window's budget.

The mechanism, what it protects and the estimate of every hour are in
:mod:`gridpriv.privacy.temporal`. The estimates of all hours are made before the first one is run;
each rests on the releases until its hour. A missing hour's demand is replaced by its public
prediction, and its block is released, and charged, like the others.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import ClassVar

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import GridprivWarning, InputError, not_allowed
from gridpriv.core.text import Json
from gridpriv.grid.chronology import Chronology
from gridpriv.grid.scenarios import DemandSeries
from gridpriv.grid.zoning import Zoning
from gridpriv.power.prior import zone_prior
from gridpriv.power.zone import Zone
from gridpriv.privacy.adjacency import DemandAdjacency
from gridpriv.privacy.linear import Disclosure, on_grid, total, with_rounding
from gridpriv.privacy.noise import NoiseStreams
from gridpriv.privacy.release import Charging, Release
from gridpriv.privacy.sensitivity import Norm, Sensitivity
from gridpriv.privacy.settings import NO_NOISE
from gridpriv.privacy.temporal import (
    HOURS,
    TemporalBasis,
    TotalFilter,
    blocks_of,
    expected_error,
    parse_window,
    releases_in,
)
from gridpriv.zonal.day import DayPlan, look_ahead, plan_receding
from gridpriv.zonal.horizon import (
    ONCE,
    Horizon,
    Known,
    make_horizon,
    step_seed,
)
from gridpriv.zonal.prepared import horizon_multiplier
from gridpriv.zonal.settings import AUTO, Settings


@dataclass(frozen=True, eq=False)
class StreamDisclosure:
    """The totals that one zone releases, and the estimate of every hour.

    Attributes
    ----------
    level : Disclosure
        Of the total.
    block : int
        Hours of a block.
    hours : (steps,) int
        Of every step of the series, counted from its first one.
    ahead : int
        Steps that are predicted in every step, itself included.
    """

    level: Disclosure
    block: int
    hours: tuple[int, ...]
    ahead: int = 1
    weights: ClassVar[tuple[float, ...]] = ()  # no cosines are released

    def sensitivity(self, adjacency: DemandAdjacency, norm: Norm) -> Sensitivity:
        """Return by how much the mean of one block moves."""
        whole = self.level.sensitivity(adjacency, norm)
        if self.level.exact:
            whole = with_rounding(whole, adjacency.beta, self.block)
        source = f"{whole.bound_source}, mean of {self.block} hours"
        return replace(whole, bound_source=source)

    def filters(self) -> tuple[TotalFilter, TotalFilter]:
        """Return the filters of p and of q before the first hour."""
        prior = self.level.prior
        active, reactive = prior.active, prior.reactive(prior.active.mean)
        return (
            TotalFilter(float(active.mean.sum()), active.spread),
            TotalFilter(float(reactive.mean.sum()), reactive.spread),
        )

    def at(self, step: int, basis: TemporalBasis, later: int = 0) -> Floats:
        """Return the demand (2n,) of a step, counted from 0; its totals in their public range.

        Parameters
        ----------
        later : int
            With it, that of so many steps later, by the releases until ``step``.
        """
        prior, result = self.level.prior, []
        for mean, swing, sums in zip(
            basis.mean.reshape(2, -1),
            basis.temporal_coefficients[:, step * self.ahead + later],
            (prior.active, prior.reactive(prior.active.mean)),
            strict=True,
        ):
            expected = float(mean.sum())
            moved = float(np.clip(expected + swing, sums.lower, sums.upper)) - expected
            size = np.abs(mean)
            shares = size / size.sum() if size.sum() > 0 else sums.shares
            result.append(mean + moved * shares)
        return np.concatenate(result)


@dataclass(frozen=True, eq=False)
class Stream(Horizon):
    """A series of hours that are released as they come.

    Attributes
    ----------
    block : int
        Hours of a block.
    """

    block: int = 1

    @property
    def window(self) -> int:
        """Hours within which neighbours differ."""
        return parse_window(self.settings.stream or "")

    @property
    def released_once(self) -> bool:
        """True: the steps' runs draw nothing themselves."""
        return True

    @property
    def ahead(self) -> int:
        """Steps that are predicted in every step: one where nothing couples them."""
        reach = 1 if self.coupling is None else look_ahead(self.coupling.hours)
        return min(reach, len(self.series))

    def plan(self, known: Known | None) -> DayPlan | None:
        """Return the plan that recedes with the releases; None where nothing couples the steps."""
        if self.coupling is None:
            return None
        count = len(self.series)
        steps = [self.prepared(number, known) for number in range(count)]

        def predicted(number: int) -> list[list[Floats]]:
            if known is None:
                reached = steps[number : number + self.ahead]
                return [[zone.demand for zone in step.zones] for step in reached]
            likely = list(zip(self.disclosures, known, strict=True))
            scale, reach = steps[number].scale, min(self.ahead, count - number)
            return [
                [scale * item.at(number, basis, later) for item, basis in likely]
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
        matches = []
        for zone in owned.zones:
            level = Disclosure(
                total(len(zone.own)),
                zone_prior(zone, owned.expected),
                0.0,
                exact=owned.rules.noise.source == "secure",
            )
            stream_disclosure = StreamDisclosure(level, self.block, self.hours, self.ahead)
            error = self.error(stream_disclosure, owned.rules.noise.multiplier)
            matches.append(replace(stream_disclosure, level=replace(level, expected=error)))
        return tuple(matches)

    def error(self, item: StreamDisclosure, multiplier: float) -> float:
        """Return the expected error of an hour's total of p, by public figures."""
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

    def draw(self, charge: Charging = lambda *_: None) -> Known:
        """Charge and draw every block of the series; return the estimate of every step."""
        streams, planned = NoiseStreams(step_seed(self.seed, 0)), self.planned
        matches = []
        for zone, item in zip(self.owned.zones, self.disclosures, strict=True):
            release = next(iter(planned.get(zone.name, ())), None)

            def drawn(
                block: int, mean: Floats, zone: Zone = zone, release: Release | None = release
            ) -> Floats:
                assert release is not None
                charge(zone.name, {release: 1})
                return release.apply(mean, partial(streams.stream, zone.key, block + 1, 1))

            variance = 0.0 if release is None else release.mechanism.variance
            matches.append(estimates(item, self._data(zone), drawn, variance))
        return tuple(matches)

    def _data(self, zone: Zone) -> Floats:
        return np.hstack([self.series.pd[:, zone.own], self.series.qd[:, zone.own]])

    def expected(self) -> Known:
        """Return the public prior where nothing has been drawn."""
        return tuple(
            TemporalBasis(disclosure.level.prior.mean, np.zeros((2, self.ahead * len(self.series))))
            for disclosure in self.disclosures
        )

    @property
    def adjacency(self) -> str:
        """The neighbours of the stream, in words."""
        case = self.series.case
        protection = self.settings.adjacency(case).protection(case.base_mva)
        return f"{protection}, in every hour of the series"

    @property
    def costs(self) -> Json:
        """Total epsilon of a window, and of a unit that differs in longer periods."""
        return stream_costs(self.settings, self.window, self.block)


def stream_costs(settings: Settings, window: int, block: int) -> Json:
    """Return the cost of a stream in pure epsilon; null where its noise has none.

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
        **{f"total_per_{k}": v for k, v in periods.items()},
    }


def estimates(
    item: StreamDisclosure,
    demand: Floats,
    drawn: Callable[[int, Floats], Floats],
    variance: float,
) -> TemporalBasis:
    """Release every block and return the estimate of every step by the releases until then.

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
    swings, block = np.zeros((2, len(demand), item.ahead)), np.zeros(2)
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
                swings[k, step, : len(later)] = filter_.predicted(later) - level[k]
    return TemporalBasis(item.level.prior.mean, swings.reshape(2, -1))


def make_stream(
    series: DemandSeries,
    zoning: Zoning,
    settings: Settings,
    chronology: Chronology | None = None,
) -> Horizon:
    """Return the horizon of a series: a stream where the settings name a window.

    The number of hours in a block is that of least expected error, by public figures.

    Raises
    ------
    InputError
        For a window no block divides, or settings whose noise a stream cannot have.
    """
    if settings.stream is None:
        return make_horizon(series, zoning, settings, chronology)
    for name, allowed in _refusals(settings):
        raise not_allowed(name, str(getattr(settings, name)), allowed)
    if chronology is not None and chronology.switches:
        raise InputError(
            f"--stream {settings.stream} with --commitment: must be left out. A commitment is "
            "made for all steps before the first; a stream releases them one by one."
        )
    if chronology is not None and chronology.hours != 1.0:
        raise not_allowed("step_hours", chronology.hours, "1 with --stream: a step is an hour")
    if _numbers(series.steps) is None:
        warnings.warn(
            f"The steps of {series.source} count as consecutive hours, because their names are not "
            "whole numbers. Number them by hour (0, 1, 2, ...), so that a missing hour is noticed",
            GridprivWarning,
            stacklevel=2,
        )
    series = replace(series, scales=())  # beta is of the demand of each hour
    plain = make_horizon(series, zoning, replace(settings, stream=None), chronology)
    window = parse_window(settings.stream)
    options = []
    for block in blocks_of(window):
        multiplier = horizon_multiplier(settings, window // block)
        stream = Stream(series, zoning, settings, plain.seed, multiplier, chronology, block=block)
        error = sum(disclosure.level.expected**2 for disclosure in stream.disclosures)
        options.append((error, block, stream))
    return min(options, key=lambda option: option[:2])[2]


def _numbers(steps: Sequence[str]) -> list[int] | None:
    """Return the steps as whole numbers; None where their names are others."""
    try:
        return [int(step) for step in steps]
    except ValueError:
        return None


def _refusals(settings: Settings) -> Iterator[tuple[str, str]]:
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

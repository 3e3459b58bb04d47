"""Publication of cases and series with protected demand.

Demand is released once for the whole grid (:mod:`gridpriv.privacy.linear`), estimated, and
projected to the nearest demand that an AC optimum serves within all limits. A priced query may
follow. Everything else in a published case is public: topology, limits and costs are unchanged;
voltages, outputs and set points are those of the AC optimum of the published demand, as those of
the source would disclose its demand.

One release serves all steps of a series (:mod:`gridpriv.zonal.horizon`): of the demand that the
steps scale, or of the temporal basis of a demand that differs in every step. Every step's
estimate is projected to the nearest demand that an AC optimum serves.

Priced query. It keeps the optimal cost of a published case near the true one.

The value function of an AC optimum has no proven Lipschitz bound: it is not convex, and a solver
returns a local optimum. So the optimal cost itself is not released. The released value is linear,

    y = lambda_p' p + lambda_q' q + Laplace noise,      in $/h,

with lambda the prices (multipliers of the balances) of the AC optimum at the released demand: to
first order y is the optimal cost up to a public constant. The prices are a function of releases and
public data, so y is a further release of known sensitivity.

Sensitivity. One bus i changes by (dp, dq). With |dp|, |dq| <= beta the value changes by
lambda_pi dp + lambda_qi dq, at most

    D = beta max_i (|lambda_pi| + |lambda_qi|),

attained at a corner of the box; with p or q alone the other term is left out. Prices are clipped at
a public cap, so that D stays bounded where a limit is nearly infeasible.

Under secure noise demand is put on the grid of :mod:`gridpriv.privacy.linear` and
the sum is rational: a demand changes by at most beta + g, and the rounding at the end is within
2^-53 2^18 = 4 g / 2 of the largest price on each side, 5 g / beta of D in all; 8 g / beta are
charged.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from importlib.util import find_spec
from itertools import islice
from typing import cast

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError, not_allowed
from gridpriv.grid.case import Case, public_network
from gridpriv.grid.scenarios import DemandSeries
from gridpriv.grid.zoning import Zoning, zoning_from_groups
from gridpriv.power.ac.optimum import AcOptimum, Served, nearest_served
from gridpriv.power.objective import has_convex_costs, marginal_cost
from gridpriv.power.prior import strategies, zone_prior
from gridpriv.privacy.adjacency import DemandAdjacency
from gridpriv.privacy.linear import (
    DEVIATIONS,
    Disclosure,
    evidence,
    expected_error,
    on_grid,
    posterior_covariance,
    posterior_draws,
    with_rounding,
)
from gridpriv.privacy.mechanism import MECHANISMS, make_mechanism
from gridpriv.privacy.noise import NoiseStreams
from gridpriv.privacy.release import Charging, Release
from gridpriv.privacy.sensitivity import Sensitivity
from gridpriv.privacy.settings import Budget
from gridpriv.privacy.temporal import coefficient_error
from gridpriv.zonal.certificate import UNITS, CertificateContents, PublishedDraw
from gridpriv.zonal.horizon import Horizon, make_horizon
from gridpriv.zonal.prepared import Prepared, noise_rule, prepare
from gridpriv.zonal.settings import Release as Statistics
from gridpriv.zonal.settings import Settings

CAP = 2.0
"""Largest price, in multiples of the largest marginal cost of a generator."""
LEAST = 1e-9
"""Least sensitivity, $/h per unit: noise needs a scale."""


@dataclass(frozen=True, eq=False)
class PriceQuery:
    """Prices at released demand, and the release of priced demand.

    Attributes
    ----------
    prices : (2, n)
        Of active and reactive demand, $/h per unit.
    release : Release
        Of one number, in $/h.
    exact : bool
        Sum without rounding errors, as secure noise needs.
    """

    prices: Floats
    release: Release
    exact: bool = False

    def value(self, demand: Floats) -> float:
        """Return the priced demand in $/h; ``demand`` is (2, n), per unit."""
        if not self.exact:
            return float((self.prices * demand).sum())
        pairs = zip(self.prices.ravel().tolist(), on_grid(demand).ravel().tolist(), strict=True)
        return float(sum(Fraction(price) * Fraction(pair) for price, pair in pairs))


def price_query(
    optimum: AcOptimum, adjacency: DemandAdjacency, epsilon: float, source: str
) -> PriceQuery:
    """Return the priced query at the prices of a published optimum.

    Parameters
    ----------
    optimum : AcOptimum
        Of released demand.
    epsilon : float
        Pure epsilon of this query.
    source : {'simulated', 'secure'}
    """
    case = optimum.state.case
    cap = CAP * _largest_marginal_cost(case)
    prices = case.base_mva * np.nan_to_num(np.stack([optimum.p_price, optimum.q_price]))
    prices = np.clip(prices, -cap, cap)
    distance, exact = adjacency.beta * _largest_price(prices, adjacency), source == "secure"
    rounded = adjacency.beta if exact else None
    return PriceQuery(prices, numeric_release(distance, epsilon, source, rounded), exact)


def numeric_release(
    distance: float, epsilon: float, source: str, rounded: float | None = None
) -> Release:
    """Return the release of one number of a sensitivity, at a pure epsilon.

    Parameters
    ----------
    rounded : float, optional
        beta, where the rounding of demand to its grid is charged.
    """
    sensitivity = Sensitivity(distance, 1, "one bus moves by beta, at its published prices")
    if rounded is not None:
        sensitivity = with_rounding(sensitivity, rounded)
        distance = sensitivity.value
    mechanism = make_mechanism(MECHANISMS["laplace", source], distance / epsilon, distance)
    return Release(mechanism, sensitivity, distance)


def _largest_marginal_cost(case: Case) -> float:
    """Return the largest marginal cost of a generator at a limit, $/h per unit (public)."""
    ends = np.nan_to_num(np.stack([case.pmin, case.pmax]), posinf=0.0, neginf=0.0)
    return max(
        abs(marginal_cost(cost, case.base_mva, float(p)))
        for cost, pair in zip(case.cost, ends.T, strict=True)
        for p in pair
    )


def _largest_price(prices: Floats, adjacency: DemandAdjacency) -> float:
    """Return the largest change of the priced demand by one bus, for beta = 1."""
    active, reactive = prices
    change = ("p" in adjacency.protects) * np.abs(active)
    change += ("q" in adjacency.protects) * np.abs(reactive)
    return max(float(change.max()), LEAST)


FIDELITY_SHARE = 0.3
"""Share of the priced query in the total."""
PLACE = 0.03
"""Weight of an error at a bus; an error in the sum has weight 1. Prices differ by so much between
buses: by 2.7 to 42 % of their mean at the optimum of 12 published grids, 5 % in the median."""
REACTIVE = 0.05
"""Weight of reactive statistics under Laplace noise. The noise of active statistics is then 1.1
beta/epsilon, compared with a mean of 1.5 under K-norm noise; any mechanism of one number has at
least 0.96 at epsilon 1 (Geng et al. 2015). Prices of reactive demand are 2 % of active ones or less
(same grids)."""
RANGE_DRAWS = 39
"""Posterior demands whose optimal costs span the stated range; it covers a further draw with
probability 38/40."""
WHOLE_GRID = "grid"
RELEASE, QUERY, DRAWS = 1, 2, 3
"""Numbers of the random streams of a publication."""


@dataclass(frozen=True, eq=False)
class DemandRelease:
    """The one release of a grid's demand, and its posterior (public once drawn).

    Attributes
    ----------
    network : Case
        Without demand and solved state.
    disclosure : Disclosure
    release : Release
    released : (2m,)
        Statistics with noise.
    """

    network: Case
    disclosure: Disclosure
    release: Release
    released: Floats

    @cached_property
    def mean(self) -> Floats:
        """Posterior mean (2, n), per unit."""
        return self.disclosure.estimate(self.released, self.release).reshape(2, -1)

    @cached_property
    def covariance(self) -> Floats:
        """Posterior covariances (2, n, n) of active and of reactive demand."""
        prior, matrices = self.disclosure.prior, self.disclosure.strategy.matrices
        variance = self.release.mechanism.variance
        covariances = []
        priors = (prior.active, prior.reactive(self.mean[0]))
        for matrix, values, sums in zip(matrices, np.split(self.released, 2), priors, strict=True):
            weight = evidence(matrix, values, variance, sums).weight
            deviation = float(np.sqrt(weight @ DEVIATIONS**2))
            covariances.append(posterior_covariance(matrix, variance, sums, deviation))
        return np.stack(covariances)

    def draws(self, generator: np.random.Generator) -> Iterator[Floats]:
        """Yield demands (2, n) of the posterior, without end."""
        disclosure = self.disclosure
        draws = posterior_draws(
            disclosure.strategy, self.released, self.release.mechanism, disclosure.prior, generator
        )
        return (demand.reshape(2, -1) for demand in draws)

    @property
    def first(self) -> DemandRelease:
        """The release itself, as the first one."""
        return self


@dataclass(frozen=True, eq=False)
class PricedRelease:
    """The answer to a priced query, and its effect on the estimate of demand (public).

    Attributes
    ----------
    first : DemandRelease
    query : PriceQuery
    answer : float
        Priced demand with noise, $/h.
    """

    first: DemandRelease
    query: PriceQuery
    answer: float

    @cached_property
    def gain(self) -> Floats:
        """Change (2, n) of the posterior mean per $/h of residual of the answer."""
        cross = np.einsum("kij,kj->ki", self.first.covariance, self.query.prices)
        variance = float((cross * self.query.prices).sum()) + self.query.release.mechanism.variance
        return np.asarray(cross / variance)

    def update(self, demand: Floats, answer: float) -> Floats:
        """Return a demand (2, n) corrected by its residual in an answer."""
        return demand + self.gain * (answer - self.query.value(demand))

    @property
    def mean(self) -> Floats:
        """Posterior mean (2, n), per unit."""
        return self.update(self.first.mean, self.answer)

    @cached_property
    def covariance(self) -> Floats:
        """Posterior covariances (2, n, n) of active and of reactive demand."""
        cross = np.einsum("kij,kj->ki", self.first.covariance, self.query.prices)
        return np.asarray(self.first.covariance - np.einsum("ki,kj->kij", self.gain, cross))

    def draws(self, generator: np.random.Generator) -> Iterator[Floats]:
        """Yield demands (2, n) of the posterior, without end."""
        mechanism, none = self.query.release.mechanism, np.zeros(1)
        for demand in self.first.draws(generator):
            noise = float(mechanism.perturb(none, lambda: generator)[0])
            yield self.update(demand, self.answer - noise)


@dataclass(frozen=True, eq=False)
class Publication:
    """A publication that is ready to draw.

    Attributes
    ----------
    ready : Prepared
        The whole grid as one zone, without its owner's solved state, with true demand.
    disclosure : Disclosure
        Released statistics of demand, chosen from public quantities.
    priced : bool
        True if a priced query follows.
    """

    ready: Prepared
    disclosure: Disclosure
    priced: bool

    @property
    def release(self) -> Release:
        """The release of demand."""
        rules = self.ready.rules
        assert rules.noise is not None
        return rules.noise.release(self.disclosure.sensitivity(rules.adjacency, rules.noise.norm))

    @property
    def query_epsilon(self) -> float:
        """Pure epsilon of the priced query."""
        return self.ready.settings.budget.epsilon * FIDELITY_SHARE / (1.0 - FIDELITY_SHARE)

    @property
    def planned(self) -> Counter[Release]:
        """Releases to be drawn, the priced query at a sensitivity of 1 (public)."""
        planned = Counter([self.release])
        if self.priced:
            source = self.ready.settings.noise
            planned[numeric_release(1.0, self.query_epsilon, source)] += 1
        return planned

    def stream(self, number: int) -> np.random.Generator:
        """Return the generator of a draw."""
        return NoiseStreams(self.ready.seed).stream(self.ready.zones[0].key, 1, number)

    def draw(self, release: Release, value: Floats, number: int) -> Floats:
        """Return a value with noise."""
        return release.apply(value, partial(self.stream, number))


@dataclass(frozen=True, eq=False)
class ProtectedCase:
    """A published grid and its releases.

    Attributes
    ----------
    publication : Publication
    posterior : DemandRelease or PricedRelease
    served : Served
        The posterior mean, projected.
    cost_range : (float, float) or None
        Range of the optimal cost of the true case, $/h; None without a priced query.
    """

    publication: Publication
    posterior: DemandRelease | PricedRelease
    served: Served
    cost_range: tuple[float, float] | None

    @property
    def first(self) -> DemandRelease:
        """The release of demand."""
        return self.posterior.first

    def case(self, name: str) -> Case:
        """Return the case to be published, in the state of its AC optimum."""
        return solved_case(self.served, name, self.publication.ready.case)

    @property
    def contents(self) -> CertificateContents:
        """Contents of the certificate."""
        ready, base = self.publication.ready, self.served.case.base_mva
        release, strategy = self.first.release, self.first.disclosure.strategy
        unit = UNITS[ready.settings.protects]
        first, last = strategy.matrix[[0, -1]].max(axis=1)  # of a tree the sum, and a bus
        weights = (float(first), float(last)) if strategy.name == "tree" else ()
        quantity = f"demand: {strategy.name}"
        drawn = [PublishedDraw(quantity, release, base, unit, strategy.reactive, weights)]
        if isinstance(self.posterior, PricedRelease):
            query = self.posterior.query.release
            drawn.append(PublishedDraw("demand at published prices", query, 1.0, "$/h"))
        adjacency, active = ready.rules.adjacency.protection(base), self.posterior.covariance[0]
        variances = float(active.sum()), float(np.trace(active)) / _load_buses(ready.case)
        total, bus = (math.sqrt(max(variance, 0.0)) for variance in variances)
        return CertificateContents(
            ready, str(adjacency), tuple(drawn), self.served, (total, bus), self.cost_range
        )

    def scenarios(self, count: int) -> tuple[Served, ...]:
        """Return demands drawn from the posterior, each projected, without further epsilon."""
        return tuple(_served_draws(self.publication, self.posterior, count))


def solved_case(served: Served, name: str, source: Case) -> Case:
    """Return a case with a feasible demand under a name, in the state of its AC optimum.

    It has the areas and zones of its source.

    A nominal voltage of 0 kV (not known) becomes 1 kV: other tools divide by it, per unit data do
    not depend on it.
    """
    state = served.optimum.state
    has_base = state.case.base_kv > 0
    return replace(
        state.case,
        name=name,
        groups=source.groups,
        vm=state.vm,
        va=state.va,
        pg=state.pg,
        vg=state.vm[state.case.gen_bus],
        base_kv=np.where(has_base, state.case.base_kv, 1.0),
    )


def whole_grid(case: Case) -> Zoning:
    """Return the map of one zone."""
    return zoning_from_groups(case, [range(case.n_bus)], "whole grid", [WHOLE_GRID])


def without_state(case: Case) -> Case:
    """Return a case without its owner's solved state, with true demand."""
    return replace(public_network(case), pd=case.pd, qd=case.qd, groups=case.groups)


def prepare_publication(case: Case, settings: Settings, *, priced: bool = False) -> Publication:
    """Return a publication that is ready to draw; no noise is drawn or charged.

    Parameters
    ----------
    case : Case
    settings : Settings
        ``budget`` is the pure total of all releases.
    priced : bool
        True for a priced query, with :data:`FIDELITY_SHARE` of the budget.

    Raises
    ------
    InputError
        For settings that this case cannot have.
    """
    if priced:
        if not has_convex_costs(case):
            none = f"left out: case {case.name} has no convex generation costs, hence no prices"
            raise not_allowed("fidelity", "cost", none)
        share = (1.0 - FIDELITY_SHARE) * settings.budget.epsilon
        settings = replace(settings, budget=Budget("total", share))
    ready = prepare(without_state(case), whole_grid(case), settings)
    options = [Publication(*option, priced) for option in _options(ready)]
    return min(options, key=_score)


def _options(ready: Prepared) -> Iterator[tuple[Prepared, Disclosure]]:
    """Yield the candidates of released statistics and noise; public."""
    assert ready.expected is not None
    settings, zone = ready.settings, ready.zones[0]
    prior = zone_prior(zone, ready.expected)
    chosen = [(ready, strategy) for strategy in strategies(zone, settings.release)]
    free = settings.mechanism in (None, "laplace") and settings.protects == "p+q"
    if free and (settings.noise == "simulated" or find_spec("opendp") is not None):
        noise = noise_rule(replace(settings, mechanism="laplace"), ready.rules.adjacency)
        separate = replace(ready, rules=replace(ready.rules, noise=noise))
        chosen += [(separate, replace(strategy, reactive=REACTIVE)) for _, strategy in chosen]
    for run, strategy in chosen:
        yield run, Disclosure(strategy, prior, 0.0, exact=settings.noise == "secure")


def _score(option: Publication) -> float:
    """Return the expected squared error, per unit, that counts for the optimal cost (public).

    It is that of the sum of active demand, which a priced query improves, and :data:`PLACE` times
    that of every bus, active and reactive.
    """
    release, ready, disclosure = option.release, option.ready, option.disclosure
    if math.isinf(release.sensitivity.value):
        return math.inf
    size = len(ready.zones[0].own)
    error = partial(
        expected_error, disclosure.strategy, release.mechanism.variance, disclosure.prior
    )
    total = error(np.ones((1, size))) ** 2
    buses = error(PLACE * np.eye(size), reactive=True) ** 2
    if option.priced:
        query = 2.0 * (ready.rules.adjacency.beta / option.query_epsilon) ** 2
        total = total * query / (total + query)
    return total + buses


def protect(publication: Publication, charge: Charging = lambda *_: None) -> ProtectedCase:
    """Draw, estimate and project a grid's demand.

    Parameters
    ----------
    publication : Publication
    charge : Charging, optional
        Called before each draw; refusing raises.

    Raises
    ------
    SolverError
        If no demand is found that an AC optimum serves; drawn releases stay charged.
    """
    ready, release, disclosure = publication.ready, publication.release, publication.disclosure
    demand = ready.zones[0].demand
    value = disclosure.measure(demand)
    charge(WHOLE_GRID, {release: 1})
    released = publication.draw(release, value, RELEASE)
    first = DemandRelease(public_network(ready.case), disclosure, release, released)
    served = _nearest(first.network, first.mean, release)
    if not publication.priced:
        return ProtectedCase(publication, first, served, None)
    query = price_query(
        served.optimum, ready.rules.adjacency, publication.query_epsilon, ready.settings.noise
    )
    true = np.array([query.value(demand.reshape(2, -1))])
    charge(WHOLE_GRID, {query.release: 1})
    answer = publication.draw(query.release, true, QUERY)
    posterior = PricedRelease(first, query, float(answer[0]))
    served = _nearest(first.network, posterior.mean, release)
    draws = _served_draws(publication, posterior, RANGE_DRAWS)
    costs = [draw.optimum.cost or 0.0 for draw in draws]
    return ProtectedCase(publication, posterior, served, (min(costs), max(costs)))


def _served_draws(
    publication: Publication, posterior: DemandRelease | PricedRelease, count: int
) -> Iterator[Served]:
    """Yield posterior demands, each projected."""
    draws = islice(posterior.draws(publication.stream(DRAWS)), count)
    return (_nearest(posterior.first.network, demand, publication.release) for demand in draws)


def _nearest(network: Case, demand: Floats, release: Release) -> Served:
    """Return the nearest demand to (2, n) that an AC optimum serves, in the release's norm."""
    case = replace(network, pd=demand[0].copy(), qd=demand[1].copy())
    return nearest_served(case, release.mechanism.norm)


@dataclass(frozen=True, eq=False)
class ProtectedSeries:
    """A published series.

    Attributes
    ----------
    horizon : Horizon
        With true demand.
    release : Release
    served : tuple of Served
        Step by step.
    """

    horizon: Horizon
    release: Release
    served: tuple[Served, ...]

    def case(self, name: str) -> Case:
        """Return the case of the first step, in the state of its AC optimum."""
        return solved_case(self.served[0], name, self.horizon.series.case)

    @property
    def contents(self) -> CertificateContents:
        """Contents of the certificate."""
        owned, statistics = self.horizon.owned, self.horizon.disclosures[0].level.strategy.name
        steps = len(self.horizon.series)
        quantity, unit = f"demand of {steps} steps: {statistics}", UNITS[owned.settings.protects]
        drawn = PublishedDraw(quantity, self.release, owned.case.base_mva, unit)
        return CertificateContents(
            owned,
            self.horizon.adjacency,
            (drawn,),
            self.served[0],
            series_errors(self.horizon),
            factors=self.horizon.series.scales,
        )


def series_errors(horizon: Horizon) -> tuple[float, float]:
    """Return the errors of the total and of a bus that are expected before the release (public).

    They are root mean squares over the steps of a published series, of active demand, per unit.
    """
    (item,), (planned,) = horizon.disclosures, horizon.planned[WHOLE_GRID]
    variance, prior = planned.mechanism.variance, item.level.prior
    error = partial(expected_error, item.level.strategy, variance, prior)
    shares, size = prior.active.shares, len(prior.active.mean)
    change = coefficient_error(item.over, variance, float(prior.active.mean.sum()))
    total = error(np.ones((1, size))) ** 2 + change
    buses = error(np.eye(size)) ** 2 + change * float(shares @ shares)
    scale = math.sqrt(np.mean(np.square(horizon.series.scales or (1.0,))))
    loads = _load_buses(horizon.series.case)
    return scale * math.sqrt(total), scale * math.sqrt(buses / loads)


def _load_buses(case: Case) -> int:
    """Return the number of buses that can have load, at least 1."""
    return max(1, int(case.load_buses.sum()))


def prepare_series(series: DemandSeries, settings: Settings) -> Horizon:
    """Return a series that is ready for its release.

    ``release`` auto is chosen for the first step's case (public).
    """
    if settings.stream is not None:
        raise not_allowed("stream", settings.stream, "left out for a published series")
    if series.scales and series.scales[0] == 0.0:
        raise InputError(
            f"the first step, {series.steps[0]!r}, has a factor of 0, so the published case would "
            "have no demand: begin --series with another step"
        )
    if settings.release == "auto":
        chosen = prepare_publication(series.at(0), settings).disclosure.strategy.name
        settings = replace(settings, release=cast(Statistics, chosen))
    horizon = make_horizon(
        replace(series, case=without_state(series.case)), whole_grid(series.case), settings
    )
    if not horizon.released_once:
        raise not_allowed("noise-schedule", settings.noise_schedule, "once for a published series")
    return horizon


def protect_series(horizon: Horizon, charge: Charging = lambda *_: None) -> ProtectedSeries:
    """Draw once, estimate every step and project it.

    Raises
    ------
    SolverError
        If no demand is found that an AC optimum serves; drawn releases stay charged.
    """
    (release,) = horizon.planned[WHOLE_GRID]
    estimates = horizon.draw(charge)
    network = public_network(horizon.series.case)

    def served(step: int) -> Served:
        earlier = horizon.prepared(step, estimates).posteriors
        assert earlier is not None
        return _nearest(network, earlier[0].demand.reshape(2, -1), release)

    return ProtectedSeries(horizon, release, tuple(map(served, range(len(horizon.series)))))

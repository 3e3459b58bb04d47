"""Replays of whole runs: of every round, of a series, of a stream and of a publication.

**Rounds**: the whole run with its coordinator, over every round.

coordinator   every zone's data are replaced by quite different data, and every release returns its
              earlier value. The coordinator then reads the same values, so every order and the
              number of rounds must be the same: a penalty or a stopping rule that reads private
              data gives other orders. One of the other data sets is the estimate from the releases,
              at which a residual of true demand is smallest.
rounds        over all rounds of the run, every release that is charged is drawn, and all its
              coordinates have noise. Where demand noise is drawn once, this and the last check
              also use the same run with noise drawn in every round.
stated        beta of the run is that of its settings, on its base; the loss of a draw's density is
              at most its charge, and the draws of a zone cost at most the budget. The loss of pure
              noise is its steepest slope times the sensitivity; for normal noise it is the exact
              delta. That of a registered mechanism is not known, so only beta is compared.
outputs       corner changes at tie buses change the released part of every zone's exact minimizer,
              at several penalties (the largest change depends on a bus's row), by at most the
              proven sensitivity of output perturbation.

**Series**: one release for all steps. The demand of each bus follows a daily curve of its own.

public state   statistics, number of coefficients, weights and the noise scale are equal;
series         the statistics of all steps change by at most the proven sensitivity while one bus
               changes by beta in every step, with the signs that change the mean and every
               combination of coefficients most, and with random ones; every coordinate gets noise;
public bytes   with that release frozen, the last step sends and publishes the same.

**Stream**: one release per block of hours.

public state   block, noise scale and statistics are equal on other demand;
stream         while one bus changes by beta in the hours of a window, at any offset and with any
               signs, the losses of all releases (distance over noise scale) add up to at most the
               budget of a window; each release is charged once; every coordinate gets noise, and no
               two draws share it;
public bytes   with releases frozen, the estimate of every hour is equal.

**Publication**: a protected case.

public state   statistics and noise scale are equal on other demand;
publish        the priced query changes by its proven sensitivity at most, at every corner of
               every box; draws and charges agree; secure statistics and prices charge the rounding
               of demand;
public bytes   with every release frozen, the published case and its certificate are the same.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, TypeVar

import numpy as np
from scipy import optimize, stats

from gridpriv.assurance import adversary
from gridpriv.assurance.independence import equality_finding, on_tape, published_run, zero_finding
from gridpriv.assurance.replay import ROUNDING, Draw, Finding, Tape
from gridpriv.core.arrays import Floats
from gridpriv.core.text import Json
from gridpriv.grid.case import Case
from gridpriv.grid.convert import matpower_text
from gridpriv.grid.scenarios import DemandSeries
from gridpriv.power.objective import has_convex_costs
from gridpriv.power.zone import Zone
from gridpriv.privacy.accounting import epsilon_of, total_pure
from gridpriv.privacy.adjacency import UNITS_MVA, DemandAdjacency
from gridpriv.privacy.certificate import charges_of
from gridpriv.privacy.mechanism import Charge, Staircase
from gridpriv.privacy.release import Release
from gridpriv.privacy.sensitivity import Norm, Sensitivity, length
from gridpriv.privacy.settings import BUILT_IN, Budget
from gridpriv.privacy.temporal import TemporalDisclosure
from gridpriv.zonal import protected_case
from gridpriv.zonal.certificate import certificate
from gridpriv.zonal.horizon import (
    ONCE,
    DemandEstimates,
    Horizon,
    Stream,
    make_horizon,
    stream_estimates,
    stream_refusals,
)
from gridpriv.zonal.prepared import Prepared
from gridpriv.zonal.settings import Settings

PENALTIES = (0.3, 1.0, 3.0, 10.0, 30.0, 300.0)  # times the weight of the imbalance
TIE_BUSES = 6  # of a zone, those with most shared variables in their balance
LARGE = 20.0  # times beta: the size of a corner change, large relative to solvers' errors
NORMS: tuple[Norm, ...] = (1, 2)
LEAST_DELTA = 1e-12  # at which a charge without a pure epsilon is read
SAME = 1e-9  # relative: difference of solvers on equal input, and of sums of losses


@dataclass(frozen=True, eq=False)
class RecordedRun:
    """A whole run: its messages, and every draw in order."""

    network: adversary.RecordingTransport
    draws: tuple[Draw, ...]


def play(
    prepared: Prepared, data: Sequence[Floats] | None = None, frozen: Sequence[Floats] | None = None
) -> RecordedRun:
    """Run all rounds on a tape; on other data, and with releases as they were, if these are given.

    Parameters
    ----------
    prepared : Prepared
        With noise.
    data : sequence of array, optional
        Every zone's.
    frozen : sequence of array, optional
        Values that releases return, in order.
    """
    tape = Tape(frozen)
    network = adversary.record_run(on_tape(prepared, tape), data=data)
    return RecordedRun(network, tuple(tape.drawn))


def without_noise(draws: Sequence[Draw]) -> int:
    """Count the coordinates without noise."""
    return sum(int((draw.output == draw.value).sum()) for draw in draws)


def whole_run(prepared: Prepared) -> list[Finding]:
    """Return the findings of every check of the whole run, which must have noise."""
    base = play(prepared)
    frozen = [draw.output for draw in base.draws]
    findings = [
        _coordinator(base, play(prepared, other, frozen), name)
        for name, other in _other_data(prepared, base)
    ]
    findings.append(_rounds(base))
    findings += _stated(prepared, base)
    findings += [_outputs(prepared, zone) for zone in range(len(prepared.zones))]
    findings.append(_rounds(play(adversary.with_fresh_noise(prepared))))
    return findings


def _other_data(prepared: Prepared, base: RecordedRun) -> list[tuple[str, list[Floats]]]:
    demand = [problem.program.zone.demand for problem in prepared.problems]
    data_sets = [
        ("no demand", [np.zeros_like(d) for d in demand]),
        ("twice the demand", [2.0 * d for d in demand]),
    ]
    rule = adversary.rule_of(prepared)
    if prepared.rules.perturbation.target == "demand":
        estimates = [
            problem.disclosure.estimate(draw.output, rule.release(draw.sensitivity))
            for problem, draw in zip(prepared.problems, base.draws, strict=False)
        ]
        if len(estimates) == len(demand):
            data_sets.append(("the released demand", estimates))
    return data_sets


def _coordinator(base: RecordedRun, other: RecordedRun, name: str) -> Finding:
    """Count orders that differ although all releases are equal."""
    differ = 0
    for here, there in zip(base.network.recorded, other.network.recorded, strict=True):
        differ += abs(len(here) - len(there))
        for a, b in zip(here, there, strict=False):
            pairs = ((a.w, b.w), (a.penalty, b.penalty), (a.step, b.step))
            differ += not all(np.allclose(x, y, rtol=SAME, atol=SAME) for x, y in pairs)
    return Finding("coordinator", "all", name, float(differ), 0.0)


def _rounds(base: RecordedRun) -> Finding:
    """Count coordinates without noise, and releases that were charged and not drawn."""
    replies = [record.reply for zone in base.network.recorded for record in zone]
    charged = sum(sum(reply.releases.values()) for reply in replies)
    bare = without_noise(base.draws) + abs(len(base.draws) - charged)
    return Finding("rounds", "all", "-", float(bare), 0.0)


def _stated(prepared: Prepared, base: RecordedRun) -> list[Finding]:
    """Compare the adjacency, every charge and every zone's total with the settings."""
    settings, rule = prepared.settings, adversary.rule_of(prepared)
    given, allowed = settings.beta, settings.budget.epsilon * (1.0 + SAME)
    unit = UNITS_MVA[given.unit.lower()] / prepared.case.base_mva if given.unit else 1.0
    beta = prepared.scale * given.value * unit
    findings = [Finding("stated", "all", "beta", beta, prepared.run_adjacency.beta * (1.0 + SAME))]
    if rule.assumed is not None:  # a paper's sensitivity: its epsilon is not a budget
        return findings
    if rule.mechanism not in BUILT_IN:  # the loss of its density is not known
        return findings
    for problem, records in zip(prepared.problems, base.network.recorded, strict=True):
        drawn = sum((Counter(each.reply.releases) for each in records), Counter[Release]())
        releases = {rule.release(release.sensitivity): n for release, n in drawn.items()}
        if not releases:
            continue
        charged = max(law_loss(r) / epsilon_of(r.certified, LEAST_DELTA) for r in releases)
        findings.append(Finding("stated", problem.name, "loss over charge", charged, 1.0 + SAME))
        spent = budget_spent(releases, settings.budget, settings.release_delta)
        findings.append(Finding("stated", problem.name, "spent of the budget", spent, allowed))
    return findings


def law_loss(release: Release) -> float:
    """Return the largest loss of a pure mechanism, from its density; 0 for others."""
    mechanism, distance = release.mechanism, release.sensitivity.value
    if isinstance(mechanism, Staircase):
        return math.ceil(distance / mechanism.step * (1.0 - SAME)) * mechanism.epsilon
    return 0.0 if mechanism.norm == 2 else distance / mechanism.scale


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return epsilon of normal noise whose mean changes by mu deviations.

    The root of delta(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)
    (Balle and Wang 2018); 0 where delta covers it.
    """

    def excess(epsilon: float) -> float:
        below = stats.norm.logcdf(-mu / 2.0 - epsilon / mu)
        reached = stats.norm.cdf(mu / 2.0 - epsilon / mu) - math.exp(epsilon + below)
        return float(reached) - delta

    covered = mu == 0.0 or excess(0.0) <= 0.0
    return 0.0 if covered else float(optimize.brentq(excess, 0.0, mu * (mu + 40.0)))


def budget_spent(releases: Mapping[Release, int], budget: Budget, delta: float) -> float:
    """Return the epsilon that releases spend of a budget; 0 where no exact figure is known.

    Pure losses add up. Normal noise composes to normal noise at mu^2 = sum (D / sigma)^2.
    """
    total = budget.scope == "total"
    pure = {release: law_loss(release) for release in releases}
    if budget.delta is None and all(pure.values()):
        spent = [loss * (releases[release] if total else 1) for release, loss in pure.items()]
        return sum(spent) if total else max(spent)
    if any(pure.values()):
        return 0.0
    square = {r: (r.sensitivity.value / r.mechanism.scale) ** 2 for r in releases}
    mu = math.sqrt(
        sum(square[release] * n for release, n in releases.items())
        if total
        else max(square.values())
    )
    return gaussian_epsilon(mu, budget.delta or delta)


def _outputs(prepared: Prepared, zone: int) -> Finding:
    """Return the exact minimizer's largest change over its proven sensitivity, in both norms."""
    problem, shared = prepared.problems[zone], prepared.shared[zone]
    adjacency, demand = _box(prepared), problem.program.zone.demand
    start, worst, where = problem.start(), 0.0, "-"
    weight = prepared.network.objective.weight
    for rho in [weight * each for each in PENALTIES] if shared.any() else ():
        metric = np.where(shared, rho, 0.0)

        def minimiser(data: Floats, metric: Floats = metric) -> Floats:
            linear = problem.gradient(np.zeros_like(start), data) - metric * start
            return np.asarray(problem.minimise_exact(linear, metric).z[shared])

        declared = [problem.output_sensitivity(adjacency, n, "exact", metric).value for n in NORMS]
        here = minimiser(demand)
        for other in _tie_neighbours(prepared, zone):
            change = (minimiser(demand + LARGE * other.change) - here) / LARGE
            ratio = max(length(change, n) / d for n, d in zip(NORMS, declared, strict=True))
            if ratio > worst:
                worst, where = ratio, f"{other}, penalty {rho:g}"
    return Finding("outputs", problem.name, where, worst, 1.0, worst)


def _box(prepared: Prepared) -> DemandAdjacency:
    """Return the adjacency at any power factor, as output perturbation protects no band."""
    return replace(prepared.run_adjacency, power_factors=None)


def _tie_neighbours(prepared: Prepared, zone: int) -> list[adversary.Neighbour]:
    """Return one corner change and its opposite at the buses with most coupling variables."""
    problem, adjacency = prepared.problems[zone], _box(prepared)
    own = len(problem.program.zone.own)
    rows = abs(problem.program.imbalance[:, prepared.shared[zone]]).sum(axis=1)
    order = np.argsort(-np.asarray(rows).ravel()[:own], kind="stable")[:TIE_BUSES]
    ends = adversary.corners(adjacency)[:2]
    return [adversary.neighbour(problem, int(bus), dp, dq) for bus in order for dp, dq in ends]


OWN_CASE: Json = {"load_scale": 1.0, "outage": (), "coordination": "rounds", "seed": None}
"""Settings of what is made of a run's own case, which is scaled and without outages already. It
gets the run's seed, which settings with secure noise cannot have."""
OF_ONE_RELEASE = ("central", "series", "stream", "publish")
"""Lanes of runs that release demand once."""
MOST_BUSES = 150
"""Largest grid whose publication is audited, as each demand is projected."""
TINY = 1e-9
"""beta in p.u. at which the rounding of demand is visible: a grid step is 1.5 % of it."""


@dataclass(frozen=True, eq=False)
class Frozen(protected_case.Publication):
    """A publication whose releases are recorded, or are those of an earlier one."""

    drawn: list[Floats]
    frozen: Sequence[Floats] | None

    def draw(self, release: Release, value: Floats, number: int) -> Floats:
        """Return the noisy value, or the release of the earlier publication."""
        if self.frozen is None:
            self.drawn.append(super().draw(release, value, number))
        else:
            self.drawn.append(self.frozen[len(self.drawn)])
        return self.drawn[-1]


def left_out(prepared: Prepared) -> dict[str, str]:
    """Return the lanes that the settings or the grid of a run do not allow, with the reasons."""
    settings, rule = prepared.settings, adversary.rule_of(prepared)
    if prepared.rules.perturbation != ONCE:
        return dict.fromkeys(OF_ONE_RELEASE, "the run does not release demand once")
    if math.isinf(total_pure({rule.release(Sensitivity(1.0, rule.norm, "any")).certified: 1})):
        return dict.fromkeys(("stream", "publish"), "the noise has no pure epsilon")
    reasons = {}
    for name, allowed in stream_refusals(_of_stream(settings)):
        reasons["stream"] = f"{name} must be {allowed}"
    if settings.power_factor is not None:
        reasons["publish"] = "power_factor must be left out with gridpriv publish"
    if prepared.case.n_bus > MOST_BUSES:
        reasons["publish"] = f"the grid has more than {MOST_BUSES} buses"
    return reasons


def publish_findings(prepared: Prepared) -> list[Finding]:
    """Return the findings on a publication.

    Raises
    ------
    SolverError
        Where no AC optimum serves a demand near the released one.
    """
    own = prepared.case
    base = _publication(prepared, own)
    exchanged = replace(own, pd=np.roll(own.pd, 1), qd=np.roll(own.qd, 1))
    twin = _publication(prepared, exchanged)
    charged: Counter[Release] = Counter()
    base_case = protected_case.protect(base, lambda _, releases: charged.update(releases))
    twin_case = protected_case.protect(replace(twin, frozen=base.drawn))
    stated = Counter(item.release for item in base_case.contents.drawn)
    label = "publish, exchanged"
    chosen, other = ((publication.disclosure, publication.planned) for publication in (base, twin))
    return [
        equality_finding("public state", label, chosen, other),
        equality_finding("public bytes", label, _published(base_case), _published(twin_case)),
        zero_finding("publish", "draws not charged", charged != stated),
        *_sensitivities(base_case, np.stack([own.pd, own.qd]), base.ready.rules.adjacency),
    ]


def _publication(prepared: Prepared, case: Case) -> Frozen:
    settings, priced = replace(prepared.settings, **OWN_CASE, hold=None), has_convex_costs(case)
    publication = protected_case.prepare_publication(case, settings, priced=priced)
    ready = replace(publication.ready, seed=prepared.seed)
    return Frozen(ready, publication.disclosure, priced, drawn=[], frozen=None)


def _published(protected: protected_case.ProtectedCase) -> dict[str, str]:
    """Return the text of the published case and of its certificate.

    Posterior draws of a secure mechanism are new in every publication: their range is left out.
    """
    case, contents = protected.case("audit"), protected.contents
    secure = protected.publication.ready.settings.noise == "secure"
    contents = replace(contents, cost_range=None) if secure else contents
    document = certificate(contents, case, {}, None)
    return {"case": matpower_text(case), "certificate": json.dumps(document, sort_keys=True)}


def _largest_change(
    measure: Callable[[Floats], Floats], demand: Floats, adjacency: DemandAdjacency, norm: Norm
) -> float:
    """Return the largest change of statistics, over every bus and corner of its box."""
    here, worst = measure(demand), 0.0
    for bus, change in product(range(demand.shape[1]), adversary.corners(adjacency)):
        adjacent = demand.copy()
        adjacent[:, bus] += change
        worst = max(worst, length(measure(adjacent) - here, norm))
    return worst


def _query(
    query: protected_case.PriceQuery, demand: Floats, adjacency: DemandAdjacency, label: str
) -> Finding:
    """Return the largest change of the priced demand."""
    worst = _largest_change(lambda at: np.array([query.value(at)]), demand, adjacency, 1)
    declared = query.release.sensitivity.value
    allowed = declared + (0.0 if query.exact else ROUNDING * abs(query.value(demand)))
    return Finding("publish", "all", label, worst, allowed, worst / declared)


def _sensitivities(
    protected: protected_case.ProtectedCase, demand: Floats, adjacency: DemandAdjacency
) -> list[Finding]:
    """Return changes of the priced query, and of secure sums between close adjacent demands."""
    tiny, exact = DemandAdjacency(TINY), replace(protected.first.disclosure, exact=True)
    norm = protected.first.release.mechanism.norm
    worst = _largest_change(lambda at: exact.measure(at.ravel()), demand, tiny, norm)
    declared = exact.sensitivity(tiny, norm).value
    findings = [Finding("publish", "all", "rounding of statistics", worst, declared)]
    if isinstance(protected.posterior, protected_case.PricedRelease):
        secure = protected_case.price_query(protected.served.optimum, tiny, 1.0, "secure")
        findings += [
            _query(protected.posterior.query, demand, adjacency, "priced query"),
            _query(secure, demand, tiny, "rounding of prices"),
        ]
    return findings


STEPS = 6
RANDOM_SIGNS = 16
WINDOW, HOURS = 12, 36
EPSILON = 5.0
DIGITS = 9
"""Of noise over its scale: draws that agree to so many share their noise."""
AnyHorizon = TypeVar("AnyHorizon", Horizon, Stream)


def _on_demands(
    prepared: Prepared, curve: Floats, make: Callable[[DemandSeries, Settings], AnyHorizon]
) -> tuple[AnyHorizon, dict[str, AnyHorizon]]:
    """Return a series of the run's demand along daily curves (steps, buses), and twins by name."""
    case, steps = prepared.case, tuple(map(str, range(len(curve))))
    settings = replace(prepared.settings, **OWN_CASE)

    def on_demand(demand: Floats) -> AnyHorizon:
        series = DemandSeries(case, steps, curve * demand[0], curve * demand[1], "audit")
        return replace(make(series, settings), seed=prepared.seed)

    demand = np.stack([case.pd, case.qd])
    variants = {"no demand": 0.0 * demand, "exchanged": np.roll(demand, 1, axis=1)}
    return on_demand(demand), {name: on_demand(other) for name, other in variants.items()}


def series_findings(prepared: Prepared) -> list[Finding]:
    """Return the findings on a series of the run's demand."""
    steps, buses = np.arange(STEPS)[:, None] / STEPS, np.arange(prepared.case.n_bus)
    curve = 1.0 + 0.3 * np.sin(2.0 * np.pi * (steps + buses / prepared.case.n_bus))
    base, twins = _on_demands(
        prepared, curve, lambda series, given: make_horizon(series, prepared.zoning, given)
    )
    generator, tape = np.random.default_rng(prepared.seed), Tape()
    findings = _public_choices("series", base, twins)
    for zone, disclosure in zip(base.owned.zones, base.disclosures, strict=True):
        findings.append(_values(base, zone, disclosure, generator))
    here = _last_step(base, tape)
    findings.append(zero_finding("series", "coordinates without noise", without_noise(tape.drawn)))
    frozen = [draw.output for draw in tape.drawn]
    return findings + [
        equality_finding("public bytes", f"series, {name}", here, _last_step(twin, Tape(frozen)))
        for name, twin in twins.items()
    ]


def _public_choices(lane: str, base: Horizon, twins: Mapping[str, Horizon]) -> list[Finding]:
    """Compare the public choices before a release with those on other demand."""

    def chosen(horizon: Horizon) -> dict[str, Any]:
        names = ("multiplier", "disclosures", "planned", "block")
        return {name: getattr(horizon, name, None) for name in names}

    return [
        equality_finding("public state", f"{lane}, {name}", chosen(base), chosen(twin))
        for name, twin in twins.items()
    ]


def _values(
    base: Horizon, zone: Zone, disclosure: TemporalDisclosure, generator: np.random.Generator
) -> Finding:
    """Return the largest change of a zone's statistics over adjacent series."""
    adjacency, norm = base.owned.rules.adjacency, adversary.rule_of(base.owned).norm
    declared = disclosure.sensitivity(adjacency, norm).value
    days = np.hstack([base.series.pd[:, zone.own], base.series.qd[:, zone.own]])
    here, units = disclosure.measure(days), len(zone.own)
    matrix = disclosure.level.strategy.matrix
    unit = int(np.argmax(np.abs(matrix).sum(axis=0))) if len(matrix) else 0
    worst = 0.0
    ends = np.array(adversary.corners(adjacency)[:2])  # of one side of the box, or of the band
    middle, half = ends.mean(axis=0), (ends[0] - ends[1]) / 2.0
    for (signs, other), side in product(_signs(disclosure, generator), (1.0, -1.0)):
        adjacent = days.copy()
        adjacent[:, [unit, unit + units]] += np.outer(signs, middle) + np.outer(other, side * half)
        worst = max(worst, length(disclosure.measure(adjacent) - here, norm))
    label = f"bus {zone.network.case.bus_id[zone.own[unit]]}, all steps"
    allowed = declared + ROUNDING * (declared + float(np.abs(here).sum()))
    return Finding("series", zone.name, label, worst, allowed, worst / max(declared, 1e-300))


def _signs(
    disclosure: TemporalDisclosure, generator: np.random.Generator
) -> list[tuple[Floats, Floats]]:
    """Return pairs of signs by step: of every combination of coefficients, and random ones."""
    rows = np.vstack([np.ones(disclosure.over.steps), disclosure.over.rows])
    weights = np.array(list(product((-1.0, 0.0, 1.0), repeat=len(rows))))
    weights = weights[np.abs(weights).sum(axis=1) > 0.0]
    sampled = generator.permutation(len(weights))[:RANDOM_SIGNS]
    rows[0] *= float(disclosure.level.strategy.weight(1)) or 1.0
    worst = np.where(np.vstack([weights[sampled], np.eye(len(rows))]) @ rows >= 0.0, 1.0, -1.0)
    mixed = worst[generator.permutation(len(worst))]
    return [*zip(worst, worst, strict=True), *zip(worst, mixed, strict=True)]


def _last_step(horizon: Horizon, tape: Tape) -> tuple[DemandEstimates, dict[str, Any]]:
    """Draw the release of all steps on a tape; return it with the last step's public bytes."""
    known = _taped(horizon, tape).draw()
    return known, published_run(horizon.prepared(STEPS - 1, known), Tape())


def _taped(horizon: AnyHorizon, tape: Tape) -> AnyHorizon:
    """Return a series with every release on a tape."""
    taped = replace(horizon)
    taped.__dict__["disclosures"] = horizon.disclosures
    taped.__dict__["owned"] = on_tape(horizon.owned, tape)
    return taped


def _of_stream(settings: Settings) -> Settings:
    """Return the settings of the audited stream."""
    budget, window = Budget("total", EPSILON), f"{WINDOW}h"
    return replace(settings, release="total", stream=window, budget=budget)


def stream_findings(prepared: Prepared) -> list[Finding]:
    """Return the findings on a stream of the run's demand."""
    hours, buses = np.arange(HOURS)[:, None], np.arange(prepared.case.n_bus)
    curve = 1.0 + 0.2 * np.sin(2.0 * np.pi * hours / 24.0 + buses)

    def make(series: DemandSeries, given: Settings) -> Stream:
        stream = make_horizon(series, prepared.zoning, _of_stream(given))
        assert isinstance(stream, Stream)
        return stream

    base, twins = _on_demands(prepared, curve, make)
    charged: dict[str, Counter[Charge]] = {}

    def charge(owner: str, releases: Mapping[Release, int]) -> None:
        charged.setdefault(owner, Counter()).update(charges_of(releases))

    tape = Tape()
    here = _taped(base, tape).draw(charge)
    frozen, planned = [draw.output for draw in tape.drawn], base.planned
    findings = _public_choices("stream", base, twins)
    for position, zone in enumerate(base.owned.zones):
        draws = tape.drawn[position * base.draws : (position + 1) * base.draws]
        findings.append(_loss_of_windows(base, position, zone, draws))
    noise = np.array([(draw.output - draw.value) / draw.scale for draw in tape.drawn])
    due = {owner: charges_of(releases) for owner, releases in planned.items()}
    repeated = noise.size - len(np.unique(np.round(noise, DIGITS)))
    return [
        *findings,
        equality_finding("stream", "charges that were not planned", due, charged),
        zero_finding("stream", "coordinates without noise", without_noise(tape.drawn)),
        zero_finding("stream", "draws that share noise", repeated),
        *(
            equality_finding(
                "public bytes", f"stream, {name}", here, _taped(twin, Tape(frozen)).draw()
            )
            for name, twin in twins.items()
        ),
    ]


def _loss_of_windows(base: Stream, position: int, zone: Zone, draws: Sequence[Draw]) -> Finding:
    """Return the largest loss of a zone's releases over adjacent streams."""
    (release,) = base.planned[zone.name]
    norm, noise_of = release.sensitivity.norm, release.mechanism
    shipped = adversary.rule_of(base.owned).mechanism in BUILT_IN

    def spent(distance: float) -> float:
        """Return the loss of a change: by the density, or by a registered mechanism's charge."""
        if shipped or distance == 0.0:
            return distance / noise_of.scale
        return total_pure({noise_of.charge(distance): 1})

    def loss(adjacent: Floats) -> float:
        """Return the sum of the losses over blocks."""
        result = [0.0]

        def distance(block: int, mean: Floats) -> Floats:
            result.append(spent(length(mean - draws[block].value, norm)))
            return draws[block].output

        stream_estimates(base.disclosures[position], adjacent, distance, noise_of.variance)
        return sum(result)

    streams = _windows(base, base._data(zone), np.random.default_rng(base.seed))
    allowed = base.settings.budget.epsilon * (1.0 + SAME)
    return Finding("stream", zone.name, "loss of a window", max(map(loss, streams)), allowed)


def _windows(base: Stream, demand: Floats, generator: np.random.Generator) -> list[Floats]:
    """Return streams that differ at one bus within a window, for every offset to the blocks."""
    units, result = demand.shape[1] // 2, []
    for start in range(WINDOW // 2, WINDOW // 2 + base.block + 1):
        for dp, dq in adversary.corners(base.owned.rules.adjacency)[:2]:
            for signs in (np.ones(WINDOW), np.where(generator.random(WINDOW) < 0.5, 1.0, -1.0)):
                adjacent, unit = demand.copy(), int(generator.integers(units))
                adjacent[start : start + WINDOW, unit] += dp * signs
                adjacent[start : start + WINDOW, unit + units] += dq * signs
                result.append(adjacent)
    return result

"""Replay audits of a series, a stream and a publication of the run's demand on adjacent data.

**Series**: one release for all steps. The demand of each bus follows a daily curve of its own.

public state   statistics, number of coefficients, weights and the noise scale are equal;
series         the statistics of all steps change by at most the declared sensitivity while one bus
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
publish        the priced query changes by its declared sensitivity at most, at every corner of
               every box; draws and charges agree; secure statistics and prices charge the rounding
               of demand;
public bytes   with every release frozen, the published case and its certificate are the same.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import product
from typing import Any, TypeVar

import numpy as np

from gridpriv.assurance.adversary import corners
from gridpriv.assurance.independence import equality_finding, published_run, zero_finding
from gridpriv.assurance.replay import ROUNDING, Finding, Tape
from gridpriv.assurance.whole import on_tape, rule_of, without_noise
from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError, SolverError
from gridpriv.core.text import Json
from gridpriv.grid.case import Case
from gridpriv.grid.convert import matpower_text
from gridpriv.grid.scenarios import DemandSeries
from gridpriv.power.zone import Zone
from gridpriv.privacy.accounting import total_pure
from gridpriv.privacy.adjacency import DemandAdjacency
from gridpriv.privacy.noise import NoiseStreams
from gridpriv.privacy.release import Release
from gridpriv.privacy.sensitivity import Norm, length
from gridpriv.privacy.settings import BUILT_IN, Budget
from gridpriv.privacy.temporal import TemporalDisclosure, TemporalEstimate
from gridpriv.zonal import protected_case
from gridpriv.zonal.certificate import certificate
from gridpriv.zonal.horizon import DemandEstimates, Horizon, Stream, make_horizon, stream_estimates
from gridpriv.zonal.prepared import Prepared
from gridpriv.zonal.settings import Settings

OWN_CASE: Json = {"load_scale": 1.0, "outage": (), "coordination": "rounds"}
"""Settings of what is made of a run's own case, which is scaled and without outages already."""
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


def publish_findings(prepared: Prepared) -> list[Finding]:
    """Return the findings on a publication; none where settings or grid do not allow one."""
    if prepared.case.n_bus > MOST_BUSES:
        return []
    own = prepared.case
    try:
        base = _publication(prepared, own)
    except InputError:
        return []
    turned = replace(own, pd=np.roll(own.pd, 1), qd=np.roll(own.qd, 1))
    twin = _publication(prepared, turned)
    charged: Counter[Release] = Counter()
    try:
        base_case = protected_case.protect(base, lambda _, releases: charged.update(releases))
        twin_case = protected_case.protect(replace(twin, frozen=base.drawn))
    except SolverError:
        return []
    label = "publish, exchanged"
    chosen, other = ((publication.disclosure, publication.planned) for publication in (base, twin))
    return [
        equality_finding("public state", label, chosen, other),
        equality_finding("public bytes", label, _published(base_case), _published(twin_case)),
        zero_finding("publish", "draws not charged", charged != base_case.releases),
        *_sensitivities(base_case, np.stack([own.pd, own.qd]), base.ready.rules.adjacency),
    ]


def _publication(prepared: Prepared, case: Case) -> Frozen:
    settings = replace(prepared.settings, **OWN_CASE, hold=None, seed=prepared.seed)
    publication = protected_case.prepare_publication(case, settings, priced=bool(case.cost))
    given = {field.name: getattr(publication, field.name) for field in fields(publication)}
    return Frozen(**given, drawn=[], frozen=None)


def _published(protected: protected_case.ProtectedCase) -> dict[str, str]:
    """Return the text of the published case and of its certificate."""
    case = protected.case("audit")
    document = certificate(protected.contents, case, {}, None)
    return {"case": matpower_text(case), "certificate": json.dumps(document, sort_keys=True)}


def _largest_change(
    measure: Callable[[Floats], Floats], demand: Floats, adjacency: DemandAdjacency, norm: Norm
) -> float:
    """Return the largest change of statistics, over every bus and corner of its box."""
    here, worst = measure(demand), 0.0
    for bus, change in product(range(demand.shape[1]), corners(adjacency)):
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
SLACK = 1e-9  # relative, of a sum of losses
AnyHorizon = TypeVar("AnyHorizon", Horizon, Stream)


def _on_demands(
    prepared: Prepared, curve: Floats, make: Callable[[DemandSeries, Settings], AnyHorizon]
) -> tuple[AnyHorizon, dict[str, AnyHorizon]]:
    """Return a series of the run's demand along daily curves (steps, buses), and twins by name."""
    case, steps = prepared.case, tuple(map(str, range(len(curve))))
    settings = replace(prepared.settings, **OWN_CASE, seed=prepared.seed)

    def of(demand: Floats) -> AnyHorizon:
        series = DemandSeries(case, steps, curve * demand[0], curve * demand[1], "audit")
        return make(series, settings)

    demand = np.stack([case.pd, case.qd])
    variants = {"no demand": 0.0 * demand, "exchanged": np.roll(demand, 1, axis=1)}
    return of(demand), {name: of(other) for name, other in variants.items()}


def series_findings(prepared: Prepared) -> list[Finding]:
    """Return the findings on a series of the run's demand; none where demand is not released once.

    Parameters
    ----------
    prepared : Prepared
        With noise.
    """
    steps, buses = np.arange(STEPS)[:, None] / STEPS, np.arange(prepared.case.n_bus)
    curve = 1.0 + 0.3 * np.sin(2.0 * np.pi * (steps + buses / prepared.case.n_bus))
    base, twins = _on_demands(
        prepared, curve, lambda series, given: make_horizon(series, prepared.zoning, given)
    )
    if not base.released_once or prepared.settings.noise_budget == "nothing":
        return []
    generator, tape = np.random.default_rng(prepared.seed), Tape()
    findings = [
        equality_finding("public state", f"series, {name}", _chosen(base), _chosen(twin))
        for name, twin in twins.items()
    ]
    for zone, disclosure in zip(base.owned.zones, base.disclosures, strict=True):
        findings.append(_values(base, zone, disclosure, generator))
    here = _last_step(base, tape)
    findings.append(zero_finding("series", "coordinates without noise", without_noise(tape.drawn)))
    frozen = [draw.output for draw in tape.drawn]
    return findings + [
        equality_finding("public bytes", f"series, {name}", here, _last_step(twin, Tape(frozen)))
        for name, twin in twins.items()
    ]


def _chosen(horizon: Horizon) -> dict[str, Any]:
    """Return the public choices before the release."""
    return {
        "multiplier": horizon.multiplier,
        "statistics": horizon.disclosures,
        "releases": horizon.planned,
    }


def _values(
    base: Horizon, zone: Zone, disclosure: TemporalDisclosure, generator: np.random.Generator
) -> Finding:
    """Return the largest change of a zone's statistics over adjacent series."""
    adjacency, norm = base.owned.rules.adjacency, rule_of(base.owned).norm
    declared = disclosure.sensitivity(adjacency, norm).value
    days = np.hstack([base.series.pd[:, zone.own], base.series.qd[:, zone.own]])
    here, units = disclosure.measure(days), len(zone.own)
    matrix = disclosure.level.strategy.matrix
    unit = int(np.argmax(np.abs(matrix).sum(axis=0))) if len(matrix) else 0
    worst = 0.0
    for (p_signs, q_signs), (dp, dq) in product(
        _signs(disclosure, generator), corners(adjacency)[:2]
    ):
        adjacent = days.copy()
        adjacent[:, unit] += p_signs * dp
        adjacent[:, unit + units] += q_signs * dq
        worst = max(worst, length(disclosure.measure(adjacent) - here, norm))
    label = f"bus {zone.network.case.bus_id[zone.own[unit]]}, all steps"
    allowed = declared + ROUNDING * (declared + float(np.abs(here).sum()))
    return Finding("series", zone.name, label, worst, allowed, worst / max(declared, 1e-300))


def _signs(
    disclosure: TemporalDisclosure, generator: np.random.Generator
) -> list[tuple[Floats, Floats]]:
    """Return the signs by step of p and of q: of every combination of coefficients, and random."""
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
    taped = replace(horizon)
    taped.__dict__["disclosures"] = horizon.disclosures
    taped.__dict__["owned"] = on_tape(horizon.owned, tape)
    known = taped.draw()
    return known, published_run(horizon.prepared(STEPS - 1, known), Tape())


def stream_findings(prepared: Prepared) -> list[Finding]:
    """Return the findings on a stream of the run's demand; none where no stream is possible."""
    hours, buses = np.arange(HOURS)[:, None], np.arange(prepared.case.n_bus)
    curve = 1.0 + 0.2 * np.sin(2.0 * np.pi * hours / 24.0 + buses)

    def make(series: DemandSeries, given: Settings) -> Stream:
        budget, window = Budget("total", EPSILON), f"{WINDOW}h"
        settings = replace(given, release="total", stream=window, budget=budget)
        stream = make_horizon(series, prepared.zoning, settings)
        assert isinstance(stream, Stream)
        return stream

    try:
        base, twins = _on_demands(prepared, curve, make)
    except InputError:
        return []
    charged: dict[str, Counter[Release]] = {}
    base.draw(lambda owner, releases: charged.setdefault(owner, Counter()).update(releases))
    findings = [
        equality_finding(
            "public state",
            f"stream, {name}",
            (base.block, base.multiplier, base.planned),
            (twin.block, twin.multiplier, twin.planned),
        )
        for name, twin in twins.items()
    ]
    for place, zone in enumerate(base.owned.zones):
        findings += _stream_of_zone(base, list(twins.values()), place, zone)
    label = "charges that were not planned"
    return [*findings, equality_finding("stream", label, dict(base.planned), charged)]


def _stream_of_zone(base: Stream, twins: list[Stream], place: int, zone: Zone) -> list[Finding]:
    """Return the findings of one zone."""
    (release,) = base.planned[zone.name]
    streams, values, outputs = NoiseStreams(base.seed), list[Floats](), list[Floats]()
    norm, noise_of = release.sensitivity.norm, release.mechanism
    shipped = rule_of(base.owned).mechanism in BUILT_IN

    def spent(distance: float) -> float:
        """Return the loss of a change: by the density, or by a registered mechanism's charge."""
        if shipped or distance == 0.0:
            return distance / noise_of.scale
        return total_pure({noise_of.charge(distance): 1})

    def estimated(demand: Floats, draw: Callable[[int, Floats], Floats]) -> TemporalEstimate:
        return stream_estimates(base.disclosures[place], demand, draw, release.mechanism.variance)

    def draw(block: int, mean: Floats) -> Floats:
        values.append(mean.copy())
        outputs.append(release.apply(mean, partial(streams.stream, zone.key, block + 1, 1)))
        return outputs[-1]

    def loss(adjacent: Floats) -> float:
        """Return the sum of the losses over blocks."""
        result = [0.0]

        def distance(block: int, mean: Floats) -> Floats:
            result.append(spent(length(mean - values[block], norm)))
            return outputs[block]

        estimated(adjacent, distance)
        return sum(result)

    demand = base._data(zone)
    here = estimated(demand, draw)
    there = [estimated(twin._data(zone), lambda block, _: outputs[block]) for twin in twins]
    noise = np.array(outputs) - np.array(values)
    losses = [
        loss(adjacent) for adjacent in _windows(base, demand, np.random.default_rng(base.seed))
    ]
    allowed = base.settings.budget.epsilon * (1.0 + SLACK)
    repeated = noise.size - len(np.unique(noise))
    return [
        Finding("stream", zone.name, "loss of a window", max(losses), allowed),
        zero_finding("stream", "coordinates without noise", int((noise == 0.0).sum()), zone.name),
        zero_finding("stream", "draws that share noise", repeated, zone.name),
        equality_finding(
            "public bytes", "stream, estimates", [here] * len(twins), there, zone.name
        ),
    ]


def _windows(base: Stream, demand: Floats, generator: np.random.Generator) -> list[Floats]:
    """Return streams that differ at one bus within a window, for every offset to the blocks."""
    units, result = demand.shape[1] // 2, []
    for start in range(WINDOW // 2, WINDOW // 2 + base.block + 1):
        for dp, dq in corners(base.owned.rules.adjacency)[:2]:
            for signs in (np.ones(WINDOW), np.where(generator.random(WINDOW) < 0.5, 1.0, -1.0)):
                adjacent, unit = demand.copy(), int(generator.integers(units))
                adjacent[start : start + WINDOW, unit] += dp * signs
                adjacent[start : start + WINDOW, unit + units] += dq * signs
                result.append(adjacent)
    return result

"""A series of the run's demand: one release for all steps, replayed on neighbouring series.

The demand of each bus follows a daily curve of its own. On other series:

public state   statistics, number of coefficients, weights and the noise scale are equal;
series         the statistics of all steps move by at most the declared sensitivity while one bus
               moves by beta in every step, in the signs that move the mean and every combination of
               coefficients most, and at random; every coordinate gets noise;
public bytes   with that release frozen, the last step sends and publishes the same.

A stream of the run's demand: every block's release, replayed on neighbouring streams.

public state   block, noise scale and statistics are equal on other demand;
stream         while one bus moves by beta in the hours of a window, wherever it begins and with any
               signs, the losses of all blocks' releases (distance over noise scale) add up to at
               most the budget of a window; each release is charged once; every coordinate gets
               noise, and no two draws share it;
public bytes   with releases frozen, the estimate of every hour is equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from gridpriv.assurance.neighbours import corners
from gridpriv.assurance.public_state import differences, published_run
from gridpriv.assurance.replay import ROUNDING, Finding, Tape, taped
from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError
from gridpriv.grid.overrides import DemandSeries
from gridpriv.power.zone import Zone
from gridpriv.privacy.budget import Budget
from gridpriv.privacy.noise import NoiseStreams
from gridpriv.privacy.release import Release
from gridpriv.privacy.sensitivity import length
from gridpriv.privacy.strategies.temporal_basis import TemporalBasis, TemporalDisclosure
from gridpriv.zonal.horizon import Horizon, Known, make_horizon
from gridpriv.zonal.prepared import Prepared
from gridpriv.zonal.stream import Stream, StreamDisclosure, estimates, make_stream

SERIES_CHECKS = ("series",)
STEPS = 6
RANDOM_SIGNS = 16


def series_findings(prepared: Prepared) -> list[Finding]:
    """Return the findings on a series of the run's demand; none where demand is not released once.

    Parameters
    ----------
    prepared : Prepared
        With noise.
    """
    demand = np.stack([prepared.case.pd, prepared.case.qd])
    base = _horizon(prepared, demand)
    if not base.released_once or prepared.settings.drawn == "nothing":
        return []
    others = [("no demand", 0.0 * demand), ("exchanged", np.roll(demand, 1, axis=1))]
    twins = [(name, _horizon(prepared, other)) for name, other in others]
    generator = np.random.default_rng(prepared.seed)
    findings = [_public_state(base, twin, name) for name, twin in twins]
    for zone, disclosure in zip(base.owned.zones, base.disclosures, strict=True):
        findings.append(_values(base, zone, disclosure, generator))
    tape = Tape()
    known = _drawn(base, tape)
    bare = sum(int((draw.output == draw.value).sum()) for draw in tape.drawn)
    findings.append(Finding("series", "all", "coordinates without noise", float(bare), 0.0))
    frozen = [draw.output for draw in tape.drawn]
    findings += [_public_bytes(base, known, twin, frozen, name) for name, twin in twins]
    return findings


def _horizon(prepared: Prepared, demand: Floats) -> Horizon:
    """Return the horizon of a demand (2, n_bus) along daily curves."""
    case = prepared.case
    hours, buses = np.arange(STEPS)[:, None], np.arange(case.n_bus)
    curve = 1.0 + 0.3 * np.sin(2.0 * np.pi * (hours / STEPS + buses / case.n_bus))
    series = DemandSeries(
        case, tuple(map(str, range(STEPS))), curve * demand[0], curve * demand[1], "audit"
    )
    settings = replace(
        prepared.settings, load_scale=1.0, outage=(), coordination="rounds", seed=prepared.seed
    )
    return make_horizon(series, prepared.zoning, settings)


def _public_state(base: Horizon, twin: Horizon, name: str) -> Finding:
    paths = [
        *differences(base.multiplier, twin.multiplier, "multiplier"),
        *differences(base.disclosures, twin.disclosures, "statistics"),
        *differences(base.planned, twin.planned, "releases"),
    ]
    label = f"series, {name}" + (f": {paths[0]}" if paths else "")
    return Finding("public state", "all", label, float(len(paths)), 0.0)


def _values(
    base: Horizon, zone: Any, disclosure: TemporalDisclosure, generator: np.random.Generator
) -> Finding:
    """Return the largest move of a zone's statistics over neighbouring series."""
    rules = base.owned.rules
    assert rules.noise is not None
    norm = rules.noise.norm
    declared = disclosure.sensitivity(rules.adjacency, norm).value
    days = np.hstack([base.series.pd[:, zone.own], base.series.qd[:, zone.own]])
    here, units = disclosure.measure(days), len(zone.own)
    matrix = disclosure.level.strategy.matrix
    unit = int(np.argmax(np.abs(matrix).sum(axis=0))) if len(matrix) else 0
    bus, worst, label = zone.network.case.bus_id[zone.own[unit]], 0.0, "-"
    for p_signs, q_signs in _signs(disclosure, generator):
        for dp, dq in corners(rules.adjacency)[:2]:
            moved = days.copy()
            moved[:, unit] += p_signs * dp
            moved[:, unit + units] += q_signs * dq
            distance = length(disclosure.measure(moved) - here, norm)
            if distance > worst:
                worst, label = distance, f"bus {bus}, all steps"
    size = float(np.abs(here).sum())
    return Finding(
        "series", zone.name, label, worst, declared + ROUNDING * size, worst / max(declared, 1e-300)
    )


def _signs(
    disclosure: TemporalDisclosure, generator: np.random.Generator
) -> list[tuple[Floats, Floats]]:
    """Return the signs by step of p and of q: of every combination of coefficients, and random."""
    steps = disclosure.over.steps
    rows = np.vstack([np.ones(steps), disclosure.over.rows])
    weights = np.array(list(product((-1.0, 0.0, 1.0), repeat=len(rows))))
    weights = weights[np.abs(weights).sum(axis=1) > 0.0]
    kept = generator.permutation(len(weights))[:RANDOM_SIGNS]
    rows[0] *= float(disclosure.level.strategy.weight(1)) or 1.0
    worst = np.where(np.vstack([weights[kept], np.eye(len(rows))]) @ rows >= 0.0, 1.0, -1.0)
    mixed = worst[generator.permutation(len(worst))]
    return [*zip(worst, worst, strict=True), *zip(worst, mixed, strict=True)]


def _drawn(horizon: Horizon, tape: Tape) -> Known:
    """Draw what serves all steps on a tape."""
    owned = horizon.owned
    assert owned.rules.noise is not None
    rules = replace(owned.rules, noise=taped(owned.rules.noise, tape))
    on_tape = replace(horizon)
    on_tape.__dict__["disclosures"] = horizon.disclosures
    on_tape.__dict__["owned"] = replace(owned, rules=rules)
    return on_tape.draw()


def _public_bytes(
    base: Horizon, known: Known, twin: Horizon, frozen: Sequence[Floats], name: str
) -> Finding:
    """Compare the last step's public bytes, and the estimate that follows from the release."""
    step = STEPS - 1
    same = _drawn(twin, Tape(frozen))
    paths = [
        *differences(known, same, "estimate"),
        *differences(
            published_run(base.prepared(step, known), Tape()),
            published_run(twin.prepared(step, same), Tape()),
        ),
    ]
    label = f"series, {name}" + (f": {paths[0]}" if paths else "")
    return Finding("public bytes", "all", label, float(len(paths)), 0.0)


STREAM_CHECKS = ("stream",)
WINDOW, HOURS = 12, 36
EPSILON = 5.0
SLACK = 1e-9  # relative, of a sum of losses


def stream_findings(prepared: Prepared) -> list[Finding]:
    """Return the findings on a stream of the run's demand; none where it cannot be one."""
    demand = np.stack([prepared.case.pd, prepared.case.qd])
    try:
        base = _stream(prepared, demand)
        twins = [
            ("no demand", _stream(prepared, 0.0 * demand)),
            ("exchanged", _stream(prepared, np.roll(demand, 1, axis=1))),
        ]
    except InputError:
        return []
    matches = []
    for name, twin in twins:
        paths = [
            *differences((base.block, base.multiplier), (twin.block, twin.multiplier), "noise"),
            *differences(base.planned, twin.planned, "releases"),
        ]
        label = f"stream, {name}" + (f": {paths[0]}" if paths else "")
        matches.append(Finding("public state", "all", label, float(len(paths)), 0.0))
    for place, zone in enumerate(base.owned.zones):
        matches += _zone_findings(base, [twin for _, twin in twins], place, zone)
    return [*matches, _charges(base)]


def _stream(prepared: Prepared, demand: Floats) -> Stream:
    case, hours = prepared.case, np.arange(HOURS)[:, None]
    curve = 1.0 + 0.2 * np.sin(2.0 * np.pi * hours / 24.0 + np.arange(case.n_bus))
    series = DemandSeries(
        case, tuple(map(str, range(HOURS))), curve * demand[0], curve * demand[1], "audit"
    )
    settings = replace(
        prepared.settings,
        load_scale=1.0,
        outage=(),
        coordination="rounds",
        release="total",
        seed=prepared.seed,
        stream=f"{WINDOW}h",
        budget=Budget("total", EPSILON),
    )
    made = make_stream(series, prepared.zoning, settings)
    assert isinstance(made, Stream)
    return made


Drawn = Callable[[int, Floats], Floats]


def _zone_findings(base: Stream, twins: list[Stream], place: int, zone: Zone) -> list[Finding]:
    """Return the findings of one zone."""
    disclosure = base.disclosures[place]
    (release,) = base.planned[zone.name]
    streams, values, outputs = NoiseStreams(base.seed), list[Floats](), list[Floats]()

    def draw(block: int, mean: Floats) -> Floats:
        values.append(mean.copy())
        outputs.append(release.apply(mean, partial(streams.stream, zone.key, block + 1, 1)))
        return outputs[-1]

    demand = base._data(zone)
    here = _estimated(disclosure, demand, draw, release)
    noise = np.array(outputs) - np.array(values)
    repeated = noise.size - len(np.unique(noise))
    losses = [
        _loss(disclosure, release, values, outputs, moved)
        for moved in _windows(base, demand, np.random.default_rng(base.seed))
    ]
    paths = [
        path
        for twin in twins
        for path in differences(
            here, _estimated(disclosure, twin._data(zone), _frozen(outputs), release)
        )
    ]
    bare = float((noise == 0.0).sum())
    budget = base.settings.budget.epsilon
    return [
        Finding("stream", zone.name, "loss of a window", max(losses), budget * (1.0 + SLACK)),
        Finding("stream", zone.name, "coordinates without noise", bare, 0.0),
        Finding("stream", zone.name, "draws that share noise", float(repeated), 0.0),
        Finding("public bytes", zone.name, "stream, estimates", float(len(paths)), 0.0),
    ]


def _estimated(
    item: StreamDisclosure, demand: Floats, draw: Drawn, release: Release
) -> TemporalBasis:
    return estimates(item, demand, draw, release.mechanism.variance)


def _frozen(outputs: list[Floats]) -> Drawn:
    return lambda block, _: outputs[block]


def _loss(
    item: StreamDisclosure,
    release: Release,
    values: list[Floats],
    outputs: list[Floats],
    moved: Floats,
) -> float:
    """Return the sum over blocks of distance over noise scale."""
    norm, result = release.sensitivity.norm, [0.0]

    def distance(block: int, mean: Floats) -> Floats:
        result.append(length(mean - values[block], norm) / release.mechanism.scale)
        return outputs[block]

    estimates(item, moved, distance, release.mechanism.variance)
    return sum(result)


def _windows(base: Stream, demand: Floats, generator: np.random.Generator) -> list[Floats]:
    """Return streams that differ at one bus within a window, for every offset to the blocks."""
    units, result = demand.shape[1] // 2, []
    for start in range(WINDOW // 2, WINDOW // 2 + base.block + 1):
        for dp, dq in corners(base.owned.rules.adjacency)[:2]:
            for signs in (np.ones(WINDOW), np.where(generator.random(WINDOW) < 0.5, 1.0, -1.0)):
                moved, unit = demand.copy(), int(generator.integers(units))
                moved[start : start + WINDOW, unit] += dp * signs
                moved[start : start + WINDOW, unit + units] += dq * signs
                result.append(moved)
    return result


def _charges(base: Stream) -> Finding:
    """Compare what is charged over the stream with what is planned."""
    charged: dict[str, Counter[Release]] = {}
    base.draw(lambda owner, releases: charged.setdefault(owner, Counter()).update(releases))
    paths = list(differences(dict(base.planned), charged, "charges"))
    return Finding("stream", "all", "charges that were not planned", float(len(paths)), 0.0)

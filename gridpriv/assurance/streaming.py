"""A stream of the run's demand: every block's release, replayed on neighbouring streams.

public state   block, noise scale and statistics are equal on other demand;
stream         while one bus moves by beta in the hours of a window, wherever it begins and with any
               signs, the losses of all blocks' releases (distance over noise scale) add up to at
               most the budget of a window; each release is charged once; every coordinate gets
               noise, and no two draws share it;
public bytes   with releases frozen, the estimate of every hour is equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from gridpriv.assurance.neighbours import corners
from gridpriv.assurance.public_state import differences
from gridpriv.assurance.replay import Finding
from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError
from gridpriv.grid.overrides import DemandSeries
from gridpriv.power.zone import Zone
from gridpriv.privacy.budget import Budget
from gridpriv.privacy.noise import NoiseStreams
from gridpriv.privacy.release import Release
from gridpriv.privacy.sensitivity import length
from gridpriv.privacy.strategies.temporal_basis import TemporalBasis
from gridpriv.zonal.prepared import Prepared
from gridpriv.zonal.stream import Stream, StreamDisclosure, estimates, make_stream

STREAM_CHECKS = ("stream",)
WINDOW, HOURS = 12, 36
EPSILON = 5.0
ROUNDING = 1e-9


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
        Finding("stream", zone.name, "loss of a window", max(losses), budget * (1.0 + ROUNDING)),
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

"""Continual release: any window costs its total, the filter is causal, and the audit of streams."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gridpriv
from gridpriv.core.errors import InputError
from gridpriv.grid.scenarios import DemandSeries
from gridpriv.privacy.release import Release
from gridpriv.privacy.sensitivity import length
from gridpriv.privacy.temporal import TotalFilter, blocks_of, expected_error, parse_window
from gridpriv.zonal.horizon import make_horizon, stream_estimates

CASE = gridpriv.load_case("case14")


def series(hours: Any) -> DemandSeries:
    curve = 1.0 + 0.15 * np.cos(2.0 * np.pi * (np.array(hours)[:, None] - 18.0) / 24.0)
    return DemandSeries(CASE, tuple(map(str, hours)), curve * CASE.pd, curve * CASE.qd, "made")


def stream(hours: Any = range(72), **given: Any) -> Any:
    zoning = gridpriv.shipped_zoning(CASE)
    assert zoning is not None
    settings = gridpriv.make_settings(**{"stream": "24h", "seed": 1} | given)
    return make_horizon(series(hours), zoning, settings)


def test_windows_are_parsed_and_refused() -> None:
    assert [parse_window(text) for text in ("24h", "day", "year", "6 h")] == [24, 24, 8760, 6]
    for text in ("0h", "fortnight", "-3h", ""):
        with pytest.raises(InputError, match="stream"):
            parse_window(text)
    assert blocks_of(24) == [1, 2, 3, 4, 6, 8, 12, 24]


@pytest.mark.parametrize("block", [1, 2, 3, 4])
def test_no_window_moves_blocks_by_more_than_its_aligned_ones(block: int) -> None:
    """Brute force over all signs: changes of a window in the box norm, w = 12."""
    window, largest = 12, 0.0
    for start in range(block):
        for signs in itertools.product((1.0, -1.0), repeat=6):
            changed = np.zeros(2 * window)
            changed[start : start + window] = np.repeat(signs, window // 6)
            means = changed.reshape(-1, block).mean(axis=1)
            largest = max(largest, length(np.concatenate([means, np.abs(means)]), "box"))
    assert largest == pytest.approx(window / block)


@pytest.mark.parametrize("noise", ["simulated", "secure"])
@pytest.mark.parametrize("block", [1, 2, 8])
def test_the_mean_of_a_block_changes_by_its_sensitivity(block: int, noise: str) -> None:
    """Brute force over the corners of one bus, changed in every hour of the block."""
    made = stream(range(24), noise=noise, seed=None)
    item, zone = replace(made.disclosures[0], block=block), made.owned.zones[0]
    adjacency, norm = made.owned.rules.adjacency, made.owned.rules.noise.norm
    demand, units = made._data(zone), len(zone.own)

    def means(days: Any) -> Any:
        result = []

        def drawn(_: int, mean: Any) -> Any:
            result.append(mean.copy())
            return np.zeros(2)

        stream_estimates(item, days, drawn, 1e-4)
        return np.array(result)

    here, largest = means(demand), 0.0
    for p, q in itertools.product((-adjacency.beta, adjacency.beta), repeat=2):
        adjacent = demand.copy()
        adjacent[:block, [0, units]] += (p, q)
        change = means(adjacent) - here
        assert not change[1:].any()
        largest = max(largest, length(change[0], norm))
    declared = item.sensitivity(adjacency, norm).value
    assert declared * (1.0 - 1e-6) < largest < declared * (1.0 + 1e-12)


def test_no_zone_and_no_block_repeats_the_noise_of_another(monkeypatch: Any) -> None:
    apply, noise = Release.apply, list[float]()

    def recorded(self: Release, value: Any, source: Any) -> Any:
        output = apply(self, value, source)
        noise.extend(np.round((output - value) / self.mechanism.scale, 9).tolist())
        return output

    monkeypatch.setattr(Release, "apply", recorded)
    made = stream()
    made.draw()
    assert len(noise) == 2 * len(made.owned.zones) * made.draws
    assert len(set(noise)) == len(noise)


@pytest.mark.parametrize("total", [1.0, 5.0])
def test_a_window_costs_the_budget(total: float) -> None:
    made = stream(budget=f"total:{total}")
    for planned in made.planned.values():
        ((release, count),) = planned.items()
        assert count == 72 // made.block
        per_window = made.window // made.block
        assert per_window * release.certified.parameter**-1 == pytest.approx(total)
    assert made.costs["total_per_day"] == pytest.approx(total)
    assert made.costs["total_per_year"] == pytest.approx(365.0 * total)


def test_the_block_follows_from_public_data_only() -> None:
    other = series(range(72))
    object.__setattr__(other, "pd", 3.0 * other.pd[:, ::-1])
    zoning = gridpriv.shipped_zoning(CASE)
    assert zoning is not None
    settings = gridpriv.make_settings(stream="24h", seed=1)
    twin, own = make_horizon(other, zoning, settings), stream()
    assert (twin.block, twin.multiplier) == (own.block, own.multiplier)


def test_an_estimate_rests_on_the_releases_until_its_hour() -> None:
    """Demand from hour 40 on changes no estimate before the end of its block."""
    made = stream()
    (item, *_), zone = made.disclosures, made.owned.zones[0]
    demand = made._data(zone)
    later = demand.copy()
    later[40:] *= 3.0

    def plain(block: int, mean: Any) -> Any:
        del block
        return mean

    here, there = (
        stream_estimates(item, d, plain, 1e-4).temporal_coefficients for d in (demand, later)
    )
    difference = np.abs(here - there).max(axis=0)
    ends = (40 // made.block + 1) * made.block - 1
    assert difference[:ends].max() == 0.0
    assert difference[ends:].max() > 0.0


def test_a_missing_hour_is_released_and_charged() -> None:
    hours = [hour for hour in range(72) if hour not in (30, 31)]
    made, charged = stream(hours), []
    known = made.draw(lambda owner, releases: charged.append((owner, releases)))
    assert len(charged) == len(made.disclosures) * (72 // made.block)
    assert known[0].temporal_coefficients.shape == (2, 70)
    assert np.isfinite(known[0].temporal_coefficients).all()


def test_filtered_estimates_are_as_good_as_expected() -> None:
    """Root mean square error over streams drawn from the model, against the filter's own."""
    block, noise, level, spread = 4, 2.0, 10.0, 3.0
    generator, errors = np.random.default_rng(5), []
    for _ in range(15):
        truth, filter_ = TotalFilter(level, spread), TotalFilter(level, spread)
        factor = np.linalg.cholesky(truth._covariance[:-1, :-1] + 1e-12 * np.eye(8))
        truth._state[:-1] += factor @ generator.standard_normal(8)
        parts = np.sqrt(np.diag(truth._noise))
        for hour in range(28 * 24):
            truth.advance(hour)
            truth._state[:-1] += parts * generator.standard_normal(8)
            truth._state[-1] += float(truth._row @ (truth._state[:-1])) - truth.expected
            filter_.advance(hour)
            if (hour + 1) % block == 0:
                mean = _block_mean(truth, block)
                filter_.observe(mean + noise * generator.standard_normal(), block, noise**2)
            if hour >= 14 * 24:
                errors.append(filter_.expected - truth.expected)
    stated = expected_error(level, spread, block, noise**2)
    assert 0.6 * stated < float(np.sqrt(np.mean(np.square(errors)))) < 1.4 * stated


def _block_mean(truth: TotalFilter, block: int) -> float:
    mean = float(truth._state[-1]) / block
    truth._state[-1] = 0.0
    return mean


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"mechanism": "staircase"}, "mechanism"),
        ({"release": "bus"}, "release"),
        ({"noise_schedule": "round"}, "perturbation"),
        ({"budget": "per-release:1"}, "budget"),
        ({"power_factor": "0.9..1"}, "power_factor"),
    ],
)
def test_noise_that_a_stream_cannot_have_is_refused(given: Any, field: str) -> None:
    with pytest.raises(InputError, match=field):
        stream(**given)


def test_a_run_of_one_step_has_no_stream() -> None:
    zoning = gridpriv.shipped_zoning(CASE)
    assert zoning is not None
    with pytest.raises(InputError, match="stream"):
        gridpriv.run(CASE, zoning, gridpriv.make_settings(stream="24h"))


def test_hours_must_ascend() -> None:
    with pytest.raises(InputError, match="ascending"):
        stream([0, 2, 1])

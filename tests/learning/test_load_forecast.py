"""Forecasts of demand: sensitivities by brute force, a least-squares reference, the file."""

from __future__ import annotations

import itertools
import json
import math
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

from gridpriv.cli.main import main
from gridpriv.core.errors import GridprivWarning, InputError
from gridpriv.grid.library import load_case, zoning_of
from gridpriv.grid.scenarios import DemandSeries, read_demand_series
from gridpriv.learning import forecast as forecast_module
from gridpriv.learning.forecast import (
    MOST_SHAPE,
    Forecast,
    History,
    _risk,
    _sampled,
    calendar,
    correlated_steps,
    following,
    forecast_demand,
    mape,
    orthonormal,
    pinball_loss,
    recency,
    shape_sensitivity,
    zone_releases,
)
from gridpriv.power.prior import public_demand, zone_prior
from gridpriv.power.zone import make_network, make_zones
from gridpriv.privacy.release import Release
from gridpriv.study.forecast import DemandForecast, Forecasting, seasonal_steps

TIMES = [stamp.isoformat() for stamp in pd.date_range("2026-03-01", periods=21 * 24, freq="h")]
AHEAD = 48
RECENT = recency(TIMES)


def histories(seed=1, sizes=(4, 3)):
    """Zones whose buses follow the calendar, with a deviation per hour."""
    random = np.random.default_rng(seed)
    shape = 1.0 + 0.3 * np.sin(2 * np.pi * np.arange(len(TIMES)) / 24)
    made = []
    for z, count in enumerate(sizes):
        noise = 1.0 + 0.02 * random.normal(size=(len(TIMES), count))
        p = random.uniform(20.0, 60.0, count) * shape[:, None] * noise
        made.append(History(f"zone {z}", p, 0.3 * p))
    return made


def cut(whole, first, last):
    return [History(h.zone, h.p[first:last], h.q[first:last]) for h in whole]


def test_without_noise_it_is_least_squares_on_the_calendar():
    features, train = calendar(TIMES), len(TIMES) - AHEAD
    whole, weights = histories(), recency(TIMES[:train])
    assert weights.sum() == pytest.approx(1.0)
    assert weights[-1] / weights[-1 - 7 * 24] == pytest.approx(2.0)  # halved in a week
    forecast = forecast_demand(
        cut(whole, 0, train), features[:train], features[train:], weights, epsilon=math.inf, beta=1
    )
    for z, item in enumerate(whole):
        total = item.p.sum(axis=1)
        reference = LinearRegression().fit(features[:train], total[:train], weights)
        np.testing.assert_allclose(
            forecast.zone_mean[z], reference.predict(features[train:]), rtol=1e-6
        )
        assert mape(total[train:], forecast.zone_mean[z]) < 3.0
        low, high = (forecast.quantile(level)[z] for level in (0.05, 0.95))
        inside = (total[train:] > low) & (total[train:] < high)
        assert inside.mean() > 0.8
    assert forecast.releases == {"zone 0": (), "zone 1": ()}


@pytest.mark.parametrize("count", [1, 2, 5, 9, 15])
def test_no_change_of_a_bus_moves_the_shape_further_than_is_stated(count):
    random = np.random.default_rng(2)
    past, weights = random.normal(size=(60, count)), random.dirichlet(np.ones(60))
    dependent = np.hstack([past, past @ np.ones((count, 1))])
    features, _ = orthonormal(dependent, dependent, weights)
    assert features.shape[1] == count  # a sum of others is left out
    bound = shape_sensitivity(features, weights)
    for _ in range(200):
        # the worst changes are at their bounds: the signs of a combination of features
        change = np.sign(features @ np.sign(random.normal(size=features.shape[1])))
        distance = np.abs(features.T @ (weights * change)).sum()
        assert distance <= bound * (1 + 1e-12)
    assert bound <= (0.95 if count == 15 else 1 + 1e-12) * math.sqrt(count)
    assert features.T @ (weights[:, None] * features) == pytest.approx(np.eye(count), abs=1e-9)


@pytest.mark.parametrize("worst", [1.0, -1.0])
@pytest.mark.parametrize("block", [64, forecast_module.BLOCK])
def test_the_sensitivity_of_a_shape_is_the_largest_over_all_signs(block, worst, monkeypatch):
    """Signs are enumerated in blocks; in one of the two cases the last block has the worst."""
    monkeypatch.setattr(forecast_module, "BLOCK", block)
    random, count = np.random.default_rng(4), 8
    weights = random.dirichlet(np.ones(60))
    features = np.abs(random.normal(size=(60, count)))  # so all signs of the worst are equal
    features[:, 1:] *= worst
    distances = [
        np.abs(features.T @ (weights * np.sign(features @ np.array(signs)))).sum()
        for signs in itertools.product((1.0, -1.0), repeat=count)
    ]
    assert shape_sensitivity(features, weights) == pytest.approx(max(distances), rel=1e-12)


def test_every_release_moves_by_no_more_than_its_distance(monkeypatch):
    """Replay on adjacent data: one bus changes by beta in every step."""
    beta, seen = 2.0, []
    whole = histories()
    signs = np.sign(np.random.default_rng(3).normal(size=len(TIMES)))
    p, q = whole[0].p.copy(), whole[0].q.copy()
    p[:, 1] += beta * signs
    q[:, 1] -= beta * signs
    neighbour = [History("zone 0", p, q), whole[1]]

    def watch(release, values, stream):
        seen.append((release, values.copy()))
        return values + release.mechanism.scale * stream().laplace(size=values.shape)

    monkeypatch.setattr(Release, "apply", watch)
    features, zones = calendar(TIMES), []
    for data in (whole, neighbour):
        # the spread is compared at one forecast: releases before it are the same by assumption
        forecast_demand(
            data,
            features,
            features[:5],
            RECENT,
            epsilon=1e9,
            beta=beta,
            charge=lambda zone, _: zones.append(zone),
        )
    half = len(seen) // 2
    assert zones[:half] == zones[half:]
    for zone, (release, each), (_, other) in zip(
        zones[:half], seen[:half], seen[half:], strict=True
    ):
        if zone == "zone 1":
            continue
        gap = np.abs(each - other)
        norm = gap.sum()
        if release.mechanism.norm == "box":
            norm = gap.reshape(2, -1).max(axis=0).sum()
        assert norm <= release.sensitivity.value * (1 + 1e-6)


def test_under_secure_noise_the_rounding_of_sums_is_charged(monkeypatch):
    """Sums of 504 hours in floating point may change by more than a small beta."""
    beta = 2.0**-30
    exact = [
        History(h.zone, *(np.round(part * 2.0**40) / 2.0**40 for part in (h.p, h.q)))
        for h in histories(sizes=(40, 3))
    ]
    features, values, answers = calendar(TIMES), [], []

    def watch(release, value, _):
        values.append((release, value.copy()))
        if len(values) > len(answers):  # compared after the same releases
            answers.append(value + release.mechanism.scale)
        return answers[len(values) - 1]

    monkeypatch.setattr(Release, "apply", watch)

    def measured(data):
        values.clear()
        zones = []
        forecast_demand(
            data,
            features,
            features[:5],
            RECENT,
            epsilon=1.0,
            beta=beta,
            source="secure",
            charge=lambda zone, _: zones.append(zone),
        )
        return [entry for zone, entry in zip(zones, values, strict=True) if zone == "zone 0"]

    own, changed = measured(exact), []
    signs = np.sign(features @ np.random.default_rng(4).normal(size=features.shape[1]))
    for bus, change in [*((bus, np.ones(len(TIMES))) for bus in range(6)), (7, signs)]:
        p, q = exact[0].p.copy(), exact[0].q.copy()
        p[:, bus] += beta * change
        q[:, bus] -= beta * change
        for (release, entry), (_, other) in zip(
            own, measured([History("zone 0", p, q), exact[1]]), strict=True
        ):
            gap = np.abs(entry - other)
            norm = gap.max() if release.mechanism.norm == "box" else gap.sum()
            assert norm <= release.sensitivity.value
            changed.append((release == own[0][0], norm / beta))
    assert max(ratio for of_buses, ratio in changed if of_buses) > 1.0  # rounding does move them
    assert all("with rounding" in release.sensitivity.bound_source for release, _ in own)


def test_releases_add_up_to_the_total_and_are_charged_before_they_are_drawn():
    features, charged = calendar(TIMES), []
    forecast = forecast_demand(
        histories(),
        features,
        features[:3],
        RECENT,
        epsilon=0.5,
        beta=1.0,
        charge=lambda zone, release: charged.append((zone, release)),
    )
    for zone in ("zone 0", "zone 1"):
        own = [release for name, release in charged if name == zone]
        assert tuple(own) == forecast.releases[zone]
        total = sum(r.sensitivity.value / r.mechanism.scale for r in own)
        assert total == pytest.approx(0.5)
        assert sorted(r.mechanism.scale for r in own) == pytest.approx(
            sorted(
                r.mechanism.scale
                for r in zone_releases(features, RECENT, 0.5, 1.0, "simulated").values()
            )
        )

    def refuse(*_):
        raise InputError("over budget")

    with pytest.raises(InputError, match="over budget"):
        forecast_demand(
            histories(), features, features, RECENT, epsilon=1.0, beta=1.0, charge=refuse
        )


def test_zones_of_one_shape_are_forecast_alike_under_noise():
    """Zones differ by noise only: shapes are pooled, and the seasonal drift remains."""
    days = np.arange(len(TIMES)) / 24.0
    shape = 1.0 + 0.02 * (days - 10.0) * np.cos(2 * np.pi * days)
    whole = [History(f"zone {z}", *np.full((2, len(TIMES), 20), 40.0)) for z in range(3)]
    whole = [History(h.zone, h.p * shape[:, None], 0.3 * h.p) for h in whole]
    train = len(TIMES) - AHEAD
    features = calendar(TIMES)
    actual = np.array([h.p.sum(axis=1) for h in whole])[:, train:]
    for seed in range(3):
        predicted = forecast_demand(
            cut(whole, 0, train),
            features[:train],
            features[train:],
            recency(TIMES[:train]),
            epsilon=0.5,
            beta=1.0,
            seed=seed,
        )
        ratio = predicted.zone_mean / predicted.zone_mean.mean(axis=1, keepdims=True)
        assert np.abs(ratio / ratio.mean(axis=0) - 1.0).max() < 0.05
        assert mape(actual, predicted.zone_mean) < 8.0


@pytest.mark.parametrize(("epsilon", "beta"), [(0.5, 5.0), (5.0, 1.0)])
def test_bands_cover_the_demand_that_follows_under_noise(epsilon, beta):
    """Noise in the coefficients of shapes dominates at the first budget, the residual at the other.

    Days have an evening peak, week-ends less demand, and zones differ in both.
    """
    covered, train = [], len(TIMES) - AHEAD
    days, features = pd.DatetimeIndex(TIMES), calendar(TIMES)
    for seed in range(12):
        random = np.random.default_rng(seed)
        whole = []
        for z in range(2):
            daily, late = random.uniform(0.15, 0.35), random.uniform(0.0, 0.1)
            hour = 2 * np.pi * days.hour.to_numpy() / 24
            shape = 1.0 - daily * np.cos(hour - 1.0) + late * np.cos(2 * hour)
            shape *= np.where(days.dayofweek >= 5, random.uniform(0.8, 0.95), 1.0)
            noise = 1.0 + 0.05 * random.normal(size=(len(TIMES), 4))
            p = random.uniform(50.0, 300.0, 4) * shape[:, None] * noise
            whole.append(History(f"zone {z}", p, 0.3 * p))
        forecast = forecast_demand(
            cut(whole, 0, train),
            features[:train],
            features[train:],
            recency(TIMES[:train]),
            epsilon=epsilon,
            beta=beta,
            seed=seed,
        )
        actual = np.array([item.p.sum(axis=1) for item in whole])[:, train:]
        low, high = forecast.quantile(0.05), forecast.quantile(0.95)
        covered.append(((low < actual) & (actual < high)).mean())
    assert 0.8 < np.mean(covered) < 0.98


@pytest.mark.parametrize(("days", "most"), [(7, 0.99), (28, 0.94)])
def test_bands_cover_the_demand_after_a_short_history_without_noise(days, most):
    """Deviations from the daily wave halve in three hours, so a week has few that are independent.

    A week determines 12 parameters, and the residuals of their fit are smaller than later errors.
    """
    covered, steps = [], days * 24
    times = [
        step.isoformat() for step in pd.date_range("2026-03-02", periods=672 + AHEAD, freq="h")
    ]
    features, hour = calendar(times[: steps + AHEAD]), np.arange(steps + AHEAD) / 24
    for seed in range(30):
        random = np.random.default_rng(seed)
        deviation = np.zeros(steps + AHEAD)
        for t in range(1, len(deviation)):
            deviation[t] = 0.8 * deviation[t - 1] + 0.03 * random.normal()
        demand = 100.0 * (1.0 - 0.2 * np.cos(2 * np.pi * hour) + deviation)[:, None]
        forecast = forecast_demand(
            cut([History("zone 0", demand, 0.3 * demand)], 0, steps),
            features[:steps],
            features[steps:],
            recency(times[:steps]),
            epsilon=math.inf,
            beta=1.0,
            correlated=correlated_steps(times),
        )
        low, high = forecast.quantile(0.05)[0], forecast.quantile(0.95)[0]
        actual = demand[steps:, 0]
        covered.append(((low < actual) & (actual < high)).mean())
    assert 0.86 < np.mean(covered) < most


def test_bands_cover_the_demand_of_zones_with_the_same_weather_under_noise():
    """Estimates of shapes are shrunk to the mean of zones, which has the zones' common residual."""
    covered, steps = [], 7 * 24
    times = [step.isoformat() for step in pd.date_range("2026-03-02", periods=216, freq="h")]
    features, hour = calendar(times), np.arange(216) / 24
    for seed in range(40):
        random = np.random.default_rng(seed)
        weather = np.zeros(216)
        for t in range(1, 216):
            weather[t] = 0.8 * weather[t - 1] + 0.03 * random.normal()
        shape = 1.0 - 0.2 * np.cos(2 * np.pi * hour) + weather
        zones = [random.uniform(50.0, 300.0, 4) * shape[:, None] for _ in range(3)]
        forecast = forecast_demand(
            [History(f"zone {z}", p[:steps], 0.3 * p[:steps]) for z, p in enumerate(zones)],
            features[:steps],
            features[steps:],
            recency(times[:steps]),
            epsilon=5.0,
            beta=1.0,
            correlated=correlated_steps(times),
            seed=seed,
        )
        actual = np.array([p[steps:].sum(axis=1) for p in zones])
        low, high = forecast.quantile(0.05), forecast.quantile(0.95)
        covered.append(((low < actual) & (actual < high)).mean())
    assert 0.87 < np.mean(covered) < 0.99


def test_the_band_of_a_constant_demand_includes_the_error_of_its_mean():
    """A new value differs from the mean of T by s^2 (1 + 1/T), s^2 = sum r^2 / (T - 1)."""
    steps, weights = 8, np.full(8, 1 / 8)
    demand = 100.0 + 10.0 * (-1.0) ** np.arange(steps)[:, None]
    constant = np.ones((steps, 1))
    forecast = forecast_demand(
        [History("zone 0", demand, 0.3 * demand)],
        constant,
        constant[:1],
        weights,
        epsilon=math.inf,
        beta=1.0,
    )
    variance = (10.0 / math.sqrt(2.0 / math.pi)) ** 2 * 8 / 7  # from the mean absolute deviation
    assert forecast.zone_spread[0, 0] ** 2 == pytest.approx(variance * (1 + 1 / 8))


def test_the_error_of_a_coefficient_that_is_half_kept_is_that_of_half_the_residuals():
    random, weights = np.random.default_rng(5), np.full(200, 1 / 200)
    feature, _ = orthonormal(random.normal(size=(200, 1)), np.ones((1, 1)), weights)
    residuals = random.normal(size=(20_000, 200))
    sampling = weights**2 @ feature**2, float(weights @ weights)
    left = 1.0 - sampling[0].sum() - sampling[1]  # so that residuals of the history have E[r^2] = 1
    _, (error,) = _sampled(left, 0.0, np.zeros(1), np.array([0.5]), sampling)
    assert error == pytest.approx((0.5 * residuals @ (weights[:, None] * feature)).var(), rel=0.05)


@pytest.mark.parametrize("mean", [0.5, -50.0])
def test_without_noise_a_small_or_negative_demand_is_least_squares_too(mean):
    """The mean is below beta, the protected change; embedded generation is negative demand."""
    features, hour = calendar(TIMES), np.arange(len(TIMES)) / 24
    demand = (mean + 0.2 * np.cos(2 * np.pi * hour))[:, None]
    history = [History("zone 0", demand, 0.3 * demand)]
    forecast = forecast_demand(history, features, features[:24], RECENT, epsilon=math.inf, beta=1.0)
    np.testing.assert_allclose(forecast.zone_mean[0], demand[:24, 0], rtol=1e-9)


@pytest.mark.parametrize(("minutes", "steps"), [(15, 24.0), (60, 6.0), (1440, 1.0)])
def test_six_hours_of_deviations_count_as_one_observation(minutes, steps):
    times = pd.date_range("2026-03-02", periods=4, freq=f"{minutes}min")
    assert correlated_steps([step.isoformat() for step in times]) == pytest.approx(steps)


def test_the_error_of_a_shrunk_coefficient_is_that_of_draws_of_its_prior():
    """Monte Carlo: coefficients of the horseshoe prior, observed with noise near a given value."""
    random, variance = np.random.default_rng(4), 0.01
    scale = 0.1 * np.abs(np.tan(np.pi * random.uniform(size=4_000_000) / 2))
    theta = scale[scale < MOST_SHAPE] * random.normal(size=(scale < MOST_SHAPE).sum())
    seen = theta + 0.1 * random.normal(size=len(theta))
    for estimate, factor in ((0.02, 0.0), (0.15, 0.55), (0.4, 0.94)):
        near = np.abs(seen - estimate) < 0.005
        (risk,) = _risk(np.array([estimate]), variance, np.array([factor]))
        assert ((theta[near] - factor * seen[near]) ** 2).mean() == pytest.approx(risk, rel=0.05)


def test_more_budget_errs_less():
    features, whole = calendar(TIMES), histories(sizes=(6, 6))
    errors = []
    for epsilon in (0.05, 1.0, 50.0):
        runs = [
            forecast_demand(whole, features, features, RECENT, epsilon=epsilon, beta=1.0, seed=seed)
            for seed in range(5)
        ]
        actual = np.array([item.p.sum(axis=1) for item in whole])
        errors.append(np.mean([mape(actual, run.zone_mean) for run in runs]))
    assert errors[0] > errors[1] > errors[2]


def test_the_pinball_loss_is_that_of_scikit_learn():
    from sklearn.metrics import mean_pinball_loss

    random = np.random.default_rng(4)
    y, low, high = random.normal(size=(3, 50))
    own = pinball_loss(y, {0.1: low, 0.8: high})
    both = mean_pinball_loss(y, low, alpha=0.1), mean_pinball_loss(y, high, alpha=0.8)
    assert own == pytest.approx(np.mean(both))


def test_a_missing_day_is_named():
    times = TIMES[:48] + TIMES[72:]
    with pytest.raises(InputError, match="equal steps: 2026-03-04T00:00:00 follows 2026-03-02T23"):
        calendar(times)
    with pytest.raises(InputError, match="dates and times"):
        calendar(["one", "two"])


@pytest.mark.parametrize(
    ("times", "words"),
    [
        (["2026-03-29T01:00", "2026-03-29T02:00+01:00"], "all have a UTC offset, or none"),
        (["2026-03-29T01:00", "31/03/2026 02:00"], "got '31/03/2026 02:00'"),
        (["2026-03-29T01:00", "NaT"], "got 'NaT'"),
    ],
)
def test_steps_of_other_formats_and_some_without_an_offset_are_refused(times, words):
    with pytest.raises(InputError, match=words) as refused:
        calendar(times)
    assert "format=" not in str(refused.value)  # advice of pandas to programmers


def clock_times(first, last):
    """Return the hours of a zone with daylight saving time, with their UTC offsets."""
    hours = pd.date_range(first, last, freq="h", tz="Europe/Berlin", inclusive="left")
    return [hour.isoformat() for hour in hours]


@pytest.mark.parametrize(
    ("days", "hours"), [(("2026-03-27", "2026-04-01"), 119), (("2026-10-23", "2026-10-28"), 121)]
)
def test_clocks_may_change_in_a_history_with_utc_offsets(days, hours):
    """Features are those of the local hour and day; a step is an hour of absolute time."""
    times = clock_times(*days)
    assert len(times) == hours
    features = calendar(times)
    local = np.array([int(time[11:13]) for time in times])
    np.testing.assert_allclose(features[:, 0], np.cos(2 * np.pi * local / 24), atol=1e-12)
    saturdays = [pd.Timestamp(time[:10]).dayofweek >= 5 for time in times]
    np.testing.assert_array_equal(features[:, 6], saturdays)
    ages = np.log2(recency(times)[-1] / recency(times)) * 7 * 24
    np.testing.assert_allclose(ages, np.arange(hours)[::-1], atol=1e-9)
    assert following(times, 1) == [clock_times(days[1], f"{days[1]}T01:00")[0]]


@pytest.mark.parametrize(
    ("days", "first"), [(("2026-03-20", "2026-04-03"), 311), (("2026-10-16", "2026-10-30"), 313)]
)
def test_the_seasonal_naive_forecast_is_of_the_same_local_time(days, first):
    times = clock_times(*days)
    assert len(times) - 24 == first
    for step, before in enumerate(seasonal_steps(times, first), start=first):
        now, then = (pd.Timestamp(times[at][:19]) for at in (step, before))
        assert now - then == pd.Timedelta(days=7)
    plain = [time[:19] for time in clock_times("2026-05-01", "2026-05-15")]
    np.testing.assert_array_equal(seasonal_steps(plain, 200), np.arange(32, 168))


@pytest.mark.parametrize(
    ("history", "end", "warned"),
    [
        (("2026-10-23", "2026-10-28"), "2027-02-20", False),
        (("2026-10-23", "2026-10-28"), "2027-03-29", True),
        (("2026-10-26", "2026-10-28"), "2027-03-29", False),  # perhaps clocks do not change there
    ],
)
def test_a_forecast_up_to_the_next_change_of_clocks_is_warned_of(history, end, warned):
    """Clocks change on 28 March 2027 again: from then on the local hour is one later."""
    times, ahead = clock_times(*history), clock_times(history[1], end)
    expected = pytest.warns(GridprivWarning, match=r"offset \+01:00") if warned else nullcontext()
    with expected:
        steps = following(times, len(ahead))
    assert (steps == ahead) == (end < "2027-03-28")


def test_a_local_history_over_a_change_of_clocks_is_refused_with_what_to_do(tmp_path):
    spring = [time[:19] for time in clock_times("2026-03-28", "2026-03-30")]
    with pytest.raises(InputError, match=r"2026-03-29T03:00:00 follows .*T01:00:00, .*UTC offset"):
        calendar(spring)
    path = tmp_path / "autumn.csv"
    autumn = "".join(f"{t[:16]},1\n" for t in clock_times("2026-10-25", "2026-10-26"))
    path.write_text(f"step,load_scale\n{autumn}", encoding="utf-8")
    with pytest.raises(InputError, match=r"step 2026-10-25T02:00 is repeated .* UTC offset"):
        read_demand_series(path, load_case("case14"))
    path.write_text("step,load_scale\n1,1\n1,1\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"leave one of the lines out$"):
        read_demand_series(path, load_case("case14"))


def write_history(path, case, steps, times=TIMES):
    shape = 1.0 + 0.2 * np.sin(2 * np.pi * np.arange(steps) / 24)
    rows = [
        {"step": times[t], "bus": bus, "pd_mw": p * shape[t], "qd_mvar": q * shape[t]}
        for t in range(steps)
        for bus, p, q in zip(case.bus_id, 100 * case.pd, 100 * case.qd, strict=True)
    ]
    pd.DataFrame(rows).to_csv(path, index=False)


def test_the_command_writes_a_public_demand_file_and_charges_the_ledger_of_run(tmp_path, capsys):
    case = load_case("case14")
    history, out = tmp_path / "history.csv", tmp_path / "forecast.csv"
    write_history(history, case, 96)
    ledger = str(tmp_path / "ledger.db")
    grant = ["ledger", "grant", ledger, "--case", "case14", "--total", "1", "--quiet"]
    assert main(grant) == 0
    capsys.readouterr()
    command = [
        "learn",
        "forecast",
        "case14",
        "--history",
        str(history),
        "--total",
        "0.8",
        "--steps",
        "3",
        "--ledger",
        ledger,
        "--out",
        str(out),
    ]
    assert main([*command, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["privacy"]["total_pure"] == pytest.approx(0.8)
    assert isinstance(document["seed"], int)
    assert [len(zone["mean_mw"]) for zone in document["zones"]] == [3] * len(document["zones"])
    # what is left does not allow another
    assert main(command) == 4
    table = pd.read_csv(out)
    assert set(table["bus"]) == set(case.bus_id)
    step = table["step"].iloc[0]
    prior = public_demand(case, f"{out}@{step}")
    first = table[table["step"] == step].set_index("bus")
    np.testing.assert_allclose(
        case.base_mva * prior.mean[0], first.loc[case.bus_id, "pd_mw"], rtol=1e-6
    )
    zone = zoning_of(case, None, None).members[0]
    assert prior.spread_of(zone) == pytest.approx(
        first.loc[case.bus_id[zone], "zone_spread"].mean(), rel=1e-6
    )
    capsys.readouterr()
    assert public_demand(case, out).spread > 0
    assert "forecast.csv has 3 steps, and none is chosen: the expected demand is their mean" in (
        " ".join(capsys.readouterr().err.split())
    )
    assert main(["run", "case14", "--public-demand", f"{out}@never", "--dry-run"]) == 2
    refused = capsys.readouterr().err
    assert refused.startswith("gridpriv run: --public-demand ")
    assert f"must be FILE@STEP with STEP one of {step}, " in refused


@pytest.mark.filterwarnings("ignore:public demand:gridpriv.core.errors.GridprivWarning")
@pytest.mark.parametrize("means", [(0.0, 2.0, 0.5), (1e-12, 1e-13, 0.0), (0.0, 0.0, 0.0)])
def test_a_forecast_of_no_demand_is_read_with_its_standard_deviation(tmp_path, means):
    case = load_case("case14")
    zoning = zoning_of(case, None, None)
    sizes = [len(members) for members in zoning.members]
    level = np.repeat(np.array(means) / sizes, sizes)[None, None, :]
    zone_mean, std = np.array(means)[:, None], np.array([[0.7], [0.2], [40.0]])
    half = np.repeat([level], 2, axis=0).reshape(2, 1, -1)
    result = Forecast(half, np.ones_like(half), zone_mean, std, {}, math.inf)
    out = tmp_path / "forecast.csv"
    series = DemandSeries(case, ("0",), case.pd[None], case.qd[None], "history")
    made = DemandForecast(Forecasting(), series, zoning, ["1"], result)
    made.table().to_csv(out, index=False)
    expected = public_demand(case, f"{out}@1")
    assert public_demand(case, out).spread > 0
    if any(means):
        priors = [zone_prior(zone, expected) for zone in make_zones(make_network(case), zoning)]
        np.testing.assert_allclose([prior.spread[0] for prior in priors], std[:, 0], rtol=1e-6)


def forecast_command(history, *more):
    return main(["learn", "forecast", "case14", "--history", str(history), "--json", *more])


def refusal(capsys, history, *more):
    assert forecast_command(history, *more) == 2
    return " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("format", "step", "first"),
    [
        ("%Y-%m-%dT%H:%M", "h", "2026-03-03T00:00:00"),
        ("%Y-%m-%d %H:%M", "h", "2026-03-03T00:00:00"),
        ("%Y-%m-%dT%H:%MZ", "h", "2026-03-03T00:00:00+00:00"),
        ("%Y-%m-%dT%H:%M+01:00", "h", "2026-03-03T00:00:00+01:00"),
        ("%Y-%m-%d", "D", "2026-04-18T00:00:00"),
    ],
)
def test_steps_of_any_iso_8601_format_are_continued(tmp_path, capsys, format, step, first):
    history, weather = tmp_path / "history.csv", tmp_path / "weather.csv"
    stamps = pd.date_range("2026-03-01", periods=52, freq=step)
    write_history(history, load_case("case14"), 48, stamps.strftime(format))
    table = pd.DataFrame({"step": stamps.strftime(format), "celsius": np.arange(52.0)})
    table.to_csv(weather, index=False)
    assert forecast_command(history, "--steps", "4", "--weather", str(weather)) == 0
    assert json.loads(capsys.readouterr().out)["steps"][0] == first


@pytest.mark.parametrize(("freq", "per_week"), [("15min", 672), ("h", 168), ("D", 7)])
def test_the_naive_forecast_is_the_demand_of_a_week_ago(tmp_path, capsys, freq, per_week):
    count = per_week + 12
    times = [t.isoformat() for t in pd.date_range("2026-03-01", periods=count, freq=freq)]
    shape = 1.0 + 0.01 * (np.arange(count) % per_week)
    pd.DataFrame({"step": times, "load_scale": shape}).to_csv(tmp_path / "h.csv", index=False)
    assert forecast_command(tmp_path / "h.csv", "--test-steps", "12", "--total", "inf") == 0
    tested = json.loads(capsys.readouterr().out)["test"]
    assert [row["naive_mape"] for row in tested] == pytest.approx([0.0] * len(tested), abs=1e-9)


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ({"step": ["one", "two"], "celsius": [1.0, 2.0]}, "got 'one'"),
        ({"step": TIMES[:49], "celsius": ["cold"] * 49}, "finite numbers"),
        ({"step": TIMES[:40], "celsius": np.arange(40.0)}, "misses 9 steps, such as"),
        ({"step": [*TIMES[:49], TIMES[0]], "celsius": np.arange(50.0)}, "more than once"),
    ],
)
def test_a_bad_weather_file_is_refused(tmp_path, capsys, column, words):
    history, weather = tmp_path / "history.csv", tmp_path / "weather.csv"
    write_history(history, load_case("case14"), 48)
    pd.DataFrame(column).to_csv(weather, index=False)
    assert words in refusal(capsys, history, "--steps", "1", "--weather", str(weather))


@pytest.mark.parametrize("of_weather", [False, True])
def test_weather_with_and_a_history_without_utc_offsets_are_refused(tmp_path, capsys, of_weather):
    history, weather = tmp_path / "history.csv", tmp_path / "weather.csv"
    with_offset = [f"{time}+01:00" for time in TIMES[:49]]
    given = (TIMES, with_offset) if of_weather else (with_offset, TIMES[:49])
    write_history(history, load_case("case14"), 48, given[0])
    pd.DataFrame({"step": given[1], "celsius": np.arange(49.0)}).to_csv(weather, index=False)
    words = refusal(capsys, history, "--steps", "1", "--weather", str(weather))
    owners = ["the weather's steps", "the history's"][:: 1 if of_weather else -1]
    assert "{} have UTC offsets and {} have none; give both".format(*owners) in words


@pytest.mark.parametrize("total", ["1e-300", "1e-150", "1e-13", "1e7", "0", "nan"])
def test_totals_beyond_the_range_of_run_are_refused(tmp_path, capsys, total):
    words = refusal(capsys, tmp_path / "any.csv", "--total", total)
    assert "must be from 1e-12 to 1e+06, or inf" in words


@pytest.mark.parametrize("total", ["1e-12", "1e6", "inf"])
def test_totals_at_the_ends_of_the_range_are_finite_forecasts(tmp_path, capsys, total):
    history = tmp_path / "history.csv"
    write_history(history, load_case("case14"), 48)
    assert forecast_command(history, "--steps", "1", "--total", total) == 0
    zones = json.loads(capsys.readouterr().out)["zones"]
    assert np.isfinite([zone["mean_mw"] for zone in zones]).all()


def test_too_many_steps_and_too_short_histories_are_refused(tmp_path, capsys):
    history, case = tmp_path / "history.csv", load_case("case14")
    words = refusal(capsys, history, "--steps", "99999999")
    assert "--steps 99999999: must be a whole number from 1 to 100000" in words
    days = pd.date_range("2026-03-01", periods=2, freq="D").strftime("%Y-%m-%d")
    write_history(history, case, 1, days)
    assert "has 1 step: a forecast needs at least two" in refusal(capsys, history)
    write_history(history, case, 2, days)
    words = refusal(capsys, history, "--steps", "100000")
    assert "--steps 100000: must be so few that the forecast ends before 2262" in words

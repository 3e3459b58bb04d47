"""Forecast of a grid's demand from its history, which later runs read as public demand."""

from __future__ import annotations

import math
import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from gridpriv.core.errors import InputError, not_allowed
from gridpriv.core.settings import Part, changed, choice, count, number
from gridpriv.core.text import Json, counted, json_ready
from gridpriv.privacy.adjacency import Beta, DemandAdjacency
from gridpriv.privacy.linear import LEAST_SHARE
from gridpriv.privacy.settings import LEAST_EPSILON, MOST_EPSILON, Noise, Privacy
from gridpriv.zonal.settings import Adjacency

if TYPE_CHECKING:
    import pandas as pd

    from gridpriv.core.arrays import Floats, Ints
    from gridpriv.grid.case import Case
    from gridpriv.grid.scenarios import DemandSeries
    from gridpriv.grid.zoning import Zoning
    from gridpriv.learning.forecast import Forecast

DAY = 24
MOST_STEPS = 100_000
"""Steps of a forecast: more than 11 years of hours."""
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Levels of the quantiles of a zone's demand in a forecast."""


def _epsilon_or_infinite(name: str, value: float) -> None:
    if not (LEAST_EPSILON <= value <= MOST_EPSILON or value == math.inf):
        raise not_allowed(name, value, f"from {LEAST_EPSILON:g} to {MOST_EPSILON:g}, or inf")


@dataclass(frozen=True, kw_only=True)
class Forecasting(Part):
    """Forecast of zones' demand, and its noise."""

    total: float = number(
        0.2, "total epsilon (pure DP) of a zone's releases; inf: no noise", _epsilon_or_infinite
    )
    beta: Beta = changed(
        Adjacency,
        "beta",
        Beta(1.0, "MW"),
        help="protected change of one bus's demand in every step",
    )
    noise: Noise = changed(
        Privacy,
        "noise",
        "simulated",
        help="source of the noise: simulated (repeatable, no privacy) or secure (entropy of the "
        "operating system)",
    )
    model: str = choice("linear", ("linear", "network"), "linear model or neural network")
    steps: int = count(DAY, "steps ahead", most=MOST_STEPS)
    test_steps: int = count(
        0,
        "number of last steps held out to test the forecast; for the data owner only",
        least=0,
    )
    seed: int | None = count(None, "seed of simulated noise", least=0, unset="drawn and printed")


@dataclass(frozen=True, eq=False)
class DemandForecast:
    """Demand of every zone in the steps after a history, or in its last ones.

    Attributes
    ----------
    settings : Forecasting
        With the seed, drawn if none was given.
    series : DemandSeries
        The history, including the test steps at its end.
    times : list of str
        Steps ahead.
    forecast : Forecast
        In per unit.
    """

    settings: Forecasting
    series: DemandSeries
    zoning: Zoning
    times: list[str]
    forecast: Forecast

    @cached_property
    def quantiles(self) -> dict[float, Floats]:
        """Quantiles of the zones' demand (zones, steps) in MW, by level."""
        base = self.series.case.base_mva
        return {q: self.forecast.quantile(q) * base for q in QUANTILES}

    def table(self) -> pd.DataFrame:
        """Return the rows of a ``--public-demand`` file.

        The spread of a zone whose mean is near 0 is a share of :data:`LEAST_SHARE` of the mean bus
        for each of its buses, by which :func:`~gridpriv.power.prior.zone_prior` multiplies it.
        """
        import pandas as pd

        case, result = self.series.case, self.forecast
        members = load_members(case, self.zoning)
        order, sizes = np.concatenate(members), np.array([len(buses) for buses in members])
        least = LEAST_SHARE * np.abs(result.zone_mean).sum(axis=0) / sizes.sum()
        size = np.maximum(np.abs(result.zone_mean), least * sizes[:, None])
        share = np.ones_like(result.zone_spread)
        np.divide(result.zone_spread, size, out=share, where=size > 0)
        mean, spread = (case.base_mva * x.reshape(2, -1) for x in (result.mean, result.spread))
        return pd.DataFrame(
            {
                "step": np.repeat(np.array(self.times), len(order)),
                "bus": np.tile(case.bus_id[order], len(self.times)),
                "pd_mw": mean[0],
                "qd_mvar": mean[1],
                "pd_std_mw": spread[0],
                "qd_std_mvar": spread[1],
                "zone_spread": np.repeat(share, sizes, axis=0).T.ravel(),
            }
        )

    def as_dict(self) -> Json:
        """Return a JSON document; ``test``, of the test steps, is for the data owner only."""
        settings, forecast, base = self.settings, self.forecast, self.series.case.base_mva
        noise = settings.noise if forecast.epsilon < math.inf else "none"
        zones = zip(self.zoning.names, self.zoning.members, strict=True)
        return json_ready(
            {
                "case": self.series.case.name,
                "steps": self.times,
                "model": settings.model,
                "zones": [
                    {
                        "zone": zone,
                        "buses": len(members),
                        "mean_mw": (base * forecast.zone_mean[z]).tolist(),
                        "spread_mw": (base * forecast.zone_spread[z]).tolist(),
                        "quantiles": {str(q): v[z].tolist() for q, v in self.quantiles.items()},
                    }
                    for z, (zone, members) in enumerate(zones)
                ],
                "privacy": {
                    "adjacency": "any change of one bus's demand by at most "
                    f"{settings.beta} in every step",
                    "releases_per_zone": max(map(len, forecast.releases.values()), default=0),
                    "total_pure": None if noise == "none" else forecast.epsilon,
                    "noise": noise,
                },
                "seed": settings.seed if noise == "simulated" else None,
                "test": self._tested() if settings.test_steps else None,
            }
        )

    def _tested(self) -> list[Json]:
        """Return errors by zone on the test steps, with those of a seasonal-naive forecast.

        That is the demand of the same time a week ago; a day ago in a history of less than a week.
        """
        from gridpriv.learning.forecast import mape, pinball_loss

        base, ahead = self.series.case.base_mva, self.settings.test_steps
        count, rows = len(self.series) - ahead, []
        back = seasonal_steps(self.series.steps, count)
        for z, (zone, members) in enumerate(
            zip(self.zoning.names, self.zoning.members, strict=True)
        ):
            total = base * self.series.pd[:, members].sum(axis=1)
            actual, naive = total[count:], total[back]
            quantiles = {q: values[z] for q, values in self.quantiles.items()}
            rows.append(
                {
                    "zone": zone,
                    "mape": mape(actual, base * self.forecast.zone_mean[z]),
                    "pinball_mw": pinball_loss(actual, quantiles),
                    "naive_mape": mape(actual, naive),
                    "naive_pinball_mw": pinball_loss(actual, dict.fromkeys(quantiles, naive)),
                }
            )
        return rows


def seasonal_steps(times: Sequence[str], count: int) -> Ints:
    """Return the step before ``count`` with the local time of each later step.

    It is a week earlier (a day, where there is less than a week), or a multiple.
    """
    from gridpriv.learning.forecast import local_times, step_in_days

    day = 1.0 / step_in_days(times)
    season = max(1, round(7.0 * day if count >= 7.0 * day else day))
    back = np.maximum(count - season + np.arange(len(times) - count) % season, 0)
    local = local_times(times)
    days = np.asarray((local[count:] - local[back]).total_seconds()) / 86_400.0
    clocks = np.round(day * (days - np.round(days))).astype(np.int64)  # that were changed between
    return np.clip(back + clocks, 0, count - 1)


def load_members(case: Case, zoning: Zoning) -> list[Ints]:
    """Return the buses of every zone that can have load; all of a zone where none can."""
    able = [members[case.load_buses[members]] for members in zoning.members]
    return [some if len(some) else all_ for some, all_ in zip(able, zoning.members, strict=True)]


def forecast_series(
    settings: Forecasting,
    series: DemandSeries,
    zoning: Zoning,
    weather: str | None = None,
    ledger: str | None = None,
    key: str | None = None,
) -> DemandForecast:
    """Return a forecast of a history; its releases are charged to a ledger.

    Parameters
    ----------
    weather : str, optional
        CSV file of public columns for every step of the history and of the forecast.
    ledger, key : str, optional
        File of the ledger and of its key.

    Raises
    ------
    InputError
        For a history that is too short, or files that do not fit it.
    """
    from gridpriv.learning import forecast as learning
    from gridpriv.study.context import open_charge
    from gridpriv.zonal.prepared import zone_datasets

    if settings.seed is None:  # a guessed seed would reveal the noise
        settings = replace(settings, seed=secrets.randbits(64))
    _check_length(settings, series)
    case, count = series.case, len(series) - settings.test_steps
    adjacency = DemandAdjacency(settings.beta.distance(case.base_mva))
    with open_charge(
        ledger, key, lambda: zone_datasets(case, zoning, adjacency), noisy=settings.total < math.inf
    ) as charge:
        past_times, times = list(series.steps[:count]), list(series.steps[count:])
        if not times:
            _ = learning.calendar(past_times)  # refuses steps that are not times
            times = learning.following(past_times, settings.steps)
        features = _features([*past_times, *times], weather)
        past, ahead, weights = features[:count], features[count:], learning.recency(past_times)
        if settings.model == "network":
            past, ahead = learning.network_features(past, ahead, 0)
        if charge is not None:  # a run beyond its grant is refused before it draws
            releases = learning.zone_releases(
                past, weights, settings.total, adjacency.beta, settings.noise
            )
            charge.admit({zone: Counter(releases.values()) for zone in zoning.names})
        forecast = learning.forecast_demand(
            [
                learning.History(zone, series.pd[:count, members], series.qd[:count, members])
                for zone, members in zip(zoning.names, load_members(case, zoning), strict=True)
            ],
            past,
            ahead,
            weights,
            epsilon=settings.total,
            beta=adjacency.beta,
            correlated=learning.correlated_steps(past_times),
            source=settings.noise,
            seed=settings.seed or 0,
            charge=lambda zone, release: None if charge is None else charge(zone, {release: 1}),
        )
    return DemandForecast(settings, series, zoning, times, forecast)


def _check_length(settings: Forecasting, series: DemandSeries) -> None:
    if len(series) < 2:
        raise InputError(
            f"history {series.source} has 1 step: a forecast needs at least two, for the time "
            "between steps"
        )
    if settings.test_steps >= len(series) - 1:
        raise not_allowed("test-steps", settings.test_steps, f"fewer than {len(series) - 1}")


def _features(times: Sequence[str], weather: str | None) -> Floats:
    """Return the public features of steps: calendar, and the columns of a weather file."""
    import pandas as pd

    from gridpriv.learning.forecast import calendar, dates_and_times

    known = calendar(times)
    if weather is None:
        return known
    try:
        table = pd.read_csv(weather, dtype={"step": str})
    except (OSError, ValueError) as error:
        needed = "a CSV file with the column step is needed"
        raise InputError(f"weather {weather} cannot be read: {error}; {needed}") from error
    if "step" not in table or len(table.columns) < 2:
        raise not_allowed("weather", weather, "a CSV file with step and at least one column")
    steps, fault = table.pop("step").tolist(), ""
    table.index = dates_and_times(steps, f"the steps of weather {weather}")
    wanted = dates_and_times(times, "the history's steps")
    missing = wanted[~wanted.isin(table.index)]
    if (table.index.tz is None) != (wanted.tz is None):
        steps_of = ["the weather's steps", "the history's"]
        with_offset, without = steps_of if wanted.tz is None else reversed(steps_of)
        fault = f"{with_offset} have UTC offsets and {without} have none; give both or neither"
    elif table.index.has_duplicates:
        repeated = steps[int(table.index.duplicated().argmax())]
        fault = f"it names step {repeated} more than once; give one row each"
    elif len(missing):
        fault = f"it misses {counted(len(missing), 'step')}, such as {missing[0]}"
        fault += "; give a row for every step"
    if fault:
        raise InputError(f"weather {weather}: {fault}")
    given = table.loc[wanted].apply(pd.to_numeric, errors="coerce").to_numpy(float)
    if not np.isfinite(given).all():
        raise not_allowed("weather", weather, "a file of finite numbers")
    return np.hstack([known, given, given**2])

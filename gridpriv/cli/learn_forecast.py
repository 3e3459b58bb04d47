"""``gridpriv learn forecast``: a private forecast of demand, as a public prior."""

from __future__ import annotations

import argparse
import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from gridpriv.cli import flags
from gridpriv.cli.output import print_table, say, tell
from gridpriv.core.errors import InputError, not_allowed
from gridpriv.core.files import write_text
from gridpriv.core.settings import Part, changed, choice, count, notation, number
from gridpriv.core.text import Json, counted, frame_csv, json_ready
from gridpriv.privacy.adjacency import Beta, DemandAdjacency
from gridpriv.privacy.linear import LEAST_SHARE
from gridpriv.privacy.settings import LEAST_EPSILON, MOST_EPSILON, Noise, Privacy
from gridpriv.zonal.settings import Adjacency

if TYPE_CHECKING:
    from gridpriv.core.arrays import Floats, Ints
    from gridpriv.grid.case import Case
    from gridpriv.grid.scenarios import DemandSeries
    from gridpriv.grid.zoning import Zoning
    from gridpriv.learning.forecast import Forecast
    from gridpriv.privacy.ledger import ReleaseCharge

DAY = 24
MOST_STEPS = 100_000
"""Steps of a forecast: more than 11 years of hours."""
HISTORY = "past demand: step,bus,pd_mw,qd_mvar; steps are dates and times"
WEATHER = (
    "public columns for past and forecast steps, such as step,temperature (default: calendar only)"
)


def _levels(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise not_allowed("quantiles", text, "numbers, by commas") from None


def _epsilon_or_infinite(name: str, value: float) -> None:
    if not (LEAST_EPSILON <= value <= MOST_EPSILON or value == math.inf):
        raise not_allowed(name, value, f"from {LEAST_EPSILON:g} to {MOST_EPSILON:g}, or inf")


@dataclass(frozen=True, kw_only=True)
class Forecasting(Part):
    """Forecast of every zone's demand, and its noise."""

    total: float = number(
        0.2, "total epsilon (pure DP) of a zone's releases; inf: no noise", _epsilon_or_infinite
    )
    beta: Beta = changed(
        Adjacency,
        "beta",
        Beta(1.0, "MW"),
        help="adjacency distance: protected change of one bus's demand in every step",
    )
    noise: Noise = changed(
        Privacy,
        "noise",
        "simulated",
        help="source of randomness: simulated (repeatable, no protection) or secure (system "
        "entropy)",
    )
    model: str = choice("linear", ("linear", "network"), "model of a zone's demand")
    steps: int = count(DAY, "steps ahead", most=MOST_STEPS)
    test_steps: int = count(
        0,
        "number of last steps that are held out and compared with the forecast; the comparison is "
        "private",
        least=0,
    )
    quantiles: tuple[float, ...] = notation(
        (0.05, 0.25, 0.5, 0.75, 0.95), _levels, "Q,Q", "quantiles of every zone's demand"
    )
    seed: int | None = count(None, "seed of simulated noise", least=0, unset="drawn and printed")


def forecast_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``learn forecast``."""
    parser.add_argument("case", metavar="CASE", help="case name, or file")
    flags.flag(parser, "--history", "FILE.csv", HISTORY, required=True)
    flags.flag(parser, "--weather", "FILE.csv", WEATHER)
    flags.add_zone_arguments(parser)
    flags.add_flags(parser, Forecasting)
    flags.add_ledger_arguments(parser)
    flags.add_output(parser, "file of the forecast, for --public-demand", "F.csv")


def forecast(args: argparse.Namespace) -> int:
    """Forecast, charge, write and print."""
    from gridpriv.grid.library import load_case
    from gridpriv.grid.scenarios import read_demand_series
    from gridpriv.learning.forecast import check_quantiles
    from gridpriv.study.context import open_charge
    from gridpriv.zonal.prepared import zone_datasets

    chosen = Forecasting(**flags.given_settings(args, Forecasting))
    if chosen.seed is None:  # a seed that others can guess removes the noise
        chosen = replace(chosen, seed=secrets.randbits(64))
    check_quantiles(list(chosen.quantiles))
    case = load_case(args.case)
    zoning = flags.chosen_zoning(case, args)
    series = read_demand_series(args.history, case)
    if len(series) < 2:
        raise InputError(
            f"history {args.history} has 1 step: a forecast needs at least two, for the time "
            "between steps"
        )
    if chosen.test_steps >= len(series) - 1:
        raise not_allowed("test-steps", chosen.test_steps, f"fewer than {len(series) - 1}")
    adjacency = DemandAdjacency(chosen.beta.distance(case.base_mva))
    noisy = chosen.total < math.inf
    with open_charge(
        args.ledger,
        args.ledger_key,
        lambda: zone_datasets(case, zoning, adjacency),
        noisy=noisy,
    ) as charge:
        result, times = _forecast(args, chosen, series, zoning, adjacency, charge)
    quantiles = {level: result.quantile(level) * case.base_mva for level in chosen.quantiles}
    document = _document(chosen, case, zoning, result, times, quantiles)
    if chosen.test_steps:
        document["test"] = _tested(series, zoning, result, quantiles, chosen.test_steps)
    if args.out is not None:
        write_text(Path(args.out), frame_csv(_table(case, zoning, result, times)), private=False)
    return tell(args, document, lambda: _print(document), args.out)


def _forecast(
    args: argparse.Namespace,
    chosen: Forecasting,
    series: DemandSeries,
    zoning: Zoning,
    adjacency: DemandAdjacency,
    charge: ReleaseCharge | None,
) -> tuple[Forecast, list[str]]:
    """Return the forecast and the names of its steps."""
    from gridpriv.learning.forecast import (
        History,
        following,
        forecast_demand,
        network_features,
        planned_releases,
        recency,
    )

    count = len(series) - chosen.test_steps
    past_times = list(series.steps[:count])
    if chosen.test_steps:
        times = list(series.steps[count:])
    else:
        _ = _features(past_times, None)  # refuses steps that are no times
        times = following(past_times, chosen.steps)
    features = _features([*past_times, *times], args.weather)
    past, ahead, weights = features[:count], features[count:], recency(past_times)
    if chosen.model == "network":
        past, ahead = network_features(past, ahead, 0)
    histories = [
        History(name, series.pd[:count, members], series.qd[:count, members])
        for name, members in zip(zoning.names, zoning.members, strict=True)
    ]
    if charge is not None:  # a run that does not fit is refused before it draws
        planned = planned_releases(past, weights, chosen.total, adjacency.beta, chosen.noise)
        costs = {history.zone: charge.cost(history.zone, planned) for history in histories}
        charge.ledger.plan(costs)
    result = forecast_demand(
        histories,
        past,
        ahead,
        weights,
        epsilon=chosen.total,
        beta=adjacency.beta,
        source=chosen.noise,
        seed=chosen.seed or 0,
        charge=lambda zone, release: None if charge is None else charge(zone, {release: 1}),
    )
    return result, times


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
        raise InputError(
            f"weather {weather} cannot be read: {error}; a CSV file with the column step is needed"
        ) from error
    if "step" not in table or len(table.columns) < 2:
        raise not_allowed("weather", weather, "a CSV file with step and at least one column")
    steps = table.pop("step").tolist()
    table.index = dates_and_times(steps, f"the steps of weather {weather}")
    if table.index.has_duplicates:
        twice = steps[int(table.index.duplicated().argmax())]
        raise InputError(f"weather {weather} names step {twice} more than once: give one row each")
    wanted = dates_and_times(times, "the history's steps")
    missing = wanted[~wanted.isin(table.index)]
    if len(missing):
        raise InputError(
            f"weather {weather} misses {counted(len(missing), 'step')}, such as {missing[0]}: "
            "give a row for every step"
        )
    given = table.loc[wanted].apply(pd.to_numeric, errors="coerce").to_numpy(float)
    if not np.isfinite(given).all():
        raise not_allowed("weather", weather, "a file of finite numbers")
    return np.hstack([known, given, given**2])


def _table(case: Case, zoning: Zoning, result: Forecast, times: Sequence[str]) -> Any:
    """Return the rows of a ``--public-demand`` file."""
    import pandas as pd

    order, base = np.concatenate(zoning.members), case.base_mva
    sizes = [len(members) for members in zoning.members]
    relative = _relative(result.zone_mean, result.zone_spread, np.array(sizes)[:, None])
    mean, spread = (base * values.reshape(2, -1) for values in (result.mean, result.spread))
    return pd.DataFrame(
        {
            "step": np.repeat(np.array(times), len(order)),
            "bus": np.tile(case.bus_id[order], len(times)),
            "pd_mw": mean[0],
            "qd_mvar": mean[1],
            "pd_std_mw": spread[0],
            "qd_std_mvar": spread[1],
            "zone_spread": np.repeat(relative, sizes, axis=0).T.ravel(),
        }
    )


def _relative(mean: Floats, spread: Floats, sizes: Ints) -> Floats:
    """Return the spread (zones, steps) as a share of the size that a zone's prior has.

    A zone whose mean is near 0 is given :data:`LEAST_SHARE` of the mean bus for each of its buses,
    as in :func:`~gridpriv.power.prior.zone_prior`, which multiplies by that size.
    """
    typical = np.abs(mean).sum(axis=0) / sizes.sum()
    size = np.maximum(np.abs(mean), LEAST_SHARE * typical * sizes)
    return np.asarray(np.divide(spread, size, out=np.ones_like(spread), where=size > 0))


def _document(
    chosen: Forecasting,
    case: Case,
    zoning: Zoning,
    result: Forecast,
    times: Sequence[str],
    quantiles: Mapping[float, Floats],
) -> Json:
    base = case.base_mva
    noisy = result.epsilon < math.inf
    text: Json = json_ready(
        {
            "case": case.name,
            "steps": list(times),
            "model": chosen.model,
            "zones": [
                {
                    "zone": zone,
                    "buses": len(members),
                    "mean_mw": (base * result.zone_mean[z]).tolist(),
                    "spread_mw": (base * result.zone_spread[z]).tolist(),
                    "quantiles": {str(q): values[z].tolist() for q, values in quantiles.items()},
                }
                for z, (zone, members) in enumerate(zip(zoning.names, zoning.members, strict=True))
            ],
            "privacy": {
                "adjacency": "any change of one bus's demand by at most "
                f"{chosen.beta} in every step",
                "releases_per_zone": max((len(r) for r in result.releases.values()), default=0),
                "total_pure": result.epsilon if noisy else None,
                "noise": chosen.noise if noisy else "none",
            },
            "seed": chosen.seed if noisy and chosen.noise == "simulated" else None,
            "test": None,
        }
    )
    return text


def _tested(
    series: DemandSeries,
    zoning: Zoning,
    result: Forecast,
    quantiles: Mapping[float, Floats],
    test_steps: int,
) -> list[Json]:
    """Return errors by zone on the steps that were left out, beside a seasonal-naive forecast."""
    from gridpriv.learning.forecast import mape, pinball_loss

    base, count = series.case.base_mva, len(series) - test_steps
    season = 7 * DAY if count >= 7 * DAY else DAY
    rows = []
    for z, (zone, members) in enumerate(zip(zoning.names, zoning.members, strict=True)):
        total = base * series.pd[:, members].sum(axis=1)
        back = count - season + np.arange(test_steps) % season
        naive = total[np.maximum(back, 0)]
        rows.append(
            {
                "zone": zone,
                "mape": mape(total[count:], base * result.zone_mean[z]),
                "pinball_mw": pinball_loss(total[count:], {q: v[z] for q, v in quantiles.items()}),
                "naive_mape": mape(total[count:], naive),
                "naive_pinball_mw": pinball_loss(total[count:], dict.fromkeys(quantiles, naive)),
            }
        )
    return rows


def _print(document: Json) -> None:
    from gridpriv.zonal.messages import message

    rows = [
        [zone["zone"], zone["buses"], fmean(zone["mean_mw"]), fmean(zone["spread_mw"])]
        for zone in document["zones"]
    ]
    first, last = document["steps"][0], document["steps"][-1]
    title = f"{document['case']}: forecast of {len(document['steps'])} steps, {first} to {last}"
    print_table(title, ["zone", "buses", "mean MW", "std MW"], rows)
    if drowned := [str(zone) for zone, _, mean, spread in rows if spread > abs(mean)]:
        say(message("forecast-drowned", {"zones": ", ".join(drowned)}))
    if document["test"]:
        columns = ["zone", "mape", "pinball_mw", "naive_mape", "naive_pinball_mw"]
        tested = [[row[name] for name in columns] for row in document["test"]]
        names = [
            "zone",
            "MAPE %",
            "pinball MW",
            "seasonal-naive MAPE %",
            "seasonal-naive pinball MW",
        ]
        print_table("On the steps left out (private)", names, tested)
    privacy = document["privacy"]
    if privacy["total_pure"] is None:
        say("No noise: the forecast protects nothing.")
    else:
        say(f"Privacy: {privacy['adjacency']}; total epsilon {privacy['total_pure']:g} (pure)")
    if privacy["noise"] == "simulated":
        say(
            "Simulated noise, no privacy: anyone with the seed can remove the noise (use --noise "
            f"secure); seed {document['seed']}."
        )

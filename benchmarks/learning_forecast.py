"""Measure a private forecast of demand: errors by zone, and cost of privacy with it as prior.

    python benchmarks/learning_forecast.py errors case118 [--seeds 3]
    python benchmarks/learning_forecast.py cost case39 --load-scale 0.7 [--seeds 3]
    python benchmarks/learning_forecast.py bands case118 [--seeds 30]

Demand is made from simbench (``pip install simbench``): every bus of the case follows one of the
five profiles of 1-HV-mixed, drawn by seed 0, in hours from 7 March 2016. Four weeks are the
history, the five days after them are forecast. Beta is 1 MW.

``errors`` prints MAPE and pinball loss by zone at totals 0.1, 0.3, 1 and without noise. It also
prints those of a seasonal-naive forecast (the same hour a week ago) and of scikit-learn's quantile
regression on each zone's own demand with the same features and weights. These two are not
protected.

``cost`` runs the hour from 18:00 of each day with three settings and the same demand: a forecast of
total epsilon 0.3 without a release (only the training is charged); the prior from capacity with a
fifth of 0.3 per day (the same total over the five days); and that prior with 0.3 per day.

``bands`` prints the share of the demand of zones in five days that is within the central bands of
50, 80, 90 and 95 %, and last that of buses within 90 %, after histories of 3, 7, 14 and 28 days
from windows of the year drawn by seed.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import warnings
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import ndtri

from gridpriv.grid.case import Case
from gridpriv.grid.library import load_case, shipped_zoning
from gridpriv.learning.forecast import (
    History,
    calendar,
    correlated_steps,
    forecast_demand,
    mape,
    pinball_loss,
    recency,
)

NET, FIRST, WEEKS, DAYS, HOUR = "1-HV-mixed--0-sw", "2016-03-07", 4, 5, 18
TRAINED, TOTAL = WEEKS * 7 * 24, 0.3
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)


def demand_of(
    case: Case, scale: float, first: str = FIRST, steps: int = TRAINED + DAYS * 24, seed: int = 0
) -> tuple[np.ndarray, list[str]]:
    """Return the factor on the demand of every bus (steps, buses), and the names of the hours."""
    table = profiles()
    table = table[table.index >= first][:steps]
    shapes = table.to_numpy(float)
    shapes /= shapes.mean(axis=0)
    drawn = np.random.default_rng(seed).integers(0, shapes.shape[1], case.n_bus)
    hours = pd.date_range(first, periods=len(shapes), freq="h")
    return scale * shapes[:, drawn], [hour.isoformat() for hour in hours]


@cache
def profiles() -> pd.DataFrame:
    """Return the active demand of every profile in every hour of the year."""
    import simbench

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = simbench.get_simbench_net(NET).profiles["load"]
    times = pd.to_datetime(table["time"], format="%d.%m.%Y %H:%M")
    named = [name for name in table if name.endswith("_pload")]
    return table.set_index(times)[named][(times.dt.minute == 0).to_numpy()]


def write_history(case: Case, factor: np.ndarray, times: list[str], path: Path) -> None:
    """Write the rows of a history: step,bus,pd_mw,qd_mvar."""
    steps, buses = np.repeat(times, case.n_bus), np.tile(case.bus_id, len(times))
    pd.DataFrame(
        {
            "step": steps,
            "bus": buses,
            "pd_mw": (case.base_mva * case.pd * factor).ravel(),
            "qd_mvar": (case.base_mva * case.qd * factor).ravel(),
        }
    ).to_csv(path, index=False)


def gridpriv(*words: str) -> dict[str, object]:
    """Run a command of gridpriv and return its document."""
    done = subprocess.run(
        [str(Path(sys.executable).with_name("gridpriv")), *words, "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"gridpriv {' '.join(words)}: {done.stderr.strip()}")
    document: dict[str, object] = json.loads(done.stdout)
    return document


def forecast(case: str, folder: Path, total: str, seed: int, *words: str) -> dict[str, object]:
    """Return the document of a forecast of the last five days of the history in a folder."""
    return gridpriv(
        "learn",
        "forecast",
        case,
        f"--history={folder / 'history.csv'}",
        f"--total={total}",
        f"--seed={seed}",
        *words,
    )


def errors(name: str, scale: float, seeds: int) -> None:
    """Print the errors by zone."""
    from sklearn.linear_model import LinearRegression, QuantileRegressor

    case = load_case(name)
    factor, times = demand_of(case, scale)
    zoning, ahead = shipped_zoning(case), DAYS * 24
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        write_history(case, factor, times, folder / "history.csv")
        print("zone      total   MAPE %  pinball MW  naive MAPE %  naive pinball MW")
        for total in ("0.1", "0.3", "1", "inf"):
            every = [
                forecast(name, folder, total, seed, f"--test-steps={ahead}")["test"]
                for seed in range(1 if total == "inf" else seeds)
            ]
            for rows in zip(*every, strict=True):
                shown = [
                    float(np.mean([row[key] for row in rows]))
                    for key in ("mape", "pinball_mw", "naive_mape", "naive_pinball_mw")
                ]
                print(
                    f"{rows[0]['zone']:8} {total:>6} {shown[0]:8.2f} {shown[1]:11.2f} "
                    f"{shown[2]:13.2f} {shown[3]:17.2f}",
                    flush=True,
                )
    features, weights = calendar(times), recency(times[:TRAINED])
    for zone, members in zip(zoning.names, zoning.members, strict=True):
        demand = case.base_mva * (factor[:, members] * case.pd[members]).sum(axis=1)
        past, later = features[:TRAINED], features[TRAINED:]
        quantiles = {
            q: QuantileRegressor(quantile=q, alpha=0.0)
            .fit(past, demand[:TRAINED], weights)
            .predict(later)
            for q in LEVELS
        }
        squares = LinearRegression().fit(past, demand[:TRAINED], weights).predict(later)
        print(
            f"{zone:8} scikit {mape(demand[TRAINED:], squares):7.2f} "
            f"{pinball_loss(demand[TRAINED:], quantiles):11.2f}",
            flush=True,
        )


def bands(name: str, scale: float, seeds: int) -> None:
    """Print the share of demand within bands."""
    case, ahead = load_case(name), DAYS * 24
    zoning = shipped_zoning(case)
    last = len(profiles()) // 24 - 28 - DAYS - 1
    for days, total in product((3, 7, 14, 28), (math.inf, 1.0, 0.2)):
        inside, steps = [], days * 24
        for seed in range(seeds):
            day = np.random.default_rng((1, seed)).integers(last)
            first = (pd.Timestamp("2016-01-01") + pd.Timedelta(days=day)).isoformat()
            factor, times = demand_of(case, scale, first, steps + ahead, seed)
            p, q = (case.base_mva * each * factor for each in (case.pd, case.qd))
            features, past = calendar(times), times[:steps]
            predicted = forecast_demand(
                [History(str(k), p[:steps, m], q[:steps, m]) for k, m in enumerate(zoning.members)],
                features[:steps],
                features[steps:],
                recency(past),
                epsilon=total,
                beta=1.0,
                correlated=correlated_steps(past),
                seed=seed,
            )
            actual = np.array([p[steps:, members].sum(axis=1) for members in zoning.members])
            error = np.abs(actual - predicted.zone_mean) / predicted.zone_spread
            shares = [(error < ndtri(0.5 + band / 200)).mean() for band in (50, 80, 90, 95)]
            order = np.concatenate(zoning.members)
            gap = np.abs(p[steps:, order] - predicted.mean[0])[:, case.load_buses[order]]
            spread = predicted.spread[0][:, case.load_buses[order]]
            inside.append([*shares, (gap < ndtri(0.95) * spread).mean()])
        print(f"{days:3} days, total {total:4}", np.round(np.mean(inside, axis=0), 3), flush=True)


def cost(name: str, scale: float, seeds: int) -> None:
    """Print the cost of privacy of every day, and the means."""
    case = load_case(name)
    factor, times = demand_of(case, scale)
    costs: dict[str, list[float]] = {
        "forecast": [],
        "capacity, equal total": [],
        "capacity, 0.3 a day": [],
    }
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        write_history(case, factor[:TRAINED], times[:TRAINED], folder / "history.csv")
        files = [folder / f"forecast{seed}.csv" for seed in range(seeds)]
        for seed, file in enumerate(files):
            forecast(name, folder, str(TOTAL), seed, f"--steps={DAYS * 24}", f"--out={file}")
        for day in range(DAYS):
            step = TRAINED + day * 24 + HOUR
            write_history(case, factor[step : step + 1], times[step : step + 1], folder / "day.csv")
            demand = pd.read_csv(folder / "day.csv").drop(columns="step")
            demand.to_csv(folder / "day.csv", index=False)
            taken = [f"--demand={folder / 'day.csv'}"]
            for seed, file in enumerate(files):
                ways = {
                    "forecast": ["--release=nothing", f"--public-demand={file}@{times[step]}"],
                    "capacity, equal total": [f"--budget=total:{TOTAL / DAYS:g}"],
                    "capacity, 0.3 a day": [f"--budget=total:{TOTAL:g}"],
                }
                for way, words in ways.items():
                    document = gridpriv("run", name, *taken, *words, f"--seed={seed}")
                    costs[way].append(cost_of_privacy(document))
            print(
                times[step],
                {w: [round(v, 1) for v in c[-seeds:]] for w, c in costs.items()},
                flush=True,
            )
    means = {way: float(np.mean(values)) for way, values in costs.items()}
    print("mean $/h", {way: round(value, 1) for way, value in means.items()})
    print(
        "times smaller with the forecast",
        {way: round(value / means["forecast"], 2) for way, value in means.items()},
    )


def cost_of_privacy(document: dict[str, object]) -> float:
    """Return the cost of privacy of a run's document, $/h."""
    final: dict[str, dict[str, float]] = document["final"]  # type: ignore[assignment]
    return final["cost_of_privacy"]["cost"]


def main() -> None:
    """Run the action."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("errors", "cost", "bands"))
    parser.add_argument("case")
    parser.add_argument("--load-scale", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    {"errors": errors, "cost": cost, "bands": bands}[args.action](
        args.case, args.load_scale, args.seeds
    )


if __name__ == "__main__":
    main()

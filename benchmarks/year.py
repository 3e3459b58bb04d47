"""Measure a year of hourly releases: noise and cost by month and method.

    python benchmarks/year.py case14 --beta 1MW --json case14.json

Loads follow the active load profiles of SimBench's 1-HV-mixed, assigned to buses in turn, each
scaled to its bus's demand at its own peak, at the bus's power factor. Every hour of the year is
released. Costs are those of a sample of hours (``--days`` evenly spaced days of every month,
``--hours`` of each), after AC redispatch, under central coordination, over the noise-free run of
the same hour.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gridpriv.consensus.transport import ReusedAgents, in_process
from gridpriv.core.arrays import Floats
from gridpriv.core.errors import GridprivWarning, SolverError
from gridpriv.grid.case import Case
from gridpriv.grid.library import load_case, zoning_of
from gridpriv.grid.scenarios import DemandSeries
from gridpriv.zonal.horizon import make_horizon
from gridpriv.zonal.prepared import Prepared, prepare
from gridpriv.zonal.run import run_prepared
from gridpriv.zonal.settings import PRIOR_ONLY, make_settings

HOURS, TOTAL = 8760, 5.0
MONTH_ENDS = 24 * np.cumsum([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
STREAMS = {"stream, total 5 in any 24 h": "24h", "stream, total 5 a year": "year"}
FRESH, SILENT, PLAIN = "fresh total of 5 an hour", "prior-only", "noise-free"


def year_of(case: Case) -> DemandSeries:
    """Return the demand of every bus in every hour."""
    import simbench

    profiles = simbench.get_simbench_net("1-HV-mixed--0-no_sw").profiles["load"]
    names = sorted(name[:-6] for name in profiles if name.endswith("_pload"))
    load = np.stack([profiles[f"{name}_pload"].to_numpy(float) for name in names])
    hourly = load[:, : 4 * HOURS].reshape(len(names), HOURS, 4).mean(axis=2)
    hourly /= hourly.max(axis=1, keepdims=True)
    curve = hourly[np.arange(case.n_bus) % len(names)].T
    steps = tuple(map(str, range(HOURS)))
    return DemandSeries(case, steps, curve * case.pd, curve * case.qd, "SimBench profiles")


def by_month(values: Floats) -> list[float]:
    """Return the root mean square of hourly values (NaN: not sampled) in every month."""
    return [float(np.sqrt(np.mean(part**2))) for part in np.split(values, MONTH_ENDS[:-1])]


def sampled_hours(days: int, hours: int) -> Iterator[tuple[int, int]]:
    """Yield month and hour of the sample."""
    for month, end in enumerate(MONTH_ENDS):
        first = 0 if month == 0 else int(MONTH_ENDS[month - 1])
        for day in range(days):
            start = first + 24 * (((end - first) // 24) * (2 * day + 1) // (2 * days))
            yield from ((month, start + (2 * h + 1) * 24 // (2 * hours)) for h in range(hours))


def measure(name: str, beta: str, days: int, hours: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield a row per method: its totals, and its noise and cost by month."""
    case = load_case(name)
    series, zoning = year_of(case), zoning_of(case, None, None)
    common = {"beta": beta, "objective": "cost", "coordination": "central", "seed": seed}
    single = make_settings(**common, budget=f"total:{TOTAL}", noise_schedule="once")
    alone = {
        FRESH: single,
        SILENT: make_settings(**common | PRIOR_ONLY),
        PLAIN: replace(single, mechanism="none"),
    }

    def ready(method: str, hour: int) -> Prepared:
        return replace(prepare(series.at(hour), zoning, alone[method]), seed=seed * HOURS + hour)

    rows, streams = {}, {}
    for method, window in STREAMS.items():
        settings = make_settings(**common, budget=f"total:{TOTAL}", stream=window)
        stream = make_horizon(series, zoning, settings)
        known = stream.draw()
        streams[method] = partial(stream.prepared, known=known)
        missed = case.base_mva * np.stack(
            [
                estimate.temporal_coefficients[0]
                + float(np.split(estimate.mean, 2)[0].sum())
                - series.pd[:, zone.own].sum(axis=1)
                for zone, estimate in zip(stream.owned.zones, known, strict=True)
            ]
        )
        noise = by_month(np.linalg.norm(missed, axis=0))
        rows[method] = {"totals": stream.costs, "noise_mw": noise}
    for method in (FRESH, SILENT):
        errors = [_missed(ready(method, hour)) for hour in range(0, HOURS, 24)]
        rows[method] = {"noise_mw": by_month(np.repeat(errors, 24))}
    for method, row in rows.items():
        print(method, row, flush=True)
    sample = list(sampled_hours(days, hours))
    costs: dict[str, list[tuple[float, float]]] = {method: [] for method in (PLAIN, *rows)}
    for _, hour in sample:
        with closing(ReusedAgents(in_process)) as zones:
            for method, method_costs in costs.items():
                of_hour = streams.get(method) or partial(ready, method)
                method_costs.append(_cost(of_hour(hour), zones))
    for method, row in rows.items():
        yield {"method": method, **row, **_over(sample, costs[PLAIN], costs[method])}


def _missed(ready: Prepared) -> float:
    """Return the error of the zones' estimated totals in MW, root sum of squares."""
    misses = []
    for zone, disclosure in zip(ready.zones, ready.disclosures, strict=True):
        rule = ready.rules.noise
        assert disclosure is not None and rule is not None
        estimate = disclosure.prior.mean
        if len(disclosure.strategy.matrix):
            release = rule.release(disclosure.sensitivity(ready.rules.adjacency, rule.norm))
            noisy = release.apply(
                disclosure.measure(zone.demand),
                lambda key=zone.key: np.random.default_rng([ready.seed, key]),
            )
            estimate = disclosure.estimate(noisy, release)
        half = len(zone.own)
        misses.append(estimate[:half].sum() - zone.demand[:half].sum())
    return ready.case.base_mva * float(np.linalg.norm(misses))


def _cost(ready: Prepared, zones: ReusedAgents) -> tuple[float, float]:
    """Return cost after AC redispatch, $/h, and shed load, MW; NaN without a dispatch."""
    try:
        figures = run_prepared(ready, transport=zones).physical
    except SolverError:
        return np.nan, np.nan
    if figures["cost"] is None or not figures["ac_feasible"]:
        return np.nan, np.nan
    return figures["cost"], figures["shed_mw"]


def _over(
    sample: list[tuple[int, int]],
    base: list[tuple[float, float]],
    private_costs: list[tuple[float, float]],
) -> dict[str, Any]:
    """Return cost over the noise-free run by month in %, and counts over the sample."""
    months = np.array([month for month, _ in sample])
    free, costs = np.array(base)[:, 0], np.array(private_costs)[:, 0]
    over = 100.0 * (costs / free - 1.0)
    return {
        "cost_percent": [float(np.nanmean(over[months == m])) for m in range(12)],
        "median_percent": float(np.nanmedian(over)),
        "hours": len(sample),
        "not_ac_feasible": int(np.isnan(costs).sum()),
        "shed_mw": float(np.nanmean(np.array(private_costs)[:, 1])),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case")
    parser.add_argument("--beta", default="1MW")
    parser.add_argument("--days", type=int, default=2)
    parser.add_argument("--hours", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()
    rows = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GridprivWarning)
        for row in measure(args.case, args.beta, args.days, args.hours, args.seed):
            rows.append(row)
            print({k: v for k, v in row.items() if k != "totals"}, flush=True)
            args.json.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()

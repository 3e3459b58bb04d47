"""Algorithms side by side at equal certified totals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from gridpriv.errors import one_of
from gridpriv.learning.algorithms.names import ALGORITHMS
from gridpriv.learning.datasets.base import Dataset
from gridpriv.learning.settings import LearnSettings, make_learn_settings
from gridpriv.learning.stored import StoredRuns

NON_PRIVATE = ("admm", "centralized")
DELTA = 1e-5


def compare(
    dataset: Dataset,
    preset: str | None,
    algorithms: list[str],
    totals: list[float],
    seeds: int,
    folder: Path | None,
    given: dict[str, Any],
    *,
    quiet: bool = True,
) -> pd.DataFrame:
    """Return one row per algorithm and total: mean and spread of test error over seeds.

    Every private run is calibrated soundly to ``total:E,1e-5`` and its row states what was
    certified. Runs that ``folder`` already holds are not repeated.

    Parameters
    ----------
    algorithms : list of str
        Names; ``ryu-kim:output`` names its output perturbation.
    """
    plans = _plans(dataset, preset, algorithms, totals, seeds, given)
    rows = []
    for records, (name, total) in _progress(dataset, plans, folder, quiet):
        error = pd.Series([r["final"]["test_error"] for r in records], dtype=float)
        objective = pd.Series([r["final"]["objective"] for r in records], dtype=float)
        rows.append(
            {
                "algorithm": name,
                "total": total,
                "certified": records[0]["privacy"]["total"]["epsilon"],
                "test_error": error.mean(),
                "spread": error.std(ddof=1) if seeds > 1 else None,
                "objective": objective.mean(),
                "seconds": sum(r["timing"]["solve"] for r in records) / seeds,
            }
        )
    table = pd.DataFrame(rows)
    if folder is not None:
        part = folder / "compare.csv.part"
        table.to_csv(part, index=False)
        part.replace(folder / "compare.csv")
    return table


Plans = dict[tuple[str, float | None], list[LearnSettings]]


def _plans(
    dataset: Dataset,
    preset: str | None,
    algorithms: list[str],
    totals: list[float],
    seeds: int,
    given: dict[str, Any],
) -> Plans:
    plans: Plans = {}
    for name in algorithms:
        algorithm, _, perturbation = name.partition(":")
        one_of("algorithm", algorithm, ALGORITHMS)
        chosen = {"algorithm": algorithm} | ({"perturbation": perturbation} if perturbation else {})
        free = algorithm in NON_PRIVATE or given.get("mechanism") == "none"
        for total in [None] if free else totals:
            private = (
                {"mechanism": "none"}
                if total is None
                else {"calibration": "sound", "budget": f"total:{total!r},{DELTA:g}",
                      "target_delta": DELTA}
            )  # fmt: skip
            plans[name, total] = [
                make_learn_settings(
                    dataset.name, preset, **(given | chosen | private | {"seed": seed})
                )
                for seed in range(seeds)
            ]
    return plans


def _progress(dataset: Dataset, plans: Plans, folder: Path | None, quiet: bool) -> Any:
    from gridpriv.cli.common import progress

    count = sum(len(plan) for plan in plans.values())
    with progress(dataset.name, count, quiet=quiet) as advance:
        store = StoredRuns(folder)
        for key, plan in plans.items():
            records = []
            for settings in plan:
                records.append(store.get(dataset, settings))
                advance(key[0])
            yield records, key

"""Reproductions of Ryu and Kim's table 1 and figures 3 and 4."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd

from gridpriv.core.store import Study, read_study, reopen_store
from gridpriv.grid.library import load_case, shipped_zoning
from gridpriv.privacy.adjacency import DemandAdjacency
from gridpriv.study.claims import FOUR, check_claims
from gridpriv.study.files import bundled, read_plan
from gridpriv.study.plan import StudyPlan
from gridpriv.zonal.settings import make_settings

REPRODUCTIONS = {
    "rk-table1": "Ryu and Kim, table 1: variance of the noise of the four algorithms",
    "rk-fig3": "Ryu and Kim, figure 3: noise, objective and feasibility on case14",
    "rk-fig4": "Ryu and Kim, figure 4: noise, objective and feasibility on case118",
}
EPSILONS = (0.05, 0.1, 0.5, 1.0)
BETA, DELTA = 0.01, 1e-2
WAYS = {"Obj": "objective", "Out": "output"}
KINDS = {"G": "gaussian", "L": "laplace"}


def figure_plan(name: str) -> StudyPlan:
    """Return the bundled study of a figure."""
    return read_plan(bundled(name))


def with_claims(folder: Path) -> Study:
    """Check the paper's statements on a finished study and store the outcome beside it."""
    study = read_study(folder)
    with reopen_store(folder) as store:
        store.put("claims", check_claims(study).to_dict("records"))
    return read_study(folder)


def table1_formula(algorithm: str, epsilon: float) -> float:
    """Return the variance that the paper's table 1 prints, at its beta and delta."""
    times = 2.0 if algorithm.startswith("Obj") else 1.0
    factor = 2.0 * math.log(1.25 / DELTA) if algorithm.endswith("G") else 2.0
    return factor * (times * BETA / epsilon) ** 2


def table1() -> pd.DataFrame:
    """Return table 1: the printed variance, what gridpriv draws, and what sound noise needs.

    ``sound_CASE`` is the largest variance over a case's zones (in the first round) of noise
    that certifies the stated epsilon per release.
    """
    rows = []
    for algorithm in FOUR:
        for epsilon in EPSILONS:
            rows.append(
                {
                    "algorithm": algorithm,
                    "epsilon": epsilon,
                    "printed": table1_formula(algorithm, epsilon),
                    "drawn": _drawn(algorithm, epsilon),
                    "sound_case14": _sound("case14", algorithm, epsilon),
                    "sound_case118": _sound("case118", algorithm, epsilon),
                }
            )
    return pd.DataFrame(rows)


def table1_claims(table: pd.DataFrame) -> pd.DataFrame:
    """Return whether ObjG > OutG > ObjL > OutL, for what is drawn and for sound noise."""
    rows = []
    for column, words in (("drawn", "paper"), ("sound_case14", "sound, case14"),
                          ("sound_case118", "sound, case118")):  # fmt: skip
        orders = []
        for _, at in table.groupby("epsilon"):
            ranked = at.sort_values(column, ascending=False).algorithm
            orders.append(" > ".join(ranked))
        right = [o == "ObjG > OutG > ObjL > OutL" for o in orders]
        rows.append(
            {"claim": "Variance: ObjG > OutG > ObjL > OutL", "calibration": words,
             "outcome": "holds" if all(right) else "does not hold",
             "holding": sum(right), "comparisons": len(right),
             "detail": "" if all(right) else "; ".join(dict.fromkeys(orders))}
        )  # fmt: skip
    return pd.DataFrame(rows)


def _settings(algorithm: str, epsilon: float, calibration: str) -> Any:
    return make_settings(
        "ryu-kim",
        perturbation=WAYS[algorithm[:3]],
        mechanism=KINDS[algorithm[3]],
        calibration=calibration,
        budget=f"per-release:{epsilon!r}",
        solver="clarabel",
        seed=1,
    )


def _drawn(algorithm: str, epsilon: float) -> float:
    """Return the variance of the mechanism that a run under calibration ``paper`` draws from."""
    from gridpriv.zonal.run import noise_rule

    settings = _settings(algorithm, epsilon, "paper")
    rule = noise_rule(settings, DemandAdjacency(settings.beta.per_unit(1.0)))
    if rule is None or rule.assumed is None:
        raise AssertionError("calibration 'paper' states a sensitivity")
    return _variance(settings.mechanism, rule.multiplier * rule.assumed)


def _sound(case: str, algorithm: str, epsilon: float) -> float:
    """Return the largest variance over zones of noise that certifies epsilon in round 1."""
    from gridpriv.zonal.run import noise_rule

    settings = _settings(algorithm, epsilon, "sound")
    rule = noise_rule(settings, DemandAdjacency(settings.beta.per_unit(1.0)))
    if rule is None:
        raise AssertionError("a private setting has noise")
    widest = max(_sensitivity(problem, settings, rule.norm) for problem in _problems(case))
    return _variance(settings.mechanism, rule.multiplier * widest)


def _sensitivity(problem: Any, settings: Any, norm: Any) -> float:
    adjacency = DemandAdjacency(settings.beta.per_unit(1.0))
    if settings.perturbation == "objective":
        return float(problem.gradient_sensitivity(adjacency, norm).value)
    import numpy as np

    # round 1: eta = 1, and rho on every coordinate
    metric = np.full(problem.program.size, 1.0 + settings.penalty.rho)
    return float(problem.output_sensitivity(adjacency, norm, settings.update, metric).value)


@lru_cache(maxsize=4)
def _problems(name: str) -> Any:
    from gridpriv.zonal.run import prepare

    case = load_case(name)
    zoning = shipped_zoning(case)
    if zoning is None:
        raise AssertionError(f"{name} has a shipped zone map")
    return prepare(case, zoning, _settings("ObjL", 1.0, "sound")).problems


def _variance(mechanism: str, scale: float) -> float:
    return 2.0 * scale**2 if mechanism == "laplace" else scale**2

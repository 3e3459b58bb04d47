"""Reproductions: a study file a figure, the claims of its paper, and two computed tables.

``gridpriv/papers/NAME.toml`` is a study; ``gridpriv/papers/claims/PAPER.toml`` says what the paper
states of its figures (:mod:`gridpriv.study.claims`). Both come with the package.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from gridpriv.core.errors import one_of
from gridpriv.core.files import read_table
from gridpriv.core.store import Study, read_study, reopen_store
from gridpriv.core.text import Json
from gridpriv.grid.library import load_case, shipped_zoning
from gridpriv.learning.algorithms.fedspd_dp import total_curves
from gridpriv.power.problem import ZoneProblem
from gridpriv.privacy.adjacency import DemandAdjacency
from gridpriv.privacy.mechanism import MECHANISMS, make_mechanism
from gridpriv.privacy.sensitivity import Norm
from gridpriv.privacy.settings import NO_NOISE
from gridpriv.study.claims import Claim, check_claims, read_claims
from gridpriv.study.comparison import compare
from gridpriv.study.engine import Progress, unseen
from gridpriv.study.grid_papers import GRID_TABLES, Computed
from gridpriv.study.learned import Shelf, compare_learning, read_learn_plan
from gridpriv.study.plan import read_plan
from gridpriv.zonal.prepared import noise_rule, prepare
from gridpriv.zonal.settings import Settings, make_settings

FOLDER = Path(__file__).parents[1] / "papers"
PAPER = "study file"
FOUR = ("ObjG", "ObjL", "OutG", "OutL")
SCALES = ("quick", "full")
EPSILONS = (0.05, 0.1, 0.5, 1.0)
BETA, DELTA = 0.01, 1e-2
ADJACENCY = DemandAdjacency(BETA)
WAYS = {"Obj": "objective", "Out": "output"}
KINDS = {"G": "gaussian", "L": "laplace"}


def reproductions() -> dict[str, str]:
    """Return the title of every reproduction, by name."""
    files = {path.stem: read_table(path, PAPER)["title"] for path in sorted(FOLDER.glob("*.toml"))}
    tables = {name: title for name, (title, _) in COMPUTED.items()}
    return dict(sorted((tables | files).items()))


def reproduce(
    name: str,
    out: Path,
    *,
    scale: str = "quick",
    data: str | None = None,
    jobs: int | None = None,
    resume: bool = False,
    retry_failed: bool = False,
    progress: Progress = unseen,
    **running: Any,
) -> Study:
    """Run a figure's study into a folder, check what the paper states, and return it.

    Parameters
    ----------
    scale : {'quick', 'full'}
        Some rounds and seeds, or those of the paper.
    data : str, optional
        Folder of data sets.
    **running
        Of a grid's study: see :func:`gridpriv.study.compare`.
    """
    one_of("scale", scale, SCALES)
    options: Json = {"resume": resume, "progress": progress, "retry_failed": retry_failed}
    path = FOLDER / f"{name}.toml"
    if learns(name):
        plan = read_learn_plan(path, scale)
        shelf = Shelf(data, data_seed=plan.data_seed)
        again = f"gridpriv reproduce {name} --scale {scale}"
        compare_learning(
            plan, out, shelf, jobs=jobs or 1, kind="reproduction", repeat=again, **options
        )
    else:
        compare(read_plan(path, scale), out=out, jobs=jobs, **options, **running)
    return with_claims(out, name)


def learns(name: str) -> bool:
    """Return True for a reproduction of a learning paper."""
    if name in COMPUTED:
        return name == "li-fig6"
    return "cases" not in read_table(FOLDER / f"{name}.toml", PAPER)


def reads_scale(name: str) -> bool:
    """Return True for a reproduction that is smaller at ``quick`` than at ``full``."""
    return learns(name) or "full" in read_table(FOLDER / f"{name}.toml", PAPER)


def claims_of(name: str) -> list[Claim]:
    """Return the claims of a paper about a figure."""
    files = sorted((FOLDER / "claims").glob("*.toml"))
    return [claim for path in files for claim in read_claims(path, name)]


def with_claims(folder: Path, name: str) -> Study:
    """Check the paper's statements on a finished study and store the outcome beside it."""
    claims = check_claims(read_study(folder), claims_of(name))
    with reopen_store(folder) as store:
        store.put("claims", claims)
    return read_study(folder)


def totals() -> Computed:
    """Return Li et al.'s totals: an accounting a row, a number of rounds a column."""
    curves = total_curves()
    labels = {"case": "adult", "budget": NO_NOISE, "local_updates": 5, "status": "done"}
    study = Study(
        Path(),
        {},
        {
            "runs": pd.DataFrame([{"run": name, "method": name} | labels for name in curves]),
            "rounds": pd.DataFrame(
                {"run": name, "round": t, "accounted": epsilon}
                for name, curve in curves.items()
                for t, epsilon in curve.items()
            ),
        },
    )
    table = pd.DataFrame(curves).T.rename(columns=str).rename_axis("accounting").reset_index()
    return Computed(table, check_claims(study, claims_of("li-fig6")))


def table1_formula(algorithm: str, epsilon: float) -> float:
    """Return the variance that the paper's table 1 prints, at its beta and delta."""
    times = 2.0 if algorithm.startswith("Obj") else 1.0
    factor = 2.0 * math.log(1.25 / DELTA) if algorithm.endswith("G") else 2.0
    return factor * (times * BETA / epsilon) ** 2


def table1() -> Computed:
    """Return table 1: the printed variance, the variance drawn, and that of proven noise.

    ``proven_CASE`` is the largest variance over a case's zones (in the first round) of noise
    that certifies the stated epsilon per release.
    """
    columns = {"drawn": None, "proven_case14": "case14", "proven_case118": "case118"}
    table = pd.DataFrame(
        {"algorithm": algorithm, "epsilon": epsilon, "printed": table1_formula(algorithm, epsilon)}
        | {name: _variance(algorithm, epsilon, case) for name, case in columns.items()}
        for algorithm, epsilon in product(FOUR, EPSILONS)
    )
    return Computed(table, table1_claims(table))


def table1_claims(table: pd.DataFrame) -> pd.DataFrame:
    """Return the verdicts on ObjG > OutG > ObjL > OutL, for published and for proven noise."""
    rows = []
    for column, words in (
        ("drawn", "published"),
        ("proven_case14", "proven, case14"),
        ("proven_case118", "proven, case118"),
    ):
        at = (rows for _, rows in table.sort_values(column, ascending=False).groupby("epsilon"))
        orders = [" > ".join(rows.algorithm) for rows in at]
        right = [o == "ObjG > OutG > ObjL > OutL" for o in orders]
        rows.append(
            {
                "claim": "Variance: ObjG > OutG > ObjL > OutL",
                "sensitivity": words,
                "outcome": "holds" if all(right) else "does not hold",
                "holding": sum(right),
                "comparisons": len(right),
                "detail": "" if all(right) else "; ".join(dict.fromkeys(orders)),
            }
        )
    return pd.DataFrame(rows)


def _settings(algorithm: str, epsilon: float, calibration: str) -> Settings:
    return make_settings(
        "ryu-kim",
        perturbation=WAYS[algorithm[:3]],
        mechanism=KINDS[algorithm[3]],
        sensitivity=calibration,
        budget=f"per-release:{epsilon!r}",
        solver="clarabel",
        seed=1,
    )


def _variance(algorithm: str, epsilon: float, case: str | None) -> float:
    """Return the variance of the noise that sensitivity ``published`` draws, or that a case needs.

    The latter is the largest over zones of noise that certifies epsilon in round 1.
    """
    settings = _settings(algorithm, epsilon, "published" if case is None else "proven")
    rule = noise_rule(settings, ADJACENCY)
    assert rule is not None
    moved = rule.assumed
    if case is not None:
        moved = max(_sensitivity(problem, settings, rule.norm) for problem in _problems(case))
    assert moved is not None
    return make_mechanism(
        MECHANISMS[rule.mechanism, "simulated"], rule.multiplier * moved, moved
    ).variance


def _sensitivity(problem: ZoneProblem, settings: Settings, norm: Norm) -> float:
    if settings.perturbation == "objective":
        return problem.gradient_sensitivity(ADJACENCY, norm).value
    # round 1: eta = 1, and rho on every coordinate
    metric = 1.0 + settings.penalty.first(problem.program.size)
    return problem.output_sensitivity(ADJACENCY, norm, settings.update, metric).value


@lru_cache(maxsize=4)
def _problems(name: str) -> tuple[ZoneProblem, ...]:
    case = load_case(name)
    zoning = shipped_zoning(case)
    assert zoning is not None
    return prepare(case, zoning, _settings("ObjL", 1.0, "proven")).problems


COMPUTED: dict[str, tuple[str, Callable[[], Computed]]] = {
    "rk-table1": (
        "Ryu and Kim, table 1: noise variance of objective (Obj) and output (Out) perturbation, "
        "Gaussian (G) and Laplace (L)",
        table1,
    ),
    "li-fig6": ("Li et al., figure 6: total at delta 1e-4 of rounds of epsilon 0.1", totals),
    **GRID_TABLES,
}
"""Tables without a study: title, and what computes them."""

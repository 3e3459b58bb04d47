"""Reproductions of papers: a study file per figure, the claims of the paper, and computed tables.

``gridpriv/papers/NAME.toml`` is a study; ``gridpriv/papers/claims/PAPER.toml`` has the paper's
statements on its figures (:mod:`gridpriv.study.claims`). Both come with the package.

Computed tables compare published mechanisms for grid data with proven accounting, at the scales of
public code (docs/papers).

- ``fioretto-restoration``: Laplace noise on loads, then the nearest loads whose optimal cost is
  near the true one. Noise of scale beta/epsilon on p and on q is one release of 2 epsilon, as a bus
  changes both. The exact optimal cost is not a release: with it nothing is certified.
- ``fioretto-lines``: Laplace noise on line conductances and their means, as public code draws it.
- ``dvorkin-tco``: capacities of lines are protected; the sensitivity of a DC optimum's cost to a
  capacity is its shadow price, which a network can make larger than every generator's price.
- ``dvorkin-elo``: loads are protected in the same way; the sensitivity of the cost to a load is its
  price. Both tables of steps follow the scales of the authors' public code.
- ``dvorkin-ccopf``: noise whose deviation is a share of each private load; and flows along a
  feeder, all of which a single load changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.integrate import quad
from scipy.optimize import linprog
from scipy.stats import norm

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import SolverError, check_choice
from gridpriv.core.files import read_table
from gridpriv.core.store import Study, read_study, reopen_store
from gridpriv.core.text import Json
from gridpriv.grid.case import Case
from gridpriv.grid.library import load_case, shipped_zoning
from gridpriv.learning.algorithms.fedspd_dp import total_curves
from gridpriv.power.ac import optimum as ac_optimum
from gridpriv.power.ac.model import AcModel
from gridpriv.power.problem import ZoneProblem
from gridpriv.privacy.accounting import epsilon_of
from gridpriv.privacy.adjacency import DemandAdjacency
from gridpriv.privacy.mechanism import MECHANISMS, Charge, make_mechanism
from gridpriv.privacy.sensitivity import Norm
from gridpriv.privacy.settings import NO_NOISE
from gridpriv.study.claims import FAILS, HOLDS, Claim, check_claims, read_claims
from gridpriv.study.comparison import compare
from gridpriv.study.engine import Progress, no_progress
from gridpriv.study.learned import DatasetLoader, compare_learning, read_learn_plan
from gridpriv.study.plan import read_plan
from gridpriv.zonal.prepared import noise_rule, prepare
from gridpriv.zonal.protected_case import prepare_publication, protect
from gridpriv.zonal.settings import Settings, make_settings

FOLDER = Path(__file__).parents[1] / "papers"
PAPER = "study file"
FOUR = ("ObjG", "ObjL", "OutG", "OutL")
SCALES = ("quick", "full")
EPSILONS = (0.05, 0.1, 0.5, 1.0)
BETA, RELEASE_DELTA = 0.01, 1e-2
ADJACENCY = DemandAdjacency(BETA)
PERTURBATIONS = {"Obj": "objective", "Out": "output"}
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
    progress: Progress = no_progress,
    **running: Any,
) -> Study:
    """Run a figure's study into a folder, check the paper's statements, and return it.

    Parameters
    ----------
    scale : {'quick', 'full'}
        Some rounds and seeds, or those of the paper.
    data : str, optional
        Folder of data sets.
    **running
        Of a grid's study: see :func:`gridpriv.study.compare`.
    """
    check_choice("scale", scale, SCALES)
    options: Json = {"resume": resume, "progress": progress, "retry_failed": retry_failed}
    path = FOLDER / f"{name}.toml"
    if learns(name):
        plan = read_learn_plan(path, scale)
        loader = DatasetLoader(data, data_seed=plan.data_seed)
        repeat = f"gridpriv reproduce {name} --scale {scale}"
        compare_learning(
            plan, out, loader, jobs=jobs or 1, kind="reproduction", repeat=repeat, **options
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
    """Check the paper's statements on a finished study and store the outcome in its folder."""
    claims = check_claims(read_study(folder), claims_of(name))
    with reopen_store(folder) as store:
        store.set_table("claims", claims)
    return read_study(folder)


BETA_MW, EPSILON, DELTA, DRAWS = 10.0, 1.0, 1e-5, 5
FIDELITY = 0.01
"""Largest relative error of the optimal cost of restored loads."""
RESTORING_STEPS = 10
STEPS = 10
"""Steps of the algorithms for synthetic grid data, by default in their public code."""
FEEDER_DELTA, FEEDER_DEPTH = 1.0 / 14.0, 7
"""delta of the feeder's public code, and branches from the source to its farthest node."""
SHARE = 0.1
"""Change of a load that the feeder's noise hides, as a share of the load."""


@dataclass(frozen=True, eq=False)
class Computed:
    """A computed reproduction: its table and the claims about it."""

    table: pd.DataFrame
    claims: pd.DataFrame

    @classmethod
    def of(cls, table: pd.DataFrame, *stated: tuple[str, bool, str]) -> Computed:
        """Return a table with claims: what is stated, whether it holds, and the figures."""
        return cls(table, pd.DataFrame([_claim(text, [ok], words) for text, ok, words in stated]))


def restoration(cases: Sequence[str] = ("case14", "case30"), draws: int = DRAWS) -> Computed:
    """Return the cost of released loads, by method, at the epsilon of each paper."""
    rows = [row for name in cases for row in _restored_rows(load_case(name), draws)]
    table = pd.DataFrame(rows)
    share = {method: rows["feasible"].mean() for method, rows in table.groupby("method")}
    restored = table[table["method"] == "restored, true cost"]
    return Computed.of(
        table,
        (
            "Restored loads are AC-feasible more often than naive ones",
            share["restored, true cost"] > share["naive Laplace"],
            f"{share['restored, true cost']:.2f} > {share['naive Laplace']:.2f}",
        ),
        (
            "The optimal cost on restored loads is within 1 % of the true one",
            bool((restored["cost_error"] <= 100.0 * FIDELITY + 1e-3).all()),
            f"largest mean {restored['cost_error'].max():.3g} %",
        ),
        (
            "Restoration costs no privacy",
            bool(np.isfinite(restored["certified"]).all()),
            "it reads the true optimal cost, which carries no noise",
        ),
    )


def _restored_rows(case: Case, draws: int) -> Iterator[dict[str, object]]:
    true = ac_optimum.acopf(case).cost or 0.0
    methods: dict[str, tuple[float, Callable[[int], ac_optimum.AcOptimum | None]]] = {
        "naive Laplace": (2.0 * EPSILON, lambda seed: _served(_naive(case, seed))),
        "restored, true cost": (math.inf, lambda seed: _restored(_naive(case, seed), true)),
        "K-norm, projected": (EPSILON, lambda seed: _published(case, seed, priced=False)),
        "K-norm, priced query": (EPSILON, lambda seed: _published(case, seed, priced=True)),
    }
    for method, (certified, draw) in methods.items():
        drawn = [draw(seed) for seed in range(draws)]
        errors = [abs((o.cost or 0.0) / true - 1.0) for o in drawn if o is not None]
        yield {
            "case": case.name,
            "method": method,
            "stated": EPSILON,
            "certified": certified,
            "feasible": len(errors) / draws,
            "cost_error": 100.0 * float(np.mean(errors)) if errors else math.nan,
        }


def _naive(case: Case, seed: int) -> Case:
    scale = BETA_MW / EPSILON / case.base_mva
    noise = np.random.default_rng(seed).laplace(0.0, scale, (2, case.n_bus))
    return replace(case, pd=case.pd + noise[0], qd=case.qd + noise[1])


def _served(case: Case) -> ac_optimum.AcOptimum | None:
    try:
        best = ac_optimum.acopf(case, shedding=False)
    except SolverError:
        return None
    return None if best.violations else best


def _restored(noisy: Case, true: float) -> ac_optimum.AcOptimum | None:
    """Return the optimum at the nearest loads whose optimal cost is within the fidelity.

    The papers' bilevel problem by cutting planes: every optimum bounds the optimal cost of other
    loads by its prices from below, the last one also from above where it was too low.
    """
    best, planes = _served(ac_optimum.nearest_served(noisy, 2).case), list[tuple[Floats, float]]()
    for _ in range(RESTORING_STEPS):
        cost = math.nan if best is None else (best.cost or 0.0) / true - 1.0
        if best is None or abs(cost) <= FIDELITY:
            return best
        case = best.state.case
        prices = noisy.base_mva / true * np.concatenate([best.p_price, best.q_price])
        change = np.concatenate([noisy.pd - case.pd, noisy.qd - case.qd])
        planes.append((prices, cost + float(prices @ change)))
        model = AcModel(ac_optimum.tightened(noisy, ac_optimum.MARGINS[0]))
        changes = np.concatenate(ac_optimum.add_changes(model, 2))
        for prices, at_noisy in planes:
            low = -0.5 * FIDELITY if cost < 0.0 and prices is planes[-1][0] else -np.inf
            band = np.array([low, 0.5 * FIDELITY]) - at_noisy
            row = model.program.add_rows(1, *band)
            model.program.add_linear(np.repeat(row, len(changes)), changes, prices)
        solution = model.program.solve(zero=model.unserved)
        p, q = np.split(solution.x[changes], 2)
        near = replace(noisy, pd=noisy.pd + p, qd=noisy.qd + q)
        best = _served(near) if solution.solved else None
    return None


def _published(case: Case, seed: int, *, priced: bool) -> ac_optimum.AcOptimum | None:
    settings = make_settings(
        budget=f"total:{EPSILON}",
        beta=f"{BETA_MW}MW",
        seed=seed,
        release="bus" if priced else "auto",
    )
    return protect(prepare_publication(case, settings, priced=priced)).served.optimum


def admittances(cases: Sequence[str] = ("case14", "case30", "case118")) -> Computed:
    """Return the epsilon that noise on line parameters certifies, as public code draws it.

    Conductances g get noise of scale 3 alpha / epsilon; a susceptance is the noisy g times the
    line's own ratio r = b / g. The means of all g and of all b get noise of scale
    3 alpha / (n epsilon). Where one g changes by alpha its b changes by r alpha, so the three cost
    epsilon / 3 times 1 + 1 + |r|. The ratios themselves are read without noise.
    """
    rows = []
    for case in map(load_case, cases):
        ratio = np.abs(case.x[case.r != 0.0] / case.r[case.r != 0.0])
        certified = EPSILON / 3.0 * (2.0 + ratio)
        rows.append(
            {
                "case": case.name,
                "stated": EPSILON,
                "certified_median_line": float(np.median(certified)),
                "certified_worst_line": float(certified.max()),
                "lines_without_resistance": int((case.r == 0.0).sum()),
            }
        )
    table = pd.DataFrame(rows)
    worst = table["certified_worst_line"].max()
    return Computed.of(
        table,
        (
            "Noise on conductances and both means costs the stated epsilon",
            bool(worst <= EPSILON),
            f"up to {worst:.3g}, if all ratios were public",
        ),
        (
            "Susceptances from noisy conductances cost nothing",
            False,
            "released b over released g is the line's own ratio, without noise",
        ),
    )


def capacities() -> Computed:
    """Return shadow prices of a line, the highest generator price, and the cost of T steps.

    Three buses in a triangle of equal lines: a cheap generator at bus 1, an expensive one at bus 2
    and 300 MW of load at bus 3. Line 1-3 carries 2/3 of bus 1's and 1/3 of bus 2's output.
    """
    table = _triangle(
        "shadow_price", lambda cost: _dispatch_cost(cost, 150.0) - _dispatch_cost(cost, 151.0)
    )
    return Computed.of(
        table,
        (
            "The dearest price times the change of a capacity bounds the change of the cost",
            bool((table["ratio"] <= 1.0).all()),
            f"the shadow price is up to {table['ratio'].max():.3g} times the dearest price",
        ),
    )


def loads() -> Computed:
    """Return the price of a load and the highest generator price, in the same triangle."""
    table = _triangle(
        "price", lambda cost: _dispatch_cost(cost, 150.0, 301.0) - _dispatch_cost(cost, 150.0)
    )
    steps = steps_epsilon(STEPS, EPSILON)
    return Computed.of(
        table,
        (
            "The dearest price times the change of a load bounds the change of the cost",
            bool((table["ratio"] <= 1.0).all()),
            f"the price of a load is up to {table['ratio'].max():.3g} times the dearest",
        ),
        (
            f"{STEPS} steps of the public code cost epsilon 1",
            steps["public code"] <= EPSILON,
            f"epsilon {steps['public code']:.4g} with its scale of cost answers, "
            f"{steps['as intended']:.3g} with the scale multiplied by 4T",
        ),
    )


def _triangle(name: str, price: Callable[[float], float]) -> pd.DataFrame:
    """Return a price with the highest generator price."""
    table = pd.DataFrame({"dearest": cost, name: price(cost)} for cost in (20.0, 50.0, 100.0))
    return table.assign(ratio=table[name] / table["dearest"])


def steps_epsilon(steps: int, epsilon: float) -> dict[str, float]:
    """Return the total epsilon of T steps, if all assumed sensitivities hold.

    The first release takes epsilon/2. Each step picks a record by the largest noisy error, at scale
    4T/epsilon times its sensitivity (2 epsilon/4T: errors change in both directions), and releases
    one cost, whose scale divides by 4T where it should multiply: 4T epsilon in place of epsilon/4T.
    """
    selections = steps * 2.0 * epsilon / (4.0 * steps)
    return {
        "as intended": epsilon / 2.0 + selections + steps * epsilon / (4.0 * steps),
        "public code": epsilon / 2.0 + selections + steps * 4.0 * steps * epsilon,
    }


def _dispatch_cost(cost: float, rating: float, load: float = 300.0) -> float:
    solution = linprog(
        [10.0, cost], A_ub=[[2.0 / 3.0, 1.0 / 3.0]], b_ub=[rating], A_eq=[[1.0, 1.0]], b_eq=[load]
    )
    return float(solution.fun)


def feeder(case: str = "case15da") -> Computed:
    """Return the exact loss of noise that is a share of each load, and of all flows of a feeder."""
    multiplier = math.sqrt(2.0 * math.log(1.25 / DELTA)) / EPSILON  # the classical Gaussian
    depth = _depth(load_case(case))
    sigma = SHARE * multiplier
    scaled = excess_loss(sigma, 1.0 - SHARE, (1.0 - SHARE) * sigma)
    fixed = excess_loss(sigma, 1.0 - SHARE, sigma)
    path = epsilon_of(Charge("gaussian", multiplier / math.sqrt(depth)), DELTA)
    single = epsilon_of(Charge("gaussian", multiplier), DELTA)
    stated = math.sqrt(2.0 * math.log(1.25 / FEEDER_DELTA)) / EPSILON
    paper = epsilon_of(Charge("gaussian", stated / math.sqrt(FEEDER_DEPTH)), FEEDER_DELTA)
    longest = f"all flows of the paper's longest path, {FEEDER_DEPTH} branches"
    table = pd.DataFrame(
        [
            ("one flow, public deviation", EPSILON, single, fixed),
            ("one flow, deviation a share of its private load", EPSILON, None, scaled),
            (f"all flows of a path of {depth} branches", EPSILON, path, DELTA),
            (longest, EPSILON, paper, FEEDER_DELTA),
        ],
        columns=["noise", "stated", "certified", "delta"],
    )
    return Computed.of(
        table,
        (
            "Noise that is a share of a private load is (1, 1e-5)-private for 10 % of it",
            scaled <= DELTA,
            f"delta {scaled:.2g} at epsilon 1, with a public deviation {fixed:.2g}",
        ),
        (
            "The noise of one flow serves all flows that one load moves",
            path <= EPSILON,
            f"epsilon {path:.3g} for {depth} branches",
        ),
    )


def excess_loss(sigma: float, other: float, deviation: float) -> float:
    """Return delta at epsilon 1 of normal noise of means 1 and ``other``, the worse way round."""

    def one_way(first: tuple[float, float], second: tuple[float, float]) -> float:
        def excess(x: float) -> float:
            return float(max(norm.pdf(x, *first) - math.exp(EPSILON) * norm.pdf(x, *second), 0.0))

        width = max(first[1], second[1])
        points = np.linspace(-12.0, 12.0, 49) * width + first[0]
        return float(sum(quad(excess, a, b, limit=200)[0] for a, b in pairwise(points)))

    pair = (1.0, sigma), (other, deviation)
    return max(one_way(*pair), one_way(*reversed(pair)))


def _depth(case: Case) -> int:
    """Return the largest number of branches between the source and a bus."""
    import networkx as nx

    graph = nx.Graph(zip(case.f_bus.tolist(), case.t_bus.tolist(), strict=True))
    lengths = nx.single_source_shortest_path_length(graph, int(np.flatnonzero(case.reference)[0]))
    return int(max(lengths.values()))


def _claim(
    text: str, comparisons: Sequence[bool], detail: str, sensitivity: str = ""
) -> dict[str, object]:
    """Return the row of a claim that holds if all comparisons do."""
    return {
        "claim": text,
        "sensitivity": sensitivity,
        "outcome": HOLDS if all(comparisons) else FAILS,
        "holding": sum(comparisons),
        "comparisons": len(comparisons),
        "detail": detail,
    }


def totals() -> Computed:
    """Return Li et al.'s totals: one row per accounting, one column per number of rounds."""
    curves = total_curves()
    labels = {"case": "adult", "budget": NO_NOISE, "local_updates": 5, "status": "done"}
    runs = pd.DataFrame([{"run": name, "method": name} | labels for name in curves])
    rows = [(name, t, epsilon) for name, curve in curves.items() for t, epsilon in curve.items()]
    rounds = pd.DataFrame(rows, columns=["run", "round", "accounted"])
    study = Study(Path(), {}, {"runs": runs, "rounds": rounds})
    table = pd.DataFrame(curves).T.rename(columns=str).rename_axis("accounting").reset_index()
    return Computed(table, check_claims(study, claims_of("li-fig6")))


def table1_formula(algorithm: str, epsilon: float) -> float:
    """Return the variance that the paper's table 1 prints, at its beta and delta."""
    times = 2.0 if algorithm.startswith("Obj") else 1.0
    factor = 2.0 * math.log(1.25 / RELEASE_DELTA) if algorithm.endswith("G") else 2.0
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
        detail = "" if all(right) else "; ".join(dict.fromkeys(orders))
        rows.append(_claim("Variance: ObjG > OutG > ObjL > OutL", right, detail, words))
    return pd.DataFrame(rows)


def _settings(algorithm: str, epsilon: float, calibration: str) -> Settings:
    return make_settings(
        "ryu-kim",
        perturbation=PERTURBATIONS[algorithm[:3]],
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
    sensitivity = rule.assumed
    if case is not None:
        sensitivity = max(_sensitivity(problem, settings, rule.norm) for problem in _problems(case))
    assert sensitivity is not None
    return make_mechanism(
        MECHANISMS[rule.mechanism, "simulated"], rule.multiplier * sensitivity, sensitivity
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
    "fioretto-restoration": ("Fioretto et al.: restored loads, stated and certified", restoration),
    "fioretto-lines": ("Fioretto et al.: line parameters, stated and certified", admittances),
    "dvorkin-tco": ("Dvorkin and Botterud: effect of one line's capacity", capacities),
    "dvorkin-elo": ("Dvorkin and Botterud: effect of one load; epsilon of all steps", loads),
    "dvorkin-ccopf": ("Dvorkin et al.: noise on a feeder, stated and certified", feeder),
}
"""Tables without a study: title, and function."""

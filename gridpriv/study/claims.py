"""What Ryu and Kim state of their figures 3 and 4 (section 6.1.2), checked on a study.

Noise magnitude is compared as its mean over all rounds and seeds; objective and residual as
their means over the last ten rounds and all seeds. Each statement is an ordering between two
values, for every epsilon, mechanism or E that it speaks of; it holds if every comparison does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise, product

import pandas as pd

from gridpriv.core.store import Study

LAST = 10
FOUR = ("ObjG", "ObjL", "OutG", "OutL")
SMALLER, LARGER = (0.05, 0.1), (0.5, 1.0)


@dataclass(frozen=True)
class Comparison:
    """``less`` should be below ``more``."""

    where: str
    less: float
    more: float

    @property
    def holds(self) -> bool:
        """Whether it is."""
        return self.less < self.more


@dataclass(frozen=True, eq=False)
class Values:
    """Means of a study by scheme, epsilon and E, under one calibration."""

    means: dict[tuple[str, float, int, str], float]
    epsilons: tuple[float, ...]
    updates: tuple[int, ...]
    suffix: str

    def of(self, scheme: str, epsilon: float, updates: int, metric: str) -> float:
        """Return a mean, or NaN where the study has none."""
        return self.means.get((scheme + self.suffix, epsilon, updates, metric), math.nan)

    def compare(
        self,
        metric: str,
        less: tuple[str, float, int],
        more: tuple[str, float, int],
    ) -> Iterator[Comparison]:
        """Yield the comparison of two values if the study has both."""
        a, b = self.of(*less, metric), self.of(*more, metric)
        if math.isfinite(a) and math.isfinite(b):
            where = f"{_name(less)} {a:.3g} < {_name(more)} {b:.3g}"
            yield Comparison(where, a, b)


Ordering = Callable[[Values], Iterable[Comparison]]


def noise_grows(v: Values) -> Iterator[Comparison]:
    """Observation 1: smaller epsilon, more noise."""
    for scheme, e in product(FOUR, v.updates):
        for small, large in pairwise(v.epsilons):
            yield from v.compare("noise_magnitude", (scheme, large, e), (scheme, small, e))


def objective_noisier(v: Values) -> Iterator[Comparison]:
    """Observation 2: ObjG needs more noise than OutG, ObjL than OutL."""
    for kind, eps, e in product("GL", v.epsilons, v.updates):
        yield from v.compare("noise_magnitude", (f"Out{kind}", eps, e), (f"Obj{kind}", eps, e))


def gaussian_noisier(v: Values) -> Iterator[Comparison]:
    """Observation 3: Gaussian needs more noise than Laplace."""
    for way, eps, e in product(("Obj", "Out"), v.epsilons, v.updates):
        yield from v.compare("noise_magnitude", (f"{way}L", eps, e), (f"{way}G", eps, e))


def objective_better(v: Values) -> Iterator[Comparison]:
    """E = 1: ObjG and ObjL reach lower objectives than OutG and OutL."""
    for a, b, eps in product("GL", "GL", v.epsilons):
        yield from v.compare("objective", (f"Obj{a}", eps, 1), (f"Out{b}", eps, 1))


def laplace_better(v: Values) -> Iterator[Comparison]:
    """E = 1: ObjL performs better than ObjG."""
    for eps in v.epsilons:
        yield from v.compare("objective", ("ObjL", eps, 1), ("ObjG", eps, 1))


def better_when_private(v: Values) -> Iterator[Comparison]:
    """E = 5: for smaller epsilon the objectives of ObjG and ObjL are lower."""
    for a, b, eps in product("GL", "GL", (x for x in v.epsilons if x in SMALLER)):
        yield from v.compare("objective", (f"Obj{a}", eps, 5), (f"Out{b}", eps, 5))


def output_sometimes_better(v: Values) -> Iterator[Comparison]:
    """E = 5: for larger epsilon OutG and OutL are sometimes better."""
    for kind, eps in product("GL", (x for x in v.epsilons if x in LARGER)):
        yield from v.compare("objective", (f"Out{kind}", eps, 5), (f"Obj{kind}", eps, 5))


def updates_help(*schemes: str) -> Ordering:
    """Return the ordering: E = 5 leaves a smaller consensus residual than E = 1."""

    def compare(v: Values) -> Iterator[Comparison]:
        for scheme, eps in product(schemes, v.epsilons):
            yield from v.compare("consensus_residual", (scheme, eps, 5), (scheme, eps, 1))

    return compare


CLAIMS: tuple[tuple[str, Ordering, bool], ...] = (
    ("Noise magnitude increases as epsilon decreases", noise_grows, True),
    ("Objective perturbation needs more noise than output perturbation", objective_noisier, True),
    ("The Gaussian mechanism needs more noise than the Laplace mechanism", gaussian_noisier, True),
    ("E = 1: ObjG and ObjL reach lower objectives than OutG and OutL", objective_better, True),
    ("E = 1: ObjL performs better than ObjG", laplace_better, True),
    ("E = 5, epsilon 0.05 and 0.1: ObjG, ObjL reach lower objectives", better_when_private, True),
    ("E = 5, epsilon 0.5 and 1: OutG or OutL is sometimes better", output_sometimes_better, False),
    ("E = 5 leaves a smaller residual than E = 1 (ObjG)", updates_help("ObjG"), True),
    ("E = 5 leaves a smaller residual than E = 1 (the others)",
     updates_help("ObjL", "OutG", "OutL"), True),
)  # fmt: skip


def check_claims(study: Study) -> pd.DataFrame:
    """Return one row per statement and calibration: outcome, comparisons, where it fails."""
    rows = []
    for case in dict.fromkeys(study.done["case"]):
        for calibration, suffix in (("paper", ""), ("sound", ", sound")):
            values = make_values(study, case, suffix)
            rows += [
                {"claim": claim, "case": case, "calibration": calibration}
                | verdict(list(ordering(values)), every)
                for claim, ordering, every in CLAIMS
            ]
    return pd.DataFrame([row for row in rows if row["comparisons"]])


def verdict(found: list[Comparison], every: bool) -> dict[str, object]:
    """Return whether a statement holds: in every comparison, or (``every`` False) in one."""
    wrong = [c for c in found if not c.holds]
    good = len(found) - len(wrong)
    holds = not wrong if every else good > 0
    shown = wrong if every else [c for c in found if c.holds]
    return {
        "outcome": "holds" if holds else "does not hold",
        "holding": good,
        "comparisons": len(found),
        "detail": ("not: " if every and wrong else "") + "; ".join(c.where for c in shown[:3])
        + (f"; {len(shown) - 3} more" if len(shown) > 3 else ""),
    }  # fmt: skip


def make_values(study: Study, case: str, suffix: str) -> Values:
    """Return a case's means under one calibration."""
    runs = study.done[(study.done["case"] == case) & (study.done["mechanism"] != "none")]
    runs = runs[runs["scheme"].str.endswith(", sound") == bool(suffix)]
    runs = runs.assign(epsilon=[_epsilon(b) for b in runs["budget"]])
    keys = ["scheme", "epsilon", "local_updates"]
    rounds = study.rounds.merge(runs[["run", "rounds", *keys]], on="run")
    late = rounds[rounds["round"] > rounds["rounds"] - LAST]
    means: dict[tuple[str, float, int, str], float] = {}
    for metric, table in (
        ("noise_magnitude", rounds), ("objective", late), ("consensus_residual", late),
    ):  # fmt: skip
        for row in table.groupby(keys, as_index=False)[metric].mean().values.tolist():
            means[str(row[0]), float(row[1]), int(row[2]), metric] = float(row[3])
    return Values(
        means,
        tuple(sorted(set(runs["epsilon"]))),
        tuple(sorted(set(runs["local_updates"]))),
        suffix,
    )


def _epsilon(budget: str) -> float:
    return float(budget.partition(":")[2].split(",")[0])


def _name(key: tuple[str, float, int]) -> str:
    return f"{key[0]} (eps {key[1]:g}, E {key[2]})"

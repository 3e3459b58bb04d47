"""Claims of a paper about a figure: rows of a file, checked on the means of a study.

A statement is an ordering. Every row has ``text``, the compared ``figure`` (a column of the study's
tables) and one of

- ``less`` and ``more``: the value of every method in one list is below that of every method in the
  other (of that at the same position, if ``paired``), at all common budgets and numbers of local
  updates; ``factor`` times it, if given;
- ``falling``: the value does not rise along a list of methods or, with ``along = "budgets"``, along
  the budgets of each;
- ``passes`` and ``rival``: the curve of a method stays below another's after a share ``after`` of
  the rounds;
- ``spread``: the range of the value over the listed methods is less than over the budgets.

Values are means over seeds: of the run's own value (after its last round; of noise, the mean over
rounds); of round ``round`` (for ``more``: ``than-round``); of the last ten rounds with
``late = true``. A comparison has no information if the better of both values is ``chance`` or more
(the value of guessing), or if they differ by at most ``flat``. The outcome of a claim without any
other comparison is "no information". ``ours = true`` marks a question of this project; the count of
a paper's statements omits it. ``updates`` and ``than-updates`` choose the local updates,
``budgets`` the budgets, and ``some = true`` requires one comparison to hold instead of all.
``verdict``, ``cause`` (paper, data, ours) and ``why`` are the recorded verdict, shown with the
present outcome.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from gridpriv.core.errors import InputError, check_choice
from gridpriv.core.files import read_table
from gridpriv.core.settings import check_names
from gridpriv.core.store import Study
from gridpriv.core.text import Json
from gridpriv.privacy.settings import NO_NOISE, nominal_epsilon

LATE = 10
HOLDS, FAILS, NO_INFORMATION = "holds", "does not hold", "no information"
CAUSES = ("paper", "data", "ours")
LABELS = ["method", "budget", "local_updates"]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A row of a claims file; see the module."""

    text: str
    figure: str
    sensitivity: str = ""
    less: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    paired: bool = False
    falling: tuple[str, ...] = ()
    along: str = "methods"
    passes: str = ""
    rival: str = ""
    after: float = 0.0
    spread: tuple[str, ...] = ()
    budgets: tuple[float, ...] = ()
    factor: float = 1.0
    round: int | None = None
    than_round: int | None = None
    updates: int | None = None
    than_updates: int | None = None
    late: bool = False
    some: bool = False
    chance: float = math.inf
    flat: float = -1.0
    ours: bool = False
    verdict: str = ""
    cause: str = ""
    why: str = ""

    def __post_init__(self) -> None:
        halves = bool(self.less) != bool(self.more) or bool(self.passes) != bool(self.rival)
        if halves or sum(bool(getattr(self, kind)) for kind in COMPARED) != 1:
            raise InputError(
                f"claim {self.text!r}: one of less with more, falling, passes with rival, spread"
                "; use one of these"
            )
        check_choice("verdict", self.verdict or HOLDS, (HOLDS, FAILS, NO_INFORMATION))
        check_choice("cause", self.cause or CAUSES[0], CAUSES)


@dataclass(frozen=True)
class Comparison:
    """``less`` should be below ``more``, or (``equal``) not above it."""

    where: str
    less: float
    more: float
    equal: bool = False
    informative: bool = True

    @property
    def holds(self) -> bool:
        """True if the comparison holds."""
        return self.less <= self.more if self.equal else self.less < self.more


@dataclass(frozen=True, eq=False)
class Means:
    """Means over seeds of one case's finished runs."""

    study: Study
    case: str

    @cached_property
    def runs(self) -> pd.DataFrame:
        """Finished runs, with the median seconds of a round where they were taken."""
        done = self.study.done
        done = done[done["case"] == self.case]
        timing = self.study.tables.get("timing", pd.DataFrame())
        if "round_seconds" in timing:
            return done.merge(timing[["run", "round_seconds"]], on="run", how="left")
        return done

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """Rounds of those runs with the runs' labels."""
        return self.study.rounds.merge(self.runs[["run", *LABELS]], on="run")

    def budgets(self, method: str) -> list[str]:
        """Return a method's budgets, by epsilon."""
        budgets = dict.fromkeys(self.runs.loc[self.runs["method"] == method, "budget"])
        return sorted(budgets, key=nominal_epsilon)

    def updates(self, method: str) -> list[int]:
        """Return a method's numbers of local updates."""
        return sorted(set(self.runs.loc[self.runs["method"] == method, "local_updates"]))

    def value(self, cell: Cell, figure: str, at: int | str | None) -> float:
        """Return a value of the run (None; else of all rounds), or of rounds."""
        table = self.runs if at is None and figure in self.runs else self.rounds
        if figure not in table:
            return math.nan
        chosen = table[(table[LABELS] == [*cell]).all(axis=1)]
        if at == "late":
            last = chosen.groupby("run")["round"].transform("max")
            chosen = chosen[chosen["round"] > last - LATE]
        elif at is not None:
            chosen = chosen[chosen["round"] == at]
        return float(pd.to_numeric(chosen[figure]).mean()) if len(chosen) else math.nan

    def curve(self, method: str, budget: str, figure: str) -> pd.Series:
        """Return the mean over seeds of a value by round."""
        rounds = self.rounds[(self.rounds["method"] == method) & (self.rounds["budget"] == budget)]
        return rounds.groupby("round")[figure].mean()


class Cell(NamedTuple):
    """One combination of a study: its runs differ in their seed."""

    method: str
    budget: str
    updates: int


def read_claims(path: Path, name: str) -> list[Claim]:
    """Return the claims of a file that are ``of`` a reproduction.

    Raises
    ------
    InputError
        For a row without a statement that can be checked.
    """
    table = read_table(path, "claims")
    common = table.get("suffixes", {"": ""})
    return [
        make_claim(row, calibration, suffix)
        for calibration, suffix in common.items()
        for row in table["claims"]
        if name in _texts(row["of"])
    ]


def make_claim(row: Json, calibration: str = "", suffix: str = "") -> Claim:
    """Return the claim of a row, about methods whose names end in ``suffix``."""
    given = {key.replace("-", "_"): value for key, value in row.items() if key != "of"}
    check_names(given, [field.name for field in fields(Claim)])
    for key in ("less", "more", "falling", "spread"):
        given[key] = tuple(f"{name}{suffix}" for name in _texts(given.get(key, [])))
    given["budgets"] = tuple(given.get("budgets", ()))
    return Claim(**{"sensitivity": calibration} | given)


def check_claims(study: Study, claims: Iterable[Claim]) -> pd.DataFrame:
    """Return one row per statement and case: outcome, comparisons, values, recorded verdict."""
    rows = []
    for case in dict.fromkeys(study.done["case"]):
        means = Means(study, str(case))
        for claim in claims:
            compared = [c for c in comparisons(claim, means) if not math.isnan(c.less + c.more)]
            if compared:
                rows.append(
                    {"claim": claim.text, "case": case, "sensitivity": claim.sensitivity}
                    | verdict(compared, some=claim.some)
                    | {"ours": claim.ours, "settled": claim.verdict}
                    | {"cause": claim.cause, "why": claim.why}
                )
    return pd.DataFrame(rows)


def verdict(result: Sequence[Comparison], *, some: bool = False) -> dict[str, object]:
    """Return the verdict on a claim: every comparison must hold, or (``some``) one.

    Comparisons without information are left out; without any other there is no information.
    """
    informative = [c for c in result if c.informative]
    wrong = [c for c in informative if not c.holds]
    good = len(informative) - len(wrong)
    holds = good > 0 if some else not wrong
    shown = [c for c in informative if c.holds] if some else wrong or informative or list(result)
    return {
        "outcome": (HOLDS if holds else FAILS) if informative else NO_INFORMATION,
        "holding": good,
        "comparisons": len(informative),
        "detail": ("not: " if wrong and not some else "")
        + "; ".join(c.where for c in shown[:3])
        + (f"; {len(shown) - 3} more" if len(shown) > 3 else ""),
    }


def comparisons(claim: Claim, means: Means) -> Iterator[Comparison]:
    """Return the comparisons of a statement for which the study has values."""
    return next(of(claim, means) for kind, of in COMPARED.items() if getattr(claim, kind))


def _below(claim: Claim, means: Means) -> Iterator[Comparison]:
    at, than = _times(claim)
    names = (
        zip(claim.less, claim.more, strict=True)
        if claim.paired
        else product(claim.less, claim.more)
    )
    for less, more in names:
        for item, other in _pairs(claim, means, less, more):
            a = means.value(item, claim.figure, at)
            b = claim.factor * means.value(other, claim.figure, than)
            times = f"{claim.factor:g} x " if claim.factor != 1.0 else ""
            where = f"{_cell_text(item, at)} {a:.4g} < {times}{_cell_text(other, than)} {b:.4g}"
            yield Comparison(where, a, b, informative=_informative(claim, a, b / claim.factor))


def _informative(claim: Claim, item: float, other: float) -> bool:
    """Return False for two values near that of guessing, or near each other."""
    return min(item, other) < claim.chance and abs(item - other) > claim.flat


def _times(claim: Claim) -> tuple[int | str | None, int | str | None]:
    """Return the rounds at which the two sides are read."""
    if claim.late:
        return "late", "late"
    return claim.round, claim.round if claim.than_round is None else claim.than_round


def _pairs(claim: Claim, means: Means, less: str, more: str) -> Iterator[tuple[Cell, Cell]]:
    """Yield the cells of two methods at equal budgets (or none) and local updates."""
    less_budgets, more_budgets, noise_free = means.budgets(less), means.budgets(more), [NO_NOISE]
    noisy = [b for b in dict.fromkeys(less_budgets + more_budgets) if b != NO_NOISE]
    for budget in _chosen(
        claim, noise_free if less_budgets == more_budgets == noise_free else noisy
    ):
        item = NO_NOISE if less_budgets == noise_free else budget
        other = NO_NOISE if more_budgets == noise_free else budget
        if item not in less_budgets or other not in more_budgets:
            continue
        less_updates, more_updates = means.updates(less), means.updates(more)
        pairs = [(e, e) for e in less_updates if e in more_updates]
        if claim.updates is not None:
            pairs = [(claim.updates, claim.than_updates or claim.updates)]
        elif len(less_updates) == len(more_updates) == 1:
            pairs = [(less_updates[0], more_updates[0])]
        yield from ((Cell(less, item, e), Cell(more, other, than)) for e, than in pairs)


def _chosen(claim: Claim, budgets: list[str]) -> list[str]:
    return [b for b in budgets if not claim.budgets or nominal_epsilon(b) in claim.budgets]


def _falls(claim: Claim, means: Means) -> Iterator[Comparison]:
    at, _ = _times(claim)
    chosen = {s: _chosen(claim, means.budgets(s)) for s in claim.falling if means.budgets(s)}
    if claim.along == "budgets":
        chains = [[Cell(s, b, e) for b in chosen[s]] for s in chosen for e in means.updates(s)]
    elif all(len(budgets) == 1 for budgets in chosen.values()):  # each may have its own
        chains = [[Cell(s, chosen[s][0], means.updates(s)[0]) for s in chosen]]
    else:
        common = dict.fromkeys(b for budgets in chosen.values() for b in budgets)
        chains = [
            [Cell(s, b, means.updates(s)[0]) for s in chosen if b in chosen[s]] for b in common
        ]
    for chain in chains:
        for item, other in pairwise(chain):
            a, b = means.value(other, claim.figure, at), means.value(item, claim.figure, at)
            where = f"{_cell_text(other, at)} {a:.4g} <= {_cell_text(item, at)} {b:.4g}"
            informative = _informative(claim, a, b)
            yield Comparison(where, a, b, equal=True, informative=informative)


def _passes(claim: Claim, means: Means) -> Iterator[Comparison]:
    for budget in means.budgets(claim.passes):
        if budget not in means.budgets(claim.rival):
            continue
        curve = means.curve(claim.passes, budget, claim.figure)
        result = passing_round(curve, means.curve(claim.rival, budget, claim.figure))
        text = (
            f"{claim.passes} is below {claim.rival} from round {result or 'none'} of {len(curve)}"
        )
        yield Comparison(text, claim.after * len(curve), float(result or -1))


def passing_round(values: Sequence[float] | pd.Series, rival: ArrayLike) -> int | None:
    """Return the first round from which values stay below a rival's; None if they end above."""
    above = np.flatnonzero(np.asarray(values) >= np.asarray(rival))
    last = int(above[-1]) + 1 if len(above) else 0
    return last + 1 if last < len(values) else None


def _spreads(claim: Claim, means: Means) -> Iterator[Comparison]:
    methods = [s for s in claim.spread if means.budgets(s)]
    if not methods:
        return
    budgets, updates = means.budgets(methods[0]), means.updates(methods[0])[0]
    cells = np.array(
        [[means.value(Cell(s, b, updates), claim.figure, None) for b in budgets] for s in methods]
    )
    over_methods, over_budgets = np.ptp(cells, axis=0).mean(), np.ptp(cells, axis=1).mean()
    where = f"range over methods {over_methods:.4g} < over budgets {over_budgets:.4g}"
    informative = bool(cells.min() < claim.chance) and max(over_methods, over_budgets) > claim.flat
    yield Comparison(where, float(over_methods), float(over_budgets), informative=informative)


COMPARED = {"less": _below, "falling": _falls, "passes": _passes, "spread": _spreads}
"""Comparisons by the field that selects them."""


def _cell_text(cell: Cell, at: int | str | None) -> str:
    budget = "" if cell.budget == NO_NOISE else f", eps {nominal_epsilon(cell.budget):g}"
    when = f", round {at}" if isinstance(at, int) else ""
    return f"{cell.method} (E {cell.updates}{budget}{when})"


def _texts(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)

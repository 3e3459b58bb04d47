"""The limits of a grid's elements, and where a solution stands to them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from gridpriv.core.arrays import Bools, Floats, Ints
from gridpriv.grid.case import Case

if TYPE_CHECKING:
    import pandas as pd

Status = Literal["feasible", "marginal", "infeasible"]

TOLERANCE = {"MW": 0.01, "MVAr": 0.01, "MVA": 0.01, "p.u.": 1e-4, "degree": 1e-2}
"""An amount beyond a limit below this is rounding."""
ROUNDING = 1e-4
"""The same for power, as a share of the element's limits: low-voltage elements carry kilowatts."""
KINDS = {
    "generator P": "active output",
    "line": "line",
    "voltage": "voltage",
    "generator Q": "reactive output",
    "angle": "angle difference",
}
"""Kinds of limits in words; those that cap supply first."""


@dataclass(frozen=True, eq=False)
class LimitedQuantities:
    """The limited quantities of a grid, per unit and rad.

    Attributes
    ----------
    pg, qg : (g,)
    flow : (m,)
        Apparent power of the end that carries more.
    vm : (n,)
    angle : (m,)
        Angle difference across every branch.
    dead : (n,) bool
        Buses without voltage: they have no band.
    """

    pg: Floats
    qg: Floats
    flow: Floats
    vm: Floats
    angle: Floats
    dead: Bools


class Limit(NamedTuple):
    """One limit and the value that stands against it.

    Attributes
    ----------
    kind : str
        generator P, generator Q, line, voltage or angle.
    element : int
        Row of the generator or branch in its source table; number of the bus.
    limit : str
        lower or upper.
    at : str
        Bus numbers.
    amount : float
        How far the value is outside; negative inside.
    rating : float
        Size of the element's limits: the larger of a finite lower and upper one.
    """

    kind: str
    element: int
    limit: str
    at: str
    value: float
    bound: float
    amount: float
    unit: str
    rating: float = 0.0

    @property
    def marginal(self) -> bool:
        """True where the amount is at most :data:`MARGIN` of the element's rating."""
        return self.amount <= MARGIN * self.rating


class _Family(NamedTuple):
    kind: str
    unit: str
    element: Ints
    ends: tuple[Ints, ...]
    value: Floats
    low: Floats
    high: Floats

    @property
    def rating(self) -> Floats:
        """Size of each element's limits; 0 where it has none."""
        finite = (np.where(np.isfinite(x), np.abs(x), 0.0) for x in (self.low, self.high))
        rating: Floats = np.maximum(*finite)
        return rating

    @property
    def rounding(self) -> Floats:
        """Amounts beyond a limit that are rounding, element by element."""
        most = TOLERANCE[self.unit]
        if self.unit in ("p.u.", "degree"):
            return np.full(len(self.value), most)
        return np.where(self.rating > 0, np.minimum(most, ROUNDING * self.rating), most)


def _families(case: Case, here: LimitedQuantities) -> Iterator[_Family]:
    base = case.base_mva
    gen = (case.gen_row, (case.bus_id[case.gen_bus],))
    ends = (case.bus_id[case.f_bus], case.bus_id[case.t_bus])
    rate = base * np.where(case.rate > 0, case.rate, np.inf)
    band = np.where(here.dead, -np.inf, case.vmin), np.where(here.dead, np.inf, case.vmax)
    limits = (np.degrees(case.angmin), np.degrees(case.angmax))
    yield _Family("generator P", "MW", *gen, base * here.pg, base * case.pmin, base * case.pmax)
    yield _Family("generator Q", "MVAr", *gen, base * here.qg, base * case.qmin, base * case.qmax)
    yield _Family("line", "MVA", case.branch_row, ends, base * here.flow, -rate, rate)
    yield _Family("voltage", "p.u.", case.bus_id, (case.bus_id,), here.vm, *band)
    yield _Family("angle", "degree", case.branch_row, ends, np.degrees(here.angle), *limits)


MARGIN = 1e-3
"""A violation within this share of the rating or voltage limit is marginal."""


def status(limits: tuple[Limit, ...]) -> Status:
    """Return the feasibility status of a state from its violated limits."""
    if not limits:
        return "feasible"
    return "marginal" if all(limit.marginal for limit in limits) else "infeasible"


def violated(case: Case, here: LimitedQuantities) -> tuple[Limit, ...]:
    """Return the limits that are passed by more than rounding (:data:`TOLERANCE`)."""
    return tuple(
        limit
        for family in _families(case, here)
        for name, amount in _amounts(family)
        for limit in _named(family, name, amount, amount > family.rounding)
    )


def binding(case: Case, here: LimitedQuantities, tolerance: float = 0.0) -> tuple[Limit, ...]:
    """Return the limits that a grid stands at; generators that cannot move are left out.

    Parameters
    ----------
    tolerance : float
        Distance that counts as none, as a share of the limit's size, beside rounding.
    """
    matches: list[Limit] = []
    for family in _families(case, here):
        for name, amount in _amounts(family):
            bound = family.low if name == "lower" else family.high
            near = family.rounding + tolerance * np.abs(np.where(np.isinf(bound), 0, bound))
            stands = (np.abs(amount) <= near) & (family.low < family.high)
            matches += _named(family, name, amount, stands)
    return tuple(matches)


def _amounts(family: _Family) -> tuple[tuple[str, Floats], tuple[str, Floats]]:
    return ("lower", family.low - family.value), ("upper", family.value - family.high)


def _named(family: _Family, name: str, amount: Floats, which: Bools) -> Iterator[Limit]:
    bound, rating = family.low if name == "lower" else family.high, family.rating
    for k in np.flatnonzero(which).tolist():
        yield Limit(
            family.kind,
            int(family.element[k]),
            name,
            "-".join(str(end[k]) for end in family.ends),
            float(family.value[k]),
            float(bound[k]),
            float(amount[k]),
            family.unit,
            float(rating[k]),
        )


def limit_table(limits: tuple[Limit, ...]) -> pd.DataFrame:
    """Return limits as a table, one row each."""
    import pandas as pd

    return pd.DataFrame(limits, columns=list(Limit._fields)).drop(columns="rating")


def limit_sentence(current: tuple[Limit, ...], most: int = 3) -> str:
    """Return the binding limits of a grid as a sentence, a few elements of each kind."""
    parts = []
    for kind, words in KINDS.items():
        for limit in ("upper", "lower"):
            places = dict.fromkeys(
                row.at for row in current if (row.kind, row.limit) == (kind, limit)
            )
            if not places or (kind.startswith("generator") and limit == "lower"):
                continue
            named = ", ".join(list(places)[:most]) + (" and others" if len(places) > most else "")
            where = "at its limit" if kind == "line" else f"at its {limit} limit"
            parts.append(f"{words} {where}: {len(places)} ({named})")
    return "; ".join(parts) if parts else "no limit binds"

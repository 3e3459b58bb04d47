"""The limits of a grid's elements, and where an AC state stands to them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gridpriv.core.arrays import Bools, Floats, Ints
from gridpriv.power.ac.state import AcState

if TYPE_CHECKING:
    import pandas as pd

TOLERANCE = {"MW": 0.01, "MVAr": 0.01, "MVA": 0.01, "p.u.": 1e-4, "degree": 1e-2}
"""An amount beyond a limit below this is rounding."""


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
    value, bound : float
    amount : float
        How far the value is outside; negative inside.
    unit : str
    """

    kind: str
    element: int
    limit: str
    at: str
    value: float
    bound: float
    amount: float
    unit: str


class _Family(NamedTuple):
    kind: str
    unit: str
    element: Ints
    ends: tuple[Ints, ...]
    value: Floats
    low: Floats
    high: Floats


def _families(state: AcState) -> Iterator[_Family]:
    case, base = state.case, state.case.base_mva
    gen = (case.gen_row, (case.bus_id[case.gen_bus],))
    ends = (case.bus_id[case.f_bus], case.bus_id[case.t_bus])
    flow = np.maximum(np.abs(state.s_from), np.abs(state.s_to))
    rate = np.where(case.rate > 0, case.rate, np.inf)
    live = ~state.dead
    band = np.where(live, case.vmin, -np.inf), np.where(live, case.vmax, np.inf)
    angle = np.angle(state.voltage[case.f_bus] * np.conj(state.voltage[case.t_bus]))
    yield _Family("generator P", "MW", *gen, base * state.pg, base * case.pmin, base * case.pmax)
    yield _Family("generator Q", "MVAr", *gen, base * state.qg, base * case.qmin, base * case.qmax)
    yield _Family("line", "MVA", case.branch_row, ends, base * flow, -np.inf * rate, base * rate)
    yield _Family("voltage", "p.u.", case.bus_id, (case.bus_id,), state.vm, *band)
    yield _Family(
        "angle", "degree", case.branch_row, ends,
        np.degrees(angle), np.degrees(case.angmin), np.degrees(case.angmax),
    )  # fmt: skip


def violations(state: AcState) -> tuple[Limit, ...]:
    """Return the limits that a state is outside of, by more than rounding (:data:`TOLERANCE`)."""
    return tuple(
        limit
        for family in _families(state)
        for name, amount in _amounts(family)
        for limit in _named(family, name, amount, amount > TOLERANCE[family.unit])
    )


def binding_limits(state: AcState) -> tuple[Limit, ...]:
    """Return the limits that a state stands at; generators that cannot move are left out."""
    return tuple(
        limit
        for family in _families(state)
        for name, amount in _amounts(family)
        for limit in _named(
            family, name, amount,
            (np.abs(amount) <= TOLERANCE[family.unit]) & (family.low < family.high),
        )
    )  # fmt: skip


def _amounts(family: _Family) -> tuple[tuple[str, Floats], tuple[str, Floats]]:
    return ("lower", family.low - family.value), ("upper", family.value - family.high)


def _named(family: _Family, name: str, amount: Floats, which: Bools) -> Iterator[Limit]:
    bound = family.low if name == "lower" else family.high
    for k in np.flatnonzero(which).tolist():
        yield Limit(
            family.kind, int(family.element[k]), name,
            "-".join(str(end[k]) for end in family.ends),
            float(family.value[k]), float(bound[k]), float(amount[k]), family.unit,
        )  # fmt: skip


def limit_table(limits: tuple[Limit, ...]) -> pd.DataFrame:
    """Return limits as a table, one row each."""
    import pandas as pd

    return pd.DataFrame(limits, columns=list(Limit._fields))

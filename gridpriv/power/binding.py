"""What binds in a solution: generators, lines and voltages that stand at a limit.

It answers the operator's question: what keeps the rest of the load from being served?
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.power.zone import Network

AT_LIMIT = 1e-3
SHED_TOLERANCE_MW = 1e-3

if TYPE_CHECKING:
    import pandas as pd


class Binding(NamedTuple):
    """A limit that a solution stands at.

    Attributes
    ----------
    kind : str
        generator P, generator Q, line, voltage or angle.
    element : int
        Generator row, branch row or bus number.
    limit : str
        lower or upper.
    at : str
        Bus numbers.
    value, bound : float
    unit : str
    """

    kind: str
    element: int
    limit: str
    at: str
    value: float
    bound: float
    unit: str


def binding_limits(network: Network, z: Floats, tolerance: float = AT_LIMIT) -> tuple[Binding, ...]:
    """Return the limits that a solution stands at; generators that cannot move are left out.

    Parameters
    ----------
    network : Network
    z : (N,)
        The grid's variables (:mod:`gridpriv.power.zone`); NaN where there is no solution.
    tolerance : float
        Of the limit's own size (per unit where the limit is 0).
    """
    part = {name: z[a:b] for (name, a), (_, b) in pairwise(network.offsets.items())}
    families = (_generators, _lines, _voltages, _angles)
    return tuple(Binding(*row) for family in families for row in family(network, part, tolerance))


def binding_table(held: tuple[Binding, ...]) -> pd.DataFrame:
    """Return binding limits as a table, one row each."""
    import pandas as pd

    return pd.DataFrame(held, columns=list(Binding._fields))


def _near(value: Floats, bound: Floats, tolerance: float) -> Any:
    """Return where a value is within ``tolerance`` of a finite bound, relative to its size."""
    size = np.maximum(np.abs(np.where(np.isfinite(bound), bound, 0.0)), 1.0)
    return np.isfinite(bound) & (np.abs(value - bound) <= tolerance * size)


def _generators(
    network: Network, part: dict[str, Floats], tolerance: float
) -> Iterator[tuple[Any, ...]]:
    case = network.case
    boxes = (
        ("generator P", part["pg"], case.pmin, case.pmax, "MW"),
        ("generator Q", part["qg"], case.qmin, case.qmax, "MVAr"),
    )
    for kind, value, low, high, unit in boxes:
        for name, bound in (("lower", low), ("upper", high)):
            for g in np.flatnonzero(_near(value, bound, tolerance) & (low < high)).tolist():
                at = str(case.bus_id[case.gen_bus[g]])
                figures = (case.base_mva * float(value[g]), case.base_mva * float(bound[g]))
                yield (kind, int(case.gen_row[g]), name, at, *figures, unit)


def _lines(
    network: Network, part: dict[str, Floats], tolerance: float
) -> Iterator[tuple[Any, ...]]:
    case = network.case
    flow = np.maximum(
        np.hypot(part["p_from"], part["q_from"]), np.hypot(part["p_to"], part["q_to"])
    )
    rated = (case.rate > 0) & np.isfinite(case.rate)
    for k in np.flatnonzero(rated & (flow >= (1.0 - tolerance) * case.rate)).tolist():
        at = f"{case.bus_id[case.f_bus[k]]}-{case.bus_id[case.t_bus[k]]}"
        figures = (case.base_mva * float(flow[k]), case.base_mva * float(case.rate[k]))
        yield ("line", int(case.branch_row[k]), "upper", at, *figures, "MVA")


def _voltages(
    network: Network, part: dict[str, Floats], tolerance: float
) -> Iterator[tuple[Any, ...]]:
    case, magnitude = network.case, np.sqrt(np.maximum(part["w"], 0.0))
    for name, bound in (("lower", case.vmin), ("upper", case.vmax)):
        for i in np.flatnonzero(_near(magnitude, bound, tolerance)).tolist():
            bus = int(case.bus_id[i])
            yield ("voltage", bus, name, str(bus), float(magnitude[i]), float(bound[i]), "p.u.")


def _angles(
    network: Network, part: dict[str, Floats], tolerance: float
) -> Iterator[tuple[Any, ...]]:
    case, angle = network.case, np.arctan2(part["wi"], part["wr"])
    for name, bound in zip(("lower", "upper"), network.angle_limits, strict=True):
        for k in np.flatnonzero(_near(angle, bound, tolerance)).tolist():
            i, j = int(network.pair_i[k]), int(network.pair_j[k])
            at = f"{case.bus_id[i]}-{case.bus_id[j]}"
            figures = (float(np.degrees(angle[k])), float(np.degrees(bound[k])))
            yield ("angle", int(case.bus_id[i]), name, at, *figures, "degree")


def binding_sentence(held: tuple[Binding, ...], most: int = 3) -> str:
    """Return in words what binds, the kinds that cap supply first; a few elements of each."""
    order = ("generator P", "line", "voltage", "generator Q", "angle")
    words = {"generator P": "active output", "generator Q": "reactive output", "line": "line",
             "voltage": "voltage", "angle": "angle difference"}  # fmt: skip
    parts = []
    for kind in order:
        for limit in ("upper", "lower"):
            rows = [row for row in held if row.kind == kind and row.limit == limit]
            if not rows or (kind.startswith("generator") and limit == "lower"):
                continue
            places = list(dict.fromkeys(row.at for row in rows))
            named = ", ".join(places[:most]) + (" and others" if len(places) > most else "")
            where = "at its limit" if kind == "line" else f"at its {limit} limit"
            parts.append(f"{words[kind]} {where}: {len(rows)} ({named})")
    return "; ".join(parts) if parts else "no limit binds"

"""Least load shedding of a grid, and the limits that cause it.

Two figures enclose the least shed demand at constant power factor: the relaxation's bound (no
dispatch sheds less) and an AC plan (so much suffices). A limit is named as a cause only if the AC
plan sheds less once exactly the limits named are gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from gridpriv.core.arrays import Bools, Floats
from gridpriv.core.errors import SolverError
from gridpriv.grid.case import Case
from gridpriv.power.ac.limits import KINDS, Limit
from gridpriv.power.ac.optimum import AcOptimum, acopf

SHED_TOLERANCE_MW = 0.01
NOTICED = 0.01
"""Share of the shed demand by which it must fall for a limit to be a cause."""
WIDE_BAND = (0.5, 1.5)


@dataclass(frozen=True)
class Cause:
    """Limits of one kind without which less demand is shed.

    Attributes
    ----------
    places : tuple of str
        Bus numbers of the elements whose limit it is.
    without_mw : float
        What is shed without these limits.
    """

    kind: str
    places: tuple[str, ...]
    without_mw: float


@dataclass(frozen=True)
class Shortage:
    """Least load shedding of a grid and its causes.

    Attributes
    ----------
    enough_mw : float
        Shed by the AC plan that sheds least.
    deenergized_mw : float
        The part of it on islands in which nothing generates.
    curtailed_mw : float
        Generation that cannot be used in that plan.
    causes : tuple of Cause
        Those with the largest effect first.
    """

    enough_mw: float
    deenergized_mw: float
    curtailed_mw: float
    causes: tuple[Cause, ...]

    def sentence(self, most: int = 3) -> str:
        """Return the least load shedding and its causes as a sentence."""
        if self.enough_mw <= SHED_TOLERANCE_MW:
            parts = ["an AC plan serves all demand"]
        else:
            parts = [f"an AC plan that sheds {self.enough_mw:.4g} MW suffices"]
        if self.curtailed_mw > SHED_TOLERANCE_MW:
            parts.append(f"it curtails {self.curtailed_mw:.4g} MW that generators cannot go below")
        if self.deenergized_mw > 0:
            parts.append(
                f"{self.deenergized_mw:.4g} MW of it lie on islands in which nothing generates"
            )
        for cause in self.causes:
            others = " and others" if len(cause.places) > most else ""
            at = ", ".join(cause.places[:most]) + others
            parts.append(
                f"{cause.without_mw:.4g} MW without the limit on {KINDS[cause.kind]} at {at}"
            )
        return "; ".join(parts)


def shortage(case: Case) -> Shortage:
    """Return the least load shedding of an AC plan and its causes.

    Raises
    ------
    SolverError
        If no AC plan is found.
    """
    least = acopf(case, "shed")
    state = least.state
    causes: list[Cause] = []
    if state.shed_mw - state.deenergized_mw > SHED_TOLERANCE_MW:
        causes = sorted(_causes(case, least), key=lambda cause: cause.without_mw)
    return Shortage(state.shed_mw, state.deenergized_mw, state.curtailed_mw, tuple(causes))


def _causes(case: Case, least: AcOptimum) -> Iterator[Cause]:
    shed = least.state.shed_mw
    for kind in KINDS:
        matches = [limit for limit in least.state.binding if limit.kind == kind]
        matches = [limit for limit in matches if (kind, limit.limit) != ("generator P", "lower")]
        if not matches:
            continue
        try:
            without = acopf(without_limits(case, matches), "shed").state.shed_mw
        except SolverError:
            continue
        if without < (1 - NOTICED) * shed:
            yield Cause(kind, tuple(dict.fromkeys(limit.at for limit in matches)), without)


def without_limits(case: Case, limits: list[Limit]) -> Case:
    """Return the case without some limits; voltages may then be anything from 0.5 to 1.5 p.u."""
    changes: dict[str, Floats] = {}
    for field, kind, side, rows, free in (
        ("pmax", "generator P", "upper", case.gen_row, case.pmax + np.abs(case.pd).sum()),
        ("qmin", "generator Q", "lower", case.gen_row, np.full(case.n_gen, -np.inf)),
        ("qmax", "generator Q", "upper", case.gen_row, np.full(case.n_gen, np.inf)),
        ("rate", "line", "upper", case.branch_row, np.zeros(case.n_branch)),
        ("vmin", "voltage", "lower", case.bus_id, np.minimum(case.vmin, WIDE_BAND[0])),
        ("vmax", "voltage", "upper", case.bus_id, np.maximum(case.vmax, WIDE_BAND[1])),
        ("angmin", "angle", "lower", case.branch_row, np.full(case.n_branch, -np.inf)),
        ("angmax", "angle", "upper", case.branch_row, np.full(case.n_branch, np.inf)),
    ):
        named = [limit.element for limit in limits if (limit.kind, limit.limit) == (kind, side)]
        gone: Bools = np.isin(rows, named)
        if gone.any():
            changes[field] = np.where(gone, free, getattr(case, field))
    return replace(case, **changes)  # type: ignore[arg-type]

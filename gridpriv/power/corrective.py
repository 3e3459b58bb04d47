"""Corrective redispatch of zones after an outage that violates a limit or sheds load.

The AC optimal power flow of the grid after the outage, in outputs and voltages, that moves least:

    minimise   c sum_g |pg_g - pg0_g| + VOLL shed + VOLL/100 curtailed
    subject to AC power flow, all limits by the emergency ratings, 0 <= shed <= demand

with pg0 the outputs after the outage and the automatic regulation that follows it, or before it
where no AC state is found, and c a notional price of 50 $/MWh, far below VOLL. Its result is
judged by an AC power flow of its set points. It is solved on the demand that the analysis knows:
on released demand it is post-processing.

An outage that this cannot correct without load shedding has no secure preventive plan either, as
far as a local optimum shows it: the state after any plan is one of those that are searched here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from gridpriv.core.arrays import Floats, Ints
from gridpriv.core.errors import InputError, SolverError
from gridpriv.grid.contingencies import Contingency
from gridpriv.grid.islands import dead_buses
from gridpriv.power.ac.flow import ac_flow
from gridpriv.power.ac.limits import TOLERANCE, Limit
from gridpriv.power.ac.model import NOTIONAL_COST, SPILL_WEIGHT, AcModel, ac_model, add_service_cost
from gridpriv.power.ac.newton import PowerFlowError
from gridpriv.power.ac.part import SubCase, part_at
from gridpriv.power.ac.state import AcState, Dispatch
from gridpriv.power.security import Outage, PreContingency, post_contingency

Corrected = Literal["corrected", "limits left", "no state"]
MARGIN = 1e-4
"""Share of ratings and p.u. of voltage bands that set points keep below limits."""


@dataclass(frozen=True)
class ZoneCorrection:
    """Redispatch of one zone after an outage, MW: outputs raised, lowered, and load shed."""

    zone: str
    up_mw: float
    down_mw: float
    shed_mw: float


@dataclass(frozen=True, eq=False)
class Correction:
    """Corrective redispatch of all zones after one outage.

    Attributes
    ----------
    status : {'corrected', 'limits left', 'no state'}
        ``corrected``: no limit is violated any more. ``no state``: no set points keep the limits,
        whatever load is shed.
    zones : tuple of ZoneCorrection
    violations : tuple of Limit
        Limits that are still violated.
    state : AcState or None
        The AC state of the new set points.
    """

    status: Corrected
    zones: tuple[ZoneCorrection, ...]
    violations: tuple[Limit, ...]
    state: AcState | None

    @property
    def shed_mw(self) -> float:
        """Load that zones shed after the outage, beyond what they shed before it."""
        return sum(zone.shed_mw for zone in self.zones)

    @property
    def secure(self) -> bool:
        """True where no limit is violated and no load is shed."""
        return self.status == "corrected" and self.shed_mw <= TOLERANCE["MW"]


def correct(
    before: PreContingency,
    contingency: Contingency,
    owners: Sequence[tuple[str, Ints]],
    voll: float,
) -> Correction:
    """Return the corrective redispatch after an outage.

    Parameters
    ----------
    owners : sequence of (str, int array)
        Zones with their buses, as indices of the case.
    voll : float
        Value of lost load in $/MWh.
    """
    outage = Outage.of(before, contingency)
    case = outage.case
    try:
        pg = post_contingency(before, outage).pg
    except PowerFlowError:
        pg = before.dispatch.pg[outage.kept]
    live = part_at(case, ~dead_buses(case))
    try:
        asked = _least_moves(live, pg[live.gens], voll)
        state = ac_flow(case, live.in_whole(case, asked))
    except (SolverError, InputError):
        return Correction("no state", (), (), None)
    left = state.violations
    given = Correction("limits left" if left else "corrected", (), left, state)
    return replace(given, zones=_by_zone(before, outage, state, pg, owners))


def _least_moves(live: SubCase, pg: Floats, voll: float) -> Dispatch:
    """Return the dispatch that keeps all limits and moves least from ``pg``.

    Raises
    ------
    SolverError
        If there is none, whatever load is shed.
    """
    case = live.case
    tight = replace(
        case,
        rate=case.rate * (1.0 - MARGIN),
        vmin=np.minimum(case.vmin + MARGIN, case.vmax),
        vmax=np.maximum(case.vmax - MARGIN, case.vmin),
    )
    model = ac_model(tight)
    _price_moves(model, pg)
    add_service_cost(model, voll / NOTIONAL_COST, SPILL_WEIGHT * voll / NOTIONAL_COST)
    for kept in (np.concatenate([model.cut, model.curtailment]), None):
        solution = model.program.solve(None, kept)
        if solution.solved:
            return model.dispatch(solution.x)
    raise SolverError(
        f"no set points keep the limits of {case.name}: ipopt ended {solution.status}"
    )


def _price_moves(model: AcModel, pg: Floats) -> None:
    """Add sum |pg - pg0| by two variables a generator: pg = pg0 + up - down."""
    none = np.zeros(len(pg))
    row = model.program.add_rows(pg, pg)
    model.program.add_linear(row, model.pg, 1.0)
    for sign in (-1.0, 1.0):
        moved = model.program.add_variables(none, none + np.inf, none)
        model.program.add_linear(row, moved, sign)
        model.program.add_cost(moved, 1.0)


def _by_zone(
    before: PreContingency,
    outage: Outage,
    state: AcState,
    pg: Floats,
    owners: Sequence[tuple[str, Ints]],
) -> tuple[ZoneCorrection, ...]:
    """Return the redispatch of every zone, MW."""
    base, case = before.case.base_mva, outage.case
    moved = state.pg - pg
    shed = state.p_shed - before.state.p_shed
    matches = []
    for name, buses in owners:
        own = moved[np.isin(case.gen_bus, buses)]
        up, down = np.maximum(own, 0.0).sum(), np.maximum(-own, 0.0).sum()
        cut = max(float(shed[buses].sum()), 0.0)
        matches.append(ZoneCorrection(name, base * float(up), base * float(down), base * cut))
    return tuple(matches)

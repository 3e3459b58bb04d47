r"""The nearest demand that a grid can serve: an AC optimal power flow with demand as variables.

    minimise   N(x)    subject to the AC equations and limits of the grid at demand d + x.

N is the norm of the noise that d carries: sum_i max(|x_pi|, |x_qi|) for noise on pairs (p, q), the
1-norm for noise on numbers, and the squared 2-norm for normal noise.

A point of the boundary is feasible in exact arithmetic only, and other solvers may miss it, so
limits are tightened by a small share in the projection. All of it is post-processing where d is
released demand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from gridpriv.core.arrays import Complexes, Floats, Ints
from gridpriv.core.errors import GridprivError, SolverError
from gridpriv.grid.case import Case
from gridpriv.power.ac.model import AcModel, ac_model
from gridpriv.power.ac.optimum import AcOptimum, acopf
from gridpriv.power.ac.state import Dispatch
from gridpriv.power.objective import AcObjective, has_convex_costs
from gridpriv.privacy.sensitivity import Norm

MARGINS = (1e-3, 1e-2, 5e-2)
"""Shares by which limits are tightened, tried in turn."""
SERVED = 1e-6
"""Change of demand in p.u., and shed or curtailed power in MW, that count as none."""


@dataclass(frozen=True, eq=False)
class Served:
    """A demand that the grid serves, with its AC optimum.

    Attributes
    ----------
    optimum : AcOptimum
        Of the case with this demand; nothing is shed or curtailed.
    moved : (2, n)
        Change of active and reactive demand by the projection, per unit.
    margin : float
        Share by which limits were tightened; 0 where nothing had to be moved.
    """

    optimum: AcOptimum
    moved: Floats
    margin: float

    @property
    def case(self) -> Case:
        """The case with the demand that is served."""
        return self.optimum.state.case


def nearest_served(case: Case, norm: Norm) -> Served:
    """Return the nearest demand that an AC optimum serves within all limits.

    Parameters
    ----------
    case : Case
        With the demand that is to be projected.
    norm : {1, 2, 'box', 'pair', 'number'}
        Of the noise.

    Raises
    ------
    SolverError
        If Ipopt ends without one at every margin.
    """
    objective: AcObjective = "cost" if has_convex_costs(case) else "losses"
    # a projection is solved a hundred times faster than an optimal power flow without a solution
    projected = _projected(case, norm, None)
    if projected is None or np.abs(projected[0]).max() <= SERVED:
        best = _all_served(case, objective, None if projected is None else projected[1])
        if best is not None:
            return Served(best, np.zeros((2, case.n_bus)), 0.0)
    for voltage in _starts(case):
        for margin in MARGINS:
            projected = _projected(tightened(case, margin), norm, voltage)
            if projected is None:
                continue
            moved, dispatch = projected
            served = replace(case, pd=case.pd + moved[0], qd=case.qd + moved[1])
            best = _all_served(served, objective, dispatch)
            if best is not None:
                return Served(best, moved, margin)
    raise SolverError(
        f"case {case.name}: no demand near the released one was found that an AC optimum serves "
        f"within all limits (limits tightened by up to {MARGINS[-1]:.0%}). Check with gridpriv "
        "acopf that the grid's limits allow any dispatch at all"
    )


def tightened(case: Case, margin: float) -> Case:
    """Return the case with its limits tightened by a share of their width."""

    def within(low: Floats, high: Floats) -> tuple[Floats, Floats]:
        width = high - low
        room = np.where(
            np.isfinite(width), margin / 2.0 * np.where(np.isfinite(width), width, 0.0), 0.0
        )
        return low + room, high - room

    vmin, vmax = within(case.vmin, case.vmax)
    pmin, pmax = within(case.pmin, case.pmax)
    qmin, qmax = within(case.qmin, case.qmax)
    angmin, angmax = within(case.angmin, case.angmax)
    return replace(
        case,
        vmin=vmin,
        vmax=vmax,
        pmin=pmin,
        pmax=pmax,
        qmin=qmin,
        qmax=qmax,
        angmin=angmin,
        angmax=angmax,
        rate=(1.0 - margin) * case.rate,
    )


def _all_served(case: Case, objective: AcObjective, start: Dispatch | None) -> AcOptimum | None:
    """Return the AC optimum where it serves all demand within all limits."""
    try:
        best = acopf(case, objective, start=start, shedding=False)
    except SolverError:
        return None
    state = best.state
    unserved = state.shed_mw + state.curtailed_mw + state.deenergized_mw
    return best if unserved <= SERVED and not best.violations else None


def _starts(case: Case) -> Iterator[Complexes | None]:
    """Yield voltages to start from: flat, then those that shed the least demand."""
    yield None
    try:
        state = acopf(case, "shed").state
    except GridprivError:
        return
    yield state.vm * np.exp(1j * state.va)


def _projected(case: Case, norm: Norm, voltage: Complexes | None) -> tuple[Floats, Dispatch] | None:
    """Return the least feasible change (2, n) of demand, and a dispatch that serves it.

    None where Ipopt finds none.
    """
    model = ac_model(case)
    changes = add_changes(model, norm)
    start = model.program.start
    if voltage is not None:
        start = model.starting_from(voltage, start[model.pg], start[model.qg])
    solution = model.program.solve(start, np.concatenate([model.cut, model.curtailment]))
    if not solution.solved:
        return None
    return np.stack([solution.x[part] for part in changes]), model.dispatch(solution.x)


def add_changes(model: AcModel, norm: Norm) -> tuple[Ints, Ints]:
    """Add a change of every demand to the balances, and its norm to the objective."""
    n, program = model.case.n_bus, model.program
    none, free = np.zeros(n), np.full(n, np.inf)
    p, q = (program.add_variables(-free, free, none) for _ in "pq")
    program.add_linear(model.p_balance, p, 1.0)
    program.add_linear(model.q_balance, q, 1.0)
    if norm == 2:
        for part in (p, q):
            program.add_cost(part, 0.0, 1.0)
        return p, q
    pairs = norm in ("box", "pair")
    sizes = [program.add_variables(none, free, none) for _ in range(1 if pairs else 2)]
    for size in sizes:
        program.add_cost(size, 1.0)
    for part, size in zip((p, q), sizes * 2 if pairs else sizes, strict=True):
        for sign in (1.0, -1.0):
            row = program.add_rows(none, free)
            program.add_linear(row, size, 1.0)
            program.add_linear(row, part, sign)
    return p, q

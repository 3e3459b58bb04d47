"""Unit commitment: a mixed-integer linear program, solved by HiGHS.

The network is one node: what generators give in a step meets the released demand and the losses
of the plan in which all run. Costs are the largest of tangents, in perspective form, so that a
generator that does not run costs nothing:

    cost >= C(p_k) u + C'(p_k) (p - p_k u)        at points p_k of its range

The AC plan of what runs follows (:mod:`gridpriv.power.ac.day`); it sheds demand where the network
needs a generator that does not run. Without a commitment every generator runs, between its
limits: the usual relaxation.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from gridpriv.core.arrays import Bools, Floats, Ints
from gridpriv.core.errors import SolverError
from gridpriv.grid.case import Case
from gridpriv.grid.chronology import Chronology, Switch
from gridpriv.power.ac.day import NO_ROWS, add_storage
from gridpriv.power.ac.quadratic import QuadraticProgram
from gridpriv.power.objective import cost_at, marginal_cost

TANGENTS = 6
LARGEST = 1e4
"""p.u. in place of an output without a limit."""
GAP = 1e-4
"""Relative distance to the optimum at which the search ends."""


def commitment(case: Case, chronology: Chronology, need: Floats) -> Bools:
    """Return the generators that run in each step at least cost, (T, g).

    Parameters
    ----------
    need : (T,)
        Demand and losses of all zones, p.u.

    Raises
    ------
    SolverError
        If no commitment meets the need and the reserves.
    """
    program, count = QuadraticProgram(), len(need)
    item, none = np.ones(count), np.zeros(count)
    switches = {switch.gen: switch for switch in chronology.switches}
    storages = {storage.gen: storage for storage in chronology.storages}
    running, outputs, reserves = {}, [], {}
    for g in range(case.n_gen):
        on = program.add_variables(none if g in switches else item, item)
        running[g] = on
        low, high = np.clip([case.pmin[g], case.pmax[g]], -LARGEST, LARGEST)
        output = program.add_variables(
            np.full(count, min(low, 0.0)), np.full(count, max(high, 0.0))
        )
        outputs.append(output)
        _add_row(program, none - np.inf, none, (output, 1.0), (on, -high))
        _add_row(program, none, none + np.inf, (output, 1.0), (on, -low))
        if (chronology.reserve_most[:, g] > 0).any():
            reserves[g] = _reserve(program, chronology, g, output, on, (low, high))
        _ramps(program, chronology, g, output, high)
        if g in storages:
            add_storage(program, output, storages[g], chronology)
        elif case.cost:
            _cost(program, case, g, output, on, (low, high))
        if g in switches:
            _starts(program, switches[g], on, chronology.hours)
    _add_row(program, need, need, *((output, 1.0) for output in outputs))
    for k in (0, 1):
        if chronology.reserve_required[k].any():
            matches = [(up_down[k], 1.0) for up_down in reserves.values()]
            _add_row(program, chronology.reserve_required[k], none + np.inf, *matches)
    x = _solved(program, np.concatenate([NO_ROWS, *(running[g] for g in switches)]))
    return np.column_stack([x[running[g]] > 0.5 for g in range(case.n_gen)])


def _priced(program: QuadraticProgram, low: Floats, high: Floats, price: float) -> Ints:
    """Add variables at a price per unit."""
    added = program.add_variables(low, high)
    program.add_cost(added, price)
    return added


def _add_row(
    program: QuadraticProgram, low: Floats, high: Floats, *terms: tuple[Ints, Floats | float]
) -> None:
    """Add rows low <= sum of factor times variable <= high, elementwise over terms."""
    rows = program.add_rows(low, high)
    for columns, factor in terms:
        program.add_linear(rows, columns, factor)


def _solved(program: QuadraticProgram, whole: Ints) -> Floats:
    """Return the solution of a linear program in which some variables are whole numbers.

    Raises
    ------
    SolverError
        If there is none.
    """
    form = program.form()
    matrix = sparse.coo_array(
        (form.slope, (form.line, form.column)), shape=(form.rows, form.columns)
    )
    result = milp(
        form.linear,
        integrality=np.isin(np.arange(form.columns), whole),
        bounds=Bounds(form.low, form.high),
        constraints=LinearConstraint(matrix.tocsr(), form.lower, form.upper),
        options={"mip_rel_gap": GAP},
    )
    if result.x is None:
        raise SolverError(f"no commitment serves the released demand: HiGHS: {result.message}")
    return np.asarray(result.x)


def _reserve(
    program: QuadraticProgram,
    chronology: Chronology,
    g: int,
    output: Ints,
    on: Ints,
    limits: tuple[float, float],
) -> tuple[Ints, Ints]:
    """Add a generator's reserves, up and down; return their variables."""
    count, hours = len(output), chronology.hours
    none = np.zeros(count)
    up, down = (
        _priced(program, none, np.full(count, most), hours * price)
        for most, price in zip(
            chronology.reserve_most[:, g], chronology.reserve_price[:, g], strict=True
        )
    )
    _add_row(program, none - np.inf, none, (output, 1.0), (up, 1.0), (on, -limits[1]))
    _add_row(program, none, none + np.inf, (output, 1.0), (down, -1.0), (on, -limits[0]))
    return up, down


def _ramps(
    program: QuadraticProgram, chronology: Chronology, g: int, output: Ints, high: float
) -> None:
    """Add ramps, with room for a start or a stop at any output."""
    up, down = chronology.ramp_up[g] * chronology.hours, chronology.ramp_down[g] * chronology.hours
    if len(output) < 2 or (np.isinf(up) and np.isinf(down)):
        return
    if any(switch.gen == g for switch in chronology.switches):
        return  # the AC plan holds ramps between steps in which it runs
    rows = np.ones(len(output) - 1)
    _add_row(
        program,
        -min(down, 2 * high) * rows,
        min(up, 2 * high) * rows,
        (output[1:], 1.0),
        (output[:-1], -1.0),
    )


def _cost(
    program: QuadraticProgram,
    case: Case,
    g: int,
    output: Ints,
    on: Ints,
    limits: tuple[float, float],
) -> None:
    """Add a generator's cost in $/h, the largest of its tangents."""
    count = len(output)
    endless = np.full(count, np.inf)
    height = _priced(program, -endless, endless, 1.0)
    for point in np.unique(np.linspace(*limits, TANGENTS)):
        slope = marginal_cost(case.cost[g], case.base_mva, float(point))
        level = cost_at(case.cost[g], case.base_mva, float(point)) - slope * point
        _add_row(program, np.zeros(count), endless, (height, 1.0), (output, -slope), (on, -level))


def _starts(program: QuadraticProgram, switch: Switch, on: Ints, hours: float) -> None:
    """Add starts at their cost, and least times of running and of standing still."""
    count = len(on)
    if count < 2:
        return
    none, endless = np.zeros(count), np.full(count, np.inf)
    start = _priced(program, none, none + 1.0, switch.start_cost / hours)
    stop = program.add_variables(none, none + 1.0)
    _add_row(
        program,
        none[1:],
        none[1:],
        (on[1:], 1.0),
        (on[:-1], -1.0),
        (start[1:], -1.0),
        (stop[1:], 1.0),
    )
    for hours_least, changed, sign in ((switch.min_up, start, 1.0), (switch.min_down, stop, -1.0)):
        steps = int(np.ceil(hours_least / hours - 1e-9))
        for t in range(1, count):
            window = changed[max(1, t - steps + 1) : t + 1]
            bound = 0.0 if sign > 0 else 1.0
            terms = [(window[[k]], 1.0) for k in range(len(window))]
            _add_row(program, -endless[:1], np.array([bound]), *terms, (on[[t]], -sign))

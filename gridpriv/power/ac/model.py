"""A grid's AC equations and limits as rows of a quadratic program, in rectangular voltages.

With V = e + jf, w_i = e_i^2 + f_i^2, wr_ij = e_i e_j + f_i f_j and wi_ij = f_i e_j - e_i f_j, the
flow into a branch at its end i is

    p = Re(y_ii) w_i + Re(y_ij) wr_ij + Im(y_ij) wi_ij
    q = -Im(y_ii) w_i - Im(y_ij) wr_ij + Re(y_ij) wi_ij

so balance, voltage band and angle limits are quadratic in (e, f). The flows of rated branches and
of tie lines are variables, which makes p^2 + q^2 <= rate^2 quadratic too.

Demand may be shed at constant power factor (a share of it, at buses with positive pd), and
injection at its lower limit may be curtailed: of generators with positive pmin, of negative demand.
"""

from __future__ import annotations

import numpy as np

from gridpriv.core.arrays import Bools, Complexes, Floats, Ints, last_of_each
from gridpriv.grid.case import PIECEWISE, Case
from gridpriv.grid.network import branch_admittance, branch_flows, islands, no_load_angles
from gridpriv.power.ac.quadratic import QuadraticProgram
from gridpriv.power.ac.state import Dispatch
from gridpriv.power.objective import BASE_MVA, cost_at, per_unit_polynomial, piecewise_lines

REACH = 1.1
"""Bound of e and f, in multiples of the upper voltage limit."""
CURTAILMENT_WEIGHT = 0.01
"""Price of a curtailed MW divided by that of a shed MW."""
REACTIVE_SLACK_WEIGHT = 0.1
"""Price of a reactive slack divided by that of shed load, for schedules of estimated demand."""
NOTIONAL_COST = 50.0
"""$/MWh of generation where losses are minimized, relative to the price of shed load."""


class AcEquations:
    """A grid's AC equations and limits, and the positions of its variables and rows.

    Parameters
    ----------
    case : Case
        Every island has a bus that is balanced.
    balanced : (n,) bool, optional
        Buses whose demand and generators are part of the model: by default all.
    metered : (m,) bool, optional
        Further branches whose flows are variables, in addition to rated ones.
    reference : int array, optional
        Buses whose angle is 0; by default one of every island.
    own_ends : bool
        Leave out voltage bands of buses that are not balanced here, flows at their ends of
        branches, and the angle limits of branches from them.
    angle : (n,), optional
        Voltage angles to start from: by default those of the grid without load.
    reach : float
        Bound of active and reactive flows, in multiples of the rating.

    Attributes
    ----------
    e, f : (n,) int
        Variables.
    pg, qg : (g,) int
    cut : (k,) int
        Share of demand shed at the buses ``loaded``.
    loaded : (k,) int
        Buses with positive active demand that is balanced here.
    curtailment : (h,) int
        Curtailed injection at the buses ``curtailable``.
    curtailable : (h,) int
    metered : (j,) int
        Branches whose flows are variables.
    flow : (4, j) int
        Variables p_from, q_from, p_to, q_to of metered branches.
    reference : (islands,) int
        Bus of every island whose angle is 0.
    p_balance, q_balance : (n,) int
        Rows; -1 at buses that are not balanced here.
    owner : (rows,) int
        Bus of each row with voltages; for flows of branches that of their own end.
    band : (k,) int
        Rows of the squared voltages.
    rating : (r,) int
        Rows of the squared flows of rated branches.
    """

    def __init__(
        self,
        case: Case,
        balanced: Bools | None = None,
        metered: Bools | None = None,
        *,
        reference: Ints | None = None,
        own_ends: bool = False,
        angle: Floats | None = None,
        reach: float = 1.0,
    ) -> None:
        self.case, self.program = case, QuadraticProgram()
        every = np.ones(case.n_bus, bool)
        balanced = every if balanced is None else balanced
        self._here = balanced if own_ends else every
        rated = (case.rate > 0) & np.isfinite(case.rate)
        self.metered = np.flatnonzero(rated if metered is None else rated | metered)
        roots = _references(case, balanced)
        self.reference = roots if reference is None else reference
        self._add_voltages(no_load_angles(case, roots) if angle is None else angle)
        self._add_balances(np.flatnonzero(balanced))
        self._add_unserved(balanced)
        self._add_flows(reach)
        self._add_angle_limits()
        self.owner: Ints = np.concatenate(self.program.owners)

    def _add_voltages(self, angle: Floats) -> None:
        """Add e and f with the band, from 1 p.u. at these angles; those of references are fixed.

        Their own bounds are wider than the band, so that both are never active together.
        """
        case, program, here = self.case, self.program, self._here
        reach = REACH * case.vmax
        self.e = program.add_variables(case.n_bus, -reach, reach, np.cos(angle))
        reach = np.where(np.isin(np.arange(case.n_bus), self.reference), 0.0, reach)
        self.f = program.add_variables(case.n_bus, -reach, reach, np.sin(angle))
        low, high = case.vmin[here] ** 2, case.vmax[here] ** 2
        self.band = program.add_rows(len(low), low, high, np.flatnonzero(here))
        for part in (self.e[here], self.f[here]):
            program.add_product(self.band, part, part, 1.0)

    def _add_balances(self, own: Ints) -> None:
        """Add outputs, and the balances of own buses with demand, outputs and shunts."""
        case, program = self.case, self.program
        self.pg, self.qg = (
            program.add_variables(case.n_gen, low, high, _middle(low, high))
            for low, high in ((case.pmin, case.pmax), (case.qmin, case.qmax))
        )
        p, q = self.p_balance, self.q_balance = np.full((2, case.n_bus), -1)
        for rows, output, demand in ((p, self.pg, case.pd), (q, self.qg, case.qd)):
            rows[own] = program.add_rows(len(own), -demand[own], -demand[own], own)
            program.add_linear(rows[case.gen_bus], output, -1.0)
        for part in (self.e, self.f):
            program.add_product(p[own], part[own], part[own], case.gs[own])
            program.add_product(q[own], part[own], part[own], -case.bs[own])

    def _add_unserved(self, balanced: Bools) -> None:
        """Add shares of shed demand, and curtailed injection that cannot be reduced to 0."""
        case, program = self.case, self.program
        self.loaded = np.flatnonzero(balanced & (case.pd > 0))
        self.cut = program.add_variables(len(self.loaded), 0.0, 1.0)
        program.add_linear(self.p_balance[self.loaded], self.cut, -case.pd[self.loaded])
        program.add_linear(self.q_balance[self.loaded], self.cut, -case.qd[self.loaded])
        forced = np.bincount(case.gen_bus, np.maximum(case.pmin, 0.0), minlength=case.n_bus)
        most = np.where(balanced, forced + np.maximum(-case.pd, 0.0), 0.0)
        self.curtailable = np.flatnonzero(most > 0)
        largest = most[self.curtailable]
        self.curtailment = program.add_variables(len(largest), 0.0, largest)
        program.add_linear(self.p_balance[self.curtailable], self.curtailment, 1.0)

    def _add_flows(self, reach: float) -> None:
        """Add every branch to the balance of its ends; ``metered`` ones through variables."""
        case, program, y = self.case, self.program, branch_admittance(self.case)
        ends = ((case.f_bus, case.t_bus, y.ff, y.ft), (case.t_bus, case.f_bus, y.tt, y.tf))
        free = np.setdiff1d(np.arange(case.n_branch), self.metered)
        self.flow = np.full((4, len(self.metered)), -1)
        limits = []
        for side, (near, far, own, mutual) in enumerate(ends):
            inside = self._here[near[self.metered]]
            current = self.metered[inside]
            rate = np.where(case.rate > 0, case.rate, np.inf)[current]
            rated = np.isfinite(rate)
            p, q = (program.add_variables(len(rate), -reach * rate, reach * rate) for _ in "pq")
            rows = [program.add_sums(0.0, 0.0, (v, -1.0), owner=near[current]) for v in (p, q)]
            branch = near, far, own, mutual
            self._add_flow(rows[0], rows[1], current, *branch)
            here_balanced = self.p_balance[near[current]] >= 0
            square, ends_rated = rate[rated] ** 2, near[current][rated]
            limit = program.add_rows(len(square), -np.inf, square, ends_rated)
            for balance, part in ((self.p_balance, p), (self.q_balance, q)):
                place = balance[near[current]][here_balanced]
                program.add_linear(place, part[here_balanced], 1.0)
                program.add_product(limit, part[rated], part[rated], 1.0)
            limits.append(limit)
            k = free[self.p_balance[near[free]] >= 0]
            self._add_flow(self.p_balance[near[k]], self.q_balance[near[k]], k, *branch)
            self.flow[2 * side : 2 * side + 2, inside] = p, q
        self.rating: Ints = np.concatenate(limits)

    def _add_flow(
        self, p: Ints, q: Ints, k: Ints, near: Ints, far: Ints, own: Complexes, mutual: Complexes
    ) -> None:
        """Add the flow into branches k at their near ends to an active and a reactive row each."""
        e, f = self.e, self.f
        for i, j, end, y in (
            *((part, part, near, own) for part in (e, f)),
            *((part, part, far, mutual) for part in (e, f)),  # wr
            (f, e, far, -1j * mutual),  # wi
            (e, f, far, 1j * mutual),
        ):
            self.program.add_product(p, i[near[k]], j[end[k]], y[k].real)
            self.program.add_product(q, i[near[k]], j[end[k]], -y[k].imag)

    def _add_angle_limits(self) -> None:
        """Add tan(angmin) wr <= wi <= tan(angmax) wr."""
        case, program, e, f = self.case, self.program, self.e, self.f
        for limit, sign in ((case.angmin, 1.0), (case.angmax, -1.0)):
            k = np.flatnonzero(np.isfinite(limit) & self._here[case.f_bus])
            i, j, slope = case.f_bus[k], case.t_bus[k], sign * np.tan(limit[k])
            row = program.add_rows(len(k), 0.0, np.inf, i)
            program.add_product(row, f[i], e[j], sign)
            program.add_product(row, e[i], f[j], -sign)
            program.add_product(row, e[i], e[j], -slope)
            program.add_product(row, f[i], f[j], -slope)


class AcModel(AcEquations):
    """A grid's AC equations with costs, and the states of their solutions."""

    def voltage(self, x: Floats) -> Complexes:
        """Return the complex voltages of a solution."""
        return np.asarray(x[self.e] + 1j * x[self.f])

    @property
    def unserved(self) -> Ints:
        """Variables of shed demand and of curtailed injection."""
        return np.concatenate([self.cut, self.curtailment])

    def dispatch(self, x: Floats) -> Dispatch:
        """Return the dispatch of a solution."""
        case, voltage = self.case, self.voltage(x)
        share, curtailment = np.zeros(case.n_bus), np.zeros(case.n_bus)
        share[self.loaded] = np.clip(x[self.cut], 0.0, 1.0)
        curtailment[self.curtailable] = np.maximum(x[self.curtailment], 0.0)
        shed = share * case.pd, share * case.qd
        return Dispatch(x[self.pg], np.abs(voltage), np.angle(voltage), *shed, curtailment)

    def starting_from(self, voltage: Complexes, pg: Floats, qg: Floats) -> Floats:
        """Return the program's starting point with these voltages and outputs."""
        x = self.program.start.copy()
        x[self.e], x[self.f], x[self.pg], x[self.qg] = voltage.real, voltage.imag, pg, qg
        s_from, s_to = branch_flows(self.case, voltage)
        near, far = s_from[self.metered], s_to[self.metered]
        x[self.flow] = np.stack([near.real, near.imag, far.real, far.imag])
        return x

    def add_generation_cost(self, unit: float) -> None:
        """Add the generators' cost, in multiples of ``unit`` $/h; without its constants."""
        case, program = self.case, self.program
        for g, cost in enumerate(case.cost):
            output = self.pg[[g]]
            if cost.model != PIECEWISE:
                square, slope, _ = per_unit_polynomial(cost, case.base_mva)
                program.add_cost(output, slope / unit, square / unit)
                continue
            slopes, intercepts = piecewise_lines(cost, case.base_mva)
            begin = cost_at(cost, case.base_mva, float(program.start[output[0]])) / unit
            height = program.add_variables(1, start=begin, price=1.0)
            above = program.add_rows(len(slopes), -np.inf, -intercepts / unit)
            program.add_linear(above, np.repeat(output, len(slopes)), slopes / unit)
            program.add_linear(above, np.repeat(height, len(slopes)), -1.0)

    def add_operating_cost(self, unit: float | None) -> float:
        """Add the cost of generation; return the price in $/MWh of one unit of multiplier.

        Parameters
        ----------
        unit : float or None
            c0 in $/h per p.u.; None for an equal price of all generation, which minimizes losses.
        """
        if unit is None:
            self.program.add_cost(self.pg, 1.0)
            return NOTIONAL_COST
        self.add_generation_cost(unit)
        return unit / self.case.base_mva

    def add_service_cost(self, shed: float, curtailment: float) -> None:
        """Add the prices of shed load and of curtailed injection, per p.u."""
        self.program.add_cost(self.cut, shed * self.case.pd[self.loaded])
        self.program.add_cost(self.curtailment, curtailment)

    def add_reactive_slack(self, price: float) -> None:
        """Add slacks of reactive balances at a price per p.u.

        For estimated demand: with noise a bus may have reactive demand that no voltage within the
        band can serve.
        """
        for sign in (1.0, -1.0):
            self.program.add_slack(self.q_balance[self.q_balance >= 0], sign, price)

    def add_violations(self, price: float) -> None:
        """Add slacks of voltage and flow limits, at a price per p.u. of flow.

        A voltage that is 0.01 p.u. outside its band counts as much as 1 MVA.
        """
        program, base = self.program, self.case.base_mva
        rate = np.sqrt(program.form().upper[self.rating])
        for rows, sign, size in (
            (self.band, 1.0, base / BASE_MVA),
            (self.band, -1.0, base / BASE_MVA),
            (self.rating, -1.0, rate),
        ):
            program.add_slack(rows, sign, price / (2.0 * size))


def _middle(low: Floats, high: Floats) -> Floats:
    """Return the middle of a box; of an open one, its point nearest to 0."""
    closed = np.isfinite(low) & np.isfinite(high)
    return np.where(closed, (np.where(closed, low, 0) + np.where(closed, high, 0)) / 2, 0.0)


def _references(case: Case, balanced: Bools) -> Ints:
    """Return a bus of each island that is balanced here, preferably the source's reference."""
    island = islands(case)
    return last_of_each(island, island.max() + 1, case.reference, balanced)

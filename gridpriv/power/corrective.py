"""Corrective redispatch after an outage, and the derivatives of limited quantities by set points.

The redispatch is an AC optimal power flow of the grid after the outage, in outputs and voltages,
with the least change:

    minimize   c sum_g |pg_g - pg0_g| + VOLL shed + VOLL/100 curtailed
    subject to AC power flow, all limits by the emergency ratings, 0 <= shed <= demand

with pg0 the outputs after the outage and automatic regulation, or before the outage if no AC state
was computed, and c a notional price of 50 $/MWh, far below VOLL. An AC power flow of the set points
checks the result. It uses the demand of the analysis; with released demand it is post-processing.

An outage that this cannot correct without load shedding has no secure preventive plan either, as
far as a local optimum shows it: the state after any plan is feasible for this program.

Derivatives. An AC state solves F(x, u) = 0: the balances of all buses. x are the angles, the
voltages of buses without a set point and the regulation alpha of each island; u are the active and
voltage set points of generators. For a limited quantity h(x, u) the adjoint method needs one
factorization of F_x per state and one solve per quantity:

    F_x' lambda = h_x        dh/du = h_u - F_u' lambda

Regulation is shared by headroom, r_g = pmax_g - pg_g upwards or pg_g - pmin_g downwards, so the
output of generator g is pg_g + alpha r_g / sum(r); its derivative by pg_j is
delta_gj -+ alpha (delta_gj - r_g / sum(r)) / sum(r).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import SuperLU, splu

from gridpriv.core.arrays import Bools, Floats, Ints
from gridpriv.core.errors import InputError, SolverError
from gridpriv.grid.network import branch_admittance, bus_admittance, deenergized_buses, islands
from gridpriv.grid.scenarios import Contingency
from gridpriv.power.ac.flow import ac_flow
from gridpriv.power.ac.model import CURTAILMENT_WEIGHT, NOTIONAL_COST, AcModel
from gridpriv.power.ac.newton import PowerFlowError
from gridpriv.power.ac.part import SubCase, part_at
from gridpriv.power.ac.state import AcState, Dispatch, Limit
from gridpriv.power.security import Outage, PreContingency, post_contingency

AT_SETPOINT = 1e-7
"""p.u.: distance from its set point up to which a bus's voltage is regulated."""


@dataclass(frozen=True, eq=False)
class StateDerivative:
    """The linearized AC power flow around a state.

    Attributes
    ----------
    state : AcState
    setpoint : (n,)
        Voltage set points of generators' buses, p.u.
    """

    state: AcState
    setpoint: Floats

    @cached_property
    def island(self) -> Ints:
        """The island of every bus."""
        return islands(self.state.case)

    @cached_property
    def regulated(self) -> Bools:
        """Buses at their voltage set point."""
        state = self.state
        generating = np.isin(np.arange(state.case.n_bus), state.case.gen_bus)
        at = np.abs(state.vm - self.setpoint) <= AT_SETPOINT
        return np.asarray(generating & at & ~state.deenergized)

    @cached_property
    def _slopes(self) -> tuple[sparse.csr_array, sparse.csr_array]:
        """Derivatives of the buses' complex injections by angle and by magnitude, (n, n)."""
        admittance, voltage = bus_admittance(self.state.case), self.state.voltage
        current = admittance @ voltage
        unit = np.exp(1j * self.state.va)
        v, i, e = (sparse.diags_array(x, format="csr") for x in (voltage, current, unit))
        by_angle = 1j * (v @ (i - admittance @ v).conj())
        by_magnitude = v @ (admittance @ e).conj() + i.conj() @ e
        return by_angle.tocsr(), by_magnitude.tocsr()

    @cached_property
    def _shares(self) -> tuple[Floats, Floats, Floats]:
        """Every generator's share of its island's alpha, alpha over the room, and its sign."""
        state, case = self.state, self.state.case
        group, count = self.island[case.gen_bus], int(self.island.max()) + 1
        set_point = state.pg - state.regulation
        alpha = np.bincount(group, state.regulation, count)[group]
        room = np.where(alpha >= 0, case.pmax - set_point, set_point - case.pmin)
        room = np.maximum(np.where(np.isinf(room), 1e6, room), 0.0)
        exhausted = np.bincount(group, room, count)[group] <= 0
        room = np.where(exhausted, 1.0, room)  # the deficit is shed, so any share is correct
        total = np.bincount(group, room, count)[group]
        return room / total, alpha / total, np.where(alpha >= 0, -1.0, 1.0)

    @cached_property
    def _places(self) -> tuple[Ints, Ints, Ints]:
        """Energized buses, those with a free angle, and those with a free voltage."""
        live = np.flatnonzero(~self.state.deenergized)
        first = np.unique(self.island[live], return_index=True)[1]
        return live, np.delete(live, first), live[~self.regulated[live]]

    @cached_property
    def _factors(self) -> SuperLU:
        live, free_angle, free_voltage = self._places
        case = self.state.case
        by_angle, by_magnitude = self._slopes
        share = self._shares[0]
        numbers, group = np.unique(self.island[live], return_inverse=True)
        area = np.full(case.n_bus, -1)
        area[live] = group
        alpha = sparse.coo_array(
            (-share, (case.gen_bus, np.maximum(area[case.gen_bus], 0))),
            shape=(case.n_bus, len(numbers)),
        ).tocsr()
        none = sparse.csr_array((len(free_voltage), len(numbers)))
        by_state = by_angle[:, free_angle], by_magnitude[:, free_voltage]
        rows = [
            [*(by.real[live] for by in by_state), alpha[live]],
            [*(by.imag[free_voltage] for by in by_state), none],
        ]
        return splu(sparse.block_array(rows, format="csc"))

    def of(self, limit: Limit) -> tuple[Floats, Floats]:
        """Return the derivatives of a limited quantity, p.u. per p.u.

        Parameters
        ----------
        limit : Limit
            Of kind ``line`` (apparent power of the more loaded end) or ``voltage``.

        Returns
        -------
        by_pg : (g,)
            By the active set points of the state's generators.
        by_vm : (n,)
            By the voltage set points of buses; 0 at buses without one.
        """
        angle, magnitude = np.zeros((2, self.state.case.n_bus))
        if limit.kind == "line":
            self._flow(limit.element, angle, magnitude)
        else:
            magnitude[np.flatnonzero(self.state.case.bus_id == limit.element)] = 1.0
        live, free_angle, free_voltage = self._places
        right = np.concatenate([angle[free_angle], magnitude[free_voltage]])
        right = np.append(right, np.zeros(self._factors.shape[0] - len(right)))
        adjoint = self._factors.solve(right, trans="T")
        p, q = np.zeros((2, self.state.case.n_bus))
        p[live], q[free_voltage] = adjoint[: len(live)], adjoint[len(live) :]
        by_magnitude = self._slopes[1]
        pulled = by_magnitude.real.T @ p + by_magnitude.imag.T @ q
        return self._by_output(p), np.where(self.regulated, magnitude - pulled, 0.0)

    def _by_output(self, price: Floats) -> Floats:
        """Return the derivative by active set points for an adjoint of the active balances."""
        case = self.state.case
        share, ratio, sign = self._shares
        at, group = price[case.gen_bus], self.island[case.gen_bus]
        mean = np.bincount(group, share * at, int(self.island.max()) + 1)[group]
        return np.asarray(at + sign * ratio * (at - mean))

    def _flow(self, row: int, angle: Floats, magnitude: Floats) -> None:
        """Add the derivatives of a branch's larger apparent power by its ends' voltages."""
        state, y = self.state, branch_admittance(self.state.case)
        k = int(np.flatnonzero(state.case.branch_row == row)[0])
        from_end = abs(state.s_from[k]) >= abs(state.s_to[k])
        f, t = int(state.case.f_bus[k]), int(state.case.t_bus[k])
        near, far = (f, t) if from_end else (t, f)
        own, mutual = (y.ff[k], y.ft[k]) if from_end else (y.tt[k], y.tf[k])
        v, w = state.voltage[near], state.voltage[far]
        power = v * np.conj(own * v + mutual * w)
        along = np.conj(power) / abs(power)
        crossed = v * np.conj(mutual * w)
        angle[near] += (along * 1j * crossed).real
        angle[far] -= (along * 1j * crossed).real
        magnitude[near] += (along * (2 * np.conj(own) * abs(v) ** 2 + crossed)).real / abs(v)
        magnitude[far] += (along * crossed).real / abs(w)


Corrected = Literal["corrected", "limits left", "no state"]
MARGIN = 1e-4
"""Margin of set points to limits: share of ratings, and p.u. of voltage bands."""


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
        ``corrected``: no limit is violated. ``no state``: no set points satisfy the limits, even
        with load shedding.
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
        """Additional load shedding of zones after the outage."""
        total = sum(zone.shed_mw for zone in self.zones)
        rounding = self.state is not None and total <= self.state.negligible_mw
        return 0.0 if rounding else total

    @property
    def secure(self) -> bool:
        """True where no limit is violated and no load is shed."""
        return self.status == "corrected" and self.shed_mw == 0.0


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
    outage = Outage(before, contingency)
    case = outage.case
    deenergized = deenergized_buses(case)
    try:
        state = post_contingency(before, outage)
        pg = state.pg
        if deenergized.all():  # nothing is left to redispatch
            zones = _by_zone(before, outage, state, pg, owners)
            return Correction("corrected", zones, (), state)
    except PowerFlowError:
        pg = before.dispatch.pg[outage.in_service]
    live = part_at(case, ~deenergized)
    try:
        dispatch = _least_redispatch(live, pg[live.gens], voll)
        state = ac_flow(case, live.in_whole(case, dispatch))
    except (SolverError, InputError):
        return Correction("no state", (), (), None)
    violations = state.violations
    correction = Correction("limits left" if violations else "corrected", (), violations, state)
    return replace(correction, zones=_by_zone(before, outage, state, pg, owners))


def _least_redispatch(live: SubCase, pg: Floats, voll: float) -> Dispatch:
    """Return the dispatch within all limits that changes least from ``pg``.

    Raises
    ------
    SolverError
        If there is none, even with load shedding.
    """
    case = live.case
    tight = replace(
        case,
        rate=case.rate * (1.0 - MARGIN),
        vmin=np.minimum(case.vmin + MARGIN, case.vmax),
        vmax=np.maximum(case.vmax - MARGIN, case.vmin),
    )
    model = AcModel(tight)
    row = model.program.add_sums(pg, pg, (model.pg, 1.0))  # pg = pg0 + up - down
    for sign in (-1.0, 1.0):
        model.program.add_slack(row, sign, 1.0)
    model.add_service_cost(voll / NOTIONAL_COST, CURTAILMENT_WEIGHT * voll / NOTIONAL_COST)
    for zero in (model.unserved, None):
        solution = model.program.solve(None, zero)
        if solution.solved:
            return model.dispatch(solution.x)
    raise SolverError(
        f"no set points keep the limits of {case.name}: ipopt ended {solution.status}"
    )


def _by_zone(
    before: PreContingency,
    outage: Outage,
    state: AcState,
    pg: Floats,
    owners: Sequence[tuple[str, Ints]],
) -> tuple[ZoneCorrection, ...]:
    """Return the redispatch of every zone, MW."""
    base, case = before.case.base_mva, outage.case
    redispatched = state.pg - pg
    shed = state.p_shed - before.state.p_shed
    corrections = []
    for name, buses in owners:
        own = redispatched[np.isin(case.gen_bus, buses)]
        up, down = np.maximum(own, 0.0).sum(), np.maximum(-own, 0.0).sum()
        cut = max(float(shed[buses].sum()), 0.0)
        corrections.append(ZoneCorrection(name, base * float(up), base * float(down), base * cut))
    return tuple(corrections)

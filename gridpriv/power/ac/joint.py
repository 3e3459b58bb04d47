"""The AC optimal power flow of all zones together, solved in rounds, and its linear cuts.

The coupling variables are the voltages e + jf of the buses at the ends of tie lines; tie-line flows
at both ends follow from them. Each zone's block has the balances and limits of its own buses, its
generators, and the flows of its lines at its own ends. The blocks and the border of tie-end
voltages form the AC optimal power flow of the whole grid, without copies. Balance multipliers of
tie-end buses belong to the border too (:mod:`gridpriv.power.ac.block`).

A cut bounds a sum over zones, sum_z t_z <= bound + slack, where t_z is linear in the outputs and
squared voltages of zone z. The t_z belong to the border, and the coordinator's own block has the
cuts and their slacks.

Privacy. A block uses public topology, limits and costs and the zone's *released* demand: the
estimate from its one release. Every message of these rounds (a Schur complement, a residual, a step
length, sums) is a function of that estimate and of earlier messages. So the rounds are
post-processing and cost no epsilon. If noise is drawn in every round there is no such estimate, and
these rounds are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gridpriv.core.arrays import Bools, Complexes, Floats, Ints, last_of_each
from gridpriv.grid.case import Case
from gridpriv.grid.network import deenergized_buses, islands, no_load_angles
from gridpriv.power.ac.block import Block
from gridpriv.power.ac.model import CURTAILMENT_WEIGHT, REACTIVE_SLACK_WEIGHT, AcModel
from gridpriv.power.ac.part import SubCase, live_part
from gridpriv.power.ac.quadratic import QuadraticProgram
from gridpriv.power.ac.state import BY_BUS, Dispatch
from gridpriv.power.ac.zone_redispatch import ScheduledState
from gridpriv.power.zone import Zone, owner_of


@dataclass(frozen=True, eq=False)
class Cuts:
    """Cuts by_pg pg + by_w w <= bound; a violation costs ``price`` per unit; public.

    Attributes
    ----------
    by_pg : (k, g)
        By the outputs of the case's generators.
    by_w : (k, n)
        By the squared voltages of its buses.
    bound, price : (k,)
    """

    by_pg: Floats
    by_w: Floats
    bound: Floats
    price: Floats

    def block(self, zones: int, first: int) -> tuple[Block, Ints]:
        """Return the coordinator's block, and the numbers of its border entries from ``first``."""
        count = len(self.bound)
        program = QuadraticProgram()
        part = program.add_variables(zones * count)
        row = program.add_rows(count, -np.inf, self.bound)
        program.add_linear(np.tile(row, zones), part, 1.0)
        program.add_slack(row, -1.0, self.price)
        block = Block(program.form(), part, np.zeros(0, dtype=np.int64), program.start)
        return block, first + np.arange(zones * count)

    def added(self, model: AcModel, part: SubCase, own: Ints) -> Ints:
        """Add a zone's t to its model; return these variables.

        Parameters
        ----------
        own : int array
            Buses of the part that belong to the zone.
        """
        program = model.program
        by_pg, by_w = self.by_pg[:, part.gens], self.by_w[:, part.buses[own]]
        # a border entry starts at the same value in all blocks, as their steps are the same
        total = program.add_variables(len(self.bound))
        row = program.add_sums(0.0, 0.0, (total, -1.0))
        cut, gen = np.nonzero(by_pg)
        program.add_linear(row[cut], model.pg[gen], by_pg[cut, gen])
        cut, bus = np.nonzero(by_w)
        for part_of_voltage in (model.e, model.f):
            variable = part_of_voltage[own[bus]]
            program.add_product(row[cut], variable, variable, by_w[cut, bus])
        return total


NEGLIGIBLE = 1e-6
"""p.u. of load shedding that counts as none in an interior-point solution."""
OUTPUT_LIMITS = ("pmin", "pmax", "qmin", "qmax")
E, F, P_BALANCE, Q_BALANCE = range(4)
"""Kinds of border entries."""


@dataclass(frozen=True, eq=False)
class TieEnds:
    """The buses at the ends of tie lines and their border; public topology.

    Attributes
    ----------
    number : (4, n) int
        Number in the border of every bus's e, f and active and reactive balance multiplier; -1 if a
        bus has none.
    reference : (n,) bool
        The bus of every island whose angle is 0.
    angle : (n,)
        Of the grid without load (rad), the start of the search.
    size : int
        Entries of the border.
    """

    number: Ints
    reference: Bools
    angle: Floats
    size: int

    def of(self, zone: Zone) -> TieEnds:
        """Return the part of a zone: its own and its neighbours' buses, in their order."""
        own = zone.buses
        return TieEnds(self.number[:, own], self.reference[own], self.angle[own], self.size)


def tie_ends(case: Case, zones: Sequence[Zone]) -> TieEnds:
    """Return the border of a grid's zones; de-energized islands have none."""
    owner = owner_of(case, zones)
    deenergized = deenergized_buses(case)
    crossing = (owner[case.f_bus] != owner[case.t_bus]) & ~deenergized[case.f_bus]
    ends = np.concatenate([case.f_bus[crossing], case.t_bus[crossing]])
    edge = np.isin(np.arange(case.n_bus), ends)
    island = islands(case)
    last = last_of_each(island, island.max() + 1, case.reference)  # the source's reference bus
    reference = np.isin(np.arange(case.n_bus), last)
    number, size = np.full((4, case.n_bus), -1), 0
    for kind in range(4):
        buses = np.flatnonzero(edge & ~reference if kind == F else edge)
        number[kind, buses] = np.arange(size, size + len(buses))
        size += len(buses)
    return TieEnds(number, reference, no_load_angles(case, last), size)


@dataclass(frozen=True, eq=False)
class ZoneBlock:
    """A zone's block of the joint AC optimal power flow.

    Attributes
    ----------
    part : SubCase
        The zone's energized part, with its own demand only.
    at : (k,) int
        Number in the border of each of the block's border entries.
    ends : (t,) int
        Tie-end buses of the part.
    price : float
        $/MWh per unit of multiplier.
    shared : int array
        Generators of the part whose output is a border entry.
    balance_entries : int
        Border entries that are multipliers of balances: the last ones.
    """

    zone: Zone
    part: SubCase
    model: AcModel
    block: Block
    at: Ints
    ends: Ints
    price: float
    shared: Ints
    balance_entries: int

    @property
    def voltage(self) -> Complexes:
        """Voltages of the zone's own and its neighbours' tie-end buses (``zone.buses``)."""
        case = self.zone.network.case
        whole = np.zeros(case.n_bus, complex)
        whole[self.part.buses] = self.model.voltage(self.block.point.x)
        return whole[self.zone.buses]

    @property
    def scheduled(self) -> ScheduledState:
        """The zone at the block's point."""
        pg, qg = np.zeros((2, len(self.zone.gens)))
        at = np.searchsorted(self.zone.gens, self.part.gens)
        pg[at], qg[at] = (self.block.point.x[v] for v in (self.model.pg, self.model.qg))
        return ScheduledState(self.voltage, pg, qg)

    @property
    def slope(self) -> Complexes:
        """Return the others' Lagrangian derivative by tie-end voltages, dL/de + j dL/df.

        At the joint optimum the Lagrangian of all zones is stationary in every tie-end voltage, so
        the others' part is minus this zone's own. Shape (buses,), in the order of ``zone.buses``.
        """
        form, at = self.block.form, self.block.point
        own = form.gradient(at.x) + form.adjoint(at.x, at.multiplier)
        whole = np.zeros(self.zone.network.case.n_bus, complex)
        buses = self.part.buses[self.ends]
        whole[buses] = -own[self.model.e[self.ends]] - 1j * own[self.model.f[self.ends]]
        return whole[self.zone.buses]

    @property
    def value(self) -> tuple[float, float]:
        """The objective (multiples of c0) and the load shedding (p.u.) at the block's point."""
        x = self.block.point.x
        return self.block.form.objective(x), float(self.model.dispatch(x).p_shed.sum())

    @property
    def price_level(self) -> float:
        """Largest active balance multiplier at a tie end, in multiples of c0."""
        rows = self.model.p_balance[self.ends]
        return float(np.abs(self.block.point.multiplier[rows[rows >= 0]]).max(initial=0.0))


def zone_block(
    zone: Zone,
    demand: Floats,
    ends: TieEnds,
    voll: float,
    unit: float | None,
    *,
    estimated: bool = False,
    shed: bool = True,
    shared_gens: Ints | None = None,
    running: Bools | None = None,
    cuts: tuple[Cuts, Ints] | None = None,
) -> ZoneBlock | None:
    """Return a zone's block; None for a zone of de-energized buses.

    Parameters
    ----------
    demand : (2 own,)
        Released estimate of (pd, qd); exact without perturbation.
    ends : TieEnds
        Of the zone (:meth:`TieEnds.of`).
    voll : float
        Value of lost load in $/MWh.
    unit : float or None
        Of the objective in $/h per p.u.; None where losses are minimized.
    estimated : bool
        As of :func:`gridpriv.power.ac.optimum.acopf`.
    shed : bool
        True if load may be shed.
    shared_gens : int array, optional
        Generators of the case whose output is a border entry, between voltages and balances.
    running : (g,) bool, optional
        Generators of the case that run; by default all.
    cuts : (Cuts, int array), optional
        Cuts on all zones' set points, and numbers in the border of the zone's t.
    """
    live = live_part(zone, demand)
    if live is None:
        return None
    part, own = live
    case = part.case
    if running is not None:
        on = running[part.gens]
        limits: dict[str, Any] = {k: np.where(on, getattr(case, k), 0.0) for k in OUTPUT_LIMITS}
        case = replace(case, **limits)
        part = replace(part, case=case)
    ties = own[case.f_bus] != own[case.t_bus]
    places = np.searchsorted(zone.buses, part.buses)
    reference = np.flatnonzero(ends.reference[places])
    angle = ends.angle[places]
    model = AcModel(case, own, ties, reference=reference, own_ends=True, angle=angle)
    price = model.add_operating_cost(unit)
    shed_price = voll / price
    model.add_service_cost(shed_price, CURTAILMENT_WEIGHT * shed_price)
    edge, columns, rows, at = _border(model, own, ends.number[:, places])
    if estimated:
        model.add_reactive_slack(REACTIVE_SLACK_WEIGHT * shed_price)
    if cuts is not None:
        at = np.insert(at, len(columns), cuts[1])
        columns = np.append(columns, cuts[0].added(model, part, np.flatnonzero(own)))
    shared = np.flatnonzero(np.isin(part.gens, [] if shared_gens is None else shared_gens))
    columns = np.append(columns, model.pg[shared])
    form = model.program.form()
    if not shed:
        form.high[model.cut] = 0.0
    start = model.program.start
    if estimated and shed:  # without load there is a solution, for the start
        start[model.cut] = 1.0
    block = Block(form, columns, rows, start)
    return ZoneBlock(zone, part, model, block, at, edge, price, shared, len(rows))


def _border(model: AcModel, own: Bools, number: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Return a part's tie ends, its border variables and rows, and their border numbers.

    Parameters
    ----------
    number : (4, k) int
        As :attr:`TieEnds.number`, of the part's buses.
    """
    edge = np.flatnonzero(number[E] >= 0)
    turning, balanced = edge[number[F, edge] >= 0], edge[own[edge]]
    columns = np.concatenate([model.e[edge], model.f[turning]])
    rows = np.concatenate([model.p_balance[balanced], model.q_balance[balanced]])
    places = ((E, edge), (F, turning), (P_BALANCE, balanced), (Q_BALANCE, balanced))
    return edge, columns, rows, np.concatenate([number[kind, buses] for kind, buses in places])


def joint_plan(case: Case, blocks: Sequence[ZoneBlock]) -> Dispatch:
    """Return the zones' plans as one dispatch."""
    whole = Dispatch(np.zeros(case.n_gen), np.ones(case.n_bus), *np.zeros((4, case.n_bus)))
    for zone in blocks:
        part, dispatch = zone.part, zone.model.dispatch(zone.block.point.x)
        own = np.isin(part.buses, zone.zone.own)
        whole.pg[part.gens] = dispatch.pg
        for name in BY_BUS:
            values = getattr(dispatch, name)[own]
            served = name not in ("vm", "va") and values <= NEGLIGIBLE
            getattr(whole, name)[part.buses[own]] = np.where(served, 0.0, values)
    return whole

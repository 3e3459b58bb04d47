"""A part of a grid as a :class:`Case`, and the linear equivalent of the rest of the grid.

The far ends of a zone's tie lines react to the zone. While all injections beyond them stay
constant, the active flow p_j into the tie lines at far end j follows the angles of the far ends,

    p_j = p0_j - sum_k B_jk (theta_k - theta0_k) + s_j a,

with B the susceptances of the network beyond, reduced to the far ends (Kron), a the total change of
the generators beyond, and s_j their shares by range. So a flow that a zone pushes into one tie line
returns through the others. Reactive flow follows voltages in the same way,

    q_j = q0_j - sum_k K_jk (v_k - v0_k),

with K the Kron reduction of the derivative of reactive injections by voltage, d q_i / d v_j =
-b_ij and d q_i / d v_i = sum_j b_ij - 2 shunts near 1 p.u.; generators beyond keep their voltages.
All of it is public; a zone measures p0, q0, theta0 and v0.

The whole grid is factored once for all zones. The inverse of its inverse at the ends of a zone's
tie lines is the grid reduced to them; its rows of the far ends are the network beyond and the tie
lines. A shunt at one bus of each island makes the matrix regular.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy import sparse

from gridpriv.core.arrays import Bools, Floats, Ints, sums_at
from gridpriv.grid.case import Case, case_of
from gridpriv.grid.network import Factors, islands, laplacian, stranded_buses, without_generation
from gridpriv.power.ac.state import BY_BUS, Dispatch
from gridpriv.power.zone import Zone


@dataclass(frozen=True, eq=False)
class SubCase:
    """Some buses, branches and generators of a case.

    Attributes
    ----------
    case : Case
        The part alone; its buses are numbered 0..k-1 in the order of ``buses``.
    buses, branches, gens : int arrays
        Indices in the whole case.
    """

    case: Case
    buses: Ints
    branches: Ints
    gens: Ints

    def dispatch(self, whole: Dispatch) -> Dispatch:
        """Return the part of a dispatch of the whole grid."""
        by_bus = (getattr(whole, name)[self.buses] for name in BY_BUS)
        return Dispatch(whole.pg[self.gens], *by_bus)

    def in_whole(self, case: Case, part: Dispatch) -> Dispatch:
        """Return a dispatch of the whole grid; buses outside the part serve no demand."""
        pg = np.zeros(case.n_gen)
        pg[self.gens] = part.pg
        whole = Dispatch(pg, np.ones(case.n_bus), *np.zeros((4, case.n_bus)))
        whole = whole.without_service(case, ~np.isin(np.arange(case.n_bus), self.buses))
        for name in BY_BUS:
            getattr(whole, name)[self.buses] = getattr(part, name)
        return whole


def part_at(case: Case, buses: Bools) -> SubCase:
    """Return the part of a case at some buses; branches must be inside the part."""
    here = (buses, buses[case.f_bus], buses[case.gen_bus])
    elements = [np.flatnonzero(each) for each in here]
    return SubCase(case, *elements) if buses.all() else part_of(case, *elements)


def part_of(case: Case, buses: Ints, branches: Ints, gens: Ints, **given: Floats) -> SubCase:
    """Return a part of a case with some fields given; its elements must be at its buses."""
    return SubCase(case_of(case, buses, branches, gens, **given), buses, branches, gens)


def live_part(zone: Zone, demand: Floats) -> tuple[SubCase, Bools] | None:
    """Return the energized part of a zone, and a mask of the zone's own buses in it.

    It has the zone's own demand (pd, qd) only. None for a de-energized zone.
    """
    live = _with_generation(zone)
    if live is None:
        return None
    part, own = live
    pd, qd = np.zeros((2, len(own)))
    pd[own], qd[own] = demand.reshape(2, -1)[:, np.searchsorted(zone.own, part.buses[own])]
    case = replace(part.case, pd=pd, qd=qd)
    stranded = stranded_buses(case)
    if not stranded.any():
        return replace(part, case=case), own
    if stranded[own].all():
        return None
    rest = part_at(case, ~stranded)
    elements = part.buses[rest.buses], part.branches[rest.branches], part.gens[rest.gens]
    return SubCase(rest.case, *elements), own[rest.buses]


@lru_cache(maxsize=64)
def _with_generation(zone: Zone) -> tuple[SubCase, Bools] | None:
    """Return the part of a zone on islands with generation, and the mask as :func:`live_part`."""
    whole = zone.network.case
    deenergized = without_generation(whole)
    if deenergized[zone.own].all():
        return None
    buses = zone.buses[~deenergized[zone.buses]]
    branches = zone.branches[~deenergized[whole.f_bus[zone.branches]]]
    gens = zone.gens[~deenergized[whole.gen_bus[zone.gens]]]
    none = np.zeros(len(buses))
    return part_of(whole, buses, branches, gens, pd=none, qd=none), np.isin(buses, zone.own)


UNLIMITED_RANGE = 1e6
"""p.u.: the range of a generator without limits; next to it the shares of others are about 0."""
STIFFNESS = 100.0
"""Stiffness of a generator's voltage, in multiples of the mean susceptance."""
ROUNDING_SHARE = 1e-12
"""Share of an island's range below which a range is rounding."""


@dataclass(frozen=True, eq=False)
class ExternalEquivalent:
    """The network beyond a zone, reduced to the far ends of its tie lines.

    Attributes
    ----------
    ends : (k,) int
        Far ends, as buses of the whole case, in increasing order.
    susceptance : (k, k)
        B in p.u. per rad.
    stiffness : (k, k)
        K in p.u. per p.u.
    share : (k,)
        s of the far ends; they add up to 1 with generation beyond them, else to 0.
    """

    ends: Ints
    susceptance: Floats
    stiffness: Floats
    share: Floats


class Lossless:
    """A whole grid without losses near nominal voltage; public.

    Raises
    ------
    RuntimeError
        If its susceptances cancel: lines without reactance, or capacitors against their lines.

    Attributes
    ----------
    susceptance : (m,)
        Of the branches.
    factors : Factors
        Of their Laplacian, with a shunt ``shunt`` at one bus of every island.
    shunt_bus : (islands,) int
        These buses.
    generation_range : (n,)
        Ranges of the buses' generators.
    angles : (n,)
        Angles where every generator injects its range and the shunts consume it.
    reactive : Factors
        Of the derivative of reactive power by voltage, at constant voltages of generators.
    """

    def __init__(self, case: Case) -> None:
        self.case, self.island = case, islands(case)
        susceptance = self.susceptance = case.x / (case.r**2 + case.x**2) / case.tap
        self.shunt = float(np.abs(susceptance).mean()) if case.n_branch else 1.0
        self.shunt_bus = np.unique(self.island, return_index=True)[1]
        values = np.zeros(case.n_bus)
        values[self.shunt_bus] = self.shunt
        matrix = laplacian(case.f_bus, case.t_bus, susceptance, case.n_bus)
        charging = np.bincount(case.f_bus, case.b, case.n_bus)
        charging += np.bincount(case.t_bus, case.b, case.n_bus)
        generating = np.isin(np.arange(case.n_bus), case.gen_bus)
        stiffness = np.where(generating, STIFFNESS, ROUNDING_SHARE) * self.shunt
        by_voltage = matrix + sparse.diags_array(stiffness - charging - 2.0 * case.bs)
        self.factors = Factors.of((matrix + sparse.diags_array(values)).tocsc())
        self.reactive = Factors.of(by_voltage.tocsc())
        each = np.clip(case.pmax - case.pmin, 0.0, UNLIMITED_RANGE)
        self.generation_range = sums_at(case.gen_bus, each, case.n_bus)
        self.angles = self.factors.solve(self.generation_range)


def lossless(case: Case) -> Lossless | None:
    """Return a grid without losses; None where its susceptances cancel."""
    with suppress(RuntimeError):
        return Lossless(case)
    return None


def external_equivalent(grid: Lossless, own: Ints, ties: Ints) -> ExternalEquivalent | None:
    """Return the equivalent of the grid beyond a zone; None where its susceptances cancel.

    Parameters
    ----------
    own : int array
        The zone's own buses, in increasing order.
    ties : (j,) int
        Its live tie lines, one at least.
    """
    f, t = grid.case.f_bus[ties], grid.case.t_bus[ties]
    out = np.isin(f, own)
    near, far = np.where(out, f, t), np.where(out, t, f)
    ends, at = np.unique(far, return_inverse=True)
    shunt_bus = grid.shunt_bus[np.unique(grid.island[ends])]
    other_shunt_buses = np.setdiff1d(shunt_bus, np.concatenate([ends, own]))
    external_buses = np.concatenate([ends, other_shunt_buses])
    boundary_buses = np.concatenate([external_buses, np.unique(near)])
    try:
        whole = np.linalg.inv(grid.factors.solve_at(boundary_buses, np.eye(len(boundary_buses))))
        reduced, response = (
            whole[: len(external_buses)],
            whole[: len(external_buses)] @ grid.angles[boundary_buses],
        )
        network = reduced[:, : len(external_buses)] - grid.shunt * np.diag(
            np.isin(external_buses, shunt_bus)
        )
        k = len(ends)
        network[:k, :k] -= np.diag(np.bincount(at, grid.susceptance[ties], minlength=k))
        through = network[:k, k:] @ np.linalg.inv(network[k:, k:])
        boundary_buses = np.concatenate([ends, np.unique(near)])
        stiffness = np.linalg.inv(
            grid.reactive.solve_at(boundary_buses, np.eye(len(boundary_buses)))
        )[:k, :k]
        tied = grid.susceptance[ties] - grid.case.b[ties]
        stiffness[np.arange(k), np.arange(k)] -= np.bincount(at, tied, minlength=k)
    except np.linalg.LinAlgError:
        return None
    share = response[:k] - through @ response[k:]
    here = np.isin(grid.island, grid.island[ends])
    total_range, own_range = (
        grid.generation_range[here].sum(),
        grid.generation_range[own][here[own]].sum(),
    )
    external_range = total_range - own_range
    share = share / external_range if external_range > ROUNDING_SHARE * total_range else np.zeros(k)
    susceptance = network[:k, :k] - through @ network[k:, :k]
    return ExternalEquivalent(ends, susceptance, np.asarray(stiffness, dtype=np.float64), share)

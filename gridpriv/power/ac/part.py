"""A part of a grid as a case of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gridpriv.core.arrays import Bools, Floats, Ints
from gridpriv.grid.case import BRANCH_FIELDS, BUS_FIELDS, GEN_FIELDS, Case, emergency_ratings
from gridpriv.grid.islands import dead_buses
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
    """Return the part of a case at some buses; no branch may lead out of it."""
    here = (buses, buses[case.f_bus], buses[case.gen_bus])
    return part_of(case, *(np.flatnonzero(elements) for elements in here))


def part_of(case: Case, buses: Ints, branches: Ints, gens: Ints) -> SubCase:
    """Return a part of a case; branches and generators must stand at the part's buses."""
    number = np.full(case.n_bus, -1)
    number[buses] = np.arange(len(buses))
    changes: dict[str, Any] = {name: getattr(case, name)[buses] for name in BUS_FIELDS}
    changes |= {name: getattr(case, name)[branches] for name in BRANCH_FIELDS}
    changes |= {name: getattr(case, name)[gens] for name in GEN_FIELDS}
    changes |= emergency_ratings(case, branches)
    for name in ("f_bus", "t_bus", "gen_bus"):
        changes[name] = number[changes[name]]
    changes["cost"] = tuple(case.cost[g] for g in gens.tolist()) if case.cost else ()
    changes["groups"] = {
        kind: tuple(names[i] for i in buses.tolist()) for kind, names in case.groups.items()
    }
    if case.xy is not None:
        changes["xy"] = case.xy[buses]
    return SubCase(replace(case, **changes), buses, branches, gens)


def live_part(zone: Zone, demand: Floats) -> tuple[SubCase, Bools] | None:
    """Return a zone without what lies on de-energized islands, and which of its buses are its own.

    It has the zone's demand, (pd, qd) of its own buses, and no other. None where nothing of the
    zone is energized.
    """
    whole = zone.network.case
    dead = dead_buses(whole)
    if dead[zone.own].all():
        return None
    part = part_of(
        whole,
        zone.buses[~dead[zone.buses]],
        zone.branches[~dead[whole.f_bus[zone.branches]]],
        zone.gens[~dead[whole.gen_bus[zone.gens]]],
    )
    own = np.isin(part.buses, zone.own)
    pd, qd = np.zeros((2, len(own)))
    pd[own], qd[own] = demand.reshape(2, -1)[:, np.searchsorted(zone.own, part.buses[own])]
    return replace(part, case=replace(part.case, pd=pd, qd=qd)), own

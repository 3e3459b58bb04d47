"""A zone's limits in an agreement, from the public network: computed once, and checked by the zone.

A shared variable's magnitude is bounded by the case. Voltages have bounds, and with them the
products wr and wi; a flow is bounded by its rating and by Ohm's law at those bounds. A generator
without a limit has none in the case, and gets UNLIMITED.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gridpriv.consensus.limits import ROUNDING, same_release
from gridpriv.consortium.agreement import SharedVariables, request_limits
from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError
from gridpriv.power.fleet import Fleet, ZoneMember
from gridpriv.power.program import ZoneProgram
from gridpriv.privacy.noise import NoiseStreams
from gridpriv.privacy.release import Charging

if TYPE_CHECKING:
    from gridpriv.consensus.schedules import StepSize
    from gridpriv.zonal.prepared import Prepared

UNLIMITED = 1e6  # p.u.


def zone_member(prepared: Prepared, place: int, seed: int, charge: Charging | None) -> ZoneMember:
    """Return the zone at a place of a run, compiled, with its agent."""
    zone = prepared.zones[place]
    fleet = Fleet(
        (zone,),
        (prepared.shared[place],),
        prepared.rules,
        prepared.settings.solver,
        NoiseStreams(seed),
        (prepared.disclosure(zone),),
        charge,
        prepared.settings,
        prepared.solver_tolerance,
    )
    (member,) = fleet.make([0])
    assert isinstance(member, ZoneMember)
    return member


def with_limits(prepared: Prepared, place: int, step: StepSize) -> SharedVariables:
    """Return the shared variables of the zone at a place of a run, with their limits."""
    shared = SharedVariables.of(prepared, place)
    member = zone_member(prepared, place, 0, None)
    largest = largest_values(member.problem.program)[prepared.shared[place]]
    limits = request_limits(prepared.settings, shared, step)
    release = member.agent.release(limits.least_penalty(), limits.largest_step())
    return replace(shared, largest=largest, release=release)


def largest_values(program: ZoneProgram) -> Floats:
    """Return the magnitude that the case's limits allow every variable, shape (n,)."""
    largest = np.maximum(np.abs(program.lower), np.abs(program.upper))
    size = abs(program.a_eq).tocsr()
    for row in range(size.shape[0]):  # Ohm's law: one flow of each row, and bounded products
        columns = size.indices[size.indptr[row] : size.indptr[row + 1]]
        factors = size.data[size.indptr[row] : size.indptr[row + 1]]
        free = np.isinf(largest[columns])
        if free.sum() == 1:
            bound = factors[~free] @ largest[columns[~free]] + abs(program.b_eq[row])
            largest[columns[free]] = bound / factors[free]
    zone = program.zone
    rate = zone.network.case.rate[zone.branches]
    rate = np.where((rate > 0.0) & np.isfinite(rate), rate, np.inf)
    first = len(zone.buses) + 2 * len(zone.pairs)
    flows = slice(first, first + 4 * len(rate))
    largest[flows] = np.minimum(largest[flows], np.tile(rate, 4))
    return np.minimum(largest, UNLIMITED)


def check_limits(own: SharedVariables, agreed: SharedVariables, zone: str) -> None:
    """Refuse an agreement whose limits or release are not those of the zone's own network."""
    same = np.allclose(own.largest, agreed.largest, rtol=ROUNDING, atol=0.0)
    mine, theirs = own.release, agreed.release
    if mine is None or theirs is None:
        same = same and mine is theirs
    else:
        same = same and same_release(theirs, mine)
    if not same:
        raise InputError(
            f"zone {zone!r} has other limits or another release than the agreement states: it was "
            "not made for this network and zone map"
            "; make the folders anew (gridpriv consortium)"
        )

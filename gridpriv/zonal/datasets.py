"""A grid's demand as a ledger knows it: the units are buses, released zone by zone.

A bus is a physical one: its identity is its number and the numbers of all buses of its grid. Demand
is no part of it, nor are zones, the base, or what is in service. So demand of another hour, under
another zone map, scaled or on another base is charged to the same account. Two grids whose buses
have the same numbers share accounts on one machine, which errs on the safe side.
"""

from __future__ import annotations

from hashlib import sha256

import numpy as np

from gridpriv.grid.case import Case
from gridpriv.grid.zoning import Zoning
from gridpriv.privacy.adjacency import DemandAdjacency
from gridpriv.privacy.ledger_rows import LedgerDataset, Unit


def zone_datasets(
    case: Case, zoning: Zoning, adjacency: DemandAdjacency
) -> tuple[LedgerDataset, ...]:
    """Return every zone's dataset: its buses.

    Parameters
    ----------
    case : Case
    adjacency : DemandAdjacency
        Of the run or the grant, of the demand as its owner has it, before ``load_scale`` or a
        series scale it.
    """
    protection, network = adjacency.protection(case.base_mva), network_identity(case)
    return tuple(
        LedgerDataset(
            name,
            tuple(_bus(int(bus), network) for bus in np.sort(case.bus_id[members])),
            protection,
            "zone",
        )
        for name, members in zip(zoning.names, zoning.members, strict=True)
    )


def network_identity(case: Case) -> bytes:
    """Return the identity of a grid: a digest of the numbers of its buses (public)."""
    return sha256(np.sort(case.bus_id).astype("<i8").tobytes()).digest()


def _bus(number: int, network: bytes) -> Unit:
    name = f"bus {number}"
    return Unit(name, network, sha256(network + name.encode()).hexdigest()[:32])

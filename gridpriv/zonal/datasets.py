"""A grid's demand as a ledger knows it: the units are buses, released zone by zone."""

from __future__ import annotations

import struct

import numpy as np

from gridpriv.core.arrays import Ints
from gridpriv.grid.case import Case
from gridpriv.grid.zoning import Zoning
from gridpriv.privacy.adjacency import DemandAdjacency
from gridpriv.privacy.ledger_rows import Dataset, Unit


def zone_datasets(case: Case, zoning: Zoning, adjacency: DemandAdjacency) -> tuple[Dataset, ...]:
    """Return every zone's dataset: its buses and their demand.

    Only the private data count: a run with other generators or branches out of service charges
    the same ledger.

    Parameters
    ----------
    case : Case
        With the demand as its owner has it, before ``load_scale`` or a series scale it.
    adjacency : DemandAdjacency
        Of the run or the grant, of that demand.
    """
    protection = adjacency.protection(case.base_mva)
    return tuple(
        Dataset(name, _buses(case, members), protection, "zone")
        for name, members in zip(zoning.names, zoning.members, strict=True)
    )


def _buses(case: Case, members: Ints) -> tuple[Unit, ...]:
    return tuple(
        Unit(f"bus {case.bus_id[i]}", struct.pack("<3d", case.base_mva, case.pd[i], case.qd[i]))
        for i in members[np.argsort(case.bus_id[members])]
    )

"""Requests to neighbours for voltage, once the grid has settled outside a limit.

A zone can only move voltages that its own generators reach. Where its replan leaves a voltage
outside the band, it asks its neighbours to move the voltages of the buses that both see by as much;
a neighbour without generators passes the request on.

Privacy. A request states by how much a voltage is outside its band, so it depends on true demand.
It is part of operation, like the voltages and flows that neighbours measure at their tie lines, and
no certificate covers it (docs/threat-model.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from gridpriv.core.arrays import Floats, Ints
from gridpriv.power.ac.redispatch import Boundary
from gridpriv.power.ac.state import AcState
from gridpriv.power.zone import Zone

Bands = dict[int, tuple[Floats, Floats]]
"""Lowest and highest voltages (buses,) that each asked zone is to plan within."""


def requests(zones: Sequence[Zone], owner: Ints, state: AcState) -> Bands:
    """Return the voltage bands that zones outside theirs ask of others.

    Parameters
    ----------
    owner : (n,) int
        As of :func:`gridpriv.power.zone.owner_of`.
    """
    above, below = _outside(zones, owner, state)
    bands: Bands = {}
    for asking in np.flatnonzero((above > 0) | (below > 0)).tolist():
        for z, through in _asked(zones, owner, asking):
            zone = zones[z]
            low, high = bands.setdefault(
                z, (np.full(len(zone.buses), -np.inf), np.full(len(zone.buses), np.inf))
            )
            both = np.isin(zone.buses, zones[through].buses)
            vm = state.vm[zone.buses[both]]
            if above[asking] > 0:
                high[both] = np.minimum(high[both], vm - above[asking])
            if below[asking] > 0:
                low[both] = np.maximum(low[both], vm + below[asking])
    return bands


def within_request(boundary: Boundary, low: Floats, high: Floats) -> Boundary:
    """Return a boundary with its voltage bands narrowed, except where they would be empty."""
    vmin, vmax = np.maximum(boundary.vmin, low), np.minimum(boundary.vmax, high)
    kept = vmin <= vmax
    return replace(
        boundary,
        vmin=np.where(kept, vmin, boundary.vmin),
        vmax=np.where(kept, vmax, boundary.vmax),
    )


def _outside(zones: Sequence[Zone], owner: Ints, state: AcState) -> tuple[Floats, Floats]:
    """Return by how much the worst voltage of every zone is above and below its band, p.u."""
    above, below = np.zeros((2, len(zones)))
    for limit in state.violations:
        if limit.kind == "voltage":
            side = above if limit.limit == "upper" else below
            z = owner[state.case.index_of[int(limit.at)]]
            side[z] = max(side[z], limit.amount)
    return above, below


def _asked(zones: Sequence[Zone], owner: Ints, asking: int) -> Iterator[tuple[int, int]]:
    """Yield the zones with generators that a request comes to, and by which zone it does."""
    heard, waiting = {asking}, [asking]
    while waiting:
        through = waiting.pop()
        for z in np.unique(owner[zones[through].buses]).tolist():
            if z in heard:
                continue
            heard.add(z)
            if len(zones[z].gens):
                yield z, through
            else:
                waiting.append(z)

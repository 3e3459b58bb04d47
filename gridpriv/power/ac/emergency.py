"""Emergency load shedding: the last step of a redispatch that leaves generators above limits.

Plans that draw on reserves which do not exist leave the reference generators of an island above
their active limits, or generators above their reactive ones. Relays then cut load: under-frequency
shedding for active power, under-voltage shedding for reactive power, both at constant power
factor. Zones that draw more than their schedule are cut first.
"""

from __future__ import annotations

import numpy as np

from gridpriv.core.arrays import Floats, Ints
from gridpriv.grid.islands import islands
from gridpriv.power.ac.limits import TOLERANCE
from gridpriv.power.ac.state import AcState

STEP = 0.95
"""Share of an excess that is cut at once: losses fall with the load, too."""


def emergency_shedding(state: AcState, zone_of: Ints) -> Floats | None:
    """Return the share of the load still served that each bus sheds, shape (n,).

    Parameters
    ----------
    state : AcState
    zone_of : (n,) int
        Zone of every bus, in the order of ``state.deviation``.

    Returns
    -------
    (n,) or None
        None where no generator is above a limit, or nothing is left to shed.
    """
    case = state.case
    island = islands(case)
    load = np.maximum(case.pd, 0.0) - state.p_shed
    reactive = np.where(load > 0, case.qd - state.q_shed, 0.0)
    area = zone_of + (1 + zone_of.max()) * island  # a zone may lie on several islands
    share = np.zeros(case.n_bus)
    above = _above(state.pg, case.pmax, TOLERANCE["MW"] / case.base_mva)
    for k in np.unique(island[case.gen_bus[above > 0]]):
        there = island == k
        excess = above[there[case.gen_bus]].sum()
        drawing = there & (state.deviation[zone_of] < 0)
        drawn = -state.deviation[np.unique(zone_of[drawing])].sum() if drawing.any() else 0.0
        first = min(excess, drawn, load[drawing].sum())
        for where, amount in ((drawing, first), (there, excess - first)):
            share[where] += amount / max(load[where].sum(), amount, 1e-12)
    above = _above(state.qg, case.qmax, TOLERANCE["MVAr"] / case.base_mva)
    for k in np.unique(area[case.gen_bus[above > 0]]):
        there = area == k
        excess, available = above[there[case.gen_bus]].sum(), reactive[there].sum()
        if available > 0:
            share[there] += excess / max(available, excess)
    share = STEP * np.minimum(share, 1.0)
    return share if (share * load).sum() > 0 else None


def _above(value: Floats, limit: Floats, tolerance: float) -> Floats:
    excess = value - limit
    above: Floats = np.where(excess > tolerance, excess, 0.0)
    return above

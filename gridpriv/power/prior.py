"""Public beliefs about a zone's demand: from installed capacity, or from an operator's file.

From capacity: demand is :data:`LOAD_SHARE` of the grid's generating capacity, spread equally over
its buses, at a reactive share of :data:`REACTIVE_SHARE`. The figures are those of 25 published
grids in zones (MATPOWER and PGLib-OPF, 9 to 2,869 buses): load over capacity 0.62 +- 0.17, a
zone's demand over its equal share 1 +- 0.4, reactive over active demand 0.27 +- 0.11.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError
from gridpriv.grid.case import Case
from gridpriv.power.zone import Zone
from gridpriv.privacy.strategies.prior import Prior

LOAD_SHARE, REACTIVE_SHARE = 0.6, 0.3
CAPACITY_SPREAD = 0.6  # of the sum, relative, where it is guessed from capacity
FILE_SPREAD = 0.3  # where an operator's file says what is usual


@dataclass(frozen=True, eq=False)
class PublicDemand:
    """What the public expects of a grid's demand.

    Attributes
    ----------
    mean : (2, n_bus)
        Expected p and q, per unit.
    spread : float
        Standard deviation of a zone's sum, relative to its mean.
    """

    mean: Floats
    spread: float


def public_demand(case: Case, path: str | Path | None) -> PublicDemand:
    """Return what the public expects of a case's demand.

    Parameters
    ----------
    case : Case
        Only its topology and generators are read.
    path : str or Path or None
        CSV with columns ``bus,pd_mw,qd_mvar`` and a row for every bus; None to guess from
        capacity.

    Raises
    ------
    InputError
        For a file that cannot be read or misses buses.
    """
    if path is None:
        active = np.full(case.n_bus, LOAD_SHARE * capacity(case) / case.n_bus)
        return PublicDemand(np.stack([active, REACTIVE_SHARE * active]), CAPACITY_SPREAD)
    from gridpriv.grid.overrides import read_bus_demand  # imports pandas: slow

    given = read_bus_demand(path, case)
    missing = [int(bus) for bus in case.bus_id[~np.isfinite(given).all(axis=0)]]
    if missing:
        some = ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")
        raise InputError(
            f"public demand {path} misses {len(missing)} of {case.n_bus} buses ({some}): "
            "a prior needs pd_mw and qd_mvar of every bus in service"
        )
    return PublicDemand(given, FILE_SPREAD)


def zone_prior(zone: Zone, expected: PublicDemand) -> Prior:
    """Return a zone's part of what the public expects.

    The sum of p is taken to lie between 0 and what the zone can generate and import, that of q
    between minus and plus the same; lines without a rating can carry all that the grid generates.
    """
    mean = expected.mean[:, zone.own]
    most = supply(zone)
    least = 1e-3 * most + 1e-6
    spread = np.maximum(expected.spread * np.abs(mean).sum(axis=1), least)
    return Prior(mean.ravel(), spread, np.array([0.0, -most]), np.array([most, most]))


def supply(zone: Zone) -> float:
    """Return the most that a zone can generate and import, per unit."""
    case = zone.network.case
    everything = capacity(case)
    own = np.zeros(case.n_bus, dtype=bool)
    own[zone.own] = True
    ends = own[case.f_bus[zone.branches]].astype(int) + own[case.t_bus[zone.branches]]
    ratings = case.rate[zone.branches][ends == 1]
    if len(ratings) and not (ratings > 0).all():
        return everything
    return min(everything, _given(case.pmax[zone.gens]) + float(ratings.sum()))


def capacity(case: Case) -> float:
    """Return the generating capacity in per unit; unlimited generators count as nothing."""
    return _given(case.pmax)


def _given(pmax: Floats) -> float:
    """Return what generators can give; one that only takes gives nothing."""
    return float(np.maximum(pmax[np.isfinite(pmax)], 0.0).sum())

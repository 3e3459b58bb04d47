"""Public beliefs about a zone's demand: from installed capacity, or from an operator's file.

From capacity: demand is :data:`LOAD_SHARE` of the grid's generating capacity, spread equally over
its buses, at a reactive share of :data:`REACTIVE_SHARE`. The figures are those of 25 published
grids in zones (MATPOWER and PGLib-OPF, 9 to 2,869 buses): load over capacity 0.62 +- 0.17, a
zone's demand over its equal share 1 +- 0.4, reactive over active demand 0.27 +- 0.11.

A generator without a limit (pandapower's external grid) counts with the ratings of the branches
that leave its bus, of which demand is :data:`RATED_SHARE`. The figures are those of 37 published
grids, most of them for distribution (pandapower and SimBench, 6 to 3,026 buses): demand over
ratings 0.37 +- 0.39 with a median of 0.46 (solar plants are negative demand), a zone's demand over
its equal share 1 +- 1.3.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from gridpriv.core.arrays import Floats, Ints
from gridpriv.core.errors import GridprivWarning, InputError
from gridpriv.grid.case import Case
from gridpriv.grid.islands import islands
from gridpriv.power.zone import Zone
from gridpriv.privacy.strategies.linear import LEAST_SHARE, Prior

LOAD_SHARE, RATED_SHARE, REACTIVE_SHARE = 0.6, 0.45, 0.3
CAPACITY_SPREAD = 0.6  # of the sum, relative, where it is guessed from capacity
RATED_SPREAD = 1.5  # where it is guessed from ratings: the root of (0.39 / 0.45)^2 + 1.3^2
FILE_SPREAD = 0.3  # where an operator's file says what is usual


@dataclass(frozen=True, eq=False)
class PublicDemand:
    """Public expectation of a grid's demand.

    Attributes
    ----------
    mean : (2, n_bus)
        Expected p and q, per unit.
    spread : float
        Standard deviation of a zone's sum, relative to its mean.
    own_spreads : (n_bus,) or None
        The same for the zone of every bus, where a forecast states it.
    """

    mean: Floats
    spread: float
    own_spreads: Floats | None = None

    def spread_of(self, buses: Ints) -> float:
        """Return the relative spread of the sum over some buses."""
        return self.spread if self.own_spreads is None else float(self.own_spreads[buses].mean())


def public_demand(case: Case, path: str | Path | None) -> PublicDemand:
    """Return the public expectation of a case's demand.

    Parameters
    ----------
    case : Case
        Only its topology and generators are read.
    path : str or Path or None
        CSV with columns ``bus,pd_mw,qd_mvar`` and a row for every bus, or a forecast of
        ``gridpriv learn forecast``, of which ``FILE@STEP`` takes one step and ``FILE`` the mean
        over all; None to guess from capacity.

    Raises
    ------
    InputError
        For a file that cannot be read or misses buses.

    Warns
    -----
    GridprivWarning
        Where a generator without a limit leaves the capacity unknown.
    """
    if path is None:
        return _from_capacity(case)
    from gridpriv.grid.overrides import is_forecast, read_bus_demand, read_forecast  # slow

    name, _, step = str(path).rpartition("@")
    file, step = (Path(name), step) if name and not Path(path).exists() else (Path(path), "")
    if step or is_forecast(file):
        given, spreads = read_forecast(file, case, step)
        _refuse_gaps(case, path, given)
        return PublicDemand(given, float(spreads.mean()), spreads)
    given = read_bus_demand(path, case)
    _refuse_gaps(case, path, given)
    return PublicDemand(given, FILE_SPREAD)


def _refuse_gaps(case: Case, path: str | Path, given: Floats) -> None:
    """Raise :class:`InputError` naming buses that a file leaves out."""
    missing = [int(bus) for bus in case.bus_id[~np.isfinite(given).all(axis=0)]]
    if missing:
        some = ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")
        raise InputError(
            f"public demand {path} misses {len(missing)} of {case.n_bus} buses ({some}): "
            "a prior needs pd_mw and qd_mvar of every bus in service"
        )


def _from_capacity(case: Case) -> PublicDemand:
    """Return the guess from capacity; a mean of 0 where capacity is not known."""
    able, unlimited = capacities(case), np.isposinf(case.pmax)
    unknown = case.bus_id[case.gen_bus[np.isposinf(able)]].tolist()
    if unknown:
        some = ", ".join(map(str, unknown[:5])) + (", ..." if len(unknown) > 5 else "")
        warnings.warn(
            f"The public prior of demand is uninformative: the generator at bus {some} has no "
            "limit, nor have the branches around it, so the capacity of the grid is unknown. State "
            "a usual demand with --public-demand FILE.csv.",
            GridprivWarning,
            stacklevel=3,
        )
        return PublicDemand(np.zeros((2, case.n_bus)), RATED_SPREAD)
    total = LOAD_SHARE * able[~unlimited].sum() + RATED_SHARE * able[unlimited].sum()
    active = np.full(case.n_bus, total / case.n_bus)
    spread = RATED_SPREAD if unlimited.any() else CAPACITY_SPREAD
    return PublicDemand(np.stack([active, REACTIVE_SHARE * active]), spread)


def zone_prior(zone: Zone, expected: PublicDemand) -> Prior:
    """Return a zone's part of what the public expects, in the range that the grid allows.

    The spread is at least that of :data:`LEAST_SHARE` of the grid's mean bus, and 1 p.u. per bus
    where nothing is expected of the whole grid: such a prior leaves a release as it is.
    """
    mean, spread = expected.mean[:, zone.own], expected.spread_of(zone.own)
    typical = np.abs(expected.mean).mean(axis=1)
    typical = LEAST_SHARE * np.where(typical > 0, typical, typical[0])
    if not typical.any():
        typical = np.full(2, 1.0 / spread)
    size = np.maximum(np.abs(mean).sum(axis=1), typical * len(zone.own))
    return Prior(mean.ravel(), spread * size, *zone_range(zone))


def zone_range(zone: Zone) -> tuple[Floats, Floats]:
    """Return the least and the largest sums (2,) of p and of q that a zone can have, per unit.

    Demand is generation less exports, losses and shunts. Exports and imports are within the
    ratings of the tie lines. A generator or a tie line without a limit leaves a sum without one.
    A least sum is negative: public data do not exclude embedded generation, which is negative
    demand that the zone exports.
    """
    case, gens = zone.network.case, zone.gens
    own = np.zeros(case.n_bus, dtype=bool)
    own[zone.own] = True
    ends = own[case.f_bus[zone.branches]].astype(int) + own[case.t_bus[zone.branches]]
    rating = case.rate[zone.branches]
    rating = np.where(rating > 0, rating, np.inf)
    ties = float(rating[ends == 1].sum())
    inside = ends == 2
    within = 2.0 * float(rating[inside].sum())  # both ends of a line take their rating at most
    gains = 2.0 * float(rating[inside & (case.r[zone.branches] < 0)].sum())
    square = np.stack([case.vmin[zone.own], case.vmax[zone.own]]) ** 2
    conductance, susceptance = case.gs[zone.own] * square, -case.bs[zone.own] * square
    lower = [
        _sum(np.minimum(case.pmin[gens], 0.0)) - conductance.max(axis=0).sum() - ties - within,
        _sum(np.minimum(case.qmin[gens], 0.0)) - susceptance.max(axis=0).sum() - ties - within,
    ]
    upper = [
        _sum(np.maximum(case.pmax[gens], 0.0)) - conductance.min(axis=0).sum() + ties + gains,
        _sum(np.maximum(case.qmax[gens], 0.0)) - susceptance.min(axis=0).sum() + ties + within,
    ]
    return np.array(lower), np.array(upper)


def capacity(case: Case) -> float:
    """Return the generating capacity that is known, per unit."""
    able = capacities(case)
    return float(able[np.isfinite(able)].sum())


def generation_shares(case: Case) -> Floats:
    """Return the part of the grid's generation that each bus is expected to have, (n_bus,)."""
    able = capacities(case)
    weight = np.isposinf(able).astype(float) if np.isposinf(able).any() else able
    at_bus = np.bincount(case.gen_bus, weight, case.n_bus)
    return at_bus / at_bus.sum() if at_bus.any() else np.full(case.n_bus, 1.0 / case.n_bus)


@lru_cache(maxsize=16)
def capacities(case: Case) -> Floats:
    """Return the deliverable capacity of each generator, (g,) per unit; read-only.

    A generator without a limit delivers what the rated branches carry that leave its bus, or the
    buses that branches without a rating join to it. Where these are more than half of the buses
    of its island, or no rated branch leaves them, what it delivers is infinite: not known.
    """
    able = np.maximum(case.pmax, 0.0)
    unlimited = np.isposinf(able)
    if unlimited.any():
        region, island = islands(case, case.rate <= 0), islands(case)
        f, t = region[case.f_bus], region[case.t_bus]
        leaving = np.where(f != t, case.rate, 0.0)
        rated = np.bincount(f, leaving, case.n_bus) + np.bincount(t, leaving, case.n_bus)
        buses, around = np.bincount(region), np.bincount(island)
        sources = np.bincount(region[case.gen_bus[unlimited]], minlength=case.n_bus)
        here = case.gen_bus[unlimited]
        known = (rated[region[here]] > 0) & (2 * buses[region[here]] <= around[island[here]])
        able[unlimited] = np.where(known, rated[region[here]] / sources[region[here]], np.inf)
    able.setflags(write=False)
    return able


def _sum(values: Floats) -> float:
    return float(values.sum())

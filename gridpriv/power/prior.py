"""Public priors of zones' demand, and release strategies chosen by them.

A prior comes from installed capacity, or from an operator's file.

From capacity: demand is :data:`LOAD_SHARE` of the grid's generating capacity, spread equally over
its buses, at a reactive share of :data:`REACTIVE_SHARE`. The values are those of 25 published grids
in zones (MATPOWER and PGLib-OPF, 9 to 2,869 buses): load over capacity 0.62 +- 0.17, a zone's
demand over its equal share 1 +- 0.4, reactive over active demand 0.27 +- 0.11. Auxiliary buses of a
source (star points, open line ends) have no demand, in the prior and in every estimate.

A generator without a limit (pandapower's external grid) counts with the ratings of the branches at
its bus; demand is :data:`RATED_SHARE` of them. The values are those of 37 published grids, mostly
distribution grids (pandapower and SimBench, 6 to 3,026 buses): demand over ratings 0.37 +- 0.39
with a median of 0.46 (solar plants are negative demand), a zone's demand over its equal share 1 +-
1.3.

Where the noisy estimate of a bus exceeds the ratings of its branches, no plan serves it: noise of
1 MW exceeds those of small plants. Estimates are then moved into the ranges of their buses
(:class:`BusRanges`), which is post-processing with public data.

Release strategies are chosen from public quantities only. Warnings about implausible demand (a
wrong unit or sign, or none) state its values, so they are local.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from pathlib import Path

import numpy as np
from scipy import sparse

from gridpriv.core.arrays import Floats, Ints
from gridpriv.core.errors import InputError, not_allowed, warn
from gridpriv.core.text import counted
from gridpriv.grid.case import Case
from gridpriv.grid.network import Factors, islands, islands_by, laplacian
from gridpriv.power.zone import Zone
from gridpriv.privacy.adjacency import DemandAdjacency
from gridpriv.privacy.linear import (
    LEAST_SHARE,
    Disclosure,
    Prior,
    Statistics,
    bus,
    expected_error,
    nothing,
    total,
    tree,
)
from gridpriv.privacy.perturbation import NoiseRule
from gridpriv.privacy.temporal import TemporalBasis, TemporalDisclosure, coefficient_error

LOAD_SHARE, RATED_SHARE, REACTIVE_SHARE = 0.6, 0.45, 0.3
CAPACITY_SPREAD = 0.6  # of the sum, relative, where it is estimated from capacity
RATED_SPREAD = 1.5  # where it is estimated from ratings: the root of (0.39 / 0.45)^2 + 1.3^2
FILE_SPREAD = 0.3  # where an operator's file has the expected demand


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
        The same for the zone of every bus, where a forecast has it.
    """

    mean: Floats
    spread: float
    own_spreads: Floats | None = None

    def spread_of(self, buses: Ints) -> float:
        """Return the relative spread of the sum over some buses."""
        if self.own_spreads is None or not len(buses):
            return self.spread
        return float(self.own_spreads[buses].mean())


def public_demand(case: Case, path: str | Path | None) -> PublicDemand:
    """Return the public expectation of a case's demand.

    Parameters
    ----------
    case : Case
        Only its topology and generators are read.
    path : str or Path or None
        CSV with columns ``bus,pd_mw,qd_mvar`` and a row for every bus, or a forecast of ``gridpriv
        learn forecast``, where ``FILE@STEP`` is one step and ``FILE`` the mean over all; None for
        an estimate from capacity.

    Raises
    ------
    InputError
        For a file that cannot be read or misses buses.

    Warns
    -----
    GridprivWarning
        Where a generator without a limit leaves the capacity unknown, or of implausible demand.
    """
    if path is None:
        return _from_capacity(case)
    from gridpriv.grid.scenarios import is_forecast, read_bus_demand, read_forecast  # slow

    name, _, step = str(path).rpartition("@")
    file, step = (Path(name), step) if name and not Path(path).exists() else (Path(path), "")
    if step or is_forecast(file):
        demand, spreads = read_forecast(file, case, step)
        usual = float(spreads[case.load_buses].mean())
        return PublicDemand(_checked(case, path, demand), usual, spreads)
    return PublicDemand(_checked(case, path, read_bus_demand(path, case)), FILE_SPREAD)


def _checked(case: Case, path: str | Path, demand: Floats) -> Floats:
    """Return the demand (2, n_bus) of a file, 0 at auxiliary buses; warn if it is implausible.

    Raises
    ------
    InputError
        Naming buses that the file misses.
    """
    demand = np.where(case.load_buses, demand, 0.0)
    missing = [int(bus) for bus in case.bus_id[~np.isfinite(demand).all(axis=0)]]
    if missing:
        some = ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")
        raise InputError(
            f"public demand {path} misses {len(missing)} of {case.n_bus} buses ({some}): "
            "a prior needs pd_mw and qd_mvar of every bus in service"
        )
    warn_of_demand(replace(case, pd=demand[0], qd=demand[1]), f"public demand {path}")
    return demand


def _from_capacity(case: Case) -> PublicDemand:
    """Return the prior from capacity; a mean of 0 where capacity is not known."""
    capacity, unlimited = capacities(case), np.isposinf(case.pmax)
    unknown = case.bus_id[case.gen_bus[np.isposinf(capacity)]].tolist()
    if unknown:
        some = ", ".join(map(str, unknown[:5])) + (", ..." if len(unknown) > 5 else "")
        warn(
            f"The public prior of demand is uninformative: the generator at bus {some} has no "
            "limit, nor have the branches around it, so the capacity of the grid is unknown. State "
            "a usual demand with --public-demand FILE.csv.",
            3,
        )
        return PublicDemand(np.zeros((2, case.n_bus)), RATED_SPREAD)
    total = LOAD_SHARE * capacity[~unlimited].sum() + RATED_SHARE * capacity[unlimited].sum()
    active = total / max(1, int(case.load_buses.sum())) * case.load_buses
    spread = RATED_SPREAD if unlimited.any() else CAPACITY_SPREAD
    return PublicDemand(np.stack([active, REACTIVE_SHARE * active]), spread)


def zone_prior(zone: Zone, expected: PublicDemand) -> Prior:
    """Return a zone's part of the public prior, in the range that the grid allows.

    The spread is at least that of :data:`LEAST_SHARE` of the grid's mean bus, and 1 p.u. per bus
    where the grid's mean is 0: such a prior hardly changes an estimate.
    """
    loads = zone.network.case.load_buses[zone.own]
    mean, spread = expected.mean[:, zone.own], expected.spread_of(zone.own[loads])
    typical = np.abs(expected.mean[:, zone.network.case.load_buses]).mean(axis=1)
    typical = LEAST_SHARE * np.where(typical > 0, typical, typical[0])
    if not typical.any():
        typical = np.full(2, 1.0 / spread)
    size = np.maximum(np.abs(mean).sum(axis=1), typical * max(loads.sum(), 1))
    return Prior(mean.ravel(), spread * size, *zone_range(zone), loads)


def zone_range(zone: Zone) -> tuple[Floats, Floats]:
    """Return the least and the largest sums (2,) of p and of q that a zone can have, per unit.

    Demand is generation less exports, losses and shunts. Exports and imports are within the ratings
    of the tie lines. With a generator or a tie line without a limit a sum has none. A least sum is
    negative: public data do not exclude embedded generation, which is negative demand that the zone
    exports.
    """
    case, gens = zone.network.case, zone.gens
    f_bus, t_bus = case.f_bus[zone.branches], case.t_bus[zone.branches]
    ends = np.isin(f_bus, zone.own).astype(int) + np.isin(t_bus, zone.own)
    rating = case.rate[zone.branches]
    rating = np.where(rating > 0, rating, np.inf)
    ties = float(rating[ends == 1].sum())
    inside = ends == 2
    within = 2.0 * float(rating[inside].sum())  # both ends of a line are within its rating
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


MOST_DROP = 0.05
"""Largest impedance times reactive flow into a rated bus, p.u.: voltage bands are 0.1 wide."""
MOST_LOADING = 0.9
"""Largest share of the ratings of a bus's branches that its demand can use: losses need some."""


class BusRanges:
    """Demand that a bus can have, from its generators, shunts and branches; public.

    It is 0 at an auxiliary bus.

    Attributes
    ----------
    low, high : (2, n)
        p and q that its generators, shunts and line charging can serve.
    rating : (n,)
        ``MOST_LOADING`` times the ratings of its branches, infinite where one has none.
    reactive : (n,)
        Reactive power that its branches can deliver: with impedances z_k, ``MOST_DROP`` times the
        sum of 1/|z_k|. Infinite where ``rating`` is: small plants have ratings, and errors of buses
        that cancel in a zone's sum (case300) would no longer do so.
    """

    def __init__(self, case: Case) -> None:
        n, ends = case.n_bus, (case.f_bus, case.t_bus)

        def added(value: Floats) -> Floats:
            return np.asarray(sum(np.bincount(end, value, n) for end in ends))

        rating = MOST_LOADING * added(np.where(case.rate > 0, case.rate, np.inf))
        charging = case.bs + added(case.b / 2.0)
        square = np.stack([case.vmin, case.vmax]) ** 2
        low, high = np.zeros((2, 2, n))
        limits = ((case.pmin, case.pmax, -case.gs), (case.qmin, case.qmax, charging))
        for k, (least, most, shunt) in enumerate(limits):
            given = shunt * square
            low[k] = np.minimum(np.bincount(case.gen_bus, least, n), rating) + given.min(axis=0)
            high[k] = np.maximum(np.bincount(case.gen_bus, most, n), -rating) + given.max(axis=0)
        reactive = MOST_DROP * added(1.0 / np.hypot(case.r, case.x))
        reactive = np.where(np.isinf(rating), np.inf, reactive)
        self.low, self.high, self.rating, self.reactive = (
            np.where(case.load_buses, limit, 0.0) for limit in (low, high, rating, reactive)
        )

    def within(self, demand: Floats, buses: Ints) -> Floats:
        """Return demand (2k,) at k buses, moved into their ranges where it is outside."""
        both = demand.reshape(2, -1)
        low, high = self.low[:, buses], self.high[:, buses]
        served = np.clip(both, low, np.maximum(low, high))
        rating, p = self.rating[buses], (both - served)[0]
        most = np.minimum(rating, self.reactive[buses])
        q = np.clip((both - served)[1], -most, most)
        size = np.hypot(p, q)
        share = np.divide(rating, size, out=np.ones_like(size), where=size > rating)
        moved = served + share * np.stack([p, q])
        return np.where((share < 1.0) | (q != both[1] - served[1]), moved, both).ravel()


@lru_cache(maxsize=16)
def bus_ranges(case: Case) -> BusRanges:
    """Return the demand that each bus can have; the demand of the case is not read."""
    return BusRanges(case)


def capacity(case: Case) -> float:
    """Return the generating capacity that is known, per unit."""
    able = capacities(case)
    return float(able[np.isfinite(able)].sum())


def generation_shares(case: Case) -> Floats:
    """Return the expected share of each bus in the grid's generation, (n_bus,)."""
    capacity = capacities(case)
    weight = np.isposinf(capacity).astype(float) if np.isposinf(capacity).any() else capacity
    at_bus = np.bincount(case.gen_bus, weight, case.n_bus)
    return at_bus / at_bus.sum() if at_bus.any() else np.full(case.n_bus, 1.0 / case.n_bus)


@lru_cache(maxsize=16)
def capacities(case: Case) -> Floats:
    """Return the deliverable capacity of each generator, (g,) per unit; read-only.

    The capacity of a generator without a limit is the sum of ratings of the branches that leave its
    bus, or the group of buses that branches without a rating connect to it. If the group has more
    than half of the buses of its island, or no rated branch leaves it, the capacity is infinite:
    not known.
    """
    capacity = np.maximum(case.pmax, 0.0)
    unlimited = np.isposinf(capacity)
    if unlimited.any():
        region, island = islands_by(case, case.rate <= 0), islands(case)
        f, t = region[case.f_bus], region[case.t_bus]
        leaving = np.where(f != t, case.rate, 0.0)
        rated = np.bincount(f, leaving, case.n_bus) + np.bincount(t, leaving, case.n_bus)
        buses, island_buses = np.bincount(region), np.bincount(island)
        sources = np.bincount(region[case.gen_bus[unlimited]], minlength=case.n_bus)
        here = case.gen_bus[unlimited]
        valid = (rated[region[here]] > 0) & (2 * buses[region[here]] <= island_buses[island[here]])
        capacity[unlimited] = np.where(valid, rated[region[here]] / sources[region[here]], np.inf)
    capacity.setflags(write=False)
    return capacity


def _sum(values: Floats) -> float:
    return float(values.sum())


MOST_TIMES = 4.0
"""Demand over generating capacity outside which a warning is given: 0.003 to 2.9 in 184 published
grids (MATPOWER and PGLib-OPF)."""
LEAST_PLAUSIBLE = 1e-3


def warn_of_demand(
    case: Case, source: str, load_scale: float = 1.0, zone: Zone | None = None
) -> None:
    """Warn of a case's implausible demand (:func:`demand_questions`)."""
    for question in demand_questions(case, source, load_scale, zone):
        warn(question, 3)


def size_questions(
    total: float, most: float, quantity: str, unit: str, owner: str, *, scaled: bool = False
) -> list[str]:
    """Return a warning if a total is more than :data:`MOST_TIMES` the capacity of its owner."""
    if not abs(total) > MOST_TIMES * most > 0.0:
        return []
    doubt = "that load scale intended" if scaled else f"it in {unit}, not in k{unit[1:]}"
    return [
        f"{quantity} adds up to {total:.6g} {unit}, {abs(total) / most:.3g} times the "
        f"{most:.6g} MW that the {owner} can generate or import. Is {doubt}?"
    ]


def demand_questions(
    case: Case, source: str, load_scale: float = 1.0, zone: Zone | None = None
) -> list[str]:
    """Return warnings about a case's implausible demand; local.

    Without a known capacity its size is not tested.

    Parameters
    ----------
    case : Case
    source : str
        The flags or the file of the demand.
    load_scale : float
        Factor that was applied to the demand.
    zone : Zone, optional
        The zone whose demand alone the case has. Only a size above its limit is questioned, for a
        zone may have no load.
    """
    questions = []
    if load_scale != 1.0 and case.fixed:
        fixed = ", ".join(counted(number, kind) for kind, number in case.fixed.items())
        questions.append(
            f"The load scale also multiplies the power of {fixed} of {case.name}, which is part of "
            "its demand (as in MATPOWER). To scale loads alone, scale them in the case file, or "
            "give the demand of every bus (--demand, or --series with step,bus,pd_mw,qd_mvar)."
        )
    limit = capacity(case) if zone is None else min(capacity(case), zone_range(zone)[1][0])
    most = case.base_mva * limit
    owner = "grid" if zone is None else "zone"
    for name, unit, demand in (
        ("active demand pd_mw", "MW", case.pd),
        ("reactive demand qd_mvar", "MVAr", case.qd),
    ):
        total = case.base_mva * float(demand.sum())
        quantity = f"{source}: {name}", unit, owner
        questions += size_questions(total, most, *quantity, scaled=load_scale != 1.0)
    if zone is not None:
        return questions
    active = case.base_mva * case.pd
    expected = f" About {LOAD_SHARE * most:.3g} MW in all were expected." if most > 0.0 else ""
    if not active.any():
        questions.append(f"{source}: demand is 0 MW at every bus. Is that intended?{expected}")
    elif active.sum() < 0.0 and (active < 0.0).sum() > (active > 0.0).sum():
        questions.append(
            f"{source}: active demand pd_mw adds up to {active.sum():.6g} MW, less than 0. Is the "
            f"sign right? Demand is positive, embedded generation negative.{expected}"
        )
    elif np.abs(active).sum() < LEAST_PLAUSIBLE * most:
        questions.append(
            f"{source}: active demand pd_mw adds up to {active.sum():.6g} MW. "
            f"{'Is it in MW, not in GW?' if load_scale == 1.0 else 'Is that load scale intended?'}"
            f"{expected}"
        )
    return questions


TREES = ((0.7, 0.3), (0.5, 0.5), (0.3, 0.7))
"""Weights of a zone's sum and of its buses."""
TIES = 0.3
"""Weight of an error in a tie line's flow; an error in the interchange has weight 1."""
PLACE = 0.15
"""Weight of an error at a bus; an error in the zone's sum has weight 1."""


SINGLE_STEP = (TemporalBasis(1),)


def disclose(
    zone: Zone,
    release: str,
    prior: Prior,
    noise: NoiseRule,
    adjacency: DemandAdjacency,
    direct: DirectCurrent,
    bases: Sequence[TemporalBasis] = SINGLE_STEP,
) -> TemporalDisclosure:
    """Return a zone's release strategy of least expected error.

    Parameters
    ----------
    zone : Zone
        Its topology and generators are read, not its demand.
    release : {'bus', 'total', 'tree', 'auto', 'nothing'}
    direct : DirectCurrent
        Of the whole grid, the same for all zones.
    bases : sequence of TemporalBasis
        Candidates for the released basis of the zone's sum; by default that of a single step.
    """
    total, reactive = float(prior.active.mean.sum()), every_bus(zone)
    use, factors = used(zone, direct), adjacency.power_factors
    exact = noise.source == "secure"
    # an error of the sum is distributed over the buses
    shared = float(np.linalg.norm(prior.active.shares)) if reactive else 1.0
    options = []
    for strategy, candidate in product(strategies(zone, release), bases):
        # no release has no basis
        basis = candidate if len(strategy.matrix) else TemporalBasis(candidate.steps)
        level = Disclosure(strategy, prior, 0.0, power_factors=factors, exact=exact)
        sensitivity = TemporalDisclosure(level, basis).sensitivity(adjacency, noise.norm)
        if math.isinf(sensitivity.value):
            continue
        variance = noise.release(sensitivity).mechanism.variance
        error = expected_error(
            strategy, variance, prior, use, reactive=reactive, power_factors=factors
        )
        expected = math.hypot(error, shared * math.sqrt(coefficient_error(basis, variance, total)))
        options.append(TemporalDisclosure(replace(level, expected=expected), basis))
    if not options:
        raise not_allowed(
            "temporal_basis",
            str(max(len(basis.weights) for basis in bases)),
            "0 with mechanism 'staircase': a bus changes the cosine coefficients too",
        )
    return min(options, key=lambda option: option.level.expected)


def every_bus(zone: Zone) -> bool:
    """Return True where the objective counts the error at every bus, in p and in q.

    The squared imbalance of a schedule on the estimated demand d^ is that of its buses: where the
    schedule balances d^, it is ||d^ - d||^2.
    """
    return zone.network.objective.kind == "imbalance"


def used(zone: Zone, direct: DirectCurrent) -> Floats:
    """Return the statistics of a zone's demand in its objective, (k, |N_z|).

    Every bus where the objective is the imbalance. For cost and losses the sum of the active
    demand, the tie-line flows, which neighbours use, and every bus, as lines inside the zone may
    limit supply.
    """
    everywhere = np.eye(len(zone.own))
    if every_bus(zone):
        return everywhere
    ties = TIES * tie_flows(zone, direct)
    return np.vstack([np.ones((1, len(zone.own))), ties, PLACE * everywhere])


def strategies(zone: Zone, release: str) -> list[Statistics]:
    """Return the strategies of a name in a zone."""
    n = len(zone.own)
    if release == "nothing":
        return [nothing(n)]
    if release == "bus" or n == 1:  # in a zone of one bus all strategies are the same
        return [bus(n)]
    if release == "total":
        return [total(n)]
    levels = (np.zeros(n, dtype=np.int64), np.arange(n))
    trees = [tree(levels, weights) for weights in TREES]
    return trees if release == "tree" else [*trees, bus(n), total(n)]


class DirectCurrent:
    """The DC power flow of a whole grid, from topology, impedances and capacities only.

    Attributes
    ----------
    strength : (m,)
        1 / |z| of the branches.
    factors : Factors
        Of their Laplacian, with a small shunt at every bus.
    supply : (n,)
        Angles for 1 p.u. of demand, equal at every bus, generated in proportion to capacity.
    """

    def __init__(self, case: Case) -> None:
        strength = self.strength = 1.0 / np.abs(case.r + 1j * case.x)
        flows = laplacian(case.f_bus, case.t_bus, strength, case.n_bus)
        ground = 1e-9 * float(strength.mean()) if len(strength) else 1.0  # perhaps no branch
        self.factors = Factors.of((flows + ground * sparse.eye_array(case.n_bus)).tocsc())
        # a common injection shifts all angles equally, and rounding would hide the rest
        self.supply = self.factors.solve(generation_shares(case) - 1.0 / case.n_bus)


def tie_flows(zone: Zone, direct: DirectCurrent) -> Floats:
    """Return the flow on each tie line per unit of demand at each own bus, (ties, |N_z|).

    The demand of a bus is generated in proportion to capacity. The signed sum over the ties is the
    interchange.
    """
    case, own = zone.network.case, np.isin(zone.buses, zone.own)
    f, t = (np.searchsorted(zone.buses, end[zone.branches]) for end in (case.f_bus, case.t_bus))
    ties = np.flatnonzero(own[f] != own[t])
    strength, number = direct.strength[zone.branches[ties]], np.arange(len(ties))
    ends = np.zeros((len(zone.buses), len(ties)))
    ends[f[ties], number] += strength
    ends[t[ties], number] -= strength
    response = direct.factors.solve_at(zone.buses, ends)
    injection = direct.supply[zone.buses] @ ends
    return np.asarray(injection[:, None] - response[own].T)

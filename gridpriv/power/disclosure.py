"""Release strategy of a zone's demand, from public quantities only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from scipy import sparse

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import not_allowed
from gridpriv.grid.admittance import laplacian
from gridpriv.grid.case import Case
from gridpriv.grid.factors import Factors
from gridpriv.power.prior import generation_shares
from gridpriv.power.zone import Zone
from gridpriv.privacy.adjacency import DemandAdjacency
from gridpriv.privacy.perturbation import NoiseRule
from gridpriv.privacy.strategies.disclosure import Disclosure, auto, expected_error
from gridpriv.privacy.strategies.linear import Prior, Statistics, bus, nothing, total, tree
from gridpriv.privacy.strategies.temporal_basis import Cosines, TemporalDisclosure, coefficient_left

TREES = ((0.7, 0.3), (0.5, 0.5), (0.3, 0.7))
"""Weights of a zone's sum and of its buses."""
TIES = 0.3
"""Weight of an error in a tie line's flow; one in the interchange weighs 1, as it is paid for."""
PLACE = 0.15
"""Weight of an error at a bus; one in the sum of its zone weighs 1."""


def disclose(
    zone: Zone,
    release: str,
    prior: Prior,
    noise: NoiseRule,
    adjacency: DemandAdjacency,
    direct: DirectCurrent,
) -> Disclosure:
    """Return a zone's release strategy; of several the one of least expected error.

    Parameters
    ----------
    zone : Zone
        Its topology and generators are read, not its demand.
    release : {'bus', 'total', 'tree', 'auto', 'nothing'}
    direct : DirectCurrent
        Of the whole grid (:func:`grounded`): one for all zones.
    """

    def drawn(option: Statistics) -> float:
        return noise.release(option.sensitivity(adjacency, noise.norm)).mechanism.variance

    options = [
        option
        for option in strategies(zone, release)
        if math.isfinite(option.sensitivity(adjacency, noise.norm).value)
    ]
    return auto(
        options,
        drawn,
        prior,
        used(zone, direct),
        reactive=every_bus(zone),
        power_factors=adjacency.power_factors,
    )


def disclose_over_time(
    zone: Zone,
    release: str,
    options: Sequence[Cosines],
    prior: Prior,
    noise: NoiseRule,
    adjacency: DemandAdjacency,
    direct: DirectCurrent,
) -> TemporalDisclosure:
    """Return a zone's release strategy over time, chosen as by :func:`disclose`.

    Parameters
    ----------
    zone, release, prior, noise, adjacency, direct
        As of :func:`disclose`.
    options : sequence of Cosines
        What may be released of the basis of the zone's sum.
    """
    use = used(zone, direct)
    level, reactive = float(prior.active.mean.sum()), every_bus(zone)
    # an error of the sum is shared out over the buses
    shared = float(np.linalg.norm(prior.active.shares)) if reactive else 1.0
    matches = []
    for strategy, option in product(strategies(zone, release), options):
        over = option if len(strategy.matrix) else Cosines(option.steps)  # nothing has no basis
        still = Disclosure(
            strategy,
            prior,
            0.0,
            power_factors=adjacency.power_factors,
            exact=noise.source == "secure",
        )
        sensitivity = TemporalDisclosure(still, over).sensitivity(adjacency, noise.norm)
        if math.isinf(sensitivity.value):
            continue
        variance = noise.release(sensitivity).mechanism.variance
        left = expected_error(
            strategy,
            variance,
            prior,
            use,
            reactive=reactive,
            power_factors=adjacency.power_factors,
        )
        expected = math.hypot(left, shared * math.sqrt(coefficient_left(over, variance, level)))
        matches.append(TemporalDisclosure(replace(still, expected=expected), over))
    if not matches:
        raise not_allowed(
            "temporal_basis",
            str(max(len(option.weights) for option in options)),
            "0 with mechanism 'staircase': a bus moves the cosines too",
        )
    return min(matches, key=lambda item: item.level.expected)


def every_bus(zone: Zone) -> bool:
    """Return True where the objective counts the error at every bus, in p and in q alike.

    The squared imbalance of a schedule on the estimated demand d^ is that of its buses: where the
    schedule balances d^, it is ||d^ - d||^2.
    """
    return zone.network.objective.kind == "imbalance"


def used(zone: Zone, direct: DirectCurrent) -> Floats:
    """Return the statistics of a zone's demand that its objective depends on, (k, |N_z|).

    Every bus where the objective is the imbalance. For cost and losses the sum of the active
    demand and flows on the zone's ties, which neighbours use, and every bus: the schedule counts
    on generation that lines inside the zone may not carry to where its demand is.
    """
    everywhere = np.eye(len(zone.own))
    if every_bus(zone):
        return everywhere
    ties = TIES * tie_flows(zone, direct)
    return np.vstack([np.ones((1, len(zone.own))), ties, PLACE * everywhere])


def strategies(zone: Zone, release: str) -> list[Statistics]:
    """Return the strategies that a name stands for in a zone."""
    n = len(zone.own)
    if release == "nothing":
        return [nothing(n)]
    if release == "bus" or n == 1:  # of a zone of one bus all strategies are the same
        return [bus(n)]
    if release == "total":
        return [total(n)]
    levels = (np.zeros(n, dtype=np.int64), np.arange(n))
    trees = [tree(levels, weights) for weights in TREES]
    return trees if release == "tree" else [*trees, bus(n), total(n)]


@dataclass(frozen=True, eq=False)
class DirectCurrent:
    """The DC power flow of a whole grid; of topology, impedances and capacities only.

    Attributes
    ----------
    strength : (m,)
        1 / |z| of the branches.
    factors : Factors
        Of their Laplacian, slightly grounded everywhere.
    supply : (n,)
        Angles while every bus takes the same part of 1 p.u., generated in proportion to capacity.
    """

    strength: Floats
    factors: Factors
    supply: Floats


def grounded(case: Case) -> DirectCurrent:
    """Return the DC power flow of a whole grid."""
    strength = 1.0 / np.abs(case.r + 1j * case.x)
    flows = laplacian(case.f_bus, case.t_bus, strength, case.n_bus)
    ground = 1e-9 * float(strength.mean()) if len(strength) else 1.0  # a grid may have no branch
    factors = Factors.of((flows + ground * sparse.eye_array(case.n_bus)).tocsc())
    # what all buses take alike moves all angles alike, and would drown the rest in rounding
    supply = factors.solve(generation_shares(case) - 1.0 / case.n_bus)
    return DirectCurrent(strength, factors, supply)


def tie_flows(zone: Zone, direct: DirectCurrent) -> Floats:
    """Return the flow on each tie line per unit of demand at each own bus, (ties, |N_z|).

    What a bus takes is generated everywhere, in proportion to capacity. Their signed sum over the
    ties is the interchange.
    """
    case, own = zone.network.case, np.isin(zone.buses, zone.own)
    f, t = (np.searchsorted(zone.buses, end[zone.branches]) for end in (case.f_bus, case.t_bus))
    ties = np.flatnonzero(own[f] != own[t])
    strength, number = direct.strength[zone.branches[ties]], np.arange(len(ties))
    ends = np.zeros((len(zone.buses), len(ties)))
    ends[f[ties], number] += strength
    ends[t[ties], number] -= strength
    taken = direct.factors.solve_at(zone.buses, ends)
    made = direct.supply[zone.buses] @ ends
    return np.asarray(made[:, None] - taken[own].T)

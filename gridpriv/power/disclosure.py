"""What a zone releases of its demand: a strategy on its own buses, from public quantities only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from scipy import sparse

from gridpriv.core.arrays import Floats
from gridpriv.grid.admittance import laplacian
from gridpriv.grid.case import Case
from gridpriv.grid.factors import Factors
from gridpriv.power.prior import capacity
from gridpriv.power.zone import Zone
from gridpriv.privacy.adjacency import DemandAdjacency
from gridpriv.privacy.perturbation import NoiseRule
from gridpriv.privacy.strategies.auto import auto, expected_error
from gridpriv.privacy.strategies.bus import bus
from gridpriv.privacy.strategies.course import Cosines, CourseDisclosure, swing_left
from gridpriv.privacy.strategies.disclosure import Disclosure
from gridpriv.privacy.strategies.linear import Statistics
from gridpriv.privacy.strategies.nothing import nothing
from gridpriv.privacy.strategies.prior import Prior
from gridpriv.privacy.strategies.total import total
from gridpriv.privacy.strategies.tree import tree

TREES = ((0.7, 0.3), (0.5, 0.5), (0.3, 0.7))
"""Weights of a zone's sum and of its buses."""
TIES = 0.3
"""Weight of an error in a tie line's flow; one in the interchange weighs 1, as it is paid for."""


def disclose(
    zone: Zone, release: str, prior: Prior, noise: NoiseRule, adjacency: DemandAdjacency,
    direct: DirectCurrent,
) -> Disclosure:  # fmt: skip
    """Return what a zone releases; of several possibilities the one of least expected error.

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

    return auto(strategies(zone, release), drawn, prior, used(zone, direct))


def disclose_course(
    zone: Zone, release: str, options: Sequence[Cosines], prior: Prior, noise: NoiseRule,
    adjacency: DemandAdjacency, direct: DirectCurrent,
) -> CourseDisclosure:  # fmt: skip
    """Return what a zone releases of its demand over time, chosen as by :func:`disclose`.

    Parameters
    ----------
    zone, release, prior, noise, adjacency, direct
        As of :func:`disclose`.
    options : sequence of Cosines
        What may be released of the course of the zone's sum.
    """
    use = used(zone, direct)
    level = float(prior.active.mean.sum())
    found = []
    for strategy, option in product(strategies(zone, release), options):
        over = option if len(strategy.matrix) else Cosines(option.steps)  # nothing has no course
        still = Disclosure(strategy, prior, 0.0, power_factors=adjacency.power_factors)
        sensitivity = CourseDisclosure(still, over).sensitivity(adjacency, noise.norm)
        variance = noise.release(sensitivity).mechanism.variance
        left = expected_error(strategy, variance, prior, use)
        expected = math.hypot(left, math.sqrt(swing_left(over, variance, level)))
        found.append(CourseDisclosure(replace(still, expected=expected), over))
    return min(found, key=lambda one: one.level.expected)


def used(zone: Zone, direct: DirectCurrent) -> Floats:
    """Return what neighbours use of a zone's active demand: its sum, and flows on its ties."""
    return np.vstack([np.ones((1, len(zone.own))), TIES * tie_flows(zone, direct)])


def strategies(zone: Zone, release: str) -> list[Statistics]:
    """Return the strategies that a name stands for in a zone."""
    n = len(zone.own)
    if release == "nothing":
        return [nothing(n)]
    if release == "bus" or n == 1:  # of a zone of one bus all strategies are the same
        return [bus(n)]
    if release == "total":
        return [total(n)]
    # the sum alone is not among them: it says nothing of where load sits
    levels = (np.zeros(n, dtype=np.int64), np.arange(n))
    trees = [tree(levels, weights) for weights in TREES]
    return trees if release == "tree" else [*trees, bus(n)]


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
    able = np.bincount(case.gen_bus, np.where(np.isfinite(case.pmax), case.pmax, 0.0), case.n_bus)
    # what all buses take alike moves all angles alike, and would drown the rest in rounding
    supply = factors.solve(able / max(capacity(case), 1e-12) - 1.0 / case.n_bus)
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

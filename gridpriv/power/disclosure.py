"""What a zone releases of its demand: a strategy on its own buses, from public quantities only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import SuperLU, splu

from gridpriv.core.arrays import Floats
from gridpriv.grid.admittance import laplacian
from gridpriv.grid.case import Case
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
    factors: SuperLU,
) -> Disclosure:  # fmt: skip
    """Return what a zone releases; of several possibilities the one of least expected error.

    Parameters
    ----------
    zone : Zone
        Its topology and generators are read, not its demand.
    release : {'bus', 'total', 'tree', 'auto', 'nothing'}
    factors : SuperLU
        Of the grid's DC power flow (:func:`grounded`): one for all zones.
    """

    def drawn(option: Statistics) -> float:
        return noise.release(option.sensitivity(adjacency, noise.norm)).mechanism.variance

    return auto(strategies(zone, release), drawn, prior, used(zone, factors))


def disclose_course(
    zone: Zone, release: str, options: Sequence[Cosines], prior: Prior, noise: NoiseRule,
    adjacency: DemandAdjacency, factors: SuperLU,
) -> CourseDisclosure:  # fmt: skip
    """Return what a zone releases of its demand over time, chosen as by :func:`disclose`.

    Parameters
    ----------
    zone, release, prior, noise, adjacency, factors
        As of :func:`disclose`.
    options : sequence of Cosines
        What may be released of the course of the zone's sum.
    """
    use = used(zone, factors)
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


def used(zone: Zone, factors: SuperLU) -> Floats:
    """Return what neighbours use of a zone's active demand: its sum, and flows on its ties."""
    return np.vstack([np.ones((1, len(zone.own))), TIES * tie_flows(zone, factors)])


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


def grounded(case: Case) -> SuperLU:
    """Return the factors of the DC power flow of a whole grid, slightly grounded everywhere."""
    strength = _strength(case)
    flows = laplacian(case.f_bus, case.t_bus, strength, case.n_bus)
    ground = 1e-9 * float(strength.mean()) if len(strength) else 1.0  # a grid may have no branch
    return splu((flows + ground * sparse.eye_array(case.n_bus)).tocsc())


def _strength(case: Case) -> Floats:
    return np.asarray(1.0 / np.abs(case.r + 1j * case.x))


def tie_flows(zone: Zone, factors: SuperLU) -> Floats:
    """Return the flow on each tie line per unit of demand at each own bus, (ties, |N_z|).

    DC power flow, of the factors of :func:`grounded`; what a bus takes is generated everywhere, in
    proportion to capacity. Their signed sum over the ties is the interchange.
    """
    case = zone.network.case
    n, own = case.n_bus, np.zeros(case.n_bus, dtype=bool)
    own[zone.own] = True
    strength = _strength(case)
    f, t = case.f_bus[zone.branches], case.t_bus[zone.branches]
    ties = zone.branches[own[f] != own[t]]
    ends = np.zeros((n, len(ties)))
    ends[case.f_bus[ties], np.arange(len(ties))] += strength[ties]
    ends[case.t_bus[ties], np.arange(len(ties))] -= strength[ties]
    flows = factors.solve(ends) if len(ties) else ends
    share = np.bincount(case.gen_bus, np.where(np.isfinite(case.pmax), case.pmax, 0.0), n)
    made = share @ flows / max(capacity(case), 1e-12)
    return np.asarray(made[:, None] - flows[zone.own].T)

"""Neighbouring demands of a zone: the worst ones by public topology, and random ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.power.problem import ZoneProblem
from gridpriv.privacy.adjacency import DemandAdjacency


@dataclass(frozen=True, eq=False)
class Neighbour:
    """A change of one bus's demand within the adjacency.

    Attributes
    ----------
    bus : int
        Bus number.
    dp, dq : float
        Change of its active and reactive demand, per unit.
    change : (2 |N_z|,)
        The same as a change of the zone's data.
    """

    bus: int
    dp: float
    dq: float
    change: Floats

    def __str__(self) -> str:
        return f"bus {self.bus}, dp {self.dp:+.3g}, dq {self.dq:+.3g} p.u."


def neighbour(problem: ZoneProblem, own: int, dp: float, dq: float) -> Neighbour:
    """Return the neighbour that moves own bus number ``own`` (0..|N_z|-1) by (dp, dq)."""
    zone = problem.program.zone
    change = np.zeros(2 * len(zone.own))
    change[own], change[own + len(zone.own)] = dp, dq
    return Neighbour(int(zone.network.case.bus_id[zone.own[own]]), dp, dq, change)


def corners(adjacency: DemandAdjacency) -> list[tuple[float, float]]:
    """Return the extreme (dp, dq) of an adjacency."""
    beta, factors = adjacency.beta, adjacency.power_factors
    if factors is not None:
        middle, half = factors.middle, factors.half
        signs = ((1.0, 1.0), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0))
        return [(p * beta, (p * middle + q * half) * beta) for p, q in signs]
    if adjacency.protects == "p":
        return [(beta, 0.0), (-beta, 0.0)]
    if adjacency.protects == "q":
        return [(0.0, beta), (0.0, -beta)]
    return [(beta, beta), (beta, -beta), (-beta, beta), (-beta, -beta)]


def gradient_norms(problem: ZoneProblem, adjacency: DemandAdjacency) -> Floats:
    """Return the largest 2-norm by which each own bus can move the gradient, (|N_z|,)."""
    own = len(problem.program.zone.own)
    moves = [
        [problem.program.pull(other.change) for other in _corners_at(problem, adjacency, bus)]
        for bus in range(own)
    ]
    return np.asarray(np.linalg.norm(moves, axis=2).max(axis=1))


def worst_neighbours(problem: ZoneProblem, adjacency: DemandAdjacency) -> list[Neighbour]:
    """Return every corner change at the bus that moves the gradient most."""
    return _corners_at(problem, adjacency, int(np.argmax(gradient_norms(problem, adjacency))))


def _corners_at(problem: ZoneProblem, adjacency: DemandAdjacency, own: int) -> list[Neighbour]:
    return [neighbour(problem, own, dp, dq) for dp, dq in corners(adjacency)]


def class_neighbours(problem: ZoneProblem, adjacency: DemandAdjacency) -> list[Neighbour]:
    """Return corner changes at one bus of every class that a zone has.

    The classes are buses with demand and without, with generators, with shunts, at tie lines, at
    the reference, and inside the zone at a single line. Of each class the bus that moves the
    gradient most is taken, and of its corners one of each pair of mirror images.
    """
    zone = problem.program.zone
    case, own = zone.network.case, zone.own
    across = ~np.isin(case.f_bus, own) | ~np.isin(case.t_bus, own)
    tied = np.union1d(case.f_bus[across], case.t_bus[across])
    degree = np.bincount(np.concatenate([case.f_bus, case.t_bus]), minlength=case.n_bus)
    loaded = (case.pd != 0.0) | (case.qd != 0.0)
    generates = np.isin(own, case.gen_bus)
    classes = (
        loaded[own],
        ~loaded[own],
        generates,
        (case.gs != 0.0)[own] | (case.bs != 0.0)[own],
        np.isin(own, tied),
        case.reference[own],
        degree[own] == 1,
        ~generates & ~loaded[own],
    )
    norms = gradient_norms(problem, adjacency)
    buses = {int(np.argmax(np.where(members, norms, -1.0))) for members in classes if members.any()}
    one_of_each = corners(adjacency)[: 2 if adjacency.protects == "p+q" else 1]
    return [neighbour(problem, bus, dp, dq) for bus in sorted(buses) for dp, dq in one_of_each]


def corner_neighbours(
    problem: ZoneProblem, adjacency: DemandAdjacency, bus_id: int
) -> list[Neighbour]:
    """Return every corner change at a bus of the zone."""
    zone = problem.program.zone
    own = int(np.flatnonzero(zone.network.case.bus_id[zone.own] == bus_id)[0])
    return _corners_at(problem, adjacency, own)


def random_neighbours(
    problem: ZoneProblem, adjacency: DemandAdjacency, count: int, generator: np.random.Generator
) -> list[Neighbour]:
    """Return neighbours at random buses, uniform in what the adjacency allows."""
    own = len(problem.program.zone.own)
    drawn = []
    for _ in range(count):
        bus = int(generator.integers(own))
        dp, dq = generator.uniform(-adjacency.beta, adjacency.beta, 2)
        if adjacency.power_factors is not None:
            dq = adjacency.power_factors.middle * dp + adjacency.power_factors.half * dq
        p, q = ("p" in adjacency.protects) * float(dp), ("q" in adjacency.protects) * float(dq)
        drawn.append(neighbour(problem, bus, p, q))
    return drawn

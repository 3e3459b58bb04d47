"""Local recourse: what each zone would really dispatch after the last round.

The released copies of a tie line differ a little and their mean need not satisfy Ohm's law
(a bus's w may have three holders, a line's flows two). So the mean is first projected on what
holds at tie lines, with released values and public topology only; every zone then pins its
shared variables to that point, as equalities, and minimises its true imbalance. Nothing of
the second step is ever sent: its figures are local.

Many dispatches have the same imbalance, and most of them waste generation in losses that the
relaxation invents. Among them the zone takes one of little generation: a small cost per unit
of output is added, ``GENERATION_COST``, too small to pay for shedding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import SolverError
from gridpriv.grid.zoning import Zoning, tie_lines
from gridpriv.power.accheck import Dispatch
from gridpriv.power.objective import BASE_MVA
from gridpriv.power.presolve import presolve
from gridpriv.power.problem import ZoneProblem
from gridpriv.power.program import ZoneProgram, compile_zone
from gridpriv.power.solvers import make_solver
from gridpriv.power.zone import Network, Zone


@dataclass(frozen=True, eq=False)
class Pin:
    """Where a zone's shared variables are held: a mask and values over its variables."""

    tied: NDArray[np.bool_]
    values: Floats
    solver: str


@dataclass(frozen=True, eq=False)
class Recourse:
    """Imbalances after recourse (p.u.; positive is unserved); local.

    Attributes
    ----------
    p_imbalance, q_imbalance : (n_bus,)
        NaN in zones whose pinned problem had no solution.
    solution : (N,)
        The grid's variables: each zone's own solution; tie variables are the pinned ones.
    failed : tuple of str
        Names of the zones without a solution.
    """

    p_imbalance: Floats
    q_imbalance: Floats
    solution: Floats
    failed: tuple[str, ...]

    def as_dict(self, base_mva: float) -> dict[str, Any]:
        """Return objective (p.u. squared) and shed and surplus in MW."""
        p, q = self.p_imbalance, self.q_imbalance
        return {
            "objective": float(p @ p + q @ q),
            "shed_mw": base_mva * float(np.maximum(p, 0.0).sum()),
            "surplus_mw": base_mva * float(np.maximum(-p, 0.0).sum()),
            "failed_zones": list(self.failed),
        }


def agreed_point(
    network: Network,
    zoning: Zoning,
    zones: Sequence[Zone],
    averages: Sequence[Floats],
    solver: str,
) -> tuple[NDArray[np.bool_], Floats]:
    """Return (mask, values) over the grid's variables: the shared ones and where they are pinned.

    Parameters
    ----------
    averages : sequence of (n,) arrays
        What each zone last sent; only coordinates that two zones hold are used.
    """
    size = network.offsets["end"]
    total, holders = np.zeros(size), np.zeros(size)
    for zone, average in zip(zones, averages, strict=True):
        total[zone.coordinates] += average
        holders[zone.coordinates] += 1.0
    tied = holders > 1
    point = np.where(tied, total / np.maximum(holders, 1.0), 0.0)
    ties = _tie_zone(network, zoning)
    if len(ties.branches):
        program = compile_zone(ties)
        at = program.coordinates
        nearest = make_solver(solver, program, lambda: presolve(program), exact=False)
        start = network.offsets
        flow = (at >= start["p_from"]) & (at < start["pg"])
        # distances as on a base of 100 MVA, so that the point does not depend on the base
        metric = np.where(flow, (network.case.base_mva / BASE_MVA) ** 2, 1.0)
        point[at] = nearest.solve(-metric * point[at], metric).z
    return tied, point


def _tie_zone(network: Network, zoning: Zoning) -> Zone:
    """Return the tie lines with their end buses as a zone that owns no bus."""
    case = network.case
    lines = np.flatnonzero(tie_lines(case, zoning))
    none = np.zeros(0, dtype=np.int64)
    return Zone(
        network=network,
        name="tie lines",
        key=0,
        own=none,
        buses=np.unique(np.concatenate([case.f_bus[lines], case.t_bus[lines]])),
        pairs=np.unique(network.pair_of[lines]),
        branches=lines,
        gens=none,
    )


# Weight of the squared imbalance against a unit of generation: a bus sheds at most 5e-9 p.u.
# to save generation. The weight also scales the problem, so that a solver's absolute
# tolerance of 1e-8 means imbalances of about 1e-6 p.u. over a zone.
IMBALANCE_WEIGHT = 1e4
GENERATION_COST = 1e-4


def pinned_solution(problem: ZoneProblem, demand: Floats, pin: Pin) -> Floats | None:
    """Return z of a zone with its shared variables pinned, or None where there is none."""
    program = pinned_program(problem.program, pin)
    heavy = replace(program, weight=max(program.weight, IMBALANCE_WEIGHT))
    linear = heavy.pull(demand) + _cost(heavy)
    try:
        solver = make_solver(pin.solver, heavy, lambda: presolve(heavy), exact=True)
        return solver.solve(linear, np.zeros(program.size)).z
    except SolverError:
        return None


def _cost(program: ZoneProgram) -> Floats:
    """Return the objective's own linear cost, or a small one per unit of generation."""
    if program.zone.network.objective.kind == "cost":
        return program.cost_linear
    start = program.zone.network.offsets
    active = (program.coordinates >= start["pg"]) & (program.coordinates < start["qg"])
    return np.where(active, GENERATION_COST, 0.0)


def pinned_program(program: ZoneProgram, pin: Pin) -> ZoneProgram:
    """Return the program with tied voltage products fixed; their flows follow by Ohm's law."""
    start = program.zone.network.offsets
    flow = (program.coordinates >= start["p_from"]) & (program.coordinates < start["pg"])
    fixed = pin.tied & ~flow
    return replace(
        program,
        lower=np.where(fixed, pin.values, program.lower),
        upper=np.where(fixed, pin.values, program.upper),
    )


def dispatch(network: Network, solved: Recourse) -> Dispatch:
    """Return generation, served load and voltage of every bus after recourse."""
    case, start = network.case, network.offsets
    pg = solved.solution[start["pg"] : start["qg"]]
    qg = solved.solution[start["qg"] : start["pc"]]
    return Dispatch(
        pg=np.bincount(case.gen_bus, pg, minlength=case.n_bus).astype(float),
        qg=np.bincount(case.gen_bus, qg, minlength=case.n_bus).astype(float),
        p_served=case.pd - solved.p_imbalance,
        q_served=case.qd - solved.q_imbalance,
        vm=np.sqrt(np.maximum(solved.solution[: case.n_bus], 0.0)),
    )

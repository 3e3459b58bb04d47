"""Local recourse: what each zone would really dispatch after the last round.

The released copies of a tie line differ a little and their mean need not satisfy Ohm's law
(a bus's w may have three holders, a line's flows two). So the mean is first projected on what
holds at tie lines, with released values and public topology only; every zone then pins its
shared variables to that point, as equalities, and minimises its true imbalance. Nothing of
the second step is ever sent: its figures are local.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gridpriv.errors import SolverError
from gridpriv.grid.case import Floats
from gridpriv.grid.zoning import Zoning, tie_lines
from gridpriv.power.accheck import Dispatch
from gridpriv.power.presolve import presolve
from gridpriv.power.problem import ZoneProblem
from gridpriv.power.program import ZoneProgram, compile_zone
from gridpriv.power.solvers import make_solver
from gridpriv.power.zone import Network, Zone


@dataclass(frozen=True, eq=False)
class Recourse:
    """Imbalances after recourse (p.u.; positive is unserved), and each zone's solution.

    Attributes
    ----------
    p_imbalance, q_imbalance : (n_bus,)
    solutions : tuple of arrays
        z of every zone, in the problems' order.
    failed : tuple of str
        Zones whose pinned problem had no solution; their imbalance is NaN.
    """

    p_imbalance: Floats
    q_imbalance: Floats
    solutions: tuple[Floats, ...]
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


def recourse(
    network: Network,
    zoning: Zoning,
    problems: tuple[ZoneProblem, ...],
    averages: tuple[Floats, ...],
    solver: str,
) -> Recourse:
    """Solve every zone with its shared variables pinned to the projected mean of the releases.

    Parameters
    ----------
    averages : tuple of arrays
        What each zone last sent, as full vectors; only coordinates that two zones hold are read.
    """
    tied, point = agreed_point(network, zoning, problems, averages, solver)
    p, q = np.full(network.case.n_bus, np.nan), np.full(network.case.n_bus, np.nan)
    solutions, failed = [], []
    for problem, average in zip(problems, averages, strict=True):
        own = problem.program.zone.own
        try:
            z = _pinned(problem, tied, point, solver)
            p[own], q[own] = np.split(problem.imbalance(z, problem.program.zone.demand), 2)
        except SolverError:
            failed.append(problem.name)
            z = average
        solutions.append(z)
    return Recourse(p, q, tuple(solutions), tuple(failed))


def agreed_point(
    network: Network,
    zoning: Zoning,
    problems: tuple[ZoneProblem, ...],
    averages: tuple[Floats, ...],
    solver: str,
) -> tuple[Any, Floats]:
    """Return (mask, values) over the grid's variables: the shared ones and where they are pinned."""
    size = network.offsets["end"]
    total, holders = np.zeros(size), np.zeros(size)
    for problem, average in zip(problems, averages, strict=True):
        total[problem.coordinates] += average
        holders[problem.coordinates] += 1.0
    tied = holders > 1
    point = np.where(tied, total / np.maximum(holders, 1.0), 0.0)
    ties = _tie_zone(network, zoning)
    if len(ties.branches) == 0:
        return tied, point
    program = compile_zone(ties)
    at = program.coordinates
    found = make_solver(solver, program, lambda: presolve(program), exact=False).solve(
        -point[at], np.ones(program.size)
    )
    point[at] = found.z
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


def _pinned(problem: ZoneProblem, tied: Any, point: Floats, solver: str) -> Floats:
    program = pin(problem.program, tied[problem.coordinates], point[problem.coordinates])
    linear = problem.gradient(np.zeros(program.size), program.zone.demand)
    pinned = make_solver(solver, program, lambda: presolve(program), exact=True)
    return pinned.solve(linear, np.zeros(program.size)).z


def pin(program: ZoneProgram, tied: Any, values: Floats) -> ZoneProgram:
    """Return the program with tied voltage products fixed; their flows follow by Ohm's law."""
    start = program.zone.network.offsets
    flow = (program.coordinates >= start["p_from"]) & (program.coordinates < start["pg"])
    fixed = tied & ~flow
    return replace(
        program,
        lower=np.where(fixed, values, program.lower),
        upper=np.where(fixed, values, program.upper),
    )


def dispatch(problems: tuple[ZoneProblem, ...], solved: Recourse, n_bus: int) -> Dispatch:
    """Return generation, served load and voltage of every bus after recourse."""
    case = problems[0].program.zone.network.case
    start = problems[0].program.zone.network.offsets
    everywhere = np.zeros(start["end"])
    vm = np.ones(n_bus)
    for problem, z in zip(problems, solved.solutions, strict=True):
        everywhere[problem.coordinates] = z
        own = problem.program.zone.own
        vm[own] = np.sqrt(np.maximum(z[: len(problem.program.zone.buses)], 0.0))[
            np.isin(problem.program.zone.buses, own)
        ]
    pg, qg = everywhere[start["pg"] : start["qg"]], everywhere[start["qg"] :]
    return Dispatch(
        pg=np.bincount(case.gen_bus, pg, minlength=n_bus),
        qg=np.bincount(case.gen_bus, qg, minlength=n_bus),
        p_served=case.pd - solved.p_imbalance,
        q_served=case.qd - solved.q_imbalance,
        vm=vm,
    )

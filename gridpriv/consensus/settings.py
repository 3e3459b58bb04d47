"""The settings of rounds that every application has: how many, and with which penalty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from gridpriv.consensus.schedules import PenaltySchedule, ResidualBalancing, parse_penalty
from gridpriv.core.settings import Part, choice, count, notation

Update = Literal["exact", "linearized"]
SolverTolerance = Literal["matched", "tight"]
Step = Literal["nonsmooth", "smooth", "strongly-convex"]


@dataclass(frozen=True, kw_only=True)
class Rounds(Part):
    """Rounds of consensus ADMM."""

    rounds: int = count(20, "number of rounds T")
    local_updates: int = count(1, "local updates E of a round")
    step: Step = choice("nonsmooth", get_args(Step), "step-size rule of the linearized update")
    penalty: PenaltySchedule = notation(
        ResidualBalancing(),
        parse_penalty,
        "PENALTY",
        "penalty rho: a number, auto (residual balancing) or geometric:INITIAL,FACTOR,INTERVAL,MAX",
        kinds=PenaltySchedule,
    )
    workers: int = count(
        1, "worker processes for the zones of one run; results do not depend on their number"
    )

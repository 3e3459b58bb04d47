"""The settings of rounds that every application has: how many, and with which penalty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from gridpriv.consensus.schedules import BalancedPenalty, PenaltySchedule, parse_penalty
from gridpriv.core.settings import Part, choice, count, notation

Update = Literal["exact", "linearized"]
Accuracy = Literal["matched", "exact"]
Step = Literal["nonsmooth", "smooth", "strongly-convex"]


@dataclass(frozen=True, kw_only=True)
class Rounds(Part):
    """How many rounds there are, and how far each goes."""

    rounds: int = count(20, "number of rounds T")
    local_updates: int = count(1, "local updates E of a round")
    step: Step = choice("nonsmooth", get_args(Step), "step size rule of the linearized update")
    penalty: PenaltySchedule = notation(
        BalancedPenalty(), parse_penalty, "PENALTY",
        "penalty rho of disagreement: a number, balanced, or growing:START,FACTOR,EVERY,MOST",
        kinds=PenaltySchedule,
    )  # fmt: skip
    workers: int = count(1, "processes over zones; results do not depend on it")

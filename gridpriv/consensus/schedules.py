"""Settings of rounds, step sizes and penalties. All of them use public data only."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import not_allowed, positive, whole
from gridpriv.core.settings import Part, choice, count, notation, shortest

StepSize = Callable[[int], float]


def nonsmooth_step() -> StepSize:
    """Return eta^t = 1/sqrt(t), Ryu and Kim's theorem 5.4 and experiments."""
    return lambda t: 1.0 / math.sqrt(t)


def smooth_step(smoothness: float, epsilon: float) -> StepSize:
    """Return eta^t = 1/(L + sqrt(t)/epsilon), (5.1a); epsilon is inf without noise.

    It is 1 where that has no value: without noise, a constant objective (L = 0) takes any step.
    """

    def step(t: int) -> float:
        curvature = smoothness + math.sqrt(t) / epsilon
        return 1.0 / curvature if curvature > 0.0 else 1.0

    return step


def strongly_convex_step(modulus: float) -> StepSize:
    """Return eta^t = 2/(alpha (t + 2)), (5.3a)."""
    return lambda t: 2.0 / (modulus * (t + 2))


class PenaltySchedule:
    """rho of every coupling variable, by round, from released values only."""

    def first(self, size: int) -> Floats:
        """Return rho^1 of each of ``size`` coupling variables."""
        raise NotImplementedError

    def following(self, t: int, rho: Floats, primal: Floats, dual: Floats) -> Floats:
        """Return rho^{t+1} after round t; by default rho does not change.

        Parameters
        ----------
        rho, primal, dual : (size,)
            The round's penalties and, per coupling variable, the norm of its consensus residual
            over its agents and of the change of w times rho.
        """
        del t, primal, dual
        return rho


@dataclass(frozen=True)
class ConstantPenalty(PenaltySchedule):
    """rho^t = rho."""

    rho: float

    def __post_init__(self) -> None:
        positive("penalty", self.rho)

    def __str__(self) -> str:
        return shortest(self.rho)

    def first(self, size: int) -> Floats:
        """Return the constant."""
        return np.full(size, self.rho)


@dataclass(frozen=True)
class GeometricPenalty(PenaltySchedule):
    """rho^t = min(most, start * factor^floor(t/every)): nondecreasing and bounded (E.1)."""

    start: float
    factor: float
    every: int
    most: float

    def __post_init__(self) -> None:
        positive("penalty INITIAL", self.start)
        if not 1.0 <= self.factor < math.inf:
            raise not_allowed("penalty FACTOR", self.factor, "a number of 1 or more")
        whole("penalty INTERVAL", self.every)
        if not self.start <= self.most < math.inf:
            raise not_allowed("penalty MAX", self.most, "a number of at least INITIAL")

    def __str__(self) -> str:
        numbers = (self.start, self.factor, self.every, self.most)
        return f"geometric:{','.join(map(shortest, numbers))}"

    def first(self, size: int) -> Floats:
        """Return rho^1."""
        return np.full(size, self.at(1))

    def following(self, t: int, rho: Floats, primal: Floats, dual: Floats) -> Floats:
        """Return rho^{t+1}."""
        del primal, dual
        return np.full_like(rho, self.at(t + 1))

    def at(self, t: int) -> float:
        """Return rho^t."""
        exponent = min((t // self.every) * math.log(self.factor), math.log(self.most / self.start))
        return min(self.most, self.start * math.exp(exponent))


@dataclass(frozen=True)
class ResidualBalancing(PenaltySchedule):
    """Per-variable residual balancing on released values (He, Yang and Wang 2000).

    rho grows where the primal residual of a variable is larger than the dual residual, and falls
    where it is smaller. The factor decreases with the rounds, to its square root after
    ``decay_rounds`` rounds, so rho converges. The rule reads consensus residuals and changes of w,
    which are public.
    """

    start: float = 3.0
    factor: float = 2.0
    ratio: float = 5.0
    decay_rounds: float = 10.0
    least: float = 1e-3
    most: float = 1e5

    def __str__(self) -> str:
        return "auto"

    def first(self, size: int) -> Floats:
        """Return the start."""
        return np.full(size, self.start)

    def following(self, t: int, rho: Floats, primal: Floats, dual: Floats) -> Floats:
        """Return rho scaled up where the primal residual leads, down where the dual does."""
        if t < 2:
            return rho
        factor = self.factor ** (self.decay_rounds / (self.decay_rounds + t))
        up = np.where(primal > self.ratio * dual, factor, 1.0)
        down = np.where(dual > self.ratio * primal, 1.0 / factor, 1.0)
        return np.clip(rho * up * down, self.least, self.most)


@dataclass(frozen=True)
class FrozenPenalty(PenaltySchedule):
    """The rho of a warm start, unchanged.

    For rounds with fresh noise, which changes w in every round, so that residual balancing would
    follow the noise. Also for accelerated rounds, a stationary iteration.
    """

    schedule: PenaltySchedule

    def first(self, size: int) -> Floats:
        """Return rho^1 of the warm-started schedule."""
        return self.schedule.first(size)


@dataclass(frozen=True, eq=False)
class InUnits(PenaltySchedule):
    """A schedule with its numbers in other units than the coupling variables.

    Residual balancing compares primal with dual residuals, so its result depends on their units.
    ``units`` converts rho from the schedule's units to those of the variables: with it a grid's
    rounds do not depend on its base.

    Attributes
    ----------
    units : (K,)
        rho of each coupling variable per unit of the schedule's rho.
    """

    schedule: PenaltySchedule
    units: Floats

    def first(self, size: int) -> Floats:
        """Return rho^1 in the variables' units."""
        return self.units * self.schedule.first(size)

    def following(self, t: int, rho: Floats, primal: Floats, dual: Floats) -> Floats:
        """Return rho^{t+1} in the variables' units."""
        return self.units * self.schedule.following(t, rho / self.units, self.units * primal, dual)


def parse_penalty(text: str) -> PenaltySchedule:
    """Return the schedule of a number, ``auto`` or ``geometric:INITIAL,FACTOR,INTERVAL,MAX``."""
    if text == "auto":
        return ResidualBalancing()
    numbers = penalty_numbers(text)
    if len(numbers) == 4:
        return GeometricPenalty(numbers[0], numbers[1], int(numbers[2]), numbers[3])
    if len(numbers) == 1 and numbers[0] > 0.0:
        return ConstantPenalty(numbers[0])
    allowed = "a positive number, auto, or geometric:INITIAL,FACTOR,INTERVAL,MAX"
    raise not_allowed("penalty", text, allowed)


def penalty_numbers(text: str) -> list[float]:
    """Return the number of a text, or four or more after ``geometric:``, else nothing."""
    kind, _, rest = text.partition(":")
    geometric = kind == "geometric"
    try:
        numbers = [float(part) for part in (rest if geometric else text).split(",")]
    except ValueError:
        return []
    allowed = len(numbers) > 3 and numbers[2].is_integer() if geometric else len(numbers) == 1
    return numbers if allowed else []


Update = Literal["exact", "linearized"]
SolverTolerance = Literal["matched", "tight"]
Step = Literal["nonsmooth", "smooth", "strongly-convex"]


@dataclass(frozen=True, kw_only=True)
class Rounds(Part):
    """Rounds, local updates, step size and penalty of ADMM."""

    rounds: int = count(
        20,
        "maximum number of rounds on the SOC relaxation: with --planning soc, or if AC rounds (at "
        "most 200) do not converge",
    )
    local_updates: int = count(1, "local updates per round")
    step: Step = choice("nonsmooth", get_args(Step), "step-size rule of the linearized update")
    penalty: PenaltySchedule = notation(
        ResidualBalancing(),
        parse_penalty,
        "PENALTY",
        "penalty rho of ADMM: a number, auto (residual balancing) or "
        "geometric:INITIAL,FACTOR,INTERVAL,MAX",
        kinds=PenaltySchedule,
    )
    workers: int = count(1, "processes for the zones of one run, without effect on results")

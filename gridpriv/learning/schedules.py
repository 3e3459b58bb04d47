"""Step sizes and penalties of the learning papers. All read public figures only."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from gridpriv.consensus.schedules import StepSize
from gridpriv.core.arrays import Floats
from gridpriv.core.errors import not_allowed, positive, whole
from gridpriv.core.settings import shortest


@dataclass(frozen=True)
class BudgetedPenalty:
    """rho^t = min(most, start factor^floor(t/every) + over_epsilon/epsilon), RK (E.1)."""

    start: float
    factor: float = 1.0
    every: int = 1
    most: float = 1e9
    over_epsilon: float = 0.0
    epsilon: float = math.inf

    def __post_init__(self) -> None:
        positive("penalty start", self.start)
        if not (math.isfinite(self.factor) and self.factor >= 1.0):
            raise not_allowed("penalty factor", self.factor, "a number of 1 or more")
        whole("penalty every", self.every)
        if not self.start <= self.most < math.inf:
            raise not_allowed("penalty most", self.most, "a number of at least the start")
        if not (math.isfinite(self.over_epsilon) and self.over_epsilon >= 0):
            raise not_allowed("penalty over epsilon", self.over_epsilon, "a number of 0 or more")

    def __str__(self) -> str:
        if (self.factor, self.every, self.over_epsilon) == (1.0, 1, 0.0):
            return shortest(self.start)
        numbers = (self.start, self.factor, self.every, self.most)
        tail = (self.over_epsilon,) if self.over_epsilon else ()
        return f"growing:{','.join(map(shortest, (*numbers, *tail)))}"

    def at(self, t: int) -> float:
        """Return rho^t."""
        power = (t // self.every) * math.log(self.factor)
        grown = self.start * math.exp(min(power, math.log(self.most / self.start)))
        return min(self.most, grown + self.over_epsilon / self.epsilon)

    def for_epsilon(self, epsilon: float) -> BudgetedPenalty:
        """Return the schedule at a release's epsilon; inf without noise."""
        return replace(self, epsilon=epsilon)

    def first(self, size: int) -> Floats:
        """Return rho^1 of every variable."""
        return np.full(size, self.at(1))

    def following(self, t: int, rho: Floats, primal: Floats, dual: Floats) -> Floats:
        """Return rho^{t+1}."""
        del primal, dual
        return np.full_like(rho, self.at(t + 1))


def parse_penalty(text: str) -> BudgetedPenalty:
    """Return the penalty of a number or ``growing:START,FACTOR,EVERY,MOST[,OVER_EPSILON]``."""
    kind, _, rest = text.partition(":")
    try:
        numbers = [float(part) for part in (rest if kind == "growing" else text).split(",")]
        if kind == "growing" and len(numbers) in (4, 5) and numbers[2] == int(numbers[2]):
            return BudgetedPenalty(
                numbers[0], numbers[1], int(numbers[2]), numbers[3], *numbers[4:]
            )
        if kind != "growing" and len(numbers) == 1:
            return BudgetedPenalty(numbers[0], most=max(numbers[0], BudgetedPenalty.most))
    except (ValueError, OverflowError):
        pass
    raise not_allowed("penalty", text, "a number or growing:START,FACTOR,EVERY,MOST[,OVER_EPSILON]")


def scaled_step(scale: float) -> StepSize:
    """Return eta^t = a / sqrt(t), RK's theorem 5.4."""
    return lambda t: scale / math.sqrt(t)


def output_step(size: int, sensitivity: float, multiplier: float) -> StepSize:
    """Return RK's step for the output baseline, 1/eta = n + s m sqrt(2 n t) / n.

    With n = JK parameters, s = 2 c_1/n_p and m = sqrt(2 ln(1.25/delta))/epsilon this is
    JK + 4 c_1 sqrt(JK t ln(1.25/delta)) / (n_p epsilon JK).
    """
    return lambda t: 1.0 / (size + sensitivity * multiplier * math.sqrt(2.0 * size * t) / size)


def nonsmooth_step(
    radius: float, gradient: float, size: int, sensitivity: float, multiplier: float
) -> StepSize:
    """Return Huang et al.'s (29), eta^k = c_w/sqrt(2k) (g^2 + n (s m)^2)^(-1/2).

    With s = 2 c_1/m_i and m = sqrt(2 ln(1.25/delta))/epsilon, n (s m)^2 is
    8 d p c_1^2 ln(1.25/delta)/(m_i epsilon)^2; g bounds the whole subgradient.
    """
    spread = math.hypot(gradient, math.sqrt(size) * sensitivity * multiplier)
    return lambda k: radius / (math.sqrt(2.0 * k) * spread)


def smooth_step(
    radius: float, smoothness: float, size: int, sensitivity: float, multiplier: float
) -> StepSize:
    """Return Huang et al.'s (34), eta^k = (L + s m sqrt(2 n k)/c_w)^(-1)."""
    return lambda k: (
        1.0 / (smoothness + sensitivity * multiplier * math.sqrt(2.0 * size * k) / radius)
    )

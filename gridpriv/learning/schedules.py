"""Step sizes and penalties of the learning papers. All use public data only."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from gridpriv.consensus.schedules import GeometricPenalty, StepSize
from gridpriv.core.errors import not_allowed
from gridpriv.core.settings import shortest
from gridpriv.learning.clients import Array, namespace


@dataclass(frozen=True)
class BudgetedPenalty(GeometricPenalty):
    """rho^t = min(most, start factor^floor(t/every) + over_epsilon/epsilon), RK (E.1)."""

    factor: float = 1.0
    every: int = 1
    most: float = 1e9
    over_epsilon: float = 0.0
    epsilon: float = math.inf

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (math.isfinite(self.over_epsilon) and self.over_epsilon >= 0):
            raise not_allowed("penalty over epsilon", self.over_epsilon, "a number of 0 or more")

    def __str__(self) -> str:
        if (self.factor, self.every, self.over_epsilon) == (1.0, 1, 0.0):
            return shortest(self.start)
        tail = f",{shortest(self.over_epsilon)}" if self.over_epsilon else ""
        return super().__str__() + tail

    def at(self, t: int) -> float:
        """Return rho^t."""
        return min(self.most, super().at(t) + self.over_epsilon / self.epsilon)

    def for_epsilon(self, epsilon: float) -> BudgetedPenalty:
        """Return the schedule at a release's epsilon; inf without noise."""
        return replace(self, epsilon=epsilon)


def parse_penalty(text: str) -> BudgetedPenalty:
    """Return the penalty of a number or ``geometric:INITIAL,FACTOR,INTERVAL,MAX[,C]``."""
    kind, _, rest = text.partition(":")
    try:
        numbers = [float(part) for part in (rest if kind == "geometric" else text).split(",")]
        if kind == "geometric" and len(numbers) in (4, 5) and numbers[2] == int(numbers[2]):
            return BudgetedPenalty(
                numbers[0], numbers[1], int(numbers[2]), numbers[3], *numbers[4:]
            )
        if kind != "geometric" and len(numbers) == 1:
            return BudgetedPenalty(numbers[0], most=max(numbers[0], BudgetedPenalty.most))
    except (ValueError, OverflowError):
        pass
    raise not_allowed("penalty", text, "a number or geometric:INITIAL,FACTOR,INTERVAL,MAX[,C]")


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


@dataclass(frozen=True)
class Regularizer:
    """Lambda R(w) with R(w) = ||w||_1 or ||w||_2^2 / 2.

    Attributes
    ----------
    kind : {'none', 'l1', 'l2'}
    strength : float
        Lambda; ``l2:2e-6`` is Ryu and Kim's 1e-6 ||w||^2.
    """

    kind: Literal["none", "l1", "l2"] = "none"
    strength: float = 0.0

    def value(self, w: Array) -> float:
        """Return lambda R(w)."""
        xp = namespace(w)
        if self.kind == "none":
            return 0.0
        total = xp.sum(xp.abs(w)) if self.kind == "l1" else 0.5 * xp.sum(w * w)
        return self.strength * float(total)

    def subgradient(self, w: Array) -> Array:
        """Return lambda sign(w), with 0 at 0, or lambda w."""
        if self.kind == "none":
            return namespace(w).zeros_like(w)
        return self.strength * (namespace(w).sign(w) if self.kind == "l1" else w)

    def prox(self, w: Array, step: float) -> Array:
        """Return argmin over v of lambda R(v) + ||v - w||^2 / (2 step)."""
        xp = namespace(w)
        if self.kind == "l1":
            shrunk = xp.abs(w) - step * self.strength
            return xp.sign(w) * xp.where(shrunk > 0, shrunk, xp.zeros_like(shrunk))
        return w / (1.0 + step * self.strength) if self.kind == "l2" else w

    @property
    def modulus(self) -> float:
        """Strong convexity."""
        return self.strength if self.kind == "l2" else 0.0

    def subgradient_bound(self, size: int, radius: float) -> float:
        """Return the largest 2-norm of R' (without lambda) over ||w|| <= radius."""
        return {"none": 0.0, "l1": math.sqrt(size), "l2": radius}[self.kind]


def parse_regularizer(text: str) -> Regularizer:
    """Return the regularizer of ``none``, ``l1:L`` or ``l2:L``."""
    if text == "none":
        return Regularizer()
    kind, _, number = text.partition(":")
    try:
        strength = float(number)
    except ValueError:
        strength = math.nan
    if kind not in ("l1", "l2") or not (math.isfinite(strength) and strength >= 0):
        raise not_allowed("regularizer", text, "none, l1:L or l2:L with L 0 or more")
    return Regularizer("l1" if kind == "l1" else "l2", strength)

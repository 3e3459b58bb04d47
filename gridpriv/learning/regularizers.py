"""L1 and L2 regularizers and the box: subgradients and proximal steps in closed form."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from gridpriv.core.errors import not_allowed
from gridpriv.learning.arrays import Array, namespace


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
            far = xp.abs(w) - step * self.strength
            return xp.sign(w) * xp.where(far > 0, far, xp.zeros_like(far))
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


def boxed(w: Array, box: float | None) -> Array:
    """Return the projection on [-box, box]."""
    return w if box is None else namespace(w).clip(w, -box, box)

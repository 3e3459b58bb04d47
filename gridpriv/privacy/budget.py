"""The budget a user states, and the noise multiplier it buys."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

from gridpriv.core.errors import not_allowed, positive
from gridpriv.core.settings import shortest
from gridpriv.privacy.accounting import (
    check_delta,
    classical_gaussian_multiplier,
    gaussian_multiplier,
    pure_multiplier,
)
from gridpriv.privacy.mechanism import SMOOTHED

Scope = Literal["per-release", "total"]
# far beyond any protection and any use, and as far as noise can be computed
LEAST_EPSILON, MOST_EPSILON = 1e-12, 1e6

NO_NOISE, NOTHING = "none", "nothing"
"""In the place of a budget: of a run that draws no noise; of one that releases nothing."""
QUIET = (NO_NOISE, NOTHING)


@dataclass(frozen=True)
class Budget:
    """Epsilon (and delta) of one release, or of all of them.

    Attributes
    ----------
    scope : {'per-release', 'total'}
    delta : float or None
        None where the user states none: pure for a total, the settings' delta per release.
    """

    scope: Scope
    epsilon: float
    delta: float | None = None

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon)
        if not LEAST_EPSILON <= self.epsilon <= MOST_EPSILON:
            allowed = f"from {LEAST_EPSILON:g} to {MOST_EPSILON:g}"
            raise not_allowed("epsilon", self.epsilon, allowed)
        if self.delta is not None:
            check_delta("delta", self.delta)

    def __str__(self) -> str:
        tail = "" if self.delta is None else f",{shortest(self.delta)}"
        return f"{self.scope}:{shortest(self.epsilon)}{tail}"


def stated_epsilon(drawn: str) -> float:
    """Return the epsilon of what a run draws (``Privacy.drawn``).

    >>> stated_epsilon("total:1,1e-6"), stated_epsilon("nothing"), stated_epsilon("none")
    (1.0, 0.0, inf)
    """
    quiet = {NO_NOISE: math.inf, NOTHING: 0.0}
    return quiet[drawn] if drawn in quiet else parse_budget(drawn).epsilon


def parse_budget(text: str) -> Budget:
    """Return the budget of ``per-release:E[,D]`` or ``total:E[,D]``.

    >>> parse_budget("total:1,1e-6")
    Budget(scope='total', epsilon=1.0, delta=1e-06)
    >>> str(parse_budget("per-release:0.50"))
    'per-release:0.5'
    """
    scope, _, numbers = text.partition(":")
    parts = numbers.split(",")
    if scope not in ("per-release", "total") or not 1 <= len(parts) <= 2:
        bare = re.fullmatch(r"[0-9.]+(e[-+]?[0-9]+)?(,[0-9.]+e-?[0-9]+)?", text.strip())
        hint = f" (did you mean total:{text.strip()}?)" if bare else ""
        raise not_allowed("budget", text, f"total:E[,D] or per-release:E[,D]{hint}")
    try:
        values = [float(part) for part in parts]
    except ValueError:
        raise not_allowed("budget", text, "per-release:E[,D] or total:E[,D] in numbers") from None
    return Budget(
        "total" if scope == "total" else "per-release",
        values[0],
        values[1] if len(values) == 2 else None,
    )


def noise_multiplier(
    budget: Budget,
    mechanism: str,
    sensitivity: str,
    releases: int,
    delta: float,
    source: str = "simulated",
) -> float:
    """Return scale / sensitivity for one release.

    Parameters
    ----------
    mechanism : {'laplace', 'gaussian', 'knorm', 'staircase', 'staircase-number'}
    sensitivity : {'proven', 'published'}
        ``paper`` uses the classical Gaussian per release.
    releases : int
        Planned number for a zone; matters for totals.
    delta : float
        Of one Gaussian release, where the budget states none.
    """
    if mechanism not in BUILT_IN:
        return _registered(budget, mechanism, releases, delta)
    if source == "secure" and mechanism == "gaussian":  # a margin for the grid of discrete noise
        plain = noise_multiplier(budget, mechanism, sensitivity, releases, delta)
        return plain * (1.0 + 2.0 * SMOOTHED)
    if budget.scope == "total" and source == "secure" and budget.delta:
        return pure_multiplier("pure", budget.epsilon, budget.delta, releases)
    if budget.scope == "total" and mechanism.startswith("staircase"):
        dimension = 2 if mechanism == "staircase" else 1
        delta = budget.delta or 0.0
        return pure_multiplier("staircase", budget.epsilon, delta, releases, dimension)
    if budget.scope == "total":
        total = budget.epsilon, budget.delta or 0.0, releases
        gaussian = mechanism == "gaussian"
        return gaussian_multiplier(*total) if gaussian else pure_multiplier("laplace", *total)
    if mechanism != "gaussian":  # at a multiplier m all the others cost 1/m
        return 1.0 / budget.epsilon
    if sensitivity == "published":
        return classical_gaussian_multiplier(budget.epsilon, budget.delta or delta)
    return gaussian_multiplier(budget.epsilon, budget.delta or delta, 1)


BUILT_IN = ("laplace", "gaussian", "knorm", "staircase", "staircase-number")


def _registered(budget: Budget, mechanism: str, releases: int, delta: float) -> float:
    """Return the multiplier of a mechanism from outside the package."""
    from gridpriv.privacy.plugins import registered_multiplier

    if budget.scope == "total":
        return registered_multiplier(mechanism, budget.epsilon, budget.delta or 0.0, releases)
    return registered_multiplier(mechanism, budget.epsilon, budget.delta or delta, 1)

"""When two demand vectors count as neighbours."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gridpriv.core.errors import not_allowed, one_of

Protects = Literal["p+q", "p", "q"]
PROTECTS: tuple[Protects, ...] = ("p+q", "p", "q")


@dataclass(frozen=True)
class DemandAdjacency:
    """One bus of one zone changes its active and reactive demand by at most ``beta`` each.

    Attributes
    ----------
    beta : float
        Per unit.
    protects : {'p+q', 'p', 'q'}
        Which of the bus's demands may change.
    """

    beta: float
    protects: Protects = "p+q"

    def __post_init__(self) -> None:
        if not (np.isfinite(self.beta) and self.beta > 0):
            raise not_allowed("beta", self.beta, "a positive number (per unit, or such as 1MW)")
        one_of("protects", self.protects, PROTECTS)

    def __str__(self) -> str:
        kind = {"p+q": "active and reactive", "p": "active", "q": "reactive"}[self.protects]
        return f"one bus of one zone changes its {kind} demand by at most {self.beta:g} p.u."


def parse_beta(text: str, base_mva: float) -> float:
    """Return beta in per unit from ``0.01`` (per unit), ``1MW``, ``500kW`` or ``2MVAr``."""
    match = re.fullmatch(r"\s*([-+.\deE]+?)\s*(kw|mw|gw|kvar|mvar|mva)?\s*", text, re.IGNORECASE)
    try:
        number = float(match.group(1)) if match else float("nan")
    except ValueError:
        number = float("nan")
    unit = (match.group(2) or "").lower() if match else ""
    mega = {"k": 1e-3, "m": 1.0, "g": 1e3}.get(unit[:1])
    beta = number if mega is None else number * mega / base_mva
    if not (np.isfinite(beta) and beta > 0):
        raise not_allowed("beta", text, "a positive number in per unit, or with kW, MW or MVAr")
    return beta

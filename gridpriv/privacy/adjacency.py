"""When two demand vectors count as neighbours."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gridpriv.core.errors import InputError, not_allowed, one_of
from gridpriv.core.settings import shortest

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


BETA = "a positive number in per unit, or with kW, MW or MVAr"
UNITS_MVA = {"kw": 1e-3, "mw": 1.0, "gw": 1e3, "kvar": 1e-3, "mvar": 1.0, "mva": 1.0}


@dataclass(frozen=True)
class Beta:
    """Adjacency distance as it was stated: per unit, or with a unit.

    Attributes
    ----------
    value : float
    unit : str
        kW, MW, GW, kVAr, MVAr or MVA; empty for per unit.
    """

    value: float
    unit: str = ""

    def __post_init__(self) -> None:
        known = not self.unit or self.unit.lower() in UNITS_MVA
        if not (known and np.isfinite(self.value) and self.value > 0):
            raise not_allowed("beta", str(self), BETA)

    def __str__(self) -> str:
        return f"{shortest(self.value)}{self.unit}"

    def per_unit(self, base_mva: float) -> float:
        """Return the distance in per unit of a base."""
        if not self.unit:
            return self.value
        return self.value * UNITS_MVA[self.unit.lower()] / base_mva


def parse_beta(text: str) -> Beta:
    """Return the distance of ``0.01`` (per unit), ``1MW``, ``500kW`` or ``2MVAr``."""
    match = re.fullmatch(rf"([^a-df-z]+?)\s*({'|'.join(UNITS_MVA)})?", text.strip(), re.IGNORECASE)
    try:
        return Beta(float(match[1]), match[2] or "") if match else Beta(math.nan)
    except (ValueError, InputError):
        raise not_allowed("beta", text, BETA) from None

"""When two sets of data count as neighbours."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from gridpriv.core.errors import InputError, not_allowed, one_of
from gridpriv.core.settings import shortest

Protects = Literal["p+q", "p", "q"]
PROTECTS: tuple[Protects, ...] = ("p+q", "p", "q")


SAME = 1e-9  # distances that agree to nine digits are the same
LEAST_BETA, MOST_BETA = 1e-9, 1e6  # p.u.; no meter sees less, no grid has more


@dataclass(frozen=True)
class Move:
    """How far one figure of a unit may move between neighbours: at most ``most``, or anyhow."""

    figure: str
    most: float
    measure: str

    def __str__(self) -> str:
        if math.isinf(self.most):
            return f"its {self.figure} in any way {self.measure}"
        return f"its {self.figure} by {self.most:.6g} {self.measure}"


@dataclass(frozen=True)
class Protection:
    """What differs between neighbours, in figures that can be compared: one unit, in a box.

    Attributes
    ----------
    unit, units : str
        What a unit of the data is called, one and many (``bus``, ``buses``).
    moves : tuple of Move
        Each figure of one unit moves within its bound, the other units and figures do not.
    """

    unit: str
    units: str
    moves: tuple[Move, ...]

    def __str__(self) -> str:
        bounded = any(math.isfinite(move.most) for move in self.moves)
        moves = " and ".join(map(str, self.moves))
        return f"one {self.unit} changes {moves}" + (" at most" if bounded else "")

    def factor(self, stated: Protection) -> float:
        """Return how many times as far these neighbours lie apart as those of a release.

        Parameters
        ----------
        stated : Protection
            Under which the release's sensitivity D is stated.

        Returns
        -------
        float
            f, at least 1: between these neighbours the release moves by at most f D. Neighbours
            here that lie within the stated bounds are neighbours there (f = 1).
            Others leave them by a factor f at most, and every sensitivity is at most f times as
            large there: it is a norm of a linear map of the move, or that plus a constant. Below
            1 nothing is gained, because of the constant.

        Raises
        ------
        InputError
            If another unit, or not all of these figures, were protected by the release.
        """
        bounds = {move.figure: move for move in stated.moves}
        apart = [1.0]
        for move in self.moves:
            bound = bounds.get(move.figure)
            if stated.unit != self.unit or bound is None or bound.measure != move.measure:
                raise InputError(f"granted for: {self}; the run is for: {stated}")
            if math.isfinite(bound.most):
                apart.append(move.most / bound.most)
        most = max(apart)
        return 1.0 if math.isclose(most, 1.0, rel_tol=SAME) else most


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
        if not LEAST_BETA <= self.beta <= MOST_BETA:
            allowed = f"{LEAST_BETA:g} to {MOST_BETA:g} p.u. (or such as 1MW)"
            raise not_allowed("beta", self.beta, allowed)
        one_of("protects", self.protects, PROTECTS)

    def __str__(self) -> str:
        kind = {"p+q": "active and reactive", "p": "active", "q": "reactive"}[self.protects]
        return f"one bus of one zone changes its {kind} demand by at most {self.beta:g} p.u."

    def scaled(self, scale: float) -> DemandAdjacency:
        """Return how far demand moves that is a multiple of its owner's (never less than)."""
        return replace(self, beta=max(scale * self.beta, LEAST_BETA))

    def protection(self, base_mva: float) -> Protection:
        """Return the same in MW and MVAr."""
        most = self.beta * base_mva
        moves = {"p": Move("active demand", most, "MW"), "q": Move("reactive demand", most, "MVAr")}
        return Protection("bus", "buses", tuple(moves[kind] for kind in self.protects.split("+")))


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
    """Return the distance of ``0.01`` (per unit), ``1MW``, ``500kW`` or ``2MVAr``.

    >>> parse_beta("500kW").per_unit(base_mva=100.0)
    0.005
    """
    match = re.fullmatch(rf"([^a-df-z]+?)\s*({'|'.join(UNITS_MVA)})?", text.strip(), re.IGNORECASE)
    try:
        return Beta(float(match[1]), match[2] or "") if match else Beta(math.nan)
    except (ValueError, InputError):
        raise not_allowed("beta", text, BETA) from None

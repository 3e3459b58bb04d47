"""Adjacency of data sets: the changes of one unit that must stay hidden."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError, check_choice, not_allowed
from gridpriv.core.settings import shortest

Protects = Literal["p+q", "p", "q"]
PROTECTS: tuple[Protects, ...] = ("p+q", "p", "q")


SAME = 1e-9  # distances that agree to nine digits are the same
LEAST_BETA, MOST_BETA = 1e-9, 1e6  # p.u.; below the resolution of meters, above the demand of grids


@dataclass(frozen=True)
class Move:
    """Largest change of one value of a unit between adjacent data: ``most``, or unbounded."""

    figure: str
    most: float
    measure: str

    def __str__(self) -> str:
        if math.isinf(self.most):
            return f"{self.figure} {self.measure}"
        return f"{self.figure} by at most {self.most:.6g} {self.measure}"


@dataclass(frozen=True)
class Protection:
    """Difference of adjacent data in comparable values: one unit, in a box.

    Attributes
    ----------
    unit, units : str
        Name of a unit of the data, singular and plural (``bus``, ``buses``).
    moves : tuple of Move
        Each of these values of one unit changes within its bound; all others stay the same.
    """

    unit: str
    units: str
    moves: tuple[Move, ...]

    def __str__(self) -> str:
        return f"any change of one {self.unit}'s {' and '.join(map(str, self.moves))}"

    def factor(self, stated: Protection) -> float:
        """Return the ratio of this adjacency distance to that of a release.

        Parameters
        ----------
        stated : Protection
            Under which the release's sensitivity D is stated.

        Returns
        -------
        float
            f, at least 1: between data that are adjacent here the release changes by at most f D.
            Within the stated bounds f = 1. Otherwise changes exceed these bounds by a factor of at
            most f, and so does every sensitivity: it is a norm of a linear map of the change, or
            that plus a constant. Because of the constant f is not below 1.

        Raises
        ------
        InputError
            If the release protected another unit, or not all of these values.
        """
        bounds = {move.figure: move for move in stated.moves}
        factors = [1.0]
        for move in self.moves:
            bound = bounds.get(move.figure)
            if stated.unit != self.unit or bound is None or bound.measure != move.measure:
                raise InputError(f"granted for: {self}; the run is for: {stated}")
            if math.isfinite(bound.most):
                factors.append(move.most / bound.most)
        most = max(factors)
        return 1.0 if math.isclose(most, 1.0, rel_tol=SAME) else most


@dataclass(frozen=True)
class PowerFactors:
    """Public range of power factors of a change of demand: dq = t dp, low <= t <= high.

    Those changes with |dp| <= beta make two triangles; their convex hull is the parallelogram |dp|
    <= beta, |dq - middle dp| <= half beta. In the coordinates

        p' = p,    q' = (q - middle p) / half

    it is the box of beta: a proof for pairs (p, q) with changes in the box applies to (p', q') with
    changes in the parallelogram. The release is of p' and q'.

    Attributes
    ----------
    first, last : float
        Power factors between -1 and 1, none nearly 0; negative where the load is capacitive
        (leading). The middle of a band has nine digits, so bands as narrow as that are refused:
        they could not be distinguished.
    """

    first: float
    last: float

    def __post_init__(self) -> None:
        ends = (self.first, self.last)
        if not all(LEAST_FACTOR <= abs(end) <= 1.0 for end in ends) or self.half < LEAST_HALF:
            raise not_allowed("power_factor", str(self), POWER_FACTOR)

    def __str__(self) -> str:
        return f"{shortest(self.first)}..{shortest(self.last)}"

    @property
    def _ends(self) -> tuple[float, float]:
        ends = (self.first, self.last)
        low, high = sorted(math.copysign(math.sqrt(1.0 / end**2 - 1.0), end) for end in ends)
        return low, high

    @property
    def middle(self) -> float:
        """Reactive change per active change in the middle of the band."""
        return sum(self._ends) / 2.0

    @property
    def half(self) -> float:
        """Half the band's width."""
        low, high = self._ends
        return (high - low) / 2.0

    @property
    def shear(self) -> Floats:
        """(p', q') of (p, q), shape (2, 2)."""
        return np.array([[1.0, 0.0], [-self.middle / self.half, 1.0 / self.half]])

    def holds(self, p: float, q: float) -> bool:
        """Return True where a demand has one of the power factors."""
        low, high = sorted(t * p for t in self._ends)
        room = SAME * max(abs(p), abs(q))
        return low - room <= q <= high + room


LEAST_FACTOR = 0.01
LEAST_HALF = 1e-3  # of reactive demand per active demand
POWER_FACTOR = (
    "A..B, such as 0.9..1: two power factors that differ, each from 0.01 to 1, negative if "
    "leading, with tangents at least 0.002 apart"
)


def parse_power_factors(text: str) -> PowerFactors:
    """Return the band of ``0.9..1``, or of ``-0.98..0.9`` from leading to lagging.

    >>> round(parse_power_factors("0.9..1").middle, 4)
    0.2422
    """
    try:
        first, last = map(float, text.split(".."))
        return PowerFactors(first, last)
    except ValueError:
        raise not_allowed("power_factor", text, POWER_FACTOR) from None


@dataclass(frozen=True)
class DemandAdjacency:
    """One bus of one zone changes its active and reactive demand by at most ``beta`` each.

    Attributes
    ----------
    beta : float
        Per unit.
    protects : {'p+q', 'p', 'q'}
        Which of the bus's demands may change.
    power_factors : PowerFactors or None
        At which both change; None for any.
    """

    beta: float
    protects: Protects = "p+q"
    power_factors: PowerFactors | None = None

    def __post_init__(self) -> None:
        if not 0.0 < self.beta < math.inf:
            raise not_allowed("beta", self.beta, "a positive number of p.u.")
        check_choice("protects", self.protects, PROTECTS)
        if self.power_factors is not None and self.protects != "p+q":
            raise not_allowed("protects", self.protects, "p+q, with power factors of both")

    def __str__(self) -> str:
        if self.power_factors is not None:
            return str(self.protection(1.0)).replace("MW", "p.u.").replace("MVAr", "p.u.")
        kind = {"p+q": "active and reactive", "p": "active", "q": "reactive"}[self.protects]
        return f"any change of one bus's {kind} demand by at most {self.beta:g} p.u."

    def scaled(self, scale: float) -> DemandAdjacency:
        """Return the adjacency of ``scale`` times the owner's demand; beta has a lower bound."""
        return replace(self, beta=max(scale * self.beta, LEAST_BETA))

    def protection(self, base_mva: float) -> Protection:
        """Return the same in MW and MVAr."""
        most = self.beta * base_mva
        moves = {"p": Move("active demand", most, "MW"), "q": Move("reactive demand", most, "MVAr")}
        if self.power_factors is not None:
            middle, half = self.power_factors.middle, self.power_factors.half
            text = f"reactive demand less {middle:.9g} times its active demand"
            moves["q"] = Move(text, half * most, "MVAr")
        return Protection("bus", "buses", tuple(moves[kind] for kind in self.protects.split("+")))


BETA = "a positive number in per unit, or with kW, MW, GW, kVAr or MVAr"
UNITS_MVA = {"kw": 1e-3, "mw": 1.0, "gw": 1e3, "kvar": 1e-3, "mvar": 1.0}


@dataclass(frozen=True)
class Beta:
    """Adjacency distance as given: per unit, or with a unit.

    Attributes
    ----------
    unit : str
        kW, MW, GW, kVAr or MVAr; empty for per unit.
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

    def distance(self, base_mva: float) -> float:
        """Return the distance in per unit; refuse values outside the range of grids."""
        per_unit = self.per_unit(base_mva)
        if LEAST_BETA * (1.0 - SAME) <= per_unit <= MOST_BETA * (1.0 + SAME):
            return per_unit
        if not self.unit:
            allowed = f"{LEAST_BETA:g} to {MOST_BETA:g} p.u. (or such as 1MW)"
            raise not_allowed("beta", self.value, allowed)
        item = Beta(1.0, self.unit).per_unit(base_mva)
        bounds = f"{LEAST_BETA / item:g} to {MOST_BETA / item:g} {self.unit}"
        raise not_allowed("beta", str(self), f"{bounds} on a base of {base_mva:g} MVA")


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

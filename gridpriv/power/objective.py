"""Objectives of a zone: squared imbalance, or cost or losses with penalized imbalance; prices.

    imbalance   f(z; d) = ||B z + d||^2                                    (RK (D.2a))
    cost        f(z; d) = C(pg) / c0 + M ||B z + d||^2
    losses      f(z; d) = 1'pg + M ||B z + d||^2

C is in $/h. It is divided by c0, the case's typical marginal cost in $/h per p.u., so a unit of
generation costs about 1, like a unit of flow in a penalty. The balance is a penalty, not a
constraint, so the feasible set does not depend on demand (every sensitivity relies on that); with M
to infinity it is the SOC relaxation of AC-OPF. At price pi a bus is short by pi / (2 M) p.u., so
with prices of about one unit the minimum of n buses is below that of M = infinity by about
n / (4 M) units, and C alone by twice that: 0.034 % on case14 and 0.017 % on case118 at the default
M. Generation beyond a given demand is lost, so in cases without costs the least generation has the
least losses.

c0 and C are public data of the case. The module also has the value of lost load and the price of
balancing power.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gridpriv.core.arrays import Floats, Ints
from gridpriv.core.errors import InputError, check_choice, not_allowed, positive, warn
from gridpriv.core.settings import Part, choice, number
from gridpriv.grid.case import PIECEWISE, Case, GenCost

ObjectiveKind = Literal["imbalance", "cost", "losses"]
OBJECTIVES: tuple[ObjectiveKind, ...] = ("imbalance", "cost", "losses")
RELAXED_OBJECTIVES: tuple[ObjectiveKind, ...] = ("imbalance", "cost")
"""Weight in the relaxation of a whole grid."""
AcObjective = Literal["cost", "shed", "losses"]
AC_OBJECTIVES: tuple[AcObjective, ...] = ("cost", "shed", "losses")
COST_WEIGHT = 1e4
BASE_MVA = 100.0
SLOPE_TOLERANCE = 2e-5
"""Share of the largest slope by which a slope may fall: breakpoints are printed with few digits
(case_RTS_GMLC with five: 8.4e-6). The cost is then the largest of the lines."""


@dataclass(frozen=True)
class Objective:
    """f of every zone.

    Attributes
    ----------
    kind : {'imbalance', 'cost', 'losses'}
    weight : float
        M, of the squared imbalance in p.u. squared.
    cost_unit : float
        c0 in $/h per p.u.; 1 where there is no cost.
    """

    kind: ObjectiveKind = "imbalance"
    weight: float = 1.0
    cost_unit: float = 1.0

    def __post_init__(self) -> None:
        check_choice("objective", self.kind, OBJECTIVES)
        positive("imbalance_weight", self.weight)


IMBALANCE = Objective()


def cost_objective(case: Case, weight: float | None = None) -> Objective:
    """Return the objective ``cost`` of a case; M is by default 1e4 on a base of 100 MVA.

    Raises
    ------
    InputError
        Where the case has no costs, or a cost that is not convex (naming the generator's row).
    """
    if not case.cost:
        allowed = f"'losses', 'imbalance' or left out: case {case.name} states no generation costs"
        raise not_allowed("objective", "cost", allowed)
    for g, cost in enumerate(case.cost):
        _check_convex(case, g, cost)
    return Objective("cost", weight or _usual_weight(case), cost_unit(case))


def losses_objective(case: Case, weight: float | None = None) -> Objective:
    """Return the objective ``losses`` of a case; M is by default that of ``cost``."""
    return Objective("losses", weight or _usual_weight(case))


def _usual_weight(case: Case) -> float:
    return COST_WEIGHT * case.base_mva / BASE_MVA  # the same bound on any base


def has_convex_costs(case: Case) -> bool:
    """Return True where a case has convex generation costs."""
    try:
        cost_objective(case)
    except InputError:
        return False
    return True


LARGEST_VOLTAGE_WEIGHT = 10.0


def penalty_units(case: Case, objective: Objective, flows: NDArray[np.bool_], zones: int) -> Floats:
    """Return rho of coupling variables per unit of rho on a base of 100 MVA.

    A flow f on base S is f S/100 on 100 MVA, and a voltage product does not change. The squared
    imbalance scales with (S/100)^2, so rho is 1 for flows and (100/S)^2 for voltages; cost and
    losses scale with S/100, so rho is S/100 for flows and 100/S for voltages.

    Voltage products have a larger weight with many zones: no objective determines voltage levels,
    so with equal weights they converge last (docs/decisions/0017-acceleration.md).

    Parameters
    ----------
    flows : (K,) bool
        True for variables that are flows.
    zones : int
        Number of zones.
    """
    ratio, weight = BASE_MVA / case.base_mva, float(np.clip(zones / 3, 1, LARGEST_VOLTAGE_WEIGHT))
    if objective.kind == "imbalance":
        return np.where(flows, 1.0, weight * ratio**2)
    return np.where(flows, 1.0 / ratio, weight * ratio)


def cost_unit(case: Case) -> float:
    """Return c0: the capacity-weighted mean marginal cost at half output, $/h per p.u."""
    room = np.where(np.isfinite(case.pmax), np.maximum(case.pmax, 0.0), 0.0)
    each = np.array(
        [abs(marginal_cost(c, case.base_mva, p)) for c, p in zip(case.cost, room / 2, strict=True)]
    )
    mean = float(room @ each / room.sum()) if room.sum() > 0 else float(each.mean())
    return mean if mean > 0 else 1.0


def marginal_cost(cost: GenCost, base_mva: float, p: float) -> float:
    """Return dC/dp at p (p.u.), in $/h per p.u."""
    if cost.model == PIECEWISE:
        slopes, intercepts = piecewise_lines(cost, base_mva)
        return float(slopes[np.argmax(slopes * p + intercepts)])
    derivative = np.polyder(np.array(per_unit_polynomial(cost, base_mva)))
    return float(np.polyval(derivative, p))


def marginal_segments(
    cost: GenCost, base_mva: float, low: float, high: float
) -> list[tuple[float, float, float]]:
    """Return parts of a range in which dC/dp is linear: width, and dC/dp at both ends."""
    edges = np.array([low, high])
    if cost.model == PIECEWISE:
        edges = np.unique(np.clip([low, high, *np.array(cost.values[::2]) / base_mva], low, high))
        slopes = [marginal_cost(cost, base_mva, p) for p in (edges[:-1] + edges[1:]) / 2]
        return list(zip(np.diff(edges).tolist(), slopes, slopes, strict=True))
    first, last = (marginal_cost(cost, base_mva, p) for p in edges.tolist())
    return [(high - low, first, last)]


def per_unit_polynomial(cost: GenCost, base_mva: float) -> tuple[float, float, float]:
    """Return (c2, c1, c0) of a polynomial cost in $/h, for output in per unit."""
    values = (0.0, 0.0, *cost.values)
    return values[-3] * base_mva**2, values[-2] * base_mva, values[-1]


def piecewise_lines(cost: GenCost, base_mva: float) -> tuple[Floats, Floats]:
    """Return slopes ($/h per p.u.) and intercepts ($/h) of a convex piecewise linear cost."""
    points = np.array(cost.values, dtype=float).reshape(-1, 2)
    p, dollars = points[:, 0] / base_mva, points[:, 1]
    slopes = np.diff(dollars) / np.diff(p)
    return slopes, dollars[:-1] - slopes * p[:-1]


def generation_cost(case: Case, pg: Floats) -> float | None:
    """Return C(pg) in $/h for the output (p.u.) of every generator; None without costs."""
    if not case.cost:
        return None
    return float(sum(cost_at(c, case.base_mva, p) for c, p in zip(case.cost, pg, strict=True)))


def fixed_cost(case: Case, gens: Ints) -> float:
    """Return the constants of some generators' polynomial costs in $/h."""
    costs = [case.cost[g] for g in gens.tolist()]
    fixed = [per_unit_polynomial(c, case.base_mva)[2] for c in costs if c.model != PIECEWISE]
    return float(sum(fixed))


def cost_at(cost: GenCost, base_mva: float, p: float) -> float:
    """Return a generator's cost in $/h at output p (p.u.)."""
    if cost.model == PIECEWISE:
        slopes, intercepts = piecewise_lines(cost, base_mva)
        return float((slopes * p + intercepts).max())
    return float(np.polyval(per_unit_polynomial(cost, base_mva), p))


def _check_convex(case: Case, g: int, cost: GenCost) -> None:
    row = f"case {case.name}: gencost of gen row {case.gen_row[g]}"
    if cost.model == PIECEWISE:
        points = np.array(cost.values, dtype=float)
        if len(points) < 4 or len(points) % 2 or (np.diff(points[::2]) <= 0).any():
            raise InputError(f"{row} = {cost.values}: breakpoints must increase, two or more")
        slopes, _ = piecewise_lines(cost, case.base_mva)
        if (np.diff(slopes) < -SLOPE_TOLERANCE * np.abs(slopes).max()).any():
            raise InputError(f"{row} = {cost.values}: slopes must not fall (a convex cost)")
        return
    if any(cost.values[:-3]):
        raise InputError(f"{row} = {cost.values}: a polynomial of degree 2 at most is allowed")
    if len(cost.values) > 2 and cost.values[-3] < 0:
        raise InputError(f"{row} = {cost.values}: the quadratic coefficient must not be negative")


VOLL = 10_000.0
BALANCING_PRICE = 1_000.0
HOLDS = ("interchange",)


@dataclass(frozen=True, kw_only=True)
class Service(Part):
    """Prices of load shedding and of balancing power, and the rule of balancing."""

    voll: float = number(VOLL, "value of lost load", positive, unit="$/MWh")
    balancing_price: float = number(
        BALANCING_PRICE,
        "price of a zone's deviation from its scheduled interchange in its redispatch; "
        "balancing_cost (no part of costs) is this price times balancing power",
        positive,
        unit="$/MWh",
    )
    hold: str | None = choice(
        None,
        HOLDS,
        "interchange (the only choice): reserve generation to keep it as scheduled; the run states "
        "the probability of a shortfall",
        unset="none: a zone deviates where its generation or a branch is at a limit",
    )

    def agree(self) -> None:
        """Refuse a balancing price at which a zone sheds load before it draws balancing power."""
        super().agree()
        price, voll = self.balancing_price, self.voll
        if price >= voll:
            why = "$/MWh; otherwise a zone sheds load before it draws balancing power"
            if voll == VOLL:  # the default: the given value is the other
                raise not_allowed("balancing_price", price, f"below voll = {voll:g} {why}")
            raise not_allowed("voll", voll, f"above balancing_price = {price:g} {why}")


def check_voll(case: Case, voll: float) -> None:
    """Refuse a value of lost load below the marginal cost of a generator.

    Raises
    ------
    InputError
        Where ``voll`` is not above the marginal cost of every generator at its full output.
    """
    positive("voll", voll)
    marginal, costliest = _costliest(case)
    if voll <= marginal:
        raise not_allowed("voll", voll, f"above every generator's marginal cost; {costliest}")


def check_service(case: Case, service: Service) -> None:
    """Refuse a value of lost load that is too low (:func:`check_voll`).

    Warns
    -----
    GridprivWarning
        Where the balancing price is below a generator's cost, so that zones use balancing power
        first.
    """
    check_voll(case, service.voll)
    marginal, costliest = _costliest(case)
    if service.balancing_price <= marginal:
        warn(
            f"balancing_price = {service.balancing_price:g} $/MWh is below a generator's cost: "
            f"{costliest}; zones draw balancing power before they use it"
        )


def _costliest(case: Case) -> tuple[float, str]:
    """Return the largest marginal cost at full output in $/MWh, and its generator."""
    if not case.cost:
        return 0.0, ""
    most = np.where(np.isfinite(case.pmax), case.pmax, np.maximum(case.pg, 0.0))
    marginal = [
        marginal_cost(cost, case.base_mva, float(p)) / case.base_mva
        for cost, p in zip(case.cost, most, strict=True)
    ]
    g = int(np.argmax(marginal))
    return marginal[g], f"gen row {case.gen_row[g]} costs up to {marginal[g]:.6g} $/MWh"

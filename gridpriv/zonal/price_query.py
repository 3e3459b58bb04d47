r"""One priced query of demand, which keeps the optimal cost of a published case near the true one.

The value function of an AC optimum has no proven Lipschitz bound: it is not convex, and a solver
returns a local optimum. So the optimal cost itself is not released. What is released is linear,

    y = lambda_p' p + lambda_q' q + Laplace noise,      in $/h,

with lambda the prices (multipliers of the balances) of the AC optimum at the demand that was
released before: to first order y is the optimal cost but for a public constant. The prices are a
function of releases and public data, so y is one more release of known sensitivity.

Sensitivity. One bus i moves by (dp, dq). With |dp|, |dq| <= beta the value moves by
lambda_pi dp + lambda_qi dq, at most

    D = beta max_i (|lambda_pi| + |lambda_qi|),

attained at a corner of the box; with p or q alone the other term is left out. Prices are clipped at
a public cap, so that D stays bounded where a limit can hardly be kept.

Under secure noise demand is put on the grid of :mod:`gridpriv.privacy.strategies.disclosure` and
the sum is rational: a demand moves by beta + g at most, and the one rounding at the end is within
2^-53 2^18 = 4 g / 2 of the largest price on each side, 5 g / beta of D in all; 8 g / beta are
charged.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import not_allowed
from gridpriv.grid.case import Case
from gridpriv.power.ac.optimum import AcOptimum
from gridpriv.power.objective import has_convex_costs, marginal_cost
from gridpriv.privacy.adjacency import DemandAdjacency
from gridpriv.privacy.mechanism import MECHANISMS, make_mechanism
from gridpriv.privacy.release import Release
from gridpriv.privacy.sensitivity import Sensitivity
from gridpriv.privacy.strategies.disclosure import on_grid, with_rounding

CAP = 2.0
"""Largest price over the largest marginal cost of a generator."""
LEAST = 1e-9
"""Least sensitivity, $/h per unit: noise needs a scale."""


@dataclass(frozen=True, eq=False)
class PriceQuery:
    """Prices at released demand, and the release of priced demand.

    Attributes
    ----------
    prices : (2, n)
        Of active and reactive demand, $/h per unit.
    release : Release
        Of one number, in $/h.
    exact : bool
        Sum without rounding errors, as secure noise needs.
    """

    prices: Floats
    release: Release
    exact: bool = False

    def value(self, demand: Floats) -> float:
        """Return the priced demand in $/h; ``demand`` is (2, n), per unit."""
        if not self.exact:
            return float((self.prices * demand).sum())
        pairs = zip(self.prices.ravel().tolist(), on_grid(demand).ravel().tolist(), strict=True)
        return float(sum(Fraction(price) * Fraction(pair) for price, pair in pairs))


def check_priced(case: Case) -> None:
    """Refuse a case without convex costs: it has no prices.

    Raises
    ------
    InputError
        Before anything is drawn.
    """
    if not has_convex_costs(case):
        raise not_allowed(
            "fidelity",
            "cost",
            f"left out: case {case.name} has no convex generation costs, hence no prices",
        )


def price_query(
    optimum: AcOptimum, adjacency: DemandAdjacency, epsilon: float, source: str
) -> PriceQuery:
    """Return the priced query at the prices of a published optimum.

    Parameters
    ----------
    optimum : AcOptimum
        Of released demand.
    epsilon : float
        Pure, of this query alone.
    source : {'simulated', 'secure'}
    """
    case = optimum.state.case
    cap = CAP * _largest_marginal_cost(case)
    prices = case.base_mva * np.nan_to_num(np.stack([optimum.p_price, optimum.q_price]))
    prices = np.clip(prices, -cap, cap)
    distance, exact = adjacency.beta * _dearest(prices, adjacency), source == "secure"
    rounded = adjacency.beta if exact else None
    return PriceQuery(prices, numeric_release(distance, epsilon, source, rounded), exact)


def numeric_release(
    distance: float, epsilon: float, source: str, rounded: float | None = None
) -> Release:
    """Return the release of one number of a sensitivity, at a pure epsilon.

    Parameters
    ----------
    rounded : float, optional
        beta, where the rounding of demand to its grid is charged.
    """
    sensitivity = Sensitivity(distance, 1, "one bus moves by beta, at its published prices")
    if rounded is not None:
        sensitivity = with_rounding(sensitivity, rounded)
        distance = sensitivity.value
    mechanism = make_mechanism(MECHANISMS["laplace", source], distance / epsilon, distance)
    return Release(mechanism, sensitivity, distance)


def _largest_marginal_cost(case: Case) -> float:
    """Return the largest marginal cost of a generator at a limit, $/h per unit (public)."""
    ends = np.nan_to_num(np.stack([case.pmin, case.pmax]), posinf=0.0, neginf=0.0)
    return max(
        abs(marginal_cost(cost, case.base_mva, float(p)))
        for cost, pair in zip(case.cost, ends.T, strict=True)
        for p in pair
    )


def _dearest(prices: Floats, adjacency: DemandAdjacency) -> float:
    """Return the largest change of the priced demand by one bus, for beta = 1."""
    active, reactive = prices
    moved = ("p" in adjacency.protects) * np.abs(active)
    moved += ("q" in adjacency.protects) * np.abs(reactive)
    return max(float(moved.max()), LEAST)

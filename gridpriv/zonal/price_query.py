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
"""

from __future__ import annotations

from dataclasses import dataclass

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
    """

    prices: Floats
    release: Release

    def value(self, demand: Floats) -> float:
        """Return the priced demand in $/h; ``demand`` is (2, n), per unit."""
        return float((self.prices * demand).sum())


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
    return PriceQuery(
        prices, numeric_release(adjacency.beta * _dearest(prices, adjacency), epsilon, source)
    )


def numeric_release(distance: float, epsilon: float, source: str) -> Release:
    """Return the release of one number of a sensitivity, at a pure epsilon."""
    sensitivity = Sensitivity(distance, 1, "one bus moves by beta, at its published prices")
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

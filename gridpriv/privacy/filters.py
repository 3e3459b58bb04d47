"""Privacy filters: rules by which a ledger refuses a charge, for adaptively chosen releases.

A data owner may choose the noise of the next run after reading earlier releases. The parameters of
the charges are then adaptive. A stop where the PLD total of all charges would exceed the grant
proves nothing: that "natural" filter fails in general (arXiv 2602.06756 and 2602.15815, 2026).
These filters keep a grant (epsilon, delta):

- :class:`PureFilter`: the sum of pure epsilons stays at most epsilon (Rogers, Roth, Ullman and
  Vadhan 2016: basic composition is a valid filter). The only one when delta is 0.
- :class:`RenyiFilter`: at one order, fixed before the first charge, the sum of the releases' Renyi
  divergences stays within what converts to (epsilon, delta) (Feldman and Zrnic 2021, Lecuyer 2021;
  the conversion is Canonne, Kamath and Steinke 2020, proposition 12). It admits any releases in any
  order and costs about 7 % of epsilon compared with PLD.
- :class:`PlannedFilter`: all releases were stated before the first charge, and their PLD total is
  within the grant. Only the order and the stopping are adaptive, which costs nothing (Vadhan and
  Zhang 2023, concurrent composition of f-DP mechanisms). It is exact, but for that plan only; it is
  used where the plan exceeds the Renyi filter. An (epsilon, delta) mechanism without additive noise
  has no finite Renyi divergence, so only a plan can compose such releases.

A grant's *rule*, Renyi or planned, is fixed before the first release of its owner, hence from
public data. The ledger admits a charge that the pure filter or the rule admits. That is sound at
the full delta: let L_t be the privacy loss after t charges, N the last charge, and N_1, N_2 the
last charges that the pure filter and the rule admit (a charge that is made although a filter
refuses it closes that filter: charges only add up). N is N^N_1 or N^N_2 (^:
the smaller), so

    E(1 - e^(epsilon-L_N))+ <= E(1 - e^(epsilon-L_{N^N_1}))+ + E(1 - e^(epsilon-L_{N^N_2}))+

which is at most 0 + delta. Interleaved runs are covered: filters hold under concurrent
composition (Haney et al. 2023).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import not_allowed
from gridpriv.privacy.accounting import Charges, check_delta, parts, total_epsilon, total_pure
from gridpriv.privacy.mechanism import Charge

SLACK = 1e-9  # compared to nine digits: sums of floats are rounded
CHARGED = ("laplace", "split-laplace", "gaussian", "staircase", "pure", "zcdp", "approximate")
ORDERS: Floats = 1.0 + np.geomspace(0.05, 1e6, 500)


class Rule(Protocol):
    """A filter in addition to the pure filter; ``str()`` returns its name."""

    def used(self, charges: Charges) -> float:
        """Return the share of the grant that the charges use; above 1 they exceed it."""
        ...


@dataclass(frozen=True)
class PureFilter:
    """The sum of pure epsilons, at most ``epsilon``."""

    epsilon: float

    def used(self, charges: Charges) -> float:
        """Return the share of epsilon; infinite with a charge that has no pure epsilon."""
        return total_pure(charges) / self.epsilon


@dataclass(frozen=True)
class RenyiFilter:
    """The sum of Renyi divergences of one order.

    Attributes
    ----------
    order : float
        alpha, above 1.
    capacity : float
        The divergence that converts to the grant.
    """

    order: float
    capacity: float

    def __str__(self) -> str:
        return f"a Renyi filter of order {self.order:.4g}"

    def used(self, charges: Charges) -> float:
        """Return the share of the capacity."""
        spent = math.fsum(n * divergence(charge, self.order) for charge, n in charges.items())
        return spent / self.capacity


@dataclass(frozen=True)
class PlannedFilter:
    """The releases of a plan only; parameters equal to nine digits are the same."""

    plan: tuple[tuple[Charge, int], ...]

    def __str__(self) -> str:
        entries = " and ".join(f"{n} of {c.kind} {c.parameter:.6g}" for c, n in self.plan)
        return f"the plan of its first run ({entries})"

    def used(self, charges: Charges) -> float:
        """Return the largest share of an entry of the plan; infinite outside the plan."""
        counts = dict.fromkeys(range(len(self.plan)), 0)
        for charge, count in charges.items():
            entry = self._entry(charge)
            if entry is None:
                return math.inf
            counts[entry] += count
        return max(counts[i] / planned for i, (_, planned) in enumerate(self.plan))

    def _entry(self, charge: Charge) -> int | None:
        for i, (planned, _) in enumerate(self.plan):
            equal = math.isclose(charge.parameter, planned.parameter, rel_tol=SLACK)
            if equal and replace(charge, parameter=planned.parameter) == planned:
                return i
        return None


@dataclass(frozen=True)
class GrantFilter:
    """Filter of a grant: the pure filter, and a rule where delta is positive."""

    epsilon: float
    rule: Rule | None

    def __str__(self) -> str:
        pure = "the sum of pure epsilons"
        return pure if self.rule is None else f"{pure} or {self.rule}"

    def used(self, charges: Charges) -> float:
        """Return the share of the grant that the charges use; they fit up to 1."""
        pure = PureFilter(self.epsilon).used(charges)
        return pure if self.rule is None else min(pure, self.rule.used(charges))

    def fits(self, charges: Charges) -> bool:
        """Return True where all charges together are within the grant."""
        return self.used(charges) <= 1.0 + SLACK

    def room(self, spent: Charges, item: Charges, most: int = 10**12) -> int:
        """Return the number of further charges ``one`` that fit after ``spent``, up to ``most``."""
        low, high = 0, 1
        while high < most and self.fits(combined(spent, item, high)):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (
                (middle, high) if self.fits(combined(spent, item, middle)) else (low, middle)
            )
        return low


def choose_rule(
    epsilon: float, delta: float, first: Charges, *, planned: bool = False
) -> Rule | None:
    """Return the rule of a grant, chosen by its first charges.

    Parameters
    ----------
    epsilon, delta : float
        The grant.
    first : Charges
        The first charges: the Renyi order admits most multiples of them.
    planned : bool
        ``first`` is all that will be charged: a :class:`PlannedFilter` is returned where it exceeds
        the other filters and its PLD total is within the grant.
    """
    if delta == 0.0:
        return None
    rule = renyi_filter(epsilon, delta, first)
    if not planned or GrantFilter(epsilon, rule).fits(first):
        return rule
    if total_epsilon(first, delta) <= epsilon * (1.0 + SLACK):
        return PlannedFilter(tuple(first.items()))
    return rule


def renyi_filter(epsilon: float, delta: float, first: Charges) -> RenyiFilter | None:
    """Return the filter of the order that admits most multiples of ``first``."""
    check_delta("delta", delta)
    capacity = _capacities(epsilon, delta)
    cost = np.sum([n * _divergences(charge) for charge, n in first.items()], axis=0)
    if not (capacity > 0).any():
        return None
    best = int(np.argmax(np.where(capacity > 0, capacity / cost, -np.inf)))
    return RenyiFilter(float(ORDERS[best]), float(capacity[best]))


@lru_cache(maxsize=64)
def _capacities(epsilon: float, delta: float) -> Floats:
    """Return the divergence that converts to (epsilon, delta), at each order.

    The conversion is epsilon = divergence + a constant of order and delta.
    """
    from dp_accounting.rdp.rdp_privacy_accountant import compute_epsilon

    high = 100.0  # a divergence at which no special case of the conversion applies
    constant = np.array([compute_epsilon([a], [high], delta)[0] - high for a in ORDERS])
    return epsilon - constant


@lru_cache(maxsize=4096)
def divergence(charge: Charge, order: float) -> float:
    """Return the Renyi divergence of one release at ``order``."""
    return float(_renyi(charge, [order])[0])


@lru_cache(maxsize=256)
def _divergences(charge: Charge) -> Floats:
    return _renyi(charge, ORDERS)


def _renyi(charge: Charge, orders: Any) -> Floats:
    """Return the Renyi divergences of a release, most of them by dp_accounting."""
    if charge.kind == "approximate":
        return np.full(len(orders), math.inf)
    if charge.kind == "split-laplace":
        first, second = (_renyi(part, orders) for part in parts(charge))
        return np.asarray(first + second)
    if charge.kind == "staircase":
        return _staircase_renyi(charge, np.asarray(orders, dtype=float))
    if charge.kind == "pure":
        return _pure_renyi(charge.parameter, np.asarray(orders, dtype=float))
    import dp_accounting
    from dp_accounting import rdp

    event: Any
    if charge.kind == "laplace":
        event = dp_accounting.LaplaceDpEvent(charge.parameter)
    elif charge.kind == "gaussian":
        event = dp_accounting.GaussianDpEvent(charge.parameter)
    else:
        event = dp_accounting.ZCDpEvent(charge.parameter)
    accountant = rdp.RdpAccountant(orders)
    accountant.compose(event)
    return np.asarray(accountant.rdp, dtype=float)


def _pure_renyi(epsilon: float, orders: Floats) -> Floats:
    """Return the Renyi divergences ln(cosh((a - 1/2) e) / cosh(e/2)) / (a - 1) of two responses.

    Randomized response dominates every purely private mechanism (Kairouz, Oh and Viswanath
    2015). The difference of the two cosh is computed as a product, which is exact for small e.
    """
    up, down = orders * epsilon, (orders - 1.0) * epsilon  # ln of 2 sinh(up/2) is up/2 + ...
    log = 0.5 * (up + down - epsilon) + np.log(np.expm1(-up) * np.expm1(-down))
    return np.asarray(np.logaddexp(0.0, log - math.log1p(math.exp(-epsilon))) / (orders - 1.0))


def _staircase_renyi(charge: Charge, orders: Floats) -> Floats:
    """Return the Renyi divergences of three losses: ln E exp((a - 1) L) / (a - 1)."""
    epsilon, full, powers = charge.parameter, charge.second, orders - 1.0
    zero = max(0.0, 1.0 - (1.0 + math.exp(-epsilon)) * full)
    up, down = math.log(full) + powers * epsilon, math.log(full) - epsilon - powers * epsilon
    unchanged = math.log(zero) if zero else -math.inf
    return np.asarray(np.logaddexp(np.logaddexp(up, down), unchanged) / powers)


def combined(charges: Charges, more: Charges, times: int = 1) -> dict[Charge, int]:
    """Return ``charges`` with ``more`` added ``times`` times."""
    total = dict(charges)
    for charge, count in more.items():
        total[charge] = total.get(charge, 0) + times * count
    return total


def check_charges(charges: Mapping[Charge, int]) -> None:
    """Raise :class:`InputError` for an invalid charge, or one that no filter can compose."""
    if not charges:
        raise not_allowed("charges", charges, "one release or more")
    for charge, count in charges.items():
        if charge.kind not in CHARGED:
            raise not_allowed("charge kind", charge.kind, ", ".join(CHARGED))
        if not (math.isfinite(charge.parameter) and charge.parameter > 0):
            raise not_allowed(f"{charge.kind} parameter", charge.parameter, "a positive number")
        if charge.kind == "staircase" and not (
            0.0 < charge.second <= 1.0 / (1.0 + math.exp(-charge.parameter)) + SLACK
        ):
            raise not_allowed("staircase chance", charge.second, "a chance of the whole loss")
        if charge.kind == "split-laplace" and not 0.5 <= charge.second < 1.0:
            raise not_allowed("split-laplace share", charge.second, "0.5 or more and below 1")
        if charge.kind == "approximate" and not 0.0 <= charge.second < 1.0:
            raise not_allowed("approximate delta", charge.second, "a number of 0 or more, below 1")
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise not_allowed(f"count of {charge.kind}", count, "a whole number, 1 or more")

"""What failing to serve costs: the value of lost load and the price of balancing energy."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from gridpriv.core.errors import GridprivWarning, not_allowed, positive
from gridpriv.grid.case import Case
from gridpriv.power.objective import marginal_cost

VOLL = 10_000.0
BALANCING_PRICE = 1_000.0


@dataclass(frozen=True)
class ServicePrices:
    """Prices in $/MWh.

    Attributes
    ----------
    voll : float
        Value of lost load: what cutting a customer costs.
    balancing : float
        What a zone pays for deviating from its agreed interchange: less than cutting a customer,
        more than its own generators.
    """

    voll: float = VOLL
    balancing: float = BALANCING_PRICE

    def __post_init__(self) -> None:
        positive("voll", self.voll)
        positive("balancing_price", self.balancing)
        if self.balancing >= self.voll:
            allowed = f"below voll = {self.voll:g} $/MWh, or a zone cuts customers before it leans"
            raise not_allowed("balancing_price", self.balancing, allowed)


def check_prices(case: Case, prices: ServicePrices) -> None:
    """Refuse a value of lost load at which a generator would rather leave demand unserved.

    Raises
    ------
    InputError
        Where ``voll`` is not above the marginal cost of every generator at its full output.

    Warns
    -----
    GridprivWarning
        Where the balancing price is not: a zone would lean on others rather than use it.
    """
    if not case.cost:
        return
    most = np.where(np.isfinite(case.pmax), case.pmax, np.maximum(case.pg, 0.0))
    marginal = [
        marginal_cost(cost, case.base_mva, float(p)) / case.base_mva
        for cost, p in zip(case.cost, most, strict=True)
    ]
    g = int(np.argmax(marginal))
    dearest = f"gen row {case.gen_row[g]} costs up to {marginal[g]:.6g} $/MWh"
    if prices.voll <= marginal[g]:
        raise not_allowed("voll", prices.voll, f"above every generator's marginal cost; {dearest}")
    if prices.balancing <= marginal[g]:
        warnings.warn(
            f"balancing_price = {prices.balancing:g} $/MWh is below a generator's cost ({dearest}): "
            "zones lean on others before they use it",
            GridprivWarning,
            stacklevel=2,
        )

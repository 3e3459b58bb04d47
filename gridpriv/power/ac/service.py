"""The value of lost load and the price of balancing power."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from gridpriv.core.errors import GridprivWarning, not_allowed, positive
from gridpriv.core.settings import Part, choice, number
from gridpriv.grid.case import Case
from gridpriv.power.objective import marginal_cost

VOLL = 10_000.0
BALANCING_PRICE = 1_000.0
HOLDS = ("interchange",)


@dataclass(frozen=True, kw_only=True)
class Service(Part):
    """Prices of load shedding and of balancing power, and who balances."""

    voll: float = number(VOLL, "value of lost load", positive, unit="$/MWh")
    balancing_price: float = number(
        BALANCING_PRICE,
        "price of balancing power: deviation from the scheduled interchange",
        positive,
        unit="$/MWh",
    )
    hold: str | None = choice(
        None,
        HOLDS,
        "interchange: zones set generation aside so that they keep the scheduled interchange "
        "themselves, whatever their demand, except with a stated probability (delta)",
        unset="zones whose generation is at a limit deviate from their schedule",
    )

    def agree(self) -> None:
        """Refuse a balancing price at which a zone sheds load before it draws balancing power."""
        super().agree()
        price, voll = self.balancing_price, self.voll
        if price >= voll:
            why = "$/MWh; otherwise a zone sheds load before it draws balancing power"
            if voll == VOLL:  # the default: what was given is the other
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
    marginal, dearest = _dearest(case)
    if voll <= marginal:
        raise not_allowed("voll", voll, f"above every generator's marginal cost; {dearest}")


def check_service(case: Case, service: Service) -> None:
    """Refuse a value of lost load that is too low (:func:`check_voll`).

    Warns
    -----
    GridprivWarning
        Where the balancing price is below a generator's cost: zones then prefer balancing power.
    """
    check_voll(case, service.voll)
    marginal, dearest = _dearest(case)
    if service.balancing_price <= marginal:
        warnings.warn(
            f"balancing_price = {service.balancing_price:g} $/MWh is below a generator's cost: "
            f"{dearest}; zones draw balancing power before they use it",
            GridprivWarning,
            stacklevel=2,
        )


def _dearest(case: Case) -> tuple[float, str]:
    """Return the largest marginal cost of a generator at full output in $/MWh, and whose it is."""
    if not case.cost:
        return 0.0, ""
    most = np.where(np.isfinite(case.pmax), case.pmax, np.maximum(case.pg, 0.0))
    marginal = [
        marginal_cost(cost, case.base_mva, float(p)) / case.base_mva
        for cost, p in zip(case.cost, most, strict=True)
    ]
    g = int(np.argmax(marginal))
    return marginal[g], f"gen row {case.gen_row[g]} costs up to {marginal[g]:.6g} $/MWh"

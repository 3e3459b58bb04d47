"""Prices of tie lines: what one more unit of flow on one costs a zone.

tie lines
    The dual lambda of a zone's copy of a shared variable. Its local problem minimises
    f(z) - <lambda, z> + rho/2 ||w - z||^2, so lambda is the derivative of f by that variable:
    what the zone pays for one more unit of it. At consensus the copies' duals of one variable add
    up to 0: what one zone pays the other earns. It follows from releases, so it is public.

With objective ``cost`` the unit is $/MWh (reactive: $/MVArh), with ``losses`` MW of generation
per MW, with ``imbalance`` p.u. squared per p.u.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.power.zone import FLOWS, Network, Zone

if TYPE_CHECKING:
    import pandas as pd


def price_unit(network: Network) -> tuple[float, str]:
    """Return the factor from the objective's derivative to a price, and the price's unit."""
    if network.objective.kind == "cost":
        return network.objective.cost_unit / network.case.base_mva, "$/MWh"
    return 1.0, "MW per MW" if network.objective.kind == "losses" else "p.u.^2 per p.u."


def tie_prices(zone: Zone, shared: np.ndarray, dual: Floats) -> pd.DataFrame:
    """Return a zone's prices of flows on its tie lines.

    Parameters
    ----------
    shared : (n,) bool
        Which of its variables are shared.
    dual : (shared,)
        Their duals.

    Returns
    -------
    DataFrame
        ``zone``, ``branch_row``, ``from_bus``, ``to_bus``, ``flow`` (p_from, ...), ``price``,
        ``unit``.
    """
    import pandas as pd

    network, start = zone.network, zone.network.offsets
    case = network.case
    factor, unit = price_unit(network)
    number = zone.coordinates[shared]
    tables = []
    for flow in FLOWS:
        positions = np.flatnonzero((number >= start[flow]) & (number < start[flow] + case.n_branch))
        branch = number[positions] - start[flow]
        table = pd.DataFrame(
            {
                "zone": zone.name,
                "branch_row": case.branch_row[branch],
                "from_bus": case.bus_id[case.f_bus[branch]],
                "to_bus": case.bus_id[case.t_bus[branch]],
                "flow": flow,
                "price": factor * dual[positions],
                "unit": unit,
            }
        )
        tables.append(table)
    return pd.concat(tables, ignore_index=True)

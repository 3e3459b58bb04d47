"""Questions about demand that a grid can hardly have: a wrong unit, a wrong sign, or none at all.

The questions name figures of the demand, so they are local: a public output must not hold them.
"""

from __future__ import annotations

import numpy as np

from gridpriv.grid.case import Case
from gridpriv.power.prior import LOAD_SHARE, capacity

MOST_TIMES = 4.0
"""Demand over generating capacity from which on its unit is questioned: 2.9 at most, and 0.003 at
least, in 184 published grids (MATPOWER and PGLib-OPF)."""
LEAST_SHARE = 1e-3


def demand_questions(case: Case, given: str, load_scale: float = 1.0) -> list[str]:
    """Return the questions that a case's demand raises; local.

    Where the capacity of the grid is not known, its size raises none.

    Parameters
    ----------
    case : Case
    given : str
        The flags or the file that the demand comes from.
    load_scale : float
        The factor that the demand holds.
    """
    able, asked = case.base_mva * capacity(case), []
    for name, unit, demand in (
        ("active demand pd_mw", "MW", case.pd),
        ("reactive demand qd_mvar", "MVAr", case.qd),
    ):
        total = case.base_mva * float(np.abs(demand).sum())
        if total > MOST_TIMES * able > 0.0:
            doubt = f"Is it in {unit}, not in k{unit[1:]}?"
            asked.append(
                f"{given}: {name} adds up to {total:.6g} {unit}, {total / able:.3g} times the "
                f"{able:.6g} MW that the grid can generate or import. "
                f"{doubt if load_scale == 1.0 else 'Is that load scale intended?'}"
            )
    active = case.base_mva * case.pd
    expected = f" About {LOAD_SHARE * able:.3g} MW in all were expected." if able > 0.0 else ""
    if not active.any():
        asked.append(f"{given}: demand is 0 MW at every bus. Is that intended?{expected}")
    elif active.max() <= 0.0:
        asked.append(
            f"{given}: no bus has a demand above 0 MW, in all it is {active.sum():.6g} MW. Is the "
            f"sign right? Demand is positive, embedded generation negative.{expected}"
        )
    elif np.abs(active).sum() < LEAST_SHARE * able:
        asked.append(
            f"{given}: active demand pd_mw adds up to {np.abs(active).sum():.6g} MW. "
            f"{'Is it in MW, not in GW?' if load_scale == 1.0 else 'Is that load scale intended?'}"
            f"{expected}"
        )
    return asked

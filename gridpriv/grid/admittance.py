"""Branch admittances (spec of the pi model with an ideal transformer at the from end)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gridpriv.core.arrays import Complexes
from gridpriv.grid.case import Case


@dataclass(frozen=True, eq=False)
class BranchAdmittance:
    """Two-port admittances of every branch, per unit: [i_f; i_t] = [ff ft; tf tt] [v_f; v_t]."""

    ff: Complexes
    ft: Complexes
    tf: Complexes
    tt: Complexes


def branch_admittance(case: Case) -> BranchAdmittance:
    """Return the two-port admittances of the branches (MATPOWER manual, equation 3.2).

    Returns
    -------
    BranchAdmittance
        Each entry of shape (m,).
    """
    series = 1.0 / (case.r + 1j * case.x)
    ratio = case.tap * np.exp(1j * case.shift)
    to_end: Complexes = series + 0.5j * case.b
    return BranchAdmittance(
        ff=to_end / case.tap**2,
        ft=-series / np.conj(ratio),
        tf=-series / ratio,
        tt=to_end,
    )

"""How far a released quantity can move between neighbours, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, assert_never

import numpy as np

from gridpriv.core.arrays import Floats

Norm = Literal[1, 2, "box"]
"""``box``: the sum over pairs (p, q) of the larger of |p| and |q|; see :func:`length`."""


def length(change: Floats, norm: Norm) -> float:
    """Return the norm of a change.

    Parameters
    ----------
    change : (m,)
        With ``box`` the active half first, then the reactive half in the same order.
    norm : {1, 2, 'box'}
    """
    match norm:
        case 1:
            return float(np.abs(change).sum())
        case 2:
            return float(np.sqrt((change**2).sum()))
        case "box":
            return float(np.abs(change.reshape(2, -1)).max(axis=0).sum())
    assert_never(norm)


def reach(metric: Floats, norm: Norm) -> float:
    """Return the largest length of a vector whose norm in diag(metric) is 1.

    Parameters
    ----------
    metric : (m,)
        Positive.
    norm : {1, 2}
    """
    return float(np.sqrt((1.0 / metric).sum() if norm == 1 else (1.0 / metric).max()))


@dataclass(frozen=True)
class Sensitivity:
    """The largest distance between a quantity on neighbouring data.

    Attributes
    ----------
    value : float
        0 for what no private datum moves, which is no release.
    norm : {1, 2, 'box'}
        The norm the distance is taken in.
    provenance : str
        Where it comes from, in words a reader can check.
    """

    value: float
    norm: Norm
    provenance: str

    def __post_init__(self) -> None:
        if not self.value >= 0:
            raise ValueError(f"a sensitivity is 0 or more, not {self.value}")

    def widened(self, share: float) -> Sensitivity:
        """Return the distance with a share of it on top, for errors of solvers."""
        if not share:
            return self
        why = f"{self.provenance}, and {share:.0%} for errors of solvers"
        return Sensitivity((1.0 + share) * self.value, self.norm, why)

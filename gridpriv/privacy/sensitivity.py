"""Sensitivity of a released quantity, with the source of the bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, assert_never

import numpy as np

from gridpriv.core.arrays import Floats

Norm = Literal[1, 2, "box", "pair", "number"]
"""``box``: the sum over pairs (p, q) of the larger of |p| and |q|; see :func:`length`. ``pair`` and
``number``: the same, and |x|, of a change of one pair or one number; infinite of any other."""


def length(change: Floats, norm: Norm) -> float:
    """Return the norm of a change.

    Parameters
    ----------
    change : (m,)
        With ``box`` the active half first, then the reactive half in the same order.
    norm : {1, 2, 'box', 'pair', 'number'}
    """
    match norm:
        case 1:
            return float(np.abs(change).sum())
        case 2:
            return float(np.sqrt((change**2).sum()))
        case "box":
            return float(np.abs(change.reshape(2, -1)).max(axis=0).sum())
        case "pair":
            return _alone(np.abs(change.reshape(2, -1)).max(axis=0))
        case "number":
            return _alone(np.abs(change))
    assert_never(norm)


def _alone(moved: Floats) -> float:
    """Return the one positive entry; 0 of none, infinity of several."""
    return float(moved.max(initial=0.0)) if np.count_nonzero(moved) <= 1 else np.inf


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
    """The largest distance of a quantity between adjacent data.

    Attributes
    ----------
    value : float
        0 for a quantity without private data, which is no release.
    norm : {1, 2, 'box', 'pair', 'number'}
        Norm of the distance.
    bound_source : str
        Source of the bound, in words that a reader can check.
    share : float
        Bound on the share of the distance in one number (norm 1) or one pair (norm ``box``), from
        0.5 to 1; 1 is no bound. Where several change, the loss is less than that of a single change
        of the whole distance (:func:`gridpriv.privacy.accounting.parts`).
    """

    value: float
    norm: Norm
    bound_source: str
    share: float = 1.0

    def __post_init__(self) -> None:
        if not self.value >= 0:
            raise ValueError(f"a sensitivity is 0 or more, not {self.value}")
        if not 0.5 <= self.share <= 1.0:
            raise ValueError(f"a share is from 0.5 to 1, not {self.share}")

    def widened(self, share: float) -> Sensitivity:
        """Return the sensitivity enlarged by a share of it, for errors of solvers."""
        if not share:
            return self
        why = f"{self.bound_source}; increased by {100.0 * share:.0f} % for the error of the solver"
        return Sensitivity((1.0 + share) * self.value, self.norm, why)

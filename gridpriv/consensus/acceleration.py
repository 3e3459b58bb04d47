"""Anderson steps on what coordinators know: fewer rounds where every round is the same map.

A round of Algorithm 3.1 with exact updates maps what attracts the agents, y = w + dual/rho at
every holder, to its next value (a Douglas-Rachford step; Eckstein and Bertsekas 1992)::

    y -> y + g(y),    g(y) = average(2 sent - y) - sent,    sent = argmin f + rho/2 ||z - y||^2

A fixed point of it is an optimum. From the last values of y and g, Anderson's step of type II
takes the combination whose g is smallest in the metric of rho (Walker and Ni 2011, eq. 2.2)::

    y+ = y + g - (dY + dG) argmin_c ||g - dG c||_rho

It reads nothing but w, duals and what was sent, so it is post-processing of releases. The map has
to stay the same: fresh noise would be extrapolated as if it were progress. Rounds of another rho
are expressed as steps of the present map. What was tried beside it:
docs/decisions/0017-acceleration.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from gridpriv.core.arrays import Floats

Acceleration = Literal["anderson", "none"]


@dataclass(frozen=True, eq=False)
class Step:
    """One round as a step of the map.

    Attributes
    ----------
    at : (S,)
        y, stacked over agents.
    moved : (S,)
        g(y).
    """

    at: Floats
    moved: Floats

    def __sub__(self, other: Step) -> Step:
        """Return the differences of y and of g."""
        return Step(self.at - other.at, self.moved - other.moved)


@dataclass(frozen=True)
class Anderson:
    """Anderson's step from the last rounds.

    Attributes
    ----------
    memory : int
        Differences of rounds that are combined, at most.
    growth : float
        A step after which ||g||, the combined primal and dual residual, exceeds the least of the
        remembered rounds this many times is dropped: the next round is the plain step from the
        round with the least.
    regular : float
        Tikhonov term of the least squares, relative to its trace.
    """

    memory: int = 5
    growth: float = 1.5
    regular: float = 1e-10

    def kept(self, past: Sequence[Step]) -> list[Step]:
        """Return those of the past rounds that the next step is made of; the last is one."""
        return list(past[-self.memory - 1 :])

    def lead(self, past: Sequence[Step], rho: Floats) -> Floats:
        """Return the next y less the plain step's, shape (S,).

        Parameters
        ----------
        past : sequence of Step
            Those kept, the latest last.
        rho : (S,)
            Of every shared coordinate.
        """
        last = past[-1]
        if len(past) == 1:
            return np.zeros_like(last.at)
        lengths = [_length(step.moved, rho) for step in past]
        best = past[int(np.argmin(lengths))]
        if lengths[-1] > self.growth * min(lengths):
            return (best.at - last.at) + (best.moved - last.moved)
        steps = [after - before for before, after in pairwise(past)]
        moved = np.array([step.moved for step in steps])
        gram = (moved * rho) @ moved.T
        gram += self.regular * np.trace(gram) * np.eye(len(gram))
        share = np.linalg.lstsq(gram, moved @ (rho * last.moved), rcond=None)[0]
        ahead: Floats = -share @ (moved + np.array([step.at for step in steps]))
        return ahead


def _length(moved: Floats, rho: Floats) -> float:
    return float(np.sqrt(rho @ moved**2))

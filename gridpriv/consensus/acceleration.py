"""Anderson steps on what coordinators know: fewer rounds where every round is the same map.

A round of Algorithm 3.1 with exact updates maps what attracts the agents, y = w + dual/rho at
every holder, to its next value (a Douglas-Rachford step; Eckstein and Bertsekas 1992)::

    y -> y + g(y),    g(y) = average(2 sent - y) - sent,    sent = argmin f + rho/2 ||z - y||^2

A fixed point of it is an optimum. From the last values of y and g, Anderson's step of type II
takes the combination whose g is smallest in the metric of rho (Walker and Ni 2011, eq. 2.2)::

    y+ = y + g - (dY + dG) argmin_c ||g - dG c||_rho

It reads nothing but w, duals and what was sent, so it is post-processing of releases. The map has
to stay the same: fresh noise would be extrapolated as if it were progress. Rounds of another rho
are told as steps of today's, which they are. What was tried beside it:
docs/decisions/0017-acceleration.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from gridpriv.core.arrays import Floats

Acceleration = Literal["anderson", "evened", "none"]
"""Anderson steps, with penalties as rehearsed or evened; or none."""


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
        Memory is let go where ||g|| exceeds the least so far this many times.
    regular : float
        Tikhonov term of the least squares, relative to its trace.
    """

    memory: int = 5
    growth: float = 2.0
    regular: float = 1e-10

    def kept(self, past: Sequence[Step], rho: Floats) -> list[Step]:
        """Return those of the past rounds that the next step is made of; the last is one."""
        lengths = [_length(step.moved, rho) for step in past]
        first = 0
        if lengths[-1] > self.growth * min(lengths):
            first = len(past) - 1
        return list(past[first:][-self.memory - 1 :])

    def lead(self, past: Sequence[Step], rho: Floats) -> Floats:
        """Return how far the next y is ahead of the plain step's, shape (S,).

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
        steps = [after - before for before, after in pairwise(past)]
        moved = np.array([step.moved for step in steps])
        gram = (moved * rho) @ moved.T
        gram += self.regular * np.trace(gram) * np.eye(len(gram))
        share = np.linalg.lstsq(gram, moved @ (rho * last.moved), rcond=None)[0]
        ahead: Floats = -share @ (moved + np.array([step.at for step in steps]))
        return ahead


def _length(moved: Floats, rho: Floats) -> float:
    return float(np.sqrt(rho @ moved**2))

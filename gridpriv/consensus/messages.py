"""All that crosses between the coordinator and an agent, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from gridpriv.core.arrays import Floats
from gridpriv.privacy.release import Release


@dataclass(frozen=True, eq=False)
class Order:
    """What an agent is given for one round; all of it is public.

    Attributes
    ----------
    number : int
        t, from 1.
    w, penalty : (shared,)
        Global variables of the agent's shared coordinates, and rho of each.
    step : float
        eta^t.
    """

    number: int
    w: Floats
    penalty: Floats
    step: float


@dataclass(frozen=True, eq=False)
class Reply:
    """What an agent answers: released values and what their release costs, nothing else.

    Attributes
    ----------
    sent : (shared,)
        Shared part of the average of the round's iterates.
    releases : mapping of Release to int
        Noise drawn in this round, for the accountant.
    """

    sent: Floats
    releases: Mapping[Release, int]


@dataclass(frozen=True, eq=False)
class Stale(Reply):
    """What stands for the answer of an agent that gave none: what it sent last."""


Phase = Literal["none", "ready", "rehearse", "round", "missed", "agreed"]
"""What an order asks for: to try a round on public data, to rehearse one on it, to run one; to
note one that went on without its zone; or to hear what was agreed on in the last of them."""


class Exchange(Protocol):
    """Carries a round's orders to the agents and their replies back, in the agents' order.

    It is all that a coordinator is given: through it no figure of an agent's own can be asked for.
    """

    def __call__(self, orders: Sequence[Order]) -> Sequence[Reply]:
        """Return every agent's reply."""
        ...

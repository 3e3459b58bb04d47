"""All that crosses between the coordinator and an agent, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from gridpriv.core.arrays import Floats
from gridpriv.privacy.release import Release


@dataclass(frozen=True, eq=False)
class Order:
    """A coordinator's order to one agent for one round; all of it is public.

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
    """An agent's reply: released values and their releases, nothing else.

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
    """The last values of an agent that gave no answer in this round."""


Phase = Literal["none", "ready", "warm_start", "round", "missed", "agreed"]
"""The task of an order: to try a round on public data, to warm start one on it, to run one; to
note one that went on without its zone; or to receive the agreed values of the last of them."""


class Exchange(Protocol):
    """Carries a round's orders to the agents and their replies back, in the agents' order.

    It is all that a coordinator is given: through it no figure of an agent's own can be asked for.
    """

    def __call__(self, orders: Sequence[Order]) -> Sequence[Reply]:
        """Return every agent's reply."""
        ...

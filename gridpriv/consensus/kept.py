"""Several runs of the same performers, which are made once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gridpriv.consensus.agent import Agent
from gridpriv.consensus.memory import Iterate
from gridpriv.consensus.messages import Order, Reply
from gridpriv.consensus.transport import Carry, Crew, Transport, answers
from gridpriv.core.errors import GridprivError


class Kept:
    """Carries crews of the same performers one after the other.

    The first crew's members are made and carried; they begin anew for every other one.

    Parameters
    ----------
    carry : Carry
        Where the performers work.
    """

    def __init__(self, carry: Carry) -> None:
        self._carry = carry
        self._held: Transport | None = None

    def __call__(self, crew: Crew) -> Transport:
        """Return a transport to performers that have begun what the crew is for."""
        if self._held is not None:
            try:
                answers(self._held.ask("begin", *crew.beginnings()))
                return _Lent(self._held)
            except GridprivError:  # a process was lost in the last run
                self.close()
        self._held = self._carry(crew)
        return _Lent(self._held)

    def close(self) -> None:
        """Let go of the performers."""
        held, self._held = self._held, None
        if held is not None:
            held.close()


class _Lent:
    """A transport that stays open when a run is over."""

    def __init__(self, held: Transport) -> None:
        self._held = held

    def ask(self, verb: str, *given: Sequence[Any]) -> list[Any]:
        return self._held.ask(verb, *given)

    def close(self) -> None:
        """Do nothing."""


class WarmStart:
    """An agent's warm start, held once for all runs that warm start alike.

    It is on public data and without noise, so who hears the same orders gives the same replies.
    """

    def __init__(self) -> None:
        self._held: list[tuple[Order, Reply]] = []
        self._end: Iterate | None = None
        self._told = 0  # replies of this run; the agent stands there unless more are held

    def begin(self) -> None:
        """Begin with the first order again."""
        self._told = 0

    def reply(self, agent: Agent, order: Order) -> Reply:
        """Return the agent's reply; a remembered one while the orders are those of before."""
        if self._told < len(self._held):
            known, reply = self._held[self._told]
            if _alike(known, order):
                self._told += 1
                if self._told == len(self._held) and self._end is not None:
                    agent.stand(self._end)
                return reply
            self._forget_the_rest(agent)
        reply = agent.warm_start(order)
        self._held.append((order, reply))
        self._end, self._told = agent.iterate, len(self._held)
        return reply

    def leave(self, agent: Agent) -> None:
        """Let the agent go on to something else from where its warm start has come."""
        if 0 < self._told < len(self._held):
            self._forget_the_rest(agent)

    def _forget_the_rest(self, agent: Agent) -> None:
        for order, _ in self._held[: self._told]:
            agent.warm_start(order)
        del self._held[self._told :]
        self._end = agent.iterate


def _alike(one: Order, other: Order) -> bool:
    return (one.number, one.step) == (other.number, other.step) and (
        one.w.tobytes() + one.penalty.tobytes() == other.w.tobytes() + other.penalty.tobytes()
    )

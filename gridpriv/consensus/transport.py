"""Transports: they carry verbs to agents and answers back.

A transport is one small file: agents in this process (``in_process``), in worker processes
(``workers``) or on a Dask cluster (``cluster``). It passes a verb's name and its arguments, never
code. Results do not depend on which is used: an agent's arithmetic and its noise stream depend on
the agent only, and every agent is asked whatever becomes of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from gridpriv.consensus.messages import Exchange, Order, Reply


class Performer(Protocol):
    """Somebody who does what a verb names: an agent, or who owns one."""

    def perform(self, verb: str, *given: Any) -> Any:
        """Return the verb's answer."""
        ...


class Crew(Protocol):
    """From positions to performers; picklable, so that they can be made where they work.

    Attributes
    ----------
    sizes : sequence of int
        How large each one's problem is.
    """

    @property
    def sizes(self) -> Sequence[int]: ...  # noqa: D102

    def members(self, positions: Sequence[int]) -> list[Performer]:
        """Return the performers at these positions."""
        ...

    def beginnings(self) -> Sequence[Sequence[Any]]:
        """Return the arguments with which existing performers begin anew."""
        ...


class Transport(Protocol):
    """Holds performers and asks all of them."""

    def ask(self, verb: str, *given: Sequence[Any]) -> list[Any]:
        """Return every performer's answer to a verb, or the exception it ended with, in order.

        Parameters
        ----------
        given : sequences
            One per argument of the verb, each with an entry for every performer.
        """
        ...

    def close(self) -> None:
        """Let go of whatever the transport holds."""
        ...


Carry = Callable[[Crew], Transport]
"""From a crew to the transport that holds its members."""


def attempt(performer: Performer, verb: str, given: Sequence[Any]) -> Any:
    """Return a performer's answer, or the exception that it ends with."""
    try:
        return performer.perform(verb, *given)
    except Exception as error:
        return error


def rows(performers: int, given: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Return each performer's arguments."""
    return list(zip(*given, strict=True)) if given else [()] * performers


def answers(outcomes: Sequence[Any]) -> list[Any]:
    """Return the answers; raise the first exception among it, in the performers' order."""
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return list(outcomes)


def exchange(transport: Transport, verb: str) -> Exchange:
    """Return the network's side of a transport: orders in, replies out, no other verb."""

    def carry(orders: Sequence[Order]) -> Sequence[Reply]:
        return answers(transport.ask(verb, orders))

    return carry


def equal_shares(sizes: Sequence[int], workers: int) -> list[list[int]]:
    """Return each worker's positions: the largest problem goes to the least loaded worker."""
    loads = [0] * workers
    shares: list[list[int]] = [[] for _ in range(workers)]
    for position in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        least = loads.index(min(loads))
        loads[least] += sizes[position]
        shares[least].append(position)
    return [sorted(share) for share in shares]

"""How tasks reach agents: in this process, or in worker processes that hold them.

A transport applies one function to every agent. Results do not depend on which is used: an
agent's arithmetic and its noise stream depend on the agent only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, Protocol, TypeVar

from gridpriv.consensus.agent import Agent
from gridpriv.core.errors import GridprivError
from gridpriv.core.processes import Worker

Given = TypeVar("Given")
Answer = TypeVar("Answer")
MakeAgents = Callable[[Sequence[int]], list[Agent]]


class Transport(Protocol):
    """Applies a task to every agent, in the agents' order."""

    def apply(self, task: Callable[[Agent, Given], Answer], given: Sequence[Given]) -> list[Answer]:
        """Return ``task(agent, given)`` of every agent."""
        ...

    def close(self) -> None:
        """Let go of whatever the transport holds."""
        ...


class InProcess:
    """Agents in this process, one after the other."""

    def __init__(self, agents: Sequence[Agent]) -> None:
        self._agents = agents

    def apply(self, task: Callable[[Agent, Given], Answer], given: Sequence[Given]) -> list[Answer]:
        """Return ``task(agent, given)`` of every agent."""
        return [task(agent, one) for agent, one in zip(self._agents, given, strict=True)]

    def close(self) -> None:
        """Do nothing."""


class Workers:
    """Agents in worker processes, which build them and keep their state.

    Parameters
    ----------
    make_agents : callable
        From positions to agents; called once in each worker, so it must be picklable.
    sizes : sequence of int
        How large each agent's problem is, to give workers equal shares.
    workers : int
    """

    def __init__(self, make_agents: MakeAgents, sizes: Sequence[int], workers: int) -> None:
        self._shares = _equal_shares(sizes, workers)
        self._workers = [Worker(_serve, make_agents, share) for share in self._shares]
        try:
            for worker in self._workers:
                worker.answer()
        except BaseException:
            self.close()
            raise

    def apply(self, task: Callable[[Agent, Given], Answer], given: Sequence[Given]) -> list[Answer]:
        """Return ``task(agent, given)`` of every agent."""
        for worker, share in zip(self._workers, self._shares, strict=True):
            worker.send((task, [given[position] for position in share]))
        answers: list[Any] = [None] * len(given)
        failures = []
        for worker, share in zip(self._workers, self._shares, strict=True):
            try:
                for position, found in zip(share, worker.answer(), strict=True):
                    answers[position] = found
            except GridprivError as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return answers

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers:
            worker.end()


def _equal_shares(sizes: Sequence[int], workers: int) -> list[list[int]]:
    """Return each worker's positions: the largest problem goes to the least loaded worker."""
    loads, shares = [0] * workers, [[] for _ in range(workers)]  # type: ignore[var-annotated]
    for position in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        least = loads.index(min(loads))
        loads[least] += sizes[position]
        shares[least].append(position)
    return [sorted(share) for share in shares]


def _serve(pipe: Connection, make_agents: MakeAgents, share: list[int]) -> None:
    """Build this worker's agents, then answer tasks until the pipe closes."""
    try:
        agents = make_agents(share)
        pipe.send(len(agents))
        while True:
            task, given = pipe.recv()
            try:
                pipe.send([task(agent, one) for agent, one in zip(agents, given, strict=True)])
            except GridprivError as error:
                pipe.send(error)
    except (EOFError, BrokenPipeError):
        return

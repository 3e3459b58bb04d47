"""Transports: they carry calls to agents and answers back.

Agents live in this process (:class:`InProcess`), in worker processes (:class:`Workers`) or on a
Dask cluster (:class:`Cluster`). A call is a method of an agent's class and its arguments, so a type
checker sees both and the answer. Results do not depend on the transport: an agent's arithmetic and
its noise stream depend on the agent only, and each is called whatever becomes of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from gridpriv.consensus.messages import Exchange, Order, Reply
from gridpriv.core.errors import GridprivError, InputError, WorkerError, missing_extra

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

R = TypeVar("R")
P = ParamSpec("P")


@dataclass(frozen=True)
class Call(Generic[R]):
    """One call of an agent's method; picklable.

    Attributes
    ----------
    method : callable
        Of a class; an agent of another class answers by its own method of that name.
    given : tuple
        Its arguments.
    """

    method: Callable[..., R]
    given: tuple[Any, ...]

    def answer(self, agent: Any) -> R | Exception:
        """Return an agent's answer, or the exception that it ends with."""
        try:
            answer: R = getattr(agent, self.method.__name__)(*self.given)
        except Exception as error:
            return error
        return answer


def call(method: Callable[Concatenate[Any, P], R], *given: P.args, **_: P.kwargs) -> Call[R]:
    """Return a call of a method: ``call(Agent.round, order)``."""
    return Call(method, given)


Calls = Call[R] | Sequence[Call[R]]
"""One call of all agents, or one of each."""


class Transport(Protocol):
    """Holds agents and calls all of them."""

    def ask(self, calls: Calls[R]) -> list[R | Exception]:
        """Return every agent's answer, or the exception it ended with, in order."""
        ...

    def close(self) -> None:
        """Let go of whatever the transport holds."""
        ...


class AgentFactory(Protocol):
    """Makes agents from their positions; picklable, so that they are made where they work.

    Attributes
    ----------
    sizes : sequence of int
        How large each agent's problem is.
    model : hashable
        What a reset leaves as it is: agents of another model are made anew.
    """

    @property
    def sizes(self) -> Sequence[int]: ...  # noqa: D102

    @property
    def model(self) -> Hashable: ...  # noqa: D102

    def make(self, positions: Sequence[int]) -> Sequence[Any]:
        """Return the agents at these positions."""
        ...

    def resets(self) -> Sequence[Call[None]]:
        """Return the calls that bring existing agents to where new ones would start."""
        ...


Connect = Callable[[AgentFactory], Transport]
"""From a factory to the transport that holds its agents."""


def answers(transport: Transport, calls: Calls[R]) -> list[R]:
    """Return every agent's answer; raise the first exception among them, in the agents' order."""
    replies = []
    for outcome in transport.ask(calls):
        if isinstance(outcome, Exception):
            raise outcome
        replies.append(outcome)
    return replies


def exchange(transport: Transport, method: Callable[[Any, Order], Reply]) -> Exchange:
    """Return the network's side of a transport: orders in, replies out, no other call."""

    def carry(orders: Sequence[Order]) -> Sequence[Reply]:
        return answers(transport, [call(method, order) for order in orders])

    return carry


def each(calls: Calls[R], agents: int) -> Sequence[Call[R]]:
    """Return the call of each agent."""
    return [calls] * agents if isinstance(calls, Call) else calls


def equal_shares(sizes: Sequence[int], workers: int) -> list[list[int]]:
    """Return each worker's positions: the largest problem goes to the least loaded worker."""
    loads = [0] * workers
    shares: list[list[int]] = [[] for _ in range(workers)]
    for position in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        least = loads.index(min(loads))
        loads[least] += sizes[position]
        shares[least].append(position)
    return [sorted(share) for share in shares]


class InProcess:
    """Agents in this process, one after the other."""

    def __init__(self, agents: Sequence[Any]) -> None:
        self.agents = agents

    def ask(self, calls: Calls[R]) -> list[R | Exception]:
        """Return every agent's answer, or its exception."""
        own = each(calls, len(self.agents))
        return [item.answer(agent) for item, agent in zip(own, self.agents, strict=True)]

    def close(self) -> None:
        """Do nothing."""


def in_process(factory: AgentFactory) -> InProcess:
    """Return a transport that holds all agents in this process."""
    return InProcess(factory.make(range(len(factory.sizes))))


class Workers:
    """Agents in worker processes, which make them and keep their state.

    Parameters
    ----------
    factory : AgentFactory
        Sent to every worker, which makes its own share of the agents.
    """

    def __init__(self, factory: AgentFactory, workers: int) -> None:
        from gridpriv.core.processes import Worker  # imports multiprocessing

        self._shares = equal_shares(factory.sizes, workers)
        self._workers = [Worker(_serve, factory, share) for share in self._shares]
        self._owed = [1] * workers  # answers that were asked for and not yet taken
        try:
            for number in range(workers):
                self._answer(number)
        except BaseException:
            self.close()
            raise

    def ask(self, calls: Calls[R]) -> list[R | Exception]:
        """Return every agent's answer, or its exception; a lost worker's is why it was lost."""
        own = each(calls, sum(map(len, self._shares)))
        for number, share in enumerate(self._shares):
            self._workers[number].send([own[position] for position in share])
            self._owed[number] += 1
        outcomes: dict[int, R | Exception] = {}
        for number, share in enumerate(self._shares):
            try:
                answer = self._answer(number)
            except GridprivError as error:
                answer = [error] * len(share)
            outcomes |= zip(share, answer, strict=True)
        return [outcomes[position] for position in range(len(own))]

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers:
            worker.end()

    def _answer(self, number: int) -> Any:
        """Return a worker's last answer; those nobody waited for (an interrupt) are dropped."""
        worker, answer = self._workers[number], None
        while self._owed[number]:
            worker.pipe.poll(None)  # the whole wait: an interrupt here leaves the answer whole
            self._owed[number] -= 1
            answer = worker.answer()
        return answer


def _serve(pipe: Connection, factory: AgentFactory, share: list[int]) -> None:
    """Make this worker's share of the agents, then answer until the pipe closes."""
    try:
        agents = factory.make(share)
    except Exception as error:
        pipe.send(error)
        return
    try:
        pipe.send(len(agents))
        while True:
            calls = pipe.recv()
            pipe.send([item.answer(agent) for item, agent in zip(calls, agents, strict=True)])
    except (EOFError, ConnectionError):
        return


class Cluster:
    """Agents on the workers of a Dask cluster, which need gridpriv installed: actors.

    Parameters
    ----------
    factory : AgentFactory
        Sent to every worker once.
    address : str
        Of the scheduler.

    Raises
    ------
    InputError
        If the scheduler cannot be reached, or has no workers.
    """

    def __init__(self, factory: AgentFactory, address: str) -> None:
        self._client = connect(address)
        try:
            workers = sorted(self._client.scheduler_info(n_workers=-1)["workers"])
            if not workers:
                raise InputError(
                    f"cluster = {address!r} has no workers: start some with 'dask worker {address}'"
                )
            self._actors = self._placed(factory, workers)
        except BaseException:
            self.close()
            raise

    def ask(self, calls: Calls[R]) -> list[R | Exception]:
        """Return every agent's answer, or its exception; a lost worker's is that it is lost."""
        own = each(calls, len(self._actors))
        asked = [actor.answer(item) for actor, item in zip(self._actors, own, strict=True)]
        return [_outcome(future) for future in asked]

    def close(self) -> None:
        """Let the actors go."""
        self._actors = []
        self._client.close()

    def _placed(self, factory: AgentFactory, workers: Sequence[str]) -> list[Any]:
        """Return an actor per agent, in order, in equal shares of the workers."""
        here = self._client.scatter(factory, broadcast=True, hash=False)
        futures: dict[int, Any] = {}
        for worker, share in zip(workers, equal_shares(factory.sizes, len(workers)), strict=True):
            for position in share:
                futures[position] = self._client.submit(
                    AgentActor, here, position, actor=True, pure=False, workers=[worker]
                )
        return [futures[position].result() for position in range(len(futures))]


class AgentActor:
    """One agent on a worker of a cluster."""

    def __init__(self, factory: AgentFactory, position: int) -> None:
        (self._agent,) = factory.make([position])

    def answer(self, item: Call[Any]) -> Any:
        """Return the agent's answer, or its exception."""
        return item.answer(self._agent)


def _outcome(future: Any) -> Any:
    """Return an actor's answer, or that its worker was lost."""
    try:
        return future.result()
    except Exception as error:
        return WorkerError(f"a cluster's worker was lost: {error}")


class ReusedAgents:
    """Agents that are made once, for several runs of one model one after the other.

    Parameters
    ----------
    connect : Connect
        Where the agents work.
    """

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._held: Transport | None = None
        self._model: Hashable = None

    def __call__(self, factory: AgentFactory) -> Transport:
        """Return a transport to agents that were reset to where the factory's would start."""
        if factory.model != self._model:
            self.close()
        self._model = factory.model
        if self._held is not None:
            try:
                answers(self._held, factory.resets())
                return _StaysOpen(self._held)
            except GridprivError:  # a process was lost in the last run
                self.close()
        self._held = self._connect(factory)
        return _StaysOpen(self._held)

    def close(self) -> None:
        """Let go of the agents."""
        current, self._held = self._held, None
        if current is not None:
            current.close()


class _StaysOpen:
    """A transport that stays open when a run is over."""

    def __init__(self, current: Transport) -> None:
        self._held = current

    def ask(self, calls: Calls[R]) -> list[R | Exception]:
        return self._held.ask(calls)

    def close(self) -> None:
        """Do nothing."""


def connect(address: str) -> Any:  # distributed has no types of its own
    """Return a client of the scheduler at ``address``; a context manager.

    Raises
    ------
    InputError
        Where nothing answers, or the ``cluster`` extra is not installed.
    """
    try:
        from distributed import Client
    except ImportError:
        raise missing_extra("distributed", "cluster", "--cluster") from None
    try:
        return Client(address, timeout="10s")
    except (OSError, ValueError, TypeError) as error:  # TypeError: tls:// without certificates
        raise InputError(
            f"cluster = {address!r} cannot be reached: {error}; start one with "
            "'dask scheduler' and 'dask worker ADDRESS'"
        ) from error

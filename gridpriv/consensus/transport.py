"""Transports of calls to agents and of their answers.

Agents are in this process (:class:`InProcess`), in worker processes (:class:`Workers`) or on a Dask
cluster (:class:`Cluster`). A call is a method of an agent's class and its arguments, so a type
checker can check both and the answer. Results do not depend on the transport: an agent's arithmetic
and its noise stream depend on the agent only, and each is called even if others fail.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import chain
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
        Of a class; for an agent of another class its own method of that name is called.
    arguments : tuple
        Its arguments.
    """

    method: Callable[..., R]
    arguments: tuple[Any, ...]

    def answer(self, agent: Any) -> R | Exception:
        """Return an agent's answer, or its exception."""
        try:
            answer: R = getattr(agent, self.method.__name__)(*self.arguments)
        except Exception as error:
            return error
        return answer


def call(method: Callable[Concatenate[Any, P], R], *arguments: P.args, **_: P.kwargs) -> Call[R]:
    """Return a call of a method: ``call(Agent.round, order)``."""
    return Call(method, arguments)


Calls = Call[R] | Sequence[Call[R]]
"""One call of all agents, or one of each."""


class Transport(Protocol):
    """Interface to a set of agents that are called together."""

    def call_all(self, calls: Calls[R]) -> list[R | Exception]:
        """Return every agent's answer, or its exception, in order."""

    def close(self) -> None:
        """Release the transport's resources."""


class AgentFactory(Protocol):
    """Makes agents from their positions; picklable, so agents can be made in worker processes.

    Attributes
    ----------
    sizes : sequence of int
        Size of each agent's problem.
    model : hashable
        Part that a reset does not change: agents of another model are made again.
    """

    @property
    def sizes(self) -> Sequence[int]: ...  # noqa: D102

    @property
    def model(self) -> Hashable: ...  # noqa: D102

    def make(self, positions: Sequence[int]) -> Sequence[Any]:
        """Return the agents at these positions."""

    def resets(self) -> Sequence[Call[None]]:
        """Return the calls that reset existing agents to the start of new ones."""


Connect = Callable[[AgentFactory], Transport]
"""Function from a factory to the transport of its agents."""


def answers(transport: Transport, calls: Calls[R]) -> list[R]:
    """Return every agent's answer; raise the first exception among them, in the agents' order."""
    replies = []
    for outcome in transport.call_all(calls):
        if isinstance(outcome, Exception):
            raise outcome
        replies.append(outcome)
    return replies


def exchange(transport: Transport, method: Callable[[Any, Order], Reply]) -> Exchange:
    """Return a transport's exchange of orders and replies; it allows no other call."""

    def send(orders: Sequence[Order]) -> Sequence[Reply]:
        return answers(transport, [call(method, order) for order in orders])

    return send


def each(calls: Calls[R], agents: int) -> Sequence[Call[R]]:
    """Return the call of each agent."""
    return [calls] * agents if isinstance(calls, Call) else calls


def equal_shares(sizes: Sequence[int], workers: int) -> list[list[int]]:
    """Return each worker's positions: each problem, by size, to the least loaded worker."""
    loads = [0] * workers
    shares: list[list[int]] = [[] for _ in range(workers)]
    for position in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        least = loads.index(min(loads))
        loads[least] += sizes[position]
        shares[least].append(position)
    return [sorted(share) for share in shares]


def calls_by_share(calls: Calls[R], shares: Sequence[Sequence[int]]) -> list[list[Call[R]]]:
    """Return the calls of each share of the agents."""
    own = each(calls, sum(map(len, shares)))
    return [[own[position] for position in share] for share in shares]


def in_order(outcomes: Sequence[Sequence[R]], shares: Sequence[Sequence[int]]) -> list[R]:
    """Return the outcomes of all shares in the order of the agents."""
    outcome = dict(zip(chain(*shares), chain(*outcomes), strict=True))
    return [outcome[position] for position in range(len(outcome))]


class InProcess:
    """Agents in this process, called in sequence."""

    def __init__(self, agents: Sequence[Any]) -> None:
        self.agents = agents

    @classmethod
    def share(cls, factory: AgentFactory, positions: Sequence[int]) -> InProcess:
        """Return the agents at these positions, made here."""
        return cls(factory.make(positions))

    def call_all(self, calls: Calls[R]) -> list[R | Exception]:
        """Return every agent's answer, or its exception."""
        own = each(calls, len(self.agents))
        return [item.answer(agent) for item, agent in zip(own, self.agents, strict=True)]

    def close(self) -> None:
        """Do nothing."""


def in_process(factory: AgentFactory) -> InProcess:
    """Return a transport of all agents in this process."""
    return InProcess.share(factory, range(len(factory.sizes)))


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
        self._unread_answers = [1] * workers  # outstanding answers
        try:
            for number in range(workers):
                self._answer(number)
        except BaseException:
            self.close()
            raise

    def call_all(self, calls: Calls[R]) -> list[R | Exception]:
        """Return every agent's answer, or its exception; of a lost worker the reason."""
        for number, worker_calls in enumerate(calls_by_share(calls, self._shares)):
            self._workers[number].send(worker_calls)
            self._unread_answers[number] += 1
        outcomes: list[list[R | Exception]] = []
        for number, share in enumerate(self._shares):
            try:
                outcomes.append(self._answer(number))
            except GridprivError as error:
                outcomes.append([error] * len(share))
        return in_order(outcomes, self._shares)

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers:
            worker.end()

    def _answer(self, number: int) -> Any:
        """Return a worker's last answer; drop earlier ones that an interrupt left unread."""
        worker, answer = self._workers[number], None
        while self._unread_answers[number]:
            worker.pipe.poll(None)  # before the read: an interrupt here leaves the answer complete
            self._unread_answers[number] -= 1
            answer = worker.answer()
        return answer


def _serve(pipe: Connection, factory: AgentFactory, share: list[int]) -> None:
    """Make this worker's share of the agents, then answer until the pipe closes."""
    try:
        agents = InProcess.share(factory, share)
    except Exception as error:
        pipe.send(error)
        return
    try:
        pipe.send(len(share))
        while True:
            pipe.send(agents.call_all(pipe.recv()))
    except (EOFError, ConnectionError):
        return


class Cluster:
    """Agents on the workers of a Dask cluster with gridpriv installed: one actor per worker.

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
            shares = equal_shares(factory.sizes, len(workers))
            self._shares = [share for share in shares if share]
            self._actors = self._actors_on(factory, workers)
        except BaseException:
            self.close()
            raise

    def call_all(self, calls: Calls[R]) -> list[R | Exception]:
        """Return every agent's answer, or its exception; for a lost worker that it is lost."""
        pairs = zip(self._actors, calls_by_share(calls, self._shares), strict=True)
        futures = [actor.call_all(own) for actor, own in pairs]
        outcomes: list[list[R | Exception]] = []
        for future, share in zip(futures, self._shares, strict=True):
            try:
                outcomes.append(future.result())
            except Exception as error:
                lost = WorkerError(f"a cluster's worker was lost: {error}")
                outcomes.append([lost] * len(share))
        return in_order(outcomes, self._shares)

    def close(self) -> None:
        """Release the actors."""
        self._actors = []
        self._client.close()

    def _actors_on(self, factory: AgentFactory, workers: Sequence[str]) -> list[Any]:
        """Return one actor per worker, which has the worker's share of the agents."""
        here = self._client.scatter(factory, broadcast=True, hash=False)
        hosts = zip(workers, self._shares, strict=False)  # no actor where there is no agent
        futures = [
            self._client.submit(
                InProcess.share, here, share, actor=True, pure=False, workers=[worker]
            )
            for worker, share in hosts
        ]
        return [future.result() for future in futures]


class ReusedAgents:
    """Agents that are made once for several consecutive runs of one model.

    Parameters
    ----------
    connect : Connect
        Connects to the agents.
    """

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._transport: Transport | None = None
        self._model: Hashable = None

    def __call__(self, factory: AgentFactory) -> Transport:
        """Return a transport to agents reset to the start of the factory's."""
        if factory.model != self._model:
            self.close()
        self._model = factory.model
        if self._transport is not None:
            try:
                answers(self._transport, factory.resets())
                return _OpenTransport(self._transport)
            except GridprivError:  # a process was lost in the last run
                self.close()
        self._transport = self._connect(factory)
        return _OpenTransport(self._transport)

    def close(self) -> None:
        """Release the agents."""
        current, self._transport = self._transport, None
        if current is not None:
            current.close()


class _OpenTransport:
    """A transport that stays open when a run is over."""

    def __init__(self, current: Transport) -> None:
        self._transport = current

    def call_all(self, calls: Calls[R]) -> list[R | Exception]:
        return self._transport.call_all(calls)

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

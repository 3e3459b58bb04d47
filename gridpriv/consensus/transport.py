"""Transports: they carry calls to agents and answers back.

Agents live in this process (:class:`InProcess`), in worker processes (:class:`Workers`) or on a
Dask cluster (:class:`Cluster`). A call is a method of an agent's class and its arguments, so a type
checker sees both and the answer. Results do not depend on the transport: an agent's arithmetic and
its noise stream depend on the agent only, and each is called whatever becomes of the others.
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

    def close(self) -> None:
        """Let go of whatever the transport holds."""


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

    def resets(self) -> Sequence[Call[None]]:
        """Return the calls that bring existing agents to where new ones would start."""


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


def dealt(calls: Calls[R], shares: Sequence[Sequence[int]]) -> list[list[Call[R]]]:
    """Return the calls of each share of the agents."""
    own = each(calls, sum(map(len, shares)))
    return [[own[position] for position in share] for share in shares]


def in_order(outcomes: Sequence[Sequence[R]], shares: Sequence[Sequence[int]]) -> list[R]:
    """Return the outcomes of all shares in the order of the agents."""
    outcome = dict(zip(chain(*shares), chain(*outcomes), strict=True))
    return [outcome[position] for position in range(len(outcome))]


class InProcess:
    """Agents in this process, one after the other."""

    def __init__(self, agents: Sequence[Any]) -> None:
        self.agents = agents

    @classmethod
    def share(cls, factory: AgentFactory, positions: Sequence[int]) -> InProcess:
        """Return the agents at these positions, made here."""
        return cls(factory.make(positions))

    def ask(self, calls: Calls[R]) -> list[R | Exception]:
        """Return every agent's answer, or its exception."""
        own = each(calls, len(self.agents))
        return [item.answer(agent) for item, agent in zip(own, self.agents, strict=True)]

    def close(self) -> None:
        """Do nothing."""


def in_process(factory: AgentFactory) -> InProcess:
    """Return a transport that holds all agents in this process."""
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
        self._owed = [1] * workers  # answers that were asked for and not yet taken
        try:
            for number in range(workers):
                self._answer(number)
        except BaseException:
            self.close()
            raise

    def ask(self, calls: Calls[R]) -> list[R | Exception]:
        """Return every agent's answer, or its exception; a lost worker's is why it was lost."""
        for number, own in enumerate(dealt(calls, self._shares)):
            self._workers[number].send(own)
            self._owed[number] += 1
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
        held = InProcess.share(factory, share)
    except Exception as error:
        pipe.send(error)
        return
    try:
        pipe.send(len(share))
        while True:
            pipe.send(held.ask(pipe.recv()))
    except (EOFError, ConnectionError):
        return


class Cluster:
    """Agents on the workers of a Dask cluster, which need gridpriv installed: one actor a worker.

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
            self._actors = self._placed(factory, workers)
        except BaseException:
            self.close()
            raise

    def ask(self, calls: Calls[R]) -> list[R | Exception]:
        """Return every agent's answer, or its exception; a lost worker's is that it is lost."""
        pairs = zip(self._actors, dealt(calls, self._shares), strict=True)
        asked = [actor.ask(own) for actor, own in pairs]
        outcomes: list[list[R | Exception]] = []
        for future, share in zip(asked, self._shares, strict=True):
            try:
                outcomes.append(future.result())
            except Exception as error:
                lost = WorkerError(f"a cluster's worker was lost: {error}")
                outcomes.append([lost] * len(share))
        return in_order(outcomes, self._shares)

    def close(self) -> None:
        """Let the actors go."""
        self._actors = []
        self._client.close()

    def _placed(self, factory: AgentFactory, workers: Sequence[str]) -> list[Any]:
        """Return one actor per worker, which holds the worker's share of the agents."""
        here = self._client.scatter(factory, broadcast=True, hash=False)
        hosts = zip(workers, self._shares, strict=False)  # no actor where there is no agent
        made = [
            self._client.submit(
                InProcess.share, here, share, actor=True, pure=False, workers=[worker]
            )
            for worker, share in hosts
        ]
        return [future.result() for future in made]


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

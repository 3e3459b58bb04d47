"""The coordinator: lines 1-9 of Algorithm 3.1, on whatever transport carries the messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from gridpriv.consensus.agent import Agent, Message
from gridpriv.consensus.schedules import PenaltySchedule, StepSize
from gridpriv.consensus.transport import Transport
from gridpriv.core.arrays import Floats, Ints
from gridpriv.core.errors import GridprivError
from gridpriv.privacy.release import Release


@dataclass(frozen=True, eq=False)
class RoundRecord:
    """One round's figures. ``consensus_residual`` is public; the rest use private data.

    Attributes
    ----------
    consensus_residual : float
        ||Aw - z||_2 at the round's w and the z sent after it.
    figures : dict
        Sums over agents of their figures at the average they sent.
    by_agent : dict of str to dict
        The same per agent.
    """

    round: int
    consensus_residual: float
    noise_magnitude: float
    figures: dict[str, float]
    by_agent: dict[str, dict[str, float]]
    penalty: tuple[float, float]
    seconds: float
    iterations: int
    retries: int
    solves: int


@dataclass(eq=False)
class Trace:
    """What a run leaves: its rounds, its last w, sent and dual and, per agent, every release.

    It grows while the run goes on, so a run that fails keeps what it has.
    """

    rounds: list[RoundRecord] = field(default_factory=list)
    releases: dict[str, dict[Release, int]] = field(default_factory=dict)
    w: Floats = field(default_factory=lambda: np.zeros(0))
    sent: Floats = field(default_factory=lambda: np.zeros(0))
    dual: Floats = field(default_factory=lambda: np.zeros(0))


class Consensus(Protocol):
    """Which global variable each agent's shared coordinates are, and how they are stacked.

    Attributes
    ----------
    holders : (K,) int
        How many agents hold each global variable.
    """

    @property
    def holders(self) -> Ints:
        """How many agents hold each global variable."""
        ...

    @property
    def size(self) -> int:
        """Number of global variables K."""
        ...

    def stack(self, parts: Sequence[Floats]) -> Floats:
        """Return the agents' shared coordinates as one array."""
        ...

    def split(self, stacked: Floats) -> list[Floats]:
        """Return each agent's part of stacked values."""
        ...

    def spread(self, values: Floats) -> Floats:
        """Return each global variable's value at its holders; it combines with stacked values."""
        ...

    def average(self, stacked: Floats) -> Floats:
        """Return the mean over holders, shape (K,)."""
        ...

    def norms(self, stacked: Floats) -> Floats:
        """Return the 2-norm over holders, shape (K,)."""
        ...


@dataclass(frozen=True, eq=False)
class PartlyShared:
    """Agents that each hold some of the global variables, one agent after the other.

    Attributes
    ----------
    place : (S,) int
        Global variable (0..K-1) of every agent's shared coordinates, one agent after the other.
    cuts : tuple of int
        Where one agent's part ends and the next begins.
    holders : (K,) int
        How many agents hold each global variable.
    """

    place: Ints
    cuts: tuple[int, ...]
    holders: Ints

    @property
    def size(self) -> int:
        """Number of global variables K."""
        return len(self.holders)

    def stack(self, parts: Sequence[Floats]) -> Floats:
        """Return the agents' shared coordinates, shape (S,)."""
        return np.concatenate(list(parts))

    def split(self, stacked: Floats) -> list[Floats]:
        """Return each agent's part of stacked values."""
        return np.split(stacked, self.cuts)

    def spread(self, values: Floats) -> Floats:
        """Return each global variable's value at its holders, shape (S,)."""
        spread: Floats = values[self.place]
        return spread

    def average(self, stacked: Floats) -> Floats:
        """Return the mean over holders, shape (K,)."""
        return np.bincount(self.place, stacked, minlength=self.size) / self.holders

    def norms(self, stacked: Floats) -> Floats:
        """Return the 2-norm over holders, shape (K,)."""
        return np.sqrt(np.bincount(self.place, stacked**2, minlength=self.size))


@dataclass(frozen=True)
class FullyShared:
    """Agents that all hold every global variable: stacked values are a matrix (agents, K).

    It is :class:`PartlyShared` of equal coordinates without an index: at a million parameters
    the gathers cost more than the agents' own work.
    """

    agents: int
    size: int

    @property
    def holders(self) -> Ints:
        """The number of agents, for each global variable."""
        return np.full(self.size, self.agents)

    def stack(self, parts: Sequence[Floats]) -> Floats:
        """Return the agents' coordinates, shape (agents, K)."""
        return np.stack(list(parts))

    def split(self, stacked: Floats) -> list[Floats]:
        """Return each agent's row; one row is every agent's."""
        return list(np.broadcast_to(stacked, (self.agents, self.size)))

    def spread(self, values: Floats) -> Floats:
        """Return the values as one row, shape (1, K)."""
        return values[None]

    def average(self, stacked: Floats) -> Floats:
        """Return the mean over agents, shape (K,)."""
        mean: Floats = stacked.mean(axis=0)
        return mean

    def norms(self, stacked: Floats) -> Floats:
        """Return the 2-norm over agents, shape (K,)."""
        norms: Floats = np.sqrt(np.einsum("pk,pk->k", stacked, stacked))
        return norms


def make_consensus(shared_coordinates: Sequence[Ints]) -> PartlyShared:
    """Return the consensus of agents, from the global numbers of their shared coordinates."""
    stacked = np.concatenate(list(shared_coordinates))
    _, place, holders = np.unique(stacked, return_inverse=True, return_counts=True)
    cuts = np.cumsum([len(part) for part in shared_coordinates])[:-1]
    return PartlyShared(place.reshape(-1), tuple(int(c) for c in cuts), holders)


@dataclass(frozen=True, eq=False)
class State:
    """Where the coordinator stands: what was sent last, the duals, the penalties; all public.

    Attributes
    ----------
    sent, dual : array
        Stacked over agents, as the consensus stacks them.
    rho : (K,)
        Of each global variable.
    """

    sent: Floats
    dual: Floats
    rho: Floats


@dataclass(frozen=True)
class Plan:
    """How many rounds are run, and how.

    Attributes
    ----------
    rounds : int
        T.
    step : callable
        eta^t.
    penalty : PenaltySchedule
        How rho follows from released values.
    tolerance : float
        Stop when the consensus residual, a public figure, falls below it.
    rehearsal : bool
        Whether agents run on their public proxies, without noise.
    """

    rounds: int
    step: StepSize
    penalty: PenaltySchedule
    tolerance: float = 0.0
    rehearsal: bool = False


def coordinate(
    transport: Transport,
    consensus: Consensus,
    state: State,
    plan: Plan,
    names: Sequence[str],
    trace: Trace,
    watch: Callable[[RoundRecord], None] = lambda _: None,
) -> State:
    """Run Algorithm 3.1, fill ``trace`` and return the last state.

    Parameters
    ----------
    names : sequence of str
        Of the agents, in the transport's order.
    trace : Trace
        Filled round by round; it keeps what was done, and every draw, if an agent's solver fails.
    watch : callable
        Called after every round.
    """
    sent, dual, rho = state.sent, state.dual, state.rho
    last_w: Floats | None = None
    for t in range(1, plan.rounds + 1):
        began = time.perf_counter()
        each = consensus.spread(rho)
        w = consensus.average(sent - dual / each)
        target = consensus.spread(w)
        orders = [
            Order(t, *given, plan.step(t), plan.rehearsal)
            for given in zip(consensus.split(target), consensus.split(each), strict=True)
        ]
        try:
            messages = transport.apply(run_round, orders)
        except GridprivError as error:
            error.add_note(f"{len(trace.rounds)} of {plan.rounds} rounds were finished")
            if not plan.rehearsal:
                _note_draws(transport, names, trace)
            raise
        sent = consensus.stack([message.sent for message in messages])
        gap = target - sent
        dual = dual + each * gap
        apart = consensus.norms(gap)
        seconds = time.perf_counter() - began
        record = _record(t, messages, names, float(np.linalg.norm(apart)), rho, seconds)
        trace.rounds.append(record)
        for name, message in zip(names, messages, strict=True):
            _count(trace.releases.setdefault(name, {}), message.releases)
        trace.w, trace.sent, trace.dual = w, sent, dual
        watch(record)
        moved = rho * np.sqrt(consensus.holders) * np.abs(w - (w if last_w is None else last_w))
        rho, last_w = plan.penalty.following(t, rho, apart, moved), w
        if record.consensus_residual < plan.tolerance:
            break
    return State(sent, dual, rho)


@dataclass(frozen=True, eq=False)
class Order:
    """What an agent is given for one round: number, w, rho, step; all of it is public."""

    number: int
    w: Floats
    penalty: Floats
    step: float
    rehearsal: bool


def run_round(agent: Agent, order: Order) -> Message:
    """Have an agent run, or rehearse, the round it is given."""
    act = agent.rehearse if order.rehearsal else agent.round
    return act(order.number, order.w, order.penalty, order.step)


def drawn(agent: Agent, _: None = None) -> dict[Release, int]:
    """Return every release an agent has drawn."""
    return agent.drawn


def _note_draws(transport: Transport, names: Sequence[str], trace: Trace) -> None:
    """Add the draws of a round that failed: whoever saw the failure saw what they decided.

    A worker that died cannot say; the rounds before it are noted already.
    """
    with suppress(GridprivError):
        counts = transport.apply(drawn, [None] * len(names))
        trace.releases = dict(zip(names, counts, strict=True))


def _count(total: dict[Release, int], new: dict[Release, int]) -> None:
    for release, count in new.items():
        total[release] = total.get(release, 0) + count


def _record(
    t: int,
    messages: Sequence[Message],
    names: Sequence[str],
    residual: float,
    rho: Floats,
    seconds: float,
) -> RoundRecord:
    by_agent = {n: m.figures for n, m in zip(names, messages, strict=True)}
    totals = {key: float(sum(m.figures[key] for m in messages)) for key in messages[0].figures}
    return RoundRecord(
        round=t,
        consensus_residual=residual,
        noise_magnitude=float(sum(m.noise_magnitude for m in messages)),
        figures=totals,
        by_agent=by_agent,
        penalty=(float(rho.min()), float(rho.max())) if rho.size else (0.0, 0.0),
        seconds=seconds,
        iterations=sum(m.iterations for m in messages),
        retries=sum(m.retries for m in messages),
        solves=sum(m.solves for m in messages),
    )

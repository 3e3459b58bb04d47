"""The coordinator, lines 1-9 of Algorithm 3.1, and the Anderson acceleration of its rounds.

The coordinator has only an :class:`Exchange` of orders and replies, so no value before
noise can reach it.

A round of Algorithm 3.1 with exact updates maps y = w + dual/rho, at every agent that has a
variable, to its next value (a Douglas-Rachford step; Eckstein and Bertsekas 1992)::

    y -> y + g(y),    g(y) = average(2 sent - y) - sent,    sent = argmin f + rho/2 ||z - y||^2

A fixed point of it is an optimum. From the last values of y and g, Anderson's step of type II
takes the combination whose g is smallest in the metric of rho (Walker and Ni 2011, eq. 2.2)::

    y+ = y + g - (dY + dG) argmin_c ||g - dG c||_rho

It reads only w, duals and replies, so it is post-processing of releases. It needs a stationary
iteration: fresh noise would be extrapolated like progress. Rounds of another rho are expressed as
steps of the present map. Alternatives that were tried: docs/decisions/0017-acceleration.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from gridpriv.consensus.messages import Exchange, Order, Reply, Stale
from gridpriv.consensus.schedules import PenaltySchedule, StepSize
from gridpriv.core.arrays import Floats, Ints
from gridpriv.core.errors import GridprivError

Acceleration = Literal["newton", "anderson", "none"]


@dataclass(frozen=True, eq=False)
class Step:
    """One round as a step of the map.

    Attributes
    ----------
    y : (S,)
        y, stacked over agents.
    g : (S,)
        Value of g(y).
    """

    y: Floats
    g: Floats

    def __sub__(self, other: Step) -> Step:
        """Return the differences of y and of g."""
        return Step(self.y - other.y, self.g - other.g)


@dataclass(frozen=True)
class Anderson:
    """Anderson's step from the last rounds.

    Attributes
    ----------
    memory : int
        Differences of rounds that are combined, at most.
    growth : float
        A step after which ||g||, the combined primal and dual residual, exceeds the least of the
        remembered rounds this many times is dropped: the next round is the plain step from the
        round with the least.
    regular : float
        Tikhonov term of the least squares, relative to its trace.
    """

    memory: int = 5
    growth: float = 1.5
    regular: float = 1e-10

    def window(self, past: Sequence[Step]) -> list[Step]:
        """Return the past rounds for the next step, including the last."""
        return list(past[-self.memory - 1 :])

    def extrapolation(self, past: Sequence[Step], rho: Floats) -> Floats:
        """Return the next y less the plain step's, shape (S,).

        Parameters
        ----------
        past : sequence of Step
            Selected rounds, the latest last.
        rho : (S,)
            Of every shared coordinate.
        """
        last = past[-1]
        if len(past) == 1:
            return np.zeros_like(last.y)
        lengths = [_length(step.g, rho) for step in past]
        best = past[int(np.argmin(lengths))]
        if lengths[-1] > self.growth * min(lengths):
            return (best.y - last.y) + (best.g - last.g)
        steps = [after - before for before, after in pairwise(past)]
        g_steps = np.array([step.g for step in steps])
        gram = (g_steps * rho) @ g_steps.T
        gram += self.regular * np.trace(gram) * np.eye(len(gram))
        share = np.linalg.lstsq(gram, g_steps @ (rho * last.g), rcond=None)[0]
        extrapolation: Floats = -share @ (g_steps + np.array([step.y for step in steps]))
        return extrapolation


def _length(g: Floats, rho: Floats) -> float:
    return float(np.sqrt(rho @ g**2))


@dataclass(frozen=True, eq=False)
class PartlyShared:
    """Agents that each have some of the global variables, stacked by agent.

    Attributes
    ----------
    place : (S,) int
        Global variable (0..K-1) of every agent's coupling coordinates, stacked by agent.
    cuts : tuple of int
        Boundaries between the agents' parts.
    holders : (K,) int
        Number of agents that have each global variable.
    """

    place: Ints
    cuts: tuple[int, ...]
    holders: Ints

    @property
    def size(self) -> int:
        """Number of global variables K."""
        return len(self.holders)

    def stack(self, parts: Sequence[Floats]) -> Floats:
        """Return the agents' coupling coordinates, shape (S,)."""
        return np.concatenate(list(parts))

    def split(self, stacked: Floats) -> list[Floats]:
        """Return each agent's part of stacked values."""
        ends = pairwise((0, *self.cuts, len(stacked)))  # np.split takes ten times as long
        return [stacked[begin:end] for begin, end in ends]

    def spread(self, values: Floats) -> Floats:
        """Return each global variable's value at its agents, shape (S,)."""
        spread: Floats = values[self.place]
        return spread

    def average(self, stacked: Floats) -> Floats:
        """Return the mean over agents, shape (K,)."""
        return np.bincount(self.place, stacked, minlength=self.size) / self.holders

    def residuals(self, w: Floats, parts: Sequence[Floats]) -> tuple[Floats, float]:
        """Return the distances of the agents' coordinates from w: 2-norms (K,), and the largest."""
        gap = self.spread(w) - self.stack(parts)
        norms = np.sqrt(np.bincount(self.place, gap**2, minlength=self.size))
        return norms, float(np.abs(gap).max(initial=0.0))


@dataclass(frozen=True)
class FullyShared:
    """Agents that all have every global variable; their mean is stacked, shape (1, K).

    The next w is the mean of sent - dual/rho, and rho (w - sent) is added to each dual. Both are
    linear with the same rho for all, so w is a function of the means of sent and dual: it equals
    :class:`PartlyShared` of equal coordinates, and does not grow with the number of agents.
    """

    agents: int
    size: int

    @property
    def holders(self) -> Ints:
        """The number of agents, for each global variable."""
        return np.full(self.size, self.agents)

    def stack(self, parts: Sequence[Floats]) -> Floats:
        """Return the mean of the agents' coordinates, shape (1, K)."""
        total = np.zeros(self.size)
        for part in parts:
            total += part
        return (total / self.agents)[None]

    def split(self, stacked: Floats) -> list[Floats]:
        """Return the one row, which is every agent's."""
        return [stacked[0]] * self.agents

    def spread(self, values: Floats) -> Floats:
        """Return the values as one row, shape (1, K)."""
        return values[None]

    def average(self, stacked: Floats) -> Floats:
        """Return the mean over agents, shape (K,)."""
        mean: Floats = stacked[0]
        return mean

    def residuals(self, w: Floats, parts: Sequence[Floats]) -> tuple[Floats, float]:
        """Return the distances of the agents' coordinates from w: 2-norms (K,), and the largest."""
        squares, gap, most = np.zeros(self.size), np.empty(self.size), 0.0
        for part in parts:
            np.square(np.subtract(part, w, out=gap), out=gap)
            squares += gap
            most = max(most, float(gap.max(initial=0.0)))
        return np.sqrt(squares, out=squares), math.sqrt(most)


Consensus = PartlyShared | FullyShared
"""The map from agents' coupling coordinates to global variables, and their stacking."""


def make_consensus(shared_coordinates: Sequence[Ints]) -> PartlyShared:
    """Return the consensus of agents, from the global numbers of their coupling coordinates."""
    stacked = np.concatenate(list(shared_coordinates))
    _, place, holders = np.unique(stacked, return_inverse=True, return_counts=True)
    cuts = np.cumsum([len(part) for part in shared_coordinates])[:-1]
    return PartlyShared(place.reshape(-1), tuple(int(c) for c in cuts), holders)


@dataclass(frozen=True, eq=False)
class State:
    """State of the coordinator: last messages, duals and penalties; all public.

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
    """Number of rounds, their step sizes, penalties and stopping rule.

    Attributes
    ----------
    rounds : int
        T.
    step : callable
        eta^t.
    penalty : PenaltySchedule
        Rule of rho, a function of released values.
    tolerance : float
        Stop when the largest primal residual of a coordinate falls below it and the largest dual
        residual of a variable below :data:`DUAL_TOLERANCE` times it, in a round that all agents
        answered (a repeated message would have no residual). Both residuals are public.
    first : int
        Number of the first round; above 1, nothing may depend on earlier rounds.
    acceleration : Anderson, optional
        For a stationary iteration: exact updates, noise drawn once.
    """

    rounds: int
    step: StepSize
    penalty: PenaltySchedule
    tolerance: float = 0.0
    first: int = 1
    acceleration: Anderson | None = None


@dataclass(frozen=True, eq=False)
class Turn:
    """One finished round of the coordinator; all of it is public.

    Attributes
    ----------
    number : int
        t.
    w, penalty : (K,)
        The global variables and rho sent to the agents.
    residual : float
        ||Aw - z||_2 at that w and the z sent after it.
    farthest : float
        Largest primal residual of a coordinate: z less its w.
    dual_residual : float
        ||rho (w - last w)||_2 over all agents: the ADMM's dual residual (Boyd et al. 2011, 3.3).
        In the first round, the last w is the mean of the messages.
    state : State
        Start of the next round.
    """

    number: int
    w: Floats
    penalty: Floats
    residual: float
    farthest: float
    dual_residual: float
    state: State


DUAL_TOLERANCE = 10.0
"""Dual residuals at which rounds stop, per unit of their primal tolerance: a price's share of the
mean marginal cost, which is 1."""


def rounds(exchange: Exchange, consensus: Consensus, state: State, plan: Plan) -> Iterator[Turn]:
    """Run Algorithm 3.1 and yield every round as it is finished.

    Adaptive rules (penalties, stopping) read only the replies of ``exchange``.

    Parameters
    ----------
    exchange : Exchange
        Sends every agent its order and returns the replies, in the agents' order.
    state : State
        Start of the first round.

    Yields
    ------
    Turn
        Public.

    Raises
    ------
    GridprivError
        From an agent, with a note on the number of finished rounds.
    """
    last_w = consensus.average(state.sent)
    past: list[State] = []
    extrapolation = np.zeros_like(state.sent)
    for t in range(plan.first, plan.rounds + 1):
        rho = state.rho
        w, target, each = _global_variables(consensus, state)
        # an agent adds its own dual: with w + lead it uses w + dual/rho + lead
        w, target = w + consensus.average(extrapolation), target + extrapolation
        try:
            sent, (primal_residuals, farthest), all_answered = _answered(
                exchange(_orders(consensus, t, target, each, plan.step(t))), consensus, w
            )
        except GridprivError as error:
            error.add_note(f"{t - 1} of {plan.rounds} rounds were finished")
            raise
        dual = state.dual + each * (target - sent)
        dual_residuals = rho * np.sqrt(consensus.holders) * np.abs(w - last_w)
        following, last_w = plan.penalty.following(t, rho, primal_residuals, dual_residuals), w
        state = State(sent, dual, following)
        if plan.acceleration is not None:
            each = consensus.spread(following)
            past = [*past, state]
            steps = plan.acceleration.window([_step(consensus, s, each) for s in past])
            past, extrapolation = past[-len(steps) :], plan.acceleration.extrapolation(steps, each)
        primal, dual_residual = (
            float(np.linalg.norm(each)) for each in (primal_residuals, dual_residuals)
        )
        yield Turn(t, w, rho, primal, farthest, dual_residual, state)
        dual_converged = (
            t > plan.first and dual_residuals.max(initial=0.0) < DUAL_TOLERANCE * plan.tolerance
        )
        if all_answered and dual_converged and farthest < plan.tolerance:
            return


def _answered(
    replies: Sequence[Reply], consensus: Consensus, w: Floats
) -> tuple[Floats, tuple[Floats, float], bool]:
    """Return the sent values, stacked, their distance from w, and True if all agents sent them."""
    parts = [reply.sent for reply in replies]
    all_answered = not any(isinstance(reply, Stale) for reply in replies)
    return consensus.stack(parts), consensus.residuals(w, parts), all_answered


def orders_at(consensus: Consensus, state: State, plan: Plan, t: int) -> list[Order]:
    """Return every agent's order of round t, from the state at its start."""
    _, target, each = _global_variables(consensus, state)
    return _orders(consensus, t, target, each, plan.step(t))


def _global_variables(consensus: Consensus, state: State) -> tuple[Floats, Floats, Floats]:
    """Return the next w, and w and rho at every agent."""
    each = consensus.spread(state.rho)
    w = consensus.average(state.sent - state.dual / each)
    return w, consensus.spread(w), each


def _step(consensus: Consensus, state: State, each: Floats) -> Step:
    """Return the round that led to a state, as a step at ``each``: y = sent + dual/rho.

    The dual is a subgradient of f at the sent values. So that y leads to them at any rho, and
    rounds of another rho are steps of the present map.
    """
    share = state.dual / each
    following = consensus.spread(consensus.average(state.sent - share))
    return Step(state.sent + share, following - state.sent)


def _orders(consensus: Consensus, t: int, target: Floats, each: Floats, step: float) -> list[Order]:
    parts = zip(consensus.split(target), consensus.split(each), strict=True)
    return [Order(t, w, rho, step) for w, rho in parts]

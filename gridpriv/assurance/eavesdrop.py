"""What an eavesdropper has of a run: every message, in both directions, round by round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gridpriv.coordination.agent import Agent, AgentRules, Message, Streams
from gridpriv.coordination.coordinator import (
    Plan,
    State,
    Trace,
    coordinate,
    make_consensus,
    run_round,
)
from gridpriv.coordination.problem import LocalProblem
from gridpriv.coordination.transport import InProcess
from gridpriv.errors import SolverError
from gridpriv.grid.case import Floats
from gridpriv.privacy.noise import NoiseStreams
from gridpriv.privacy.perturbation import NoiseRule
from gridpriv.run import Prepared, step_size


class MakeAgent(Protocol):
    """How an audited agent is built: :class:`Agent`, or a variant that is under suspicion."""

    def __call__(
        self,
        problem: LocalProblem,
        data: Floats,
        shared: NDArray[np.bool_],
        rules: AgentRules,
        streams: Streams,
    ) -> Agent:
        """Return the agent."""
        ...


@dataclass(frozen=True, eq=False)
class Heard:
    """One round of one zone, as the network saw it.

    Attributes
    ----------
    w, penalty : (m,)
        What the zone was sent for its m shared variables.
    step : float
    sent : (m,)
        What it answered.
    """

    number: int
    w: Floats
    penalty: Floats
    step: float
    sent: Floats


class Eavesdropper:
    """A transport that writes down every message it carries."""

    def __init__(self, agents: Sequence[Agent]) -> None:
        self._inner = InProcess(agents)
        self.heard: list[list[Heard]] = [[] for _ in agents]
        self.messages: list[list[Message]] = [[] for _ in agents]

    def apply(self, task: Callable[[Agent, Any], Any], given: Sequence[Any]) -> list[Any]:
        """Apply a task to every agent; if it is a round, keep what was said."""
        answers = self._inner.apply(task, given)
        if task is run_round:
            for zone, (order, answer) in enumerate(zip(given, answers, strict=True)):
                said = Heard(
                    order.number, order.w.copy(), order.penalty.copy(), order.step,
                    answer.sent.copy(),
                )  # fmt: skip
                self.heard[zone].append(said)
                self.messages[zone].append(answer)
        return answers

    def close(self) -> None:
        """Do nothing."""


def listen(
    prepared: Prepared,
    seed: int | None = None,
    *,
    noise: Sequence[NoiseRule | None] | None = None,
    make_agent: MakeAgent = Agent,
    watch: Callable[[str], None] = lambda _: None,
) -> Eavesdropper:
    """Run the consensus algorithm and return what crossed the network.

    Parameters
    ----------
    prepared : Prepared
    seed : int, optional
        Of the simulated noise; the prepared run's own if not given.
    noise : sequence of NoiseRule, optional
        One per zone in place of the run's (a tape recorder, say).
    make_agent : callable
    watch : callable
        Called after every round with a note.
    """
    rules = prepared.rules
    streams = NoiseStreams(prepared.seed if seed is None else seed)
    each = [rules.noise] * len(prepared.problems) if noise is None else list(noise)
    agents = [
        make_agent(
            problem, problem.program.zone.demand, shared, replace(rules, noise=rule), streams
        )
        for problem, shared, rule in zip(prepared.problems, prepared.shared, each, strict=True)
    ]
    transport = Eavesdropper(agents)
    pairs = list(zip(prepared.problems, prepared.shared, strict=True))
    settings = prepared.settings
    consensus = make_consensus([p.coordinates[s] for p, s in pairs])
    start = np.concatenate([p.start()[s] for p, s in pairs])
    schedule = settings.penalty_schedule()
    coordinate(
        transport,
        consensus,
        State(start, np.zeros_like(start), schedule.first(consensus.size)),
        Plan(settings.rounds, step_size(prepared, transport), schedule, settings.tolerance),
        [p.name for p in prepared.problems],
        Trace(),
        lambda record: watch(f"round {record.round}"),
    )
    return transport


def answer(agent: Agent, heard: Heard) -> Message:
    """Return the agent's answer to what the network sent in a recorded round.

    Raises
    ------
    SolverError
        With the zone and round, from the agent.
    """
    try:
        return agent.round(heard.number, heard.w, heard.penalty, heard.step)
    except SolverError as error:
        error.add_note("while a recorded run was played again")
        raise

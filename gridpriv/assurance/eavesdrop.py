"""Messages of a run as an adversary sees them: both directions, round by round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gridpriv.consensus.agent import Agent
from gridpriv.consensus.memory import AgentRules, Streams
from gridpriv.consensus.messages import Order, Reply
from gridpriv.consensus.transport import Calls, InProcess, R, each
from gridpriv.core.arrays import Floats
from gridpriv.core.errors import SolverError, not_allowed
from gridpriv.power.fleet import public_proxy
from gridpriv.privacy.noise import NoiseStreams
from gridpriv.zonal.prepared import Prepared
from gridpriv.zonal.run import open_rounds, play_rounds

MakeAgent = Callable[..., Agent]
"""Builds an audited agent with what :class:`Agent` takes: that, or a variant under suspicion."""


@dataclass(frozen=True, eq=False)
class Heard(Order):
    """One round of one zone, as the network saw it: the order, and the reply to it.

    Attributes
    ----------
    warm_start : bool
        Whether it ran on the public proxy.
    """

    reply: Reply
    warm_start: bool

    @property
    def sent(self) -> Floats:
        """Reply of the zone, (m,)."""
        return self.reply.sent


class Eavesdropper:
    """A transport that writes down every message it carries."""

    def __init__(self, agents: Sequence[Agent]) -> None:
        self._inner = InProcess(agents)
        self.heard: list[list[Heard]] = [[] for _ in agents]

    def ask(self, calls: Calls[R]) -> list[R | Exception]:
        """Call every agent; if it is a round, keep the order and the reply."""
        outcomes = self._inner.ask(calls)
        for zone, (item, reply) in enumerate(
            zip(each(calls, len(outcomes)), outcomes, strict=True)
        ):
            name = item.method.__name__
            if name in ("warm_start", "round") and isinstance(reply, Reply):
                (order,) = item.given
                warm = name == "warm_start"
                self.heard[zone].append(Heard(**vars(order), reply=reply, warm_start=warm))
        return outcomes

    def close(self) -> None:
        """Do nothing."""


def listen(
    prepared: Prepared,
    seed: int | None = None,
    *,
    make_agent: MakeAgent = Agent,
    watch: Callable[[str], None] = lambda _: None,
    data: Sequence[Floats] | None = None,
) -> Eavesdropper:
    """Run the consensus algorithm as :func:`gridpriv.zonal.run.run` does and keep what was said.

    Parameters
    ----------
    seed : int, optional
        Of the simulated noise; the prepared run's own if not given.
    watch : callable
        Called after every round with a note.
    data : sequence of array, optional
        Every zone's demand, in place of its own.

    Raises
    ------
    InputError
        For a run without rounds: all that leaves a zone is then its one release.
    """
    if prepared.settings.coordination == "central":
        raise not_allowed(
            "coordination",
            "central",
            "'rounds': audits and attacks listen to rounds; with one central schedule all that "
            "leaves a zone is the release, which --release studies as well",
        )
    streams = NoiseStreams(prepared.seed if seed is None else seed)
    agents = [
        zone_agent(prepared, zone, own, prepared.rules, streams, make_agent)
        for zone, own in enumerate(data or [None] * len(prepared.zones))
    ]
    transport = Eavesdropper(agents)
    relaxed = varied(prepared, settings=replace(prepared.settings, planning="soc"))
    for turn in play_rounds(relaxed, transport, open_rounds(relaxed, transport)):
        watch(f"round {turn.number}")
    return transport


def zone_agent(
    prepared: Prepared,
    zone: int,
    data: Floats | None,
    rules: AgentRules,
    streams: Streams,
    make_agent: MakeAgent = Agent,
) -> Agent:
    """Return the agent of the zone at a position, on its own demand or on ``data``."""
    problem = prepared.problems[zone]
    own = problem.program.zone
    return make_agent(
        problem,
        own.demand if data is None else data,
        prepared.shared[zone],
        rules,
        streams,
        proxy=public_proxy(own),
    )


def varied(prepared: Prepared, **changes: Any) -> Prepared:
    """Return a prepared run with other rules or settings, around the same compiled problems.

    Its zones, consensus and solver stay what they are.
    """
    twin = replace(prepared, **changes)
    twin.__dict__["problems"] = prepared.problems
    return twin


def opening(script: Sequence[Heard], rounds: int) -> list[Heard]:
    """Return the warm start, if there is one, and the first private rounds."""
    warm_started = [heard for heard in script if heard.warm_start]
    return warm_started + [heard for heard in script if not heard.warm_start][:rounds]


def answer(agent: Agent, heard: Heard) -> Reply:
    """Return the agent's answer to what the network sent in a recorded round.

    Raises
    ------
    SolverError
        With the zone and round, from the agent.
    """
    try:
        return agent.warm_start(heard) if heard.warm_start else agent.round(heard)
    except SolverError as error:
        error.add_note("while a recorded run was played again")
        raise

"""Messages of a run as an adversary sees them: both directions, round by round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gridpriv.consensus.agent import Agent
from gridpriv.consensus.messages import Order, Reply
from gridpriv.consensus.problem import AgentRules, Streams
from gridpriv.consensus.transport import Calls, InProcess, R, Transport, each
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


OWN = ("figures", "outcome", "drawn", "plan")
"""Methods of a simulation that a zone's owner answers to itself."""


class Eavesdropper:
    """A transport that keeps everything that crosses the network, and each zone's rounds.

    Every argument of a call comes from the coordinator. Answers are kept but for those that an
    owner gives to itself (:data:`OWN`). Of plans the first is kept: replans follow measurements.
    """

    def __init__(self, inner: Transport, zones: int) -> None:
        self._inner, self._zones = inner, zones
        self.crossed: list[tuple[str, Any, Any]] = []
        self.heard: list[list[Heard]] = [[] for _ in range(zones)]

    def ask(self, calls: Calls[R]) -> list[R | Exception]:
        """Call every zone and keep the calls, and the answers that are sent."""
        outcomes = self._inner.ask(calls)
        sent = each(calls, self._zones)
        name, given = sent[0].method.__name__, [request.given for request in sent]
        if name not in OWN:
            self.crossed.append((name, given, outcomes))
        elif name == "plan" and all(kept != "plan" for kept, _, _ in self.crossed):
            self.crossed.append((name, given, None))
        warm = name == "warm_start"
        for script, call, reply in zip(self.heard, sent, outcomes, strict=True):
            if (warm or name == "round") and isinstance(reply, Reply):
                script.append(Heard(**vars(call.given[0]), reply=reply, warm_start=warm))
        return outcomes

    def close(self) -> None:
        """Close the transport."""
        self._inner.close()


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
    transport = Eavesdropper(InProcess(agents), len(agents))
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

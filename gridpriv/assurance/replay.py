"""Replay audit: the same run on adjacent demand, with every release frozen.

An agent runs on D against a recorded network, and each release (private value, noisy output,
proven sensitivity) is recorded on a tape. It then runs on D' against the same network, and each
release returns its output on D. Only the private values before noise may then differ. Five checks:

calls      the same releases are made, in the same rounds, at the same sensitivity and scale:
           control flow and noise do not depend on the data;
values     each private value changes by at most its proven sensitivity;
messages   all messages are the same: they are computed from releases alone;
history    with D and D' exchanged after every release, each value is that of the present data:
           no private state outlives a release;
noise      on D, every coordinate has noise, and every release was charged.

No noise is drawn except the run's own, so the audit is exact, not statistical.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gridpriv.assurance.adversary import MakeAgent, Neighbour, RecordedRound, answer, zone_agent
from gridpriv.consensus.agent import Agent
from gridpriv.core.arrays import Floats
from gridpriv.privacy.mechanism import Mechanism, Stream, Wrapped
from gridpriv.privacy.noise import NoiseStreams
from gridpriv.privacy.perturbation import NoiseRule
from gridpriv.privacy.release import Release
from gridpriv.privacy.sensitivity import Norm, Sensitivity, length
from gridpriv.zonal.prepared import Prepared

CHECKS = ("calls", "values", "messages", "history", "noise")
ROUNDING = 1e-12  # per coordinate of a value without a solver, times its size


@dataclass(frozen=True, eq=False)
class Draw:
    """One release on tape.

    Attributes
    ----------
    value : array
        The private quantity, before noise.
    output : array
        Released value.
    sensitivity : Sensitivity
        Proven.
    scale : float
        Of the noise, as declared.
    """

    value: Floats
    output: Floats
    sensitivity: Sensitivity
    scale: float

    @property
    def call(self) -> tuple[float, Norm, float, tuple[int, ...]]:
        """Quantity that must not depend on the data."""
        return (self.sensitivity.value, self.sensitivity.norm, self.scale, self.value.shape)


@dataclass(eq=False)
class Tape:
    """Releases of one agent: recorded, or returned as they were recorded before.

    Attributes
    ----------
    frozen : sequence of array or None
        Outputs to return; None records the mechanism's own.
    after : callable
        Called after every release.
    """

    frozen: Sequence[Floats] | None = None
    drawn: list[Draw] = field(default_factory=list)
    after: Callable[[], None] = lambda: None

    def release(self, inner: Release, value: Floats, stream: Stream) -> Floats:
        """Record a release and return its output."""
        position = len(self.drawn)
        frozen_output = (
            self.frozen[position] if self.frozen and position < len(self.frozen) else None
        )
        if frozen_output is not None and frozen_output.shape == value.shape:
            output = frozen_output
        else:
            output = inner.mechanism.perturb(value, stream)
        self.drawn.append(Draw(value.copy(), output, inner.sensitivity, inner.mechanism.scale))
        self.after()
        return output


@dataclass(frozen=True, eq=False)
class TapedMechanism(Wrapped):
    """A mechanism whose draws go through a tape."""

    inner: Release
    tape: Tape

    def perturb(self, value: Floats, stream: Stream) -> Floats:
        """Return the taped output."""
        return self.tape.release(self.inner, value, stream)


@dataclass(frozen=True)
class TapedRule(NoiseRule):
    """A noise rule whose releases go through a tape."""

    inner: NoiseRule | None = None
    tape: Tape = field(default_factory=Tape, compare=False)

    def release(self, sensitivity: Sensitivity) -> Release:
        """Return the inner rule's release, taped."""
        assert self.inner is not None
        inner = self.inner.release(sensitivity)
        mechanism: Mechanism = TapedMechanism(inner.mechanism, inner, self.tape)
        return replace(inner, mechanism=mechanism)


def taped(rule: NoiseRule, tape: Tape) -> TapedRule:
    """Return ``rule`` with its releases recorded on a tape."""
    return TapedRule(
        rule.mechanism, rule.source, rule.multiplier, rule.assumed, inner=rule, tape=tape
    )


@dataclass(frozen=True, eq=False)
class Played:
    """An agent's run against a recorded network.

    Attributes
    ----------
    per_round : tuple of int
        Number of releases in each round.
    sent : tuple of array
        Message of each round.
    charged : int
        Releases in the messages, for the accountant.
    """

    draws: tuple[Draw, ...]
    per_round: tuple[int, ...]
    sent: tuple[Floats, ...]
    charged: int


Play = Callable[[Floats, Tape], Played]
"""Runs an agent on data (which the tape's ``after`` may exchange) with a tape in its noise rule."""


def agent_play(
    prepared: Prepared, zone: int, script: Sequence[RecordedRound], make_agent: MakeAgent = Agent
) -> Play:
    """Return the replay of one zone's agent against the rounds of ``script``."""
    rule = prepared.rules.noise
    assert rule is not None

    def play(data: Floats, tape: Tape) -> Played:
        rules = replace(prepared.rules, noise=taped(rule, tape))
        streams = NoiseStreams(prepared.seed)
        agent = zone_agent(prepared, zone, data, rules, streams, make_agent)
        sent, counts, charged = [], [], 0
        for record in script:
            before = len(tape.drawn)
            message = answer(agent, record)
            sent.append(message.sent.copy())
            counts.append(len(tape.drawn) - before)
            charged += sum(message.releases.values())
        return Played(tuple(tape.drawn), tuple(counts), tuple(sent), charged)

    return play


@dataclass(frozen=True)
class Finding:
    """The worst outcome of one check.

    Attributes
    ----------
    check : str
        One of :data:`CHECKS`.
    measured, allowed : float
        In the check's unit: for ``values`` the distance and the proven sensitivity; for the
        rest a difference that must vanish.
    ratio : float
        ``values``: distance over proven sensitivity.
    """

    check: str
    zone: str
    neighbour: str
    measured: float
    allowed: float
    ratio: float = 0.0

    @property
    def passed(self) -> bool:
        """True if the measured value is at most the allowed one."""
        return self.measured <= self.allowed


def replay(play: Play, data: Floats, neighbours: Sequence[Neighbour], zone: str) -> list[Finding]:
    """Return the findings of every check for every adjacent demand.

    Parameters
    ----------
    data : array
        D.
    zone : str
        For the report.
    """
    base = play(data.copy(), Tape())
    findings = [_noise(base, zone)]
    frozen = [draw.output for draw in base.draws]
    for other in neighbours:
        adjacent = data + other.change
        pair = ReplayPair(base, play(adjacent.copy(), Tape(frozen)), zone, str(other))
        findings += [_calls(pair), _values(pair), _messages(pair)]
        findings.append(_history(pair, play, data, adjacent))
    return findings


@dataclass(frozen=True, eq=False)
class ReplayPair:
    """An agent's runs on D and on D', with the releases of D."""

    base: Played
    twin: Played
    zone: str
    neighbour: str

    def draws(self) -> list[tuple[Draw, Draw]]:
        """Return pairs of releases; different shapes are reported by the check of calls."""
        both = zip(self.base.draws, self.twin.draws, strict=False)
        return [(a, b) for a, b in both if a.value.shape == b.value.shape]

    def finding(self, check: str, measured: float, size: float) -> Finding:
        """Return the finding of a difference that must vanish."""
        return Finding(check, self.zone, self.neighbour, measured, ROUNDING * size)


def _noise(base: Played, zone: str) -> Finding:
    """Count coordinates without noise, and releases without a charge."""
    bare = sum(int((draw.output == draw.value).sum()) for draw in base.draws)
    return Finding("noise", zone, "-", float(bare + abs(len(base.draws) - base.charged)), 0.0)


def _calls(pair: ReplayPair) -> Finding:
    """Count releases that differ in sensitivity, scale or round."""
    same = pair.base.per_round == pair.twin.per_round
    both = zip(pair.base.draws, pair.twin.draws, strict=False)
    differ = sum(a.call != b.call for a, b in both) + (0 if same else 1)
    return Finding("calls", pair.zone, pair.neighbour, float(differ), 0.0)


def _values(pair: ReplayPair) -> Finding:
    """Return the private value with the largest ratio of distance to proven sensitivity."""
    findings = [Finding("values", pair.zone, pair.neighbour, 0.0, 0.0)]
    for a, b in pair.draws():
        norm, declared = a.sensitivity.norm, a.sensitivity.value
        distance = length(a.value - b.value, norm)
        plain: Norm = "box" if norm == "pair" else 1 if norm == "number" else norm
        size = length(a.value, plain)
        allowed = declared + ROUNDING * (declared + size)
        findings.append(
            replace(findings[0], measured=distance, allowed=allowed, ratio=distance / declared)
        )
    return max(findings[1:] or findings, key=lambda row: row.measured - row.allowed)


def _messages(pair: ReplayPair) -> Finding:
    """Return the largest difference of messages at equal releases."""
    both = zip(pair.base.sent, pair.twin.sent, strict=True)
    gap = max(float(np.linalg.norm(a - b)) for a, b in both)
    return pair.finding("messages", gap, max(float(np.linalg.norm(a)) for a in pair.base.sent))


def _history(pair: ReplayPair, play: Play, data: Floats, adjacent: Floats) -> Finding:
    """Exchange D and D' after every release; each value must be that of the present data."""
    working = data.copy()
    tape = Tape([draw.output for draw in pair.base.draws])

    def swap() -> None:
        working[:] = adjacent if len(tape.drawn) % 2 else data

    tape.after = swap
    mixed = play(working, tape)
    gap, size = 0.0, 1.0
    for position, draw in enumerate(mixed.draws):
        owner = (pair.twin if position % 2 else pair.base).draws
        if position < len(owner) and owner[position].value.shape == draw.value.shape:
            gap = max(gap, float(np.linalg.norm(owner[position].value - draw.value)))
            size = max(size, float(np.linalg.norm(draw.value)))
    return pair.finding("history", gap, size)


def replay_run(
    prepared: Prepared,
    recorded: Sequence[Sequence[RecordedRound]],
    choose: Callable[[int], Sequence[Neighbour]],
    make_agent: MakeAgent = Agent,
    watch: Callable[[str], None] = lambda _: None,
) -> list[Finding]:
    """Replay every zone of a recorded run.

    Parameters
    ----------
    recorded : sequence
        Recorded messages of every zone.
    choose : callable
        From the position of a zone to its adjacent demands.
    watch : callable
        Called with a note after every zone.
    """
    findings: list[Finding] = []
    for zone, problem in enumerate(prepared.problems):
        play = agent_play(prepared, zone, recorded[zone], make_agent)
        findings += replay(play, problem.program.zone.demand, choose(zone), problem.name)
        watch(f"replay of zone {problem.name}")
    return findings

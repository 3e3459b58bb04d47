"""The extent of an audit, its findings, and their form as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gridpriv.assurance.audited import LEVELS
from gridpriv.assurance.neighbours import Neighbour
from gridpriv.assurance.replay import Finding
from gridpriv.assurance.statistic import Measured
from gridpriv.core.errors import not_allowed, one_of
from gridpriv.core.text import Json
from gridpriv.zonal.prepared import Prepared

ROUNDS = 5
LANES = ("noise", "public", "central", "series", "stream", "publish")
"""Parts of an audit beside the replay of zones and rounds."""
CHECKS = {
    "calls": "releases asked for differently",
    "values": "private value moved, at most",
    "messages": "messages moved",
    "history": "state that outlives a release",
    "noise": "coordinates without noise",
    "coordinator": "orders that differ on other data",
    "rounds": "coordinates without noise, all rounds",
    "stated": "loss over what is charged or granted",
    "outputs": "exact minimiser moved, of what is declared",
    "law": "noise against its law, -log10 of chance",
    "independence": "agreement of noise, from a half",
    "public state": "public state that follows demand",
    "public bytes": "messages and files that follow demand",
    "series": "statistics of a series moved, at most",
    "stream": "loss of a window of a stream",
    "publish": "statistics of a published case moved, at most",
    "low bits": "sums with secure noise on the value's grid",
}
"""Checks of an audit in the order in which they are shown, with the figure of each."""
SETTINGS = (
    "mechanism",
    "perturbation",
    "noise_schedule",
    "sensitivity",
    "coordination",
    "update",
    "consensus",
    "budget",
    "beta",
    "protects",
    "power_factor",
    "local_updates",
    "penalty",
    "solver",
)


@dataclass(frozen=True)
class AuditPlan:
    """The extent of an audit.

    Attributes
    ----------
    runs : mapping of str to int, optional
        Per level, on each of D and D'; half trains and half is counted. By default
        :data:`gridpriv.assurance.audit.RUNS`, and no fewer than can show the nominal epsilon to be
        exceeded.
    confidence : float
        Of each measured bound.
    rounds : int
        Rounds of the level ``messages``, and of the replay of random neighbours and of every class
        of buses. The neighbours that move the gradient most are replayed over all rounds.
    random_neighbours : int
        Per zone, in the replay.
    levels : tuple of str
    bus : int or None
        Bus number whose demand is moved; None for the one that moves the gradient most.
    lanes : tuple of str
        Of :data:`LANES`.
    """

    runs: Mapping[str, int] | None = None
    confidence: float = 0.999
    rounds: int = ROUNDS
    random_neighbours: int = 4
    levels: tuple[str, ...] = LEVELS
    bus: int | None = None
    lanes: tuple[str, ...] = LANES

    def __post_init__(self) -> None:
        for level in self.levels:
            one_of("level", level, LEVELS)
        for lane in self.lanes:
            one_of("lane", lane, LANES)
        if self.rounds < 1:
            raise not_allowed("audit-rounds", self.rounds, "1 or more")


@dataclass(frozen=True)
class LevelAudit:
    """One level's nominal and certified epsilon against the measured lower bound.

    Attributes
    ----------
    ceiling : float
        Largest bound that so many runs can give.
    detectable : float
        Least epsilon that so many runs would tell from the nominal one (power).
    """

    level: str
    nominal: float
    certified: float
    delta: float
    measured: Measured
    ceiling: float
    detectable: float

    @property
    def verdict(self) -> str:
        """``violation`` above the certified, ``claim refuted`` above the nominal epsilon."""
        if self.measured.epsilon > self.certified:
            return "violation"
        return "claim refuted" if self.measured.epsilon > self.nominal else "consistent"

    def as_dict(self) -> Json:
        """Return the level as JSON can hold it."""
        measured = self.measured
        stated = {name: getattr(self, name) for name in ("level", "nominal", "certified", "delta")}
        return stated | {
            "measured": measured.epsilon,
            "statistic": measured.statistic,
            "runs": 2 * measured.runs,
            "counted": measured.runs,
            "hits": measured.hits,
            "misses": measured.misses,
            "ceiling": self.ceiling,
            "detectable": self.detectable if math.isfinite(self.detectable) else None,
            "verdict": self.verdict,
        }


@dataclass(frozen=True, eq=False)
class AuditResult:
    """A finished audit."""

    prepared: Prepared
    plan: AuditPlan
    zone: str
    neighbour: Neighbour
    findings: tuple[Finding, ...]
    levels: tuple[LevelAudit, ...]

    @property
    def failed(self) -> list[Finding]:
        """Replay findings that are not within what is declared."""
        return [finding for finding in self.findings if not finding.passed]

    @property
    def passed(self) -> bool:
        """True if nothing contradicts the certified epsilon."""
        return not self.failed and all(row.verdict != "violation" for row in self.levels)

    @property
    def verdict(self) -> str:
        """In one sentence."""
        if self.failed:
            checks = ", ".join(sorted({finding.check for finding in self.failed}))
            return f"FAILED: the replay contradicts what the run declares ({checks})"
        if not self.passed:
            return "FAILED: more than the certified epsilon was measured"
        if any(row.verdict == "claim refuted" for row in self.levels):
            return "the certified epsilon holds; the nominal epsilon is refuted"
        return "nothing contradicts the certified or the nominal epsilon"

    def as_dict(self) -> Json:
        """Return the audit as JSON can hold it."""
        shown = self.prepared.settings.as_dict()
        return {
            "case": self.prepared.case.name,
            "settings": {name: shown[name] for name in SETTINGS},
            "zone": self.zone,
            "neighbour": {name: getattr(self.neighbour, name) for name in ("bus", "dp", "dq")},
            "confidence": self.plan.confidence,
            "replay": [
                _check([row for row in self.findings if row.check == check])
                for check in CHECKS
                if any(row.check == check for row in self.findings)
            ],
            "statistical": [row.as_dict() for row in self.levels],
            "passed": self.passed,
            "verdict": self.verdict,
        }


def _check(rows: Sequence[Finding]) -> Json:
    """Return the worst finding of a check."""
    worst = max(rows, key=lambda row: (row.measured - row.allowed, row.ratio))
    return {
        "check": worst.check,
        "neighbours": len(rows),
        "zone": worst.zone,
        "neighbour": worst.neighbour,
        "measured": worst.measured,
        "allowed": worst.allowed,
        "ratio": max(row.ratio for row in rows) if worst.check == "values" else None,
        "passed": all(row.passed for row in rows),
    }

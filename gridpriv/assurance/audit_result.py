"""The extent of an audit, its findings, and their form as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gridpriv.assurance.audited import LEVELS
from gridpriv.assurance.independence import LOW_BITS, NOISE_CHECKS
from gridpriv.assurance.neighbours import Neighbour
from gridpriv.assurance.public_state import PUBLIC_CHECKS
from gridpriv.assurance.publishing import PUBLISH_CHECKS
from gridpriv.assurance.replay import CHECKS, Finding
from gridpriv.assurance.series import SERIES_CHECKS, STREAM_CHECKS
from gridpriv.assurance.statistic import Measured
from gridpriv.assurance.whole import WHOLE_CHECKS
from gridpriv.core.document import Json
from gridpriv.core.errors import not_allowed, one_of
from gridpriv.zonal.prepared import Prepared

ROUNDS = 5
LANES = ("noise", "public", "central", "series", "stream", "publish")
"""Parts of an audit beside the replay of zones and rounds."""
SHOWN = (
    *CHECKS,
    *WHOLE_CHECKS,
    *NOISE_CHECKS,
    *PUBLIC_CHECKS,
    *SERIES_CHECKS,
    *STREAM_CHECKS,
    *PUBLISH_CHECKS,
    LOW_BITS,
)
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
            "neighbour": {
                "bus": self.neighbour.bus,
                "dp": self.neighbour.dp,
                "dq": self.neighbour.dq,
            },
            "confidence": self.plan.confidence,
            "replay": [
                _check(self.findings, check)
                for check in SHOWN
                if check in {finding.check for finding in self.findings}
            ],
            "statistical": [_level(row) for row in self.levels],
            "passed": self.passed,
            "verdict": self.verdict,
        }


def _check(findings: Sequence[Finding], check: str) -> Json:
    """Return the worst finding of a check."""
    rows = [finding for finding in findings if finding.check == check]
    worst = max(rows, key=lambda row: (row.measured - row.allowed, row.ratio))
    return {
        "check": check,
        "neighbours": len(rows),
        "zone": worst.zone,
        "neighbour": worst.neighbour,
        "measured": worst.measured,
        "allowed": worst.allowed,
        "ratio": max(row.ratio for row in rows) if check == "values" else None,
        "passed": all(row.passed for row in rows),
    }


def _level(row: LevelAudit) -> Json:
    return {
        "level": row.level,
        "nominal": row.nominal,
        "certified": row.certified,
        "delta": row.delta,
        "measured": row.measured.epsilon,
        "statistic": row.measured.statistic,
        "runs": 2 * row.measured.runs,
        "counted": row.measured.runs,
        "hits": row.measured.hits,
        "misses": row.measured.misses,
        "ceiling": row.ceiling,
        "detectable": row.detectable if math.isfinite(row.detectable) else None,
        "verdict": row.verdict,
    }

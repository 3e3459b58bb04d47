"""What is found out after the rounds: the AC check of the dispatch, and the privacy statements.

Both need slow imports (pandapower, dp_accounting) and nothing of the rounds but what
:class:`Finished` holds, so one may run in another process (:func:`check_beside`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from gridpriv.consensus.agent import AgentRules
from gridpriv.core.processes import Beside
from gridpriv.grid.case import Case
from gridpriv.power.accheck import AcCheck, Dispatch, ac_check
from gridpriv.privacy.accounting import epsilon_of
from gridpriv.privacy.mechanism import MECHANISMS
from gridpriv.privacy.release import Release
from gridpriv.privacy.statement import ZoneStatement, zone_statement
from gridpriv.zonal.settings import Settings

Releases: TypeAlias = Mapping[str, Mapping[Release, int]]


@dataclass(frozen=True, eq=False)
class Finished:
    """What the rounds left; ``dispatch`` is None where a failure left none.

    Attributes
    ----------
    case : Case
    dispatch : Dispatch or None
    releases : mapping
        Each zone's releases with their number.
    settings : Settings
    rules : AgentRules
    """

    case: Case
    dispatch: Dispatch | None
    releases: Releases
    settings: Settings
    rules: AgentRules


@dataclass(frozen=True)
class Checks:
    """Outcome of :func:`check`."""

    ac: AcCheck | None
    statements: tuple[ZoneStatement, ...]


Checker: TypeAlias = Callable[[Finished], Checks]


def check(finished: Finished) -> Checks:
    """Return the AC power flow's verdict and every zone's privacy loss."""
    return Checks(check_dispatch(finished), check_privacy(finished))


def check_dispatch(finished: Finished) -> AcCheck | None:
    """Return the AC power flow's verdict."""
    if finished.dispatch is None:
        return None
    return ac_check(finished.case, finished.dispatch)


def check_privacy(finished: Finished) -> tuple[ZoneStatement, ...]:
    """Return every zone's privacy loss."""
    return zone_statements(finished.releases, finished.settings, finished.rules)


def check_beside(process: Beside[Finished, AcCheck | None], finished: Finished) -> Checks:
    """Return what :func:`check` does; :func:`check_dispatch` runs in ``process`` meanwhile."""
    process.ask(finished)
    statements = check_privacy(finished)
    return Checks(process.answer(), statements)


def zone_statements(
    releases: Releases, settings: Settings, rules: AgentRules
) -> tuple[ZoneStatement, ...]:
    """Return the privacy loss of every zone that released anything; empty without noise."""
    if rules.noise is None:
        return ()
    claimed = claimed_epsilon(settings, rules)
    return tuple(
        zone_statement(zone, counts, claimed, settings.release_delta, settings.target_delta)
        for zone, counts in releases.items()
        if counts
    )


def claimed_epsilon(settings: Settings, rules: AgentRules) -> float:
    """Return the epsilon of one release that the settings state."""
    budget = settings.budget
    if budget.scope == "per-release" or rules.noise is None:
        return budget.epsilon
    claimed = MECHANISMS[settings.mechanism, "simulated"](rules.noise.multiplier).charge(1.0)
    return epsilon_of(claimed, settings.release_delta)

"""The privacy losses of a run's zones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeAlias

from gridpriv.consensus.memory import AgentRules
from gridpriv.privacy.accounting import epsilon_of
from gridpriv.privacy.mechanism import MECHANISMS, make_mechanism
from gridpriv.privacy.release import Release
from gridpriv.privacy.statement import ZoneStatement, zone_statement
from gridpriv.zonal.settings import Settings

Releases: TypeAlias = Mapping[str, Mapping[Release, int]]


def zone_statements(
    releases: Releases, settings: Settings, rules: AgentRules
) -> tuple[ZoneStatement, ...]:
    """Return the privacy loss of every zone that released anything; empty without noise."""
    if rules.noise is None:
        return ()
    nominal = nominal_epsilon(settings, rules)
    return tuple(
        zone_statement(zone, counts, nominal, settings.release_delta, settings.target_delta)
        for zone, counts in releases.items()
        if counts
    )


def nominal_epsilon(settings: Settings, rules: AgentRules) -> float:
    """Return the epsilon of one release that the settings state; inf without noise."""
    if rules.noise is None:
        return math.inf
    if settings.budget.scope == "per-release":
        return settings.budget.epsilon
    kind = MECHANISMS[rules.noise.mechanism, "simulated"]
    nominal = make_mechanism(kind, rules.noise.multiplier, 1.0).charge(1.0)
    return epsilon_of(nominal, settings.release_delta)

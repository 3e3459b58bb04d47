"""Meters of neighbouring zones compared with the noise of a zone's message.

A zone without room to regulate draws balancing power, so that its metered interchange follows its
demand megawatt by megawatt. No noise on messages hides that: a meter is not a message. The figures
are computed from the settled state and are local.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from gridpriv.core.text import Json
from gridpriv.grid.case import Case

if TYPE_CHECKING:
    from pandas import DataFrame

    from gridpriv.consensus.memory import AgentRules
    from gridpriv.power.ac.flow import MeterDerivatives
    from gridpriv.power.ac.settle import Settlement
    from gridpriv.power.zone import Zone
    from gridpriv.privacy.strategies.disclosure import Disclosure
    from gridpriv.zonal.trace import Trace

MOST_BUSES = 3_000
"""Largest grid with meter figures: derivatives are dense, ties times buses."""
LEAST_MOVE = 1e-3
"""Least MW of interchange per MW of load that a meter can be said to show."""
RESOLUTION_MW = 0.01
"""What a meter on a tie line resolves."""


class SettledRun(Protocol):
    """A run's public settings, its releases, and the state of the grid after it."""

    @property
    def case(self) -> Case: ...  # noqa: D102
    @property
    def rules(self) -> AgentRules: ...  # noqa: D102
    @property
    def zone_models(self) -> tuple[Zone, ...]: ...  # noqa: D102
    @property
    def disclosures(self) -> tuple[Disclosure | None, ...]: ...  # noqa: D102
    @property
    def trace(self) -> Trace: ...  # noqa: D102
    @property
    def settlement(self) -> Settlement | None: ...  # noqa: D102


def derivatives(result: SettledRun) -> MeterDerivatives | None:
    """Return the derivatives at a run's AC state, or None.

    None without a state, with a single zone, and on grids of more than :data:`MOST_BUSES`.
    """
    from gridpriv.power.ac.flow import meter_derivatives  # imports solvers
    from gridpriv.power.ac.newton import PowerFlowError
    from gridpriv.power.ac.settle import joint_dispatch
    from gridpriv.power.ac.state import Schedule

    settlement = result.settlement
    if settlement is None or settlement.state is None or len(result.zone_models) < 2:
        return None
    if settlement.state.dead.all() or result.case.n_bus > MOST_BUSES:
        return None
    zone_of = np.zeros(result.case.n_bus, dtype=np.int64)
    for number, zone in enumerate(result.zone_models):
        zone_of[zone.own] = number
    dispatch = joint_dispatch(result.case, result.zone_models, settlement.plans)
    schedule = Schedule(zone_of, settlement.scheduled)
    try:
        return meter_derivatives(settlement.state, dispatch, schedule)
    except (PowerFlowError, RuntimeError):  # no state, or a singular Jacobian: at the nose
        return None


def meter_table(result: SettledRun) -> DataFrame:
    """Return a row per bus: by how much its demand moves its zone's interchange and each tie.

    Columns ``zone``, ``bus``, ``interchange_mw_per_mw``, ``interchange_mw_per_mvar`` and one
    ``tie_F_T_mw_per_mw`` per tie line of the grid. Empty without a settled state.
    """
    from pandas import DataFrame

    matches, case = derivatives(result), result.case
    if matches is None:
        return DataFrame(columns=["zone", "bus", "interchange_mw_per_mw"])
    rows = []
    for number, zone in enumerate(result.zone_models):
        for bus in zone.own:
            row: dict[str, Any] = {
                "zone": zone.name,
                "bus": int(case.bus_id[bus]),
                "interchange_mw_per_mw": matches.interchange_p[number, bus],
                "interchange_mw_per_mvar": matches.interchange_q[number, bus],
            }
            for place, tie in enumerate(matches.ties):
                name = f"tie_{_ends(result, tie).replace('-', '_')}_mw_per_mw"
                row[name] = matches.flow_p[place, bus]
            rows.append(row)
    return DataFrame(rows)


def meter_rows(result: SettledRun) -> list[Json] | None:
    """Return a row per zone (``documents.Meter``); None where nothing is settled."""
    matches = derivatives(result)
    if matches is None:
        return None
    rows = []
    for number, zone in enumerate(result.zone_models):
        own, noise = zone.own, message_noise_mw(result, number)
        moves = np.abs(matches.interchange_p[number, own])
        flows = np.abs(matches.flow_p[:, own])
        place = int(np.argmax(flows.max(axis=1))) if len(matches.ties) else None
        rows.append(
            {
                "zone": zone.name,
                "interchange_mw_per_mw": float(moves.max()),
                "bus": int(result.case.bus_id[own[int(np.argmax(moves))]]),
                "tie_mw_per_mw": 0.0 if place is None else float(flows[place].max()),
                "tie": None if place is None else _ends(result, matches.ties[place]),
                "noise_mw": noise if math.isfinite(noise) else None,
                "meter_tells_more": bool(
                    moves.min() > LEAST_MOVE and float(moves.min()) * noise > RESOLUTION_MW
                ),
            }
        )
    return rows


def message_noise_mw(result: SettledRun, number: int) -> float:
    """Return the standard deviation of the noise in a zone's released total, in MW.

    Of the best linear unbiased estimate of the sum from the released statistics; infinite where
    nothing is released of it, 0 without noise.
    """
    disclosure, zone = result.disclosures[number], result.zone_models[number]
    if result.rules.noise is None:
        return 0.0
    released = result.trace.releases.get(zone.name, {})
    if disclosure is None or not len(disclosure.strategy.matrix):
        return math.inf
    rule, norm = result.rules.noise, result.rules.noise.norm
    release = next(iter(released), None) or rule.release(
        disclosure.sensitivity(result.rules.adjacency, norm)
    )
    ones = np.ones(len(zone.own))
    weights = np.asarray(np.linalg.lstsq(disclosure.strategy.matrix.T, ones, rcond=None)[0])
    noise = math.sqrt(release.mechanism.variance) * float(np.linalg.norm(weights))
    return disclosure.scale * result.case.base_mva * noise


def _ends(result: SettledRun, branch: int) -> str:
    case = result.case
    return f"{case.bus_id[case.f_bus[branch]]}-{case.bus_id[case.t_bus[branch]]}"


def meter_messages(rows: Sequence[Json] | None) -> list[Json]:
    """Return the values of the message of each zone whose meters tell more than its message."""
    return [
        {
            "zone": row["zone"],
            "moves": f"{row['interchange_mw_per_mw']:.2f}",
            "noise": "no bound" if row["noise_mw"] is None else f"{row['noise_mw']:.3g} MW",
        }
        for row in rows or ()
        if row["meter_tells_more"]
    ]

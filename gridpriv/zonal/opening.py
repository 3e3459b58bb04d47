"""The start of the rounds, and the record of every round.

The start of a coordinator is public. Its size is that of the coupling variables, whatever the grid
and the transport.

A record has the coordinator's public values and the data owners' own values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from gridpriv.consensus.agent import RoundMetrics
from gridpriv.consensus.coordinator import Anderson, Consensus, Plan, State, Turn, orders_at, rounds
from gridpriv.consensus.messages import Exchange, Order, Phase
from gridpriv.consensus.schedules import (
    FrozenPenalty,
    InUnits,
    PenaltySchedule,
    ResidualBalancing,
    StepSize,
    nonsmooth_step,
    smooth_step,
    strongly_convex_step,
)
from gridpriv.core.arrays import Bools, Floats, Ints
from gridpriv.power.objective import penalty_units
from gridpriv.privacy.release import Release
from gridpriv.zonal.settings import Settings

if TYPE_CHECKING:
    from gridpriv.power.zone import Network  # imports SciPy

WARM_START_ROUNDS = 20
LEAST_MEMORY, MOST_MEMORY = 5, 10
"""Rounds that Anderson steps combine (docs/decisions/0017-acceleration.md)."""

PhaseExchange: TypeAlias = Callable[[Phase], Exchange]
"""Function from the task of orders (ready, warm start, round) to their exchange."""


@dataclass(frozen=True, eq=False)
class PublicInputs:
    """Public inputs of a coordinator before the first round.

    Attributes
    ----------
    start : sequence of (shared,)
        Start of every zone's coupling variables.
    units : (K,)
        Of rho of every global variable.
    step : callable
        eta^t.
    """

    settings: Settings
    consensus: Consensus
    start: Sequence[Floats]
    units: Floats
    step: StepSize


def initial_rounds(inputs: PublicInputs, exchange_of: PhaseExchange) -> tuple[State, Plan]:
    """Test or warm-start every zone on its public proxy; return the start of the rounds."""
    settings, consensus = inputs.settings, inputs.consensus
    schedule, in_rounds = schedules(settings, inputs.units)
    start = consensus.stack(inputs.start)
    state = State(start, np.zeros_like(start), schedule.first(consensus.size))
    if settings.effective_start() == "warm":
        warm_start = Plan(WARM_START_ROUNDS, inputs.step, schedule)
        for turn in rounds(exchange_of("warm_start"), consensus, state, warm_start):
            state = turn.state
    acceleration = settings.effective_acceleration()
    plan = Plan(
        settings.rounds,
        inputs.step,
        in_rounds,
        settings.effective_tolerance(),
        acceleration=None if acceleration == "none" else anderson(len(inputs.start)),
    )
    if settings.effective_perturbation().target == "output":
        exchange_of("ready")(_last_orders(consensus, state, plan))
    elif settings.effective_start() == "flat":
        exchange_of("ready")(orders_at(consensus, state, plan, 1))
    return state, plan


def schedules(settings: Settings, units: Floats) -> tuple[PenaltySchedule, PenaltySchedule]:
    """Return the penalty schedules of the warm start and of the rounds after it.

    Parameters
    ----------
    units : (n,)
        Of the global variables, or of one zone's part of them: a schedule acts on each separately.
    """
    warm_start = settings.penalty
    balanced = isinstance(warm_start, ResidualBalancing)
    if balanced:
        warm_start = InUnits(warm_start, units)
    acceleration = settings.effective_acceleration()
    if balanced and (acceleration != "none" or settings.noise_is_fresh()):
        return warm_start, FrozenPenalty(warm_start)
    return warm_start, warm_start


def anderson(zones: int) -> Anderson:
    """Return the step for so many zones; more zones have more slow modes."""
    return Anderson(memory=min(max(zones, LEAST_MEMORY), MOST_MEMORY))


def _last_orders(consensus: Consensus, state: State, plan: Plan) -> list[Order]:
    """Return the orders of the last round, at the w of the first.

    Noise on outputs is fresh, so its penalty does not depend on residuals. It is largest in the
    last round, where the bound on a solver's error is tightest.
    """
    unread = np.zeros(consensus.size)
    for t in range(1, plan.rounds):
        state = replace(state, rho=plan.penalty.following(t, state.rho, unread, unread))
    return [replace(o, number=1) for o in orders_at(consensus, state, plan, plan.rounds)]


def coordinate_units(network: Network, number: Ints, zones: int) -> Floats:
    """Return the units of rho of some of a network's coordinates, under so many zones."""
    start = network.offsets
    flows = (number >= start["p_from"]) & (number < start["pc"])
    return penalty_units(network.case, network.objective, flows, zones)


def reactive_flows(network: Network, number: Ints) -> Bools:
    """Return a mask of reactive flows among coordinates of a network."""
    family = network.families(np.arange(network.offsets["end"]))
    return np.isin(number, np.concatenate([family["q_from"], family["q_to"]]))


def step_size(settings: Settings, smooth: Callable[[], tuple[float, float]]) -> StepSize:
    """Return the step size rule.

    Parameters
    ----------
    smooth : callable
        Returns the largest L of zones, and the epsilon of one release; called where the rule needs
        them.
    """
    if settings.step == "nonsmooth" or settings.update == "exact":
        return nonsmooth_step()
    if settings.step == "strongly-convex":
        return strongly_convex_step(settings.convexity)
    return smooth_step(*smooth())


CONVERGED_RESIDUAL = 0.01
"""p.u. of consensus residual up to which a run counts as converged: 1 MVA on a base of 100."""


@dataclass(frozen=True, eq=False)
class RoundRecord:
    """Values of one round. Only residuals and penalty are public.

    Attributes
    ----------
    consensus_residual : float
        ||Aw - z||_2 at the round's w and the z sent after it.
    consensus_residual_max : float
        The largest distance of one coordinate of z from its w.
    dual_residual : float
        ||rho (w - last w)||_2 over all copies, in multiples of the mean marginal cost.
    metrics : dict
        Sums over zones of their values at the averages that they sent.
    by_agent : dict of str to dict
        The same per zone.
    penalty : (float, float)
        Least and largest rho.
    """

    round: int
    consensus_residual: float
    consensus_residual_max: float
    dual_residual: float
    noise_magnitude: float
    metrics: dict[str, float]
    by_agent: dict[str, dict[str, float]]
    penalty: tuple[float, float]
    seconds: float
    iterations: int
    retries: int
    solves: int


@dataclass(frozen=True, eq=False)
class Trace:
    """A run's rounds, the last messages and duals and, per zone, every release.

    Attributes
    ----------
    releases : mapping of str to mapping
        All drawn releases, including those of a failed round.
    planned : mapping of str to mapping
        All planned releases, of a run that ended before its last round.
    """

    rounds: tuple[RoundRecord, ...] = ()
    releases: Mapping[str, Mapping[Release, int]] = field(default_factory=dict)
    sent: Floats = field(default_factory=lambda: np.zeros(0))
    dual: Floats = field(default_factory=lambda: np.zeros(0))
    planned: Mapping[str, Mapping[Release, int]] = field(default_factory=dict)

    @property
    def counted(self) -> Mapping[str, Mapping[Release, int]]:
        """All planned releases of every zone that drew any, for totals at a delta."""
        return {
            zone: self.planned.get(zone, drawn) for zone, drawn in self.releases.items() if drawn
        }

    def drawn(self) -> str:
        """Return the number of releases as a sentence."""
        most = max((sum(counts.values()) for counts in self.releases.values()), default=0)
        return f"most releases drawn by a zone: {most}"


def round_record(
    turn: Turn, names: Sequence[str], metrics: Sequence[RoundMetrics], seconds: float
) -> RoundRecord:
    """Return a round's record; zones in the order of ``names``."""
    values = [zone_metrics.values for zone_metrics in metrics]
    rho = turn.penalty
    return RoundRecord(
        round=turn.number,
        consensus_residual=turn.residual,
        consensus_residual_max=turn.farthest,
        dual_residual=turn.dual_residual,
        noise_magnitude=float(sum(zone_metrics.noise_magnitude for zone_metrics in metrics)),
        metrics={
            key: float(sum(zone_metrics[key] for zone_metrics in values)) for key in values[0]
        },
        by_agent=dict(zip(names, values, strict=True)),
        penalty=(float(rho.min()), float(rho.max())) if rho.size else (0.0, 0.0),
        seconds=seconds,
        iterations=sum(zone_metrics.effort.iterations for zone_metrics in metrics),
        retries=sum(zone_metrics.effort.retries for zone_metrics in metrics),
        solves=sum(zone_metrics.effort.solves for zone_metrics in metrics),
    )

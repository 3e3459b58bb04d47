"""Prior knowledge of the adversary, and its reading of messages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import networkx as nx
import numpy as np

from gridpriv.assurance.audit import check_released, zone_of_bus
from gridpriv.assurance.eavesdrop import Heard
from gridpriv.assurance.forward import ForwardModel
from gridpriv.assurance.inversion import DemandPrior, NoiseModel
from gridpriv.core.arrays import Floats, Ints
from gridpriv.core.errors import InputError, not_allowed, one_of
from gridpriv.grid.case import Case
from gridpriv.grid.zoning import Zoning, bus_graph, tie_lines
from gridpriv.power.fleet import public_proxy
from gridpriv.zonal.prepared import Prepared

BOUND = 6.0  # public bounds, in spreads of the prior
PRIORS = ("grid", "zone")


@dataclass(frozen=True)
class AttackPlan:
    """Size of an attack.

    Attributes
    ----------
    seeds : int
        Noisy runs that are attacked, for the confidence intervals.
    epsilons : tuple of float
        Total budgets to sweep; empty for the settings' own only.
    rounds : int
        Rounds that are listened to at most.
    prior : {'grid', 'zone'}
        Whose total is shared out equally beforehand: the grid's, or each zone's own.
    prior_spread : float
        Standard deviation of the public prior over its mean.
    bus : int or None
        Attack only this bus's zone; None for all zones.
    """

    seeds: int = 5
    epsilons: tuple[float, ...] = ()
    rounds: int = 10
    prior: str = "grid"
    prior_spread: float = 1.0
    bus: int | None = None

    def __post_init__(self) -> None:
        one_of("prior", self.prior, PRIORS)
        for name in ("seeds", "rounds"):
            if getattr(self, name) < 1:
                raise not_allowed(name, getattr(self, name), "1 or more")
        if any(not (math.isfinite(e) and e > 0) for e in self.epsilons):
            raise not_allowed("epsilons", self.epsilons, "positive numbers")
        if not (math.isfinite(self.prior_spread) and self.prior_spread > 0):
            raise not_allowed("prior-spread", self.prior_spread, "a positive number")


def attacked_zones(prepared: Prepared, bus: int | None) -> list[int]:
    """Return the positions of the zones to attack."""
    if bus is not None:
        zone = zone_of_bus(prepared, bus)
        check_released(prepared, zone, bus)
        return [zone]
    zones = [z for z, shared in enumerate(prepared.shared) if shared.any()]
    if not zones:
        raise InputError(
            "no zone shares a variable with another, so nothing leaves any of them"
            ": use two or more connected zones"
        )
    return zones


def public_prior(prepared: Prepared, plan: AttackPlan) -> tuple[Floats, Floats]:
    """Return the prior mean (p, q) of every bus, p.u.: an equal share of the totals it knows."""
    case, zoning = prepared.case, prepared.zoning
    group = zoning.zone_of if plan.prior == "zone" else np.zeros(case.n_bus, dtype=np.int64)
    buses = np.bincount(group)
    p, q = (np.bincount(group, demand)[group] / buses[group] for demand in (case.pd, case.qd))
    return p, q


def zone_prior(prepared: Prepared, plan: AttackPlan, zone: int) -> DemandPrior:
    """Return the prior of a zone's demand; active demand is known not to be negative."""
    own = prepared.zones[zone].own
    p, q = public_prior(prepared, plan)
    mean = np.concatenate([p[own], q[own]])
    spread = plan.prior_spread * np.maximum(np.abs(mean), 1e-3)
    lower, upper = mean - BOUND * spread, mean + BOUND * spread
    lower[: len(own)] = np.maximum(lower[: len(own)], min(0.0, float(prepared.case.pd.min())))
    return DemandPrior(mean, spread, lower, upper)


def forward_model(prepared: Prepared, zone: int, script: Sequence[Heard]) -> ForwardModel:
    """Return the forward model of a zone for what was heard of it."""
    return ForwardModel(
        prepared.problems[zone],
        prepared.shared[zone],
        script,
        exact=prepared.rules.update == "exact",
        local_updates=prepared.rules.local_updates,
        proxy=public_proxy(prepared.zones[zone]),
    )


def heard_noise(prepared: Prepared, script: Sequence[Heard]) -> NoiseModel:
    """Return the adversary's model of the noise in a zone's messages (its scale is public)."""
    rules = prepared.rules
    if rules.noise is None:
        return NoiseModel("none")
    releases = [release for heard in script for release in heard.reply.releases]
    noise_schedule = rules.perturbation.noise_schedule
    draws = 1 if noise_schedule != "update" else rules.local_updates
    left = float(np.mean([release.mechanism.variance for release in releases])) / draws
    if rules.perturbation.target == "demand":
        left *= prepared.scale**2  # it is on the owner's demand, of which the run's is a multiple
    return NoiseModel(rules.perturbation.target, noise_schedule == "once", left)


def tie_distance(case: Case, zoning: Zoning) -> Ints:
    """Return the number of lines, inside its zone, from each bus to the nearest tie bus.

    Buses of a zone without ties get the number of buses.
    """
    ties = tie_lines(case, zoning)
    ends = np.stack([case.f_bus[ties], case.t_bus[ties]])
    inside = nx.Graph(bus_graph(case))
    inside.remove_edges_from(ends.T.tolist())
    distance = np.full(case.n_bus, case.n_bus, dtype=np.int64)
    if ends.size:
        lines = nx.multi_source_dijkstra_path_length(inside, set(ends.flat), weight=None)
        distance[list(lines)] = list(lines.values())
    return distance

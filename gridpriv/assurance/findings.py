"""The adversary, what it knows and infers, and the results of an attack: estimates and tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import networkx as nx
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gridpriv.assurance.audit import check_released, zone_of_bus
from gridpriv.assurance.eavesdrop import Heard
from gridpriv.assurance.forward import ForwardModel
from gridpriv.assurance.inversion import VERDICTS, DemandPrior, Identified, NoiseModel
from gridpriv.core.arrays import Floats, Ints
from gridpriv.core.errors import InputError, not_allowed, one_of
from gridpriv.core.text import Json
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


Words: TypeAlias = NDArray[np.str_]

CLOSE = 0.05  # share of the demand within which an estimate counts as recovered
SMALL_MW = 0.05  # ... and this many MW where there is no demand


SHOWN = ("messages", "releases")
NOISE_FREE, PROTECTED = "noise-free", "protected"
IN_NAMES = str.maketrans(" -", "__", ",")
"""From labels to names of columns."""


@dataclass(frozen=True, eq=False)
class AttackOutcome:
    """One configuration's estimates.

    Attributes
    ----------
    label : str
        ``noise-free``, ``protected`` (the settings as given), or ``total EPSILON``.
    epsilon : float or None
        Total budget; None without noise.
    adversary : str
        ``messages``, ``stationarity`` or ``releases``.
    estimates : (seeds, n_bus)
        Active demand, per unit; NaN at buses that were not attacked.
    spread : (n_bus,)
        Posterior standard deviation of the last seed's estimate, per unit.
    """

    label: str
    epsilon: float | None
    adversary: str
    estimates: Floats
    spread: Floats


@dataclass(frozen=True, eq=False)
class AttackResult:
    """A finished attack."""

    prepared: Prepared
    plan: AttackPlan
    attacked: Ints
    distance: Ints
    prior: Floats
    outcomes: tuple[AttackOutcome, ...]
    identified: dict[int, Identified]

    @property
    def true(self) -> Floats:
        """Active demand of the attacked buses in MW."""
        return self.prepared.case.base_mva * self.prepared.case.pd[self.attacked]

    def errors(self, outcome: AttackOutcome) -> Floats:
        """Return |estimate - true| in MW, (seeds, attacked)."""
        base = self.prepared.case.base_mva
        return np.asarray(np.abs(base * outcome.estimates[:, self.attacked] - self.true))

    @property
    def prior_errors(self) -> Floats:
        """Return |prior - true| in MW, (attacked,)."""
        prior = self.prepared.case.base_mva * self.prior[self.attacked]
        return np.asarray(np.abs(prior - self.true))

    def summary(self) -> pd.DataFrame:
        """One row per configuration, and one for the prior."""
        rows = [_row("prior", None, "prior", self.prior_errors[None], self.true)]
        rows += [
            _row(o.label, o.epsilon, o.adversary, self.errors(o), self.true) for o in self.outcomes
        ]
        table = pd.DataFrame(rows)
        table["of_prior"] = table["mae_mw"] / table["mae_mw"].iloc[0]
        return table

    def buses(self) -> pd.DataFrame:
        """One row per attacked bus: demand, distance from a tie line, and errors in MW and %."""
        case = self.prepared.case
        zone = self.prepared.zoning.zone_of[self.attacked]
        table = pd.DataFrame(
            {
                "bus": case.bus_id[self.attacked],
                "zone": [self.prepared.zoning.names[z] for z in zone],
                "lines_to_tie": self.distance[self.attacked],
                "pd_mw": self.true,
                "identifiability": self.identifiability(),
                "prior_error_mw": self.prior_errors,
            }
        )
        for outcome in self.outcomes:
            name = f"{outcome.label}, {outcome.adversary}".translate(IN_NAMES)
            error = self.errors(outcome).mean(axis=0)
            table[f"{name}_error_mw"] = error
            loaded = np.where(self.true > 0, self.true, np.nan)
            table[f"{name}_error_percent"] = 100.0 * error / loaded
            table[f"{name}_spread_mw"] = case.base_mva * outcome.spread[self.attacked]
        return table

    def identifiability(self) -> Words:
        """Return the identifiability of each attacked bus's demand in noise-free messages.

        The words of :mod:`gridpriv.assurance.inversion`.
        """
        words = np.full(self.prepared.case.n_bus, "", dtype="U12")
        for zone, result in self.identified.items():
            words[self.prepared.zones[zone].own] = result.verdict
        return words[self.attacked]

    def zones(self) -> pd.DataFrame:
        """One row per attacked zone: unknowns, rank of the messages' Jacobian, and verdicts."""
        words = self.identifiability()
        zone_of = {b: z for z in self.identified for b in self.prepared.zones[z].own}
        here = np.array([zone_of[bus] for bus in self.attacked])
        rows = []
        for zone, result in self.identified.items():
            counts = {w: int((words[here == zone] == w).sum()) for w in VERDICTS}
            rows.append(
                {
                    "zone": self.prepared.zones[zone].name,
                    "unknowns": len(result.hidden),
                    "rank": result.rank,
                    "largest": float(result.singular[0]),
                    "smallest": float(result.singular[-1]),
                    **counts,
                }
            )
        return pd.DataFrame(rows)

    @property
    def beta_mw(self) -> float:
        """Adjacency distance in MW."""
        base = self.prepared.case.base_mva
        return base * self.prepared.settings.beta.distance(base)

    def worst(self) -> list[int]:
        """Return the five buses whose error is the least share of the prior's."""
        errors = self.errors(self.shown).mean(axis=0)
        gain = errors / np.maximum(self.prior_errors, SMALL_MW)
        order = np.argsort(gain, kind="stable")[:5]
        return [int(b) for b in self.prepared.case.bus_id[self.attacked[order]]]

    @property
    def shown(self) -> AttackOutcome:
        """The outcome that the map shows: messages of the protected run if there is one.

        Of releases of sums it is what the releases themselves tell.
        """
        protected = [o for o in self.outcomes if o.label == PROTECTED]
        return next((o for o in protected if o.adversary in SHOWN), self.outcomes[0])

    def by_distance(self) -> pd.DataFrame:
        """Share recovered within 5 % by distance from a tie line, for every configuration."""
        rows = []
        for outcome in self.outcomes:
            close, words = recovered(self.errors(outcome), self.true), self.identifiability()
            for lines in np.unique(self.distance[self.attacked]):
                here = self.distance[self.attacked] == lines
                rows.append(
                    {
                        "configuration": outcome.label,
                        "adversary": outcome.adversary,
                        "lines_to_tie": int(lines),
                        "buses": int(here.sum()),
                        "identifiable": float((words[here] == "identifiable").mean()),
                        "recovered": float(close[:, here].mean()),
                        "within_1mw": float((self.errors(outcome)[:, here] < 1.0).mean()),
                    }
                )
        return pd.DataFrame(rows)

    def as_dict(self) -> Json:
        """Return the attack as JSON can hold it."""
        return {
            "case": self.prepared.case.name,
            "settings": self.prepared.settings.as_dict()
            | {"objective": self.prepared.network.objective.kind},
            "seeds": self.plan.seeds,
            "prior": {
                "mean": f"equal share of the {self.plan.prior}'s total",
                "spread": self.plan.prior_spread,
            },
            "summary": _records(self.summary()),
            "zones": _records(self.zones()),
            "by_distance": _records(self.by_distance()),
            "buses": _records(self.buses()),
        }


def tolerance(true: Floats) -> Floats:
    """Return within how many MW a demand counts as recovered: 5 %, or 0.05 MW if that is more."""
    return np.asarray(np.maximum(CLOSE * true, SMALL_MW))


def recovered(errors: Floats, true: Floats) -> Floats:
    """Compare errors with the tolerance; boolean, same shape as errors."""
    return np.asarray(errors <= tolerance(true))


def _row(label: str, epsilon: float | None, adversary: str, errors: Floats, true: Floats) -> Json:
    """Return mean absolute error with a 95 % interval over seeds, and the shares recovered."""
    per_seed = errors.mean(axis=1)
    seeds = len(per_seed)
    half = None
    if seeds > 1:
        from scipy import stats

        half = float(stats.t.ppf(0.975, seeds - 1) * per_seed.std(ddof=1) / math.sqrt(seeds))
    loaded = true > 0
    return {
        "configuration": label,
        "epsilon": epsilon,
        "adversary": adversary,
        "mae_mw": float(per_seed.mean()),
        "interval_mw": half,
        "error_percent": float(np.median(100.0 * errors[:, loaded] / true[loaded])),
        "recovered": float(recovered(errors, true).mean()),
        "within_1mw": float((errors < 1.0).mean()),
    }


def _records(table: pd.DataFrame) -> list[Json]:
    plain = table.astype(object).where(table.notna(), None)
    rows: list[Json] = plain.to_dict("records")
    return rows

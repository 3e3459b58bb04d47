"""Demand reconstruction attack: estimates of each bus's demand from all messages of a run.

The adversary knows the topology, the settings, every other zone's data, the scale of the noise and
a public prior, and receives every message. These estimates are compared:

prior         the public prior alone: the baseline;
stationarity  the MAP fit of each round's optimality conditions, where every variable is sent
              (:mod:`gridpriv.assurance.inversion`);
messages      the MAP fit of all rounds' messages (:mod:`gridpriv.assurance.inversion`), which
              averages noise that is drawn in each round;
releases      under demand perturbation, the posterior mean from the released statistics. They
              contain more than any message, so this bounds every adversary. For releases of sums
              it is the only estimate with noise, as messages are computed from it;
noise-free    the same fit of a run without a mechanism: the reference for the protection.

The averaging attack gives the error against the number of observed rounds. Results are estimates
and tables, with one row for each adversary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import networkx as nx
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from gridpriv.assurance import inversion
from gridpriv.assurance.adversary import RecordedRound, Watch, record_run, varied
from gridpriv.assurance.audit import check_draws, check_released, zone_of_bus
from gridpriv.assurance.inversion import ForwardModel, StationarityModel, sends_all_variables
from gridpriv.core.arrays import Floats, Ints
from gridpriv.core.errors import InputError, check_choice, not_allowed, positive, whole
from gridpriv.core.text import Json, frame_records
from gridpriv.grid.case import Case
from gridpriv.grid.zoning import Zoning, bus_graph, tie_lines
from gridpriv.power.zone_agent import public_proxy
from gridpriv.privacy.noise import NoiseStreams
from gridpriv.privacy.perturbation import Perturbation
from gridpriv.privacy.settings import Budget
from gridpriv.zonal.prepared import Prepared, noise_rule
from gridpriv.zonal.settings import Settings


def attack(prepared: Prepared, plan: AttackPlan, watch: Watch = lambda _: None) -> AttackResult:
    """Attack a run's messages, with and without its protection.

    Parameters
    ----------
    prepared : Prepared
        With or without noise.
    plan : AttackPlan
    watch : callable
        Called with a note after every zone of every run.

    Returns
    -------
    AttackResult
        Errors in MW, with those of the public prior; for the data owner only.

    Raises
    ------
    InputError
        For a bus that no zone owns or whose zone releases nothing, a run that releases nothing,
        secure noise, or a sweep without a mechanism.

    References
    ----------
    The adversary, its estimates and their accuracy: docs/audit-and-attack.md.
    """
    # an adversary may solve to any accuracy: errors of a looser solve do not protect
    settings = replace(prepared.settings, solver_tolerance="tight")
    prepared = replace(prepared, settings=settings)
    if settings.noise == "secure":
        raise not_allowed("noise", "secure", "'simulated': attacks study simulated runs")
    check_draws(prepared)
    if plan.totals and prepared.rules.noise is None:
        raise InputError("totals need a mechanism: mechanism is 'none'")
    zones = attacked_zones(prepared, plan.bus)
    # the protected run's budget is for all its rounds; only fewer are observed
    observed_settings = replace(settings, rounds=min(settings.rounds, plan.rounds))
    noise_free = _noise_free(prepared, observed_settings)
    outcomes = _attack(noise_free, plan, zones, NOISE_FREE, None, 1, watch)
    if prepared.rules.noise is not None:
        swept = ((f"total {e:g}", e, with_total(prepared, e)) for e in plan.totals)
        for label, epsilon, run in ((PROTECTED, None, prepared), *swept):
            short = varied(run, settings=observed_settings)
            # the fit of messages assumes independent noise between buses
            difference = settings.release == "bus" and settings.power_factor is None
            if difference or run.rules.perturbation.target != "demand":
                outcomes += _attack(short, plan, zones, label, epsilon, plan.seeds, watch)
            if run.rules.perturbation.target == "demand":
                outcomes.append(_releases(short, plan, zones, label, epsilon))
    owned = np.sort(np.concatenate([prepared.zones[z].own for z in zones]))
    loads = owned[prepared.case.load_buses[owned]]  # that others have no demand is public
    return AttackResult(
        prepared,
        plan,
        loads if len(loads) else owned,
        tie_distance(prepared.case, prepared.zoning),
        public_prior(prepared, plan)[0],
        tuple(outcomes),
        _identified(noise_free, plan, zones),
    )


def _identified(
    noise_free: Prepared, plan: AttackPlan, zones: Sequence[int]
) -> dict[int, inversion.Identified]:
    """Return the identifiability of demand in each zone's noise-free messages."""
    network, base = record_run(noise_free), noise_free.case.base_mva
    identified = {}
    for zone in zones:
        model = forward_model(noise_free, zone, network.recorded[zone])
        demand = noise_free.zones[zone].demand
        limit = tolerance(base * demand[: len(demand) // 2]) / base
        identified[zone] = inversion.identify(
            model, zone_prior(noise_free, plan, zone), demand, limit
        )
    return identified


def with_total(prepared: Prepared, epsilon: float) -> Prepared:
    """Return the run at another total budget, with the delta of its totals."""
    settings = prepared.settings
    # the delta of a budget per release is not that of a total
    delta = settings.budget.delta if settings.budget.scope == "total" else None
    if settings.mechanism == "gaussian":
        delta = settings.total_delta
    settings = replace(settings, budget=Budget("total", epsilon, delta))
    rules = replace(prepared.rules, noise=noise_rule(settings, prepared.rules.adjacency))
    return varied(prepared, settings=settings, rules=rules)


def _noise_free(prepared: Prepared, settings: Settings) -> Prepared:
    """Return the same run without noise."""
    rules = replace(prepared.rules, perturbation=Perturbation("none"), noise=None)
    return varied(prepared, settings=settings, rules=rules)


def _attack(
    prepared: Prepared,
    plan: AttackPlan,
    zones: Sequence[int],
    label: str,
    epsilon: float | None,
    seeds: int,
    watch: Watch,
    kinds: Sequence[str] = ("messages", "stationarity"),
) -> list[AttackOutcome]:
    """Return the MAP estimates of ``seeds`` runs, by every adversary with enough messages."""
    size = prepared.case.n_bus
    kinds = [kind for kind in kinds if kind == "messages" or sends_all_variables(prepared)]
    estimates = {kind: np.full((seeds, size), np.nan) for kind in kinds}
    spread = {kind: np.full(size, np.nan) for kind in kinds}
    for seed in range(seeds):
        network = record_run(prepared, prepared.seed + seed)
        for zone in zones:
            own = prepared.zones[zone].own
            forward = forward_model(prepared, zone, network.recorded[zone])
            noise = noise_model(prepared, network.recorded[zone])
            prior = zone_prior(prepared, plan, zone)
            for kind in kinds:
                model = StationarityModel(forward) if kind == "stationarity" else forward
                generator = np.random.default_rng([prepared.seed, seed, zone])
                result = inversion.fit(model, prior, noise, generator)
                estimates[kind][seed, own] = result.demand[: len(own)]
                spread[kind][own] = result.spread[: len(own)]
            watch(f"{label}, zone {prepared.zones[zone].name}")
    return [AttackOutcome(label, epsilon, kind, estimates[kind], spread[kind]) for kind in kinds]


def _releases(
    prepared: Prepared, plan: AttackPlan, zones: Sequence[int], label: str, epsilon: float | None
) -> AttackOutcome:
    """Return the posterior mean (prior and noise taken as normal) from the perturbed demands.

    Every seed's noise is used with both signs, which are equally likely. Errors of estimates that
    are linear in noise then average to the noise-free error, or more, at every seed.
    """
    rules, size = prepared.rules, prepared.case.n_bus
    assert rules.noise is not None
    count = rules.perturbation.releases(prepared.settings.rounds, rules.local_updates)
    estimates, spread = np.full((2 * plan.seeds, size), np.nan), np.full(size, np.nan)
    for zone in zones:
        disclosure, own = prepared.problems[zone].disclosure, prepared.zones[zone]
        prior, matrix = zone_prior(prepared, plan, zone), disclosure.matrix
        sensitivity = disclosure.sensitivity(rules.adjacency, rules.noise.norm)
        release = rules.noise.release(sensitivity)
        noise = release.mechanism.variance / count
        pull, true = _gain(matrix, prior.spread**2, noise), disclosure.measure(own.demand)
        for seed in range(plan.seeds):
            stream = partial(NoiseStreams(prepared.seed + seed).stream, own.key)
            draws = [release.apply(true, partial(stream, t, 1)) for t in range(1, count + 1)]
            released = np.mean(draws, axis=0)
            mirrored = 2.0 * true - released  # equally likely
            for draw, y in ((2 * seed, released), (2 * seed + 1, mirrored)):
                value = prior.mean + pull @ (y - matrix @ prior.mean)
                value = np.clip(value, prior.lower, prior.upper)
                estimates[draw, own.own] = value[: len(own.own)]
        variance = prior.spread**2 * (1.0 - np.einsum("im,mi->i", pull, matrix))
        spread[own.own] = np.sqrt(variance)[: len(own.own)]
    return AttackOutcome(label, epsilon, "releases", estimates, spread)


def _gain(matrix: Floats, variance: Floats, noise: float) -> Floats:
    """Return K of the posterior mean m + K(y - S m): noise and independent priors of variance."""
    cross = matrix * variance
    gain = np.linalg.solve(cross @ matrix.T + noise * np.eye(len(matrix)), cross)
    return np.asarray(gain.T, dtype=float)


def averaging(
    prepared: Prepared, plan: AttackPlan, rounds: Sequence[int], watch: Watch = lambda _: None
) -> pd.DataFrame:
    """Return error against observed rounds, for demand noise drawn each round and drawn once.

    The fit is of optimality conditions where every variable is sent, else of messages. A draw has
    the same scale in both cases; only the number of draws differs. Columns: noise_schedule, rounds,
    seed, mae_mw.
    """
    rows, settings = [], prepared.settings
    noise = noise_rule(replace(settings, rounds=1, noise_schedule="once"), prepared.rules.adjacency)
    zones = attacked_zones(prepared, plan.bus)
    own = np.concatenate([prepared.zones[zone].own for zone in zones])
    kinds = ("stationarity" if sends_all_variables(prepared) else "messages",)
    for noise_schedule in ("round", "once"):
        drawn = Perturbation("demand", noise_schedule)
        rules = replace(prepared.rules, perturbation=drawn, noise=noise)
        for count in rounds:
            run = varied(prepared, settings=replace(settings, rounds=count), rules=rules)
            label = f"averaging, {noise_schedule}, {count} rounds"
            (outcome,) = _attack(run, plan, zones, label, None, plan.seeds, watch, kinds)
            errors = np.abs(outcome.estimates[:, own] - run.case.pd[own]).mean(axis=1)
            rows += [
                {"noise_schedule": noise_schedule, "rounds": count, "seed": seed, "mae_mw": mae}
                for seed, mae in enumerate(run.case.base_mva * errors)
            ]
    return pd.DataFrame(rows)


BOUND = 6.0  # public bounds, in spreads of the prior
PRIORS = ("grid", "zone")


@dataclass(frozen=True)
class AttackPlan:
    """Size of an attack.

    Attributes
    ----------
    seeds : int
        Noisy runs that are attacked, for the confidence intervals.
    totals : tuple of float
        Total epsilons of further runs.
    rounds : int
        Largest number of observed rounds.
    prior : {'grid', 'zone'}
        Total that the prior distributes equally: the grid's, or each zone's own.
    prior_spread : float
        Standard deviation of the public prior over its mean.
    bus : int or None
        Attack only this bus's zone; None for all zones.
    """

    seeds: int = 5
    totals: tuple[float, ...] = ()
    rounds: int = 10
    prior: str = "grid"
    prior_spread: float = 1.0
    bus: int | None = None

    def __post_init__(self) -> None:
        check_choice("prior", self.prior, PRIORS)
        whole("seeds", self.seeds)
        whole("rounds", self.rounds)
        positive("prior-spread", self.prior_spread)
        for total in self.totals:
            positive("totals", total)


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
    """Return the prior mean (p, q) of every bus, p.u.: an equal share of the public totals.

    Auxiliary buses have none.
    """
    case, zoning = prepared.case, prepared.zoning
    group = zoning.zone_of if plan.prior == "zone" else np.zeros(case.n_bus, dtype=np.int64)
    buses = np.maximum(np.bincount(group, case.load_buses), 1.0)
    p, q = (np.bincount(group, demand) / buses for demand in (case.pd, case.qd))
    return p[group] * case.load_buses, q[group] * case.load_buses


def zone_prior(prepared: Prepared, plan: AttackPlan, zone: int) -> inversion.DemandPrior:
    """Return the prior of a zone's demand; active demand is known not to be negative."""
    own = prepared.zones[zone].own
    p, q = public_prior(prepared, plan)
    mean = np.concatenate([p[own], q[own]])
    spread = plan.prior_spread * np.maximum(np.abs(mean), 1e-3)
    lower, upper = mean - BOUND * spread, mean + BOUND * spread
    lower[: len(own)] = np.maximum(lower[: len(own)], min(0.0, float(prepared.case.pd.min())))
    return inversion.DemandPrior(mean, spread, lower, upper)


def forward_model(prepared: Prepared, zone: int, script: Sequence[RecordedRound]) -> ForwardModel:
    """Return the forward model of a zone for its observed messages."""
    problem, shared = prepared.problems[zone], prepared.shared[zone]
    exact, updates = prepared.rules.update == "exact", prepared.rules.local_updates
    proxy = public_proxy(prepared.zones[zone])
    return ForwardModel(problem, shared, script, exact=exact, local_updates=updates, proxy=proxy)


def noise_model(prepared: Prepared, script: Sequence[RecordedRound]) -> inversion.NoiseModel:
    """Return the adversary's model of the noise in a zone's messages (its scale is public)."""
    rules = prepared.rules
    if rules.noise is None:
        return inversion.NoiseModel("none")
    releases = [release for record in script for release in record.reply.releases]
    noise_schedule = rules.perturbation.noise_schedule
    draws = 1 if noise_schedule != "update" else rules.local_updates
    variance = float(np.mean([release.mechanism.variance for release in releases])) / draws
    if rules.perturbation.target == "demand":
        variance *= prepared.scale**2  # it is on the owner's demand; the run's is a multiple
    return inversion.NoiseModel(rules.perturbation.target, noise_schedule == "once", variance)


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

CLOSE = 0.05  # relative error up to which a demand counts as recovered
SMALL_MW = 0.05  # MW; the same where there is no demand


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
    identified: dict[int, inversion.Identified]

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
            loaded = np.where(self.true != 0.0, np.abs(self.true), np.nan)
            table[f"{name}_error_percent"] = 100.0 * error / loaded
            table[f"{name}_spread_mw"] = case.base_mva * outcome.spread[self.attacked]
        return table

    def identifiability(self) -> Words:
        """Return the identifiability of each attacked bus's demand in noise-free messages.

        The classes of :mod:`gridpriv.assurance.inversion`.
        """
        words = np.full(self.prepared.case.n_bus, "", dtype="U12")
        for zone, result in self.identified.items():
            words[self.prepared.zones[zone].own] = result.verdict
        return words[self.attacked]

    def zones(self) -> pd.DataFrame:
        """One row per attacked zone: unknowns, rank of the messages' Jacobian, and verdicts."""
        return pd.DataFrame(
            {
                "zone": self.prepared.zones[zone].name,
                "unknowns": len(result.hidden),
                "rank": result.rank,
                "largest": float(result.singular[0]),
                "smallest": float(result.singular[-1]),
                **{verdict: result.verdict.count(verdict) for verdict in inversion.VERDICTS},
            }
            for zone, result in self.identified.items()
        )

    @property
    def beta_mw(self) -> float | None:
        """Adjacency distance in MW after the load scale; None if active demand is unprotected."""
        base, settings = self.prepared.case.base_mva, self.prepared.settings
        if "p" not in settings.protects:
            return None
        return settings.load_scale * base * settings.beta.distance(base)

    def worst(self) -> list[int]:
        """Return the five buses whose error is the least share of the prior's."""
        errors = self.errors(self.shown).mean(axis=0)
        gain = errors / np.maximum(self.prior_errors, SMALL_MW)
        order = np.argsort(gain, kind="stable")[:5]
        return [int(b) for b in self.prepared.case.bus_id[self.attacked[order]]]

    @property
    def shown(self) -> AttackOutcome:
        """The outcome on the map: from messages of the protected run if there is one.

        For releases of sums it is the estimate from the releases.
        """
        protected = [o for o in self.outcomes if o.label == PROTECTED]
        return next((o for o in protected if o.adversary in SHOWN), self.outcomes[0])

    def by_distance(self) -> pd.DataFrame:
        """Share recovered within 5 %, by distance from a tie line, for every configuration."""
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
        """Return the attack as a JSON value."""
        return {
            "case": self.prepared.case.name,
            "settings": self.prepared.settings.as_dict()
            | {"objective": self.prepared.network.objective.kind},
            "seeds": self.plan.seeds,
            "prior": {
                "mean": f"equal share of the {self.plan.prior}'s total",
                "spread": self.plan.prior_spread,
            },
            "summary": frame_records(self.summary()),
            "zones": frame_records(self.zones()),
            "by_distance": frame_records(self.by_distance()),
            "buses": frame_records(self.buses()),
        }


def tolerance(true: Floats) -> Floats:
    """Return the error in MW up to which a demand is recovered: 5 %, or 0.05 MW if that is more."""
    return np.asarray(np.maximum(CLOSE * np.abs(true), SMALL_MW))


def recovered(errors: Floats, true: Floats) -> Floats:
    """Compare errors with the tolerance; boolean, same shape as errors."""
    return np.asarray(errors <= tolerance(true))


def _row(label: str, epsilon: float | None, adversary: str, errors: Floats, true: Floats) -> Json:
    """Return mean absolute error with a 95 % interval over seeds, and the shares recovered."""
    per_seed, loaded = errors.mean(axis=1), true != 0.0
    seeds, half = len(per_seed), None
    if seeds > 1:
        half = float(stats.t.ppf(0.975, seeds - 1) * per_seed.std(ddof=1) / math.sqrt(seeds))
    return {
        "configuration": label,
        "epsilon": epsilon,
        "adversary": adversary,
        "mae_mw": float(per_seed.mean()),
        "interval_mw": half,
        "error_percent": float(np.median(100.0 * errors[:, loaded] / np.abs(true[loaded]))),
        "recovered": float(recovered(errors, true).mean()),
        "within_1mw": float((errors < 1.0).mean()),
    }

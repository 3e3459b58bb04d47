"""Demand reconstruction: what an adversary who sees every message works out about each bus.

The adversary knows the topology, the settings, every other zone's data, the noise's scale and
a public prior, and hears every message. Four estimates are set against each other:

prior      the public prior alone: the baseline;
messages   the MAP fit of all rounds' messages (:mod:`gridpriv.assurance.inversion`), which
           averages noise drawn anew each round;
releases   under demand perturbation, the posterior mean from the perturbed demands themselves:
           more than any network carries, and so a bound on what anybody could do;
no noise   the same fit of a run without a mechanism: what the protection is measured against.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd

from gridpriv.assurance.audit import check_released, zone_of_bus
from gridpriv.assurance.eavesdrop import Heard, listen, varied
from gridpriv.assurance.forward import ForwardModel
from gridpriv.assurance.inversion import Noise, Prior, fit
from gridpriv.coordination.agent import Message
from gridpriv.errors import InputError, not_allowed
from gridpriv.grid.case import Case, Floats, Ints
from gridpriv.grid.zoning import Zoning, bus_graph, tie_lines
from gridpriv.power.fleet import public_proxy
from gridpriv.privacy.budget import Budget
from gridpriv.privacy.noise import NoiseStreams
from gridpriv.privacy.perturbation import Perturbation
from gridpriv.settings import Settings
from gridpriv.zonal import Prepared, noise_rule

CLOSE = 0.05  # share of the demand within which an estimate counts as recovered
SMALL_MW = 0.05  # ... and this many MW where there is no demand
BOUND = 6.0  # public bounds, in spreads of the prior


@dataclass(frozen=True)
class AttackPlan:
    """How much of an attack to make.

    Attributes
    ----------
    seeds : int
        Noisy runs that are attacked, for the confidence intervals.
    epsilons : tuple of float
        Total budgets to sweep; empty for the settings' own only.
    rounds : int
        Rounds that are listened to at most.
    prior_spread : float
        Standard deviation of the public prior over its mean.
    bus : int or None
        Attack only this bus's zone; None for all zones.
    """

    seeds: int = 5
    epsilons: tuple[float, ...] = ()
    rounds: int = 10
    prior_spread: float = 1.0
    bus: int | None = None

    def __post_init__(self) -> None:
        for name in ("seeds", "rounds"):
            if getattr(self, name) < 1:
                raise not_allowed(name, getattr(self, name), "1 or more")
        if any(not (math.isfinite(e) and e > 0) for e in self.epsilons):
            raise not_allowed("epsilons", self.epsilons, "positive numbers")
        if not (math.isfinite(self.prior_spread) and self.prior_spread > 0):
            raise not_allowed("prior-spread", self.prior_spread, "a positive number")


@dataclass(frozen=True, eq=False)
class Outcome:
    """One configuration's estimates.

    Attributes
    ----------
    label : str
        ``no noise``, ``as set``, or ``total EPSILON``.
    epsilon : float or None
        Total budget; None without noise.
    adversary : str
        ``messages`` or ``releases``.
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
    outcomes: tuple[Outcome, ...]

    @property
    def true(self) -> Floats:
        """Active demand of the attacked buses in MW."""
        return self.prepared.case.base_mva * self.prepared.case.pd[self.attacked]

    def errors(self, outcome: Outcome) -> Floats:
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
                "prior_error_mw": self.prior_errors,
            }
        )
        for outcome in self.outcomes:
            name = f"{outcome.label}, {outcome.adversary}".replace(" ", "_").replace(",", "")
            error = self.errors(outcome).mean(axis=0)
            table[f"{name}_error_mw"] = error
            loaded = np.where(self.true > 0, self.true, np.nan)
            table[f"{name}_error_percent"] = 100.0 * error / loaded
            spread = case.base_mva * outcome.spread[self.attacked]
            table[f"{name}_identifiable"] = spread < np.maximum(CLOSE * self.true, 1.0)
        return table

    def by_distance(self) -> pd.DataFrame:
        """Share recovered within 5 % by distance from a tie line, for every configuration."""
        rows = []
        for outcome in self.outcomes:
            close = recovered(self.errors(outcome), self.true)
            for lines in np.unique(self.distance[self.attacked]):
                here = self.distance[self.attacked] == lines
                rows.append(
                    {
                        "configuration": outcome.label,
                        "adversary": outcome.adversary,
                        "lines_to_tie": int(lines),
                        "buses": int(here.sum()),
                        "recovered": float(close[:, here].mean()),
                        "within_1mw": float((self.errors(outcome)[:, here] < 1.0).mean()),
                    }
                )
        return pd.DataFrame(rows)

    def as_dict(self) -> dict[str, Any]:
        """Return the attack as JSON can hold it."""
        return {
            "case": self.prepared.case.name,
            "settings": self.prepared.settings.as_dict(),
            "seeds": self.plan.seeds,
            "prior": {"mean": "equal share of the total", "spread": self.plan.prior_spread},
            "summary": _records(self.summary()),
            "by_distance": _records(self.by_distance()),
            "buses": _records(self.buses()),
        }


def recovered(errors: Floats, true: Floats) -> Floats:
    """Return whether errors are within 5 % of the demand (or 0.05 MW), same shape as errors."""
    return np.asarray(errors <= np.maximum(CLOSE * true, SMALL_MW))


def _row(
    label: str, epsilon: float | None, adversary: str, errors: Floats, true: Floats
) -> dict[str, Any]:
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


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    plain = table.astype(object).where(table.notna(), None)
    rows: list[dict[str, Any]] = plain.to_dict("records")
    return rows


def attack(
    prepared: Prepared, plan: AttackPlan, watch: Callable[[str], None] = lambda _: None
) -> AttackResult:
    """Attack a run's messages, with and without its protection.

    Parameters
    ----------
    prepared : Prepared
        With or without noise.
    plan : AttackPlan
    watch : callable
        Called with a note after every zone of every run.

    Raises
    ------
    InputError
        For a bus that no zone owns or whose zone releases nothing, secure noise, or a sweep
        without a mechanism.
    """
    settings = prepared.settings
    if settings.noise == "secure":
        raise InputError("noise = 'secure' is not allowed: attacks study simulated runs")
    if plan.epsilons and prepared.rules.noise is None:
        raise InputError("epsilons needs a mechanism: mechanism is 'none'")
    zones = _zones(prepared, plan.bus)
    # the protected run's budget is for all its rounds: only the listening is cut short
    heard = replace(settings, rounds=min(settings.rounds, plan.rounds))
    outcomes = [_attack(_silent(prepared, heard), plan, zones, "no noise", None, 1, watch)]
    if prepared.rules.noise is not None:
        loud: list[tuple[str, float | None, Prepared]] = [("as set", None, prepared)]
        loud += [(f"total {e:g}", e, with_total(prepared, e)) for e in plan.epsilons]
        for label, epsilon, run in loud:
            short = varied(run, settings=heard)
            outcomes.append(_attack(short, plan, zones, label, epsilon, plan.seeds, watch))
            if run.rules.perturbation.target == "demand":
                outcomes.append(_releases(short, plan, zones, label, epsilon))
    owned = np.concatenate([prepared.zones[z].own for z in zones])
    return AttackResult(
        prepared,
        plan,
        np.sort(owned),
        tie_distance(prepared.case, prepared.zoning),
        public_prior(prepared)[0],
        tuple(outcomes),
    )


def with_total(prepared: Prepared, epsilon: float) -> Prepared:
    """Return the run at another total budget (its delta kept)."""
    settings = prepared.settings
    delta = settings.privacy_budget.delta
    if settings.mechanism == "gaussian" and delta is None:
        delta = settings.target_delta
    changed = replace(settings, budget=str(Budget("total", epsilon, delta)))
    return _with(prepared, changed)


def _with(prepared: Prepared, settings: Settings) -> Prepared:
    """Return the run with other noise or refresh; zones and what they share stay."""
    rules = replace(
        prepared.rules,
        perturbation=settings.effective_perturbation(),
        noise=noise_rule(settings, prepared.rules.adjacency),
    )
    return varied(prepared, settings=settings, rules=rules)


def _silent(prepared: Prepared, settings: Settings) -> Prepared:
    """Return the run without noise, the rest as it is."""
    rules = replace(prepared.rules, perturbation=Perturbation("none"), noise=None)
    return varied(prepared, settings=settings, rules=rules)


def _zones(prepared: Prepared, bus: int | None) -> list[int]:
    """Return the positions of the zones to attack."""
    if bus is not None:
        zone = zone_of_bus(prepared, bus)
        check_released(prepared, zone, bus)
        return [zone]
    zones = [z for z, shared in enumerate(prepared.shared) if shared.any()]
    if not zones:
        raise InputError("no zone shares a variable with another, so nothing leaves any of them")
    return zones


def public_prior(prepared: Prepared) -> tuple[Floats, Floats]:
    """Return the prior mean (p, q) of every bus, p.u.: an equal share of the public totals."""
    case = prepared.case
    return (
        np.full(case.n_bus, case.pd.sum() / case.n_bus),
        np.full(case.n_bus, case.qd.sum() / case.n_bus),
    )


def zone_prior(prepared: Prepared, plan: AttackPlan, zone: int) -> Prior:
    """Return the prior of a zone's demand; active demand is known not to be negative."""
    own = prepared.zones[zone].own
    p, q = public_prior(prepared)
    mean = np.concatenate([p[own], q[own]])
    spread = plan.prior_spread * np.maximum(np.abs(mean), 1e-3)
    lower, upper = mean - BOUND * spread, mean + BOUND * spread
    lower[: len(own)] = np.maximum(lower[: len(own)], min(0.0, float(prepared.case.pd.min())))
    return Prior(mean, spread, lower, upper)


def _attack(
    prepared: Prepared,
    plan: AttackPlan,
    zones: Sequence[int],
    label: str,
    epsilon: float | None,
    seeds: int,
    watch: Callable[[str], None],
) -> Outcome:
    """Return the MAP estimates from the messages of ``seeds`` runs."""
    size = prepared.case.n_bus
    estimates, spread = np.full((seeds, size), np.nan), np.full(size, np.nan)
    for seed in range(seeds):
        network = listen(prepared, prepared.seed + seed)
        for zone in zones:
            own = prepared.zones[zone].own
            model = forward_model(prepared, zone, network.heard[zone])
            noise = heard_noise(prepared, network.messages[zone])
            found = fit(model, zone_prior(prepared, plan, zone), noise)
            estimates[seed, own] = found.demand[: len(own)]
            spread[own] = found.spread[: len(own)]
            watch(f"{label}, zone {prepared.zones[zone].name}")
    return Outcome(label, epsilon, "messages", estimates, spread)


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


def heard_noise(prepared: Prepared, messages: Sequence[Message]) -> Noise:
    """Return what the adversary knows of the noise in a zone's messages (its scale is public)."""
    rules = prepared.rules
    if rules.noise is None:
        return Noise("none")
    releases = [release for message in messages for release in message.releases]
    scale = float(np.mean([release.mechanism.scale for release in releases]))
    refresh = rules.perturbation.refresh
    draws = 1 if refresh != "update" else rules.local_updates
    variance = scale**2 * (2.0 if rules.noise.norm == 1 else 1.0) / draws
    return Noise(rules.perturbation.target, refresh == "run", variance)


def _releases(
    prepared: Prepared, plan: AttackPlan, zones: Sequence[int], label: str, epsilon: float | None
) -> Outcome:
    """Return the posterior mean (prior and noise taken as normal) from the perturbed demands."""
    rules, size = prepared.rules, prepared.case.n_bus
    assert rules.noise is not None
    count = rules.perturbation.releases(prepared.settings.rounds, rules.local_updates)
    estimates, spread = np.full((plan.seeds, size), np.nan), np.full(size, np.nan)
    for zone in zones:
        problem, own = prepared.problems[zone], prepared.zones[zone]
        prior = zone_prior(prepared, plan, zone)
        sensitivity = problem.data_sensitivity(rules.adjacency, rules.noise.norm)
        release = rules.noise.release(sensitivity)
        variance = release.mechanism.scale**2 * (2.0 if rules.noise.norm == 1 else 1.0) / count
        keep = prior.spread**2 / (prior.spread**2 + variance)
        for seed in range(plan.seeds):
            streams = NoiseStreams(prepared.seed + seed)
            seen = np.mean(
                [
                    release.apply(own.demand, partial(streams.stream, own.key, t, 1))
                    for t in range(1, count + 1)
                ],
                axis=0,
            )
            found = np.clip(prior.mean + keep * (seen - prior.mean), prior.lower, prior.upper)
            estimates[seed, own.own] = found[: len(own.own)]
        spread[own.own] = np.sqrt(keep * variance)[: len(own.own)]
    return Outcome(label, epsilon, "releases", estimates, spread)


def tie_distance(case: Case, zoning: Zoning) -> Ints:
    """Return the number of lines, inside its zone, from each bus to the nearest tie bus.

    Buses of a zone without ties get the number of buses.
    """
    graph, ties = bus_graph(case), tie_lines(case, zoning)
    ends = set(np.concatenate([case.f_bus[ties], case.t_bus[ties]]).tolist())
    distance = np.full(case.n_bus, case.n_bus, dtype=np.int64)
    for members in zoning.members:
        own = graph.subgraph(members.tolist())
        sources = ends & set(members.tolist())
        if not sources:
            continue
        for bus, lines in nx.multi_source_dijkstra_path_length(own, sources, weight=None).items():
            distance[bus] = int(lines)
    return distance


def averaging(
    prepared: Prepared,
    plan: AttackPlan,
    rounds: Sequence[int],
    watch: Callable[[str], None] = lambda _: None,
) -> pd.DataFrame:
    """Return error against rounds heard, for demand noise drawn each round and drawn once.

    One draw has the same scale in both, so what differs is only how often it is drawn. Columns:
    refresh, rounds, seed, mae_mw (messages), releases_mae_mw (from the perturbed demands).
    """
    rows, settings = [], prepared.settings
    multiplier_of = noise_rule(
        replace(settings, rounds=1, refresh="run"), prepared.rules.adjacency
    )
    zones = _zones(prepared, plan.bus)
    for refresh in ("round", "run"):
        rules = replace(
            prepared.rules, perturbation=Perturbation("demand", refresh), noise=multiplier_of
        )
        run = varied(prepared, settings=replace(settings, rounds=max(rounds)), rules=rules)
        for seed in range(plan.seeds):
            network = listen(run, run.seed + seed)
            for count in rounds:
                errors = []
                for zone in zones:
                    own = run.zones[zone].own
                    script = [h for h in network.heard[zone] if h.rehearsal or h.number <= count]
                    noise = heard_noise(run, network.messages[zone])
                    found = fit(
                        forward_model(run, zone, script), zone_prior(run, plan, zone), noise
                    )
                    errors.append(np.abs(found.demand[: len(own)] - run.case.pd[own]))
                mae = float(np.concatenate(errors).mean()) * run.case.base_mva
                rows.append({"refresh": refresh, "rounds": count, "seed": seed, "mae_mw": mae})
                watch(f"averaging, {refresh}, {count} rounds")
    return pd.DataFrame(rows)

"""Demand reconstruction: what an adversary who sees every message works out about each bus.

The adversary knows the topology, the settings, every other zone's data, the noise's scale and
a public prior, and hears every message. Four estimates are set against each other:

prior      the public prior alone: the baseline;
stationarity  the MAP fit of each round's optimality conditions, where every variable is heard
           (:mod:`gridpriv.assurance.forward`);
messages   the MAP fit of all rounds' messages (:mod:`gridpriv.assurance.inversion`), which
           averages noise drawn anew each round;
releases   under demand perturbation, the posterior mean from the released statistics themselves:
           more than any network carries, and so a bound on what anybody could do. Of releases of
           sums it is the only one with noise, as messages are computed from it;
noise-free  the same fit of a run without a mechanism: what the protection is measured against.

Averaging attack: error against the number of observed rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from gridpriv.assurance.audit import check_draws
from gridpriv.assurance.eavesdrop import listen, varied
from gridpriv.assurance.findings import (
    NOISE_FREE,
    PROTECTED,
    AttackOutcome,
    AttackPlan,
    AttackResult,
    attacked_zones,
    forward_model,
    heard_noise,
    public_prior,
    tie_distance,
    tolerance,
    zone_prior,
)
from gridpriv.assurance.forward import StationarityModel, all_heard
from gridpriv.assurance.inversion import Identified, fit, identify
from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError
from gridpriv.privacy.noise import NoiseStreams
from gridpriv.privacy.perturbation import Perturbation
from gridpriv.privacy.settings import Budget
from gridpriv.zonal.prepared import Prepared, noise_rule
from gridpriv.zonal.settings import Settings


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

    Returns
    -------
    AttackResult
        Errors in MW beside the public prior's; private.

    Raises
    ------
    InputError
        For a bus that no zone owns or whose zone releases nothing, a run that releases nothing,
        secure noise, or a sweep without a mechanism.

    References
    ----------
    The adversary, its estimates and what they reach: docs/audit-and-attack.md.
    """
    # who listens may solve as far as he likes: what a looser solve blurs protects nothing
    settings = replace(prepared.settings, solver_tolerance="tight")
    prepared = replace(prepared, settings=settings)
    if settings.noise == "secure":
        raise InputError("noise = 'secure': must be 'simulated', attacks study simulated runs")
    check_draws(prepared)
    if plan.epsilons and prepared.rules.noise is None:
        raise InputError("epsilons needs a mechanism: mechanism is 'none'")
    zones = attacked_zones(prepared, plan.bus)
    # the protected run's budget is for all its rounds: only the listening is cut short
    heard = replace(settings, rounds=min(settings.rounds, plan.rounds))
    silent = _silent(prepared, heard)
    outcomes = _attack(silent, plan, zones, NOISE_FREE, None, 1, watch)
    if prepared.rules.noise is not None:
        loud: list[tuple[str, float | None, Prepared]] = [(PROTECTED, None, prepared)]
        loud += [(f"total {e:g}", e, with_total(prepared, e)) for e in plan.epsilons]
        for label, epsilon, run in loud:
            short = varied(run, settings=heard)
            # the fit of messages takes noise to be independent between buses
            difference = settings.release == "bus" and settings.power_factor is None
            if difference or run.rules.perturbation.target != "demand":
                outcomes += _attack(short, plan, zones, label, epsilon, plan.seeds, watch)
            if run.rules.perturbation.target == "demand":
                outcomes.append(_releases(short, plan, zones, label, epsilon))
    owned = np.concatenate([prepared.zones[z].own for z in zones])
    return AttackResult(
        prepared,
        plan,
        np.sort(owned),
        tie_distance(prepared.case, prepared.zoning),
        public_prior(prepared, plan)[0],
        tuple(outcomes),
        _identified(silent, plan, zones),
    )


def _identified(silent: Prepared, plan: AttackPlan, zones: Sequence[int]) -> dict[int, Identified]:
    """Return the identifiability of demand in each zone's noise-free messages."""
    network, base = listen(silent), silent.case.base_mva
    entries = {}
    for zone in zones:
        model = forward_model(silent, zone, network.heard[zone])
        demand = silent.zones[zone].demand
        limit = tolerance(base * demand[: len(demand) // 2]) / base
        entries[zone] = identify(model, zone_prior(silent, plan, zone), demand, limit)
    return entries


def with_total(prepared: Prepared, epsilon: float) -> Prepared:
    """Return the run at another total budget (its delta kept)."""
    settings = prepared.settings
    delta = settings.budget.delta
    if settings.mechanism == "gaussian" and delta is None:
        delta = settings.target_delta
    settings = replace(settings, budget=Budget("total", epsilon, delta))
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


def _attack(
    prepared: Prepared,
    plan: AttackPlan,
    zones: Sequence[int],
    label: str,
    epsilon: float | None,
    seeds: int,
    watch: Callable[[str], None],
    kinds: Sequence[str] = ("messages", "stationarity"),
) -> list[AttackOutcome]:
    """Return the MAP estimates of ``seeds`` runs, by every adversary that hears enough."""
    size = prepared.case.n_bus
    kinds = [kind for kind in kinds if kind == "messages" or all_heard(prepared)]
    estimates = {kind: np.full((seeds, size), np.nan) for kind in kinds}
    spread = {kind: np.full(size, np.nan) for kind in kinds}
    for seed in range(seeds):
        network = listen(prepared, prepared.seed + seed)
        for zone in zones:
            own = prepared.zones[zone].own
            forward = forward_model(prepared, zone, network.heard[zone])
            noise = heard_noise(prepared, network.heard[zone])
            prior = zone_prior(prepared, plan, zone)
            for kind in kinds:
                model = StationarityModel(forward) if kind == "stationarity" else forward
                generator = np.random.default_rng([prepared.seed, seed, zone])
                result = fit(model, prior, noise, generator)
                estimates[kind][seed, own] = result.demand[: len(own)]
                spread[kind][own] = result.spread[: len(own)]
            watch(f"{label}, zone {prepared.zones[zone].name}")
    return [AttackOutcome(label, epsilon, kind, estimates[kind], spread[kind]) for kind in kinds]


def _releases(
    prepared: Prepared, plan: AttackPlan, zones: Sequence[int], label: str, epsilon: float | None
) -> AttackOutcome:
    """Return the posterior mean (prior and noise taken as normal) from the perturbed demands.

    Every seed's noise is taken with both signs, which are as likely: errors of estimates that
    follow noise in proportion then average to what they are without it, or more, at every seed.
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
        pull = _gain(matrix, prior.spread**2, noise)
        for seed in range(plan.seeds):
            streams = NoiseStreams(prepared.seed + seed)
            seen = np.mean(
                [
                    release.apply(
                        disclosure.measure(own.demand), partial(streams.stream, own.key, t, 1)
                    )
                    for t in range(1, count + 1)
                ],
                axis=0,
            )
            mirrored = 2.0 * disclosure.measure(own.demand) - seen  # as likely
            for draw, y in ((2 * seed, seen), (2 * seed + 1, mirrored)):
                value = prior.mean + pull @ (y - matrix @ prior.mean)
                value = np.clip(value, prior.lower, prior.upper)
                estimates[draw, own.own] = value[: len(own.own)]
        left = prior.spread**2 * (1.0 - np.einsum("im,mi->i", pull, matrix))
        spread[own.own] = np.sqrt(left)[: len(own.own)]
    return AttackOutcome(label, epsilon, "releases", estimates, spread)


def _gain(matrix: Floats, before: Floats, noise: float) -> Floats:
    """Return K of the posterior mean m + K(y - S m): noise and independent priors of variance."""
    seen = matrix * before
    gain = np.linalg.solve(seen @ matrix.T + noise * np.eye(len(matrix)), seen)
    return np.asarray(gain.T, dtype=float)


def averaging(
    prepared: Prepared,
    plan: AttackPlan,
    rounds: Sequence[int],
    watch: Callable[[str], None] = lambda _: None,
) -> pd.DataFrame:
    """Return error against rounds heard, for demand noise drawn each round and drawn once.

    The fit is of optimality conditions where every variable is heard, else of messages. One draw
    has the same scale in both, so what differs is only how often it is drawn. Columns:
    noise_schedule, rounds, seed, mae_mw.
    """
    rows, settings = [], prepared.settings
    noise = noise_rule(replace(settings, rounds=1, noise_schedule="once"), prepared.rules.adjacency)
    zones = attacked_zones(prepared, plan.bus)
    own = np.concatenate([prepared.zones[zone].own for zone in zones])
    kinds = ("stationarity" if all_heard(prepared) else "messages",)
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

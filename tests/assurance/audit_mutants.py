"""Run ``gridpriv audit`` with one faulty function: ``python audit_mutants.py NAME``.

Every mutant replaces one function before the command runs; no setting or flag selects it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from gridpriv.consensus import agent, coordinator, schedules
from gridpriv.consensus.agent import AgentReleases
from gridpriv.power import prior as power_disclosure
from gridpriv.power import problem, zone_agent
from gridpriv.privacy import linear, mechanism, noise, staircase, temporal
from gridpriv.zonal import horizon, prepared, protected_case, settings
from gridpriv.zonal import run as zonal_run

private: dict[int, float] = {}
"""Private figures that a curious coordinator gets hold of, by zone."""


def _leak() -> None:
    honest = agent.Agent.round

    def curious(self: Any, order: Any) -> Any:
        private[self.problem.key] = float(np.abs(self.data).sum())
        return honest(self, order)

    agent.Agent.round = curious


def penalty_reads_private_figures() -> None:
    _leak()
    for rule in (schedules.PenaltySchedule, schedules.ResidualBalancing):
        rule.following = lambda *given: given[2] * (1.0 + 1e-3 * sum(private.values()))


def stopping_reads_private_figures() -> None:
    _leak()
    honest = coordinator.rounds

    def eager(*given: Any) -> Any:
        for turn in honest(*given):
            yield turn
            if turn.number >= 2 and sum(private.values()) > 3.0:
                return

    zonal_run.rounds = eager


def same_noise_in_every_round() -> None:
    honest = noise.NoiseStreams.stream
    noise.NoiseStreams.stream = lambda *place: honest(*place[:2], 1, place[3])


def same_noise_in_every_zone() -> None:
    honest = noise.NoiseStreams.stream
    noise.NoiseStreams.stream = lambda *place: honest(place[0], 1, *place[2:])


def third_zone_reuses_noise_of_the_first() -> None:
    honest, zones = noise.NoiseStreams.stream, []

    def reused(self: Any, zone: int, *place: int) -> Any:
        if zone not in zones:
            zones.append(zone)
        third = sorted(zones)[2:3] == [zone]
        return honest(self, min(zones) if third else zone, *place)

    noise.NoiseStreams.stream = reused


def noise_ends_after_round_6() -> None:
    honest = AgentReleases._released_at

    def tired(self: Any, release: Any, value: Any, place: Any) -> Any:
        if place[0] > 6 and release is not None:
            self._charge_and_count(release)
            return value
        return honest(self, release, value, place)

    AgentReleases._released_at = tired


def last_round_on_true_demand() -> None:
    honest = AgentReleases._disclosed

    def frank(self: Any, release: Any, data: Any, place: Any) -> Any:
        released = honest(self, release, data, place)
        return data if place[0] == 20 else released

    AgentReleases._disclosed = frank


def exact_output_sensitivity_halved() -> None:
    honest = problem.output_sensitivity

    def halved(*given: Any) -> Any:
        bound = honest(*given)
        return replace(bound, value=bound.value / 2.0) if given[3] == "exact" else bound

    problem.output_sensitivity = halved


def secure_noise_halved() -> None:
    honest = mechanism.SecureKNorm.perturb
    mechanism.SecureKNorm.perturb = lambda self, value, stream: honest(
        replace(self, scale=0.5 * self.scale), value, stream
    )


def secure_noise_of_floats() -> None:
    floats = mechanism.KNorm.perturb
    generator = np.random.default_rng()
    mechanism.SecureKNorm.perturb = lambda self, value, _: floats(self, value, lambda: generator)


def auto_by_private_demand() -> None:
    honest = power_disclosure.disclose

    def peeking(zone: Any, release: str, prior: Any, *rest: Any) -> Any:
        return honest(zone, release, replace(prior, mean=zone.demand + 1e-3), *rest)

    prepared.disclose = peeking


def prior_by_private_demand() -> None:
    honest = prepared.zone_prior
    prepared.zone_prior = lambda zone, expected: replace(
        honest(zone, expected), spread=np.maximum(np.abs(zone.demand).sum(), 0.1) * np.ones(2)
    )


def warm_start_on_private_demand() -> None:
    zone_agent.public_proxy = lambda zone: 0.99 * zone.demand


def p_and_q_share_noise() -> None:
    def shared(self: Any, value: Any, stream: Any) -> Any:
        generator, pairs = stream(), value.size // 2
        radius = generator.gamma(3.0, self.scale, pairs)
        return value + np.tile(radius * generator.uniform(-1.0, 1.0, pairs), 2)

    mechanism.KNorm.perturb = shared


def no_noise_on_zero_buses() -> None:
    honest = mechanism.KNorm.perturb
    mechanism.KNorm.perturb = lambda self, value, stream: np.where(
        value == 0.0, value, honest(self, value, stream)
    )


def noise_scale_by_value() -> None:
    honest = mechanism.KNorm.perturb
    mechanism.KNorm.perturb = lambda self, value, stream: (
        value + (1.0 + np.abs(value)) * (honest(self, value, stream) - value)
    )


def course_sensitivity_of_the_mean() -> None:
    temporal.TemporalDisclosure.sensitivity = lambda self, adjacency, norm: self.level.sensitivity(
        adjacency, norm
    )


def central_on_true_demand() -> None:
    honest = agent.Agent.disclose

    def frank(self: Any) -> Any:
        honest(self)
        return self.data

    agent.Agent.disclose = frank


def estimate_kept_near_true_demand() -> None:
    honest = AgentReleases._disclosed
    AgentReleases._disclosed = lambda self, release, data, place: np.clip(
        honest(self, release, data, place), data - 0.5, data + 0.5
    )


def staircase_with_a_wrong_step() -> None:
    honest = staircase.draws
    staircase.draws = lambda epsilon, *rest: honest(1.2 * epsilon, *rest)


def stream_without_its_band() -> None:
    honest = horizon.horizon_multiplier
    horizon.horizon_multiplier = lambda settings, _: honest(settings, 1)


def stream_repeats_its_noise() -> None:
    honest = noise.NoiseStreams.stream
    noise.NoiseStreams.stream = lambda self, zone, round_, update: honest(
        self, zone, min(round_, 3), update
    )


def zones_of_a_stream_share_noise() -> None:
    honest, place = horizon.Stream.draw, noise.NoiseStreams.stream

    def shared(self: Any, *given: Any) -> Any:
        noise.NoiseStreams.stream = lambda streams, _, *rest: place(streams, 0, *rest)
        try:
            return honest(self, *given)
        finally:
            noise.NoiseStreams.stream = place

    horizon.Stream.draw = shared


def tree_sensitivity_of_a_leaf() -> None:
    honest = linear.Statistics.sensitivity

    def leaf(self: Any, *given: Any) -> Any:
        bound = honest(self, *given)
        return replace(bound, value=bound.value * float(self.matrix.max(initial=0.0)) / 2.0)

    linear.Statistics.sensitivity = leaf


def adjacency_of_half_beta() -> None:
    honest = settings.Adjacency.protected

    def halved(self: Any, case: Any) -> Any:
        adjacency = honest(self, case)
        return replace(adjacency, beta=0.5 * adjacency.beta)

    settings.Adjacency.protected = halved


def noise_of_more_than_the_budget() -> None:
    honest = prepared.noise_multiplier
    prepared.noise_multiplier = lambda *given: honest(*given) / 1.1


def half_of_the_loss_is_charged() -> None:
    mechanism.KNorm.charge = lambda self, distance: mechanism.Charge(
        "laplace", 2.0 * self.scale / distance
    )


def radius_of_two_numbers() -> None:
    def short(self: Any, value: Any, stream: Any) -> Any:
        generator, pairs = stream(), value.size // 2
        radius = generator.gamma(2.0, self.scale, pairs)
        return value + (radius * generator.uniform(-1.0, 1.0, (2, pairs))).ravel()

    mechanism.KNorm.perturb = short


def second_zone_pays_nothing() -> None:
    honest = AgentReleases._count
    AgentReleases._count = lambda self, release: (
        None if self.problem.name == "2" else honest(self, release)
    )


def reactive_weight_counts_as_the_active_one() -> None:
    honest = linear.Statistics.sensitivity

    def active(self: Any, *given: Any) -> Any:
        bound = honest(self, *given)
        return replace(bound, value=bound.value / (1.0 + self.reactive))

    linear.Statistics.sensitivity = active


def reactive_prices_are_free() -> None:
    protected_case._largest_price = lambda prices, _: float(np.abs(prices[0]).max())


def range_of_the_sum_around_the_true_one() -> None:
    known = prepared.zone_prior

    def tight(zone: Any, expected: Any) -> Any:
        sums = zone.demand.reshape(2, -1).sum(axis=1)
        return replace(known(zone, expected), lower=sums - 0.5, upper=sums + 0.5)

    prepared.zone_prior = tight


MUTANTS: dict[str, tuple[Callable[[], None], str]] = {
    mutant.__name__: (mutant, check)
    for mutant, check in (
        (penalty_reads_private_figures, "coordinator"),
        (stopping_reads_private_figures, "coordinator"),
        (same_noise_in_every_round, "independence"),
        (same_noise_in_every_zone, "independence"),
        (third_zone_reuses_noise_of_the_first, "independence"),
        (noise_ends_after_round_6, "rounds"),
        (last_round_on_true_demand, "messages"),
        (exact_output_sensitivity_halved, "outputs"),
        (secure_noise_halved, "distribution"),
        (secure_noise_of_floats, "low bits"),
        (auto_by_private_demand, "public state"),
        (prior_by_private_demand, "public state"),
        (warm_start_on_private_demand, "public state"),
        (p_and_q_share_noise, "independence"),
        (no_noise_on_zero_buses, "noise"),
        (noise_scale_by_value, "distribution"),
        (course_sensitivity_of_the_mean, "series"),
        (central_on_true_demand, "public bytes"),
        (estimate_kept_near_true_demand, "public bytes"),
        (staircase_with_a_wrong_step, "distribution"),
        (tree_sensitivity_of_a_leaf, "values"),
        (stream_without_its_band, "stream"),
        (stream_repeats_its_noise, "stream"),
        (zones_of_a_stream_share_noise, "stream"),
        (adjacency_of_half_beta, "stated"),
        (noise_of_more_than_the_budget, "stated"),
        (half_of_the_loss_is_charged, "stated"),
        (radius_of_two_numbers, "distribution"),
        (second_zone_pays_nothing, "rounds"),
        (reactive_weight_counts_as_the_active_one, "publish"),
        (reactive_prices_are_free, "publish"),
        (range_of_the_sum_around_the_true_one, "public state"),
    )
}
"""Mutants by name, each with the check of the audit that sees it."""
PATCHED = (
    (agent.Agent, "round"),
    (zonal_run, "rounds"),
    (schedules.PenaltySchedule, "following"),
    (schedules.ResidualBalancing, "following"),
    (noise.NoiseStreams, "stream"),
    (prepared, "zone_prior"),
    (horizon, "horizon_multiplier"),
    (horizon.Stream, "draw"),
    (settings.Adjacency, "protected"),
    (prepared, "noise_multiplier"),
    (mechanism.KNorm, "charge"),
    (mechanism.SecureKNorm, "perturb"),
    (AgentReleases, "_count"),
    (protected_case, "_largest_price"),
)
"""Attributes that the mutants of the default tests replace."""

if __name__ == "__main__":
    if sys.argv[1] in MUTANTS:
        MUTANTS[sys.argv[1]][0]()
    from gridpriv.cli.main import main

    raise SystemExit(main(["audit", "case14", *sys.argv[2:]]))

"""Strategies: sensitivities by brute force, estimates against a second implementation."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy import stats

from gridpriv import InputError
from gridpriv.privacy.adjacency import DemandAdjacency, PowerFactors
from gridpriv.privacy.linear import (
    Disclosure,
    Prior,
    Statistics,
    bus,
    expected_error,
    nothing,
    posterior_covariance,
    total,
    tree,
)
from gridpriv.privacy.mechanism import Gaussian
from gridpriv.privacy.release import Release
from gridpriv.privacy.sensitivity import Sensitivity, length

HALVES = [np.zeros(6, dtype=int), np.array([0, 0, 0, 1, 1, 2]), np.arange(6)]


def prior_of(mean, spread=1.0, lower=-np.inf, upper=np.inf):
    both = np.concatenate([mean, 0.3 * np.asarray(mean)])
    ends = np.full(2, lower, dtype=float), np.full(2, upper, dtype=float)
    return Prior(both, np.array([spread, 0.3 * spread]), *ends)


def brute_force(strategy, adjacency, norm, units):
    """The largest change of the statistics over every corner of the adjacency, at random data."""
    generator = np.random.default_rng(4)
    steps = {"p+q": (-1, 0, 1), "p": (-1, 0, 1), "q": (-1, 0, 1)}[adjacency.protects]
    most = 0.0
    for unit in range(units):
        for dp, dq in itertools.product(steps, repeat=2):
            if (adjacency.protects == "p" and dq) or (adjacency.protects == "q" and dp):
                continue
            data = generator.normal(size=2 * units)
            other = data.copy()
            other[unit] += dp * adjacency.beta
            other[units + unit] += dq * adjacency.beta
            changed = strategy.measure(other) - strategy.measure(data)
            if norm == "box":
                half = len(changed) // 2
                actual = sum(max(abs(changed[k]), abs(changed[half + k])) for k in range(half))
            else:
                actual = np.linalg.norm(changed, norm)
            most = max(most, float(actual))
    return most


@pytest.mark.parametrize("protects", ["p+q", "p", "q"])
@pytest.mark.parametrize("norm", [1, 2, "box"])
@pytest.mark.parametrize(
    "strategy",
    [
        bus(6),
        total(6),
        tree(HALVES, (0.5, 0.2, 0.3)),
        tree(HALVES, (1.0, 2.0, 4.0)),
        Statistics("random", np.random.default_rng(1).normal(size=(4, 6))),
        Statistics("sparse", np.random.default_rng(2).choice([0.0, 0.0, -1.5, 1.0], (9, 6))),
        replace(total(6), reactive=0.05),
        replace(tree(HALVES, (0.5, 0.2, 0.3)), reactive=3.0),
    ],
    ids=["bus", "total", "tree", "heavy tree", "random", "sparse", "light q", "heavy q"],
)
def test_sensitivities_are_the_largest_move_over_all_corners(strategy, norm, protects):
    adjacency = DemandAdjacency(0.07, protects)
    stated = strategy.sensitivity(adjacency, norm)
    assert stated.norm == norm
    assert stated.value == pytest.approx(brute_force(strategy, adjacency, norm, 6), rel=1e-12)


def test_the_box_norm_of_the_measured_change_is_the_distance_the_mechanism_reads():
    strategy, adjacency = tree(HALVES, (0.5, 0.2, 0.3)), DemandAdjacency(0.1)
    change = np.zeros(12)
    change[[2, 8]] = 0.1, -0.1
    assert length(strategy.measure(change), "box") == pytest.approx(
        strategy.sensitivity(adjacency, "box").value
    )


def test_a_zone_of_one_bus_has_one_strategy():
    for strategy in (total(1), tree([np.zeros(1, dtype=int)] * 3, (0.5, 0.25, 0.25))):
        assert np.array_equal(strategy.matrix, bus(1).matrix)


def test_a_part_that_stands_in_two_levels_is_summed_once():
    levels = [np.array([0, 0, 1]), np.array([0, 1, 2])]
    computed = tree(levels, (0.4, 0.6)).matrix
    assert sorted(computed.tolist()) == [[0, 0, 1.0], [0, 0.6, 0], [0.4, 0.4, 0], [0.6, 0, 0]]


def test_a_tree_needs_a_weight_for_every_level():
    with pytest.raises(InputError, match="one positive weight"):
        tree(HALVES, (0.5, 0.5))
    with pytest.raises(InputError, match="one positive weight"):
        tree(HALVES, (0.5, 0.5, 0.0))


@pytest.mark.parametrize("strategy", [bus(6), total(6), tree(HALVES, (0.5, 0.2, 0.3))])
def test_hardly_any_noise_leaves_what_was_measured(strategy):
    demand = np.array([1.0, 0.2, 0.5, 2.0, 0.1, 0.9, 0.3, 0.1, 0.2, 0.7, 0.0, 0.1])
    estimate = strategy.estimate(strategy.measure(demand), 1e-12, prior_of(np.full(6, 0.5), 100.0))
    assert strategy.measure(estimate) == pytest.approx(strategy.measure(demand), abs=1e-4)


@pytest.mark.parametrize("strategy", [bus(6), total(6), tree(HALVES, (0.5, 0.2, 0.3))])
def test_boundless_noise_leaves_the_prior(strategy):
    prior = prior_of(np.array([0.5, 1.0, 0.2, 0.4, 0.8, 0.1]), 0.5)
    noise = 1e6 * np.random.default_rng(3).normal(size=2 * len(strategy.matrix))
    posterior = strategy.estimate(noise, 1e12, prior)
    assert posterior == pytest.approx(prior.mean, abs=1e-2)


def test_the_sum_stays_in_its_public_range():
    prior = prior_of(np.full(4, 0.5), 50.0, lower=0.0, upper=3.0)
    for seen, sums in ((40.0, 3.0), (-40.0, 0.0)):
        posterior = total(4).estimate(np.array([seen, seen]), 0.01, prior)
        assert posterior.reshape(2, 4).sum(axis=1) == pytest.approx([sums, sums])


def test_the_estimate_is_the_mean_of_a_sampled_posterior():
    """Importance sampling of (t, s, e) and the demand, with no linear algebra in common."""
    generator, draws, units = np.random.default_rng(11), 400_000, 3
    prior = prior_of(np.array([0.6, 0.3, 0.3]), 0.4)
    strategy, variance = tree([np.zeros(3, dtype=int), np.arange(3)], (0.5, 0.5)), 0.05
    seen = np.array([0.9, 0.2, 0.5, 0.1])
    scale = prior.mean[:3]
    raw = generator.normal(size=(draws, units)) * scale
    # conditioned on a sum of zero by moving along the covariance with the sum
    e = raw - np.outer(raw.sum(axis=1), scale**2 / (scale**2).sum())
    s = np.exp(generator.uniform(np.log(0.05), np.log(5.0), draws))
    t = 0.4 * generator.normal(size=draws)
    demand = prior.mean[:3] + np.outer(t, scale / scale.sum()) + s[:, None] * e
    log_weight = stats.norm.logpdf(seen, demand @ strategy.matrix.T, np.sqrt(variance)).sum(axis=1)
    weight = np.exp(log_weight - log_weight.max())
    expected = weight @ demand / weight.sum()
    posterior = strategy.estimate(np.concatenate([seen, seen]), variance, prior)[:3]
    assert posterior == pytest.approx(expected, abs=0.01)


def test_equal_loads_are_recognised_and_pooled_and_unequal_ones_are_not():
    """Stein: with no spread between units the mean beats every unit's own value."""
    generator, variance = np.random.default_rng(0), 0.04
    prior = prior_of(np.full(40, 0.5), 100.0)
    for demand, lowest, highest in (
        (np.full(40, 0.5), 0.0, 0.15),
        (np.geomspace(0.01, 6.0, 40), 0.85, 1.05),
    ):
        ratios = []
        for _ in range(20):
            noise = np.sqrt(variance) * generator.normal(size=80)
            posterior = bus(40).estimate(np.concatenate([demand, demand]) + noise, variance, prior)[
                :40
            ]
            ratios.append(((posterior - demand) ** 2).sum() / (noise[:40] ** 2).sum())
        assert lowest <= np.mean(ratios) <= highest


def test_the_expected_error_is_what_a_simulation_of_the_prior_finds():
    generator, units, deviation = np.random.default_rng(5), 6, 0.8
    prior, use = prior_of(np.full(units, 0.5), 0.6), generator.normal(size=(2, units))
    strategy, variance = tree(HALVES, (0.5, 0.2, 0.3)), 0.1
    sums = prior.active
    roots = np.linalg.cholesky(sums.deviations + 1e-12 * np.eye(units))
    before = sums.spread**2 * np.outer(sums.shares, sums.shares) + deviation**2 * sums.deviations
    gain = (
        before
        @ strategy.matrix.T
        @ np.linalg.inv(
            strategy.matrix @ before @ strategy.matrix.T + variance * np.eye(len(strategy.matrix))
        )
    )
    squares = []
    for _ in range(20_000):
        t = sums.spread * generator.normal()
        distance = t * sums.shares + deviation * roots @ generator.normal(size=units)
        noise = np.sqrt(variance) * generator.normal(size=len(strategy.matrix))
        missed = distance - gain @ (strategy.matrix @ distance + noise)
        squares.append(((use @ missed) ** 2).sum())
    stated = expected_error(strategy, variance, prior, use, deviation)
    assert stated == pytest.approx(np.sqrt(np.mean(squares)), rel=0.03)


@pytest.mark.parametrize("factors", [None, PowerFactors(0.85, 0.95)])
def test_with_boundless_beliefs_an_error_in_p_and_q_is_that_of_the_noise(factors):
    """q = middle p + half q': the noise of q' and p, for any prior."""
    prior, variance = prior_of(np.full(4, 0.5), 1e3), 0.02
    error = expected_error(
        bus(4), variance, prior, np.eye(4), 1e3, reactive=True, power_factors=factors
    )
    middle, half = (0.0, 1.0) if factors is None else (factors.middle, factors.half)
    assert error**2 == pytest.approx(4 * variance * (1 + middle**2 + half**2), rel=1e-3)


def test_auto_takes_the_sum_where_noise_is_large_and_units_where_it_is_small():
    prior, use = prior_of(np.full(6, 0.5), 2.0), np.eye(6)

    def chosen(noise):
        options = bus(6), total(6)
        return min(options, key=lambda option: expected_error(option, noise, prior, use)).name

    assert chosen(100.0) == "total"
    assert chosen(0.001) == "bus"


def test_nothing_released_is_the_prior_and_moves_by_nothing():
    prior = prior_of(np.array([0.5, 1.0, 0.2]), 0.5)
    strategy, demand = nothing(3), np.arange(6.0)
    assert strategy.measure(demand).size == 0
    assert strategy.sensitivity(DemandAdjacency(0.1), "box").value == 0.0
    assert np.array_equal(strategy.estimate(strategy.measure(demand), 0.0, prior), prior.mean)


def test_nothing_released_leaves_the_priors_covariance():
    sums = prior_of(np.full(3, 0.5), 0.4).active
    left = posterior_covariance(np.zeros((0, 3)), 1.0, sums, 0.5)
    assert np.ones(3) @ left @ np.ones(3) == pytest.approx(0.16)


def test_an_estimate_takes_the_variance_that_a_mechanism_states():
    """Two laws may share a norm: noise of the Euclidean ball has m + 1 times the Gaussian's."""

    @dataclass(frozen=True)
    class Ball(Gaussian):
        variance_at_1 = 1.0 + 2 * 3

    disclosure = Disclosure(bus(3), prior_of([0.2, 0.5, 0.9]), 0.0)
    sensitivity, seen = Sensitivity(0.1, 2, "test"), np.ones(6)
    posterior = [
        disclosure.estimate(seen, Release(mechanism, sensitivity, 0.1))
        for mechanism in (Ball(0.1), Gaussian(0.1), Gaussian(0.1 * np.sqrt(7.0)))
    ]
    assert posterior[0] == pytest.approx(posterior[2], rel=1e-12)
    assert posterior[0] != pytest.approx(posterior[1], rel=1e-3)

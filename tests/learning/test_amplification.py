"""Amplification by secret samples, against numerical integration of our own."""

from __future__ import annotations

import math

import made
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from gridpriv.learning import learn, make_learn_settings
from gridpriv.learning.accounting import sampled_multiplier
from gridpriv.learning.settings import LearnSettings
from gridpriv.privacy.accounting import (
    FIXED_SIZE,
    POISSON,
    fixed_size_curve,
    gaussian_multiplier,
    poisson_curve,
    total_epsilon,
)
from gridpriv.privacy.mechanism import Charge, SecureGaussian

DELTA = 1e-5
WIDTH, BINS = 12.0, 120_000  # losses of the histogram, and its bins
STEP = 2.0 * WIDTH / BINS


def densities(kind, multiplier, rate):
    """The densities of x under both adjacent data sets, on a fine grid, times its spacing."""
    x = np.linspace(-14.0, 14.0, 1_000_001)

    def normal(centre):
        return np.exp(-0.5 * (x - centre) ** 2) / math.sqrt(2.0 * math.pi) * (x[1] - x[0])

    if kind == POISSON:
        shift = 0.5 / multiplier
        return tuple((1 - rate) * normal(0) + rate * normal(s) for s in (shift, -shift))
    return (1 - rate) * normal(0) + rate * normal(1.0 / multiplier), normal(0)


def loss_masses(kind, multiplier, rate, reverse):
    """A histogram of the losses of one release, around the bin of 0.

    Of batches without replacement, losses above 0 are those of the mixture against the plain
    density, losses below 0 those of the plain one against the mixture, and the rest is at 0.
    """
    p, q = densities(kind, multiplier, rate)
    if reverse and kind != FIXED_SIZE:
        p, q = q, p
    loss = np.log(p / q)
    edges = (np.arange(BINS + 1) - 0.5 - BINS // 2) * STEP
    if kind != FIXED_SIZE:
        return np.histogram(loss, edges, weights=p)[0]
    masses = np.histogram(loss[loss > 0], edges, weights=p[loss > 0])[0]
    masses += np.histogram(-loss[loss > 0], edges, weights=q[loss > 0])[0]
    masses[BINS // 2] += 1.0 - masses.sum()
    return masses


def composed_epsilon(releases):
    """Epsilon of a composition, by charge: histograms of losses, convolved by FFT."""
    losses = (np.arange(BINS) - BINS // 2) * STEP

    def one_way(reverse):
        spectrum = 1.0
        for what, count in releases.items():
            masses = loss_masses(what.kind, what.parameter, what.second or 1.0, reverse)
            spectrum = spectrum * np.fft.rfft(np.roll(masses, -(BINS // 2))) ** count
        total = np.roll(np.fft.irfft(spectrum, BINS), BINS // 2)

        def delta(epsilon):
            above = losses > epsilon
            return -(total[above] * np.expm1(epsilon - losses[above])).sum()

        low, high = 0.0, WIDTH
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if delta(middle) > DELTA else (low, middle)
        return high

    ways = (False, True) if any(what.kind == CLIENTS for what in releases) else (False,)
    return max(map(one_way, ways))


CLIENTS = "sampled-gaussian"  # a client joins or not: clients drawn in secret, or zero-out batches
CASES = {
    "Poisson batches of 64 of 6,000, replace-one": {Charge(POISSON, 0.5, 64 / 6000): 300},
    "Poisson batches of a tenth, replace-one": {Charge(POISSON, 2.0, 0.1): 150},
    "Poisson batches of a hundredth, replace-one": {Charge(POISSON, 1.0, 0.01): 1000},
    "fixed batches of 64 of 6,000, replace-one": {Charge(FIXED_SIZE, 0.75, 64 / 6000): 300},
    "fixed batches of a tenth, replace-one": {Charge(FIXED_SIZE, 2.0, 0.1): 150},
    "fixed batches of a hundredth, replace-one": {Charge(FIXED_SIZE, 1.0, 0.01): 1000},
    "20 of 100 clients in secret": {Charge(CLIENTS, 3.0, 0.2): 200},
    "10 of 1,000 clients in secret, or Poisson, zero-out": {Charge(CLIENTS, 1.0, 0.01): 1000},
    "a tenth of the clients in secret": {Charge(CLIENTS, 2.0, 0.1): 150},
    "full batches": {Charge("gaussian", 20.0): 200},
    "a mean and full batches (preset accurate)": {
        Charge("gaussian", 5.5): 1,
        Charge("gaussian", 17.9): 200,
    },
    "a mean and Poisson batches": {
        Charge("gaussian", 8.0): 1,
        Charge(POISSON, 0.8, 64 / 6000): 300,
    },
    "a mean and fixed batches": {
        Charge("gaussian", 8.0): 1,
        Charge(FIXED_SIZE, 0.9, 64 / 6000): 300,
    },
}


LONG = {
    "Poisson batches of a hundredth, replace-one",
    "fixed batches of a hundredth, replace-one",
    "a tenth of the clients in secret",
    "a mean and fixed batches",
    "full batches",
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in LONG else n for n in CASES]
)
def test_totals_agree_with_numerical_integration(name):
    releases = CASES[name]
    own, total = composed_epsilon(releases), total_epsilon(releases, DELTA)
    assert total == pytest.approx(own, rel=1e-3)
    plain = {Charge("gaussian", c.parameter): n for c, n in releases.items()}
    if any(c.second for c in releases):
        assert total < total_epsilon(plain, DELTA)


@pytest.mark.parametrize("trust", ["local", "central", "secure-sum"])
@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_the_accurate_preset_costs_what_one_gaussian_release_of_its_noise_costs(trust, epsilon):
    """Full batches: n releases of multiplier m are one of m/sqrt(n), whose delta is known."""
    settings = make_learn_settings(
        "mnist",
        "accurate",
        trust=trust,
        clients=3,
        budget=f"total:{epsilon},1e-5",
        features="raw",
        rounds=20,
        learning_rate=0.1,
    )
    result = learn(made.multiclass(), settings)
    charges = result.charges[0]
    assert {what.kind for what in charges} == {"gaussian"} and sum(charges.values()) == 21
    mu = math.sqrt(sum(n / what.parameter**2 for what, n in charges.items()))

    def delta(e):
        return norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu)

    own = brentq(lambda e: delta(e) - DELTA, 0.0, 50.0)
    assert own <= result.privacy["total"]["epsilon"] * (1 + 1e-9) <= epsilon * (1 + 1e-9)
    assert own == pytest.approx(epsilon, rel=1e-3)


@pytest.mark.parametrize(
    ("kind", "curve"), [(POISSON, poisson_curve), (FIXED_SIZE, fixed_size_curve)]
)
def test_a_curve_is_the_hockey_stick_of_its_densities(kind, curve):
    p, q = densities(kind, 0.8, 0.2)
    epsilons = np.array([-2.0, -0.3, 0.0, 0.4, 1.5])
    direct = [np.maximum(p - math.exp(e) * q, 0.0).sum() for e in epsilons]
    if kind == FIXED_SIZE:  # the larger of both directions
        back = [np.maximum(q - math.exp(e) * p, 0.0).sum() for e in epsilons]
        direct = np.maximum(direct, back)
    np.testing.assert_allclose(curve(0.8, 0.2)(epsilons), direct, atol=1e-9)


def test_no_neighbours_of_a_small_data_set_exceed_the_curve():
    """Every pair of replaced values in the plane, of every batch of 2 of 4, by integration."""
    random = np.random.default_rng(3)
    axis = np.linspace(-7.0, 7.0, 281)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1)
    area = (axis[1] - axis[0]) ** 2
    batches = [(a, b) for a in range(4) for b in range(a)]

    def output(points):
        sums = [points[a] + points[b] for a, b in batches]
        each = [np.exp(-0.5 * ((grid - s) ** 2).sum(-1)) for s in sums]
        return sum(each) / len(each) / (2.0 * math.pi) * area

    bound = fixed_size_curve(
        0.5, 0.5
    )  # values are at most 1 long, so that a replaced one moves by 2
    for _ in range(5):
        angles = random.uniform(0, 2 * np.pi, 5)
        points = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
        p, q = output(points[:4]), output(points[[4, 1, 2, 3]])
        for epsilon in (0.0, 0.5, 1.0):
            actual = np.maximum(p - math.exp(epsilon) * q, 0.0).sum()
            assert actual <= bound(np.array([epsilon]))[0] + 1e-6


@pytest.mark.parametrize("kind", [POISSON, FIXED_SIZE])
def test_a_batch_of_64_of_6000_needs_a_multiplier_below_1(kind):
    assert gaussian_multiplier(3.0, DELTA, 300) == pytest.approx(24.2, abs=0.2)
    assert total_epsilon({Charge(kind, 1.0, 64 / 6000): 300}, DELTA) <= 3.0


LARGE = pytest.param(POISSON, 300, 64 / 6000, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("kind", "releases", "rate"),
    [(FIXED_SIZE, 20, 0.1), (CLIENTS, 10, 0.2), (POISSON, 1, 0.9), LARGE],
)
def test_a_sampled_multiplier_is_the_smallest_within_the_budget(kind, releases, rate):
    settings = LearnSettings(budget="total:3,1e-5", algorithm="dpsgd", batch=64)
    multiplier = sampled_multiplier(settings, gaussian_multiplier(3.0, DELTA, releases), rate, kind)
    below, above = (
        total_epsilon({Charge(kind, multiplier * factor, rate): releases}, DELTA)
        for factor in (0.995, 1.0)
    )
    assert above <= 3.0 < below


def test_discrete_noise_is_charged_as_the_continuous_noise_that_it_comes_from():
    """Epsilon of a discrete Gaussian by its sum, at a scale of 40 steps."""
    scale, distance = 40.0, 30.0
    k = np.arange(-4000, 4000)
    p = np.exp(-0.5 * (k / scale) ** 2)
    q = np.exp(-0.5 * ((k - distance) / scale) ** 2)
    own = np.maximum(p / p.sum() - math.exp(1.0) * q / q.sum(), 0.0).sum()
    smoothed = scale / distance * math.sqrt(1.0 - 64.0 / scale**2)
    assert total_epsilon({Charge("gaussian", smoothed): 1}, own) >= 1.0
    charge = SecureGaussian(4.0).charge(3.0)
    assert charge.kind == "gaussian"
    assert charge.parameter == pytest.approx(4.0 / 3.0, rel=1e-6)

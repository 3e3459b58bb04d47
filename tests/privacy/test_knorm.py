"""K-norm noise against integrals over grids, brute force and published moments."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from gridpriv import InputError
from gridpriv.privacy.accounting import pure_multiplier, total_epsilon, total_pure
from gridpriv.privacy.mechanism import (
    Gaussian,
    KNorm,
    Laplace,
    SecureGaussian,
    SecureKNorm,
    SecureLaplace,
)
from gridpriv.privacy.noise import bernoulli_exp, box_integers, geometric
from gridpriv.privacy.sensitivity import length


def noise_of(mechanism, pairs, seed=1):
    zero = np.zeros(2 * pairs)
    return mechanism.perturb(zero, lambda: np.random.default_rng(seed)).reshape(2, pairs)


def test_the_radius_is_a_gamma_law_and_the_direction_uniform_in_the_box():
    """max(|x|, |y|) of density exp(-m/b)/8b^2 is Gamma(2): r^2 e^-r lost one power to the cube."""
    x, y = noise_of(KNorm(0.7), 100_000)
    largest = np.maximum(abs(x), abs(y))
    assert stats.kstest(largest, stats.gamma(2, scale=0.7).cdf).pvalue > 1e-3
    which, side = abs(x) > abs(y), np.where(abs(x) > abs(y), x, y) > 0
    for face in itertools.product((True, False), repeat=2):
        share = ((which == face[0]) & (side == face[1])).mean()
        assert share == pytest.approx(0.25, abs=0.006)
    along = np.where(which, y, x) / largest
    assert stats.kstest(along, stats.uniform(-1, 2).cdf).pvalue > 1e-3


def test_half_the_variance_of_two_laplace_draws_at_the_same_epsilon():
    """Hardt and Talwar's mechanism on a square: 4 against 8 beta^2/epsilon^2 a coordinate."""
    beta, epsilon = 0.1, 0.5
    knorm, laplace = KNorm(beta / epsilon), Laplace(2.0 * beta / epsilon)
    assert total_pure({knorm.charge(beta): 1}) == pytest.approx(epsilon)
    assert total_pure({laplace.charge(2.0 * beta): 1}) == pytest.approx(epsilon)
    measured = noise_of(knorm, 400_000).var()
    assert measured == pytest.approx(4.0 * (beta / epsilon) ** 2, rel=0.02)
    for mechanism in (knorm, laplace, Gaussian(0.3)):
        drawn = noise_of(mechanism, 400_000).var()
        assert mechanism.variance == pytest.approx(drawn, rel=0.02)


def hockey_stick(shift, epsilons, half=24.0, cells=1600):
    """sup over events of P[x] - e^eps P[x - shift], by summing the densities over a grid."""
    step = 2.0 * half / cells
    middle = np.linspace(-half + step / 2, half - step / 2, cells)
    x, y = np.meshgrid(middle, middle)
    here = np.exp(-np.maximum(abs(x), abs(y))) / 8.0
    there = np.exp(-np.maximum(abs(x - shift[0]), abs(y - shift[1]))) / 8.0
    assert here.sum() * step**2 == pytest.approx(1.0, abs=1e-4)
    return [float(np.maximum(here - math.exp(e) * there, 0.0).sum() * step**2) for e in epsilons]


def laplace_hockey_stick(distance, epsilon):
    """Of a Laplace draw of scale 1 whose value changes by ``distance`` (Balle et al. 2018)."""
    return max(0.0, 1.0 - math.exp((epsilon - distance) / 2.0))


@pytest.mark.parametrize("distance", [0.5, 1.0, 2.5])
def test_a_corner_costs_what_one_laplace_draw_costs_and_nothing_costs_more(distance):
    epsilons = [0.0, 0.2 * distance, 0.5 * distance, 0.9 * distance, distance]
    corner = hockey_stick((distance, distance), epsilons)
    stated = [laplace_hockey_stick(distance, e) for e in epsilons]
    assert corner == pytest.approx(stated, abs=2e-3)
    for shift in [(1, 0), (1, 0.5), (0.3, -1), (1, -1), (0.9, 0.9), (0.5, 0.2)]:
        delta = hockey_stick((shift[0] * distance, shift[1] * distance), epsilons)
        assert all(f <= c + 2e-3 for f, c in zip(delta, corner, strict=True))


def test_a_change_over_two_pairs_costs_no_more_than_one_over_one():
    """Four dimensions, by brute force on a coarse grid: the split shift stays below."""
    middle = np.linspace(-11, 11, 45)
    step = middle[1] - middle[0]
    item = np.maximum(abs(middle[:, None]), abs(middle[None, :]))
    joint = np.exp(-(item[:, :, None, None] + item[None, None, :, :]))

    def changed(a, b):
        first = np.maximum(abs(middle[:, None] - a), abs(middle[None, :] - a))
        other = np.maximum(abs(middle[:, None] - b), abs(middle[None, :] - b))
        return np.exp(-(first[:, :, None, None] + other[None, None, :, :]))

    for epsilon in (0.3, 1.0):
        split, whole = (
            np.maximum(joint - math.exp(epsilon) * changed(*shift), 0.0).sum() * step**4 / 64.0
            for shift in ((step, step), (2 * step, 0.0))
        )
        assert split < whole


def test_composition_is_that_of_laplace_noise_by_sampling():
    """Three releases: the hockey stick of the summed sampled losses is not above the stated one."""
    ratio, releases, delta = 0.8, 3, 1e-2
    x, y = noise_of(KNorm(1.0), releases * 400_000, seed=5)
    loss = np.maximum(abs(x - ratio), abs(y - ratio)) - np.maximum(abs(x), abs(y))
    total = loss.reshape(releases, -1).sum(axis=0)
    stated = total_epsilon({KNorm(1.0).charge(ratio): releases}, delta)
    assert stated < releases * ratio
    actual = np.maximum(1.0 - np.exp(stated - total), 0.0).mean()
    assert actual == pytest.approx(delta, rel=0.1)


def test_the_box_norm_of_a_vector_sums_the_larger_of_each_pair():
    change = np.array([0.1, -0.4, 0.0, 0.3, 0.2, -0.7])
    assert length(change, "box") == pytest.approx(0.3 + 0.4 + 0.7)
    assert length(change, 1) == pytest.approx(1.7)
    assert length(change, 2) == pytest.approx(math.sqrt(0.01 + 0.16 + 0.09 + 0.04 + 0.49))


def law(rate, dimension, reach):
    """P[z] proportional to exp(-rate max|z|) on the cube of a reach, by enumeration."""
    points = itertools.product(range(-reach, reach + 1), repeat=dimension)
    weight = {z: math.exp(-float(rate) * max(map(abs, z))) for z in points}
    total = sum(weight.values())
    return {z: w / total for z, w in weight.items()}


@pytest.mark.parametrize(("rate", "dimension"), [(Fraction(3, 2), 2), (Fraction(2), 1)])
def test_discrete_draws_have_the_law_by_enumeration(rate, dimension):
    below, runs = random.Random(3).randrange, 8_000
    drawn = Counter(box_integers(rate, dimension, below) for _ in range(runs))
    expected = law(rate, dimension, 14)
    common = [z for z, p in expected.items() if runs * p >= 10]
    rest = runs - sum(drawn[z] for z in common), runs * (1 - sum(expected[z] for z in common))
    counts = [drawn[z] for z in common] + [rest[0]]
    means = [runs * expected[z] for z in common] + [rest[1]]
    scaled = np.array(means) * (sum(counts) / sum(means))
    assert stats.chisquare(counts, scaled).pvalue > 1e-3


def test_whole_number_randomness_has_its_stated_chances():
    below, runs = random.Random(8).randrange, 20_000
    for rate in (Fraction(0), Fraction(1, 3), Fraction(1)):
        share = sum(bernoulli_exp(rate, below) for _ in range(runs)) / runs
        assert share == pytest.approx(math.exp(-rate), abs=0.015)
    drawn = np.array([geometric(Fraction(2, 5), below) for _ in range(runs)])
    assert drawn.mean() == pytest.approx(1.0 / math.expm1(0.4), rel=0.03)
    assert (drawn == 0).mean() == pytest.approx(1.0 - math.exp(-0.4), abs=0.015)


def test_secure_noise_on_its_grid_has_the_moments_of_the_plain_one():
    noise = noise_of(SecureKNorm(0.3), 3000)
    assert noise.var() == pytest.approx(4 * 0.3**2, rel=0.1)
    largest = abs(noise).max(axis=0)
    assert stats.kstest(largest, stats.gamma(2, scale=0.3).cdf).pvalue > 1e-4
    assert len(np.unique(noise)) == noise.size


def test_the_secure_map_covers_what_rounding_adds_and_hardly_more():
    mechanism = SecureKNorm(0.37)
    for epsilon in (1e-4, 0.1 / 0.37, 20.0, 49.9):
        charge = mechanism.charge(0.37 * epsilon)
        assert charge.kind == "laplace"
        assert epsilon < 1.0 / charge.parameter < epsilon * (1 + 1e-11)
    charge = mechanism.charge(0.37 * 51.0)
    assert charge.kind == "pure"
    assert 51.0 < charge.parameter < 51.0 * (1 + 1e-11)


def discrete_delta(rate, shift, epsilon):
    """delta of integers z with P[z] proportional to exp(-rate max|z|) under a shift."""
    reach = math.ceil(40.0 / rate)
    grid = np.meshgrid(*[np.arange(-reach, reach + 1)] * len(shift), indexing="ij")
    here = np.abs(grid).max(axis=0)
    there = np.abs([z - v for z, v in zip(grid, shift, strict=True)]).max(axis=0)
    law = np.exp(-rate * here) / np.exp(-rate * here).sum()
    return (law * np.maximum(-np.expm1(epsilon - rate * (there - here)), 0.0)).sum()


def test_a_change_far_below_the_grid_costs_two_steps_of_rounding_in_every_pair():
    mechanism = SecureKNorm(1.0)
    step = float(mechanism._grid)
    charge = mechanism.charge(1e-12 * step)
    # 2 steps for the rounding and 4 exp(epsilon / 2) for the loss distribution, at 2^20 pairs
    assert 1.0 / charge.parameter == pytest.approx(2**20 * 6.0 * step, rel=1e-9, abs=0.0)


@pytest.mark.parametrize("rate", [0.1, 0.02])
@pytest.mark.parametrize("steps", [1, 3, 20])
def test_discrete_laplace_noise_loses_no_more_than_laplace_noise_two_steps_further(rate, steps):
    """The proof in ``SecureLaplace``, on grids that are coarse."""
    for epsilon in np.linspace(0.0, rate * (steps + 3), 23):
        exceedance = discrete_delta(rate, (steps,), epsilon)
        assert exceedance <= max(-math.expm1((epsilon - rate * (steps + 2)) / 2.0), 0.0) + 1e-12
        if epsilon < rate * (steps - 2):
            assert exceedance >= -math.expm1((epsilon - rate * steps) / 2.0) - 1e-12


@pytest.mark.parametrize("shift", [(2, 2), (2, 0), (5, -3), (12, 12), (12, 1), (0, 12)])
def test_discrete_knorm_noise_loses_no_more_than_its_proof_states(shift):
    """The proof in ``SecureKNorm``, on a coarse grid: s = 4a exp(a k/2) above a k."""
    rate = 0.15
    neighbour = rate * max(map(abs, shift))
    stated = neighbour + 4.0 * rate * math.exp(neighbour / 2.0)
    for epsilon in np.linspace(0.0, neighbour + 3.0 * rate, 23):
        exceedance = discrete_delta(rate, shift, epsilon)
        assert exceedance <= max(-math.expm1((epsilon - stated) / 2.0), 0.0) + 1e-12


def test_secure_noise_refuses_what_is_no_number():
    """OpenDP's vector domain without NaN still answers [1, nan] with two numbers."""
    value = np.array([1.0, math.nan])
    for mechanism in (SecureLaplace(1.0), SecureGaussian(1.0), SecureKNorm(1.0)):
        with pytest.raises(InputError, match="not a finite number"):
            mechanism.perturb(value, lambda: np.random.default_rng(1))


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 2.5, 5.0, 10.0])
def test_a_tiny_delta_buys_no_less_than_a_pure_total(epsilon):
    multiplier = pure_multiplier("laplace", epsilon, 1e-9, 3)
    assert 0.5 * 3 / epsilon < multiplier <= 3 / epsilon
    charge = Laplace(multiplier).charge(1.0)
    assert total_epsilon({charge: 3}, 1e-9) <= epsilon * (1 + 1e-6)

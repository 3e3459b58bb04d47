"""Totals compared with published values and other accountants, and uncertified cases."""

from __future__ import annotations

import math

import made
import numpy as np
import pytest

from gridpriv.core.errors import InputError
from gridpriv.learning.accounting import (
    Tally,
    noise_rule,
    privacy_certificate,
    rounded,
    sampled_multiplier,
    zcdp_total,
)
from gridpriv.learning.algorithms.admm import certificate
from gridpriv.learning.algorithms.fedspd_dp import published_total, sound_sensitivity
from gridpriv.learning.result import privacy_table
from gridpriv.privacy.accounting import total_epsilon
from gridpriv.privacy.mechanism import Charge


def classical(epsilon: float, delta: float) -> float:
    return math.sqrt(2.0 * math.log(1.25 / delta)) / epsilon


@pytest.mark.parametrize(
    ("releases", "epsilon", "release_delta", "delta", "expected"),
    [(100, 0.1, 1e-2, 1e-5, 1.2227), (500, 0.1, 1e-2, 1e-2, 1.4929), (100, 1, 1e-5, 1e-5, 10.394)],
)
def test_gaussian_totals_are_the_reference_values(
    releases, epsilon, release_delta, delta, expected
):
    what = rounded(Charge("gaussian", classical(epsilon, release_delta)))
    assert total_epsilon({what: releases}, delta) == pytest.approx(expected, rel=2e-4)


def test_sampled_total_agrees_with_the_renyi_accountant():
    import dp_accounting
    from dp_accounting import rdp

    what = Charge("sampled-gaussian", 2.0, 0.05)
    accountant = rdp.RdpAccountant()
    event = dp_accounting.PoissonSampledDpEvent(0.05, dp_accounting.GaussianDpEvent(2.0))
    accountant.compose(dp_accounting.SelfComposedDpEvent(event, 200))
    renyi = accountant.get_epsilon(1e-5)
    assert 0.7 * renyi < total_epsilon({what: 200}, 1e-5) <= renyi  # PLD is the tighter of the two


def test_sampling_at_rate_one_is_no_sampling():
    plain = total_epsilon({rounded(Charge("gaussian", 5.0)): 40}, 1e-5)
    assert total_epsilon({Charge("sampled-gaussian", 5.0, 1.0): 40}, 1e-5) == pytest.approx(
        plain, rel=1e-3
    )


@pytest.mark.slow
def test_sampled_calibration_meets_its_total():
    settings = made.plain(budget="total:1,1e-5", rounds=50)
    plain = noise_rule(settings, 50).multiplier
    multiplier = sampled_multiplier(settings, plain, 0.1, "sampled-gaussian")
    assert multiplier < 0.5 * plain  # amplification is worth having
    spent = total_epsilon({Charge("sampled-gaussian", multiplier, 0.1): 50}, 1e-5)
    assert 0.97 < spent <= 1.0


def test_equal_charges_of_rounding_are_one_and_no_cheaper():
    scale, distance = 0.3, 0.1 / 3.0
    exact = scale / distance
    once = rounded(Charge("gaussian", exact))
    assert rounded(Charge("gaussian", exact * (1 + 2e-16))) == once
    assert exact * (1 - 2e-7) < once.parameter < exact * (1 - 5e-8)


def test_zcdp_adds_up_and_covers_the_gaussian_total():
    charges = {rounded(Charge("gaussian", m)): 3 for m in (2.0, 4.0)}
    rho = zcdp_total(charges)
    assert rho == pytest.approx(3 * (1 / 8 + 1 / 32), rel=1e-6)
    # Bun and Steinke 2016, proposition 1.3: rho-zCDP gives rho + 2 sqrt(rho ln(1/delta))
    assert total_epsilon(charges, 1e-5) < rho + 2 * math.sqrt(rho * math.log(1e5))


def test_nothing_is_certified_of_an_uncertified_release():
    charges = {rounded(Charge("uncertified", 0.0)): 1, rounded(Charge("gaussian", 9.0)): 1}
    assert total_epsilon(charges, 1e-5) == math.inf


def test_a_run_costs_what_its_worst_client_does():
    tally = Tally()
    tally.charge(0, Charge("gaussian", 10.0), 5)
    tally.charge(1, Charge("gaussian", 10.0), 50)
    certified = privacy_certificate(made.plain(), 10.0, tally)
    assert certified["releases_per_client"] == 50
    spent = total_epsilon({rounded(Charge("gaussian", 10.0)): 50}, 1e-5)
    assert certified["total"]["epsilon"] == pytest.approx(spent)


def test_classical_calibration_refuses_epsilon_above_one():
    with pytest.raises(InputError, match="at most 1 with the classical Gaussian"):
        made.plain(sensitivity="published", budget="per-release:1.5")


def test_gaussian_total_needs_a_delta():
    with pytest.raises(InputError, match="total:E,D"):
        made.plain(budget="total:1")


def test_dual_perturbation_certificate_holds_in_one_dimension():
    """The exact privacy loss of a one-parameter minimiser stays below the certificate."""
    rho, m, multiplier, delta = 0.1, 50, 20.0, 1e-3
    sigma = multiplier * 2.0 / m
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, m)
    other = x.copy()
    x[0], other[0] = 1.0, -1.0

    def noise_and_slope(v: np.ndarray, data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        s = 1.0 / (1.0 + np.exp(np.outer(v, data)))
        gradient = -(s * data).mean(axis=1) + rho * v
        return -gradient, (s * (1 - s) * data**2).mean(axis=1) + rho

    # draw minimisers on x: solve grad(v) = -b by bisection on a fine grid
    grid = np.linspace(-60, 60, 100_001)
    implied, _ = noise_and_slope(grid, x)
    v = np.interp(random.normal(0, sigma, 50_000), implied[::-1], grid[::-1])

    def log_density(data: np.ndarray) -> np.ndarray:
        b, slope = noise_and_slope(v, data)
        return -(b**2) / (2 * sigma**2) + np.log(slope)

    loss = log_density(x) - log_density(other)
    bound = certificate(multiplier, delta, 0.25, m, rho)
    assert np.mean(loss > bound) <= delta
    assert loss.max() > 0.05 * bound  # the test sees a loss of the certificate's order


@pytest.mark.parametrize(("multiplier", "delta"), [(20.0, 1e-5), (4.0, 1e-3), (0.3, 1e-5)])
def test_dual_perturbation_certificate_covers_the_gaussian_it_may_be(multiplier, delta):
    """A sample that every likely output misclassifies changes the noise by s (Gaussian)."""
    exact = total_epsilon({Charge("gaussian", multiplier): 1}, delta)
    epsilon = certificate(multiplier, delta, 0.0, 50.0, 0.1)
    assert exact <= epsilon <= 1.7 * exact


def test_dual_perturbation_certificate_covers_the_determinants():
    """One parameter: a sample with most of the curvature, or a blank; the loss by quadrature."""
    rho, m, multiplier, delta = 0.01, 10, 4.0, 1e-3
    sigma = multiplier / m
    v = np.linspace(-300.0, 300.0, 600_001)
    chance = 1.0 / (1.0 + np.exp(v))
    implied, slope = chance / m - rho * v, chance * (1.0 - chance) / m + rho
    density = np.exp(-(implied**2) / (2 * sigma**2)) * slope / (sigma * math.sqrt(2 * math.pi))
    assert density.sum() * (v[1] - v[0]) == pytest.approx(1.0, abs=1e-6)
    loss = ((rho * v) ** 2 - implied**2) / (2 * sigma**2) + np.log(slope / rho)

    def beyond(curvature: float) -> float:
        bound = certificate(multiplier, delta, curvature, m, rho)
        return float(density[loss > bound].sum() * (v[1] - v[0]))

    assert beyond(0.25) <= delta < beyond(0.0)


def test_fedspd_recursion_bounds_two_neighbours_steps():
    """Q steps on adjacent batches change the mean iterate by at most half of the bound."""
    random = np.random.default_rng(1)
    gamma, rho, steps, batch = 2.0, 1.0, 4, 5
    x = random.normal(size=(batch, 3))
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1.0)
    worst = 0.0
    for trial in range(300):
        labels = random.choice([-1.0, 1.0], batch)
        public = random.normal(size=3)
        means = []
        for sign in (1.0, -1.0):
            data = x.copy()
            data[0] = sign * np.eye(3)[trial % 3]
            w, total_w = np.zeros(3), np.zeros(3)
            for _ in range(steps):
                slope = -(labels / (1 + np.exp(labels * (data @ w)))) @ data / batch
                w = (gamma * w + public - slope) / (gamma + rho)
                w = np.sign(w) * np.maximum(np.abs(w) - 0.01, 0.0)
                total_w += w
            means.append(total_w / steps)
        worst = max(worst, 2.0 * float(np.linalg.norm(means[0] - means[1])))
    bound = sound_sensitivity(steps, gamma, rho, 2.0 / batch, 0.25)
    assert 0.3 * bound < worst <= bound


def test_fedspd_paper_total_is_equation_21():
    q = 5 * 10 / 325
    expected = 3.04 * q * 0.1 * math.sqrt(0.2 * 100 / (1 - q))
    assert published_total(0.1, 5, 10, 325.0, 0.2, 100, False) == pytest.approx(expected)
    assert published_total(0.1, 5, 10, 325.0, 0.2, 100, True) < expected  # remark 2


def test_the_epsilon_of_a_gaussian_release_is_shown_with_its_delta():
    total = {"nominal": 5.0, "epsilon": 5.0, "delta": 1e-5}
    release = {"nominal": None, "certified": 0.9293, "delta": 1e-5}
    privacy = {"per_release": release, "total": total, "published_total": None, "zcdp": None}
    privacy["total_pure"] = None
    (label, *_), *_ = privacy_table(privacy | {"releases_per_client": 20})[2]
    assert label == "epsilon of one release at delta 1e-05"

"""Posterior draws have the moments of the closed form."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from gridpriv.privacy import linear
from gridpriv.privacy.linear import Prior, Statistics, bus
from gridpriv.privacy.mechanism import Gaussian

MATRICES = {
    "bus": np.eye(3),
    "total": np.ones((1, 3)),
    "tree": np.vstack([0.5 * np.ones((1, 3)), 0.5 * np.eye(3)]),
    "nothing": np.zeros((0, 3)),
}


@pytest.mark.parametrize("name", MATRICES)
def test_draws_have_the_posterior_mean_and_covariance(name, monkeypatch) -> None:
    """The reference conditions one joint normal distribution of demand and statistics."""
    monkeypatch.setattr(linear, "DEVIATIONS", np.array([0.8]))
    matrix, wide = MATRICES[name], np.full(2, 1e6)
    mean = np.array([1.0, 2.0, 3.0, 0.5, 0.5, 0.5])
    prior = Prior(mean, np.array([2.0, 1.0]), -wide, wide)
    seen, variance = np.concatenate([matrix @ [2, 2, 2], matrix @ [1, 0, 1]]), 0.3
    noise = Gaussian(variance**0.5)
    draws = np.array(
        list(
            islice(
                linear.posterior_draws(
                    Statistics("any", matrix), seen, noise, prior, np.random.default_rng(0)
                ),
                2_000,
            )
        )
    )[:, :3]
    belief = prior.active
    before = 4.0 * np.outer(belief.shares, belief.shares) + 0.64 * belief.deviations
    noisy = matrix @ before @ matrix.T + variance * np.eye(len(matrix))
    gain = before @ matrix.T @ np.linalg.inv(noisy)
    np.testing.assert_allclose(
        draws.mean(axis=0), mean[:3] + gain @ (seen[: len(matrix)] - matrix @ mean[:3]), atol=0.12
    )
    np.testing.assert_allclose(np.cov(draws.T), before - gain @ matrix @ before, atol=0.25)


def test_draws_keep_to_the_public_range() -> None:
    prior = Prior(np.ones(6), np.array([5.0, 5.0]), np.array([2.0, -9.0]), np.array([4.0, 9.0]))
    draws = linear.posterior_draws(
        bus(3), np.ones(6), Gaussian(3.0), prior, np.random.default_rng(1)
    )
    sums = [demand[:3].sum() for demand in islice(draws, 200)]
    assert min(sums) >= 2.0 - 1e-9
    assert max(sums) <= 4.0 + 1e-9

from __future__ import annotations

import math

import numpy as np
import pytest

from gridpriv import InputError, Settings
from gridpriv.consensus.schedules import (
    ConstantPenalty,
    FrozenPenalty,
    GeometricPenalty,
    ResidualBalancing,
    nonsmooth_step,
    smooth_step,
    strongly_convex_step,
)


def test_step_sizes_are_the_papers():
    assert [nonsmooth_step()(t) for t in (1, 4, 100)] == [1.0, 0.5, 0.1]
    assert smooth_step(2.0, 0.5)(4) == pytest.approx(1 / (2 + 2 / 0.5))
    assert smooth_step(2.0, math.inf)(4) == 0.5
    assert strongly_convex_step(4.0)(3) == pytest.approx(2 / (4 * 5))


def test_a_growing_penalty_is_nondecreasing_and_bounded():
    schedule = GeometricPenalty(2.0, 1.2, 10, 5.0)
    rho, penalties = schedule.first(1), []
    for t in range(1, 200):
        penalties.append(rho[0])
        rho = schedule.following(t, rho, np.ones(1), np.ones(1))
    assert penalties[0] == 2.0
    assert penalties[9] == pytest.approx(2.4)  # t = 10
    assert penalties == sorted(penalties)
    assert penalties[-1] == 5.0


def test_balancing_raises_rho_by_primal_and_lowers_it_by_dual_residuals():
    rule = ResidualBalancing(start=1.0, factor=2.0, ratio=3.0)
    rho = rule.following(5, np.ones(3), np.array([4.0, 1.0, 1.0]), np.array([1.0, 1.0, 4.0]))
    change = 2.0 ** (10 / 15)  # after t rounds the factor's power is settle / (settle + t)
    np.testing.assert_allclose(rho, [change, 1.0, 1.0 / change])
    frozen = FrozenPenalty(rule)
    assert frozen.following(5, rho, np.ones(3), np.zeros(3)) is rho


def test_noise_that_is_drawn_every_round_is_not_chased():
    assert Settings(noise_schedule="round").noise_is_fresh()
    assert Settings(perturbation="objective").noise_is_fresh()
    assert not Settings().noise_is_fresh()
    assert not Settings(mechanism="none").noise_is_fresh()


@pytest.mark.parametrize(
    "text", ["0", "-1", "nan", "balanced", "geometric:1,2", "geometric:2,0.5,1,9"]
)
def test_penalties_that_cannot_be_are_refused(text):
    with pytest.raises(InputError, match="penalty"):
        Settings(penalty=text)
    assert isinstance(Settings(penalty="7").penalty, ConstantPenalty)

"""Tuning on a declared grid: public rows, noise of candidates, and the cost of tuning."""

from __future__ import annotations

import math
from dataclasses import replace

import made
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from gridpriv.core.errors import InputError, SolverError
from gridpriv.learning import learn, load_dataset
from gridpriv.learning import run as tuning_module
from gridpriv.learning.algorithms.base import BudgetShare
from gridpriv.learning.run import Tuning, split_public_rows, tune

SETTINGS = made.plain(
    algorithm="dpsgd", rounds=8, clients=4, budget="total:1,1e-5", sensitivity="proven"
)
GRID = (("learning_rate", (0.001, 0.3, 3.0)), ("radius", (1.0, 2.0)))


def test_every_way_gets_the_part_of_the_grid_that_it_reads():
    tuning = Tuning("public:0.2", GRID)
    assert [s.learning_rate for s in tuning.candidates(SETTINGS)] == [0.001, 0.3, 3.0]
    admm = made.plain(algorithm="dp-admm")
    assert [s.radius for s in tuning.candidates(admm)] == [1.0, 2.0]
    assert tuning.candidates(made.plain(algorithm="pvp")) == ()


def test_public_rows_are_drawn_blindly_and_the_run_never_sees_them():
    data, other = made.binary(), made.binary(seed=9)
    private, public, ratio = split_public_rows(data, 0.2, 3)
    rows = {row.tobytes() for row in private.x_train}
    judged = {row.tobytes() for row in [*public.x_train, *public.x_test]}
    assert not rows & judged and len(rows) + len(judged) == len(data.x_train)
    assert ratio == len(public.x_train) / len(private.x_train)
    # the same places, whatever the rows hold
    places = [np.flatnonzero((data.x_train == row).all(axis=1))[0] for row in private.x_train]
    np.testing.assert_array_equal(
        split_public_rows(other, 0.2, 3)[0].x_train, other.x_train[places]
    )


@pytest.mark.parametrize("name", ["dpsgd", "dp-admm", "pvp", "ryu-kim", "cdp-admm", "ddp-admm"])
def test_candidates_meet_the_noise_of_the_run(name):
    """Against the scale of a run with as many rows as the private ones have."""
    settings = replace(SETTINGS, algorithm=name, graph=SETTINGS.graph)
    if name.endswith("dp-admm") and name != "dp-admm":
        settings = replace(settings, graph="regular:3")
    private, public, ratio = split_public_rows(made.binary(), 0.5, 0)
    scales = [
        learn(data, settings, shared=shared).privacy["sensitivity"][0]["scale"]
        for data, shared in ((private, BudgetShare()), (public, BudgetShare(noise=ratio)))
    ]
    # pvp's sensitivity has a part for the solver's error, which rows do not lower
    assert scales[1] == pytest.approx(scales[0], rel=0.01)


def gaussian_epsilon(multipliers, delta):
    """Return epsilon of Gaussian releases together (Balle and Wang 2018, theorem 8)."""
    mu = math.sqrt(sum(1.0 / m**2 for m in multipliers))

    def excess(e):
        return norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu) - delta

    return brentq(excess, 0.0, 200.0, xtol=1e-10)


@pytest.mark.parametrize("name", ["dpsgd", "cdp-admm"])
def test_charged_candidates_and_the_run_share_one_budget(name):
    settings = replace(SETTINGS, algorithm=name, clip=1.0)
    grid = (("clip", (0.5, 1.0)),)
    if name == "cdp-admm":
        settings = replace(settings, graph="regular:3")
    data = made.binary()
    chosen = tune(data, Tuning("charged", grid).candidates(settings), Tuning("charged", grid))
    assert chosen.dataset is data and chosen.shared.runs == 3
    result = learn(data, chosen.settings, shared=chosen.shared)
    released = [c.parameter for c, n in result.charges[0].items() for _ in range(n)]
    assert len(released) == 3 * 8
    assert gaussian_epsilon(released, 1e-5) == pytest.approx(1.0, rel=2e-3)
    assert result.privacy["total"]["epsilon"] == pytest.approx(1.0, rel=2e-3)


def test_runs_that_share_a_budget_share_no_noise(monkeypatch):
    """Two candidates that are equal but for their noise must send different models."""
    seen = []

    def remaining(*given, **more):
        seen.append(learn(*given, **more))
        return seen[-1]

    monkeypatch.setattr(tuning_module, "learn", remaining)
    tune(made.binary(), (SETTINGS, SETTINGS), Tuning("charged", GRID))
    alone = learn(made.binary(), SETTINGS, shared=BudgetShare(3))
    item, other = seen
    assert not np.allclose(item.w, other.w) and not np.allclose(item.w, alone.w)
    assert (item.clients.samples == alone.clients.samples).all()


def test_the_better_setting_is_taken_and_reported():
    tuning = Tuning("public:0.3", (("learning_rate", (1e-6, 2.0)),))
    noise_free = replace(SETTINGS, mechanism="none", rounds=30)
    chosen = tune(made.binary(), tuning.candidates(noise_free), tuning)
    assert chosen.settings.learning_rate == 2.0 and chosen.choice == "learning-rate 2.0 of 2"


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_cannot_be_tuned_is_refused():
    with pytest.raises(InputError, match="public:S for a method without noise"):
        noise_free = replace(SETTINGS, mechanism="none")
        tuning = Tuning("charged", GRID)
        tune(made.binary(), tuning.candidates(noise_free), tuning)
    wild = Tuning("public:0.3", (("learning_rate", (1e6, 1e9)),))
    settings = replace(SETTINGS, clients=2, mechanism="none", rounds=200)
    with pytest.raises(SolverError, match="every setting of the grid diverges"):
        tune(load_dataset("lasso"), wild.candidates(settings), wild)

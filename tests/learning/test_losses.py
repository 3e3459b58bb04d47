"""Losses, regularizers and the local problem, against finite differences and brute force."""

from __future__ import annotations

import made
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gridpriv.core.errors import InputError
from gridpriv.learning.accounting import SampleAdjacency
from gridpriv.learning.algorithms import ryu_kim as problem_module
from gridpriv.learning.algorithms.ryu_kim import ClientProblem
from gridpriv.learning.clients import (
    LOGISTIC,
    SOFTMAX,
    SQUARES,
    mean_gradient,
    mean_value,
    targets_of,
)
from gridpriv.learning.settings import Regularizer, parse_regularizer

LOSSES = {"softmax": SOFTMAX, "logistic": LOGISTIC, "squares": SQUARES}


def draw(loss, seed=0, m=7, j=4):
    random = np.random.default_rng(seed)
    k = 3 if loss is SOFTMAX else 1
    x, w = random.normal(size=(m, j)), random.normal(size=(j, k))
    if loss is SOFTMAX:
        targets = np.eye(3)[random.integers(0, 3, m)]
    elif loss is LOGISTIC:
        targets = random.choice([-1.0, 1.0], (m, 1))
    else:
        targets = random.normal(size=(m, 1))
    return x, targets, w


@pytest.mark.parametrize("name", LOSSES)
def test_gradient_is_the_derivative_of_the_value(name):
    loss = LOSSES[name]
    x, targets, w = draw(loss)
    gradient = mean_gradient(loss, x, targets, w)
    for at in np.ndindex(w.shape):
        step = np.zeros_like(w)
        step[at] = 1e-6
        slope = mean_value(loss, x, targets, w + step) - mean_value(loss, x, targets, w - step)
        assert gradient[at] == pytest.approx(slope / 2e-6, abs=1e-7)


@pytest.mark.parametrize("name", ["softmax", "logistic"])
@given(seed=st.integers(0, 10_000), scale=st.floats(0.0, 1e3))
@settings(max_examples=40, deadline=None)
def test_residuals_stay_within_the_bound(name, seed, scale):
    loss = LOSSES[name]
    x, targets, w = draw(loss, seed)
    residual = loss.residual(scale * x @ w, targets)
    assert np.isfinite(residual).all() and np.isfinite(loss.values(scale * x @ w, targets)).all()
    assert np.linalg.norm(residual, axis=1).max() <= loss.bound_2 + 1e-12
    assert np.abs(residual).sum(axis=1).max() <= loss.bound_1 + 1e-12


def test_softmax_bound_is_reached():
    residual = SOFTMAX.residual(np.array([[50.0, 0.0, 0.0]]), np.array([[0.0, 1.0, 0.0]]))
    assert np.linalg.norm(residual) == pytest.approx(np.sqrt(2.0))


@pytest.mark.parametrize("name", LOSSES)
def test_clipped_gradient_is_the_mean_of_clipped_samples(name):
    loss = LOSSES[name]
    x, targets, w = draw(loss)
    samples = [x[[i]].T @ loss.residual(x[[i]] @ w, targets[[i]]) for i in range(len(x))]
    clipped = [g * min(1.0, 0.5 / np.linalg.norm(g)) for g in samples]
    assert np.allclose(mean_gradient(loss, x, targets, w, clip=0.5), np.mean(clipped, axis=0))


@pytest.mark.parametrize("text", ["l1:0.3", "l2:0.7", "none"])
def test_prox_minimises(text):
    regularizer = parse_regularizer(text)
    w, step = np.array([[-1.0], [0.1], [2.0]]), 0.8
    minimizer = regularizer.prox(w, step)
    for k in range(3):
        grid = np.linspace(-3, 3, 60001)
        item = np.array([regularizer.value(np.array([v])) for v in grid[::100]])
        costs = item + (grid[::100] - w[k]) ** 2 / (2 * step)
        assert minimizer[k, 0] == pytest.approx(grid[::100][costs.argmin()], abs=0.011)


def test_regularizer_in_other_words_is_refused():
    for text in ("l3:1", "l1", "l2:-1", "l1:nan"):
        with pytest.raises(InputError, match="none, l1:L or l2:L"):
            parse_regularizer(text)


def client(data, count=None, **given):
    targets = targets_of(data, data.y_train, data.x_train.dtype.type)
    return ClientProblem(
        "1",
        0,
        data.x_train,
        targets,
        SOFTMAX,
        data.norm,
        count or len(targets),
        Regularizer(),
        **given,
    )


@pytest.mark.parametrize("kind", ["zero-out", "replace-one"])
@pytest.mark.parametrize("norm", [1, 2])
def test_gradient_moves_no_further_than_stated(kind, norm):
    data = made.multiclass(samples=30)
    stated = client(data).gradient_sensitivity(SampleAdjacency(kind), norm).value
    random = np.random.default_rng(0)
    corner = np.ones_like(data.x_train[:1])  # the longest row of the unit cube
    furthest = 0.0
    for _ in range(200):
        z = random.normal(size=18) * 30
        with_it, without = np.ones(31), np.ones(31)
        without[30] = 0.0
        labels = random.integers(0, 3, 2)
        problems = []
        for label in labels:
            x = np.concatenate([data.x_train, corner])
            y = np.concatenate([data.y_train, [label]])
            targets = targets_of(data, y, np.float32)
            problems.append(
                ClientProblem("1", 0, x, targets, SOFTMAX, data.norm, 30, Regularizer())
            )
        here = problems[0].gradient(z, with_it)
        other = (
            problems[1].gradient(z, with_it)
            if kind == "replace-one"
            else problems[0].gradient(z, without)
        )
        furthest = max(furthest, float(np.linalg.norm(here - other, norm)))
    assert furthest <= stated * (1 + 1e-5)
    if kind == "zero-out":
        assert furthest > 0.9 * stated  # the bound is about reached


def test_output_moves_by_the_gradient_over_the_metric():
    problem = client(made.multiclass())
    gradient = problem.gradient_sensitivity(SampleAdjacency(), 2).value
    output = problem.output_sensitivity(SampleAdjacency(), 2, "linearized", np.full(18, 4.0))
    assert output.value == pytest.approx(gradient / 4.0)


def test_least_squares_needs_a_clip():
    data = made.multiclass(samples=20)
    targets = np.ones((20, 1), np.float32)
    free = ClientProblem("1", 0, data.x_train, targets, SQUARES, 2.0, 20, Regularizer())
    with pytest.raises(InputError, match="--clip"):
        free.gradient_sensitivity(SampleAdjacency(), 2)
    problem = ClientProblem(
        "1", 0, data.x_train, targets, SQUARES, 2.0, 20, Regularizer(), clip=3.0
    )
    assert problem.gradient_sensitivity(SampleAdjacency(), 2).value == pytest.approx(2 * 3.0 / 20)


def test_gradient_does_not_depend_on_the_blocks(monkeypatch):
    data = made.multiclass()
    z, ones = np.random.default_rng(5).normal(size=18), np.ones(300)
    whole = client(data).gradient(z, ones)
    monkeypatch.setattr(problem_module, "BLOCK_ROWS", 64)
    assert np.allclose(client(data).gradient(z, ones), whole, atol=1e-6)


def test_minimiser_solves_the_boxed_quadratic():
    problem = client(made.multiclass(), box=0.2)
    random = np.random.default_rng(0)
    linear, metric = random.normal(size=18), random.uniform(1, 5, 18)
    z = problem.minimise(linear, metric).z
    assert np.abs(z).max() <= 0.2
    for _ in range(200):
        other = random.uniform(-0.2, 0.2, 18)
        assert linear @ z + 0.5 * z @ (metric * z) <= linear @ other + 0.5 * other @ (
            metric * other
        )


def test_exact_updates_are_refused():
    with pytest.raises(InputError, match="no public quadratic"):
        client(made.multiclass()).minimise_exact(np.zeros(18), np.ones(18))


@pytest.mark.parametrize("name", LOSSES)
def test_torch_agrees_with_numpy(name):
    torch = pytest.importorskip("torch")
    pytest.importorskip("array_api_compat")
    loss = LOSSES[name]
    x, targets, w = draw(loss)
    ours = mean_gradient(loss, x, targets, w, clip=0.7)
    reference = mean_gradient(loss, *(torch.as_tensor(a) for a in (x, targets, w)), clip=0.7)
    assert np.allclose(ours, reference.numpy(), atol=1e-10)

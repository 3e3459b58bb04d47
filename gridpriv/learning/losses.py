"""Losses of linear models: a function of the scores X W and the targets.

All are generalized linear: the gradient of one sample is the outer product of its features
and a residual, d loss / d score. So one product gives the scores, one the gradient, and a
sample's gradient norm is ||x|| ||residual||, which is what is clipped and bounded.

Models are matrices (J, K); binary logistic regression and least squares have K = 1. All
functions take any leading batch axes and any array library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gridpriv.learning.arrays import Array, namespace, to_numpy, transposed
from gridpriv.learning.datasets.base import Dataset, Labels

SCORES = 2**22  # of models on test rows that are held at once


@dataclass(frozen=True)
class Loss:
    """A loss of one sample's scores.

    Attributes
    ----------
    residual : callable
        (scores, targets) -> d loss / d scores, same shape.
    values : callable
        (scores, targets) -> loss of every sample, without the last axis.
    bound_2, bound_1 : float
        Largest 2- and 1-norm of a residual; inf where there is none (least squares).
    curvature : float
        Largest eigenvalue of the residual's derivative by the scores.
    slopes : callable or None
        (residual, targets) -> the residual's derivative, of losses of one score.
    """

    name: str
    residual: Callable[[Array, Array], Array]
    values: Callable[[Array, Array], Array]
    bound_2: float
    bound_1: float
    curvature: float
    slopes: Callable[[Array, Array], Array] | None = None

    def gradient_bound(self, norm: float, clip: float | None = None) -> float:
        """Return the largest 2-norm of a sample's gradient: ||x|| ||residual||, or the clip."""
        bound = self.bound_2 * norm
        return bound if clip is None else min(bound, clip)

    def smoothness(self, norm: float) -> float:
        """Return the Lipschitz constant of a sample's gradient: curvature ||x||^2."""
        return self.curvature * norm**2


def mean_gradient(
    loss: Loss, x: Array, targets: Array, w: Array, clip: float | None = None
) -> Array:
    """Return the mean over samples of the gradients, X' residual / m.

    Parameters
    ----------
    x : (..., m, J)
    targets : (..., m, K)
    w : (..., J, K)
    clip : float, optional
        Scale every sample's gradient down to this 2-norm.
    """
    xp = namespace(x)
    residual = loss.residual(xp.matmul(x, w), targets)
    if clip is not None:
        residual = residual * clip_factors(x, residual, clip)
    return xp.matmul(transposed(x), residual) / x.shape[-2]


def mean_curved(
    loss: Loss, x: Array, targets: Array, parts: Array, w: Array
) -> tuple[Array, Array]:
    """Return the mean gradient, and the mean Hessian in directions U; ``parts`` is X U."""
    if loss.slopes is None:
        raise ValueError(f"the {loss.name} loss has no slope of one score")
    xp = namespace(x)
    scores = xp.matmul(x, w)
    residual = loss.residual(scores, targets)
    gradient = xp.matmul(transposed(x), residual) / x.shape[-2]
    bent = loss.slopes(residual, targets) * parts
    return gradient, xp.matmul(transposed(parts), bent) / x.shape[-2]


def clip_factors(x: Array, residual: Array, clip: float) -> Array:
    """Return min(1, clip / ||gradient||) of every sample, shape (..., m, 1)."""
    xp = namespace(x)
    squares = xp.sum(x * x, axis=-1) * xp.sum(residual * residual, axis=-1)
    lengths = xp.sqrt(squares)
    factors = clip / xp.where(lengths > clip, lengths, xp.full_like(lengths, clip))
    return factors[..., None]


def mean_value(loss: Loss, x: Array, targets: Array, w: Array) -> Array:
    """Return the mean loss over the second last axis."""
    xp = namespace(x)
    return xp.mean(loss.values(xp.matmul(x, w), targets), axis=-1)


def _softmax_residual(scores: Array, targets: Array) -> Array:
    """softmax(scores) - one-hot label: 2-norm sqrt(2) at most, 1-norm 2 at most."""
    xp = namespace(scores)
    raised = xp.exp(scores - xp.max(scores, axis=-1, keepdims=True))
    return raised / xp.sum(raised, axis=-1, keepdims=True) - targets


def _softmax_values(scores: Array, targets: Array) -> Array:
    """Ln of the softmax's denominator minus the label's score."""
    xp = namespace(scores)
    top = xp.max(scores, axis=-1, keepdims=True)
    total = xp.log(xp.sum(xp.exp(scores - top), axis=-1)) + top[..., 0]
    return total - xp.sum(scores * targets, axis=-1)


def _logistic_residual(scores: Array, targets: Array) -> Array:
    """-b / (1 + exp(b s)) for labels b = -1, +1."""
    xp = namespace(scores)
    # exp overflows to inf only where the residual is 0 to the last digit
    return -targets / (1.0 + xp.exp(xp.clip(targets * scores, -60.0, 60.0)))


def _logistic_slopes(residual: Array, targets: Array) -> Array:
    """P (1 - p), 1 - p the probability of the label."""
    share = -residual * targets
    return share * (1.0 - share)


def _logistic_values(scores: Array, targets: Array) -> Array:
    """Ln(1 + exp(-b s))."""
    xp = namespace(scores)
    margins = (targets * scores)[..., 0]
    return xp.logaddexp(xp.zeros_like(margins), -margins)


def _square_residual(scores: Array, targets: Array) -> Array:
    """2 (s - y)."""
    return 2.0 * (scores - targets)


def _square_slopes(residual: Array, targets: Array) -> Array:
    """2."""
    del targets
    return namespace(residual).full_like(residual, 2.0)


def _square_values(scores: Array, targets: Array) -> Array:
    """(s - y)^2."""
    return ((scores - targets) ** 2)[..., 0]


# the softmax Jacobian diag(p) - pp' has eigenvalues of 1/2 at most (Boehning 1992)
SOFTMAX = Loss("softmax", _softmax_residual, _softmax_values, math.sqrt(2.0), 2.0, 0.5)
LOGISTIC = Loss("logistic", _logistic_residual, _logistic_values, 1.0, 1.0, 0.25, _logistic_slopes)
SQUARES = Loss("squares", _square_residual, _square_values, math.inf, math.inf, 2.0, _square_slopes)


def loss_of(dataset: Dataset) -> Loss:
    """Return the loss of a data set's task."""
    return {"multiclass": SOFTMAX, "binary": LOGISTIC, "regression": SQUARES}[dataset.task]


def targets_of(dataset: Dataset, y: Labels, dtype: type[np.floating]) -> Array:
    """Return targets (m, K): one-hot classes, labels -1 and +1, or numbers."""
    if dataset.task != "multiclass":
        return np.asarray(y, dtype)[:, None]
    hot = np.zeros((len(y), dataset.classes), dtype)
    hot[np.arange(len(y)), np.asarray(y, np.int64)] = 1.0
    return hot


def test_errors(dataset: Dataset, models: Sequence[Array] | Array) -> Array:
    """Return each model's share of test samples with a wrong class, or mean squared error.

    Parameters
    ----------
    models : P of (J, K)
        As many as :data:`SCORES` allows are applied in one product.
    """
    x, y = dataset.x_test, dataset.y_test
    if len(y) == 0:
        return np.full(len(models), math.nan)
    outputs = models[0].shape[1]
    at_once = max(1, SCORES // (len(y) * outputs))
    if len(models) > at_once:
        parts = [models[k : k + at_once] for k in range(0, len(models), at_once)]
        return np.concatenate([test_errors(dataset, part) for part in parts])
    side_by_side = np.concatenate([to_numpy(model).astype(x.dtype) for model in models], axis=1)
    scores = (x @ side_by_side).reshape(len(y), len(models), outputs)
    if dataset.task == "multiclass":
        return np.mean(scores.argmax(axis=2) != y[:, None], axis=0)
    if dataset.task == "binary":
        return np.mean(np.where(scores[:, :, 0] > 0, 1, -1) != y[:, None], axis=0)
    return np.mean((scores[:, :, 0] - y[:, None]) ** 2, axis=0)

"""All clients' samples in one array, and a linear model's losses and gradients at once.

:class:`gridpriv.learning.modules.ModuleClients` has those of a torch module.

Losses are functions of the scores X W and the targets, generalized linear: the gradient of one
sample is the outer product of its features and a residual, d loss / d score. So one product gives
the scores and another the gradient. A sample's gradient norm, which is clipped or bounded, is ||x||
||residual||.

Models are matrices (J, K); binary logistic regression and least squares have K = 1. All
functions take any leading batch axes and any array library.

Arrays are numpy's, or torch's through array-api-compat; only this module distinguishes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError, missing_extra, not_allowed
from gridpriv.learning.datasets.base import Dataset, Indices, Labels

DEVICES = ("cpu", "cuda", "torch")

# an array of the library in use; the array API standard has no common static type
Array = Any


def namespace(x: Array) -> Any:
    """Return the array API of ``x``; numpy needs no other package."""
    if isinstance(x, np.ndarray):
        return np
    from array_api_compat import array_namespace

    return array_namespace(x)


def on_device(x: Array, device: str) -> Array:
    """Return a numpy array on a device: ``cpu`` (numpy), ``cuda``, or ``torch`` on the CPU."""
    if device == "cpu":
        return x
    torch = import_torch(f"--device {device}")
    return torch.as_tensor(np.ascontiguousarray(x), device="cuda" if device == "cuda" else "cpu")


def check_device(device: str) -> None:
    """Raise :class:`InputError` if the device cannot be used here."""
    if device != "cpu":
        torch = import_torch(f"--device {device}")
        if device == "cuda" and not torch.cuda.is_available():
            raise not_allowed("device", device, "cpu: this machine has no CUDA device")


def to_numpy(x: Array) -> Any:
    """Return a float64 numpy array of any array."""
    if isinstance(x, np.ndarray):
        return x.astype(np.float64, copy=False)
    return x.detach().cpu().numpy().astype(np.float64)


def like(values: Array, x: Array) -> Array:
    """Return ``values`` in the library, the type and on the device of ``x``."""
    if isinstance(x, np.ndarray):
        return values.astype(x.dtype, copy=False)
    import torch

    return torch.as_tensor(values, dtype=x.dtype, device=x.device)


def precise(x: Array) -> Array:
    """Return ``x`` in float64, in its library and on its device."""
    return x.astype(np.float64) if isinstance(x, np.ndarray) else x.double()


def transposed(x: Array) -> Array:
    """Return ``x`` with its last two axes swapped."""
    return np.swapaxes(x, -1, -2) if isinstance(x, np.ndarray) else x.mT


def import_torch(use: str = "a torch module") -> Any:
    """Return torch; :class:`InputError` naming its ``use`` where it is not installed."""
    try:
        import array_api_compat  # noqa: F401
        import torch
    except ImportError as error:
        raise missing_extra(str(error.name), "learning", use) from None
    return torch


SCORES = 2**22  # of models on test rows that are in memory at once


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
    residual = clipped_residuals(loss, x, targets, w, clip)
    return namespace(x).matmul(transposed(x), residual) / x.shape[-2]


def mean_curved(
    loss: Loss, x: Array, targets: Array, parts: Array, w: Array
) -> tuple[Array, Array]:
    """Return the mean gradient, and the mean Hessian in directions U; ``parts`` is X U."""
    assert loss.slopes is not None
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


def clipped_residuals(loss: Loss, x: Array, targets: Array, w: Array, clip: float | None) -> Array:
    """Return the residuals, scaled down where the norm of a sample's gradient exceeds the clip."""
    residual = loss.residual(namespace(x).matmul(x, w), targets)
    return residual if clip is None else residual * clip_factors(x, residual, clip)


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
    return mean_errors(dataset.task, (x @ side_by_side).reshape(len(y), len(models), outputs), y)


def mean_errors(task: str, scores: Array, y: Labels) -> Array:
    """Return each model's mean error from the scores (N, A, K) of A models on test samples."""
    if task == "multiclass":
        return np.mean(scores.argmax(axis=2) != y[:, None], axis=0)
    if task == "binary":
        return np.mean(np.where(scores[:, :, 0] > 0, 1, -1) != y[:, None], axis=0)
    return np.mean((scores[:, :, 0] - y[:, None]) ** 2, axis=0)


CACHE = 2**20  # bytes of a core's cache for features
RANK = 16
"""Directions of a client's features in which an exact solver uses the curvature.

With 8 Adult takes hundreds of steps a round at a penalty of 0.002; 32 cost more than they save.
"""


@dataclass(frozen=True, eq=False)
class Clients:
    """Samples of P clients of a linear model, one client after the other.

    Attributes
    ----------
    x : (N, J)
        Features; their library, type and device are those of every array here.
    targets : (N, K)
    cuts : tuple of int
        Client p has rows ``cuts[p]`` to ``cuts[p+1]``.
    """

    x: Array
    targets: Array
    cuts: tuple[int, ...]
    loss: Loss

    @property
    def number(self) -> int:
        """P."""
        return len(self.cuts) - 1

    @property
    def shape(self) -> tuple[int, int]:
        """(J, K) of a model."""
        return int(self.x.shape[1]), int(self.targets.shape[1])

    @cached_property
    def counts(self) -> Floats:
        """Samples of every client, shape (P,)."""
        return np.diff(self.cuts).astype(float)

    def _mapped(
        self, of: Callable[..., tuple[Array, ...]], w: Array, *further: Array
    ) -> list[Array]:
        """Apply a function to the clients' rows and models, and join its arrays over clients.

        Clients with equal numbers of samples are one block; else each client is a block.

        Parameters
        ----------
        of : callable
            (features, targets, further arrays, models) -> arrays.
        further : (N, ...)
            Arrays in the order of the samples.
        """
        xp, arrays = namespace(w), (self.x, self.targets, *further)
        if len(set(self.counts.tolist())) == 1:
            shaped = [xp.reshape(a, (self.number, -1, a.shape[-1])) for a in arrays]
            results = [of(*(a[block] for a in shaped), w[block]) for block in self._blocks]
            return [xp.concat(parts) for parts in zip(*results, strict=True)]
        rows = [slice(*ends) for ends in pairwise(self.cuts)]
        results = [of(*(a[own] for a in arrays), w[p]) for p, own in enumerate(rows)]
        return [xp.stack(parts) for parts in zip(*results, strict=True)]

    def part(self, p: int) -> tuple[Array, Array]:
        """Return one client's features and targets: views."""
        rows = slice(self.cuts[p], self.cuts[p + 1])
        return self.x[rows], self.targets[rows]

    def start(self) -> Array:
        """Return zeros: the losses are convex."""
        return self.zeros()

    def zeros(self) -> Array:
        """Return P models of zeros."""
        size, x = (self.number, *self.shape), self.x
        return namespace(x).zeros(size, dtype=x.dtype, device=x.device)

    def gradients(self, w: Array, clip: float | None = None) -> Array:
        """Return every client's mean gradient at its own model, (P, J, K) to (P, J, K)."""

        def means(x: Array, targets: Array, at: Array) -> tuple[Array]:
            return (mean_gradient(self.loss, x, targets, at, clip),)

        (gradients,) = self._mapped(means, w)
        return gradients

    @cached_property
    def _blocks(self) -> list[slice]:
        """Ranges of clients whose features fit a core's cache together."""
        most = self.number
        if isinstance(self.x, np.ndarray):
            most = max(1, CACHE * self.number // self.x.nbytes)
        return [slice(first, first + most) for first in range(0, self.number, most)]

    @cached_property
    def leading(self) -> tuple[Array, Array]:
        """Leading directions U of every client's features, (P, J, r), and the features' parts.

        Orthonormal, by subspace iteration on the client's own samples from a fixed start; the parts
        X U are in the order of the samples, (N, r).
        """
        xp, width = namespace(self.x), self.shape[0]
        first = np.random.default_rng(0).normal(size=(width, min(RANK, width)))
        bases, parts = [], []
        for p in range(self.number):
            x, _ = self.part(p)
            basis = like(first, x)
            for _ in range(2):
                basis, _ = xp.linalg.qr(xp.matmul(transposed(x), xp.matmul(x, basis)))
            bases.append(basis)
            parts.append(xp.matmul(x, basis))
        return xp.stack(bases), xp.concat(parts)

    def curved(self, w: Array) -> tuple[Array, Array]:
        """Return mean gradients (P, J, 1), and mean Hessians in the leading directions, (P, r, r).

        Of a loss of one score.
        """
        _, parts = self.leading
        gradients, hessians = self._mapped(partial(mean_curved, self.loss), like(w, self.x), parts)
        return gradients, hessians

    def weighted(self, p: int, w: Array, weights: Floats, clip: float | None) -> Array:
        """Return one client's sum of sample gradients times ``weights`` (m,) at w, (J, K)."""
        x, targets = self.part(p)
        rows = np.flatnonzero(weights)
        chosen, counts = x[rows], like(weights[rows, None], x)
        residual = clipped_residuals(self.loss, chosen, targets[rows], w, clip)
        return namespace(chosen).matmul(transposed(chosen), residual * counts)

    def errors(self, dataset: Dataset, models: Array | Sequence[Array]) -> Floats:
        """Return the test errors of models, A of (J, K)."""
        return np.asarray(test_errors(dataset, models))

    def values(self, w: Array | Sequence[Array]) -> Floats:
        """Return every client's mean loss at its own model, P of (J, K), or all at one (J, K)."""
        if not isinstance(w, Sequence) and len(w.shape) == 2:
            scores = namespace(self.x).matmul(self.x, like(w, self.x))
            rows = to_numpy(self.loss.values(scores, self.targets))
            return np.add.reduceat(rows, self.cuts[:-1]) / self.counts
        # in the samples' precision: another would copy all samples
        models = (like(w[p], self.x) for p in range(self.number))
        losses = (mean_value(self.loss, *self.part(p), v) for p, v in enumerate(models))
        return np.array([float(loss) for loss in losses])


def make_clients(dataset: Dataset, parts: list[Indices], device: str = "cpu") -> Clients:
    """Return the clients of a split.

    The features are not copied if the split follows the rows of the data set.

    Raises
    ------
    InputError
        Naming a client with no samples.
    """
    for p, part in enumerate(parts):
        if len(part) == 0:
            raise InputError(f"client {p + 1} of {len(parts)} has no samples: use fewer clients")
    rows = np.concatenate(parts)
    in_order = len(rows) == len(dataset.y_train) and bool(np.all(np.diff(rows) == 1))
    x = dataset.x_train if in_order else dataset.x_train[rows]
    y = dataset.y_train if in_order else dataset.y_train[rows]
    targets = targets_of(dataset, y, x.dtype.type)
    cuts = (0, *np.cumsum([len(part) for part in parts]).tolist())
    return Clients(on_device(x, device), on_device(targets, device), cuts, loss_of(dataset))

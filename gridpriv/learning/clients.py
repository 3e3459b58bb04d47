"""All clients' samples in one array, and a linear model's losses and gradients at once.

:class:`gridpriv.learning.modules.ModuleClients` are the same of a torch module.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError
from gridpriv.learning.arrays import Array, like, namespace, on_device, to_numpy, transposed
from gridpriv.learning.datasets.base import Dataset, Indices
from gridpriv.learning.losses import (
    Loss,
    clip_factors,
    loss_of,
    mean_curved,
    mean_gradient,
    mean_value,
    targets_of,
    test_errors,
)

CACHE = 2**20  # bytes of a core's cache that features take
RANK = 16
"""Directions of a client's features in which an exact solver knows the curvature.

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
        Client p holds rows ``cuts[p]`` to ``cuts[p+1]``.
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

    @cached_property
    def _equal(self) -> tuple[Array, Array] | None:
        """Views of shape (P, m, J) and (P, m, K) if all clients hold as many samples."""
        sizes = set(self.counts.tolist())
        if len(sizes) > 1:
            return None
        xp, m = namespace(self.x), int(sizes.pop())
        return (
            xp.reshape(self.x, (self.number, m, -1)),
            xp.reshape(self.targets, (self.number, m, -1)),
        )

    def part(self, p: int) -> tuple[Array, Array]:
        """Return one client's features and targets: views."""
        rows = slice(self.cuts[p], self.cuts[p + 1])
        return self.x[rows], self.targets[rows]

    def start(self) -> Array:
        """Return zeros: the losses are convex."""
        return self.zeros()

    def zeros(self) -> Array:
        """Return P models of zeros."""
        xp = namespace(self.x)
        return (
            xp.zeros_like(self.x, shape=(self.number, *self.shape))
            if xp is np
            else (self.x.new_zeros((self.number, *self.shape)))
        )

    def gradients(self, w: Array, clip: float | None = None) -> Array:
        """Return every client's mean gradient at its own model, (P, J, K) to (P, J, K)."""
        xp = namespace(w)
        if self._equal is not None:
            x, targets = self._equal
            each = [mean_gradient(self.loss, x[b], targets[b], w[b], clip) for b in self._blocks]
            return xp.concat(each)
        parts = [mean_gradient(self.loss, *self.part(p), w[p], clip) for p in range(self.number)]
        return xp.stack(parts)

    @cached_property
    def _blocks(self) -> list[slice]:
        """Stretches of clients whose features stay in a core's cache from product to product."""
        most = self.number
        if isinstance(self.x, np.ndarray):
            most = max(1, CACHE * self.number // self.x.nbytes)
        return [slice(first, first + most) for first in range(0, self.number, most)]

    @cached_property
    def leading(self) -> tuple[Array, Array]:
        """Leading directions U of every client's features, (P, J, r), and the features' parts.

        Orthonormal, by subspace iteration on the client's own samples from a fixed start; the
        parts X U are stacked as the samples are, (N, r).
        """
        xp, width = namespace(self.x), self.shape[0]
        first = np.random.default_rng(0).normal(size=(width, min(RANK, width)))
        matches = []
        for p in range(self.number):
            x, _ = self.part(p)
            basis = like(first, x)
            for _ in range(2):
                basis, _ = xp.linalg.qr(xp.matmul(transposed(x), xp.matmul(x, basis)))
            matches.append((basis, xp.matmul(x, basis)))
        return xp.stack([basis for basis, _ in matches]), xp.concat([part for _, part in matches])

    def curved(self, w: Array) -> tuple[Array, Array]:
        """Return mean gradients (P, J, 1), and mean Hessians in the leading directions, (P, r, r).

        Of a loss of one score.
        """
        _, parts = self.leading
        xp, w = namespace(w), like(w, self.x)
        if self._equal is not None:
            x, targets = self._equal
            parts = xp.reshape(parts, (self.number, -1, parts.shape[-1]))
            every = [mean_curved(self.loss, x[b], targets[b], parts[b], w[b]) for b in self._blocks]
            return xp.concat([g for g, _ in every]), xp.concat([h for _, h in every])
        each = [
            mean_curved(self.loss, *self.part(p), parts[self.cuts[p] : self.cuts[p + 1]], w[p])
            for p in range(self.number)
        ]
        return xp.stack([g for g, _ in each]), xp.stack([h for _, h in each])

    def weighted(self, p: int, w: Array, weights: Floats, clip: float | None) -> Array:
        """Return one client's sum of sample gradients times ``weights`` (m,) at w, (J, K)."""
        x, targets = self.part(p)
        rows = np.flatnonzero(weights)
        chosen, counts = x[rows], like(weights[rows, None], x)
        xp = namespace(chosen)
        residual = self.loss.residual(xp.matmul(chosen, w), targets[rows])
        if clip is not None:
            residual = residual * clip_factors(chosen, residual, clip)
        return xp.matmul(transposed(chosen), residual * counts)

    def errors(self, dataset: Dataset, models: Array | Sequence[Array]) -> Floats:
        """Return the test errors of models, A of (J, K)."""
        return np.asarray(test_errors(dataset, models))

    def values(self, w: Array | Sequence[Array]) -> Floats:
        """Return every client's mean loss at its own model, P of (J, K), or all at one (J, K)."""
        if not isinstance(w, Sequence) and len(w.shape) == 2:
            scores = namespace(self.x).matmul(self.x, like(w, self.x))
            rows = to_numpy(self.loss.values(scores, self.targets))
            return np.add.reduceat(rows, self.cuts[:-1]) / self.counts
        # of numbers like the samples': others would have all samples copied into their precision
        return np.array(
            [
                float(mean_value(self.loss, *self.part(p), like(w[p], self.x)))
                for p in range(self.number)
            ]
        )


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

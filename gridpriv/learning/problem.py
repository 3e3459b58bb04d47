"""A client as the consensus algorithm's local problem.

The private data that the algorithm passes around are *weights*, one per sample and 1 where
nothing is changed: f(z; weights) = sum_j weights_j loss_j(z) / count + lambda R(z). So a
neighbour under ``zero-out`` is a weight of 0, and an audit can replay on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from gridpriv.consensus.problem import Minimiser
from gridpriv.consensus.schedules import Update
from gridpriv.core.arrays import Floats, Ints
from gridpriv.core.errors import InputError
from gridpriv.learning.arrays import Array, like, to_numpy
from gridpriv.learning.losses import Loss, clip_factors
from gridpriv.learning.releases import SampleAdjacency
from gridpriv.learning.schedules import Regularizer, boxed
from gridpriv.privacy.sensitivity import Norm, Sensitivity
from gridpriv.privacy.strategies.disclosure import Disclosure

# rows whose features (4 bytes x 784) stay in a core's cache between the two products
BLOCK_ROWS = 1024


class ClientProblem:
    """One client's loss over a box.

    Parameters
    ----------
    key : int
        Of the noise streams.
    x : (m, J)
        Features, a view of the data set's one copy where the split allows.
    targets : (m, K)
    norm : float
        Public bound R of ||x||_2.
    count : int
        Public number the sum of gradients is divided by: all clients' samples, or this one's.
    regularizer : Regularizer
        Its subgradient is added in full; it is public.
    box : float or None
        u of W = [-u, u]^n.
    clip : float or None
        Per-sample gradient clip; needed where the loss has no Lipschitz constant.
    """

    def __init__(
        self,
        name: str,
        key: int,
        x: Array,
        targets: Array,
        loss: Loss,
        norm: float,
        count: int,
        regularizer: Regularizer,
        box: float | None = None,
        clip: float | None = None,
    ) -> None:
        self.name, self.key = name, key
        self._x, self._targets, self._loss = x, targets, loss
        self._norm, self.count = norm, count
        self._regularizer, self._box, self._clip = regularizer, box, clip
        self.shape = (int(x.shape[1]), int(targets.shape[1]))
        self.samples = int(x.shape[0])
        self.size = self.shape[0] * self.shape[1]
        self.solver_share: dict[Update, float] = {"linearized": 0.0}
        self.smoothness = loss.smoothness(norm) * self.samples / count + regularizer.modulus

    @property
    def coordinates(self) -> Ints:
        """Every client holds all of them."""
        return np.arange(self.size)

    def start(self) -> Floats:
        """Return zero."""
        return np.zeros(self.size)

    def gradient(self, z: Floats, data: Floats) -> Floats:
        """Return sum_j data_j grad loss_j(z) / count + lambda R'(z), shape (J*K,).

        The rows are taken in blocks, so that the second product finds them in the cache.
        """
        w = like(z.reshape(self.shape), self._x)
        weights = None if (data == 1.0).all() else data
        total: Array = None
        for rows in self._blocks():
            x = self._x[rows]
            residual = self._residual(x, rows, w)
            if weights is not None:
                residual = residual * like(weights[rows, None], x)
            # residual' X, not X' residual: BLAS packs the narrow factor faster
            part = residual.T @ x
            total = part if total is None else total + part
        slope: Floats = to_numpy(total.T.reshape(-1)) / self.count
        slope += self._regularizer.subgradient(z)
        return slope

    def largest_gradient(self, z: Floats) -> float:
        """Return the largest 2-norm of a sample's gradient at z: a figure of the private data."""
        w, most = like(z.reshape(self.shape), self._x), 0.0
        for rows in self._blocks():
            x = self._x[rows]
            residual = self._loss.residual(x @ w, self._targets[rows])
            squares = (to_numpy(residual) ** 2).sum(axis=1) * (to_numpy(x) ** 2).sum(axis=1)
            most = max(most, math.sqrt(float(squares.max())))
        return most

    def minimise(
        self, linear: Floats, metric: Floats, *, near: bool = False, within: float = math.inf
    ) -> Minimiser:
        """Return argmin over the box of <linear, z> + 1/2 z' diag(metric) z: a clip."""
        del near, within
        free = linear / metric
        return Minimiser(boxed(np.negative(free, out=free), self._box))

    def minimise_exact(
        self, linear: Floats, metric: Floats, *, near: bool = False, within: float = math.inf
    ) -> Minimiser:
        """Refuse: the loss is no public quadratic."""
        del linear, metric, near, within
        raise InputError(
            "update = 'exact': must be linearized, this loss is no public quadratic; "
            "--algorithm admm, pvp or dvp solve the local problems"
        )

    def figures(self, z: Floats, data: Floats) -> dict[str, float]:
        """Return nothing: the objective costs as much as a round, so a run evaluates it apart."""
        del z, data
        return {}

    def gradient_sensitivity(self, adjacency: SampleAdjacency, norm: Norm) -> Sensitivity:
        """Return the sensitivity of the gradient, at any z.

        A sample's gradient is x residual'. In the 2-norm ||x||_2 ||residual||_2 <= R c; in the
        1-norm ||x||_1 ||residual||_1 <= sqrt(J) R c_1, or by a clip C to sqrt(J K) C. One such
        term joins the sum (zero-out), or one leaves and one joins (replace-one); the sum is
        divided by a public count.
        """
        sample_bound = self._sample_bound(norm)
        if not math.isfinite(sample_bound):
            raise InputError(
                f"the gradient of the {self._loss.name} loss has no bound: give --clip C"
            )
        return _mean_moved(adjacency, sample_bound, self._norm, self.count, norm)

    def output_sensitivity(
        self, adjacency: SampleAdjacency, norm: Norm, update: Update, metric: Floats
    ) -> Sensitivity:
        """Return the sensitivity of the minimizer: that of the gradient over the metric.

        A projection on a box is non-expansive in every coordinate, so it does not add.
        """
        del update
        gradient = self.gradient_sensitivity(adjacency, norm)
        least = float(metric.min())
        return Sensitivity(
            gradient.value / least, norm, f"{gradient.bound_source}; over rho + 1/eta = {least:.6g}"
        )

    @property
    def disclosure(self) -> Disclosure:
        """Refuse: noisy weights are no release that protects a sample's features."""
        raise InputError("perturbation = 'demand': must be objective or output in learning")

    def _sample_bound(self, norm: Norm) -> float:
        if norm == 2:
            return self._loss.gradient_bound(self._norm, self._clip)
        plain = math.sqrt(self.shape[0]) * self._norm * self._loss.bound_1
        return plain if self._clip is None else min(plain, math.sqrt(self.size) * self._clip)

    def _residual(self, x: Array, rows: slice, w: Array) -> Array:
        residual = self._loss.residual(x @ w, self._targets[rows])
        if self._clip is not None:
            residual = residual * clip_factors(x, residual, self._clip)
        return residual

    def _blocks(self) -> Iterator[slice]:
        size = BLOCK_ROWS if isinstance(self._x, np.ndarray) else self.samples
        return (slice(first, first + size) for first in range(0, self.samples, size))


@lru_cache(maxsize=1024)
def _mean_moved(
    adjacency: SampleAdjacency, item: float, features: float, count: int, norm: Norm
) -> Sensitivity:
    """Return the sensitivity of a mean gradient; cached for equal clients."""
    return Sensitivity(
        adjacency.factor / count * item,
        norm,
        f"{adjacency.factor:g} sample gradient of norm {item:.6g} at most (features of norm "
        f"{features:.6g}), over {count} samples",
    )

"""A torch module in place of a linear model: per-sample gradients, clipped, by torch.func.

Algorithms use the same interface as for a linear model, an array of parameters and clipped
gradients. So releases, sensitivities and certificates are unchanged. The module runs in evaluation
mode (no dropout), and a module that mixes the samples of a batch is refused: a clipped gradient
must depend on a single sample. Per-sample gradients by ``vmap(grad)`` take three quarters of the
time of Opacus' hooks on a small convolutional network
(docs/decisions/0020-per-sample-gradients.md).
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError, not_allowed
from gridpriv.learning.clients import (
    Array,
    Clients,
    Loss,
    import_torch,
    like,
    loss_of,
    mean_errors,
    on_device,
    to_numpy,
)
from gridpriv.learning.datasets.base import Dataset
from gridpriv.learning.settings import LearnSettings

# algorithms whose sensitivity holds for any clipped gradient, convex or not
FOR_MODULES = ("dpsgd", "dp-fedavg", "dp-admm", "cdp-admm", "ddp-admm")
CHUNK = 256  # samples whose gradients are in memory at once
# of the clip: a gradient's norm is a float32 sum, which errs by less than this
AIM = 1.0 - 1e-5


def check_module(module: Any, dataset: Dataset, settings: LearnSettings) -> None:
    """Raise :class:`InputError` unless the module can be trained privately under the settings.

    The test uses public input only: a row of zeros and a row of ones over the root of their number.
    """
    torch = import_torch()
    kinds = _checked_types(module, settings)
    outputs = dataset.classes if dataset.task == "multiclass" else 1
    rows = torch.zeros((2, dataset.features), dtype=torch.promote_types(*kinds, *kinds))
    rows[1] = dataset.features**-0.5
    try:
        scores = copy.deepcopy(module).eval()(rows)
    except (RuntimeError, ValueError, TypeError) as error:
        raise InputError(
            f"the module takes no rows of {dataset.features} features: {error}"
            "; change its first layer"
        ) from error
    if tuple(scores.shape) != (2, outputs):
        raise not_allowed("module output", tuple(scores.shape), f"(rows, {outputs})")
    functional = Functional.of(module, dataset)
    try:
        gradients = functional.per_sample(functional.start(), rows, rows.new_zeros((2, outputs)))
        mixing = functional.mixes()
    except (RuntimeError, ValueError, TypeError) as error:
        raise InputError(
            f"the module has no gradient of one sample: {error}; its forward must keep no state, "
            "draw no random numbers and change nothing in place"
        ) from error
    if not bool(torch.isfinite(gradients).all()):
        raise not_allowed("module gradient at its first parameters", "not finite", "finite numbers")
    if mixing:
        allowed = "one whose score of a row does not depend on the other rows of a batch: a clipped"
        raise not_allowed("module", type(module).__name__, f"{allowed} gradient is one sample's")


def _checked_types(module: Any, settings: LearnSettings) -> set[Any]:
    """Return the types of a module's parameters, which select the allowed settings and layers."""
    torch = import_torch()
    if settings.algorithm not in FOR_MODULES:
        allowed = f"{', '.join(FOR_MODULES)} with a module"
        raise not_allowed("algorithm", settings.algorithm, allowed)
    if settings.clip is None:
        raise not_allowed("clip", None, "a positive number with a module: it bounds a gradient")
    if settings.algorithm == "dp-admm" and settings.step == "smooth":
        raise not_allowed("step", "smooth", "nonsmooth with a module: it has no smoothness bound")
    for name, part in module.named_modules():
        if isinstance(part, torch.nn.modules.batchnorm._BatchNorm):
            allowed = "no layer that mixes samples (use GroupNorm)"
            raise not_allowed(f"module {name}", type(part).__name__, allowed)
    kinds, fault = {parameter.dtype for parameter in module.parameters()}, ("", "")
    if not kinds or kinds - {torch.float32, torch.float64}:
        fault = str(sorted(map(str, kinds))), "torch.float32 or torch.float64, at least one"
    elif not all(parameter.requires_grad for parameter in module.parameters()):
        fault = "with requires_grad = False", "all trained: register what is fixed as a buffer"
    elif settings.noise == "secure" and torch.float32 in kinds:
        allowed = "torch.float64 with secure noise: call module.double(). Sums in float32 round by "
        fault = "torch.float32", f"{allowed}more than the certificate covers"
    if any(fault):
        raise not_allowed("module parameters", *fault)
    return kinds


@dataclass(frozen=True, eq=False)
class Functional:
    """A module as a function of a flat vector of its parameters.

    Attributes
    ----------
    module : torch.nn.Module
        A copy, in evaluation mode.
    loss : Loss
        Of the data set's task; its bounds do not hold for a module's gradients.
    shapes : dict of str to torch.Size
        Of the parameters, in order.
    features : int
        Of a row.
    """

    module: Any
    loss: Loss
    shapes: dict[str, Any]
    features: int = 0

    @classmethod
    def of(cls, module: Any, dataset: Dataset, device: str = "cpu") -> Functional:
        """Return a module's functional form."""
        current = copy.deepcopy(module).eval().to("cuda" if device == "cuda" else "cpu")
        current.requires_grad_(requires_grad=False)
        shapes = {name: value.shape for name, value in current.named_parameters()}
        return cls(current, loss_of(dataset), shapes, dataset.features)

    def start(self) -> Array:
        """Return the module's own parameters, (d,): public."""
        return import_torch().cat([p.reshape(-1) for _, p in self.module.named_parameters()])

    def scores(self, flat: Array, x: Array) -> Array:
        """Return scores (m, K) of rows (m, J) at parameters (d,)."""
        parameters, first = {}, 0
        for name, shape in self.shapes.items():
            size = math.prod(shape)
            parameters[name] = flat[first : first + size].reshape(shape)
            first += size
        return import_torch().func.functional_call(self.module, parameters, (x,))

    def per_sample(self, flat: Array, x: Array, targets: Array) -> Array:
        """Return every sample's gradient, (m, d)."""
        func = import_torch().func

        def sample_loss(at: Array, row: Array, target: Array) -> Array:
            return self.loss.values(self.scores(at, row[None]), target[None])[0]

        return func.vmap(func.grad(sample_loss), in_dims=(None, 0, 0))(flat, x, targets)

    def mixes(self) -> bool:
        """Return True if a row's scores or their gradient depend on the other rows of its batch.

        The test uses public random rows, in batches of several sizes (one longer than a chunk of
        samples); their first, middle and last rows are compared with the same rows alone.
        """
        torch = import_torch()
        start, random = self.start(), torch.Generator().manual_seed(0)

        def total(at: Array, batch: Array, row: int) -> tuple[Array, Array]:
            scores = self.scores(at, batch)[row]
            return scores.sum(), scores

        slope = torch.func.grad(total, has_aux=True)
        for size in (2, 3, 16, CHUNK + 1):
            shape = size, self.features
            rows = torch.rand(shape, generator=random, dtype=torch.float64).to(start)
            for row in (0, size // 2, size - 1):
                alone, batched = slope(start, rows[row, None], 0), slope(start, rows, row)
                for single, other in zip(alone, batched, strict=True):
                    if not torch.allclose(single, other, rtol=1e-3, atol=1e-5, equal_nan=True):
                        return True
        return False


@dataclass(frozen=True, eq=False)
class ModuleClients(Clients):
    """Samples of P clients as torch tensors, and a module's parameters as models of shape (d, 1).

    The loss has no bounds: a gradient is bounded by its clip alone.
    """

    functional: Functional

    @property
    def shape(self) -> tuple[int, int]:
        """(d, 1)."""
        return sum(math.prod(shape) for shape in self.functional.shapes.values()), 1

    def start(self) -> Array:
        """Return the module's own parameters for every client."""
        return self.functional.start()[None, :, None].repeat(self.number, 1, 1)

    def gradients(self, w: Array, clip: float | None = None) -> Array:
        """Return every client's mean clipped gradient at its own model."""
        every = [np.ones(int(count)) for count in self.counts]
        sums = [self.weighted(p, w[p], every[p], clip) for p in range(self.number)]
        return import_torch().stack([s / float(n) for s, n in zip(sums, self.counts, strict=True)])

    def weighted(self, p: int, w: Array, weights: Floats, clip: float | None) -> Array:
        """Return one client's sum of clipped sample gradients times ``weights`` at w.

        A gradient that is not finite counts as zero, so its sample changes the sum by less than the
        clip.
        """
        torch = import_torch()
        x, targets = self.part(p)
        rows = np.flatnonzero(weights)
        total = torch.zeros_like(w)
        for first in range(0, len(rows), CHUNK):
            chosen = torch.as_tensor(rows[first : first + CHUNK])
            each = self.functional.per_sample(w[:, 0], x[chosen], targets[chosen])
            if clip is not None:
                each = torch.nan_to_num(each, nan=math.inf, posinf=math.inf, neginf=math.inf)
                lengths = torch.linalg.vector_norm(each, dim=1)
                each = torch.where(torch.isfinite(lengths)[:, None], each, 0.0)
                each = each * (AIM * clip / lengths.clamp(min=AIM * clip))[:, None]
            times = torch.as_tensor(weights[rows[first : first + CHUNK]], dtype=w.dtype)
            total = total + (times.to(w.device) @ each)[:, None]
        return total

    def values(self, w: Array) -> Floats:
        """Return every client's mean loss at its own model, or at a common one."""
        means = []
        for p in range(self.number):
            x, targets = self.part(p)
            flat = like(w if len(w.shape) == 2 else w[p], x)[:, 0]
            means.append(float(self.loss.values(self._scores(flat, x), targets).mean()))
        return np.array(means)

    def errors(self, dataset: Dataset, models: Array) -> Floats:
        """Return the test errors of models (A, d, 1); equal ones are computed once."""
        torch, y = import_torch(), dataset.y_test
        if len(y) == 0:
            return np.full(len(models), math.nan)
        distinct, inverse = torch.unique(models[:, :, 0], dim=0, return_inverse=True)
        x = torch.as_tensor(dataset.x_test).to(models)
        scores = [to_numpy(self._scores(flat, x)) for flat in distinct]
        errors = mean_errors(dataset.task, np.stack(scores, axis=1), y)
        return np.asarray(errors[inverse.cpu().numpy()])

    def _scores(self, flat: Array, x: Array) -> Array:
        """Return the scores of rows, some at a time."""
        chunks = (x[k : k + 4 * CHUNK] for k in range(0, len(x), 4 * CHUNK))
        return import_torch().cat([self.functional.scores(flat, chunk) for chunk in chunks])


def module_clients(clients: Clients, module: Any, dataset: Dataset, device: str) -> ModuleClients:
    """Return the clients of a data set with a module's parameters as models."""
    functional = Functional.of(module, dataset, device)
    kind = functional.start().dtype
    x, targets = (on_device(a, device).to(kind) for a in (clients.x, clients.targets))
    inf = math.inf
    loss = replace(clients.loss, bound_2=inf, bound_1=inf, curvature=inf, slopes=None)
    return ModuleClients(x, targets, clients.cuts, loss, functional)

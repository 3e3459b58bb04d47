"""Gauthier et al.'s synthetic regression (section V)."""

from __future__ import annotations

import numpy as np

from gridpriv.errors import whole
from gridpriv.learning.datasets.base import Dataset

AGENTS, SAMPLES, FEATURES, NOISE_VARIANCE = 50, 50, 8, 0.1


def make_lasso(
    seed: int = 0,
    agents: int = AGENTS,
    samples: int = SAMPLES,
    features: int = FEATURES,
    dtype: type[np.floating] = np.float32,
) -> Dataset:
    """Return y = X theta + noise with normal X, theta and noise of variance 0.1.

    Agent k's samples are rows ``k*samples`` to ``(k+1)*samples``. The largest row norm is
    stated as the bound: the data are synthetic and hold nothing private.
    """
    whole("seed", seed, 0)
    for name, value in (("agents", agents), ("samples", samples), ("features", features)):
        whole(name, value)
    random = np.random.Generator(np.random.PCG64(seed))
    theta = random.normal(size=features)
    x = random.normal(size=(agents * samples + 1000, features))
    y = x @ theta + np.sqrt(NOISE_VARIANCE) * random.normal(size=len(x))
    x, y = x.astype(dtype), y.astype(dtype)
    cut = agents * samples
    return Dataset(
        name="lasso", task="regression", x_train=x[:cut], y_train=y[:cut], x_test=x[cut:],
        y_test=y[cut:], classes=0, norm=float(np.linalg.norm(x[:cut], axis=1).max()),
        writer_of=np.repeat(np.arange(agents), samples),
        source=f"synthetic, seed {seed}",
    )  # fmt: skip

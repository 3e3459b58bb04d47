"""Gauthier et al.'s synthetic regression (section V)."""

from __future__ import annotations

import numpy as np

from gridpriv.core.errors import whole
from gridpriv.learning.datasets.base import Dataset, clip_rows

AGENTS, SAMPLES, FEATURES, NOISE_VARIANCE = 50, 50, 8, 0.1


def make_lasso(
    seed: int = 0,
    agents: int = AGENTS,
    samples: int = SAMPLES,
    features: int = FEATURES,
    dtype: type[np.floating] = np.float32,
) -> Dataset:
    """Return y = X theta + noise with normal X, theta and noise of variance 0.1.

    Agent k's samples are rows ``k*samples`` to ``(k+1)*samples``. Rows longer than a public bound,
    2.2 sqrt(features), are scaled down to it: with 8 features one row in 180,000.
    """
    whole("seed", seed, 0)
    for name, value in (("agents", agents), ("samples", samples), ("features", features)):
        whole(name, value)
    random = np.random.Generator(np.random.PCG64(seed))
    theta = random.normal(size=features)
    drawn = random.normal(size=(agents * samples + 1000, features))
    bound = 2.2 * float(np.sqrt(features))
    x, _ = clip_rows(drawn, bound)
    y = x @ theta + np.sqrt(NOISE_VARIANCE) * random.normal(size=len(x))
    x, y = x.astype(dtype, copy=False), y.astype(dtype)
    cut = agents * samples
    return Dataset(
        name="lasso",
        task="regression",
        x_train=x[:cut],
        y_train=y[:cut],
        x_test=x[cut:],
        y_test=y[cut:],
        classes=0,
        norm=bound,
        writer_of=np.repeat(np.arange(agents), samples),
        source=f"synthetic, seed {seed}",
    )

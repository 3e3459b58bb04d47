"""Compare processor seconds of a round with those of its necessary parts, in alternation.

The necessary parts are a float32 product of the same shapes, and a normal draw for every parameter
of every client. The data are synthetic (the shape of MNIST), so no files are needed. Values are
medians. On a machine with other work, read the ratio.

    python benchmarks/learning.py --rounds 20 --json results/learning.json
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from gridpriv.learning import Dataset, LearnSettings, learn, make_learn_settings

PIXELS, CLASSES = 784, 10
# (samples, clients, local updates)
SHAPES = (
    (60_000, 10, 1),
    (60_000, 10, 5),
    (60_000, 40, 1),
    (20_000, 10, 1),
    (40_000, 10, 1),
    (60_000, 100, 1),
    (60_000, 1000, 1),
)


def made(samples: int) -> Dataset:
    random = np.random.default_rng(1)
    x = random.random((samples + 1000, PIXELS), dtype=np.float32)
    y = random.integers(0, CLASSES, len(x))
    return Dataset(
        name="mnist",
        task="multiclass",
        x_train=x[:samples],
        y_train=y[:samples],
        x_test=x[samples:],
        y_test=y[samples:],
        classes=CLASSES,
        norm=28.0,
    )


def product(x: np.ndarray) -> None:
    """Compute X'(X W)."""
    x.T @ (x @ np.ones((PIXELS, CLASSES), np.float32))


def median(job: Callable[[], object], repeats: int = 5) -> float:
    """Return the median processor seconds of a job."""
    values = []
    for _ in range(repeats):
        began = time.process_time()
        job()
        values.append(time.process_time() - began)
    return float(np.median(values))


def of_rounds(data: Dataset, settings: LearnSettings) -> float:
    """Return the median processor seconds of a run's rounds."""
    clock = [time.process_time()]
    learn(data, settings, lambda _: clock.append(time.process_time()))
    return float(np.median(np.diff(clock)[1:-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows, random = [], np.random.default_rng(0)
    print("samples clients   E  round s  product s  draws s  ratio")
    for samples, clients, updates in SHAPES:
        data = made(samples)
        settings = make_learn_settings(
            "mnist",
            "ryu-kim",
            clients=clients,
            local_updates=updates,
            rounds=args.rounds,
            evaluate_every=args.rounds,
        )
        noise = np.empty((clients, PIXELS * CLASSES))
        seconds = of_rounds(data, settings)
        products = updates * median(partial(product, data.x_train))
        draws = updates * median(partial(random.standard_normal, out=noise))
        rows.append(
            {
                "samples": samples,
                "clients": clients,
                "local_updates": updates,
                "seconds": seconds,
                "product": products,
                "draws": draws,
            }
        )
        print(
            f"{samples:7} {clients:7} {updates:3} {seconds:8.4f} {products:10.4f} {draws:8.4f} "
            f"{seconds / (products + draws):6.2f}",
            flush=True,
        )
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()

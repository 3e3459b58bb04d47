"""Seconds of a round beside a bare float32 product of the same shapes, measured in turns.

The data are made (the shape of MNIST), so no files are needed. Figures are medians; the ratio is
what to read on a machine that does other work.

    python benchmarks/learning.py --rounds 20 --json results/learning.json
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

from gridpriv.learning import Dataset, learn, make_learn_settings

PIXELS, CLASSES = 784, 10
# (samples, clients, local updates)
SHAPES = ((60_000, 10, 1), (60_000, 10, 5), (60_000, 40, 1), (20_000, 10, 1), (40_000, 10, 1))


def made(samples: int) -> Dataset:
    random = np.random.default_rng(1)
    x = random.random((samples + 1000, PIXELS), dtype=np.float32)
    y = random.integers(0, CLASSES, len(x))
    return Dataset(
        name="mnist", task="multiclass", x_train=x[:samples], y_train=y[:samples],
        x_test=x[samples:], y_test=y[samples:], classes=CLASSES, norm=28.0,
    )  # fmt: skip


def bare(x: np.ndarray, repeats: int) -> float:
    """Return the median seconds of X'(X W)."""
    w = np.ones((PIXELS, CLASSES), np.float32)
    found = []
    for _ in range(repeats):
        began = time.perf_counter()
        x.T @ (x @ w)
        found.append(time.perf_counter() - began)
    return float(np.median(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = []
    print(f"{'samples':>8} {'clients':>8} {'E':>3} {'round s':>9} {'product s':>10} {'ratio':>6}")
    for samples, clients, updates in SHAPES:
        data = made(samples)
        settings = make_learn_settings(
            "mnist", "ryu-kim", clients=clients, local_updates=updates, rounds=args.rounds,
            evaluate_every=args.rounds,
        )  # fmt: skip
        before = bare(data.x_train, 5)
        seconds = float(learn(data, settings).rounds["seconds"].median())
        product = updates * (before + bare(data.x_train, 5)) / 2.0
        rows.append(
            {"samples": samples, "clients": clients, "local_updates": updates,
             "seconds": seconds, "product": product}
        )  # fmt: skip
        print(f"{samples:8} {clients:8} {updates:3} {seconds:9.4f} {product:10.4f} "
              f"{seconds / product:6.2f}", flush=True)  # fmt: skip
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()

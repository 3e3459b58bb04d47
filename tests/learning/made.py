"""Small data sets for tests."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np

from gridpriv.learning import LearnSettings
from gridpriv.learning.clients import mean_value
from gridpriv.learning.datasets.base import Dataset, clip_rows


def objective_value(clients, regularizer, w):
    """Return the mean loss of all samples + lambda R(w)."""
    loss = float(mean_value(clients.loss, clients.x, clients.targets, w.astype(clients.x.dtype)))
    return loss + regularizer.value(w)


def multiclass(samples: int = 300, features: int = 6, classes: int = 3, seed: int = 1) -> Dataset:
    random = np.random.default_rng(seed)
    x = random.random((samples + 100, features)).astype(np.float32)
    y = (x @ random.normal(size=(features, classes))).argmax(axis=1)
    return Dataset(
        name="made",
        task="multiclass",
        x_train=x[:samples],
        y_train=y[:samples],
        x_test=x[samples:],
        y_test=y[samples:],
        classes=classes,
        norm=float(np.sqrt(features)),
        writer_of=np.arange(samples) % 7,
    )


def binary(samples: int = 400, features: int = 5, seed: int = 2) -> Dataset:
    random = np.random.default_rng(seed)
    x, _ = clip_rows(random.normal(size=(samples + 100, features)), 1.0)
    y = np.where(x @ random.normal(size=features) + 0.3 * random.normal(size=len(x)) > 0, 1, -1)
    return Dataset(
        name="made",
        task="binary",
        x_train=x[:samples],
        y_train=y[:samples],
        x_test=x[samples:],
        y_test=y[samples:],
        classes=2,
        norm=1.0,
    )


def write_idx(path: Path, array: np.ndarray) -> None:
    header = b"\x00\x00\x08" + bytes([array.ndim])
    sizes = b"".join(n.to_bytes(4, "big") for n in array.shape)
    with gzip.open(path, "wb") as file:
        file.write(header + sizes + array.astype(np.uint8).tobytes())


def write_mnist(folder: Path, samples: int = 40, size: tuple[int, int] = (28, 28)) -> None:
    random = np.random.default_rng(3)
    for part, count in (("train", samples), ("t10k", 10)):
        images = random.integers(0, 256, (count, *size))
        write_idx(folder / f"{part}-images-idx3-ubyte.gz", images)
        write_idx(folder / f"{part}-labels-idx1-ubyte.gz", random.integers(0, 10, count))
    (folder / "SHA256SUMS").write_text("")  # data of our own


def write_leaf(folder: Path, writers: int = 3) -> None:
    random = np.random.default_rng(4)
    for part in ("train", "test"):
        users = {
            f"f{k}": {
                "x": random.random((4 + k, 784)).round(2).tolist(),
                "y": random.integers(0, 62, 4 + k).tolist(),
            }
            for k in range(writers)
        }
        write_writers(folder / part / "all_data_0.json.gz", users)


def write_writers(path: Path, users: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    (path.parent / "SHA256SUMS").write_text("")
    with gzip.open(path, "wt") as file:
        json.dump({"users": [], "user_data": users}, file)


ADULT_ROWS = (
    "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, "
    "2174, 0, 40, United-States, <=50K",
    "52, Private, 209642, HS-grad, 9, Married-civ-spouse, Exec-managerial, Husband, White, Male, "
    "0, 0, 45, United-States, >50K",
    "28, ?, 338409, Bachelors, 13, Married-civ-spouse, ?, Wife, Black, Female, 0, 0, 40, "
    "Cuba, <=50K",
)


def write_adult(folder: Path) -> None:
    (folder / "SHA256SUMS").write_text("")
    (folder / "adult.data").write_text("\n".join(ADULT_ROWS * 4) + "\n\n")
    test = ["|1x3 Cross validator", *(row + "." for row in ADULT_ROWS)]
    (folder / "adult.test").write_text("\n".join(test) + "\n")


def plain(**given: object) -> LearnSettings:
    """Return settings without an intercept: rows are trained on as they are made."""
    return LearnSettings(**{"intercept": "off"} | given)

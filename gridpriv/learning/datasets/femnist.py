"""FEMNIST in LEAF's json files (Caldas et al. 2018): handwriting of 62 classes by writer."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridpriv.errors import InputError
from gridpriv.learning.datasets.base import Dataset, Features
from gridpriv.learning.datasets.files import check_sum, packaged_sums

CLASSES = 62
SITE = "LEAF: preprocess.sh -s niid --sf 0.05 -k 0 -t sample, https://github.com/TalwalkarLab/leaf"


def load_femnist(folder: Path, dtype: type[np.floating] = np.float32) -> Dataset:
    """Return FEMNIST with pixels in [0, 1]; the writers of the training files are its clients."""
    x_train, y_train, writer_of, writers = _read(folder / "train", dtype)
    x_test, y_test, _, testers = _read(folder / "test", dtype)
    missing = [
        key for key in packaged_sums()
        if key.startswith("femnist/") and not (folder / key.removeprefix("femnist/")).is_file()
    ]  # fmt: skip
    note = f"; {len(missing)} of the listed files are missing" if missing else ""
    return Dataset(
        name="femnist", task="multiclass", x_train=x_train, y_train=y_train, x_test=x_test,
        y_test=y_test, classes=CLASSES, norm=float(np.sqrt(x_train.shape[1])),
        writer_of=writer_of,
        source=f"LEAF files in {folder}: {writers} writers with training data, "
        f"{testers} with test data{note}",
    )  # fmt: skip


def _read(
    folder: Path, dtype: type[np.floating]
) -> tuple[Features, NDArray[np.int64], NDArray[np.int64], int]:
    paths = sorted([*folder.glob("*.json"), *folder.glob("*.json.gz")])
    if not paths:
        raise InputError(f"{folder} has no .json or .json.gz file: put LEAF's there, from {SITE}")
    features: list[Features] = []
    labels: list[NDArray[np.int64]] = []
    writers: list[NDArray[np.int64]] = []
    for path in paths:
        check_sum(path, f"femnist/{folder.name}/{path.name}")
        for user in _users(path).values():
            try:
                x, y = np.asarray(user["x"], dtype), np.asarray(user["y"], np.int64)
            except (KeyError, TypeError, ValueError) as error:
                raise InputError(f"{path} is not a LEAF file: {error!r}") from error
            if x.ndim != 2 or len(x) != len(y):
                raise InputError(
                    f"{path}: a writer has features of shape {x.shape}, {len(y)} labels"
                )
            if x.min() < 0.0 or x.max() > 1.0:
                raise InputError(f"{path}: a pixel is outside [0, 1]")
            features.append(x)
            labels.append(y)
            writers.append(np.full(len(y), len(writers), np.int64))
    return np.concatenate(features), np.concatenate(labels), np.concatenate(writers), len(writers)


def _users(path: Path) -> dict[str, Any]:
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8") as file:
            users: dict[str, Any] = json.load(file)["user_data"]
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError) as error:
        raise InputError(f"cannot read {path} as a LEAF file: {error!r}") from error
    return {name: user for name, user in users.items() if len(user.get("y", ())) > 0}

"""MNIST in its idx files (LeCun, Cortes and Burges): 60,000 and 10,000 images of 28 x 28."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gridpriv.errors import InputError
from gridpriv.learning.datasets.base import Dataset
from gridpriv.learning.datasets.files import check_sum, need

FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
SITE = "https://ossci-datasets.s3.amazonaws.com/mnist/"
PIXELS = 784


def load_mnist(folder: Path, dtype: type[np.floating] = np.float32) -> Dataset:
    """Return MNIST with pixels in [0, 1], so that ||x||_2 <= sqrt(784) = 28."""
    paths = need(folder, FILES, SITE)
    for path in paths:
        check_sum(path, f"mnist/{path.name}")
    images = [_pixels(paths[k], dtype) for k in (0, 2)]
    labels = [read_idx(paths[k]).astype(np.int64) for k in (1, 3)]
    return Dataset(
        name="mnist", task="multiclass", x_train=images[0], y_train=labels[0],
        x_test=images[1], y_test=labels[1], classes=10, norm=float(np.sqrt(PIXELS)),
        source=f"MNIST idx files in {folder}",
    )  # fmt: skip


def _pixels(path: Path, dtype: type[np.floating]) -> NDArray[np.floating]:
    """Return images as rows in [0, 1]: one copy in ``dtype``, scaled in place."""
    raw = read_idx(path)
    x = raw.reshape(len(raw), -1).astype(dtype)
    x *= dtype(1.0 / 255.0)
    return x


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Return the array of an idx file of unsigned bytes, gzipped or not."""
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rb") as file:
            content = file.read()
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"cannot read {path}: {error}") from error
    if len(content) < 4 or content[:3] != b"\x00\x00\x08":
        raise InputError(f"{path} is not an idx file of unsigned bytes (magic {content[:4].hex()})")
    dimensions = content[3]
    start = 4 + 4 * dimensions
    shape = tuple(int(n) for n in np.frombuffer(content[4:start], dtype=">u4"))
    if len(shape) != dimensions or len(content) - start != int(np.prod(shape)):
        raise InputError(
            f"{path} is incomplete: {max(len(content) - start, 0)} bytes for an array of {shape}"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)

"""MNIST in its idx files (LeCun, Cortes and Burges): 60,000 and 10,000 images of 28 x 28.

Files of one's own may hold images of another size; the public norm is that of their pixels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gridpriv.core.errors import InputError
from gridpriv.core.reading import LARGEST, read_packed
from gridpriv.learning.datasets.base import Dataset, Features
from gridpriv.learning.datasets.files import check_sum, need, refused

FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
SITE = "https://ossci-datasets.s3.amazonaws.com/mnist/"
CLASSES = 10
IMAGES, LABELS = 3, 1  # dimensions of their arrays
HEADER = 4


@dataclass(frozen=True)
class ImageSet:
    """Training or test samples, and the height and width of their images."""

    x: Features
    y: NDArray[np.int64]
    size: tuple[int, ...]


def load_mnist(folder: Path, dtype: type[np.floating] = np.float32) -> Dataset:
    """Return MNIST with J pixels in [0, 1], so that ||x||_2 <= sqrt(J), 28 for 28 x 28."""
    paths = need(folder, FILES, SITE)
    for path in paths:
        check_sum(path, f"mnist/{path.name}")
    train = _read_part(paths[0], paths[1], dtype)
    test = _read_part(paths[2], paths[3], dtype)
    if train.size != test.size:
        raise InputError(
            f"{paths[2]} has images of {_shown(test.size)} pixels, "
            f"{paths[0]} of {_shown(train.size)}"
            ": give images of one size"
        )
    return Dataset(
        name="mnist",
        task="multiclass",
        x_train=train.x,
        y_train=train.y,
        x_test=test.x,
        y_test=test.y,
        classes=CLASSES,
        norm=math.sqrt(math.prod(train.size)),
        source=f"MNIST idx files in {folder}",
    )


def _read_part(images: Path, labels: Path, dtype: type[np.floating]) -> ImageSet:
    """Return the samples of a file of images and one of class numbers."""
    raw, y = read_idx(images, IMAGES), read_idx(labels, LABELS)
    if len(raw) != len(y):
        raise InputError(
            f"{images} has {len(raw)} images, but {labels} has {len(y)} labels"
            ": use the files of one data set"
        )
    wrong = np.flatnonzero(y >= CLASSES)
    if len(wrong):
        row = int(wrong[0])
        raise refused(
            f"{labels}: label of row {row}", int(y[row]), f"a class number 0 to {CLASSES - 1}"
        )
    return ImageSet(_pixels(raw, dtype), y.astype(np.int64), raw.shape[1:])


def _shown(size: tuple[int, ...]) -> str:
    return " x ".join(str(n) for n in size)


def _pixels(raw: NDArray[np.uint8], dtype: type[np.floating]) -> Features:
    """Return images as rows in [0, 1]: one copy in ``dtype``, scaled in place."""
    x = raw.reshape(len(raw), -1).astype(dtype)
    x *= dtype(1.0 / 255.0)
    return x


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """Return the array of an idx file of unsigned bytes, gzipped or not.

    Parameters
    ----------
    dimensions : int
        Of the array that is expected.

    Raises
    ------
    InputError
        Naming the file that is another or incomplete, or whose array is empty.
    """
    content = read_packed(path, "data set", LARGEST)
    if len(content) < HEADER or content[:3] != b"\x00\x00\x08":
        raise InputError(
            f"{path} is not an idx file of unsigned bytes (magic {content[:HEADER].hex()})"
            ": download the file again (--download)"
        )
    if content[3] != dimensions:
        raise InputError(
            f"{path} has an array of {content[3]} dimensions, {dimensions} expected "
            f"({IMAGES} for images, {LABELS} for labels)"
        )
    start = HEADER + 4 * dimensions
    if len(content) < start:
        raise InputError(
            f"{path} is incomplete: it ends within its header; download the file again (--download)"
        )
    shape = tuple(int(n) for n in np.frombuffer(content[HEADER:start], dtype=">u4"))
    current, size = len(content) - start, math.prod(shape)
    if current != size:
        state = "incomplete" if current < size else "longer than its array"
        raise InputError(
            f"{path} is {state}: {current} bytes for an array of {shape}"
            "; download the file again (--download)"
        )
    if size == 0:
        raise InputError(f"{path} has an array of {shape}: it holds no sample; give at least one")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)

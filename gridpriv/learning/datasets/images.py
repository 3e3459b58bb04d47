"""Images of handwriting: MNIST and FEMNIST.

MNIST in its idx files (LeCun, Cortes and Burges): 60,000 and 10,000 images of 28 x 28. Files of
one's own may hold images of another size; the public norm is that of their pixels. FEMNIST in
LEAF's json files (Caldas et al. 2018): 62 classes by writer.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridpriv.core.errors import InputError
from gridpriv.core.reading import LARGEST, read_packed
from gridpriv.learning.datasets.base import (
    SUMS,
    Dataset,
    Features,
    check_sum,
    need,
    packaged_sums,
    refused,
)

MNIST_FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
MNIST_SITE = "https://ossci-datasets.s3.amazonaws.com/mnist/"
MNIST_CLASSES = 10
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
    paths = need(folder, MNIST_FILES, MNIST_SITE)
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
        classes=MNIST_CLASSES,
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
    wrong = np.flatnonzero(y >= MNIST_CLASSES)
    if len(wrong):
        row = int(wrong[0])
        raise refused(
            f"{labels}: label of row {row}", int(y[row]), f"a class number 0 to {MNIST_CLASSES - 1}"
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


FEMNIST_CLASSES = 62
LEAF = "LEAF: preprocess.sh -s niid --sf 0.05 -k 0 -t sample, https://github.com/TalwalkarLab/leaf"
ARRAYS = ("x", "y")


@dataclass(frozen=True)
class Writer:
    """One writer's samples, and the place that messages name."""

    place: str
    x: Features
    y: NDArray[np.int64]


def load_femnist(folder: Path, dtype: type[np.floating] = np.float32) -> Dataset:
    """Return FEMNIST with pixels in [0, 1]; the writers of the training files are its clients.

    A writer may be in the training files only, or in the test files only. One in a training
    file has samples; one in a test file may have empty arrays.
    """
    train = _read(folder / "train", dtype)
    test = _read(folder / "test", dtype)
    _check_pixels([*train, *test])
    pixels = train[0].x.shape[1]
    return Dataset(
        name="femnist",
        task="multiclass",
        x_train=np.concatenate([item.x for item in train]),
        y_train=np.concatenate([item.y for item in train]),
        x_test=np.concatenate([item.x for item in test]),
        y_test=np.concatenate([item.y for item in test]),
        classes=FEMNIST_CLASSES,
        norm=math.sqrt(pixels),
        writer_of=np.repeat(np.arange(len(train)), [len(item.y) for item in train]),
        source=f"LEAF files in {folder}: {len(train)} writers with training data, "
        f"{len(test)} with test data{_missing(folder)}",
    )


def _missing(folder: Path) -> str:
    """Return a note if files that LEAF makes are missing; data of one's own have none."""
    missing = [
        key
        for key in packaged_sums()
        if key.startswith("femnist/")
        and not (path := folder / key.removeprefix("femnist/")).is_file()
        and not path.with_name(SUMS).is_file()
    ]
    return f"; {len(missing)} of the listed files are missing" if missing else ""


def _read(folder: Path, dtype: type[np.floating]) -> list[Writer]:
    """Return the writers of a folder's files who have samples, in the order of the files."""
    paths = sorted([*folder.glob("*.json"), *folder.glob("*.json.gz")])
    if not paths:
        raise InputError(f"{folder} has no .json or .json.gz file: put LEAF's there, from {LEAF}")
    for path in paths:
        check_sum(path, f"femnist/{folder.name}/{path.name}")
    matches = [_writer(place, user, dtype) for place, user in _users(paths)]
    empty = next((item.place for item in matches if len(item.y) == 0), None)
    if empty is not None and folder.name == "train":
        raise InputError(f"{empty} has no sample: a writer of a training file has 1 or more")
    writers = [item for item in matches if len(item.y) > 0]
    if not writers:
        raise InputError(
            f"{folder}: the .json files have no writer with a sample"
            "; give the LEAF files of FEMNIST"
        )
    return writers


def _users(paths: list[Path]) -> Iterator[tuple[str, Any]]:
    """Yield every writer's place and content; a name that comes twice is refused."""
    seen: dict[str, Path] = {}
    for path in paths:
        for name, user in _user_data(path).items():
            place = f"{path}: writer {name!r}"
            if name in seen:
                raise InputError(
                    f"{place} is in {seen[name]} too: a writer is in one file; leave one out"
                )
            seen[name] = path
            yield place, user


def _user_data(path: Path) -> dict[str, Any]:
    packed = read_packed(path, "data set", LARGEST)
    try:
        content = json.loads(packed, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"cannot read {path} as a LEAF file: {error}; give the .json files of LEAF"
        ) from error
    users = content.get("user_data") if isinstance(content, dict) else None
    if not isinstance(users, dict):
        raise InputError(
            f"{path} is not a LEAF file: an object with an object 'user_data' expected"
        )
    return users


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a json object, which would keep the last of equal names without a word."""
    entries = dict(pairs)
    if len(entries) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the name {twice!r} comes twice in an object")
    return entries


def _writer(place: str, user: Any, dtype: type[np.floating]) -> Writer:
    if not isinstance(user, dict):
        raise refused(place, user, "an object with the lists 'x' and 'y'")
    for name in ARRAYS:
        if name not in user:
            raise InputError(f"{place} lacks {name!r}, a list with one entry a sample: add it")
        if not isinstance(user[name], list):
            raise refused(f"{place}, {name}", user[name], "a list with one entry a sample")
    if len(user["x"]) != len(user["y"]):
        raise InputError(
            f"{place} has {len(user['x'])} images but {len(user['y'])} labels"
            ": give one label per image"
        )
    if not user["y"]:
        return Writer(place, np.empty((0, 0), dtype), np.empty(0, np.int64))
    return Writer(place, _images(place, user["x"], dtype), _labels(place, user["y"]))


def _labels(place: str, values: list[Any]) -> NDArray[np.int64]:
    for k, value in enumerate(values):
        if type(value) is not int or not 0 <= value < FEMNIST_CLASSES:
            raise refused(
                f"{place}, label of sample {k}", value, f"an integer 0 to {FEMNIST_CLASSES - 1}"
            )
    return np.array(values, np.int64)


def _images(place: str, values: list[Any], dtype: type[np.floating]) -> Features:
    try:
        x = np.asarray(values)
    except (ValueError, OverflowError):
        x = np.empty(0)
    if x.ndim != 2 or x.shape[1] == 0 or x.dtype.kind not in "iuf":
        raise _not_an_image(place, values)
    with np.errstate(invalid="ignore"):
        inside = bool(x.min() >= 0.0 and x.max() <= 1.0)
    if not inside:
        row, pixel = (int(k) for k in np.argwhere(~((x >= 0.0) & (x <= 1.0)))[0])
        raise refused(
            f"{place}, sample {row}, pixel {pixel}", values[row][pixel], "a number 0 to 1"
        )
    return x.astype(dtype, copy=False)


def _not_an_image(place: str, images: list[Any]) -> InputError:
    """Return the error of the first sample that is no list of as many numbers as the others."""
    for row, image in enumerate(images):
        if not isinstance(image, list) or not image:
            return refused(f"{place}, sample {row}", image, "a list of pixels")
        for pixel, value in enumerate(image):
            if type(value) not in {int, float} or not 0 <= value <= 1:
                return refused(f"{place}, sample {row}, pixel {pixel}", value, "a number 0 to 1")
        if len(image) != len(images[0]):
            return InputError(
                f"{place}, sample {row} has {len(image)} pixels, sample 0 has {len(images[0])}"
                ": give images of one size"
            )
    return InputError(f"{place}: the images are not lists of pixels; give a LEAF file of FEMNIST")


def _check_pixels(writers: list[Writer]) -> None:
    """Raise :class:`InputError` unless all writers' images have as many pixels."""
    first = writers[0]
    for writer in writers:
        if writer.x.shape[1] != first.x.shape[1]:
            raise InputError(
                f"{writer.place} has images of {writer.x.shape[1]} pixels, "
                f"{first.place} of {first.x.shape[1]}"
                ": give images of one size"
            )

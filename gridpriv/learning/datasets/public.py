"""Public data sets: MNIST and FEMNIST (handwriting), and UCI Adult.

MNIST in its idx files (LeCun, Cortes and Burges): 60,000 and 10,000 images of 28 x 28. User files
may have images of another size; the public norm is that of their pixels. FEMNIST in LEAF's json
files (Caldas et al. 2018): 62 classes by writer.

Adult (Kohavi and Becker 1996): persons with an income above 50,000 dollars a year.

Columns are scaled by public bounds and categories are those of ``adult.names``, so the preparation
does not depend on the private rows.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gridpriv.core.errors import InputError, check_choice, not_allowed, whole
from gridpriv.core.files import LARGEST, read_packed, read_table, read_text
from gridpriv.learning.datasets.base import (
    Dataset,
    Dtype,
    Features,
    check_labels,
    check_sum,
    clip_rows,
    need,
)

if TYPE_CHECKING:
    import pandas as pd

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


def load_mnist(folder: Path, dtype: Dtype = np.float32) -> Dataset:
    """Return MNIST with J pixels in [0, 1], so that ||x||_2 <= sqrt(J), 28 for 28 x 28."""
    paths = need(folder, MNIST_FILES, MNIST_SITE)
    for path in paths:
        check_sum(path, f"mnist/{path.name}")
    x_train, y_train, size = _read_part(paths[0], paths[1], dtype)
    x_test, y_test, test_size = _read_part(paths[2], paths[3], dtype)
    if size != test_size:
        shown = [" x ".join(map(str, pixels)) for pixels in (test_size, size)]
        raise InputError(
            f"{paths[2]} has images of {shown[0]} pixels, {paths[0]} of {shown[1]}"
            ": give images of one size"
        )
    parts = x_train, y_train, x_test, y_test
    norm, source = math.sqrt(math.prod(size)), f"MNIST idx files in {folder}"
    return Dataset("mnist", "multiclass", *parts, MNIST_CLASSES, norm, source=source)


def _read_part(
    images: Path, labels: Path, dtype: Dtype
) -> tuple[Features, NDArray[np.int64], tuple[int, ...]]:
    """Return pixels in [0, 1], class numbers, and the size of the images, of two files."""
    raw, y = read_idx(images, IMAGES), read_idx(labels, LABELS)
    if len(raw) != len(y):
        raise InputError(
            f"{images} has {len(raw)} images, but {labels} has {len(y)} labels"
            ": use the files of one data set"
        )
    check_labels(f"{labels}:", "", y, "multiclass", MNIST_CLASSES)
    x = raw.reshape(len(raw), -1).astype(dtype)
    x *= dtype(1.0 / 255.0)  # in place: one copy of the pixels
    return x, y.astype(np.int64), raw.shape[1:]


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """Return the array of an idx file of unsigned bytes, gzipped or not.

    Parameters
    ----------
    dimensions : int
        Of the expected array.

    Raises
    ------
    InputError
        Naming a file of another format, an incomplete file, or one with an empty array.
    """
    content = read_packed(path, "data set", LARGEST)
    if len(content) < HEADER or content[:3] != b"\x00\x00\x08":
        magic = content[:HEADER].hex()
        raise _damaged(f"{path} is not an idx file of unsigned bytes (magic {magic}):")
    if content[3] != dimensions:
        raise InputError(
            f"{path} has an array of {content[3]} dimensions, {dimensions} expected "
            f"({IMAGES} for images, {LABELS} for labels)"
        )
    start = HEADER + 4 * dimensions
    if len(content) < start:
        raise _damaged(f"{path} is incomplete: it ends within its header;")
    shape = tuple(int(n) for n in np.frombuffer(content[HEADER:start], dtype=">u4"))
    current, size = len(content) - start, math.prod(shape)
    if current != size:
        state = "incomplete" if current < size else "longer than its array"
        raise _damaged(f"{path} is {state}: {current} bytes for an array of {shape};")
    if size == 0:
        raise InputError(f"{path} has an array of {shape}: it holds no sample; give at least one")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def _damaged(fault: str) -> InputError:
    return InputError(f"{fault} download the file again (--download)")


FEMNIST_CLASSES = 62
LEAF = "LEAF: preprocess.sh -s niid --sf 0.05 -k 0 -t sample, https://github.com/TalwalkarLab/leaf"
Writer = tuple[Features, NDArray[np.int64]]
"""One writer's images, (m, pixels), and classes, (m,)."""


def load_femnist(folder: Path, dtype: Dtype = np.float32) -> Dataset:
    """Return FEMNIST with pixels in [0, 1]; the writers of the training files are its clients.

    A writer may be in the training files only, or in the test files only. Writers in a training
    file have samples; those in a test file may have empty arrays.
    """
    train = _read(folder / "train", dtype)
    test = _read(folder / "test", dtype)
    sizes = sorted({x.shape[1] for x, _ in [*train, *test]})
    if len(sizes) > 1:
        raise InputError(
            f"{folder} has images of {sizes[0]} and of {sizes[-1]} pixels: give images of one size"
        )
    writers = np.repeat(np.arange(len(train)), [len(y) for _, y in train])
    (x_train, y_train), (x_test, y_test) = (
        [np.concatenate(arrays) for arrays in zip(*part, strict=True)] for part in (train, test)
    )
    sizes_of = f"{len(train)} writers with training data, {len(test)} with test data"
    source = f"LEAF files in {folder}: {sizes_of}"
    parts, norm = (x_train, y_train, x_test, y_test), math.sqrt(sizes[0])
    return Dataset("femnist", "multiclass", *parts, FEMNIST_CLASSES, norm, writers, source=source)


def _read(folder: Path, dtype: Dtype) -> list[Writer]:
    """Return the writers of a folder's files who have samples, in the order of the files."""
    paths = sorted([*folder.glob("*.json"), *folder.glob("*.json.gz")])
    if not paths:
        raise InputError(f"{folder} has no .json or .json.gz file: put LEAF's there, from {LEAF}")
    writers: dict[str, Writer] = {}
    for path in paths:
        check_sum(path, f"femnist/{folder.name}/{path.name}")
        for name, user in _user_data(path).items():
            place = f"{path}: writer {name!r}"
            if name in writers:
                raise InputError(f"{place} is in two files: leave one out")
            writers[name] = _writer(place, user, dtype)
            if folder.name == "train" and not len(writers[name][1]):
                raise InputError(
                    f"{place} has no sample: a writer of a training file has 1 or more"
                )
    nonempty = [writer for writer in writers.values() if len(writer[1])]
    if not nonempty:
        raise InputError(
            f"{folder}: the .json files have no writer with a sample"
            "; give the LEAF files of FEMNIST"
        )
    return nonempty


def _user_data(path: Path) -> dict[str, Any]:
    try:
        content = read_packed(path, "data set", LARGEST)
        users = json.loads(content, object_pairs_hook=_without_repeats)["user_data"]
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise InputError(
            f"cannot read {path} as a LEAF file: {error}; give the .json files of LEAF"
        ) from error
    if not isinstance(users, dict):
        raise InputError(f"{path} is not a LEAF file: an object 'user_data' expected")
    return users


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; refuse equal names, of which Python would keep the last."""
    if len(entries := dict(pairs)) < len(pairs):
        raise ValueError("a name comes twice in an object")
    return entries


def _writer(place: str, user: Any, dtype: Dtype) -> Writer:
    try:
        x, y = np.asarray(user["x"]), np.asarray(user["y"])
    except (KeyError, TypeError, ValueError, OverflowError):
        x = y = np.empty(())
    if x.shape == y.shape == (0,):
        return np.empty((0, 0), dtype), np.empty(0, np.int64)
    numbers = x.dtype.kind in "iuf" and y.dtype.kind in "iu"
    if not (numbers and x.ndim == 2 and x.size and y.shape == x.shape[:1]):
        raise not_allowed(
            place, user, "an object of 'x', images of equally many pixels, and 'y', their classes"
        )
    pixels = ~((x >= 0.0) & (x <= 1.0))
    if pixels.any():
        row, pixel = (int(k) for k in np.argwhere(pixels)[0])
        where = f"{place}, sample {row}, pixel {pixel}"
        raise not_allowed(where, x[row, pixel].item(), "a number 0 to 1")
    check_labels(f"{place},", "", y, "multiclass", FEMNIST_CLASSES)
    return x.astype(dtype, copy=False), y.astype(np.int64)


ADULT_FILES = ("adult.data", "adult.test")
ADULT_SITE = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/"


COLUMNS = read_table(Path(__file__).with_name("adult.toml"), "columns of Adult")
"""Columns in the order of the files: bounds of a number, or values of a category by commas."""
NAMES = [*COLUMNS, "income"]
MOST_DEVIATIONS = 3.0  # standardized numbers are clipped to this
NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
DROPPED_TRAIN = 40_000


Encoded = tuple[Features, NDArray[np.int64], NDArray[np.bool_]]
"""Features, labels and a mask of rows with a number outside its public bounds."""


def load_adult(
    folder: Path,
    dtype: Dtype = np.float32,
    missing: str = "drop",
    seed: int = 0,
    scaling: str = "bounds",
) -> Dataset:
    """Return Adult with rows of bounded 2-norm and labels -1 and +1.

    Parameters
    ----------
    folder : Path
        With ``adult.data`` and ``adult.test``.
    missing : {'drop', 'mode'}
        ``drop``: leave out rows with missing values from both files and draw 40,000 for
        training (Huang et al.: 45,222 rows, 104 columns, without Never-worked, which no
        complete row has). ``mode``: fill in the most frequent value and keep the published
        parts, 32,561 and 16,281 (Li et al.).
    seed : int
        Of the draw of ``drop``.
    scaling : {'bounds', 'standard'}
        ``bounds``: numbers over their public bounds, rows scaled down to norm 1 (the papers').
        ``standard``: numbers less a published mean, over a published deviation, clipped to 3;
        rows have norm sqrt(62) or less (8 categories, 6 numbers), or what ``norm`` clips to.

    Notes
    -----
    :attr:`Dataset.clipped` is the number of training rows with a number outside the public bounds;
    the number is set to the bound.
    """
    import pandas as pd  # slow to import, and not needed by the help of learn

    check_choice("missing", missing, ("drop", "mode"))
    check_choice("scaling", scaling, ("bounds", "standard"))
    whole("seed", seed, 0)
    paths = need(folder, ADULT_FILES, ADULT_SITE)
    for path in paths:
        check_sum(path, f"adult/{path.name}")
    parts = [read_rows(path) for path in paths]
    if missing == "mode":
        train, test = (_encode(rows, True, dtype, scaling) for rows in parts)
    else:
        rows = pd.concat(parts)
        rows = rows[~(rows == "?").any(axis=1)]
        if len(rows) < 2:
            raise InputError(
                f"{paths[0]} and {paths[1]} have {len(rows)} rows without a missing value ('?'): "
                "2 or more are needed, or missing = 'mode'"
            )
        x, y, outside = _encode(rows, False, dtype, scaling)
        order = np.random.Generator(np.random.PCG64(seed)).permutation(len(rows))
        cut = DROPPED_TRAIN if len(rows) > DROPPED_TRAIN else len(rows) * 4 // 5
        train, test = ((x[at], y[at], outside[at]) for at in (order[:cut], order[cut:]))
    (x_train, y_train, outside), (x_test, y_test, outside_test) = train, test
    note = ""
    if outside.any() or outside_test.any():
        moved = f"{outside.sum()} training and {outside_test.sum()} test rows"
        note = f", numbers of {moved} moved to their public bounds"
    source = f"UCI Adult files in {folder}, missing values: {missing}, scaling: {scaling}{note}"
    samples, clipped = (x_train, y_train, x_test, y_test), int(outside.sum())
    return Dataset("adult", "binary", *samples, 2, _norm(scaling), clipped=clipped, source=source)


def read_rows(path: Path) -> pd.DataFrame:
    """Return the texts of every person, by place; comments (``|``) and blank lines are left out."""
    import pandas as pd

    lines = enumerate(read_text(path, "data set", LARGEST).split("\n"), 1)
    rows = {
        f"{path} line {number}": [field.strip() for field in line.rstrip(" .\t\r").split(",")]
        for number, line in lines
        if line.strip() and not line.startswith("|")
    }
    for place, fields in rows.items():
        if len(fields) != len(NAMES):
            raise InputError(f"{place}: {len(fields)} fields, {len(NAMES)} expected")
    if not rows:
        raise InputError(f"{path} has no row: give at least one")
    return pd.DataFrame.from_dict(rows, orient="index", columns=NAMES)


def _norm(scaling: str) -> float:
    """Return the public bound of a row's norm."""
    if scaling == "bounds":
        return 1.0
    numbers = sum("bound" in column for column in COLUMNS.values())
    return math.sqrt(len(COLUMNS) - numbers + numbers * MOST_DEVIATIONS**2)


def _encode(rows: pd.DataFrame, fill: bool, dtype: Dtype, scaling: str) -> Encoded:
    """Return features (one-hot and scaled numbers, rows of bounded norm) and labels -1, +1."""
    parts: list[NDArray[np.float64]] = []
    outside = np.zeros(len(rows), np.bool_)
    for name, column in COLUMNS.items():
        if "bound" in column:
            numbers, bound = _numbers(rows[name]), column["bound"]
            outside |= (numbers < 0.0) | (numbers > bound)
            numbers = np.clip(numbers, 0.0, bound)
            if scaling == "bounds":
                scaled = numbers / bound
            else:
                scaled = (numbers - column["mean"]) / column["deviation"]
                scaled = np.clip(scaled, -MOST_DEVIATIONS, MOST_DEVIATIONS)
            parts.append(scaled[:, None])
        else:
            every = column["values"].split(", ")
            known = [value for value in every if fill or value != "Never-worked"]
            texts = rows[name].replace("?", column.get("mode", "?")) if fill else rows[name]
            parts.append(np.eye(len(known))[_places(texts, known)])
    x = np.concatenate(parts, axis=1).astype(dtype)
    y = 2 * _places(rows["income"], ["<=50K", ">50K"]) - 1
    return clip_rows(x, _norm(scaling))[0], y, outside


def _numbers(texts: pd.Series) -> NDArray[np.float64]:
    written = texts.str.fullmatch(NUMBER, flags=re.ASCII)
    values: NDArray[np.float64] = texts.where(written, "nan").to_numpy(str).astype(float)
    _refuse(texts, ~np.isfinite(values), "a finite number")
    return values


def _places(texts: pd.Series, known: list[str]) -> NDArray[np.int64]:
    """Return the position of every text in the list of values."""
    import pandas as pd

    places = pd.Index(known).get_indexer(pd.Index(texts))
    _refuse(texts, places < 0, f"one of {', '.join(known)}")
    return np.asarray(places, np.int64)


def _refuse(texts: pd.Series, wrong: Any, allowed: str) -> None:
    """Raise the error of the first field that is wrong."""
    if wrong.any():
        place, value = next(iter(texts[wrong].items()))
        column = f"column {NAMES.index(str(texts.name)) + 1} ({texts.name})"
        raise not_allowed(f"{place}: {column}", value, allowed)

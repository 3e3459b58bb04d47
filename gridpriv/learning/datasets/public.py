"""Public data sets: MNIST and FEMNIST (handwriting), and UCI Adult.

MNIST in its idx files (LeCun, Cortes and Burges): 60,000 and 10,000 images of 28 x 28. Files of
one's own may hold images of another size; the public norm is that of their pixels. FEMNIST in
LEAF's json files (Caldas et al. 2018): 62 classes by writer.

Adult (Kohavi and Becker 1996): who earns more than 50,000 dollars a year.

Columns are scaled by public bounds and categories are those of ``adult.names``, so that
nothing about the preparation depends on the private rows.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gridpriv.core.errors import InputError, one_of, whole
from gridpriv.core.files import LARGEST, read_packed, read_text
from gridpriv.learning.datasets.base import (
    SUMS,
    Dataset,
    Features,
    check_sum,
    clip_rows,
    need,
    packaged_sums,
    refused,
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


def load_mnist(folder: Path, dtype: type[np.floating] = np.float32) -> Dataset:
    """Return MNIST with J pixels in [0, 1], so that ||x||_2 <= sqrt(J), 28 for 28 x 28."""
    paths = need(folder, MNIST_FILES, MNIST_SITE)
    for path in paths:
        check_sum(path, f"mnist/{path.name}")
    x_train, y_train, size = _read_part(paths[0], paths[1], dtype)
    x_test, y_test, test_size = _read_part(paths[2], paths[3], dtype)
    if size != test_size:
        raise InputError(
            f"{paths[2]} has images of {_shown(test_size)} pixels, {paths[0]} of {_shown(size)}"
            ": give images of one size"
        )
    return Dataset(
        name="mnist",
        task="multiclass",
        x_train=x_train,
        y_train=y_train,
        x_test=x_test,
        y_test=y_test,
        classes=MNIST_CLASSES,
        norm=math.sqrt(math.prod(size)),
        source=f"MNIST idx files in {folder}",
    )


def _read_part(
    images: Path, labels: Path, dtype: type[np.floating]
) -> tuple[Features, NDArray[np.int64], tuple[int, ...]]:
    """Return pixels in [0, 1], class numbers, and the size of the images, of two files."""
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
    x = raw.reshape(len(raw), -1).astype(dtype)
    x *= dtype(1.0 / 255.0)  # in place: one copy of the pixels
    return x, y.astype(np.int64), raw.shape[1:]


def _shown(size: tuple[int, ...]) -> str:
    return " x ".join(str(n) for n in size)


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


ADULT_FILES = ("adult.data", "adult.test")
ADULT_SITE = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/"


@dataclass(frozen=True)
class Number:
    """A numeric column.

    Attributes
    ----------
    bound : float
        Upper bound from the census form, not the rows; the lower one is 0.
    mean, deviation : float
        Of the published training file, to three digits: constants of a standardization that reads
        nothing off the rows given.
    """

    bound: float
    mean: float
    deviation: float


# in the order of the files; of a category, its values by commas
COLUMNS: dict[str, Number | str] = {
    "age": Number(100.0, 38.6, 13.6),
    "workclass": "Private, Self-emp-not-inc, Self-emp-inc, Federal-gov, Local-gov, State-gov, "
    "Without-pay, Never-worked",
    "fnlwgt": Number(1.5e6, 1.9e5, 1.06e5),
    "education": "Bachelors, Some-college, 11th, HS-grad, Prof-school, Assoc-acdm, Assoc-voc, 9th, "
    "7th-8th, 12th, Masters, 1st-4th, 10th, Doctorate, 5th-6th, Preschool",
    "education-num": Number(16.0, 10.1, 2.57),
    "marital-status": "Married-civ-spouse, Divorced, Never-married, Separated, Widowed, "
    "Married-spouse-absent, Married-AF-spouse",
    "occupation": "Tech-support, Craft-repair, Other-service, Sales, Exec-managerial, "
    "Prof-specialty, Handlers-cleaners, Machine-op-inspct, Adm-clerical, Farming-fishing, "
    "Transport-moving, Priv-house-serv, Protective-serv, Armed-Forces",
    "relationship": "Wife, Own-child, Husband, Not-in-family, Other-relative, Unmarried",
    "race": "White, Asian-Pac-Islander, Amer-Indian-Eskimo, Other, Black",
    "sex": "Female, Male",
    "capital-gain": Number(1e5, 1080.0, 7390.0),
    "capital-loss": Number(5e3, 87.3, 403.0),
    "hours-per-week": Number(100.0, 40.4, 12.3),
    "native-country": "United-States, Cambodia, England, Puerto-Rico, Canada, Germany, "
    "Outlying-US(Guam-USVI-etc), India, Japan, Greece, South, China, Cuba, Iran, Honduras, "
    "Philippines, Italy, Poland, Jamaica, Vietnam, Mexico, Portugal, Ireland, France, "
    "Dominican-Republic, Laos, Ecuador, Taiwan, Haiti, Columbia, Hungary, Guatemala, Nicaragua, "
    "Scotland, Thailand, Yugoslavia, El-Salvador, Trinadad&Tobago, Peru, Hong, "
    "Holand-Netherlands",
}
NAMES = [*COLUMNS, "income"]
# the published most frequent values, for missing = 'mode'
MODES = {"workclass": "Private", "occupation": "Prof-specialty", "native-country": "United-States"}
MOST_DEVIATIONS = 3.0  # standardized numbers are clipped to this
NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
DROPPED_TRAIN = 40_000


@dataclass(frozen=True)
class Encoded:
    """Features, labels and which rows had a number outside its public bounds."""

    x: Features
    y: NDArray[np.int64]
    outside: NDArray[np.bool_]

    def take(self, rows: NDArray[np.int64]) -> Encoded:
        """Return some of the rows."""
        return Encoded(self.x[rows], self.y[rows], self.outside[rows])


def load_adult(
    folder: Path,
    dtype: type[np.floating] = np.float32,
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
    What :attr:`Dataset.clipped` counts are the training rows
    with a number outside the public bounds, which is moved to the bound.
    """
    import pandas as pd  # slow to import: the help of learn does without

    one_of("missing", missing, ("drop", "mode"))
    one_of("scaling", scaling, ("bounds", "standard"))
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
        both = _encode(rows, False, dtype, scaling)
        order = np.random.Generator(np.random.PCG64(seed)).permutation(len(rows))
        cut = DROPPED_TRAIN if len(rows) > DROPPED_TRAIN else len(rows) * 4 // 5
        train, test = both.take(order[:cut]), both.take(order[cut:])
    moved = (
        f", numbers of {train.outside.sum()} training and {test.outside.sum()} test rows "
        "moved to their public bounds"
        if train.outside.any() or test.outside.any()
        else ""
    )
    return Dataset(
        name="adult",
        task="binary",
        x_train=train.x,
        y_train=train.y,
        x_test=test.x,
        y_test=test.y,
        classes=2,
        norm=_norm(scaling),
        clipped=int(train.outside.sum()),
        source=f"UCI Adult files in {folder}, missing values: {missing}, scaling: {scaling}{moved}",
    )


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
    numbers = sum(isinstance(column, Number) for column in COLUMNS.values())
    return math.sqrt(len(COLUMNS) - numbers + numbers * MOST_DEVIATIONS**2)


def _encode(rows: pd.DataFrame, fill: bool, dtype: type[np.floating], scaling: str) -> Encoded:
    """Return features (one-hot and scaled numbers, rows of bounded norm) and labels -1, +1."""
    parts: list[NDArray[np.float64]] = []
    outside = np.zeros(len(rows), np.bool_)
    for name, column in COLUMNS.items():
        if isinstance(column, Number):
            numbers = _numbers(rows[name])
            outside |= (numbers < 0.0) | (numbers > column.bound)
            numbers = np.clip(numbers, 0.0, column.bound)
            if scaling == "bounds":
                scaled = numbers / column.bound
            else:
                scaled = (numbers - column.mean) / column.deviation
                scaled = np.clip(scaled, -MOST_DEVIATIONS, MOST_DEVIATIONS)
            parts.append(scaled[:, None])
        else:
            known = [value for value in column.split(", ") if fill or value != "Never-worked"]
            texts = rows[name].replace("?", MODES[name]) if fill and name in MODES else rows[name]
            parts.append(np.eye(len(known))[_places(texts, known)])
    x = np.concatenate(parts, axis=1).astype(dtype)
    y = 2 * _places(rows["income"], ["<=50K", ">50K"]) - 1
    return Encoded(clip_rows(x, _norm(scaling))[0], y, outside)


def _numbers(texts: pd.Series) -> NDArray[np.float64]:
    written = texts.str.fullmatch(NUMBER, flags=re.ASCII)
    values: NDArray[np.float64] = texts.where(written, "nan").to_numpy(str).astype(float)
    _refuse(texts, ~np.isfinite(values), "a finite number")
    return values


def _places(texts: pd.Series, known: list[str]) -> NDArray[np.int64]:
    """Return the place of every text among the known ones."""
    import pandas as pd

    places = pd.Index(known).get_indexer(pd.Index(texts))
    _refuse(texts, places < 0, f"one of {', '.join(known)}")
    return np.asarray(places, np.int64)


def _refuse(texts: pd.Series, wrong: Any, allowed: str) -> None:
    """Raise the error of the first field that is wrong."""
    if wrong.any():
        place, value = next(iter(texts[wrong].items()))
        column = f"column {NAMES.index(str(texts.name)) + 1} ({texts.name})"
        raise refused(f"{place}: {column}", value, allowed)

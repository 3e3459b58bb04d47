"""UCI Adult (Kohavi and Becker 1996): who earns more than 50,000 dollars a year.

Columns are scaled by public bounds and categories are those of ``adult.names``, so that
nothing about the preparation depends on the private rows.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gridpriv.core.errors import InputError, one_of, whole
from gridpriv.core.reading import LARGEST, read_text
from gridpriv.learning.datasets.base import Dataset, Features, clip_rows
from gridpriv.learning.datasets.files import check_sum, need, refused

FILES = ("adult.data", "adult.test")
SITE = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/"

NAMES = (
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
    "income",
)
COLUMNS = len(NAMES)
# upper bounds of the numeric columns (they are 0 or more), from the census form, not the rows
BOUNDS = {0: 100.0, 2: 1.5e6, 4: 16.0, 10: 1e5, 11: 5e3, 12: 100.0}
# mean and standard deviation of the published training file's columns, to three digits: constants
# of a standardization that reads nothing off the rows given
MOMENTS = {
    0: (38.6, 13.6),
    2: (1.9e5, 1.06e5),
    4: (10.1, 2.57),
    10: (1080.0, 7390.0),
    11: (87.3, 403.0),
    12: (40.4, 12.3),
}
MOST_DEVIATIONS = 3.0  # standardized numbers are clipped to this
CATEGORIES = {
    1: "Private, Self-emp-not-inc, Self-emp-inc, Federal-gov, Local-gov, State-gov, Without-pay, "
    "Never-worked",
    3: "Bachelors, Some-college, 11th, HS-grad, Prof-school, Assoc-acdm, Assoc-voc, 9th, 7th-8th, "
    "12th, Masters, 1st-4th, 10th, Doctorate, 5th-6th, Preschool",
    5: "Married-civ-spouse, Divorced, Never-married, Separated, Widowed, Married-spouse-absent, "
    "Married-AF-spouse",
    6: "Tech-support, Craft-repair, Other-service, Sales, Exec-managerial, Prof-specialty, "
    "Handlers-cleaners, Machine-op-inspct, Adm-clerical, Farming-fishing, Transport-moving, "
    "Priv-house-serv, Protective-serv, Armed-Forces",
    7: "Wife, Own-child, Husband, Not-in-family, Other-relative, Unmarried",
    8: "White, Asian-Pac-Islander, Amer-Indian-Eskimo, Other, Black",
    9: "Female, Male",
    13: "United-States, Cambodia, England, Puerto-Rico, Canada, Germany, "
    "Outlying-US(Guam-USVI-etc), India, Japan, Greece, South, China, Cuba, Iran, Honduras, "
    "Philippines, Italy, Poland, Jamaica, Vietnam, Mexico, Portugal, Ireland, France, "
    "Dominican-Republic, Laos, Ecuador, Taiwan, Haiti, Columbia, Hungary, Guatemala, Nicaragua, "
    "Scotland, Thailand, Yugoslavia, El-Salvador, Trinadad&Tobago, Peru, Hong, "
    "Holand-Netherlands",
}
# the published most frequent values, for missing = 'mode'
MODES = {1: "Private", 6: "Prof-specialty", 13: "United-States"}
LABELS = {"<=50K": -1, ">50K": 1}
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
DROPPED_TRAIN = 40_000


@dataclass(frozen=True, slots=True)
class PersonRow:
    """The fields of a person, and where they are written."""

    path: Path
    line: int
    fields: list[str]

    def refused(self, column: int, allowed: str) -> InputError:
        """Return the error of a field with a value that is not allowed."""
        place = f"{self.path} line {self.line}: column {column + 1} ({NAMES[column]})"
        return refused(place, self.fields[column], allowed)


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
    one_of("missing", missing, ("drop", "mode"))
    one_of("scaling", scaling, ("bounds", "standard"))
    whole("seed", seed, 0)
    paths = need(folder, FILES, SITE)
    for path in paths:
        check_sum(path, f"adult/{path.name}")
    parts = [read_rows(path) for path in paths]
    if missing == "mode":
        train, test = (_encode(rows, True, dtype, scaling) for rows in parts)
    else:
        rows = [row for part in parts for row in part if "?" not in row.fields]
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


def read_rows(path: Path) -> list[PersonRow]:
    """Return the rows of every person; comment lines (``|``) and blank ones are left out."""
    lines = read_text(path, "data set", LARGEST).split("\n")
    rows = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("|"):
            continue
        fields = [field.strip() for field in line.rstrip(" .\t\r").split(",")]
        if len(fields) != COLUMNS:
            raise InputError(f"{path} line {number}: {len(fields)} fields, {COLUMNS} expected")
        rows.append(PersonRow(path, number, fields))
    if not rows:
        raise InputError(f"{path} has no row: give at least one")
    return rows


def _norm(scaling: str) -> float:
    """Return the public bound of a row's norm."""
    if scaling == "bounds":
        return 1.0
    return math.sqrt(len(CATEGORIES) + len(MOMENTS) * MOST_DEVIATIONS**2)


def _encode(rows: list[PersonRow], fill: bool, dtype: type[np.floating], scaling: str) -> Encoded:
    """Return features (one-hot and scaled numbers, rows of bounded norm) and labels -1, +1."""
    parts: list[NDArray[np.float64]] = []
    outside = np.zeros(len(rows), np.bool_)
    for k in range(COLUMNS - 1):
        if k in BOUNDS:
            numbers = np.array([_number(row, k) for row in rows])
            outside |= (numbers < 0.0) | (numbers > BOUNDS[k])
            numbers = np.clip(numbers, 0.0, BOUNDS[k])
            if scaling == "bounds":
                scaled = numbers / BOUNDS[k]
            else:
                mean, deviation = MOMENTS[k]
                scaled = np.clip((numbers - mean) / deviation, -MOST_DEVIATIONS, MOST_DEVIATIONS)
            parts.append(scaled[:, None])
        else:
            parts.append(_one_hot(rows, k, fill))
    x = np.concatenate(parts, axis=1).astype(dtype)
    y = np.array([_known(row, COLUMNS - 1, LABELS) for row in rows], np.int64)
    return Encoded(clip_rows(x, _norm(scaling))[0], y, outside)


def _number(row: PersonRow, column: int) -> float:
    text = row.fields[column]
    value = float(text) if NUMBER.fullmatch(text) else math.nan
    if not math.isfinite(value):
        raise row.refused(column, "a finite number")
    return value


def _one_hot(rows: list[PersonRow], column: int, fill: bool) -> NDArray[np.float64]:
    names = CATEGORIES[column].split(", ")
    if not fill:
        names = [name for name in names if name != "Never-worked"]
    place = {name: k for k, name in enumerate(names)}
    if fill and column in MODES:
        place["?"] = place[MODES[column]]
    return np.eye(len(names))[[_known(row, column, place) for row in rows]]


def _known(row: PersonRow, column: int, known: dict[str, int]) -> int:
    try:
        return known[row.fields[column]]
    except KeyError:
        raise row.refused(column, f"one of {', '.join(known)}") from None

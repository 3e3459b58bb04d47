"""UCI Adult (Kohavi and Becker 1996): who earns more than 50,000 dollars a year.

Columns are scaled by public bounds and categories are those of ``adult.names``, so that
nothing about the preparation depends on the private rows.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gridpriv.core.errors import InputError, one_of, whole
from gridpriv.core.reading import LARGEST, read_text
from gridpriv.learning.datasets.base import Dataset, Features, check_sum, clip_rows, need, refused

FILES = ("adult.data", "adult.test")
SITE = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/"


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
    places = pd.Index(known).get_indexer(pd.Index(texts))
    _refuse(texts, places < 0, f"one of {', '.join(known)}")
    return np.asarray(places, np.int64)


def _refuse(texts: pd.Series, wrong: Any, allowed: str) -> None:
    """Raise the error of the first field that is wrong."""
    if wrong.any():
        place, value = next(iter(texts[wrong].items()))
        column = f"column {NAMES.index(str(texts.name)) + 1} ({texts.name})"
        raise refused(f"{place}: {column}", value, allowed)

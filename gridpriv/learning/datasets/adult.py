"""UCI Adult (Kohavi and Becker 1996): who earns more than 50,000 dollars a year.

Columns are scaled by public bounds and categories are those of ``adult.names``, so that
nothing about the preparation depends on the private rows.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gridpriv.errors import InputError, not_allowed, one_of
from gridpriv.learning.datasets.base import Dataset, Features, clip_rows
from gridpriv.learning.datasets.files import check_sum, need

FILES = ("adult.data", "adult.test")
SITE = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/"

# upper bounds of the numeric columns (they are 0 or more), from the census form, not the rows
BOUNDS = {0: 100.0, 2: 1.5e6, 4: 16.0, 10: 1e5, 11: 5e3, 12: 100.0}
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
COLUMNS = 15
DROPPED_TRAIN = 40_000


def load_adult(
    folder: Path,
    dtype: type[np.floating] = np.float32,
    missing: str = "drop",
    seed: int = 0,
) -> Dataset:
    """Return Adult with rows of 2-norm 1 or less and labels -1 and +1.

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
    """
    one_of("missing", missing, ("drop", "mode"))
    paths = need(folder, FILES, SITE)
    for path in paths:
        check_sum(path, f"adult/{path.name}")
    parts = [read_rows(path) for path in paths]
    if missing == "mode":
        (x_train, y_train), (x_test, y_test) = (_encode(rows, True, dtype) for rows in parts)
    else:
        rows = [row for part in parts for row in part if "?" not in row]
        x, y = _encode(rows, False, dtype)
        order = np.random.Generator(np.random.PCG64(seed)).permutation(len(y))
        train = order[:DROPPED_TRAIN] if len(y) > DROPPED_TRAIN else order[: len(y) * 4 // 5]
        test = order[len(train) :]
        x_train, y_train, x_test, y_test = x[train], y[train], x[test], y[test]
    return Dataset(
        name="adult", task="binary", x_train=x_train, y_train=y_train, x_test=x_test,
        y_test=y_test, classes=2, norm=1.0,
        source=f"UCI Adult files in {folder}, missing values: {missing}",
    )  # fmt: skip


def read_rows(path: Path) -> list[list[str]]:
    """Return the fields of every person; comment lines (``|``) and blank ones are left out."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}") from error
    rows = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("|"):
            continue
        row = [field.strip() for field in line.rstrip(" .").split(",")]
        if len(row) != COLUMNS:
            raise InputError(f"{path} line {number}: {len(row)} fields, {COLUMNS} expected")
        rows.append(row)
    if not rows:
        raise InputError(f"{path} has no row")
    return rows


def _encode(
    rows: list[list[str]], fill: bool, dtype: type[np.floating]
) -> tuple[Features, NDArray[np.int64]]:
    """Return features (one-hot and scaled numbers, rows of norm 1) and labels -1, +1."""
    columns = list(zip(*rows, strict=True))
    parts: list[NDArray[np.float64]] = []
    for k in range(COLUMNS - 1):
        if k in BOUNDS:
            numbers = np.array([float(value) for value in columns[k]]) / BOUNDS[k]
            parts.append(np.clip(numbers, 0.0, 1.0)[:, None])
        else:
            names = CATEGORIES[k].split(", ")
            if not fill:
                names = [name for name in names if name != "Never-worked"]
            parts.append(_one_hot(k, [MODES[k] if v == "?" else v for v in columns[k]], names))
    x = np.concatenate(parts, axis=1).astype(dtype)
    return clip_rows(x, 1.0)[0], _labels(columns[-1])


def _one_hot(column: int, values: list[str], names: list[str]) -> NDArray[np.float64]:
    place = {name: k for k, name in enumerate(names)}
    try:
        chosen = [place[value] for value in values]
    except KeyError as error:
        raise not_allowed(f"adult column {column + 1}", error.args[0], ", ".join(names)) from None
    return np.eye(len(names))[chosen]


def _labels(values: tuple[str, ...]) -> NDArray[np.int64]:
    known = {"<=50K": -1, ">50K": 1}
    try:
        return np.array([known[value] for value in values], np.int64)
    except KeyError as error:
        raise not_allowed("adult label", error.args[0], "<=50K or >50K") from None

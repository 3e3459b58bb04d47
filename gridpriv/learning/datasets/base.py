"""What a data set is: features of bounded norm, labels, and where they came from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gridpriv.errors import InputError, not_allowed

Task = Literal["binary", "multiclass", "regression"]
Features = NDArray[np.floating]
Labels = NDArray[np.integer] | NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Train and test samples; rows of ``x_train`` have 2-norm ``norm`` or less.

    Attributes
    ----------
    name : str
    task : {'binary', 'multiclass', 'regression'}
    x_train, x_test : (N, J) float32 or float64
    y_train, y_test : (N,)
        Class numbers 0..K-1 (multiclass), -1 or +1 (binary), targets (regression).
    classes : int
        K; 2 for binary, 0 for regression.
    norm : float
        Public bound R of ||x||_2.
    writer_of : (N,) int or None
        Who each training sample is from, where the data set says so.
    clipped : int
        Training rows that were scaled down to ``norm``.
    source : str
        What was read, and from where, for the record of a run.
    """

    name: str
    task: Task
    x_train: Features
    y_train: Labels
    x_test: Features
    y_test: Labels
    classes: int
    norm: float
    writer_of: NDArray[np.int64] | None = None
    clipped: int = 0
    source: str = ""

    def __post_init__(self) -> None:
        for part in ("train", "test"):
            x, y = getattr(self, f"x_{part}"), getattr(self, f"y_{part}")
            if x.ndim != 2 or y.shape != x.shape[:1]:
                raise InputError(
                    f"{self.name}: {len(x)} rows of {part} features but labels of shape {y.shape}"
                )
            check_labels(self.name, part, y, self.task, self.classes)
        if len(self.x_train) == 0:
            raise InputError(f"{self.name}: no training sample")

    @property
    def features(self) -> int:
        """J."""
        return int(self.x_train.shape[1])

    @property
    def outputs(self) -> int:
        """Columns of the model: K for multiclass, else 1."""
        return self.classes if self.task == "multiclass" else 1

    def clip_to(self, norm: float) -> Dataset:
        """Return the data set with rows scaled down to a smaller public norm, and counted.

        Test rows are left as they are: nothing about them is released.
        """
        if not (np.isfinite(norm) and norm > 0):
            raise not_allowed("norm", norm, "a positive number")
        if norm >= self.norm:
            return self
        x, count = clip_rows(self.x_train, norm)
        return replace(self, x_train=x, norm=norm, clipped=count)

    def head(self, train: int, test: int | None = None) -> Dataset:
        """Return the first samples only."""
        test = len(self.x_test) if test is None else test
        return replace(
            self,
            x_train=self.x_train[:train],
            y_train=self.y_train[:train],
            x_test=self.x_test[:test],
            y_test=self.y_test[:test],
            writer_of=None if self.writer_of is None else self.writer_of[:train],
        )


def clip_rows(x: Features, norm: float) -> tuple[Features, int]:
    """Return rows scaled to 2-norm ``norm`` where they are longer, and how many were.

    Rounding may leave a row above the bound by some 1e-7 of it; the scale aims below.
    """
    lengths = np.sqrt(np.einsum("ij,ij->i", x, x, dtype=np.float64))
    long = lengths > norm
    if not long.any():
        return x, 0
    scale = np.where(long, norm * (1.0 - 1e-6) / np.maximum(lengths, 1e-300), 1.0)
    return x * scale[:, None].astype(x.dtype), int(long.sum())


def check_labels(name: str, part: str, y: Labels, task: Task, classes: int) -> None:
    """Raise :class:`InputError` naming the first label that is outside the classes."""
    if task == "multiclass":
        wrong, allowed = (y < 0) | (y >= classes), f"a class number 0 to {classes - 1}"
    elif task == "binary":
        wrong, allowed = (y != 1) & (y != -1), "-1 or +1"
    else:
        wrong, allowed = ~np.isfinite(y), "a finite number"
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise not_allowed(f"{name} {part} label of row {row}", y[row].item(), allowed)

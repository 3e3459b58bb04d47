"""Preparation of rows before training and prediction."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from gridpriv.learning.datasets.base import Dataset, Features, clip_rows
from gridpriv.learning.features import RAW, TRANSFORMED_NORM, transform
from gridpriv.learning.settings import LearnSettings


def prepare_dataset(dataset: Dataset, settings: LearnSettings, *, linear: bool) -> Dataset:
    """Return the rows that are trained on: clipped, transformed and with an intercept.

    Every step is public and acts on one row, so that neighbours stay neighbours. A torch module
    has biases of its own and gets no intercept.
    """
    if settings.norm is not None:
        dataset = dataset.clip_to(settings.norm)
    if settings.features != RAW:
        x, x_test = (transform(settings.features, x) for x in (dataset.x_train, dataset.x_test))
        dataset = replace(
            dataset,
            x_train=clip_rows(x, TRANSFORMED_NORM)[0],
            x_test=x_test,
            norm=TRANSFORMED_NORM,
            columns=(),
        )
    intercept = intercept_of(dataset.norm, settings) if linear else 0.0
    if intercept:
        dataset = replace(
            dataset,
            x_train=with_intercept(dataset.x_train, intercept),
            x_test=with_intercept(dataset.x_test, intercept),
            norm=math.hypot(dataset.norm, intercept) * (1.0 + 1e-6),
        )
    return dataset.in_double() if settings.noise == "secure" else dataset


def intercept_of(norm: float, settings: LearnSettings) -> float:
    """Return the constant feature of every row; 0 for none.

    It is as large as the public bound of the others' norm: a smaller one is learned slowly, a
    larger one costs noise (docs/decisions/0070-models.md).
    """
    return norm if settings.intercept == "on" else 0.0


def with_intercept(x: Features, intercept: float) -> Features:
    """Return rows with a constant last feature."""
    return np.hstack([x, np.full((len(x), 1), intercept, x.dtype)])

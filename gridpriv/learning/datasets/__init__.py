"""Data sets by name."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from gridpriv.core.errors import check_choice
from gridpriv.learning.datasets import public
from gridpriv.learning.datasets.base import VARIABLE, Dataset, Dtype, data_folder, fetch, make_lasso
from gridpriv.learning.datasets.own import is_own, load_own

DATASETS = ("mnist", "femnist", "adult", "lasso")
# their samples, or split into training and test rows, depend on a seed
SEEDED_DATASETS = ("adult", "lasso")
SITES = {
    "mnist": (public.MNIST_FILES, public.MNIST_SITE),
    "adult": (public.ADULT_FILES, public.ADULT_SITE),
}
OWN = "or your own FILE.npz, FILE.csv, FILE.parquet or folder of images"


def dataset_name(text: str) -> str:
    """Return the data set's name of a name or a path; a link's own name, not its target's."""
    path = Path(text).absolute()
    return path.stem if is_own(path) else path.name


def load_dataset(
    name: str,
    folder: str | Path | None = None,
    *,
    download: bool = False,
    dtype: Dtype = np.float32,
    missing: str = "drop",
    scaling: str = "bounds",
    seed: int = 0,
    norm: float | None = None,
) -> Dataset:
    """Return a data set by name, by a path whose last part is the name, or from user files.

    Parameters
    ----------
    name : str
        ``mnist``, ``femnist``, ``adult``, ``lasso``, a folder such as ``/data/mnist``, or user data
        (:mod:`gridpriv.learning.datasets.own`).
    folder : path, optional
        Where the files are; default $GRIDPRIV_DATA.
    download : bool
        Fetch missing files from the data set's own site (not for FEMNIST, which LEAF makes).
    dtype : type
        float32, or float64 for reference solutions.
    missing, scaling, seed
        Of Adult (see :func:`load_adult`); ``seed`` also of the synthetic data.
    norm : float, optional
        Public bound of a row's 2-norm, for user data.

    Raises
    ------
    InputError
        Naming the missing or corrupted file.
    """
    if is_own(Path(name)):
        return load_own(Path(name), norm, dtype)
    configured = folder is not None or bool(os.environ.get(VARIABLE))
    may_be_path = name not in DATASETS or not configured  # a bare name is looked for in DIR
    if may_be_path and Path(name).is_dir() and dataset_name(name) in DATASETS:
        folder, name = Path(name).absolute(), dataset_name(name)
    if name not in DATASETS:
        check_choice("dataset", name, (*DATASETS, OWN))
    if name == "lasso":
        return make_lasso(seed, dtype)
    where = data_folder(name, folder)
    if download:
        where = where if where.name == name else where / name
        files, site = SITES.get(name, ((), ""))
        for file in files:
            if not (where / file).is_file():
                fetch(site + file, where / file)
    if name == "adult":
        return public.load_adult(where, dtype, missing, seed, scaling)
    return (public.load_mnist if name == "mnist" else public.load_femnist)(where, dtype)

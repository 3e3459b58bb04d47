"""Data sets in the formats they are published in."""

from gridpriv.learning.datasets.base import Dataset
from gridpriv.learning.datasets.library import DATASETS, load_by_seed, load_dataset

__all__ = ["DATASETS", "Dataset", "load_by_seed", "load_dataset"]

"""Data sets in the formats they are published in."""

from gridpriv.learning.datasets.base import Dataset
from gridpriv.learning.datasets.library import DATASETS, dataset_name, load_dataset

__all__ = ["DATASETS", "Dataset", "dataset_name", "load_dataset"]

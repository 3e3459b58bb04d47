"""Federated learning of linear models with certified privacy: four papers on one core.

>>> from gridpriv.learning import LearnSettings, learn, load_dataset
>>> lasso = load_dataset("lasso")
>>> settings = LearnSettings(algorithm="centralized", mechanism="none", split="writer", rounds=1)
>>> learn(lasso, settings).final["train_loss"] < 0.11
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridpriv.core.lazy import lazily

if TYPE_CHECKING:
    from gridpriv.learning.datasets import DATASETS as DATASETS
    from gridpriv.learning.datasets import load_dataset as load_dataset
    from gridpriv.learning.datasets.base import Dataset as Dataset
    from gridpriv.learning.result import LearnResult as LearnResult
    from gridpriv.learning.run import learn as learn
    from gridpriv.learning.settings import LearnSettings as LearnSettings
    from gridpriv.learning.settings import make_learn_settings as make_learn_settings

__getattr__, __dir__ = lazily(__name__)

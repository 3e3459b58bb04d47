"""Statistical audit of whole learning runs.

:class:`LearnedModels` is a mechanism of :func:`gridpriv.assurance.audit.audit_mechanism`: it
observes every sent model of every client and round; nominal and certified are the totals of all
rounds. It reads neither charges nor draws, so it covers noise that
:mod:`gridpriv.assurance.learned` cannot replay: Laplace noise, and noise in the objective.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gridpriv.assurance.statistic import Statistic
from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError, not_allowed
from gridpriv.core.text import Json
from gridpriv.learning.algorithms.base import Round, Task, make_algorithm
from gridpriv.learning.clients import to_numpy
from gridpriv.learning.datasets.base import Dataset
from gridpriv.learning.run import learn, make_task
from gridpriv.learning.settings import LearnSettings
from gridpriv.privacy.noise import NoiseStreams


@dataclass(frozen=True, eq=False)
class LearnedModels:
    """The models that clients send, on a data set and on an adjacent one.

    Parameters
    ----------
    dataset, neighbour : Dataset
        Equal except for one training sample (:func:`with_sample`).
    settings : LearnSettings
        Noisy, with split ``contiguous``: the seed of a run must change only its noise.

    Raises
    ------
    InputError
        Without noise, or where the seed also draws clients or samples.
    """

    dataset: Dataset
    neighbour: Dataset
    settings: LearnSettings
    level: str = "messages"
    log_ratio: Statistic | None = None

    def __post_init__(self) -> None:
        settings = self.settings
        if settings.mechanism == "none":
            raise not_allowed("mechanism", "none", "laplace or gaussian: an audit needs noise")
        if settings.split != "contiguous":
            raise not_allowed("split", settings.split, "contiguous")
        if settings.batch is not None or settings.sampled_clients is not None:
            raise InputError(
                "batch and sampled_clients are not allowed: the audit draws noise, not samples"
                "; leave both out"
            )

    @cached_property
    def _tasks(self) -> tuple[Task, Task]:
        """The task on the data set and on the adjacent one; a run changes its noise only."""
        here, _ = make_task(self.dataset, self.settings)
        there, _ = make_task(self.neighbour, self.settings)
        return here, there

    @cached_property
    def _privacy(self) -> Json:
        return learn(self.dataset, self.settings).privacy

    @property
    def delta(self) -> float:
        """Delta of the totals; 0 where all releases are pure."""
        return 0.0 if self._privacy["total_pure"] is not None else self.settings.total_delta

    @property
    def certified(self) -> float:
        """Total of all rounds, as charged."""
        pure = self._privacy["total_pure"]
        return float(self._privacy["total"]["epsilon"] if pure is None else pure)

    @property
    def nominal(self) -> float:
        """Stated total of all rounds: the certified one, unless a paper states less."""
        if self.settings.sensitivity == "proven":
            return self.certified
        if self._privacy["total"]["nominal"] is not None:
            return float(self._privacy["total"]["nominal"])
        each = self._privacy["per_release"]["nominal"]
        return math.nan if each is None else float(each) * self._privacy["releases_per_client"]

    def sample(self, neighbour: bool, seed: int) -> Floats:
        """Return all models sent in a run, one after the other."""
        here, there = self._tasks
        task = replace(there if neighbour else here, streams=NoiseStreams(seed))
        sent: list[Floats] = []

        def hear(done: Round) -> None:
            sent.append(np.asarray(to_numpy(done.local), dtype=float).ravel())

        make_algorithm(task).run(hear)
        return np.concatenate(sent)


def with_sample(dataset: Dataset, row: int, features: Floats, label: float) -> Dataset:
    """Return the data set with one training sample replaced.

    Parameters
    ----------
    features : (J,)
        Of 2-norm ``dataset.norm`` or less.
    """
    if np.linalg.norm(features) > dataset.norm * (1.0 + 1e-9):
        raise not_allowed("features", features, f"a vector of norm {dataset.norm:g} or less")
    x, y = dataset.x_train.copy(), dataset.y_train.copy()
    x[row], y[row] = features, label
    return replace(dataset, x_train=x, y_train=y)

"""Settings chosen from a declared grid, so that what was tried is not free of charge.

Two ways. ``public:S`` declares a share S of the training rows public (drawn by the seed alone,
not by what they hold): half of them trains every candidate, half of them judges it, and the run
itself trains on the other rows. A client then has a fraction r of its rows; its batch shrinks
with them and noise is r times what its sensitivity asks for, so that candidates meet the noise
that the run will have. Public rows are protected from nobody, so nothing is charged.
``charged`` tries every candidate on the private rows: all candidates and the run itself share the
budget, as one composition, and are judged on the test rows, which count as public: no certificate
covers them, and what is chosen on them is released.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from gridpriv.core.arrays import Ints
from gridpriv.core.errors import SolverError, not_allowed
from gridpriv.core.settings import check_names
from gridpriv.core.text import Json
from gridpriv.learning.accounting import planned
from gridpriv.learning.algorithms import READS
from gridpriv.learning.algorithms.base import ALONE, Shared
from gridpriv.learning.datasets.base import Dataset
from gridpriv.learning.run import learn, make_task
from gridpriv.learning.settings import LearnSettings
from gridpriv.privacy.mechanism import Charge
from gridpriv.privacy.noise import NoiseStreams

CHARGED = "charged"
APART = 2**32  # between seeds of streams that must have nothing in common
TUNABLE = (
    "learning_rate",
    "radius",
    "step_scale",
    "penalty",
    "diameter",
    "proximity",
    "decay",
    "clip",
)


@dataclass(frozen=True)
class Tuning:
    """A grid of settings, and what candidates are judged on.

    Attributes
    ----------
    on : str
        ``public:S`` or ``charged``.
    grid : tuple of (name, values)
    """

    on: str
    grid: tuple[tuple[str, tuple[Any, ...]], ...]

    def __post_init__(self) -> None:
        _ = self.share
        check_names([name for name, _ in self.grid], TUNABLE)
        for name, values in self.grid:
            if not values:
                raise not_allowed(f"tune {name}", [], "at least one value")

    @classmethod
    def of(cls, given: Json) -> Tuning:
        """Return the tuning of a study file's table: ``on``, and a list for every setting."""
        on = given.pop("on", "public:0.1")
        grid = {key.replace("-", "_"): value for key, value in given.items()}
        for name, values in grid.items():
            if not isinstance(values, list):
                raise not_allowed(f"tuning.{name}", values, "a list")
        return cls(str(on), tuple((name, tuple(values)) for name, values in grid.items()))

    @property
    def share(self) -> float | None:
        """Share of the training rows that is public; None where trying is charged."""
        if self.on == CHARGED:
            return None
        kind, _, number = self.on.partition(":")
        try:
            share = float(number)
        except ValueError:
            share = 0.0
        if kind != "public" or not 0.0 < share < 1.0:
            raise not_allowed("tune-on", self.on, f"public:S with S above 0, below 1, or {CHARGED}")
        return share

    def candidates(self, settings: LearnSettings) -> tuple[LearnSettings, ...]:
        """Return the settings at every combination of the values that its algorithm reads."""
        read = [(name, values) for name, values in self.grid if name in READS[settings.algorithm]]
        combined = product(*(values for _, values in read))
        return tuple(
            replace(settings, **dict(zip([name for name, _ in read], values, strict=True)))
            for values in combined
            if read
        )

    def as_dict(self) -> Json:
        """Return it as a study file has it."""
        return {"on": self.on} | {k.replace("_", "-"): list(v) for k, v in self.grid}


@dataclass(frozen=True, eq=False)
class Chosen:
    """Result of tuning.

    Attributes
    ----------
    settings : LearnSettings
        Of the run.
    dataset : Dataset
        That the run trains on.
    shared : Shared
        How many runs share its budget, and what the others cost.
    choice : str
        The choice in words.
    """

    settings: LearnSettings
    dataset: Dataset
    shared: Shared = ALONE
    choice: str = ""


def tune(dataset: Dataset, candidates: Sequence[LearnSettings], tuning: Tuning) -> Chosen:
    """Return the candidate of the lowest error, or the first of equal ones.

    Raises
    ------
    SolverError
        If every candidate diverges.
    """
    if tuning.share is None:
        if candidates[0].mechanism == "none":
            raise not_allowed("tune-on", CHARGED, "public:S for a method without noise")
        return _charged(dataset, candidates)
    private, public, ratio = divided(dataset, tuning.share, candidates[0].seed)
    errors = [
        _tried(public, _thinner(candidate, ratio), Shared(noise=ratio))[0]
        for candidate in candidates
    ]
    return Chosen(_best(candidates, errors), private, choice=_choice(candidates, errors))


def _charged(dataset: Dataset, candidates: Sequence[LearnSettings]) -> Chosen:
    runs, spent, errors = len(candidates) + 1, dict[int, Counter[Charge]](), []
    for k, candidate in enumerate(candidates):
        # streams of its own: two runs with the same noise would give it away
        streams = NoiseStreams(candidate.seed + (k + 1) * APART)
        error, charges = _tried(dataset, candidate, Shared(runs, streams=streams))
        errors.append(error)
        for client, cost in charges.items():
            spent.setdefault(client, Counter()).update(cost)
    shared = Shared(runs, charges=spent)
    return Chosen(_best(candidates, errors), dataset, shared, _choice(candidates, errors))


def _tried(
    dataset: Dataset, settings: LearnSettings, shared: Shared
) -> tuple[float, Mapping[int, Mapping[Charge, int]]]:
    """Return a candidate's error and charges; a run that diverges is charged for as a whole."""
    whole = replace(settings, evaluate_every=settings.rounds)
    try:
        result = learn(dataset, whole, shared=shared)
    except SolverError:
        task, _ = make_task(dataset, whole, shared=shared)
        return math.inf, {
            int(client) - 1: Counter({release.certified: n for release, n in drawn.items()})
            for client, drawn in planned(task).items()
        }
    error = result.final["test_error"]
    return (error if math.isfinite(error) else math.inf), result.charges


def divided(dataset: Dataset, share: float, seed: int) -> tuple[Dataset, Dataset, float]:
    """Return the private rows, the public ones, and training rows of these over those.

    Half of the public rows trains, half of them tests.
    """
    rows = np.random.default_rng((seed, APART)).permutation(len(dataset.y_train))
    cut = max(2, round(share * len(rows)))
    train, judge, kept = rows[: cut // 2], rows[cut // 2 : cut], np.sort(rows[cut:])
    if len(kept) == 0:
        raise not_allowed("tune-on", f"public:{share:g}", "a share that leaves private rows")
    private, public = _rows(dataset, kept), _rows(dataset, np.sort(train))
    judged = replace(public, x_test=dataset.x_train[judge], y_test=dataset.y_train[judge])
    return private, judged, len(train) / len(kept)


def _rows(dataset: Dataset, rows: Ints) -> Dataset:
    writers = None if dataset.writer_of is None else dataset.writer_of[rows]
    return replace(
        dataset, x_train=dataset.x_train[rows], y_train=dataset.y_train[rows], writer_of=writers
    )


def _thinner(settings: LearnSettings, ratio: float) -> LearnSettings:
    """Return the settings for clients that hold a fraction of their rows."""
    if settings.batch is None:
        return settings
    return replace(settings, batch=max(1, round(settings.batch * ratio)))


def _best(candidates: Sequence[LearnSettings], errors: Sequence[float]) -> LearnSettings:
    if not math.isfinite(min(errors)):
        raise SolverError("every setting of the grid diverges: declare smaller steps")
    return candidates[int(np.argmin(errors))]


def _choice(candidates: Sequence[LearnSettings], errors: Sequence[float]) -> str:
    """Return the chosen values of the settings in which candidates differ."""
    best = _best(candidates, errors).as_given()
    given = [candidate.as_given() for candidate in candidates]
    varied = [name for name in best if any(candidate[name] != best[name] for candidate in given)]
    words = " ".join(f"{name.replace('_', '-')} {best[name]}" for name in varied)
    return f"{words} of {len(candidates)}".strip()

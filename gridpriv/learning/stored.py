"""Runs kept as one JSON file each, so that an interrupted comparison goes on where it was."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Protocol

from gridpriv.core.errors import GridprivWarning
from gridpriv.core.files import make_folder, write_text
from gridpriv.core.sealed import DamagedError, read_sealed, sealed
from gridpriv.learning.algorithms.base import Round
from gridpriv.learning.datasets.base import Dataset
from gridpriv.learning.result import LearnResult, finite
from gridpriv.learning.run import learn
from gridpriv.learning.settings import LearnSettings

FORMAT = 3
SERIES = (
    "round", "objective", "consensus_residual", "noise_magnitude", "train_loss", "test_error",
    "local_loss", "local_error", "seconds",
)  # fmt: skip


# from a number of steps to a context that yields advance(note, steps)
Progress = Callable[[int], AbstractContextManager[Callable[[str, int], None]]]


def silent(total: int) -> AbstractContextManager[Callable[[str, int], None]]:
    """Show no progress."""
    del total
    return nullcontext(lambda *_: None)


class Watcher(Protocol):
    """Figures of its own that a reproduction keeps from every round."""

    def __call__(self, done: Round) -> None:
        """See one round."""
        ...

    def series(self) -> dict[str, list[float]]:
        """Return what was kept, one value a round."""
        ...


class Runs(Protocol):
    """Where a reproduction gets its runs' records from."""

    def get(
        self, dataset: Dataset, settings: LearnSettings, watcher: Watcher | None = None
    ) -> dict[str, Any]:
        """Return a run's record: settings, series, final, privacy, timing."""
        ...


class StoredRuns:
    """Runs of a folder, found by their settings and data.

    Parameters
    ----------
    folder : Path or None
        None keeps nothing.
    advance : callable
        Called with a label and a number of steps: after every round its local updates, and for a
        run that is there already those of all its rounds.
    """

    def __init__(
        self, folder: Path | None, advance: Callable[[str, int], None] = lambda *_: None
    ) -> None:
        self._folder = None if folder is None else folder / "runs"
        self._advance = advance
        if self._folder is not None:
            make_folder(self._folder)

    def get(
        self, dataset: Dataset, settings: LearnSettings, watcher: Watcher | None = None
    ) -> dict[str, Any]:
        """Return a run's record: settings, series, final, privacy, timing; run it if need be."""
        path = self._path(dataset, settings, watcher)
        label = f"{dataset.name} {settings.algorithm}"
        found = None if path is None else _kept(path)
        if found is not None:
            self._advance(label, steps(settings))
            return found

        counter = StepCounter(settings, label, self._advance)

        def watch(done: Round) -> None:
            if watcher is not None:
                watcher(done)
            counter(done)

        result = learn(dataset, settings, watch)
        record = as_record(result, watcher)
        if path is not None:
            write_text(path, sealed(record), private=True)
        return record

    def _path(
        self, dataset: Dataset, settings: LearnSettings, watcher: Watcher | None
    ) -> Path | None:
        if self._folder is None:
            return None
        identity = {
            "format": FORMAT, "settings": settings.as_given(), "dataset": dataset.name,
            "fingerprint": dataset.fingerprint,
            "watcher": repr(watcher) if watcher else None,
        }  # fmt: skip
        text = json.dumps(identity, sort_keys=True)
        return self._folder / f"{hashlib.sha256(text.encode()).hexdigest()[:20]}.json"


def _kept(path: Path) -> dict[str, Any] | None:
    """Return a run's record, or None if it is not there, or damaged and to be made again."""
    try:
        return read_sealed(path)
    except FileNotFoundError:
        return None
    except DamagedError as error:
        warnings.warn(f"{error}; its run is repeated", GridprivWarning, stacklevel=3)
        return None


class PlannedRuns:
    """Stand-ins that run nothing and count the steps that the runs would take.

    Every series is one throughout, so that whatever is made of the records can be made of these.
    """

    def __init__(self) -> None:
        self.steps = 0

    def get(
        self, dataset: Dataset, settings: LearnSettings, watcher: Watcher | None = None
    ) -> dict[str, Any]:
        """Return a record of ones."""
        del dataset
        self.steps += steps(settings)
        ones = [1.0] * settings.rounds
        watched = watcher.series() if watcher else {}
        return {
            "settings": settings.as_dict(),
            "series": dict.fromkeys((*SERIES, *watched), ones)
            | {"round": list(range(1, settings.rounds + 1))},
            "final": dict.fromkeys(SERIES[1:], 1.0),
            "privacy": {"total": {"epsilon": 1.0, "delta": settings.target_delta}, "notes": []},
        }


def steps(settings: LearnSettings) -> int:
    """Return the local updates of a run, the unit of progress."""
    return settings.rounds * settings.local_updates


class StepCounter:
    """Advances a progress bar by the local updates of every round that a run reports."""

    def __init__(
        self, settings: LearnSettings, label: str, advance: Callable[[str, int], None]
    ) -> None:
        self._settings, self._label, self._advance = settings, label, advance
        self._round = 0

    def __call__(self, done: Round) -> None:
        """Go on to a round."""
        self._go_on(done.number)

    def finish(self) -> None:
        """Go on to the last round, of a run that failed before."""
        self._go_on(self._settings.rounds)

    def _go_on(self, number: int) -> None:
        self._advance(self._label, (number - self._round) * self._settings.local_updates)
        self._round = number


def as_record(result: LearnResult, watcher: Watcher | None) -> dict[str, Any]:
    """Return what is kept of a run."""
    privacy = {k: v for k, v in result.privacy.items() if k != "sensitivity"}
    record: dict[str, Any] = finite(
        {
            "settings": result.settings.as_dict(),
            "series": {k: result.rounds[k].tolist() for k in SERIES}
            | (watcher.series() if watcher else {}),
            "final": result.final
            | {k: float(result.rounds[k].iloc[-1]) for k in ("local_loss", "local_error")},
            "privacy": privacy,
            "timing": vars(result.timing),
        }
    )
    return record

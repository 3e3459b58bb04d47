"""Runs kept as one JSON file each, so that an interrupted comparison goes on where it was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from gridpriv.learning.algorithms.base import Round
from gridpriv.learning.datasets.base import Dataset
from gridpriv.learning.result import LearnResult, finite
from gridpriv.learning.run import learn
from gridpriv.learning.settings import LearnSettings

FORMAT = 1
SERIES = (
    "round", "objective", "consensus_residual", "noise_magnitude", "train_loss", "test_error",
    "local_loss", "local_error", "seconds",
)  # fmt: skip


class Watcher(Protocol):
    """Figures of its own that a reproduction keeps from every round."""

    def __call__(self, done: Round) -> None:
        """See one round."""
        ...

    def series(self) -> dict[str, list[float]]:
        """Return what was kept, one value a round."""
        ...


class StoredRuns:
    """Runs of a folder, found by their settings.

    Parameters
    ----------
    folder : Path or None
        None keeps nothing.
    note : callable
        Called with a label before each run that is not there yet.
    """

    def __init__(self, folder: Path | None, note: Callable[[str], None] = lambda _: None) -> None:
        self._folder = None if folder is None else folder / "runs"
        self._note = note
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)

    def get(
        self, dataset: Dataset, settings: LearnSettings, watcher: Watcher | None = None
    ) -> dict[str, Any]:
        """Return a run's record: settings, series, final, privacy, timing; run it if need be."""
        path = self._path(dataset, settings, watcher)
        if path is not None and path.is_file():
            found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return found
        self._note(f"{dataset.name} {settings.algorithm} {settings.budget} seed {settings.seed}")
        result = learn(dataset, settings, watcher or (lambda _: None))
        record = as_record(result, watcher)
        if path is not None:
            part = path.with_suffix(".part")
            part.write_text(json.dumps(record), encoding="utf-8")
            part.replace(path)
        return record

    def _path(
        self, dataset: Dataset, settings: LearnSettings, watcher: Watcher | None
    ) -> Path | None:
        if self._folder is None:
            return None
        identity = {
            "format": FORMAT, "settings": asdict(settings), "dataset": dataset.name,
            "samples": len(dataset.y_train), "source": dataset.source,
            "watcher": repr(watcher) if watcher else None,
        }  # fmt: skip
        text = json.dumps(identity, sort_keys=True)
        return self._folder / f"{hashlib.sha256(text.encode()).hexdigest()[:20]}.json"


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
